/* Shared columns computed once per group: the numbers of the expanded form, and exactness over
 * workers, runs and variants. */
#include "fixture.h"
#include "networks.h"

#include "base/hash.h"

/* user_id, history, price and age; item_id, clicks and hour; everything; a sequence alone; what no
 * layer reads with another; dense alone. */
static const uint32_t masks[] = {0x65, 0x8a, 0xff, 0x08, 0x101, 0xe0};

static void set_optimizers(struct fixture *fx, enum fr_optimizer_kind kind, float lr)
{
    fx->conf.dense_optimizer = fx_optimizer(kind, lr);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->conf.tables[t].n_parts; p++)
            fx->conf.tables[t].parts[p].optimizer = fx_optimizer(kind, lr);
}

static double step(struct fr_graph *graph, const struct fixture *fx)
{
    double loss = 0.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, &loss), FR_OK);
    return loss;
}

/* The result of a step. */
struct outcome {
    double loss;
    struct fr_buffer logits, changes, statistics; /* floats */
};

static void append(struct fr_buffer *out, const float *values, size_t n)
{
    fr_buffer_append(out, values, n * sizeof(float));
}

static void append_state(struct fr_buffer *out, struct fr_graph *graph, const struct fixture *fx, bool trained)
{
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        const struct fr_parameter *parameter = &fr_graph_parameters(graph)[p];
        if (parameter->trained == trained)
            append(out, parameter->values, parameter->n_values);
    }
    for (uint32_t t = 0; t < fx->conf.n_tables && trained; t++)
        append(out, fx->row_memory[t], (size_t)fx->vocabulary * fx->layouts[t].row_floats);
}

static struct outcome outcome_of(const struct network *network, uint32_t n, uint32_t mask, bool expanded)
{
    struct fixture fx;
    struct outcome outcome = {0};
    struct fr_buffer before = {0};
    fx_load(&fx, 40, network->text);
    set_optimizers(&fx, FR_OPT_SGD, 1.0f);
    fx_make_rows(&fx, 11);
    fx_make_groups(&fx, n, 7, mask, 31);
    fx_vary_roles(&fx);
    if (expanded)
        fx_expand_groups(&fx);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    append_state(&before, graph, &fx, true);
    outcome.loss = step(graph, &fx);
    for (uint32_t t = 0; t < fx.conf.n_tasks; t++)
        append(&outcome.logits, fr_graph_logits(graph, t), n);
    append_state(&outcome.changes, graph, &fx, true);
    append_state(&outcome.statistics, graph, &fx, false);
    for (size_t i = 0; i < before.size / sizeof(float); i++)
        ((float *)(void *)outcome.changes.data)[i] -= ((float *)(void *)before.data)[i];
    fr_buffer_release(&before);
    fr_graph_free(graph);
    fx_release(&fx);
    return outcome;
}

static void outcome_release(struct outcome *outcome)
{
    fr_buffer_release(&outcome->logits);
    fr_buffer_release(&outcome->changes);
    fr_buffer_release(&outcome->statistics);
}

static double relative_error(const struct fr_buffer *a, const struct fr_buffer *b)
{
    double error = 0.0, size = 1e-30;
    assert_int_equal(a->size, b->size);
    for (size_t i = 0; i < a->size / sizeof(float); i++) {
        double x = (double)((const float *)(const void *)a->data)[i];
        double y = (double)((const float *)(const void *)b->data)[i];
        error += (x - y) * (x - y);
        size += x * x;
    }
    return sqrt(error / size);
}

static void assert_same_outcome(const struct network *network, uint32_t n, uint32_t mask)
{
    struct outcome grouped = outcome_of(network, n, mask, false), plain = outcome_of(network, n, mask, true);
    double logits = relative_error(&grouped.logits, &plain.logits);
    double changes = relative_error(&grouped.changes, &plain.changes);
    double statistics = relative_error(&grouped.statistics, &plain.statistics);
    if (!(logits < 1e-6) || !(changes < 1e-5) || !(statistics < 1e-6) ||
        !(fabs(grouped.loss - plain.loss) < 1e-6 * fabs(plain.loss)))
        fail_msg("%s, %u samples, shared %x: logits %g, changes %g, statistics %g, loss %.9g and %.9g", network->name,
                 n, mask, logits, changes, statistics, grouped.loss, plain.loss);
    outcome_release(&grouped);
    outcome_release(&plain);
}

FR_CASE(groups_give_the_numbers_of_the_expanded_form)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        for (size_t m = 0; m < FR_ARRAY_LEN(masks); m++)
            assert_same_outcome(&nx_networks[i], 300, masks[m]);
}

/* If the shared columns are read first, sums over the kernel's rows run in the same order. */
FR_CASE(what_is_shared_read_first_gives_the_same_bits)
{
    if (!fr_ops_cpu()->rows_independent)
        skip();
    static const struct network network = {
        "shared first",
        NX_HEAD "network:\n"
                "  layers:\n"
                "    - {name: x, concat: [user_id, {mean: history.v}, price, item_id.v, hour]}\n"
                "    - {name: h, mlp: x, units: [24, 7]}\n"
                "    - {name: a, attention: {query: item_id.v, keys: history.v}}\n"
                "    - {name: out, dense: [user_id, h, a], units: 1}\n" NX_ONE_TASK,
        false};
    struct outcome grouped = outcome_of(&network, 300, 0x25, false), plain = outcome_of(&network, 300, 0x25, true);
    assert_int_equal(grouped.logits.size, plain.logits.size);
    assert_memory_equal(grouped.logits.data, plain.logits.data, plain.logits.size);
    outcome_release(&grouped);
    outcome_release(&plain);
}

FR_CASE(any_number_of_samples_will_do)
{
    /* the last: kernels summed in blocks */
    static const uint32_t sizes[] = {1, 2, 127, 128, 129, 1000, 5000};
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        for (size_t s = 0; s < FR_ARRAY_LEN(sizes); s++)
            assert_same_outcome(&nx_networks[i], sizes[s], masks[0]);
}

/* Hash of all parameters, optimizer state, rows and logits after batches of several forms and
 * sizes. */
static uint64_t trained_hash(const struct network *network, const struct fr_ops *ops, size_t workers)
{
    struct fixture fx;
    fx_load(&fx, 40, network->text);
    set_optimizers(&fx, FR_OPT_ADAGRAD, 0.05f);
    fx_make_rows(&fx, 11);
    struct fr_pool *pool = workers ? fr_pool_new(workers) : NULL;
    struct fr_graph *graph = fx_graph(&fx, ops, pool);
    fx_count_enough(graph);
    struct fr_buffer bytes = {0};
    static const uint32_t sizes[] = {400, 37, 4200, 300};
    for (uint32_t i = 0; i < FR_ARRAY_LEN(sizes); i++) {
        fx_make_groups(&fx, sizes[i], 9, masks[i], 51 + i);
        fx_vary_roles(&fx);
        step(graph, &fx);
        for (uint32_t t = 0; t < fx.conf.n_tasks; t++)
            append(&bytes, fr_graph_logits(graph, t), sizes[i]);
    }
    append_state(&bytes, graph, &fx, true);
    append_state(&bytes, graph, &fx, false);
    save_state(graph, &bytes);
    uint64_t hash = fr_xxh3(bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    fr_graph_free(graph);
    fr_pool_free(pool);
    fx_release(&fx);
    return hash;
}

/* Parameters, rows and state as they are now; put_snapshot takes them back. */
struct snapshot {
    struct fr_buffer state, trained, statistics;
};

static struct snapshot snapshot_of(struct fr_graph *graph, const struct fixture *fx)
{
    struct snapshot s = {0};
    save_state(graph, &s.state);
    append_state(&s.trained, graph, fx, true);
    append_state(&s.statistics, graph, fx, false);
    return s;
}

static void put_snapshot(const struct snapshot *s, struct fr_graph *graph, const struct fixture *fx)
{
    const uint8_t *trained = s->trained.data, *statistics = s->statistics.data;
    assert_int_equal(restore_state(graph, s->state.data, s->state.size), FR_OK);
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        struct fr_parameter *parameter = &fr_graph_parameters(graph)[p];
        const uint8_t **at = parameter->trained ? &trained : &statistics;
        memcpy(parameter->values, *at, parameter->n_values * sizeof(float));
        *at += parameter->n_values * sizeof(float);
    }
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        size_t size = (size_t)fx->vocabulary * fx->layouts[t].row_floats * sizeof(float);
        memcpy(fx->row_memory[t], trained, size);
        trained += size;
    }
}

static void snapshot_release(struct snapshot *s)
{
    fr_buffer_release(&s->state);
    fr_buffer_release(&s->trained);
    fr_buffer_release(&s->statistics);
}

/* The buffers of earlier batches, larger or smaller, have no effect. */
FR_CASE(an_earlier_batch_leaves_nothing_behind)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[i].text);
        set_optimizers(&fx, FR_OPT_SGD, 0x1p-8f);
        fx_make_rows(&fx, 11);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        struct snapshot start = snapshot_of(graph, &fx), first = {0};
        for (uint32_t round = 0; round < 2; round++) {
            put_snapshot(&start, graph, &fx);
            fx_make_groups(&fx, 200, 7, masks[0], 31);
            fx_vary_roles(&fx);
            step(graph, &fx);
            struct snapshot now = snapshot_of(graph, &fx);
            if (round == 1 && (first.trained.size != now.trained.size ||
                               memcmp(first.trained.data, now.trained.data, now.trained.size) != 0))
                fail_msg("%s: other gradients after other batches", nx_networks[i].name);
            snapshot_release(round == 0 ? &first : &now);
            first = round == 0 ? now : first;
            for (uint32_t other = 0; other < 2; other++) {
                fx_make_groups(&fx, other ? 20 : 300, 5, masks[0], 32);
                step(graph, &fx);
            }
        }
        snapshot_release(&start);
        snapshot_release(&first);
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

FR_CASE(neither_workers_nor_another_run_change_a_bit)
{
    const struct fr_ops *all[] = {fr_ops_cpu(), fr_ops_openblas()};
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        for (size_t b = 0; b < FR_ARRAY_LEN(all); b++) {
            uint64_t alone = trained_hash(&nx_networks[i], all[b], 0);
            for (size_t workers = 1; workers <= 3; workers++)
                if (trained_hash(&nx_networks[i], all[b], workers) != alone)
                    fail_msg("%s: %zu workers give other numbers", nx_networks[i].name, workers);
        }
    }
}

/* One grouped batch after `before` batches with other shared slots, more than variants are kept. */
static uint64_t hash_after_variants(const struct network *network, uint32_t before)
{
    struct fixture fx;
    fx_load(&fx, 40, network->text);
    fx_make_rows(&fx, 11);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (uint32_t i = 0; i < before; i++) {
        fx_make_groups(&fx, 60 + i % 3 * 100, 5, i + 1, 70 + i);
        fr_graph_forward(graph, &fx.batch, &fx.rows);
    }
    fx_make_groups(&fx, 170, 5, masks[0], 61);
    step(graph, &fx);
    struct fr_buffer bytes = {0};
    append(&bytes, fr_graph_logits(graph, 0), 170);
    append_state(&bytes, graph, &fx, true);
    uint64_t hash = fr_xxh3(bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    fr_graph_free(graph);
    fx_release(&fx);
    return hash;
}

FR_CASE(earlier_variants_do_not_change_a_bit)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        uint64_t fresh = hash_after_variants(&nx_networks[i], 0);
        assert_true(hash_after_variants(&nx_networks[i], 3) == fresh);
        assert_true(hash_after_variants(&nx_networks[i], 40) == fresh);
    }
}

/* Activations held after batches with `sets` different sets of shared slots, the last the same. */
static size_t bytes_after(uint32_t sets, size_t bytes_max)
{
    struct fixture fx;
    fx_load(&fx, 40, nx_networks[0].text);
    fx_make_rows(&fx, 11);
    struct fr_graph *graph = fr_graph_new(&(struct fr_graph_options){.conf = &fx.conf, .variant_bytes_max = bytes_max});
    for (uint32_t i = sets; i > 0; i--) {
        fx_make_groups(&fx, 170, 5, i, 61);
        fr_graph_forward(graph, &fx.batch, &fx.rows);
    }
    size_t bytes = fr_graph_variant_bytes(graph);
    fr_graph_free(graph);
    fx_release(&fx);
    return bytes;
}

FR_CASE(variants_beyond_the_memory_for_them_are_dropped)
{
    size_t one = bytes_after(1, 1);
    assert_true(one > 0);
    assert_int_equal(bytes_after(6, 1), one); /* the current one has what it needs */
    assert_true(bytes_after(6, 0) > 3 * one);
}

FR_CASE(a_scoring_graph_gives_the_training_graphs_logits)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[i].text);
        fx_make_rows(&fx, 11);
        fx_make_groups(&fx, 170, 5, masks[0], 61);
        struct fr_graph *training = fx_graph(&fx, NULL, NULL), *scoring;
        struct fr_graph_options options = {.conf = &fx.conf, .scoring_only = true};
        scoring = fr_graph_new(&options);
        assert_int_equal(fr_graph_parameter_count(scoring), fr_graph_parameter_count(training));
        fr_graph_forward(training, &fx.batch, &fx.rows);
        fr_graph_forward(scoring, &fx.batch, &fx.rows);
        for (uint32_t t = 0; t < fx.conf.n_tasks; t++)
            assert_memory_equal(fr_graph_logits(scoring, t), fr_graph_logits(training, t), 170 * sizeof(float));
        fr_graph_free(training);
        fr_graph_free(scoring);
        fx_release(&fx);
    }
}

/* Adam would move a row by its moments even with a gradient of 0. */
FR_CASE(a_group_without_a_trained_sample_does_not_touch_its_rows)
{
    struct fixture fx;
    fx_load(&fx, 400, nx_networks[0].text);
    set_optimizers(&fx, FR_OPT_ADAM, 0.05f);
    fx_make_rows(&fx, 11);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx_make_groups(&fx, 60, 7, 0xff, 31);
    step(graph, &fx);
    struct fr_column *users = &fx.batch.columns[0];
    uint32_t group = 0; /* one with a user of its own that has a row */
    while (users->begin[group] == users->begin[group + 1] || users->keys[users->begin[group]] % 7 == 3)
        group++;
    uint64_t key = users->keys[users->begin[group]];
    for (uint32_t p = 0; p < fx_ids(&fx, 0); p++)
        assert_true(users->keys[p] != key || p == users->begin[group]);
    for (uint32_t i = fx.batch.group_begin[group]; i < fx.batch.group_begin[group + 1]; i++)
        fx.batch.role[i] = FR_ROLE_METRICS_ONLY;
    size_t floats = fx.layouts[0].row_floats;
    float *before = fr_alloc(floats, sizeof(float)), *row = fx.row_memory[0] + key * floats;
    memcpy(before, row, floats * sizeof(float));
    step(graph, &fx);
    assert_memory_equal(before, row, floats * sizeof(float));
    fx.batch.role[fx.batch.group_begin[group]] = FR_ROLE_TRAIN;
    step(graph, &fx);
    assert_memory_not_equal(before, row, floats * sizeof(float));
    free(before);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* The logits are those that serving gives: from before the step, and without masks. */
FR_CASE(dropout_leaves_the_served_logits)
{
    const struct network *network = &nx_networks[FR_ARRAY_LEN(nx_networks) - 1];
    struct fixture fx;
    assert_string_equal(network->name, "dropout");
    fx_load(&fx, 40, network->text);
    set_optimizers(&fx, FR_OPT_SGD, 1e-30f);
    fx_make_rows(&fx, 11);
    fx_make_batch(&fx, 200, 3, false, 61);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    float logits[200];
    fr_graph_forward(graph, &fx.batch, &fx.rows);
    memcpy(logits, fr_graph_logits(graph, 0), sizeof(logits));
    double served = 0.0, trained = 0.0;
    for (uint32_t i = 0; i < 200; i++)
        served += log1p(exp((double)logits[i])) - (double)logits[i] * (double)fx.batch.labels[i];
    assert_int_equal(fr_graph_train(graph, &fx.batch, &fx.rows, &trained), FR_OK);
    assert_memory_equal(logits, fr_graph_logits(graph, 0), sizeof(logits));
    assert_true(fabs(served / 200 - trained) > 1e-5); /* the step's own loss saw masks */
    double again = 0.0;
    fr_graph_forward(graph, &fx.batch, &fx.rows);
    assert_int_equal(fr_graph_train(graph, &fx.batch, &fx.rows, &again), FR_OK);
    assert_true(fabs(again - trained) > 1e-5); /* others in the next step */
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_give_the_numbers_of_the_expanded_form),
        cmocka_unit_test(what_is_shared_read_first_gives_the_same_bits),
        cmocka_unit_test(any_number_of_samples_will_do),
        cmocka_unit_test(an_earlier_batch_leaves_nothing_behind),
        cmocka_unit_test(neither_workers_nor_another_run_change_a_bit),
        cmocka_unit_test(earlier_variants_do_not_change_a_bit),
        cmocka_unit_test(variants_beyond_the_memory_for_them_are_dropped),
        cmocka_unit_test(a_scoring_graph_gives_the_training_graphs_logits),
        cmocka_unit_test(a_group_without_a_trained_sample_does_not_touch_its_rows),
        cmocka_unit_test(dropout_leaves_the_served_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
