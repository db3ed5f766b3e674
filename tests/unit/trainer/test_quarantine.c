/* Batches that are not finite: nothing of them stays, positions go on, and too many in a row hold publishing. */
#include "trainer_fixture.h"

#include "../../../trainer/trainer_private.h"
#include "../store/store_image.h"

/* Everything that decides what the trainer does next, but for positions, counters and the hold. */
static void private_image(const struct run *run, struct fr_buffer *out)
{
    const struct fr_trainer *trainer = run->trainer;
    store_image(trainer->store, out);
    size_t n = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < n; i++)
        fr_buffer_append(out, parameters[i].values, parameters[i].n_values * sizeof(float));
    fr_graph_save_state(trainer->graph, out);
    for (uint32_t i = 0; i < trainer->conf->n_tasks; i++) {
        fr_metrics_section_put(out, trainer->conf->tasks[i].name, trainer->metrics[i]);
        fr_task_metrics_encode(trainer->metrics[i], out);
    }
    fr_put_u64(out, (uint64_t)trainer->watermark_ms);
    fr_put_f64(out, trainer->last_loss);
}

static void assert_same_model(const struct run *a, const struct run *b)
{
    struct fr_buffer x = {0}, y = {0};
    private_image(a, &x);
    private_image(b, &y);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    fr_buffer_release(&x);
    fr_buffer_release(&y);
}

/* Takes one batch, cuts that are due included. */
static void apply(struct run *run, struct fr_batch *batch)
{
    struct fr_err err = {0};
    uint64_t before = run->applied;
    assert_true(fr_ring_try_push(run->full, batch));
    while (run->applied == before) {
        assert_int_equal(fr_trainer_step(run->trainer, &err), FR_OK);
        drain_stages(run);
    }
    void *used;
    assert_int_equal(fr_ring_pop(run->empty, &used, 0), FR_OK);
    fr_batch_free(used);
}

static struct fr_batch *broken_batch(const struct run *run, uint64_t number)
{
    struct fr_batch *batch = make_batch(run->conf, number);
    break_batch(batch);
    return batch;
}

struct scene {
    char dir[32];
    struct run run;
};

static void scene_open(struct scene *scene, uint32_t batches)
{
    make_dir(scene->dir);
    epoch_batches = batches;
    run_open(&scene->run, scene->dir, 2);
    epoch_batches = 0;
}

static void scene_close(struct scene *scene)
{
    drain_stages(&scene->run);
    run_close(&scene->run);
    remove_dir(scene->dir);
}

/* Everything that has state of its own: statistics of slots and activations, dropout's steps, row steps, schedules. */
static const char stateful_text[] =
    "version: 1\n"
    "model: unit\n"
    "state_dir: /nonexistent\n"
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, lockstep: {records: 16, epoch_batches: 4}}\n"
    "tables:\n"
    "  user: {dim: 4, admit: {count: 2}, expire: {idle: 30s}, optimizer: {adam: {lr: 0.1, warmup_samples: 100}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  price: {kind: dense, dim: 1, transform: standardize}\n"
    "labels: {click: {}}\n"
    "network:\n"
    "  layers:\n"
    "    - {name: h, mlp: [user_id, price], units: [8], activation: dice}\n"
    "    - {name: n, layer_norm: h}\n"
    "    - {name: d, dropout: n, rate: 0.3}\n"
    "    - {name: out, dense: d, units: 1}\n"
    "  optimizer: {adamw: {lr: 0.01, clip_norm: 10, decay_samples: 1000}}\n"
    "tasks: [{name: click, label: click, logit: out}]\n"
    "export: {topic: d, quantize: f16}\n"
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m]}\n";

static void expect_quarantine_to_change_nothing(const char *text)
{
    struct scene scene;
    struct fr_buffer before = {0}, after = {0};
    other_text = text;
    scene_open(&scene, 1000);
    other_text = NULL;
    for (uint64_t i = 0; i < 30; i++) {
        private_image(&scene.run, &before);
        apply(&scene.run, broken_batch(&scene.run, i)); /* new keys, admissions and a later time all along */
        private_image(&scene.run, &after);
        assert_int_equal(before.size, after.size);
        assert_memory_equal(before.data, after.data, before.size);
        apply(&scene.run, make_batch(scene.run.conf, i));
    }
    struct fr_trainer_status status;
    fr_trainer_publish_status(scene.run.trainer);
    fr_trainer_get_status(scene.run.trainer, &status);
    assert_int_equal(status.quarantined_batches, 30);
    assert_int_equal(status.quarantined_samples, 30 * BATCH);
    assert_int_equal(status.samples, 30 * BATCH);
    assert_int_equal(status.batches, 60);
    assert_int_equal(scene.run.quarantined, 30);
    assert_true(isfinite(status.last_loss) && status.tables[0].stats.admitted > 0);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
    scene_close(&scene);
}

static void a_batch_that_is_not_finite_leaves_everything_as_it_was(void **state)
{
    (void)state;
    expect_quarantine_to_change_nothing(config_text);
}

static void statistics_masks_and_schedules_do_not_see_quarantined_batches(void **state)
{
    (void)state;
    expect_quarantine_to_change_nothing(stateful_text);
}

/* Behind standardization the values are tame; the variance is not. */
static void no_batch_makes_a_statistic_that_is_not_finite(void **state)
{
    (void)state;
    struct scene scene;
    other_text = stateful_text;
    scene_open(&scene, 1000);
    other_text = NULL;
    for (uint64_t i = 0; i < 3; i++) {
        struct fr_batch *batch = make_batch(scene.run.conf, i);
        for (uint32_t k = 0; k < BATCH; k++)
            batch->columns[1].dense[k] = k % 2 ? 3e38f : -3e38f;
        apply(&scene.run, batch);
    }
    const struct fr_parameter *parameters = fr_graph_parameters(scene.run.trainer->graph);
    for (size_t i = 0; i < fr_graph_parameter_count(scene.run.trainer->graph); i++)
        for (size_t v = 0; v < parameters[i].n_values; v++)
            assert_true(isfinite(parameters[i].values[v]));
    scene_close(&scene);
}

static void the_model_is_that_of_the_stream_without_quarantined_batches(void **state)
{
    (void)state;
    struct scene with, without;
    scene_open(&with, 1000);
    scene_open(&without, 1000);
    for (uint64_t i = 0; i < 80; i++) { /* expiry slices come and go, also in the middle of a hold */
        for (uint64_t k = 0; k < i * 7 % 5; k++)
            apply(&with.run, broken_batch(&with.run, 200 + i * 5 + k));
        apply(&with.run, make_batch(with.run.conf, i));
        apply(&without.run, make_batch(without.run.conf, i));
    }
    assert_same_model(&with.run, &without.run);
    struct fr_store_table_stats stats;
    fr_store_stats(with.run.trainer->store, 0, &stats);
    assert_true(stats.expired[FR_ABSENT_IDLE] > 0 && stats.admitted > 0);
    scene_close(&with);
    scene_close(&without);
}

static void a_logit_that_only_metrics_would_see_quarantines_too(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 1000);
    apply(&scene.run, make_batch(scene.run.conf, 0));
    struct fr_batch *batch = make_batch(scene.run.conf, 1);
    for (uint32_t i = 0; i < 2; i++) {
        batch->use[i] = FR_USE_METRICS;
        batch->role[i] = FR_ROLE_METRICS_ONLY;
        batch->columns[1].dense[i] = INFINITY;
    }
    struct fr_buffer before = {0}, after = {0};
    private_image(&scene.run, &before);
    apply(&scene.run, batch);
    private_image(&scene.run, &after);
    assert_int_equal(scene.run.quarantined, 1);
    assert_memory_equal(before.data, after.data, before.size);
    assert_int_equal(scene.run.trainer->metrics_only, 2);
    assert_int_equal(scene.run.trainer->quarantined_samples, BATCH - 2);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
    scene_close(&scene);
}

static void positions_go_on_in_epochs_of_quarantined_batches(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 2);
    apply(&scene.run, broken_batch(&scene.run, 0));
    apply(&scene.run, broken_batch(&scene.run, 1));
    struct fr_err err = {0};
    assert_int_equal(fr_trainer_step(scene.run.trainer, &err), FR_OK); /* the cut */
    assert_int_equal(drain_stages(&scene.run), 1);
    run_close(&scene.run);
    run_open(&scene.run, scene.dir, 1);
    assert_int_equal(scene.run.applied, 2);
    assert_int_equal(scene.run.quarantined, 2);
    scene_close(&scene);
}

static void assert_hold(const struct run *run, bool held, uint64_t publishable)
{
    struct fr_trainer_status status;
    fr_trainer_get_status(run->trainer, &status);
    assert_int_equal(fr_trainer_held(run->trainer), held);
    assert_int_equal(status.held, held);
    assert_int_equal(fr_trainer_publishable(run->trainer), publishable);
}

static void three_in_a_row_hold_publishing_and_three_good_ones_end_it(void **state)
{
    (void)state;
    struct scene scene;
    struct run *run = &scene.run;
    scene_open(&scene, 1); /* a cut before every batch */
    apply(run, make_batch(run->conf, 0));
    for (int round = 0; round < 3; round++) { /* never three */
        apply(run, broken_batch(run, 1));
        apply(run, broken_batch(run, 1));
        apply(run, make_batch(run->conf, 1));
    }
    assert_hold(run, false, 9);
    for (int i = 0; i < FR_QUARANTINE_ROW_MAX; i++) {
        assert_false(fr_trainer_held(run->trainer));
        apply(run, broken_batch(run, 2));
    }
    assert_hold(run, true, 12); /* epoch 12 was cut before the third of them */
    apply(run, make_batch(run->conf, 2));
    apply(run, make_batch(run->conf, 3));
    assert_hold(run, true, 12);
    assert_int_equal(run->publishable, 12); /* epochs 13 and 14 are durable */
    apply(run, broken_batch(run, 4));       /* begins anew */
    for (int i = 0; i < FR_QUARANTINE_ROW_MAX; i++) {
        struct fr_batch *silent = make_batch(run->conf, 5);
        memset(silent->role, FR_ROLE_METRICS_ONLY, silent->n_samples);
        memset(silent->use, FR_USE_METRICS, silent->n_samples);
        apply(run, silent); /* proves nothing */
        assert_hold(run, true, 12);
        apply(run, make_batch(run->conf, 6));
    }
    assert_false(fr_trainer_held(run->trainer));
    struct fr_err err = {0};
    assert_int_equal(fr_trainer_step(run->trainer, &err), FR_OK);
    drain_stages(run);
    assert_int_equal(run->publishable, run->trainer->epoch);
    scene_close(&scene);
}

static void a_hold_and_its_counters_survive_a_restart(void **state)
{
    (void)state;
    struct scene scene;
    struct run *run = &scene.run;
    struct fr_err err = {0};
    scene_open(&scene, 1);
    apply(run, make_batch(run->conf, 0));
    for (int i = 0; i < FR_QUARANTINE_ROW_MAX; i++)
        apply(run, broken_batch(run, 1));
    apply(run, make_batch(run->conf, 1));
    fr_trainer_stop(run->trainer);
    assert_int_equal(fr_trainer_step(run->trainer, &err), FR_EOF); /* the last epoch is held too */
    assert_int_equal(drain_stages(run), 1);
    assert_int_equal(run->publishable, 3);
    run_close(run);
    epoch_batches = 1;
    run_open(run, scene.dir, 1);
    epoch_batches = 0;
    assert_hold(run, true, 3);
    apply(run, make_batch(run->conf, 2));
    assert_hold(run, true, 3);
    apply(run, make_batch(run->conf, 3)); /* the third good one, with the one before the restart */
    assert_hold(run, false, 3);
    assert_int_equal(fr_trainer_step(run->trainer, &err), FR_OK);
    assert_hold(run, false, 7);
    assert_int_equal(drain_stages(run), 1);
    assert_int_equal(run->publishable, 7);
    scene_close(&scene);
}

static bool broken_often(uint64_t number)
{
    return number % 11 == 3 || (number >= 14 && number < 19) || (number >= 30 && number < 34);
}

static void runs_with_restarts_write_the_same_epochs_around_quarantined_batches(void **state)
{
    (void)state;
    struct scene whole, cut;
    scene_open(&whole, 0);
    whole.run.broken = broken_often;
    feed_until(&whole.run, 48);
    struct fr_sha256 expected = chain_digest(&whole.run);
    assert_true(whole.run.quarantined > 10);
    scene_open(&cut, 0);
    for (uint64_t end = 6; end <= 48; end += 3) { /* in the middle of rows and of epochs */
        cut.run.broken = broken_often;
        feed_until(&cut.run, end);
        run_close(&cut.run);
        run_open(&cut.run, cut.dir, 1);
    }
    struct fr_sha256 digest = chain_digest(&cut.run);
    assert_memory_equal(&digest, &expected, sizeof(expected));
    assert_int_equal(cut.run.quarantined, whole.run.quarantined);
    assert_int_equal(fr_trainer_publishable(cut.run.trainer), fr_trainer_publishable(whole.run.trainer));
    scene_close(&whole);
    scene_close(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_is_not_finite_leaves_everything_as_it_was),
        cmocka_unit_test(statistics_masks_and_schedules_do_not_see_quarantined_batches),
        cmocka_unit_test(no_batch_makes_a_statistic_that_is_not_finite),
        cmocka_unit_test(the_model_is_that_of_the_stream_without_quarantined_batches),
        cmocka_unit_test(a_logit_that_only_metrics_would_see_quarantines_too),
        cmocka_unit_test(positions_go_on_in_epochs_of_quarantined_batches),
        cmocka_unit_test(three_in_a_row_hold_publishing_and_three_good_ones_end_it),
        cmocka_unit_test(a_hold_and_its_counters_survive_a_restart),
        cmocka_unit_test(runs_with_restarts_write_the_same_epochs_around_quarantined_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
