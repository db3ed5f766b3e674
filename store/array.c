/* See array.h. */
#include "array.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/pages.h"

enum {
    CHUNK_BYTES_MIN = 2 << 20, /* at least a huge page */
    SMALL_MIN = 16,
    /* number of chunks from which on chunks are allocated in regions: with fewer, a half-used huge
     * page would be a large share. Also the number of chunks in a region. */
    HUGE_CHUNKS = 8,
    TRIM_BYTES_MIN = 256 << 10,
};

static size_t chunk_items(const struct fr_array *array)
{
    return (size_t)1 << array->log2_chunk;
}

static size_t chunk_bytes(const struct fr_array *array)
{
    return chunk_items(array) * array->stride;
}

/* The first chunks are allocated singly, later ones in regions of HUGE_CHUNKS chunks, because huge
 * pages span chunks. Memory from the reserve consists of huge pages anyway. */
static uint32_t region_begin(const struct fr_array *array, uint32_t chunk)
{
    uint32_t in_region = chunk < array->singles ? 0 : (chunk - array->singles) % HUGE_CHUNKS;
    return chunk - in_region;
}

static size_t region_bytes(const struct fr_array *array, uint32_t begin)
{
    return (begin < array->singles ? 1 : HUGE_CHUNKS) * chunk_bytes(array);
}

void fr_array_init(struct fr_array *array, uint32_t stride)
{
    FR_CHECK(stride > 0);
    *array = (struct fr_array){.stride = stride, .singles = HUGE_CHUNKS};
    while (chunk_bytes(array) < CHUNK_BYTES_MIN)
        array->log2_chunk++;
}

void fr_array_stagger(struct fr_array *array, uint32_t place, uint32_t places)
{
    FR_CHECK(array->n_chunks == 0 && place < places);
    array->phase = (uint32_t)(chunk_items(array) * place / places);
}

void fr_array_release(struct fr_array *array)
{
    for (uint32_t c = 0; c < array->n_chunks; c++) {
        if (c == 0 && array->small < chunk_items(array))
            free(array->chunks[0]);
        else if (c == region_begin(array, c))
            fr_pages_give(array->chunks[c], region_bytes(array, c));
    }
    free(array->chunks);
    *array = (struct fr_array){
        .stride = array->stride, .log2_chunk = array->log2_chunk, .phase = array->phase, .singles = HUGE_CHUNKS};
}

/* Grows the first chunk while it is small: on the heap it doubles, until twice its size would
 * exceed the places that a full chunk has after its phase. Pages of places without an item are
 * never touched. */
static void grow_first(struct fr_array *array)
{
    uint32_t items = array->small ? 2 * array->small : SMALL_MIN, offset = 0;
    uint32_t phase = fr_pages_reserved(chunk_bytes(array)) ? 0 : array->phase;
    uint8_t *memory;
    if (items < chunk_items(array) - phase) {
        memory = fr_alloc_aligned(64, (size_t)items * array->stride);
    } else {
        items = (uint32_t)chunk_items(array);
        offset = phase;
        memory = fr_pages_take(chunk_bytes(array), 0);
    }
    if (array->chunks[0])
        memcpy(memory + (size_t)offset * array->stride, array->chunks[0], (size_t)array->n * array->stride);
    free(array->chunks[0]);
    array->chunks[0] = memory;
    array->small = items;
    array->offset = offset;
}

static void add_room(struct fr_array *array)
{
    if (array->n_chunks == array->capacity) {
        array->capacity = array->capacity ? 2 * array->capacity : 1;
        array->chunks = fr_realloc(array->chunks, array->capacity, sizeof(*array->chunks));
    }
    if (array->n_chunks == 0) {
        array->chunks[0] = NULL;
        array->n_chunks = 1;
    } else if (array->small == chunk_items(array)) {
        uint32_t c = array->n_chunks++;
        if (c == array->singles && fr_pages_reserved(chunk_bytes(array)))
            array->singles++;
        uint32_t begin = region_begin(array, c);
        array->chunks[c] = c == begin ? fr_pages_take(region_bytes(array, c), c >= array->singles)
                                      : array->chunks[begin] + (c - begin) * chunk_bytes(array);
        return;
    }
    grow_first(array);
}

/* Number of items for which there is room. */
static size_t room(const struct fr_array *array)
{
    return array->small == chunk_items(array) ? ((size_t)array->n_chunks << array->log2_chunk) - array->offset
                                              : array->small;
}

uint32_t fr_array_push(struct fr_array *array)
{
    FR_CHECK(array->n < UINT32_MAX >> 1);
    while (array->n == room(array))
        add_room(array);
    uint32_t i = array->n++;
    if (array->n > array->high)
        array->high = array->n;
    return i;
}

void fr_array_trim(struct fr_array *array)
{
    if (array->n_chunks == 0 || (size_t)(array->high - array->n) * array->stride < TRIM_BYTES_MIN)
        return;
    if (array->small < chunk_items(array)) {
        array->high = array->n; /* the array is on the heap until it fills a chunk */
        return;
    }
    /* the chunk of the next item */
    uint32_t next = array->n + array->offset, keep = next >> array->log2_chunk;
    while (array->n_chunks > keep + 1) {
        uint32_t c = --array->n_chunks;
        if (c == region_begin(array, c))
            fr_pages_give(array->chunks[c], region_bytes(array, c));
    }
    uint32_t begin = region_begin(array, keep);
    size_t used = (size_t)(next - (begin << array->log2_chunk)) * array->stride;
    if (keep < array->n_chunks)
        fr_pages_forget(array->chunks[begin], used, region_bytes(array, begin));
    array->high = array->n;
}

size_t fr_array_bytes(const struct fr_array *array)
{
    size_t list = array->capacity * sizeof(*array->chunks);
    if (array->n_chunks == 0)
        return list;
    if (array->small < chunk_items(array))
        return list + (size_t)array->small * array->stride;
    return list + ((size_t)array->high * array->stride + FR_PAGE - 1) / FR_PAGE * FR_PAGE;
}
