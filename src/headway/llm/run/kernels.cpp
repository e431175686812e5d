// What a layer of a language model does besides its linear maps, for one CPU: plain C++, called through ctypes.
//
// Types: 0 = float, 1 = bfloat16; all sums are of floats. Blocks of keys and values are [block, head, position, size].
// What belongs to one token is computed in an order that depends on nothing but that token, so that an answer does not
// depend on who shares its step.

#include "attention.h"
#include "numbers.h"
#include "quantised.h"

namespace {

template <class T> inline float inverse_root(const T *x, long n, float eps) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < n; i++) sum += up(x[i]) * up(x[i]);
    return 1.0f / std::sqrt(sum / float(n) + eps);
}

template <class T>
void add_norm(long tokens, long width, T *states, const T *x, const float *weight, float eps, T *out, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && tokens * width > 16384)
    for (long t = 0; t < tokens; t++) {
        T *state = states + t * width;
        if (x) {
            const T *added = x + t * width;
#pragma omp simd
            for (long i = 0; i < width; i++) down(up(state[i]) + up(added[i]), state[i]);
        }
        float root = inverse_root(state, width, eps);
        T *to = out + t * width;
#pragma omp simd
        for (long i = 0; i < width; i++) down(up(state[i]) * root * weight[i], to[i]);
    }
}

template <class T> void gated(long tokens, long inner, const T *both, T *out, int activation, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && tokens * inner > 16384)
    for (long t = 0; t < tokens; t++) {
        const T *gate = both + t * 2 * inner, *rest = gate + inner;
        T *to = out + t * inner;
        if (activation == 0) {
#pragma omp simd
            for (long i = 0; i < inner; i++) {
                float g = up(gate[i]);
                down(g / (1.0f + exponential(-g)) * up(rest[i]), to[i]);
            }
        } else {
#pragma omp simd
            for (long i = 0; i < inner; i++) {
                float g = up(gate[i]);
                float y = 1.59576912f * (g + 0.044715f * g * g * g);  // (1 + tanh(y / 2)) / 2 = 1 / (1 + e^-y)
                down(g / (1.0f + exponential(-y)) * up(rest[i]), to[i]);
            }
        }
    }
}

template <class T> inline void turn(const T *x, long half, const float *c, const float *s, const float *norm, float root, T *to) {
#pragma omp simd
    for (long i = 0; i < half; i++) {
        float a = up(x[i]), b = up(x[i + half]);
        if (norm) a *= root * norm[i], b *= root * norm[i + half];
        down(a * c[i] - b * s[i], to[i]);
        down(b * c[i] + a * s[i], to[i + half]);
    }
}

// Queries are turned where they lie; keys, turned, and values go to their blocks.
template <class T>
void rope_write(long tokens, long heads, long kv_heads, long size, T *qkv, const float *cosines, const float *sines,
                const int64_t *slots, long block_size, T *keys, T *values, const float *q_norm, const float *k_norm,
                float eps, int threads) {
    long half = size / 2, all = heads + 2 * kv_heads;
#pragma omp parallel for num_threads(threads) if (threads > 1 && tokens * all * size > 16384)
    for (long t = 0; t < tokens; t++) {
        T *row = qkv + t * all * size;
        const float *c = cosines + t * half, *s = sines + t * half;
        long block = slots[t] / block_size, place = slots[t] % block_size;
        for (long h = 0; h < heads; h++) {
            T *q = row + h * size;
            turn(q, half, c, s, q_norm, q_norm ? inverse_root(q, size, eps) : 1.0f, q);
        }
        for (long h = 0; h < kv_heads; h++) {
            const T *k = row + (heads + h) * size, *v = k + kv_heads * size;
            long at = ((block * kv_heads + h) * block_size + place) * size;
            turn(k, half, c, s, k_norm, k_norm ? inverse_root(k, size, eps) : 1.0f, keys + at);
            std::memcpy(values + at, v, size * sizeof(T));
        }
    }
}

}  // namespace

#define BY_TYPE(type, call)      \
    if (type) {                  \
        using T = bf16;          \
        call;                    \
    } else {                     \
        using T = float;         \
        call;                    \
    }

extern "C" {

// Whether rows can be multiplied with quantised weights here.
int hw_has_few() {
#ifdef FEW
    return 1;
#else
    return 0;
#endif
}

void hw_few(int bits, long rows, long out, long blocks, const void *x, const uint16_t *scales, const uint16_t *leasts,
            const uint8_t *codes, void *to, int threads) {
#ifdef FEW
    if (bits == 4)
        few_rows<4>(rows, out, blocks, (const bf16 *)x, scales, leasts, codes, (bf16 *)to, threads);
    else
        few_rows<8>(rows, out, blocks, (const bf16 *)x, scales, leasts, codes, (bf16 *)to, threads);
#else
    (void)bits, (void)rows, (void)out, (void)blocks, (void)x, (void)scales, (void)leasts, (void)codes, (void)to, (void)threads;
#endif
}

void hw_add_norm(int type, long tokens, long width, void *states, const void *x, const float *weight, float eps,
                 void *out, int threads) {
    BY_TYPE(type, add_norm(tokens, width, (T *)states, (const T *)x, weight, eps, (T *)out, threads))
}

void hw_gated(int type, long tokens, long inner, const void *both, void *out, int activation, int threads) {
    BY_TYPE(type, gated(tokens, inner, (const T *)both, (T *)out, activation, threads))
}

void hw_rope_write(int type, long tokens, long heads, long kv_heads, long size, void *qkv, const float *cosines,
                   const float *sines, const int64_t *slots, long block_size, void *keys, void *values,
                   const float *q_norm, const float *k_norm, float eps, int threads) {
    BY_TYPE(type, rope_write(tokens, heads, kv_heads, size, (T *)qkv, cosines, sines, slots, block_size, (T *)keys,
                             (T *)values, q_norm, k_norm, eps, threads))
}

void hw_attend(int type, long n, const int64_t *singles, const int32_t *rows, const int32_t *lengths,
               const int32_t *tables, long most_blocks, long heads, long kv_heads, long size, long block_size,
               const void *qkv, const void *keys, const void *values, void *out, float scale, long window, int threads) {
    BY_TYPE(type, attend(n, singles, rows, lengths, tables, most_blocks, heads, kv_heads, size, block_size,
                         (const T *)qkv, (const T *)keys, (const T *)values, (T *)out, scale, window, threads))
}
}
