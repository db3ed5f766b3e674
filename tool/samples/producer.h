/* Sends records to one topic: creates the topic when it is missing, sends with idempotence and
 * acks=all, stays at most a given number of records ahead of a consumer group, and waits for every
 * acknowledgement. Private to tool.
 *
 * Thread: the caller's; sends never call back. */
#ifndef FR_TOOL_PRODUCER_H
#define FR_TOOL_PRODUCER_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FR_PRODUCER_PARTITIONS_MAX = 4096, FR_PRODUCER_KAFKA_MAX = 64 };

struct fr_tool_producer;

struct fr_tool_producer_options {
    const char *brokers, *topic;
    /* for a topic that is created; 0: 1. An existing topic keeps its count */
    uint32_t partitions;
    const char *kafka_file;   /* a file of librdkafka properties, or NULL */
    const char *const *kafka; /* name=value for librdkafka; overrides the settings of this file */
    size_t n_kafka;
    /* with max_ahead > 0: the group whose committed positions pace the sends */
    const char *group;
    uint64_t max_ahead;                /* records of a partition beyond the committed position */
    const volatile sig_atomic_t *stop; /* every wait ends when this becomes nonzero; may be NULL */
};

struct fr_tool_producer_totals {
    uint64_t records, bytes; /* passed to librdkafka */
    uint64_t acknowledged, failed;
};

/* Errors: FR_E_INVALID (librdkafka refuses a property), FR_E_UNAVAILABLE (no broker answers in
 * time, or the topic can be neither found nor created). */
enum fr_status fr_tool_producer_open(const struct fr_tool_producer_options *options, struct fr_tool_producer **out,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Drops records that are not sent yet. */
void fr_tool_producer_close(struct fr_tool_producer *producer);
/* Ends waits at this time of the system's monotonic clock, like a stop. */
void fr_tool_producer_stop_at(struct fr_tool_producer *producer, uint64_t mono_ns);
uint32_t fr_tool_producer_partitions(const struct fr_tool_producer *producer);

/* Sends a record; the bytes are copied. t_ms 0: the wall clock. Waits while the queue is full or
 * the group is too far behind. FR_AGAIN: a stop was requested meanwhile, and the record was not
 * sent. FR_E_UNAVAILABLE or FR_E_LIMIT: this record, or an earlier one, was refused. */
enum fr_status fr_tool_producer_send(struct fr_tool_producer *producer, uint32_t partition, const void *bytes,
                                     size_t size, int64_t t_ms, struct fr_err *err) FR_MUST_CHECK;
/* Handles acknowledgements for at most wait_ms. */
void fr_tool_producer_poll(struct fr_tool_producer *producer, int wait_ms);
/* Waits until every record is acknowledged or refused (librdkafka gives up on a record after
 * message.timeout.ms). */
enum fr_status fr_tool_producer_finish(struct fr_tool_producer *producer, struct fr_err *err) FR_MUST_CHECK;
struct fr_tool_producer_totals fr_tool_producer_totals(const struct fr_tool_producer *producer);

#endif
