/* Questions about topics: does one exist, what does it keep and take (publisher_topic.c); where do
 * partitions begin and end, which records lie there (publisher_read.c). Answers are not judged here
 * by whose records they are. */
#ifndef FR_EXPORTER_PUBLISHER_TOPIC_H
#define FR_EXPORTER_PUBLISHER_TOPIC_H

#include "publisher_board.h"

enum {
    BROKER_TIMEOUT_MS = 5000, /* metadata, offsets, fetched records */
    BATCH_ROOM = 128,         /* what Kafka puts around one record and counts with it */
};

struct fr_publisher_topic {
    struct fr_publisher_board *board;
    uint32_t partitions; /* of the delta topic, as last counted */
    bool administrable;  /* the brokers answer questions about a topic's settings */
    uint64_t begun_ns;   /* when the publisher was made */
    uint64_t settings_asked_ns;
    struct { /* the record that tally.refused is about */
        char topic[250];
        uint64_t bytes; /* that the topic has to take in one batch */
    } refused;
};

/* The topic exists (it is made when options.create) and has at least `partitions` partitions. */
enum fr_status fr_publisher_find_topic(struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                       struct fr_kafka_topic *found, struct fr_err *err) FR_MUST_CHECK;
/* The topic takes a batch of one record of so many bytes, as far as brokers answer; FR_E_MISMATCH.
 * what: the option that lets a record be so large. */
enum fr_status fr_publisher_check_size(rd_kafka_t *client, const char *topic, const char *what, uint64_t bytes,
                                       struct fr_err *err) FR_MUST_CHECK;
/* The delta topic exists, has `partitions` partitions and is not compacted. first: its size limit
 * is checked too, which later can only make records wait. */
enum fr_status fr_publisher_check_topic(struct fr_publisher_topic *topic, rd_kafka_t *client, bool first,
                                        struct fr_err *err) FR_MUST_CHECK;
/* Once an hour: asks what the delta topic keeps, and warns when that is too little. */
void fr_publisher_check_retention(struct fr_publisher_topic *topic, rd_kafka_t *client, uint64_t now_ns);

/* A topic did not take a record: sets the problem, with what to set where that helps. */
void fr_publisher_record_refused(struct fr_publisher_topic *topic, const rd_kafka_message_t *message);
/* Whether the topic that refused a record takes one of that size now, as far as brokers answer. */
bool fr_publisher_takes_refused(const struct fr_publisher_topic *topic, rd_kafka_t *client);

/* ---- publisher_read.c ---- */

/* The envelope of a record of the topic. */
struct fr_topic_record {
    bool found;
    int64_t offset;
    int64_t written_ms;    /* its Kafka timestamp; -1: none */
    enum fr_status status; /* FR_OK, or why it is no delta record of this format, with `problem` */
    enum fr_delta_kind kind;
    uint64_t timeline, epoch, from, digest;
    uint32_t partition, np, piece;
    char model[128];
    char problem[128];
};

struct fr_topic_span {
    int32_t partition;
    int64_t from, to; /* offsets; `to` is not in it */
    uint64_t strays;  /* records without a valid crc that were met */
    bool done;
};

struct fr_topic_visitor {
    void *self;
    /* true: nothing more of this span is wanted */
    bool (*record)(void *self, int32_t partition, const struct fr_topic_record *record);
};

/* A consumer that joins no group and creates nothing. */
enum fr_status fr_publisher_reader_open(struct fr_publisher_board *board, rd_kafka_t **out,
                                        struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_reader_close(rd_kafka_t *client);
/* First offset and next offset of every partition of the delta topic, in two questions; any
 * client. */
enum fr_status fr_publisher_ends(const struct fr_publisher_board *board, rd_kafka_t *client, int64_t *low,
                                 int64_t *high, struct fr_err *err) FR_MUST_CHECK;
/* Visits the records of all spans, each span's in order. Strays are counted and not visited.
 * FR_E_UNAVAILABLE: some did not come in time. */
struct fr_topic_reading {
    struct fr_publisher_board *board;
    rd_kafka_t *client; /* of fr_publisher_reader_open */
    struct fr_topic_span *spans;
    size_t n;
};
enum fr_status fr_publisher_read(const struct fr_topic_reading *reading, const struct fr_topic_visitor *visitor,
                                 struct fr_err *err) FR_MUST_CHECK;

#endif
