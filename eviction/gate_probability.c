/* Probability gate: each trained occurrence admits its key with the same probability p. A key with
 * n occurrences then has a row with probability 1 - (1 - p)^n, without any memory of rare keys.
 *
 * Idea: McMahan et al. 2013, "Ad click prediction: a view from the trenches", section 4.1 (Poisson
 * inclusion). The coin is a hash of the key and of the sample's position in the log, so it is the
 * same in every run, in batches of any size and in recovery.
 *
 * Thread: any; pure functions. */
#include "eviction/eviction.h"

#define COINS 0x1p64

static bool probability_admits(const void *config, uint32_t count)
{
    (void)config;
    return count > 0;
}

static bool probability_falls(const void *config, uint64_t coin)
{
    const struct fr_gate_probability *gate = config;
    double below = (double)gate->probability * COINS;
    return below >= COINS || coin < (uint64_t)below;
}

struct fr_gate_policy fr_gate_probability_policy(const struct fr_gate_probability *config)
{
    return (struct fr_gate_policy){.name = "probability",
                                   .memory = FR_GATE_NOTHING,
                                   .admits = probability_admits,
                                   .falls = probability_falls,
                                   .config = config};
}
