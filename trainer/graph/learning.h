/* What the learning half of the graph shares: optimizers, state, statistics, losses and the step.
 * Private to parameters.c, optimizers.c, optimizer_state.c, statistics.c, loss.c, ranking_pairs.c
 * and update.c. */
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

/* Called after the step: moves the biases according to the batch's labels. */
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
/* Called after fr_graph_order_pairs: adds to the gradient of the task's output and returns the sum
 * of the groups' losses without the task's weight. */
double fr_graph_pair_loss(const struct graph_run *run, uint32_t t);

/* ---- statistics.c ---- */

void fr_graph_make_statistics(struct fr_graph *graph);
void fr_graph_free_statistics(struct fr_graph *graph);
/* Computes the statistics after the batch's trained samples, without applying them yet; false: a
 * number would not be finite. Node values must be those of the (training) forward pass. */
bool fr_graph_stage_statistics(struct graph_run *run);
/* Stages the statistics of standardized slots only, whose values the host has. */
bool fr_graph_stage_standards(struct graph_run *run);
/* Stages the statistics of a dice from its moments: sums [2 n] over `count` rows. */
void fr_graph_stage_dice(struct fr_graph *graph, const struct node *node, const double *sums, double count);
void fr_graph_commit_statistics(struct fr_graph *graph);
/* The part of fr_graph_adopt for statistics. */
enum fr_status fr_graph_adopt_statistics(struct fr_graph *graph, const bool *given, struct fr_err *err) FR_MUST_CHECK;
void fr_graph_put_statistics(const struct fr_graph *graph, struct fr_buffer *out);
/* Parses the statistics. With `write` it also applies them; the caller must have called it without
 * `write` before. FR_E_CORRUPT, FR_E_MISMATCH. */
enum fr_status fr_graph_parse_statistics(struct fr_graph *graph, struct fr_reader *r, bool write) FR_MUST_CHECK;

#endif
