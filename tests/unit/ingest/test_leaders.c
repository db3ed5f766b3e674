/* Questions to a cluster that cannot answer for all partitions: the embedded one of librdkafka. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "base/check.h"
#include "ingest/ingest.h"
#include "kafka/contact.h"

enum { PARTITIONS = 6, RING = 4, STEPS_MAX = 2000, STEP_MS = 50 };

struct world {
    rd_kafka_t *host;
    rd_kafka_mock_cluster_t *cluster;
    struct fr_conf *conf;
    struct fr_ring *full, *empty;
    struct fr_ingest *ingest;
    struct fr_err err;
};

static struct world *w;

static struct fr_conf *conf_of(const char *brokers)
{
    struct fr_buffer text = {0}, problems = {0};
    struct fr_conf *conf = NULL;
    fr_buffer_printf(&text,
                     "version: 1\nmodel: ctr\nstate_dir: /tmp/ctr\n"
                     "ingest: {brokers: \"%s\", topic: samples, format: json}\n"
                     "tables: {user: {dim: 2}}\nslots: {user_id: {table: user}}\nlabels: {click: {}}\n"
                     "network: {layers: [{name: out, dense: user_id, units: 1}]}\n"
                     "tasks: [{name: click, label: click, logit: out}]\n",
                     brokers);
    fr_put_u8(&text, 0);
    struct fr_conf_load_options options = {.path = "test.yaml", .text = (const char *)text.data};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&text);
    fr_buffer_release(&problems);
    return conf;
}

static void empty_ring(struct fr_ring *ring)
{
    void *batch;
    while (fr_ring_pop(ring, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_ring_free(ring);
}

FR_FIXTURE(setup)
{
    w = calloc(1, sizeof(*w));
    char text[256];
    w->host = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), text, sizeof(text));
    w->cluster = rd_kafka_mock_cluster_new(w->host, 2);
    assert_int_equal(rd_kafka_mock_topic_create(w->cluster, "samples", PARTITIONS, 1), 0);
    for (int p = 0; p < PARTITIONS; p++)
        assert_int_equal(rd_kafka_mock_partition_set_leader(w->cluster, "samples", p, 1 + p % 2), 0);
    w->conf = conf_of(rd_kafka_mock_cluster_bootstraps(w->cluster));
    w->full = fr_ring_new(RING);
    w->empty = fr_ring_new(RING);
    for (int i = 0; i < RING; i++)
        assert_true(fr_ring_try_push(w->empty, fr_batch_new(w->conf)));
    struct fr_ingest_options options = {
        .conf = w->conf, .clock = fr_clock_system(), .full = w->full, .empty = w->empty};
    assert_int_equal(fr_ingest_new(&options, &w->ingest, &w->err), FR_OK);
    return 0;
}

FR_FIXTURE(teardown)
{
    fr_ingest_free(w->ingest);
    empty_ring(w->full);
    empty_ring(w->empty);
    fr_conf_free(w->conf);
    rd_kafka_mock_cluster_destroy(w->cluster);
    rd_kafka_destroy(w->host);
    free(w);
    return 0;
}

/* Starts ingest, and tries again while no broker answers. */
static void start(void)
{
    enum fr_status status = FR_E_UNAVAILABLE;
    for (int i = 0; i < 20 && status == FR_E_UNAVAILABLE; i++)
        status = fr_ingest_start(w->ingest, &w->err);
    if (status != FR_OK)
        fail_msg("%s", w->err.text);
}

/* Bit p: partition p waits. */
static unsigned waiting(char *problem, size_t size)
{
    struct fr_ingest_status status;
    unsigned bits = 0;
    fr_ingest_get_status(w->ingest, &status);
    for (uint32_t i = 0; i < status.n_partitions; i++)
        bits |= (unsigned)status.partitions[i].waits << status.partitions[i].partition;
    snprintf(problem, size, "%s", status.problem);
    fr_ingest_status_release(&status);
    return bits;
}

static void step_until(unsigned expected)
{
    char problem[FR_PROBLEM_MAX];
    for (int i = 0; i < STEPS_MAX; i++) {
        assert_true(fr_ingest_step(w->ingest, STEP_MS, &w->err) >= 0);
        if (waiting(problem, sizeof(problem)) == expected)
            return;
    }
    fail_msg("%x wait: %s", waiting(problem, sizeof(problem)), problem);
}

FR_CASE(partitions_with_a_leader_are_read_without_the_others)
{
    char problem[FR_PROBLEM_MAX];
    assert_int_equal(rd_kafka_mock_partition_set_leader(w->cluster, "samples", 2, -1), 0);
    assert_int_equal(rd_kafka_mock_partition_set_leader(w->cluster, "samples", 3, -1), 0);
    start();
    assert_int_equal(waiting(problem, sizeof(problem)), 1 << 2 | 1 << 3);
    if (!strstr(problem, "samples/2: no offsets: Broker: Leader not available (2 of 6 partitions wait)"))
        fail_msg("%s", problem);
    assert_int_equal(rd_kafka_mock_partition_set_leader(w->cluster, "samples", 2, 2), 0);
    step_until(1 << 3);
    assert_int_equal(rd_kafka_mock_partition_set_leader(w->cluster, "samples", 3, 1), 0);
    step_until(0);
}

FR_CASE(a_broker_that_does_not_answer_costs_its_own_partitions_only)
{
    char problem[FR_PROBLEM_MAX];
    assert_int_equal(rd_kafka_mock_broker_set_down(w->cluster, 2), 0);
    start();
    assert_int_equal(waiting(problem, sizeof(problem)), 1 << 1 | 1 << 3 | 1 << 5);
    assert_int_equal(rd_kafka_mock_broker_set_up(w->cluster, 2), 0);
    step_until(0);
}

/* Puts a record on each partition. */
static void produce(void)
{
    static char value[] = "{\"f\":{\"user_id\":1},\"y\":{\"click\":1}}";
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(
        rd_kafka_conf_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(w->cluster), text, sizeof(text)),
        RD_KAFKA_CONF_OK);
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
    for (int p = 0; p < PARTITIONS; p++)
        assert_int_equal(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("samples"), RD_KAFKA_V_PARTITION(p),
                                           RD_KAFKA_V_VALUE(value, sizeof(value) - 1), RD_KAFKA_V_END),
                         0);
    assert_int_equal(rd_kafka_flush(producer, FR_PATIENCE_S * 1000), 0);
    rd_kafka_destroy(producer);
}

/* ---- answers that are late ---- */

/* Delays every answer that brings a record, as a quota or a slow line does; the answer is counted
 * before its record comes. */
static bool are_late;
static uint64_t late_answers;
static bool mute;         /* the leader of odd partitions answers questions without a record */
static int asked_wait_ms; /* how long one was waited for last */
static int inflates_ms;   /* partition 1: its record comes to a wait of so long, after a second */

rd_kafka_message_t *__real_rd_kafka_consume_queue(rd_kafka_queue_t *queue, int wait_ms);
rd_kafka_message_t *__wrap_rd_kafka_consume_queue(rd_kafka_queue_t *queue, int wait_ms);
struct fr_kafka_contact_count __real_fr_kafka_contact_count(const struct fr_kafka_contact *contact);
struct fr_kafka_contact_count __wrap_fr_kafka_contact_count(const struct fr_kafka_contact *contact);

rd_kafka_message_t *__wrap_rd_kafka_consume_queue(rd_kafka_queue_t *queue, int wait_ms)
{
    bool asks = wait_ms > STEP_MS; /* a question */
    rd_kafka_message_t *message = __real_rd_kafka_consume_queue(queue, asks && mute ? 200 : wait_ms);
    late_answers += message && are_late && !asks;
    if (asks)
        asked_wait_ms = wait_ms;
    bool slow = message && asks && inflates_ms && message->partition == 1;
    while (message && asks && ((mute && message->partition % 2 == 1) || (slow && wait_ms < inflates_ms))) {
        rd_kafka_message_destroy(message);
        message = __real_rd_kafka_consume_queue(queue, 200);
        slow = message && inflates_ms && message->partition == 1;
    }
    if (slow)
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL);
    return message;
}

struct fr_kafka_contact_count __wrap_fr_kafka_contact_count(const struct fr_kafka_contact *contact)
{
    struct fr_kafka_contact_count count = __real_fr_kafka_contact_count(contact);
    count.gaps += late_answers;
    return count;
}

/* A record of each partition. */
static void read_all(void)
{
    uint64_t records = 0;
    for (int i = 0; i < 200 && records < PARTITIONS; i++) {
        assert_true(fr_ingest_step(w->ingest, STEP_MS, &w->err) >= 0);
        void *batch;
        while (fr_ring_pop(w->full, &batch, 0) == FR_OK)
            assert_true(fr_ring_try_push(w->empty, batch));
        struct fr_ingest_status status;
        fr_ingest_get_status(w->ingest, &status);
        records = status.records;
        fr_ingest_status_release(&status);
    }
    assert_int_equal(records, PARTITIONS);
}

FR_CASE(a_record_of_a_late_answer_is_given_when_the_question_is_answered)
{
    start();
    step_until(0);
    produce();
    are_late = true;
    read_all();
    are_late = false;
    assert_true(late_answers >= PARTITIONS);
    late_answers = 0;
}

/* A question without an answer is asked again with a longer wait, separately from the others. */
FR_CASE(a_leader_that_answers_without_records_costs_the_others_no_longer_wait)
{
    start();
    produce();
    read_all();
    are_late = mute = true;
    late_answers++;
    step_until(1 << 1 | 1 << 3 | 1 << 5);
    while (asked_wait_ms < 2000)
        assert_true(fr_ingest_step(w->ingest, STEP_MS, &w->err) >= 0);
    late_answers++;
    assert_true(fr_ingest_step(w->ingest, 0, &w->err) >= 0);
    assert_int_equal(asked_wait_ms, 1000);
    mute = false;
    step_until(0);
    are_late = false;
}

FR_CASE(a_record_that_takes_long_to_inflate_is_waited_for_after_every_silence)
{
    char problem[FR_PROBLEM_MAX];
    start();
    produce();
    read_all();
    inflates_ms = 2000;
    late_answers++;
    step_until(1 << 1);
    step_until(0);
    late_answers++;
    assert_true(fr_ingest_step(w->ingest, STEP_MS, &w->err) >= 0);
    assert_int_equal(waiting(problem, sizeof(problem)), 0);
    inflates_ms = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(partitions_with_a_leader_are_read_without_the_others, setup, teardown),
        cmocka_unit_test_setup_teardown(a_broker_that_does_not_answer_costs_its_own_partitions_only, setup, teardown),
        cmocka_unit_test_setup_teardown(a_leader_that_answers_without_records_costs_the_others_no_longer_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_record_that_takes_long_to_inflate_is_waited_for_after_every_silence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_record_of_a_late_answer_is_given_when_the_question_is_answered, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
