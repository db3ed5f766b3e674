/* Rows in the stores of all ranks (provider.h). A plan and a step each consist of messages between
 * the sources of samples and the homes of keys (store/ranks.h, graph/ranks.h), and every rank is
 * both.
 *
 *   channel  message                         until
 *   keys     the keys of a home              its rows were sent
 *   keys     the rows of a source's keys     the next plan: forward pass and gradients read them
 *   values   the sums of a rank's lanes      they are joined
 *   values   the gradients of a home's rows  the step
 *   values   new parameters of a rank's      they are copied
 *            portion, late rows of a
 *            source's keys
 *
 * A rank reads the rows of its own keys where they are. A refused step ends after the sums were
 * joined, or after a vote about gradients, on all ranks alike.
 *
 * Batch k+1 is planned during the step of batch k if each rank has batch k+1, nothing has to happen
 * between the two (look), and the joined sums exclude a refusal of k. The keys of k+1 are sent only
 * then, because a refused batch reads its rows again, whose messages the keys would replace. So a
 * refusal of k never has to undo a plan of k+1; a stop, a pause or a cut after k may have to (the
 * move INTERRUPT).
 *
 *   values  sums of k ► | row gradients of k ►             | step of k; parameters, late rows ► |
 *   keys                | keys of k+1 ► plan, early rows ► |                                    |
 *
 * Owner thread only. */
#include "provider.h"

#include <string.h>

#include "base/check.h"
#include "graph/ranks.h"
#include "store/ranks.h"
#include "trainer_private.h"

static struct fr_domains domains_of(const struct fr_trainer *trainer, uint32_t rank)
{
    return fr_rank_domains(rank, trainer->ranks.n, fr_conf_domains(trainer->conf));
}

static struct fr_domains own_domains(const struct fr_trainer *trainer)
{
    return domains_of(trainer, fr_exchange_rank(trainer->ranks.exchange));
}

static bool is_own(const struct fr_trainer *trainer, uint32_t rank)
{
    return rank == fr_exchange_rank(trainer->ranks.exchange);
}

/* Gives each rank what was written for it. */
static enum fr_status send(struct fr_trainer *trainer, enum fr_channel channel, const struct fr_buffer *out,
                           struct fr_err *err)
{
    struct fr_bytes parts[FR_RANKS_MAX];
    for (uint32_t r = 0; r < trainer->ranks.n; r++)
        parts[r] = (struct fr_bytes){out[r].data, out[r].size};
    return fr_exchange_send(trainer->ranks.exchange, channel, parts, err);
}

/* Waits for what all ranks have written for this one. */
static enum fr_status receive(struct fr_trainer *trainer, enum fr_channel channel, struct fr_bytes *in,
                              struct fr_err *err)
{
    return fr_exchange_receive(trainer->ranks.exchange, channel, in, err);
}

/* ---- plan ---- */

/* Writes the keys of the batch, for each home. */
static void put_keys(struct fr_trainer *trainer, const struct fr_batch *batch, struct fr_rows *rows)
{
    fr_store_gather(trainer->store, batch, rows);
    for (uint32_t r = 0; r < trainer->ranks.n; r++) {
        fr_buffer_clear(&trainer->ranks.keys[r]);
        fr_store_put_keys(trainer->store, domains_of(trainer, r), &trainer->ranks.keys[r]);
    }
}

/* Sends each source what its keys have after they were resolved. Returns the list of the keys. */
static enum fr_status send_rows(struct fr_trainer *trainer, const struct fr_home_rows **home, struct fr_err *err)
{
    *home = fr_store_home_rows(trainer->store); /* while the messages of keys are there */
    for (uint32_t r = 0; r < trainer->ranks.n; r++) {
        fr_buffer_clear(&trainer->ranks.rows[r]);
        if (!is_own(trainer, r))
            fr_store_put_rows(trainer->store, r, &trainer->ranks.rows[r]);
    }
    return send(trainer, FR_CHANNEL_KEYS, trainer->ranks.rows, err);
}

static enum fr_status plan_rows(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms,
                                struct fr_rows *rows, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_bytes in[FR_RANKS_MAX];
    put_keys(trainer, batch, rows);
    enum fr_status status = send(trainer, FR_CHANNEL_KEYS, ranks->keys, err);
    if (status == FR_OK)
        status = receive(trainer, FR_CHANNEL_KEYS, in, err);
    if (status == FR_OK)
        status = fr_store_resolve(trainer->store, own_domains(trainer), in, ranks->n, watermark_ms, err);
    if (status == FR_OK)
        status = send_rows(trainer, &ranks->home, err);
    if (status == FR_OK)
        status = receive(trainer, FR_CHANNEL_KEYS, in, err);
    for (uint32_t r = 0; r < ranks->n && status == FR_OK; r++)
        if (!is_own(trainer, r))
            status = fr_store_take_rows(trainer->store, domains_of(trainer, r), in[r], (struct fr_bytes){0}, rows, err);
    if (status == FR_OK)
        fr_store_own_rows(trainer->store, fr_exchange_rank(ranks->exchange), rows);
    return status;
}

static void plan(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    struct fr_err err = {0};
    (void)fr_trainer_ranks_check(trainer, plan_rows(trainer, batch, watermark_ms, rows, &err), &err);
}

/* ---- the next plan ---- */

/* All ranks find out whether each can plan the next batch beside the step of this one. Slices would
 * remove rows that the step changes; a rank may have them due alone, because a table of its domains
 * may be smaller than those of the others, or empty. A first watermark, which takes a message of
 * its own, is missing on all ranks or on none. */
static void look(struct fr_trainer *trainer)
{
    struct fr_pipeline *pipeline = &trainer->pipeline;
    trainer->ranks.ahead = false;
    if (trainer->history.watermark_ms == INT64_MIN)
        return;
    if (trainer->ranks.ended && !pipeline->next) /* it takes part in the batches of others */
        fr_pipeline_next_is_nothing(trainer);
    bool can = !fr_pipeline_slices_due(trainer) && fr_pipeline_await_next(trainer, 0) == FR_OK &&
               fr_own_can_plan_next(trainer, fr_mono_ns(trainer->options.clock));
    trainer->ranks.ahead = fr_trainer_agree_next(trainer, can ? pipeline->next : NULL, &pipeline->early.facts);
}

/* Keys were sent, and put_keys has filled a part of the rows. */
static enum fr_status resolve_next(struct fr_trainer *trainer, int64_t watermark_ms, struct fr_err *err)
{
    struct fr_bytes in[FR_RANKS_MAX];
    enum fr_status status = receive(trainer, FR_CHANNEL_KEYS, in, err);
    if (status == FR_OK)
        status = fr_store_resolve_next(trainer->store, own_domains(trainer), in, trainer->ranks.n, watermark_ms, err);
    return status == FR_OK ? send_rows(trainer, &trainer->ranks.next_home, err) : status;
}

static void plan_next(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms,
                      struct fr_rows *rows)
{
    struct fr_err err = {0};
    (void)batch;
    (void)rows;
    (void)fr_trainer_ranks_check(trainer, resolve_next(trainer, watermark_ms, &err), &err);
}

/* ---- step ---- */

/* Writes the gradients of rows for each home, while the sums of lanes travel. */
static void put_row_sums(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows)
{
    struct fr_unique_range ranges[FR_TABLES_MAX];
    for (uint32_t r = 0; r < trainer->ranks.n; r++) {
        fr_buffer_clear(&trainer->ranks.row_sums[r]);
        fr_store_sent_ranges(trainer->store, domains_of(trainer, r), ranges);
        fr_graph_put_row_sums(trainer->graph, batch, rows, ranges, &trainer->ranks.row_sums[r]);
    }
}

/* Joins the sums of all ranks. ahead: writes the keys of the next batch while the sums travel. */
static enum fr_status join(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows,
                           bool ahead, struct fr_graph_join *out, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_bytes parts[FR_RANKS_MAX];
    fr_graph_sum(trainer->graph, batch, rows);
    for (uint32_t r = 0; r < ranks->n; r++) {
        fr_buffer_clear(&ranks->sums_of[r]);
        fr_graph_put_sums(trainer->graph, r, &ranks->sums_of[r]);
    }
    enum fr_status status = send(trainer, FR_CHANNEL_VALUES, ranks->sums_of, err);
    if (status != FR_OK)
        return status;
    put_row_sums(trainer, batch, rows);
    if (ahead)
        put_keys(trainer, trainer->pipeline.next, fr_pipeline_next_rows(trainer));
    status = receive(trainer, FR_CHANNEL_VALUES, parts, err);
    return status == FR_OK ? fr_graph_join_sums(trainer->graph, parts, out, err) : status;
}

/* FR_E_NONFINITE: the largest gradient of some rank is too large. */
static enum fr_status check_largest(struct fr_trainer *trainer, uint32_t bits)
{
    uint64_t largest = fr_trainer_largest(trainer, bits);
    if (trainer->ranks.failure.status != FR_OK)
        return trainer->ranks.failure.status;
    return largest > fr_f32_bits(FR_GRADIENT_MAX) ? FR_E_NONFINITE : FR_OK;
}

/* Gives the squares of the gradients of this rank's portion to all. */
static enum fr_status share_squares(struct fr_trainer *trainer, struct fr_err *err)
{
    struct fr_bytes in[FR_RANKS_MAX];
    fr_buffer_clear(&trainer->ranks.sums);
    fr_graph_put_squares(trainer->graph, &trainer->ranks.sums);
    enum fr_status status = fr_trainer_give_all(trainer, &trainer->ranks.sums, in, err);
    return status == FR_OK ? fr_graph_take_squares(trainer->graph, in, err) : status;
}

/* Waits for the gradients of this home's rows, then steps these rows and this rank's portion of the
 * parameters. FR_E_NONFINITE: a row's gradient is too large, and nothing was changed. */
static enum fr_status step_rows(struct fr_trainer *trainer, const struct fr_graph_join *joined, struct fr_err *err)
{
    struct fr_bytes in[FR_RANKS_MAX];
    enum fr_status status = receive(trainer, FR_CHANNEL_VALUES, in, err);
    if (status == FR_OK)
        status = fr_graph_read_row_sums(trainer->graph, trainer->ranks.home, in, err);
    if (status != FR_OK)
        return status;
    if (!joined->rows_bounded)
        status = check_largest(trainer, fr_graph_row_bits(trainer->graph));
    if (status == FR_OK)
        fr_graph_step(trainer->graph);
    return status;
}

/* ---- what leaves after the step ---- */

/* Takes the rows of the next batch from the homes; `late` follows the parameters in the messages.
 * */
static enum fr_status take_next(struct fr_trainer *trainer, const struct fr_bytes *early, const struct fr_bytes *late,
                                struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    enum fr_status status = FR_OK;
    fr_store_own_rows(trainer->store, fr_exchange_rank(ranks->exchange), fr_pipeline_next_rows(trainer));
    for (uint32_t r = 0; r < ranks->n && status == FR_OK; r++) {
        if (is_own(trainer, r))
            continue;
        struct fr_buffer *kept = &ranks->late[r];
        fr_buffer_clear(kept);
        fr_buffer_append(kept, late[r].data, late[r].size);
        status = fr_store_take_rows(trainer->store, domains_of(trainer, r), early[r],
                                    (struct fr_bytes){kept->data, kept->size}, fr_pipeline_next_rows(trainer), err);
    }
    ranks->home = ranks->next_home;
    return status;
}

/* Gives the new parameters of this rank's portion to all, and, if the next batch was planned, its
 * rows that the step may have changed. */
static enum fr_status share_values(struct fr_trainer *trainer, bool ahead, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_bytes early[FR_RANKS_MAX], in[FR_RANKS_MAX], late[FR_RANKS_MAX];
    for (uint32_t r = 0; r < ranks->n; r++) {
        fr_buffer_clear(&ranks->values[r]);
        fr_graph_put_values(trainer->graph, &ranks->values[r]);
        if (ahead && !is_own(trainer, r))
            fr_store_put_late_rows(trainer->store, r, &ranks->values[r]);
    }
    enum fr_status status = send(trainer, FR_CHANNEL_VALUES, ranks->values, err);
    if (status == FR_OK && ahead)
        status = receive(trainer, FR_CHANNEL_KEYS, early, err);
    if (status == FR_OK)
        status = receive(trainer, FR_CHANNEL_VALUES, in, err);
    for (uint32_t r = 0; r < ranks->n && status == FR_OK; r++) {
        size_t bytes = fr_graph_value_bytes(trainer->graph, r);
        if (in[r].size < bytes || (!ahead && in[r].size > bytes))
            return fr_err_set(err, FR_E_CORRUPT,
                              "rank %u sent %zu bytes of parameters and late rows; its portion has %zu", r, in[r].size,
                              bytes);
        late[r] = (struct fr_bytes){in[r].data + bytes, in[r].size - bytes};
        in[r].size = bytes;
    }
    if (status == FR_OK)
        status = fr_graph_take_values(trainer->graph, in, err);
    return status == FR_OK && ahead ? take_next(trainer, early, late, err) : status;
}

/* The sums were joined. FR_E_NONFINITE: gradients are too large, and nothing was changed. */
static enum fr_status step(struct fr_trainer *trainer, const struct fr_graph_join *joined, bool ahead,
                           struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    enum fr_status status = joined->bounded ? FR_OK : check_largest(trainer, joined->gradient_bits);
    if (status == FR_OK && fr_graph_clips(trainer->graph))
        status = share_squares(trainer, err);
    if (status == FR_OK)
        status = send(trainer, FR_CHANNEL_VALUES, ranks->row_sums, err);
    if (ahead && status == FR_OK) {
        status = send(trainer, FR_CHANNEL_KEYS, ranks->keys, err);
        if (status != FR_OK)
            return status;
        fr_pipeline_move(trainer, FR_MOVE_PLAN_NEXT);
        status = ranks->failure.status;
    }
    if (status == FR_OK)
        status = step_rows(trainer, joined, err);
    return status == FR_OK ? share_values(trainer, ahead, err) : status;
}

static enum fr_status apply(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows,
                            double *loss)
{
    struct fr_graph_join joined = {0};
    struct fr_err err = {0};
    bool ahead = trainer->ranks.ahead;
    trainer->ranks.ahead = false; /* it was decided for this attempt */
    enum fr_status status = join(trainer, batch, rows, ahead, &joined, &err);
    if (status == FR_OK && joined.refused)
        return FR_E_NONFINITE;
    if (status == FR_OK && joined.steps)
        status = step(trainer, &joined, ahead && joined.rows_bounded, &err);
    if (status != FR_OK && status != FR_E_NONFINITE)
        return fr_trainer_ranks_check(trainer, status, &err);
    *loss = joined.loss;
    return status;
}

/* Each rank's state has the optimizers' state of all parameters, so that any rank can continue with
 * any portion. */
static enum fr_status share_states(struct fr_trainer *trainer, struct fr_err *err)
{
    struct fr_bytes in[FR_RANKS_MAX];
    fr_buffer_clear(&trainer->ranks.sums);
    fr_graph_put_states(trainer->graph, &trainer->ranks.sums);
    enum fr_status status = fr_trainer_give_all(trainer, &trainer->ranks.sums, in, err);
    return status == FR_OK ? fr_graph_take_states(trainer->graph, in, err) : status;
}

static enum fr_status fetch(struct fr_trainer *trainer)
{
    struct fr_err err = {0};
    uint64_t changes = fr_graph_shared_changes(trainer->graph);
    if (changes == trainer->ranks.fetched)
        return FR_OK;
    trainer->ranks.fetched = changes;
    return fr_trainer_ranks_check(trainer, share_states(trainer, &err), &err);
}

const struct fr_provider fr_rank_rows = {.look = look,
                                         .plan = plan,
                                         .plan_next = plan_next,
                                         .undo = fr_own_undo,
                                         .apply = apply,
                                         .fetch = fetch,
                                         .cut = fr_own_cut};
