/* The owner loop over real store, graph and journal, without Kafka: batches come from a table in memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "decode/decoder.h"
#include "eviction/eviction.h"
#include "trainer/trainer.h"

enum { BATCH = 16, EPOCH_BATCHES = 4 };

static const char config_text[] =
    "version: 1\n"
    "model: unit\n"
    "state_dir: /nonexistent\n"
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, lockstep: {records: 16, epoch_batches: 4}}\n"
    "tables:\n"
    "  user: {dim: 4, admit: {count: 2}, expire: {idle: 30s}, optimizer: {adagrad: {lr: 0.1}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  price: {kind: dense, dim: 1}\n"
    "labels: {click: {}}\n"
    "network:\n"
    "  layers:\n"
    "    - {name: h, mlp: [user_id, price], units: [8]}\n"
    "    - {name: out, dense: h, units: 1}\n"
    "  optimizer: {adam: {lr: 0.01}}\n"
    "tasks: [{name: click, label: click, logit: out}]\n"
    "export: {topic: d}\n"
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m]}\n";

/* Everything one run needs; the stream position is the number of batches applied. */
struct run {
    struct fr_conf *conf;
    struct fr_clock_fake clock;
    struct fr_pool *pool;
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stages[2];
    struct fr_gate_count gate_config;
    struct fr_expire_idle expire_config;
    struct fr_gate_policy gate;
    struct fr_expiry_policy expiry;
    struct fr_trainer *trainer;
    struct fr_durable *durable;
    uint64_t applied; /* batches, restored from the section */
    char dir[64];
};

static void applied(void *self, const struct fr_batch *batch, bool quarantined)
{
    (void)batch;
    (void)quarantined;
    ((struct run *)self)->applied++;
}

static void stage_positions(void *self, struct fr_buffer *section)
{
    fr_put_u64(section, ((struct run *)self)->applied);
}

static uint32_t no_offsets(void *self, struct fr_announced_offset **offsets)
{
    (void)self;
    *offsets = NULL;
    return 0;
}

static enum fr_status restore_positions(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    if (strcmp(name, "positions") == 0 && size == 8)
        ((struct run *)self)->applied = fr_load_u64(bytes);
    return FR_OK;
}

static void run_open(struct run *run, const char *dir, size_t workers)
{
    memset(run, 0, sizeof(*run));
    snprintf(run->dir, sizeof(run->dir), "%s", dir);
    struct fr_buffer problems = {0};
    struct fr_err err = {0};
    enum fr_status status =
        fr_conf_load(&(struct fr_conf_load_options){.path = "unit.yaml", .text = config_text}, &run->conf, &problems);
    if (status != FR_OK)
        print_message("%.*s\n", (int)problems.size, (const char *)problems.data);
    assert_int_equal(status, FR_OK);
    fr_buffer_release(&problems);
    fr_clock_fake_init(&run->clock, 1700000000000);
    run->pool = fr_pool_new(workers);
    run->full = fr_ring_new(4);
    run->empty = fr_ring_new(4);
    run->cut_stages = fr_ring_new(2);
    run->free_stages = fr_ring_new(2);
    for (int i = 0; i < 2; i++) {
        fr_stage_init(&run->stages[i]);
        assert_true(fr_ring_try_push(run->free_stages, &run->stages[i]));
    }
    run->gate_config = (struct fr_gate_count){.count = 2, .idle_ms = 86400000};
    run->gate = fr_gate_count_policy(&run->gate_config);
    run->expire_config = (struct fr_expire_idle){.idle_ms = 30000};
    run->expiry = fr_expire_idle_policy(&run->expire_config);
    struct fr_trainer_options options = {.conf = run->conf,
                                         .clock = &run->clock.clock,
                                         .pool = run->pool,
                                         .gates = &run->gate,
                                         .expiries = &run->expiry,
                                         .stream = {run, applied, stage_positions, no_offsets},
                                         .full = run->full,
                                         .empty = run->empty,
                                         .cut_stages = run->cut_stages,
                                         .free_stages = run->free_stages};
    assert_int_equal(fr_trainer_new(&options, &run->trainer, &err), FR_OK);
    assert_int_equal(
        fr_durable_open(&(struct fr_durable_options){.dir = dir, .head = "head", .head_size = 4}, &run->durable, &err),
        FR_OK);
    assert_int_equal(fr_trainer_restore(run->trainer, run->durable, restore_positions, run, NULL, &err), FR_OK);
}

static void run_close(struct run *run)
{
    void *batch;
    while (fr_ring_pop(run->empty, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_trainer_free(run->trainer);
    fr_durable_close(run->durable);
    for (int i = 0; i < 2; i++)
        fr_stage_release(&run->stages[i]);
    fr_ring_free(run->full);
    fr_ring_free(run->empty);
    fr_ring_free(run->cut_stages);
    fr_ring_free(run->free_stages);
    fr_pool_free(run->pool);
    fr_conf_free(run->conf);
}

static struct fr_batch *make_batch(const struct fr_conf *conf, uint64_t number)
{
    struct fr_batch *batch = fr_batch_new(conf);
    struct fr_decoder *decoder = fr_decoder_new(conf);
    for (uint64_t i = number * BATCH; i < (number + 1) * BATCH; i++) {
        char text[200];
        int size = snprintf(text, sizeof(text), "{\"t\":%llu,\"y\":%llu,\"f\":{\"user_id\":%llu,\"price\":%llu}}",
                            (unsigned long long)(1700000000000 + i * 1000), (unsigned long long)(i * 7 % 3 == 0),
                            (unsigned long long)(i * i % 37 + (number > 20 ? 100 : 0)), (unsigned long long)(i % 5));
        uint32_t count = 0;
        const char *reason = NULL;
        struct fr_record record = {.value = text, .size = (size_t)size, .timestamp_ms = 1800000000000};
        enum fr_status status = fr_decode_record(decoder, &record, &count, &reason);
        if (status != FR_OK)
            print_message("%s: %s\n", text, reason);
        assert_int_equal(status, FR_OK);
        fr_decode_append(decoder, 0, count, batch);
    }
    batch->n_positions = 0;
    fr_decoder_free(decoder);
    return batch;
}

/* Makes every waiting stage durable; returns how many. */
static int drain_stages(struct run *run)
{
    void *item;
    int count = 0;
    struct fr_err err = {0};
    while (fr_ring_pop(run->cut_stages, &item, 0) == FR_OK) {
        assert_int_equal(fr_durable_append(run->durable, item, NULL, &(struct fr_sha256){{0}}, &err), FR_OK);
        assert_true(fr_ring_try_push(run->free_stages, item));
        count++;
    }
    return count;
}

/* Feeds batches up to `end` (exclusive), as the ingest thread would from the applied position. */
static void feed_until(struct run *run, uint64_t end)
{
    struct fr_err err = {0};
    while (run->applied < end) {
        if (fr_ring_count(run->full) == 0)
            assert_true(fr_ring_try_push(run->full, make_batch(run->conf, run->applied)));
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        drain_stages(run);
    }
    while (fr_trainer_step(run->trainer, &err) == FR_OK) /* a cut that is due */
        drain_stages(run);
    drain_stages(run);
}

static struct fr_sha256 chain_digest(struct run *run)
{
    struct fr_durable_status status;
    fr_durable_get_status(run->durable, &status);
    return status.digest;
}

static void make_dir(char *dir)
{
    strcpy(dir, "/tmp/freshet-unit-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void remove_dir(const char *dir)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void a_restart_between_epochs_leaves_the_chain_as_it_was(void **state)
{
    (void)state;
    char whole_dir[32], cut_dir[32];
    make_dir(whole_dir);
    make_dir(cut_dir);
    struct run run;
    run_open(&run, whole_dir, 1);
    feed_until(&run, 48);
    struct fr_sha256 whole = chain_digest(&run);
    run_close(&run);
    for (uint64_t end = 10; end <= 48; end += end < 48 ? 19 : 1) { /* 10, 29, 48: the first two in mid-epoch */
        run_open(&run, cut_dir, 2);
        struct fr_trainer_status status;
        fr_trainer_get_status(run.trainer, &status);
        assert_int_equal(status.batches, run.applied);
        assert_int_equal(run.applied % EPOCH_BATCHES, 0);
        feed_until(&run, end);
        struct fr_sha256 digest = chain_digest(&run);
        if (end == 48)
            assert_memory_equal(&digest, &whole, sizeof(whole));
        run_close(&run);
    }
    remove_dir(whole_dir);
    remove_dir(cut_dir);
}

static void a_drain_writes_one_last_epoch_and_a_restart_none(void **state)
{
    (void)state;
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    feed_until(&run, 6);
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 1);
    run_close(&run);

    run_open(&run, dir, 1);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_int_equal(status.batches, 6);
    assert_int_equal(status.epoch, 2);
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 0);
    run_close(&run);
    remove_dir(dir);
}

static void a_pause_takes_no_batch_until_it_is_lifted(void **state)
{
    (void)state;
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, 0)));
    fr_trainer_pause(run.trainer, "journal_max: full");
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, 0);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_string_equal(status.paused, "journal_max: full");
    fr_trainer_pause(run.trainer, NULL);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, 1);
    run_close(&run);
    remove_dir(dir);
}

static void at_memory_limit_reading_pauses_with_the_reason_and_cuts_go_on(void **state)
{
    (void)state;
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    feed_until(&run, 2);
    run.conf->memory_limit = 1;
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, 2)));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, 2);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_non_null(strstr(status.paused, "memory_limit"));
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 1);
    void *batch;
    assert_int_equal(fr_ring_pop(run.full, &batch, 0), FR_OK);
    fr_batch_free(batch);
    run_close(&run);
    remove_dir(dir);
}

static void a_batch_that_is_not_finite_changes_nothing_and_three_in_a_row_end_the_trainer(void **state)
{
    (void)state;
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    feed_until(&run, 3);
    struct fr_trainer_status after;
    for (int i = 0; i < 3; i++) {
        struct fr_batch *batch = make_batch(run.conf, 3);
        batch->columns[1].dense[0] = 1e38f; /* finite for the decoder, not behind a few products */
        batch->columns[1].dense[1] = 3e38f;
        assert_true(fr_ring_try_push(run.full, batch));
        enum fr_status stepped;
        uint64_t applied_before = run.applied;
        do /* a cut may be due first */
            stepped = fr_trainer_step(run.trainer, &err);
        while (stepped == FR_OK && run.applied == applied_before);
        drain_stages(&run);
        assert_int_equal(stepped, i < 2 ? FR_OK : FR_E_NONFINITE);
    }
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    fr_trainer_get_status(run.trainer, &after);
    assert_int_equal(after.quarantined_batches, 3);
    assert_int_equal(after.quarantined_samples, 3 * BATCH);
    assert_true(after.samples == 3 * BATCH && isfinite(after.last_loss));
    drain_stages(&run);
    run_close(&run);
    remove_dir(dir);
}

static void a_stage_that_is_not_back_holds_a_lockstep_cut_and_the_next_batch(void **state)
{
    (void)state;
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    void *first, *second;
    assert_int_equal(fr_ring_pop(run.free_stages, &first, 0), FR_OK);
    assert_int_equal(fr_ring_pop(run.free_stages, &second, 0), FR_OK);
    for (uint64_t i = 0; i < EPOCH_BATCHES; i++) {
        assert_true(fr_ring_try_push(run.full, make_batch(run.conf, i)));
        assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    }
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, EPOCH_BATCHES)));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, EPOCH_BATCHES);
    assert_true(fr_ring_try_push(run.free_stages, first));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK); /* the cut */
    assert_int_equal(run.applied, EPOCH_BATCHES);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, EPOCH_BATCHES + 1);
    drain_stages(&run);
    run_close(&run);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_between_epochs_leaves_the_chain_as_it_was),
        cmocka_unit_test(a_drain_writes_one_last_epoch_and_a_restart_none),
        cmocka_unit_test(a_pause_takes_no_batch_until_it_is_lifted),
        cmocka_unit_test(at_memory_limit_reading_pauses_with_the_reason_and_cuts_go_on),
        cmocka_unit_test(a_batch_that_is_not_finite_changes_nothing_and_three_in_a_row_end_the_trainer),
        cmocka_unit_test(a_stage_that_is_not_back_holds_a_lockstep_cut_and_the_next_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
