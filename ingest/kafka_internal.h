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
    bool topic_denied; /* may not be read any more */
    char text[FR_KAFKA_TEXT_MAX];
};

/* Reports every problem of the settings of the dead letters' producer. */
void fr_ingest_dead_report(const struct fr_conf *conf, const struct fr_kafka_report *report);

/* Fills in brokers, name and `ingest.kafka`, and listens for errors: the opaque begins with a
 * struct fr_ingest_health. */
enum fr_status fr_ingest_kafka_client(const struct fr_conf *conf, struct fr_kafka_options options, rd_kafka_t **out,
                                      struct fr_err *err) FR_MUST_CHECK;

/* What the operator cannot change: positions are ours alone, a lost offset is an error, ends are
 * reported. The consumers read it; a producer does not know it. */
#define FR_INGEST_KAFKA_FIXED                                                                                          \
    {"enable.auto.commit", "false"}, {"enable.auto.offset.store", "false"}, {"auto.offset.reset", "error"},            \
    {                                                                                                                  \
        "enable.partition.eof", "true"                                                                                 \
    }

/* A topic-partition in use; names has its name. */
struct fr_kafka_partition {
    uint32_t topic;      /* in conf->ingest.topics */
    int32_t leader;      /* as last asked; -1: none */
    int32_t broker;      /* that gave its last record since it was begun; -1: none did */
    uint32_t marks_late; /* times in a row that its record did not come in time */
    bool reading;
};

struct fr_kafka_lanes {
    uint32_t n, capacity;
    uint32_t *index; /* [n] of its partitions, in the layout */
};

struct fr_kafka_source {
    struct fr_ingest_health health; /* first: the clients' opaque */
    const struct fr_conf *conf;
    const struct fr_kafka_report *report; /* NULL except in fr_ingest_report */
    bool per_partition;
    uint32_t *order;               /* [n_topics] by name: the order of the layout */
    struct fr_kafka_lanes *topics; /* [n_topics] as in the conf; the opaque of the reader's */
    rd_kafka_t *probe, *reader;
    rd_kafka_topic_t **probe_topics, **reader_topics; /* [n_topics] */
    rd_kafka_queue_t *queue;                          /* of the reader, unless per_partition */
    rd_kafka_queue_t *commits;                        /* answers to commits */
    uint32_t n_partitions, capacity, n_commits;
    struct fr_source_partition *names;
    struct fr_kafka_partition *partitions;
    uint32_t empty_polls;
    uint64_t heard_ns;                /* when a broker last answered */
    struct fr_kafka_contact *contact; /* of the reader */
    struct fr_kafka_contact_count answered;
    struct fr_kafka_contact_time asked; /* when the first question of the last check was asked */
    uint64_t polled_ns;                 /* fr_clock_boot_ns of the last look at the reader */
    bool gap;                           /* contact was lost: check again */
    /* The message polled when the gap was seen: delivered after the check, unless its partition was
     * halted. NULL: none */
    rd_kafka_message_t *aside;
    bool twice; /* the last check took so long that another one follows */
    bool committed_error_said, policies_told;
    bool stable; /* the probe is asked for stable ends */
};

/* ---- kafka_source.c ---- */

/* Around one question of ours about a topic through the reader: its answer is no reason for
 * another one. */
struct fr_kafka_contact_count fr_ingest_kafka_asking(const struct fr_kafka_source *source);
void fr_ingest_kafka_asked(struct fr_kafka_source *source, struct fr_kafka_contact_count before);

/* ---- kafka_questions.c ---- */

/* The reader's or the probe's client, with a handle of each topic. */
enum fr_status fr_ingest_kafka_connect(struct fr_kafka_source *source, bool probe, rd_kafka_t **out,
                                       rd_kafka_topic_t ***topics, struct fr_err *err) FR_MUST_CHECK;
void fr_ingest_kafka_shut(struct fr_kafka_source *source, rd_kafka_t **client, rd_kafka_topic_t ***topics);
enum fr_status fr_ingest_kafka_probe(struct fr_kafka_source *source, struct fr_err *err) FR_MUST_CHECK;
/* ---- kafka_policies.c ---- */

/* Of the table of a source. */
enum fr_status fr_ingest_kafka_policies(void *self, struct fr_err *err) FR_MUST_CHECK;
/* False when the brokers do not show the topic's settings. */
bool fr_ingest_kafka_is_compacted(rd_kafka_t *client, char *topic);

/* ---- kafka_questions.c ---- */

/* Number in the layout of the partition that a message is of; false: none of ours. */
bool fr_ingest_kafka_index(const rd_kafka_message_t *message, uint32_t *index);
/* Of the table of a source. */
enum fr_status fr_ingest_kafka_discover(void *self, struct fr_source_layout *out, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ingest_kafka_offsets(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                                       struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ingest_kafka_marks(void *self, struct fr_source_answer *answers, uint32_t n,
                                     struct fr_err *err) FR_MUST_CHECK;

#endif
