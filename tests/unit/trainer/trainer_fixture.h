/* What the trainer's tests share: the owner loop over real store, graph and journal, without Kafka.
 * Batches are a function of their number, so a run that starts again reads the same stream. */
#ifndef FR_TESTS_TRAINER_FIXTURE_H
#define FR_TESTS_TRAINER_FIXTURE_H

#include <math.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "decode/decoder.h"
#include "batch/records.h"
#include "eviction/eviction.h"
#include "fake_clock.h"
#include "trainer/trainer.h"

enum { BATCH = 16, EPOCH_BATCHES = 4, LETTERS_MAX = 1024, TABLES_MAX = 4 };

static const char config_text[] =
    "version: 1\n"
    "model: unit\n"
    "state_dir: /nonexistent\n"
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 2,\n"
    "  lockstep: {records: 16, epoch_batches: 4}}\n"
    "tables:\n"
    "  user: {dim: 4, admit: {count: 2}, expire: {idle: 30s, every: 128}, optimizer: {adagrad: {lr: 0.1}}}\n"
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
    struct fr_table_policies policies[TABLES_MAX]; /* the same for each table */
    struct fr_trainer *trainer;
    struct fr_durable *durable;
    /* batches, restored from the section; quarantined: all samples left out */
    uint64_t applied, quarantined;
    uint64_t left_out; /* samples */
    bool letters_full;
    uint32_t n_letters;
    struct letter {
        char reason[512], value[200];
    } letters[LETTERS_MAX];
    uint64_t publishable;               /* of the last durable stage */
    bool (*broken)(uint64_t number);    /* NULL: every batch is sound */
    uint32_t (*unfit)(uint64_t number); /* bits of samples to break; NULL: none */
    char dir[FR_TEST_FOLDER];
};

/* Of the next run_open: so many batches between two lockstep cuts, 0: as in the configuration; and
 * another configuration, NULL: config_text. */
static uint32_t epoch_batches;
static const char *other_text;
/* Likewise the device; NULL: the processor. */
static const struct fr_graph_device *other_device;
/* Likewise the exchange of a rank, whose state has the salt of all ranks; NULL: one rank. */
static struct fr_exchange *other_exchange;
/* Likewise a rule of expiry beside the idle one; none where its rank is NULL. */
static struct fr_expiry_policy other_rule;

static inline void applied(void *self, const struct fr_batch *batch)
{
    struct run *run = self;
    uint32_t left_out = 0;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        left_out += batch->role[i] == FR_ROLE_QUARANTINED;
    run->applied++;
    run->quarantined += left_out == batch->n_samples;
    run->left_out += left_out;
}

static inline enum fr_status keep_letter(void *self, const struct fr_batch *batch, const struct fr_batch_record *record,
                                         const char *reason, uint64_t *number)
{
    struct run *run = self;
    struct fr_record_parts parts;
    if (run->letters_full)
        return FR_AGAIN;
    assert_true(run->n_letters < LETTERS_MAX);
    fr_batch_record_parts(batch, record, NULL, 0, &parts);
    struct letter *letter = &run->letters[run->n_letters];
    snprintf(letter->reason, sizeof(letter->reason), "%s", reason);
    snprintf(letter->value, sizeof(letter->value), "%.*s", (int)parts.size, (const char *)parts.value);
    *number = ++run->n_letters;
    return FR_OK;
}

static inline void stage_positions(void *self, struct fr_buffer *section)
{
    fr_put_u64(section, ((struct run *)self)->applied);
    fr_put_u64(section, ((struct run *)self)->quarantined);
}

static inline uint32_t no_offsets(void *self, struct fr_announced_offset **offsets)
{
    (void)self;
    *offsets = NULL;
    return 0;
}

static inline enum fr_status restore_positions(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct run *run = self;
    if (strcmp(name, "positions") == 0 && size == 16) {
        run->applied = fr_load_u64(bytes);
        run->quarantined = fr_load_u64(bytes + 8);
    }
    return FR_OK;
}

static inline void run_open(struct run *run, const char *dir, size_t workers)
{
    memset(run, 0, sizeof(*run));
    snprintf(run->dir, sizeof(run->dir), "%s", dir);
    struct fr_buffer problems = {0};
    struct fr_err err = {0};
    const char *text = other_text ? other_text : config_text;
    enum fr_status status =
        fr_conf_load(&(struct fr_conf_load_options){.path = "unit.yaml", .text = text}, &run->conf, &problems);
    if (status != FR_OK)
        print_message("%.*s\n", (int)problems.size, (const char *)problems.data);
    assert_int_equal(status, FR_OK);
    fr_buffer_release(&problems);
    if (epoch_batches > 0)
        run->conf->ingest.lockstep_epoch_batches = epoch_batches;
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
    run->policies[0].gate = fr_gate_count_policy(&run->gate_config);
    run->expire_config = (struct fr_expire_idle){.idle_ms = 30000};
    run->policies[0].n_expiries = 1;
    run->policies[0].expiries[0] = fr_expire_idle_policy(&run->expire_config);
    if (other_rule.rank)
        run->policies[0].expiries[run->policies[0].n_expiries++] = other_rule;
    for (uint32_t t = 1; t < TABLES_MAX; t++)
        run->policies[t] = run->policies[0];
    struct fr_trainer_options options = {.conf = run->conf,
                                         .clock = &run->clock.clock,
                                         .pool = run->pool,
                                         .policies = run->policies,
                                         .stream = {run, applied, stage_positions, no_offsets, keep_letter},
                                         .full = run->full,
                                         .empty = run->empty,
                                         .cut_stages = run->cut_stages,
                                         .free_stages = run->free_stages,
                                         .device = other_device,
                                         .exchange = other_exchange};
    run->trainer = fr_trainer_new(&options);
    const struct fr_durable_options state = {
        .dir = dir, .head = "head", .head_size = 4, .salt = other_exchange ? 7 : 0};
    assert_int_equal(fr_durable_open(&state, &run->durable, &err), FR_OK);
    struct fr_trainer_restore_options restore = {.other = restore_positions, .self = run};
    assert_int_equal(fr_trainer_restore(run->trainer, run->durable, &restore, &err), FR_OK);
}

static inline void run_close(struct run *run)
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

/* Makes one sample unfit: its gradient, or after a normalization the gradient of its weight, is not
 * finite. Its label is far off for any logit. */
static inline void break_sample(struct fr_batch *batch, uint32_t i)
{
    batch->columns[1].dense[i] = batch->weights[i] = 3e38f;
    batch->labels[i] = 0.5f;
}

static inline void break_batch(struct fr_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_samples; i++)
        break_sample(batch, i);
}

/* Adds the record at offset i, which must decode, to the batch. */
static inline void add_record(struct fr_decoder *decoder, const char *text, int size, uint64_t i,
                              struct fr_batch *batch)
{
    uint32_t count = 0;
    const char *reason = NULL;
    struct fr_record record = {.value = text, .size = (size_t)size, .timestamp_ms = 1800000000000};
    enum fr_status status = fr_decode_record(decoder, &record, &count, &reason);
    if (status != FR_OK)
        print_message("%s: %s\n", text, reason);
    assert_int_equal(status, FR_OK);
    fr_batch_add_record(batch, &(struct fr_batch_record){.offset = (int64_t)i},
                        &(struct fr_record_parts){.value = text, .size = (size_t)size});
    fr_decode_append(decoder, 0, count, batch);
}

/* Without the samples whose bit is set in `without`. */
static inline struct fr_batch *make_batch_without(const struct fr_conf *conf, uint64_t number, uint32_t without)
{
    struct fr_batch *batch = fr_batch_new(conf);
    struct fr_decoder *decoder = fr_decoder_new(conf);
    for (uint64_t i = number * BATCH; i < (number + 1) * BATCH; i++) {
        if (without >> i % BATCH & 1)
            continue;
        char text[200];
        int size = snprintf(text, sizeof(text), "{\"t\":%llu,\"y\":%llu,\"f\":{\"user_id\":%llu,\"price\":%llu}}",
                            (unsigned long long)(1700000000000 + i * 1000), (unsigned long long)(i * 7 % 3 == 0),
                            (unsigned long long)(i * i % 37 + (number > 20 ? 100 : 0)), (unsigned long long)(i % 5));
        add_record(decoder, text, size, i, batch);
    }
    batch->n_positions = 0;
    fr_decoder_free(decoder);
    return batch;
}

static inline struct fr_batch *make_batch(const struct fr_conf *conf, uint64_t number)
{
    return make_batch_without(conf, number, 0);
}

/* Makes every waiting stage durable; returns how many. */
static inline int drain_stages(struct run *run)
{
    void *item;
    int count = 0;
    struct fr_err err = {0};
    while (fr_ring_pop(run->cut_stages, &item, 0) == FR_OK) {
        run->publishable = ((struct fr_stage *)item)->publishable;
        assert_int_equal(fr_durable_append(run->durable, item, NULL, &(struct fr_sha256){{0}}, &err), FR_OK);
        assert_true(fr_ring_try_push(run->free_stages, item));
        count++;
    }
    return count;
}

static inline void offer_next(struct run *run)
{
    struct fr_batch *batch = make_batch(run->conf, run->applied);
    if (run->broken && run->broken(run->applied))
        break_batch(batch);
    else if (run->unfit)
        for (uint32_t i = 0; i < BATCH; i++)
            if (run->unfit(run->applied) >> i & 1)
                break_sample(batch, i);
    assert_true(fr_ring_try_push(run->full, batch));
}

/* Feeds batches up to `end` (exclusive), as the ingest thread would from the applied position. */
static inline void feed_until(struct run *run, uint64_t end)
{
    struct fr_err err = {0};
    while (run->applied < end) {
        if (fr_ring_count(run->full) == 0)
            offer_next(run);
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        drain_stages(run);
    }
    while (fr_trainer_step(run->trainer, &err) == FR_OK) /* a cut that is due */
        drain_stages(run);
    drain_stages(run);
}

static inline struct fr_sha256 chain_digest(struct run *run)
{
    struct fr_durable_status status;
    fr_durable_get_status(run->durable, &status);
    return status.digest;
}

static inline void remove_dir(const char *dir)
{
    char command[FR_TEST_FOLDER + 16];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

#endif
