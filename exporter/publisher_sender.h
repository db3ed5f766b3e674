/* The sender: hands the outgoing records to the idempotent producer as far as its bound allows, and
 * counts delivery reports until an epoch is acknowledged. */
#ifndef FR_EXPORTER_PUBLISHER_SENDER_H
#define FR_EXPORTER_PUBLISHER_SENDER_H

#include "publisher_known.h"
#include "publisher_outgoing.h"

enum { PENDING_EPOCHS_MAX = 1024 }; /* epochs in flight; a power of two */

struct fr_pending_epoch {
    uint64_t epoch, outstanding; /* outstanding: records without a report */
    bool complete;               /* all its records were produced */
};

struct fr_publisher_sender {
    struct fr_publisher_board *board;
    struct fr_publisher_known *known; /* is given the offset of each acknowledged record */
    struct fr_publisher_topic *topic; /* is given each refused record */
    rd_kafka_t *producer;             /* NULL: there is none */
    struct fr_outgoing out;
    struct fr_pending_epoch pending[PENDING_EPOCHS_MAX]; /* a ring, by epoch */
    size_t pending_begin, n_pending;
    /* A report came without an offset: commits of epochs that are not acknowledged may be on the
     * topic without all of their pieces. */
    bool commits_doubted;
};

/* Makes a producer, unless there is one. */
enum fr_status fr_publisher_open_producer(struct fr_publisher_sender *sender, struct fr_err *err) FR_MUST_CHECK;
/* Ends the producer. Records that are not acknowledged must be sent again. */
void fr_publisher_drop_producer(struct fr_publisher_sender *sender);

/* A fr_delta_sink that appends to the outgoing records; self: the sender's `out`. */
enum fr_status fr_publisher_add_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size);
/* Hands outgoing records over while they fit. FR_AGAIN: the bound or librdkafka's queue is full. */
enum fr_status fr_publisher_hand_over(struct fr_publisher_sender *sender, struct fr_err *err) FR_MUST_CHECK;
/* Counts the epochs of which every record is acknowledged. Returns false if there is none. */
bool fr_publisher_count_acknowledged(struct fr_publisher_sender *sender);

#endif
