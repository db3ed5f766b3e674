/* Clients: our settings, then the operator's, then what correctness fixes.
 *
 * All clients find a broker that is back within a second and carry a client.id that names their
 * model. Passwords never appear in a message: texts name the property, and its value only where
 * that is known to be no secret.
 *
 * Owner: none (functions only). */
#include "kafka/kafka.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "conf/conf.h"
#include "kafka_settings.h"

enum { PLACE_MAX = 160 }; /* bytes of a broker's name in a message */

/* Writes what a client logs. `reported`: the client's error callback reports that brokers are away,
 * so the line that comes with every attempt to connect adds nothing. */
static void log_line(int level, const char *facility, const char *text, bool reported)
{
    /* One producer and two kinds of consumers get the same properties: each warns of those meant
     * for the other. An embedded broker does not know auto-creation. */
    if (strcmp(facility, "CONFWARN") == 0 || strcmp(facility, "AUTOCREATE") == 0)
        return;
    char quoted[1024];
    bool repeated = reported && (strcmp(facility, "FAIL") == 0 || strcmp(facility, "ERROR") == 0);
    fr_log(level <= 4 && !repeated ? FR_LOG_WARN : FR_LOG_DEBUG, "kafka", "client", "facility=%s text=%s", facility,
           fr_log_quote(quoted, sizeof(quoted), text));
}

static void log_new_lines(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    log_line(level, facility, text, true);
}

static void log_all(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    log_line(level, facility, text, false);
}

/* If a report was requested, problems go to it. */
static void log_quietly(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client, (void)level;
    char quoted[1024];
    fr_log(FR_LOG_DEBUG, "kafka", "client", "facility=%s text=%s", facility,
           fr_log_quote(quoted, sizeof(quoted), text));
}

/* ---- settings ---- */

enum fr_status fr_kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct fr_err *err)
{
    char reason[512];
    rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, name, value, reason, sizeof(reason));
    if (result == RD_KAFKA_CONF_OK)
        return FR_OK;
    /* librdkafka's reason contains the value */
    if (result == RD_KAFKA_CONF_INVALID && !fr_conf_property_is_shown(name))
        return fr_err_set(err, FR_E_INVALID, "not a value that librdkafka takes (it may be a secret and is not shown)");
    return fr_err_set(err, FR_E_INVALID, "%s", reason);
}

static enum fr_status set_all(rd_kafka_conf_t *conf, const struct fr_kafka_setting *settings, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (; settings && settings->name && status == FR_OK; settings++)
        status = fr_kafka_set(conf, settings->name, settings->value, err);
    return status;
}

static enum fr_status set_property(rd_kafka_conf_t *conf, const struct fr_kafka_property *property, struct fr_err *err)
{
    enum fr_status status = fr_kafka_set(conf, property->name, property->value, err);
    if (status != FR_OK)
        (void)fr_err_wrap(err, "ingest.kafka.%s", property->name);
    return status;
}

static enum fr_status set_text(rd_kafka_conf_t *conf, const char *text, struct fr_err *err)
{
    char name[128];
    const char *equals = strchr(text, '=');
    size_t size = equals ? (size_t)(equals - text) : 0;
    if (size == 0 || size >= sizeof(name))
        return fr_err_set(err, FR_E_INVALID, "--kafka: no `=` after a name; expected NAME=VALUE");
    memcpy(name, text, size);
    name[size] = '\0';
    enum fr_status status = fr_kafka_set(conf, name, equals + 1, err);
    if (status != FR_OK)
        (void)fr_err_wrap(err, "--kafka %s", name);
    return status;
}

/* Interceptors of answers are added to a client, by a callback of the call that makes it. */
static rd_kafka_resp_err_t listen_to(rd_kafka_t *client, const rd_kafka_conf_t *conf, void *opaque, char *text,
                                     size_t size)
{
    const struct fr_kafka_listener *listener = opaque;
    (void)conf, (void)text, (void)size;
    return rd_kafka_interceptor_add_on_response_received(client, "answers", listener->on_answer, listener->opaque);
}

/* Returns true if the problem was passed to a report that collects all of them. */
static bool report_problem(const struct fr_kafka_options *options, const char *place, const struct fr_err *err)
{
    if (options->report)
        options->report->problem(options->report->self, place, err->text);
    return options->report != NULL;
}

static enum fr_status set_layers(rd_kafka_conf_t *conf, const struct fr_kafka_options *options, struct fr_err *err)
{
    char client_id[256];
    snprintf(client_id, sizeof(client_id), "freshet-%s", options->name);
    const struct fr_kafka_setting common[] = {
        {"client.id", client_id},
        {"socket.keepalive.enable", "true"},
        {"reconnect.backoff.max.ms", "1000"}, /* a broker that is back is found within a second */
        {"log.connection.close", "false"},
        {options->brokers && !options->report ? "bootstrap.servers" : NULL, options->brokers},
        {NULL, NULL},
    };
    enum fr_status status = set_all(conf, common, err);
    if (status == FR_OK)
        status = set_all(conf, options->ours, err);
    for (size_t i = 0; i < options->n_properties && status == FR_OK; i++) {
        const struct fr_kafka_property *property = &options->properties[i];
        status = set_property(conf, property, err);
        if (status != FR_OK && report_problem(options, property->place, err))
            status = FR_OK;
        else if (status != FR_OK && property->place)
            (void)fr_err_wrap(err, "%s", property->place);
    }
    if (status == FR_OK && options->file)
        status = fr_kafka_set_file(conf, options->file, options->brokers != NULL, err);
    for (size_t i = 0; i < options->n_texts && status == FR_OK; i++)
        status = set_text(conf, options->texts[i], err);
    return status == FR_OK ? set_all(conf, options->required, err) : status;
}

/* Where the operator wrote the settings. */
static const char *source_of(const struct fr_kafka_options *options)
{
    return options->file ? options->file : options->n_texts ? "--kafka" : "ingest.kafka";
}

/* The place of the property that librdkafka's reason begins with or quotes. */
static const char *place_of_reason(const struct fr_kafka_options *options, const char *reason)
{
    for (size_t i = 0; i < options->n_properties; i++)
        if (strstr(reason, options->properties[i].name))
            return options->properties[i].place;
    return options->n_properties > 0 ? options->properties[0].place : NULL;
}

static bool is_mechanism(const char *name)
{
    static const char mechanism[] = "sasl.mechanism"; /* and sasl.mechanisms */
    return strncmp(name, mechanism, sizeof(mechanism) - 1) == 0;
}

static bool mechanism_given(const struct fr_kafka_options *options)
{
    bool given = options->file != NULL; /* the file may set the mechanism */
    for (size_t i = 0; i < options->n_properties; i++)
        given |= is_mechanism(options->properties[i].name);
    for (size_t i = 0; i < options->n_texts; i++)
        given |= is_mechanism(options->texts[i]);
    return given;
}

/* Checks what librdkafka would report in words of its own, or not at all. */
static enum fr_status check(const rd_kafka_conf_t *conf, const struct fr_kafka_options *options, struct fr_err *err)
{
    char problem[256];
    if (options->brokers && !fr_conf_brokers_are_sound(options->brokers, problem, sizeof(problem)))
        return fr_err_set(err, FR_E_INVALID, "brokers: %s", problem);
    enum fr_status status = fr_kafka_check_login(conf, mechanism_given(options), err);
    if (status != FR_OK)
        (void)fr_err_wrap(err, "%s", source_of(options));
    return status;
}

enum fr_status fr_kafka_open(const struct fr_kafka_options *options, rd_kafka_t **out, struct fr_err *err)
{
    char reason[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    enum fr_status status = set_layers(conf, options, err);
    struct fr_err local = {0};
    if (status == FR_OK && (out || options->report) && (status = check(conf, options, &local)) != FR_OK) {
        rd_kafka_conf_destroy(conf);
        (void)fr_err_set(err, status, "%s", local.text);
        return report_problem(options, place_of_reason(options, local.text), &local) ? FR_OK : status;
    }
    if (status == FR_OK && (out || options->report)) {
        rd_kafka_conf_set_opaque(conf, options->opaque);
        rd_kafka_conf_set_log_cb(conf, options->report ? log_quietly : options->on_error ? log_new_lines : log_all);
        if (options->on_error)
            rd_kafka_conf_set_error_cb(conf, options->on_error);
        if (options->on_delivery)
            rd_kafka_conf_set_dr_msg_cb(conf, options->on_delivery);
        if (options->listener) {
            rd_kafka_resp_err_t error =
                rd_kafka_conf_interceptor_add_on_new(conf, "answers", listen_to, options->listener);
            FR_CHECK(error == RD_KAFKA_RESP_ERR_NO_ERROR);
        }
        rd_kafka_t *client = rd_kafka_new(options->type, conf, reason, sizeof(reason));
        if (client && options->report)
            rd_kafka_destroy(client);
        else if (client)
            *out = client;
        if (client)
            return FR_OK;
        status = fr_err_set(err, FR_E_INVALID, "%s: %s", source_of(options), reason);
        if (report_problem(options, place_of_reason(options, reason), err))
            status = FR_OK;
    }
    rd_kafka_conf_destroy(conf);
    return status;
}

/* ---- errors ---- */

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

const char *fr_kafka_refusal(const rd_kafka_message_t *message)
{
    if (message->err)
        return rd_kafka_err2str(message->err);
    return message->offset < 0 ? "acknowledged without an offset: the log may lack it" : NULL;
}

/* Texts of librdkafka when the two sides of a connection speak different protocols, and their
 * meaning. Brokers answer a client of the other kind by closing the connection; what a TLS listener
 * sends first (an alert, 0x15 03) is read as a size. */
static const struct {
    const char *said, *meaning;
} protocols[] = {
#define SPEAKS_TLS                                                                                                     \
    "this client speaks TLS, the listener seems to speak plaintext: set security.protocol to plaintext or "            \
    "sasl_plaintext (ingest.kafka; --kafka of tools), or name the brokers' TLS port"
#define SPEAKS_PLAINTEXT                                                                                               \
    "this client speaks plaintext, the listener seems to speak TLS: set security.protocol to ssl or sasl_ssl "         \
    "(ingest.kafka; --kafka of tools), or name the brokers' plaintext port"
    {"unexpected eof while reading", SPEAKS_TLS},
    {"wrong version number", SPEAKS_TLS},
    {"connecting to a PLAINTEXT broker listener", SPEAKS_TLS},
    {"connecting to a SSL listener", SPEAKS_PLAINTEXT},
    {"Invalid response size 3525", SPEAKS_PLAINTEXT},
    {"broker might require SASL",
     "the listener wants a login: set security.protocol to sasl_ssl or sasl_plaintext, with "
     "sasl.mechanism, sasl.username and sasl.password (ingest.kafka; --kafka of tools)"},
    {"Request not valid in current SASL state",
     "the listener takes no login: set security.protocol to ssl or plaintext (ingest.kafka; --kafka of tools), or name "
     "a port that does"},
};

static const char *meaning_of(const char *reason)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(protocols); i++)
        if (strstr(reason, protocols[i].said))
            return protocols[i].meaning;
    return NULL;
}

void fr_kafka_explain(int code, const char *reason, char *text, size_t size)
{
    const char *remedy = "", *meaning = meaning_of(reason);
    if (meaning) {
        const char *place_end = strstr(reason, ": ");
        size_t place = place_end ? (size_t)(place_end - reason) : 0, taken = strlen(meaning) + sizeof(": ");
        if (place > PLACE_MAX)
            place = PLACE_MAX;
        /* a long name is cut, so that the remedy is complete */
        if (place > 0 && taken + place > size)
            place = size > taken ? size - taken : 0;
        snprintf(text, size, "%.*s%s%s", (int)place, reason, place > 0 ? ": " : "", meaning);
        return;
    }
    if (code == RD_KAFKA_RESP_ERR__AUTHENTICATION)
        remedy = "; check sasl.mechanism, sasl.username and sasl.password under ingest.kafka";
    else if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        remedy =
            "; check ingest.brokers, and security.protocol under ingest.kafka: a TLS listener closes the connection "
            "of a client that speaks plaintext";
    else if (code == RD_KAFKA_RESP_ERR__SSL)
        remedy = "; check security.protocol and ssl.ca.location under ingest.kafka";
    snprintf(text, size, "%.160s%s", reason, remedy);
}

bool fr_kafka_explain_connection(int code, const char *reason, char *text, size_t size)
{
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && text[0])
        return false;
    fr_kafka_explain(code, reason, text, size);
    return true;
}
