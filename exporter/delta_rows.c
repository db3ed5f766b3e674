/* Rows of epochs in the order of delta records.
 *
 * An epoch's images come by hash, records go by key. Keys are spread evenly, so their first bits
 * say nearly where each belongs: one pass over the images counts the rows of every place, and a
 * second one puts them there. Places are few, so that the processor can hold the line and the page
 * that each is written at, and small, so that a place's rows stay in its core's cache while they
 * are put in order by the bits that follow; what shares these, too, is finished by insertion. Keys
 * that somebody chose may share many bits; such places are sorted by radix (base/radix.h).
 *
 * A row's single value is copied to its place, so that the writer finds those of neighbours
 * together. Wider rows stay where they are in the epoch and the writer fetches them ahead; what
 * copies of them gained and lost is in tests/bench/README.md.
 *
 * The memory is kept from epoch to epoch, since clearing fresh pages cost more than the sorting.
 * Every step keeps the order of equal keys, so of several epochs the newest image comes last and
 * stays.
 *
 * Thread: any; a room belongs to one. */
#include "delta_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/radix.h"

enum { PLACE_ROWS = 256, PLACE_BITS_MAX = 9, FINE_BITS_MAX = 12, INSERTION_MAX = 32, IMAGES_AHEAD = 24 };
/* Of more rows than this, some must share more bits than insertion is good for. */
enum { FINE_ROWS_MAX = INSERTION_MAX << FINE_BITS_MAX };

static enum fr_status check_row(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                const struct fr_image *image, struct fr_err *err)
{
    if (image->table >= settings->n_tables)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: an image of table %u, but its journal file knows %u tables",
                          (unsigned long long)epoch->epoch, image->table, settings->n_tables);
    const struct fr_codec_table *table = &settings->tables[image->table];
    if (image->kind == FR_IMAGE_ROW && image->size < FR_ROW_IMAGE_HEAD + (size_t)table->value_floats * sizeof(float))
        return fr_err_set(err, FR_E_CORRUPT, "epoch %llu: a row image of table %s has %u bytes, too few for %u values",
                          (unsigned long long)epoch->epoch, table->name, image->size, table->value_floats);
    return FR_OK;
}

/* The next image that is public. Only heads are read and each says where the next one is, so the
 * processor does not see what will be wanted: heads are fetched ahead as if all images had the size
 * of this one. */
static bool next_public(const struct fr_epoch *epoch, const uint8_t **at, struct fr_image *image)
{
    while (fr_epoch_next(epoch, at, image) == FR_OK) {
        __builtin_prefetch(*at + IMAGES_AHEAD * ((size_t)FR_IMAGE_HEAD + image->size));
        if (image->kind == FR_IMAGE_ROW || (image->kind == FR_IMAGE_ABSENT && image->reason != FR_ABSENT_SILENT))
            return true;
    }
    return false;
}

/* ---- memory ---- */

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

/* Counts the rows of each place where the next one begins. */
static enum fr_status count_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                 struct fr_export_room *room, struct fr_err *err)
{
    const uint8_t *at = NULL;
    struct fr_image image;
    while (next_public(epoch, &at, &image)) {
        enum fr_status status = check_row(settings, epoch, &image, err);
        if (status != FR_OK)
            return status;
        room->places[place_of(room, image.table, image.key) + 1]++;
    }
    return FR_OK;
}

/* Makes begins of n counts, and returns the largest of these. */
static uint32_t sum_up(uint32_t *counts, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = counts[i + 1] > largest ? counts[i + 1] : largest;
        counts[i + 1] += counts[i];
    }
    return largest;
}

/* Every begin moves to its place's end. */
static void put_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                     struct fr_export_room *room)
{
    const uint8_t *at = NULL;
    struct fr_image image;
    while (next_public(epoch, &at, &image)) {
        size_t index = room->places[place_of(room, image.table, image.key)]++;
        const void *values = image.kind == FR_IMAGE_ROW ? image.bytes + FR_ROW_IMAGE_HEAD : NULL;
        if (values && settings->tables[image.table].value_floats == 1)
            values = memcpy(&room->singles[index], values, sizeof(float));
        room->rows[index] =
            (struct fr_delta_row){.key = image.key, .table = image.table, .why = image.reason, .values = values};
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

/* By the bits behind those of the place, of which each row has its own on average. */
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

/* Of each key the last. */
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

enum fr_status fr_export_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epochs, size_t n,
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
