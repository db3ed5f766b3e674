/* Score expiry: the score of a row is show_weight * shows + click_weight * clicks, halved per
 * half_life of event time since the row was last trained. A row goes when its score is below `min`.
 *
 * Idea: the show/click score with decay of feature stores for CTR models (accessors of parameter
 * servers since Li et al., OSDI 2014, keep such counters with each row). There, counters decay
 * daily, which writes every row every day. Here, shows and clicks are stored without decay, and the
 * score is computed from the time since the last training, so nothing has to be written.
 *
 * The power of two is computed from an exact scaling and a series of our own: libm's exp2 differs
 * between processors, and which rows go must not.
 *
 * Thread: any; pure functions. Weights are not read, nor is a clock. */
#include "eviction/eviction.h"

#include <math.h>

#include "idle.h"

enum { TERMS = 16 };

#define LN2 0.69314718055994530942
/* long before that, the largest double times the smallest weight is 0 */
#define HALVINGS_MAX 2200.0

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
    double sum = (double)score->show_weight * (double)facts->show + (double)score->click_weight * facts->click;
    if (score->half_life_ms <= 0)
        return sum;
    return sum * halved((double)fr_idle_time(facts->seen_ms, watermark_ms) / (double)score->half_life_ms);
}

struct fr_expiry_policy fr_expire_score_policy(const struct fr_expire_score *config)
{
    return (struct fr_expiry_policy){.name = "score",
                                     .reason = FR_ABSENT_SCORE,
                                     .rank = config->min > 0 ? score_rank : NULL,
                                     .threshold = (double)config->min,
                                     .config = config};
}
