/* A training step over several ranks (base/ranks.h). Each rank has the samples of some lanes and
 * computes their sums. All ranks join losses and statistics in one order. The parameters are
 * divided into portions, one for each rank, which joins the gradients of its portion, makes the
 * step with it, and gives the new values to all. The home of a key steps the key's row. Every
 * number is that of one rank that has all lanes, bit for bit.
 *
 *   every rank  fr_graph_forward      the samples of its lanes, if it has some
 *               fr_graph_sum          losses, gradients and statistics of its lanes
 *               fr_graph_put_sums     writes these sums for a rank, with gradients of its portion
 *               fr_graph_put_row_sums writes for a home the gradients of its keys' rows
 *   every rank  fr_graph_join_sums    joins the sums of all ranks; decides whether there is a step
 *               fr_graph_put_squares, fr_graph_take_squares  only if fr_graph_clips: norms
 *               fr_graph_read_row_sums checks what all ranks sent of the rows of this home
 *               fr_graph_row_bits     only if the join asks for it: the rows' largest gradient
 *               fr_graph_step         steps the parameters of its portion, and this home's rows
 *               fr_graph_put_values   writes the new values of its portion for all ranks
 *               fr_graph_take_values  takes those of all ranks; statistics and priors follow
 *   for a cut   fr_graph_put_states, fr_graph_take_states  the state of the optimizers, likewise
 *
 * Nothing is changed before fr_graph_step. Messages are checked when they are read: FR_E_CORRUPT,
 * never a crash, whatever they hold. Numbers are in the byte order of the machine. Messages with
 * sums of rows begin at a multiple of 4 bytes, in the buffer that they are appended to and where
 * they are read.
 *
 * The batch of each rank has scale.domains lanes, at least 2, and the same columns are shared on
 * all ranks.
 *
 * After a refusal the suspects are those of all ranks (fr_graph_suspects): each rank makes one
 * examination of its samples, and the next one follows only if no rank found any.
 *
 * Thread: the owner loop. Only for graphs on the processor, with fr_graph_options.lanes. */
#ifndef FR_GRAPH_RANKS_H
#define FR_GRAPH_RANKS_H

#include "base/buffer.h"
#include "graph/graph.h"

/* Computes what the lanes of this rank give to the step of the batch: what fr_graph_train computes
 * before it changes anything. The batch may have no samples; then there was no forward pass, and
 * `rows` is not read. Numbers that are not finite are reported by the message, not here. */
void fr_graph_sum(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
/* Appends the message for a rank. */
void fr_graph_put_sums(const struct fr_graph *graph, uint32_t rank, struct fr_buffer *out);

/* Appends, for each table, the gradients of the keys in ranges [n_tables]: for each span of this
 * rank's lanes that reaches a part of a row its sum, and the number of samples (ops/row.h). A key
 * without a row has none; so has every key if the last fr_graph_sum made no backward pass. The
 * batch and rows are those of that call. */
void fr_graph_put_row_sums(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                           const struct fr_unique_range *ranges, struct fr_buffer *out);

struct fr_graph_join {
    /* a logit, loss, gradient or statistic of some rank, or a sum of all, is unfit for a step, as
     * for fr_graph_train */
    bool refused;
    bool steps; /* some sample of some rank counts for a loss; otherwise there is no step */
    /* No gradient of a parameter, of any portion, can exceed FR_GRADIENT_MAX. If false, and the
     * step is not refused, the largest gradient_bits of all ranks must be checked. */
    bool bounded;
    uint32_t gradient_bits; /* the largest |gradient| of this rank's portion (ops->max_bits) */
    /* No row's gradient can exceed FR_GRADIENT_MAX. If false, and the step is not refused, the
     * gradients must be checked (fr_graph_row_bits). */
    bool rows_bounded;
    double loss; /* as of fr_graph_train; 0 if the step is refused or there is none */
};
/* Joins the messages of all ranks, in the order of ranks. From then on
 * fr_graph_losses_of has what all ranks counted, and fr_graph_suspects divides its bounds by it.
 * FR_E_CORRUPT: a message is cut or forged, of another network, not of its rank, or of a batch
 * whose columns are shared in another way; err names the rank, and nothing was changed. */
enum fr_status fr_graph_join_sums(struct fr_graph *graph, const struct fr_bytes *in, struct fr_graph_join *out,
                                  struct fr_err *err) FR_MUST_CHECK;

/* Whether the step needs norms of gradients; the same on all ranks. Then, before fr_graph_step,
 * each rank takes the squares that all have written, in the order of ranks. FR_E_CORRUPT: a message
 * has another size; nothing was changed. */
bool fr_graph_clips(const struct fr_graph *graph);
void fr_graph_put_squares(struct fr_graph *graph, struct fr_buffer *out);
enum fr_status fr_graph_take_squares(struct fr_graph *graph, const struct fr_bytes *in,
                                     struct fr_err *err) FR_MUST_CHECK;

/* Checks the messages with gradients of this home's rows, in the order of ranks; messages and
 * `home` are borrowed until fr_graph_step or the next call. `home`: whose rows they are
 * (batch/rows.h). FR_E_CORRUPT: a message is cut or forged, or of other lanes; err names the rank.
 * */
enum fr_status fr_graph_read_row_sums(struct fr_graph *graph, const struct fr_home_rows *home,
                                      const struct fr_bytes *in, struct fr_err *err) FR_MUST_CHECK;
/* The largest |gradient| of the home's rows, joined over ranks, as bits (ops->max_bits). */
uint32_t fr_graph_row_bits(struct fr_graph *graph);
/* Makes the step that was joined, if there is one. Must not be called if a rank refuses it because
 * of gradients. */
void fr_graph_step(struct fr_graph *graph);

/* The rest of the step: writes the values of this rank's portion; takes those of all portions, in
 * the order of ranks, which have fr_graph_value_bytes each. FR_E_CORRUPT: other sizes; nothing was
 * changed. */
void fr_graph_put_values(const struct fr_graph *graph, struct fr_buffer *out);
size_t fr_graph_value_bytes(const struct fr_graph *graph, uint32_t rank);
enum fr_status fr_graph_take_values(struct fr_graph *graph, const struct fr_bytes *in,
                                    struct fr_err *err) FR_MUST_CHECK;
/* Before the state is saved: writes the optimizers' state of this rank's portion; takes the states
 * of all portions, in the order of ranks. Between two such exchanges a rank has the current state
 * of its own portion only. FR_E_CORRUPT: a message has another size; nothing was changed. */
void fr_graph_put_states(const struct fr_graph *graph, struct fr_buffer *out);
enum fr_status fr_graph_take_states(struct fr_graph *graph, const struct fr_bytes *in,
                                    struct fr_err *err) FR_MUST_CHECK;

#endif
