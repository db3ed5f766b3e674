/* The librdkafka clients of ingest: which settings `ingest.kafka` may have, and what the clients
 * report of errors.
 *
 * Promises depend on some settings: another value of one of them is an error and is not ignored.
 *
 * Owner: none (functions only). */
#include "kafka_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ingest/ingest.h"

static const struct fr_kafka_setting fixed[] = {FR_INGEST_KAFKA_FIXED};

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct fr_ingest_health *health = opaque;
    char fatal[FR_KAFKA_TEXT_MAX];
    if (code == RD_KAFKA_RESP_ERR__FATAL && rd_kafka_fatal_error(client, fatal, sizeof(fatal)))
        reason = fatal;
    health->topic_gone |= code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
                          code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    health->topic_denied |= code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    health->down |= code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
    (void)fr_kafka_explain_connection(code, reason, health->text, sizeof(health->text));
}

static enum fr_status check_property(const struct fr_conf_property *property, struct fr_err *err)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(fixed); i++)
        if (strcmp(property->name, fixed[i].name) == 0 && strcmp(property->value, fixed[i].value) != 0)
            return fr_err_set(err, FR_E_INVALID,
                              "ingest.kafka.%s: must be %s (positions are kept with the model); remove it",
                              property->name, fixed[i].value);
    return FR_OK;
}

enum fr_status fr_ingest_kafka_client(const struct fr_conf *conf, struct fr_kafka_options options, rd_kafka_t **out,
                                      struct fr_err *err)
{
    struct fr_kafka_property *properties = fr_alloc(conf->ingest.n_kafka + 1, sizeof(*properties));
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < conf->ingest.n_kafka && status == FR_OK; i++) {
        const struct fr_conf_property *from = &conf->ingest.kafka[i];
        properties[i] = (struct fr_kafka_property){from->name, from->value, from->place};
        status = check_property(from, err);
        if (status != FR_OK && options.report) {
            options.report->problem(options.report->self, from->place, err->text);
            status = FR_OK;
        } else if (status != FR_OK) {
            (void)fr_err_wrap(err, "%s", from->place);
        }
    }
    options.brokers = conf->ingest.brokers;
    options.name = conf->model;
    options.properties = properties;
    options.n_properties = conf->ingest.n_kafka;
    options.on_error = on_error;
    if (status == FR_OK)
        status = fr_kafka_open(&options, out, err);
    free(properties);
    return status;
}

void fr_ingest_report(const struct fr_conf *conf, void (*problem)(void *self, const char *place, const char *text),
                      void *self)
{
    struct fr_kafka_report report = {problem, self};
    struct fr_kafka_source source = {.conf = conf, .report = &report};
    struct fr_err err = {0};
    for (int probe = 0; probe < 2 && conf->ingest.n_topics > 0; probe++)
        if (fr_ingest_kafka_connect(&source, probe, NULL, NULL, &err) != FR_OK)
            problem(self, NULL, err.text);
    if (conf->ingest.brokers)
        fr_ingest_dead_report(conf, &report);
}

const char *fr_ingest_kafka_version(void)
{
    return rd_kafka_version_str();
}
