/* Reads the partitions of one topic in step with each other, from a given beginning.
 *
 * The caller gives each partition a rank (the epoch up to which it is read). Records come from the
 * partition with the lowest rank first, and no partition is read more than `ahead_max` ranks beyond
 * the lowest. So the amount of records that are read and cannot be used yet is bounded, and the
 * rest waits in Kafka. No group is joined and nothing is committed.
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
    const char *kafka_file;        /* a file of librdkafka properties, or NULL */
    const char *const *properties; /* "name=value" for librdkafka; overrides the file */
    size_t n_properties;
    uint64_t ahead_max;
    /* Returns the offset at which a partition is expected to continue, or -1 when it is unknown.
     * Reading begins one record before that offset, and this record shows whether the expectation
     * is true. If the offset is outside the log, reading begins with the first record of the log.
     * NULL: the first record of every partition. */
    int64_t (*begin)(void *self, uint32_t partition);
    void *self;
};

struct fr_consumer;

struct fr_consumed {
    uint32_t index; /* 0 .. fr_consumer_count - 1 */
    int32_t partition;
    int64_t offset;
    const void *bytes; /* valid until the next call */
    size_t size;
};

/* Errors: FR_E_INVALID (a property, or a partition that the topic does not have), FR_E_NOT_FOUND
 * (the topic does not exist yet), FR_E_UNAVAILABLE (brokers are away, or a partition has no
 * leader). After the last two, try again. */
enum fr_status fr_consumer_open(const struct fr_consume_options *options, struct fr_consumer **out,
                                struct fr_err *err) FR_MUST_CHECK;
/* Checks the properties only. Errors: FR_E_INVALID. */
enum fr_status fr_consumer_check(const struct fr_consume_options *options, struct fr_err *err) FR_MUST_CHECK;
void fr_consumer_close(struct fr_consumer *consumer);
size_t fr_consumer_count(const struct fr_consumer *consumer);

struct fr_consumer_place {
    int32_t partition;
    int64_t low; /* the first offset in the log when the topic was opened */
    int64_t end; /* the offset after the last record, as of the open or the last refresh */
    bool left;   /* excluded by fr_consumer_leave */
};
/* The place of the partition with this index, which is the index that messages carry. */
struct fr_consumer_place fr_consumer_place(const struct fr_consumer *consumer, size_t index);
/* Asks brokers for the present ends of the partitions, which fr_consumer_ended then uses.
 * FR_E_UNAVAILABLE: some partitions had no answer within wait_ms. */
enum fr_status fr_consumer_refresh(struct fr_consumer *consumer, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* Returns FR_OK, FR_AGAIN (nothing within wait_ms), FR_E_LOST (records were deleted before they
 * were read), FR_E_DENIED, or FR_E_UNAVAILABLE (the topic was removed). Outages are waited out, and
 * their reason is logged. */
enum fr_status fr_consumer_next(struct fr_consumer *consumer, int wait_ms, struct fr_consumed *out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_consumer_rank(struct fr_consumer *consumer, uint32_t index, uint64_t rank);
/* Stops reading the partitions with this number and above; no other partition waits for them. */
void fr_consumer_leave(struct fr_consumer *consumer, uint32_t from);
/* Returns the reason that librdkafka gave for the present outage, while it keeps trying; NULL: no
 * outage is known. Valid until the next call. */
const char *fr_consumer_outage(const struct fr_consumer *consumer);
/* Counts the records that brokers reported, at the open or later, and that are not read yet. */
uint64_t fr_consumer_lag(const struct fr_consumer *consumer);
/* Returns whether everything that was in the log at the open, or at the last refresh, was read or
 * waits for a partition that has no more records. */
bool fr_consumer_ended(const struct fr_consumer *consumer);

#endif
