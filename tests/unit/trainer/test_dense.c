/* When dense parameters and the model record are published: docs/formats/deltas.md, "dense" and
 * "model". */
#include "trainer_fixture.h"

#include "base/arena.h"

enum { EPOCH_MS = 1000, DENSE_MS = 5000, EPOCHS = 40 };

static const char live_text[] = "version: 1\n"
                                "model: unit\n"
                                "state_dir: /nonexistent\n"
                                "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 16}\n"
                                "tables:\n"
                                "  user: {dim: 4, admit: {count: 2}, optimizer: {adagrad: {lr: 0.1}}}\n"
                                "slots:\n"
                                "  user_id: {table: user}\n"
                                "  price: {kind: dense, dim: 1}\n"
                                "labels: {click: {}}\n"
                                "network: {layers: [{name: out, dense: [user_id, price], units: 1}]}\n"
                                "tasks: [{name: click, label: click, logit: out}]\n"
                                "epoch: 1s\n"
                                "export: {topic: d, dense_every: 5s}\n"
                                "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m]}\n";

struct cut {
    bool any, dense, model;
};

/* What the epoch of the waiting stage announces. */
static struct cut append_cut(struct run *run)
{
    void *stage = NULL;
    struct cut cut = {.any = fr_ring_pop(run->cut_stages, &stage, 0) == FR_OK};
    if (!cut.any)
        return cut;
    struct fr_buffer bytes = {0};
    struct fr_err err = {0};
    struct fr_epoch epoch;
    const uint8_t *section = NULL;
    size_t size = 0;
    struct fr_arena arena = {.block_size = 4096};
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    assert_int_equal(fr_durable_append(run->durable, stage, &bytes, &(struct fr_sha256){{0}}, &err), FR_OK);
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    assert_int_equal(fr_epoch_section(&epoch, "announce", &section, &size), FR_OK);
    assert_int_equal(fr_announcement_parse(section, size, &arena, announcement), FR_OK);
    cut.dense = announcement->publish_dense;
    cut.model = announcement->publish_model;
    assert_true(fr_ring_try_push(run->free_stages, stage));
    fr_arena_release(&arena);
    fr_buffer_release(&bytes);
    free(announcement);
    return cut;
}

static struct cut step_until_cut(struct run *run)
{
    struct fr_err err = {0};
    struct cut cut = {.any = false};
    for (int i = 0; i < 10 && !cut.any; i++) {
        if (fr_ring_count(run->full) == 0)
            offer_next(run);
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        cut = append_cut(run);
    }
    assert_true(cut.any);
    return cut;
}

static void close_run(struct run *run, const char *dir)
{
    void *batch;
    while (fr_ring_pop(run->full, &batch, 0) == FR_OK) /* offered, not taken */
        fr_batch_free(batch);
    run_close(run);
    other_text = NULL;
    remove_dir(dir);
}

FR_CASE(dense_parameters_are_published_every_dense_every_and_the_model_once)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    fr_test_folder(dir);
    other_text = live_text;
    run_open(&run, dir, 1);
    fr_clock_fake_advance_ms(&run.clock, 10 * EPOCH_MS);
    int without = 0;
    for (int e = 0; e < EPOCHS; e++) {
        struct cut cut = step_until_cut(&run);
        assert_int_equal(cut.model, e == 0);
        assert_int_equal(cut.dense, e * EPOCH_MS % DENSE_MS == 0);
        without += !cut.dense;
        fr_clock_fake_advance_ms(&run.clock, EPOCH_MS);
    }
    assert_true(without > EPOCHS / 2);
    close_run(&run, dir);
}

FR_CASE(the_last_epoch_of_a_drain_has_dense_parameters)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_err err = {0};
    fr_test_folder(dir);
    other_text = live_text;
    run_open(&run, dir, 1);
    fr_clock_fake_advance_ms(&run.clock, 10 * EPOCH_MS);
    assert_true(step_until_cut(&run).dense);
    fr_clock_fake_advance_ms(&run.clock, EPOCH_MS);
    assert_false(step_until_cut(&run).dense);
    uint64_t before = run.applied;
    offer_next(&run);
    while (run.applied == before)
        assert_true(fr_trainer_step(run.trainer, &err) >= 0);
    assert_false(append_cut(&run).any);
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    struct cut last = append_cut(&run);
    assert_true(last.any && last.dense && !last.model);
    close_run(&run, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_parameters_are_published_every_dense_every_and_the_model_once),
        cmocka_unit_test(the_last_epoch_of_a_drain_has_dense_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
