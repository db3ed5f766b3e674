/* The macros and functions that kernels are written with. The source of a kernel is valid as
 * CUDA C++ and as C17. The two differ in device.h, which the include path chooses: with that of
 * trainer/cuda/card, nvcc compiles the plug-in; that of tests/emulate runs grid, blocks and
 * warps on the processor. So the parity suite tests the same source that a card runs.
 *
 * A kernel takes one struct by value. Its threads are 256 a block in a flat grid; a warp has 32
 * lanes. Loops are grid-stride: no result depends on the number of blocks. All 32 lanes of a warp
 * meet in fr_warp_*; the threads of a block meet in fr_block_meet.
 *
 * Private to the module. */
#ifndef FR_CUDA_KERNEL_H
#define FR_CUDA_KERNEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/math.h"
#include "cuda/api.h"
#include "device.h"
#include "queue.h"

enum { FR_BLOCK = 256, FR_WARP = 32, FR_BLOCK_WARPS = FR_BLOCK / FR_WARP };

/* ---- where a thread is ---- */

FR_DEVICE size_t fr_thread(void)
{
    return (size_t)blockIdx.x * FR_BLOCK + threadIdx.x;
}

FR_DEVICE size_t fr_threads(void)
{
    return (size_t)gridDim.x * FR_BLOCK;
}

FR_DEVICE uint32_t fr_lane(void)
{
    return threadIdx.x % FR_WARP;
}

FR_DEVICE uint32_t fr_warp(void)
{
    return blockIdx.x * FR_BLOCK_WARPS + threadIdx.x / FR_WARP;
}

FR_DEVICE uint32_t fr_warps(void)
{
    return gridDim.x * FR_BLOCK_WARPS;
}

/* Every index below n, grid-stride. */
#define FR_EACH(i, n) for (size_t i = fr_thread(); i < (size_t)(n); i += fr_threads())
/* The same for whole warps: all lanes of a warp have the same i. */
#define FR_EACH_BY_WARP(i, n) for (uint32_t i = fr_warp(); i < (n); i += fr_warps())
/* The columns of a row, divided among the lanes of a warp. */
#define FR_EACH_BY_LANE(j, n) for (uint32_t j = fr_lane(); j < (n); j += FR_WARP)

/* Cell `at` of a matrix of n columns. Where 32 bits suffice, no 64-bit numbers are divided,
 * because that is slow. */
struct fr_cell {
    size_t row;
    uint32_t column;
};
FR_DEVICE struct fr_cell fr_cell_of(size_t at, uint32_t n)
{
    struct fr_cell cell;
    if (at <= UINT32_MAX) {
        uint32_t small = (uint32_t)at, row = small / n;
        cell.row = row;
        cell.column = small - row * n;
    } else {
        cell.row = at / n;
        cell.column = (uint32_t)(at - cell.row * n);
    }
    return cell;
}

FR_DEVICE float *fr_at(struct fr_view v, size_t row, size_t column)
{
    return v.values + row * v.ld + column;
}

FR_DEVICE float *fr_cell_at(struct fr_view v, struct fr_cell cell)
{
    return fr_at(v, cell.row, cell.column);
}

/* ---- sums in fixed order ---- */

/* Returns the sum over the lanes of a warp to every lane. Lanes are joined in the order in which
 * fr_row_tree joins partial sums. */
FR_DEVICE float fr_warp_sum(float x)
{
    for (uint32_t half = FR_WARP / 2; half > 0; half /= 2)
        x += fr_warp_down_f32(x, half);
    return fr_warp_from_f32(x, 0);
}

/* The largest over the lanes of a warp. A NaN is ignored, as in the comparison x > largest. */
FR_DEVICE float fr_warp_largest(float x)
{
    for (uint32_t half = FR_WARP / 2; half > 0; half /= 2) {
        float other = fr_warp_down_f32(x, half);
        x = other > x ? other : x;
    }
    return fr_warp_from_f32(x, 0);
}

/* The sum over the threads of a block; thread 0 gets it. `shared`: [FR_BLOCK_WARPS], otherwise
 * unused. */
FR_DEVICE double fr_block_sum(double x, double *shared)
{
    for (uint32_t half = FR_WARP / 2; half > 0; half /= 2)
        x += fr_warp_down_f64(x, half);
    if (fr_lane() == 0)
        shared[threadIdx.x / FR_WARP] = x;
    fr_block_meet();
    double sum = 0.0;
    for (uint32_t w = 0; w < FR_BLOCK_WARPS && threadIdx.x == 0; w++)
        sum += shared[w];
    fr_block_meet(); /* the caller may use `shared` again */
    return sum;
}

/* ---- ragged steps ---- */

FR_DEVICE bool fr_is_masked(const struct fr_steps *steps, size_t p)
{
    return steps->masked && steps->masked[p];
}

#endif
