/* The ingest thread's turn: pending work, the next record, the batch timer; and what other threads
 * ask of it. Files are read one after the other, partitions of topics when all files are at their
 * ends (fr_lane_its_turn).
 *
 * A turn never polls while a record is unfinished or no batch is at hand, which is the whole of
 * back-pressure: the source's own bounded queue fills and fetching stops. Live: any partition,
 * batches close by size or time. Lockstep: `lockstep.records` records of each partition in turn
 * make a batch; while the model is young, one record after the other of the partition that has
 * given the fewest; no clock is asked. A bounded run ends with one batch without samples, whether
 * or not the last record's batch was full, so that a restart just before the end gives the same
 * batches. Owner: ingest thread; `shared` is the meeting point with others, under its mutex. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"
#include "files.h"
#include "kafka.h"

/* ---- life ---- */

/* As often as the client refreshes what it knows of topics, when that is asked for below 30 s. */
static uint32_t discover_ms(const struct fr_conf *conf)
{
    long wanted = FR_DISCOVER_MS;
    for (size_t i = 0; i < conf->ingest.n_kafka; i++)
        if (strcmp(conf->ingest.kafka[i].name, "topic.metadata.refresh.interval.ms") == 0)
            wanted = strtol(conf->ingest.kafka[i].value, NULL, 10);
    if (wanted <= 0 || wanted > FR_DISCOVER_MS) /* -1: the client does not refresh by itself */
        return FR_DISCOVER_MS;
    return wanted < FR_DISCOVER_MS_MIN ? FR_DISCOVER_MS_MIN : (uint32_t)wanted;
}

static enum fr_status open_sources(struct fr_ingest *self, const struct fr_ingest_options *options, struct fr_err *err)
{
    const struct fr_conf *conf = self->conf;
    struct fr_source source = {0};
    enum fr_status status = FR_OK;
    if (options->source) {
        source = *options->source;
        source.close = NULL; /* borrowed */
    } else if (conf->ingest.n_topics) {
        status = fr_ingest_kafka_source(conf, self->lockstep, &source, err);
    }
    if (status == FR_OK && self->n_files) {
        struct fr_source behind = source;
        status = fr_files_open(conf, &behind, &source, err);
        if (status != FR_OK && behind.close)
            behind.close(behind.self);
    }
    if (status != FR_OK)
        return status;
    self->source = source;
    if (options->dead_sink) {
        self->sink = *options->dead_sink;
        return FR_OK;
    }
    status = fr_ingest_kafka_dead(conf, self->clock, &self->sink, err);
    self->own_sink = status == FR_OK;
    return status;
}

enum fr_status fr_ingest_new(const struct fr_ingest_options *options, struct fr_ingest **out, struct fr_err *err)
{
    const struct fr_conf *conf = options->conf;
    FR_CHECK(conf->ingest.batch_size >= 1 && (!options->source == !options->dead_sink));
    FR_CHECK(options->source || conf->ingest.n_topics || conf->ingest.n_files);
    struct fr_ingest *self = fr_alloc(1, sizeof(*self));
    self->conf = conf;
    self->clock = options->clock;
    self->full = options->full;
    self->empty = options->empty;
    self->lockstep = conf->ingest.lockstep;
    self->until_end = options->until_end || conf->ingest.lockstep;
    self->until_ms = options->until_ms;
    self->end_offsets = options->end_offsets ? fr_strdup(options->end_offsets) : NULL;
    self->fix_end = options->fix_end;
    self->fix_end_self = options->fix_end_self;
    FR_CHECK(!self->lockstep || conf->ingest.lockstep_records >= 1);
    FR_CHECK(conf->ingest.batch_warmup_first == 0 || conf->ingest.batch_warmup_growth >= 1);
    pthread_mutex_init(&self->shared.mutex, NULL);
    if (options->positions)
        fr_positions_copy(options->positions, &self->shared.known);
    self->shared.n_resolved = self->shared.known.count;
    self->n_files = self->files_left = conf->ingest.n_files;
    for (uint32_t i = 0; i < self->shared.known.count; i++) {
        const struct fr_partition_position *p = &self->shared.known.partitions[i];
        self->past_files |= !fr_is_file_topic(p->topic) && p->delivered > 0;
        self->history_samples += p->samples;
    }
    self->topic_decoder = fr_decoder_new(conf);
    if (self->n_files) {
        self->file_conf = *conf;
        self->file_conf.ingest.format = FR_FORMAT_JSON;
        self->file_decoder = fr_decoder_new(&self->file_conf);
    }
    self->discover_ms = discover_ms(conf);
    self->started_ms = fr_wall_ms(self->clock);
    enum fr_status status = open_sources(self, options, err);
    if (status != FR_OK) {
        fr_ingest_free(self);
        return status;
    }
    *out = self;
    return FR_OK;
}

static void pass_commit(struct fr_ingest *self)
{
    struct fr_positions positions = {0};
    pthread_mutex_lock(&self->shared.mutex);
    if (self->shared.commit_due) {
        positions = self->shared.commit;
        self->shared.commit = (struct fr_positions){0};
        self->shared.commit_due = false;
    }
    pthread_mutex_unlock(&self->shared.mutex);
    if (positions.count)
        self->source.commit(self->source.self, &positions);
    fr_positions_release(&positions);
}

void fr_ingest_free(struct fr_ingest *self)
{
    if (!self)
        return;
    if (self->source.self && self->started)
        pass_commit(self);
    if (self->pending != FR_PENDING_NONE)
        self->source.release(self->source.self, &self->event);
    for (uint32_t i = 0; i < self->n_lanes; i++)
        if (self->lanes[i].held_valid)
            self->source.release(self->source.self, &self->lanes[i].held);
    if (self->own_sink)
        self->sink.close(self->sink.self);
    if (self->source.self && self->source.close)
        self->source.close(self->source.self);
    fr_batch_free(self->open);
    fr_batch_free(self->ready);
    fr_decoder_free(self->topic_decoder);
    fr_decoder_free(self->file_decoder);
    fr_positions_release(&self->shared.known);
    fr_positions_release(&self->shared.commit);
    free(self->shared.status.partitions);
    pthread_mutex_destroy(&self->shared.mutex);
    fr_record_image_drop(self->image);
    free(self->lettered);
    free(self->lanes);
    free(self->touched);
    free(self->end_offsets);
    free(self);
}

/* ---- what other threads see ---- */

static int64_t lag_ms(const struct fr_ingest *self, bool at_end)
{
    if (at_end)
        return 0;
    int64_t since = self->last_timestamp_ms > 0 ? self->last_timestamp_ms : self->started_ms;
    int64_t lag = fr_wall_ms(self->clock) - since;
    return lag > 0 ? lag : 0;
}

static void publish(struct fr_ingest *self)
{
    struct fr_dead_counts dead = {0};
    self->sink.counts(self->sink.self, &dead);
    struct fr_ingest_status status = self->tally;
    status.dead_sent = dead.sent;
    status.dead_failed = dead.failed;
    status.dead_without_value = dead.without_value;
    status.n_partitions = self->n_lanes;
    status.at_end = self->n_lanes > 0;
    for (uint32_t i = 0; i < self->n_lanes; i++)
        status.at_end &= self->lanes[i].at_end;
    status.lag_ms = lag_ms(self, status.at_end);
    status.connected = self->source.connected(self->source.self, status.problem, sizeof(status.problem));
    if (status.connected) {
        status.problem[0] = 0;
        if (self->problem[0])
            memcpy(status.problem, self->problem, sizeof(status.problem));
        else
            (void)self->sink.healthy(self->sink.self, status.problem, sizeof(status.problem));
    }

    if (self->started && status.connected == self->said_down) {
        char quoted[320];
        self->said_down = !status.connected;
        fr_log(self->said_down ? FR_LOG_WARN : FR_LOG_INFO, "ingest", self->said_down ? "disconnected" : "connected",
               "reason=%s", fr_log_quote(quoted, sizeof(quoted), status.problem));
    }

    struct fr_ingest_shared *shared = &self->shared;
    pthread_mutex_lock(&shared->mutex);
    struct fr_ingest_partition *partitions = shared->status.partitions;
    if (shared->status_capacity < self->n_lanes) {
        partitions = fr_realloc(partitions, self->n_lanes, sizeof(*partitions));
        for (uint32_t i = shared->status_capacity; i < self->n_lanes; i++) {
            const struct fr_partition_position *p = &shared->known.partitions[self->lanes[i].slot];
            memcpy(partitions[i].topic, p->topic, FR_TOPIC_MAX);
            partitions[i].partition = p->partition;
        }
        shared->status_capacity = self->n_lanes;
    }
    for (uint32_t i = 0; i < self->n_lanes; i++) {
        const struct fr_lane *lane = &self->lanes[i];
        int64_t high = lane->reading ? self->source.high(self->source.self, i) : -1;
        high = high > lane->high ? high : lane->high;
        partitions[i].next_offset = lane->seen;
        partitions[i].high = high > lane->seen ? high : lane->seen;
    }
    status.partitions = partitions;
    shared->status = status;
    pthread_mutex_unlock(&shared->mutex);
}

void fr_ingest_get_status(struct fr_ingest *self, struct fr_ingest_status *out)
{
    struct fr_ingest_shared *shared = &self->shared;
    pthread_mutex_lock(&shared->mutex);
    *out = shared->status;
    out->partitions = fr_alloc(out->n_partitions ? out->n_partitions : 1, sizeof(*out->partitions));
    if (out->n_partitions)
        memcpy(out->partitions, shared->status.partitions, out->n_partitions * sizeof(*out->partitions));
    pthread_mutex_unlock(&shared->mutex);
}

void fr_ingest_status_release(struct fr_ingest_status *status)
{
    free(status->partitions);
    *status = (struct fr_ingest_status){0};
}

void fr_ingest_adopt(struct fr_ingest *self, struct fr_positions *positions)
{
    struct fr_ingest_shared *shared = &self->shared;
    pthread_mutex_lock(&shared->mutex);
    if (positions->cluster_id[0] == 0)
        memcpy(positions->cluster_id, shared->known.cluster_id, sizeof(positions->cluster_id));
    for (uint32_t i = positions->count; i < shared->n_resolved; i++) {
        const struct fr_partition_position *p = &shared->known.partitions[i];
        uint32_t slot = fr_positions_slot(positions, p->topic, p->partition);
        FR_CHECK(slot == i);
        positions->partitions[slot].offset = p->offset;
    }
    pthread_mutex_unlock(&shared->mutex);
}

uint64_t fr_ingest_dead_acknowledged(struct fr_ingest *self)
{
    return self->sink.acknowledged(self->sink.self);
}

void fr_ingest_commit(struct fr_ingest *self, const struct fr_positions *positions)
{
    pthread_mutex_lock(&self->shared.mutex);
    fr_positions_copy(positions, &self->shared.commit);
    self->shared.commit_due = true;
    pthread_mutex_unlock(&self->shared.mutex);
}

/* ---- start ---- */

enum fr_status fr_ingest_start(struct fr_ingest *self, struct fr_err *err)
{
    struct fr_err local;
    err = err ? err : &local;
    FR_CHECK(!self->started);
    enum fr_status status = fr_lanes_discover(self, err);
    for (uint32_t i = 0; status == FR_OK && i < self->n_lanes; i++)
        if (!self->lanes[i].reading && !self->lanes[i].done)
            status = fr_lane_check(self, i, err);
    if (status == FR_OK && self->until_end)
        status = fr_ends_fix(self, err);
    for (uint32_t i = 0; status == FR_OK && i < self->n_lanes; i++)
        if (!self->lanes[i].reading && !self->lanes[i].done && fr_lane_its_turn(self, i))
            status = fr_lane_begin(self, i, err);
    if (status == FR_OK) {
        self->source.checked(self->source.self);
        self->sink.prepare(self->sink.self);
        self->discover_ns = fr_mono_ns(self->clock);
        self->started = true;
    }
    publish(self);
    return status;
}

/* ---- a turn ---- */

/* While the model is young rounds are not kept: one may hold far more samples than a batch, and a
 * partition must not run ahead of the others by as many batches. The partition that has given the
 * fewest records gives the next one, so that the choice is a function of the ledgers, and one that
 * was cut inside a record goes on with it. A batch takes at most as many records as a round, of
 * files one at a time, too. */
static bool young_lane(struct fr_ingest *self)
{
    bool any = self->open->n_positions > 0;
    uint32_t from = self->files_left ? 0 : self->n_files, to = self->files_left ? self->n_files : self->n_lanes;
    uint32_t found = to, n = 0; /* n: partitions of the run, read to their ends or not */
    for (uint32_t i = from; i < to; i++) {
        const struct fr_lane *lane = &self->lanes[i];
        bool before = found < to && (i < self->n_files || self->lanes[found].delivered <= lane->delivered);
        n += lane->end > 0;
        if (!lane->done && !before)
            found = i;
    }
    n = from < self->n_files ? 1 : n;
    if (found == to || self->round_taken >= (uint64_t)self->conf->ingest.lockstep_records * n)
        return false;
    /* A file has its batches for itself. */
    if (any && (found < self->n_files || self->touched[0] < self->n_files) && self->touched[0] != found)
        return false;
    self->round_lane = found;
    return true;
}

/* The partition or file whose record comes next; false: the round is over. A file has its rounds
 * for itself. */
static bool round_lane(struct fr_ingest *self)
{
    if (fr_assembly_young(self))
        return young_lane(self);
    while (self->round_lane < self->n_lanes) {
        if (!self->lanes[self->round_lane].done && self->round_taken < self->conf->ingest.lockstep_records)
            return true;
        if (self->round_lane < self->n_files && self->open->n_positions)
            return false;
        self->round_lane++;
        self->round_taken = 0;
    }
    return false;
}

static enum fr_status take_event(struct fr_ingest *self, struct fr_source_event *event, struct fr_err *err)
{
    uint32_t index = event->partition;
    FR_CHECK(index < self->n_lanes);
    struct fr_lane *lane = &self->lanes[index];
    bool end_of_file = index < self->n_files && event->kind == FR_SOURCE_END;
    if (lane->unverified || (end_of_file && lane->item))
        return fr_lane_verify_file(self, event, err);
    if (lane->troubled && lane->reading && (event->kind == FR_SOURCE_RECORD || event->kind == FR_SOURCE_END))
        fr_lane_recovered(self, lane);
    enum fr_status status = fr_assembly_event(self, event);
    if (status != FR_OK || !end_of_file)
        return status;
    fr_lane_finish(self, index);
    return fr_lanes_revive(self, err); /* what comes next is begun at once */
}

/* FR_OK: a batch was closed or an event handled; FR_AGAIN: nothing came within wait_ms. */
static enum fr_status next_event(struct fr_ingest *self, int wait_ms, struct fr_err *err)
{
    int64_t from = -1;
    bool over = self->lockstep ? !round_lane(self) : self->until_end && self->n_done == self->n_lanes;
    if (over) {
        if (self->open->n_positions)
            fr_assembly_close(self);
        else
            fr_assembly_end(self);
        return FR_OK;
    }
    struct fr_source_event event;
    if (self->lockstep) {
        struct fr_lane *lane = &self->lanes[self->round_lane];
        from = self->round_lane;
        if (lane->held_valid) {
            event = lane->held;
            return take_event(self, &event, err);
        }
        if (!lane->reading) { /* its turn, and it cannot be read now: nothing else may go first */
            nanosleep(&(struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L}, NULL);
            return FR_AGAIN;
        }
    }
    enum fr_status status = self->source.poll(self->source.self, from, wait_ms, &event, err);
    return status == FR_OK ? take_event(self, &event, err) : status;
}

static int poll_wait_ms(const struct fr_ingest *self, uint64_t deadline_ns, uint64_t now_ns)
{
    uint64_t wait_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    if (!self->lockstep && self->open->n_positions) {
        uint64_t due_ns = self->open_since_ns + (uint64_t)self->conf->ingest.batch_wait_ms * 1000000u;
        uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    }
    return (int)((wait_ns + 999999u) / 1000000u);
}

static enum fr_status turn(struct fr_ingest *self, int wait_ms, struct fr_err *err)
{
    uint64_t deadline_ns = fr_mono_ns(self->clock) + (uint64_t)wait_ms * 1000000u;
    enum fr_status status = FR_OK;
    bool worked = false;
    for (uint32_t i = 0; i < FR_STEP_RECORDS_MAX; i++) {
        status = fr_assembly_ready(self, i == 0 ? wait_ms : 0);
        if (status != FR_OK)
            break;
        if (self->finished)
            return FR_EOF;
        if (self->n_moved && !self->lockstep)
            fr_assembly_moved(self);
        uint64_t now = fr_mono_ns(self->clock);
        if (fr_assembly_due(self, now)) {
            fr_assembly_close(self);
            worked = true;
            continue;
        }
        if (self->pending != FR_PENDING_NONE)
            status = fr_assembly_pending(self);
        else
            status = next_event(self, poll_wait_ms(self, deadline_ns, now), err);
        if (status == FR_AGAIN && self->open && fr_assembly_due(self, fr_mono_ns(self->clock)))
            continue;
        if (status != FR_OK)
            break;
        worked = true;
    }
    return status == FR_AGAIN && worked ? FR_OK : status;
}

static enum fr_status look_for_partitions(struct fr_ingest *self, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(self->clock);
    char problem[256];
    if (self->until_end || self->files_left || now - self->discover_ns < (uint64_t)self->discover_ms * 1000000u ||
        !self->source.connected(self->source.self, problem, sizeof(problem)))
        return FR_OK;
    self->discover_ns = now;
    enum fr_status status = fr_lanes_discover(self, err);
    return status == FR_E_UNAVAILABLE || status == FR_E_DENIED ? FR_OK : status;
}

enum fr_status fr_ingest_step(struct fr_ingest *self, int wait_ms, struct fr_err *err)
{
    struct fr_err local;
    err = err ? err : &local;
    if (!self->started)
        return fr_err_set(err, FR_E_STATE, "ingest: a step before the start");
    pass_commit(self);
    enum fr_status status = look_for_partitions(self, err);
    if (status == FR_OK && self->n_stopped)
        status = fr_lanes_revive(self, err);
    if (status == FR_OK)
        status = turn(self, wait_ms, err);
    publish(self);
    return status;
}
