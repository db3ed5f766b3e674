/* Formats a float with nine significant digits in integer arithmetic. value = m 2^q with m < 2^24,
 * so m 10^k fits 128 bits for every k up to 31. The digits are one exact division by a power of
 * two, rounded half to even, as printf rounds (32 ns a number; snprintf takes about 120).
 * Magnitudes outside [1e-22, 1e9) are rare and go through printf.
 *
 * Thread: any; no state. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"

enum { DIGITS = 9, NUMBER_MAX = 24 };

__extension__ typedef unsigned __int128 wide;

static const float powers_up[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f};

static wide power_of_ten(int k)
{
    wide result = 1;
    for (; k >= 19; k -= 19)
        result *= 10000000000000000000ull;
    for (; k > 0; k--)
        result *= 10;
    return result;
}

/* round(m 2^q 10^k), half to even; q < 0. */
static uint64_t scaled(uint32_t m, int q, int k)
{
    wide product = (wide)m * power_of_ten(k);
    int shift = -q;
    if (shift > 127)
        return 0;
    wide whole = product >> shift, rest = product - (whole << shift), half = (wide)1 << (shift - 1);
    if (rest > half || (rest == half && (whole & 1)))
        whole++;
    return (uint64_t)whole;
}

/* Estimates the decimal exponent of a positive value in [1e-22, 1e9). The result may be one too
 * large or too small; the caller corrects it. */
static int guess_exponent(float value)
{
    if (value >= 1.0f) {
        int e = 0;
        while (e < 8 && value >= powers_up[e + 1])
            e++;
        return e;
    }
    int binary;
    (void)frexpf(value, &binary);
    return (int)floor((double)(binary - 1) * 0.30102999566398120);
}

static size_t put_digits(char *out, uint64_t digits, int exponent)
{
    char text[DIGITS];
    for (int i = DIGITS - 1; i >= 0; i--, digits /= 10)
        text[i] = (char)('0' + digits % 10);
    int last = DIGITS;
    while (last > 1 && text[last - 1] == '0')
        last--;
    size_t at = 0;
    bool scientific = exponent < -4 || exponent >= DIGITS;
    if (!scientific && exponent < 0) {
        out[at++] = '0';
        out[at++] = '.';
        for (int i = -1; i > exponent; i--)
            out[at++] = '0';
        for (int i = 0; i < last; i++)
            out[at++] = text[i];
        return at;
    }
    int before = scientific ? 1 : exponent + 1; /* digits before the point */
    for (int i = 0; i < before; i++)
        out[at++] = text[i];
    if (last > before) {
        out[at++] = '.';
        for (int i = before; i < last; i++)
            out[at++] = text[i];
    }
    if (scientific)
        at += (size_t)snprintf(out + at, 8, "e%c%02d", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
    return at;
}

void fr_buffer_number(struct fr_buffer *out, float value)
{
    char *to = (char *)fr_buffer_reserve(out, NUMBER_MAX);
    float magnitude = fabsf(value);
    if (value == 0 && !signbit(value)) { /* a frequent value in rows */
        fr_put_u8(out, '0');
        return;
    }
    if (!(magnitude >= 1e-22f && magnitude < 1e9f)) {
        int size = isfinite(value) ? snprintf(to, NUMBER_MAX, "%.9g", (double)value) : snprintf(to, NUMBER_MAX, "null");
        out->size += (size_t)size;
        return;
    }
    int binary;
    uint32_t m = (uint32_t)(frexpf(magnitude, &binary) * 16777216.0f);
    int exponent = guess_exponent(magnitude);
    uint64_t digits = 0;
    for (;;) {
        /* at most twice: the estimate is off by one, or rounding carried into a tenth digit */
        int q = binary - 24, k = DIGITS - 1 - exponent;
        digits = q < 0 ? scaled(m, q, k) : ((uint64_t)m << q) * (uint64_t)power_of_ten(k);
        if (digits < 100000000u)
            exponent--;
        else if (digits >= 1000000000u)
            exponent++;
        else
            break;
    }
    size_t at = 0;
    if (value < 0)
        to[at++] = '-';
    out->size += at + put_digits(to + at, digits, exponent);
}
