/* Configuration of the librdkafka clients: our defaults, then the operator's `ingest.kafka`, then
 * what correctness fixes.
 *
 * Some settings carry promises (positions are ours alone, a lost offset is an error, ends are
 * reported): the operator cannot change them, and asking for another value is an error, not
 * ignored. Passwords never appear in a message: texts name the property, not its value, unless
 * librdkafka itself found the value out of range. Owner: none (functions only). */
#include "kafka_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

/* Read by the consumers; a producer does not know them. */
static const struct fr_kafka_setting fixed[] = {
    {"enable.auto.commit", "false"},
    {"enable.auto.offset.store", "false"},
    {"auto.offset.reset", "error"},
    {"enable.partition.eof", "true"},
};

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    /* One producer and two kinds of consumers get the same properties: each warns of those meant
     * for the other. An embedded broker does not know auto-creation. */
    if (strcmp(facility, "CONFWARN") == 0 || strcmp(facility, "AUTOCREATE") == 0)
        return;
    char quoted[1024];
    /* While a broker is away every attempt to connect is such a line; the status says it, and the
     * log once (ingest.c). */
    bool repeated = strcmp(facility, "FAIL") == 0 || strcmp(facility, "ERROR") == 0;
    fr_log(level <= 4 && !repeated ? FR_LOG_WARN : FR_LOG_DEBUG, "kafka", "client", "facility=%s text=%s", facility,
           fr_log_quote(quoted, sizeof(quoted), text));
}

static enum fr_status set(rd_kafka_conf_t *kafka, const char *name, const char *value, struct fr_err *err)
{
    char reason[512];
    if (rd_kafka_conf_set(kafka, name, value, reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
        return fr_err_set(err, FR_E_INVALID, "%s", reason);
    return FR_OK;
}

static enum fr_status set_all(rd_kafka_conf_t *kafka, const struct fr_kafka_setting *settings, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (; status == FR_OK && settings->name; settings++)
        status = set(kafka, settings->name, settings->value, err);
    return status;
}

static enum fr_status set_property(rd_kafka_conf_t *kafka, const struct fr_conf_property *property, struct fr_err *err)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(fixed); i++)
        if (strcmp(property->name, fixed[i].name) == 0 && strcmp(property->value, fixed[i].value) != 0)
            return fr_err_set(err, FR_E_INVALID,
                              "line %u: ingest.kafka.%s: must be %s (positions are kept with the model); remove it",
                              property->line, property->name, fixed[i].value);
    enum fr_status status = set(kafka, property->name, property->value, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "line %u: ingest.kafka.%s", property->line, property->name);
    return FR_OK;
}

enum fr_status fr_kafka_conf(const struct fr_conf *conf, const struct fr_kafka_setting *before,
                             const struct fr_kafka_setting *after, rd_kafka_conf_t **out, struct fr_err *err)
{
    rd_kafka_conf_t *kafka = rd_kafka_conf_new();
    char client_id[FR_MODEL_MAX + 16];
    snprintf(client_id, sizeof(client_id), "freshet-%s", conf->model);
    const struct fr_kafka_setting common[] = {
        {"bootstrap.servers", conf->ingest.brokers},
        {"client.id", client_id},
        {"socket.keepalive.enable", "true"},
        {"reconnect.backoff.max.ms", "1000"}, /* a broker that is back is found within a second */
        {"log.connection.close", "false"},
        {NULL, NULL},
    };
    enum fr_status status = set_all(kafka, common, err);
    if (status == FR_OK)
        status = set_all(kafka, before, err);
    for (size_t i = 0; status == FR_OK && i < conf->ingest.n_kafka; i++)
        status = set_property(kafka, &conf->ingest.kafka[i], err);
    if (status == FR_OK)
        status = set_all(kafka, after, err);
    if (status != FR_OK) {
        rd_kafka_conf_destroy(kafka);
        return status;
    }
    rd_kafka_conf_set_log_cb(kafka, on_log);
    rd_kafka_conf_set_error_cb(kafka, fr_kafka_on_error);
    *out = kafka;
    return FR_OK;
}

void fr_kafka_on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct fr_kafka_health *health = opaque;
    char fatal[FR_KAFKA_TEXT_MAX];
    if (code == RD_KAFKA_RESP_ERR__FATAL && rd_kafka_fatal_error(client, fatal, sizeof(fatal)))
        reason = fatal;
    health->topic_gone |= code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
                          code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    health->topic_denied |= code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        health->down = true;
        if (health->text[0]) /* the reason before it says more */
            return;
    }
    const char *remedy = "";
    if (code == RD_KAFKA_RESP_ERR__AUTHENTICATION)
        remedy = "; check sasl.mechanism, sasl.username and sasl.password under ingest.kafka";
    else if (code == RD_KAFKA_RESP_ERR__SSL)
        remedy = "; check security.protocol and ssl.ca.location under ingest.kafka";
    snprintf(health->text, sizeof(health->text), "%.160s%s", reason, remedy);
}

enum fr_status fr_kafka_status(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
        return FR_E_DENIED;
    default:
        return FR_E_UNAVAILABLE;
    }
}
