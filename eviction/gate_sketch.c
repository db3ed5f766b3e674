/* Sketch gate: a key gets a row once it has occurred `min` times in trained samples, according to
 * counters that keys share. The memory is fixed, whatever the number of keys. Counts err upwards
 * only, so a frequent key is never kept out, and a rare one may get in early. Counters are halved
 * once per half_life of event time, so a count measures how often the key occurred lately.
 *
 * Idea: count-min sketches with conservative update (Estan, Varghese 2002; Cormode, Muthukrishnan
 * 2005), small saturating counters with periodic halving (TinyLFU: Einziger, Friedman, Manes 2017).
 * The store keeps the counters.
 *
 * Thread: any; pure functions. */
#include "eviction/eviction.h"

static bool sketch_admits(const void *config, uint32_t count)
{
    const struct fr_gate_sketch *gate = config;
    return count >= gate->min;
}

struct fr_gate_policy fr_gate_sketch_policy(const struct fr_gate_sketch *config)
{
    return (struct fr_gate_policy){.name = "sketch",
                                   .memory = FR_GATE_SKETCH,
                                   .admits = sketch_admits,
                                   .sketch_bytes = config->bytes,
                                   .sketch_half_life_ms = config->half_life_ms,
                                   .config = config};
}
