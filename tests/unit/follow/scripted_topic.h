/* A topic in memory in place of the consumer: the records of a history in their order, each with an
 * offset of its partition. Records may be hidden, deleted from the beginning, or lost while they
 * are read. Linked with --wrap of every function of follow/consume.h that a follower calls. */
#ifndef FOLLOW_SCRIPTED_TOPIC_H
#define FOLLOW_SCRIPTED_TOPIC_H

#include "../replica/snapshot_dir.h"

#include "../../../replica/follow/follower_internal.h"

static struct script {
    const struct history *history;
    int64_t offset[PARTITIONS]; /* of the first record of each partition */
    bool hidden[RECORDS_MAX];   /* records that no consumer is given */
    size_t deleted;             /* that many records were deleted from the beginning */
    bool lost;                  /* the next record is lost before it is read */
} script;

struct fr_consumer {
    size_t at; /* the next record */
    int64_t position[PARTITIONS], low[PARTITIONS], end[PARTITIONS];
};

/* The offset of a record, or of the end of its partition. */
static int64_t offset_of(size_t record, uint32_t partition)
{
    int64_t offset = script.offset[partition];
    for (size_t i = 0; i < record; i++)
        offset += script.history->topic[i].partition == partition;
    return offset;
}

/* Gives the partitions such offsets that the next records get those that a snapshot of now names
 * (history_snapshot), or `shift` more. */
static void script_end_at_hints(int64_t shift)
{
    static const int64_t hints[PARTITIONS] = {11, 12, 13};
    for (uint32_t p = 0; p < PARTITIONS; p++)
        script.offset[p] += hints[p] + shift - offset_of(script.history->n_topic, p);
}

/* Hides the records of an epoch of a timeline in a partition, or the first of them only. */
static void script_hide(uint64_t epoch, uint32_t partition, uint64_t timeline, bool only_first)
{
    for (size_t i = 0; i < script.history->n_topic; i++) {
        const struct topic_record *record = &script.history->topic[i];
        struct fr_delta_record read;
        assert_int_equal(fr_delta_read(record->bytes, record->size, &read, NULL), FR_OK);
        if (read.epoch != epoch || read.partition != partition || read.timeline != timeline)
            continue;
        script.hidden[i] = true;
        if (only_first)
            return;
    }
}

static void script_show_all(void)
{
    memset(script.hidden, 0, sizeof(script.hidden));
}

enum fr_status __wrap_fr_consumer_check(const struct fr_consume_options *options, struct fr_err *err);
enum fr_status __wrap_fr_consumer_check(const struct fr_consume_options *options, struct fr_err *err)
{
    (void)options, (void)err;
    return FR_OK;
}

enum fr_status __wrap_fr_consumer_open(const struct fr_consume_options *options, struct fr_consumer **out,
                                       struct fr_err *err);
enum fr_status __wrap_fr_consumer_open(const struct fr_consume_options *options, struct fr_consumer **out,
                                       struct fr_err *err)
{
    struct fr_consumer *consumer = calloc(1, sizeof(*consumer));
    (void)err;
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        int64_t wanted = options->begin(options->self, p);
        consumer->low[p] = offset_of(script.deleted, p);
        consumer->end[p] = offset_of(script.history->n_topic, p);
        consumer->position[p] = wanted > consumer->low[p] && wanted <= consumer->end[p] ? wanted - 1 : consumer->low[p];
    }
    *out = consumer;
    return FR_OK;
}

void __wrap_fr_consumer_close(struct fr_consumer *consumer);
void __wrap_fr_consumer_close(struct fr_consumer *consumer)
{
    free(consumer);
}

size_t __wrap_fr_consumer_count(const struct fr_consumer *consumer);
size_t __wrap_fr_consumer_count(const struct fr_consumer *consumer)
{
    (void)consumer;
    return PARTITIONS;
}

struct fr_consumer_place __wrap_fr_consumer_place(const struct fr_consumer *consumer, size_t index);
struct fr_consumer_place __wrap_fr_consumer_place(const struct fr_consumer *consumer, size_t index)
{
    return (struct fr_consumer_place){
        .partition = (int32_t)index, .low = consumer->low[index], .end = consumer->end[index]};
}

enum fr_status __wrap_fr_consumer_next(struct fr_consumer *consumer, int wait_ms, struct fr_consumed *out,
                                       struct fr_err *err);
enum fr_status __wrap_fr_consumer_next(struct fr_consumer *consumer, int wait_ms, struct fr_consumed *out,
                                       struct fr_err *err)
{
    (void)wait_ms;
    if (script.lost)
        return fr_err_set(err, FR_E_LOST, "records were deleted before they were read");
    for (; consumer->at < script.history->n_topic; consumer->at++) {
        const struct topic_record *record = &script.history->topic[consumer->at];
        int64_t offset = offset_of(consumer->at, record->partition);
        if (script.hidden[consumer->at] || offset < consumer->position[record->partition])
            continue;
        *out = (struct fr_consumed){.index = record->partition,
                                    .partition = (int32_t)record->partition,
                                    .offset = offset,
                                    .bytes = record->bytes,
                                    .size = record->size};
        consumer->position[record->partition] = offset + 1;
        consumer->at++;
        return FR_OK;
    }
    return FR_AGAIN;
}

void __wrap_fr_consumer_rank(struct fr_consumer *consumer, uint32_t index, uint64_t rank);
void __wrap_fr_consumer_rank(struct fr_consumer *consumer, uint32_t index, uint64_t rank)
{
    (void)consumer, (void)index, (void)rank;
}

void __wrap_fr_consumer_leave(struct fr_consumer *consumer, uint32_t from);
void __wrap_fr_consumer_leave(struct fr_consumer *consumer, uint32_t from)
{
    (void)consumer, (void)from;
}

bool __wrap_fr_consumer_ended(const struct fr_consumer *consumer);
bool __wrap_fr_consumer_ended(const struct fr_consumer *consumer)
{
    return consumer->at == script.history->n_topic;
}

#endif
