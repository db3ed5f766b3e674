/* memory_limit: what the whole process may keep in memory. The memory outside the store's rows and
 * indexes is measured, not modelled: the resident memory less what the store holds. The store gets
 * the rest of the limit, and clean rows are evicted when the store holds more than that.
 *
 * The memory outside the store rises and falls (a fold's windows, a large batch). The store's share
 * follows a rise at once and a fall slowly; otherwise each of them would evict rows and bring them
 * back.
 *
 * When no clean row is left to evict, a fold is requested, and reading waits for it. When all cut
 * epochs are folded already, the excess belongs to the open epoch, which is then cut. In lockstep,
 * where cuts are a function of the log, the limit is exceeded until the next cut. If indexes alone
 * still exceed the limit, the share is raised with a warning. Training therefore waits at times,
 * but never ends. Owner thread only. */
#include "trainer_private.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/resident.h"
#include "durable/durable.h"

enum {
    MEASURE_EVERY_NS = 100000000,
    /* if the memory outside the store has fallen, each measurement follows by 1/FALL_SHARE of
     * the fall */
    FALL_SHARE = 256,
    /* 1/MARGIN_SHARE of the limit stays free for what is taken between two measurements */
    MARGIN_SHARE = 32,
    /* the store gets at least 1/STORE_SHARE_MIN of the limit */
    STORE_SHARE_MIN = 8,
    STORE_BYTES_MIN = 64 << 10,
};

/* Returns the memory that is not yet taken when training begins and soon will be: a fold's windows
 * and sorted files, two stages, and the newest epochs, which stay in memory. */
static uint64_t expected(const struct fr_conf *conf)
{
    uint64_t windows = conf->unfolded_max < FR_FOLD_WINDOWS ? conf->unfolded_max : FR_FOLD_WINDOWS;
    return windows + 3 * conf->epoch_bytes_max;
}

void fr_trainer_measure_memory(struct fr_trainer *trainer, uint64_t now_ns)
{
    struct fr_memory *memory = &trainer->memory;
    bool first = !memory->measured_ns;
    if (!first && now_ns - memory->measured_ns < MEASURE_EVERY_NS)
        return;
    memory->measured_ns = now_ns ? now_ns : 1;
    uint64_t limit = trainer->conf->memory_limit, kept = fr_store_limited_bytes(trainer->store);
    uint64_t resident = fr_resident_bytes(), own = kept + fr_store_idle_bytes();
    uint64_t others = resident > own ? resident - own : 0;
    if (first)
        others += expected(trainer->conf);
    memory->others = others >= memory->others ? others : memory->others - (memory->others - others) / FALL_SHARE;
    uint64_t taken = memory->others + limit / MARGIN_SHARE;
    uint64_t share = limit > taken ? limit - taken : 0;
    if (share < limit / STORE_SHARE_MIN)
        share = limit / STORE_SHARE_MIN;
    if (trainer->conf->row_memory && trainer->conf->row_memory < share)
        share = trainer->conf->row_memory;
    if (share < STORE_BYTES_MIN)
        share = STORE_BYTES_MIN;
    memory->share = share < memory->floor ? memory->floor : share;
    fr_store_limit(trainer->store, memory->share);
}

/* Everything is folded and nothing is dirty, but indexes and dead entries still exceed the limit.
 * The limit cannot be reached, so the store gets what it needs, with a warning. */
static void raise_floor(struct fr_trainer *trainer, uint64_t over)
{
    struct fr_memory *memory = &trainer->memory;
    memory->floor = memory->share + over + over / 4;
    fr_store_limit(trainer->store, memory->floor);
    fr_log(FR_LOG_WARN, "trainer", "memory_limit_not_reached",
           "needed=%" PRIu64 " share=%" PRIu64 " others=%" PRIu64 " note=\"raise memory_limit or row_memory\"",
           memory->floor, memory->share, memory->others);
    memory->share = memory->floor;
}

bool fr_trainer_waits_for_memory(struct fr_trainer *trainer, char *text, size_t size)
{
    fr_trainer_measure_memory(trainer, fr_mono_ns(trainer->options.clock));
    /* The folded epoch is read before rows are evicted: a fold that ends in between has not made
     * rows clean for this eviction. */
    uint64_t folded = fr_store_folded(trainer->store);
    uint64_t over = fr_store_relieve(trainer->store);
    trainer->memory.cut_wanted = false;
    if (over == 0)
        return false;
    if (trainer->epoch > folded) {
        if (trainer->options.fold_wanted)
            atomic_store(trainer->options.fold_wanted, true);
        snprintf(text, size,
                 "memory_limit: %" PRIu64 " bytes of changed rows wait to be folded into the cold store; "
                 "if this lasts, raise memory_limit or look at the disk",
                 over);
        return true;
    }
    if (fr_store_dirty_bytes(trainer->store) > 0)
        trainer->memory.cut_wanted = !trainer->conf->ingest.lockstep;
    else
        raise_floor(trainer, over);
    return false;
}
