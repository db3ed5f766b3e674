/* Shared by the Kafka clients of ingest: their settings and what they say of their connections. */
#ifndef FR_INGEST_KAFKA_INTERNAL_H
#define FR_INGEST_KAFKA_INTERNAL_H

#include "conf/conf.h"
#include "kafka/kafka.h"

/* What a client's own threads and callbacks say. Written by rd_kafka_poll's caller. */
struct fr_ingest_health {
    bool down; /* no broker of the cluster answers */
    /* a topic or partition in use was deleted: told to the client, not to its partitions'
     * readers */
    bool topic_gone;
    bool topic_denied; /* may not be read any more */
    char text[FR_KAFKA_TEXT_MAX];
};

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

#endif
