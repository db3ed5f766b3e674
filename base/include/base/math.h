/* exp, log, tanh, sigmoid, log1p, sine and cosine in f32, written with basic operations only, so
 * that CPU, CUDA and every libm agree on the bits (docs/architecture.md, "Exactness": libm's differ
 * by processor). The header is valid as C17 and as CUDA C++ (base/marker.h).
 *
 * Tolerance class: ULP(4) against the double-precision reference (the unit test prints the measured
 * maximum: 1.0 for exp, 0.9 log, 2.4 log1p, 2.4 sigmoid, 1.5 tanh, 2.7 softplus). */
#ifndef FR_BASE_MATH_H
#define FR_BASE_MATH_H

#include <stdint.h>
#include <string.h>

#include "base/marker.h"

FR_HD float fr_bits_f32(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

FR_HD uint32_t fr_f32_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

/* condition ? a : b without a branch: the functions below compute every case and select one,
 * because a compiler vectorises no loop with a branch in it. */
FR_HD float fr_select_f32(int condition, float a, float b)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return fr_bits_f32((fr_f32_bits(a) & mask) | (fr_f32_bits(b) & ~mask));
}

/* e^x by x = n ln2 + r, |r| <= ln2/2 (Cody and Waite 1980), degree-6 polynomial. It saturates to
 * +inf above 88.72 and to 0 below -87.3. */
FR_HD float fr_expf(float x)
{
    /* 0 for NaN too, because NaN has no integer part. */
    float in = fr_select_f32((x >= -87.33654f) & (x <= 88.72283f), x, 0.0f);
    float n = in * 1.44269504088896341f;
    float half = fr_bits_f32(0x3f000000u | (fr_f32_bits(n) & 0x80000000u));
    int32_t k = (int32_t)(n + half);
    n = (float)k;
    float r = in - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float y = p * (r * r) + r + 1.0f;
    /* 2^128 does not fit in one factor: 2^k = 2^(k - k/2) 2^(k/2). */
    int32_t low = k >> 1;
    y = y * fr_bits_f32((uint32_t)(k - low + 127) << 23) * fr_bits_f32((uint32_t)(low + 127) << 23);
    y = fr_select_f32(x > 88.72283f, fr_bits_f32(0x7f800000u), y);
    y = fr_select_f32(x < -87.33654f, 0.0f, y);
    return fr_select_f32(x != x, x, y);
}

/* Natural logarithm of x > 0 (x <= 0: NaN or -inf as in C). Mantissa in [sqrt(1/2), sqrt(2)),
 * degree-8 polynomial (Cephes form). */
FR_HD float fr_logf(float x)
{
    int tiny = x < 1.17549435e-38f;
    uint32_t bits = fr_f32_bits(fr_select_f32(tiny, x * 8388608.0f, x));
    float m = fr_bits_f32((bits & 0x007fffffu) | 0x3f000000u); /* [0.5, 1) */
    int low = m < 0.707106781186547524f;
    float fe = (float)((int32_t)(bits >> 23) - 126 - 23 * tiny - low);
    m = fr_select_f32(low, m + m, m) - 1.0f;
    float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = m * z * p;
    y = y + fe * -2.12194440e-4f;
    y = y - 0.5f * z;
    y = m + y + fe * 0.693359375f;
    y = fr_select_f32(x > 3.402823466e38f, x, y);
    y = fr_select_f32(x == 0.0f, fr_bits_f32(0xff800000u), y);
    return fr_select_f32((x != x) | (x < 0.0f), fr_bits_f32(0x7fc00000u), y);
}

/* log(1 + x), accurate near 0 by Kahan's correction (HP-15C): log(u) x / (u - 1), u = 1 + x. */
FR_HD float fr_log1pf(float x)
{
    float u = 1.0f + x, log = fr_logf(u);
    int outside = (u >= 3.402823466e38f) | (u <= 0.0f);
    float y = fr_select_f32(outside, log, log * (x / (u - 1.0f)));
    return fr_select_f32(u == 1.0f, x, y);
}

FR_HD float fr_sigmoidf(float x)
{
    float e = fr_expf(fr_select_f32(x >= 0.0f, -x, x));
    return fr_select_f32(x >= 0.0f, 1.0f, e) / (1.0f + e);
}

/* Below 0.625 an odd polynomial (Cephes form), because 1 - 2/(e^2x + 1) would cancel there; above
 * 10 the result is 1. */
FR_HD float fr_tanhf(float x)
{
    float a = fr_bits_f32(fr_f32_bits(x) & 0x7fffffffu);
    float z = a * a;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x;
    float t = 1.0f - 2.0f / (fr_expf(a + a) + 1.0f);
    t = fr_select_f32(a > 10.0f, 1.0f, t);
    float large = fr_bits_f32(fr_f32_bits(t) | (fr_f32_bits(x) & 0x80000000u));
    return fr_select_f32(x != x, x, fr_select_f32(a < 0.625f, small, large));
}

/* Computes sine and cosine of 2 pi turns, turns in [0, 1). The nearest quarter turn is subtracted
 * exactly; the rest (at most pi / 4) goes through Taylor's series in double, whose next terms are
 * below 2e-13. */
FR_HD void fr_sincos_turns(double turns, float *sine, float *cosine)
{
    int32_t quarter = (int32_t)(turns * 4.0 + 0.5);
    double x = (turns - (double)quarter * 0.25) * 6.283185307179586477, z = x * x;
    double s = x * (1.0 - z / 6.0 * (1.0 - z / 20.0 * (1.0 - z / 42.0 * (1.0 - z / 72.0 * (1.0 - z / 110.0)))));
    double c =
        1.0 - z / 2.0 * (1.0 - z / 12.0 * (1.0 - z / 30.0 * (1.0 - z / 56.0 * (1.0 - z / 90.0 * (1.0 - z / 132.0)))));
    int32_t odd = quarter & 1, flipped = quarter & 2;
    double along = odd ? c : s, across = odd ? -s : c;
    *sine = (float)(flipped ? -along : along);
    *cosine = (float)(flipped ? -across : across);
}

/* log(1 + e^x) without overflow. */
FR_HD float fr_softplusf(float x)
{
    float a = fr_select_f32(x >= 0.0f, x, -x);
    return fr_select_f32(x >= 0.0f, x, 0.0f) + fr_log1pf(fr_expf(-a));
}

#endif
