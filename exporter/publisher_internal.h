/* What the publisher's files share: configuration of librdkafka handles, and the start check's
 * questions to the broker. */
#ifndef FR_EXPORTER_PUBLISHER_INTERNAL_H
#define FR_EXPORTER_PUBLISHER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "exporter/publisher.h"
#include "kafka/kafka.h"

enum {
    PENDING_EPOCHS_MAX = 1024, /* epochs in flight; a power of two */
    /* message.max.bytes: the largest piece_max (64 MiB) and its envelope */
    RECORD_BYTES_MAX = 65 << 20,
    IN_FLIGHT_DEFAULT = 64 << 20,
    BROKER_TIMEOUT_MS = 5000, /* metadata, watermarks, one fetched record */
};

struct outgoing_record {
    uint32_t partition;
    size_t size;
    uint8_t *bytes; /* librdkafka's once it took them; NULL then */
};

/* The epoch that is being handed to librdkafka: its records as bytes, so that a full queue
 * interrupts nothing. Each has memory of its own, which librdkafka frees: no copy is made. */
struct outgoing {
    uint64_t epoch;
    int64_t timestamp_ms;
    struct outgoing_record *records;
    size_t n, next, capacity;
};

struct pending_epoch {
    uint64_t epoch, outstanding;
    bool complete; /* all its records were produced */
};

struct fr_publisher {
    struct fr_publisher_options options; /* what it points to is the caller's */
    struct fr_kafka_property *properties;
    rd_kafka_t *producer;
    bool checked, failed;
    atomic_bool fatal; /* set from librdkafka's error callback */
    /* what a client last said of its connections, with the remedy; serving a client sets it */
    char connection[256];
    uint64_t sent, acked, highest_sent;
    struct outgoing out;
    struct pending_epoch pending[PENDING_EPOCHS_MAX];
    size_t pending_begin, n_pending;
    size_t in_flight_bytes;
    uint64_t retry_at_ns, backoff_ms;
    struct fr_borrowed_epoch borrowed;
    struct fr_buffer head_bytes;
    _Atomic uint64_t offered;
    struct fr_publisher_status tally;
    pthread_mutex_t mutex;             /* of status only */
    struct fr_publisher_status status; /* the tally as it was told last */
    unsigned long long logged_ns;
};

/* Fills in brokers, name, the operator's properties and callbacks. out NULL: only looks. */
enum fr_status fr_publisher_client(struct fr_publisher *publisher, struct fr_kafka_options options, rd_kafka_t **out,
                                   struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_publisher_producer(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;
/* Copies the tally for other threads. */
void fr_publisher_tell(struct fr_publisher *publisher);
void fr_publisher_problem(struct fr_publisher *publisher, const char *text); /* "": none */

/* publisher_topic.c: the topic exists (made when options.create), has `partitions` partitions, is
 * not compacted. */
enum fr_status fr_publisher_check_topic(struct fr_publisher *publisher, rd_kafka_t *client,
                                        struct fr_err *err) FR_MUST_CHECK;

#endif
