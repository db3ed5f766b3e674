/* See scan.h. */
#include "scan.h"
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    IMAGES_MIN = 256,
    /* a slice that is a larger part of the table would keep too many entries in memory */
    AHEAD_BITS_MIN = 3,
};

static bool needs_values(const struct fr_table *table)
{
    for (uint32_t i = 0; i < table->spec.n_expiries; i++)
        if (table->spec.expiries[i].needs_values)
            return true;
    return false;
}

void fr_scan_close(struct fr_table *table)
{
    for (uint32_t s = 0; table->scan && s < FR_SHARDS; s++) {
        free(table->scan->parts[s].images);
        free(table->scan->parts[s].values);
    }
    free(table->scan);
    table->scan = NULL;
}

uint64_t fr_scan_bytes(const struct fr_table *table)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; table->scan && s < FR_SHARDS; s++) {
        const struct fr_scan_part *part = &table->scan->parts[s];
        bytes += part->capacity * sizeof(*part->images);
        bytes += part->values ? part->capacity * table->spec.layout.value_floats * sizeof(float) : 0;
    }
    return bytes;
}

/* ---- reading ---- */

struct reading {
    const struct fr_table *table;
    struct fr_scan_part *part;
    bool values;
};

static void make_room(const struct reading *reading)
{
    struct fr_scan_part *part = reading->part;
    part->capacity = part->capacity ? 2 * part->capacity : IMAGES_MIN;
    part->images = fr_realloc(part->images, part->capacity, sizeof(*part->images));
    if (reading->values)
        part->values =
            fr_realloc(part->values, part->capacity * reading->table->spec.layout.value_floats, sizeof(*part->values));
}

static enum fr_status take_image(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index;
    const struct reading *reading = self;
    struct fr_scan_part *part = reading->part;
    int64_t seen_ms;
    uint32_t count;
    if (!fr_tier_fits(reading->table, image))
        return FR_E_CORRUPT;
    if (part->n == part->capacity)
        make_room(reading);
    struct fr_scan_image *to = &part->images[part->n];
    *to = (struct fr_scan_image){.hash = hash, .kind = image->kind};
    if (image->kind == FR_IMAGE_ROW) {
        memcpy(&to->head, image->bytes, sizeof(to->head));
    } else {
        fr_pending_load(image->bytes, &seen_ms, &count);
        to->head.seen_ms = seen_ms;
    }
    size_t floats = reading->table->spec.layout.value_floats;
    if (reading->values && image->kind == FR_IMAGE_ROW)
        memcpy(part->values + part->n * floats, image->bytes + FR_ROW_IMAGE_HEAD, floats * sizeof(float));
    part->n++;
    return FR_OK;
}

static void read_part(struct fr_store *store, uint32_t t, uint32_t s, uint32_t bits, uint64_t slice)
{
    const struct fr_table *table = &store->tables[t];
    struct fr_err err = {.status = FR_OK};
    struct reading reading = {table, &table->scan->parts[s], needs_values(table)};
    struct fr_durable_reader reader = {&reading, take_image};
    uint64_t width = (uint64_t)1 << (64 - FR_SHARD_BITS - bits);
    uint64_t first = ((uint64_t)s << (64 - FR_SHARD_BITS)) + slice * width;
    reading.part->n = 0;
    reading.part->done = true;
    if (fr_durable_scan(store->durable, table->number, first, first + (width - 1), &reader, &err) != FR_OK)
        fr_tier_fail(store, &err);
}

void fr_scan_expect(struct fr_table *table, uint32_t bits, uint64_t slice)
{
    struct fr_scan *scan = table->scan;
    if (!scan)
        scan = table->scan = fr_alloc(1, sizeof(*scan));
    scan->bits = bits;
    scan->slice = slice;
    scan->todo = 0;
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        scan->parts[s].done = false;
        scan->todo |= (uint32_t)(table->shards[s].evicted > 0) << s;
    }
    scan->wanted = scan->todo != 0 && bits >= AHEAD_BITS_MIN;
}

const struct fr_scan_part *fr_scan_take(struct fr_store *store, uint32_t t, uint32_t s, uint32_t bits, uint64_t slice)
{
    struct fr_scan *scan = store->tables[t].scan;
    bool ahead = scan->wanted && scan->bits == bits && scan->slice == slice && scan->parts[s].done;
    if (!ahead)
        read_part(store, t, s, bits, slice);
    return &scan->parts[s];
}

bool fr_scan_covers(const struct fr_table *table, uint64_t hash)
{
    const struct fr_scan *scan = table->scan;
    if (!scan || !scan->wanted)
        return false;
    return scan->bits == 0 || hash << FR_SHARD_BITS >> (64 - scan->bits) == scan->slice;
}

/* Reads one part only, so that a thread waiting for the lock, or for this thread, waits a few
 * milliseconds at most. */
bool fr_store_scan_ahead(struct fr_store *store)
{
    bool more = false;
    pthread_mutex_lock(&store->scan_lock);
    for (uint32_t t = 0; t < store->n_tables && !more; t++) {
        struct fr_scan *scan = store->tables[t].scan;
        if (!scan || !scan->wanted || scan->todo == 0)
            continue;
        uint32_t s = (uint32_t)__builtin_ctz(scan->todo);
        scan->todo &= scan->todo - 1;
        read_part(store, t, s, scan->bits, scan->slice);
        more = true;
    }
    pthread_mutex_unlock(&store->scan_lock);
    return more;
}
