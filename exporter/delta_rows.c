/* Rows of epochs in the order of delta records.
 *
 * An epoch's images come by hash, records go by key. Keys are spread evenly, so their first bits
 * say nearly where each belongs: one pass over the images counts the rows of every place, a second
 * one puts them there, and what shares a place is finished by insertion. Keys that somebody chose
 * may fill one place; these are sorted by radix (base/radix.h). Beside the rows this takes half a
 * byte a row, and the memory is kept from epoch to epoch: to clear fresh pages cost more than the
 * sorting (`freshet bench epochs`). Every step keeps the order of equal keys, so of several epochs
 * the newest image comes last and stays.
 *
 * Thread: any; a room belongs to one. It does not look at values. */
#include "delta_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/radix.h"

enum { PLACE_ROWS = 8, PLACES_MAX = 1 << 17, INSERTION_MAX = 32, IMAGES_AHEAD = 24, ROWS_AHEAD = 16 };

struct places {
    unsigned bits; /* of a key; a table has so many places */
    uint32_t *begins;
};

static size_t place_of(const struct places *places, uint32_t table, uint64_t key)
{
    return ((size_t)table << places->bits) + (places->bits ? key >> (64 - places->bits) : 0);
}

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

static void make_room(struct fr_export_room *room, size_t n, size_t n_places)
{
    if (room->capacity < n) {
        free(room->rows);
        room->capacity = n + n / 4;
        room->rows = fr_realloc(NULL, room->capacity, sizeof(*room->rows));
    }
    if (room->capacity_places < n_places + 1) {
        free(room->places);
        room->capacity_places = n_places + 1;
        room->places = fr_realloc(NULL, room->capacity_places, sizeof(*room->places));
    }
    memset(room->places, 0, (n_places + 1) * sizeof(*room->places));
}

void fr_export_room_release(struct fr_export_room *room)
{
    if (!room)
        return;
    free(room->rows);
    free(room->places);
    *room = (struct fr_export_room){0};
}

static struct places make_places(const struct fr_codec_settings *settings, size_t n_images, struct fr_export_room *room)
{
    size_t most = n_images / PLACE_ROWS < PLACES_MAX ? n_images / PLACE_ROWS : PLACES_MAX;
    unsigned bits = 0;
    while ((size_t)settings->n_tables << (bits + 1) <= most && settings->n_tables > 0)
        bits++;
    make_room(room, n_images, (size_t)settings->n_tables << bits);
    return (struct places){bits, room->places};
}

/* ---- places ---- */

/* Counts the rows of each place where the next one begins. */
static enum fr_status count_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                 const struct places *places, struct fr_err *err)
{
    const uint8_t *at = NULL;
    struct fr_image image;
    while (next_public(epoch, &at, &image)) {
        enum fr_status status = check_row(settings, epoch, &image, err);
        if (status != FR_OK)
            return status;
        places->begins[place_of(places, image.table, image.key) + 1]++;
    }
    return FR_OK;
}

static void put_row(const struct places *places, const struct fr_delta_row *row, struct fr_delta_row *rows)
{
    rows[places->begins[place_of(places, row->table, row->key)]++] = *row;
}

/* Every begin moves to its place's end. Places lie anywhere: a row waits until its own is there. */
static void put_rows(const struct fr_epoch *epoch, const struct places *places, struct fr_delta_row *rows)
{
    struct fr_delta_row waiting[ROWS_AHEAD];
    const uint8_t *at = NULL;
    struct fr_image image;
    size_t n = 0;
    for (; next_public(epoch, &at, &image); n++) {
        struct fr_delta_row *row = &waiting[n % ROWS_AHEAD];
        if (n >= ROWS_AHEAD)
            put_row(places, row, rows);
        bool is_row = image.kind == FR_IMAGE_ROW;
        *row = (struct fr_delta_row){.key = image.key,
                                     .table = image.table,
                                     .why = image.reason,
                                     .values = is_row ? (const void *)(image.bytes + FR_ROW_IMAGE_HEAD) : NULL};
        __builtin_prefetch(&rows[places->begins[place_of(places, row->table, row->key)]], 1);
    }
    for (size_t i = n > ROWS_AHEAD ? n - ROWS_AHEAD : 0; i < n; i++)
        put_row(places, &waiting[i % ROWS_AHEAD], rows);
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
        items[i] = (struct fr_radix_item){.low = rows[i].key, .index = i};
    const struct fr_radix_item *order = fr_radix_sort(items, spare, (uint32_t)n);
    memcpy(copy, rows, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        rows[i] = copy[order[i].index];
    free(items);
    free(spare);
    free(copy);
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
    size_t n_images = 0;
    for (size_t e = 0; e < n; e++)
        n_images += epochs[e].n_images;
    FR_CHECK(n_images <= UINT32_MAX);
    struct places places = make_places(settings, n_images, room);
    enum fr_status status = FR_OK;
    for (size_t e = 0; e < n && status == FR_OK; e++)
        status = count_rows(settings, &epochs[e], &places, err);
    if (status != FR_OK)
        return status;
    size_t n_places = (size_t)settings->n_tables << places.bits, begin = 0;
    for (size_t p = 0; p < n_places; p++)
        places.begins[p + 1] += places.begins[p];
    for (size_t e = 0; e < n; e++)
        put_rows(&epochs[e], &places, room->rows);
    for (size_t p = 0; p < n_places; p++) {
        size_t end = places.begins[p];
        if (end - begin <= INSERTION_MAX)
            sort_few(room->rows + begin, end - begin);
        else
            sort_many(room->rows + begin, end - begin);
        begin = end;
    }
    room->n_rows = n > 1 ? keep_newest(room->rows, begin) : begin;
    return FR_OK;
}
