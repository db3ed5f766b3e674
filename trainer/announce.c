/* What an epoch announces: the content of the delta's commit records (docs/formats/deltas.md).
 *
 * All ranks announce the same, whatever their clocks and streams, because each of them writes the
 * commits of its own partitions, and a reader compares the commits of all. What the decisions of
 * all ranks have made equal (watermark, samples, AUC) needs no message. Wall time, snapshot, and
 * whether model and parameters are published are those of rank 0, which publishes these. The
 * offsets are those of all ranks: each reads partitions of its own.
 *
 * Owner thread only. One rank sends nothing. */
#include "trainer_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static void fill(struct fr_trainer *trainer, struct fr_announcement *out)
{
    bool lockstep = trainer->conf->ingest.lockstep;
    int64_t watermark_ms = trainer->history.watermark_ms == INT64_MIN ? 0 : trainer->history.watermark_ms;
    out->watermark_ms = watermark_ms;
    out->samples = trainer->history.samples;
    out->wall_ms = lockstep ? watermark_ms : fr_wall_ms(trainer->options.clock);
    out->n_tasks = trainer->conf->n_tasks;
    for (uint32_t i = 0; i < out->n_tasks; i++) {
        struct fr_auc_result result;
        fr_task_metrics_lifetime(trainer->measuring.tasks[i], &result);
        snprintf(out->tasks[i].task, sizeof(out->tasks[i].task), "%s", trainer->conf->tasks[i].name);
        out->tasks[i].auc = result.auc;
    }
    out->n_offsets = trainer->options.stream.offsets(trainer->options.stream.self, &out->offsets);
    if (trainer->options.stream.snapshot)
        trainer->options.stream.snapshot(trainer->options.stream.self, &out->snapshot);
}

/* ---- several ranks ---- */

/* Adds what a rank announced to *out: the first one whole, of the others their offsets. */
static enum fr_status add(struct fr_announced *announced, struct fr_bytes in, uint32_t rank,
                          struct fr_announcement *out, struct fr_err *err)
{
    struct fr_announcement *other = fr_alloc(1, sizeof(*other));
    fr_arena_reset(&announced->arena);
    enum fr_status status = fr_announcement_parse(in.data, in.size, &announced->arena, other);
    uint32_t before = rank == 0 ? 0 : out->n_offsets;
    if (status != FR_OK) {
        (void)fr_err_set(err, status, "rank %" PRIu32 " sent %zu bytes that are no announcement", rank, in.size);
    } else if (other->n_offsets > FR_ANNOUNCE_PARTITIONS_MAX - before) {
        status =
            fr_err_set(err, FR_E_LIMIT, "the ranks read more than %d partitions together", FR_ANNOUNCE_PARTITIONS_MAX);
    } else {
        if (rank == 0)
            *out = *other;
        fr_buffer_append(&announced->offsets, other->offsets, other->n_offsets * sizeof(*other->offsets));
        out->n_offsets = before + other->n_offsets;
    }
    free(other);
    return status;
}

/* Sorts the offsets of all ranks. Two ranks that read one partition are not of one job. */
static enum fr_status sort(struct fr_announcement *out, struct fr_err *err)
{
    if (out->n_offsets > 1)
        qsort(out->offsets, out->n_offsets, sizeof(*out->offsets), fr_announced_offsets_compare);
    for (uint32_t i = 1; i < out->n_offsets; i++) {
        const struct fr_announced_offset *offset = &out->offsets[i];
        if (fr_announced_offsets_compare(offset - 1, offset) == 0)
            return fr_err_set(err, FR_E_MISMATCH,
                              "two ranks have a position in %s/%" PRId32
                              ": their state directories are not of one job, or of one with another number of ranks",
                              offset->topic, offset->partition);
    }
    return FR_OK;
}

/* Replaces what this rank would announce by what all ranks announce. */
static enum fr_status share(struct fr_trainer *trainer, struct fr_announcement *out, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_announced *announced = &ranks->announced;
    struct fr_bytes in[FR_RANKS_MAX];
    fr_buffer_clear(&ranks->sums);
    fr_announcement_encode(out, &ranks->sums);
    fr_buffer_clear(&announced->offsets);
    enum fr_status status = fr_trainer_give_all(trainer, &ranks->sums, in, err);
    for (uint32_t r = 0; r < ranks->n && status == FR_OK; r++)
        status = add(announced, in[r], r, out, err);
    out->offsets = (struct fr_announced_offset *)(void *)announced->offsets.data;
    return status == FR_OK ? sort(out, err) : status;
}

enum fr_status fr_trainer_announce(struct fr_trainer *trainer, struct fr_announcement *out)
{
    struct fr_err err = {0};
    fill(trainer, out);
    return trainer->ranks.n == 1 ? FR_OK : fr_trainer_ranks_check(trainer, share(trainer, out, &err), &err);
}

void fr_trainer_announced_release(struct fr_announced *announced)
{
    fr_buffer_release(&announced->offsets);
    fr_arena_release(&announced->arena);
}
