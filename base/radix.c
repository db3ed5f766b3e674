/* See base/radix.h.
 *
 * Items are scattered by their most significant bits that differ, so many that about as many places
 * as items come out, and what fell together again (McIlroy, Bostic, McIlroy 1993, out of place).
 * What is nearly in order then is finished by insertion. Keys that are spread evenly take two
 * scatters where the least significant byte first took eight; those that somebody chose take more,
 * but at least five bits go with each. Every step keeps the order of equal items. */
#include "base/radix.h"

#include <stdbool.h>
#include <string.h>

enum { INSERTION_MAX = 24, BITS_MAX = 11, PLACES_MAX = 1 << BITS_MAX };

/* The word that items are sorted by: high or low. */
static uint64_t word_of(const struct fr_radix_item *item, bool high)
{
    return high ? item->high : item->low;
}

static void insertion(struct fr_radix_item *items, uint32_t n, bool high)
{
    for (uint32_t i = 1; i < n; i++) {
        struct fr_radix_item moving = items[i];
        uint64_t word = word_of(&moving, high);
        uint32_t j = i;
        for (; j > 0 && word < word_of(&items[j - 1], high); j--)
            items[j] = items[j - 1];
        items[j] = moving;
    }
}

/* How the highest bits that differ are taken out of a word; false: none differs. */
struct digit {
    unsigned shift, bits;
};

static bool choose_digit(const struct fr_radix_item *items, uint32_t n, bool high, struct digit *out)
{
    uint64_t first = word_of(&items[0], high), differs = 0;
    for (uint32_t i = 1; i < n; i++)
        differs |= word_of(&items[i], high) ^ first;
    if (differs == 0)
        return false;
    unsigned top = 64 - (unsigned)__builtin_clzll(differs), bits = 32 - (unsigned)__builtin_clz(n);
    bits = bits > BITS_MAX ? BITS_MAX : bits;
    bits = bits > top ? top : bits;
    *out = (struct digit){top - bits, bits};
    return true;
}

/* Sorts the items by one word, to where they are or into `other`. */
static void sort(struct fr_radix_item *items, struct fr_radix_item *other, uint32_t n, bool high, bool into_other)
{
    struct digit digit;
    uint32_t begins[PLACES_MAX + 1];
    if (n <= INSERTION_MAX || !choose_digit(items, n, high, &digit)) {
        if (n <= INSERTION_MAX)
            insertion(items, n, high);
        if (into_other)
            memcpy(other, items, n * sizeof(*items));
        return;
    }
    uint32_t places = 1u << digit.bits, mask = places - 1, begin = 0, most = 0;
    memset(begins, 0, (places + 1) * sizeof(begins[0]));
    for (uint32_t i = 0; i < n; i++)
        begins[(uint32_t)(word_of(&items[i], high) >> digit.shift & mask) + 1]++;
    for (uint32_t v = 0; v < places; v++) {
        most = begins[v + 1] > most ? begins[v + 1] : most;
        begins[v + 1] += begins[v];
    }
    for (uint32_t i = 0; i < n; i++)
        other[begins[word_of(&items[i], high) >> digit.shift & mask]++] = items[i];
    if (most <= INSERTION_MAX) {
        insertion(other, n, high);
        if (!into_other)
            memcpy(items, other, n * sizeof(*items));
        return;
    }
    for (uint32_t v = 0; v < places; v++) { /* each begin has moved to the next one's place */
        uint32_t end = begins[v];
        if (end > begin)
            sort(other + begin, items + begin, end - begin, high, !into_other);
        begin = end;
    }
}

struct fr_radix_item *fr_radix_sort(struct fr_radix_item *items, struct fr_radix_item *spare, uint32_t n)
{
    sort(items, spare, n, true, false);
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && items[end].high == items[begin].high; end++)
            continue;
        sort(items + begin, spare + begin, end - begin, false, false);
    }
    return items;
}
