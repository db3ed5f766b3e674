/* Sequences step by step: how they are joined, what empty ones and missing rows do; bits of a
 * sample alone. */
#include "fixture.h"
#include "networks.h"

enum { USER = 0, HISTORY = 2, CLICKS = 3, NOISE = 4, COPY = 8 };

static void set_ids(struct fixture *fx, uint32_t slot, uint32_t n, const uint32_t *lengths, const uint64_t *keys)
{
    struct fr_column *c = &fx->batch.columns[slot];
    for (uint32_t i = 0; i < n; i++)
        c->begin[i + 1] = c->begin[i] + lengths[i];
    free(c->keys);
    c->keys = fr_alloc(c->begin[n], sizeof(*c->keys));
    memcpy(c->keys, keys, c->begin[n] * sizeof(*keys));
    free(c->weights);
    c->weights = NULL;
}

static float w_of(const struct fixture *fx, uint64_t key)
{
    return key % 7 == 3 ? 0.0f : fx->row_memory[1][key * fx->layouts[1].row_floats];
}

static void begin(struct fixture *fx, struct fr_graph **graph, const char *text, uint32_t n)
{
    fx_load(fx, 40, text);
    fx_make_rows(fx, 11);
    fx_make_batch(fx, n, 3, false, 5);
    *graph = fx_graph(fx, NULL, NULL);
}

static void end(struct fixture *fx, struct fr_graph *graph)
{
    fr_graph_free(graph);
    fx_release(fx);
}

static const float *forward(struct fixture *fx, struct fr_graph *graph)
{
    fx_resolve(fx);
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    return fr_graph_logits(graph, 0);
}

FR_CASE(the_newest_step_is_the_last_one)
{
    struct fixture fx;
    struct fr_graph *graph;
    begin(&fx, &graph, NX_HEAD "network: {layers: [{name: out, last: history.w}]}\n" NX_ONE_TASK, 4);
    /* 10: no row */
    set_ids(&fx, HISTORY, 4, (uint32_t[]){2, 0, 1, 3}, (uint64_t[]){5, 6, 7, 8, 9, 10});
    const float *z = forward(&fx, graph);
    assert_true(z[0] == w_of(&fx, 6) && z[1] == 0.0f && z[2] == w_of(&fx, 7) && z[3] == 0.0f);
    end(&fx, graph);
}

FR_CASE(sequences_are_joined_newest_to_newest)
{
    struct fixture fx;
    struct fr_graph *graph;
    begin(&fx, &graph,
          NX_HEAD "network:\n"
                  "  layers:\n"
                  "    - {name: c, concat: [history.w, clicks.w]}\n"
                  "    - {name: l, last: c}\n"
                  "    - {name: s, sum: c}\n"
                  "    - {name: out, dense: [l, s], units: 1}\n" NX_ONE_TASK,
          3);
    set_ids(&fx, HISTORY, 3, (uint32_t[]){2, 1, 2}, (uint64_t[]){11, 12, 13, 14, 15});
    set_ids(&fx, CLICKS, 3, (uint32_t[]){1, 3, 0}, (uint64_t[]){20, 21, 22, 23});
    const float kernel[] = {1.0f, 10.0f, 100.0f, 1000.0f};
    memcpy(fr_graph_parameters(graph)[0].values, kernel, sizeof(kernel));
    fr_graph_parameters(graph)[1].values[0] = 0.0f;
    const float *z = forward(&fx, graph);
    double want[3] = {
        (double)w_of(&fx, 12) + 10 * (double)w_of(&fx, 20) + 100 * (double)(w_of(&fx, 11) + w_of(&fx, 12)) +
            1000 * (double)w_of(&fx, 20),
        (double)w_of(&fx, 13) + 10 * (double)w_of(&fx, 23) + 100 * (double)w_of(&fx, 13) + 1000 * (double)w_of(&fx, 23),
        (double)w_of(&fx, 15) + 100 * (double)(w_of(&fx, 14) + w_of(&fx, 15)),
    };
    for (uint32_t i = 0; i < 3; i++)
        assert_true(fabs((double)z[i] - want[i]) < 1e-4);
    end(&fx, graph);
}

static const char *const readers[] = {
    NX_HEAD "network:\n"
            "  layers:\n"
            "    - {name: a, attention: {query: item_id.v, keys: history.v}, softmax: true}\n"
            "    - {name: out, dense: a, units: 1}\n" NX_ONE_TASK,
    NX_HEAD "network:\n"
            "  layers:\n"
            "    - {name: a, attention: {query: item_id.v, keys: history.v}}\n"
            "    - {name: out, dense: a, units: 1}\n" NX_ONE_TASK,
    NX_HEAD "network:\n"
            "  layers:\n"
            "    - {name: g, gru: history.v, units: 4}\n"
            "    - {name: l, last: g}\n"
            "    - {name: out, dense: l, units: 1}\n" NX_ONE_TASK,
    NX_HEAD "network:\n"
            "  layers:\n"
            "    - {name: g, gru: history.v, units: 4}\n"
            "    - {name: a, augru: {query: item_id.v, keys: g}}\n"
            "    - {name: out, dense: a, units: 1}\n" NX_ONE_TASK,
};

FR_CASE(steps_without_rows_change_nothing)
{
    for (size_t r = 0; r < FR_ARRAY_LEN(readers); r++) {
        struct fixture fx;
        struct fr_graph *graph;
        begin(&fx, &graph, readers[r], 1);
        set_ids(&fx, HISTORY, 1, (uint32_t[]){2}, (uint64_t[]){5, 6});
        float without = forward(&fx, graph)[0];
        /* 3, 10, 17: no rows */
        set_ids(&fx, HISTORY, 1, (uint32_t[]){5}, (uint64_t[]){3, 5, 10, 6, 17});
        float with = forward(&fx, graph)[0];
        set_ids(&fx, HISTORY, 1, (uint32_t[]){2}, (uint64_t[]){6, 5});
        float turned = forward(&fx, graph)[0];
        assert_true(fabsf(with - without) < 1e-6f);
        assert_true(r < 2 || fabsf(turned - without) > 1e-6f); /* order matters to recurrences */
        end(&fx, graph);
    }
}

FR_CASE(empty_sequences_score_and_train)
{
    for (size_t r = 0; r < FR_ARRAY_LEN(readers); r++) {
        struct fixture fx;
        struct fr_graph *graph;
        begin(&fx, &graph, readers[r], 130);
        uint32_t lengths[130] = {0};
        /* all of them empty; all but missing rows empty */
        for (uint32_t round = 0; round < 2; round++) {
            lengths[129] = round;
            set_ids(&fx, HISTORY, 130, lengths, (uint64_t[]){3});
            const float *z = forward(&fx, graph);
            double loss = 0.0;
            for (uint32_t i = 0; i < 130; i++)
                assert_true(z[i] == z[0] && isfinite(z[i]));
            assert_int_equal(fr_graph_train(graph, &fx.batch, &fx.rows, &loss), FR_OK);
            assert_true(isfinite(loss) && loss > 0.0);
        }
        end(&fx, graph);
    }
}

static double dot(const struct fixture *fx, uint64_t a, uint64_t b)
{
    double sum = 0.0;
    for (uint32_t j = 0; j < 4; j++)
        sum += (double)fx->row_memory[1][a * fx->layouts[1].row_floats + 1 + j] *
               (double)fx->row_memory[1][b * fx->layouts[1].row_floats + 1 + j];
    return sum;
}

static double train(struct fixture *fx, struct fr_graph *graph)
{
    double loss = 0.0;
    (void)forward(fx, graph);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, &loss), FR_OK);
    return loss;
}

#define WIDE "network: {layers: [{name: out, sum: [item_id.w]}]}\n" NX_ONE_TASK

/* States 1 2 | 4 | 5 11 6 | 7 8 9, positives 8 9 | 12 | 13 14 15 | 1 2 4, negatives 16 18 | 19 | 20
 * 21 10 | 11 12 13: of the third only the first step counts, the row of 10 is missing; the last has
 * two. */
FR_CASE(next_step_losses_are_a_mean_over_each_samples_steps)
{
    double losses[2];
    for (uint32_t with = 0; with < 2; with++) {
        struct fixture fx;
        struct fr_graph *graph;
        begin(&fx, &graph,
              with ? NX_HEAD WIDE "losses: [{name: n, next_step: {states: history.v, positives: clicks.v, negatives: "
                                  "noise.v}, weight: 0.5}]\n"
                   : NX_HEAD WIDE,
              4);
        const uint32_t lengths[] = {2, 1, 3, 3};
        set_ids(&fx, HISTORY, 4, lengths, (uint64_t[]){1, 2, 4, 5, 11, 6, 7, 8, 9});
        set_ids(&fx, CLICKS, 4, lengths, (uint64_t[]){8, 9, 12, 13, 14, 15, 1, 2, 4});
        set_ids(&fx, NOISE, 4, lengths, (uint64_t[]){16, 18, 19, 20, 21, 10, 11, 12, 13});
        double want = 0.0;
        want += log1p(exp(-dot(&fx, 1, 9))) + log1p(exp(dot(&fx, 1, 18)));
        want += log1p(exp(-dot(&fx, 5, 14))) + log1p(exp(dot(&fx, 5, 21)));
        want += (log1p(exp(-dot(&fx, 7, 2))) + log1p(exp(dot(&fx, 7, 12)))) / 2;
        want += (log1p(exp(-dot(&fx, 8, 4))) + log1p(exp(dot(&fx, 8, 13)))) / 2;
        losses[with] = train(&fx, graph) - (with ? 0.5 * want / 3 : 0.0);
        end(&fx, graph);
    }
    assert_true(fabs(losses[0] - losses[1]) < 1e-6);
}

FR_CASE(mse_losses_are_a_mean_over_trained_samples)
{
    double losses[2];
    for (uint32_t with = 0; with < 2; with++) {
        struct fixture fx;
        struct fr_graph *graph;
        begin(&fx, &graph, with ? NX_HEAD WIDE "losses: [{name: m, mse: [copy, user_id], weight: 3}]\n" : NX_HEAD WIDE,
              5);
        set_ids(&fx, USER, 5, (uint32_t[]){1, 1, 1, 1, 1}, (uint64_t[]){5, 6, 7, 10, 6});
        fx.batch.role[2] = FR_ROLE_METRICS_ONLY;
        double want = 0.0;
        for (uint32_t i = 0; i < 5; i++) {
            for (uint32_t j = 0; j < 4 && i != 2; j++) {
                uint64_t key = fx.batch.columns[USER].keys[i];
                double row = key % 7 == 3 ? 0.0 : (double)fx.row_memory[0][key * fx.layouts[0].row_floats + j];
                double d = (double)fx.batch.columns[COPY].dense[4 * i + j] - row;
                want += 0.5 * d * d;
            }
        }
        losses[with] = train(&fx, graph) - (with ? 3 * want / 4 : 0.0);
        end(&fx, graph);
    }
    assert_true(fabs(losses[0] - losses[1]) < 1e-6);
}

FR_CASE(a_sample_scores_the_same_bits_alone_and_in_any_batch)
{
    if (!fr_ops_cpu()->rows_independent)
        skip();
    static const uint32_t keeps[][2] = {{0, 1}, {133, 1}, {77, 60}, {120, 130}};
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[i].text);
        fx_make_rows(&fx, 11);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        for (size_t k = 0; k < FR_ARRAY_LEN(keeps); k++) {
            float whole[FR_TASKS_MAX][250];
            fx_make_batch(&fx, 250, 4, true, 41);
            fr_graph_forward(graph, &fx.batch, &fx.rows);
            for (uint32_t t = 0; t < fx.conf.n_tasks; t++)
                memcpy(whole[t], fr_graph_logits(graph, t), sizeof(whole[t]));
            fx_keep_samples(&fx, keeps[k][0], keeps[k][1]);
            fr_graph_forward(graph, &fx.batch, &fx.rows);
            for (uint32_t t = 0; t < fx.conf.n_tasks; t++)
                assert_memory_equal(fr_graph_logits(graph, t), whole[t] + keeps[k][0], keeps[k][1] * sizeof(float));
        }
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_step_is_the_last_one),
        cmocka_unit_test(sequences_are_joined_newest_to_newest),
        cmocka_unit_test(steps_without_rows_change_nothing),
        cmocka_unit_test(empty_sequences_score_and_train),
        cmocka_unit_test(next_step_losses_are_a_mean_over_each_samples_steps),
        cmocka_unit_test(mse_losses_are_a_mean_over_trained_samples),
        cmocka_unit_test(a_sample_scores_the_same_bits_alone_and_in_any_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
