/* Sorting of many 64-bit numbers, alone or with an index: a radix sort by most significant digits,
 * in linear time, stable, with one spare array. Thread: any; no state. */
#ifndef FR_BASE_RADIX_H
#define FR_BASE_RADIX_H

#include <stdint.h>

struct fr_radix_item {
    uint64_t value;
    uint64_t index; /* any number of the caller's, which moves with the value */
};
_Static_assert(sizeof(struct fr_radix_item) == 2 * sizeof(uint64_t), "sorted as two words");

/* Sorts n values in ascending order. `spare` has the same size as the array. */
void fr_radix_sort(uint64_t *values, uint64_t *spare, uint32_t n);
void fr_radix_sort_items(struct fr_radix_item *items, struct fr_radix_item *spare, uint32_t n);

#endif
