/* A topic that does not hold what a new replica begins with gets the whole state as one merged
 * epoch: against librdkafka's embedded broker. */
#include "case.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "exporter/full.h"
#include "exporter/publisher.h"
#include "fixture.h"

enum { STEP_MS = 50, ROWS = 300 };

static rd_kafka_t *host;
static rd_kafka_mock_cluster_t *cluster;
static char brokers[256], topic[32];
static struct fixture f;
static struct fr_publisher *publisher;
static struct fr_publisher_status status;
static struct fr_err err;

FR_FIXTURE(start_broker)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", text, sizeof(text)), RD_KAFKA_CONF_OK);
    host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
    assert_non_null(host);
    cluster = rd_kafka_handle_mock_cluster(host);
    snprintf(brokers, sizeof(brokers), "%s", rd_kafka_mock_cluster_bootstraps(cluster));
    return 0;
}

FR_FIXTURE(stop_broker)
{
    rd_kafka_destroy(host);
    return 0;
}

static void append(int rows)
{
    assert_int_equal(fixture_append(&f, rows, 1700000000000, &err), FR_OK);
}

/* Five epochs, folded; the journal keeps the newest only, as after they were acknowledged. */
FR_FIXTURE(open_state)
{
    static int number;
    struct fr_durable_status durable;
    snprintf(topic, sizeof(topic), "rebase-%d", ++number);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, topic, FIXTURE_PARTITIONS, 1), 0);
    f = (struct fixture){.journal_file_max = 1};
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    for (int i = 0; i < 5; i++)
        append(ROWS - i);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    assert_int_equal(fr_durable_acknowledge(f.durable, 5, &err), FR_OK);
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.journal_first, 5);
    return 0;
}

FR_FIXTURE(close_state)
{
    fr_publisher_free(publisher);
    publisher = NULL;
    fixture_close(&f);
    return 0;
}

static enum fr_status check(bool stop_on_loss)
{
    struct fr_publisher_options options = {.durable = f.durable,
                                           .clock = fr_clock_system(),
                                           .model = "ctr",
                                           .brokers = brokers,
                                           .topic = topic,
                                           .partitions = FIXTURE_PARTITIONS,
                                           .stop_on_loss = stop_on_loss};
    fr_publisher_free(publisher);
    publisher = NULL;
    assert_int_equal(fr_publisher_new(&options, &publisher, &err), FR_OK);
    enum fr_status checked = FR_E_UNAVAILABLE;
    FR_UNTIL (checked != FR_E_UNAVAILABLE)
        checked = fr_publisher_check(publisher, &err);
    fr_publisher_get_status(publisher, &status);
    return checked;
}

static void publish(void)
{
    struct fr_durable_status durable;
    if (check(false) != FR_OK)
        fail_msg("%s", err.text);
    fr_durable_get_status(f.durable, &durable);
    fr_publisher_offer(publisher, durable.epoch);
}

static void step_until(uint64_t acked)
{
    FR_UNTIL (status.acked >= acked) {
        enum fr_status result = fr_publisher_step(publisher, STEP_MS, &err);
        if (result != FR_OK && result != FR_E_UNAVAILABLE)
            fail_msg("%s", err.text);
        fr_publisher_get_status(publisher, &status);
    }
    assert_int_equal(status.acked, acked);
}

/* ---- the records of a whole state ---- */

struct counted {
    uint64_t rows, commits, models, dense, epoch;
    float value; /* the first of the last row */
    uint32_t pieces[FIXTURE_PARTITIONS];
    uint32_t records, most; /* most: then it stops */
    bool produces;
};

static enum fr_status count(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct counted *counted = self;
    struct fr_delta_record record;
    if (counted->most && counted->records == counted->most)
        return FR_E_CANCELLED;
    counted->records++;
    assert_int_equal(fr_delta_read(bytes, size, &record, NULL), FR_OK);
    assert_true(size <= f.settings.piece_max);
    assert_int_equal(record.from, 1);
    assert_int_equal(piece, counted->pieces[partition]++);
    counted->epoch = record.epoch;
    counted->models += record.kind == FR_DELTA_MODEL;
    counted->dense += record.kind == FR_DELTA_DENSE;
    if (record.kind == FR_DELTA_ROWS) {
        float values[2];
        counted->rows += record.rows.n_rows;
        fr_delta_segment_row(&record, 0, record.rows.n_rows - 1, values);
        counted->value = values[0];
    }
    if (record.kind == FR_DELTA_COMMIT) {
        counted->commits++;
        assert_int_equal(record.commit.previous, 0);
        assert_int_equal(record.commit.samples, record.epoch * 100);
        assert_int_equal(record.commit.n_pieces, piece);
    }
    if (counted->produces) {
        assert_int_equal(rd_kafka_producev(host, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION((int32_t)partition),
                                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                           RD_KAFKA_V_VALUE((void *)(uintptr_t)bytes, size), RD_KAFKA_V_END),
                         0);
        assert_int_equal(rd_kafka_flush(host, FR_PATIENCE_S * 1000), 0);
    }
    return FR_OK;
}

static enum fr_status write_full(struct fr_export_full *full, struct counted *counted)
{
    uint64_t saturated = 0;
    enum fr_status result = FR_OK;
    while (result == FR_OK)
        result = fr_export_full_next(full, count, counted, &saturated, &err);
    return result;
}

FR_CASE(a_whole_state_has_every_row_once_and_is_the_same_after_later_folds)
{
    struct fr_export_full *full;
    struct counted first = {0}, again = {0};
    assert_int_equal(fr_export_full_open(f.durable, f.head.data, f.head.size, &full, &err), FR_OK);
    assert_int_equal(fr_export_full_epoch(full).epoch, 5);
    assert_int_equal(write_full(full, &first), FR_EOF);
    assert_int_equal(first.rows, ROWS);
    assert_int_equal(first.commits, FIXTURE_PARTITIONS);
    assert_int_equal(first.models, 1);
    assert_int_equal(first.dense, 2);
    append(ROWS + 50);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    fr_export_full_rewind(full);
    assert_int_equal(write_full(full, &again), FR_EOF);
    assert_memory_equal(&first, &again, sizeof(first));
    fr_export_full_close(full);
    assert_int_equal(fr_export_full_open(f.durable, f.head.data, f.head.size, &full, &err), FR_OK);
    again = (struct counted){0};
    assert_int_equal(write_full(full, &again), FR_EOF);
    assert_int_equal(again.rows, ROWS + 50);
    assert_int_equal(again.epoch, 6);
    fr_export_full_close(full);
}

FR_CASE(an_empty_topic_gets_the_whole_state_and_what_follows)
{
    publish();
    assert_int_equal(status.acked, 0);
    step_until(5);
    assert_int_equal(status.rebases, 1);
    assert_int_equal(status.topic.begin, 5);
    append(20);
    fr_publisher_offer(publisher, 6);
    step_until(6);
    publish(); /* the next process finds it whole */
    assert_int_equal(status.acked, 6);
    assert_int_equal(status.topic.begin, 5);
}

FR_CASE(on_loss_stop_says_how_to_go_on)
{
    assert_int_equal(check(true), FR_E_LOST);
    assert_non_null(strstr(err.text, "export.on_loss: rebase"));
}

/* Of a merged epoch that another process began replicas may hold pieces: the next is a later
 * one. */
FR_CASE(a_rebase_that_a_kill_cut_off_is_made_again_of_a_later_epoch)
{
    struct fr_export_full *full;
    struct counted some = {.most = 3, .produces = true};
    assert_int_equal(fr_export_full_open(f.durable, f.head.data, f.head.size, &full, &err), FR_OK);
    assert_int_equal(write_full(full, &some), FR_E_CANCELLED);
    fr_export_full_close(full);
    publish();
    for (int i = 0; i < 3; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, &err), FR_OK);
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.sent, 0);
    assert_true(status.fold_wanted);
    append(20);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    fr_publisher_offer(publisher, 6);
    step_until(6);
    assert_int_equal(status.topic.begin, 6);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_whole_state_has_every_row_once_and_is_the_same_after_later_folds),
        CASE(an_empty_topic_gets_the_whole_state_and_what_follows),
        CASE(on_loss_stop_says_how_to_go_on),
        CASE(a_rebase_that_a_kill_cut_off_is_made_again_of_a_later_epoch),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
