/* Rows that the batch itself made: absent in its forward pass, as they would be in a replica, and
 * trained nevertheless. */
#include "fixture.h"

#include "networks.h"

enum { USER_ID, ITEM_ID, VOCABULARY = 40 };

static bool is_fresh(uint64_t key)
{
    return key % 5 == 1;
}

/* With `gone` the rows do not exist at all; otherwise only the forward pass lacks them. */
static void make_fresh(struct fixture *fx, bool gone)
{
    for (uint32_t t = 0; t < fx->rows.n_tables; t++) {
        struct fr_table_rows *table = &fx->rows.tables[t];
        table->served = gone ? NULL : fr_alloc(table->n_unique + 1, sizeof(*table->served));
        for (uint32_t u = 0; u < table->n_unique; u++) {
            bool fresh = is_fresh(table->keys[u]);
            if (gone && fresh)
                table->rows[u] = NULL;
            if (!gone)
                table->served[u] = fresh ? NULL : table->rows[u];
        }
    }
}

struct pass {
    struct fixture fx;
    struct fr_graph *graph;
    struct fr_buffer logits;
};

static void run(struct pass *pass, const struct network *network, uint32_t shared, bool gone)
{
    struct fixture *fx = &pass->fx;
    fx_load(fx, VOCABULARY, network->text);
    fx_make_rows(fx, 11);
    pass->graph = fx_graph(fx, NULL, NULL);
    if (shared)
        fx_make_groups(fx, 150, 6, shared, 77);
    else
        fx_make_batch(fx, 150, 4, true, 77);
    fx_vary_roles(fx);
    make_fresh(fx, gone);
    fr_graph_forward(pass->graph, &fx->batch, &fx->rows);
    pass->logits = (struct fr_buffer){0};
    for (uint32_t t = 0; t < fx->conf.n_tasks; t++)
        fr_buffer_append(&pass->logits, fr_graph_logits(pass->graph, t), fx->batch.n_samples * sizeof(float));
    assert_int_equal(fr_graph_train(pass->graph, &fx->batch, &fx->rows, NULL), FR_OK);
}

static void release(struct pass *pass)
{
    fr_buffer_release(&pass->logits);
    fr_graph_free(pass->graph);
    fx_release(&pass->fx);
}

static const float *row_of(const struct fixture *fx, uint32_t t, uint64_t key)
{
    return fx->row_memory[t] + key * fx->layouts[t].row_floats;
}

static bool pooled_somewhere(const struct fixture *fx, uint64_t key)
{
    const struct fr_column *column = &fx->batch.columns[ITEM_ID];
    for (uint32_t p = 0; p < fx_ids(fx, ITEM_ID); p++)
        if (column->keys[p] == key)
            return true;
    return false;
}

/* Rows that are not fresh must be as if the fresh rows did not exist. Fresh rows must be trained by
 * vectors that read them, and masked steps must not change a bit of them. */
static void compare_rows(const char *name, const struct pass *made, const struct pass *gone)
{
    const struct fixture *a = &made->fx, *b = &gone->fx;
    struct fixture first;
    fx_load(&first, VOCABULARY,
            NX_HEAD "network:\n  layers:\n    - {name: out, dense: user_id, units: 1}\n" NX_ONE_TASK);
    fx_make_rows(&first, 11);
    bool steps_only = strcmp(name, "attention") == 0 || strcmp(name, "recurrence") == 0;
    unsigned trained = 0;
    for (uint32_t t = 0; t < a->conf.n_tables; t++) {
        size_t size = a->layouts[t].row_floats * sizeof(float);
        for (uint64_t key = 0; key < VOCABULARY; key++) {
            bool changed = memcmp(row_of(a, t, key), row_of(&first, t, key), size) != 0;
            if (!is_fresh(key)) {
                if (memcmp(row_of(a, t, key), row_of(b, t, key), size) != 0)
                    fail_msg("%s: row %u of table %u", name, (unsigned)key, t);
                continue;
            }
            trained += changed;
            if (changed && t == 1 && steps_only && !pooled_somewhere(a, key))
                fail_msg("%s: a masked step changed row %u", name, (unsigned)key);
            for (uint32_t i = 0; i < a->layouts[t].row_floats; i++)
                assert_true(isfinite(row_of(a, t, key)[i]));
        }
    }
    if (trained == 0)
        fail_msg("%s: no new row was trained", name);
    fx_release(&first);
}

FR_CASE(new_rows_are_absent_forward_and_trained_backward)
{
    static const uint32_t shared[] = {0, 1 << USER_ID | 4, 2 << USER_ID | 8 | 16};
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        for (size_t s = 0; s < FR_ARRAY_LEN(shared); s++) {
            struct pass made, gone;
            run(&made, &nx_networks[i], shared[s], false);
            run(&gone, &nx_networks[i], shared[s], true);
            assert_int_equal(made.logits.size, gone.logits.size);
            if (memcmp(made.logits.data, gone.logits.data, gone.logits.size) != 0)
                fail_msg("%s: the forward pass saw a row made by its own batch", nx_networks[i].name);
            for (size_t p = 0; p < fr_graph_parameter_count(made.graph); p++) {
                const struct fr_parameter *x = &fr_graph_parameters(made.graph)[p];
                const struct fr_parameter *y = &fr_graph_parameters(gone.graph)[p];
                if (memcmp(x->values, y->values, x->n_values * sizeof(float)) != 0)
                    fail_msg("%s: %s", nx_networks[i].name, x->name);
            }
            compare_rows(nx_networks[i].name, &made, &gone);
            release(&made);
            release(&gone);
        }
}

/* Two readers of a sequence, trained by tasks whose labels are masked in different samples. */
static const char *const read_twice = NX_HEAD "network:\n"
                                              "  optimizer: {sgd: {lr: 0.01}}\n"
                                              "  layers:\n"
                                              "    - {name: pooled, dense: {sum: history.v}, units: 1}\n"
                                              "    - {name: steps, attention: {query: user_id, keys: history.v}}\n"
                                              "    - {name: out, dense: steps, units: 1}\n"
                                              "tasks:\n"
                                              "  - {name: click, label: click, logit: out}\n"
                                              "  - {name: buy, label: buy, logit: pooled}\n";

/* A masked step counts only the samples that train through the pooling, in a group as in its
 * expanded form. The test sees this in sgd with a rate of 1, which the count damps. */
FR_CASE(what_a_masked_step_counts_is_the_same_in_groups)
{
    struct fixture fx[2];
    for (size_t expanded = 0; expanded < 2; expanded++) {
        fx_load(&fx[expanded], VOCABULARY, read_twice);
        for (uint32_t p = 0; p < 2; p++)
            fx[expanded].conf.tables[1].parts[p].optimizer = fx_optimizer(FR_OPT_SGD, 1.0f);
        fx_make_rows(&fx[expanded], 11);
        fx_make_groups(&fx[expanded], 150, 6, 4, 77);
        fx_vary_roles(&fx[expanded]);
        if (expanded)
            fx_expand_groups(&fx[expanded]);
        make_fresh(&fx[expanded], false);
        struct fr_graph *graph = fx_graph(&fx[expanded], NULL, NULL);
        (void)fx_step(&fx[expanded], graph);
        fr_graph_free(graph);
    }
    for (uint64_t key = 0; key < VOCABULARY; key++)
        for (uint32_t i = 0; i < fx[0].layouts[1].row_floats; i++) {
            float grouped = row_of(&fx[0], 1, key)[i], plain = row_of(&fx[1], 1, key)[i];
            if (!(fabsf(grouped - plain) <= 1e-5f))
                fail_msg("row %u: %g in groups, %g expanded", (unsigned)key, (double)grouped, (double)plain);
        }
    fx_release(&fx[0]);
    fx_release(&fx[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_masked_step_counts_is_the_same_in_groups),
        cmocka_unit_test(new_rows_are_absent_forward_and_trained_backward),
    };
    return cmocka_run_group_tests_name("fresh", tests, NULL, NULL);
}
