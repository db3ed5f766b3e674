/* The synthetic stream `clicks`: impressions with a planted click probability, so that the best
 * attainable AUC is known.
 *
 * Nearly a million users, 100000 item places whose items are replaced steadily (new ids arrive, old
 * ones are never seen again), 2000 sites, 8 devices, the hour and a price. The true logit is a sum
 * of planted weights and one interaction:
 *
 *   bias + user + item(t) + site + device + hour + price + device x hour,
 *
 * item(t) holding a part that drifts (Ornstein-Uhlenbeck, half-life FR_SYNTHETIC_DRIFT_HALF_LIFE_MS
 * of event time). Ids are Zipf 1.05; planted weights shrink with rank, so most of the signal lies
 * where it can be learned. Event time moves FR_SYNTHETIC_STEP_MS per sample from
 * 2026-01-01T00:00:00Z, far faster than the wall clock at usual rates: hours of drift, arrival and
 * expiry pass within a minute.
 *
 * Determinism: a pure function of the seed and the number of samples drawn. Thread: the caller's.
 * Private to tool. */
#ifndef FR_TOOL_SYNTHETIC_H
#define FR_TOOL_SYNTHETIC_H

#include <stdint.h>

enum {
    FR_SYNTHETIC_USERS = 900000,
    FR_SYNTHETIC_ITEM_PLACES = 100000,
    FR_SYNTHETIC_SITES = 2000,
    FR_SYNTHETIC_DEVICES = 8,
    FR_SYNTHETIC_STEP_MS = 20,
    FR_SYNTHETIC_DRIFT_HALF_LIFE_MS = 120 * 60 * 1000,
};

struct fr_tool_synthetic_sample {
    uint32_t user_id;   /* 1 .. USERS */
    uint64_t item_id;   /* generation * ITEM_PLACES + place: grows with every replacement */
    uint32_t site_id;   /* 1 .. SITES */
    uint32_t hour;      /* of event time, 0 .. 23 */
    const char *device; /* static text */
    float price;
    float label;        /* 0 or 1 */
    float logit;        /* the true logit */
    double probability; /* sigmoid(logit) */
    int64_t t_ms;
};

struct fr_tool_synthetic;

struct fr_tool_synthetic *fr_tool_synthetic_new(uint64_t seed);
void fr_tool_synthetic_free(struct fr_tool_synthetic *synthetic);
void fr_tool_synthetic_next(struct fr_tool_synthetic *synthetic, struct fr_tool_synthetic_sample *out);

#endif
