/* Reads of the folded state for a caller that keeps only some rows in memory: point reads and
 * ranges of hashes.
 *
 * Invariants: `folded` changes after the ingest, so a caller that has seen an epoch as folded can
 * read it. An error of the cold store is final, as everywhere (P6); an error of the reader is
 * returned and leaves the object alive.
 *
 * Thread: any, several at once. What is in memory or in unfolded epochs is not known here. */
#include "durable_internal.h"

#include <stdlib.h>

#include "base/check.h"

struct scan {
    const struct fr_durable_reader *reader;
    const struct fr_order *order;
    size_t index;
    enum fr_status refused; /* the error that the reader returned */
};

static enum fr_status visit_fetched(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    struct scan *scan = self;
    scan->refused = scan->reader->image(scan->reader->self, index, hash, image);
    return scan->refused;
}

static enum fr_status visit_scanned(void *self, const struct fr_image *image, uint64_t done_bytes)
{
    (void)done_bytes;
    struct scan *scan = self;
    return visit_fetched(scan, scan->index++, fr_order_hash(scan->order, image->key), image);
}

/* Returns the reader's error if there is one; otherwise the error is the cold store's, which kills
 * the object. */
static enum fr_status read_status(struct fr_durable *durable, const struct scan *scan, enum fr_status status,
                                  struct fr_err *err)
{
    if (status == FR_OK)
        return FR_OK;
    if (scan->refused != FR_OK)
        return fr_err_set(err, scan->refused, "reading %s: an image was refused (%s)", durable->dir,
                          fr_status_name(scan->refused));
    return durable->read_only ? status : fr_durable_die(durable, status, err);
}

enum fr_status fr_durable_fetch(struct fr_durable *durable, uint32_t table, const uint64_t *hashes, size_t n,
                                const struct fr_durable_reader *reader, struct fr_err *err)
{
    FR_CHECK(table <= FR_IMAGE_TABLE_MAX);
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK)
        return status;
    struct scan scan = {.reader = reader};
    if (!durable->cold) {
        for (size_t i = 0; i < n && status == FR_OK; i++)
            status = visit_fetched(&scan, i, hashes[i], NULL);
        return read_status(durable, &scan, status, err);
    }
    struct fr_cold_keys keys = {table, hashes, n};
    status = fr_cold_fetch(durable->cold, &keys, visit_fetched, &scan, err);
    return read_status(durable, &scan, status, err);
}

enum fr_status fr_durable_scan(struct fr_durable *durable, uint32_t table, uint64_t first, uint64_t last,
                               const struct fr_durable_reader *reader, struct fr_err *err)
{
    FR_CHECK(table <= FR_IMAGE_TABLE_MAX);
    FR_CHECK(first <= last);
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK || !durable->cold)
        return status;
    struct fr_cold_range range = {table, first, last, NULL};
    struct scan scan = {.reader = reader, .order = &durable->order};
    status = fr_cold_walk(durable->cold, &range, visit_scanned, &scan, err);
    return read_status(durable, &scan, status, err);
}

uint64_t fr_durable_folded(struct fr_durable *durable)
{
    return atomic_load_explicit(&durable->folded, memory_order_acquire);
}

void fr_durable_get_end(struct fr_durable *durable, uint64_t *timeline, uint64_t *epoch)
{
    pthread_mutex_lock(&durable->index);
    *timeline = durable->timeline;
    *epoch = durable->epoch;
    pthread_mutex_unlock(&durable->index);
}

uint64_t fr_durable_span(struct fr_durable *durable, uint64_t first, uint64_t last, uint64_t window, uint64_t *end)
{
    uint64_t bytes = 0, fits = first;
    pthread_mutex_lock(&durable->index);
    for (size_t f = 0; f < durable->journal.n_files; f++) {
        const struct fr_journal_file *file = durable->journal.files[f];
        for (size_t i = first > file->first ? (size_t)(first - file->first) : 0; i < file->n_epochs; i++) {
            if (file->first + i > last)
                break;
            bytes += file->epochs[i].size;
            if (bytes <= window)
                fits = file->first + i;
        }
    }
    pthread_mutex_unlock(&durable->index);
    if (end)
        *end = fits;
    return bytes;
}

/* ---- as of one epoch ---- */

struct fr_durable_view {
    struct fr_durable *durable;
    struct fr_cold_snapshot *at;
};

enum fr_status fr_durable_view_open(struct fr_durable *durable, struct fr_durable_view **out,
                                    struct fr_durable_folded_epoch *epoch, struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK)
        return status;
    if (!durable->cold)
        return fr_err_set(err, FR_E_NOT_FOUND, "nothing of %s is folded yet", durable->dir);
    struct fr_cold_snapshot *at = fr_cold_snapshot_new(durable->cold);
    struct fr_cold_sentinel sentinel = {0};
    status = fr_cold_read_sentinel(durable->cold, at, &sentinel, err);
    if (status == FR_OK && sentinel.epoch == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "nothing of %s is folded yet", durable->dir);
    if (status != FR_OK) {
        fr_cold_snapshot_free(durable->cold, at);
        return status;
    }
    struct fr_durable_view *view = fr_alloc(1, sizeof(*view));
    *view = (struct fr_durable_view){durable, at};
    struct fr_durable_status now;
    fr_durable_get_status(durable, &now);
    *epoch = (struct fr_durable_folded_epoch){now.timeline, sentinel.epoch, sentinel.digest};
    *out = view;
    return FR_OK;
}

void fr_durable_view_close(struct fr_durable_view *view)
{
    if (!view)
        return;
    fr_cold_snapshot_free(view->durable->cold, view->at);
    free(view);
}

enum fr_status fr_durable_view_next_table(struct fr_durable_view *view, uint32_t from, uint32_t *out,
                                          struct fr_err *err)
{
    enum fr_status status = fr_durable_check(view->durable, false, err);
    return status == FR_OK ? fr_cold_next_table(view->durable->cold, from, view->at, out, err) : status;
}

enum fr_status fr_durable_view_scan(struct fr_durable_view *view, uint32_t table, uint64_t first,
                                    const struct fr_durable_reader *reader, struct fr_err *err)
{
    struct fr_durable *durable = view->durable;
    FR_CHECK(table <= FR_IMAGE_TABLE_MAX);
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK)
        return status;
    struct fr_cold_range range = {table, first, UINT64_MAX, view->at};
    struct scan scan = {.reader = reader, .order = &durable->order};
    status = fr_cold_walk(durable->cold, &range, visit_scanned, &scan, err);
    return scan.refused == FR_EOF ? FR_EOF : read_status(durable, &scan, status, err);
}

enum fr_status fr_durable_view_sections(struct fr_durable_view *view, fr_durable_section_visit *visit, void *self,
                                        struct fr_err *err)
{
    enum fr_status status = fr_durable_check(view->durable, false, err);
    return status == FR_OK ? fr_cold_walk_sections(view->durable->cold, view->at, visit, self, err) : status;
}
