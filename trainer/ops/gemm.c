/* Matrix products with one fixed order of operations: element (i, j) is fma(a[i][k], b[k][j], sum)
 * for k ascending, starting from 0 (or from the old value), in f32.
 *
 * Idea: register tiles over packed panels (Goto and van de Geijn 2008; BLIS, Van Zee and van de
 * Geijn 2015), with the inner dimension never split over accumulators. A fused multiply-add is
 * rounded once, by IEEE 754, on every processor that has it, and an element's chain does not
 * depend on vector width, tile height, blocking or neighbours. So the same row gives the same
 * bits alone and in any chunk, with AVX2 and AVX-512, in trainer and replica. OpenBLAS does not:
 * with its Haswell kernel (AVX2 machines, and every Zen 5 with version 0.3.21) a row's bits
 * depend on its position modulo 12 within one call of fixed shape.
 *
 * Packed left factor: panels of 12 rows, [panel][k][12]. Packed right factor: panels of 16 columns,
 * [panel][k][16], zero-padded.
 *
 * Thread: any, no state. On processors without FMA, backends.c uses OpenBLAS instead. */
#include "gemm.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "base/check.h"
#include "cpu.h"
#include "transpose.h"

enum {
    FR_PANEL = 16,  /* columns of a panel: one AVX-512 register, two AVX2 registers */
    TILE_ROWS = 12, /* the tallest tile: 24 sums in AVX-512 registers */
    /* inner indices of a block: two panels of a block (32 KiB) stay in the first-level cache
     * while the rows are processed */
    DEPTH = 256,
    UNROLL = 4,
    /* rows of a transposed left factor that are copied at a time: those of one task of a weight
     * gradient */
    COPIED_ROWS = FR_ROW_BLOCK,
    FETCHED_ROWS = 12, /* rows that are fetched ahead of the copy */
};

/* What the compiler knows about the strides. Each pointer that is advanced in the inner loop,
 * and each masked load, needs issue slots of the multiplying units. Where strides are known,
 * four steps share one advance. */
enum form {
    FORM_ANY,   /* the right factor is not packed: masked loads */
    FORM_ROWS,  /* packed; the rows of the left factor are read in place */
    FORM_PANEL, /* packed; the left factor is a panel of TILE_ROWS */
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
    enum form form;
    /* The product, if this is its last inner block; otherwise NULL. Then the parts of its bias
     * and of its gate: */
    const struct fr_multiply *finish;
    const float *bias, *gate; /* at this tile; NULL: none */
};

size_t fr_gemm_packed_floats(uint32_t rows, uint32_t columns)
{
    return ((size_t)columns + FR_PANEL - 1) / FR_PANEL * FR_PANEL * rows;
}

#define FR_AVX512 __attribute__((target("avx512f")))
#define FR_AVX2 __attribute__((target("avx2,fma")))
#define FR_INLINE static inline __attribute__((always_inline))

/* Packs rows [begin, end) of one panel whose `n` columns are rows of `in`; the rest becomes
 * zeros. */
static void transpose_any(const float *in, size_t ld, size_t n, size_t begin, size_t end, float *panel)
{
    for (size_t j = 0; j < n; j++)
        for (size_t k = begin; k < end; k++)
            panel[k * FR_PANEL + j] = in[j * ld + k];
    for (size_t k = begin; k < end && n < FR_PANEL; k++)
        memset(panel + k * FR_PANEL + n, 0, (FR_PANEL - n) * sizeof(float));
}

FR_AVX512 static void turn_avx512(const float *in, size_t ld, size_t n, size_t begin, size_t end, float *panel)
{
    _Static_assert((int)FR_PANEL == (int)FR_TURNED, "a panel is as wide as what is turned at once");
    for (size_t k = begin; k < end; k += FR_TURNED) {
        size_t count = end - k < FR_TURNED ? end - k : FR_TURNED;
        __mmask16 mask = (__mmask16)((1u << count) - 1);
        __m512 rows[FR_TURNED];
#pragma GCC unroll 16
        for (size_t j = 0; j < FR_TURNED; j++)
            rows[j] = j < n ? _mm512_maskz_loadu_ps(mask, in + j * ld + k) : _mm512_setzero_ps();
        fr_transpose_words(rows);
#pragma GCC unroll 16
        for (size_t i = 0; i < FR_TURNED; i++)
            if (i < count)
                _mm512_storeu_ps(panel + (k + i) * FR_PANEL, rows[i]);
    }
}

/* Packs one panel of a factor that is not transposed. */
static void copy_panel(const float *in, size_t ld, size_t n, size_t begin, size_t end, float *panel)
{
    for (size_t k = begin; k < end && n == FR_PANEL; k++)
        memcpy(panel + k * FR_PANEL, in + k * ld, FR_PANEL * sizeof(float));
    for (size_t k = begin; k < end && n < FR_PANEL; k++) {
        memcpy(panel + k * FR_PANEL, in + k * ld, n * sizeof(float));
        memset(panel + k * FR_PANEL + n, 0, (FR_PANEL - n) * sizeof(float));
    }
}

static void pack(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end,
                 void (*transpose)(const float *, size_t, size_t, size_t, size_t, float *))
{
    FR_CHECK(row_end <= right->rows);
    for (uint32_t first = 0; first < right->columns; first += FR_PANEL) {
        float *panel = right->packed + (size_t)first * right->rows;
        size_t n = right->columns - first < FR_PANEL ? right->columns - first : FR_PANEL;
        if (right->transposed)
            transpose(right->values + first * right->ld, right->ld, n, row_begin, row_end, panel);
        else
            copy_panel(right->values + first, right->ld, n, row_begin, row_end, panel);
    }
}

void fr_gemm_pack_avx512(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    pack(right, row_begin, row_end, turn_avx512);
}

void fr_gemm_pack_avx2(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    pack(right, row_begin, row_end, transpose_any);
}

struct steps {
    const float *a0, *a3, *a6, *a9, *b0, *b1;
    size_t row_stride, k_stride, b_stride;
    __mmask16 mask[2];
};

FR_INLINE FR_AVX512 void step_avx512(__m512 sum[TILE_ROWS][2], const struct steps *at, const size_t step,
                                     const uint32_t rows, const uint32_t panels, const enum form form)
{
    const float *b0 = at->b0 + step * at->b_stride, *b1 = at->b1 + step * at->b_stride;
    __m512 x0 = form == FORM_ANY ? _mm512_maskz_loadu_ps(at->mask[0], b0) : _mm512_loadu_ps(b0), x1 = x0;
    if (panels > 1)
        x1 = form == FORM_ANY ? _mm512_maskz_loadu_ps(at->mask[1], b1) : _mm512_loadu_ps(b1);
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++) {
        const float *base = i < 3 ? at->a0 : i < 6 ? at->a3 : i < 9 ? at->a6 : at->a9;
        __m512 y = _mm512_set1_ps(base[i % 3 * at->row_stride + step * at->k_stride]);
        sum[i][0] = _mm512_fmadd_ps(y, x0, sum[i][0]);
        if (panels > 1)
            sum[i][1] = _mm512_fmadd_ps(y, x1, sum[i][1]);
    }
}

FR_INLINE void advance(struct steps *at, size_t steps)
{
    at->a0 += steps * at->k_stride;
    at->a3 += steps * at->k_stride;
    at->a6 += steps * at->k_stride;
    at->a9 += steps * at->k_stride;
    at->b0 += steps * at->b_stride;
    at->b1 += steps * at->b_stride;
}

/* Does the work of fr_cpu_finish on a tile that is still in registers, in the same order and
 * with the same bits. */
FR_INLINE FR_AVX512 void add_bias_avx512(const struct tile *t, __m512 *sum, __m512 bias)
{
    const __m512 zero = _mm512_setzero_ps();
    *sum = _mm512_add_ps(*sum, bias);
    if (t->finish->relu) /* NaN stays NaN */
        *sum = _mm512_mask_mov_ps(*sum, _mm512_cmp_ps_mask(*sum, zero, _CMP_LT_OQ), zero);
}

FR_INLINE FR_AVX512 void finish_avx512(const struct tile *t, __m512 sum[TILE_ROWS][2], const __mmask16 mask[2],
                                       const uint32_t rows, const uint32_t panels)
{
    const __m512 zero = _mm512_setzero_ps();
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (uint32_t p = 0; p < panels; p++) {
        __m512 bias = t->bias ? _mm512_maskz_loadu_ps(mask[p], t->bias + p * FR_PANEL) : zero;
#pragma GCC unroll 12
        for (uint32_t i = 0; i < rows; i++) {
            if (t->bias)
                add_bias_avx512(t, &sum[i][p], bias);
            if (t->gate) {
                __m512 gate = _mm512_maskz_loadu_ps(mask[p], t->gate + i * t->finish->gate.ld + p * FR_PANEL);
                sum[i][p] = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(gate, zero, _CMP_GT_OQ), sum[i][p]);
            }
            __m512i bits = _mm512_and_si512(_mm512_castps_si512(sum[i][p]), magnitude);
            largest = _mm512_mask_max_epu32(largest, mask[p], largest, bits);
        }
    }
    if (!t->finish->bits)
        return;
    uint32_t bits = _mm512_reduce_max_epu32(largest);
    *t->finish->bits = bits > *t->finish->bits ? bits : *t->finish->bits;
}

FR_INLINE FR_AVX512 void tile_avx512(const struct tile *t, const uint32_t rows, const uint32_t panels,
                                     const enum form form)
{
    __m512 sum[TILE_ROWS][2];
    uint32_t last = t->columns - (panels - 1) * FR_PANEL, k = t->depth;
    size_t rs = form == FORM_PANEL ? 1 : t->row_stride;
    struct steps at = {.b0 = t->b0, .b1 = t->b1, .row_stride = rs};
    at.k_stride = form == FORM_ROWS ? 1 : form == FORM_PANEL ? TILE_ROWS : t->k_stride;
    at.b_stride = form == FORM_ANY ? t->b_stride : FR_PANEL;
    at.mask[0] = panels > 1 ? 0xffff : (__mmask16)((1u << last) - 1);
    at.mask[1] = (__mmask16)((1u << last) - 1);
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; p++)
            sum[i][p] =
                t->load ? _mm512_maskz_loadu_ps(at.mask[p], t->c + i * t->ldc + p * FR_PANEL) : _mm512_setzero_ps();
    at.a0 = at.a3 = at.a6 = at.a9 = t->a;
    at.a3 = rows > 3 ? t->a + 3 * rs : t->a;
    at.a6 = rows > 6 ? t->a + 6 * rs : t->a;
    at.a9 = rows > 9 ? t->a + 9 * rs : t->a;
    for (; form != FORM_ANY && k >= UNROLL; k -= UNROLL, advance(&at, UNROLL))
#pragma GCC unroll 4
        for (size_t step = 0; step < UNROLL; step++)
            step_avx512(sum, &at, step, rows, panels, form);
    for (; k > 0; k--, advance(&at, 1))
        step_avx512(sum, &at, 0, rows, panels, form);
    if (t->finish)
        finish_avx512(t, sum, at.mask, rows, panels);
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; p++)
            _mm512_mask_storeu_ps(t->c + i * t->ldc + p * FR_PANEL, at.mask[p], sum[i][p]);
}

FR_INLINE FR_AVX512 void tiles_avx512(struct tile *t, uint32_t rows, const uint32_t panels, const enum form form)
{
    while (rows > 0) {
        uint32_t step = rows >= 12 ? 12 : rows >= 8 ? 8 : rows >= 4 ? 4 : 1;
        if (step == 12)
            tile_avx512(t, 12, panels, form);
        else if (step == 8)
            tile_avx512(t, 8, panels, form);
        else if (step == 4)
            tile_avx512(t, 4, panels, form);
        else
            tile_avx512(t, 1, panels, form);
        t->a += step * t->row_stride;
        t->c += step * t->ldc;
        if (t->gate)
            t->gate += step * t->finish->gate.ld;
        rows -= step;
    }
}

FR_AVX512 static void rows_avx512(struct tile *t, uint32_t rows)
{
    bool wide = t->columns > FR_PANEL;
    if (t->form == FORM_PANEL && wide)
        tiles_avx512(t, rows, 2, FORM_PANEL);
    else if (t->form == FORM_ROWS && wide)
        tiles_avx512(t, rows, 2, FORM_ROWS);
    else if (t->form == FORM_ROWS)
        tiles_avx512(t, rows, 1, FORM_ROWS);
    else if (wide)
        tiles_avx512(t, rows, 2, FORM_ANY);
    else
        tiles_avx512(t, rows, 1, FORM_ANY);
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

/* Rows [begin, end) of one inner block. `panels`: the copy of the left factor, or NULL. */
struct inner_block {
    uint32_t k, depth, begin, end;
    const float *panels;
};

/* Prefetches this many rows of the gate, which are needed when a tile's sums are complete. */
FR_INLINE const float *fetch_gate(const struct fr_view *gate, uint32_t row, uint32_t rows, uint32_t column)
{
    const float *first = gate->values + row * gate->ld + column;
    for (uint32_t i = 0; i < rows; i++) {
        __builtin_prefetch(first + i * gate->ld);
        __builtin_prefetch(first + i * gate->ld + FR_PANEL);
    }
    return first;
}

/* Computes all row tiles of one inner block for one pair of column panels, or a single panel. */
static void column_block(const struct fr_multiply *product, const struct inner_block *block, uint32_t column,
                         struct tile t, void (*rows)(struct tile *, uint32_t))
{
    const struct fr_operand *left = product->left, *right = product->right;
    if (right->packed) {
        t.b_stride = FR_PANEL;
        t.b0 = right->packed + (size_t)column * right->rows + (size_t)block->k * FR_PANEL;
        t.b1 = t.b0 + (t.columns > FR_PANEL ? (size_t)FR_PANEL * right->rows : 0);
    } else {
        t.b_stride = right->ld;
        t.b0 = right->values + block->k * right->ld + column;
        t.b1 = t.b0 + (t.columns > FR_PANEL ? FR_PANEL : 0);
    }
    t.row_stride = left->transposed ? 1 : left->ld;
    t.k_stride = left->transposed ? left->ld : 1;
    bool unit = t.k_stride == 1 && right->packed, last = block->k + block->depth == right->rows;
    t.form = block->panels && t.columns > FR_PANEL ? FORM_PANEL : unit ? FORM_ROWS : FORM_ANY;
    t.finish = last && rows == rows_avx512 ? product : NULL;
    t.bias = t.finish && product->bias ? product->bias + column : NULL;
    for (uint32_t row = block->begin; row < block->end; row += TILE_ROWS) {
        uint32_t n = block->end - row < TILE_ROWS ? block->end - row : TILE_ROWS;
        t.a = left->values + row * t.row_stride + block->k * t.k_stride;
        if (t.form == FORM_PANEL)
            t.a = block->panels + (size_t)(row - block->begin) * block->depth;
        t.c = product->out.values + row * product->out.ld + column;
        if (t.finish && product->gate.values)
            t.gate = fetch_gate(&product->gate, row, n, column);
        rows(&t, n);
    }
    if (last && !t.finish)
        fr_cpu_finish(product, &(struct fr_product_part){block->begin, block->end - block->begin, column, t.columns});
}

/* Copies a transposed left factor to contiguous pieces of [k][TILE_ROWS]. Otherwise every pair
 * of column panels would read a short piece of each of its rows. */
static void copy_left(const struct fr_operand *left, const struct inner_block *block, float *panels)
{
    uint32_t n = block->end - block->begin, whole = n / TILE_ROWS * TILE_ROWS;
    size_t panel = (size_t)TILE_ROWS * block->depth;
    const float *in = left->values + (size_t)block->k * left->ld + block->begin;
    for (uint32_t k = 0; k < block->depth; k++, in += left->ld, panels += TILE_ROWS) {
        float *out = panels;
        for (uint32_t column = 0; column < n; column += FR_PANEL)
            __builtin_prefetch(in + FETCHED_ROWS * left->ld + column);
        for (uint32_t row = 0; row < whole; row += TILE_ROWS, out += panel)
            memcpy(out, in + row, TILE_ROWS * sizeof(float));
        if (whole < n)
            memcpy(out, in + whole, (n - whole) * sizeof(float));
    }
}

static void row_block(const struct fr_multiply *product, struct inner_block block, uint32_t width,
                      void (*rows)(struct tile *, uint32_t))
{
    _Alignas(64) float panels[COPIED_ROWS * DEPTH];
    uint32_t columns = product->right->columns;
    struct tile t = {.ldc = product->out.ld, .load = product->accumulate || block.k > 0, .depth = block.depth};
    if (width > FR_PANEL && product->left->transposed && product->right->packed && columns > width) {
        copy_left(product->left, &block, panels);
        block.panels = panels;
    }
    for (uint32_t column = 0; column < columns; column += width) {
        t.columns = columns - column < width ? columns - column : width;
        column_block(product, &block, column, t, rows);
    }
}

static void blocks(const struct fr_multiply *product, uint32_t width, void (*rows)(struct tile *, uint32_t))
{
    const struct fr_operand *left = product->left, *right = product->right;
    FR_CHECK(left->columns == right->rows && product->row_end <= left->rows);
    FR_CHECK(right->packed || !right->transposed);
    uint32_t inner = right->rows, step = left->transposed ? COPIED_ROWS : product->row_end - product->row_begin;
    for (uint32_t row = product->row_begin; row < product->row_end; row += step) {
        struct inner_block block = {.begin = row, .end = product->row_end - row < step ? product->row_end : row + step};
        for (uint32_t k = 0; k < inner || k == 0; k += DEPTH) {
            block.k = k;
            block.depth = inner - k < DEPTH ? inner - k : DEPTH;
            row_block(product, block, width, rows);
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
