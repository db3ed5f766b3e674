/* Matrix products with one fixed order of operations: element (i, j) is fma(a[i][k], b[k][j], sum)
 * for k ascending, starting from 0 (or from the old value), in f32.
 *
 * Idea: register tiles over packed panels (Goto and van de Geijn 2008; BLIS, Van Zee and van de
 * Geijn 2015), with the inner dimension never split over accumulators. A fused multiply-add is
 * rounded once, by IEEE 754, on every processor that has it, and an element's chain does not see
 * vector width, tile height, blocking or neighbours. So the same row gives the same bits alone and
 * in any chunk, with AVX2 and AVX-512, in trainer and replica. OpenBLAS does not: with its Haswell
 * kernel (AVX2 machines, and every Zen 5 with version 0.3.21) a row's bits depend on its position
 * modulo 12 within one call of fixed shape.
 *
 * Packed left factor: panels of 12 rows, [panel][k][12]. Packed right factor: panels of 16 columns,
 * [panel][k][16], zero-padded.
 *
 * Thread: any, no state. Does not run on processors without FMA: there backends.c falls back to
 * OpenBLAS. */
#include "gemm.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "base/check.h"

enum {
    FR_PANEL = 16,  /* columns: one AVX-512 register, two AVX2 registers */
    TILE_ROWS = 12, /* the tallest tile: 24 sums in AVX-512 registers */
    /* inner block: two panels of it (32 KiB) stay in the first-level cache while the rows pass
     * by */
    DEPTH = 256,
};

/* One tile: `rows` x (panels * 16) of the product, inner indices [0, depth). */
struct tile {
    const float *a;
    size_t row_stride, k_stride; /* of a */
    const float *b0, *b1;        /* k-th row of each panel at b + k * b_stride */
    size_t b_stride;
    uint32_t depth;
    uint32_t columns; /* valid columns, <= 32 */
    float *c;
    size_t ldc;
    bool load; /* start from c */
};

size_t fr_gemm_packed_floats(uint32_t rows, uint32_t columns)
{
    return ((size_t)columns + FR_PANEL - 1) / FR_PANEL * FR_PANEL * rows;
}

void fr_gemm_pack(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    FR_CHECK(row_end <= right->rows);
    for (uint32_t first = 0; first < right->columns; first += FR_PANEL) {
        float *panel = right->packed + (size_t)first * right->rows;
        size_t n = right->columns - first < FR_PANEL ? right->columns - first : FR_PANEL;
        if (right->transposed) {
            for (size_t j = 0; j < n; j++) {
                const float *in = right->values + (first + j) * right->ld;
                for (size_t k = row_begin; k < row_end; k++)
                    panel[k * FR_PANEL + j] = in[k];
            }
        } else if (n == FR_PANEL) {
            for (size_t k = row_begin; k < row_end; k++)
                memcpy(panel + k * FR_PANEL, right->values + k * right->ld + first, FR_PANEL * sizeof(float));
        } else {
            for (size_t k = row_begin; k < row_end; k++)
                memcpy(panel + k * FR_PANEL, right->values + k * right->ld + first, n * sizeof(float));
        }
        for (size_t k = row_begin; k < row_end && n < FR_PANEL; k++)
            memset(panel + k * FR_PANEL + n, 0, (FR_PANEL - n) * sizeof(float));
    }
}

#define FR_AVX512 __attribute__((target("avx512f")))
#define FR_AVX2 __attribute__((target("avx2,fma")))
#define FR_INLINE static inline __attribute__((always_inline))

FR_INLINE FR_AVX512 void tile_avx512(const struct tile *t, const uint32_t rows, const uint32_t panels)
{
    __m512 sum[TILE_ROWS][2];
    __mmask16 mask[2];
    uint32_t last = t->columns - (panels - 1) * FR_PANEL;
    mask[0] = panels > 1 ? 0xffff : (__mmask16)((1u << last) - 1);
    mask[1] = (__mmask16)((1u << last) - 1);
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; p++)
            sum[i][p] =
                t->load ? _mm512_maskz_loadu_ps(mask[p], t->c + i * t->ldc + p * FR_PANEL) : _mm512_setzero_ps();
    const float *a0 = t->a, *b0 = t->b0, *b1 = t->b1;
    size_t rs = t->row_stride, ks = t->k_stride, bs = t->b_stride;
    const float *a3 = rows > 3 ? a0 + 3 * rs : a0, *a6 = rows > 6 ? a0 + 6 * rs : a0, *a9 = rows > 9 ? a0 + 9 * rs : a0;
    for (uint32_t k = t->depth; k > 0; k--) {
        __m512 x0 = _mm512_maskz_loadu_ps(mask[0], b0), x1 = x0;
        if (panels > 1)
            x1 = _mm512_maskz_loadu_ps(mask[1], b1);
#pragma GCC unroll 12
        for (uint32_t i = 0; i < rows; i++) {
            const float *base = i < 3 ? a0 : i < 6 ? a3 : i < 9 ? a6 : a9;
            __m512 y = _mm512_set1_ps(base[i % 3 * rs]);
            sum[i][0] = _mm512_fmadd_ps(y, x0, sum[i][0]);
            if (panels > 1)
                sum[i][1] = _mm512_fmadd_ps(y, x1, sum[i][1]);
        }
        a0 += ks;
        a3 += ks;
        a6 += ks;
        a9 += ks;
        b0 += bs;
        b1 += bs;
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; p++)
            _mm512_mask_storeu_ps(t->c + i * t->ldc + p * FR_PANEL, mask[p], sum[i][p]);
}

FR_AVX512 static void rows_avx512(struct tile *t, uint32_t rows)
{
    bool wide = t->columns > FR_PANEL;
    while (rows > 0) {
        uint32_t step = rows >= 12 ? 12 : rows >= 4 ? 4 : 1;
        if (step == 12 && wide)
            tile_avx512(t, 12, 2);
        else if (step == 12)
            tile_avx512(t, 12, 1);
        else if (step == 4 && wide)
            tile_avx512(t, 4, 2);
        else if (step == 4)
            tile_avx512(t, 4, 1);
        else if (wide)
            tile_avx512(t, 1, 2);
        else
            tile_avx512(t, 1, 1);
        t->a += step * t->row_stride;
        t->c += step * t->ldc;
        rows -= step;
    }
}

FR_INLINE FR_AVX2 void tile_avx2(const struct tile *t, const uint32_t rows, const bool whole)
{
    static const int32_t ones[2 * FR_PANEL] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const int32_t *mask = ones + FR_PANEL - t->columns; /* `columns` times -1, then zeros */
    __m256i mask0 = _mm256_loadu_si256((const __m256i *)mask), mask1 = _mm256_loadu_si256((const __m256i *)(mask + 8));
    __m256 sum[6][2];
#pragma GCC unroll 6
    for (uint32_t i = 0; i < rows; i++) {
        const float *c = t->c + i * t->ldc;
        sum[i][0] = t->load ? _mm256_maskload_ps(c, mask0) : _mm256_setzero_ps();
        sum[i][1] = t->load ? _mm256_maskload_ps(c + 8, mask1) : _mm256_setzero_ps();
    }
    const float *a0 = t->a, *a3 = rows > 3 ? a0 + 3 * t->row_stride : a0, *b = t->b0;
    size_t rs = t->row_stride, ks = t->k_stride, bs = t->b_stride;
    for (uint32_t k = t->depth; k > 0; k--) {
        __m256 x0 = whole ? _mm256_loadu_ps(b) : _mm256_maskload_ps(b, mask0);
        __m256 x1 = whole ? _mm256_loadu_ps(b + 8) : _mm256_maskload_ps(b + 8, mask1);
#pragma GCC unroll 6
        for (uint32_t i = 0; i < rows; i++) {
            __m256 y = _mm256_broadcast_ss((i < 3 ? a0 : a3) + i % 3 * rs);
            sum[i][0] = _mm256_fmadd_ps(y, x0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(y, x1, sum[i][1]);
        }
        a0 += ks;
        a3 += ks;
        b += bs;
    }
#pragma GCC unroll 6
    for (uint32_t i = 0; i < rows; i++) {
        _mm256_maskstore_ps(t->c + i * t->ldc, mask0, sum[i][0]);
        _mm256_maskstore_ps(t->c + i * t->ldc + 8, mask1, sum[i][1]);
    }
}

FR_AVX2 static void rows_avx2(struct tile *t, uint32_t rows)
{
    bool whole = t->columns == FR_PANEL;
    while (rows > 0) {
        uint32_t step = rows >= 6 ? 6 : rows >= 2 ? 2 : 1;
        if (step == 6 && whole)
            tile_avx2(t, 6, true);
        else if (step == 6)
            tile_avx2(t, 6, false);
        else if (step == 2)
            tile_avx2(t, 2, false);
        else
            tile_avx2(t, 1, false);
        t->a += step * t->row_stride;
        t->c += step * t->ldc;
        rows -= step;
    }
}

/* All row tiles of one inner block and one pair (or one) of column panels. */
static void column_block(const struct fr_multiply *product, uint32_t k, uint32_t column, const struct tile *shape,
                         void (*rows)(struct tile *, uint32_t))
{
    const struct fr_operand *left = product->left, *right = product->right;
    struct tile t = *shape;
    if (right->packed) {
        t.b_stride = FR_PANEL;
        t.b0 = right->packed + (size_t)column * right->rows + (size_t)k * FR_PANEL;
        t.b1 = t.b0 + (t.columns > FR_PANEL ? (size_t)FR_PANEL * right->rows : 0);
    } else {
        t.b_stride = right->ld;
        t.b0 = right->values + k * right->ld + column;
        t.b1 = t.b0 + (t.columns > FR_PANEL ? FR_PANEL : 0);
    }
    t.row_stride = left->transposed ? 1 : left->ld;
    t.k_stride = left->transposed ? left->ld : 1;
    for (uint32_t row = product->row_begin; row < product->row_end; row += TILE_ROWS) {
        uint32_t n = product->row_end - row < TILE_ROWS ? product->row_end - row : TILE_ROWS;
        t.a = left->values + row * t.row_stride + k * t.k_stride;
        t.c = product->out.values + row * product->out.ld + column;
        rows(&t, n);
    }
}

static void blocks(const struct fr_multiply *product, uint32_t width, void (*rows)(struct tile *, uint32_t))
{
    const struct fr_operand *left = product->left, *right = product->right;
    FR_CHECK(left->columns == right->rows && product->row_end <= left->rows);
    FR_CHECK(right->packed || !right->transposed);
    uint32_t inner = right->rows, columns = right->columns;
    for (uint32_t k = 0; k < inner || k == 0; k += DEPTH) {
        struct tile shape = {.ldc = product->out.ld, .load = product->accumulate || k > 0};
        shape.depth = inner - k < DEPTH ? inner - k : DEPTH;
        for (uint32_t column = 0; column < columns; column += width) {
            shape.columns = columns - column < width ? columns - column : width;
            column_block(product, k, column, &shape, rows);
        }
    }
}

void fr_gemm_avx512(const struct fr_multiply *product)
{
    blocks(product, 2 * FR_PANEL, rows_avx512);
}

void fr_gemm_avx2(const struct fr_multiply *product)
{
    blocks(product, FR_PANEL, rows_avx2);
}

#endif /* __x86_64__ */
