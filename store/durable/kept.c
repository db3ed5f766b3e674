/* Durable epochs that are still in memory, for the publisher and the fold.
 *
 * The record that an append wrote becomes the newest kept epoch without a copy, and the stage gets
 * the memory of an epoch that is no longer needed. So in a steady stream nothing is copied or
 * allocated. Readers borrow a record by reference; for an epoch that is not kept they read the
 * journal, which gives the same bytes. Two kinds of epochs are dropped: the oldest while their
 * memory exceeds keep_bytes, and all that are both folded and acknowledged. Until that, the newest
 * stays whatever its size, for the publisher.
 *
 * Invariants: only durable epochs are kept (an append keeps its epoch after writing the mark),
 * contiguous and ascending.
 *
 * Thread: any; the mutex `index` guards the list. The bytes are not checked again, because the
 * digest was computed from them. */
#include "durable_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Gives one reference back. The last one passes the memory to the next stage or frees it. The
 * caller holds index. */
static void let_go(struct fr_durable *durable, struct fr_kept *kept)
{
    if (--kept->refs > 0)
        return;
    if (durable->spare.capacity < kept->record.capacity) {
        fr_buffer_release(&durable->spare);
        durable->spare = kept->record;
    } else {
        fr_buffer_release(&kept->record);
    }
    free(kept);
}

static void drop_oldest(struct fr_durable *durable, size_t n)
{
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        durable->kept_bytes -= durable->kept[i]->record.capacity;
        let_go(durable, durable->kept[i]);
    }
    durable->n_kept -= n;
    memmove(durable->kept, durable->kept + n, durable->n_kept * sizeof(*durable->kept));
}

void fr_durable_keep(struct fr_durable *durable, uint64_t epoch, struct fr_stage *stage)
{
    if (durable->keep_bytes == 0)
        return;
    struct fr_kept *kept = fr_alloc(1, sizeof(*kept));
    *kept = (struct fr_kept){.epoch = epoch, .record = stage->record, .refs = 1};
    pthread_mutex_lock(&durable->index);
    if (durable->n_kept == durable->capacity_kept) {
        durable->capacity_kept = durable->capacity_kept ? 2 * durable->capacity_kept : 16;
        durable->kept = fr_realloc(durable->kept, durable->capacity_kept, sizeof(*durable->kept));
    }
    durable->kept[durable->n_kept++] = kept;
    durable->kept_bytes += kept->record.capacity;
    size_t n = 0;
    for (uint64_t bytes = durable->kept_bytes; n + 1 < durable->n_kept && bytes > durable->keep_bytes; n++)
        bytes -= durable->kept[n]->record.capacity;
    drop_oldest(durable, n);
    stage->record = durable->spare;
    durable->spare = (struct fr_buffer){0};
    pthread_mutex_unlock(&durable->index);
    fr_buffer_clear(&stage->record);
    stage->n_ordered = stage->ordered_bytes = 0; /* they belong to the record */
}

void fr_durable_forget(struct fr_durable *durable, uint64_t limit)
{
    pthread_mutex_lock(&durable->index);
    size_t n = 0;
    while (n < durable->n_kept && durable->kept[n]->epoch <= limit)
        n++;
    drop_oldest(durable, n);
    pthread_mutex_unlock(&durable->index);
}

struct fr_kept *fr_durable_kept(struct fr_durable *durable, uint64_t epoch)
{
    struct fr_kept *kept = NULL;
    pthread_mutex_lock(&durable->index);
    if (durable->n_kept > 0 && epoch >= durable->kept[0]->epoch && epoch - durable->kept[0]->epoch < durable->n_kept) {
        kept = durable->kept[epoch - durable->kept[0]->epoch];
        kept->refs++;
    }
    pthread_mutex_unlock(&durable->index);
    return kept;
}

void fr_durable_unkeep(struct fr_durable *durable, struct fr_kept *kept)
{
    if (!kept)
        return;
    pthread_mutex_lock(&durable->index);
    let_go(durable, kept);
    pthread_mutex_unlock(&durable->index);
}

void fr_durable_touch_spare(struct fr_durable *durable, size_t bytes)
{
    struct fr_stage stage;
    fr_stage_init(&stage);
    fr_stage_touch(&stage, bytes);
    durable->spare = stage.record;
    stage.record = (struct fr_buffer){0};
    fr_stage_release(&stage);
}

void fr_durable_kept_release(struct fr_durable *durable)
{
    drop_oldest(durable, durable->n_kept);
    free(durable->kept);
    fr_buffer_release(&durable->spare);
}

/* ---- for the publisher ---- */

enum fr_status fr_durable_borrow(struct fr_durable *durable, uint64_t epoch, struct fr_borrowed_epoch *out,
                                 struct fr_buffer *head, struct fr_err *err)
{
    struct fr_journal_file *file = NULL;
    struct fr_journal_epoch entry;
    enum fr_status status = fr_durable_begin_read(durable, epoch, &file, &entry, err);
    if (status != FR_OK)
        return status;
    out->kept = fr_durable_kept(durable, epoch);
    fr_buffer_clear(&out->own);
    if (!out->kept)
        status = fr_journal_read(&durable->journal, file, &entry, &out->own, err);
    if (status == FR_OK) {
        out->bytes = out->kept ? out->kept->record.data + FR_STAGE_FRONT : out->own.data;
        out->size = (size_t)entry.size;
        out->digest = entry.digest;
    }
    return fr_durable_end_read(durable, file, status, head, err);
}

void fr_durable_give_back(struct fr_durable *durable, struct fr_borrowed_epoch *borrowed)
{
    fr_durable_unkeep(durable, borrowed->kept);
    borrowed->kept = NULL;
    borrowed->bytes = NULL;
}
