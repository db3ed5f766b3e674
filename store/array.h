/* Dense arrays of equal items that grow by chunks and give memory back. The address of an item is
 * fixed while the array only grows, once the first chunk is full size.
 *
 * There are no holes: code that removes an item moves the last item into its place. So a scan walks
 * through memory in order, and the memory freed by removing many items is at the end and goes back
 * to the system. A small array is on the heap and moves when it grows.
 *
 * Owner: one worker at a time. */
#ifndef FR_STORE_ARRAY_H
#define FR_STORE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

struct fr_array {
    uint32_t stride;     /* bytes of an item */
    uint32_t log2_chunk; /* log2 of the number of items in a chunk */
    uint32_t n;
    /* number of items that fit the first chunk while it is on the heap */
    uint32_t small;
    /* offset: unused places at the start of the first chunk (0 on the heap); phase: what offset
     * becomes once that chunk leaves the heap */
    uint32_t phase, offset;
    uint32_t n_chunks, capacity; /* capacity is that of the pointer array `chunks` */
    /* number of chunks that were allocated singly; later chunks are allocated in regions of
     * several */
    uint32_t singles;
    /* largest number of items since the last trim; their pages have been touched */
    uint32_t high;
    uint8_t **chunks;
};

void fr_array_init(struct fr_array *array, uint32_t stride);
/* For several arrays that grow at the same rate: gives this one, number `place` of `places`, its
 * own phase, so that the arrays reach new chunks at different times. Otherwise one batch would
 * touch new pages of all of them. Call before the first item. */
void fr_array_stagger(struct fr_array *array, uint32_t place, uint32_t places);
void fr_array_release(struct fr_array *array);
/* Adds an item, whose bytes are undefined, and returns its number. */
uint32_t fr_array_push(struct fr_array *array);
/* Gives memory after the last item back to the system, if it is enough to be worth a system
 * call. */
void fr_array_trim(struct fr_array *array);
size_t fr_array_bytes(const struct fr_array *array);

static inline void *fr_array_at(const struct fr_array *array, uint32_t i)
{
    uint32_t at = i + array->offset;
    return array->chunks[at >> array->log2_chunk] +
           (size_t)(at & (((uint32_t)1 << array->log2_chunk) - 1)) * array->stride;
}

#endif
