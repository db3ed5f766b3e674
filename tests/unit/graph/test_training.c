/* Training and scoring as a whole: exactness over workers, chunks and backends; learning; what is
 * refused. */
#include "fixture.h"
#include "reference/reference.h"

static uint64_t train_three(const struct fr_ops *ops, size_t workers, enum fr_optimizer_kind rows)
{
    struct fixture fx;
    fx_every_operation(&fx, 300, rows);
    struct fr_pool *pool = workers ? fr_pool_new(workers) : NULL;
    struct fr_graph *graph = fx_graph(&fx, ops, pool);
    static const uint32_t sizes[] = {400, 37, 901};
    for (uint32_t i = 0; i < 3; i++) {
        fx_make_batch(&fx, sizes[i], 4, true, 31 + i);
        fx_vary_roles(&fx);
        fx_step(&fx, graph);
    }
    uint64_t hash = fx_hash(&fx, graph);
    fr_graph_free(graph);
    fr_pool_free(pool);
    fx_release(&fx);
    return hash;
}

FR_CASE(the_number_of_workers_does_not_change_a_bit)
{
    const struct fr_ops *all[] = {fr_ops_cpu(), fr_ops_openblas(), fr_reference_ops(), fr_ops_bf16_dot(),
                                  fr_ops_bf16_tiles()};
    for (size_t b = 0; b < FR_ARRAY_LEN(all); b++) {
        if (!all[b]) /* this processor does not have the backend */
            continue;
        uint64_t alone = train_three(all[b], 0, FR_OPT_ADAGRAD);
        for (size_t workers = 1; workers <= 3; workers++)
            assert_true(train_three(all[b], workers, FR_OPT_ADAGRAD) == alone);
    }
}

FR_CASE(avx2_and_avx512_train_to_the_same_bits)
{
    if (!fr_ops_cpu_avx2() || !fr_ops_cpu_avx512())
        skip();
    assert_true(train_three(fr_ops_cpu_avx2(), 1, FR_OPT_ADAGRAD_ROWWISE) ==
                train_three(fr_ops_cpu_avx512(), 1, FR_OPT_ADAGRAD_ROWWISE));
}

/* One sample of the current batch as a batch of its own, with the rows it had. */
static void keep_samples(struct fixture *fx, uint32_t first, uint32_t n)
{
    for (uint32_t s = 0; s < fx->conf.n_slots; s++) {
        struct fr_column *c = &fx->batch.columns[s];
        if (!c->begin) {
            memmove(c->dense, c->dense + (size_t)first * fx->slots[s].dim,
                    (size_t)n * fx->slots[s].dim * sizeof(float));
            continue;
        }
        uint32_t from = c->begin[first], ids = c->begin[first + n] - from;
        memmove(c->keys, c->keys + from, ids * sizeof(*c->keys));
        if (c->weights)
            memmove(c->weights, c->weights + from, ids * sizeof(*c->weights));
        for (uint32_t i = 0; i <= n; i++)
            c->begin[i] = c->begin[first + i] - from;
    }
    fx->batch.n_samples = n;
    for (uint32_t t = 0; t < fx->rows.n_tables; t++) {
        free(fx->rows.tables[t].keys);
        free(fx->rows.tables[t].rows);
        free(fx->rows.tables[t].unique_of);
        free(fx->rows.tables[t].occ_begin);
        free(fx->rows.tables[t].occ);
        free(fx->rows.tables[t].occ_from);
    }
    free(fx->rows.tables);
    free(fx->rows.slot_base);
    memset(&fx->rows, 0, sizeof(fx->rows));
    fx_resolve(fx);
}

static void score_alone_and_in_batches(const struct fr_ops *ops)
{
    struct fixture fx;
    fx_every_operation(&fx, 300, FR_OPT_SGD);
    struct fr_graph *graph = fx_graph(&fx, ops, NULL);
    static const uint32_t keeps[][2] = {{0, 1}, {133, 1}, {77, 60}, {250, 20}, {120, 280}};
    for (size_t k = 0; k < FR_ARRAY_LEN(keeps); k++) {
        fx_make_batch(&fx, 400, 4, true, 41);
        fr_graph_forward(graph, &fx.batch, &fx.rows);
        float whole[2][400];
        for (uint32_t t = 0; t < 2; t++)
            memcpy(whole[t], fr_graph_logits(graph, t), sizeof(whole[t]));
        keep_samples(&fx, keeps[k][0], keeps[k][1]);
        fr_graph_forward(graph, &fx.batch, &fx.rows);
        for (uint32_t t = 0; t < 2; t++)
            assert_memory_equal(fr_graph_logits(graph, t), whole[t] + keeps[k][0], keeps[k][1] * sizeof(float));
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(a_sample_scores_the_same_bits_alone_and_in_any_batch)
{
    const struct fr_ops *all[] = {fr_ops_cpu(), fr_ops_bf16_dot(), fr_ops_bf16_tiles()};
    if (!fr_ops_cpu()->rows_independent)
        skip();
    for (size_t b = 0; b < FR_ARRAY_LEN(all); b++)
        if (all[b])
            score_alone_and_in_batches(all[b]);
}

FR_CASE(precision_is_of_training_and_scores_are_f32)
{
    struct fixture fx;
    fx_every_operation(&fx, 50, FR_OPT_SGD);
    fx.conf.precision = FR_PRECISION_BF16;
    fx_widths(&fx);
    struct fr_graph_options scores = {.conf = &fx.conf, .scoring_only = true};
    struct fr_graph *scoring = fr_graph_new(&scores), *training = NULL;
    assert_string_equal(fr_graph_kernel(scoring), fr_ops_cpu()->kernel);
    struct fr_err err = {0};
    enum fr_status status = fr_graph_check_machine(&fx.conf, &err);
    if (fr_ops_bf16()) {
        assert_int_equal(status, FR_OK);
        training = fr_graph_new(&(struct fr_graph_options){.conf = &fx.conf});
        assert_string_equal(fr_graph_kernel(training), fr_ops_bf16()->kernel);
    } else {
        assert_int_equal(status, FR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "AVX512_BF16"));
    }
    fr_graph_free(scoring);
    fr_graph_free(training);
    fx_release(&fx);
}

FR_CASE(a_scoring_graph_gives_the_training_graphs_logits)
{
    struct fixture fx;
    fx_every_operation(&fx, 100, FR_OPT_ADAGRAD);
    fx_make_batch(&fx, 150, 3, true, 51);
    struct fr_graph *training = fx_graph(&fx, NULL, NULL), *scoring;
    fx_step(&fx, training);
    fr_graph_forward(training, &fx.batch, &fx.rows);
    struct fr_graph_options options = {.conf = &fx.conf, .scoring_only = true};
    scoring = fr_graph_new(&options);
    for (size_t p = 0; p < fr_graph_parameter_count(training); p++)
        memcpy(fr_graph_parameters(scoring)[p].values, fr_graph_parameters(training)[p].values,
               fr_graph_parameters(training)[p].n_values * sizeof(float));
    float *values[200]; /* rows of value_floats only, in memory of exactly that size */
    size_t n = 0;
    for (uint32_t t = 0; t < 2; t++) {
        for (uint32_t u = 0; u < fx.rows.tables[t].n_unique; u++) {
            if (!fx.rows.tables[t].rows[u])
                continue;
            values[n] = fr_alloc(fx.layouts[t].value_floats, sizeof(float));
            memcpy(values[n], fx.rows.tables[t].rows[u], fx.layouts[t].value_floats * sizeof(float));
            fx.rows.tables[t].rows[u] = values[n++];
        }
    }
    fr_graph_forward(scoring, &fx.batch, &fx.rows);
    for (uint32_t t = 0; t < 2; t++)
        assert_memory_equal(fr_graph_logits(scoring, t), fr_graph_logits(training, t), 150 * sizeof(float));
    for (size_t i = 0; i < n; i++)
        free(values[i]);
    fr_graph_free(training);
    fr_graph_free(scoring);
    fx_release(&fx);
}

FR_CASE(backends_agree_on_loss_and_logits)
{
    double losses[5][2];
    float logits[5][200];
    const struct fr_ops *all[] = {fr_reference_ops(), fr_ops_cpu(), fr_ops_openblas(), fr_ops_bf16_dot(),
                                  fr_ops_bf16_tiles()};
    for (size_t b = 0; b < 5; b++) {
        struct fixture fx;
        if (!all[b])
            continue;
        fx_every_operation(&fx, 50, FR_OPT_ADAGRAD);
        fx_make_batch(&fx, 200, 3, true, 61);
        fx_vary_roles(&fx);
        struct fr_graph *graph = fx_graph(&fx, all[b], NULL);
        for (int i = 0; i < 2; i++)
            losses[b][i] = fx_step(&fx, graph);
        memcpy(logits[b], fr_graph_logits(graph, 0), sizeof(logits[b]));
        fr_graph_free(graph);
        fx_release(&fx);
    }
    for (size_t b = 1; b < 5; b++) {
        /* 2^-9 of each factor is lost to bf16 */
        double bound = b < 3 ? 1e-5 : 1e-3;
        for (int i = 0; i < 2 && all[b]; i++)
            assert_true(fabs(losses[b][i] - losses[0][i]) < bound);
        for (int i = 0; i < 200 && all[b]; i++)
            assert_true(fabs((double)logits[b][i] - (double)logits[0][i]) < 10 * bound);
    }
}

FR_CASE(f32_scores_of_a_model_trained_in_bf16_stay_near_its_own)
{
    struct fixture fx;
    if (!fr_ops_bf16())
        skip(); /* no AVX512_BF16 on this machine */
    fx_every_operation(&fx, 200, FR_OPT_ADAGRAD);
    struct fr_graph *training = fx_graph(&fx, fr_ops_bf16(), NULL), *scoring = fx_graph(&fx, fr_ops_cpu(), NULL);
    for (uint32_t i = 0; i < 60; i++) {
        fx_make_batch(&fx, 512, 1, false, 1000 + i);
        fx_step(&fx, training);
    }
    fr_graph_forward(training, &fx.batch, &fx.rows);
    for (size_t p = 0; p < fr_graph_parameter_count(training); p++)
        memcpy(fr_graph_parameters(scoring)[p].values, fr_graph_parameters(training)[p].values,
               fr_graph_parameters(training)[p].n_values * sizeof(float));
    fr_graph_forward(scoring, &fx.batch, &fx.rows);
    double largest = 0.0;
    for (uint32_t i = 0; i < 512; i++) {
        double difference = (double)fr_graph_logits(scoring, 0)[i] - (double)fr_graph_logits(training, 0)[i];
        largest = fmax(largest, fabs(difference));
    }

    if (!(largest > 0.0) || !(largest < 0.05))
        fail_msg("logits differ by %g", largest);
    fr_graph_free(training);
    fr_graph_free(scoring);
    fx_release(&fx);
}

/* Labels are a coin of 0.9 or 0.1 by the first id: the entropy of that coin, 0.325, is the floor of
 * the loss. */
FR_CASE(a_small_problem_is_learnt)
{
    static const enum fr_optimizer_kind kinds[] = {FR_OPT_ADAGRAD, FR_OPT_ADAGRAD_ROWWISE};
    for (size_t k = 0; k < 2; k++) {
        struct fixture fx;
        fx_every_operation(&fx, 200, kinds[k]);
        fx.conf.n_tasks = 1;
        fx.conf.dense_optimizer.lr = 0.01f;
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        double first = 0.0, last = 0.0;
        for (uint32_t i = 0; i < 120; i++) {
            fx_make_batch(&fx, 512, 1, false, 1000 + i);
            double loss = fx_step(&fx, graph);
            first += i < 5 ? loss / 5 : 0.0;
            last += i >= 110 ? loss / 10 : 0.0;
        }
        if (!(first > 0.6) || !(last < 0.45) || !(last > 0.30))
            fail_msg("loss went from %g to %g", first, last);
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

FR_CASE(samples_that_do_not_train_change_nothing)
{
    struct fixture fx;
    fx_every_operation(&fx, 60, FR_OPT_ADAGRAD);
    fx_make_batch(&fx, 30, 2, true, 71);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx_step(&fx, graph);
    uint64_t before = fx_hash(&fx, graph);
    memset(fx.batch.role, FR_ROLE_METRICS_ONLY, 30);
    assert_true(fx_step(&fx, graph) == 0.0);
    assert_true(fx_hash(&fx, graph) == before);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(an_untrained_sample_does_not_touch_its_rows)
{
    struct fixture fx;
    fx_every_operation(&fx, 60, FR_OPT_ADAGRAD);
    fx_make_batch(&fx, 30, 1, false, 72);
    uint64_t key = fx.batch.columns[0].keys[4];
    for (uint32_t i = 0; i < 30; i++)
        fx.batch.role[i] = fx.batch.columns[0].keys[i] == key ? FR_ROLE_METRICS_ONLY : FR_ROLE_TRAIN;
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    float before[8], *row = fx.row_memory[0] + key * fx.layouts[0].row_floats;
    assert_int_equal(fx.layouts[0].row_floats, 8);
    memcpy(before, row, sizeof(before));
    fx_step(&fx, graph);
    assert_memory_equal(before, row, sizeof(before));
    fr_graph_free(graph);
    fx_release(&fx);
}

static void expect_refused(struct fixture *fx, struct fr_graph *graph)
{
    uint64_t before = fx_hash(fx, graph);
    double loss = 42.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, &loss), FR_E_NONFINITE);
    assert_true(loss == 42.0);
    assert_true(fx_hash(fx, graph) == before);
}

FR_CASE(numbers_that_are_not_finite_are_refused_and_nothing_changes)
{
    struct fixture fx;
    fx_every_operation(&fx, 60, FR_OPT_ADAGRAD);
    fx_make_batch(&fx, 300, 2, true, 81);
    fx_vary_roles(&fx);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    /* a logit, of a sample that is only measured */
    fx.batch.columns[3].dense[2 * 5] = INFINITY;
    expect_refused(&fx, graph);
    fx.batch.columns[3].dense[2 * 5] = 1.0f;
    /* the loss */
    fx.batch.weights[0] = INFINITY;
    expect_refused(&fx, graph);
    /* dense gradients too large for the squares to be kept */
    fx.batch.weights[0] = 1e25f;
    expect_refused(&fx, graph);
    fx.batch.weights[0] = 1.0f;
    fx_step(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Dense inputs alone, no table at all: the check sees the kernels' gradients only. */
FR_CASE(kernel_gradients_that_overflow_are_refused)
{
    struct fixture fx;
    fx_init(&fx, 1);
    int32_t price = fx_slot(&fx, "price", FR_NO_INDEX, 3);
    struct fr_conf_layer *z = fx_layer(&fx, "z", FR_LAYER_DENSE);
    fx_dense(z, price);
    fx_units(z, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_task(&fx, "click", 0, z, 1.0f);
    fx_make_batch(&fx, 140, 1, false, 5);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx.batch.weights[139] = 1e20f;
    expect_refused(&fx, graph);
    fx.batch.weights[139] = 1.0f;
    fx_step(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Only a wide part: there are no dense gradients, only coefficients times the logit's gradient. */
FR_CASE(row_gradients_that_overflow_are_refused)
{
    struct fixture fx;
    fx_init(&fx, 20);
    fx_part(fx_table(&fx, "item"), "w", 1, FR_OPT_ADAGRAD);
    int32_t slot = fx_slot(&fx, "item_id", 0, 0);
    struct fr_conf_layer *wide = fx_layer(&fx, "wide", FR_LAYER_SUM);
    fx_pooled(wide, slot, 0, FR_POOL_SUM);
    fx_task(&fx, "click", 0, wide, 1.0f);
    fx_make_rows(&fx, 3);
    memset(fx.row_memory[0], 0, 20 * 2 * sizeof(float));
    fx_make_batch(&fx, 10, 1, true, 4);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (uint32_t i = 0; i < 10; i++)
        fx.batch.columns[0].weights[i] = 1e20f;
    expect_refused(&fx, graph);
    for (uint32_t i = 0; i < 10; i++) /* the bound is too weak here, the exact check lets it pass */
        fx.batch.columns[0].weights[i] = 1e15f;
    fx.batch.weights[0] = 2.0f;
    fx_step(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(a_state_continues_only_under_an_optimizer_of_the_same_state)
{
    static const struct {
        enum fr_optimizer_kind before, after;
        enum fr_status status;
    } pairs[] = {{FR_OPT_ADAM, FR_OPT_ADAMW, FR_OK},
                 {FR_OPT_ADAMW, FR_OPT_ADAM, FR_OK},
                 /* the states have equally many numbers */
                 {FR_OPT_ADAM, FR_OPT_FTRL, FR_E_MISMATCH},
                 {FR_OPT_ADAGRAD, FR_OPT_RMSPROP, FR_E_MISMATCH},
                 {FR_OPT_ADAGRAD, FR_OPT_MOMENTUM, FR_E_MISMATCH},
                 {FR_OPT_SGD, FR_OPT_ADAM, FR_E_MISMATCH}};
    for (size_t i = 0; i < FR_ARRAY_LEN(pairs); i++) {
        struct fixture a, b;
        fx_every_operation(&a, 20, FR_OPT_SGD);
        fx_every_operation(&b, 20, FR_OPT_SGD);
        a.conf.dense_optimizer.kind = pairs[i].before;
        b.conf.dense_optimizer.kind = pairs[i].after;
        struct fr_graph *one = fx_graph(&a, NULL, NULL), *other = fx_graph(&b, NULL, NULL);
        struct fr_buffer bytes = {0};
        save_state(one, &bytes);
        assert_int_equal(restore_state(other, bytes.data, bytes.size), pairs[i].status);
        fr_buffer_release(&bytes);
        fr_graph_free(one);
        fr_graph_free(other);
        fx_release(&a);
        fx_release(&b);
    }
}

FR_CASE(optimizer_state_survives_a_save_and_restore)
{
    static const enum fr_optimizer_kind kinds[] = {FR_OPT_ADAM, FR_OPT_ADAGRAD, FR_OPT_SGD};
    for (size_t k = 0; k < 3; k++) {
        struct fixture fx;
        fx_every_operation(&fx, 60, FR_OPT_ADAGRAD);
        fx.conf.dense_optimizer.kind = kinds[k];
        fx_make_batch(&fx, 100, 2, true, 91);
        struct fr_graph *a = fx_graph(&fx, NULL, NULL), *b = fx_graph(&fx, NULL, NULL);
        fx_step(&fx, a);
        fx_step(&fx, a);
        struct fr_buffer bytes = {0};
        save_state(a, &bytes);
        assert_int_equal(restore_state(b, bytes.data, bytes.size - 1), FR_E_CORRUPT);
        assert_int_equal(restore_state(b, bytes.data, bytes.size), FR_OK);
        bytes.data[4] ^= 7;
        assert_int_equal(restore_state(b, bytes.data, bytes.size), FR_E_MISMATCH);
        for (size_t p = 0; p < fr_graph_parameter_count(a); p++)
            memcpy(fr_graph_parameters(b)[p].values, fr_graph_parameters(a)[p].values,
                   fr_graph_parameters(a)[p].n_values * sizeof(float));
        fr_buffer_release(&bytes);
        float *saved[2];
        for (uint32_t t = 0; t < 2; t++) {
            size_t size = (size_t)fx.vocabulary * fx.layouts[t].row_floats * sizeof(float);
            saved[t] = fr_alloc(size, 1);
            memcpy(saved[t], fx.row_memory[t], size);
        }
        fx_step(&fx, a);
        uint64_t want = fx_hash(&fx, a);
        for (uint32_t t = 0; t < 2; t++) {
            memcpy(fx.row_memory[t], saved[t], (size_t)fx.vocabulary * fx.layouts[t].row_floats * sizeof(float));
            free(saved[t]);
        }
        fx_step(&fx, b);
        assert_true(fx_hash(&fx, b) == want);
        fr_graph_free(a);
        fr_graph_free(b);
        fx_release(&fx);
    }
}

FR_CASE(an_empty_batch_is_no_step)
{
    struct fixture fx;
    fx_every_operation(&fx, 20, FR_OPT_SGD);
    fx_make_batch(&fx, 0, 2, false, 1);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    uint64_t before = fx_hash(&fx, graph);
    assert_true(fx_step(&fx, graph) == 0.0);
    assert_true(fx_hash(&fx, graph) == before);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_workers_does_not_change_a_bit),
        cmocka_unit_test(avx2_and_avx512_train_to_the_same_bits),
        cmocka_unit_test(a_sample_scores_the_same_bits_alone_and_in_any_batch),
        cmocka_unit_test(precision_is_of_training_and_scores_are_f32),
        cmocka_unit_test(a_scoring_graph_gives_the_training_graphs_logits),
        cmocka_unit_test(backends_agree_on_loss_and_logits),
        cmocka_unit_test(f32_scores_of_a_model_trained_in_bf16_stay_near_its_own),
        cmocka_unit_test(a_small_problem_is_learnt),
        cmocka_unit_test(samples_that_do_not_train_change_nothing),
        cmocka_unit_test(an_untrained_sample_does_not_touch_its_rows),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused_and_nothing_changes),
        cmocka_unit_test(kernel_gradients_that_overflow_are_refused),
        cmocka_unit_test(row_gradients_that_overflow_are_refused),
        cmocka_unit_test(a_state_continues_only_under_an_optimizer_of_the_same_state),
        cmocka_unit_test(optimizer_state_survives_a_save_and_restore),
        cmocka_unit_test(an_empty_batch_is_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
