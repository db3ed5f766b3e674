/* One step of the trainer's thread, and what the trainer calls for positions, dead letters and
 * snapshots (trainer_loop.h). */
#include "loops/trainer_loop.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---- stream positions, called by the trainer ---- */

static void applied(void *self, const struct fr_batch *batch)
{
    struct fr_trainer_loop *loop = self;
    /* takes over the partitions that ingest found since the last batch */
    fr_ingest_adopt(loop->ingest, &loop->positions);
    fr_positions_apply(&loop->positions, batch);
}

static enum fr_status dead_letter(void *self, const struct fr_batch *batch, const struct fr_batch_record *record,
                                  const char *reason, uint64_t *number)
{
    struct fr_trainer_loop *loop = self;
    return fr_ingest_dead_letter(loop->ingest, batch, record, reason, number);
}

static void stage(void *self, struct fr_buffer *section)
{
    struct fr_trainer_loop *loop = self;
    fr_positions_encode(&loop->positions, section);
}

static uint32_t offsets(void *self, struct fr_announced_offset **out)
{
    struct fr_trainer_loop *loop = self;
    uint32_t count = loop->positions.count;
    if (count > loop->offsets_capacity) {
        loop->offsets = fr_realloc(loop->offsets, count, sizeof(*loop->offsets));
        loop->offsets_capacity = count;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct fr_partition_position *position = &loop->positions.partitions[i];
        if (position->offset < 0)
            continue;
        struct fr_announced_offset *offset = &loop->offsets[n++];
        memset(offset, 0, sizeof(*offset));
        memcpy(offset->topic, position->topic, sizeof(offset->topic));
        offset->partition = position->partition;
        offset->next_offset = position->offset;
    }
    if (n > 1)
        qsort(loop->offsets, n, sizeof(*loop->offsets), fr_announced_offsets_compare);
    *out = loop->offsets;
    return n;
}

static void announced_snapshot(void *self, struct fr_announced_snapshot *out)
{
    struct fr_trainer_loop *loop = self;
    /* which epoch announces a snapshot depends on time */
    if (loop->context->conf->ingest.lockstep)
        return;
    fr_shared_snapshots_announced(loop->snapshots, out);
}

struct fr_trainer_stream fr_loop_trainer_stream(struct fr_trainer_loop *loop)
{
    return (struct fr_trainer_stream){loop, applied, stage, offsets, dead_letter, announced_snapshot};
}

void fr_loop_trainer_release(struct fr_trainer_loop *loop)
{
    fr_positions_release(&loop->positions);
    free(loop->offsets);
    loop->offsets = NULL;
}

/* ---- the step ---- */

enum fr_status fr_step_trainer(struct fr_trainer_loop *loop, struct fr_err *err)
{
    if (atomic_load(&loop->context->life->abandon))
        return FR_EOF;
    enum fr_status status = fr_trainer_step(loop->trainer, err);
    if (status == FR_EOF) /* the durable loop ends after the stages that are in the ring */
        fr_ring_close(loop->cut_stages);
    return status;
}
