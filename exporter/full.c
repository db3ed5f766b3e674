/* Makes the delta records of one merged epoch from the folded state (full.h).
 *
 * The cold store is walked by (table, domain, hash) as of one epoch. FR_FULL_CHUNK bytes of public
 * values at a time are copied, sorted by key and given to the codec, which continues to count
 * pieces and rows. The dense parameters and the commit, with the newest announcement, follow.
 * Pending keys, counters and optimizer state are private. There are no tombstones, because a key
 * that is not in the whole state is gone.
 *
 * Thread: one owner. Nothing is sent here. */
#include "exporter/full.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/radix.h"
#include "exporter/delta.h"

enum phase { PHASE_MODEL, PHASE_ROWS, PHASE_DENSE, PHASE_COMMIT };

struct fr_export_full {
    struct fr_durable_view *view;
    struct fr_durable_folded_epoch epoch;
    struct fr_codec_settings settings;
    struct fr_delta_stream *stream;
    enum phase phase;
    bool rewinds;
    /* [n_subtables] those with images, by table, then domain, so that the rows of a table come
     * together */
    uint32_t *subtables;
    size_t n_subtables, next_subtable;
    uint64_t next_hash;
    bool table_ended;
    /* the values of a chunk */
    struct fr_buffer values;
    uint64_t *keys;
    size_t n, capacity;
    /* memory of the newest announcement */
    struct fr_arena arena;
    struct fr_announcement *announcement;
    struct fr_export_announced lists;
    struct fr_delta_commit commit;
};

/* ---- open ---- */

static enum fr_status keep_announcement(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_export_full *full = self;
    if (strcmp(name, "announce") != 0)
        return FR_OK;
    enum fr_status status = fr_announcement_parse(bytes, size, &full->arena, full->announcement);
    return status == FR_OK ? FR_EOF : status;
}

static const struct fr_delta_rewind to_nothing = {.to = 0, .snap = ""};

static struct fr_delta_epoch head_of(const struct fr_export_full *full)
{
    return (struct fr_delta_epoch){.timeline = full->epoch.timeline,
                                   .epoch = full->epoch.epoch,
                                   .from = 1,
                                   .rewind = full->rewinds ? &to_nothing : NULL,
                                   .digest = fr_sha256_u64(&full->epoch.digest)};
}

static enum fr_status discard(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    (void)self;
    (void)partition;
    (void)piece;
    (void)bytes;
    (void)size;
    return FR_OK;
}

/* Writes what must fit one record, and discards it: the model, a row of each table, a commit. */
static enum fr_status try_settings(struct fr_export_full *full)
{
    struct fr_delta_epoch head = head_of(full);
    struct fr_delta_stream *stream = fr_delta_stream_new(&full->settings, &head, discard, NULL);
    enum fr_status status = fr_delta_stream_model(stream);
    for (uint32_t t = 0; t < full->settings.n_tables && status == FR_OK; t++) {
        float *values = fr_alloc(full->settings.tables[t].value_floats + 1u, sizeof(*values));
        struct fr_delta_row row = {.key = UINT64_MAX, .table = t, .values = values};
        status = fr_delta_stream_rows(stream, &row, 1);
        free(values);
    }
    if (status == FR_OK)
        status = fr_delta_stream_commit(stream, &full->commit);
    fr_delta_stream_free(stream);
    return status;
}

static int compare_subtables(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (fr_subtable_table(a) != fr_subtable_table(b))
        return fr_subtable_table(a) < fr_subtable_table(b) ? -1 : 1;
    return (a > b) - (a < b);
}

static enum fr_status find_subtables(struct fr_export_full *full, struct fr_err *err)
{
    uint32_t number = 0;
    enum fr_status status;
    while ((status = fr_durable_view_next_table(full->view, number, &number, err)) == FR_OK &&
           number < FR_BLOCK_TABLES) {
        if (fr_subtable_table(number) >= full->settings.n_tables)
            return fr_err_set(err, FR_E_CORRUPT,
                              "the cold store of epoch %" PRIu64 " has rows of table %" PRIu32
                              ", but its journal file knows %" PRIu32 " tables",
                              full->epoch.epoch, fr_subtable_table(number), full->settings.n_tables);
        full->subtables = fr_realloc(full->subtables, full->n_subtables + 1, sizeof(*full->subtables));
        full->subtables[full->n_subtables++] = number++;
    }
    if (full->n_subtables > 1)
        qsort(full->subtables, full->n_subtables, sizeof(*full->subtables), compare_subtables);
    return status == FR_EOF ? FR_OK : status;
}

static enum fr_status prepare(struct fr_export_full *full, const struct fr_buffer *head,
                              const enum fr_codec_quantize *quantize, struct fr_err *err)
{
    enum fr_status status = fr_codec_settings_parse(head->data, head->size, &full->settings);
    if (status != FR_OK)
        return fr_err_set(err, status, "the head of the newest journal file does not parse");
    if (quantize)
        full->settings.quantize = *quantize;
    status = find_subtables(full, err);
    if (status == FR_OK)
        status = fr_durable_view_sections(full->view, keep_announcement, full, err);
    if (status != FR_EOF)
        return status != FR_OK
                   ? status
                   : fr_err_set(err, FR_E_CORRUPT, "the cold store of epoch %" PRIu64 " has no announcement",
                                full->epoch.epoch);
    fr_export_fill_commit(full->announcement, &full->lists, &full->commit);
    status = try_settings(full);
    while (status == FR_E_LIMIT && fr_export_widen(&full->settings))
        status = try_settings(full);
    return status == FR_OK
               ? FR_OK
               : fr_err_set(err, status, "the state of epoch %" PRIu64 " cannot be written as delta records",
                            full->epoch.epoch);
}

enum fr_status fr_export_full_open(struct fr_durable *durable, const enum fr_codec_quantize *quantize,
                                   struct fr_export_full **out, struct fr_err *err)
{
    struct fr_durable_status now;
    struct fr_buffer head = {0};
    struct fr_export_full *full = fr_alloc(1, sizeof(*full));
    full->announcement = fr_alloc(1, sizeof(*full->announcement));
    full->arena.block_size = 4096;
    fr_durable_get_status(durable, &now);
    enum fr_status status = fr_durable_head_after(durable, now.folded, &head, err);
    if (status == FR_OK)
        status = fr_durable_view_open(durable, &full->view, &full->epoch, err);
    if (status == FR_OK)
        status = full->epoch.epoch == now.folded ? prepare(full, &head, quantize, err) : FR_AGAIN;
    fr_buffer_release(&head);
    if (status != FR_OK) {
        fr_export_full_close(full);
        return status;
    }
    fr_export_full_rewind(full);
    *out = full;
    return FR_OK;
}

void fr_export_full_close(struct fr_export_full *full)
{
    if (!full)
        return;
    fr_delta_stream_free(full->stream);
    fr_durable_view_close(full->view);
    fr_codec_settings_release(&full->settings);
    fr_buffer_release(&full->values);
    fr_arena_release(&full->arena);
    free(full->announcement);
    free(full->lists.offsets);
    free(full->keys);
    free(full->subtables);
    free(full);
}

const struct fr_codec_settings *fr_export_full_settings(const struct fr_export_full *full)
{
    return &full->settings;
}

struct fr_durable_folded_epoch fr_export_full_epoch(const struct fr_export_full *full)
{
    return full->epoch;
}

void fr_export_full_begin_timeline(struct fr_export_full *full)
{
    full->rewinds = full->epoch.timeline > 1;
    fr_export_full_rewind(full);
}

const struct fr_delta_commit *fr_export_full_commit(const struct fr_export_full *full)
{
    return &full->commit;
}

void fr_export_full_rewind(struct fr_export_full *full)
{
    struct fr_delta_epoch head = head_of(full);
    fr_delta_stream_free(full->stream);
    full->stream = fr_delta_stream_new(&full->settings, &head, discard, NULL);
    full->phase = PHASE_MODEL;
    full->next_subtable = 0;
    full->next_hash = 0;
    full->table_ended = false;
}

/* ---- rows ---- */

static enum fr_status keep_row(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index;
    struct fr_export_full *full = self;
    if (image->table != full->subtables[full->next_subtable])
        return FR_E_CORRUPT;
    size_t width = full->settings.tables[fr_subtable_table(image->table)].value_floats * sizeof(float);
    full->table_ended = hash == UINT64_MAX;
    full->next_hash = hash + 1;
    if (image->kind != FR_IMAGE_ROW)
        return full->table_ended ? FR_EOF : FR_OK;
    if (image->size < FR_ROW_IMAGE_HEAD + width)
        return FR_E_CORRUPT;
    if (full->n == full->capacity) {
        full->capacity = full->capacity ? full->capacity * 2 : 1024;
        full->keys = fr_realloc(full->keys, full->capacity, sizeof(*full->keys));
    }
    full->keys[full->n++] = image->key;
    fr_buffer_append(&full->values, image->bytes + FR_ROW_IMAGE_HEAD, width);
    return full->values.size + full->n * sizeof(uint64_t) >= FR_FULL_CHUNK ? FR_EOF : FR_OK;
}

/* Writes the chunk in the order of its keys. */
static enum fr_status write_chunk(struct fr_export_full *full)
{
    uint32_t table = fr_subtable_table(full->subtables[full->next_subtable]);
    size_t n = full->n, width = full->settings.tables[table].value_floats * sizeof(float);
    FR_CHECK(n <= UINT32_MAX);
    struct fr_radix_item *items = fr_alloc(n + 1, sizeof(*items)), *spare = fr_alloc(n + 1, sizeof(*spare));
    struct fr_delta_row *rows = fr_alloc(n + 1, sizeof(*rows));
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct fr_radix_item){full->keys[i], i};
    fr_radix_sort_items(items, spare, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct fr_delta_row){.key = items[i].value,
                                        .table = table,
                                        .values = (const void *)(full->values.data + items[i].index * width)};
    enum fr_status status = fr_delta_stream_rows(full->stream, rows, n);
    free(items);
    free(spare);
    free(rows);
    return status;
}

static enum fr_status next_rows(struct fr_export_full *full, struct fr_err *err)
{
    if (full->next_subtable == full->n_subtables) {
        full->phase = PHASE_DENSE;
        return FR_OK;
    }
    const struct fr_durable_reader reader = {full, keep_row};
    full->n = 0;
    fr_buffer_clear(&full->values);
    enum fr_status status =
        fr_durable_view_scan(full->view, full->subtables[full->next_subtable], full->next_hash, &reader, err);
    if (status != FR_OK && status != FR_EOF)
        return status;
    bool ended = status == FR_OK || full->table_ended;
    status = write_chunk(full);
    if (ended) {
        full->next_subtable += 1;
        full->next_hash = 0;
        full->table_ended = false;
    }
    return status;
}

/* ---- dense parameters ---- */

static enum fr_status write_parameter(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_export_full *full = self;
    struct fr_dense_view view;
    if (!fr_is_dense_section(name))
        return FR_OK;
    enum fr_status status = fr_dense_parse(name, bytes, size, &view);
    if (status != FR_OK)
        return status;
    const struct fr_delta_dense dense = fr_export_dense(&view);
    return fr_delta_stream_dense(full->stream, &dense);
}

enum fr_status fr_export_full_next(struct fr_export_full *full, fr_delta_sink *sink, void *self, uint64_t *saturated,
                                   struct fr_err *err)
{
    enum fr_status status = FR_OK;
    fr_delta_stream_to(full->stream, sink, self, saturated);
    switch (full->phase) {
    case PHASE_MODEL:
        status = fr_delta_stream_model(full->stream);
        full->phase = PHASE_ROWS;
        break;
    case PHASE_ROWS:
        status = next_rows(full, err);
        break;
    case PHASE_DENSE:
        status = fr_durable_view_sections(full->view, write_parameter, full, err);
        full->phase = PHASE_COMMIT;
        break;
    case PHASE_COMMIT:
        status = fr_delta_stream_commit(full->stream, &full->commit);
        status = status == FR_OK ? FR_EOF : status;
        break;
    }
    if (status != FR_OK && status != FR_EOF && err && err->text[0] == '\0')
        return fr_err_set(err, status, "the state of epoch %" PRIu64 " cannot be written as delta records (%s)",
                          full->epoch.epoch, fr_status_name(status));
    return status;
}
