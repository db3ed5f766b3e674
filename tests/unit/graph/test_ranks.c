/* The same batches on one graph and divided among the graphs of several ranks: after each step all
 * have the same parameters, state and losses, bit for bit. Rows do not change. */
#include "graph/ranks.h"
#include "lanes_world.h"
#include "looks.h"
#include "networks.h"

enum { VOCABULARY = 90, RANKS_MAX = 6, SAMPLES = 300 };

/* %s: an optimizer. */
static const char whole[] =
    NX_HEAD "export: {average: {half_life: 3000}}\n"
            "network:\n"
            "  optimizer: {%s}\n"
            "  clip_global_norm: 0.2\n"
            "  layers:\n"
            "    - {name: g, gru: [history.v, clicks.v], units: 4}\n"
            "    - {name: q, dense: [item_id.v, price, age, hour], units: 8, activation: prelu}\n"
            "    - {name: a, attention: {query: q, keys: [history.v, clicks.v]}, units: [5], activation: sigmoid}\n"
            "    - {name: l, last: g}\n"
            "    - {name: u, dense: [user_id, age], units: 4}\n"
            "    - {name: h, mlp: [q, a, l, u, {mean: noise.v}], units: [9, 5], activation: dice}\n"
            "    - {name: s, dense: [history.v, g], units: 3, activation: dice}\n"
            "    - {name: m, mean: s}\n"
            "    - {name: d, dropout: h, rate: 0.2}\n"
            "    - {name: n, layer_norm: [d, m]}\n"
            "    - {name: out, dense: n, units: 1}\n"
            "    - {name: other, dense: [h, price], units: 1}\n"
            "    - {name: alone, dense: [u, price], units: 1}\n"
            "tasks:\n"
            "  - {name: click, label: click, logit: out}\n"
            "  - {name: buy, label: buy, logit: other, weight: 0.3}\n"
            "  - {name: order, label: click, logit: alone, loss: pairwise, weight: 0.7}\n"
            "losses:\n"
            "  - {name: next, next_step: {states: g, positives: clicks.v, negatives: noise.v}, weight: 0.3}\n"
            "  - {name: near, mse: [l, {stop_gradient: u}], weight: 0.4}\n";
static const char *const optimizers[] = {"adam: {lr: 0.01, clip_norm: 0.05}",
                                         "adamw: {lr: 0.01, weight_decay: 0.01}",
                                         "sgd: {lr: 0.01, clip_norm: 0.05}",
                                         "momentum: {lr: 0.01, clip_norm: 0.05}",
                                         "adagrad: {lr: 0.05}",
                                         "rmsprop: {lr: 0.01}",
                                         "ftrl: {lr: 0.05, l1: 0.001}"};

/* ---- graphs ---- */

struct side {
    struct fixture fx;
    struct fr_ops ops;
    struct fr_pool *pool;
    struct fr_graph *graph;
    struct fr_domains lanes;          /* 0, 0: all */
    struct fr_buffer sums[RANKS_MAX]; /* for each rank */
    struct fr_buffer values;
};

static void leave_rows(const struct fr_row_update *update)
{
    (void)update;
}

/* n: ranks; 0: the side has all lanes */
static void side_init(struct side *side, const char *text, uint32_t domains, uint32_t rank, uint32_t n)
{
    size_t workers = 1 + (n > 0 ? rank % 3 : 0);
    memset(side, 0, sizeof(*side));
    fx_load(&side->fx, VOCABULARY, text);
    fx_make_rows(&side->fx, 5);
    side->fx.conf.ingest.batch_size = 64;
    side->fx.conf.domains = domains;
    for (uint32_t t = 0; t < side->fx.conf.n_tasks; t++)
        side->fx.conf.tasks[t].bias_from_labels = true;
    side->ops = *fr_ops_cpu();
    side->ops.update_rows = leave_rows;
    side->lanes = n > 0 ? fr_rank_domains(rank, n, domains) : (struct fr_domains){0};
    side->pool = workers > 1 ? fr_pool_new(workers) : NULL;
    side->graph = fr_graph_new(&(struct fr_graph_options){.conf = &side->fx.conf,
                                                          .ops = &side->ops,
                                                          .pool = side->pool,
                                                          .lanes = side->lanes,
                                                          .rank = rank,
                                                          .n_ranks = n});
}

static void side_release(struct side *side)
{
    fr_graph_free(side->graph);
    fr_pool_free(side->pool);
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        fr_buffer_release(&side->sums[r]);
    fr_buffer_release(&side->values);
    fx_release(&side->fx);
}

struct world {
    struct side one, ranks[RANKS_MAX];
    uint32_t n_ranks, domains;
    const char *name;
};

static void world_init(struct world *w, const char *name, const char *text, uint32_t domains, uint32_t n_ranks)
{
    *w = (struct world){.n_ranks = n_ranks, .domains = domains, .name = name};
    side_init(&w->one, text, domains, 0, 0);
    for (uint32_t r = 0; r < n_ranks; r++)
        side_init(&w->ranks[r], text, domains, r, n_ranks);
}

static void world_release(struct world *w)
{
    side_release(&w->one);
    for (uint32_t r = 0; r < w->n_ranks; r++)
        side_release(&w->ranks[r]);
}

/* ---- batches ---- */

/* What counts in a batch. */
enum labels { LABELS_ALL, LABELS_OF_ONE_TASK, LABELS_OF_FEW, LABELS_NONE, LABEL_KINDS };

struct step {
    uint32_t samples;
    bool groups, one_lane;
    enum labels labels;
};
static const struct step steps[] = {
    {SAMPLES, false, false, LABELS_ALL}, {SAMPLES, true, false, LABELS_ALL}, {37, false, false, LABELS_OF_ONE_TASK},
    {2, false, false, LABELS_ALL},       {60, true, true, LABELS_ALL},       {SAMPLES, false, false, LABELS_OF_FEW},
    {1, false, false, LABELS_ALL},       {80, true, false, LABELS_NONE},     {SAMPLES, true, false, LABELS_OF_FEW},
    {700, false, false, LABELS_ALL},
};

static void make_batch(struct side *side, const struct step *step, uint32_t domains, uint64_t seed)
{
    struct fixture *fx = &side->fx;
    struct fr_batch *b = &fx->batch;
    if (step->groups)
        fx_make_groups(fx, step->samples, 5, 0x155, seed);
    else
        fx_make_batch(fx, step->samples, 4, true, seed);
    fx_vary_roles(fx);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        bool few = i >= step->samples / 2 && i < step->samples / 2 + 3;
        if (step->labels == LABELS_NONE || (step->labels == LABELS_OF_FEW && !few && step->groups))
            b->role[i] = FR_ROLE_METRICS_ONLY;
        /* statistics count samples without a label */
        if (step->labels == LABELS_OF_FEW && !few && !step->groups)
            b->labels[i] = b->labels[b->capacity_samples + i] = NAN;
        if (step->labels == LABELS_OF_ONE_TASK)
            b->labels[b->capacity_samples + i] = NAN;
    }
    lx_divide(fx, domains, step->one_lane ? SPLIT_ONE_LANE : SPLIT_UNEVEN, (uint32_t)seed % domains);
    if (side->lanes.end > 0)
        lx_keep_lanes(fx, side->lanes);
}

static void make_batches(struct world *w, const struct step *step, uint64_t seed)
{
    make_batch(&w->one, step, w->domains, seed);
    for (uint32_t r = 0; r < w->n_ranks; r++)
        make_batch(&w->ranks[r], step, w->domains, seed);
}

/* ---- a step ---- */

static void send_sums(struct world *w)
{
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        struct side *side = &w->ranks[r];
        if (side->fx.batch.n_samples > 0)
            fr_graph_forward(side->graph, &side->fx.batch, &side->fx.rows);
        fr_graph_sum(side->graph, &side->fx.batch, &side->fx.rows);
        for (uint32_t to = 0; to < w->n_ranks; to++) {
            fr_buffer_clear(&side->sums[to]);
            fr_graph_put_sums(side->graph, to, &side->sums[to]);
        }
    }
}

/* What the ranks sent to one of them. */
static void receive_sums(const struct world *w, uint32_t rank, struct fr_bytes *in)
{
    for (uint32_t r = 0; r < w->n_ranks; r++)
        in[r] = (struct fr_bytes){w->ranks[r].sums[rank].data, w->ranks[r].sums[rank].size};
}

enum share { SHARE_SQUARES, SHARE_VALUES, SHARE_STATES };

/* Each rank gives what it has of its portion to all. */
static void share(struct world *w, enum share what)
{
    struct fr_bytes in[RANKS_MAX];
    struct fr_err err = {0};
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        struct side *side = &w->ranks[r];
        fr_buffer_clear(&side->values);
        if (what == SHARE_SQUARES)
            fr_graph_put_squares(side->graph, &side->values);
        else if (what == SHARE_VALUES)
            fr_graph_put_values(side->graph, &side->values);
        else
            fr_graph_put_states(side->graph, &side->values);
        in[r] = (struct fr_bytes){side->values.data, side->values.size};
    }
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        struct fr_graph *graph = w->ranks[r].graph;
        enum fr_status (*take)(struct fr_graph *, const struct fr_bytes *, struct fr_err *) =
            what == SHARE_SQUARES  ? fr_graph_take_squares
            : what == SHARE_VALUES ? fr_graph_take_values
                                   : fr_graph_take_states;
        struct fr_bytes *last = &in[w->n_ranks - 1]; /* a part that is too long changes nothing */
        last->size++;
        assert_int_equal(take(graph, in, &err), FR_E_CORRUPT);
        last->size--;
        assert_int_equal(take(graph, in, &err), FR_OK);
    }
}

/* Makes the step of a rank. No key has a home, so rows do not change; test_row_ranks.c has
 * those. */
static void step_rank(struct world *w, struct side *side)
{
    uint32_t n_sent[RANKS_MAX] = {0}, *merged[RANKS_MAX] = {NULL};
    struct fr_home_table tables[FR_TABLES_MAX];
    struct fr_home_rows home = {w->n_ranks, side->fx.conf.n_tables, tables};
    struct fr_unique_range none[FR_TABLES_MAX] = {{0}};
    struct fr_buffer messages[RANKS_MAX] = {{0}};
    struct fr_bytes in[RANKS_MAX];
    struct fr_err err = {0};
    for (uint32_t t = 0; t < home.n_tables; t++)
        tables[t] = (struct fr_home_table){.n_sent = n_sent, .merged = merged};
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        struct side *from = &w->ranks[r];
        fr_graph_put_row_sums(from->graph, &from->fx.batch, &from->fx.rows, none, &messages[r]);
        in[r] = (struct fr_bytes){messages[r].data, messages[r].size};
    }
    if (fr_graph_read_row_sums(side->graph, &home, in, &err) != FR_OK)
        fail_msg("%s: %s", w->name, err.text);
    fr_graph_step(side->graph);
    for (uint32_t r = 0; r < w->n_ranks; r++)
        fr_buffer_release(&messages[r]);
}

/* Joins on all ranks, whose results are the same. */
static struct fr_graph_join join_sums(struct world *w)
{
    struct fr_graph_join joins[RANKS_MAX];
    struct fr_bytes in[RANKS_MAX];
    struct fr_err err = {0};
    uint32_t bits = 0;
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        receive_sums(w, r, in);
        if (fr_graph_join_sums(w->ranks[r].graph, in, &joins[r], &err) != FR_OK)
            fail_msg("%s: %s", w->name, err.text);
        assert_int_equal(joins[r].refused, joins[0].refused);
        assert_int_equal(joins[r].steps, joins[0].steps);
        assert_int_equal(joins[r].bounded, joins[0].bounded);
        assert_int_equal(joins[r].rows_bounded, joins[0].rows_bounded);
        assert_memory_equal(&joins[r].loss, &joins[0].loss, sizeof(double));
        bits = joins[r].gradient_bits > bits ? joins[r].gradient_bits : bits;
    }
    bool large = joins[0].steps && bits > fr_f32_bits(FR_GRADIENT_MAX);
    if (joins[0].bounded)
        assert_false(large);
    joins[0].refused |= large;
    return joins[0];
}

static void compare(struct world *w, uint32_t step)
{
    struct fr_buffer one = {0}, rank = {0};
    const struct fr_parameter *want = fr_graph_parameters(w->one.graph);
    save_model(w->one.graph, &one);
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        struct fr_graph *graph = w->ranks[r].graph;
        for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
            const struct fr_parameter *got = &fr_graph_parameters(graph)[p];
            size_t bytes = got->n_values * sizeof(float);
            if (memcmp(got->values, want[p].values, bytes) != 0 ||
                memcmp(got->published, want[p].published, bytes) != 0)
                fail_msg("%s, %u of %u ranks, step %u: %s", w->name, r, w->n_ranks, step, got->name);
            assert_true(got->changes == want[p].changes);
        }
        fr_buffer_clear(&rank);
        save_model(graph, &rank);
        if (rank.size != one.size || memcmp(rank.data, one.data, one.size) != 0)
            fail_msg("%s, %u of %u ranks, step %u: state", w->name, r, w->n_ranks, step);
    }
    fr_buffer_release(&one);
    fr_buffer_release(&rank);
}

static void compare_losses(struct world *w, uint32_t step)
{
    const struct fr_conf *conf = &w->one.fx.conf;
    const struct fr_graph_loss *want = fr_graph_losses_of(w->one.graph);
    for (uint32_t r = 0; r < w->n_ranks; r++)
        for (uint32_t k = 0; k < conf->n_tasks + conf->n_losses; k++) {
            const struct fr_graph_loss *got = &fr_graph_losses_of(w->ranks[r].graph)[k];
            if (got->samples != want[k].samples || got->pairs != want[k].pairs || got->sum != want[k].sum)
                fail_msg("%s, step %u: loss %u of %u samples: %a, expected of %u: %a", w->name, step, k, got->samples,
                         got->sum, want[k].samples, want[k].sum);
        }
}

/* Steps one rank and all others. Returns whether the step was refused; if rows are not bounded, it
 * is for their gradients to say, which these ranks do not exchange. */
static bool step_world(struct world *w, uint32_t step)
{
    struct fixture *fx = &w->one.fx;
    double loss = 0.0;
    uint64_t changes = fr_graph_shared_changes(w->one.graph);
    send_sums(w);
    struct fr_graph_join join = join_sums(w);
    fr_graph_forward(w->one.graph, &fx->batch, &fx->rows);
    enum fr_status status = fr_graph_train(w->one.graph, &fx->batch, &fx->rows, &loss);
    if (join.refused || !join.steps || join.rows_bounded)
        assert_int_equal(status, join.refused ? FR_E_NONFINITE : FR_OK);
    if (status == FR_OK) {
        assert_int_equal(join.steps, fr_graph_shared_changes(w->one.graph) != changes);
        assert_memory_equal(&join.loss, &loss, sizeof(loss));
        if (join.steps && fr_graph_clips(w->one.graph))
            share(w, SHARE_SQUARES);
        for (uint32_t r = 0; r < w->n_ranks; r++)
            step_rank(w, &w->ranks[r]);
        if (join.steps) {
            share(w, SHARE_VALUES);
            share(w, SHARE_STATES);
        }
        compare_losses(w, step);
    }
    compare(w, step);
    return status != FR_OK;
}

static void train(const char *name, const char *text, uint32_t domains, uint32_t n_ranks)
{
    struct world w;
    world_init(&w, name, text, domains, n_ranks);
    for (uint32_t i = 0; i < FR_ARRAY_LEN(steps); i++) {
        make_batches(&w, &steps[i], 40 + i);
        assert_false(step_world(&w, i));
    }
    world_release(&w);
}

static void write_whole(char *text, size_t size, size_t optimizer)
{
    assert_true((size_t)snprintf(text, size, whole, optimizers[optimizer % FR_ARRAY_LEN(optimizers)]) < size);
}

FR_CASE(ranks_make_the_steps_of_one_rank)
{
    static const uint32_t worlds[][2] = {{12, 1}, {12, 2}, {12, 3}, {12, 4}, {12, 6}, {5, 2}, {5, 3}};
    _Static_assert(FR_ARRAY_LEN(worlds) >= FR_ARRAY_LEN(optimizers), "each optimizer in a world");
    for (size_t i = 0; i < FR_ARRAY_LEN(worlds); i++) {
        char text[8192];
        write_whole(text, sizeof(text), i);
        train(optimizers[i], text, worlds[i][0], worlds[i][1]);
    }
}

FR_CASE(so_do_they_with_every_operation)
{
    for (size_t n = 0; n < FR_ARRAY_LEN(nx_networks); n++)
        train(nx_networks[n].name, nx_networks[n].text, n % 2 ? 12 : 5, 2 + n % 2);
}

/* ---- refusals ---- */

/* What is wrong with a sample. */
struct fault {
    uint32_t sample;
    float price, age, weight; /* factors */
    uint32_t samples;         /* that many more have it too */
    /* the weights of ids have very different sizes, and the rows are zero */
    bool ids;
};
static const struct fault faults[] = {
    {0, NAN, 1.0f, 1.0f, 0, false},      {170, 3e38f, 1.0f, 1.0f, 0, false},  {299, 1.0f, 1.0f, 1e30f, 0, false},
    {120, 1.0f, 1.0f, 1e17f, 2, false},  {200, 1.0f, 1e30f, 1.0f, 0, false},  {11, 1e20f, 1.0f, 1.0f, 1, false},
    {11, 1.0f, 1.0f, 2e13f, 280, false}, {30, 1.0f, 1.0f, 2e14f, 100, false}, {150, 1.0f, 1.0f, 1e38f, 20, false},
    {7, 1e12f, 1.0f, 1e5f, 3, false},    {0, 1.0f, 1.0f, INFINITY, 0, false}, {299, NAN, NAN, NAN, 0, false},
    {0, 1.0f, 1.0f, 1.0f, 299, true},
};

static void multiply(struct fixture *fx, uint32_t slot, uint32_t sample, float factor)
{
    struct fr_column *c = &fx->batch.columns[slot];
    size_t entry = c->shared ? fx->batch.group_of[sample] : sample;
    for (uint32_t i = 0; i < c->dim; i++)
        c->dense[entry * c->dim + i] *= factor;
}

/* Breaks the samples that the side has. `before`: samples of the ranks before. */
static void break_samples(struct side *side, const struct fault *fault, uint32_t before)
{
    struct fixture *fx = &side->fx;
    struct fr_column *ids = &fx->batch.columns[0];
    if (fault->ids)
        memset(fx->row_memory[0], 0, (size_t)VOCABULARY * fx->layouts[0].row_floats * sizeof(float));
    for (uint32_t i = 0; i < fx->batch.n_samples; i++) {
        if (before + i < fault->sample || before + i > fault->sample + fault->samples)
            continue;
        fx->batch.role[i] = FR_ROLE_TRAIN;
        multiply(fx, 5, i, fault->price);
        multiply(fx, 6, i, fault->age);
        for (uint32_t p = fault->ids ? ids->begin[i] : 0; fault->ids && p < ids->begin[i + 1]; p++)
            ids->weights[p] = (before + i) % 2 ? ldexpf(1.0f, (int)((before + i) % 54)) : 6e15f;
        for (uint32_t l = 0; l < fx->batch.n_labels; l++)
            fx->batch.weights[l * fx->batch.capacity_samples + i] *= fault->weight;
    }
}

/* Each examination is made on all ranks, until some rank has a suspect. Returns their number. */
static uint32_t compare_suspects(struct world *w)
{
    struct fixture *fx = &w->one.fx;
    struct fr_suspect want[SAMPLES], got[SAMPLES];
    uint32_t n = 0, at = 0, all = find_suspects(w->one.graph, &fx->batch, &fx->rows, want);
    for (enum fr_suspect_look look = 0; look < FR_SUSPECT_LOOKS && n == 0; look++) {
        at = 0;
        for (uint32_t r = 0; r < w->n_ranks; r++) {
            struct fixture *own = &w->ranks[r].fx;
            n += fr_graph_suspects(w->ranks[r].graph, &own->batch, &own->rows, look, got + at);
            at += own->batch.n_samples;
        }
    }
    assert_int_equal(at, fx->batch.n_samples);
    assert_int_equal(n, all);
    for (uint32_t i = 0; i < at; i++)
        if (got[i].why != want[i].why || got[i].where != want[i].where)
            fail_msg("%u ranks: sample %u: %d, expected %d", w->n_ranks, i, got[i].why, want[i].why);
    return n;
}

FR_CASE(a_refusal_and_its_suspects_are_those_of_one_rank)
{
    uint32_t refused = 0, identified = 0;
    for (size_t i = 0; i < FR_ARRAY_LEN(faults); i++)
        for (uint32_t groups = 0; groups < (faults[i].ids ? 1 : 2); groups++) {
            struct world w;
            char text[8192];
            const struct step good = {SAMPLES, groups, false, LABELS_ALL};
            write_whole(text, sizeof(text), i);
            world_init(&w, "refused", text, 12, 2 + i % 3);
            make_batches(&w, &good, 60);
            assert_false(step_world(&w, 0));
            make_batches(&w, &good, 61);
            break_samples(&w.one, &faults[i], 0);
            for (uint32_t r = 0, before = 0; r < w.n_ranks; before += w.ranks[r++].fx.batch.n_samples)
                break_samples(&w.ranks[r], &faults[i], before);
            if (step_world(&w, 1)) {
                refused++;
                identified += compare_suspects(&w) > 0;
            }
            make_batches(&w, &good, 62);
            assert_false(step_world(&w, 2)); /* learning continues */
            world_release(&w);
        }
    assert_true(refused >= 18 && identified >= 16);
}

/* A logit of a sample that does not train refuses a batch of which nothing counts. */
FR_CASE(a_batch_of_which_nothing_counts_is_refused_for_its_logits_only)
{
    for (uint32_t broken = 0; broken < 2; broken++) {
        struct world w;
        char text[8192];
        const struct step none = {SAMPLES, false, false, LABELS_NONE};
        write_whole(text, sizeof(text), 0);
        world_init(&w, "none", text, 12, 3);
        make_batches(&w, &none, 60);
        multiply(&w.one.fx, 5, 299, broken ? NAN : 1.0f);
        multiply(&w.ranks[2].fx, 5, w.ranks[2].fx.batch.n_samples - 1, broken ? NAN : 1.0f);
        w.one.fx.batch.weights[1] = NAN;
        w.ranks[0].fx.batch.weights[1] = NAN;
        assert_int_equal(step_world(&w, 0), broken);
        world_release(&w);
    }
}

/* ---- messages ---- */

static enum fr_status join_on_first(struct world *w, const struct fr_bytes *in, char *text, size_t size)
{
    struct fr_graph_join join;
    struct fr_err err = {0};
    enum fr_status status = fr_graph_join_sums(w->ranks[0].graph, in, &join, &err);
    snprintf(text, size, "%s", err.text);
    return status;
}

FR_CASE(a_message_that_is_not_of_its_rank_is_named)
{
    struct world w, other;
    char text[8192], why[512];
    struct fr_bytes in[RANKS_MAX], foreign[RANKS_MAX];
    write_whole(text, sizeof(text), 0);
    world_init(&w, "messages", text, 12, 3);
    world_init(&other, "others", nx_networks[0].text, 12, 3);
    make_batches(&w, &steps[1], 60);
    make_batches(&other, &steps[1], 60);
    send_sums(&w);
    receive_sums(&w, 0, in);
    send_sums(&other);
    receive_sums(&other, 0, foreign);
    struct fr_bytes wrong[][3] = {{in[0], in[2], in[1]},
                                  {in[0], in[1], in[1]},
                                  {in[0], foreign[1], in[2]},
                                  {in[0], in[1], {in[2].data, in[2].size - 1}}};
    static const char *const words[] = {"rank 2", "rank 2", "rank 1", "rank 2"};
    for (size_t i = 0; i < FR_ARRAY_LEN(wrong); i++) {
        assert_int_equal(join_on_first(&w, wrong[i], why, sizeof(why)), FR_E_CORRUPT);
        assert_non_null(strstr(why, words[i]));
    }
    make_batch(&w.ranks[1], &steps[0], 12, 60); /* plain samples beside groups */
    send_sums(&w);
    receive_sums(&w, 0, in);
    assert_int_equal(join_on_first(&w, in, why, sizeof(why)), FR_E_CORRUPT);
    assert_non_null(strstr(why, "rank 1"));
    world_release(&w);
    world_release(&other);
}

/* Exact copies, so that a sanitizer finds each read beyond their end. */
FR_CASE(cut_and_forged_messages_are_refused_or_harmless)
{
    enum { FLIPS = 2000 };
    struct world w;
    char text[8192], why[512];
    struct fr_bytes in[RANKS_MAX];
    uint32_t refused = 0;
    write_whole(text, sizeof(text), 0);
    world_init(&w, "forged", text, 12, 3);
    make_batches(&w, &steps[1], 60);
    send_sums(&w);
    receive_sums(&w, 0, in);
    uint64_t hash = fx_hash(&w.ranks[0].fx, w.ranks[0].graph);
    const struct fr_bytes sent = in[1];
    for (size_t size = 0; size < sent.size; size++) {
        uint8_t *cut = malloc(size ? size : 1);
        memcpy(cut, sent.data, size);
        in[1] = (struct fr_bytes){cut, size};
        assert_int_equal(join_on_first(&w, in, why, sizeof(why)), FR_E_CORRUPT);
        free(cut);
    }
    assert_true(fx_hash(&w.ranks[0].fx, w.ranks[0].graph) == hash);
    for (uint32_t i = 0; i < FLIPS; i++) {
        /* half of them at the beginning, where integers are */
        size_t at = (size_t)(fx_uniform(7, i, 0) * (double)(i % 2 ? sent.size : 700));
        uint8_t *forged = malloc(sent.size);
        memcpy(forged, sent.data, sent.size);
        forged[at] ^= (uint8_t)(1u << (uint32_t)(fx_uniform(7, i, 1) * 8.0));
        in[1] = (struct fr_bytes){forged, sent.size};
        enum fr_status status = join_on_first(&w, in, why, sizeof(why));
        assert_true(status == FR_OK || status == FR_E_CORRUPT);
        refused += status != FR_OK;
        step_rank(&w, &w.ranks[0]);
        free(forged);
    }
    assert_true(refused > FLIPS / 8 && refused < FLIPS);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_make_the_steps_of_one_rank),
        cmocka_unit_test(so_do_they_with_every_operation),
        cmocka_unit_test(a_refusal_and_its_suspects_are_those_of_one_rank),
        cmocka_unit_test(a_batch_of_which_nothing_counts_is_refused_for_its_logits_only),
        cmocka_unit_test(a_message_that_is_not_of_its_rank_is_named),
        cmocka_unit_test(cut_and_forged_messages_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
