/* See synthetic.h. Random numbers are counter-based (base/random.h): one stream per purpose, keyed
 * by an id for planted weights and by the sample's number for draws. The only state is the drift of
 * each item place.
 *
 * Scales were chosen by experiment (tests/bench/README.md): attainable AUC 0.77 to 0.83 by seed,
 * and a plain online logistic regression reaches 97 % of attainable AUC - 0.5 within 1.5 million
 * samples. Sequences, correlated users and delayed labels are not modelled. */
#include "samples/synthetic.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "samples/zipf.h"

static const double zipf_exponent = 1.05;
static const int64_t start_ms = INT64_C(1767225600000); /* 2026-01-01T00:00:00Z */
static const int64_t hour_ms = 60 * 60 * 1000;

/* The range of an item's life, which is drawn per place and generation. */
static const double life_min_ms = 6.0 * 3600e3;
static const double life_span_ms = 18.0 * 3600e3;

static const double bias = -1.2;
static const double user_scale = 1.15, user_ranks = 100.0; /* see amplitude() */
static const double item_scale = 1.10, item_ranks = 100.0;
static const double site_scale = 0.70, site_ranks = 100.0;
static const double device_scale = 0.60, hour_scale = 0.35, cross_scale = 0.20, price_scale = 0.80;
/* the share of the drift in the variance of an item's weight */
static const double drift_share = 0.2;
static const double price_mean = 3.0, price_item_sd = 0.7, price_sample_sd = 0.3;

enum stream {
    DRAW_USER,
    DRAW_ITEM,
    DRAW_SITE,
    DRAW_DEVICE,
    DRAW_LABEL,
    DRAW_PRICE,
    DRAW_DRIFT,
    WEIGHT_USER,
    WEIGHT_ITEM,
    WEIGHT_SITE,
    WEIGHT_DEVICE,
    WEIGHT_HOUR,
    WEIGHT_CROSS,
    ITEM_LIFE,
    ITEM_PRICE,
};

static const char *const device_names[FR_SYNTHETIC_DEVICES] = {"phone",   "desktop", "tablet",  "tv",
                                                               "console", "watch",   "speaker", "car"};
static const float device_share[FR_SYNTHETIC_DEVICES] = {0.46f, 0.27f, 0.11f, 0.07f, 0.04f, 0.02f, 0.02f, 0.01f};

struct place {
    uint64_t generation;
    int64_t until_ms; /* the time at which the item is replaced */
    int64_t drift_t_ms;
    double drift;  /* standard normal in the long run */
    double weight; /* fixed part, standard normal */
    double price;  /* mean log price */
};

struct fr_tool_synthetic {
    uint64_t seed, index;
    struct fr_tool_zipf users, items, sites;
    struct place *places;
    double device_weight[FR_SYNTHETIC_DEVICES], hour_weight[24], cross_weight[FR_SYNTHETIC_DEVICES][24];
};

/* Weights shrink with rank, because the weight of an id that is seen a few times in a million
 * samples cannot be learned. */
static double amplitude(double scale, double ranks, uint32_t rank)
{
    return scale / (1.0 + (double)rank / ranks);
}

static void bear_item(struct fr_tool_synthetic *s, uint32_t number, int64_t t_ms)
{
    struct place *place = &s->places[number];
    uint64_t id = place->generation * FR_SYNTHETIC_ITEM_PLACES + number;
    double life = life_min_ms + life_span_ms * fr_random_uniform(s->seed, ITEM_LIFE, id, 0);
    place->until_ms = t_ms + (int64_t)life;
    place->weight = fr_random_normal(s->seed, WEIGHT_ITEM, id, 0);
    place->drift = fr_random_normal(s->seed, WEIGHT_ITEM, id, 1);
    place->price = price_mean + price_item_sd * fr_random_normal(s->seed, ITEM_PRICE, id, 0);
    place->drift_t_ms = t_ms;
}

struct fr_tool_synthetic *fr_tool_synthetic_new(uint64_t seed)
{
    struct fr_tool_synthetic *s = fr_alloc(1, sizeof(*s));
    s->seed = seed;
    fr_tool_zipf_init(&s->users, FR_SYNTHETIC_USERS, zipf_exponent);
    fr_tool_zipf_init(&s->items, FR_SYNTHETIC_ITEM_PLACES, zipf_exponent);
    fr_tool_zipf_init(&s->sites, FR_SYNTHETIC_SITES, zipf_exponent);
    s->places = fr_alloc(FR_SYNTHETIC_ITEM_PLACES, sizeof(*s->places));
    for (uint32_t i = 0; i < FR_SYNTHETIC_ITEM_PLACES; i++) {
        bear_item(s, i, start_ms);
        /* The stream begins in the middle of the first items' lives, so that arrivals are steady
         * from the first minute. */
        double gone = fr_random_uniform(seed, ITEM_LIFE, i, 1);
        s->places[i].until_ms -= (int64_t)(gone * (double)(s->places[i].until_ms - start_ms));
    }
    for (uint32_t d = 0; d < FR_SYNTHETIC_DEVICES; d++) {
        s->device_weight[d] = device_scale * fr_random_normal(seed, WEIGHT_DEVICE, d, 0);
        for (uint32_t h = 0; h < 24; h++)
            s->cross_weight[d][h] = cross_scale * fr_random_normal(seed, WEIGHT_CROSS, d, h);
    }
    for (uint32_t h = 0; h < 24; h++)
        s->hour_weight[h] = hour_scale * fr_random_normal(seed, WEIGHT_HOUR, h, 0);
    return s;
}

void fr_tool_synthetic_free(struct fr_tool_synthetic *synthetic)
{
    if (!synthetic)
        return;
    fr_tool_zipf_release(&synthetic->users);
    fr_tool_zipf_release(&synthetic->items);
    fr_tool_zipf_release(&synthetic->sites);
    free(synthetic->places);
    free(synthetic);
}

/* Returns the place as of t. The item is replaced when its life is over, and the drift is advanced
 * by the exact transition of an Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein 1930) over the
 * time since the item was last shown. */
static const struct place *item_at(struct fr_tool_synthetic *s, uint32_t number, int64_t t_ms)
{
    struct place *place = &s->places[number];
    while (place->until_ms <= t_ms) {
        place->generation++;
        bear_item(s, number, place->until_ms);
    }
    double elapsed = (double)(t_ms - place->drift_t_ms);
    double kept = exp2(-elapsed / (double)FR_SYNTHETIC_DRIFT_HALF_LIFE_MS);
    place->drift = kept * place->drift + sqrt(1.0 - kept * kept) * fr_random_normal(s->seed, DRAW_DRIFT, s->index, 0);
    place->drift_t_ms = t_ms;
    return place;
}

static uint32_t draw_device(const struct fr_tool_synthetic *s)
{
    float coin = (float)fr_random_uniform(s->seed, DRAW_DEVICE, s->index, 0);
    uint32_t device = 0;
    while (device + 1 < FR_SYNTHETIC_DEVICES && coin >= device_share[device])
        coin -= device_share[device++];
    return device;
}

void fr_tool_synthetic_next(struct fr_tool_synthetic *s, struct fr_tool_synthetic_sample *out)
{
    uint64_t seed = s->seed, index = s->index;
    int64_t t_ms = start_ms + (int64_t)index * FR_SYNTHETIC_STEP_MS;
    uint32_t user = fr_zipf_rank(&s->users, fr_random_u64(seed, DRAW_USER, index, 0));
    uint32_t number = fr_zipf_rank(&s->items, fr_random_u64(seed, DRAW_ITEM, index, 0));
    uint32_t site = fr_zipf_rank(&s->sites, fr_random_u64(seed, DRAW_SITE, index, 0));
    uint32_t device = draw_device(s);
    uint32_t hour = (uint32_t)(t_ms / hour_ms % 24);
    const struct place *place = item_at(s, number, t_ms);
    double log_price = place->price + price_sample_sd * fr_random_normal(seed, DRAW_PRICE, index, 0);

    double item = sqrt(1.0 - drift_share) * place->weight + sqrt(drift_share) * place->drift;
    double logit = bias + s->device_weight[device] + s->hour_weight[hour] + s->cross_weight[device][hour];
    logit += amplitude(user_scale, user_ranks, user) * fr_random_normal(seed, WEIGHT_USER, user, 0);
    logit += amplitude(item_scale, item_ranks, number) * item;
    logit += amplitude(site_scale, site_ranks, site) * fr_random_normal(seed, WEIGHT_SITE, site, 0);
    logit -= price_scale * (log_price - price_mean);

    *out = (struct fr_tool_synthetic_sample){
        .user_id = user + 1,
        .item_id = place->generation * FR_SYNTHETIC_ITEM_PLACES + number,
        .site_id = site + 1,
        .hour = hour,
        .device = device_names[device],
        .price = (float)exp(log_price),
        .logit = (float)logit,
        .probability = 1.0 / (1.0 + exp(-logit)),
        .t_ms = t_ms,
    };
    out->label = fr_random_uniform(seed, DRAW_LABEL, index, 0) < out->probability ? 1.0f : 0.0f;
    s->index++;
}
