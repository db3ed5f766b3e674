/* What the learning half of the graph shares: optimizers, state, statistics, losses and the step.
 * Private to parameters.c, optimizers.c, optimizer_state.c, statistics.c, loss.c, ranking_pairs.c
 * and update.c. */
#ifndef FR_GRAPH_LEARNING_H
#define FR_GRAPH_LEARNING_H

#include "base/buffer.h"
#include "network.h"

/* ---- optimizers.c ---- */

/* base^(n / d), 0 < base <= 1, in double by multiplication, division and sqrt only: every machine
 * agrees. */
double fr_power_of_ratio(double base, uint64_t n, uint64_t d);
/* Factor of the rate after `samples` trained ones: min(1, (samples + 1) / warmup) max(floor,
 * rate^(samples / decay)). */
double fr_schedule_factor(const struct fr_optimizer *conf, uint64_t samples);
/* The optimizers of this step in parameter states and table parts: scheduled rates, Adam's
 * corrections, clip_norm's scales. Gradients are complete. */
void fr_graph_begin_step(struct fr_graph *graph);

/* ---- prior.c ---- */

/* After the step: what the batch's labels say moves the biases. */
void fr_graph_follow_priors(struct graph_run *run);
/* Says whether it will move the bias of a task. */
bool fr_graph_follows_prior(const struct fr_graph *graph, uint32_t task);
void fr_graph_put_priors(const struct fr_graph *graph, struct fr_buffer *out);
/* FR_E_CORRUPT; `write`: takes them over, which must have been tried without. */
enum fr_status fr_graph_take_priors(struct fr_graph *graph, struct fr_reader *r, bool write) FR_MUST_CHECK;

/* Biases that are given do not begin at the first labels. */
void fr_graph_adopt_priors(struct fr_graph *graph, const bool *given);

/* ---- loss.c ---- */

/* Labels and effective weights of a task, [n_samples]; the weights until the next call. */
const float *fr_graph_labels_of(const struct graph_run *run, const struct fr_conf_task *task);
const float *fr_graph_weights_of(const struct graph_run *run, const struct fr_conf_task *task);
/* The weights where operations read them. */
const float *fr_graph_at_weights(const struct graph_run *run, const struct fr_conf_task *task);

/* ---- optimizer_state.c ---- */

/* After a step: notes which parameters it moved (fr_parameter.changes); statistics and priors note
 * their own. */
void fr_graph_note_step(struct fr_graph *graph);

/* ---- ranking_pairs.c ---- */

/* What task t, pairwise, compares in this batch: marked in sample_losses; pairs of all groups,
 * beyond the bound too. */
struct fr_graph_loss fr_graph_order_pairs(const struct graph_run *run, uint32_t t);
/* After it: adds to its output's gradient, returns the sum of the groups' losses without the task's
 * weight. */
double fr_graph_pair_loss(const struct graph_run *run, uint32_t t);

/* ---- statistics.c ---- */

void fr_graph_make_statistics(struct fr_graph *graph);
void fr_graph_free_statistics(struct fr_graph *graph);
/* What the trained samples of this batch make of the statistics, aside; false when a number would
 * not be finite. Node values are those of the (training) forward pass. */
bool fr_graph_stage_statistics(struct graph_run *run);
/* Of standardized slots alone, which the host knows. */
bool fr_graph_stage_standards(struct graph_run *run);
/* Of a dice whose moments are known: sums [2 n] of `count` rows. */
void fr_graph_stage_dice(struct fr_graph *graph, const struct node *node, const double *sums, double count);
void fr_graph_commit_statistics(struct fr_graph *graph);
/* fr_graph_adopt, of statistics. */
enum fr_status fr_graph_adopt_statistics(struct fr_graph *graph, const bool *given, struct fr_err *err) FR_MUST_CHECK;
void fr_graph_put_statistics(const struct fr_graph *graph, struct fr_buffer *out);
/* FR_E_CORRUPT, FR_E_MISMATCH; `write`: takes them over, which must have been tried without. */
enum fr_status fr_graph_take_statistics(struct fr_graph *graph, struct fr_reader *r, bool write) FR_MUST_CHECK;

#endif
