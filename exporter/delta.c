/* From the journal bytes of one epoch, or of several that are merged, to delta records.
 *
 * Public are row images (their first value_floats), absences that have a reason (tombstones), dense
 * sections when the announcement says so, and the announcement itself. Pending images, silent
 * absences, optimizer state, counters, `seen` and every other section are private and left out.
 * Everything is taken from the epoch and from the head of its journal file, so a resend after years
 * is byte-identical. Images come by hash and records go by key (delta_rows.c), so how rows lie on
 * the topic does not tell the state's order. Data comes from a disk: what does not fit is
 * FR_E_CORRUPT, never an assertion.
 *
 * Thread: any, no state. It does not read the journal or send. */
#include "exporter/delta.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "delta_rows.h"

enum { DENSE_MAX = 4096, PIECE_BYTES_MAX = 64 << 20 };

struct public_epoch {
    struct fr_dense_view *views; /* own the names that dense points to */
    struct fr_delta_dense *dense;
    size_t n_dense;
    struct fr_announcement announcement;
    struct fr_arena arena; /* the announcement's offsets */
    struct fr_delta_auc auc[FR_ANNOUNCE_TASKS_MAX];
    struct fr_delta_offset *offsets;
};

static void release(struct public_epoch *shown)
{
    free(shown->views);
    free(shown->dense);
    free(shown->offsets);
    fr_arena_release(&shown->arena);
}

/* Takes the parameters that the epoch holds: those that changed since they were last published. */
static enum fr_status take_dense(const struct fr_epoch *epoch, struct public_epoch *out, struct fr_err *err)
{
    const uint8_t *at = NULL;
    struct fr_dense_view view;
    enum fr_status status = FR_OK;
    size_t before = out->n_dense;
    while (out->n_dense - before <= DENSE_MAX && (status = fr_epoch_next_dense(epoch, &at, &view)) == FR_OK) {
        out->views = fr_realloc(out->views, out->n_dense + 1, sizeof(*out->views));
        out->views[out->n_dense++] = view;
    }
    if (status != FR_EOF)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: a dense section does not parse, or there are over %d",
                          (unsigned long long)epoch->epoch, DENSE_MAX);
    return FR_OK;
}

struct named {
    const char *name;
    size_t index;
};

static int by_name(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    int name = strcmp(a->name, b->name);
    return name ? name : (a->index > b->index) - (a->index < b->index);
}

/* The parameters by name, of one that several epochs publish the newest. */
static void sort_dense(struct public_epoch *out)
{
    size_t n = out->n_dense;
    struct named *names = fr_alloc(n + 1, sizeof(*names));
    out->dense = fr_alloc(n + 1, sizeof(*out->dense));
    for (size_t i = 0; i < n; i++)
        names[i] = (struct named){out->views[i].name, i};
    if (n > 1)
        qsort(names, n, sizeof(*names), by_name);
    out->n_dense = 0;
    for (size_t i = 0; i < n; i++) {
        const struct fr_dense_view *view = &out->views[names[i].index];
        if (i + 1 < n && strcmp(names[i + 1].name, names[i].name) == 0)
            continue;
        out->dense[out->n_dense++] = (struct fr_delta_dense){.name = view->name,
                                                             .n_dims = view->n_dims,
                                                             .shape = {view->shape[0], view->shape[1]},
                                                             .n_values = view->n_values,
                                                             .values = view->values,
                                                             .exact = view->exact};
    }
    free(names);
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

void fr_export_announce_snapshot(const struct fr_announced_snapshot *snapshot, struct fr_delta_commit *commit)
{
    if (!snapshot->name[0])
        return;
    commit->snap.name = snapshot->name;
    commit->snap.bytes = snapshot->bytes;
    memcpy(commit->snap.sha256, snapshot->sha256.bytes, sizeof(commit->snap.sha256));
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
    fr_export_announce_snapshot(&announcement->snapshot, commit);
}

static enum fr_status take_epoch(const struct fr_epoch *epoch, struct public_epoch *out, bool *with_model,
                                 struct fr_err *err)
{
    fr_arena_reset(&out->arena);
    enum fr_status status = take_announcement(epoch, &out->arena, &out->announcement, err);
    if (status == FR_OK && out->announcement.publish_dense)
        status = take_dense(epoch, out, err);
    *with_model |= status == FR_OK && out->announcement.publish_model;
    return status;
}

enum fr_status fr_export_span(const struct fr_codec_settings *settings, const struct fr_export_span *span,
                              fr_delta_sink *sink, void *self, uint64_t *saturated, struct fr_err *err)
{
    FR_CHECK(span->n > 0);
    struct public_epoch *shown = fr_alloc(1, sizeof(*shown));
    const struct fr_delta_rewind to_nothing = {.to = 0, .snap = ""};
    const struct fr_epoch *first = &span->epochs[0], *last = &span->epochs[span->n - 1];
    /* a state without epochs was begun in a topic that has a history */
    bool begins_timeline = first->epoch == 1 && first->timeline > 1, with_model = false;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < span->n && status == FR_OK; i++)
        status = take_epoch(&span->epochs[i], shown, &with_model, err);
    struct fr_export_room own = {0}, *room = span->room ? span->room : &own;
    if (status == FR_OK)
        status = fr_export_rows(settings, span->epochs, span->n, room, err);
    if (status == FR_OK) {
        sort_dense(shown);
        struct fr_delta_epoch delta = {.timeline = last->timeline,
                                       .epoch = last->epoch,
                                       .from = first->epoch,
                                       .digest = fr_sha256_u64(&last->digest),
                                       .previous = first->epoch > 1 ? fr_sha256_u64(&first->previous) : 0,
                                       .with_model = with_model,
                                       .rewind = begins_timeline ? &to_nothing : span->rewind,
                                       .rows = room->rows,
                                       .n_rows = room->n_rows,
                                       .dense = shown->dense,
                                       .n_dense = shown->n_dense};
        fill_commit(shown, &delta.commit);
        status = fr_delta_write(settings, &delta, sink, self, saturated);
        if (status != FR_OK)
            fr_err_set(err, status, "epoch %llu cannot be written as delta records of at most %llu bytes: %s",
                       (unsigned long long)last->epoch, (unsigned long long)settings->piece_max,
                       fr_status_name(status));
    }
    fr_export_room_release(&own);
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
