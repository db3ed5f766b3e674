/* Dense arrays of equal items that grow by chunks and give memory back: item i is at a fixed
 * address while the array only grows beyond its first chunk.
 *
 * There are no holes: whoever removes an item moves the last one into its place. So a scan is a
 * walk through memory, and what a mass removal frees lies at the end and goes back to the system.
 * A small array lies on the heap and moves when it grows.
 *
 * Owner: one worker at a time. */
#ifndef FR_STORE_ARRAY_H
#define FR_STORE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

struct fr_array {
    uint32_t stride;     /* bytes of an item */
    uint32_t log2_chunk; /* items of a chunk */
    uint32_t n;
    uint32_t small;              /* items the first chunk has room for while it is on the heap */
    uint32_t phase, offset;      /* places of the first chunk that no item has; 0 on the heap */
    uint32_t n_chunks, capacity; /* capacity: of `chunks` */
    uint32_t singles;            /* chunks from this one on are regions of several */
    uint32_t high;               /* items ever used since the last trim: their pages are touched */
    uint8_t **chunks;
};

void fr_array_init(struct fr_array *array, uint32_t stride);
/* Of arrays that grow alike, the place-th of so many: their chunks begin at different times, or one
 * batch would touch new pages of all of them. Before the first item. */
void fr_array_stagger(struct fr_array *array, uint32_t place, uint32_t places);
void fr_array_release(struct fr_array *array);
/* One more item, whose bytes are not defined. Returns its number. */
uint32_t fr_array_push(struct fr_array *array);
/* Gives memory beyond the last item back, when that is worth a call to the system. */
void fr_array_trim(struct fr_array *array);
size_t fr_array_bytes(const struct fr_array *array);

static inline void *fr_array_at(const struct fr_array *array, uint32_t i)
{
    uint32_t at = i + array->offset;
    return array->chunks[at >> array->log2_chunk] +
           (size_t)(at & (((uint32_t)1 << array->log2_chunk) - 1)) * array->stride;
}

#endif
