/* The f32 functions of base/math.h against libm in double precision, over dense grids of the
 * inputs' bit patterns. Each case prints the largest error in units of the last place of the f32
 * result; the stated class is ULP(4). */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>

#include <math.h>

#include "base/math.h"

enum { ULP_MAX = 4 };

/* Distance in units of the last place of the f32 nearest to the reference. */
static double ulps(float got, double reference)
{
    float nearest = (float)reference;
    if (isnan(reference))
        return isnan(got) ? 0 : HUGE_VAL;
    if (isinf(nearest) || isinf(got))
        return got == nearest ? 0 : HUGE_VAL;
    int exponent;
    frexp(reference, &exponent);
    if (reference == 0 || exponent < -125)
        exponent = -125;
    return fabs((double)got - reference) / ldexp(1.0, exponent - 24);
}

struct worst {
    double ulps;
    float at;
};

static void try(struct worst *worst, float (*tested)(float), double (*reference)(double), float x)
{
    double error = ulps(tested(x), reference((double)x));
    if (error > worst->ulps) {
        worst->ulps = error;
        worst->at = x;
    }
}

/* Every `step`-th f32 between low and high, which have the same sign. */
static struct worst sweep(float (*tested)(float), double (*reference)(double), float low, float high, uint32_t step)
{
    struct worst worst = {0};
    uint32_t a = fr_f32_bits(low), b = fr_f32_bits(high);
    if (a > b) {
        uint32_t t = a;
        a = b;
        b = t;
    }
    for (uint64_t bits = a; bits <= b; bits += step)
        try(&worst, tested, reference, fr_bits_f32((uint32_t)bits));
    try(&worst, tested, reference, low);
    try(&worst, tested, reference, high);
    return worst;
}

static void check(const char *name, struct worst worst)
{
    printf("%s: at most %.3f ulp, at %.9g\n", name, worst.ulps, (double)worst.at);
    assert_true(worst.ulps <= ULP_MAX);
}

static float tested_exp(float x)
{
    return fr_expf(x);
}

static float tested_log(float x)
{
    return fr_logf(x);
}

static float tested_log1p(float x)
{
    return fr_log1pf(x);
}

static float tested_sigmoid(float x)
{
    return fr_sigmoidf(x);
}

static float tested_tanh(float x)
{
    return fr_tanhf(x);
}

static float tested_softplus(float x)
{
    return fr_softplusf(x);
}

static double reference_sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double reference_softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

FR_CASE(exp_is_within_4_ulp)
{
    check("exp, x > 0", sweep(tested_exp, exp, 0.0f, 88.72283f, 499));
    check("exp, x < 0", sweep(tested_exp, exp, -1e-30f, -87.33654f, 499));
    struct worst linear = {0};
    for (int i = -870000; i <= 887000; i++)
        try(&linear, tested_exp, exp, (float)i * 1e-4f);
    check("exp, even grid", linear);
}

FR_CASE(log_is_within_4_ulp)
{
    check("log, all magnitudes", sweep(tested_log, log, 1e-45f, 3.4e38f, 997));
    check("log, near 1", sweep(tested_log, log, 0.5f, 2.0f, 11));
}

FR_CASE(log1p_is_within_4_ulp)
{
    check("log1p, x > 0", sweep(tested_log1p, log1p, 1e-45f, 3e38f, 997));
    check("log1p, x < 0", sweep(tested_log1p, log1p, -1e-45f, -0.99999994f, 499));
    check("log1p, about 1", sweep(tested_log1p, log1p, 0.01f, 4.0f, 31));
}

FR_CASE(sigmoid_is_within_4_ulp)
{
    check("sigmoid, x > 0", sweep(tested_sigmoid, reference_sigmoid, 0.0f, 100.0f, 499));
    check("sigmoid, x < 0", sweep(tested_sigmoid, reference_sigmoid, -1e-30f, -87.0f, 499));
}

FR_CASE(tanh_is_within_4_ulp)
{
    check("tanh, x > 0", sweep(tested_tanh, tanh, 0.0f, 20.0f, 299));
    check("tanh, about the seam", sweep(tested_tanh, tanh, 0.5f, 1.0f, 3));
    check("tanh, x < 0", sweep(tested_tanh, tanh, -1e-45f, -1e30f, 499));
}

FR_CASE(softplus_is_within_4_ulp)
{
    check("softplus, x > 0", sweep(tested_softplus, reference_softplus, 0.0f, 1e30f, 997));
    check("softplus, x < 0", sweep(tested_softplus, reference_softplus, -1e-30f, -87.0f, 499));
}

FR_CASE(special_values_behave_as_in_c)
{
    assert_true(isinf(fr_expf(INFINITY)) && isinf(fr_expf(89.0f)));
    assert_true(fr_expf(-INFINITY) == 0.0f && fr_expf(-1000.0f) == 0.0f);
    assert_true(isnan(fr_expf(NAN)) && isnan(fr_logf(NAN)) && isnan(fr_log1pf(NAN)) && isnan(fr_sigmoidf(NAN)) &&
                isnan(fr_softplusf(NAN)));
    assert_true(fr_expf(0.0f) == 1.0f && fr_logf(1.0f) == 0.0f && fr_log1pf(0.0f) == 0.0f);
    assert_true(fr_logf(0.0f) == -INFINITY && fr_logf(INFINITY) == INFINITY && isnan(fr_logf(-1.0f)));
    assert_true(fr_log1pf(-1.0f) == -INFINITY && fr_log1pf(INFINITY) == INFINITY && isnan(fr_log1pf(-2.0f)));
    assert_true(fr_sigmoidf(0.0f) == 0.5f && fr_sigmoidf(INFINITY) == 1.0f && fr_sigmoidf(-INFINITY) == 0.0f);
    assert_true(isnan(fr_tanhf(NAN)) && fr_tanhf(INFINITY) == 1.0f && fr_tanhf(-INFINITY) == -1.0f &&
                fr_tanhf(0.0f) == 0.0f);
    assert_true(fr_softplusf(-INFINITY) == 0.0f && fr_softplusf(INFINITY) == INFINITY);
}

FR_CASE(sigmoid_never_decreases)
{
    float before = 0.0f;
    for (int i = -100000; i <= 100000; i++) {
        float now = fr_sigmoidf((float)i * 1e-3f);
        assert_true(now >= before);
        before = now;
    }
}

FR_CASE(sine_and_cosine_of_turns_are_within_their_class)
{
    double worst = 0.0;
    for (uint32_t i = 0; i < 604800; i++) { /* every second of a week */
        double turns = i / 604800.0;
        float sine, cosine;
        fr_sincos_turns(turns, &sine, &cosine);
        double errors[] = {fabs((double)sine - sin(2.0 * M_PI * turns)),
                           fabs((double)cosine - cos(2.0 * M_PI * turns))};
        worst = fmax(worst, fmax(errors[0], errors[1]));
    }
    assert_true(worst < 0x1p-24); /* half a unit in the last place of 1 */
    float sine, cosine;
    fr_sincos_turns(0.25, &sine, &cosine);
    assert_true(sine == 1.0f && cosine == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sine_and_cosine_of_turns_are_within_their_class),
        cmocka_unit_test(exp_is_within_4_ulp),
        cmocka_unit_test(log_is_within_4_ulp),
        cmocka_unit_test(log1p_is_within_4_ulp),
        cmocka_unit_test(sigmoid_is_within_4_ulp),
        cmocka_unit_test(softplus_is_within_4_ulp),
        cmocka_unit_test(tanh_is_within_4_ulp),
        cmocka_unit_test(special_values_behave_as_in_c),
        cmocka_unit_test(sigmoid_never_decreases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
