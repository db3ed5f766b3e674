/* The learning state of a graph: names and first values of parameters, schedules, optimizers per
 * layer and part, restoring, and batches that must leave no trace. */
#include "fixture.h"

#include "networks.h"

/* ---- parameters ---- */

#define EVERY_LAYER                                                                                                    \
    NX_HEAD "network:\n"                                                                                               \
            "  layers:\n"                                                                                              \
            "    - {name: x, concat: [user_id, item_id.v, price]}\n"                                                   \
            "    - {name: h, mlp: [x, age], units: [6, 5], activation: dice}\n"                                        \
            "    - {name: p, dense: x, units: 4, activation: prelu}\n"                                                 \
            "    - {name: s, activate: p, activation: dice}\n"                                                         \
            "    - {name: full, cross: x, depth: 2}\n"                                                                 \
            "    - {name: low, cross: x, depth: 1, rank: 3}\n"                                                         \
            "    - {name: b, bias: user_id}\n"                                                                         \
            "    - {name: n, layer_norm: [b, user_id]}\n"                                                              \
            "    - {name: a, attention: {query: item_id.v, keys: history.v}, units: [7], activation: prelu}\n"         \
            "    - {name: g, gru: [history.v, clicks.v], units: 5}\n"                                                  \
            "    - {name: v, augru: {query: [user_id, price], keys: g}}\n"                                             \
            "    - {name: e, experts: x, count: 2, units: [4, 3], activation: dice}\n"                                 \
            "    - {name: m, mixture: {gate: user_id, experts: e}}\n"                                                  \
            "    - {name: out, dense: [h, s, full, low, n, a, v, m], units: 1}\n" NX_ONE_TASK

struct shape {
    const char *name;
    uint32_t rows, columns; /* rows 0: one dimension */
};

static const struct shape shapes[] = {
    {"h/0/kernel", 12, 6},
    {"h/0/bias", 0, 6},
    {"h/0/alpha", 0, 6},
    {"h/0/mean", 0, 6},
    {"h/0/variance", 0, 6},
    {"h/1/kernel", 6, 5},
    {"h/1/bias", 0, 5},
    {"h/1/alpha", 0, 5},
    {"h/1/mean", 0, 5},
    {"h/1/variance", 0, 5},
    {"p/kernel", 10, 4},
    {"p/bias", 0, 4},
    {"p/alpha", 0, 4},
    {"s/alpha", 0, 4},
    {"s/mean", 0, 4},
    {"s/variance", 0, 4},
    {"full/0/kernel", 10, 10},
    {"full/0/bias", 0, 10},
    {"full/1/kernel", 10, 10},
    {"full/1/bias", 0, 10},
    {"low/0/down", 10, 3},
    {"low/0/up", 3, 10},
    {"low/0/bias", 0, 10},
    {"b/bias", 0, 4},
    {"n/scale", 0, 8},
    {"n/bias", 0, 8},
    {"a/0/kernel", 16, 7},
    {"a/0/bias", 0, 7},
    {"a/0/alpha", 0, 7},
    {"a/score/kernel", 7, 1},
    {"a/score/bias", 0, 1},
    {"g/kernel", 8, 15},
    {"g/bias", 0, 15},
    {"g/recurrent_kernel", 5, 15},
    {"g/recurrent_bias", 0, 15},
    {"v/kernel", 5, 15},
    {"v/bias", 0, 15},
    {"v/recurrent_kernel", 5, 15},
    {"v/recurrent_bias", 0, 15},
    {"v/attention", 5, 6},
    {"e/0/0/kernel", 10, 4},
    {"e/0/0/bias", 0, 4},
    {"e/0/0/alpha", 0, 4},
    {"e/0/0/mean", 0, 4},
    {"e/0/0/variance", 0, 4},
    {"e/0/1/kernel", 4, 3},
    {"e/0/1/bias", 0, 3},
    {"e/0/1/alpha", 0, 3},
    {"e/0/1/mean", 0, 3},
    {"e/0/1/variance", 0, 3},
    {"e/1/0/kernel", 10, 4},
    {"e/1/0/bias", 0, 4},
    {"e/1/0/alpha", 0, 4},
    {"e/1/0/mean", 0, 4},
    {"e/1/0/variance", 0, 4},
    {"e/1/1/kernel", 4, 3},
    {"e/1/1/bias", 0, 3},
    {"e/1/1/alpha", 0, 3},
    {"e/1/1/mean", 0, 3},
    {"e/1/1/variance", 0, 3},
    {"m/kernel", 4, 2},
    {"out/kernel", 49, 1},
    {"out/bias", 0, 1},
    {"age/mean", 0, 2},
    {"age/variance", 0, 2},
    {"age/count", 0, 1},
};

FR_CASE(parameters_have_the_names_and_shapes_of_their_layers)
{
    struct fixture fx;
    fx_load(&fx, 40, EVERY_LAYER);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    assert_int_equal(fr_graph_parameter_count(graph), FR_ARRAY_LEN(shapes));
    for (size_t p = 0; p < FR_ARRAY_LEN(shapes); p++) {
        const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
        assert_string_equal(q->name, shapes[p].name);
        assert_int_equal(q->n_dims, shapes[p].rows ? 2 : 1);
        assert_int_equal(q->shape[0], shapes[p].rows ? shapes[p].rows : shapes[p].columns);
        assert_int_equal(q->shape[1], shapes[p].rows ? shapes[p].columns : 0);
        assert_int_equal(q->n_values, (shapes[p].rows ? shapes[p].rows : 1) * shapes[p].columns);
        bool statistic = strstr(q->name, "/mean") || strstr(q->name, "/variance") || strstr(q->name, "/count");
        assert_true(q->trained == !statistic && q->exact == statistic);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

static void expect_uniform(struct fr_graph *graph, const char *name, double bound)
{
    const struct fr_parameter *p = fx_parameter(graph, name);
    double largest = 0.0, sum = 0.0;
    for (size_t i = 0; i < p->n_values; i++) {
        largest = fmax(largest, fabs((double)p->values[i]));
        sum += (double)p->values[i];
    }
    if (!(largest <= bound * 1.000001) || !(largest > bound * 0.5) || p->n_values < 3)
        fail_msg("%s: values up to %g, expected a bound of %g", name, largest, bound);
    assert_true(fabs(sum / (double)p->n_values) < 3.0 * bound / sqrt(3.0 * (double)p->n_values));
}

static void expect_constant(struct fr_graph *graph, const char *name, float value)
{
    const struct fr_parameter *p = fx_parameter(graph, name);
    for (size_t i = 0; i < p->n_values; i++)
        assert_true(p->values[i] == value);
}

FR_CASE(first_values_follow_the_defaults)
{
    struct fixture fx;
    fx_load(&fx, 40, EVERY_LAYER);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    expect_uniform(graph, "h/0/kernel", 1.0 / sqrt(12.0));
    expect_uniform(graph, "h/0/bias", 1.0 / sqrt(12.0));
    expect_uniform(graph, "low/0/up", 1.0 / sqrt(3.0));
    expect_uniform(graph, "g/kernel", 1.0 / sqrt(5.0)); /* of its units, not of its 8 inputs */
    expect_uniform(graph, "g/recurrent_bias", 1.0 / sqrt(5.0));
    expect_uniform(graph, "v/attention", 1.0 / sqrt(5.0));
    expect_uniform(graph, "a/0/kernel", 1.0 / 4.0);
    expect_constant(graph, "h/0/alpha", 0.25f);
    expect_constant(graph, "p/alpha", 0.25f);
    expect_constant(graph, "h/0/mean", 0.0f);
    expect_constant(graph, "h/0/variance", 1.0f);
    expect_constant(graph, "age/mean", 0.0f);
    expect_constant(graph, "age/variance", 1.0f);
    expect_constant(graph, "n/scale", 1.0f);
    expect_constant(graph, "n/bias", 0.0f);
    expect_constant(graph, "b/bias", 0.0f);
    /* A function of seed, name and index: (1, "out/kernel", 0 and 48). */
    uint64_t key = fr_xxh3("out/kernel", 10);
    const float *kernel = fx_parameter(graph, "out/kernel")->values;
    for (uint64_t i = 0; i < 49; i += 48)
        assert_true(kernel[i] == (float)((2.0 * fr_random_uniform(1, 2, key, i) - 1.0) * (1.0 / sqrt(49.0))));
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Layer `x` of 30 to 50: its kernel's standard deviation, and whether all values are within
 * `bound`. */
static void expect_initializer(enum fr_init_kind kind, double deviation, double bound)
{
    struct fixture fx;
    fx_init(&fx, 1);
    int32_t price = fx_slot(&fx, "price", FR_NO_INDEX, 30);
    struct fr_conf_layer *x = fx_layer(&fx, "x", FR_LAYER_DENSE), *z = fx_layer(&fx, "z", FR_LAYER_DENSE);
    fx_dense(x, price);
    fx_units(x, FR_ACT_NONE, 1, (uint32_t[]){50});
    fx_input(&fx, z, x);
    fx_units(z, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_task(&fx, "click", 0, z, 1.0f);
    x->init = (struct fr_conf_init){.kind = kind, .scale = 0.5f};
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    const struct fr_parameter *kernel = fx_parameter(graph, "x/kernel");
    double squares = 0.0, largest = 0.0;
    for (size_t i = 0; i < kernel->n_values; i++) {
        squares += (double)kernel->values[i] * (double)kernel->values[i];
        largest = fmax(largest, fabs((double)kernel->values[i]));
    }
    double got = sqrt(squares / (double)kernel->n_values);
    if (!(fabs(got - deviation) <= 0.06 * deviation) || !(largest <= bound * 1.000001) || !(largest >= bound * 0.8))
        fail_msg("initializer %d: deviation %g, expected %g; up to %g, bound %g", (int)kind, got, deviation, largest,
                 bound);
    if (kind != FR_INIT_DEFAULT)
        expect_constant(graph, "x/bias", 0.0f);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(initializers_have_their_spread)
{
    double three = sqrt(3.0);
    expect_initializer(FR_INIT_ZEROS, 0.0, 0.0);
    expect_initializer(FR_INIT_DEFAULT, 1.0 / sqrt(30.0) / three, 1.0 / sqrt(30.0));
    expect_initializer(FR_INIT_UNIFORM, 0.5 / three, 0.5);
    expect_initializer(FR_INIT_TRUNCATED_NORMAL, 0.5 * 0.87962566, 1.0);
    expect_initializer(FR_INIT_XAVIER_UNIFORM, sqrt(6.0 / 80.0) / three, sqrt(6.0 / 80.0));
    expect_initializer(FR_INIT_KAIMING_UNIFORM, sqrt(6.0 / 30.0) / three, sqrt(6.0 / 30.0));
    expect_initializer(FR_INIT_NORMAL, 0.5, 0.5 * 3.5);
    expect_initializer(FR_INIT_XAVIER_NORMAL, sqrt(2.0 / 80.0), sqrt(2.0 / 80.0) * 3.5);
    expect_initializer(FR_INIT_KAIMING_NORMAL, sqrt(2.0 / 30.0), sqrt(2.0 / 30.0) * 3.5);
}

/* ---- schedules ---- */

/* Only a bias trains (its input is 0), by mse against 0: b <- b (1 - rate). A row that is read with
 * weight 1 trains in the same way. */
static void make_decay_world(struct fixture *fx)
{
    fx_init(fx, 1);
    fx->conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, 0.5f);
    fx_part(fx_table(fx, "item"), "w", 1, FR_OPT_SGD);
    int32_t price = fx_slot(fx, "price", FR_NO_INDEX, 1), item = fx_slot(fx, "item_id", 0, 0);
    struct fr_conf_layer *z = fx_layer(fx, "z", FR_LAYER_DENSE), *y = fx_layer(fx, "y", FR_LAYER_DENSE);
    struct fr_conf_layer *wide = fx_layer(fx, "wide", FR_LAYER_SUM);
    fx_dense(z, price);
    fx_units(z, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_dense(y, price);
    fx_units(y, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_pooled(wide, item, 0, FR_POOL_SUM);
    fx_task(fx, "a", 0, z, 1.0f);
    fx_task(fx, "b", 0, y, 1.0f);
    fx_task(fx, "c", 0, wide, 1.0f);
    for (uint32_t t = 0; t < 3; t++)
        fx->tasks[t].loss = FR_LOSS_MSE;
}

static void make_decay_batch(struct fixture *fx, uint32_t n)
{
    fx_make_batch(fx, n, 1, false, 3);
    for (uint32_t i = 0; i < n; i++) {
        fx->batch.columns[0].dense[i] = 0.0f;
        fx->batch.labels[i] = 0.0f;
    }
}

static double expected_factor(const struct fr_optimizer *o, double n)
{
    double factor = o->warmup_samples ? fmin(1.0, (n + 1.0) / (double)o->warmup_samples) : 1.0;
    if (o->decay_samples)
        factor *= fmax((double)o->decay_floor, pow((double)o->decay_rate, n / (double)o->decay_samples));
    return factor;
}

FR_CASE(rates_follow_their_schedules_per_layer_and_part)
{
    struct fixture fx;
    make_decay_world(&fx);
    struct fr_optimizer *all = &fx.conf.dense_optimizer, *own = &fx.layers[1].optimizer,
                        *part = &fx.tables[0].parts[0].optimizer;
    all->warmup_samples = 100;
    fx.layers[1].has_optimizer = true;
    *own = fx_optimizer(FR_OPT_SGD, 0.25f);
    own->decay_samples = 70, own->decay_rate = 0.3f;
    part->warmup_samples = 30, part->decay_samples = 1000, part->decay_rate = 0.01f, part->decay_floor = 0.4f;
    fx_make_rows(&fx, 1);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    float *bias[3] = {fx_parameter(graph, "z/bias")->values, fx_parameter(graph, "y/bias")->values, fx.row_memory[0]};
    const struct fr_optimizer *conf[3] = {all, own, part};
    uint32_t samples = 0;
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t n = 5 + 7 * i;
        double expected[3];
        for (size_t k = 0; k < 3; k++) {
            *bias[k] = 1.0f;
            double lr = (double)conf[k]->lr * expected_factor(conf[k], (double)samples);
            /* of a key in all n - 1 samples */
            double damping = k == 2 ? 1.0 + lr * (n - 2.0) / 4.0 : 1.0;
            expected[k] = 1.0 - lr * (n - 1.0) / damping;
        }
        make_decay_batch(&fx, n);
        fx.batch.role[n - 1] = FR_ROLE_METRICS_ONLY; /* does not count */
        fx_step(&fx, graph);
        samples += n - 1;
        for (size_t k = 0; k < 3; k++)
            if (!(fabs((double)*bias[k] - expected[k]) <= 1e-6))
                fail_msg("schedule %zu after %u samples: %.9g, expected %.9g", k, samples, (double)*bias[k],
                         expected[k]);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

/* ---- optimizers per layer ---- */

/* One step from the same start under other optimizers; out: changes of all parameters, one after
 * the other. */
static size_t changes_of(struct fixture *fx, double *out)
{
    fx_make_rows(fx, 11);
    fx_resolve(fx);
    struct fr_graph *graph = fx_graph(fx, NULL, NULL);
    size_t n = 0;
    for (int after = 0; after < 2; after++) {
        n = 0;
        for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
            const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
            for (size_t i = 0; i < q->n_values; i++, n++)
                out[n] = after ? (double)q->values[i] - out[n] : (double)q->values[i];
        }
        if (!after)
            fx_step(fx, graph);
    }
    fr_graph_free(graph);
    return n;
}

FR_CASE(every_layer_may_have_its_own_optimizer)
{
    struct fixture fx;
    fx_every_operation(&fx, 60, FR_OPT_SGD);
    fx.conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, 1.0f);
    fx_make_batch(&fx, 100, 2, true, 5);
    double *gradient = fr_alloc(2000, sizeof(double)), *got = fr_alloc(2000, sizeof(double));
    size_t n = changes_of(&fx, gradient);
    fx.conf.dense_optimizer = fx_optimizer(FR_OPT_ADAGRAD, 0.1f);
    fx.layers[2].has_optimizer = true; /* h: two kernels, two biases, the first parameters */
    fx.layers[2].optimizer = fx_optimizer(FR_OPT_SGD, 0.25f);
    size_t of_h = (4 * 3 + 2 + 4) * 24 + 24 + 24 * 7 + 7;
    assert_int_equal(changes_of(&fx, got), n);
    size_t moved[2] = {0};
    for (size_t i = 0; i < n; i++) {
        double g = gradient[i], expected = i < of_h ? 0.25 * g : 0.1 * g / (fabs(g) + 1e-8);
        if (fabs(g) < 2e-5) /* too small for the difference of two floats */
            continue;
        moved[i < of_h]++;
        if (!(fabs(got[i] - expected) <= 1e-6 + 2e-3 * fabs(expected)))
            fail_msg("value %zu of %zu moved by %g, expected %g", i, n, got[i], expected);
    }
    assert_true(moved[0] > 5 && moved[1] > 100);
    free(gradient);
    free(got);
    fx_release(&fx);
}

FR_CASE(clip_norm_bounds_the_step_of_each_parameter)
{
    struct fixture fx;
    fx_every_operation(&fx, 60, FR_OPT_SGD);
    fx.conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, 1.0f);
    fx_make_batch(&fx, 100, 2, true, 5);
    /* a step of one unit is that of the mean gradient, which is bounded */
    fx.conf.ingest.batch_size = 100;
    double *free_step = fr_alloc(2000, sizeof(double)), *clipped = fr_alloc(2000, sizeof(double));
    changes_of(&fx, free_step);
    fx.conf.dense_optimizer.clip_norm = 0.02f;
    changes_of(&fx, clipped);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    size_t at = 0, bounded = 0;
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        size_t n = fr_graph_parameters(graph)[p].n_values;
        double norm = 0.0, before = 0.0;
        for (size_t i = at; i < at + n; i++) {
            norm += clipped[i] * clipped[i];
            before += free_step[i] * free_step[i];
        }
        bounded += before > 4e-4;
        assert_true(fabs(sqrt(norm) - fmin(sqrt(before), 0.02)) < 1e-6);
        at += n;
    }
    assert_true(bounded >= 2);
    fr_graph_free(graph);
    free(free_step);
    free(clipped);
    fx_release(&fx);
}

/* ---- continuing after a restore ---- */

static struct fr_graph *restored(struct fixture *fx, struct fr_graph *from, struct fr_pool *pool)
{
    struct fr_graph *graph = fx_graph(fx, NULL, pool);
    struct fr_buffer bytes = {0};
    save_state(from, &bytes);
    uint64_t before = fx_hash(fx, graph);
    for (size_t cut = 0; cut < bytes.size; cut += 1 + bytes.size / 40) {
        assert_int_equal(restore_state(graph, bytes.data, cut), FR_E_CORRUPT);
        assert_true(fx_hash(fx, graph) == before);
    }
    assert_int_equal(restore_state(graph, bytes.data, bytes.size), FR_OK);
    fr_buffer_release(&bytes);
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        memcpy(fr_graph_parameters(graph)[p].values, fr_graph_parameters(from)[p].values,
               fr_graph_parameters(from)[p].n_values * sizeof(float));
    fr_graph_free(from);
    return graph;
}

static uint64_t run_of(enum fr_optimizer_kind dense, enum fr_optimizer_kind rows, int restart_at, struct fr_pool *pool)
{
    struct fixture fx;
    fx_load(&fx, 40, nx_networks[3].text); /* activations: dice and layer_norm */
    assert_string_equal(nx_networks[3].name, "activations");
    struct fr_optimizer o = fx_optimizer(dense, 0.05f);
    o.beta1 = 0.9f, o.beta2 = 0.99f, o.momentum = 0.9f, o.rho = 0.9f, o.weight_decay = 0.1f, o.initial = 0.1f;
    o.l2 = 0.01f, o.clip_norm = 0.5f;
    struct fr_optimizer r = o;
    r.kind = rows;
    if (dense != FR_OPT_FTRL)
        o.warmup_samples = 300, o.decay_samples = 200;
    if (rows != FR_OPT_FTRL && rows != FR_OPT_GROUP_FTRL)
        r.warmup_samples = 150, r.decay_samples = 500;
    fx.conf.dense_optimizer = o;
    for (uint32_t t = 0; t < fx.conf.n_tables; t++)
        for (uint32_t p = 0; p < fx.conf.tables[t].n_parts; p++)
            fx.conf.tables[t].parts[p].optimizer = r;
    fx_make_rows(&fx, 2);
    struct fr_graph *graph = fx_graph(&fx, NULL, pool);
    for (int i = 0; i < 6; i++) {
        if (i == restart_at)
            graph = restored(&fx, graph, pool);
        fx_vary(&fx, 70 + (uint64_t)i);
        fx_step(&fx, graph);
    }
    uint64_t hash = fx_hash(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
    return hash;
}

FR_CASE(a_restored_run_continues_to_the_same_bits)
{
    static const enum fr_optimizer_kind rows[] = {FR_OPT_SGD,     FR_OPT_ADAGRAD,      FR_OPT_ADAGRAD_ROWWISE,
                                                  FR_OPT_ADAM,    FR_OPT_FTRL,         FR_OPT_MOMENTUM,
                                                  FR_OPT_RMSPROP, FR_OPT_ADAM_ROWWISE, FR_OPT_GROUP_FTRL},
                                        dense[] = {FR_OPT_SGD,  FR_OPT_ADAGRAD,  FR_OPT_ADAM,   FR_OPT_ADAMW,
                                                   FR_OPT_FTRL, FR_OPT_MOMENTUM, FR_OPT_RMSPROP};
    for (size_t k = 0; k < FR_ARRAY_LEN(rows); k++) {
        enum fr_optimizer_kind d = dense[k % FR_ARRAY_LEN(dense)];
        uint64_t whole = run_of(d, rows[k], -1, NULL);
        assert_true(run_of(d, rows[k], 3, NULL) == whole);
        assert_true(run_of(d, rows[k], 0, NULL) == whole);
    }
}

/* Norms to clip by, statistics and rows are joined in a fixed order. */
FR_CASE(what_is_learnt_does_not_depend_on_the_workers)
{
    uint64_t alone = run_of(FR_OPT_ADAMW, FR_OPT_ADAM_ROWWISE, -1, NULL);
    for (size_t workers = 1; workers <= 3; workers++) {
        struct fr_pool *pool = fr_pool_new(workers);
        assert_true(run_of(FR_OPT_ADAMW, FR_OPT_ADAM_ROWWISE, 4, pool) == alone);
        fr_pool_free(pool);
    }
}

FR_CASE(the_standardized_state_survives_a_restore)
{
    uint64_t hashes[2];
    for (int restart = 0; restart < 2; restart++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[0].text);
        fx_make_rows(&fx, 2);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        for (uint64_t i = 0; i < 4; i++) {
            if (i == 2 && restart)
                graph = restored(&fx, graph, NULL);
            fx_vary(&fx, 30 + i);
            fx_step(&fx, graph);
        }
        hashes[restart] = fx_hash(&fx, graph);
        fr_graph_free(graph);
        fx_release(&fx);
    }
    assert_true(hashes[0] == hashes[1]);
}

FR_CASE(a_state_of_another_network_is_refused)
{
    struct fixture a, b;
    fx_every_operation(&a, 20, FR_OPT_SGD);
    fx_every_operation(&b, 20, FR_OPT_SGD);
    b.conf.dense_optimizer.kind = FR_OPT_RMSPROP;
    b.conf.dense_optimizer.rho = 0.9f;
    struct fr_graph *one = fx_graph(&a, NULL, NULL), *other = fx_graph(&b, NULL, NULL);
    struct fr_buffer bytes = {0};
    save_state(one, &bytes);
    uint64_t before = fx_hash(&b, other);
    assert_int_equal(restore_state(other, bytes.data, bytes.size), FR_E_MISMATCH);
    bytes.data[0]++;
    assert_int_equal(restore_state(one, bytes.data, bytes.size), FR_E_MISMATCH);
    bytes.data[0]--;
    fr_put_u8(&bytes, 0);
    assert_int_equal(restore_state(one, bytes.data, bytes.size), FR_E_CORRUPT);
    assert_true(fx_hash(&b, other) == before);
    fr_buffer_release(&bytes);
    fr_graph_free(one);
    fr_graph_free(other);
    fx_release(&a);
    fx_release(&b);
}

/* ---- batches that leave no trace ---- */

static void expect_refused(struct fixture *fx, struct fr_graph *graph, const char *what)
{
    uint64_t before = fx_hash(fx, graph);
    double loss = 42.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    if (fr_graph_train(graph, &fx->batch, &fx->rows, &loss) != FR_E_NONFINITE)
        fail_msg("%s: not refused", what);
    assert_true(loss == 42.0);
    if (fx_hash(fx, graph) != before)
        fail_msg("%s: something changed", what);
}

/* In every network of every layer, after two good batches, so that all states and statistics are at
 * work. */
FR_CASE(a_refused_batch_leaves_every_bit)
{
    for (size_t n = 0; n < FR_ARRAY_LEN(nx_networks); n++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[n].text);
        for (uint32_t t = 0; t < fx.conf.n_tables; t++)
            for (uint32_t p = 0; p < fx.conf.tables[t].n_parts; p++)
                fx.conf.tables[t].parts[p].optimizer = fx_optimizer(FR_OPT_ADAM, 0.05f);
        fx_make_rows(&fx, 2);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        for (uint64_t i = 0; i < 2; i++) {
            fx_vary(&fx, 30 + i);
            fx_step(&fx, graph);
        }
        fx_vary(&fx, 40);
        float weight = fx.batch.weights[0];
        fx.batch.weights[0] = INFINITY;
        expect_refused(&fx, graph, nx_networks[n].name);
        fx.batch.weights[0] = 1e30f;
        expect_refused(&fx, graph, nx_networks[n].name);
        fx.batch.weights[0] = weight;
        float *row = fx.row_memory[0], old = row[0];
        for (uint32_t id = 0; id < 40; id++)
            row[id * fx.layouts[0].row_floats] = NAN;
        expect_refused(&fx, graph, nx_networks[n].name);
        for (uint32_t id = 0; id < 40; id++)
            row[id * fx.layouts[0].row_floats] = old;
        fx_step(&fx, graph);
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

/* No logit shows this number, because relu hides it; the statistics would take it in. */
FR_CASE(statistics_that_are_not_finite_refuse_the_batch)
{
    struct fixture fx;
    fx_load(&fx, 10,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: s, stop_gradient: age}\n"
                    "    - {name: hidden, dense: s, units: 2, activation: relu}\n"
                    "    - {name: seen, dense: price, units: 1}\n"
                    "    - {name: unseen, dense: hidden, units: 1}\n"
                    "tasks:\n"
                    "  - {name: click, label: click, logit: seen}\n"
                    "  - {name: other, label: buy, logit: unseen, loss: none}\n");
    fx_make_rows(&fx, 2);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    float *kernel = fx_parameter(graph, "hidden/kernel")->values, *bias = fx_parameter(graph, "hidden/bias")->values;
    for (size_t i = 0; i < 4; i++)
        kernel[i] = -1.0f;
    bias[0] = bias[1] = 0.0f;
    fx_vary(&fx, 3);
    fx_step(&fx, graph);
    fx.batch.columns[6].dense[0] = 3e38f; /* its square in the published variance is beyond f32 */
    expect_refused(&fx, graph, "variance");
    fx.batch.role[0] = FR_ROLE_METRICS_ONLY;
    fx_step(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_names_and_shapes_of_their_layers),
        cmocka_unit_test(first_values_follow_the_defaults),
        cmocka_unit_test(initializers_have_their_spread),
        cmocka_unit_test(rates_follow_their_schedules_per_layer_and_part),
        cmocka_unit_test(every_layer_may_have_its_own_optimizer),
        cmocka_unit_test(clip_norm_bounds_the_step_of_each_parameter),
        cmocka_unit_test(a_restored_run_continues_to_the_same_bits),
        cmocka_unit_test(what_is_learnt_does_not_depend_on_the_workers),
        cmocka_unit_test(the_standardized_state_survives_a_restore),
        cmocka_unit_test(a_state_of_another_network_is_refused),
        cmocka_unit_test(a_refused_batch_leaves_every_bit),
        cmocka_unit_test(statistics_that_are_not_finite_refuse_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
