/* What --check finds that the grammar cannot: settings of the Kafka clients, each with its place,
 * several at once, no secret in a message, and no broker asked. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "config_check.h"

static const char frame[] = "version: 1\n"
                            "model: m\n"
                            "state_dir: /tmp/m\n"
                            "ingest:\n"
                            "  brokers: b\n"
                            "  topic: samples\n"
                            "  kafka:\n"
                            "%s"
                            "tables: {user: {dim: 2}}\n"
                            "slots: {user_id: {table: user}}\n"
                            "labels: {click: {}}\n"
                            "network: {layers: [{name: out, dense: user_id, units: 1}]}\n"
                            "tasks: [{name: click, label: click, logit: out}]\n";

/* Returns the messages about `ingest.kafka`, whose first line is line 8; freed by the caller. */
static char *said_of(const char *kafka)
{
    char text[4096];
    struct fr_buffer problems = {0}, out = {0};
    struct fr_conf *conf = NULL;
    snprintf(text, sizeof(text), frame, kafka);
    struct fr_conf_load_options load = {.path = "c.yaml", .text = text};
    if (fr_conf_load(&load, &conf, &problems) != FR_OK)
        fail_msg("%s", (const char *)problems.data);
    bool good = fr_service_check_clients(conf, "c.yaml", &out);
    assert_int_equal(good, out.size == 0);
    fr_put_u8(&out, 0);
    fr_conf_free(conf);
    fr_buffer_release(&problems);
    return (char *)out.data;
}

static void assert_said(const char *kafka, const char *part)
{
    char *said = said_of(kafka);
    if (!strstr(said, part) || strstr(said, "hunter2"))
        fail_msg("`%s` is not in, or `hunter2` is:\n%s", part, said);
    free(said);
}

static unsigned lines(const char *text)
{
    unsigned n = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++)
        n++;
    return n;
}

FR_CASE(settings_that_fit_are_silent)
{
    char *said = said_of("    security.protocol: plaintext\n    socket.timeout.ms: 5000\n");
    assert_string_equal(said, "");
    free(said);
}

FR_CASE(an_unknown_property_and_a_bad_value_are_both_named_with_their_places)
{
    char *said = said_of("    security.protcol: plaintext\n    socket.timeout.ms: soon\n    security.protocol: tls\n");
    assert_non_null(strstr(said, "c.yaml:8:5: ingest.kafka.security.protcol: No such configuration property"));
    assert_non_null(strstr(said, "c.yaml:9:5: ingest.kafka.socket.timeout.ms: "));
    assert_non_null(strstr(said, "c.yaml:10:5: ingest.kafka.security.protocol: "));
    assert_int_equal(lines(said), 3); /* though four clients were refused */
    free(said);
}

FR_CASE(a_certificate_that_is_not_there_is_named)
{
    assert_said("    security.protocol: ssl\n    ssl.ca.location: /nowhere/ca.pem\n", "c.yaml:9:5: ingest.kafka: ");
}

FR_CASE(a_login_without_a_user_is_named)
{
    assert_said("    security.protocol: sasl_ssl\n    sasl.mechanism: PLAIN\n", "sasl.username");
}

FR_CASE(a_login_that_lacks_something_names_the_property)
{
    assert_said("    security.protocol: sasl_ssl\n",
                "c.yaml:8:5: ingest.kafka: security.protocol: sasl_ssl needs sasl.mechanism, which is missing");
    assert_said("    security.protocol: sasl_plaintext\n    sasl.mechanisms: SCRAM-SHA-512\n    sasl.username: u\n",
                "needs sasl.password, missing here");
}

FR_CASE(a_certificate_that_cannot_be_read_or_is_no_pem_is_named)
{
    assert_said("    ssl.ca.location: /nowhere/ca.pem\n    security.protocol: ssl\n",
                "c.yaml:8:5: ingest.kafka: ssl.ca.location: cannot open /nowhere/ca.pem: No such file");
    assert_said("    security.protocol: ssl\n    ssl.ca.location: /dev/null\n",
                "c.yaml:9:5: ingest.kafka: ssl.ca.location: /dev/null is not PEM");
    assert_said("    security.protocol: ssl\n    ssl.certificate.location: /tmp\n",
                "ssl.certificate.location: /tmp is a directory");
}

FR_CASE(what_only_the_publisher_refuses_is_found)
{
    assert_said("    max.in.flight.requests.per.connection: 100\n", "max.in.flight");
}

FR_CASE(a_bad_value_that_may_be_a_secret_is_not_shown)
{
    assert_said("    sasl.oauthbearer.method: hunter2\n",
                "c.yaml:8:5: ingest.kafka.sasl.oauthbearer.method: not a value that librdkafka takes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_that_fit_are_silent),
        cmocka_unit_test(an_unknown_property_and_a_bad_value_are_both_named_with_their_places),
        cmocka_unit_test(a_certificate_that_is_not_there_is_named),
        cmocka_unit_test(a_login_without_a_user_is_named),
        cmocka_unit_test(a_login_that_lacks_something_names_the_property),
        cmocka_unit_test(a_certificate_that_cannot_be_read_or_is_no_pem_is_named),
        cmocka_unit_test(what_only_the_publisher_refuses_is_found),
        cmocka_unit_test(a_bad_value_that_may_be_a_secret_is_not_shown),
    };
    return cmocka_run_group_tests_name("daemon check", tests, NULL, NULL);
}
