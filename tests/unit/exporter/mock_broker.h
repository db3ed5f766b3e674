/* librdkafka's embedded broker for a group of the publisher's cases. */
#ifndef EXPORTER_MOCK_BROKER_H
#define EXPORTER_MOCK_BROKER_H

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "publisher_fixture.h"

static rd_kafka_t *host;
static rd_kafka_mock_cluster_t *cluster;

FR_FIXTURE(start_broker)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", text, sizeof(text)), RD_KAFKA_CONF_OK);
    assert_int_equal(rd_kafka_conf_set(conf, "log_level", "3", text, sizeof(text)), RD_KAFKA_CONF_OK);
    host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
    assert_non_null(host);
    cluster = rd_kafka_handle_mock_cluster(host);
    brokers = rd_kafka_mock_cluster_bootstraps(cluster);
    return 0;
}

FR_FIXTURE(stop_broker)
{
    rd_kafka_destroy(host);
    return 0;
}

/* An empty topic of two partitions. */
static inline void new_topic(void)
{
    static int number;
    snprintf(topic, sizeof(topic), "delta-%d", ++number);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, topic, FIXTURE_PARTITIONS, 1), 0);
}

#endif
