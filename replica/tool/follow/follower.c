/* Feeds a replica from a delta topic, partitions in step, and keeps what the replica does not: per
 * epoch, how much came and what the commits say. Epochs in flight are few, because no partition is
 * read far ahead (consume.h). Every reason to stop is told with its remedy.
 *
 * Thread: one. It does not load snapshots (not in this version). */
#include "follow/follower.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/cursor.h"
#include "codec/codec.h"

enum { IN_FLIGHT_MAX = 2 * FR_FOLLOW_AHEAD_MAX + 8, TASK_NAME_MAX = 64 };

struct in_flight {
    uint64_t epoch; /* 0: free */
    uint64_t changed, dropped, bytes;
    struct fr_buffer auc;
};

struct fr_tool_follower {
    struct fr_tool_consumer *consumer;
    struct freshet_replica *replica;
    uint64_t *rank;    /* per partition: highest epoch read */
    uint32_t np;       /* as the records say; 0: not known yet */
    uint32_t refusals; /* in a row */
    struct in_flight epochs[IN_FLIGHT_MAX];
    struct freshet_event event; /* its problem is lent to the caller */
    char topic[250];
};

enum fr_status fr_tool_follower_open(const struct fr_tool_consume_options *options, struct fr_tool_follower **out,
                                     struct fr_err *err)
{
    struct fr_tool_follower *follower = fr_alloc(1, sizeof(*follower));
    snprintf(follower->topic, sizeof(follower->topic), "%s", options->topic);
    uint32_t *partitions = NULL;
    size_t n = 0;
    if (options->partitions) {
        partitions = fr_alloc(options->n_partitions + 1, sizeof(*partitions));
        partitions[n++] = 0; /* the model and the dense parameters are there */
        for (size_t i = 0; i < options->n_partitions; i++)
            if (options->partitions[i] != 0)
                partitions[n++] = options->partitions[i];
    }
    struct fr_tool_consume_options consume = *options;
    consume.partitions = partitions;
    consume.n_partitions = n;
    consume.ahead_max = FR_FOLLOW_AHEAD_MAX;
    enum fr_status status = fr_tool_consumer_open(&consume, &follower->consumer, err);
    if (status == FR_OK) {
        follower->rank = fr_alloc(fr_tool_consumer_count(follower->consumer), sizeof(*follower->rank));
        struct freshet_replica_options replica = {.partitions = partitions, .n_partitions = n};
        if (freshet_replica_new(&replica, &follower->replica) != FRESHET_OK)
            status = fr_err_set(err, FR_E_INVALID, "the replica refuses these partitions");
    }
    free(partitions);
    if (status != FR_OK) {
        fr_tool_follower_close(follower);
        return status;
    }
    *out = follower;
    return FR_OK;
}

void fr_tool_follower_close(struct fr_tool_follower *follower)
{
    if (!follower)
        return;
    fr_tool_consumer_close(follower->consumer);
    freshet_replica_free(follower->replica);
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        fr_buffer_release(&follower->epochs[i].auc);
    free(follower->rank);
    free(follower);
}

struct freshet_replica *fr_tool_follower_replica(struct fr_tool_follower *follower)
{
    return follower->replica;
}

enum fr_status fr_tool_follower_unserved(const struct fr_tool_follower *follower, struct fr_err *err)
{
    return fr_err_set(err, FR_E_NOT_FOUND,
                      "no epoch of %s was served: name the topic of the deltas (export.topic of the daemon), and look "
                      "whether the daemon publishes to it (/status, publisher)",
                      follower->topic);
}

bool fr_tool_follower_ended(const struct fr_tool_follower *follower)
{
    return fr_tool_consumer_ended(follower->consumer);
}

/* ---- what the commits say ---- */

/* The place of an epoch; the oldest one gives way, which only a topic that breaks the rules can
 * bring about. */
static struct in_flight *in_flight_of(struct fr_tool_follower *follower, uint64_t epoch)
{
    struct in_flight *oldest = &follower->epochs[0];
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        if (follower->epochs[i].epoch == epoch)
            return &follower->epochs[i];
        if (follower->epochs[i].epoch < oldest->epoch)
            oldest = &follower->epochs[i];
    }
    fr_buffer_clear(&oldest->auc);
    *oldest = (struct in_flight){.epoch = epoch, .auc = oldest->auc};
    return oldest;
}

/* MessagePack map task -> f64 or nil, as logfmt; what does not parse is left out: the replica
 * judges records. */
static void put_auc(const struct fr_delta_record *record, struct fr_buffer *out)
{
    struct fr_cursor cursor;
    struct fr_token token, name;
    fr_buffer_clear(out);
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, record->commit.auc, record->commit.auc_size, NULL);
    if (fr_cursor_next(&cursor, &token) != FR_OK || token.kind != FR_TOKEN_MAP)
        return;
    while (fr_cursor_next(&cursor, &name) == FR_OK && name.kind == FR_TOKEN_STRING && name.size < TASK_NAME_MAX &&
           fr_cursor_next(&cursor, &token) == FR_OK) {
        fr_buffer_printf(out, " auc.%.*s=", (int)name.size, (const char *)name.bytes);
        if (token.kind == FR_TOKEN_FLOAT && isfinite(token.f))
            fr_buffer_printf(out, "%.4f", token.f);
        else
            fr_buffer_printf(out, "undefined");
    }
}

static void account(struct fr_tool_follower *follower, const struct fr_tool_consumed *message,
                    const struct fr_delta_record *record)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(follower->replica, &info);
    if (record->epoch > follower->rank[message->index]) {
        follower->rank[message->index] = record->epoch;
        fr_tool_consumer_rank(follower->consumer, message->index, record->epoch);
    }
    if (record->epoch <= info.epoch)
        return; /* a duplicate of what is served */
    struct in_flight *epoch = in_flight_of(follower, record->epoch);
    epoch->bytes += message->size;
    if (record->kind != FR_DELTA_COMMIT)
        return;
    epoch->changed += record->commit.n_rows;
    epoch->dropped += record->commit.n_drops;
    put_auc(record, &epoch->auc);
}

/* ---- steps ---- */

/* A partition that begins with a later epoch: said once; the replica passes over it until an epoch
 * merged from the first comes. */
static void tell_begin(struct fr_tool_follower *follower, const struct fr_tool_consumed *message,
                       const struct fr_delta_record *record)
{
    if (follower->rank[message->index] != 0 || record->from <= 1)
        return;
    fr_log(FR_LOG_WARN, "follow", "passed_over",
           "topic=%s partition=%" PRId32 " epoch=%" PRIu64
           " note=\"the partition begins with a later epoch than 1: what comes before an epoch merged from 1 is passed "
           "over; a daemon that publishes here writes one within a minute\"",
           follower->topic, message->partition, record->from);
}

static enum fr_status judge_refusals(const struct fr_tool_follower *follower, const struct fr_tool_consumed *message,
                                     struct fr_err *err)
{
    struct freshet_replica_info info;
    if (follower->refusals < FR_FOLLOW_REFUSALS_MAX)
        return FR_OK; /* the record alone was refused */
    freshet_replica_get_info(follower->replica, &info);
    return fr_err_set(
        err, FR_E_INVALID, "%d records in a row were refused, the last one %s/%" PRId32 " offset %" PRId64 ": %s. %s",
        FR_FOLLOW_REFUSALS_MAX, follower->topic, message->partition, message->offset, follower->event.problem,
        info.epoch == 0 ? "This is no topic of deltas, or none that this version reads: name that of export.topic"
                        : "Somebody else writes to the topic, or it is damaged: give each state directory an "
                          "export.topic of its own, and begin again from epoch 1");
}

static enum fr_status judge(const struct fr_tool_follower *follower, const struct fr_tool_consumed *message, int fed,
                            struct fr_err *err)
{
    const char *problem = follower->event.problem;
    switch (fed) {
    case FRESHET_E_GAP:
        return fr_err_set(
            err, FR_E_LOST,
            "%s. The topic lost records, or a record was refused above: begin again with a "
            "new replica: the daemon that publishes here fills a topic that lost records with its whole state",
            problem);
    case FRESHET_E_MISMATCH:
        return fr_err_set(
            err, FR_E_MISMATCH,
            "mismatch: %s. Two writers, or another model, write to %s: stop the wrong one; give each state "
            "directory an export.topic of its own",
            problem, follower->topic);
    case FRESHET_E_REWIND:
        return fr_err_set(err, FR_E_MISMATCH, "%s. History was rewound: loading that snapshot is not in this version",
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

/* The topic may have more partitions than the timeline: those stay empty, and are not waited
 * for. */
static void learn_partitions(struct fr_tool_follower *follower)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(follower->replica, &info);
    if (info.np == follower->np)
        return;
    follower->np = info.np;
    fr_tool_consumer_leave(follower->consumer, info.np);
}

enum fr_status fr_tool_follower_step(struct fr_tool_follower *follower, int wait_ms, struct fr_tool_followed *out,
                                     struct fr_err *err)
{
    struct fr_tool_consumed message;
    enum fr_status status = fr_tool_consumer_next(follower->consumer, wait_ms, &message, err);
    if (status != FR_OK)
        return status;
    struct fr_delta_record record;
    bool readable = fr_delta_read(message.bytes, message.size, &record, NULL) == FR_OK;
    if (readable) {
        tell_begin(follower, &message, &record);
        account(follower, &message, &record);
    }
    follower->event = (struct freshet_event){0};
    int fed = freshet_replica_feed(follower->replica, (uint32_t)message.partition, message.bytes, message.size,
                                   &follower->event);
    learn_partitions(follower);
    *out = (struct fr_tool_followed){.partition = message.partition,
                                     .offset = message.offset,
                                     .applied = follower->event.applied > 0,
                                     .refused = follower->event.refused != 0 || fed != FRESHET_OK,
                                     .problem = follower->event.problem,
                                     .auc = ""};
    follower->refusals = out->refused ? follower->refusals + 1 : 0;
    if (out->applied) {
        struct in_flight *epoch = in_flight_of(follower, follower->event.epoch);
        out->epoch = epoch->epoch;
        out->changed = epoch->changed;
        out->dropped = epoch->dropped;
        out->bytes = epoch->bytes;
        fr_put_u8(&epoch->auc, 0);
        out->auc = (const char *)epoch->auc.data;
    }
    return judge(follower, &message, fed, err);
}
