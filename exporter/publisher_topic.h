/* Queries about topics: whether a topic exists, what it keeps and accepts (publisher_topic.c);
 * where partitions begin and end, and which records are there (publisher_read.c). Whose records
 * they are is not judged here. */
#ifndef FR_EXPORTER_PUBLISHER_TOPIC_H
#define FR_EXPORTER_PUBLISHER_TOPIC_H

#include "publisher_board.h"

enum {
    BROKER_TIMEOUT_MS = 5000, /* metadata, offsets, fetched records */
    BATCH_ROOM = 128,         /* bytes that Kafka adds around one record and counts in its size */
};

struct fr_publisher_topic {
    struct fr_publisher_board *board;
    uint32_t partitions; /* of the delta topic, as last counted */
    bool administrable;  /* the brokers answer queries about a topic's settings */
    uint64_t begun_ns;   /* when the publisher was made */
    uint64_t settings_asked_ns;
    struct { /* the record that tally.refused describes */
        char topic[250];
        uint64_t bytes; /* size that the topic must accept in one batch */
    } refused;
};

/* Checks that the topic exists and has at least `partitions` partitions. A missing topic is created
 * if options.create is set. */
enum fr_status fr_publisher_find_topic(struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                       struct fr_kafka_topic *found, struct fr_err *err) FR_MUST_CHECK;
/* Checks that the topic accepts a batch of one record of this many bytes, as far as brokers answer.
 * FR_E_MISMATCH: it does not. what: the option that allows such a record. */
enum fr_status fr_publisher_check_size(rd_kafka_t *client, const char *topic, const char *what, uint64_t bytes,
                                       struct fr_err *err) FR_MUST_CHECK;
/* Checks that the delta topic exists, has `partitions` partitions and is not compacted. first: also
 * checks its size limit; at a later inspection a small limit only makes records wait. */
enum fr_status fr_publisher_check_topic(struct fr_publisher_topic *topic, rd_kafka_t *client, bool first,
                                        struct fr_err *err) FR_MUST_CHECK;
/* Once an hour: queries the retention of the delta topic, and warns if it is too short. */
void fr_publisher_check_retention(struct fr_publisher_topic *topic, rd_kafka_t *client, uint64_t now_ns);

/* Reports that a topic refused a record: sets the problem, with the setting to change if there is
 * one. */
void fr_publisher_record_refused(struct fr_publisher_topic *topic, const rd_kafka_message_t *message);
/* Whether the topic that refused a record accepts one of that size now, as far as brokers
 * answer. */
bool fr_publisher_accepts_refused(const struct fr_publisher_topic *topic, rd_kafka_t *client);

/* ---- publisher_read.c ---- */

/* The envelope of a record of the topic. */
struct fr_topic_record {
    bool found;
    int64_t offset;
    int64_t written_ms; /* its Kafka timestamp; -1: none */
    /* FR_OK, or why it is not a delta record of this format; `problem` has the text */
    enum fr_status status;
    enum fr_delta_kind kind;
    uint64_t timeline, epoch, from, digest;
    uint32_t partition, np, piece;
    char model[128];
    char problem[128];
};

struct fr_topic_span {
    int32_t partition;
    int64_t from, to; /* offsets; `to` is exclusive */
    uint64_t strays;  /* records without a valid crc in the span */
    bool done;
};

struct fr_topic_visitor {
    void *self;
    /* true: no further record of this span is wanted */
    bool (*record)(void *self, int32_t partition, const struct fr_topic_record *record);
};

/* A consumer that joins no group and creates nothing. */
enum fr_status fr_publisher_reader_open(struct fr_publisher_board *board, rd_kafka_t **out,
                                        struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_reader_close(rd_kafka_t *client);
/* Queries the first and the next offset of each partition of this publisher, in two requests,
 * with any client. low, high: [partitions], of which those of this publisher are set. */
enum fr_status fr_publisher_ends(const struct fr_publisher_board *board, rd_kafka_t *client, int64_t *low,
                                 int64_t *high, struct fr_err *err) FR_MUST_CHECK;
/* Visits the records of all spans, in order within each span. Strays are counted and not visited.
 * FR_E_UNAVAILABLE: some records did not arrive in time. */
struct fr_topic_reading {
    struct fr_publisher_board *board;
    rd_kafka_t *client; /* a client that fr_publisher_reader_open made */
    struct fr_topic_span *spans;
    size_t n;
};
enum fr_status fr_publisher_read(const struct fr_topic_reading *reading, const struct fr_topic_visitor *visitor,
                                 struct fr_err *err) FR_MUST_CHECK;

#endif
