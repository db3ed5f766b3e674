/* The sums of a batch over several ranks (graph/ranks.h): their memory, the message of a rank, and
 * how the messages of all ranks are joined.
 *
 * A rank sends the sums of the spans of its lanes (lanes.h) that have samples. Each rank joins the
 * spans of all ranks in the order of lanes by the tree of lanes, so its results are those of one
 * process with all lanes, bit for bit. What is not a sum of floats is an integer, which has no
 * order, or a flag. Gradients of parameters are divided: each rank gets, and joins, those of its
 * portion (portions.c).
 *
 *   message   struct head                 which network, which form of batch, whether it is unfit
 *             u64 [n_counts]              integers: see count_at
 *             f64 [tables]                bounds of the rows' gradients
 *             for each span: u64 lane, f64 [n_numbers], f32 [gradients of the receiver's portion]
 *
 * Invariants: all messages are checked before anything is written. Joining reads neither the batch
 * nor the variant, because a rank without samples has none and joins as the others do.
 *
 * Owner thread: the graph's; a block of a parameter's gradient belongs to one worker. */
#include "graph/ranks.h"

#include <math.h>
#include <stdlib.h>

#include "learning.h"
#include "passes.h"

enum { JOIN_FLOATS = 512 }; /* floats of a parameter that are joined together */

/* Ranks whose heads differ in `layout` have other networks. */
struct head {
    uint32_t unfit, n_spans;
    uint32_t bits; /* the largest |gradient| of a parameter in any span, also of other portions */
    uint32_t zero;
    struct layout {
        uint64_t lanes, n_ranks, n_parameters, n_counts, n_numbers, n_gradients;
    } layout;
    uint64_t shared[FR_SLOTS_MAX / 64]; /* of the batch's variant; 0 without a span */
};
_Static_assert(sizeof(struct head) == 16 + 6 * 8 + FR_SLOTS_MAX / 8, "no padding is sent");

/* ---- memory ---- */

void fr_graph_begin_spans(struct fr_graph *graph, const struct fr_graph_options *options)
{
    const struct fr_domains *lanes = &options->lanes;
    uint32_t all = fr_conf_domains(graph->conf);
    graph->lanes.n = 1;
    graph->sums.of_rank = lanes->end > 0;
    graph->sums.n_numbers = 3 * (size_t)graph->conf->n_tasks + graph->conf->n_losses;
    FR_CHECK(lanes->first <= lanes->end && lanes->end <= all);
    FR_CHECK(!graph->sums.of_rank || (all > 1 && lanes->end > lanes->first && !graph->device && !graph->scoring_only));
    FR_CHECK(!graph->sums.of_rank || (options->rank < options->n_ranks && options->n_ranks <= all));
    graph->sums.rank = options->rank;
    graph->sums.n_ranks = options->n_ranks;
    graph->lanes.n_spans = fr_lane_spans(lanes->first, graph->sums.of_rank ? lanes->end : all, all, graph->lanes.spans);
}

static uint32_t losses_of(const struct fr_graph *graph)
{
    return graph->conf->n_tasks + graph->conf->n_losses;
}

/* The kinds of integers that a message has, in this order; the second column is their number. */
enum count {
    COUNT_SAMPLES,
    COUNT_GROUPS,
    COUNT_TRAINED,
    COUNT_COUNTED,     /* [tasks and auxiliary losses] samples that count for a loss */
    COUNT_PAIRS,       /* [tasks and auxiliary losses] */
    COUNT_SETS,        /* [n_sets] samples that count for a set of losses */
    COUNT_DICES,       /* [dice activations] rows */
    COUNT_OCCURRENCES, /* [tables] */
    COUNT_STEPS,       /* [slots] rows of the space of a sequence */
    COUNT_EXPANDED,    /* [slots] the same with the steps of shared slots expanded to samples */
    COUNTS
};

static uint32_t number_of(const struct fr_graph *graph, enum count kind)
{
    switch (kind) {
    case COUNT_COUNTED:
    case COUNT_PAIRS:
        return losses_of(graph);
    case COUNT_SETS:
        return graph->sums.n_sets;
    case COUNT_DICES:
        return fr_graph_count_dices(graph);
    case COUNT_OCCURRENCES:
        return graph->conf->n_tables;
    case COUNT_STEPS:
    case COUNT_EXPANDED:
        return graph->conf->n_slots;
    case COUNT_SAMPLES:
    case COUNT_GROUPS:
    case COUNT_TRAINED:
    case COUNTS:
        break;
    }
    return 1;
}

/* Returns the place of the first integer of a kind; COUNTS: the number of all. */
static uint32_t count_at(const struct fr_graph *graph, enum count kind)
{
    uint32_t at = 0;
    for (enum count before = 0; before < kind; before++)
        at += number_of(graph, before);
    return at;
}

void fr_graph_make_span_sums(struct fr_graph *graph)
{
    struct span_sums *sums = &graph->sums;
    sums->numbers = fr_alloc(graph->lanes.n_spans * sums->n_numbers, sizeof(*sums->numbers));
    sums->joined = sums->numbers;
    if (!sums->of_rank)
        return;
    sums->joined = fr_alloc(sums->n_numbers, sizeof(*sums->joined));
    sums->gradient_at = fr_alloc(graph->n_parameters, sizeof(*sums->gradient_at));
    for (size_t p = 0; p < graph->n_parameters; p++) {
        sums->gradient_at[p] = sums->n_gradients;
        if (graph->parameter_states[p].gradient)
            sums->n_gradients += graph->parameters[p].n_values;
    }
    sums->gradients = fr_graph_memory(graph, graph->lanes.n_spans * sums->n_gradients * sizeof(float));
    /* the sets of parameters and dices; later variants may add others for rows */
    sums->n_sets = graph->n_loss_sets;
    sums->n_counts = count_at(graph, COUNTS);
    sums->counts = fr_alloc(sums->n_counts, sizeof(*sums->counts));
    sums->joined_counts = fr_alloc(sums->n_counts, sizeof(*sums->joined_counts));
    sums->row_bounds = fr_alloc(graph->conf->n_tables, sizeof(*sums->row_bounds));
}

void fr_graph_free_span_sums(struct fr_graph *graph)
{
    struct span_sums *sums = &graph->sums;
    if (sums->joined != sums->numbers)
        free(sums->joined);
    free(sums->numbers);
    free(sums->gradient_at);
    free(sums->gradients);
    free(sums->counts);
    free(sums->joined_counts);
    free(sums->row_bounds);
}

/* ---- what this rank sends ---- */

void fr_graph_begin_span_sums(struct fr_graph *graph, uint32_t n_samples)
{
    struct span_sums *sums = &graph->sums;
    if (n_samples == 0)
        graph->n_samples = graph->n_groups = 0; /* there was no forward pass */
    sums->present = 0;
    sums->unfit = 0;
    sums->bits = 0;
    sums->counted = sums->steps = false;
    memset(sums->counts, 0, sums->n_counts * sizeof(*sums->counts));
    memset(sums->row_bounds, 0, graph->conf->n_tables * sizeof(*sums->row_bounds));
}

static void count_rows(const struct fr_graph *graph, const struct fr_rows *rows, uint64_t *counts)
{
    const struct variant *v = graph->variant;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        counts[count_at(graph, COUNT_OCCURRENCES) + t] = rows->tables[t].n_occurrences;
    for (uint32_t s = 0; s < v->n_spaces; s++)
        if (v->spaces[s].slot != FR_NO_INDEX)
            counts[count_at(graph, v->spaces[s].from == FR_NO_INDEX ? COUNT_STEPS : COUNT_EXPANDED) +
                   (uint32_t)v->spaces[s].slot] = v->spaces[s].rows;
}

static void find_bits_of(void *context, size_t index, size_t worker)
{
    struct fr_graph *graph = context;
    const struct span_sums *sums = &graph->sums;
    const struct dense_task *task = &graph->dense_tasks[index];
    size_t n = task->end - task->begin;
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++) {
        if (!(sums->present >> s & 1))
            continue;
        float *gradient = sums->gradients + s * sums->n_gradients + sums->gradient_at[task->parameter] + task->begin;
        uint32_t bits = graph->ops->max_bits(1, (uint32_t)n, (struct fr_view){gradient, n});
        graph->worker_bits[worker] = bits > graph->worker_bits[worker] ? bits : graph->worker_bits[worker];
    }
}

/* Finds the largest |x| of what a task puts into worker_bits. */
static uint32_t largest_bits(struct fr_graph *graph, size_t n_tasks, fr_pool_task *task, void *context)
{
    uint32_t bits = 0;
    memset(graph->worker_bits, 0, graph->workers * sizeof(*graph->worker_bits));
    fr_graph_run_tasks(graph, n_tasks, task, context);
    for (uint32_t w = 0; w < graph->workers; w++)
        bits = graph->worker_bits[w] > bits ? graph->worker_bits[w] : bits;
    return bits;
}

void fr_graph_count_span_sums(struct fr_graph *graph, const struct fr_rows *rows)
{
    struct span_sums *sums = &graph->sums;
    uint64_t *counts = sums->counts;
    counts[COUNT_SAMPLES] = graph->n_samples;
    counts[COUNT_GROUPS] = graph->n_groups;
    counts[COUNT_TRAINED] = graph->n_trained;
    for (uint32_t k = 0; k < losses_of(graph); k++) {
        counts[count_at(graph, COUNT_COUNTED) + k] = graph->losses[k].samples;
        counts[count_at(graph, COUNT_PAIRS) + k] = graph->losses[k].pairs;
    }
    for (uint32_t i = 0; i < sums->n_sets; i++)
        counts[count_at(graph, COUNT_SETS) + i] = graph->loss_sets[i].count;
    for (uint32_t i = 0; i < fr_graph_count_dices(graph) && sums->unfit == 0; i++)
        counts[count_at(graph, COUNT_DICES) + i] = *fr_graph_dice_rows(graph, i);
    count_rows(graph, rows, counts);
    for (uint32_t s = 0; s < graph->lanes.n_spans && sums->unfit == 0; s++)
        sums->present |= (uint64_t)fr_span_present(&graph->lanes, s) << s;
    if (sums->present)
        sums->bits = largest_bits(graph, graph->n_dense_tasks, find_bits_of, graph);
}

static struct layout layout_of(const struct fr_graph *graph)
{
    const struct span_sums *sums = &graph->sums;
    return (struct layout){.lanes = fr_conf_domains(graph->conf),
                           .n_ranks = sums->n_ranks,
                           .n_parameters = graph->n_parameters,
                           .n_counts = sums->n_counts,
                           .n_numbers = sums->n_numbers,
                           .n_gradients = sums->n_gradients};
}

void fr_graph_put_sums(const struct fr_graph *graph, uint32_t rank, struct fr_buffer *out)
{
    const struct span_sums *sums = &graph->sums;
    struct portion portion = fr_graph_portion_of(graph, rank);
    struct head head = {.unfit = sums->unfit, .bits = sums->bits, .layout = layout_of(graph)};
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++)
        head.n_spans += sums->present >> s & 1;
    if (head.n_spans > 0)
        memcpy(head.shared, graph->variant->shared, sizeof(head.shared));
    fr_buffer_append(out, &head, sizeof(head));
    fr_buffer_append(out, sums->counts, sums->n_counts * sizeof(*sums->counts));
    fr_buffer_append(out, sums->row_bounds, graph->conf->n_tables * sizeof(*sums->row_bounds));
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++) {
        if (!(sums->present >> s & 1))
            continue;
        fr_put_u64(out, graph->lanes.spans[s].first);
        fr_buffer_append(out, fr_span_numbers(sums, s), sums->n_numbers * sizeof(*sums->numbers));
        fr_buffer_append(out, sums->gradients + s * sums->n_gradients + portion.begin,
                         (portion.end - portion.begin) * sizeof(float));
    }
}

/* ---- messages ---- */

struct message {
    struct head head;
    const uint8_t *counts, *row_bounds; /* in the message */
};

static uint64_t message_count(const struct message *message, uint32_t at)
{
    return fr_load_u64(message->counts + at * sizeof(uint64_t));
}

static bool same_network(const struct fr_graph *graph, const struct head *head)
{
    struct layout own = layout_of(graph);
    return memcmp(&own, &head->layout, sizeof(own)) == 0;
}

/* Whether the message's integers can be of one batch. Sums of those that become 32 bits wide are
 * then bounded by that of the samples. */
static bool counts_possible(const struct fr_graph *graph, const struct message *message, uint64_t samples_before)
{
    uint64_t samples = message_count(message, COUNT_SAMPLES);
    if (samples > UINT32_MAX - samples_before ||
        (samples > 0 && message->head.unfit == 0) != (message->head.n_spans > 0))
        return false;
    for (uint32_t at = COUNT_TRAINED; at < count_at(graph, COUNT_DICES); at++) {
        bool pairs = at >= count_at(graph, COUNT_PAIRS) && at < count_at(graph, COUNT_SETS);
        if (!pairs && message_count(message, at) > samples)
            return false;
    }
    return true;
}

/* Reads one message; its spans are added to those of the ranks before. Returns what is wrong with
 * it; NULL: nothing. */
static const char *read_message(const struct fr_graph *graph, const struct fr_bytes *in, uint64_t samples_before,
                                struct message *message, struct sent_spans *sent)
{
    const struct span_sums *sums = &graph->sums;
    struct portion portion = fr_graph_portion_of(graph, sums->rank);
    struct fr_reader r = {.at = in->data, .end = in->data + in->size};
    const uint8_t *head = fr_take(&r, sizeof(message->head));
    if (!head)
        return "it is cut";
    memcpy(&message->head, head, sizeof(message->head));
    if (!same_network(graph, &message->head))
        return "it is of another network or number of domains";
    message->counts = fr_take(&r, sums->n_counts * sizeof(uint64_t));
    message->row_bounds = fr_take(&r, graph->conf->n_tables * sizeof(double));
    if (r.failed)
        return "it is cut";
    if (message->head.zero != 0 || message->head.unfit > (UNFIT_LOGITS | UNFIT_GRADIENTS) ||
        message->head.n_spans > FR_LANE_SPANS_MAX || !counts_possible(graph, message, samples_before))
        return "its counts are impossible";
    for (uint32_t i = 0; i < message->head.n_spans; i++) {
        uint64_t lane = fr_take_u64(&r);
        const uint8_t *numbers = fr_take(&r, sums->n_numbers * sizeof(double));
        const uint8_t *gradients = fr_take(&r, (portion.end - portion.begin) * sizeof(float));
        if (r.failed)
            return "it is cut";
        if (lane >= message->head.layout.lanes || (sent->n > 0 && lane <= sent->lanes[sent->n - 1]))
            return "its lanes are not those of this rank";
        sent->lanes[sent->n] = (uint8_t)lane;
        sent->numbers[sent->n] = numbers;
        sent->gradients[sent->n++] = gradients;
    }
    return r.at == r.end ? NULL : "bytes follow its end";
}

static enum fr_status read_messages(const struct fr_graph *graph, const struct fr_bytes *in, uint32_t n_ranks,
                                    struct message *messages, struct sent_spans *sent, struct fr_err *err)
{
    const uint64_t *shared = NULL;
    uint64_t samples = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        struct message *message = &messages[r];
        const char *wrong = read_message(graph, &in[r], samples, message, sent);
        if (!wrong && message->head.n_spans > 0 && shared &&
            memcmp(shared, message->head.shared, sizeof(message->head.shared)) != 0)
            wrong = "other columns of its batch are shared than on the ranks before";
        if (wrong) {
            (void)fr_err_set(err, FR_E_CORRUPT, "the sums of rank %u cannot be used: %s", r, wrong);
            return FR_E_CORRUPT;
        }
        samples += message_count(message, COUNT_SAMPLES);
        if (message->head.n_spans > 0)
            shared = message->head.shared;
    }
    return FR_OK;
}

/* ---- joining ---- */

static void join_counts(struct fr_graph *graph, const struct message *messages, uint32_t n_ranks)
{
    struct span_sums *sums = &graph->sums;
    uint64_t *counts = sums->joined_counts;
    for (uint32_t at = 0; at < sums->n_counts; at++) {
        counts[at] = 0;
        for (uint32_t r = 0; r < n_ranks; r++)
            counts[at] += message_count(&messages[r], at);
    }
    sums->counted = true;
    graph->n_trained = (uint32_t)counts[COUNT_TRAINED];
    for (uint32_t k = 0; k < losses_of(graph); k++)
        graph->losses[k] = (struct fr_graph_loss){.samples = (uint32_t)counts[count_at(graph, COUNT_COUNTED) + k],
                                                  .pairs = counts[count_at(graph, COUNT_PAIRS) + k]};
    for (uint32_t i = 0; i < sums->n_sets; i++)
        graph->loss_sets[i].count = (uint32_t)counts[count_at(graph, COUNT_SETS) + i];
    for (uint32_t i = 0; i < fr_graph_count_dices(graph); i++)
        *fr_graph_dice_rows(graph, i) = counts[count_at(graph, COUNT_DICES) + i];
}

static void join_numbers(struct fr_graph *graph, const struct sent_spans *sent)
{
    struct span_sums *sums = &graph->sums;
    for (size_t at = 0; at < sums->n_added; at++) {
        struct fr_lane_sum sum = {0};
        for (uint32_t i = 0; i < sent->n; i++)
            fr_lane_sum_add(&sum, sent->lanes[i], fr_load_f64(sent->numbers[i] + at * sizeof(double)));
        sums->joined[at] = fr_lane_sum_total(&sum);
    }
    fr_graph_join_statistics(graph, sent);
}

struct gradient_join {
    struct fr_graph *graph;
    const struct sent_spans *sent;
    struct portion portion;
};

static void join_gradient(void *context, size_t index, size_t worker)
{
    const struct gradient_join *join = context;
    struct fr_graph *graph = join->graph;
    const struct dense_task *task = &graph->dense_tasks[join->portion.first + index];
    float *gradient = graph->parameter_states[task->parameter].gradient;
    float more[(FR_LANE_TREE_DEPTH - 1) * JOIN_FLOATS];
    for (size_t at = task->begin; at < task->end; at += JOIN_FLOATS) {
        struct lane_arrays sums = {.n = task->end - at < JOIN_FLOATS ? task->end - at : JOIN_FLOATS,
                                   .first = gradient + at,
                                   .more = more,
                                   .stride = JOIN_FLOATS};
        size_t offset = (graph->sums.gradient_at[task->parameter] + at - join->portion.begin) * sizeof(float);
        for (uint32_t i = 0; i < join->sent->n; i++)
            memcpy(fr_lane_arrays_push(graph->ops, &sums, join->sent->lanes[i]), join->sent->gradients[i] + offset,
                   sums.n * sizeof(float));
        fr_lane_arrays_join(graph->ops, &sums, FR_LANES_MAX);
    }
    size_t n = task->end - task->begin;
    uint32_t bits = graph->ops->max_bits(1, (uint32_t)n, (struct fr_view){gradient + task->begin, n});
    if (bits > graph->worker_bits[worker])
        graph->worker_bits[worker] = bits;
}

/* Joins the gradients of this rank's portion; returns the largest one, as bits. */
static uint32_t join_gradients(struct fr_graph *graph, const struct sent_spans *sent)
{
    struct gradient_join join = {graph, sent, fr_graph_portion_of(graph, graph->sums.rank)};
    return largest_bits(graph, join.portion.last - join.portion.first, join_gradient, &join);
}

/* Whether no gradient of a parameter, of any portion, can exceed its limit. A sum of floats may be
 * rounded upwards: hence the margin. */
static bool gradients_bounded(const struct message *messages, uint32_t n_ranks)
{
    double bound = 0.0;
    for (uint32_t r = 0; r < n_ranks; r++)
        bound += (double)fr_bits_f32(messages[r].head.bits) * messages[r].head.n_spans;
    return bound <= 0.99 * (double)FR_GRADIENT_MAX;
}

/* Whether no row's gradient can exceed its limit, however ranks add to it. */
static bool rows_bounded(const struct fr_graph *graph, const struct message *messages, uint32_t n_ranks)
{
    bool bounded = true;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        double bound = 0.0;
        for (uint32_t r = 0; r < n_ranks; r++)
            bound += fr_load_f64(messages[r].row_bounds + t * sizeof(double));
        bounded &= bound <= (double)FR_GRADIENT_MAX;
    }
    return bounded;
}

enum fr_status fr_graph_join_sums(struct fr_graph *graph, const struct fr_bytes *in, struct fr_graph_join *out,
                                  struct fr_err *err)
{
    uint32_t n_ranks = graph->sums.n_ranks;
    struct message messages[FR_LANES_MAX];
    struct sent_spans sent = {0};
    struct fr_graph_join join = {0};
    uint32_t unfit = 0;
    FR_CHECK(graph->sums.of_rank);
    enum fr_status status = read_messages(graph, in, n_ranks, messages, &sent, err);
    if (status != FR_OK)
        return status;
    join_counts(graph, messages, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++)
        unfit |= messages[r].head.unfit;
    for (uint32_t k = 0; k < losses_of(graph); k++)
        join.steps |= graph->losses[k].samples > 0;
    join.refused = unfit & UNFIT_LOGITS || (unfit && join.steps);
    if (join.steps && !join.refused) {
        join_numbers(graph, &sent);
        fr_graph_weigh_losses(graph);
        join.loss = fr_graph_mean_loss(graph);
        join.gradient_bits = join_gradients(graph, &sent);
        join.bounded = gradients_bounded(messages, n_ranks);
        join.refused = !isfinite(join.loss) || !fr_graph_stage_statistics(graph);
        join.rows_bounded = rows_bounded(graph, messages, n_ranks);
    }
    if (join.refused)
        join.loss = 0.0;
    graph->sums.steps = join.steps && !join.refused;
    *out = join;
    return FR_OK;
}

/* ---- numbers of summands ---- */

uint64_t fr_graph_rows_of_space(const struct fr_graph *graph, uint32_t space)
{
    const struct space *s = &graph->variant->spaces[space];
    const uint64_t *counts = graph->sums.joined_counts;
    if (!graph->sums.counted)
        return s->rows;
    if (s->slot == FR_NO_INDEX)
        return counts[s->level == LEVEL_GROUP ? COUNT_GROUPS : COUNT_SAMPLES];
    return counts[count_at(graph, s->from == FR_NO_INDEX ? COUNT_STEPS : COUNT_EXPANDED) + (uint32_t)s->slot];
}

uint64_t fr_graph_occurrences(const struct fr_graph *graph, const struct fr_rows *rows, uint32_t table)
{
    return graph->sums.counted ? graph->sums.joined_counts[count_at(graph, COUNT_OCCURRENCES) + table]
                               : rows->tables[table].n_occurrences;
}
