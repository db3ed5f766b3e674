/* Sums over a row in an order that this code fixes: element i is added to lane i modulo
 * FR_LANES, and lanes are joined as a tree. A step uses one vector register of this fixed length
 * on every machine, so AVX2, AVX-512 and plain code give equal bits. Private to the module. */
#ifndef FR_OPS_LANES_H
#define FR_OPS_LANES_H

#include <stddef.h>
#include <stdint.h>

enum { FR_LANES = 8 };

/* These functions must be inlined into the clones (FR_CLONES); otherwise they would be compiled
 * for one instruction set only. */
#define FR_IN_LINE static inline __attribute__((always_inline))

FR_IN_LINE float fr_lanes_tree(float *lane)
{
    for (uint32_t half = FR_LANES / 2; half > 0; half /= 2)
        for (uint32_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

FR_IN_LINE float fr_lanes_dot(const float *a, const float *b, size_t n)
{
    float lane[FR_LANES] = {0};
    size_t whole = n - n % FR_LANES;
    for (size_t i = 0; i < whole; i += FR_LANES)
        for (size_t l = 0; l < FR_LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += a[i] * b[i];
    return fr_lanes_tree(lane);
}

FR_IN_LINE float fr_lanes_sum(const float *a, size_t n)
{
    float lane[FR_LANES] = {0};
    size_t whole = n - n % FR_LANES;
    for (size_t i = 0; i < whole; i += FR_LANES)
        for (size_t l = 0; l < FR_LANES; l++)
            lane[l] += a[i + l];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += a[i];
    return fr_lanes_tree(lane);
}

/* Sum of (a - mean)^2. */
FR_IN_LINE float fr_lanes_squares(const float *a, float mean, size_t n)
{
    float lane[FR_LANES] = {0};
    size_t whole = n - n % FR_LANES;
    for (size_t i = 0; i < whole; i += FR_LANES)
        for (size_t l = 0; l < FR_LANES; l++)
            lane[l] += (a[i + l] - mean) * (a[i + l] - mean);
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (a[i] - mean) * (a[i] - mean);
    return fr_lanes_tree(lane);
}

/* Sum of (a - b)^2. */
FR_IN_LINE float fr_lanes_distance(const float *a, const float *b, size_t n)
{
    float lane[FR_LANES] = {0};
    size_t whole = n - n % FR_LANES;
    for (size_t i = 0; i < whole; i += FR_LANES)
        for (size_t l = 0; l < FR_LANES; l++)
            lane[l] += (a[i + l] - b[i + l]) * (a[i + l] - b[i + l]);
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (a[i] - b[i]) * (a[i] - b[i]);
    return fr_lanes_tree(lane);
}

#endif
