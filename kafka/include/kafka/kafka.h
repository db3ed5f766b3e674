/* What every Kafka client of ours has in common: its settings, its log, what its errors mean, and
 * topics, which are looked up and made.
 *
 * Linked privately by ingest, the exporter and the tool; librdkafka's types stay behind them.
 * Thread: the one that owns the client. */
#ifndef FR_KAFKA_KAFKA_H
#define FR_KAFKA_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <librdkafka/rdkafka.h>

#include "base/status.h"

enum {
    FR_KAFKA_TEXT_MAX = 384, /* of what a client says of its connections */
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

/* Who is told of every problem of a client's settings; place: NULL, or that of the property. */
struct fr_kafka_report {
    void (*problem)(void *self, const char *place, const char *text);
    void *self;
};

/* Hears of each answer of a broker, in the client's broker threads, before anything of it is given
 * to anybody. */
struct fr_kafka_listener {
    rd_kafka_interceptor_f_on_response_received_t *on_answer;
    void *opaque;
};

struct fr_kafka_options {
    rd_kafka_type_t type;
    const char *brokers;                        /* NULL: none */
    const char *name;                           /* client.id is freshet-NAME: of the model */
    const struct fr_kafka_setting *ours;        /* the operator's go over them; may be NULL */
    const struct fr_kafka_property *properties; /* the operator's in the configuration */
    size_t n_properties;
    const char *file;         /* NAME=VALUE a line, of --kafka-file; NULL: none */
    const char *const *texts; /* the operator's on the command line: NAME=VALUE of each --kafka */
    size_t n_texts;
    const struct fr_kafka_setting *required; /* go over all; may be NULL */
    void *opaque;
    /* NULL: nobody listens, and the log has what is said of every attempt to connect. */
    void (*on_error)(rd_kafka_t *client, int code, const char *reason, void *opaque);
    void (*on_delivery)(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque);
    struct fr_kafka_listener *listener; /* NULL: none; not kept, its opaque is */
    /* Not NULL: makes the client without brokers, tells of every problem, frees it and gives FR_OK,
     * writing nothing to out. */
    const struct fr_kafka_report *report;
};

/* Connects to nothing yet. FR_E_INVALID: a property is unknown, out of range, or does not fit the
 * others; the text names it, and its value only where that may be shown
 * (fr_conf_property_is_shown). out NULL: only looks at the settings. */
enum fr_status fr_kafka_open(const struct fr_kafka_options *options, rd_kafka_t **out,
                             struct fr_err *err) FR_MUST_CHECK;

/* FR_E_DENIED for authorisation, FR_E_UNAVAILABLE for everything else a broker may answer. */
enum fr_status fr_kafka_status(rd_kafka_resp_err_t code);
/* Of a delivery report: NULL when the record is in the log, else why it is not known to be there
 * (static). A report without an error and without an offset proves nothing. The client library
 * takes a request that a broker refused for written once a later one of its partition succeeds,
 * which brokers allow for the first records of a producer: a leader that knows nothing of it takes
 * any sequence number. So a new partition or a new leader may lack records that were reported
 * delivered (seen with librdkafka 2.0.2 and Kafka 4.1; max.in.flight.requests.per.connection=1
 * avoids it and keeps the order). */
const char *fr_kafka_refusal(const rd_kafka_message_t *message);
/* The reason and, where one is known, what to look at. */
void fr_kafka_explain(int code, const char *reason, char *text, size_t size);

struct fr_kafka_topic {
    uint32_t partitions;       /* 0: it is not there, or `error` says why it cannot be read */
    rd_kafka_resp_err_t error; /* what the brokers say of it; absence is none */
    bool led;                  /* each partition has a leader */
    /* The cluster has a controller, which answers requests about topics; the embedded broker names
     * one that is none of its brokers. */
    bool administrable;
};

/* What the brokers know of a topic; an error when they do not answer. `listed`: looks into the list
 * of all topics. Otherwise a producer's question makes the topic where brokers allow that. */
rd_kafka_resp_err_t fr_kafka_topic_ask(rd_kafka_t *client, const char *topic, bool listed, int wait_ms,
                                       struct fr_kafka_topic *out);
/* FR_OK: it is there now, or was; brokers may need a while to show it. FR_AGAIN: the cluster does
 * not answer such requests. FR_E_INVALID, FR_E_DENIED, FR_E_UNAVAILABLE: err has
 * the reason alone. */
enum fr_status fr_kafka_topic_create(rd_kafka_t *client, const char *topic, uint32_t partitions,
                                     const struct fr_kafka_setting *settings, struct fr_err *err) FR_MUST_CHECK;
/* A topic's settings, its own or those that it has from the brokers. */
struct fr_kafka_topic_settings {
    rd_kafka_resp_err_t error; /* why the brokers do not tell them; then nothing else is known */
    char cleanup[32];          /* cleanup.policy; "": not known */
    bool compacted;            /* by it */
    int64_t retention_ms;      /* -1: without end */
    int64_t retention_bytes;   /* of a partition; -1: without end */
    uint64_t message_bytes;    /* max.message.bytes, of a batch; 0: not known */
    char compression[16];      /* compression.type */
};
/* Asks for the settings of n topics at once: [n] in out. false: no answer, and why in text. */
bool fr_kafka_topic_describe(rd_kafka_t *client, char *const *topics, uint32_t n, struct fr_kafka_topic_settings *out,
                             char text[FR_KAFKA_TEXT_MAX]);

#endif
