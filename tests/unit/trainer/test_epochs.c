/* What epochs carry: dense parameters, their state and metrics in those since which they changed,
 * and a recovery that ends at exactly the last cut whatever single epochs lack. */
#include "model_image.h"

#include "../../../trainer/graph/network.h"
#include "../store/store_image.h"

#define TEXT(units, dense_every)                                                                                       \
    "version: 1\n"                                                                                                     \
    "model: unit\n"                                                                                                    \
    "state_dir: /nonexistent\n"                                                                                        \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 16}\n"                                     \
    "tables:\n"                                                                                                        \
    "  user: {dim: 4, admit: {count: 2}, optimizer: {adagrad: {lr: 0.1}}}\n"                                           \
    "slots:\n"                                                                                                         \
    "  user_id: {table: user}\n"                                                                                       \
    "  price: {kind: dense, dim: 1, transform: standardize}\n"                                                         \
    "labels: {click: {}, buy: {}}\n"                                                                                   \
    "network:\n"                                                                                                       \
    "  layers:\n"                                                                                                      \
    "    - {name: h, mlp: [user_id, price], units: " units "}\n"                                                       \
    "    - {name: a, dense: h, units: 1}\n"                                                                            \
    "    - {name: b, dense: h, units: 1}\n"                                                                            \
    "  optimizer: {adam: {lr: 0.01}}\n"                                                                                \
    "tasks: [{name: click, label: click, logit: a}, {name: buy, label: buy, logit: b}]\n"                              \
    "epoch: 1s\n"                                                                                                      \
    "export: {topic: d, dense_every: " dense_every "}\n"                                                               \
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m, 1h], gauc_by: user_id}\n"

enum what { TRAIN, TRAIN_CLICK, METRICS_ONLY, MASKED, NOTHING, WHATS };

/* One batch in which every sample does the same. */
static void feed(struct run *run, enum what what)
{
    struct fr_batch *batch = fr_batch_new(run->conf);
    struct fr_decoder *decoder = fr_decoder_new(run->conf);
    struct fr_err err = {0};
    for (uint64_t i = run->applied * BATCH; i < (run->applied + 1) * BATCH; i++) {
        char label[64] = "{}", text[256];
        if (what == TRAIN)
            snprintf(label, sizeof(label), "{\"click\":%d,\"buy\":%d}", i * 7 % 3 == 0, i % 5 == 0);
        else if (what != MASKED)
            snprintf(label, sizeof(label), "{\"click\":%d}", i * 7 % 3 == 0);
        int size =
            snprintf(text, sizeof(text), "{\"t\":%llu,\"y\":%s,\"u\":%d,\"f\":{\"user_id\":%llu,\"price\":%llu}}",
                     (unsigned long long)(1700000000000 + i * 1000), label, what == METRICS_ONLY ? 2 : 3,
                     (unsigned long long)(i * i % 37), (unsigned long long)(i % 5));
        uint32_t count = 0;
        const char *reason = NULL;
        struct fr_record record = {.value = text, .size = (size_t)size, .timestamp_ms = 1800000000000};
        assert_int_equal(fr_decode_record(decoder, &record, &count, &reason), FR_OK);
        fr_decode_append(decoder, 0, count, batch);
    }
    batch->n_positions = 0;
    fr_decoder_free(decoder);
    uint64_t before = run->applied;
    assert_true(fr_ring_try_push(run->full, batch));
    while (run->applied == before)
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
    void *used;
    assert_int_equal(fr_ring_pop(run->empty, &used, 0), FR_OK);
    fr_batch_free(used);
}

/* Cuts, makes the epoch durable and gives its bytes. */
static struct fr_epoch cut(struct run *run, struct fr_buffer *bytes)
{
    void *stage;
    struct fr_err err = {0};
    struct fr_epoch epoch;
    assert_int_equal(fr_trainer_reserve_stage(run->trainer, 0), FR_OK);
    assert_int_equal(fr_trainer_cut(run->trainer, false), FR_OK);
    assert_int_equal(fr_ring_pop(run->cut_stages, &stage, 0), FR_OK);
    fr_buffer_clear(bytes);
    assert_int_equal(fr_durable_append(run->durable, stage, bytes, NULL, &err), FR_OK);
    assert_true(fr_ring_try_push(run->free_stages, stage));
    assert_int_equal(fr_epoch_parse(bytes->data, bytes->size, &epoch), FR_OK);
    return epoch;
}

static bool has(const struct fr_epoch *epoch, const char *name)
{
    const uint8_t *bytes;
    size_t size;
    return fr_epoch_section(epoch, name, &bytes, &size) == FR_OK;
}

static unsigned count_below(const struct fr_epoch *epoch, const char *prefix)
{
    const uint8_t *at = NULL, *bytes;
    char name[FR_SECTION_NAME_MAX];
    size_t size;
    unsigned n = 0;
    while (fr_epoch_next_section(epoch, &at, name, &bytes, &size) == FR_OK)
        n += strncmp(name, prefix, strlen(prefix)) == 0;
    return n;
}

/* Everything that decides what the trainer does next. */
static void private_image(const struct run *run, struct fr_buffer *out)
{
    const struct fr_trainer *trainer = run->trainer;
    const struct fr_table *table = &trainer->store->tables[0];
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        image_of_entries(table, &table->shards[s], out);
    struct fr_store_table_stats stats; /* a restart puts all counts into one shard: sums only */
    fr_store_stats(trainer->store, 0, &stats);
    fr_put_u64(out, stats.counts.admitted);
    fr_put_u64(out, stats.counts.rejected);
    fr_put_u64(out, stats.counts.pending);
    model_image(trainer, out);
    fr_put_u64(out, trainer->history.samples);
    fr_put_u64(out, run->applied);
}

static void assert_same(const struct run *a, const struct run *b)
{
    struct fr_buffer x = {0}, y = {0};
    private_image(a, &x);
    private_image(b, &y);
    assert_same_image(&x, &y);
}

static void close_run(struct run *run, const char *dir)
{
    run_close(run);
    remove_dir(dir);
}

/* 1 M parameters were 11.9 MB in every epoch. */
/* The bytes of values and optimizer state of all parameters, which an epoch holds when all of them
 * changed. */
static uint64_t dense_bytes(const struct fr_graph *graph)
{
    uint64_t values = 0;
    for (size_t p = 0; p < graph->n_parameters; p++) {
        const struct parameter_state *state = &graph->parameter_states[p];
        values += (uint64_t)graph->parameters[p].n_values *
                  (1u + (state->state0 != NULL) + (state->state1 != NULL) + (state->average != NULL));
    }
    return values * sizeof(float);
}

FR_CASE(an_epoch_without_a_trained_sample_is_small)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_buffer bytes = {0};
    fr_test_folder(dir);
    other_text = TEXT("[1000, 1000]", "1s");
    run_open(&run, dir, 1);
    feed(&run, TRAIN);
    struct fr_epoch epoch = cut(&run, &bytes);
    assert_true(bytes.size > 12000000);
    /* what the configuration refuses over unfolded_max */
    uint64_t dense = dense_bytes(run.trainer->graph);
    assert_true(bytes.size > dense && run.conf->dense_bytes <= dense && run.conf->dense_bytes > dense - 100);
    assert_int_equal(count_below(&epoch, "dense/"), fr_graph_parameter_count(run.trainer->graph));
    fr_clock_fake_advance_ms(&run.clock, 60000);
    for (int i = 0; i < 3; i++) {
        epoch = cut(&run, &bytes);
        assert_true(bytes.size < 4096);
        assert_true(has(&epoch, "announce") && has(&epoch, "positions") && has(&epoch, "trainer"));
    }
    close_run(&run, dir);
    /* as a restart finds it, of another directory: the first epoch has everything again */
    fr_test_folder(dir);
    run_open(&run, dir, 1);
    epoch = cut(&run, &bytes);
    assert_true(bytes.size > 12000000);
    close_run(&run, dir);
    fr_buffer_release(&bytes);
    other_text = NULL;
}

FR_CASE(an_epoch_has_what_its_samples_changed)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_buffer bytes = {0};
    fr_test_folder(dir);
    other_text = TEXT("[8]", "1h");
    run_open(&run, dir, 1);
    for (int round = 0; round < 4; round++) {
        feed(&run, TRAIN);
        struct fr_epoch epoch = cut(&run, &bytes);
        assert_true(has(&epoch, "dense/h/0/kernel") && has(&epoch, "dense_state/h/0/kernel"));
        assert_true(has(&epoch, "dense/price/mean") && has(&epoch, "dense_state"));
        assert_true(has(&epoch, "metrics/click") && has(&epoch, "metrics/buy"));
        feed(&run, TRAIN_CLICK);
        epoch = cut(&run, &bytes);
        assert_true(has(&epoch, "dense/h/0/kernel") && has(&epoch, "dense/a/kernel") && has(&epoch, "metrics/click"));
        /* not a label for it */
        assert_false(has(&epoch, "dense/b/kernel") || has(&epoch, "dense_state/b/kernel"));
        assert_false(has(&epoch, "dense/b/bias") || has(&epoch, "metrics/buy"));
        feed(&run, METRICS_ONLY);
        epoch = cut(&run, &bytes);
        assert_int_equal(count_below(&epoch, "dense"), 0);
        assert_true(has(&epoch, "metrics/click") && !has(&epoch, "metrics/buy"));
        feed(&run, MASKED);
        epoch = cut(&run, &bytes);
        assert_int_equal(count_below(&epoch, "dense"), 0);
        assert_int_equal(count_below(&epoch, "metrics/"), 0);
        if (round == 2) { /* what came back needs not be carried again */
            run_close(&run);
            run_open(&run, dir, 1);
            epoch = cut(&run, &bytes);
            assert_int_equal(count_below(&epoch, "dense"), 0);
            assert_int_equal(count_below(&epoch, "metrics/"), 0);
        }
    }
    close_run(&run, dir);
    fr_buffer_release(&bytes);
    other_text = NULL;
}

/* The values that the epochs which publish add up to, as a replica holds them. */
static void publish(const struct run *run, const struct fr_epoch *epoch, float **held, unsigned *published)
{
    const uint8_t *section, *at = NULL;
    size_t size;
    struct fr_arena arena = {.block_size = 4096};
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    assert_int_equal(fr_epoch_section(epoch, "announce", &section, &size), FR_OK);
    assert_int_equal(fr_announcement_parse(section, size, &arena, announcement), FR_OK);
    bool publishes = announcement->publish_dense;
    free(announcement);
    fr_arena_release(&arena);
    *published += publishes;
    struct fr_dense_view view;
    const struct fr_parameter *parameters = fr_graph_parameters(run->trainer->graph);
    for (size_t i = 0; publishes && fr_epoch_next_dense(epoch, &at, &view) == FR_OK; i = 0) {
        while (strcmp(parameters[i].name, view.name) != 0)
            i++;
        memcpy(held[i], view.values, view.n_values * sizeof(float));
    }
    for (size_t i = 0; publishes && i < fr_graph_parameter_count(run->trainer->graph); i++)
        assert_memory_equal(held[i], parameters[i].published, parameters[i].n_values * sizeof(float));
}

/* Random epochs, folds and restarts; after each restart the trainer is the one that never
 * stopped. */
static void restart_at_random(const char *text)
{
    other_text = text;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        char dirs[2][FR_TEST_FOLDER];
        struct run whole, killed;
        struct fr_buffer bytes = {0};
        struct fr_err err = {0};
        fr_test_folder(dirs[0]);
        fr_test_folder(dirs[1]);
        run_open(&whole, dirs[0], 1);
        run_open(&killed, dirs[1], 2);
        size_t n = fr_graph_parameter_count(whole.trainer->graph);
        float *held[32];
        unsigned published = 0, restarts = 0;
        assert_true(n <= FR_ARRAY_LEN(held));
        for (size_t i = 0; i < n; i++)
            held[i] = fr_alloc(fr_graph_parameters(whole.trainer->graph)[i].n_values, sizeof(float));
        for (uint64_t e = 0; e < 60; e++) {
            uint64_t r = fr_fmix64(seed * 1000 + e);
            enum what what = (enum what)(r % WHATS);
            for (int b = 0; what != NOTHING && b < 2; b++) {
                feed(&whole, what);
                feed(&killed, what);
            }
            fr_clock_fake_advance_ms(&whole.clock, 1000);
            fr_clock_fake_advance_ms(&killed.clock, 1000);
            (void)cut(&whole, &bytes);
            struct fr_epoch epoch = cut(&killed, &bytes);
            publish(&killed, &epoch, held, &published);
            if (r / 8 % 5 == 0)
                assert_int_equal(fr_durable_fold(killed.durable, &err), FR_OK);
            if (r / 64 % 3 != 0)
                continue;
            if (r / 512 % 2) /* lost with the process: what no cut had seen */
                feed(&killed, TRAIN);
            run_close(&killed);
            run_open(&killed, dirs[1], 1 + r / 1024 % 3);
            restarts++;
            assert_same(&whole, &killed);
        }
        assert_true(restarts > 5 && published > 5 && published < 50);
        for (size_t i = 0; i < n; i++)
            free(held[i]);
        close_run(&whole, dirs[0]);
        close_run(&killed, dirs[1]);
        fr_buffer_release(&bytes);
    }
    other_text = NULL;
}

FR_CASE(a_restart_after_any_epoch_ends_at_its_cut)
{
    restart_at_random(TEXT("[5]", "5s"));
}

FR_CASE(so_it_does_where_averages_are_published)
{
    restart_at_random(TEXT("[5]", "5s, average: {half_life: 200}"));
}

/* Replicas get the average; training continues from the values, which come back from the state. */
FR_CASE(epochs_publish_the_average_and_keep_the_values)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    struct fr_buffer bytes = {0};
    fr_test_folder(dir);
    other_text = TEXT("[5]", "0s, average: {half_life: 200}");
    run_open(&run, dir, 1);
    assert_true(run.conf->dense_bytes + 100 > dense_bytes(run.trainer->graph));
    for (int i = 0; i < 4; i++)
        feed(&run, TRAIN);
    struct fr_epoch epoch = cut(&run, &bytes);
    const struct fr_parameter *parameters = fr_graph_parameters(run.trainer->graph);
    const uint8_t *at = NULL, *state_bytes;
    unsigned apart = 0;
    struct fr_dense_view view;
    while (fr_epoch_next_dense(&epoch, &at, &view) == FR_OK) {
        size_t i = 0, size;
        while (strcmp(parameters[i].name, view.name) != 0)
            i++;
        char name[FR_SECTION_NAME_MAX];
        snprintf(name, sizeof(name), "dense_state/%s", view.name);
        assert_int_equal(fr_epoch_section(&epoch, name, &state_bytes, &size), FR_OK);
        const uint8_t *trained = fr_graph_trained_values(state_bytes, size, view.n_values);
        assert_memory_equal(view.values, parameters[i].published, view.n_values * sizeof(float));
        assert_true((trained != NULL) == parameters[i].trained);
        if (!trained)
            continue;
        assert_memory_equal(trained, parameters[i].values, view.n_values * sizeof(float));
        apart += memcmp(trained, view.values, view.n_values * sizeof(float)) != 0;
    }
    assert_true(apart >= 4);
    close_run(&run, dir);
    fr_buffer_release(&bytes);
    other_text = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_without_a_trained_sample_is_small),
        cmocka_unit_test(an_epoch_has_what_its_samples_changed),
        cmocka_unit_test(a_restart_after_any_epoch_ends_at_its_cut),
        cmocka_unit_test(so_it_does_where_averages_are_published),
        cmocka_unit_test(epochs_publish_the_average_and_keep_the_values),
    };
    return cmocka_run_group_tests_name("epochs", tests, NULL, NULL);
}
