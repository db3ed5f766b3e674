/* Reads the partitions of one topic from a beginning on, for those who need them in step with each
 * other.
 *
 * The caller gives each partition a rank (the epoch it has read up to); records come from the
 * partition with the lowest rank first, and no partition is read more than `ahead_max` ranks beyond
 * the lowest: what has been read and cannot be used yet stays bounded, the rest waits in Kafka. No
 * group is joined, nothing is committed.
 *
 * Thread: one. */
#ifndef FR_FOLLOW_CONSUME_H
#define FR_FOLLOW_CONSUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FR_CONSUME_PARTITIONS_MAX = 1024, FR_CONSUME_TIMEOUT_MS = 10000 };

struct fr_consume_options {
    const char *brokers, *topic;
    const uint32_t *partitions; /* NULL: all */
    size_t n_partitions;
    const char *kafka_file;        /* of librdkafka properties, or NULL */
    const char *const *properties; /* "name=value", for librdkafka; over those of the file */
    size_t n_properties;
    uint64_t ahead_max;
    /* Where a partition is said to lead on: an offset, or -1 when nobody says. Reading begins one
     * record before it, which shows whether that is true; where the offset is outside the log, with
     * the first record there is. NULL: the first ones. */
    int64_t (*begin)(void *self, uint32_t partition);
    void *self;
};

struct fr_consumer;

struct fr_consumed {
    uint32_t index; /* 0 .. fr_consumer_count - 1 */
    int32_t partition;
    int64_t offset;
    const void *bytes; /* until the next call */
    size_t size;
};

/* FR_E_INVALID (a property, a partition the topic has not), FR_E_NOT_FOUND (no such topic yet),
 * FR_E_UNAVAILABLE (brokers away, or a partition without a leader): try again. */
enum fr_status fr_consumer_open(const struct fr_consume_options *options, struct fr_consumer **out,
                                struct fr_err *err) FR_MUST_CHECK;
/* Looks at the properties alone. FR_E_INVALID. */
enum fr_status fr_consumer_check(const struct fr_consume_options *options, struct fr_err *err) FR_MUST_CHECK;
void fr_consumer_close(struct fr_consumer *consumer);
size_t fr_consumer_count(const struct fr_consumer *consumer);

struct fr_consumer_place {
    int32_t partition;
    int64_t low; /* the first offset there was when the topic was opened */
    int64_t end; /* after the last record there was then, or at the last refresh */
    bool left;   /* fr_consumer_leave */
};
/* Of the partition that messages name by this index. */
struct fr_consumer_place fr_consumer_place(const struct fr_consumer *consumer, size_t index);
/* Asks where the partitions end now: fr_consumer_ended goes by that. FR_E_UNAVAILABLE: not all of
 * them were answered for within wait_ms. */
enum fr_status fr_consumer_refresh(struct fr_consumer *consumer, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* FR_OK, FR_AGAIN (nothing within wait_ms), FR_E_LOST (records were deleted before they were read),
 * FR_E_DENIED, FR_E_UNAVAILABLE (the topic went away). Outages are waited out: the reason is
 * logged. */
enum fr_status fr_consumer_next(struct fr_consumer *consumer, int wait_ms, struct fr_consumed *out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_consumer_rank(struct fr_consumer *consumer, uint32_t index, uint64_t rank);
/* Partitions from this number on are read no further, and nobody waits for them. */
void fr_consumer_leave(struct fr_consumer *consumer, uint32_t from);
/* Why nothing comes, where librdkafka said so and goes on trying; NULL: nothing is known to be
 * away. Until the next call. */
const char *fr_consumer_outage(const struct fr_consumer *consumer);
/* Counts the records that brokers reported, at open or since, and that are not read yet. */
uint64_t fr_consumer_lag(const struct fr_consumer *consumer);
/* Everything that was there at open, or at the last refresh, was read, or waits for a partition
 * that has no more. */
bool fr_consumer_ended(const struct fr_consumer *consumer);

#endif
