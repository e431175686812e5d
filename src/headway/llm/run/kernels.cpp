// What a layer of a language model does besides its linear maps, for one CPU: plain C++, called through ctypes.
//
// Types: 0 = float, 1 = bfloat16; all sums are of floats. Blocks of keys and values are [block, head, position, size].
// What belongs to one token is computed in an order that depends on nothing but that token, so that an answer does not
// depend on who shares its step.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define WIDE 1
#include <immintrin.h>
#endif

namespace {

struct bf16 {
    uint16_t bits;
};

inline float up(float x) { return x; }
inline float up(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}
inline void down(float x, float &to) { to = x; }
inline void down(float x, bf16 &to) {  // to the nearest, ties to even; what is not a number stays that
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to.bits = uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

// e^x within 2 in the last place, 0 below -87; written so that compilers make vectors of it.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = x * 1.44269504f + 12582912.0f;
    int32_t bits;
    std::memcpy(&bits, &n, 4);
    n -= 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t power = (bits - 0x4b400000 + 127) << 23;
    float scale;
    std::memcpy(&scale, &power, 4);
    return p * scale;
}

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

#ifdef WIDE
inline __m512 load(const float *p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
inline __m512 load(const bf16 *p, __mmask16 m) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}
inline __mmask16 tail(long left) { return left >= 16 ? 0xffff : __mmask16((1u << left) - 1); }

inline __m512 halves(__m512 a, __m512 b) {  // sums of neighbouring pairs of lanes, of a then b, by quarters
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))));
}

// Sums of the lanes of each of 16 vectors.
inline __m512 sums(const __m512 *v) {
    __m512 four[4];
    for (int i = 0; i < 4; i++) {
        const __m512 *x = v + 4 * i;
        __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
        __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
        four[i] = halves(a, b);  // in each quarter: x0, x1, x2, x3
    }
    __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(four[0], four[1], 0x88), _mm512_shuffle_f32x4(four[0], four[1], 0xdd));
    __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(four[2], four[3], 0x88), _mm512_shuffle_f32x4(four[2], four[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

// Dot products of `count` keys (at most 16) with one query.
inline void dots(const float *q, const float *k, long count, long size, float *out) {
    __m512 acc[16];
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_ps();
    for (long d = 0; d < size; d += 16) {
        __mmask16 m = tail(size - d);
        __m512 x = load(q + d, m);
        if (count == 16) {
            for (int j = 0; j < 16; j++) acc[j] = _mm512_fmadd_ps(x, load(k + j * size + d, m), acc[j]);
        } else {
            for (long j = 0; j < count; j++) acc[j] = _mm512_fmadd_ps(x, load(k + j * size + d, m), acc[j]);
        }
    }
    _mm512_mask_storeu_ps(out, tail(count), sums(acc));
}
inline void dots(const bf16 *q, const bf16 *k, long count, long size, float *out) {
    __m512 acc[16];
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_ps();
#ifdef __AVX512BF16__
    for (long d = 0; d < size; d += 32) {
        __mmask32 m = size - d >= 32 ? 0xffffffffu : (1u << (size - d)) - 1;
        __m512bh x = (__m512bh)_mm512_maskz_loadu_epi16(m, q + d);
        if (count == 16) {
            for (int j = 0; j < 16; j++)
                acc[j] = _mm512_dpbf16_ps(acc[j], x, (__m512bh)_mm512_maskz_loadu_epi16(m, k + j * size + d));
        } else {
            for (long j = 0; j < count; j++)
                acc[j] = _mm512_dpbf16_ps(acc[j], x, (__m512bh)_mm512_maskz_loadu_epi16(m, k + j * size + d));
        }
    }
#else
    for (long d = 0; d < size; d += 16) {
        __mmask16 m = tail(size - d);
        __m512 x = load(q + d, m);
        for (long j = 0; j < count; j++) acc[j] = _mm512_fmadd_ps(x, load(k + j * size + d, m), acc[j]);
    }
#endif
    _mm512_mask_storeu_ps(out, tail(count), sums(acc));
}

// acc[g] += sum over j of p[g][j] x v[j], for G queries that share their values.
template <int G, class T>
inline void weigh(const float *p, long stride, const T *v, long count, long size, float *acc) {
    for (long d = 0; d < size; d += 16) {
        __mmask16 m = tail(size - d);
        __m512 a[G];
        for (int g = 0; g < G; g++) a[g] = _mm512_maskz_loadu_ps(m, acc + g * size + d);
        for (long j = 0; j < count; j++) {
            __m512 x = load(v + j * size + d, m);
            for (int g = 0; g < G; g++) a[g] = _mm512_fmadd_ps(_mm512_set1_ps(p[g * stride + j]), x, a[g]);
        }
        for (int g = 0; g < G; g++) _mm512_mask_storeu_ps(acc + g * size + d, m, a[g]);
    }
}
#else
template <class T> inline void dots(const T *q, const T *k, long count, long size, float *out) {
    for (long j = 0; j < count; j++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (long d = 0; d < size; d++) sum += up(q[d]) * up(k[j * size + d]);
        out[j] = sum;
    }
}
template <int G, class T>
inline void weigh(const float *p, long stride, const T *v, long count, long size, float *acc) {
    for (int g = 0; g < G; g++)
        for (long j = 0; j < count; j++) {
            float weight = p[g * stride + j];
#pragma omp simd
            for (long d = 0; d < size; d++) acc[g * size + d] += weight * up(v[j * size + d]);
        }
}
#endif

// Blocks lie anywhere, so that the processor does not foresee the next. Two blocks ahead, and into the second cache: 26 ns
// for a position of a head where one ahead into the first took 37, and none 49.
constexpr long AHEAD = 2;

inline void ahead(const void *p, long bytes) {
    for (long i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)p + i, 0, 2);
}

constexpr long SPAN = 512;  // positions that are summed up on their own; spans are then added in order

// One head of keys and values, positions first to end - 1 of one sequence: of each of `group` queries the largest score,
// the sum of weights, and the weighted sum of values, [2 + size] floats.
template <class T>
void attend_span(const T *q, long group, long size, const T *keys, const T *values, const int32_t *table, long first,
                 long end, long block_size, long head, long kv_heads, float scale, float *scores, float *to) {
    long n = end - first, block_step = kv_heads * block_size * size, head_step = head * block_size * size;
    auto each = [&](const T *blocks, auto &&visit) {
        for (long at = first; at < end;) {
            long place = at % block_size, count = std::min({block_size - place, end - at, 16L});
            long offset = table[at / block_size] * block_step + head_step;
            if (place == 0 && at + AHEAD * block_size < end)
                ahead(blocks + table[at / block_size + AHEAD] * block_step + head_step, block_size * size * sizeof(T));
            visit(at - first, count, blocks + offset + place * size);
            at += count;
        }
    };
    each(keys, [&](long at, long count, const T *k) {
        for (long g = 0; g < group; g++) dots(q + g * size, k, count, size, scores + g * SPAN + at);
    });
    for (long g = 0; g < group; g++) {
        float *s = scores + g * SPAN, *o = to + g * (size + 2);
        float most = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
        for (long j = 0; j < n; j++) {
            s[j] *= scale;
            most = s[j] > most ? s[j] : most;
        }
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < n; j++) sum += s[j] = exponential(s[j] - most);
        o[0] = most, o[1] = sum;
    }
    std::vector<float> held(group * size, 0.0f);
    float *acc = held.data();
    each(values, [&](long at, long count, const T *v) {
        long g = 0;
        for (; g + 8 <= group; g += 8) weigh<8>(scores + g * SPAN + at, SPAN, v, count, size, acc + g * size);
        const float *p = scores + g * SPAN + at;
        float *a = acc + g * size;
        switch (group - g) {
        case 1: weigh<1>(p, SPAN, v, count, size, a); break;
        case 2: weigh<2>(p, SPAN, v, count, size, a); break;
        case 3: weigh<3>(p, SPAN, v, count, size, a); break;
        case 4: weigh<4>(p, SPAN, v, count, size, a); break;
        case 5: weigh<5>(p, SPAN, v, count, size, a); break;
        case 6: weigh<6>(p, SPAN, v, count, size, a); break;
        case 7: weigh<7>(p, SPAN, v, count, size, a); break;
        }
    });
    for (long g = 0; g < group; g++) std::memcpy(to + g * (size + 2) + 2, acc + g * size, size * sizeof(float));
}

// n tokens, number `singles[i]` of the batch, each of which sees `lengths[i]` positions of the sequence `rows[i]`.
template <class T>
void attend(long n, const int64_t *singles, const int32_t *rows, const int32_t *lengths, const int32_t *tables,
            long most_blocks, long heads, long kv_heads, long size, long block_size, const T *qkv, const T *keys,
            const T *values, T *out, float scale, long window, int threads) {
    long group = heads / kv_heads, part = group * (size + 2), stride = (heads + 2 * kv_heads) * size;
    struct Item {
        long token, head, first, end;
    };
    std::vector<Item> items;
    std::vector<long> begins;  // of each token and head: its first item
    long work = 0;
    for (long i = 0; i < n; i++)
        for (long h = 0; h < kv_heads; h++) {
            begins.push_back(long(items.size()));
            long first = window ? std::max(0L, lengths[i] - window) : 0;
            for (long at = first; at < lengths[i]; at += SPAN) items.push_back({i, h, at, std::min<long>(at + SPAN, lengths[i])});
            work += lengths[i] - first;
        }
    begins.push_back(long(items.size()));
    std::vector<float> parts(items.size() * part);
#pragma omp parallel num_threads(threads) if (threads > 1 && work * size * group > 65536)
    {
        std::vector<float> scores(group * SPAN), shares;
#pragma omp for schedule(dynamic, 1)
        for (long k = 0; k < long(items.size()); k++) {
            const Item &it = items[k];
            attend_span(qkv + singles[it.token] * stride + it.head * group * size, group, size, keys, values,
                        tables + rows[it.token] * most_blocks, it.first, it.end, block_size, it.head, kv_heads, scale,
                        scores.data(), parts.data() + k * part);
        }
#pragma omp for schedule(static)
        for (long k = 0; k < n * kv_heads; k++)
            for (long g = 0; g < group; g++) {
                const long first = begins[k], spans = begins[k + 1] - first;
                const float *p = parts.data() + first * part + g * (size + 2);
                T *to = out + singles[k / kv_heads] * heads * size + ((k % kv_heads) * group + g) * size;
                float most = -INFINITY, sum = 0;
                for (long j = 0; j < spans; j++) most = std::max(most, p[j * part]);
                shares.resize(spans);
                for (long j = 0; j < spans; j++) sum += (shares[j] = std::exp(p[j * part] - most)) * p[j * part + 1];
                for (long d = 0; d < size; d++) {
                    float value = 0;
                    for (long j = 0; j < spans; j++) value += shares[j] * p[j * part + 2 + d];
                    down(value / sum, to[d]);
                }
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
