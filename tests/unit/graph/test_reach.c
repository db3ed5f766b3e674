/* Only what was labelled learns: a batch leaves what none of its counted losses reaches as it is,
 * to the bit. */
#include "fixture.h"

#include "networks.h"

enum { CLICK, BUY, VOCABULARY = 30, USER = 0, ITEM = 1 };

/* `trunk` serves both tasks, `a` serves the task of clicks, and `b`, `c` and all rows of `item`
 * that of purchases. No number of `c` depends on the trunk. */
static const char towers[] = NX_HEAD "network:\n"
                                     "  layers:\n"
                                     "    - {name: trunk, dense: [user_id, price], units: 3, activation: tanh}\n"
                                     "    - {name: a, mlp: trunk, units: [4], activation: dice}\n"
                                     "    - {name: a_out, dense: a, units: 1}\n"
                                     "    - {name: b, mlp: [trunk, item_id.v], units: [4], activation: dice}\n"
                                     "    - {name: c, mlp: item_id.v, units: [3], activation: dice}\n"
                                     "    - {name: b_out, dense: [b, c], units: 1}\n"
                                     "tasks:\n"
                                     "  - {name: click, label: click, logit: a_out}\n"
                                     "  - {name: buy, label: buy, logit: b_out}\n";

static struct fr_graph *make_towers(struct fixture *fx, enum fr_optimizer_kind dense, enum fr_optimizer_kind rows)
{
    fx_load(fx, VOCABULARY, towers);
    fx->conf.dense_optimizer = fx_optimizer(dense, 0.05f);
    fx->conf.dense_optimizer.decay_all = true;
    fx->conf.dense_optimizer.weight_decay = 0.1f;
    fx->conf.dense_optimizer.l2 = dense == FR_OPT_ADAMW ? 0.0f : 0.1f;
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->conf.tables[t].n_parts; p++) {
            fx->conf.tables[t].parts[p].optimizer = fx_optimizer(rows, 0.05f);
            fx->conf.tables[t].parts[p].optimizer.l2 = 0.1f;
        }
    fx_make_rows(fx, 3);
    return fx_graph(fx, NULL, NULL);
}

static float *label(struct fixture *fx, uint32_t l)
{
    return fx->batch.labels + (size_t)l * fx->batch.capacity_samples;
}

/* One id a slot; every fifth purchase is masked already. */
static void make_samples(struct fixture *fx, uint64_t seed)
{
    fx_make_batch(fx, 60, 1, false, seed);
    fx_vary_roles(fx);
}

static void mask(struct fixture *fx, uint32_t l)
{
    for (uint32_t i = 0; i < fx->batch.n_samples; i++)
        label(fx, l)[i] = NAN;
}

static bool is_of_purchases(const struct fr_parameter *p)
{
    return p->name[0] == 'b' || p->name[0] == 'c';
}

/* statistics of a slot too: of every trained sample */
static bool is_shared(const struct fr_parameter *p)
{
    return p->name[0] == 't' || strncmp(p->name, "age/", 4) == 0;
}

/* Values and state of the parameters of one side, and the rows only that side reads. */
static uint64_t side_hash(const struct fixture *fx, struct fr_graph *graph, bool purchases)
{
    struct fr_buffer bytes = {0};
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
        if (is_shared(q) || is_of_purchases(q) != purchases)
            continue;
        fr_buffer_append(&bytes, q->values, q->n_values * sizeof(float));
        fr_graph_save_parameter(graph, p, &bytes);
        fr_put_u64(&bytes, q->changes);
    }
    if (purchases)
        fr_buffer_append(&bytes, fx->row_memory[ITEM],
                         (size_t)VOCABULARY * fx->layouts[ITEM].row_floats * sizeof(float));
    uint64_t hash = fr_xxh3(bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    return hash;
}

static uint64_t trunk_hash(const struct fixture *fx, struct fr_graph *graph)
{
    const struct fr_parameter *kernel = fx_parameter(graph, "trunk/kernel");
    struct fr_buffer bytes = {0};
    fr_buffer_append(&bytes, kernel->values, kernel->n_values * sizeof(float));
    fr_buffer_append(&bytes, fx->row_memory[USER], (size_t)VOCABULARY * fx->layouts[USER].row_floats * sizeof(float));
    uint64_t hash = fr_xxh3(bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    return hash;
}

static const enum fr_optimizer_kind dense_kinds[] = {FR_OPT_ADAM, FR_OPT_ADAMW, FR_OPT_MOMENTUM, FR_OPT_FTRL},
                                    row_kinds[] = {FR_OPT_ADAM, FR_OPT_MOMENTUM, FR_OPT_RMSPROP, FR_OPT_FTRL};

FR_CASE(a_task_without_labels_leaves_its_layers_states_and_rows)
{
    for (size_t k = 0; k < FR_ARRAY_LEN(dense_kinds); k++)
        for (uint32_t masked = CLICK; masked <= BUY; masked++) {
            struct fixture fx;
            struct fr_graph *graph = make_towers(&fx, dense_kinds[k], row_kinds[k]);
            for (uint64_t i = 0; i < 2; i++) { /* moments are at work */
                make_samples(&fx, 20 + i);
                fx_step(&fx, graph);
            }
            make_samples(&fx, 30);
            mask(&fx, masked);
            uint64_t its = side_hash(&fx, graph, masked == BUY), others = side_hash(&fx, graph, masked != BUY),
                     trunk = trunk_hash(&fx, graph);
            fx_step(&fx, graph);
            if (side_hash(&fx, graph, masked == BUY) != its)
                fail_msg("optimizer %zu: something of task %u moved", k, masked);
            assert_true(side_hash(&fx, graph, masked != BUY) != others);
            assert_true(trunk_hash(&fx, graph) != trunk);
            fr_graph_free(graph);
            fx_release(&fx);
        }
}

/* dice keeps moments that are not published, so they are compared one batch later, when everything
 * must be as if the masked batch had never been. */
FR_CASE(dice_forgets_nothing_in_a_batch_that_says_nothing_to_it)
{
    float mean[2][3], variance[2][3];
    for (int with = 0; with < 2; with++) {
        struct fixture fx;
        struct fr_graph *graph = make_towers(&fx, FR_OPT_ADAM, FR_OPT_ADAM);
        for (uint64_t i = 0; i < 4; i++) {
            make_samples(&fx, 20 + i);
            if (i == 2) {
                if (!with)
                    continue;
                mask(&fx, BUY);
            }
            fx_step(&fx, graph);
        }
        memcpy(mean[with], fx_parameter(graph, "c/0/mean")->values, sizeof(mean[0]));
        memcpy(variance[with], fx_parameter(graph, "c/0/variance")->values, sizeof(variance[0]));
        fr_graph_free(graph);
        fx_release(&fx);
    }
    assert_memory_equal(mean[0], mean[1], sizeof(mean[0]));
    assert_memory_equal(variance[0], variance[1], sizeof(variance[0]));
}

/* Returns the number of samples that a parameter was stepped for, which is after u64 values and u32
 * optimizer in its state. */
static uint64_t age_of(struct fr_graph *graph, const char *name)
{
    struct fr_buffer bytes = {0};
    fr_graph_save_parameter(graph, (size_t)(fx_parameter(graph, name) - fr_graph_parameters(graph)), &bytes);
    struct fr_reader r = {.at = bytes.data, .end = bytes.data + bytes.size};
    (void)fr_take_u64(&r);
    (void)fr_take_u32(&r);
    uint64_t samples = fr_take_u64(&r);
    fr_buffer_release(&bytes);
    return samples;
}

FR_CASE(adam_is_as_old_as_the_samples_of_its_own_losses)
{
    struct fixture fx;
    struct fr_graph *graph = make_towers(&fx, FR_OPT_ADAM, FR_OPT_ADAM);
    uint64_t clicks = 0, purchases = 0, any = 0;
    uint32_t occurrences[VOCABULARY] = {0};
    for (uint64_t i = 0; i < 4; i++) {
        make_samples(&fx, 20 + i);
        if (i == 1)
            mask(&fx, BUY);
        for (uint32_t s = 0; s < fx.batch.n_samples; s++) {
            if (s % 7 == 1)
                label(&fx, CLICK)[s] = NAN;
            bool trained = fx.batch.role[s] == FR_ROLE_TRAIN, click = trained && !isnan(label(&fx, CLICK)[s]),
                 buy = trained && !isnan(label(&fx, BUY)[s]);
            clicks += click;
            purchases += buy;
            any += click || buy;
            occurrences[fx.batch.columns[1].keys[s]] += buy;
        }
        fx_step(&fx, graph);
    }
    assert_true(purchases < clicks && clicks < any);
    assert_int_equal(age_of(graph, "trunk/kernel"), any);
    assert_int_equal(age_of(graph, "trunk/bias"), any);
    assert_int_equal(age_of(graph, "a/0/kernel"), clicks);
    assert_int_equal(age_of(graph, "a/0/alpha"), clicks);
    assert_int_equal(age_of(graph, "b/0/bias"), purchases);
    assert_int_equal(age_of(graph, "b_out/kernel"), purchases);
    const struct fr_row_layout *layout = &fx.layouts[ITEM];
    for (uint32_t id = 0; id < VOCABULARY; id++) /* m, v, then the age */
        if (id % 7 != 3)
            assert_int_equal(
                fx.row_memory[ITEM][id * layout->row_floats + layout->parts[1].state_offset + 2 * layout->parts[1].dim],
                occurrences[id]);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* A shared entry counts each sample of its group once that one of its readers trains. */
FR_CASE(an_occurrence_counts_what_any_of_its_readers_trains)
{
    struct fixture fx;
    fx_load(&fx, VOCABULARY,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: a, dense: item_id.v, units: 1}\n"
                    "    - {name: b, dense: [{mean: item_id.v}, price], units: 1}\n"
                    "tasks: [{name: click, label: click, logit: a}, {name: buy, label: buy, logit: b}]\n");
    fx.conf.tables[ITEM].parts[1].optimizer = fx_optimizer(FR_OPT_ADAM, 0.05f);
    fx_make_rows(&fx, 3);
    fx_make_groups(&fx, 90, 5, 1 << 1, 9);
    fx_vary_roles(&fx);
    uint32_t expected[VOCABULARY] = {0};
    const struct fr_column *items = &fx.batch.columns[1];
    assert_true(items->shared);
    for (uint32_t s = 0; s < fx.batch.n_samples; s++) {
        if (s % 3 == 1)
            label(&fx, CLICK)[s] = NAN;
        if (s % 3 == 2)
            label(&fx, BUY)[s] = NAN;
        bool counts = !isnan(label(&fx, CLICK)[s]) || !isnan(label(&fx, BUY)[s]);
        uint32_t g = fx.batch.group_of[s];
        for (uint32_t p = items->begin[g]; p < items->begin[g + 1]; p++)
            expected[items->keys[p]] += counts && fx.batch.role[s] == FR_ROLE_TRAIN;
    }
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx_step(&fx, graph);
    const struct fr_row_layout *layout = &fx.layouts[ITEM];
    const float *ages = fx.row_memory[ITEM] + layout->parts[1].state_offset + 2 * layout->parts[1].dim;
    for (uint32_t id = 0; id < VOCABULARY; id++)
        if (id % 7 != 3)
            assert_int_equal(ages[id * layout->row_floats], expected[id]);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_without_labels_leaves_its_layers_states_and_rows),
        cmocka_unit_test(dice_forgets_nothing_in_a_batch_that_says_nothing_to_it),
        cmocka_unit_test(adam_is_as_old_as_the_samples_of_its_own_losses),
        cmocka_unit_test(an_occurrence_counts_what_any_of_its_readers_trains),
    };
    return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
