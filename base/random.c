/* Counter-based random numbers (idea: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011; mixing: the SplitMix finalizer, variant 13 of Stafford, in Steele, Lea, Flood 2014).
 *
 * First round: (seed, stream, key) to a starting point; second round: starting point + (index + 1)
 * * golden ratio. Values are part of the format: initial weights must be the same on every machine
 * and version (golden values in the unit test).
 *
 * Thread: any, no state. It does not resist an adversary. */
#include "base/random.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

uint64_t fr_random_u64(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    /* Odd factors without simple relations keep tuples of small numbers apart before the first
     * round. */
    uint64_t start = mix(key + seed * 0xd1342543de82ef95ULL + stream * 0xaef17502108ef2d9ULL + 0x2545f4914f6cdd1dULL);
    return mix(start + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

static double unit_interval(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double fr_random_uniform(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return unit_interval(fr_random_u64(seed, stream, key, index));
}

/* Natural logarithm of a normal number in (0, 1]: log m = 2 atanh((m-1)/(m+1)) by its series, |s|
 * <= 0.1716, so that the term after s^23 is below 1e-19. */
static double log_unit(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    static const double atanh_series[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                          1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = atanh_series[0];
    for (int k = 1; k < 12; k++)
        p = p * z + atanh_series[k];
    return (double)exponent * 0.69314718055994531 + 2.0 * s * p;
}

/* cos(2 pi u) for u in [0, 1): a quarter turn is exact in u, the rest |f| <= pi/4 goes through the
 * Taylor polynomials. */
static double cos_turn(double u)
{
    double t = u * 4.0;
    int quarter = (int)(t + 0.5);
    double f = (t - (double)quarter) * 1.5707963267948966;
    double z = f * f;
    /* Factors from one term to the next, last first: z/(k(k+1)) for the sine, z/(k(k-1)) for the
     * cosine, k = 16, 14, .. 2. */
    static const double sine_step[] = {1.0 / 272, 1.0 / 210, 1.0 / 156, 1.0 / 110,
                                       1.0 / 72,  1.0 / 42,  1.0 / 20,  1.0 / 6};
    static const double cosine_step[] = {1.0 / 240, 1.0 / 182, 1.0 / 132, 1.0 / 90,
                                         1.0 / 56,  1.0 / 30,  1.0 / 12,  1.0 / 2};
    double sine = 1.0, cosine = 1.0;
    for (int k = 0; k < 8; k++) {
        sine = 1.0 - sine * z * sine_step[k];
        cosine = 1.0 - cosine * z * cosine_step[k];
    }
    sine *= f;
    switch (quarter & 3) {
    case 0:
        return cosine;
    case 1:
        return -sine;
    case 2:
        return -cosine;
    default:
        return sine;
    }
}

double fr_random_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    /* (0, 1]: the logarithm of 0 must not occur. */
    double u1 = (double)((fr_random_u64(seed, stream, key, 2 * index) >> 11) + 1) * 0x1p-53;
    double u2 = fr_random_uniform(seed, stream, key, 2 * index + 1);
    return sqrt(-2.0 * log_unit(u1)) * cos_turn(u2);
}

double fr_random_truncated_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    enum { DRAWS_MAX = 64 }; /* one in 22 is drawn again: 64 in a row have a chance of 1e-86 */
    for (uint64_t draw = 0; draw < DRAWS_MAX; draw++) {
        double x = fr_random_normal(seed, stream, key, index + (draw << 32));
        if (x >= -2.0 && x <= 2.0)
            return x;
    }
    return 0.0;
}
