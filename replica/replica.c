/* The replica's rules (docs/formats/deltas.md, "Replica rules"): what a record does, and when an
 * epoch becomes served.
 *
 * A partition delivers pieces and commits in ascending epochs. Pieces wait in staging until
 * every followed partition has committed their epoch. Then the epoch is checked and applied as a
 * whole, and the chain (timeline, epoch, digest) advances. A break of the chain stops the
 * replica, which continues to serve what it has: a missing piece or epoch (a gap), another
 * digest for the same epoch or another predecessor (two writers), or a newer timeline (a
 * rewind). Damaged records are refused one by one, and the hole that they leave becomes a gap.
 *
 * Invariants: what is served is the state of exactly one epoch; staging holds at most
 * staging_max bytes in addition to those of the oldest epoch; nothing of a record is used before
 * its crc matches.
 *
 * Owner: one thread. Kafka, files and clocks are read elsewhere. */
#include "load_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define STAGING_DEFAULT (UINT64_C(1) << 30)
enum { STAGING_OLDEST_FACTOR = 4 };

int freshet_replica_new(const struct freshet_replica_options *options, struct freshet_replica **out)
{
    void *memory = NULL;
    if (posix_memalign(&memory, _Alignof(struct freshet_replica), sizeof(struct freshet_replica)) != 0)
        return FRESHET_E_NO_MEMORY;
    struct freshet_replica *replica = memset(memory, 0, sizeof(*replica));
    replica->memory.budget = &replica->budget;
    fr_views_init(&replica->views, &replica->memory);
    replica->follow_all = options->partitions == NULL;
    bool fits = !options->model || (options->model[0] && strlen(options->model) < sizeof(replica->model_name));
    for (size_t i = 0; options->partitions && i < options->n_partitions && fits; i++) {
        fits = options->partitions[i] < FR_DELTA_PARTITIONS_MAX;
        if (fits) {
            replica->follow[options->partitions[i]] = true;
            if (options->partitions[i] > replica->follow_highest)
                replica->follow_highest = options->partitions[i];
        }
    }
    int status = fits ? freshet_reader_new(replica, &replica->own) : FRESHET_E_INVALID;
    if (status == FRESHET_OK && options->snapshots) {
        const size_t size = strlen(options->snapshots) + 1;
        replica->snapshots = malloc(size);
        if (replica->snapshots)
            memcpy(replica->snapshots, options->snapshots, size);
        else
            status = FRESHET_E_NO_MEMORY;
    }
    if (status != FRESHET_OK) {
        freshet_reader_free(replica->own);
        free(replica);
        return status;
    }
    replica->follow[0] = true; /* it has the model and the dense parameters */
    if (options->model)
        memcpy(replica->model_name, options->model, strlen(options->model) + 1);
    replica->staging_max = options->staging_max ? options->staging_max : STAGING_DEFAULT;
    *out = replica;
    return FRESHET_OK;
}

void freshet_replica_free(struct freshet_replica *replica)
{
    if (!replica)
        return;
    freshet_reader_free(replica->own);
    fr_waiting_free(&replica->waiting);
    fr_views_release(&replica->views);
    free(replica->last_committed);
    free(replica->next_offsets);
    free(replica->snapshots);
    fr_replica_memory_release(&replica->memory);
    free(replica);
}

void freshet_replica_limit_memory(struct freshet_replica *replica, uint64_t bytes)
{
    atomic_store_explicit(&replica->budget.max, bytes, memory_order_relaxed);
}

/* ---- the outcomes of a record ---- */

static void copy_text(char *out, size_t room, const char *text)
{
    size_t size = strnlen(text, room - 1);
    memmove(out, text, size); /* `text` may be the stored problem itself */
    out[size] = '\0';
}

static int refuse(struct freshet_replica *replica, struct freshet_event *event, int status, const char *problem)
{
    replica->info.refused += 1;
    event->refused = 1;
    copy_text(event->problem, sizeof(event->problem), problem);
    return status;
}

/* Drops what waits, because it cannot continue what is served. */
static void drop_waiting(struct freshet_replica *replica)
{
    fr_waiting_clear(&replica->waiting);
    memset(replica->begun, 0, sizeof(replica->begun));
    if (replica->np > 0)
        memset(replica->last_committed, 0, replica->np * sizeof(*replica->last_committed));
}

static int stop(struct freshet_replica *replica, struct freshet_event *event, int status, const char *problem)
{
    copy_text(replica->stop_problem, sizeof(replica->stop_problem), problem);
    replica->stopped = status;
    drop_waiting(replica);
    return refuse(replica, event, status, problem);
}

static int drop_stale(struct freshet_event *event)
{
    event->stale = 1;
    return FRESHET_OK;
}

/* ---- the rules, in the order in which they apply ---- */

/* The model and the number of partitions are learned from the first record and then fixed. */
static int check_source(struct freshet_replica *replica, const struct fr_delta_record *record,
                        struct freshet_event *event)
{
    char problem[256];
    if (replica->model_name[0] == '\0')
        /* at most 127 bytes; the rest is zero */
        memcpy(replica->model_name, record->model.bytes, record->model.size);
    if (strlen(replica->model_name) != record->model.size ||
        memcmp(replica->model_name, record->model.bytes, record->model.size) != 0) {
        snprintf(problem, sizeof(problem), "record of model %.*s in the deltas of model %.100s",
                 record->model.size > 100 ? 100 : (int)record->model.size, record->model.bytes, replica->model_name);
        return stop(replica, event, FRESHET_E_MISMATCH, problem);
    }
    if (replica->np == 0) {
        if (replica->follow_highest >= record->np) {
            snprintf(problem, sizeof(problem), "partition %u is to be followed, but there are %u partitions",
                     replica->follow_highest, record->np);
            return stop(replica, event, FRESHET_E_INVALID, problem);
        }
        replica->last_committed = fr_alloc(record->np, sizeof(*replica->last_committed));
        replica->np = record->np;
        for (uint32_t p = 0; p < record->np; p++) {
            replica->follow[p] |= replica->follow_all;
            replica->n_followed += replica->follow[p];
        }
    }
    if (record->np != replica->np && record->timeline >= replica->timeline) {
        snprintf(problem, sizeof(problem), "record of %u partitions in deltas of %u", record->np, replica->np);
        return stop(replica, event, FRESHET_E_MISMATCH, problem);
    }
    return FRESHET_OK;
}

static void begin_timeline(struct freshet_replica *replica, uint64_t timeline)
{
    replica->timeline = timeline;
    replica->epoch = replica->digest = 0;
    atomic_store_explicit(&replica->newest_epoch, 0, memory_order_relaxed);
    memset(replica->digests, 0, sizeof(replica->digests));
    drop_waiting(replica);
}

/* Returns whether the record is the first piece of an epoch that holds a whole state. */
static bool begins_all(const struct fr_delta_record *record)
{
    return record->from == 1 && record->piece == 0;
}

/* A newer timeline means that history was rewound. If it was rewound to nothing, or its whole state
 * comes with an epoch merged from the first, the replica begins again and serves the old state
 * until that epoch is complete. Otherwise only the snapshot that the rewind names ends the stop. */
static int rewind_history(struct freshet_replica *replica, const struct fr_delta_record *record,
                          struct freshet_event *event)
{
    char problem[256];
    bool to_nothing = record->kind == FR_DELTA_REWIND && record->rewind.to == 0 && record->rewind.snap.size == 0 &&
                      record->epoch == 1;
    if (to_nothing || begins_all(record)) {
        begin_timeline(replica, record->timeline);
        replica->reset_pending = fr_views_newest(&replica->views) != NULL;
        return FRESHET_OK;
    }
    if (record->kind == FR_DELTA_REWIND)
        snprintf(problem, sizeof(problem), "timeline %" PRIu64 " rewinds to epoch %" PRIu64 "; load snapshot %.*s",
                 record->timeline, record->rewind.to,
                 record->rewind.snap.size > 150 ? 150 : (int)record->rewind.snap.size, record->rewind.snap.bytes);
    else
        snprintf(problem, sizeof(problem), "timeline %" PRIu64 " began; load its newest snapshot", record->timeline);
    return stop(replica, event, FRESHET_E_REWIND, problem);
}

static int two_writers(struct freshet_replica *replica, struct freshet_event *event, uint64_t epoch, const char *what)
{
    char problem[256];
    snprintf(problem, sizeof(problem), "two writers: epoch %" PRIu64 " %s", epoch, what);
    return stop(replica, event, FRESHET_E_MISMATCH, problem);
}

static int gap(struct freshet_replica *replica, struct freshet_event *event, const struct fr_delta_record *record,
               const char *what)
{
    char problem[256];
    snprintf(problem, sizeof(problem),
             "gap: %s at epoch %" PRIu64 " partition %u; the replica stands at epoch %" PRIu64, what, record->epoch,
             record->partition, replica->epoch);
    return stop(replica, event, FRESHET_E_GAP, problem);
}

static bool applied_digest(const struct freshet_replica *replica, uint64_t epoch, uint64_t *digest)
{
    const uint64_t at = epoch % FR_DIGESTS_KEPT;
    if (epoch == 0 || replica->digests[at].epoch != epoch)
        return false;
    *digest = replica->digests[at].digest;
    return true;
}

/* Checks that nothing is missing between this record and what its partition delivered before. */
static int check_chain(struct freshet_replica *replica, const struct fr_delta_record *record,
                       struct freshet_event *event)
{
    uint64_t digest;
    /* A new replica begins with piece 0 of an epoch from 1. A replica that a gap stopped continues
     * after such a piece, whether its epoch was applied or not. Records before it have lost their
     * beginning. */
    if (begins_all(record))
        replica->begun[record->partition] = true;
    if (record->epoch <= replica->epoch) {
        if (applied_digest(replica, record->epoch, &digest) && digest != record->digest)
            return two_writers(replica, event, record->epoch, "was applied with another digest");
        return drop_stale(event);
    }
    if ((replica->epoch == 0 || replica->stopped) && !replica->begun[record->partition])
        return drop_stale(event);
    uint64_t reached = replica->last_committed[record->partition];
    if (reached < replica->epoch)
        reached = replica->epoch;
    if (record->from > reached + 1) /* epochs are below 2^64 - 1: from <= e, and reached < e */
        return gap(replica, event, record, "epochs are missing");
    return FRESHET_OK;
}

static bool staging_full(const struct freshet_replica *replica, const struct fr_delta_record *record, size_t size,
                         bool *hopeless)
{
    uint64_t after = replica->waiting.bytes + size;
    bool oldest = replica->waiting.n == 0 || record->epoch <= fr_waiting_at(&replica->waiting, 0)->epoch;
    *hopeless = oldest && after / STAGING_OLDEST_FACTOR > replica->staging_max;
    return after > replica->staging_max && !oldest;
}

/* A record as it arrived. */
struct incoming {
    struct fr_delta_record record;
    const void *bytes;
    size_t size;
    struct fr_waiting_epoch *entry; /* the record's epoch, once the record waits there */
};

static int stage_record(struct freshet_replica *replica, struct incoming *incoming, struct freshet_event *event)
{
    const struct fr_delta_record *record = &incoming->record;
    struct fr_waiting_epoch *other, *entry = fr_waiting_find(&replica->waiting, record->epoch, record->from, &other);
    if (other && other->digest != record->digest)
        return two_writers(replica, event, record->epoch, "arrives with two digests");
    if (other && other->fp != record->fp)
        return two_writers(replica, event, record->epoch, "arrives with two model fingerprints");
    bool hopeless;
    if (staging_full(replica, record, incoming->size, &hopeless))
        return FRESHET_AGAIN;
    if (hopeless || record->piece >= FR_PIECES_MAX)
        return stop(replica, event, FRESHET_E_INVALID, "an epoch is larger than the staging limit");
    if (!entry)
        entry = fr_waiting_add(&replica->waiting, record);
    incoming->entry = entry;
    struct fr_waiting_partition *partition = &entry->partitions[record->partition];
    if (partition->committed && record->kind != FR_DELTA_COMMIT && record->piece >= partition->n_pieces)
        return two_writers(replica, event, record->epoch, "has pieces behind its commit");
    if (record->kind == FR_DELTA_COMMIT
            ? partition->committed || fr_waiting_has(partition, record->piece)
            : !fr_waiting_put(&replica->waiting, entry, record, incoming->bytes, incoming->size)) {
        event->duplicate = 1;
        replica->info.duplicates += 1;
    }
    return FRESHET_OK;
}

static int commit_partition(struct freshet_replica *replica, const struct fr_delta_record *record,
                            struct fr_waiting_epoch *entry, struct freshet_event *event)
{
    struct fr_waiting_partition *partition = &entry->partitions[record->partition];
    bool complete =
        /* each number below n was stored once, so none is missing */
        partition->n_pieces == record->commit.n_pieces;
    for (uint32_t i = 0; complete && i < record->commit.n_pieces; i++)
        complete = fr_waiting_has(partition, i);
    if (!complete)
        return gap(replica, event, record, "pieces are missing at the commit");
    if (partition->n_rows != record->commit.n_rows || partition->n_drops != record->commit.n_drops)
        return gap(replica, event, record, "rows do not add up at the commit");
    if (entry->n_committed > 0 && entry->previous != record->commit.previous)
        return two_writers(replica, event, record->epoch, "has two predecessors");
    partition->committed = true;
    entry->n_committed += 1;
    entry->previous = record->commit.previous;
    entry->wm_ms = record->commit.wm_ms;
    entry->t_ms = record->commit.t_ms;
    entry->samples = record->commit.samples;
    if (replica->last_committed[record->partition] < record->epoch)
        replica->last_committed[record->partition] = record->epoch;
    return FRESHET_OK;
}

/* Returns the waiting epoch that continues the chain and is complete in every followed partition,
 * or NULL. */
static struct fr_waiting_epoch *next_complete(const struct freshet_replica *replica)
{
    size_t n = replica->waiting.n < FR_APPLY_SCAN_MAX ? replica->waiting.n : FR_APPLY_SCAN_MAX;
    for (size_t i = 0; i < n; i++) {
        struct fr_waiting_epoch *entry = fr_waiting_at(&replica->waiting, i);
        if (entry->n_committed == replica->n_followed && entry->from <= replica->epoch + 1 &&
            entry->epoch > replica->epoch)
            return entry;
    }
    return NULL;
}

/* The info of an epoch that is about to be served. */
static struct freshet_replica_info info_of(const struct freshet_replica *replica, const struct fr_waiting_epoch *entry)
{
    struct freshet_replica_info info = replica->info;
    info.timeline = replica->timeline;
    info.epoch = entry->epoch;
    info.digest = entry->digest;
    info.fp = entry->fp;
    info.watermark_ms = entry->wm_ms;
    info.samples = entry->samples;
    info.np = replica->np;
    info.epochs_applied += 1;
    info.commit_wall_ms = entry->t_ms;
    return info;
}

static void advance_chain(struct freshet_replica *replica, const struct freshet_replica_info *info)
{
    replica->epoch = info->epoch;
    replica->digest = info->digest;
    replica->digests[info->epoch % FR_DIGESTS_KEPT].epoch = info->epoch;
    replica->digests[info->epoch % FR_DIGESTS_KEPT].digest = info->digest;
    replica->info = *info;
    fr_waiting_drop(&replica->waiting, info->epoch);
}

static int apply_complete(struct freshet_replica *replica, struct freshet_event *event)
{
    struct fr_waiting_epoch *entry;
    while ((entry = next_complete(replica)) != NULL) {
        uint64_t expected;
        bool known = true;
        if (entry->from == 1)
            expected = 0;
        else if (entry->from == replica->epoch + 1)
            expected = replica->digest;
        else
            /* a merged epoch that begins within what is applied */
            known = applied_digest(replica, entry->from - 1, &expected);
        if (known && expected != entry->previous)
            return two_writers(replica, event, entry->epoch, "does not continue what was applied before it");
        struct fr_err err = {0};
        const struct freshet_replica_info info = info_of(replica, entry);
        int status = fr_replica_apply(replica, entry, &info, &err);
        if (status == FRESHET_E_NO_MEMORY)
            return refuse(replica, event, status, err.text);
        if (status != FRESHET_OK)
            return stop(replica, event, status, err.text);
        advance_chain(replica, &info);
        replica->stopped = FRESHET_OK;
        event->applied += 1;
    }
    return FRESHET_OK;
}

static int feed_record(struct freshet_replica *replica, struct incoming *incoming, struct freshet_event *event)
{
    const struct fr_delta_record *record = &incoming->record;
    int status = check_source(replica, record, event);
    if (status != FRESHET_OK)
        return status;
    if (record->partition >= replica->np || !replica->follow[record->partition] || record->timeline < replica->timeline)
        return drop_stale(event);
    if (record->timeline > replica->newest_timeline)
        replica->newest_timeline = record->timeline;
    if (record->timeline > replica->timeline) {
        if (replica->timeline == 0 && record->kind != FR_DELTA_REWIND)
            begin_timeline(replica, record->timeline);
        else
            status = rewind_history(replica, record, event);
    }
    if (record->epoch > atomic_load_explicit(&replica->newest_epoch, memory_order_relaxed))
        atomic_store_explicit(&replica->newest_epoch, record->epoch, memory_order_relaxed);
    if (status == FRESHET_OK)
        status = check_chain(replica, record, event);
    if (status != FRESHET_OK || event->stale)
        return status;
    status = stage_record(replica, incoming, event);
    if (status != FRESHET_OK || record->kind != FR_DELTA_COMMIT)
        return status;
    if (event->duplicate) /* the epoch may be complete and wait for memory */
        return apply_complete(replica, event);
    status = commit_partition(replica, record, incoming->entry, event);
    return status == FRESHET_OK ? apply_complete(replica, event) : status;
}

struct feeding {
    struct freshet_replica *replica;
    struct incoming *incoming;
    struct freshet_event *event;
    int status;
};

static void run_feed(void *self)
{
    struct feeding *feeding = self;
    feeding->status = feed_record(feeding->replica, feeding->incoming, feeding->event);
}

/* Memory is refused either before anything of the record is used, or after the whole record waits.
 * In both cases feeding the same record again continues. */
static int feed_whole(struct freshet_replica *replica, struct incoming *incoming, struct freshet_event *event)
{
    struct feeding feeding = {.replica = replica, .incoming = incoming, .event = event};
    if (fr_replica_memory_run(&replica->memory, run_feed, &feeding))
        return feeding.status;
    return refuse(replica, event, FRESHET_E_NO_MEMORY, "memory to hold the record was refused");
}

/* ---- after a stop ---- */

/* Returns whether something that comes later can end the stop. A writer with another digest, or
 * another model, stops a replica for good. */
static bool may_end_stop(const struct freshet_replica *replica)
{
    return replica->stopped == FRESHET_E_GAP || replica->stopped == FRESHET_E_REWIND ||
           replica->stopped == FRESHET_E_INVALID;
}

/* Returns whether the record is the first of an epoch that holds a whole state, or follows such an
 * epoch in its partition, and is not of a timeline that was rewound since. */
static bool can_end_stop(const struct freshet_replica *replica, const struct fr_delta_record *record)
{
    bool known = record->timeline == replica->timeline;
    bool newer = record->timeline > replica->timeline || (known && record->epoch > replica->epoch);
    if (record->partition >= replica->np || record->timeline < replica->newest_timeline)
        return false;
    return begins_all(record) ? known || newer : newer && replica->begun[record->partition];
}

static int feed_stopped(struct freshet_replica *replica, struct incoming *incoming, struct freshet_event *event)
{
    const struct fr_delta_record *record = &incoming->record;
    const int stopped = replica->stopped;
    if (!may_end_stop(replica))
        return refuse(replica, event, stopped, replica->stop_problem);
    if (can_end_stop(replica, record))
        return feed_whole(replica, incoming, event);
    /* ^one search per epoch and partition is enough; a rewind names a snapshot */
    if ((record->kind == FR_DELTA_COMMIT || record->kind == FR_DELTA_REWIND) && fr_replica_reload(replica, record)) {
        event->reloaded = 1;
        return drop_stale(event);
    }
    replica->stopped = stopped;
    return refuse(replica, event, stopped, replica->stop_problem);
}

/* Returns whether an epoch has passed in a partition that lost its beginning. A snapshot may then
 * help. */
static bool lacks_beginning(const struct freshet_replica *replica, const struct fr_delta_record *record,
                            const struct freshet_event *event)
{
    return event->stale && !replica->stopped && replica->epoch == 0 && record->kind == FR_DELTA_COMMIT &&
           record->partition < replica->np && replica->follow[record->partition] &&
           record->timeline == replica->timeline;
}

static int feed_running(struct freshet_replica *replica, struct incoming *incoming, struct freshet_event *event)
{
    int status = feed_whole(replica, incoming, event);
    if (!may_end_stop(replica)) {
        if (lacks_beginning(replica, &incoming->record, event) && fr_replica_reload(replica, &incoming->record))
            event->reloaded = 1;
        return status;
    }
    if (!fr_replica_reload(replica, &incoming->record)) {
        replica->stopped = status;
        return status;
    }
    replica->info.refused -= 1;
    *event = (struct freshet_event){.record_epoch = event->record_epoch, .reloaded = 1};
    return drop_stale(event);
}

int freshet_replica_feed(struct freshet_replica *replica, uint32_t partition, const void *bytes, size_t size,
                         struct freshet_event *out)
{
    struct freshet_event event = {0};
    struct incoming incoming = {.bytes = bytes, .size = size};
    struct fr_err err = {0};
    int status;
    replica->info.records += 1;
    enum fr_status read = fr_delta_read(bytes, size, &incoming.record, &err);
    fr_views_settle(&replica->views);
    if (read == FR_OK)
        event.record_epoch = incoming.record.epoch;
    if (replica->stopped != FRESHET_OK && read != FR_OK)
        status = refuse(replica, &event, replica->stopped, replica->stop_problem);
    else if (read == FR_E_UNSUPPORTED)
        status = stop(replica, &event, FRESHET_E_MISMATCH, err.text);
    else if (read != FR_OK)
        status = refuse(replica, &event, FRESHET_E_INVALID, err.text);
    else if (incoming.record.partition != partition)
        status = refuse(replica, &event, FRESHET_E_INVALID, "the record is of another partition than it came from");
    else if (replica->stopped != FRESHET_OK)
        status = feed_stopped(replica, &incoming, &event);
    else
        status = feed_running(replica, &incoming, &event);
    event.timeline = replica->info.timeline;
    event.epoch = replica->info.epoch;
    if (out)
        *out = event;
    return status;
}
