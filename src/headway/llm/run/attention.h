// Attention of single tokens over blocks of keys and values.

#pragma once

#include "numbers.h"

namespace {

#ifdef WIDE
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
