/* Feeds a replica from a delta topic, with the partitions in step, and stores what the replica does
 * not: for each epoch, how many records came and what the commits contain. Few epochs are in
 * flight, because no partition is read far ahead (consume.h). Every reason to stop is reported with
 * its remedy. Where the topic is read from, and when it is opened again, is decided by the machine
 * in follower_machine.c. What is missing while the follower waits is determined in standing.c.
 *
 * Thread: one. */
#include "follower_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cursor.h"
#include "base/log.h"
#include "codec/codec.h"
#include "codec/manifest.h"

/* Timelines beyond the limit share the last rank. */
enum { EPOCH_RANK_BITS = 44, TIMELINE_RANKS = 1 << 19 };
/* The pause between two searches for a snapshot while nothing on the topic continues the served
 * epoch. */
enum { SEARCH_MS = 2000 };

/* ---- open ---- */

static int64_t begin_of(void *self, uint32_t partition)
{
    const struct fr_follower *follower = self;
    return follower->state == FR_FOLLOWER_CONTINUES ? freshet_replica_next_offset(follower->replica, partition) : -1;
}

static enum fr_status open_topic(struct fr_follower *follower, struct fr_err *err)
{
    enum fr_status status = fr_consumer_open(&follower->topic, &follower->consumer, err);
    if (status != FR_OK)
        return status;
    size_t n = fr_consumer_count(follower->consumer);
    free(follower->places);
    follower->places = fr_alloc(n, sizeof(*follower->places));
    for (size_t i = 0; i < n; i++)
        follower->places[i].hint = begin_of(follower, (uint32_t)fr_consumer_place(follower->consumer, i).partition);
    if (follower->np > 0)
        fr_consumer_leave(follower->consumer, follower->np);
    fr_follower_note_deleted(follower);
    return FR_OK;
}

/* A folder may hold the snapshots of another model, and a topic without records does not show its
 * model; then the manifest must name the topic. Once a record has shown the model of the topic,
 * which may be a copy under another name, the replica compares models. */
static bool is_of_topic(struct fr_follower *follower, const char *directory, struct fr_err *err)
{
    struct fr_manifest manifest = {0};
    if (follower->named || follower->np > 0)
        return true;
    if (fr_manifest_read(directory, &manifest, NULL, NULL, err) != FR_OK)
        return false;
    bool proven = strcmp(manifest.topic, follower->topic.topic) == 0;
    if (!proven) {
        (void)!fr_err_set(err, FR_E_MISMATCH,
                          "%s is a snapshot of model %s, whose deltas are on topic %s, and no record of %s has shown "
                          "yet that it is of that model; if it is, name the model",
                          directory, manifest.model, manifest.topic, follower->topic.topic);
        fr_follower_change_state(follower, FR_FOLLOWER_SNAPSHOT_UNPROVEN);
    }
    fr_manifest_release(&manifest);
    return proven;
}

/* The topic alone may be enough, so a snapshot that cannot be loaded is not a failure. */
static bool load_snapshot(struct fr_follower *follower)
{
    char *problem = follower->not_loaded, directory[PATH_MAX];
    struct fr_err err = {0};
    if (fr_manifest_find(follower->snapshots, directory, &err) != FR_OK || !is_of_topic(follower, directory, &err)) {
        snprintf(problem, sizeof(follower->not_loaded), "%.511s", err.text);
        return false;
    }
    if (freshet_replica_load(follower->replica, directory, problem, sizeof(follower->not_loaded)) != FRESHET_OK)
        return false;
    fr_follower_change_state(follower, FR_FOLLOWER_SNAPSHOT_LOADED);
    return true;
}

static void begin_with_snapshot(struct fr_follower *follower)
{
    char quoted[1040];
    if (!load_snapshot(follower))
        fr_log(FR_LOG_WARN, "follow", "no_snapshot", "reason=%s note=\"following from the first records there are\"",
               fr_log_quote(quoted, sizeof(quoted), follower->not_loaded));
}

/* Puts partition 0 first, because it has the model and the dense parameters. */
static void choose_partitions(struct fr_follower *follower, const struct fr_consume_options *topic)
{
    size_t n = 0;
    follower->topic = *topic;
    if (topic->partitions) {
        follower->partitions = fr_alloc(topic->n_partitions + 1, sizeof(*follower->partitions));
        follower->partitions[n++] = 0;
        for (size_t i = 0; i < topic->n_partitions; i++)
            if (topic->partitions[i] != 0)
                follower->partitions[n++] = topic->partitions[i];
    }
    follower->topic.partitions = follower->partitions;
    follower->topic.n_partitions = n;
    follower->topic.ahead_max = FR_FOLLOW_AHEAD_MAX;
    follower->topic.begin = begin_of;
    follower->topic.self = follower;
}

/* Copies the caller's texts, which are borrowed during the open only. */
static void copy_texts(struct fr_consume_options *topic)
{
    const char **properties = fr_alloc(topic->n_properties + 1, sizeof(*properties));
    for (size_t i = 0; i < topic->n_properties; i++)
        properties[i] = fr_strdup(topic->properties[i]);
    topic->brokers = fr_strdup(topic->brokers);
    topic->topic = fr_strdup(topic->topic);
    topic->kafka_file = topic->kafka_file ? fr_strdup(topic->kafka_file) : NULL;
    topic->properties = properties;
}

static void free_texts(const struct fr_consume_options *topic)
{
    for (size_t i = 0; i < topic->n_properties; i++)
        free((void *)topic->properties[i]);
    free((void *)topic->properties);
    free((void *)topic->brokers);
    free((void *)topic->topic);
    free((void *)topic->kafka_file);
}

enum fr_status fr_follower_open(const struct fr_follower_options *options, struct fr_follower **out, struct fr_err *err)
{
    struct fr_follower *follower = fr_alloc(1, sizeof(*follower));
    follower->state = FR_FOLLOWER_READS_ALL;
    follower->patient = options->patient;
    follower->named = options->model != NULL;
    follower->snapshots = options->snapshots ? fr_strdup(options->snapshots) : NULL;
    for (size_t p = 0; p < FR_CONSUME_PARTITIONS_MAX; p++)
        follower->expects[p] = -1;
    choose_partitions(follower, &options->topic);
    copy_texts(&follower->topic);
    struct freshet_replica_options replica = {.partitions = follower->partitions,
                                              .n_partitions = follower->topic.n_partitions,
                                              .model = options->model,
                                              .snapshots = options->snapshots};
    enum fr_status status = FR_OK;
    if (freshet_replica_new(&replica, &follower->replica) != FRESHET_OK)
        status = fr_err_set(err, FR_E_INVALID, "the replica refuses these partitions or this name of a model");
    if (status == FR_OK) {
        freshet_replica_limit_memory(follower->replica, options->memory_max);
        if (follower->snapshots)
            begin_with_snapshot(follower);
        status = fr_consumer_check(&follower->topic, err);
    }
    if (status != FR_OK) {
        fr_follower_close(follower);
        return status;
    }
    *out = follower;
    return FR_OK;
}

void fr_follower_close(struct fr_follower *follower)
{
    if (!follower)
        return;
    fr_consumer_close(follower->consumer);
    freshet_replica_free(follower->replica);
    for (size_t i = 0; i < FR_FOLLOW_IN_FLIGHT_MAX; i++)
        fr_buffer_release(&follower->epochs[i].auc);
    free_texts(&follower->topic);
    free(follower->snapshots);
    free(follower->places);
    free(follower->partitions);
    free(follower);
}

enum fr_status fr_follower_refresh(struct fr_follower *follower, int wait_ms, struct fr_err *err)
{
    return follower->consumer ? fr_consumer_refresh(follower->consumer, wait_ms, err) : FR_AGAIN;
}

struct freshet_replica *fr_follower_replica(struct fr_follower *follower)
{
    return follower->replica;
}

bool fr_follower_ended(const struct fr_follower *follower)
{
    return follower->consumer && fr_consumer_ended(follower->consumer);
}

uint64_t fr_follower_lag(const struct fr_follower *follower)
{
    return follower->consumer ? fr_consumer_lag(follower->consumer) : UINT64_MAX;
}

/* ---- what the commits contain ---- */

/* Returns the place of an epoch. When all places are taken, the oldest epoch loses its place, which
 * happens only on a topic that breaks the rules. */
static struct in_flight *in_flight_of(struct fr_follower *follower, uint64_t timeline, uint64_t epoch)
{
    struct in_flight *oldest = &follower->epochs[0];
    for (size_t i = 0; i < FR_FOLLOW_IN_FLIGHT_MAX; i++) {
        struct in_flight *one = &follower->epochs[i];
        if (one->timeline == timeline && one->epoch == epoch)
            return one;
        if (one->timeline < oldest->timeline || (one->timeline == oldest->timeline && one->epoch < oldest->epoch))
            oldest = one;
    }
    fr_buffer_clear(&oldest->auc);
    *oldest = (struct in_flight){.timeline = timeline, .epoch = epoch, .auc = oldest->auc};
    return oldest;
}

/* Writes the MessagePack map task -> f64 or nil as logfmt. What does not parse is left out, because
 * judging records is the replica's part. */
static void put_auc(const struct fr_delta_record *record, struct fr_buffer *out)
{
    struct fr_cursor cursor;
    struct fr_token token, name;
    fr_buffer_clear(out);
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, record->commit.auc, record->commit.auc_size, NULL);
    if (fr_cursor_next(&cursor, &token) != FR_OK || token.kind != FR_TOKEN_MAP)
        return;
    while (fr_cursor_next(&cursor, &name) == FR_OK && name.kind == FR_TOKEN_STRING &&
           name.size < FR_FOLLOW_TASK_NAME_MAX && fr_cursor_next(&cursor, &token) == FR_OK) {
        fr_buffer_printf(out, " auc.%.*s=", (int)name.size, (const char *)name.bytes);
        if (token.kind == FR_TOKEN_FLOAT && isfinite(token.f))
            fr_buffer_printf(out, "%.4f", token.f);
        else
            fr_buffer_printf(out, "undefined");
    }
}

/* Epochs of a later timeline rank after all epochs of an earlier one. */
uint64_t fr_follower_rank_of(uint64_t timeline, uint64_t epoch)
{
    uint64_t most = (UINT64_C(1) << EPOCH_RANK_BITS) - 1;
    return (timeline < TIMELINE_RANKS ? timeline : TIMELINE_RANKS - 1) << EPOCH_RANK_BITS |
           (epoch < most ? epoch : most);
}

static void account(struct fr_follower *follower, const struct fr_consumed *message,
                    const struct fr_delta_record *record)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(follower->replica, &info);
    uint64_t rank = fr_follower_rank_of(record->timeline, record->epoch);
    struct fr_follower_place *place = &follower->places[message->index];
    if (rank > place->read) {
        place->read = rank;
        fr_consumer_rank(follower->consumer, message->index, rank);
    }
    if (record->kind == FR_DELTA_COMMIT && rank > place->committed)
        place->committed = rank;
    if (record->timeline < info.timeline || (record->timeline == info.timeline && record->epoch <= info.epoch))
        return; /* a duplicate of what is served */
    struct in_flight *epoch = in_flight_of(follower, record->timeline, record->epoch);
    epoch->bytes += message->size;
    if (record->kind != FR_DELTA_COMMIT)
        return;
    epoch->changed += record->commit.n_rows;
    epoch->dropped += record->commit.n_drops;
    put_auc(record, &epoch->auc);
}

/* ---- steps ---- */

/* Notes a record that was passed over although it comes after what is served. */
static void note_passed(struct fr_follower *follower, const struct fr_consumed *message,
                        const struct fr_delta_record *record)
{
    const struct freshet_event *event = &follower->event;
    if (record->timeline > follower->newest_timeline) {
        follower->newest_timeline = record->timeline;
        if (follower->state == FR_FOLLOWER_LACKS_BEGINNING)
            fr_follower_change_state(follower, FR_FOLLOWER_TIMELINE_BEGUN);
    }
    bool later =
        record->timeline > event->timeline || (record->timeline == event->timeline && record->epoch > event->epoch);
    if (!event->stale || event->reloaded || !later || record->timeline != follower->newest_timeline ||
        follower->state == FR_FOLLOWER_LACKS_BEGINNING)
        return;
    follower->lacking = message->partition;
    fr_follower_change_state(follower, FR_FOLLOWER_PASSED_OVER);
    fr_log(FR_LOG_WARN, "follow", "passed_over",
           "topic=%s partition=%" PRId32 " epoch=%" PRIu64
           " note=\"the partition lost its beginning: what comes before an epoch merged from 1 is passed over\"",
           follower->topic.topic, message->partition, record->epoch);
}

static enum fr_status judge_refusals(const struct fr_follower *follower, const struct fr_consumed *message,
                                     struct fr_err *err)
{
    struct freshet_replica_info info;
    if (follower->refusals < FR_FOLLOW_REFUSALS_MAX)
        return FR_OK; /* only this record was refused */
    freshet_replica_get_info(follower->replica, &info);
    return fr_err_set(
        err, FR_E_INVALID, "%d records in a row were refused, the last one %s/%" PRId32 " offset %" PRId64 ": %s. %s",
        FR_FOLLOW_REFUSALS_MAX, follower->topic.topic, message->partition, message->offset, follower->event.problem,
        info.epoch == 0 ? "This is no topic of deltas, or none that this version reads: name that of export.topic"
                        : "Somebody else writes to the topic, or it is damaged: give each state directory an "
                          "export.topic of its own, and begin again from epoch 1");
}

static enum fr_status judge(const struct fr_follower *follower, const struct fr_consumed *message, int fed,
                            struct fr_err *err)
{
    const char *problem = follower->event.problem;
    if (follower->patient && (fed == FRESHET_E_GAP || fed == FRESHET_E_REWIND || fed == FRESHET_E_NO_MEMORY))
        return FR_OK;
    switch (fed) {
    /* the record was not taken: a caller that continues opens the topic again */
    case FRESHET_AGAIN:
        return fr_err_set(err, FR_E_LOST,
                          "more of %s waits than the replica holds (1 GiB): some of its partitions lag far behind; "
                          "look whether their leaders answer, and begin again",
                          follower->topic.topic);
    case FRESHET_E_GAP:
        return fr_err_set(
            err, FR_E_LOST,
            "%s. The topic lost records, or a record was refused above: begin again from a snapshot (--snapshot), "
            "or with a new replica: the daemon that publishes here fills a topic that lost records with its whole state",
            problem);
    case FRESHET_E_MISMATCH:
        return fr_err_set(
            err, FR_E_MISMATCH,
            "mismatch: %s. Two writers, or another model, write to %s: stop the wrong one; give each state "
            "directory an export.topic of its own",
            problem, follower->topic.topic);
    case FRESHET_E_REWIND:
        return fr_err_set(err, FR_E_MISMATCH, "%s. History was rewound: name the folder of snapshots (--snapshot)",
                          problem);
    case FRESHET_E_NO_MEMORY:
        return fr_err_set(err, FR_E_NO_MEMORY,
                          "%s. A replica holds all rows of the partitions it follows: give it more memory, or fewer "
                          "partitions (--partitions)",
                          problem);
    default:
        return judge_refusals(follower, message, err);
    }
}

/* The topic may have more partitions than the timeline has. The others stay empty and are not
 * waited for. */
static void learn_partitions(struct fr_follower *follower)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(follower->replica, &info);
    if (info.np == follower->np)
        return;
    follower->np = info.np;
    fr_consumer_leave(follower->consumer, info.np);
}

void fr_follower_reopen(struct fr_follower *follower)
{
    fr_follower_change_state(follower, FR_FOLLOWER_REOPENED);
}

/* Takes the next message, or the one that was not taken before. */
static enum fr_status next_message(struct fr_follower *follower, int wait_ms, struct fr_err *err)
{
    if (!follower->consumer) {
        enum fr_status status = open_topic(follower, err);
        return status == FR_OK ? FR_AGAIN : status;
    }
    if (follower->starved) {
        follower->starved = NULL;
        return FR_OK;
    }
    enum fr_status status = fr_consumer_next(follower->consumer, wait_ms, &follower->message, err);
    if (status == FR_AGAIN && !follower->patient && fr_follower_lacks_beginning(follower, err))
        return FR_E_LOST;
    /* a gap, which a snapshot can close */
    if (status == FR_E_LOST && !follower->patient && follower->snapshots) {
        char quoted[600];
        fr_log(FR_LOG_WARN, "follow", "lost", "reason=%s note=\"a newer snapshot is looked for\"",
               fr_log_quote(quoted, sizeof(quoted), err->text));
        fr_follower_change_state(follower, FR_FOLLOWER_RECORDS_LOST);
        return FR_AGAIN;
    }
    return status;
}

static void describe_epoch(struct fr_follower *follower, struct fr_followed *out)
{
    struct in_flight *epoch = in_flight_of(follower, follower->event.timeline, follower->event.epoch);
    out->epoch = epoch->epoch;
    out->changed = epoch->changed;
    out->dropped = epoch->dropped;
    out->bytes = epoch->bytes;
    fr_put_u8(&epoch->auc, 0);
    out->auc = (const char *)epoch->auc.data;
}

/* Where nothing on the topic continues the served epoch, a newer snapshot may. */
static bool load_newer_snapshot(struct fr_follower *follower)
{
    struct fr_err unused = {0};
    uint64_t now_ns = fr_mono_ns(fr_clock_system());
    if (!follower->patient || !follower->snapshots || !follower->consumer || now_ns < follower->search_ns ||
        !fr_follower_lacks(follower, &unused))
        return false;
    follower->search_ns = now_ns + SEARCH_MS * UINT64_C(1000000);
    return load_snapshot(follower);
}

/* Loads the snapshot that waited for a record to show the topic's model. */
static bool load_proven_snapshot(struct fr_follower *follower)
{
    if (follower->state != FR_FOLLOWER_AWAITS_MODEL || follower->np == 0)
        return false;
    fr_follower_change_state(follower, FR_FOLLOWER_MODEL_SHOWN);
    return load_snapshot(follower);
}

/* The record before the hint must not be later than the snapshot. A hint that skips records would
 * leave a gap, or let an old epoch be served for as long as no further record comes. */
static bool misleads(const struct fr_follower *follower, const struct fr_consumed *message,
                     const struct fr_delta_record *record)
{
    struct freshet_replica_info info;
    if (message->offset >= follower->places[message->index].hint)
        return false;
    freshet_replica_get_info(follower->replica, &info);
    return record->timeline > info.timeline || (record->timeline == info.timeline && record->epoch > info.epoch);
}

/* The topic may be another one of the same name, or the snapshot's hint may be wrong. Then the
 * offsets read so far mean nothing, and the records that continue the served epoch may lie before
 * them. A snapshot that is served already takes the gap back. */
static void read_again(struct fr_follower *follower, enum fr_follower_event why)
{
    if (follower->state == FR_FOLLOWER_CONTINUES && follower->snapshots)
        (void)load_snapshot(follower);
    fr_follower_change_state(follower, why);
}

static void note_misleading(struct fr_follower *follower, const struct fr_consumed *message)
{
    fr_log(FR_LOG_WARN, "follow", "hint_misleads",
           "topic=%s partition=%" PRId32 " offset=%" PRId64
           " note=\"delta_offsets of the snapshot are too high or of another topic: the topic is read from its first "
           "records, and nothing is lost\"",
           follower->topic.topic, message->partition, message->offset);
    read_again(follower, FR_FOLLOWER_HINT_MISLED);
}

/* Handles the outcome of a record that was fed with the status `fed`. */
static enum fr_status finish_record(struct fr_follower *follower, int fed, struct fr_followed *out, struct fr_err *err)
{
    const struct fr_consumed *message = &follower->message;
    out->applied = follower->event.applied > 0;
    out->refused = follower->event.refused != 0 || fed != FRESHET_OK;
    out->problem = follower->event.problem;
    out->reloaded = follower->event.reloaded != 0;
    out->starved = follower->patient && fed == FRESHET_E_NO_MEMORY;
    follower->refusals = out->refused ? follower->refusals + 1 : 0;
    follower->starved = out->starved ? message : NULL;
    if (!out->starved && fed != FRESHET_AGAIN)
        follower->expects[message->partition] = message->offset + 1;
    if (out->applied) {
        describe_epoch(follower, out);
        fr_follower_change_state(follower, FR_FOLLOWER_EPOCH_APPLIED);
    }
    bool skipped =
        follower->state == FR_FOLLOWER_CONTINUES || (follower->patient && follower->state != FR_FOLLOWER_REREADS);
    if (fed == FRESHET_E_GAP && skipped) {
        read_again(follower, FR_FOLLOWER_GAP_FOUND);
        return FR_OK;
    }
    enum fr_status status = judge(follower, message, fed, err);
    if (out->reloaded)
        fr_follower_change_state(follower, FR_FOLLOWER_SNAPSHOT_LOADED);
    return status;
}

enum fr_status fr_follower_step(struct fr_follower *follower, int wait_ms, struct fr_followed *out, struct fr_err *err)
{
    enum fr_status status = next_message(follower, wait_ms, err);
    if (status == FR_AGAIN && load_newer_snapshot(follower)) {
        *out = (struct fr_followed){.reloaded = true, .auc = ""};
        return FR_OK;
    }
    if (status != FR_OK)
        return status;
    const struct fr_consumed *message = &follower->message;
    struct fr_delta_record record;
    bool sound = fr_delta_read(message->bytes, message->size, &record, NULL) == FR_OK;
    *out = (struct fr_followed){.partition = message->partition, .offset = message->offset, .auc = ""};
    if (sound && misleads(follower, message, &record)) {
        note_misleading(follower, message);
        return FR_OK;
    }
    if (sound)
        account(follower, message, &record);
    follower->event = (struct freshet_event){0};
    int fed = freshet_replica_feed(follower->replica, (uint32_t)message->partition, message->bytes, message->size,
                                   &follower->event);
    learn_partitions(follower);
    out->reloaded = load_proven_snapshot(follower);
    if (out->reloaded)
        return FR_OK;
    if (sound)
        note_passed(follower, message, &record);
    return finish_record(follower, fed, out, err);
}
