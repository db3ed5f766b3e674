/* kafka/kafka.h: which source of a setting takes precedence, the messages of refusals, and topics
 * on librdkafka's embedded broker. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "kafka/kafka.h"

static void expect_setting(const struct fr_kafka_options *options, const char *name, const char *expected)
{
    char value[64];
    size_t size = sizeof(value);
    rd_kafka_t *client = NULL;
    assert_int_equal(fr_kafka_open(options, &client, NULL), FR_OK);
    assert_int_equal(rd_kafka_conf_get(rd_kafka_conf(client), name, value, &size), RD_KAFKA_CONF_OK);
    assert_string_equal(value, expected);
    rd_kafka_destroy(client);
}

FR_CASE(a_client_names_its_model_and_is_back_within_a_second)
{
    for (int type = RD_KAFKA_PRODUCER; type <= RD_KAFKA_CONSUMER; type++) {
        struct fr_kafka_options options = {.type = (rd_kafka_type_t)type, .brokers = "127.0.0.1:1", .name = "ctr"};
        expect_setting(&options, "client.id", "freshet-ctr");
        expect_setting(&options, "reconnect.backoff.max.ms", "1000");
        expect_setting(&options, "bootstrap.servers", "127.0.0.1:1");
    }
}

FR_CASE(the_operator_goes_over_ours_and_what_is_required_over_all)
{
    const struct fr_kafka_setting ours[] = {{"linger.ms", "5"}, {NULL, NULL}};
    const struct fr_kafka_setting required[] = {{"acks", "-1"}, {NULL, NULL}};
    const struct fr_kafka_property properties[] = {
        {"queue.buffering.max.ms", "7", NULL}, {"acks", "1", NULL}, {"reconnect.backoff.max.ms", "3000", NULL}};
    const char *texts[] = {"linger.ms=9"};
    struct fr_kafka_options options = {.type = RD_KAFKA_PRODUCER, .name = "ctr", .ours = ours, .required = required};
    expect_setting(&options, "linger.ms", "5");
    options.properties = properties;
    options.n_properties = 3;
    expect_setting(&options, "linger.ms", "7");
    expect_setting(&options, "acks", "-1");
    expect_setting(&options, "reconnect.backoff.max.ms", "3000");
    options.texts = texts;
    options.n_texts = 1;
    expect_setting(&options, "linger.ms", "9");
}

static void expect_refused_once(const struct fr_kafka_options *options, const char *begin)
{
    struct fr_err err = {0};
    rd_kafka_t *client = NULL;
    assert_int_equal(fr_kafka_open(options, &client, &err), FR_E_INVALID);
    assert_null(client);
    assert_memory_equal(err.text, begin, strlen(begin));
    assert_null(strstr(err.text, "secret"));
}

/* Expects the refusal, also from a check of the settings without a client. */
static void expect_refused(const struct fr_kafka_options *options, const char *begin)
{
    expect_refused_once(options, begin);
    assert_int_equal(fr_kafka_open(options, NULL, NULL), FR_E_INVALID);
}

FR_CASE(brokers_in_another_form_are_refused_by_every_client)
{
    expect_refused_once(&(struct fr_kafka_options){.name = "m", .brokers = "a:1;b:2"}, "brokers: `a:1;b:2`: more");
    expect_refused_once(&(struct fr_kafka_options){.name = "m", .brokers = "a:99999"},
                        "brokers: `a:99999`: not a port");
}

FR_CASE(a_refusal_names_where_it_was_written_and_no_value)
{
    const struct fr_kafka_property property = {"sasl.pasword", "secret", "c.yaml:7:5"},
                                   anywhere = {"sasl.pasword", "secret", NULL};
    const char *unknown[] = {"sasl.pasword=secret"}, *bare[] = {"sasl.password"}, *nameless[] = {"=1"};
    expect_refused(&(struct fr_kafka_options){.name = "m", .properties = &property, .n_properties = 1},
                   "c.yaml:7:5: ingest.kafka.sasl.pasword: ");
    expect_refused(&(struct fr_kafka_options){.name = "m", .properties = &anywhere, .n_properties = 1},
                   "ingest.kafka.sasl.pasword: ");
    expect_refused(&(struct fr_kafka_options){.name = "m", .texts = unknown, .n_texts = 1}, "--kafka sasl.pasword: ");
    expect_refused(&(struct fr_kafka_options){.name = "m", .texts = bare, .n_texts = 1},
                   "--kafka: no `=` after a name; expected NAME=VALUE");
    expect_refused(&(struct fr_kafka_options){.name = "m", .texts = nameless, .n_texts = 1}, "--kafka: no `=`");
}

static void assert_file(const char *text, const char *problem)
{
    char path[] = "/tmp/fr_properties_XXXXXX";
    int fd = mkstemp(path);
    struct fr_err err = {0};
    struct fr_kafka_options options = {.name = "m", .brokers = "b", .file = path};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    enum fr_status status = fr_kafka_open(&options, NULL, &err);
    assert_int_equal(status, problem[0] ? FR_E_INVALID : FR_OK);
    assert_int_equal(unlink(path), 0);
    if (!problem[0])
        return;
    assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    assert_non_null(strstr(err.text, problem));
    assert_null(strstr(err.text, "hunter2"));
}

FR_CASE(a_file_of_properties_is_read_line_by_line)
{
    assert_file("", "");
    assert_file("# c\n! c\n\n  security.protocol = sasl_ssl \r\nsasl.password=a = b\nlinger.ms=5", "");
    assert_file("bootstrap.servers=elsewhere:1\n", "");
    assert_file("linger.ms=5\nsasl.pasword=hunter2\n", ":2: sasl.pasword: No such configuration property");
    assert_file("linger.ms=soon\n", ":1: linger.ms: Invalid value");
    assert_file("linger.ms=5\n\nhunter2\n", ":3: expected NAME=VALUE");
    assert_file("=hunter2\n", ":1: expected NAME=VALUE");
    assert_file("enable.sasl.oauthbearer.unsecure.jwt=hunte\nssl.key.pem=hunter2", ":1: ");
}

FR_CASE(the_command_line_goes_over_the_file)
{
    char path[] = "/tmp/fr_properties_XXXXXX", value[64];
    size_t size = sizeof(value);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "linger.ms=7\nclient.rack=a\n", 26), 26);
    assert_int_equal(close(fd), 0);
    const char *texts[] = {"client.rack=b"};
    struct fr_kafka_options options = {
        .type = RD_KAFKA_PRODUCER, .name = "m", .file = path, .texts = texts, .n_texts = 1};
    rd_kafka_t *client = NULL;
    assert_int_equal(fr_kafka_open(&options, &client, NULL), FR_OK);
    assert_int_equal(rd_kafka_conf_get(rd_kafka_conf(client), "client.rack", value, &size), RD_KAFKA_CONF_OK);
    assert_string_equal(value, "b");
    size = sizeof(value);
    assert_int_equal(rd_kafka_conf_get(rd_kafka_conf(client), "linger.ms", value, &size), RD_KAFKA_CONF_OK);
    assert_string_equal(value, "7");
    rd_kafka_destroy(client);
    assert_int_equal(unlink(path), 0);
    options.file = "/nowhere/file";
    struct fr_err err = {0};
    assert_int_equal(fr_kafka_open(&options, NULL, &err), FR_E_NOT_FOUND);
}

FR_CASE(authorisation_is_denied_and_the_rest_unavailable)
{
    char text[FR_KAFKA_TEXT_MAX];
    assert_int_equal(fr_kafka_status(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED), FR_E_DENIED);
    assert_int_equal(fr_kafka_status(RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED), FR_E_DENIED);
    assert_int_equal(fr_kafka_status(RD_KAFKA_RESP_ERR__TIMED_OUT), FR_E_UNAVAILABLE);
    fr_kafka_explain(RD_KAFKA_RESP_ERR__AUTHENTICATION, "no", text, sizeof(text));
    assert_non_null(strstr(text, "no; check sasl.mechanism"));
    fr_kafka_explain(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 brokers are down", text, sizeof(text));
    assert_non_null(strstr(text, "brokers are down; check ingest.brokers, and security.protocol"));
    fr_kafka_explain(RD_KAFKA_RESP_ERR__TRANSPORT, "no", text, sizeof(text));
    assert_string_equal(text, "no");
}

FR_CASE(that_all_brokers_are_down_does_not_replace_the_reason)
{
    char text[FR_KAFKA_TEXT_MAX] = "";
    assert_true(fr_kafka_explain_connection(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 down", text, sizeof(text)));
    assert_non_null(strstr(text, "1/1 down"));
    assert_true(fr_kafka_explain_connection(RD_KAFKA_RESP_ERR__TRANSPORT, "refused", text, sizeof(text)));
    assert_false(fr_kafka_explain_connection(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 down", text, sizeof(text)));
    assert_string_equal(text, "refused");
}

/* The texts of librdkafka 2.0.2 for listeners of Kafka 4.1, except the third (OpenSSL 3.0's) and
 * the fourth (a TLS alert that is taken for a size). */
FR_CASE(two_sides_that_speak_different_protocols_are_named_with_the_setting)
{
    static const struct {
        int code;
        const char *reason, *begin, *remedy;
    } cases[] = {
        {RD_KAFKA_RESP_ERR__SSL,
         "ssl://h:1/bootstrap: SSL handshake failed: error:0A000126:SSL routines::unexpected eof while reading (after "
         "7ms in state SSL_HANDSHAKE)",
         "ssl://h:1/bootstrap: this client speaks TLS, the listener seems to speak plaintext: ",
         "set security.protocol to plaintext or sasl_plaintext"},
        {RD_KAFKA_RESP_ERR__TRANSPORT,
         "h:1/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol "
         "configuration (connecting to a SSL listener?) or broker version is < 0.10",
         "h:1/bootstrap: this client speaks plaintext, the listener seems to speak TLS: ",
         "set security.protocol to ssl or sasl_ssl"},
        {RD_KAFKA_RESP_ERR__SSL, "ssl://h:1/1: SSL handshake failed: error:0A00010B:SSL routines::wrong version number",
         "ssl://h:1/1: this client speaks TLS", "set security.protocol to plaintext"},
        {RD_KAFKA_RESP_ERR__BAD_MSG, "h:1/1: Receive failed: Invalid response size 352518912 (0..100000000)",
         "h:1/1: this client speaks plaintext", "set security.protocol to ssl"},
        {RD_KAFKA_RESP_ERR__TRANSPORT,
         "ssl://h:1/bootstrap: Disconnected: verify that security.protocol is correctly configured, broker might require "
         "SASL authentication",
         "ssl://h:1/bootstrap: the listener wants a login", "sasl.username and sasl.password"},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         "sasl_plaintext://h:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in current "
         "SASL state: broker's supported mechanisms: ",
         "sasl_plaintext://h:1/bootstrap: the listener takes no login", "set security.protocol to ssl or plaintext"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[FR_KAFKA_TEXT_MAX];
        fr_kafka_explain(cases[i].code, cases[i].reason, text, sizeof(text));
        if (strncmp(text, cases[i].begin, strlen(cases[i].begin)) != 0 || !strstr(text, cases[i].remedy))
            fail_msg("%s", text);
        assert_true(strlen(text) + 1 < sizeof(text)); /* nothing is cut off */
    }
}

FR_CASE(a_long_name_of_a_broker_is_shown_and_what_to_do_is_not_cut_for_it)
{
    char reason[400], text[FR_KAFKA_TEXT_MAX], small[220], name[300] = "ssl://";
    const char *remedy = "or name the brokers' TLS port", *said = "this client speaks TLS";
    for (size_t size = 6; size < 100; size++)
        memcpy(name + size, "b", 2);
    snprintf(reason, sizeof(reason), "%s: wrong version number", name);
    fr_kafka_explain(RD_KAFKA_RESP_ERR__SSL, reason, text, sizeof(text));
    assert_memory_equal(text, name, 100);
    assert_memory_equal(text + 100, ": this client speaks TLS", 24);
    assert_non_null(strstr(text, remedy));
    fr_kafka_explain(RD_KAFKA_RESP_ERR__SSL, reason, small, sizeof(small));
    assert_memory_equal(small, "ssl://bbbb", 10);
    assert_non_null(strstr(small, remedy));
    fr_kafka_explain(RD_KAFKA_RESP_ERR__SSL, "wrong version number", text, sizeof(text));
    assert_memory_equal(text, said, strlen(said)); /* no name, no colon */
}

FR_CASE(topics_of_the_embedded_broker_are_found_and_not_made_by_looking)
{
    struct fr_kafka_topic found;
    struct fr_kafka_options options = {.type = RD_KAFKA_PRODUCER, .name = "host"};
    rd_kafka_t *host = NULL, *client = NULL;
    assert_int_equal(fr_kafka_open(&options, &host, NULL), FR_OK);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(host, 1);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, "there", 3, 1), 0);
    options.brokers = rd_kafka_mock_cluster_bootstraps(cluster);
    assert_int_equal(fr_kafka_open(&options, &client, NULL), FR_OK);
    assert_int_equal(fr_kafka_topic_ask(client, "there", false, 10000, &found), 0);
    assert_int_equal(found.partitions, 3);
    assert_true(found.led && !found.error && !found.administrable);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fr_kafka_topic_ask(client, "absent", true, 10000, &found), 0);
        assert_int_equal(found.partitions, 0);
    }
    assert_int_equal(fr_kafka_topic_ask(client, "absent", false, 10000, &found), 0);
    /* a producer's request, on a broker that creates topics by itself */
    assert_true(found.partitions > 0);
    rd_kafka_destroy(client);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_names_its_model_and_is_back_within_a_second),
        cmocka_unit_test(the_operator_goes_over_ours_and_what_is_required_over_all),
        cmocka_unit_test(brokers_in_another_form_are_refused_by_every_client),
        cmocka_unit_test(a_refusal_names_where_it_was_written_and_no_value),
        cmocka_unit_test(a_file_of_properties_is_read_line_by_line),
        cmocka_unit_test(the_command_line_goes_over_the_file),
        cmocka_unit_test(authorisation_is_denied_and_the_rest_unavailable),
        cmocka_unit_test(that_all_brokers_are_down_does_not_replace_the_reason),
        cmocka_unit_test(two_sides_that_speak_different_protocols_are_named_with_the_setting),
        cmocka_unit_test(a_long_name_of_a_broker_is_shown_and_what_to_do_is_not_cut_for_it),
        cmocka_unit_test(topics_of_the_embedded_broker_are_found_and_not_made_by_looking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
