/* From the journal bytes of one epoch, or of several that are merged, to delta records.
 *
 * Public are row images (their first value_floats), absences that have a reason (tombstones), dense
 * sections when the announcement says so, and the announcement itself. Pending images, silent
 * absences, optimizer state, counters, `seen` and every other section are private and left out.
 * Everything is taken from the epoch and from the head of its journal file, so a resend after years
 * is byte-identical. Data comes from a disk: what does not fit is FR_E_CORRUPT, never an assertion.
 *
 * Images come by hash and records go by key, so the order of rows on the topic does not reveal
 * the order of the state. Keys are spread evenly, so their first bits nearly decide the
 * position: one pass over the images counts the rows of every place, and a second pass puts them
 * there. Places are few, so that the processor can hold the line and the page that each is
 * written at, and small, so that the rows of a place stay in its core's cache while they are
 * sorted by the bits that follow. Rows that share these bits too are sorted by insertion. Keys
 * that were chosen on purpose may share many bits; such places are sorted by radix
 * (base/radix.h). A row's single value is copied to its place, so that the writer finds the
 * values of neighbours together. Wider rows stay where they are in the epoch and the writer
 * fetches them ahead; what copying them gained and lost is in tests/bench/README.md. The memory
 * is kept for the next epoch, because the system's clearing of fresh pages cost more than the
 * sorting. Every step keeps the order of equal keys, so of several epochs the newest image comes
 * last and stays.
 *
 * Thread: any, no state; a room belongs to one thread. The journal is read, and records are
 * sent, elsewhere. */
#include "exporter/delta.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/radix.h"

enum { DENSE_MAX = 4096, PIECE_BYTES_MAX = 64 << 20 };
enum { PLACE_ROWS = 256, PLACE_BITS_MAX = 9, FINE_BITS_MAX = 12, INSERTION_MAX = 32, IMAGES_AHEAD = 24 };
/* A place with more rows than this is sorted by radix at once. */
enum { FINE_ROWS_MAX = INSERTION_MAX << FINE_BITS_MAX };

struct public_epoch {
    struct fr_dense_view *views; /* own the names that dense points to */
    struct fr_delta_dense *dense;
    size_t n_dense;
    struct fr_announcement announcement;
    struct fr_arena arena; /* memory of the announcement's offsets */
    struct fr_export_announced lists;
};

static void release(struct public_epoch *shown)
{
    free(shown->views);
    free(shown->dense);
    free(shown->lists.offsets);
    fr_arena_release(&shown->arena);
}

/* Adds the parameters of the epoch, which are those that changed since they were last published. */
static enum fr_status read_dense(const struct fr_epoch *epoch, struct public_epoch *out, struct fr_err *err)
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

/* Sorts the parameters by name. If several epochs publish a parameter, the newest value stays. */
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
        out->dense[out->n_dense++] = fr_export_dense(view);
    }
    free(names);
}

static enum fr_status read_announcement(const struct fr_epoch *epoch, struct fr_arena *arena,
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

void fr_export_fill_commit(const struct fr_announcement *announcement, struct fr_export_announced *lists,
                           struct fr_delta_commit *commit)
{
    for (uint32_t i = 0; i < announcement->n_tasks; i++)
        lists->auc[i] = (struct fr_delta_auc){announcement->tasks[i].task, announcement->tasks[i].auc};
    lists->offsets = fr_alloc(announcement->n_offsets + 1u, sizeof(*lists->offsets));
    for (uint32_t i = 0; i < announcement->n_offsets; i++)
        lists->offsets[i] = (struct fr_delta_offset){announcement->offsets[i].topic, announcement->offsets[i].partition,
                                                     announcement->offsets[i].next_offset};
    *commit = (struct fr_delta_commit){.wm_ms = announcement->watermark_ms,
                                       .samples = announcement->samples,
                                       .t_ms = announcement->wall_ms,
                                       .n_auc = announcement->n_tasks,
                                       .auc = lists->auc,
                                       .n_offsets = announcement->n_offsets,
                                       .offsets = lists->offsets};
    const struct fr_announced_snapshot *snapshot = &announcement->snapshot;
    if (!snapshot->name[0])
        return;
    commit->snap.name = snapshot->name;
    commit->snap.bytes = snapshot->bytes;
    memcpy(commit->snap.sha256, snapshot->sha256.bytes, sizeof(commit->snap.sha256));
}

struct fr_delta_dense fr_export_dense(const struct fr_dense_view *view)
{
    return (struct fr_delta_dense){.name = view->name,
                                   .n_dims = view->n_dims,
                                   .shape = {view->shape[0], view->shape[1]},
                                   .n_values = view->n_values,
                                   .values = view->values,
                                   .exact = view->exact};
}

/* ---- rows in the order of records ---- */

static enum fr_status check_row(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                const struct fr_image *image, struct fr_err *err)
{
    uint32_t t = fr_subtable_table(image->table);
    if (t >= settings->n_tables)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: an image of table %u, but its journal file knows %u tables",
                          (unsigned long long)epoch->epoch, t, settings->n_tables);
    const struct fr_codec_table *table = &settings->tables[t];
    if (image->kind == FR_IMAGE_ROW && image->size < FR_ROW_IMAGE_HEAD + (size_t)table->value_floats * sizeof(float))
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: a row image of table %s has %u bytes, too few for %u values",
                          (unsigned long long)epoch->epoch, table->name, image->size, table->value_floats);
    return FR_OK;
}

/* Reads the next image that is public. Only heads are read, and each head says where the next one
 * is, so the processor cannot prefetch by itself: heads are fetched ahead as if all images had the
 * size of this one. */
static bool next_public(const struct fr_epoch *epoch, const uint8_t **at, struct fr_image *image)
{
    while (fr_epoch_next(epoch, at, image) == FR_OK) {
        __builtin_prefetch(*at + IMAGES_AHEAD * ((size_t)FR_IMAGE_HEAD + image->size));
        if (image->kind == FR_IMAGE_ROW || (image->kind == FR_IMAGE_ABSENT && image->reason != FR_ABSENT_SILENT))
            return true;
    }
    return false;
}

/* ---- memory of rows ---- */

static void make_places(const struct fr_codec_settings *settings, size_t n_images, struct fr_export_room *room)
{
    room->bits = 0;
    while (room->bits < PLACE_BITS_MAX && (size_t)settings->n_tables << (room->bits + 1) <= n_images / PLACE_ROWS)
        room->bits++;
    size_t n = (size_t)settings->n_tables << room->bits;
    if (room->capacity_places < n + 1) {
        free(room->places);
        room->capacity_places = n + 1;
        room->places = fr_realloc(NULL, room->capacity_places, sizeof(*room->places));
    }
    memset(room->places, 0, (n + 1) * sizeof(*room->places));
}

static void make_rows(struct fr_export_room *room, size_t n)
{
    if (room->capacity >= n)
        return;
    free(room->rows);
    free(room->singles);
    room->capacity = n + n / 4;
    room->rows = fr_realloc(NULL, room->capacity, sizeof(*room->rows));
    room->singles = fr_realloc(NULL, room->capacity, sizeof(*room->singles));
}

void fr_export_room_release(struct fr_export_room *room)
{
    if (!room)
        return;
    free(room->rows);
    free(room->singles);
    free(room->places);
    *room = (struct fr_export_room){0};
}

/* ---- places ---- */

static size_t place_of(const struct fr_export_room *room, uint32_t table, uint64_t key)
{
    return ((size_t)table << room->bits) + (room->bits ? key >> (64 - room->bits) : 0);
}

/* Counts the rows of each place, in the element of the place after it. */
static enum fr_status count_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                 struct fr_export_room *room, struct fr_err *err)
{
    const uint8_t *at = NULL;
    struct fr_image image;
    while (next_public(epoch, &at, &image)) {
        enum fr_status status = check_row(settings, epoch, &image, err);
        if (status != FR_OK)
            return status;
        room->places[place_of(room, fr_subtable_table(image.table), image.key) + 1]++;
    }
    return FR_OK;
}

/* Turns n counts into the positions where places begin. Returns the largest count. */
static uint32_t sum_up(uint32_t *counts, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = counts[i + 1] > largest ? counts[i + 1] : largest;
        counts[i + 1] += counts[i];
    }
    return largest;
}

/* Puts each row into its place; room->places then holds where each place ends. */
static void put_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                     struct fr_export_room *room)
{
    const uint8_t *at = NULL;
    struct fr_image image;
    while (next_public(epoch, &at, &image)) {
        uint32_t table = fr_subtable_table(image.table);
        size_t index = room->places[place_of(room, table, image.key)]++;
        const void *values = image.kind == FR_IMAGE_ROW ? image.bytes + FR_ROW_IMAGE_HEAD : NULL;
        if (values && settings->tables[table].value_floats == 1)
            values = memcpy(&room->singles[index], values, sizeof(float));
        room->rows[index] =
            (struct fr_delta_row){.key = image.key, .table = table, .why = image.reason, .values = values};
    }
}

/* ---- within a place ---- */

static void sort_few(struct fr_delta_row *rows, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct fr_delta_row moving = rows[i];
        size_t j = i;
        for (; j > 0 && moving.key < rows[j - 1].key; j--)
            rows[j] = rows[j - 1];
        rows[j] = moving;
    }
}

static void sort_many(struct fr_delta_row *rows, size_t n)
{
    FR_CHECK(n <= UINT32_MAX);
    struct fr_radix_item *items = fr_alloc(n, sizeof(*items)), *spare = fr_alloc(n, sizeof(*spare));
    struct fr_delta_row *copy = fr_alloc(n, sizeof(*copy));
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct fr_radix_item){.value = rows[i].key, .index = i};
    fr_radix_sort_items(items, spare, (uint32_t)n);
    memcpy(copy, rows, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        rows[i] = copy[items[i].index];
    free(items);
    free(spare);
    free(copy);
}

/* Sorts a place by the bits of the keys that follow those of the place; on average each row has its
 * own value of these bits. */
static void sort_place(const struct fr_export_room *room, struct fr_delta_row *rows, size_t n)
{
    struct fr_delta_row *from = room->rows + room->n_rows;
    uint32_t begins[(1 << FINE_BITS_MAX) + 1] = {0};
    unsigned bits = 1;
    while (bits < FINE_BITS_MAX && (size_t)1 << bits < n)
        bits++;
    for (size_t i = 0; i < n; i++)
        begins[(rows[i].key << room->bits >> (64 - bits)) + 1]++;
    if (sum_up(begins, (size_t)1 << bits) > INSERTION_MAX) {
        sort_many(rows, n);
        return;
    }
    memcpy(from, rows, n * sizeof(*from));
    for (size_t i = 0; i < n; i++)
        rows[begins[from[i].key << room->bits >> (64 - bits)]++] = from[i];
    sort_few(rows, n);
}

/* Keeps the last row of each key. Returns how many rows are kept. */
static size_t keep_newest(struct fr_delta_row *rows, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && rows[kept - 1].key == rows[i].key && rows[kept - 1].table == rows[i].table)
            kept--;
        rows[kept++] = rows[i];
    }
    return kept;
}

/* Writes room->rows[0 .. room->n_rows): the public rows and tombstones of the n epochs by (table,
 * key), each key once with what the newest epoch has of it. Values stay in the epochs.
 * FR_E_CORRUPT: an image does not fit the settings. */
static enum fr_status sort_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epochs, size_t n,
                                struct fr_export_room *room, struct fr_err *err)
{
    size_t n_images = 0, begin = 0;
    for (size_t e = 0; e < n; e++)
        n_images += epochs[e].n_images;
    FR_CHECK(n_images <= UINT32_MAX);
    make_places(settings, n_images, room);
    enum fr_status status = FR_OK;
    for (size_t e = 0; e < n && status == FR_OK; e++)
        status = count_rows(settings, &epochs[e], room, err);
    if (status != FR_OK)
        return status;
    size_t n_places = (size_t)settings->n_tables << room->bits, fullest = sum_up(room->places, n_places);
    room->n_rows = room->places[n_places];
    make_rows(room, room->n_rows + (fullest < FINE_ROWS_MAX ? fullest : FINE_ROWS_MAX));
    for (size_t e = 0; e < n; e++)
        put_rows(settings, &epochs[e], room);
    for (size_t p = 0; p < n_places; p++) {
        size_t end = room->places[p];
        if (end - begin > 1)
            sort_place(room, room->rows + begin, end - begin);
        begin = end;
    }
    if (n > 1)
        room->n_rows = keep_newest(room->rows, room->n_rows);
    return FR_OK;
}

/* ---- epochs ---- */

static enum fr_status read_epoch(const struct fr_epoch *epoch, struct public_epoch *out, bool *with_model,
                                 struct fr_err *err)
{
    fr_arena_reset(&out->arena);
    enum fr_status status = read_announcement(epoch, &out->arena, &out->announcement, err);
    if (status == FR_OK && out->announcement.publish_dense)
        status = read_dense(epoch, out, err);
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
    /* A timeline above 1 that begins with epoch 1 is of a new state, on a topic with a history. */
    bool begins_timeline = first->epoch == 1 && first->timeline > 1, with_model = false;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < span->n && status == FR_OK; i++)
        status = read_epoch(&span->epochs[i], shown, &with_model, err);
    struct fr_export_room own = {0}, *room = span->room ? span->room : &own;
    if (status == FR_OK)
        status = sort_rows(settings, span->epochs, span->n, room, err);
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
        fr_export_fill_commit(&shown->announcement, &shown->lists, &delta.commit);
        status = fr_delta_write(settings, &delta, sink, self, saturated);
        if (span->wall_ms)
            *span->wall_ms = shown->announcement.wall_ms;
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
