/* Uniform and normal numbers as functions of the bits drawn, for the processor (base/random.h) and
 * for devices: valid as C17 and as CUDA C++. Only basic operations and sqrt are used, so that every
 * processor gives the same bits (-ffp-contract=off). */
#ifndef FR_BASE_RANDOM_MATH_H
#define FR_BASE_RANDOM_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/random.h"

FR_HD double fr_random_bits_of_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Converts an integer below 2^52: n becomes the mantissa of 2^52 + n. Vector units without a
 * conversion of 64-bit integers can do this. */
FR_HD double fr_random_small_integer(uint64_t n)
{
    return fr_random_bits_of_double(n | 0x4330000000000000ULL) - 0x1p52;
}

/* Converts an integer of at most 2^53 exactly. */
FR_HD double fr_random_integer(uint64_t n)
{
    return fr_random_small_integer(n >> 32) * 0x1p32 + fr_random_small_integer(n & 0xffffffffULL);
}

FR_HD double fr_random_unit_interval(uint64_t bits)
{
    return fr_random_integer(bits >> 11) * 0x1p-53;
}

/* Natural logarithm of a normal number in (0, 1]: log m = 2 atanh((m-1)/(m+1)) by its series, |s|
 * <= 0.1716, so that the term after s^23 is below 1e-19. */
FR_HD double fr_random_log_unit(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    double exponent = fr_random_small_integer(bits >> 52) - 1023.0;
    double m = fr_random_bits_of_double((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
    double halved = m > 1.4142135623730951 ? 1.0 : 0.0;
    m = halved > 0.0 ? m * 0.5 : m;
    exponent += halved;
    const double atanh_series[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                   1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = atanh_series[0];
    for (int k = 1; k < 12; k++)
        p = p * z + atanh_series[k];
    return exponent * 0.69314718055994531 + 2.0 * s * p;
}

/* cos(2 pi u) for u in [0, 1). The nearest quarter turn is exact in u; the rest, |f| <= pi/4, goes
 * through the Taylor polynomials. */
FR_HD double fr_random_cos_turn(double u)
{
    double t = u * 4.0;
    /* t + 0.5 truncated to a whole number, 0 to 4, without leaving the vector unit */
    double h = t + 0.5;
    double quarter = (h >= 1.0 ? 1.0 : 0.0) + (h >= 2.0 ? 1.0 : 0.0) + (h >= 3.0 ? 1.0 : 0.0) + (h >= 4.0 ? 1.0 : 0.0);
    double f = (t - quarter) * 1.5707963267948966;
    double z = f * f;
    /* Factors from one term to the next, the last term's first: z/(k(k+1)) for the sine, z/(k(k-1))
     * for the cosine, k = 16, 14, .. 2. */
    const double sine_step[] = {1.0 / 272, 1.0 / 210, 1.0 / 156, 1.0 / 110, 1.0 / 72, 1.0 / 42, 1.0 / 20, 1.0 / 6};
    const double cosine_step[] = {1.0 / 240, 1.0 / 182, 1.0 / 132, 1.0 / 90, 1.0 / 56, 1.0 / 30, 1.0 / 12, 1.0 / 2};
    double sine = 1.0, cosine = 1.0;
    for (int k = 0; k < 8; k++) {
        sine = 1.0 - sine * z * sine_step[k];
        cosine = 1.0 - cosine * z * cosine_step[k];
    }
    sine *= f;
    double odd = quarter == 1.0 || quarter == 3.0 ? sine : cosine;
    return quarter == 1.0 || quarter == 2.0 ? -odd : odd;
}

/* Box and Muller's method from two draws. */
FR_HD double fr_random_normal_of(uint64_t a, uint64_t b)
{
    /* (0, 1]: the logarithm of 0 must not occur */
    double u1 = fr_random_integer((a >> 11) + 1) * 0x1p-53;
    return sqrt(-2.0 * fr_random_log_unit(u1)) * fr_random_cos_turn(fr_random_unit_interval(b));
}

/* Box and Muller's method for initial weights, in f32: one draw gives two numbers. Its upper half
 * is their radius, its lower half their angle. */
FR_HD float fr_random_radius(uint32_t bits)
{
    /* (0, 1]: both parts are exact, so their sum is rounded once */
    float u = ((float)(int32_t)(bits >> 16) * 0x1p16f + (float)((int32_t)(bits & 0xffff) + 1)) * 0x1p-32f;
    return sqrtf(-2.0f * fr_logf(u));
}

/* Cosine and sine of bits / 2^32 turns. The nearest quarter turn is subtracted; the rest, |f| <=
 * pi/4, goes through the Taylor polynomials up to f^8 and f^9. */
FR_HD void fr_random_angle(uint32_t bits, float *cosine, float *sine)
{
    uint32_t quarter = (bits + 0x20000000u) >> 30;
    float f = (float)(int32_t)(bits - (quarter << 30)) * (1.57079632679489662f * 0x1p-30f), z = f * f;
    float along = 1.0f - z * (1.0f / 42) * (1.0f - z * (1.0f / 72));
    along = f * (1.0f - z * (1.0f / 6) * (1.0f - z * (1.0f / 20) * along));
    float across = 1.0f - z * (1.0f / 30) * (1.0f - z * (1.0f / 56));
    across = 1.0f - z * 0.5f * (1.0f - z * (1.0f / 12) * across);
    int odd = (int)(quarter & 1u);
    uint32_t below = (quarter & 2u) << 30, left = ((quarter + 1) & 2u) << 30; /* signs */
    *cosine = fr_bits_f32(fr_f32_bits(fr_select_f32(odd, along, across)) ^ left);
    *sine = fr_bits_f32(fr_f32_bits(fr_select_f32(odd, across, along)) ^ below);
}

FR_HD float fr_random_weight_at(uint64_t start, uint64_t index)
{
    uint64_t bits = fr_random_draw(start, index / 2);
    float cosine, sine;
    fr_random_angle((uint32_t)bits, &cosine, &sine);
    return fr_random_radius((uint32_t)(bits >> 32)) * (index % 2 == 0 ? cosine : sine);
}

/* The numbers of base/random.h: draw `index` from a start (fr_random_start). */
FR_HD double fr_random_uniform_at(uint64_t start, uint64_t index)
{
    return fr_random_unit_interval(fr_random_draw(start, index));
}

FR_HD double fr_random_normal_at(uint64_t start, uint64_t index)
{
    return fr_random_normal_of(fr_random_draw(start, 2 * index), fr_random_draw(start, 2 * index + 1));
}

FR_HD double fr_random_truncated_normal_at(uint64_t start, uint64_t index)
{
    /* one number in 22 is drawn again; the chance of 64 in a row is 1e-86 */
    enum { DRAWS_MAX = 64 };
    for (uint64_t draw = 0; draw < DRAWS_MAX; draw++) {
        double x = fr_random_normal_at(start, index + (draw << 32));
        if (x >= -2.0 && x <= 2.0)
            return x;
    }
    return 0.0;
}

#endif
