/* Exact-count gate: a key gets a row once it has occurred `count` times in trained samples. Until
 * then the store keeps its count in a pending entry, and forgets the entry after `idle_ms` of event
 * time without an occurrence.
 *
 * Idea: feature entry filters of online recommenders (Persia, XDL, Monolith 2022 section 2.2). The
 * store's pending_max and the idle time bound the memory of exact counts; a sketch needs less
 * memory and errs upwards.
 *
 * Thread: any; pure functions. Counts are kept in entries; the time is the watermark, never a
 * clock. */
#include "eviction/eviction.h"

#include "idle.h"

static bool count_admits(const void *config, uint32_t count)
{
    const struct fr_gate_count *gate = config;
    return count >= gate->count;
}

static bool count_forgets(const void *config, int64_t seen_ms, int64_t watermark_ms)
{
    const struct fr_gate_count *gate = config;
    return gate->idle_ms > 0 && fr_idle_longer(seen_ms, watermark_ms, gate->idle_ms);
}

struct fr_gate_policy fr_gate_count_policy(const struct fr_gate_count *config)
{
    return (struct fr_gate_policy){
        .name = "count", .memory = FR_GATE_ENTRIES, .admits = count_admits, .forgets = count_forgets, .config = config};
}
