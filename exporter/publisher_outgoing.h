/* The records that are being handed to librdkafka, as bytes, so that a full queue interrupts
 * nothing: those of one epoch, or of a part of a whole state; and, for consumers of NVIDIA HPS, the
 * messages made of them (publisher_hps.c). */
#ifndef FR_EXPORTER_PUBLISHER_OUTGOING_H
#define FR_EXPORTER_PUBLISHER_OUTGOING_H

#include "publisher_topic.h"

/* The receive_buffer_size of consumers of HPS, unless configured. */
enum { HPS_MESSAGE_MAX = 256 << 10 };

struct fr_outgoing_record {
    const char *topic; /* borrowed; NULL: the delta topic */
    uint32_t partition;
    bool begins; /* a new replica can begin with it in its partition */
    size_t size;
    uint8_t *bytes; /* memory of its own; NULL once librdkafka has it */
};

struct fr_outgoing {
    uint64_t epoch;
    bool begins; /* a timeline begins: `from` is 1, or there is a rewind */
    bool ends;   /* no further records of this epoch follow */
    int64_t timestamp_ms;
    struct fr_outgoing_record *records;
    size_t n, next, capacity;
    struct fr_publisher_hps *hps; /* NULL: nothing is written for HPS */
    uint64_t hps_rows, hps_drops; /* of these records */
};

/* Appends a copy of a record. topic: borrowed; NULL: the delta topic. */
struct fr_outgoing_record *fr_publisher_append(struct fr_outgoing *out, const char *topic, uint32_t partition,
                                               const void *bytes, size_t size);
void fr_publisher_clear_outgoing(struct fr_outgoing *out);
void fr_publisher_release_outgoing(struct fr_outgoing *out);

/* ---- publisher_hps.c ---- */

struct fr_publisher_hps *fr_publisher_hps_new(const struct fr_publisher_options *options);
void fr_publisher_hps_free(struct fr_publisher_hps *hps);
/* Checks that the topics for HPS exist, each with enough partitions; hps may be NULL. acked: at the
 * first look, the number of the acknowledged epoch: the topics must accept the largest message, and
 * a topic that is empty nevertheless causes a warning. NULL: it is a later look. */
enum fr_status fr_publisher_hps_check(struct fr_publisher_hps *hps, struct fr_publisher_board *board,
                                      rd_kafka_t *client, const uint64_t *acked, struct fr_err *err) FR_MUST_CHECK;
/* Appends what a delta record has for HPS. FR_E_CORRUPT: a table that the model does not have. */
enum fr_status fr_publisher_hps_add(struct fr_outgoing *out, const void *bytes, size_t size) FR_MUST_CHECK;

#endif
