/* Statistics of trained samples: standardized numbers and dice.
 *
 * A batch reads the statistics of EARLIER batches (no gradient goes through them), so training
 * and serving use the same numbers. A batch's contribution is computed separately before its
 * step and adopted after it, so a batch that is refused leaves no trace. Sums run over trained
 * samples in their order, lane by lane (lanes.h), and a shared entry counts once for each trained
 * sample of its group, so every sample form gives the same bits.
 *
 * standardize: Welford 1962 per number in double, over all trained samples that have a value;
 * the count stops at FR_EFFECTIVE_COUNT_MAX; from then on each sample removes as much weight as it
 * adds, so old data fades. Until FR_STANDARDIZE_COUNT_MIN samples are counted the network reads
 * 0: a raw number would leave its scale in the kernel and in the optimizer's state for millions
 * of samples. From then on a value is cut to FR_STANDARDIZE_LIMIT deviations around the mean
 * before it enters the moments, so that one broken number cannot ruin them; values that
 * repeatedly lie further away nevertheless widen the moments (each such sample multiplies the
 * variance by up to 1 + 100 / count, from epsilon on). Mean, variance and count are published,
 * and another state can continue from them. With several lanes: standard_lanes.c.
 *
 * dice (Zhou et al. 2018): moving averages of the first and the second moment, of which the share
 * DICE_KEEP is kept for each batch_size samples that the losses after the layer train; so the
 * variance is that of samples, however few a batch has. The averages are divided by their weight,
 * which begins with one unit of mean 0 and variance 1. Owner thread: the graph's; chunks and slots
 * go to the pool. Untrained samples are not read. */
#include "learning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numerics/transform_values.h"
#include "passes.h"
#include "standard.h"

#define DICE_KEEP 0.99
/* Least published variance: the dice of a unit that is always off must not become a step
 * function. */
#define DICE_VARIANCE_MIN 1e-6

/* A dice activation. */
struct dice {
    uint32_t n, mean; /* mean: the parameter; the next one is the variance */
    uint32_t set;     /* the loss set of the losses after the layer */
    size_t at;        /* where in the numbers of a span (struct span_sums) its 2 n sums begin */
    uint64_t rows;    /* rows in these sums; of all ranks once sums are joined */
    double weight, staged_weight;
    double *moments, *staged; /* [2 n] weight times E[x], then weight times E[x^2] */
    bool is_staged;
};

struct statistics {
    uint32_t n_standards, n_dices;
    struct standard *standards;
    struct dice *dices;
    double *partial;  /* [chunks][2 n] sums, then sums of squares, of the dice being computed */
    uint64_t *counts; /* [chunks] */
    size_t capacity_partial, capacity_chunks;
    bool *finite;    /* [n_standards] */
    bool one_by_one; /* this batch has one lane */
};

/* ---- life ---- */

static bool is_mean(const struct fr_parameter *p)
{
    const char *slash = strrchr(p->name, '/');
    return !p->trained && slash && strcmp(slash, "/mean") == 0;
}

static bool is_dice(const struct node *node)
{
    return node->kind == NODE_ACTIVATE && fr_activation_has_statistics(node->activation) && node->reached;
}

static void add_standard(struct fr_graph *graph, uint32_t slot, uint32_t mean)
{
    struct statistics *all = graph->statistics;
    struct standard *s = &all->standards[all->n_standards++];
    float missing[2];
    fr_transform_missing(&graph->conf->slots[slot], missing);
    *s = (struct standard){.slot = slot, .dim = graph->conf->slots[slot].dim, .mean = mean, .missing = missing[0]};
    s->moments = fr_alloc(2 * (size_t)s->dim, sizeof(*s->moments));
    s->staged = fr_alloc(2 * (size_t)s->dim, sizeof(*s->staged));
    s->at = graph->sums.n_numbers;
    graph->sums.n_numbers += 1 + 2 * (size_t)s->dim;
}

static void add_dice(struct fr_graph *graph, uint32_t mean)
{
    struct statistics *all = graph->statistics;
    struct dice *d = &all->dices[all->n_dices++];
    *d = (struct dice){.n = (uint32_t)graph->parameters[mean].n_values, .mean = mean};
    d->staged = fr_alloc(2 * (size_t)d->n, sizeof(*d->staged));
    d->moments = fr_alloc(2 * (size_t)d->n, sizeof(*d->moments));
    d->weight = 1.0 - DICE_KEEP;
    for (uint32_t j = 0; j < d->n; j++)
        d->moments[d->n + j] = d->weight;
    /* the losses after a layer are the same in every variant */
    for (uint32_t n = 0; n < graph->variant->n_nodes; n++)
        if (is_dice(&graph->variant->nodes[n]) && graph->variant->nodes[n].mean == (int32_t)mean)
            d->set = graph->variant->nodes[n].set;
    d->at = graph->sums.n_numbers;
    graph->sums.n_numbers += 2 * (size_t)d->n;
}

void fr_graph_make_statistics(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    struct statistics *all = graph->statistics = fr_alloc(1, sizeof(*all));
    all->standards = fr_alloc(conf->n_slots, sizeof(*all->standards));
    all->finite = fr_alloc(conf->n_slots, sizeof(*all->finite));
    all->dices = fr_alloc(graph->n_parameters, sizeof(*all->dices));
    for (uint32_t p = 0; p < graph->n_parameters; p++)
        if (is_mean(&graph->parameters[p]) && graph->parameter_states[p].conf)
            add_dice(graph, p);
    /* standardized slots follow, whose moments are merged */
    graph->sums.n_added = graph->sums.n_numbers;
    /* the parameters of slots come last, three for each slot, in the order of slots */
    uint32_t mean = (uint32_t)graph->n_parameters;
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (fr_conf_slot_learns(&conf->slots[s]))
            mean -= 3;
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (fr_conf_slot_learns(&conf->slots[s])) {
            add_standard(graph, s, mean);
            mean += 3;
        }
}

void fr_graph_free_statistics(struct fr_graph *graph)
{
    struct statistics *all = graph->statistics;
    if (!all)
        return;
    for (uint32_t i = 0; i < all->n_standards; i++) {
        free(all->standards[i].moments);
        free(all->standards[i].staged);
        free(all->standards[i].waiting);
    }
    for (uint32_t i = 0; i < all->n_dices; i++) {
        free(all->dices[i].moments);
        free(all->dices[i].staged);
    }
    free(all->standards);
    free(all->finite);
    free(all->dices);
    free(all->partial);
    free(all->counts);
    free(all);
    graph->statistics = NULL;
}

/* ---- standardize ---- */

static void add_sample(struct standard *s, const float *x)
{
    double *mean = s->staged, *squares = s->staged + s->dim, before = s->staged_count;
    bool missing = isnan(x[0]), full = before >= FR_EFFECTIVE_COUNT_MAX,
         known = before >= (double)FR_STANDARDIZE_COUNT_MIN;
    if (missing && isnan(s->missing))
        return;
    if (!full)
        s->staged_count += 1.0;
    double n = s->staged_count, keep = full ? (n - 1.0) / n : 1.0;
    for (uint32_t j = 0; j < s->dim; j++) {
        double v = missing ? (double)s->missing : (double)x[j];
        if (known)
            v = fr_graph_cut(v, mean[j], squares[j] / before);
        double delta = v - mean[j];
        mean[j] += delta / n;
        squares[j] = squares[j] * keep + delta * (v - mean[j]);
    }
}

static float published_variance(const struct standard *s, double count, const double *moments, uint32_t j)
{
    return count > 0.0 ? (float)(moments[s->dim + j] / count) : 1.0f;
}

static void begin_staging(struct standard *s)
{
    s->staged_count = s->count;
    memcpy(s->staged, s->moments, 2 * (size_t)s->dim * sizeof(*s->staged));
}

static void sum_standard(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    struct standard *s = &graph->statistics->standards[index];
    const struct fr_column *column = &run->batch->columns[s->slot];
    (void)worker;
    if (graph->lanes.n > 1) {
        fr_graph_sum_standard(run, s);
        return;
    }
    begin_staging(s);
    for (uint32_t i = 0; i < run->batch->n_samples; i++) {
        size_t entry = column->shared ? run->batch->group_of[i] : i;
        if (graph->trained[i])
            add_sample(s, column->dense + entry * s->dim);
    }
}

static void stage_standard(void *context, size_t index, size_t worker)
{
    const struct fr_graph *graph = context;
    struct standard *s = &graph->statistics->standards[index];
    (void)worker;
    if (!graph->statistics->one_by_one) {
        begin_staging(s);
        fr_graph_stage_lanes(graph, s);
    }
    bool finite = true;
    for (uint32_t j = 0; j < s->dim; j++)
        finite &= isfinite((float)s->staged[j]) && isfinite(published_variance(s, s->staged_count, s->staged, j));
    graph->statistics->finite[index] = finite;
}

static void publish_standard(struct fr_graph *graph, const struct standard *s)
{
    float *mean = graph->parameters[s->mean].values, *variance = graph->parameters[s->mean + 1].values;
    /* exact, because the count is below 2^24 */
    graph->parameters[s->mean + 2].values[0] = (float)s->count;
    for (uint32_t j = 0; j < s->dim; j++) {
        mean[j] = (float)s->moments[j];
        variance[j] = published_variance(s, s->count, s->moments, j);
    }
}

/* ---- dice ---- */

struct dice_run {
    const struct graph_run *run;
    const struct node *node;
};

/* Adds the rows [begin, begin + count) of x that are not masked. */
static uint64_t add_rows(const struct dice_run *dice, struct fr_moments *sums, uint32_t begin, uint32_t count,
                         const uint8_t *masked)
{
    const struct variant *v = dice->run->graph->variant;
    const struct node *from = &v->nodes[dice->node->arguments[0].node];
    uint64_t added = 0;
    for (uint32_t i = begin; i < begin + count;) {
        uint32_t run = 0; /* number of unmasked rows next to each other */
        while (i + run < begin + count && !(masked && masked[i + run]))
            run++;
        sums->m = run;
        sums->x = fr_node_values(v, from, i);
        if (run > 0)
            dice->run->graph->ops->moments(sums);
        added += run;
        i += run ? run : 1;
    }
    return added;
}

/* Sums over the rows that the trained samples of a chunk read. */
static void sum_chunk(void *context, size_t index, size_t worker)
{
    const struct dice_run *dice = context;
    const struct fr_graph *graph = dice->run->graph;
    const struct variant *v = graph->variant;
    const struct space *space = &v->spaces[dice->node->space];
    struct chunk c = fr_chunk_of(graph, LEVEL_SAMPLE, index, worker);
    uint32_t n = dice->node->width;
    double *sum = graph->statistics->partial + index * 2 * n;
    struct fr_moments sums = {.n = n, .sum = sum, .square = sum + n};
    uint64_t count = 0;
    memset(sum, 0, 2 * (size_t)n * sizeof(*sum));
    for (uint32_t i = c.first; i < c.first + c.entries; i++) {
        if (!graph->loss_sets[dice->node->set].samples[i])
            continue;
        uint32_t entry = space->level == LEVEL_GROUP ? dice->run->batch->group_of[i] : i;
        if (space->slot == FR_NO_INDEX)
            count += add_rows(dice, &sums, entry, 1, NULL);
        else
            count += add_rows(dice, &sums, space->begin[entry], space->begin[entry + 1] - space->begin[entry],
                              space->masked);
    }
    graph->statistics->counts[index] = count;
}

static struct dice *dice_of(const struct statistics *all, int32_t mean)
{
    for (uint32_t i = 0; i < all->n_dices; i++)
        if (all->dices[i].mean == (uint32_t)mean)
            return &all->dices[i];
    FR_CHECK(!"a dice activation without statistics");
    return NULL;
}

/* The share of the averages that is kept after the batch, and the share of the batch. */
struct dice_pace {
    double keep, rest;
};

static struct dice_pace dice_pace(const struct fr_graph *graph, struct dice *d)
{
    double keep = fr_power_of_ratio(DICE_KEEP, graph->loss_sets[d->set].count, graph->conf->ingest.batch_size);
    d->staged_weight = keep * d->weight + (1.0 - keep);
    return (struct dice_pace){keep, 1.0 - keep};
}

static bool stage_moment(struct dice *d, const struct dice_pace *pace, uint32_t j, double sum, double count)
{
    d->staged[j] = pace->keep * d->moments[j] + pace->rest * sum / count;
    return isfinite((float)d->staged[j]);
}

static void sum_dice(const struct graph_run *run, const struct node *node, struct dice *d)
{
    struct fr_graph *graph = run->graph;
    struct statistics *all = graph->statistics;
    size_t chunks = fr_level_chunks(graph, LEVEL_SAMPLE);
    if (chunks * 2 * d->n > all->capacity_partial) {
        all->capacity_partial = chunks * 2 * d->n;
        all->partial = fr_realloc(all->partial, all->capacity_partial, sizeof(*all->partial));
    }
    if (chunks > all->capacity_chunks) {
        all->capacity_chunks = chunks;
        all->counts = fr_realloc(all->counts, chunks, sizeof(*all->counts));
    }
    struct dice_run dice = {run, node};
    fr_graph_run_tasks(graph, chunks, sum_chunk, &dice);
    d->rows = 0;
    for (size_t c = 0; c < chunks; c++)
        d->rows += all->counts[c];
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++)
        for (uint32_t j = 0; j < 2 * d->n; j++)
            fr_span_numbers(&graph->sums, s)[d->at + j] =
                fr_graph_sum_chunks(graph, s, all->partial + j, 2 * (size_t)d->n);
}

/* false: a number is not finite. */
static bool stage_dice(const struct fr_graph *graph, struct dice *d, const double *sums)
{
    bool finite = true;
    if (d->rows == 0)
        return true;
    struct dice_pace pace = dice_pace(graph, d);
    for (uint32_t j = 0; j < 2 * d->n; j++)
        finite &= stage_moment(d, &pace, j, sums[j], (double)d->rows);
    d->is_staged = true;
    return finite;
}

void fr_graph_stage_dice(struct fr_graph *graph, const struct node *node, const double *sums, uint64_t rows)
{
    struct dice *d = dice_of(graph->statistics, node->mean);
    d->rows = rows;
    (void)stage_dice(graph, d, sums); /* the step has checked the sums */
}

static void publish_dice(struct fr_graph *graph, const struct dice *d)
{
    float *means = graph->parameters[d->mean].values, *variances = graph->parameters[d->mean + 1].values;
    for (uint32_t j = 0; j < d->n; j++) {
        double mean = d->moments[j] / d->weight, square = d->moments[d->n + j] / d->weight;
        double variance = square - mean * mean;
        means[j] = (float)mean;
        variances[j] = (float)(variance > DICE_VARIANCE_MIN ? variance : DICE_VARIANCE_MIN);
    }
}

/* ---- a batch ---- */

/* Clears what an earlier batch staged. */
static void sum_standards(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    struct statistics *all = graph->statistics;
    all->one_by_one = graph->lanes.n == 1;
    fr_graph_run_tasks(graph, all->n_standards, sum_standard, run);
    for (uint32_t i = 0; i < all->n_dices; i++) {
        all->dices[i].rows = 0;
        all->dices[i].is_staged = false;
    }
}

static bool stage_standards(struct fr_graph *graph)
{
    struct statistics *all = graph->statistics;
    bool finite = true;
    fr_graph_run_tasks(graph, all->n_standards, stage_standard, graph);
    for (uint32_t i = 0; i < all->n_standards; i++)
        finite &= all->finite[i];
    return finite;
}

bool fr_graph_stage_standards(struct graph_run *run)
{
    sum_standards(run);
    return stage_standards(run->graph);
}

void fr_graph_sum_statistics(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    sum_standards(run);
    for (uint32_t n = 0; n < v->n_nodes && graph->statistics->n_dices > 0; n++)
        if (is_dice(&v->nodes[n]))
            sum_dice(run, &v->nodes[n], dice_of(graph->statistics, v->nodes[n].mean));
}

bool fr_graph_stage_statistics(struct fr_graph *graph)
{
    struct statistics *all = graph->statistics;
    bool finite = stage_standards(graph);
    for (uint32_t i = 0; i < all->n_dices; i++)
        finite &= stage_dice(graph, &all->dices[i], graph->sums.joined + all->dices[i].at);
    return finite;
}

/* ---- over ranks ---- */

uint32_t fr_graph_count_dices(const struct fr_graph *graph)
{
    return graph->statistics->n_dices;
}

uint64_t *fr_graph_dice_rows(const struct fr_graph *graph, uint32_t dice)
{
    return &graph->statistics->dices[dice].rows;
}

void fr_graph_join_statistics(struct fr_graph *graph, const struct sent_spans *sent)
{
    struct statistics *all = graph->statistics;
    all->one_by_one = false;
    for (uint32_t i = 0; i < all->n_standards; i++)
        fr_graph_join_standard(graph, &all->standards[i], sent);
    for (uint32_t i = 0; i < all->n_dices; i++)
        all->dices[i].is_staged = false;
}

/* Notes a change of `n` parameters that begin with the mean; the variance follows, and for a
 * slot the count. */
static void note_change(struct fr_graph *graph, uint32_t mean, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        graph->parameters[mean + i].changes++;
        graph->places[mean + i].stale = true;
    }
}

void fr_graph_commit_statistics(struct fr_graph *graph)
{
    struct statistics *all = graph->statistics;
    for (uint32_t i = 0; i < all->n_standards; i++) {
        struct standard *s = &all->standards[i];
        s->count = s->staged_count;
        memcpy(s->moments, s->staged, 2 * (size_t)s->dim * sizeof(*s->moments));
        publish_standard(graph, s);
        note_change(graph, s->mean, 3);
    }
    for (uint32_t i = 0; i < all->n_dices; i++) {
        struct dice *d = &all->dices[i];
        if (!d->is_staged)
            continue;
        d->weight = d->staged_weight;
        memcpy(d->moments, d->staged, 2 * (size_t)d->n * sizeof(*d->moments));
        publish_dice(graph, d);
        note_change(graph, d->mean, 2);
    }
}

/* ---- statistics from another model ---- */

/* Checks that of `n` statistics that begin with the mean either all are given or none. */
static enum fr_status given_whole(const struct fr_graph *graph, uint32_t mean, uint32_t n, const bool *given,
                                  struct fr_err *err)
{
    for (uint32_t i = 1; i < n; i++)
        if (given[mean + i] != given[mean])
            return fr_err_set(err, FR_E_INVALID, "%s and %s belong together: give both or none",
                              graph->parameters[mean].name, graph->parameters[mean + i].name);
    const struct fr_parameter *variance = &graph->parameters[mean + 1];
    for (size_t j = 0; j < variance->n_values; j++)
        if (given[mean] && !(variance->values[j] >= 0.0f))
            return fr_err_set(err, FR_E_INVALID, "%s: a variance is at least 0, not %.9g", variance->name,
                              (double)variance->values[j]);
    return FR_OK;
}

static enum fr_status adopt_standard(struct fr_graph *graph, struct standard *s, const bool *given, struct fr_err *err)
{
    enum fr_status status = given_whole(graph, s->mean, 3, given, err);
    if (status != FR_OK || !given[s->mean])
        return status;
    const float *mean = graph->parameters[s->mean].values, *variance = graph->parameters[s->mean + 1].values;
    double count = (double)graph->parameters[s->mean + 2].values[0];
    if (!(count >= 1.0))
        return fr_err_set(err, FR_E_INVALID, "%s: mean and variance are of at least 1 sample, not of %.9g",
                          graph->parameters[s->mean + 2].name, count);
    s->count = count < FR_EFFECTIVE_COUNT_MAX ? count : FR_EFFECTIVE_COUNT_MAX;
    for (uint32_t j = 0; j < s->dim; j++) {
        s->moments[j] = (double)mean[j];
        s->moments[s->dim + j] = s->count * (double)variance[j];
    }
    publish_standard(graph, s);
    return FR_OK;
}

static enum fr_status adopt_dice(struct fr_graph *graph, struct dice *d, const bool *given, struct fr_err *err)
{
    enum fr_status status = given_whole(graph, d->mean, 2, given, err);
    if (status != FR_OK || !given[d->mean])
        return status;
    const float *means = graph->parameters[d->mean].values, *variances = graph->parameters[d->mean + 1].values;
    d->weight = 1.0;
    for (uint32_t j = 0; j < d->n; j++) {
        d->moments[j] = (double)means[j];
        d->moments[d->n + j] = (double)means[j] * (double)means[j] + (double)variances[j];
    }
    publish_dice(graph, d);
    return FR_OK;
}

enum fr_status fr_graph_adopt_statistics(struct fr_graph *graph, const bool *given, struct fr_err *err)
{
    struct statistics *all = graph->statistics;
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; i < all->n_standards && status == FR_OK; i++)
        status = adopt_standard(graph, &all->standards[i], given, err);
    for (uint32_t i = 0; i < all->n_dices && status == FR_OK; i++)
        status = adopt_dice(graph, &all->dices[i], given, err);
    return status;
}

/* ---- bytes ---- */

/* The bytes of all statistics: number of slots; per slot: dim, count, means, M2; number of dice
 * activations; per activation: width, weight, moments. */
static void put_moments(struct fr_buffer *out, uint32_t n, double weight, const double *moments)
{
    fr_put_u32(out, n);
    fr_put_f64(out, weight);
    fr_buffer_append(out, moments, 2 * (size_t)n * sizeof(*moments));
}

void fr_graph_put_statistics(const struct fr_graph *graph, struct fr_buffer *out)
{
    const struct statistics *all = graph->statistics;
    uint32_t n = all ? all->n_standards : 0, n_dices = all ? all->n_dices : 0;
    fr_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++)
        put_moments(out, all->standards[i].dim, all->standards[i].count, all->standards[i].moments);
    fr_put_u32(out, n_dices);
    for (uint32_t i = 0; i < n_dices; i++)
        put_moments(out, all->dices[i].n, all->dices[i].weight, all->dices[i].moments);
}

static enum fr_status parse_moments(struct fr_reader *r, uint32_t n, double *weight, double *moments, bool write)
{
    uint32_t have = fr_take_u32(r);
    if (!r->failed && have != n)
        return FR_E_MISMATCH;
    const uint8_t *w = fr_take(r, sizeof(*weight));
    const uint8_t *m = fr_take(r, 2 * (size_t)n * sizeof(*moments));
    if (!w || !m)
        return FR_E_CORRUPT;
    if (write) {
        memcpy(weight, w, sizeof(*weight));
        memcpy(moments, m, 2 * (size_t)n * sizeof(*moments));
    }
    return FR_OK;
}

enum fr_status fr_graph_parse_statistics(struct fr_graph *graph, struct fr_reader *r, bool write)
{
    struct statistics *all = graph->statistics;
    uint32_t n = fr_take_u32(r);
    if (r->failed)
        return FR_E_CORRUPT;
    if (n != (all ? all->n_standards : 0))
        return FR_E_MISMATCH;
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; i < n && status == FR_OK; i++)
        status = parse_moments(r, all->standards[i].dim, &all->standards[i].count, all->standards[i].moments, write);
    if (status != FR_OK)
        return status;
    n = fr_take_u32(r);
    if (r->failed)
        return FR_E_CORRUPT;
    if (n != (all ? all->n_dices : 0))
        return FR_E_MISMATCH;
    for (uint32_t i = 0; i < n && status == FR_OK; i++)
        status = parse_moments(r, all->dices[i].n, &all->dices[i].weight, all->dices[i].moments, write);
    return status;
}
