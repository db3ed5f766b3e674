/* Matrix products of bf16 factors with f32 sums, for `network.precision: bf16`.
 *
 * Both factors are f32 in memory and rounded to bf16 (to nearest, ties to even; subnormals become
 * 0): the right one when it is packed, once a step, the left one 32 rows at a time within a call.
 * Sums, and all that is not a product, stay f32.
 *
 * There are two kernels over the same packed factors. `dot` takes pairs k, k + 1 in ascending
 * order with vdpbf16ps. `tiles` takes blocks of 32 inner indices with tdpbf16ps, which sums the
 * block's even and odd products separately and adds them to the element. Each order is fixed and
 * depends on neither position nor neighbours, so a row has the same bits alone and in any chunk.
 * The two orders differ, and so do their last bits. Intel's processors run vdpbf16ps at half the
 * rate of f32's fused multiply-adds and tdpbf16ps at fifteen times it (tests/bench/README.md),
 * AMD's have no tiles and run vdpbf16ps at twice the rate.
 *
 * Packed right factor: panels of 16 columns, [panel][k / 2][16][2], k filled up with zeros to a
 * multiple of 32: 16 rows of a panel are a tile. Left factor: [k / 32][2][16][32], 32 rows as tiles
 * of 16.
 *
 * Thread: any. The tiles of a thread are configured and released within a call. */
#include "bf16.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "cpu.h"
#include "base/math.h"
#include "transpose.h"

enum {
    PANEL = 16, /* columns of a panel */
    ROWS = 32,  /* rows of the left factor that are converted at a time */
    STEP = 32,  /* inner indices of a tile */
    TILE = PANEL * STEP,
    DEPTH = 512, /* inner indices of a block, a multiple of STEP: 32 KiB of the left factor */
};

#define FR_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define FR_INLINE static inline __attribute__((always_inline))

/* ---- rounding and packing ---- */

static size_t padded(size_t rows)
{
    return (rows + STEP - 1) / STEP * STEP;
}

size_t fr_bf16_packed_floats(uint32_t rows, uint32_t columns)
{
    return ((size_t)columns + PANEL - 1) / PANEL * PANEL * padded(rows) / 2;
}

FR_BF16 FR_INLINE __m512 round_pair(__m512 low, __m512 high)
{
    return (__m512)_mm512_cvtne2ps_pbh(high, low);
}

/* Interleaves the elements of two rows. */
FR_BF16 FR_INLINE __m512 interleave(__m512 first, __m512 second)
{
    static const uint16_t order[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i rounded = _mm512_castps_si512(round_pair(first, second));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_loadu_si512(order), rounded));
}

/* Packs row k alone, where the ranges of two workers meet within a pair of rows. */
FR_BF16 static void pack_row(const struct fr_operand *right, uint32_t first, uint32_t n, uint32_t k, uint16_t *panel)
{
    float row[PANEL] = {0};
    uint16_t rounded[PANEL];
    for (uint32_t j = 0; j < n; j++)
        row[j] =
            right->transposed ? right->values[(first + j) * right->ld + k] : right->values[k * right->ld + first + j];
    _mm256_storeu_si256((__m256i *)rounded, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(row)));
    for (uint32_t j = 0; j < PANEL; j++)
        panel[((size_t)k / 2 * PANEL + j) * 2 + k % 2] = rounded[j];
}

/* Packs rows [begin, end), begin even; a row after the last is zeros. */
FR_BF16 static void pack_straight(const float *in, size_t ld, uint32_t n, uint32_t begin, uint32_t end, uint16_t *panel)
{
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    for (uint32_t k = begin; k < end; k += 2) {
        __m512 first = _mm512_maskz_loadu_ps(mask, in + k * ld);
        __m512 second = k + 1 < end ? _mm512_maskz_loadu_ps(mask, in + (k + 1) * ld) : _mm512_setzero_ps();
        _mm512_storeu_ps(panel + (size_t)k * PANEL, interleave(first, second));
    }
}

FR_INLINE __mmask16 first_lanes(uint32_t n)
{
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

FR_BF16 static void pack_turned(const float *in, size_t ld, uint32_t n, uint32_t begin, uint32_t end, uint16_t *panel)
{
    for (uint32_t k = begin; k < end; k += STEP) {
        uint32_t count = end - k < STEP ? end - k : STEP;
        __mmask16 low = first_lanes(count), high = first_lanes(count > 16 ? count - 16 : 0);
        __m512 rows[PANEL];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < PANEL; j++)
            rows[j] = j < n ? round_pair(_mm512_maskz_loadu_ps(low, in + j * ld + k),
                                         _mm512_maskz_loadu_ps(high, in + j * ld + k + 16))
                            : _mm512_setzero_ps();
        fr_transpose_words(rows);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < PANEL; i++)
            if (2 * i < count)
                _mm512_storeu_ps(panel + ((size_t)k + 2 * i) * PANEL, rows[i]);
    }
}

void fr_bf16_pack(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    FR_CHECK(row_end <= right->rows);
    uint32_t begin = row_begin + row_begin % 2;
    uint32_t end = row_end == right->rows ? row_end : row_end - row_end % 2;
    size_t depth = padded(right->rows);
    for (uint32_t first = 0; first < right->columns && row_begin < row_end; first += PANEL) {
        uint16_t *panel = (uint16_t *)(void *)right->packed + first * depth;
        uint32_t n = right->columns - first < PANEL ? right->columns - first : PANEL;
        if (row_begin < begin)
            pack_row(right, first, n, row_begin, panel);
        if (begin < end && right->transposed)
            pack_turned(right->values + first * right->ld, right->ld, n, begin, end, panel);
        else if (begin < end)
            pack_straight(right->values + first, right->ld, n, begin, end, panel);
        if (end < row_end && end >= begin)
            pack_row(right, first, n, end, panel);
        if (row_end == right->rows) {
            size_t filled = ((size_t)row_end + 1) / 2 * 2;
            /* the last row may be packed alone: zeros take the place of the second row */
            for (uint32_t j = 0; j < PANEL && row_end % 2; j++)
                panel[((size_t)row_end / 2 * PANEL + j) * 2 + 1] = 0;
            memset(panel + filled * PANEL, 0, (depth - filled) * PANEL * sizeof(*panel));
        }
    }
}

/* Converts rows [row, row + n) and inner indices [k, k + depth) of the left factor to tiles. */
FR_BF16 static void left_straight(const struct fr_operand *left, uint32_t row, uint32_t n, uint32_t k, uint32_t depth,
                                  uint16_t *tiles)
{
    for (uint32_t i = 0; i < (n + PANEL - 1) / PANEL * PANEL; i++) {
        const float *in = left->values + (size_t)(row + i) * left->ld + k;
        uint16_t *out = tiles + (size_t)i * STEP;
        for (uint32_t at = 0; at < depth; at += STEP, out += 2 * (size_t)TILE) {
            uint32_t count = i < n ? depth - at : 0;
            __mmask16 low = first_lanes(count), high = first_lanes(count > 16 ? count - 16 : 0);
            const float *from = i < n ? in + at : left->values;
            __m512 tail = high ? _mm512_maskz_loadu_ps(high, from + 16) : _mm512_setzero_ps();
            _mm512_store_ps(out, round_pair(_mm512_maskz_loadu_ps(low, from), tail));
        }
    }
}

FR_BF16 static void left_turned(const struct fr_operand *left, uint32_t row, uint32_t n, uint32_t k, uint32_t depth,
                                uint16_t *tiles)
{
    for (uint32_t at = 0; at < depth; at += STEP) {
        for (uint32_t i = 0; i < n; i += PANEL) {
            const float *in = left->values + (size_t)(k + at) * left->ld + row + i;
            uint16_t *out = tiles + (size_t)at / STEP * 2 * TILE + (size_t)i * STEP;
            __mmask16 mask = first_lanes(n - i);
            uint32_t count = depth - at;
            __m512 rows[PANEL];
#pragma GCC unroll 16
            for (uint32_t p = 0; p < PANEL; p++) {
                __m512 even = _mm512_setzero_ps(), odd = even;
                if (2 * p < count)
                    even = _mm512_maskz_loadu_ps(mask, in + 2 * p * left->ld);
                if (2 * p + 1 < count)
                    odd = _mm512_maskz_loadu_ps(mask, in + (2 * p + 1) * left->ld);
                rows[p] = interleave(even, odd);
            }
            fr_transpose_words(rows);
#pragma GCC unroll 16
            for (uint32_t p = 0; p < PANEL; p++)
                _mm512_store_ps(out + (size_t)p * STEP, rows[p]);
        }
    }
}

/* ---- blocks ---- */

/* A block of at most 32 x 32 elements of the product. */
struct block {
    const uint16_t *left;
    const uint16_t *right[2]; /* panels; the second is used only beyond 16 columns */
    uint32_t steps;           /* number of steps of 32 inner indices */
    uint32_t rows, columns;
    float *c;
    size_t ldc;
    bool load; /* the sums start from c */
};

typedef void block_function(const struct block *block);

/* Packs the panels of a block, if the right factor is not packed. */
static void pack_block(const struct fr_operand *right, uint32_t k, uint32_t depth, uint32_t column, struct block *block,
                       float *room)
{
    struct fr_operand part = {.values = right->values + k * right->ld + column, .ld = right->ld, .packed = room};
    part.rows = depth;
    part.columns = block->columns;
    fr_bf16_pack(&part, 0, depth);
    block->right[0] = (const uint16_t *)(const void *)room;
    block->right[1] = block->right[0] + PANEL * padded(depth);
}

static void row_block(const struct fr_multiply *product, uint32_t row, uint32_t k, block_function *function)
{
    _Alignas(64) uint16_t left[ROWS * DEPTH];
    _Alignas(64) float room[ROWS * DEPTH / 2];
    const struct fr_operand *right = product->right;
    uint32_t depth = right->rows - k < DEPTH ? right->rows - k : DEPTH;
    struct block block = {.left = left, .steps = (uint32_t)padded(depth) / STEP, .load = product->accumulate || k > 0};
    block.rows = product->row_end - row < ROWS ? product->row_end - row : ROWS;
    block.ldc = product->out.ld;
    (product->left->transposed ? left_turned : left_straight)(product->left, row, block.rows, k, depth, left);
    for (uint32_t column = 0; column < right->columns; column += 2 * PANEL) {
        block.columns = right->columns - column < 2 * PANEL ? right->columns - column : 2 * PANEL;
        block.c = product->out.values + row * product->out.ld + column;
        if (right->packed) {
            block.right[0] =
                (const uint16_t *)(const void *)right->packed + column * padded(right->rows) + (size_t)k * PANEL;
            block.right[1] = block.right[0] + PANEL * padded(right->rows);
        } else {
            pack_block(right, k, depth, column, &block, room);
        }
        function(&block);
        if (k + depth == right->rows)
            fr_cpu_finish(product, &(struct fr_product_part){row, block.rows, column, block.columns});
    }
}

static void blocks(const struct fr_multiply *product, block_function *function)
{
    const struct fr_operand *left = product->left, *right = product->right;
    FR_CHECK(left->columns == right->rows && product->row_end <= left->rows);
    FR_CHECK(right->packed || !right->transposed);
    for (uint32_t row = product->row_begin; row < product->row_end; row += ROWS)
        for (uint32_t k = 0; k < right->rows || k == 0; k += DEPTH)
            row_block(product, row, k, function);
}

/* ---- vdpbf16ps ---- */

FR_BF16 FR_INLINE void dot_tile(const struct block *block, const uint32_t first, const uint32_t rows,
                                const uint32_t panels)
{
    enum { TALLEST = 12 };
    __m512 sum[TALLEST][2];
    __mmask16 mask[2] = {first_lanes(block->columns), first_lanes(block->columns - (panels - 1) * PANEL)};
    float *c = block->c + first * block->ldc;
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; p++)
            sum[i][p] =
                block->load ? _mm512_maskz_loadu_ps(mask[p], c + i * block->ldc + p * PANEL) : _mm512_setzero_ps();
    const uint16_t *left = block->left + (size_t)first * STEP, *b0 = block->right[0], *b1 = block->right[panels - 1];
    for (uint32_t s = block->steps; s > 0; s--, left += 2 * (size_t)TILE) {
        for (uint32_t pair = 0; pair < STEP / 2; pair++, b0 += 2 * PANEL, b1 += 2 * PANEL) {
            __m512bh x0 = (__m512bh)_mm512_load_ps(b0), x1 = (__m512bh)_mm512_load_ps(b1);
#pragma GCC unroll 12
            for (uint32_t i = 0; i < rows; i++) {
                int32_t word;
                memcpy(&word, left + (size_t)i * STEP + 2 * pair, sizeof(word));
                __m512bh y = (__m512bh)_mm512_set1_epi32(word);
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], y, x0);
                if (panels > 1)
                    sum[i][1] = _mm512_dpbf16_ps(sum[i][1], y, x1);
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; p++)
            _mm512_mask_storeu_ps(c + i * block->ldc + p * PANEL, mask[p], sum[i][p]);
}

FR_BF16 FR_INLINE void dot_rows(const struct block *block, const uint32_t panels)
{
    uint32_t i = 0;
    for (; i + 12 <= block->rows; i += 12)
        dot_tile(block, i, 12, panels);
    for (; i + 4 <= block->rows; i += 4)
        dot_tile(block, i, 4, panels);
    for (; i < block->rows; i++)
        dot_tile(block, i, 1, panels);
}

FR_BF16 static void dot_block(const struct block *block)
{
    if (block->columns > PANEL)
        dot_rows(block, 2);
    else
        dot_rows(block, 1);
}

void fr_bf16_multiply_dot(const struct fr_multiply *product)
{
    blocks(product, dot_block);
}

bool fr_bf16_has_dot(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

/* ---- tdpbf16ps ---- */

/* Tiles 0 to 3 hold sums, tiles 4 and 5 rows of the left factor, tiles 6 and 7 rows of the right
 * factor. The code is assembler because GCC's intrinsics do not declare that they read and write
 * memory. */
#define TILE_LOAD(tile, from, stride)                                                                                  \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(tile, to, stride)                                                                                   \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((size_t)(stride)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_DOT(sum, left, right) __asm__ volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sum ::)

/* The processor's tile configuration, palette 1. */
struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_configuration) == 64, "what ldtilecfg reads");

FR_INLINE void tiles_start(float *c, size_t stride, bool load, const bool low, const bool wide)
{
    if (!load) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        return;
    }
    TILE_LOAD(0, c, stride);
    if (wide)
        TILE_LOAD(1, c + PANEL, stride);
    if (low)
        TILE_LOAD(2, (char *)c + PANEL * stride, stride);
    if (low && wide)
        TILE_LOAD(3, (char *)(c + PANEL) + PANEL * stride, stride);
}

/* `low`: more than 16 rows; `wide`: more than 16 columns. */
FR_INLINE void tiles_run(const struct block *block, float *c, size_t stride, const bool low, const bool wide)
{
    const uint16_t *left = block->left, *b0 = block->right[0], *b1 = block->right[1];
    tiles_start(c, stride, block->load, low, wide);
    for (uint32_t s = block->steps; s > 0; s--, left += 2 * (size_t)TILE, b0 += TILE, b1 += TILE) {
        TILE_LOAD(6, b0, 64);
        TILE_LOAD(4, left, 64);
        TILE_DOT(0, 4, 6);
        if (wide) {
            TILE_LOAD(7, b1, 64);
            TILE_DOT(1, 4, 7);
        }
        if (low) {
            TILE_LOAD(5, left + TILE, 64);
            TILE_DOT(2, 5, 6);
        }
        if (low && wide)
            TILE_DOT(3, 5, 7);
    }
    TILE_STORE(0, c, stride);
    if (wide)
        TILE_STORE(1, c + PANEL, stride);
    if (low)
        TILE_STORE(2, (char *)c + PANEL * stride, stride);
    if (low && wide)
        TILE_STORE(3, (char *)(c + PANEL) + PANEL * stride, stride);
}

static void tile_block(const struct block *block)
{
    _Alignas(64) float room[ROWS][2 * PANEL];
    bool whole = block->rows % PANEL == 0 && block->columns % PANEL == 0;
    float *c = whole ? block->c : &room[0][0];
    size_t stride = whole ? block->ldc * sizeof(float) : sizeof(room[0]);
    if (!whole && block->load) {
        memset(room, 0, sizeof(room));
        for (uint32_t i = 0; i < block->rows; i++)
            memcpy(room[i], block->c + i * block->ldc, block->columns * sizeof(float));
    }
    if (block->rows > PANEL && block->columns > PANEL)
        tiles_run(block, c, stride, true, true);
    else if (block->rows > PANEL)
        tiles_run(block, c, stride, true, false);
    else if (block->columns > PANEL)
        tiles_run(block, c, stride, false, true);
    else
        tiles_run(block, c, stride, false, false);
    for (uint32_t i = 0; i < block->rows && !whole; i++)
        memcpy(block->c + i * block->ldc, room[i], block->columns * sizeof(float));
}

void fr_bf16_multiply_tiles(const struct fr_multiply *product)
{
    struct tile_configuration configuration = {.palette = 1};
    for (uint32_t t = 0; t < 8; t++) {
        configuration.row_bytes[t] = 64;
        configuration.rows[t] = PANEL;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
    blocks(product, tile_block);
    __asm__ volatile("tilerelease" ::);
}

static bool tiles_permitted;

/* Whether the processor has tiles. Compilers of different ages have different names for this
 * query. */
static bool cpu_has_tiles(void)
{
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & amx_bf16) && (edx & amx_tile);
}

static void ask_for_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    tiles_permitted =
        fr_bf16_has_dot() && cpu_has_tiles() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

bool fr_bf16_has_tiles(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    FR_CHECK(pthread_once(&once, ask_for_tiles) == 0);
    return tiles_permitted;
}

#endif /* __x86_64__ */
