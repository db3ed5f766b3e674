/* The CPU backends as tables: avx512 and avx2 (gemm.c, equal bits), openblas (cblas_sgemm), and the
 * choice between them.
 *
 * OpenBLAS calls are single-threaded: a worker per core is faster and the library's own split
 * would change the order of sums with the number of threads. With OpenBLAS the bits of a product
 * depend on its shape and on a row's position, so the graph runs products on whole chunks of C
 * rows. Thread: any; the tables are constant. The OpenBLAS set-up runs once. */
#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "bf16.h"
#include "cpu.h"
#include "gemm.h"

#if defined(__x86_64__)
static const struct fr_ops avx512_table;
FR_CPU_RECURRENCE(avx512, avx512_table)

static const struct fr_ops avx512_table = {
    .name = "cpu-avx512",
    .kernel = "fma 1",
    .rows_independent = true,
    .packed_floats = fr_gemm_packed_floats,
    .pack = fr_gemm_pack_avx512,
    .multiply = fr_gemm_avx512,
    FR_CPU_MEMBERS(avx512),
};

static const struct fr_ops avx2_table;
FR_CPU_RECURRENCE(avx2, avx2_table)

static const struct fr_ops avx2_table = {
    .name = "cpu-avx2",
    .kernel = "fma 1",
    .rows_independent = true,
    .packed_floats = fr_gemm_packed_floats,
    .pack = fr_gemm_pack_avx2,
    .multiply = fr_gemm_avx2,
    FR_CPU_MEMBERS(avx2),
};

const struct fr_ops *fr_ops_cpu_avx512(void)
{
    return __builtin_cpu_supports("avx512f") ? &avx512_table : NULL;
}

const struct fr_ops *fr_ops_cpu_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2_table : NULL;
}

/* The recurrence stays f32, because its products are small, and its own states would be rounded
 * again at every step. The first layer of attention stays f32, too, because an entry uses the
 * factors for its own steps only. */
static const struct fr_ops bf16_dot_table = {
    .name = "cpu-bf16-dot",
    .kernel = "bf16 dot 1",
    .rows_independent = true,
    .packed_floats = fr_bf16_packed_floats,
    .pack = fr_bf16_pack,
    .multiply = fr_bf16_multiply_dot,
    FR_CPU_MEMBERS(avx512),
};

static const struct fr_ops bf16_tiles_table = {
    .name = "cpu-bf16-tiles",
    .kernel = "bf16 tiles 1",
    .rows_independent = true,
    .packed_floats = fr_bf16_packed_floats,
    .pack = fr_bf16_pack,
    .multiply = fr_bf16_multiply_tiles,
    FR_CPU_MEMBERS(avx512),
};

const struct fr_ops *fr_ops_bf16_dot(void)
{
    return fr_bf16_has_dot() ? &bf16_dot_table : NULL;
}

const struct fr_ops *fr_ops_bf16_tiles(void)
{
    return fr_bf16_has_tiles() ? &bf16_tiles_table : NULL;
}
#else
const struct fr_ops *fr_ops_bf16_dot(void)
{
    return NULL;
}

const struct fr_ops *fr_ops_bf16_tiles(void)
{
    return NULL;
}

const struct fr_ops *fr_ops_cpu_avx512(void)
{
    return NULL;
}

const struct fr_ops *fr_ops_cpu_avx2(void)
{
    return NULL;
}
#endif

static size_t unpacked(uint32_t rows, uint32_t columns)
{
    (void)rows, (void)columns;
    return 0;
}

static void pack_nothing(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    (void)right, (void)row_begin, (void)row_end;
}

static void multiply_openblas(const struct fr_multiply *product)
{
    const struct fr_operand *left = product->left, *right = product->right;
    FR_CHECK(left->columns == right->rows && product->row_end <= left->rows);
    size_t row_stride = left->transposed ? 1 : left->ld;
    cblas_sgemm(CblasRowMajor, left->transposed ? CblasTrans : CblasNoTrans,
                right->transposed ? CblasTrans : CblasNoTrans, (blasint)(product->row_end - product->row_begin),
                (blasint)right->columns, (blasint)right->rows, 1.0f, left->values + product->row_begin * row_stride,
                (blasint)left->ld, right->values, (blasint)right->ld, product->accumulate ? 1.0f : 0.0f,
                product->out.values + product->row_begin * product->out.ld, (blasint)product->out.ld);
    fr_cpu_finish(product, &(struct fr_product_part){product->row_begin, product->row_end - product->row_begin, 0,
                                                     right->columns});
}

static char openblas_kernel[96]; /* set only once */
static const struct fr_ops openblas_table;
FR_CPU_RECURRENCE(openblas, openblas_table)

static const struct fr_ops openblas_table = {
    .name = "openblas",
    .kernel = openblas_kernel,
    .packed_floats = unpacked,
    .pack = pack_nothing,
    .multiply = multiply_openblas,
    FR_CPU_MEMBERS(openblas),
};

static pthread_once_t openblas_once = PTHREAD_ONCE_INIT;

static void openblas_setup(void)
{
    openblas_set_num_threads(1);
    /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH .." */
    char version[32] = "?";
    if (sscanf(openblas_get_config(), "OpenBLAS %31s", version) != 1)
        strcpy(version, "?");
    snprintf(openblas_kernel, sizeof(openblas_kernel), "openblas %s %s", version, openblas_get_corename());
}

const struct fr_ops *fr_ops_openblas(void)
{
    FR_CHECK(pthread_once(&openblas_once, openblas_setup) == 0);
    return &openblas_table;
}

const struct fr_ops *fr_ops_cpu(void)
{
    const struct fr_ops *ops = fr_ops_cpu_avx512();
    if (!ops)
        ops = fr_ops_cpu_avx2();
    return ops ? ops : fr_ops_openblas();
}

const struct fr_ops *fr_ops_bf16(void)
{
    const struct fr_ops *ops = fr_ops_bf16_tiles();
    return ops ? ops : fr_ops_bf16_dot();
}
