/* The records that are being handed to librdkafka, as bytes, so that a full queue interrupts
 * nothing: the records of one epoch or of a part of a whole state, and the messages that are made
 * of them for consumers of NVIDIA HPS (publisher_hps.c). */
#ifndef FR_EXPORTER_PUBLISHER_OUTGOING_H
#define FR_EXPORTER_PUBLISHER_OUTGOING_H

#include "publisher_topic.h"

/* The default receive_buffer_size of consumers of HPS. */
enum { HPS_MESSAGE_MAX = 256 << 10 };

struct fr_outgoing_record {
    const char *topic; /* borrowed; NULL: the delta topic */
    uint32_t partition;
    bool begins; /* a new replica can begin with this record in the record's partition */
    size_t size;
    uint8_t *bytes; /* owned; NULL once librdkafka owns it */
};

struct fr_outgoing {
    uint32_t first_partition, end_partition; /* records of other partitions are left out */
    uint64_t epoch;
    bool begins; /* new replicas can begin with the epoch: `from` is 1, or there is a rewind */
    bool ends;   /* no further records of this epoch follow */
    int64_t timestamp_ms;
    struct fr_outgoing_record *records;
    size_t n, next, capacity;
    struct fr_publisher_hps *hps; /* NULL: nothing is written for HPS */
    uint64_t hps_rows, hps_drops; /* rows and tombstones in the messages for HPS */
};

/* Appends a copy of a record. topic: borrowed; NULL: the delta topic. */
struct fr_outgoing_record *fr_publisher_append(struct fr_outgoing *out, const char *topic, uint32_t partition,
                                               const void *bytes, size_t size);
void fr_publisher_clear_outgoing(struct fr_outgoing *out);
void fr_publisher_release_outgoing(struct fr_outgoing *out);

/* ---- publisher_hps.c ---- */

struct fr_publisher_hps *fr_publisher_hps_new(const struct fr_publisher_options *options);
void fr_publisher_hps_free(struct fr_publisher_hps *hps);
/* Checks that the topics for HPS exist, each with enough partitions; hps may be NULL. acked: at
 * the first inspection, the number of the acknowledged epoch: the topics must accept the
 * largest message, and a topic that is empty nevertheless causes a warning. NULL: it is a later
 * inspection. */
enum fr_status fr_publisher_hps_check(struct fr_publisher_hps *hps, struct fr_publisher_board *board,
                                      rd_kafka_t *client, const uint64_t *acked, struct fr_err *err) FR_MUST_CHECK;
/* Appends the messages for HPS that follow from a delta record. FR_E_CORRUPT: the record is of a
 * table that the model does not have. */
enum fr_status fr_publisher_hps_add(struct fr_outgoing *out, const void *bytes, size_t size) FR_MUST_CHECK;

#endif
