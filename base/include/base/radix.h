/* Sorting of many (high, low) pairs: a radix sort by most significant digits in linear time,
 * stable, with one spare array. Digits that are equal everywhere are skipped, so a high word of
 * few values costs little. Thread: any, no state. */
#ifndef FR_BASE_RADIX_H
#define FR_BASE_RADIX_H

#include <stdint.h>

struct fr_radix_item {
    uint64_t low;
    uint32_t high;
    uint32_t index; /* the caller's: which thing this is */
};
_Static_assert(sizeof(struct fr_radix_item) == 16, "four items to a cache line");

/* Sorts n items by (high, low), with `spare` as large; returns where the result is: items or
 * spare. */
struct fr_radix_item *fr_radix_sort(struct fr_radix_item *items, struct fr_radix_item *spare, uint32_t n);

#endif
