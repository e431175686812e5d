// A few rows times weights as they lie in a GGUF file.

#pragma once

#include "numbers.h"

#if defined(WIDE) && defined(__AVX512BF16__) && defined(__F16C__)
#define FEW 1

namespace {

inline __m512bh codes4(const uint8_t *q, __m512i table) {  // 16 bytes: values 0 to 15 in the low halves, 16 to 31 above
    __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)q));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_srli_epi16(low, 4), 1);
    return (__m512bh)_mm512_permutexvar_epi16(both, table);  // looks at five bits: the table has everything twice
}
inline __m512bh codes8(const int8_t *q) {
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)q)));
    __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(q + 16))));
    return _mm512_cvtne2ps_pbh(high, low);
}

// M rows times quantised weights. Blocks of 32 weights: scale x code + least, codes of 4 or 8 bits. Exact but for the
// order of sums: neither codes nor rows are rounded.
template <int M, int BITS>
void few(long out, long blocks, const bf16 *x, const uint16_t *scales, const uint16_t *leasts, const uint8_t *codes,
         bf16 *to, int threads) {
    std::vector<float> totals(leasts ? M * blocks : 0);
    if (leasts)
        for (long b = 0; b < M * blocks; b++) {
            float sum = 0;
            for (long i = 0; i < 32; i++) sum += up(x[b * 32 + i]);
            totals[b] = sum;
        }
    alignas(64) uint16_t values[32];
    for (int i = 0; i < 32; i++) {
        bf16 value;
        down(float(i % 16), value);
        values[i] = value.bits;
    }
    const __m512i table = _mm512_load_si512(values);
#pragma omp parallel num_threads(threads) if (threads > 1 && out * blocks > 2048)
    {
        std::vector<float> held(blocks + 16);
        float *scale = held.data();
#pragma omp for schedule(static)
        for (long o = 0; o < out; o++) {
            __m512 acc[M];
            for (int r = 0; r < M; r++) acc[r] = _mm512_setzero_ps();
            for (long b = 0; b < blocks; b += 16) {
                __mmask16 m = tail(blocks - b);
                __m256i half = _mm256_maskz_loadu_epi16(m, scales + o * blocks + b);
                _mm512_storeu_ps(scale + b, _mm512_cvtph_ps(half));
                if (leasts) {
                    __m512 least = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, leasts + o * blocks + b));
                    for (int r = 0; r < M; r++)
                        acc[r] = _mm512_fmadd_ps(least, _mm512_maskz_loadu_ps(m, totals.data() + r * blocks + b), acc[r]);
                }
            }
            const uint8_t *q = codes + o * blocks * (4 * BITS);
            for (long b = 0; b < blocks; b++) {
                __m512bh w = BITS == 4 ? codes4(q + b * 16, table) : codes8((const int8_t *)q + b * 32);
                __m512 by = _mm512_set1_ps(scale[b]);
                for (int r = 0; r < M; r++) {
                    __m512bh row = (__m512bh)_mm512_loadu_si512(x + (r * blocks + b) * 32);
                    acc[r] = _mm512_fmadd_ps(by, _mm512_dpbf16_ps(_mm512_setzero_ps(), w, row), acc[r]);
                }
            }
            for (int r = 0; r < M; r++) down(_mm512_reduce_add_ps(acc[r]), to[r * out + o]);
        }
    }
}

template <int BITS>
void few_rows(long rows, long out, long blocks, const bf16 *x, const uint16_t *scales, const uint16_t *leasts,
              const uint8_t *codes, bf16 *to, int threads) {
    for (; rows > 0; rows -= 4, x += 4 * blocks * 32, to += 4 * out) switch (rows) {
        case 1: few<1, BITS>(out, blocks, x, scales, leasts, codes, to, threads); break;
        case 2: few<2, BITS>(out, blocks, x, scales, leasts, codes, to, threads); break;
        case 3: few<3, BITS>(out, blocks, x, scales, leasts, codes, to, threads); break;
        default: few<4, BITS>(out, blocks, x, scales, leasts, codes, to, threads); break;
        }
}

}  // namespace
#endif
