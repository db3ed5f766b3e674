/* See base/radix.h.
 *
 * Values are scattered by the highest bits that differ, into about as many places as there are
 * values; values that fall into the same place are scattered again (McIlroy, Bostic, McIlroy 1993,
 * out of place). When they are nearly in order, insertion finishes them. Evenly spread values take
 * two scatters, where sorting by the least significant byte first took eight. Values chosen by an
 * adversary take more, but each scatter settles at least five bits. Every step keeps the order of
 * equal items.
 *
 * An item is one word, or two of which the first is its value. The step is written once and
 * compiled for both. */
#include "base/radix.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { INSERTION_MAX = 24, BITS_MAX = 11, PLACES_MAX = 1 << BITS_MAX, WORDS_MAX = 2 };

#define ALWAYS_INLINE __attribute__((always_inline)) static inline

ALWAYS_INLINE void insertion(uint64_t *items, uint32_t n, size_t words)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t moving[WORDS_MAX];
        memcpy(moving, items + i * words, words * sizeof(*items));
        size_t j = i;
        for (; j > 0 && moving[0] < items[(j - 1) * words]; j--)
            memcpy(items + j * words, items + (j - 1) * words, words * sizeof(*items));
        memcpy(items + j * words, moving, words * sizeof(*items));
    }
}

/* The highest bits that differ, as shift and width; false: the values are equal. */
struct digit {
    unsigned shift, bits;
};

ALWAYS_INLINE bool choose_digit(const uint64_t *items, uint32_t n, size_t words, struct digit *out)
{
    uint64_t differs = 0;
    for (size_t i = 1; i < n; i++)
        differs |= items[i * words] ^ items[0];
    if (differs == 0)
        return false;
    unsigned top = 64 - (unsigned)__builtin_clzll(differs), bits = 32 - (unsigned)__builtin_clz(n);
    bits = bits > BITS_MAX ? BITS_MAX : bits;
    bits = bits > top ? top : bits;
    *out = (struct digit){top - bits, bits};
    return true;
}

/* Sorts the items in place or into `other`; `sort` is this step for the same number of words. */
typedef void sort_step(uint64_t *items, uint64_t *other, uint32_t n, bool into_other);

ALWAYS_INLINE void sort_once(uint64_t *items, uint64_t *other, uint32_t n, bool into_other, size_t words,
                             sort_step *sort)
{
    struct digit digit;
    uint32_t begins[PLACES_MAX + 1];
    if (n <= INSERTION_MAX || !choose_digit(items, n, words, &digit)) {
        if (n <= INSERTION_MAX)
            insertion(items, n, words);
        if (into_other)
            memcpy(other, items, n * words * sizeof(*items));
        return;
    }
    uint32_t places = 1u << digit.bits, mask = places - 1, begin = 0, most = 0;
    memset(begins, 0, (places + 1) * sizeof(begins[0]));
    for (size_t i = 0; i < n; i++)
        begins[(uint32_t)(items[i * words] >> digit.shift & mask) + 1]++;
    for (uint32_t v = 0; v < places; v++) {
        most = begins[v + 1] > most ? begins[v + 1] : most;
        begins[v + 1] += begins[v];
    }
    for (size_t i = 0; i < n; i++) {
        size_t to = begins[items[i * words] >> digit.shift & mask]++;
        memcpy(other + to * words, items + i * words, words * sizeof(*items));
    }
    if (most <= INSERTION_MAX) {
        insertion(other, n, words);
        if (!into_other)
            memcpy(items, other, n * words * sizeof(*items));
        return;
    }
    for (uint32_t v = 0; v < places; v++) {
        /* each begin has moved to the place where the next one began */
        uint32_t end = begins[v];
        if (end > begin)
            sort(other + begin * words, items + begin * words, end - begin, !into_other);
        begin = end;
    }
}

static void sort_values(uint64_t *items, uint64_t *other, uint32_t n, bool into_other)
{
    sort_once(items, other, n, into_other, 1, sort_values);
}

static void sort_pairs(uint64_t *items, uint64_t *other, uint32_t n, bool into_other)
{
    sort_once(items, other, n, into_other, 2, sort_pairs);
}

void fr_radix_sort(uint64_t *values, uint64_t *spare, uint32_t n)
{
    sort_values(values, spare, n, false);
}

void fr_radix_sort_items(struct fr_radix_item *items, struct fr_radix_item *spare, uint32_t n)
{
    sort_pairs((uint64_t *)items, (uint64_t *)spare, n, false);
}
