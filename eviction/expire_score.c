/* Score expiry: a row has the score show_weight * shows + click_weight * clicks, halved per
 * half_life of event time since it was last trained, and goes when that is smaller than `min`.
 *
 * Idea: the show/click score with decay of feature stores for CTR models (accessors of parameter
 * servers since Li et al., OSDI 2014, keep such counters beside a row). There counters decay day by
 * day, which touches every row every day; here shows and clicks are kept as they are and only the
 * time since the last training decays them, so that nothing has to be written.
 *
 * The power of two is put together from an exact scaling and our own series, because libm's exp2
 * differs by processor and what goes must not.
 *
 * Thread: any; pure functions. It does not look at weights, or read a clock. */
#include "eviction/eviction.h"

#include <math.h>

#include "idle.h"

enum { TERMS = 16 };

#define LN2 0.69314718055994530942
#define HALVINGS_MAX 2200.0 /* the largest double times the smallest weight is 0 long before */

/* 2^-x for x >= 0: exact halvings, then the series of e^-y for y < ln 2, in a fixed order. */
static double halved(double x)
{
    if (x > HALVINGS_MAX)
        return 0;
    double whole = floor(x), y = (x - whole) * LN2, sum = 0;
    for (int n = TERMS; n > 0; n--)
        sum = (1 + sum) * (-y / n);
    return ldexp(1 + sum, -(int)whole);
}

static double score_rank(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    const struct fr_expire_score *score = config;
    double sum = score->show_weight * (double)facts->show + score->click_weight * facts->click;
    if (score->half_life_ms <= 0)
        return sum;
    return sum * halved((double)fr_idle_time(facts->seen_ms, watermark_ms) / (double)score->half_life_ms);
}

struct fr_expiry_policy fr_expire_score_policy(const struct fr_expire_score *config)
{
    return (struct fr_expiry_policy){
        .name = "score", .reason = FR_ABSENT_SCORE, .rank = score_rank, .threshold = config->min, .config = config};
}
