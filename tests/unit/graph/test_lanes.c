/* A batch of several lanes: every sum over samples is, to the bit, the tree of the sums of its
 * lanes, each of which is computed by a graph of its own over a batch that is that lane alone. */
#include "lanes_world.h"
#include "networks.h"

#define LX_HEAD(table)                                                                                                 \
    "version: 1\nmodel: test\nstate_dir: nowhere\n"                                                                    \
    "ingest: {brokers: 'localhost:9092', topic: t}\n"                                                                  \
    "tables:\n  ids: " table "\n"                                                                                      \
    "slots:\n  a: {table: ids}\n  b: {table: ids}\n  c: {table: ids}\n  d: {table: ids}\n"                             \
    "  price: {kind: dense, dim: 2}\n"                                                                                 \
    "labels: {click: {}, buy: {}}\n"                                                                                   \
    "tasks: [{name: click, label: click, logit: out}]\n"
#define LX_PAIRS                                                                                                       \
    "network:\n  optimizer: {adam: {lr: 0.01, clip_norm: 0.5}}\n  clip_global_norm: 0.7\n  layers:\n"                  \
    "    - {name: sum, sum: [a, b, c, d]}\n"                                                                           \
    "    - {name: pairs, bi_interaction: [a, b, c, d]}\n"                                                              \
    "    - {name: h, mlp: [sum, pairs, price], units: [130]}\n"                                                        \
    "    - {name: out, dense: h, units: 1}\n"
#define LX_WEIGHTS                                                                                                     \
    "network:\n  layers:\n"                                                                                            \
    "    - {name: sum, sum: [a, b, c, d]}\n    - {name: out, bias: sum}\n"
#define LX_WIDE                                                                                                        \
    "export: {average: {half_life: 1000}}\n"                                                                           \
    "network:\n  layers:\n"                                                                                            \
    "    - {name: h, mlp: [a, b, {mean: c}, {max: d}, price], units: [40, 8]}\n"                                       \
    "    - {name: out, dense: h, units: 1}\n"
#define LX_FAR                                                                                                         \
    "network:\n  layers:\n"                                                                                            \
    "    - {name: x, concat: [price]}\n"                                                                               \
    "    - {name: p, multiply: [a, x]}\n"                                                                              \
    "    - {name: q, multiply: [b, x]}\n"                                                                              \
    "    - {name: out, dense: [p, q], units: 1}\n"                                                                     \
    "losses: [{name: near, mse: [p, q], weight: 0.5}]\n"

/* Rows that have loops of their own (ops/plain.c), in place and gathered; norms and averages;
 * losses of very different sizes. */
static const struct network more[] = {
    {"pairs of eight", LX_HEAD("{dim: 8, optimizer: {adagrad_rowwise: {lr: 0.1}}}") LX_PAIRS, false},
    {"pairs of sixteen", LX_HEAD("{dim: 16, optimizer: {adagrad_rowwise: {lr: 0.1, half_life: 100}}}") LX_PAIRS, false},
    {"pairs of three", LX_HEAD("{dim: 3, optimizer: {adagrad: {lr: 0.1}}}") LX_PAIRS, false},
    {"weights", LX_HEAD("{dim: 1, optimizer: {ftrl: {lr: 0.1}}}") LX_WEIGHTS, false},
    {"wide", LX_HEAD("{dim: 16, optimizer: {adam: {lr: 0.01}}}") LX_WIDE, false},
    {"clipped", LX_HEAD("{dim: 8, optimizer: {adagrad_rowwise: {lr: 0.1, clip_norm: 0.01}}}") LX_WIDE, false},
    {"far", LX_HEAD("{dim: 2, optimizer: {adagrad: {lr: 0.1}}}") LX_FAR, false},
};

enum { ALL = FR_ARRAY_LEN(nx_networks) + FR_ARRAY_LEN(more), VOCABULARY = 90 };

static const struct network *network_at(size_t n)
{
    return n < FR_ARRAY_LEN(nx_networks) ? &nx_networks[n] : &more[n - FR_ARRAY_LEN(nx_networks)];
}

/* ---- a batch ---- */

enum form { PLAIN, SINGLE, GROUPS, FORMS };

struct world {
    const struct network *network;
    const struct fr_ops *ops;
    enum form form;
    uint32_t samples, n_lanes;
    enum split split;
    uint32_t only; /* the lane of SPLIT_ONE_LANE */
};

/* Single: each sample trains, each entry has one id. */
static void make_batch(struct fixture *fx, const struct world *w, uint64_t seed)
{
    if (w->form == GROUPS)
        fx_make_groups(fx, w->samples, 5, 0x155, seed);
    else
        fx_make_batch(fx, w->samples, w->form == SINGLE ? 1 : 4, w->form == PLAIN, seed);
    if (w->form != SINGLE)
        fx_vary_roles(fx);
    for (uint32_t s = 0; s < fx->conf.n_slots; s++) {
        const struct fr_column *c = &fx->batch.columns[s];
        uint32_t numbers = strcmp(fx->conf.slots[s].name, "price") == 0 ? fr_batch_entries(&fx->batch, s) * c->dim : 0;
        for (uint32_t i = 0; i < numbers; i++)
            c->dense[i] = ldexpf(c->dense[i], -(int)(40.0 * fx_uniform(seed, 71, i / c->dim)));
    }
}

/* The spy in place of update_rows, for the graphs of one world. */
static struct spy {
    const struct fr_ops *ops;
    struct lx_rows *rows; /* NULL: updates only */
    bool updates;
} spy;

static void update_rows(const struct fr_row_update *update)
{
    if (spy.rows)
        lx_capture(spy.rows, spy.ops, update);
    if (spy.updates)
        spy.ops->update_rows(update);
}

/* What one step added up. */
struct outcome {
    float **parameters; /* gradients; NULL: none is trained */
    struct lx_rows rows;
    double sums[16];
    bool trained; /* there was a step */
};

static bool all_train(const struct fixture *fx)
{
    bool all = true;
    for (uint32_t i = 0; i < fx->batch.n_samples; i++)
        all &= fx->batch.role[i] == FR_ROLE_TRAIN;
    return all;
}

/* The weight of a loss multiplies the sum of all lanes; powers of two commute with sums. */
static void round_weights(struct fixture *fx)
{
    for (uint32_t t = 0; t < fx->conf.n_tasks; t++)
        fx->conf.tasks[t].weight = ldexpf(1.0f, ilogbf(fx->conf.tasks[t].weight));
    for (uint32_t l = 0; l < fx->conf.n_losses; l++)
        fx->conf.losses[l].weight = ldexpf(1.0f, ilogbf(fx->conf.losses[l].weight));
}

/* Trains on one batch without lanes, then makes the batch of the world. The caller releases graph
 * and fixture. */
static struct fr_graph *begin(struct fixture *fx, const struct world *w, struct fr_ops *ops, struct fr_pool *pool)
{
    fx_load(fx, VOCABULARY, w->network->text);
    round_weights(fx);
    fx_make_rows(fx, 5);
    spy = (struct spy){.ops = w->ops, .updates = true};
    *ops = *w->ops;
    ops->update_rows = update_rows;
    struct fr_graph *graph = fx_graph(fx, ops, pool);
    make_batch(fx, w, 3);
    (void)fx_step(fx, graph);
    make_batch(fx, w, 4);
    lx_divide(fx, w->n_lanes, w->split, w->only);
    return graph;
}

static void step(const struct fixture *fx, struct fr_graph *graph, struct outcome *out)
{
    lx_rows_init(&out->rows, fx);
    spy.rows = &out->rows;
    uint64_t changes = fr_graph_shared_changes(graph);
    (void)fx_step(fx, graph);
    out->trained = fr_graph_shared_changes(graph) != changes;
    out->parameters = fr_alloc(fr_graph_parameter_count(graph), sizeof(*out->parameters));
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        size_t n = fr_graph_parameters(graph)[p].n_values;
        if (!graph->parameter_states[p].gradient)
            continue;
        out->parameters[p] = fr_alloc(n, sizeof(float));
        if (out->trained)
            memcpy(out->parameters[p], graph->parameter_states[p].gradient, n * sizeof(float));
    }
    for (uint32_t k = 0; k < fx->conf.n_tasks + fx->conf.n_losses; k++)
        out->sums[k] = fr_graph_losses_of(graph)[k].sum;
}

static void release(struct outcome *out, size_t n_parameters)
{
    for (size_t p = 0; p < n_parameters; p++)
        free(out->parameters[p]);
    free(out->parameters);
    lx_rows_release(&out->rows);
}

/* ---- the tree, by its definition ---- */

/* Joins lanes [lane, lane + span) of n floats; false: none is present. */
static bool join(float *const *sums, const bool *present, uint32_t lane, uint32_t span, size_t n, float *out)
{
    if (span == 1) {
        if (present[lane])
            memcpy(out, sums[lane], n * sizeof(float));
        return present[lane];
    }
    float *right = fr_alloc(n, sizeof(*right));
    bool is_left = join(sums, present, lane, span / 2, n, out);
    bool is_right = join(sums, present, lane + span / 2, span / 2, n, right);
    for (size_t i = 0; i < n && is_right; i++)
        out[i] = is_left ? out[i] + right[i] : right[i];
    free(right);
    return is_left || is_right;
}

static bool join_numbers(const double *sums, const bool *present, uint32_t lane, uint32_t span, double *out)
{
    double right = 0.0;
    if (span == 1) {
        *out = sums[lane];
        return present[lane];
    }
    bool is_left = join_numbers(sums, present, lane, span / 2, out);
    if (join_numbers(sums, present, lane + span / 2, span / 2, &right)) {
        *out = is_left ? *out + right : right;
        return true;
    }
    return is_left;
}

/* ---- comparison ---- */

struct comparison {
    const struct world *w;
    struct fixture *fx;
    struct fr_graph *graph;
    struct outcome whole, *lanes; /* lanes [FR_LANES_MAX] */
    bool present[FR_LANES_MAX];   /* the lane has samples */
    float *row_memory[FX_SLOTS];  /* before the step */
};

static void differ(const struct comparison *c, const char *what, size_t i, float got, float want)
{
    fail_msg("%s, %s, form %d, %u lanes: %s %zu: %a, expected %a", c->w->ops->name, c->w->network->name, c->w->form,
             c->w->n_lanes, what, i, (double)got, (double)want);
}

static void compare_parameters(const struct comparison *c)
{
    for (size_t p = 0; p < fr_graph_parameter_count(c->graph); p++) {
        const struct fr_parameter *parameter = &fr_graph_parameters(c->graph)[p];
        float *sums[FR_LANES_MAX] = {0}, *want = fr_alloc(parameter->n_values, sizeof(*want));
        for (uint32_t l = 0; l < FR_LANES_MAX && c->whole.parameters[p]; l++)
            sums[l] = c->present[l] ? c->lanes[l].parameters[p] : NULL;
        if (c->whole.parameters[p])
            assert_true(join(sums, c->present, 0, FR_LANES_MAX, parameter->n_values, want));
        for (size_t i = 0; i < parameter->n_values && c->whole.parameters[p]; i++)
            if (memcmp(&want[i], &c->whole.parameters[p][i], sizeof(float)) != 0)
                differ(c, parameter->name, i, c->whole.parameters[p][i], want[i]);
        free(want);
    }
}

/* The part's sum over lanes that reach it, and the row after the step with that sum. */
static void compare_part(const struct comparison *c, uint32_t t, uint64_t key, uint32_t p)
{
    const struct fr_row_part *part = &c->graph->tables[t].parts[p];
    size_t at = key * FR_PARTS_MAX + p, row = key * c->fx->layouts[t].row_floats;
    uint32_t count = 0, dim = part->dim;
    float *sums[FR_LANES_MAX], want[64] = {0}, values[64], state[256];
    bool present[FR_LANES_MAX];
    assert_true(dim <= 64);
    for (uint32_t l = 0; l < FR_LANES_MAX; l++) {
        present[l] = c->present[l] && c->lanes[l].trained && c->lanes[l].rows.tables[t].reached[at];
        sums[l] = present[l] ? lx_gradient(&c->lanes[l].rows, t, key) + part->value_offset : NULL;
        count += present[l] ? c->lanes[l].rows.tables[t].counts[at] : 0;
    }
    const float *got = lx_gradient(&c->whole.rows, t, key) + part->value_offset;
    bool reached = join(sums, present, 0, FR_LANES_MAX, dim, want);
    assert_int_equal(reached, c->whole.rows.tables[t].reached[at] != 0);
    for (uint32_t i = 0; i < dim; i++)
        if (memcmp(&want[i], &got[i], sizeof(float)) != 0)
            differ(c, "row's gradient", key * dim + i, got[i], want[i]);
    uint32_t floats = fr_row_state_floats(part->optimizer.kind, dim);
    memcpy(values, c->row_memory[t] + row + part->value_offset, dim * sizeof(float));
    memcpy(state, c->row_memory[t] + row + part->state_offset, floats * sizeof(float));
    if (reached)
        fr_row_step(values, state, want, dim, count, &part->optimizer);
    const float *after = c->fx->row_memory[t] + row;
    if (memcmp(after + part->value_offset, values, dim * sizeof(float)) != 0 ||
        memcmp(after + part->state_offset, state, floats * sizeof(float)) != 0)
        differ(c, "row", key, after[part->value_offset], values[0]);
}

static void compare_rows(const struct comparison *c)
{
    for (uint32_t t = 0; t < c->fx->conf.n_tables; t++)
        for (uint64_t key = 0; key < VOCABULARY; key++)
            for (uint32_t p = 0; p < c->graph->tables[t].n_parts && key % 7 != 3; p++)
                compare_part(c, t, key, p);
}

static void compare_losses(const struct comparison *c)
{
    for (uint32_t k = 0; k < c->fx->conf.n_tasks + c->fx->conf.n_losses; k++) {
        double sums[FR_LANES_MAX], want = 0.0;
        for (uint32_t l = 0; l < FR_LANES_MAX; l++)
            sums[l] = c->present[l] ? c->lanes[l].sums[k] : 0.0;
        (void)join_numbers(sums, c->present, 0, FR_LANES_MAX, &want);
        if (c->whole.sums[k] != want)
            fail_msg("%s, %u lanes: loss %u: %a, expected %a", c->w->network->name, c->w->n_lanes, k, c->whole.sums[k],
                     want);
    }
}

/* The lane alone; with dropout in its own place, which its masks depend on. */
static void train_lane(const struct world *w, uint32_t lane, struct outcome *out)
{
    struct fixture fx;
    struct fr_ops ops;
    struct fr_graph *graph = begin(&fx, w, &ops, NULL);
    lx_keep_lane(&fx, lane, !graph->has_dropout);
    lx_serve(&fx);
    spy.updates = false;
    step(&fx, graph, out);
    out->rows.fx = NULL;
    fr_graph_free(graph);
    fx_release(&fx);
}

static void compare(const struct world *w)
{
    struct fixture fx;
    struct fr_ops ops;
    struct outcome lanes[FR_LANES_MAX];
    struct comparison c = {.w = w, .fx = &fx, .graph = begin(&fx, w, &ops, NULL), .lanes = lanes};
    lx_serve(&fx);
    for (uint32_t t = 0; t < fx.conf.n_tables; t++) {
        size_t bytes = (size_t)VOCABULARY * fx.layouts[t].row_floats * sizeof(float);
        c.row_memory[t] = fr_alloc(bytes, 1);
        memcpy(c.row_memory[t], fx.row_memory[t], bytes);
    }
    step(&fx, c.graph, &c.whole);
    assert_true(c.whole.trained && (w->form != SINGLE || all_train(&fx)));
    for (uint32_t l = 0; l < w->n_lanes; l++) {
        c.present[l] = fr_batch_lane_begin(&fx.batch, l + 1) > fr_batch_lane_begin(&fx.batch, l);
        if (c.present[l])
            train_lane(w, l, &lanes[l]);
        lanes[l].rows.fx = &fx; /* tables and layouts are the same */
    }
    compare_parameters(&c);
    compare_rows(&c);
    compare_losses(&c);
    size_t n = fr_graph_parameter_count(c.graph);
    for (uint32_t l = 0; l < w->n_lanes; l++)
        if (c.present[l])
            release(&lanes[l], n);
    release(&c.whole, n);
    for (uint32_t t = 0; t < fx.conf.n_tables; t++)
        free(c.row_memory[t]);
    fr_graph_free(c.graph);
    fx_release(&fx);
}

FR_CASE(each_sum_is_the_tree_of_the_sums_of_lanes_alone)
{
    static const uint32_t lanes[] = {2, 3, 5, 12};
    const struct fr_ops *backends[] = {fr_ops_cpu(), fr_ops_bf16(), fr_ops_openblas()};
    for (size_t n = 0; n < ALL; n++)
        for (size_t b = 0; b < FR_ARRAY_LEN(backends); b++)
            for (enum form form = 0; backends[b] && form < FORMS; form++)
                compare(&(struct world){.network = network_at(n),
                                        .ops = backends[b],
                                        .form = form,
                                        .samples = 300,
                                        .n_lanes = lanes[(n + b + form) % FR_ARRAY_LEN(lanes)]});
}

FR_CASE(so_are_those_of_many_lanes)
{
    for (size_t n = 0; n < ALL; n++)
        for (uint32_t lanes = 16; lanes <= 64; lanes *= 4)
            compare(&(struct world){.network = network_at(n),
                                    .ops = fr_ops_cpu(),
                                    .form = (enum form)((n + lanes / 32) % FORMS),
                                    .samples = 400,
                                    .n_lanes = lanes});
}

/* More steps than are summed by one product (FR_SUM_ROWS). */
FR_CASE(so_are_those_of_a_lane_with_many_steps)
{
    for (size_t n = 0; n < FR_ARRAY_LEN(nx_networks); n++)
        if (strcmp(nx_networks[n].name, "recurrence") == 0 || strcmp(nx_networks[n].name, "attention") == 0)
            compare(&(struct world){.network = &nx_networks[n], .ops = fr_ops_cpu(), .samples = 5000, .n_lanes = 3});
}

/* Except the moments of standardized slots: those of a batch with lanes are cut by the moments
 * before it. */
FR_CASE(all_samples_in_one_lane_are_a_batch_without_lanes)
{
    for (size_t n = 0; n < ALL; n++)
        compare(&(struct world){.network = network_at(n),
                                .ops = fr_ops_cpu(),
                                .samples = 300,
                                .n_lanes = 6,
                                .split = SPLIT_ONE_LANE,
                                .only = (uint32_t)n % 6});
}

/* ---- workers ---- */

static uint64_t hash_of(const struct world *w, size_t workers, uint32_t *differences)
{
    struct fixture fx;
    struct fr_ops ops;
    struct fr_pool *pool = workers > 1 ? fr_pool_new(workers) : NULL;
    struct fr_graph *graph = begin(&fx, w, &ops, pool);
    fx.conf.tasks[0].bias_from_labels = true;
    for (uint64_t seed = 5; seed < 8; seed++) {
        (void)fx_step(&fx, graph);
        make_batch(&fx, w, seed);
        lx_divide(&fx, w->n_lanes, SPLIT_UNEVEN, 0);
    }
    uint64_t hash = fx_hash(&fx, graph);
    fr_graph_free(graph);
    fr_pool_free(pool);
    fx_release(&fx);
    *differences += hash != 0;
    return hash;
}

FR_CASE(the_number_of_workers_does_not_change_a_bit)
{
    uint32_t hashes = 0;
    for (size_t n = 0; n < ALL; n++) {
        struct world w = {.network = network_at(n),
                          .ops = fr_ops_cpu(),
                          .form = (enum form)(n % FORMS),
                          .samples = 700,
                          .n_lanes = 5};
        if (hash_of(&w, 1, &hashes) != hash_of(&w, 4, &hashes))
            fail_msg("%s", w.network->name);
    }
    assert_int_equal(hashes, 2 * ALL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sum_is_the_tree_of_the_sums_of_lanes_alone),
        cmocka_unit_test(so_are_those_of_many_lanes),
        cmocka_unit_test(so_are_those_of_a_lane_with_many_steps),
        cmocka_unit_test(all_samples_in_one_lane_are_a_batch_without_lanes),
        cmocka_unit_test(the_number_of_workers_does_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
