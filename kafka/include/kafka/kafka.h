/* What all Kafka clients of the project share: settings, log, the meaning of errors, and looking
 * up and creating topics.
 *
 * Ingest, the exporter and the tool link this module privately, and librdkafka's types do not
 * appear in their interfaces. Thread: the one that owns the client. */
#ifndef FR_KAFKA_KAFKA_H
#define FR_KAFKA_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <librdkafka/rdkafka.h>

#include "base/status.h"

enum {
    FR_KAFKA_TEXT_MAX = 384, /* bytes of a text about a client's connections */
    FR_KAFKA_FILE_MAX = 1 << 16,
};

/* Lists of settings end with a NULL name. */
struct fr_kafka_setting {
    const char *name, *value;
};

/* One line of `ingest.kafka`. */
struct fr_kafka_property {
    const char *name, *value;
    const char *place; /* file:line:column; NULL: not known */
};

/* The receiver of every problem of a client's settings. `place`: the property's, or NULL. */
struct fr_kafka_report {
    void (*problem)(void *self, const char *place, const char *text);
    void *self;
};

/* A callback for each answer of a broker. It runs in the client's broker threads, before any
 * part of the answer is delivered. */
struct fr_kafka_listener {
    rd_kafka_interceptor_f_on_response_received_t *on_answer;
    void *opaque;
};

struct fr_kafka_options {
    rd_kafka_type_t type;
    const char *brokers;                        /* NULL: none */
    const char *name;                           /* client.id is freshet-NAME */
    const struct fr_kafka_setting *ours;        /* the operator's override them; may be NULL */
    const struct fr_kafka_property *properties; /* the operator's in the configuration */
    size_t n_properties;
    const char *file;         /* NAME=VALUE a line, of --kafka-file; NULL: none */
    const char *const *texts; /* the operator's on the command line: NAME=VALUE of each --kafka */
    size_t n_texts;
    const struct fr_kafka_setting *required; /* override all others; may be NULL */
    void *opaque;
    /* NULL: there is no listener, and the log has the errors of every attempt to connect. */
    void (*on_error)(rd_kafka_t *client, int code, const char *reason, void *opaque);
    void (*on_delivery)(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque);
    /* NULL: none. The struct is not kept, but its `opaque` is */
    struct fr_kafka_listener *listener;
    /* If not NULL, fr_kafka_open makes the client without brokers, reports every problem here,
     * frees the client and returns FR_OK without writing to out. */
    const struct fr_kafka_report *report;
};

/* Makes a client, which does not connect yet. FR_E_INVALID: a property is unknown, out of range,
 * or does not fit the others; the text names the property, and its value only if that may be
 * shown (fr_conf_property_is_shown). If out is NULL, only the settings are checked. */
enum fr_status fr_kafka_open(const struct fr_kafka_options *options, rd_kafka_t **out,
                             struct fr_err *err) FR_MUST_CHECK;

/* FR_E_DENIED for authorisation, FR_E_UNAVAILABLE for everything else a broker may answer. */
enum fr_status fr_kafka_status(rd_kafka_resp_err_t code);
/* Reads a delivery report. Returns NULL if the record is in the log, otherwise why it is not
 * known to be there (static). A report without an error and without an offset proves nothing:
 * the client library treats a request that a broker refused as written once a later request of
 * its partition succeeds. Brokers allow this for the first records of a producer, because a
 * leader that has no record of the producer accepts any sequence number. A new partition or a
 * new leader may therefore lack records that were reported as delivered (seen with librdkafka
 * 2.0.2 and Kafka 4.1; max.in.flight.requests.per.connection=1 avoids it and keeps the order). */
const char *fr_kafka_refusal(const rd_kafka_message_t *message);
/* Writes the reason of an error to text and, if a remedy is known, what to check. */
void fr_kafka_explain(int code, const char *reason, char *text, size_t size);
/* The same for a client's on_error, where text has the newest reason ("": none). "All brokers are
 * down" says less than the reason before it and does not replace it. Returns whether text was
 * written. */
bool fr_kafka_explain_connection(int code, const char *reason, char *text, size_t size);

struct fr_kafka_topic {
    uint32_t partitions;       /* 0: the topic does not exist, or `error` says why it cannot be
                                * read */
    uint32_t replicas;         /* of partition 0 */
    rd_kafka_resp_err_t error; /* the brokers' error; absence is not an error */
    bool led;                  /* each partition has a leader */
    /* The cluster has a controller, which answers requests about topics; the embedded broker names
     * one that is none of its brokers. */
    bool administrable;
};

/* Gets what the brokers know of a topic, or an error if they do not answer. If `listed`, the
 * topic is looked up in the list of all topics; otherwise the request of a producer creates the
 * topic if the brokers allow that. */
rd_kafka_resp_err_t fr_kafka_topic_ask(rd_kafka_t *client, const char *topic, bool listed, int wait_ms,
                                       struct fr_kafka_topic *out);
struct fr_kafka_new_topic {
    const char *name;
    uint32_t partitions;
    uint32_t replicas;                       /* of each partition; 0: the brokers' default */
    const struct fr_kafka_setting *settings; /* NULL: the brokers' defaults */
};

/* Creates a topic. FR_OK: the topic exists, new or from before; brokers may need a while to show
 * it. FR_AGAIN: the cluster does not answer such requests. FR_E_INVALID, FR_E_DENIED,
 * FR_E_UNAVAILABLE: err has only the reason. */
enum fr_status fr_kafka_topic_create(rd_kafka_t *client, const struct fr_kafka_new_topic *wanted,
                                     struct fr_err *err) FR_MUST_CHECK;
/* A topic's settings, its own or those that it has from the brokers. */
struct fr_kafka_topic_settings {
    rd_kafka_resp_err_t error; /* why the settings are unknown; if set, no other field is valid */
    char cleanup[32];          /* cleanup.policy; "": not known */
    bool compacted;            /* cleanup.policy contains `compact` */
    int64_t retention_ms;      /* -1: without end */
    int64_t retention_bytes;   /* of a partition; -1: without end */
    uint64_t message_bytes;    /* max.message.bytes, of a batch; 0: not known */
    char compression[16];      /* compression.type */
};
/* Requests the settings of n topics at once and writes out[n]. Returns false if there was no
 * answer; text has the reason. */
bool fr_kafka_topic_describe(rd_kafka_t *client, char *const *topics, uint32_t n, struct fr_kafka_topic_settings *out,
                             char text[FR_KAFKA_TEXT_MAX]);

#endif
