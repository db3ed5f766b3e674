/* What a batch of several lanes leaves in statistics, first labels, norms and averages, to the bit.
 * The expected numbers are computed here as docs/learning.md ("The order of every sum") defines
 * them; only decays and logits come from the graph. */
#include "lanes_world.h"
#include "../../../trainer/graph/learning.h"

static const char text[] =
    "version: 1\nmodel: test\nstate_dir: nowhere\n"
    "ingest: {brokers: 'localhost:9092', topic: t, batch_size: 64}\n"
    "export: {average: {half_life: 3000}}\n"
    "tables:\n  user: {dim: 4, optimizer: {sgd: {lr: 0.05}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  history: {table: user, kind: sequence}\n"
    "  age: {kind: dense, dim: 2, transform: standardize}\n"
    "  rare: {kind: dense, dim: 1, transform: standardize}\n"
    "  filled: {kind: dense, dim: 1, transform: standardize, default: 0.3, indicator: true}\n"
    "labels: {click: {}, buy: {}}\n"
    "network:\n  optimizer: {sgd: {lr: 0.01, clip_norm: 0.02}}\n  clip_global_norm: 0.03\n  layers:\n"
    "    - {name: wide, dense: [user_id, age, rare, filled], units: 2000, activation: tanh}\n"
    "    - {name: h, dense: wide, units: 5, activation: dice}\n"
    "    - {name: d, dense: [history], units: 3, activation: dice}\n"
    "    - {name: m, mean: d}\n"
    "    - {name: out, dense: [h, m], units: 1}\n"
    "    - {name: y, dense: h, units: 1}\n"
    "tasks: [{name: click, label: click, logit: out}, {name: buy, label: buy, logit: y, weight: 0.5}]\n";

static const char dropout[] = "version: 1\nmodel: test\nstate_dir: nowhere\n"
                              "ingest: {brokers: 'localhost:9092', topic: t}\n"
                              "tables:\n  user: {dim: 4, optimizer: {sgd: {lr: 0.05}}}\n"
                              "slots: {user_id: {table: user}}\nlabels: {click: {}}\n"
                              "network:\n  layers:\n"
                              "    - {name: h, dense: user_id, units: 200, activation: tanh}\n"
                              "    - {name: d, dropout: h, rate: 0.5}\n"
                              "    - {name: out, dense: d, units: 1}\n"
                              "tasks: [{name: click, label: click, logit: out}]\n";

enum { CLICK, BUY, TASKS, BOTH = 3 /* a set of tasks */ };
enum { AGE = 2, RARE, FILLED, STANDARDS = 3, DICES = 2 };
enum { SAMPLES = 230, NUMBERS = 10, ALL = 32 /* parameters */ };
enum { CHUNK = 128, BLOCK = 16384, COUNTED_MIN = 100, FOLLOWED = 1000 }; /* as the text has them */
static const double COUNT_MAX = 1e7, DEVIATIONS = 10.0, EPSILON = (double)1e-6f;

/* ---- the tree, by its definition ---- */

/* Moments or sums; n: of how many samples or rows. */
struct numbers {
    double n, of[NUMBERS];
};

typedef void join_fn(struct numbers *left, const struct numbers *right);

static void add(struct numbers *left, const struct numbers *right)
{
    left->n += right->n;
    for (uint32_t i = 0; i < NUMBERS; i++)
        left->of[i] += right->of[i];
}

/* Means, and from NUMBERS / 2 on sums of squares of differences from them. */
static void merge(struct numbers *left, const struct numbers *right)
{
    double n = left->n + right->n;
    for (uint32_t i = 0; i < NUMBERS / 2 && right->n > 0.0; i++) {
        double difference = right->of[i] - left->of[i], share = right->n / n;
        double between = difference * difference * (left->n * share);
        left->of[i] += difference * share;
        left->of[NUMBERS / 2 + i] += right->of[NUMBERS / 2 + i] + between;
    }
    left->n = n;
}

static bool join(const struct fr_batch *b, const struct numbers *lanes, uint32_t lane, uint32_t span, join_fn *joined,
                 struct numbers *out)
{
    struct numbers right;
    if (span == 1) {
        *out = lanes[lane];
        return fr_batch_lane_begin(b, lane + 1) > fr_batch_lane_begin(b, lane);
    }
    uint32_t middle = lane + span / 2;
    bool is_left = join(b, lanes, lane, span / 2, joined, out);
    if (middle >= b->n_lanes || !join(b, lanes, middle, span / 2, joined, &right))
        return is_left;
    if (is_left)
        joined(out, &right);
    else
        *out = right;
    return true;
}

static struct numbers of_lanes(const struct fr_batch *b, const struct numbers *lanes, join_fn *joined)
{
    struct numbers all = {0};
    assert_true(join(b, lanes, 0, FR_LANES_MAX, joined, &all));
    return all;
}

/* ---- what the graph has ---- */

struct state {
    struct numbers standards[STANDARDS], dices[DICES], priors[TASKS];
    float *published[ALL];
};

static void take_numbers(struct fr_reader *r, struct numbers *numbers)
{
    uint32_t dim = fr_take_u32(r);
    assert_true(dim <= NUMBERS / 2);
    numbers->n = fr_take_f64(r);
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t i = 0; i < dim; i++)
            numbers->of[half * NUMBERS / 2 + i] = fr_take_f64(r);
}

static void take_state(struct fr_graph *graph, struct state *state)
{
    struct fr_buffer bytes = {0};
    fr_graph_save_shared(graph, &bytes);
    struct fr_reader r = {.at = bytes.data, .end = bytes.data + bytes.size};
    memset(state, 0, sizeof(*state));
    (void)fr_take(&r, sizeof(uint32_t) + 3 * sizeof(uint64_t));
    assert_int_equal(fr_take_u32(&r), STANDARDS);
    for (uint32_t i = 0; i < STANDARDS; i++)
        take_numbers(&r, &state->standards[i]);
    assert_int_equal(fr_take_u32(&r), DICES);
    for (uint32_t i = 0; i < DICES; i++)
        take_numbers(&r, &state->dices[i]);
    for (uint32_t t = 0; t < TASKS; t++) {
        state->priors[t].n = (double)fr_take_u64(&r);
        state->priors[t].of[0] = fr_take_f64(&r);
        state->priors[t].of[1] = fr_take_f64(&r);
    }
    assert_true(!r.failed && r.at == r.end);
    fr_buffer_release(&bytes);
    assert_true(fr_graph_parameter_count(graph) <= FR_ARRAY_LEN(state->published));
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        const struct fr_parameter *parameter = &fr_graph_parameters(graph)[p];
        state->published[p] = fr_alloc(parameter->n_values, sizeof(float));
        memcpy(state->published[p], parameter->published, parameter->n_values * sizeof(float));
    }
}

static void release_state(struct state *state)
{
    for (size_t p = 0; p < FR_ARRAY_LEN(state->published); p++)
        free(state->published[p]);
}

static void expect(const struct fr_batch *b, const char *what, uint32_t which, const struct numbers *got,
                   const struct numbers *want)
{
    for (uint32_t i = 0; i < NUMBERS; i++)
        if (got->n != want->n || memcmp(&got->of[i], &want->of[i], sizeof(double)) != 0)
            fail_msg("%u lanes: %s %u, number %u: %a of %a, expected %a of %a", b->n_lanes, what, which, i, got->of[i],
                     got->n, want->of[i], want->n);
}

/* ---- what it must be after a batch ---- */

/* Whether the sample is trained by one of these tasks. */
static bool counts(const struct fr_batch *b, uint32_t i, uint32_t tasks)
{
    bool labelled = false;
    for (uint32_t t = 0; t < TASKS; t++)
        labelled |= (tasks >> t & 1) && !isnan(b->labels[t * b->capacity_samples + i]);
    return labelled && b->role[i] == FR_ROLE_TRAIN;
}

static uint32_t count_of(const struct fr_batch *b, uint32_t tasks)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_samples; i++)
        n += counts(b, i, tasks);
    return n;
}

static uint32_t first_of(const struct fr_batch *b, uint32_t lane)
{
    return b->group_begin[fr_batch_lane_begin(b, lane)];
}

static void welford(struct numbers *lane, const struct numbers *before, const float *x, uint32_t dim)
{
    lane->n += 1.0;
    for (uint32_t i = 0; i < dim; i++) {
        double v = (double)x[i], mean = before->of[i];
        double reach = DEVIATIONS * sqrt(before->of[NUMBERS / 2 + i] / before->n + EPSILON);
        if (before->n >= COUNTED_MIN)
            v = fmax(mean - reach, fmin(v, mean + reach));
        double difference = v - lane->of[i];
        lane->of[i] += difference / lane->n;
        lane->of[NUMBERS / 2 + i] += difference * (v - lane->of[i]);
    }
}

static void expect_standard(const struct fr_batch *b, uint32_t slot, const struct numbers *before,
                            const struct numbers *after)
{
    static const float filled = 0.3f;
    const struct fr_column *c = &b->columns[slot];
    struct numbers lanes[FR_LANES_MAX] = {{0}}, want = *before;
    for (uint32_t lane = 0; lane < b->n_lanes; lane++)
        for (uint32_t i = first_of(b, lane); i < first_of(b, lane + 1); i++) {
            const float *x = c->dense + (size_t)(c->shared ? b->group_of[i] : i) * c->dim;
            if (b->role[i] == FR_ROLE_TRAIN && (!isnan(x[0]) || slot == FILLED))
                welford(&lanes[lane], before, isnan(x[0]) ? &filled : x, c->dim);
        }
    struct numbers batch = of_lanes(b, lanes, merge);
    if (want.n > COUNT_MAX - batch.n) {
        for (uint32_t i = NUMBERS / 2; i < NUMBERS; i++)
            want.of[i] *= (COUNT_MAX - batch.n) / want.n;
        want.n = COUNT_MAX - batch.n;
    }
    merge(&want, &batch);
    expect(b, "standardized slot", slot, after, &want);
}

/* The sums of one lane: of each chunk, then of the chunks. */
static struct numbers dice_lane(const struct fr_graph *graph, const struct fr_batch *b, const struct node *node,
                                uint32_t lane, uint32_t tasks)
{
    const struct variant *v = graph->variant;
    const struct node *from = &v->nodes[node->arguments[0].node];
    const struct space *space = &v->spaces[node->space];
    struct numbers all = {0};
    for (uint32_t first = first_of(b, lane), end = first_of(b, lane + 1); first < end; first += CHUNK) {
        struct numbers chunk = {0};
        for (uint32_t i = first; i < end && i < first + CHUNK; i++) {
            uint32_t entry = space->level == LEVEL_GROUP ? b->group_of[i] : i;
            uint32_t begin = space->begin ? space->begin[entry] : entry;
            uint32_t rows = counts(b, i, tasks) ? space->begin ? space->begin[entry + 1] - begin : 1 : 0;
            for (uint32_t row = begin; row < begin + rows; row++) {
                const float *x = fr_node_values(v, from, row).values;
                if (space->begin && space->masked[row])
                    continue;
                chunk.n += 1.0;
                for (uint32_t j = 0; j < node->width; j++) {
                    chunk.of[j] += (double)x[j];
                    chunk.of[NUMBERS / 2 + j] += (double)x[j] * (double)x[j];
                }
            }
        }
        add(&all, &chunk);
    }
    return all;
}

static void expect_dices(const struct fr_graph *graph, const struct fr_batch *b, const struct state *before,
                         const struct state *after)
{
    uint32_t d = 0;
    for (uint32_t n = 0; n < graph->variant->n_nodes; n++) {
        const struct node *node = &graph->variant->nodes[n];
        if (node->kind != NODE_ACTIVATE || !fr_activation_has_statistics(node->activation))
            continue;
        bool is_h = graph->parameters[node->mean].name[0] == 'h';
        uint32_t tasks = is_h ? BOTH : 1u << CLICK, at = is_h ? 0 : 1;
        struct numbers lanes[FR_LANES_MAX], want = before->dices[at];
        for (uint32_t lane = 0; lane < b->n_lanes; lane++)
            lanes[lane] = dice_lane(graph, b, node, lane, tasks);
        struct numbers sums = of_lanes(b, lanes, add);
        double keep = fr_power_of_ratio(0.99, count_of(b, tasks), graph->conf->ingest.batch_size), rest = 1.0 - keep;
        want.n = keep * want.n + rest;
        for (uint32_t i = 0; i < NUMBERS; i++)
            want.of[i] = keep * want.of[i] + rest * sums.of[i] / sums.n;
        expect(b, "dice", at, &after->dices[at], &want);
        d++;
    }
    assert_int_equal(d, DICES);
}

static void expect_prior(const struct fr_batch *b, uint32_t task, const struct numbers *before,
                         const struct numbers *after)
{
    struct numbers lanes[FR_LANES_MAX] = {{0}}, want = *before;
    for (uint32_t lane = 0; lane < b->n_lanes; lane++)
        for (uint32_t i = first_of(b, lane); i < first_of(b, lane + 1); i++) {
            double weight = (double)b->weights[task * b->capacity_samples + i];
            if (!counts(b, i, 1u << task))
                continue;
            lanes[lane].n += 1.0;
            lanes[lane].of[0] += weight;
            lanes[lane].of[1] += weight * (double)b->labels[task * b->capacity_samples + i];
        }
    struct numbers batch = of_lanes(b, lanes, add);
    if (before->n < FOLLOWED)
        add(&want, &batch);
    expect(b, "first labels of task", task, after, &want);
}

/* The tasks that reach a parameter. */
static uint32_t tasks_of(const struct fr_parameter *p)
{
    return p->name[0] == 'd' || p->name[0] == 'o' ? 1u << CLICK : p->name[0] == 'y' ? 1u << BUY : BOTH;
}

static float clipped(double norm, float limit)
{
    return (float)norm > limit ? limit / (float)norm : 1.0f;
}

/* The sums of squares of blocks, and the factors that make the mean gradient of each parameter from
 * its sum. */
static void expect_norms(const struct fr_graph *graph, const struct fr_batch *b, uint32_t *cut)
{
    float want[ALL] = {0};
    double all = 0.0;
    uint32_t at = 0;
    for (size_t p = 0; p < graph->n_parameters; p++) {
        const float *g = graph->parameter_states[p].gradient;
        size_t n = graph->parameters[p].n_values;
        double squares = 0.0;
        if (!g)
            continue;
        for (size_t first = 0; first < n; first += BLOCK) {
            double block = 0.0;
            for (size_t i = first; i < n && i < first + BLOCK; i++)
                block += (double)g[i] * (double)g[i];
            squares += block;
            if (memcmp(&graph->dense_squares[at++], &block, sizeof(block)) != 0)
                fail_msg("squares of %s from value %zu on", graph->parameters[p].name, first);
        }
        want[p] = 1.0f / (float)count_of(b, tasks_of(&graph->parameters[p]));
        double mean = (double)want[p];
        float scale = clipped(sqrt(squares) * mean, 0.02f);
        all += squares * mean * mean;
        want[p] *= scale;
        cut[0] += scale < 1.0f;
    }
    float scale = clipped(sqrt(all), 0.03f);
    cut[1] += scale < 1.0f;
    for (size_t p = 0; p < graph->n_parameters; p++) {
        float got = graph->parameter_states[p].pace.mean_scale;
        want[p] *= scale;
        if (graph->parameter_states[p].gradient && memcmp(&got, &want[p], sizeof(got)) != 0)
            fail_msg("%u lanes: scale of %s: %a, expected %a", b->n_lanes, graph->parameters[p].name, (double)got,
                     (double)want[p]);
    }
}

/* `samples` [parameters]: that trained each of them before this batch. */
static void expect_averages(const struct fr_graph *graph, const struct fr_batch *b, const struct state *before,
                            const struct state *after, uint64_t *samples)
{
    for (size_t p = 0; p < graph->n_parameters; p++) {
        const struct fr_parameter *parameter = &graph->parameters[p];
        uint32_t n = count_of(b, tasks_of(parameter)), task = parameter->name[0] == 'y' ? BUY : CLICK;
        bool follows = strcmp(parameter->name, "out/bias") == 0 || strcmp(parameter->name, "y/bias") == 0;
        if (!graph->parameter_states[p].gradient)
            continue;
        samples[p] += n;
        float share =
            (float)((1.0 - fr_power_of_ratio(0.5, n, 3000)) / (1.0 - fr_power_of_ratio(0.5, samples[p], 3000)));
        for (size_t i = 0; i < parameter->n_values && !(follows && before->priors[task].n < FOLLOWED); i++) {
            float was = before->published[p][i], value = parameter->values[i];
            float want = share == 1.0f ? value : was + share * (value - was), got = after->published[p][i];
            if (memcmp(&got, &want, sizeof(got)) != 0)
                fail_msg("%u lanes: average of %s: %a, expected %a", b->n_lanes, parameter->name, (double)got,
                         (double)want);
        }
    }
}

/* ---- batches ---- */

/* Numbers far from 0, some of them farther from the others than counts, some missing: in one lane
 * all. Weights so different that
 * their sums are rounded. */
static void make_batch(struct fixture *fx, uint32_t samples, uint32_t n_lanes, uint32_t shared, uint64_t seed)
{
    fx_make_groups(fx, samples, 5, shared, seed);
    struct fr_batch *b = &fx->batch;
    fx_vary_roles(fx);
    for (uint32_t i = 0; i < samples; i++) {
        for (uint32_t t = 0; t < TASKS; t++)
            b->weights[t * b->capacity_samples + i] =
                (float)ldexp(1.0 + fx_uniform(seed, 61 + t, i), -(int)(40.0 * fx_uniform(seed, 63 + t, i)));
        if (i % 11 == 4)
            b->labels[i] = NAN;
    }
    lx_divide(fx, n_lanes, SPLIT_UNEVEN, 0);
    for (uint32_t s = AGE; s <= FILLED; s++) {
        const struct fr_column *c = &b->columns[s];
        uint32_t entries = fr_batch_entries(b, s);
        for (uint32_t e = 0; e < entries; e++) {
            for (uint32_t j = 0; j < c->dim; j++)
                c->dense[e * c->dim + j] += e % 29 == 7 ? 1e6f : 1000.0f;
            uint32_t group = c->shared ? e : b->group_of[e];
            if (s != AGE && (e % 3 == 1 || group < fr_batch_lane_begin(b, 1)))
                c->dense[e] = NAN;
        }
    }
}

static void compare(uint32_t n_lanes, uint32_t shared)
{
    struct fixture fx;
    uint64_t samples[ALL] = {0};
    uint32_t cut[2] = {0};
    fx_load(&fx, 60, text);
    fx.conf.ingest.batch_size = 64;
    for (uint32_t t = 0; t < TASKS; t++)
        fx.conf.tasks[t].bias_from_labels = true;
    fx_make_rows(&fx, 5);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct state before, after;
        if (seed == 6) { /* the count is nearly as large as it may be, and then it is */
            bool given[ALL] = {false};
            struct fr_err err;
            for (size_t p = 0; p < graph->n_parameters; p++) {
                const struct fr_parameter *parameter = &graph->parameters[p];
                given[p] = graph->n_parameters - p <= 3 * STANDARDS;
                if (given[p] && strstr(parameter->name, "/count"))
                    parameter->values[0] = (float)(COUNT_MAX - 100.0);
            }
            assert_int_equal(fr_graph_adopt(graph, given, &err), FR_OK);
        }
        make_batch(&fx, seed < 2 ? SAMPLES / 5 : SAMPLES, n_lanes, shared, 70 + seed);
        take_state(graph, &before);
        (void)fx_step(&fx, graph);
        take_state(graph, &after);
        for (uint32_t s = 0; s < STANDARDS; s++)
            expect_standard(&fx.batch, AGE + s, &before.standards[s], &after.standards[s]);
        expect_dices(graph, &fx.batch, &before, &after);
        for (uint32_t t = 0; t < TASKS; t++)
            expect_prior(&fx.batch, t, &before.priors[t], &after.priors[t]);
        expect_norms(graph, &fx.batch, cut);
        expect_averages(graph, &fx.batch, &before, &after, samples);
        if (seed == 7)
            assert_true(after.standards[0].n == COUNT_MAX && after.priors[BUY].n >= FOLLOWED);
        release_state(&before);
        release_state(&after);
    }
    assert_true(cut[0] > 0 && cut[1] > 0);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Rows of the same number in two lanes have masks of their own. */
FR_CASE(lanes_drop_different_numbers)
{
    enum { EACH = 20, LAYER = 200 };
    struct fixture fx;
    fx_load(&fx, 60, dropout);
    fx_make_rows(&fx, 5);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx_make_batch(&fx, 2 * EACH, 1, false, 7);
    fx.batch.n_lanes = 2;
    fx.batch.lane_begin = fr_alloc(2, sizeof(uint32_t));
    fx.batch.lane_begin[1] = EACH;
    lx_order_rows(&fx);
    (void)fx_step(&fx, graph);
    const struct variant *v = graph->variant;
    uint32_t dropped = 0, same = 0;
    for (uint32_t n = 0; n < v->n_nodes; n++)
        for (uint32_t i = 0; i < EACH && v->nodes[n].kind == NODE_DROPOUT; i++)
            for (uint32_t j = 0; j < v->nodes[n].width; j++) {
                bool is_left = fr_node_values(v, &v->nodes[n], i).values[j] == 0.0f;
                dropped += is_left;
                same += is_left == (fr_node_values(v, &v->nodes[n], EACH + i).values[j] == 0.0f);
            }
    assert_true(dropped > EACH * LAYER / 3 && dropped < EACH * LAYER * 2 / 3);
    assert_true(same > EACH * LAYER / 3 && same < EACH * LAYER * 2 / 3);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(numbers_after_a_batch_of_lanes_are_those_of_the_text)
{
    static const uint32_t lanes[] = {2, 5, 12, 64};
    static const uint32_t shared[] = {0, 0x15, 0x1f};
    for (size_t l = 0; l < FR_ARRAY_LEN(lanes); l++)
        for (size_t s = 0; s < FR_ARRAY_LEN(shared); s++)
            compare(lanes[l], shared[s]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_drop_different_numbers),
        cmocka_unit_test(numbers_after_a_batch_of_lanes_are_those_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
