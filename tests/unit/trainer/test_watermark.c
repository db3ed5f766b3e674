/* How far a batch raises the watermark, with and without ingest.watermark_step_max. */
#include "trainer_fixture.h"

static const char *text_with(const char *step, struct fr_buffer *text)
{
    const char *at = strstr(config_text, "batch_size: 2,");
    fr_buffer_printf(text, "%.*s%s%s", (int)(at - config_text), config_text, step, at);
    fr_put_u8(text, 0);
    return (const char *)text->data;
}

/* The next batch of the stream, with one event time moved. */
static void feed(struct run *run, uint32_t sample, int64_t by_ms)
{
    struct fr_err err = {0};
    struct fr_batch *batch = make_batch(run->conf, run->applied);
    batch->t_ms[sample] += by_ms;
    uint64_t before = run->applied;
    assert_true(fr_ring_try_push(run->full, batch));
    while (run->applied == before) {
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        drain_stages(run);
    }
}

static struct fr_trainer_status status_of(struct run *run)
{
    struct fr_err err = {0};
    struct fr_trainer_status status;
    fr_clock_fake_advance_ms(&run->clock, 2000); /* a snapshot is due */
    assert_true(fr_trainer_step(run->trainer, &err) >= 0);
    drain_stages(run);
    fr_trainer_get_status(run->trainer, &status);
    return status;
}

static int64_t watermark(struct run *run)
{
    return status_of(run).history.watermark_ms - 1700000000000;
}

enum { SECOND = 1000, BATCH_SPAN = BATCH * SECOND };
static const int64_t YEAR = 365LL * 86400 * SECOND;

static void open_with(struct run *run, char *dir, struct fr_buffer *text, const char *step)
{
    fr_test_folder(dir);
    other_text = text_with(step, text);
    run_open(run, dir, 2);
    other_text = NULL;
}

static void close_all(struct run *run, const char *dir, struct fr_buffer *text)
{
    run_close(run);
    remove_dir(dir);
    fr_buffer_release(text);
}

FR_CASE(without_a_limit_the_largest_event_time_is_the_watermark)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_buffer text = {0};
    open_with(&run, dir, &text, "");
    feed(&run, 0, 0);
    assert_int_equal(watermark(&run), BATCH_SPAN - SECOND);
    feed(&run, 3, YEAR);
    assert_int_equal(watermark(&run), BATCH_SPAN + 3 * SECOND + YEAR);
    close_all(&run, dir, &text);
}

FR_CASE(a_sample_beyond_the_step_is_trained_and_the_watermark_rises_by_the_step)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_buffer text = {0};
    open_with(&run, dir, &text, "watermark_step_max: 20s, ");
    feed(&run, 0, 0);
    /* a first batch within a step of its median */
    assert_int_equal(watermark(&run), BATCH_SPAN - SECOND);
    feed(&run, 3, YEAR);
    assert_int_equal(watermark(&run), BATCH_SPAN - SECOND + 20 * SECOND);
    struct fr_trainer_status status = status_of(&run);
    assert_int_equal(status.history.samples, 2 * BATCH);
    assert_int_equal(status.run.watermark_held, 1);
    feed(&run, 0, 0); /* the times of the stream still decide */
    assert_int_equal(watermark(&run), 3 * BATCH_SPAN - SECOND);
    feed(&run, 0, -YEAR); /* and a time of the past has no effect */
    assert_int_equal(watermark(&run), 4 * BATCH_SPAN - SECOND);
    assert_int_equal(status_of(&run).run.watermark_held, 1);
    close_all(&run, dir, &text);
}

FR_CASE(a_history_begins_at_the_median_of_its_first_batch)
{
    static const int64_t wrong[] = {365LL * 86400 * SECOND, -365LL * 86400 * SECOND};
    for (size_t i = 0; i < FR_ARRAY_LEN(wrong); i++) {
        char dir[FR_TEST_FOLDER];
        struct run run;
        struct fr_buffer text = {0};
        open_with(&run, dir, &text, "watermark_step_max: 2s, ");
        feed(&run, 0, wrong[i]);
        /* of 0 s to 15 s without the first, and one beyond all or before all: the 8th */
        assert_int_equal(watermark(&run), (wrong[i] > 0 ? 8 : 7) * SECOND + 2 * SECOND);
        close_all(&run, dir, &text);
    }
}

/* No sample is suspect, so the batch is trained in parts; all parts raise the watermark from the
 * same value. */
FR_CASE(parts_of_a_refused_batch_rise_one_step_together)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_buffer text = {0};
    struct fr_err err = {0};
    open_with(&run, dir, &text, "watermark_step_max: 5s, ");
    feed(&run, 0, 0);
    int64_t before = watermark(&run);
    struct fr_batch *batch = make_batch(run.conf, run.applied);
    for (uint32_t i = 0; i < BATCH; i++)
        batch->t_ms[i] += YEAR;
    break_sample(batch, 5);
    uint64_t applied_before = run.applied;
    assert_true(fr_ring_try_push(run.full, batch));
    while (run.applied == applied_before) {
        assert_true(fr_trainer_step(run.trainer, &err) >= 0);
        drain_stages(&run);
    }
    struct fr_trainer_status status = status_of(&run);
    assert_int_equal(status.history.quarantined_samples, 1);
    assert_int_equal(status.history.watermark_ms - 1700000000000, before + 5 * SECOND);
    close_all(&run, dir, &text);
}

FR_CASE(a_run_with_a_limit_and_a_restart_is_the_same_run)
{
    struct fr_sha256 digests[2];
    for (int restart = 0; restart < 2; restart++) {
        char dir[FR_TEST_FOLDER];
        struct run run;
        struct fr_buffer text = {0};
        open_with(&run, dir, &text, "watermark_step_max: 3s, ");
        while (run.applied < 2 * EPOCH_BATCHES + 1)
            feed(&run, (uint32_t)(run.applied % BATCH), run.applied % 3 == 0 ? YEAR : 0);
        if (restart) {
            run_close(&run);
            other_text = (const char *)text.data;
            run_open(&run, dir, 1);
            other_text = NULL;
        }
        while (run.applied < 4 * EPOCH_BATCHES) /* from the last epoch on */
            feed(&run, (uint32_t)(run.applied % BATCH), run.applied % 3 == 0 ? YEAR : 0);
        digests[restart] = chain_digest(&run);
        close_all(&run, dir, &text);
    }
    assert_memory_equal(&digests[0], &digests[1], sizeof(digests[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_the_largest_event_time_is_the_watermark),
        cmocka_unit_test(a_sample_beyond_the_step_is_trained_and_the_watermark_rises_by_the_step),
        cmocka_unit_test(a_history_begins_at_the_median_of_its_first_batch),
        cmocka_unit_test(parts_of_a_refused_batch_rise_one_step_together),
        cmocka_unit_test(a_run_with_a_limit_and_a_restart_is_the_same_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
