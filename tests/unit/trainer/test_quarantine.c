/* Batches and samples that are not finite: nothing of them stays, their records are dead-lettered,
 * positions advance, and too many batches in a row of which nothing trains hold publishing. */
#include "model_image.h"

#include "../store/store_image.h"

/* Wrapped by the linker: with nothing_is_suspect, refused batches are tried in halves. */
static bool nothing_is_suspect;
uint32_t __real_fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                  const struct fr_rows *rows, enum fr_suspect_look look, struct fr_suspect *found);
uint32_t __wrap_fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                  const struct fr_rows *rows, enum fr_suspect_look look, struct fr_suspect *found);
uint32_t __wrap_fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                  const struct fr_rows *rows, enum fr_suspect_look look, struct fr_suspect *found)
{
    return nothing_is_suspect ? 0 : __real_fr_graph_suspects(graph, batch, rows, look, found);
}

/* Everything that determines what the trainer does next, except positions, counters and the
 * hold. */
static void private_image(const struct run *run, struct fr_buffer *out)
{
    const struct fr_trainer *trainer = run->trainer;
    store_image(trainer->store, out);
    model_image(trainer, out);
    fr_put_f64(out, trainer->run.last_loss);
}

static void assert_same_model(const struct run *a, const struct run *b)
{
    struct fr_buffer x = {0}, y = {0};
    private_image(a, &x);
    private_image(b, &y);
    assert_same_image(&x, &y);
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
    char dir[FR_TEST_FOLDER];
    struct run run;
};

static void scene_open(struct scene *scene, uint32_t batches)
{
    fr_test_folder(scene->dir);
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

/* Everything that has state of its own: statistics of slots and activations, dropout's steps, row
 * steps, schedules. */
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
        /* new keys, admissions and a later time all along */
        apply(&scene.run, broken_batch(&scene.run, i));
        private_image(&scene.run, &after);
        assert_int_equal(before.size, after.size);
        assert_memory_equal(before.data, after.data, before.size);
        apply(&scene.run, make_batch(scene.run.conf, i));
    }
    struct fr_trainer_status status;
    fr_trainer_publish_status(scene.run.trainer);
    fr_trainer_get_status(scene.run.trainer, &status);
    assert_int_equal(status.history.quarantined_batches, 30);
    assert_int_equal(status.history.quarantined_samples, 30 * BATCH);
    assert_int_equal(status.history.samples, 30 * BATCH);
    assert_int_equal(status.history.batches, 60);
    assert_int_equal(scene.run.quarantined, 30);
    assert_true(isfinite(status.run.last_loss) && status.tables[0].stats.counts.admitted > 0);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
    scene_close(&scene);
}

FR_CASE(a_batch_that_is_not_finite_leaves_everything_as_it_was)
{
    expect_quarantine_to_change_nothing(config_text);
}

FR_CASE(statistics_masks_and_schedules_do_not_see_quarantined_batches)
{
    expect_quarantine_to_change_nothing(stateful_text);
}

/* Behind standardization the values are tame; the variance is not. */
FR_CASE(no_batch_makes_a_statistic_that_is_not_finite)
{
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

FR_CASE(the_model_is_that_of_the_stream_without_quarantined_batches)
{
    struct scene with, without;
    scene_open(&with, 1000);
    scene_open(&without, 1000);
    /* expiry slices come and go, also in the middle of a hold */
    for (uint64_t i = 0; i < 80; i++) {
        for (uint64_t k = 0; k < i * 7 % 5; k++)
            apply(&with.run, broken_batch(&with.run, 200 + i * 5 + k));
        apply(&with.run, make_batch(with.run.conf, i));
        apply(&without.run, make_batch(without.run.conf, i));
    }
    assert_same_model(&with.run, &without.run);
    struct fr_store_table_stats stats;
    fr_store_stats(with.run.trainer->store, 0, &stats);
    assert_true(stats.counts.expired[FR_ABSENT_IDLE] > 0 && stats.counts.admitted > 0);
    scene_close(&with);
    scene_close(&without);
}

/* ---- samples ---- */

enum breakage { BREAK_GRADIENT, BREAK_WEIGHT, BREAK_LOGIT, BREAKAGES };

static void break_one(struct fr_batch *batch, uint32_t i, enum breakage how)
{
    if (how == BREAK_GRADIENT)
        break_sample(batch, i);
    else if (how == BREAK_WEIGHT)
        batch->weights[i] = 3e38f;
    else
        /* decoders refuse it; behind products it comes about */
        batch->columns[1].dense[i] = INFINITY;
    if (how == BREAK_WEIGHT)
        batch->labels[i] = 0.5f;
}

/* Several samples of most batches, the others of the stream the same: not a bit of the model may
 * differ. `tame`: behind standardize no number is too large, once it knows the spread. */
static void expect_samples_to_leave_no_trace(const char *text, bool tame)
{
    struct scene with, without;
    uint64_t left_out = 0;
    other_text = text;
    scene_open(&with, 1000);
    scene_open(&without, 1000);
    other_text = NULL;
    for (uint64_t i = 0; i < 60; i++) {
        uint32_t bits = i % 3 == 0 ? 1u << i % BATCH : i % 3 == 1 ? 0x8421u << i % 2 & 0xffff : 0;
        struct fr_batch *batch = make_batch(with.run.conf, i);
        for (uint32_t k = 0; k < BATCH; k++)
            if (bits >> k & 1)
                break_one(batch, k, tame ? BREAK_WEIGHT : (enum breakage)((i + k) % BREAKAGES));
        left_out += (uint64_t)__builtin_popcount(bits);
        apply(&with.run, batch);
        apply(&without.run, make_batch_without(without.run.conf, i, bits));
        assert_same_model(&with.run, &without.run);
    }
    assert_int_equal(with.run.left_out, left_out);
    assert_int_equal(with.run.n_letters, left_out);
    assert_int_equal(with.run.trainer->history.quarantined_singly, left_out);
    assert_int_equal(with.run.trainer->history.quarantined_samples, left_out);
    assert_int_equal(with.run.trainer->history.samples, 60 * BATCH - left_out);
    assert_int_equal(with.run.trainer->history.quarantined_batches, 0);
    assert_false(fr_trainer_held(with.run.trainer));
    scene_close(&with);
    scene_close(&without);
}

FR_CASE(an_unfit_sample_costs_itself_and_leaves_no_trace)
{
    expect_samples_to_leave_no_trace(config_text, false);
}

FR_CASE(statistics_masks_and_schedules_do_not_see_an_unfit_sample)
{
    expect_samples_to_leave_no_trace(stateful_text, true);
}

FR_CASE(a_logit_that_only_metrics_would_see_costs_its_sample)
{
    struct scene with, without;
    scene_open(&with, 1000);
    scene_open(&without, 1000);
    apply(&with.run, make_batch(with.run.conf, 0));
    apply(&without.run, make_batch(without.run.conf, 0));
    struct fr_batch *batch = make_batch(with.run.conf, 1);
    for (uint32_t i = 0; i < 2; i++) {
        batch->use[i] = FR_USE_METRICS;
        batch->role[i] = FR_ROLE_METRICS_ONLY;
        batch->columns[1].dense[i] = INFINITY;
    }
    apply(&with.run, batch);
    apply(&without.run, make_batch_without(without.run.conf, 1, 3));
    assert_same_model(&with.run, &without.run);
    assert_int_equal(with.run.trainer->history.metrics_only, 0);
    assert_int_equal(with.run.trainer->history.quarantined_singly, 2);
    assert_int_equal(with.run.trainer->history.samples, 2 * BATCH - 2);
    scene_close(&with);
    scene_close(&without);
}

/* Each alone is within the bound, their sum is not: those with a share over it go. */
FR_CASE(samples_that_are_too_much_together_go_by_their_share)
{
    uint32_t together = 0;
    for (double weight = 1e13; weight < 1e17; weight *= 1.2) {
        struct scene scene;
        scene_open(&scene, 1000);
        apply(&scene.run, make_batch(scene.run.conf, 0));
        struct fr_batch *batch = make_batch(scene.run.conf, 1);
        for (uint32_t i = 0; i < BATCH / 2; i++) {
            batch->weights[i] = (float)weight;
            batch->labels[i] = 0.0f;
        }
        apply(&scene.run, batch);
        assert_int_equal(scene.run.trainer->sift.batch.trials, 0);
        assert_true(scene.run.left_out <= BATCH / 2);
        together += scene.run.left_out == BATCH / 2;
        scene_close(&scene);
    }
    assert_true(together > 0);
}

FR_CASE(where_nothing_points_at_a_sample_the_batch_goes_in_halves)
{
    struct scene scene;
    struct run *run = &scene.run;
    scene_open(&scene, 1000);
    nothing_is_suspect = true;
    apply(run, make_batch(run->conf, 0));
    struct fr_batch *batch = make_batch(run->conf, 1);
    break_one(batch, 5, BREAK_GRADIENT);
    break_one(batch, 13, BREAK_LOGIT);
    apply(run, batch);
    assert_int_equal(run->left_out, 2);
    assert_int_equal(run->trainer->history.samples, 2 * BATCH - 2);
    /* 2 halves, then 2 of each broken one, 4 levels in all, */
    assert_int_equal(run->trainer->sift.batch.trials, 14);
    assert_int_equal(run->n_letters, 2); /* except those under what was accepted */
    assert_non_null(strstr(run->letters[0].reason, "a step with this sample is refused"));
    assert_non_null(strstr(run->letters[0].reason, "price 3.0000000"));
    apply(run, broken_batch(run, 2));
    assert_int_equal(run->quarantined, 1);
    assert_int_equal(run->trainer->history.quarantined_batches, 1);
    apply(run, make_batch(run->conf, 3));
    assert_int_equal(run->trainer->history.samples, 3 * BATCH - 2);
    nothing_is_suspect = false;
    scene_close(&scene);
}

FR_CASE(trials_of_halves_have_a_limit)
{
    struct scene scene;
    struct run *run = &scene.run;
    scene_open(&scene, 1000);
    nothing_is_suspect = true;
    struct fr_batch *batch = make_batch(run->conf, 0), *more = make_batch(run->conf, 1);
    const uint32_t all = 8 * BATCH;
    for (int i = 0; i < 3; i++) { /* 128 samples: each twice as many as before */
        struct fr_decoder *decoder = fr_decoder_new(run->conf);
        uint32_t n = batch->n_samples;
        for (uint32_t k = 0; k < n; k++) {
            const char *text = "{\"t\":1700000000001,\"y\":1,\"f\":{\"user_id\":1,\"price\":1}}", *reason;
            uint32_t count;
            struct fr_record record = {.value = text, .size = strlen(text), .timestamp_ms = 1800000000000};
            assert_int_equal(fr_decode_record(decoder, &record, &count, &reason), FR_OK);
            fr_decode_append(decoder, 0, count, batch);
        }
        fr_decoder_free(decoder);
    }
    assert_int_equal(batch->n_samples, all);
    for (uint32_t k = 0; k < batch->n_samples; k += 2)
        break_one(batch, k, BREAK_LOGIT);
    apply(run, batch);
    assert_int_equal(run->trainer->sift.batch.trials, FR_SIFT_TRIALS_MAX);
    assert_true(run->left_out > all / 2 && run->left_out < all);
    assert_int_equal(run->trainer->history.samples + run->left_out, all);
    apply(run, more);
    nothing_is_suspect = false;
    scene_close(&scene);
}

static const char *letter_value(const struct run *run, uint32_t i)
{
    return run->letters[i].value;
}

FR_CASE(each_record_gets_one_letter_that_says_why)
{
    struct scene scene;
    struct run *run = &scene.run;
    scene_open(&scene, 1000);
    apply(run, make_batch(run->conf, 0));
    struct fr_batch *batch = make_batch(run->conf, 1);
    /* one record for samples 0 to 3, of which those before were in another batch; */
    fr_batch_drop_records(batch);
    batch->n_samples = 0; /* and one for the rest */
    fr_batch_add_record(batch, &(struct fr_batch_record){.offset = 7, .first_item = 5},
                        &(struct fr_record_parts){.value = "first", .size = 5});
    batch->n_samples = 4;
    fr_batch_add_record(batch, &(struct fr_batch_record){.offset = 8},
                        &(struct fr_record_parts){.value = "second", .size = 6});
    batch->n_samples = BATCH;
    break_one(batch, 1, BREAK_GRADIENT);
    break_one(batch, 3, BREAK_GRADIENT);
    break_one(batch, 9, BREAK_LOGIT);
    apply(run, batch);
    assert_int_equal(run->n_letters, 2);
    assert_string_equal(letter_value(run, 0), "first");
    assert_string_equal(letter_value(run, 1), "second");
    assert_non_null(strstr(run->letters[0].reason, "quarantined: sample 6 of the record (from 0): "));
    assert_non_null(strstr(run->letters[0].reason, "price 3.0000000"));
    assert_non_null(strstr(run->letters[0].reason, "; and 1 more samples of it"));
    assert_non_null(
        strstr(run->letters[1].reason, "sample 5 of the record (from 0): the logit of click is not finite"));
    assert_int_equal(run->trainer->dead_sequence, 2);
    scene_close(&scene);
}

/* Neither positions nor a cut may overtake a letter. */
FR_CASE(a_batch_takes_effect_when_its_letters_are_sent)
{
    struct scene scene;
    struct run *run = &scene.run;
    struct fr_err err = {0};
    scene_open(&scene, 1);
    apply(run, make_batch(run->conf, 0));
    assert_int_equal(fr_trainer_step(run->trainer, &err), FR_OK);
    assert_int_equal(drain_stages(run), 1);
    struct fr_batch *batch = make_batch(run->conf, 1);
    break_sample(batch, 2);
    run->letters_full = true;
    assert_true(fr_ring_try_push(run->full, batch));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fr_trainer_step(run->trainer, &err), FR_AGAIN);
        fr_trainer_stop(run->trainer);
        assert_int_equal(drain_stages(run), 0);
        assert_int_equal(run->applied, 1);
    }
    run->letters_full = false;
    assert_int_equal(fr_trainer_step(run->trainer, &err), FR_OK);
    assert_int_equal(run->applied, 2);
    assert_int_equal(run->n_letters, 1);
    assert_int_equal(fr_trainer_step(run->trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(run), 1);
    scene_close(&scene);
}

FR_CASE(while_publishing_is_held_whole_batches_stay_out_of_the_dead_letters)
{
    struct scene scene;
    scene_open(&scene, 1000);
    apply(&scene.run, make_batch(scene.run.conf, 0));
    for (int i = 0; i < 2 * FR_QUARANTINE_STREAK_MAX; i++)
        apply(&scene.run, broken_batch(&scene.run, 1));
    assert_true(fr_trainer_held(scene.run.trainer));
    assert_int_equal(scene.run.n_letters, FR_QUARANTINE_STREAK_MAX * BATCH);
    struct fr_batch *batch = make_batch(scene.run.conf, 2);
    break_sample(batch, 0);
    apply(&scene.run, batch);
    assert_int_equal(scene.run.n_letters, FR_QUARANTINE_STREAK_MAX * BATCH + 1);
    scene_close(&scene);
}

FR_CASE(positions_continue_in_epochs_of_quarantined_batches)
{
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
    assert_int_equal(status.history.held, held);
    assert_int_equal(fr_trainer_publishable(run->trainer), publishable);
}

FR_CASE(three_in_a_row_hold_publishing_and_three_good_ones_end_it)
{
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
    for (int i = 0; i < FR_QUARANTINE_STREAK_MAX; i++) {
        assert_false(fr_trainer_held(run->trainer));
        apply(run, broken_batch(run, 2));
    }
    assert_hold(run, true, 12); /* epoch 12 was cut before the third of them */
    apply(run, make_batch(run->conf, 2));
    apply(run, make_batch(run->conf, 3));
    assert_hold(run, true, 12);
    assert_int_equal(run->publishable, 12); /* epochs 13 and 14 are durable */
    apply(run, broken_batch(run, 4));       /* the streak begins again */
    for (int i = 0; i < FR_QUARANTINE_STREAK_MAX; i++) {
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

FR_CASE(a_hold_and_its_counters_survive_a_restart)
{
    struct scene scene;
    struct run *run = &scene.run;
    struct fr_err err = {0};
    scene_open(&scene, 1);
    apply(run, make_batch(run->conf, 0));
    for (int i = 0; i < FR_QUARANTINE_STREAK_MAX; i++)
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

FR_CASE(a_batch_of_which_something_trains_neither_holds_publishing_nor_prolongs_it)
{
    struct scene scene;
    struct run *run = &scene.run;
    scene_open(&scene, 1000);
    apply(run, make_batch(run->conf, 0));
    for (int i = 0; i < 3 * FR_QUARANTINE_STREAK_MAX; i++) { /* one sample of 16 is good */
        struct fr_batch *batch = make_batch(run->conf, 1);
        for (uint32_t k = 1; k < BATCH; k++)
            break_sample(batch, k);
        apply(run, batch);
        assert_false(fr_trainer_held(run->trainer));
    }
    for (int i = 0; i < FR_QUARANTINE_STREAK_MAX; i++)
        apply(run, broken_batch(run, 2));
    assert_true(fr_trainer_held(run->trainer));
    for (int i = 0; i < FR_QUARANTINE_STREAK_MAX; i++) {
        assert_true(fr_trainer_held(run->trainer));
        struct fr_batch *batch = make_batch(run->conf, 3);
        break_sample(batch, 0);
        apply(run, batch);
    }
    assert_false(fr_trainer_held(run->trainer));
    scene_close(&scene);
}

/* On a slow stream a batch is a sample. */
FR_CASE(a_few_bad_samples_of_a_slow_stream_hold_nothing)
{
    struct scene scene;
    struct run *run = &scene.run;
    scene_open(&scene, 1000);
    apply(run, make_batch(run->conf, 0));
    for (int i = 0; i < FR_QUARANTINE_SAMPLES_MIN; i++) {
        assert_false(fr_trainer_held(run->trainer));
        struct fr_batch *batch = make_batch_without(run->conf, 1, 0xfffe);
        break_sample(batch, 0);
        apply(run, batch);
    }
    assert_true(fr_trainer_held(run->trainer)); /* nothing else came */
    scene_close(&scene);
}

static bool broken_often(uint64_t number)
{
    return number % 11 == 3 || (number >= 14 && number < 19) || (number >= 30 && number < 34);
}

FR_CASE(runs_with_restarts_write_the_same_epochs_around_quarantined_batches)
{
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

static uint32_t unfit_often(uint64_t number)
{
    return number % 2 ? 0 : number % 3 ? 1u << number % BATCH : 0x2222;
}

FR_CASE(runs_with_restarts_write_the_same_epochs_around_unfit_samples)
{
    struct scene whole, cut;
    scene_open(&whole, 0);
    whole.run.unfit = unfit_often;
    feed_until(&whole.run, 48);
    struct fr_sha256 expected = chain_digest(&whole.run);
    assert_true(whole.run.left_out > 40);
    scene_open(&cut, 0);
    for (uint64_t end = 6; end <= 48; end += 3) {
        cut.run.unfit = unfit_often;
        feed_until(&cut.run, end);
        run_close(&cut.run);
        run_open(&cut.run, cut.dir, 1);
    }
    struct fr_sha256 digest = chain_digest(&cut.run);
    assert_memory_equal(&digest, &expected, sizeof(expected));
    assert_int_equal(cut.run.trainer->history.quarantined_singly, whole.run.left_out);
    assert_int_equal(cut.run.trainer->history.samples, 48 * BATCH - whole.run.left_out);
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
        cmocka_unit_test(an_unfit_sample_costs_itself_and_leaves_no_trace),
        cmocka_unit_test(statistics_masks_and_schedules_do_not_see_an_unfit_sample),
        cmocka_unit_test(a_logit_that_only_metrics_would_see_costs_its_sample),
        cmocka_unit_test(samples_that_are_too_much_together_go_by_their_share),
        cmocka_unit_test(where_nothing_points_at_a_sample_the_batch_goes_in_halves),
        cmocka_unit_test(trials_of_halves_have_a_limit),
        cmocka_unit_test(each_record_gets_one_letter_that_says_why),
        cmocka_unit_test(a_batch_takes_effect_when_its_letters_are_sent),
        cmocka_unit_test(while_publishing_is_held_whole_batches_stay_out_of_the_dead_letters),
        cmocka_unit_test(positions_continue_in_epochs_of_quarantined_batches),
        cmocka_unit_test(three_in_a_row_hold_publishing_and_three_good_ones_end_it),
        cmocka_unit_test(a_batch_of_which_something_trains_neither_holds_publishing_nor_prolongs_it),
        cmocka_unit_test(a_few_bad_samples_of_a_slow_stream_hold_nothing),
        cmocka_unit_test(a_hold_and_its_counters_survive_a_restart),
        cmocka_unit_test(runs_with_restarts_write_the_same_epochs_around_quarantined_batches),
        cmocka_unit_test(runs_with_restarts_write_the_same_epochs_around_unfit_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
