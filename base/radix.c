/* See base/radix.h. */
#include "base/radix.h"

#include <string.h>

enum { DIGITS = 12, RADIX = 256 };

static uint8_t digit_of(const struct fr_radix_item *item, unsigned digit)
{
    return digit < 8 ? (uint8_t)(item->low >> (8 * digit)) : (uint8_t)(item->high >> (8 * (digit - 8)));
}

struct fr_radix_item *fr_radix_sort(struct fr_radix_item *items, struct fr_radix_item *spare, uint32_t n)
{
    uint32_t counts[DIGITS][RADIX];
    if (n < 2)
        return items;
    memset(counts, 0, sizeof(counts));
    for (uint32_t i = 0; i < n; i++)
        for (unsigned d = 0; d < DIGITS; d++)
            counts[d][digit_of(&items[i], d)]++;
    for (unsigned d = 0; d < DIGITS; d++) {
        if (counts[d][digit_of(&items[0], d)] == n)
            continue;
        uint32_t begin = 0;
        for (unsigned v = 0; v < RADIX; v++) {
            uint32_t count = counts[d][v];
            counts[d][v] = begin;
            begin += count;
        }
        for (uint32_t i = 0; i < n; i++)
            spare[counts[d][digit_of(&items[i], d)]++] = items[i];
        struct fr_radix_item *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}
