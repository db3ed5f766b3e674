/* What counts for each task is state, and a task that learns nothing says so. */
#include "trainer_fixture.h"

#include "../../../trainer/trainer_private.h"

enum { HALVES = 400, SILENT_BATCHES = (FR_TASK_SILENT_SAMPLES + BATCH - 1) / BATCH };

#define HEAD                                                                                                           \
    "version: 1\n"                                                                                                     \
    "model: unit\n"                                                                                                    \
    "state_dir: /nonexistent\n"                                                                                        \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, lockstep: {records: 16, epoch_batches: 400}}\n"        \
    "tables:\n"                                                                                                        \
    "  user: {dim: 4}\n"                                                                                               \
    "slots:\n"                                                                                                         \
    "  user_id: {table: user}\n"                                                                                       \
    "  price: {kind: dense, dim: 1}\n"                                                                                 \
    "labels: {click: {}}\n"                                                                                            \
    "export: {topic: d}\n"                                                                                             \
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m]}\n"

struct scene {
    char dir[FR_TEST_FOLDER];
    struct run run;
};

static void scene_open(struct scene *scene, const char *text)
{
    fr_test_folder(scene->dir);
    other_text = text;
    run_open(&scene->run, scene->dir, 2);
}

static void scene_close(struct scene *scene)
{
    drain_stages(&scene->run);
    run_close(&scene->run);
    remove_dir(scene->dir);
    other_text = NULL;
}

struct seen { /* of the status */
    struct fr_trainer_task_counts counts;
    char problem[sizeof(((struct fr_trainer_task_status *)0)->problem)];
};

static struct seen status_of(struct run *run, uint32_t task)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_publish_status(run->trainer);
    fr_trainer_get_status(run->trainer, status);
    struct seen seen = {.counts = status->history.tasks[task]};
    memcpy(seen.problem, status->tasks[task].problem, sizeof(seen.problem));
    free(status);
    return seen;
}

FR_CASE(what_counts_for_a_task_is_state)
{
    struct scene scene;
    scene_open(&scene, NULL);
    feed_until(&scene.run, 2 * EPOCH_BATCHES);
    assert_int_equal(status_of(&scene.run, 0).counts.samples, 2 * EPOCH_BATCHES * BATCH);
    assert_int_equal(status_of(&scene.run, 0).counts.pairs, 0);
    run_close(&scene.run);
    run_open(&scene.run, scene.dir, 2);
    assert_int_equal(status_of(&scene.run, 0).counts.samples, 2 * EPOCH_BATCHES * BATCH);
    feed_until(&scene.run, 3 * EPOCH_BATCHES);
    assert_int_equal(status_of(&scene.run, 0).counts.samples, 3 * EPOCH_BATCHES * BATCH);
    scene_close(&scene);
}

FR_CASE(a_ranking_of_plain_samples_says_that_it_finds_no_pair)
{
    struct scene scene;
    scene_open(&scene, HEAD "network: {layers: [{name: out, dense: [user_id, price], units: 1}]}\n"
                            "tasks: [{name: click, label: click, logit: out, loss: pairwise}]\n");
    feed_until(&scene.run, SILENT_BATCHES - 1);
    assert_string_equal(status_of(&scene.run, 0).problem, "");
    feed_until(&scene.run, SILENT_BATCHES);
    assert_non_null(strstr(status_of(&scene.run, 0).problem, "no pair in the last 10000 trained samples"));
    assert_true(scene.run.trainer->tasks[0].reported);
    scene_close(&scene);
}

/* Takes one batch with the given labels. */
static void feed_labels(struct run *run, float label)
{
    struct fr_err err = {0};
    struct fr_batch *batch = make_batch(run->conf, run->applied);
    uint64_t before = run->applied;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        batch->labels[i] = label;
    assert_true(fr_ring_try_push(run->full, batch));
    while (run->applied == before) {
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        drain_stages(run);
    }
}

FR_CASE(a_task_without_labels_says_so_until_one_comes)
{
    struct scene scene;
    scene_open(&scene, NULL);
    for (uint32_t i = 0; i < SILENT_BATCHES; i++)
        feed_labels(&scene.run, NAN);
    assert_non_null(strstr(status_of(&scene.run, 0).problem, "no label `click` in the last 10000 trained samples"));
    assert_int_equal(status_of(&scene.run, 0).counts.samples, 0);
    feed_labels(&scene.run, 1.0f);
    assert_string_equal(status_of(&scene.run, 0).problem, "");
    assert_int_equal(status_of(&scene.run, 0).counts.samples, BATCH);
    scene_close(&scene);
}

FR_CASE(a_loss_that_reaches_nothing_says_so_from_the_start)
{
    struct scene scene;
    scene_open(&scene, HEAD "network:\n"
                            "  layers:\n"
                            "    - {name: out, dense: [user_id, price], units: 1}\n"
                            "    - {name: stopped, add: [{stop_gradient: out}]}\n"
                            "    - {name: flat, layer_norm: out}\n"
                            "tasks:\n"
                            "  - {name: learns, label: click, logit: out}\n"
                            "  - {name: behind, label: click, logit: stopped}\n"
                            "  - {name: constant, label: click, logit: flat}\n"
                            "  - {name: shown, label: click, logit: stopped, loss: none}\n");
    for (uint32_t t = 0; t < 4; t++) {
        bool expected = t == 1 || t == 2;
        assert_true(scene.run.trainer->tasks[t].reported == expected);
        assert_true((status_of(&scene.run, t).problem[0] != '\0') == expected);
        assert_true((fr_trainer_task_warning(scene.run.trainer->graph, t) != NULL) == expected);
    }
    scene_close(&scene);
}

/* Labels are halves, so what the trainer measures as predictions comes to a half, if it takes the
 * network's output for what the loss makes of it. */
static double mean_prediction_of_halves(enum fr_task_loss loss, bool *regression)
{
    struct scene scene;
    char text[2048];
    snprintf(
        text, sizeof(text),
        HEAD
        "network: {optimizer: {adam: {lr: 0.05}}, layers: [{name: out, dense: [user_id, price], units: 1, init: zeros}]}\n"
        "tasks: [{name: half, label: click, logit: out, loss: %s}]\n",
        fr_task_loss_text(loss));
    scene_open(&scene, text);
    scene.run.conf->tasks[0].focal_alpha = 0.5f; /* a half is where both classes weigh the same */
    for (int b = 0; b < HALVES; b++)
        feed_labels(&scene.run, 0.5f);
    struct fr_task_result *result = fr_alloc(1, sizeof(*result));
    fr_task_metrics_result(scene.run.trainer->measuring.tasks[0], result);
    double mean = result->lifetime.prediction_mean;
    *regression = result->regression;
    free(result);
    scene_close(&scene);
    return mean;
}

#define LOSS(name, ...) name,

FR_CASE(a_prediction_is_measured_as_what_its_loss_trained)
{
    static const enum fr_task_loss losses[] = {FR_TASK_LOSSES(LOSS)};
    for (size_t k = 0; k < FR_ARRAY_LEN(losses); k++) {
        bool regression;
        double mean = mean_prediction_of_halves(losses[k], &regression);
        if (!(fabs(mean - 0.5) < 0.06))
            fail_msg("%s: predictions of halves are %g on average", fr_task_loss_text(losses[k]), mean);
        assert_int_equal(regression, fr_loss_prediction(losses[k]) == FR_PREDICTS_VALUE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_counts_for_a_task_is_state),
        cmocka_unit_test(a_ranking_of_plain_samples_says_that_it_finds_no_pair),
        cmocka_unit_test(a_task_without_labels_says_so_until_one_comes),
        cmocka_unit_test(a_loss_that_reaches_nothing_says_so_from_the_start),
        cmocka_unit_test(a_prediction_is_measured_as_what_its_loss_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
