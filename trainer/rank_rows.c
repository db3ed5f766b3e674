/* Rows in the stores of all ranks (provider.h). A plan and a step each consist of messages between
 * the sources of samples and the homes of keys (store/ranks.h, graph/ranks.h), and every rank is
 * both.
 *
 *   channel  message                         until
 *   keys     the keys of a home              its rows were sent
 *   keys     the rows of a source's keys     the next plan: forward pass and gradients read them
 *   values   the sums of a rank's lanes      they are joined
 *   values   the gradients of a home's rows  the step
 *
 * A refused step ends after the sums were joined, on all ranks alike. Owner thread only. */
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

/* Gives each rank what was written for it, and waits for what all have written for this one. */
static enum fr_status exchange(struct fr_trainer *trainer, enum fr_channel channel, const struct fr_buffer *out,
                               struct fr_bytes *in, struct fr_err *err)
{
    struct fr_bytes parts[FR_RANKS_MAX];
    for (uint32_t r = 0; r < trainer->ranks.n; r++)
        parts[r] = (struct fr_bytes){out[r].data, out[r].size};
    enum fr_status status = fr_exchange_send(trainer->ranks.exchange, channel, parts, err);
    return status == FR_OK ? fr_exchange_receive(trainer->ranks.exchange, channel, in, err) : status;
}

/* ---- plan ---- */

static enum fr_status plan_rows(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms,
                                struct fr_rows *rows, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_store *store = trainer->store;
    struct fr_bytes in[FR_RANKS_MAX];
    fr_store_gather(store, batch, rows);
    for (uint32_t r = 0; r < ranks->n; r++) {
        fr_buffer_clear(&ranks->keys[r]);
        fr_store_put_keys(store, domains_of(trainer, r), &ranks->keys[r]);
    }
    enum fr_status status = exchange(trainer, FR_CHANNEL_KEYS, ranks->keys, in, err);
    if (status == FR_OK)
        status = fr_store_resolve(store, own_domains(trainer), in, ranks->n, watermark_ms, err);
    if (status != FR_OK)
        return status;
    ranks->home = fr_store_home_rows(store); /* while the messages of keys are there */
    for (uint32_t r = 0; r < ranks->n; r++) {
        fr_buffer_clear(&ranks->rows[r]);
        fr_store_put_rows(store, r, &ranks->rows[r]);
    }
    status = exchange(trainer, FR_CHANNEL_KEYS, ranks->rows, in, err);
    for (uint32_t r = 0; r < ranks->n && status == FR_OK; r++)
        status = fr_store_take_rows(store, domains_of(trainer, r), in[r], rows, err);
    return status;
}

static void plan(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    struct fr_err err = {0};
    (void)fr_trainer_ranks_check(trainer, plan_rows(trainer, batch, watermark_ms, rows, &err), &err);
}

/* ---- step ---- */

/* Writes the sums while they travel: of the rows, for each home. */
static void put_row_sums(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows)
{
    struct fr_unique_range ranges[FR_TABLES_MAX];
    for (uint32_t r = 0; r < trainer->ranks.n; r++) {
        fr_buffer_clear(&trainer->ranks.row_sums[r]);
        fr_store_sent_ranges(trainer->store, domains_of(trainer, r), ranges);
        fr_graph_put_row_sums(trainer->graph, batch, rows, ranges, &trainer->ranks.row_sums[r]);
    }
}

static enum fr_status join(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows,
                           struct fr_graph_join *out, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_bytes parts[FR_RANKS_MAX];
    fr_graph_sum(trainer->graph, batch, rows);
    fr_buffer_clear(&ranks->sums);
    fr_graph_put_sums(trainer->graph, &ranks->sums);
    for (uint32_t r = 0; r < ranks->n; r++)
        parts[r] = (struct fr_bytes){ranks->sums.data, ranks->sums.size};
    enum fr_status status = fr_exchange_send(ranks->exchange, FR_CHANNEL_VALUES, parts, err);
    if (status != FR_OK)
        return status;
    put_row_sums(trainer, batch, rows);
    status = fr_exchange_receive(ranks->exchange, FR_CHANNEL_VALUES, parts, err);
    return status == FR_OK ? fr_graph_join_sums(trainer->graph, parts, ranks->n, out, err) : status;
}

static enum fr_status step_rows(struct fr_trainer *trainer, const struct fr_graph_join *joined, struct fr_err *err)
{
    struct fr_bytes in[FR_RANKS_MAX];
    enum fr_status status = exchange(trainer, FR_CHANNEL_VALUES, trainer->ranks.row_sums, in, err);
    if (status == FR_OK)
        status = fr_graph_read_row_sums(trainer->graph, trainer->ranks.home, in, err);
    if (status != FR_OK)
        return status;
    if (!joined->rows_bounded) {
        uint64_t bits = fr_trainer_largest(trainer, fr_graph_row_bits(trainer->graph));
        if (trainer->ranks.failure.status != FR_OK)
            return trainer->ranks.failure.status;
        if (bits > fr_f32_bits(FR_GRADIENT_MAX))
            return FR_E_NONFINITE;
    }
    fr_graph_step(trainer->graph);
    return FR_OK;
}

static enum fr_status apply(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows,
                            double *loss)
{
    struct fr_graph_join joined = {0};
    struct fr_err err = {0};
    enum fr_status status = join(trainer, batch, rows, &joined, &err);
    if (status == FR_OK && joined.refused)
        return FR_E_NONFINITE;
    if (status == FR_OK && joined.steps)
        status = step_rows(trainer, &joined, &err);
    if (status != FR_OK && status != FR_E_NONFINITE)
        return fr_trainer_ranks_check(trainer, status, &err);
    *loss = joined.loss;
    return status;
}

/* ---- the rest ---- */

static void look(struct fr_trainer *trainer)
{
    (void)trainer;
}

const struct fr_provider fr_rank_rows = {
    .look = look, .plan = plan, .undo = fr_own_undo, .apply = apply, .cut = fr_own_cut};
