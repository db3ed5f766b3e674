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

#include "base/clones.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

static inline uint64_t start_of(uint64_t seed, uint64_t stream, uint64_t key)
{
    /* Odd factors without simple relations keep tuples of small numbers apart before the first
     * round. */
    return mix(key + seed * 0xd1342543de82ef95ULL + stream * 0xaef17502108ef2d9ULL + 0x2545f4914f6cdd1dULL);
}

static inline uint64_t draw(uint64_t start, uint64_t index)
{
    return mix(start + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

uint64_t fr_random_u64(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return draw(start_of(seed, stream, key), index);
}

static inline double bits_of_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* An integer below 2^52 as a number: the mantissa of 2^52 + it. Vector units without a conversion
 * of 64-bit integers have this. */
static inline double small_integer(uint64_t n)
{
    return bits_of_double(n | 0x4330000000000000ULL) - 0x1p52;
}

/* An integer of at most 2^53, exactly. */
static inline double integer(uint64_t n)
{
    return small_integer(n >> 32) * 0x1p32 + small_integer(n & 0xffffffffULL);
}

static inline double unit_interval(uint64_t bits)
{
    return integer(bits >> 11) * 0x1p-53;
}

double fr_random_uniform(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return unit_interval(fr_random_u64(seed, stream, key, index));
}

/* Natural logarithm of a normal number in (0, 1]: log m = 2 atanh((m-1)/(m+1)) by its series, |s|
 * <= 0.1716, so that the term after s^23 is below 1e-19. */
static inline double log_unit(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    double exponent = small_integer(bits >> 52) - 1023.0;
    double m = bits_of_double((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
    double halved = m > 1.4142135623730951 ? 1.0 : 0.0;
    m = halved > 0.0 ? m * 0.5 : m;
    exponent += halved;
    static const double atanh_series[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                          1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = atanh_series[0];
    for (int k = 1; k < 12; k++)
        p = p * z + atanh_series[k];
    return exponent * 0.69314718055994531 + 2.0 * s * p;
}

/* cos(2 pi u) for u in [0, 1): a quarter turn is exact in u, the rest |f| <= pi/4 goes through the
 * Taylor polynomials. */
static inline double cos_turn(double u)
{
    double t = u * 4.0;
    /* t + 0.5 cut to a whole number, 0 to 4, without leaving the vector unit */
    double h = t + 0.5;
    double quarter = (h >= 1.0 ? 1.0 : 0.0) + (h >= 2.0 ? 1.0 : 0.0) + (h >= 3.0 ? 1.0 : 0.0) + (h >= 4.0 ? 1.0 : 0.0);
    double f = (t - quarter) * 1.5707963267948966;
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
    double odd = quarter == 1.0 || quarter == 3.0 ? sine : cosine;
    return quarter == 1.0 || quarter == 2.0 ? -odd : odd;
}

/* Box and Muller's method from two draws. */
static inline double normal_of(uint64_t a, uint64_t b)
{
    double u1 = integer((a >> 11) + 1) * 0x1p-53; /* (0, 1]: the logarithm of 0 must not occur */
    return sqrt(-2.0 * log_unit(u1)) * cos_turn(unit_interval(b));
}

double fr_random_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    uint64_t start = start_of(seed, stream, key);
    return normal_of(draw(start, 2 * index), draw(start, 2 * index + 1));
}

FR_CLONES
void fr_random_uniforms(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out)
{
    uint64_t start = start_of(seed, stream, key);
    for (size_t i = 0; i < out.n; i++)
        out.values[i] = unit_interval(draw(start, index + i));
}

FR_CLONES
void fr_random_normals(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out)
{
    uint64_t start = start_of(seed, stream, key);
    for (size_t i = 0; i < out.n; i++)
        out.values[i] = normal_of(draw(start, 2 * (index + i)), draw(start, 2 * (index + i) + 1));
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
