/* Life and steps of ingest: pending work, the next record, the batch timer; and the calls of other
 * threads. Files are read one after the other, partitions of topics when all files are at their
 * ends (fr_stream_may_be_read).
 *
 * A step does not poll while a record is unfinished or no batch is at hand. Nothing else is needed
 * for back-pressure: the source's own bounded queue fills, and fetching stops. Live, records come
 * from any partition, and batches close by size or time. In lockstep, `lockstep.records` records of
 * each partition, one partition after the other, make a batch; while the model is young, the next
 * record comes from the partition that has delivered the fewest. No clock decides there. A bounded
 * run ends with one batch without samples, whether or not the last record's batch was full, so that
 * a restart just before the end gives the same batches.
 *
 * Owner: ingest thread; `shared` is exchanged with other threads, under its mutex. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "files.h"
#include "kafka.h"

/* ---- life ---- */

/* Partitions are looked for as often as the client refreshes its metadata, at least every 30 s. */
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

static enum fr_status open_sources(struct fr_ingest *ingest, const struct fr_ingest_options *options,
                                   struct fr_err *err)
{
    const struct fr_conf *conf = ingest->conf;
    struct fr_source source = {0};
    enum fr_status status = FR_OK;
    if (options->source) {
        source = *options->source;
        source.close = NULL; /* borrowed */
    } else if (conf->ingest.n_topics) {
        status = fr_ingest_kafka_source(conf, ingest->lockstep, &source, err);
    }
    ingest->topics = (struct fr_feed){
        .source = source,
        .decoder = fr_decoder_new(conf),
        .first = ingest->n_files,
        .check = fr_streams_check_partitions,
        .ask_end = fr_ends_ask_partition,
        .apply_end = fr_ends_apply_partition,
    };
    ingest->file_conf = *conf;
    ingest->file_conf.ingest.format = FR_FORMAT_JSON;
    if (status == FR_OK && ingest->n_files)
        fr_files_open(&ingest->file_conf, &ingest->shared.known, &ingest->files);
    ingest->files.proof = &ingest->proofs[0];
    ingest->topics.proof = &ingest->proofs[1];
    ingest->polled = ingest->n_files ? &ingest->files : &ingest->topics;
    if (status != FR_OK)
        return status;
    if (options->dead_sink) {
        ingest->sink = *options->dead_sink;
        return FR_OK;
    }
    status = conf->ingest.brokers ? fr_ingest_kafka_dead(conf, ingest->clock, &ingest->sink, err)
                                  : fr_ingest_file_dead(conf, ingest->clock, &ingest->sink, err);
    ingest->own_sink = status == FR_OK;
    return status;
}

/* Divides lanes and streams into shares. */
static void divide(struct fr_ingest *ingest, const struct fr_ingest_options *options)
{
    ingest->n_lanes = fr_conf_domains(ingest->conf);
    ingest->lane_first = options->lane_first;
    ingest->lane_end = options->lane_end ? options->lane_end : ingest->n_lanes;
    FR_CHECK(ingest->lane_first < ingest->lane_end && ingest->lane_end <= ingest->n_lanes);
    ingest->n_shares = ingest->lockstep ? ingest->n_lanes : 1;
    ingest->share_first = ingest->lockstep ? ingest->lane_first : 0;
    ingest->share_end = ingest->lockstep ? ingest->lane_end : 1;
    ingest->shares = fr_alloc(ingest->n_shares, sizeof(*ingest->shares));
    ingest->piece.share = ingest->share_first;
    if (ingest->n_lanes > 1 && !ingest->lockstep)
        ingest->spare = fr_batch_new(ingest->conf);
}

/* The restored positions give each share's history. Files have their present names by then. */
static void read_history(struct fr_ingest *ingest)
{
    for (uint32_t i = 0; i < ingest->shared.known.count; i++) {
        const struct fr_partition_position *p = &ingest->shared.known.partitions[i];
        uint32_t lane = fr_stream_lane(p->topic, p->partition, ingest->n_lanes);
        struct fr_share *share = &ingest->shares[ingest->n_shares > 1 ? lane : 0];
        share->past_files |= !fr_is_file_topic(p->topic) && p->delivered > 0;
        share->history_samples += p->samples - p->skipped;
    }
}

enum fr_status fr_ingest_new(const struct fr_ingest_options *options, struct fr_ingest **out, struct fr_err *err)
{
    const struct fr_conf *conf = options->conf;
    FR_CHECK(conf->ingest.batch_size >= 1 && (!options->source == !options->dead_sink));
    FR_CHECK(options->source || conf->ingest.n_topics || conf->ingest.n_files);
    struct fr_ingest *ingest = fr_alloc(1, sizeof(*ingest));
    ingest->conf = conf;
    ingest->clock = options->clock;
    ingest->full = options->full;
    ingest->empty = options->empty;
    ingest->lockstep = conf->ingest.lockstep;
    ingest->until_end = options->until_end || conf->ingest.lockstep;
    ingest->until_ms = options->until_ms;
    ingest->end_offsets = options->end_offsets ? fr_strdup(options->end_offsets) : NULL;
    ingest->fix_end = options->fix_end;
    ingest->fix_end_self = options->fix_end_self;
    ingest->skips = options->skips;
    ingest->n_skips = options->n_skips;
    FR_CHECK(!ingest->lockstep || conf->ingest.lockstep_records >= 1);
    FR_CHECK(conf->ingest.batch_warmup_first == 0 || conf->ingest.batch_warmup_growth >= 1);
    pthread_mutex_init(&ingest->shared.mutex, NULL);
    if (options->positions)
        fr_positions_copy(options->positions, &ingest->shared.known);
    ingest->shared.n_resolved = ingest->shared.known.count;
    ingest->n_files = conf->ingest.n_files;
    divide(ingest, options);
    ingest->present = fr_alloc(conf->n_slots + 1, sizeof(*ingest->present));
    ingest->shared.status.present = fr_alloc(conf->n_slots + 1, sizeof(*ingest->present));
    ingest->discover_ms = discover_ms(conf);
    ingest->started_ms = fr_wall_ms(ingest->clock);
    fr_clocks_init(&ingest->clocks, ingest->clock, conf->ingest.lockstep ? 0 : options->epoch_wall_ms);
    enum fr_status status = open_sources(ingest, options, err);
    read_history(ingest);
    if (status != FR_OK) {
        fr_ingest_free(ingest);
        return status;
    }
    *out = ingest;
    return FR_OK;
}

static void pass_commit(struct fr_ingest *ingest, bool last)
{
    struct fr_positions positions = {0};
    uint64_t now_ns = fr_mono_ns(ingest->clock);
    if (!last && ingest->committed_ns && now_ns - ingest->committed_ns < (uint64_t)FR_COMMIT_MS * 1000000)
        return;
    pthread_mutex_lock(&ingest->shared.mutex);
    if (ingest->shared.commit_due) {
        positions = ingest->shared.commit;
        ingest->shared.commit = (struct fr_positions){0};
        ingest->shared.commit_due = false;
    }
    pthread_mutex_unlock(&ingest->shared.mutex);
    if (positions.count)
        ingest->committed_ns = now_ns;
    if (positions.count && ingest->topics.source.self)
        ingest->topics.source.commit(ingest->topics.source.self, &positions);
    fr_positions_release(&positions);
}

void fr_ingest_free(struct fr_ingest *ingest)
{
    if (!ingest)
        return;
    if (ingest->started)
        pass_commit(ingest, true);
    if (ingest->pending != FR_PENDING_NONE)
        fr_stream_release(&ingest->streams[ingest->pending_stream], &ingest->event);
    for (uint32_t i = 0; i < ingest->n_streams; i++)
        if (ingest->streams[i].state == FR_STREAM_CUT)
            fr_stream_release(&ingest->streams[i], &ingest->streams[i].remainder);
    if (ingest->own_sink)
        ingest->sink.close(ingest->sink.self);
    struct fr_feed *feeds[] = {&ingest->files, &ingest->topics};
    for (size_t i = 0; i < FR_ARRAY_LEN(feeds); i++) {
        if (feeds[i]->source.self && feeds[i]->source.close)
            feeds[i]->source.close(feeds[i]->source.self);
        fr_decoder_free(feeds[i]->decoder);
    }
    fr_batch_free(ingest->spare);
    fr_batch_free(ingest->open);
    fr_batch_free(ingest->ready);
    fr_positions_release(&ingest->shared.known);
    fr_positions_release(&ingest->shared.commit);
    free(ingest->shared.status.partitions);
    free(ingest->shared.status.present);
    free(ingest->present);
    pthread_mutex_destroy(&ingest->shared.mutex);
    for (uint32_t i = 0; i < ingest->n_shares; i++)
        fr_record_image_drop(ingest->shares[i].image);
    free(ingest->shares);
    fr_held_release(&ingest->held);
    free(ingest->lettered);
    free(ingest->streams);
    free(ingest->touched);
    free(ingest->end_offsets);
    free(ingest);
}

/* ---- calls of other threads ---- */

void fr_ingest_adopt(struct fr_ingest *ingest, struct fr_positions *positions)
{
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    if (positions->cluster_id[0] == 0)
        memcpy(positions->cluster_id, shared->known.cluster_id, sizeof(positions->cluster_id));
    /* the configuration may write the path of a file in another way than before */
    for (uint32_t i = 0; i < positions->count; i++)
        memcpy(positions->partitions[i].topic, shared->known.partitions[i].topic, FR_TOPIC_MAX);
    uint32_t had = shared->skips_due ? 0 : positions->count;
    for (uint32_t i = positions->count; i < shared->n_resolved; i++) {
        const struct fr_partition_position *p = &shared->known.partitions[i];
        uint32_t index = fr_positions_index(positions, p->topic, p->partition);
        FR_CHECK(index == i);
        positions->partitions[index].offset = p->offset;
    }
    for (uint32_t i = had; i < positions->count; i++) {
        const struct fr_partition_position *p = &shared->known.partitions[i];
        positions->partitions[i].n_skips = p->n_skips;
        memcpy(positions->partitions[i].skips, p->skips, sizeof(p->skips));
    }
    shared->skips_due = false;
    pthread_mutex_unlock(&shared->mutex);
}

uint64_t fr_ingest_dead_acknowledged(struct fr_ingest *ingest)
{
    return ingest->sink.acknowledged(ingest->sink.self);
}

void fr_ingest_commit(struct fr_ingest *ingest, const struct fr_positions *positions)
{
    pthread_mutex_lock(&ingest->shared.mutex);
    fr_positions_copy(positions, &ingest->shared.commit);
    ingest->shared.commit_due = true;
    pthread_mutex_unlock(&ingest->shared.mutex);
}

/* ---- start ---- */

enum fr_status fr_ingest_start(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_err local;
    err = err ? err : &local;
    FR_CHECK(!ingest->started);
    enum fr_status status = fr_streams_discover(ingest, err);
    uint32_t there = 0, stopped = ingest->n_stopped;
    if (status == FR_OK)
        status = fr_streams_check(ingest, false, &there, err);
    /* Live, the streams that can be read begin. */
    if (status == FR_OK && there < stopped && (ingest->until_end || there == 0))
        status = fr_err_set(err, FR_E_UNAVAILABLE, "%s", ingest->problem);
    if (status == FR_OK)
        status = fr_streams_skip(ingest, err);
    if (status == FR_OK && ingest->until_end)
        status = fr_ends_fix(ingest, err);
    for (uint32_t i = 0; status == FR_OK && i < ingest->n_streams; i++)
        if (ingest->streams[i].state == FR_STREAM_READY && fr_stream_may_be_read(ingest, &ingest->streams[i]))
            status = fr_stream_begin(ingest, &ingest->streams[i], err);
    if (status == FR_OK) {
        if (ingest->topics.source.self)
            ingest->topics.source.checked(ingest->topics.source.self, true);
        ingest->sink.prepare(ingest->sink.self);
        bool withholds = ingest->lockstep && ingest->conf->ingest.malformed_max < 1.0f && ingest->sink.withhold != NULL;
        if (withholds)
            ingest->sink.withhold(ingest->sink.self, true);
        ingest->withholding = withholds;
        ingest->discover_ns = fr_mono_ns(ingest->clock);
        ingest->identify_ns = ingest->discover_ns + (uint64_t)FR_IDENTIFY_MS * 1000000u;
        ingest->started = true;
    }
    fr_ingest_publish_status(ingest);
    return status;
}

/* ---- a step ---- */

/* Whether the stream of the round may go into the piece. A piece has records of one file only. */
static bool fits_piece(const struct fr_ingest *ingest)
{
    const struct fr_piece *piece = &ingest->piece;
    return ingest->open->n_positions == piece->first_position ||
           ingest->streams[ingest->touched[piece->first_position]].order == ingest->streams[piece->stream].order;
}

/* Whether the stream is one of the piece's share and not read to its end. */
static bool has_more(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    return fr_stream_share(ingest, stream) == &ingest->shares[ingest->piece.share] && stream->state != FR_STREAM_DONE;
}

/* Chooses the stream whose record comes next while the model is young; false: the piece is full of
 * records. Rounds are not used then, because a round may hold far more samples than a batch, and a
 * partition must not run ahead of the others by that many batches. The partition that has delivered
 * the fewest records comes next, so the choice is a function of the ledgers; a partition that was
 * cut within a record continues with that record. A piece has at most as many records as a round;
 * files, too, are read one record at a time. */
static bool choose_young_stream(struct fr_ingest *ingest)
{
    const struct fr_share *share = &ingest->shares[ingest->piece.share];
    struct fr_stream *found = NULL;
    uint32_t n = 0; /* streams of the run, whether read to their ends or not */
    for (uint32_t i = share->order; i < ingest->n_streams; i++) {
        struct fr_stream *stream = &ingest->streams[i];
        if (stream->order != share->order || fr_stream_share(ingest, stream) != share)
            continue;
        n += stream->end != 0;
        if (has_more(ingest, stream) && (!found || stream->delivered < found->delivered))
            found = stream;
    }
    if (!found || ingest->piece.taken >= (uint64_t)ingest->conf->ingest.lockstep_records * n)
        return false;
    ingest->piece.stream = (uint32_t)(found - ingest->streams);
    return fits_piece(ingest);
}

/* Chooses the partition or file whose record comes next; false: the round is over. */
static bool choose_round_stream(struct fr_ingest *ingest)
{
    struct fr_piece *piece = &ingest->piece;
    if (fr_assembly_young(ingest))
        return choose_young_stream(ingest);
    for (; piece->stream < ingest->n_streams; piece->stream++, piece->taken = 0)
        if (has_more(ingest, &ingest->streams[piece->stream]) && piece->taken < ingest->conf->ingest.lockstep_records)
            return fits_piece(ingest);
    return false;
}

/* Chooses the stream of the next record, piece by piece; false: the batch is complete. */
static bool choose_stream(struct fr_ingest *ingest)
{
    while (ingest->piece.share < ingest->share_end && (ingest->piece.full || !choose_round_stream(ingest)))
        fr_assembly_begin_piece(ingest, ingest->piece.share + 1);
    return ingest->piece.share < ingest->share_end;
}

static enum fr_status handle_event(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event,
                                   struct fr_err *err)
{
    bool finished = event->kind == FR_SOURCE_FINISHED;
    if (stream->state == FR_STREAM_VERIFIES || (finished && stream->item))
        return fr_files_verify(ingest, stream, event, err);
    if (stream->interrupted && fr_stream_is_read(stream) &&
        (event->kind == FR_SOURCE_RECORD || event->kind == FR_SOURCE_END || finished))
        fr_stream_recover(ingest, stream);
    enum fr_status status = fr_assembly_event(ingest, stream, event);
    /* The next file, or the topics, begin at once. */
    return status == FR_OK && finished ? fr_streams_revive(ingest, err) : status;
}

static void nap(int wait_ms)
{
    nanosleep(&(struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L}, NULL);
}

/* FR_OK: a batch was closed or an event handled; FR_AGAIN: nothing came within wait_ms. */
static enum fr_status next_event(struct fr_ingest *ingest, int wait_ms, struct fr_err *err)
{
    bool over = ingest->lockstep ? !choose_stream(ingest) : ingest->until_end && ingest->n_done == ingest->n_streams;
    if (over && ingest->n_done == ingest->n_streams) {
        enum fr_status status = fr_ingest_malformed_end(ingest, err);
        if (status != FR_OK)
            return status;
    } else if (over && fr_ingest_malformed_holds(ingest)) {
        fr_assembly_begin_piece(ingest, ingest->share_first); /* one more round */
        return FR_OK;
    }
    if (over) {
        if (ingest->open->n_positions)
            fr_assembly_close(ingest);
        else
            fr_assembly_end(ingest);
        return FR_OK;
    }
    if (ingest->until_end && ingest->held.n_ends && ingest->n_done + ingest->held.n_ends == ingest->n_streams) {
        fr_held_replay(ingest); /* nothing else will come */
        return fr_ingest_malformed_end(ingest, err);
    }
    struct fr_source_event event;
    const struct fr_feed *feed = ingest->polled;
    int64_t from = -1;
    if (ingest->lockstep) {
        struct fr_stream *stream = &ingest->streams[ingest->piece.stream];
        feed = stream->feed;
        from = stream->partition;
        if (stream->state == FR_STREAM_CUT) {
            event = stream->remainder;
            return handle_event(ingest, stream, &event, err);
        }
        if (!fr_stream_is_read(stream)) { /* no other stream may come first */
            nap(wait_ms);
            return FR_AGAIN;
        }
    }
    enum fr_status status = feed->source.poll(feed->source.self, from, wait_ms, &event, err);
    ingest->drained = status == FR_AGAIN;
    if (status != FR_OK)
        return status;
    if (event.kind == FR_SOURCE_GAP || event.kind == FR_SOURCE_CONNECTED) {
        status = fr_streams_identify(ingest, event.kind == FR_SOURCE_CONNECTED, err);
        return status == FR_OK ? FR_AGAIN : status; /* the check took a while: the step ends */
    }
    FR_CHECK(feed->first + event.partition < ingest->n_streams);
    return handle_event(ingest, &ingest->streams[feed->first + event.partition], &event, err);
}

/* Lets the next held event take effect. */
static enum fr_status replay_held(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_source_event event;
    struct fr_stream *stream;
    return fr_held_next(ingest, &stream, &event) ? handle_event(ingest, stream, &event, err) : FR_OK;
}

static int poll_wait_ms(struct fr_ingest *ingest, uint64_t deadline_ns, uint64_t now_ns)
{
    uint64_t wait_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    if (!ingest->lockstep && ingest->open->n_positions) {
        uint64_t due_ns = ingest->open_since_ns + (uint64_t)ingest->conf->ingest.batch_wait_ms * 1000000u;
        uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    }
    return (int)((wait_ns + 999999u) / 1000000u);
}

/* Reading is paused: the batches of what was read before are still pushed. */
static void wait_paused(struct fr_ingest *ingest, int wait_ms)
{
    if (fr_assembly_due(ingest, fr_mono_ns(ingest->clock)) && !ingest->ready)
        fr_assembly_close(ingest);
    if (fr_assembly_ready(ingest, 0) < 0)
        return; /* a ring was closed; the next step returns FR_EOF */
    nap(wait_ms);
}

static enum fr_status read_records(struct fr_ingest *ingest, int wait_ms, struct fr_err *err)
{
    uint64_t deadline_ns = fr_mono_ns(ingest->clock) + (uint64_t)wait_ms * 1000000u;
    enum fr_status status = FR_OK;
    bool worked = false;
    ingest->drained = false;
    for (uint32_t i = 0; i < FR_STEP_RECORDS_MAX; i++) {
        status = fr_ingest_malformed_pauses(ingest, err);
        if (status == FR_AGAIN)
            wait_paused(ingest, wait_ms);
        if (status != FR_OK)
            return status;
        status = fr_assembly_ready(ingest, i == 0 ? wait_ms : 0);
        if (status != FR_OK)
            break;
        if (ingest->finished)
            return FR_EOF;
        if (ingest->n_moved && !ingest->lockstep)
            fr_assembly_moved(ingest);
        uint64_t now = fr_mono_ns(ingest->clock);
        if (fr_assembly_due(ingest, now)) {
            fr_assembly_close(ingest);
            worked = true;
            continue;
        }
        fr_ingest_malformed_decide_due(ingest, now);
        if (ingest->pending != FR_PENDING_NONE)
            status = fr_assembly_pending(ingest);
        else if (fr_held_replays(ingest))
            status = replay_held(ingest, err);
        else if ((status = fr_streams_identify_some(ingest, now, err)) == FR_OK)
            status = next_event(ingest, poll_wait_ms(ingest, deadline_ns, now), err);
        if (status == FR_AGAIN && ingest->open && fr_assembly_due(ingest, fr_mono_ns(ingest->clock)))
            continue;
        if (status != FR_OK)
            break;
        worked = true;
    }
    return status == FR_AGAIN && worked ? FR_OK : status;
}

static enum fr_status discover_partitions(struct fr_ingest *ingest, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(ingest->clock);
    char problem[256];
    if (ingest->until_end || fr_files_left(ingest) ||
        now - ingest->discover_ns < (uint64_t)ingest->discover_ms * 1000000u ||
        !fr_is_connected(ingest, problem, sizeof(problem)))
        return FR_OK;
    ingest->discover_ns = now;
    enum fr_status status = fr_streams_discover(ingest, err);
    return status == FR_E_UNAVAILABLE || status == FR_E_DENIED ? FR_OK : status;
}

enum fr_status fr_ingest_step(struct fr_ingest *ingest, int wait_ms, struct fr_err *err)
{
    struct fr_err local;
    err = err ? err : &local;
    if (!ingest->started)
        return fr_err_set(err, FR_E_STATE, "ingest: a step before the start");
    pass_commit(ingest, false);
    fr_clocks_read(ingest);
    if (ingest->polled->source.rest)
        ingest->polled->source.rest(ingest->polled->source.self);
    enum fr_status status = discover_partitions(ingest, err);
    if (status == FR_OK)
        status = fr_streams_identify_some(ingest, fr_mono_ns(ingest->clock), err);
    if (status == FR_OK && ingest->n_stopped)
        status = fr_streams_revive(ingest, err);
    if (status == FR_OK)
        status = read_records(ingest, wait_ms, err);
    fr_ingest_publish_status(ingest);
    return status;
}

void fr_ingest_serve(struct fr_ingest *ingest)
{
    FR_CHECK(ingest->started);
    pass_commit(ingest, false);
    ingest->drained = false; /* there was no poll */
    fr_ingest_publish_status(ingest);
}
