/* Shared by the Kafka clients of ingest: their settings and the state of their connections. */
#ifndef FR_INGEST_KAFKA_INTERNAL_H
#define FR_INGEST_KAFKA_INTERNAL_H

#include "conf/conf.h"
#include "ingest/source.h"
#include "kafka/kafka.h"
#include "kafka/contact.h"

/* Errors reported by a client's threads and callbacks. Written by the caller of rd_kafka_poll. */
struct fr_ingest_health {
    bool down; /* no broker of the cluster answers */
    /* a topic or partition in use was deleted: reported to the client, not to the readers of its
     * partitions */
    bool topic_gone;
    bool topic_denied; /* a topic in use may not be read any more */
    char text[FR_KAFKA_TEXT_MAX];
};

/* Reports every problem of the settings of the dead letters' producer. */
void fr_ingest_dead_report(const struct fr_conf *conf, const struct fr_kafka_report *report);

/* Opens a client with the brokers, name and `ingest.kafka` of the conf, and registers the callback
 * for errors: options.opaque must begin with a struct fr_ingest_health. */
enum fr_status fr_ingest_kafka_client(const struct fr_conf *conf, struct fr_kafka_options options, rd_kafka_t **out,
                                      struct fr_err *err) FR_MUST_CHECK;

/* Settings that the operator cannot change: positions are kept with the model only, a lost offset
 * is an error, ends are reported. They are settings of consumers; a producer does not know them. */
#define FR_INGEST_KAFKA_FIXED                                                                                          \
    {"enable.auto.commit", "false"}, {"enable.auto.offset.store", "false"}, {"auto.offset.reset", "error"},            \
    {                                                                                                                  \
        "enable.partition.eof", "true"                                                                                 \
    }

/* A topic-partition in use; `names` of the source has its name. */
struct fr_kafka_partition {
    uint32_t topic;      /* index in conf->ingest.topics */
    int32_t leader;      /* the leader when last asked; -1: none */
    int32_t broker;      /* the broker of its first record since it was begun; -1: no record came */
    uint32_t marks_late; /* how often in a row the record of its mark did not come in time */
    bool reading;
};

/* The partitions of one topic. */
struct fr_kafka_lanes {
    uint32_t n, capacity;
    uint32_t *index; /* [n] their numbers in the layout */
};

struct fr_kafka_source {
    struct fr_ingest_health health; /* first: the clients' opaque */
    const struct fr_conf *conf;
    const struct fr_kafka_report *report; /* NULL except in fr_ingest_report */
    bool per_partition;
    /* [n_topics] indexes of the topics, ordered by name, as in the layout */
    uint32_t *order;
    /* [n_topics] in the order of the conf; each is the opaque of the reader's handle of its
     * topic */
    struct fr_kafka_lanes *topics;
    rd_kafka_t *probe, *reader;
    rd_kafka_topic_t **probe_topics, **reader_topics; /* [n_topics] */
    rd_kafka_queue_t *queue;                          /* the reader's queue, unless per_partition */
    rd_kafka_queue_t *commits;                        /* replies to commits */
    uint32_t n_partitions, capacity, n_commits;
    struct fr_source_partition *names;
    struct fr_kafka_partition *partitions;
    uint32_t empty_polls;
    uint64_t heard_ns;                /* when a broker last answered */
    struct fr_kafka_contact *contact; /* contact of the reader with its brokers */
    struct fr_kafka_contact_count answered;
    struct fr_kafka_contact_time asked; /* when the first question of the last check was asked */
    uint64_t polled_ns;                 /* fr_clock_boot_ns when the reader was last polled */
    bool gap;                           /* contact was lost, which is not reported yet */
    /* the message that was polled when the gap was noticed; it is delivered after the check, unless
     * its partition was halted; NULL: none */
    rd_kafka_message_t *aside;
    bool twice; /* a second check follows, because the last one took long */
    bool commit_error_logged, policies_logged;
    bool stable; /* the probe reads committed records only, to ask for stable ends */
};

/* ---- kafka_source.c ---- */

/* To be called before and after a question that ingest itself asks about a topic through the
 * reader, because the answer to it is no sign that contact was lost. */
struct fr_kafka_contact_count fr_ingest_kafka_asking(const struct fr_kafka_source *source);
void fr_ingest_kafka_asked(struct fr_kafka_source *source, struct fr_kafka_contact_count before);

/* ---- kafka_questions.c ---- */

/* Opens the client of the reader or of the probe, with a handle of each topic. */
enum fr_status fr_ingest_kafka_connect(struct fr_kafka_source *source, bool probe, rd_kafka_t **out,
                                       rd_kafka_topic_t ***topics, struct fr_err *err) FR_MUST_CHECK;
void fr_ingest_kafka_shut(struct fr_kafka_source *source, rd_kafka_t **client, rd_kafka_topic_t ***topics);
/* Opens the probe if it is not open. */
enum fr_status fr_ingest_kafka_probe(struct fr_kafka_source *source, struct fr_err *err) FR_MUST_CHECK;
/* Gets the number in the layout of a message's partition; false: the partition does not belong
 * to this source. */
bool fr_ingest_kafka_index(const rd_kafka_message_t *message, uint32_t *index);
/* Operations of struct fr_source. */
enum fr_status fr_ingest_kafka_discover(void *self, struct fr_source_layout *out, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ingest_kafka_offsets(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                                       struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ingest_kafka_marks(void *self, struct fr_source_answer *answers, uint32_t n,
                                     struct fr_err *err) FR_MUST_CHECK;

/* ---- kafka_policies.c ---- */

/* An operation of struct fr_source. */
enum fr_status fr_ingest_kafka_policies(void *self, struct fr_err *err) FR_MUST_CHECK;
/* Whether the topic is compacted; false, too, if the brokers do not show its settings. */
bool fr_ingest_kafka_is_compacted(rd_kafka_t *client, char *topic);

#endif
