/* Transposes sixteen rows of sixteen 32-bit words in AVX-512 registers, for packing: word j of
 * row i becomes word i of row j. Private to the module. */
#ifndef FR_OPS_TRANSPOSE_H
#define FR_OPS_TRANSPOSE_H

#if defined(__x86_64__)

#include <immintrin.h>

enum { FR_TURNED = 16 };

__attribute__((target("avx512f"), always_inline)) static inline void fr_transpose_words(__m512 rows[FR_TURNED])
{
    __m512 pairs[FR_TURNED];
#pragma GCC unroll 8
    for (int i = 0; i < FR_TURNED; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    /* rows[4 g + c] becomes, in lane l of 128 bits, word 4 l + c of rows 4 g .. 4 g + 3. */
#pragma GCC unroll 8
    for (int i = 0; i < FR_TURNED; i += 2) {
        int first = i / 4 * 4 + i % 4 / 2;
        __m512d a = _mm512_castps_pd(pairs[first]), b = _mm512_castps_pd(pairs[first + 2]);
        rows[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        rows[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512 even_low = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0x88);
        __m512 odd_low = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0xdd);
        __m512 even_high = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0x88);
        __m512 odd_high = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0xdd);
        pairs[c] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        pairs[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        pairs[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
        pairs[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < FR_TURNED; i++)
        rows[i] = pairs[i];
}

#endif /* __x86_64__ */

#endif
