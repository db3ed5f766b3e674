/* What the learning half of the graph shares: optimizers, state, statistics, losses and the step.
 * Private to graph.c, parameters.c, optimizers.c, optimizer_state.c, statistics.c, loss.c,
 * ranking_pairs.c, span_sums.c and update.c. */
#ifndef FR_GRAPH_LEARNING_H
#define FR_GRAPH_LEARNING_H

#include "base/buffer.h"
#include "network.h"

/* ---- optimizers.c ---- */

/* base^(n / d), 0 < base <= 1, in double. It uses only multiplication, division and sqrt, so every
 * machine gives the same result. */
double fr_power_of_ratio(double base, uint64_t n, uint64_t d);
/* The factor of the learning rate after `samples` trained samples: min(1, (samples + 1) / warmup)
 * max(floor, rate^(samples / decay)). */
double fr_schedule_factor(const struct fr_optimizer *conf, uint64_t samples);
/* Sets the optimizers of this step in parameter states and table parts: scheduled rates, Adam's
 * corrections, clip_norm's scales. The gradients must be complete. */
void fr_graph_begin_step(struct fr_graph *graph);

/* ---- prior.c ---- */

/* Sums the batch's labels, for each span, if it has several lanes. */
void fr_graph_sum_priors(const struct graph_run *run);
/* Called after the step: moves the biases according to the batch's labels, or, if it has several
 * lanes, according to the joined numbers. */
void fr_graph_follow_priors(struct graph_run *run);
/* Whether fr_graph_follow_priors will move the bias of a task. */
bool fr_graph_follows_prior(const struct fr_graph *graph, uint32_t task);
void fr_graph_put_priors(const struct fr_graph *graph, struct fr_buffer *out);
/* Parses the priors. With `write` it also applies them; the caller must have called it without
 * `write` before. FR_E_CORRUPT. */
enum fr_status fr_graph_parse_priors(struct fr_graph *graph, struct fr_reader *r, bool write) FR_MUST_CHECK;

/* Excludes the given biases from following the first labels. */
void fr_graph_adopt_priors(struct fr_graph *graph, const bool *given);

/* ---- loss.c ---- */

/* Two functions: the labels and the effective weights of a task, [n_samples]. The weights are
 * valid until the next call. */
const float *fr_graph_labels_of(const struct graph_run *run, const struct fr_conf_task *task);
const float *fr_graph_weights_of(const struct graph_run *run, const struct fr_conf_task *task);
/* Returns the weights at the address where operations read them. */
const float *fr_graph_at_weights(const struct graph_run *run, const struct fr_conf_task *task);

/* ---- optimizer_state.c ---- */

/* Called after a step: notes which parameters the step moved (fr_parameter.changes). Statistics
 * and priors are noted by their own files. */
void fr_graph_note_step(struct fr_graph *graph);

/* ---- ranking_pairs.c ---- */

/* Determines what the pairwise task t compares in this batch and marks it in sample_losses. The
 * result counts the pairs of all groups, including pairs beyond the bound. */
struct fr_graph_loss fr_graph_order_pairs(const struct graph_run *run, uint32_t t);
/* Called after fr_graph_order_pairs: adds to the gradient of the task's output and computes the
 * sums of the groups' losses, without the task's weight, for each span. */
void fr_graph_pair_losses(const struct graph_run *run, uint32_t t);

/* ---- span_sums.c ---- */

/* Two functions: before the statistics are made, the spans of the lanes of options.lanes; then,
 * when losses and parameters are known, the memory of the sums. */
void fr_graph_begin_spans(struct fr_graph *graph, const struct fr_graph_options *options);
void fr_graph_make_span_sums(struct fr_graph *graph);
void fr_graph_free_span_sums(struct fr_graph *graph);
/* For ranks: forgets the sums of the batch before; then counts what was summed. */
void fr_graph_begin_span_sums(struct fr_graph *graph, uint32_t n_samples);
void fr_graph_count_span_sums(struct fr_graph *graph, const struct fr_rows *rows);
/* ---- update.c ---- */

/* What follows the updates of values and rows. */
void fr_graph_finish_step(struct graph_run *run);

/* ---- portions.c ---- */

/* A rank's portion of the parameters: dense_tasks [first, last), which are floats [begin, end) of
 * the n_gradients of struct span_sums. */
struct portion {
    uint32_t first, last;
    size_t begin, end;
};
struct portion fr_graph_portion_of(const struct fr_graph *graph, uint32_t rank);
/* Steps the values of a block of parameters. */
void fr_graph_step_dense(const struct fr_graph *graph, const struct dense_task *task);

/* Two functions: the rows of a space, and the occurrences of a table; those of all ranks once their
 * sums were joined. */
uint64_t fr_graph_rows_of_space(const struct fr_graph *graph, uint32_t space);
uint64_t fr_graph_occurrences(const struct fr_graph *graph, const struct fr_rows *rows, uint32_t table);

/* ---- statistics.c ---- */

void fr_graph_make_statistics(struct fr_graph *graph);
void fr_graph_free_statistics(struct fr_graph *graph);
/* Sums what the batch's trained samples add to the statistics, for each span. Node values must be
 * those of the (training) forward pass. */
void fr_graph_sum_statistics(struct graph_run *run);
/* Computes the statistics after the batch from the joined numbers, without applying them yet;
 * false: a number would not be finite. */
bool fr_graph_stage_statistics(struct fr_graph *graph);
/* Both for standardized slots only, whose values the host has. */
bool fr_graph_stage_standards(struct graph_run *run);
/* Stages the statistics of a dice from its moments: sums [2 n] over `rows` rows, at least one. */
void fr_graph_stage_dice(struct fr_graph *graph, const struct node *node, const double *sums, uint64_t rows);
/* For ranks: the number of dice activations; the rows that were summed for one of them; joins the
 * numbers of standardized slots that all ranks sent into the joined numbers. */
uint32_t fr_graph_count_dices(const struct fr_graph *graph);
uint64_t *fr_graph_dice_rows(const struct fr_graph *graph, uint32_t dice);
void fr_graph_join_statistics(struct fr_graph *graph, const struct sent_spans *sent);
void fr_graph_commit_statistics(struct fr_graph *graph);
/* The part of fr_graph_adopt for statistics. */
enum fr_status fr_graph_adopt_statistics(struct fr_graph *graph, const bool *given, struct fr_err *err) FR_MUST_CHECK;
void fr_graph_put_statistics(const struct fr_graph *graph, struct fr_buffer *out);
/* Parses the statistics. With `write` it also applies them; the caller must have called it without
 * `write` before. FR_E_CORRUPT, FR_E_MISMATCH. */
enum fr_status fr_graph_parse_statistics(struct fr_graph *graph, struct fr_reader *r, bool write) FR_MUST_CHECK;

#endif
