/* See base/radix.h.
 *
 * Items are scattered by their most significant byte that differs, buckets likewise, until a bucket
 * is small enough for insertion (McIlroy, Bostic, McIlroy 1993, out of place). Keys that are spread
 * evenly take two or three scatters where the least significant byte first took eight, and those
 * that somebody chose at most twelve. Both steps keep the order of equal items. */
#include "base/radix.h"

#include <stdbool.h>
#include <string.h>

enum { DIGITS = 12, HIGH_DIGITS = 4, RADIX = 256, INSERTION_MAX = 24 };

/* Digit 0 is the most significant. */
static uint8_t digit_of(const struct fr_radix_item *item, unsigned digit)
{
    return digit < HIGH_DIGITS ? (uint8_t)(item->high >> (8 * (HIGH_DIGITS - 1 - digit)))
                               : (uint8_t)(item->low >> (8 * (DIGITS - 1 - digit)));
}

static bool is_less(const struct fr_radix_item *a, const struct fr_radix_item *b)
{
    return a->high != b->high ? a->high < b->high : a->low < b->low;
}

static void insertion(struct fr_radix_item *items, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct fr_radix_item moving = items[i];
        uint32_t j = i;
        for (; j > 0 && is_less(&moving, &items[j - 1]); j--)
            items[j] = items[j - 1];
        items[j] = moving;
    }
}

/* Sorts the items, in which all digits before `digit` are equal, to where they are or into `other`. At
 * most DIGITS deep. */
static void sort(struct fr_radix_item *items, struct fr_radix_item *other, uint32_t n, unsigned digit, bool into_other)
{
    uint32_t begins[RADIX + 1];
    for (; n > INSERTION_MAX && digit < DIGITS; digit++) {
        memset(begins, 0, sizeof(begins));
        for (uint32_t i = 0; i < n; i++)
            begins[digit_of(&items[i], digit) + 1]++;
        if (begins[digit_of(&items[0], digit) + 1] != n)
            break;
    }
    if (n <= INSERTION_MAX || digit == DIGITS) {
        if (n <= INSERTION_MAX)
            insertion(items, n);
        if (into_other)
            memcpy(other, items, n * sizeof(*items));
        return;
    }
    for (unsigned v = 0; v < RADIX; v++)
        begins[v + 1] += begins[v];
    for (uint32_t i = 0; i < n; i++)
        other[begins[digit_of(&items[i], digit)]++] = items[i];
    uint32_t begin = 0; /* each begin has moved to the next one's place */
    for (unsigned v = 0; v < RADIX; v++) {
        uint32_t end = begins[v];
        if (end > begin)
            sort(other + begin, items + begin, end - begin, digit + 1, !into_other);
        begin = end;
    }
}

struct fr_radix_item *fr_radix_sort(struct fr_radix_item *items, struct fr_radix_item *spare, uint32_t n)
{
    sort(items, spare, n, 0, false);
    return items;
}
