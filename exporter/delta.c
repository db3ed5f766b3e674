/* From one epoch's journal bytes to its delta records.
 *
 * Public are row images (their first value_floats), absences that have a reason (tombstones), dense
 * sections when the announcement says so, and the announcement itself. Pending images, silent
 * absences, optimizer state, counters, `seen` and every other section are private and left out.
 * Everything is taken from the epoch and from the head of its journal file, so a resend after years
 * is byte-identical. Images come by hash and records go by key, so how rows lie on the topic does
 * not tell the state's order. Data comes from a disk: what does not fit is FR_E_CORRUPT, never an
 * assertion.
 *
 * Thread: any, no state. It does not read the journal or send. */
#include "exporter/delta.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/radix.h"

enum { DENSE_MAX = 4096, SNAPSHOT_NAME_MAX = 255, ROWS_AHEAD = 16, PIECE_BYTES_MAX = 64 << 20 };

struct public_epoch {
    struct fr_delta_row *rows; /* ascending (table, key) */
    size_t n_rows;
    struct fr_dense_view *views; /* own the names that dense points to */
    struct fr_delta_dense *dense;
    size_t n_dense;
    struct fr_announcement announcement;
    struct fr_arena arena; /* the announcement's offsets */
    struct fr_delta_auc auc[FR_ANNOUNCE_TASKS_MAX];
    struct fr_delta_offset *offsets;
    struct fr_delta_rewind rewind;
    char snapshot[SNAPSHOT_NAME_MAX + 1];
    bool rewinds;
};

static void release(struct public_epoch *shown)
{
    free(shown->rows);
    free(shown->views);
    free(shown->dense);
    free(shown->offsets);
    fr_arena_release(&shown->arena);
}

/* Delta records go by key, the epoch's images by hash. Memory: 32 bytes a row, and the rows once
 * more. */
static void sort_rows(struct public_epoch *out)
{
    size_t n = out->n_rows;
    if (n < 2)
        return;
    FR_CHECK(n <= UINT32_MAX);
    struct fr_radix_item *items = fr_alloc(n, sizeof(*items)), *spare = fr_alloc(n, sizeof(*spare));
    struct fr_delta_row *sorted = fr_alloc(n, sizeof(*sorted));
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct fr_radix_item){out->rows[i].key, out->rows[i].table, i};
    const struct fr_radix_item *order = fr_radix_sort(items, spare, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        if (i + ROWS_AHEAD < n)
            __builtin_prefetch(&out->rows[order[i + ROWS_AHEAD].index]);
        sorted[i] = out->rows[order[i].index];
    }
    free(items);
    free(spare);
    free(out->rows);
    out->rows = sorted;
}

static enum fr_status take_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                struct public_epoch *out, struct fr_err *err)
{
    out->rows = fr_alloc(epoch->n_images ? epoch->n_images : 1, sizeof(*out->rows));
    const uint8_t *at = NULL;
    struct fr_image image;
    while (fr_epoch_next(epoch, &at, &image) == FR_OK) {
        bool is_row = image.kind == FR_IMAGE_ROW;
        if (!is_row && (image.kind != FR_IMAGE_ABSENT || image.reason == FR_ABSENT_SILENT))
            continue;
        if (image.table >= settings->n_tables)
            return fr_err_set(err, FR_E_CORRUPT,
                              "epoch %llu: an image of table %u, but its journal file knows %u tables",
                              (unsigned long long)epoch->epoch, image.table, settings->n_tables);
        const struct fr_codec_table *table = &settings->tables[image.table];
        if (is_row && image.size < FR_ROW_IMAGE_HEAD + (size_t)table->value_floats * sizeof(float))
            return fr_err_set(err, FR_E_CORRUPT,
                              "epoch %llu: a row image of table %s has %u bytes, too few for %u values",
                              (unsigned long long)epoch->epoch, table->name, image.size, table->value_floats);
        FR_CHECK(out->n_rows < epoch->n_images);
        out->rows[out->n_rows++] =
            (struct fr_delta_row){.key = image.key,
                                  .table = image.table,
                                  .why = image.reason,
                                  .values = is_row ? (const void *)(image.bytes + FR_ROW_IMAGE_HEAD) : NULL};
    }
    sort_rows(out);
    return FR_OK;
}

/* Takes the parameters that the epoch holds: those that changed since they were last published. */
static enum fr_status take_dense(const struct fr_epoch *epoch, struct public_epoch *out, struct fr_err *err)
{
    const uint8_t *at = NULL;
    struct fr_dense_view view;
    enum fr_status status = FR_OK;
    while (out->n_dense <= DENSE_MAX && (status = fr_epoch_next_dense(epoch, &at, &view)) == FR_OK) {
        out->views = fr_realloc(out->views, out->n_dense + 1, sizeof(*out->views));
        out->views[out->n_dense++] = view;
    }
    if (status != FR_EOF)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: a dense section does not parse, or there are over %d",
                          (unsigned long long)epoch->epoch, DENSE_MAX);
    out->dense = fr_alloc(out->n_dense ? out->n_dense : 1, sizeof(*out->dense));
    for (size_t i = 0; i < out->n_dense; i++)
        out->dense[i] = (struct fr_delta_dense){.name = out->views[i].name,
                                                .n_dims = out->views[i].n_dims,
                                                .shape = {out->views[i].shape[0], out->views[i].shape[1]},
                                                .n_values = out->views[i].n_values,
                                                .values = out->views[i].values,
                                                .exact = out->views[i].exact};
    return FR_OK;
}

static enum fr_status take_announcement(const struct fr_epoch *epoch, struct fr_arena *arena,
                                        struct fr_announcement *out, struct fr_err *err)
{
    const uint8_t *bytes = NULL;
    size_t size = 0;
    enum fr_status status = fr_epoch_section(epoch, "announce", &bytes, &size);
    if (status == FR_OK)
        status = fr_announcement_parse(bytes, size, arena, out);
    return status == FR_OK ? FR_OK
                           : fr_err_set(err, FR_E_CORRUPT, "epoch %llu: the section \"announce\" is missing or damaged",
                                        (unsigned long long)epoch->epoch);
}

/* The optional section "rewind" stands in the first epoch of a timeline: u64 `to`, then the
 * snapshot's name. */
static enum fr_status take_rewind(const struct fr_epoch *epoch, struct public_epoch *out, struct fr_err *err)
{
    const uint8_t *bytes = NULL;
    size_t size = 0;
    if (fr_epoch_section(epoch, "rewind", &bytes, &size) != FR_OK)
        return FR_OK;
    if (size < 8 || size - 8 > SNAPSHOT_NAME_MAX || memchr(bytes + 8, 0, size - 8))
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: the section \"rewind\" is damaged",
                          (unsigned long long)epoch->epoch);
    memcpy(out->snapshot, bytes + 8, size - 8);
    out->rewind = (struct fr_delta_rewind){fr_load_u64(bytes), out->snapshot};
    out->rewinds = true;
    return FR_OK;
}

static void fill_commit(struct public_epoch *shown, struct fr_delta_commit *commit)
{
    const struct fr_announcement *announcement = &shown->announcement;
    for (uint32_t i = 0; i < announcement->n_tasks; i++)
        shown->auc[i] = (struct fr_delta_auc){announcement->tasks[i].task, announcement->tasks[i].auc};
    shown->offsets = fr_alloc(announcement->n_offsets + 1u, sizeof(*shown->offsets));
    for (uint32_t i = 0; i < announcement->n_offsets; i++)
        shown->offsets[i] = (struct fr_delta_offset){announcement->offsets[i].topic, announcement->offsets[i].partition,
                                                     announcement->offsets[i].next_offset};
    *commit = (struct fr_delta_commit){.wm_ms = announcement->watermark_ms,
                                       .samples = announcement->samples,
                                       .t_ms = announcement->wall_ms,
                                       .n_auc = announcement->n_tasks,
                                       .auc = shown->auc,
                                       .n_offsets = announcement->n_offsets,
                                       .offsets = shown->offsets};
}

enum fr_status fr_export_epoch(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                               fr_delta_sink *sink, void *self, uint64_t *saturated, struct fr_err *err)
{
    struct public_epoch *shown = fr_alloc(1, sizeof(*shown));
    enum fr_status status = take_announcement(epoch, &shown->arena, &shown->announcement, err);
    if (status == FR_OK)
        status = take_rewind(epoch, shown, err);
    if (status == FR_OK)
        status = take_rows(settings, epoch, shown, err);
    if (status == FR_OK && shown->announcement.publish_dense)
        status = take_dense(epoch, shown, err);
    if (status == FR_OK) {
        struct fr_delta_epoch delta = {.timeline = epoch->timeline,
                                       .epoch = epoch->epoch,
                                       .from = epoch->epoch,
                                       .digest = fr_sha256_u64(&epoch->digest),
                                       .previous = epoch->epoch > 1 ? fr_sha256_u64(&epoch->previous) : 0,
                                       .with_model = shown->announcement.publish_model,
                                       .rewind = shown->rewinds ? &shown->rewind : NULL,
                                       .rows = shown->rows,
                                       .n_rows = shown->n_rows,
                                       .dense = shown->dense,
                                       .n_dense = shown->n_dense};
        fill_commit(shown, &delta.commit);
        status = fr_delta_write(settings, &delta, sink, self, saturated);
        if (status != FR_OK)
            fr_err_set(err, status, "epoch %llu cannot be written as delta records of at most %llu bytes: %s",
                       (unsigned long long)epoch->epoch, (unsigned long long)settings->piece_max,
                       fr_status_name(status));
    }
    release(shown);
    free(shown);
    return status;
}

bool fr_export_widen(struct fr_codec_settings *settings)
{
    if (settings->piece_max > PIECE_BYTES_MAX / 2)
        return false;
    settings->piece_max *= 2;
    return true;
}

enum fr_status fr_export_wall_ms(const struct fr_epoch *epoch, int64_t *wall_ms, struct fr_err *err)
{
    struct fr_arena arena = {.block_size = 4096};
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    enum fr_status status = take_announcement(epoch, &arena, announcement, err);
    if (status == FR_OK)
        *wall_ms = announcement->wall_ms;
    free(announcement);
    fr_arena_release(&arena);
    return status;
}
