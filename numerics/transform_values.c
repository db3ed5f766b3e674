/* See numerics/transform_values.h. Times are computed in f64 before anything rounds them, because a
 * Unix time in f32 has lost its seconds.
 *
 * Determinism: functions of the slot and the number. */
#include "numerics/transform_values.h"

#include <math.h>

#include "base/math.h"

/* smaller numbers are seconds, others ms (docs/formats/samples.md, "Corner cases") */
static const double SECONDS_MAX = 1e11;
/* the year 5138; larger numbers would be micro- or nanoseconds */
static const double MILLISECONDS_MAX = 1e14;
static const double DAY_S = 86400.0, WEEK_S = 604800.0;
/* 1970-01-01 was a Thursday, so its week began three days earlier */
static const double MONDAY_S = 3.0 * 86400.0;

static bool is_time(const struct fr_conf_slot *slot)
{
    return slot->n_steps > 0 && fr_transform_place(slot->steps[0].kind) == FR_TRANSFORMED_AS_TIME;
}

static bool phase(enum fr_transform kind, double time, float out[static 2])
{
    if (!(fabs(time) < MILLISECONDS_MAX))
        return false;
    double seconds = fabs(time) < SECONDS_MAX ? time : time / 1000.0;
    double turns = 0.0;
    switch (kind) {
    case FR_TRANSFORM_TIME_OF_DAY:
        turns = seconds / DAY_S;
        break;
    case FR_TRANSFORM_TIME_OF_WEEK:
        turns = (seconds + MONDAY_S) / WEEK_S;
        break;
    case FR_TRANSFORM_NONE: /* not a time */
    case FR_TRANSFORM_LOG1P:
    case FR_TRANSFORM_CLIP:
    case FR_TRANSFORM_STANDARDIZE:
    case FR_TRANSFORM_BUCKETIZE:
        return false;
    }
    fr_sincos_turns(turns - floor(turns), &out[0], &out[1]);
    return true;
}

bool fr_transform_apply(const struct fr_conf_slot *slot, double x, float out[static 2])
{
    if (is_time(slot))
        return phase(slot->steps[0].kind, x, out);
    float v = (float)x; /* rounded first, then transformed */
    for (uint32_t i = 0; i < slot->n_steps; i++) {
        const struct fr_conf_step *step = &slot->steps[i];
        switch (step->kind) {
        case FR_TRANSFORM_CLIP:
            v = v < step->low ? step->low : v > step->high ? step->high : v;
            break;
        case FR_TRANSFORM_LOG1P:
            if (!(v > -1.0f))
                return false;
            v = fr_log1pf(v);
            break;
        case FR_TRANSFORM_NONE: /* not a step between numbers */
        case FR_TRANSFORM_TIME_OF_DAY:
        case FR_TRANSFORM_TIME_OF_WEEK:
        case FR_TRANSFORM_STANDARDIZE:
        case FR_TRANSFORM_BUCKETIZE:
            return false;
        }
    }
    out[0] = v;
    return isfinite(v);
}

void fr_transform_missing(const struct fr_conf_slot *slot, float out[static 2])
{
    out[0] = out[1] = 0.0f;
    if (!slot->has_default && is_time(slot))
        return;
    if (!slot->has_default && fr_transform_learns(slot->transform))
        out[0] = NAN;
    else if (!fr_transform_apply(slot, (double)slot->default_value, out))
        out[0] = NAN;
    if (!is_time(slot))
        out[1] = out[0];
}
