/* A topic that does not hold what a new replica begins with gets the whole state as one merged
 * epoch: against librdkafka's embedded broker. */
#include "mock_broker.h"

#include "exporter/full.h"

enum { ROWS = 300 };

static struct fr_publisher_options more; /* options of the next publisher */

/* Five epochs, folded; the journal keeps the newest only, as after they were acknowledged. */
FR_FIXTURE(open_state)
{
    struct fr_durable_status durable;
    new_topic();
    more = (struct fr_publisher_options){0};
    f = (struct fixture){.journal_file_max = 1};
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    for (int i = 0; i < 5; i++)
        append(&f, ROWS - i);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    assert_int_equal(fr_durable_acknowledge(f.durable, 5, &err), FR_OK);
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.journal_first, 5);
    return 0;
}

static enum fr_status check(bool stop_on_loss)
{
    more.stop_on_loss = stop_on_loss;
    make_publisher(more);
    return check_until_answered();
}

static void publish(void)
{
    if (check(false) != FR_OK)
        fail_msg("%s", err.text);
    offer_all();
}

/* ---- the records of a whole state ---- */

struct counted {
    uint64_t rows, commits, models, dense, epoch;
    float value; /* the first value of the last row */
    uint32_t pieces[FIXTURE_PARTITIONS];
    uint32_t records, most; /* most: the reader stops after this number */
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
    assert_int_equal(fr_export_full_open(f.durable, NULL, &full, &err), FR_OK);
    assert_int_equal(fr_export_full_epoch(full).epoch, 5);
    assert_int_equal(write_full(full, &first), FR_EOF);
    assert_int_equal(first.rows, ROWS);
    assert_int_equal(first.commits, FIXTURE_PARTITIONS);
    assert_int_equal(first.models, 1);
    assert_int_equal(first.dense, 2);
    append(&f, ROWS + 50);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    fr_export_full_rewind(full);
    assert_int_equal(write_full(full, &again), FR_EOF);
    assert_memory_equal(&first, &again, sizeof(first));
    fr_export_full_close(full);
    assert_int_equal(fr_export_full_open(f.durable, NULL, &full, &err), FR_OK);
    again = (struct counted){0};
    assert_int_equal(write_full(full, &again), FR_EOF);
    assert_int_equal(again.rows, ROWS + 50);
    assert_int_equal(again.epoch, 6);
    fr_export_full_close(full);
}

/* The folded epoch was asked for before a later fold, and the trim of that fold removed the epoch
 * after it. */
FR_CASE(the_head_that_goes_with_a_fold_is_asked_for_again_after_a_later_one)
{
    struct fr_buffer head = {0};
    struct fr_export_full *full = NULL;
    assert_int_equal(fr_durable_head_after(f.durable, 2, &head, &err), FR_AGAIN);
    assert_int_equal(head.size, 0);
    assert_int_equal(fr_export_full_open(f.durable, NULL, &full, &err), FR_OK);
    assert_int_equal(fr_export_full_epoch(full).epoch, 5);
    assert_string_equal(fr_export_full_settings(full)->model, "ctr");
    fr_export_full_close(full);
}

enum { BACKLOG = 300 };

static void gather(void)
{
    publish();
    step_until(5);
    for (int i = 0; i < BACKLOG; i++)
        append(&f, i % 3);
}

FR_CASE(a_backlog_goes_out_merged_and_what_comes_then_by_itself)
{
    gather();
    more.max_backlog_bytes = 20000;
    publish();
    uint64_t records = status.records;
    step_until(5 + BACKLOG);
    assert_int_equal(status.backlog.merges, 1);
    assert_int_equal(status.backlog.merged_epochs, BACKLOG);
    assert_true(status.records - records < BACKLOG / 10);
    records = status.records;
    append(&f, 3);
    fr_publisher_offer(publisher, 6 + BACKLOG);
    step_until(6 + BACKLOG);
    assert_true(status.records > records);
    assert_int_equal(status.backlog.merges, 1);
    publish(); /* the next process finds it whole */
    assert_int_equal(status.acked, 6 + BACKLOG);
}

FR_CASE(a_backlog_within_its_bound_goes_out_one_by_one)
{
    gather();
    more.max_backlog_bytes = 64 << 20;
    publish();
    step_until(5 + BACKLOG);
    assert_int_equal(status.backlog.merges, 0);
    assert_true(status.records >= BACKLOG * FIXTURE_PARTITIONS);
}

FR_CASE(a_backlog_may_be_abandoned_for_the_whole_state)
{
    gather();
    more = (struct fr_publisher_options){.max_backlog_bytes = 20000, .backlog_rebases = true};
    publish();
    FR_UNTIL (status.fold_wanted) {
        assert_int_equal(fr_publisher_step(publisher, STEP_MS, &err), FR_OK);
        fr_publisher_get_status(publisher, &status);
    }
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    step_until(5 + BACKLOG);
    assert_int_equal(status.backlog.abandoned, 1);
    assert_int_equal(status.rebases, 1);
    assert_int_equal(status.topic.begin, 5 + BACKLOG);
    publish();
    assert_int_equal(status.acked, 5 + BACKLOG);
}

FR_CASE(an_empty_topic_gets_the_whole_state_and_what_follows)
{
    publish();
    assert_int_equal(status.acked, 0);
    step_until(5);
    assert_int_equal(status.rebases, 1);
    assert_int_equal(status.topic.begin, 5);
    append(&f, 20);
    fr_publisher_offer(publisher, 6);
    step_until(6);
    publish(); /* the next process finds it whole */
    assert_int_equal(status.acked, 6);
    assert_int_equal(status.topic.begin, 5);
}

FR_CASE(on_loss_stop_says_how_to_continue)
{
    assert_int_equal(check(true), FR_E_LOST);
    assert_non_null(strstr(err.text, "export.on_loss: rebase"));
}

/* Replicas may hold pieces of a merged epoch that another process began, so the next merged epoch
 * is of a later epoch. */
FR_CASE(a_rebase_that_a_kill_cut_off_is_made_again_of_a_later_epoch)
{
    struct fr_export_full *full;
    struct counted some = {.most = 3, .produces = true};
    assert_int_equal(fr_export_full_open(f.durable, NULL, &full, &err), FR_OK);
    assert_int_equal(write_full(full, &some), FR_E_CANCELLED);
    fr_export_full_close(full);
    publish();
    for (int i = 0; i < 3; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, &err), FR_OK);
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.sent, 0);
    assert_true(status.fold_wanted);
    append(&f, 20);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    fr_publisher_offer(publisher, 6);
    step_until(6);
    assert_int_equal(status.topic.begin, 6);
}

/* The delivery report of a piece may have had no offset, and after a kill nobody can know. */
FR_CASE(a_whole_state_that_was_not_noted_as_acknowledged_is_made_again_of_a_later_epoch)
{
    append(&f, 20);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    struct fr_export_full *full;
    struct counted all = {.produces = true};
    assert_int_equal(fr_export_full_open(f.durable, NULL, &full, &err), FR_OK);
    assert_int_equal(write_full(full, &all), FR_EOF);
    fr_export_full_close(full);
    publish();
    assert_int_equal(status.acked, 0);
    FR_UNTIL (status.fold_wanted) {
        assert_int_equal(fr_publisher_step(publisher, 5, &err), FR_OK);
        fr_publisher_get_status(publisher, &status);
    }
    append(&f, 20);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    fr_publisher_offer(publisher, 7);
    step_until(7);
    assert_int_equal(status.topic.begin, 7);
}

/* ---- a new timeline that a snapshot tells ---- */

static struct {
    enum fr_status answer;
    uint64_t least, asked;
} rewinding;

static enum fr_status answer_rewind(void *self, uint64_t least, struct fr_publisher_rewind *out)
{
    (void)self;
    rewinding.least = least;
    rewinding.asked += 1;
    if (rewinding.answer == FR_OK)
        *out = (struct fr_publisher_rewind){5, "ctr-2-5"};
    return rewinding.answer;
}

/* A run without brokers; the publisher of the run stays open. */
static void run_offline(void)
{
    const char *online = brokers;
    brokers = NULL;
    publish();
    brokers = online;
    assert_int_equal(fr_publisher_step(publisher, 0, &err), FR_OK);
}

FR_CASE(a_run_without_brokers_that_trains_nothing_leaves_the_topic_as_it_is)
{
    struct fr_durable_status durable;
    publish();
    step_until(5);
    run_offline();
    assert_int_equal(fr_publisher_least_timeline(publisher), 2); /* of an epoch that would come */
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.timeline, 1);
    assert_int_equal(check(true), FR_OK);
    assert_int_equal(fr_publisher_least_timeline(publisher), 0);
    assert_int_equal(status.acked, 5);
    append(&f, 10);
    offer_all();
    step_until(6);
    assert_int_equal(status.rebases, 0);
}

FR_CASE(epochs_that_a_run_without_brokers_keeps_from_the_topic_come_with_the_whole_state)
{
    struct fr_durable_status durable;
    publish();
    step_until(5);
    append(&f, 10);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    run_offline(); /* epoch 6 counts as acknowledged */
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.timeline, 2);
    publish();
    step_until(6);
    assert_int_equal(status.rebases, 1);
}

static bool covers_all(void *self, const int64_t *low, const int64_t *high, uint32_t partitions)
{
    (void)self;
    (void)low;
    (void)high;
    return partitions == FIXTURE_PARTITIONS;
}

/* The state continues in timeline 2 on a topic where timeline 1 is acknowledged. */
static void begin_timeline_2(void)
{
    publish();
    step_until(5);
    assert_int_equal(fr_durable_begin_timeline(f.durable, 2, &err), FR_OK);
    rewinding.answer = FR_AGAIN;
    rewinding.asked = 0;
    more = (struct fr_publisher_options){.rewind = answer_rewind, .covers = covers_all};
    publish();
    assert_int_equal(status.acked, 0);
}

static void step_idle(int steps)
{
    for (int i = 0; i < steps; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, &err), FR_OK);
    fr_publisher_get_status(publisher, &status);
}

FR_CASE(a_timeline_published_by_a_snapshot_begins_after_it_and_is_settled_once_acknowledged)
{
    begin_timeline_2();
    append(&f, 10);
    offer_all();
    step_idle(5);
    assert_int_equal(status.records, 0);
    assert_int_equal(rewinding.least, 5);
    rewinding.answer = FR_OK;
    step_until(6);
    assert_int_equal(status.rewinds, 1);
    assert_int_equal(status.rebases, 0);
    append(&f, 10);
    offer_all();
    step_until(7);
    uint64_t asked = rewinding.asked;
    publish(); /* the next process finds it settled */
    assert_int_equal(status.acked, 7);
    assert_int_equal(rewinding.asked, asked);
    more.covers = NULL; /* and fills the topic when no snapshot is there any more */
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    publish();
    assert_int_equal(status.acked, 0);
    step_until(7);
    assert_int_equal(status.rebases, 1);
    assert_int_equal(rewinding.asked, asked);
}

FR_CASE(a_snapshot_that_no_epoch_follows_is_not_published)
{
    begin_timeline_2();
    rewinding.answer = FR_OK;
    step_idle(5);
    assert_int_equal(status.records, 0);
    assert_int_equal(status.acked, 0);
    rewinding.answer = FR_E_NOT_FOUND; /* no snapshot will come */
    step_until(5);
    assert_int_equal(status.rebases, 1);
    assert_int_equal(status.rewinds, 0);
}

/* Replicas may hold pieces of a rewind that was not acknowledged, or of a rewind of another
 * state. */
FR_CASE(a_rewind_that_a_kill_cut_off_is_made_again_in_another_timeline)
{
    struct fr_durable_status durable;
    begin_timeline_2();
    append(&f, 10);
    offer_all();
    rewinding.answer = FR_OK;
    FR_UNTIL (status.records > 0) {
        assert_int_equal(fr_publisher_step(publisher, 0, &err), FR_OK);
        fr_publisher_get_status(publisher, &status);
    }
    step_until(6);
    char begin[FR_TEST_FOLDER + 16];
    /* as if the file had not been written yet */
    snprintf(begin, sizeof(begin), "%s/delta.begin", f.dir);
    assert_int_equal(remove(begin), 0);
    rewinding.answer = FR_AGAIN;
    publish();
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.timeline, 3);
    step_idle(3);
    assert_int_equal(rewinding.least, 6);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_whole_state_has_every_row_once_and_is_the_same_after_later_folds),
        CASE(the_head_that_goes_with_a_fold_is_asked_for_again_after_a_later_one),
        CASE(an_empty_topic_gets_the_whole_state_and_what_follows),
        CASE(a_run_without_brokers_that_trains_nothing_leaves_the_topic_as_it_is),
        CASE(epochs_that_a_run_without_brokers_keeps_from_the_topic_come_with_the_whole_state),
        CASE(a_backlog_goes_out_merged_and_what_comes_then_by_itself),
        CASE(a_backlog_within_its_bound_goes_out_one_by_one),
        CASE(a_backlog_may_be_abandoned_for_the_whole_state),
        CASE(on_loss_stop_says_how_to_continue),
        CASE(a_rebase_that_a_kill_cut_off_is_made_again_of_a_later_epoch),
        CASE(a_whole_state_that_was_not_noted_as_acknowledged_is_made_again_of_a_later_epoch),
        CASE(a_timeline_published_by_a_snapshot_begins_after_it_and_is_settled_once_acknowledged),
        CASE(a_snapshot_that_no_epoch_follows_is_not_published),
        CASE(a_rewind_that_a_kill_cut_off_is_made_again_in_another_timeline),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
