/* The settings of every librdkafka client that a program makes; it is linked with
 * --wrap=rd_kafka_new. */
#ifndef FR_TESTS_RECORDED_CLIENTS_H
#define FR_TESTS_RECORDED_CLIENTS_H

#include "case.h"

#include <librdkafka/rdkafka.h>

static struct recorded_client {
    rd_kafka_type_t type;
    char id[64], backoff_ms[16];
} recorded[256];
static size_t n_recorded;

rd_kafka_t *__real_rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *text, size_t size);
rd_kafka_t *__wrap_rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *text, size_t size);

rd_kafka_t *__wrap_rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *text, size_t size)
{
    assert_true(n_recorded < sizeof(recorded) / sizeof(recorded[0]));
    struct recorded_client *client = &recorded[n_recorded++];
    size_t id_size = sizeof(client->id), backoff_size = sizeof(client->backoff_ms);
    client->type = type;
    assert_int_equal(rd_kafka_conf_get(conf, "client.id", client->id, &id_size), RD_KAFKA_CONF_OK);
    assert_int_equal(rd_kafka_conf_get(conf, "reconnect.backoff.max.ms", client->backoff_ms, &backoff_size),
                     RD_KAFKA_CONF_OK);
    return __real_rd_kafka_new(type, conf, text, size);
}

/* Expects that a client of the type was made since `from`, and that all clients since then have the
 * id and reconnect within a second. */
static inline void expect_recorded(size_t from, rd_kafka_type_t type, const char *id)
{
    size_t found = 0;
    for (size_t i = from; i < n_recorded; i++) {
        found += recorded[i].type == type;
        assert_string_equal(recorded[i].id, id);
        assert_string_equal(recorded[i].backoff_ms, "1000");
    }
    assert_true(found > 0);
}

#endif
