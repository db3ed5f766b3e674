/* Shared by the librdkafka clients of ingest: their configuration, their log, their last error. */
#ifndef FR_INGEST_KAFKA_INTERNAL_H
#define FR_INGEST_KAFKA_INTERNAL_H

#include <librdkafka/rdkafka.h>

#include "conf/conf.h"

enum { FR_KAFKA_TEXT_MAX = 256 };

struct fr_kafka_setting {
    const char *name, *value;
};

/* What a client's own threads and callbacks say. Written by rd_kafka_poll's caller. */
struct fr_kafka_health {
    bool down; /* no broker of the cluster answers */
    /* a topic or partition in use was deleted: told to the client, not to its partitions'
     * readers */
    bool topic_gone;
    bool topic_denied; /* may not be read any more */
    char text[FR_KAFKA_TEXT_MAX];
};

/* `before` are our defaults, ingest.kafka goes over them, `after` over all (both end with a NULL
 * name). `health` is the opaque of the callbacks, or NULL. */
enum fr_status fr_kafka_conf(const struct fr_conf *conf, const struct fr_kafka_setting *before,
                             const struct fr_kafka_setting *after, rd_kafka_conf_t **out,
                             struct fr_err *err) FR_MUST_CHECK;
/* Error callback for a client whose opaque begins with a struct fr_kafka_health. */
void fr_kafka_on_error(rd_kafka_t *client, int code, const char *reason, void *health);
/* FR_E_DENIED for authorisation, FR_E_UNAVAILABLE for everything else a broker may answer. */
enum fr_status fr_kafka_status(rd_kafka_resp_err_t code);

#endif
