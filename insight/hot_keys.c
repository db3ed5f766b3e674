/* See hot_keys.h. Most keys of a slot with many ids have no counter. A filter of one bit a key says
 * so without a search; keys that lost their counter stay in it until it is made again, once as many
 * counters were taken over as there are. `smallest` is a lower bound of all counts, so a counter
 * that is not above it is a smallest one: the hand goes round until it finds one, and a round
 * without one raises the bound. */
#include "hot_keys.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"

static uint64_t *word_of(struct fr_hot_keys *hot, uint64_t key, uint64_t *bit)
{
    uint64_t at = key >> 8 & (FR_HOT_FILTER_WORDS * 64 - 1); /* low bits are drift's buckets */
    *bit = (uint64_t)1 << at % 64;
    return &hot->filter[at / 64];
}

static void note(struct fr_hot_keys *hot, uint64_t key)
{
    uint64_t bit, *word = word_of(hot, key, &bit);
    *word |= bit;
}

static void make_filter(struct fr_hot_keys *hot)
{
    memset(hot->filter, 0, sizeof(hot->filter));
    for (uint32_t i = 0; i < hot->n; i++)
        note(hot, hot->keys[i]);
    hot->taken_over = 0;
}

static bool find(struct fr_hot_keys *hot, uint64_t key, uint32_t *at)
{
    uint64_t bit, *word = word_of(hot, key, &bit);
    if (!(*word & bit))
        return false;
    for (*at = 0; *at < hot->n; ++*at)
        if (hot->keys[*at] == key)
            return true;
    return false;
}

static uint32_t smallest(struct fr_hot_keys *hot)
{
    for (;;) {
        float least = hot->counts[hot->hand];
        for (uint32_t i = 0; i < FR_INSIGHT_HOT; i++) {
            hot->hand = (hot->hand + 1) % FR_INSIGHT_HOT;
            if (hot->counts[hot->hand] <= hot->smallest)
                return hot->hand;
            least = hot->counts[hot->hand] < least ? hot->counts[hot->hand] : least;
        }
        FR_CHECK(least > hot->smallest);
        hot->smallest = least;
    }
}

void fr_hot_keys_add(struct fr_hot_keys *hot, uint64_t key, float weight)
{
    uint32_t at;
    hot->total += (double)weight;
    if (find(hot, key, &at)) {
        hot->counts[at] += weight;
        return;
    }
    if (hot->n < FR_INSIGHT_HOT) {
        at = hot->n++;
        hot->errors[at] = 0.0f;
        hot->counts[at] = weight;
    } else {
        at = smallest(hot);
        hot->errors[at] = hot->counts[at];
        hot->counts[at] += weight;
        if (++hot->taken_over == FR_INSIGHT_HOT)
            make_filter(hot);
    }
    hot->keys[at] = key;
    note(hot, key);
}

void fr_hot_keys_halve(struct fr_hot_keys *hot)
{
    hot->total *= 0.5;
    hot->smallest *= 0.5f;
    for (uint32_t i = 0; i < hot->n; i++) {
        hot->counts[i] *= 0.5f;
        hot->errors[i] *= 0.5f;
    }
}

uint32_t fr_hot_keys_top(const struct fr_hot_keys *hot, uint32_t *places, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < hot->n; i++) {
        uint32_t at = n;
        while (at > 0 && hot->counts[places[at - 1]] < hot->counts[i])
            at--;
        if (at == capacity)
            continue;
        n += n < capacity;
        for (uint32_t k = n - 1; k > at; k--)
            places[k] = places[k - 1];
        places[at] = i;
    }
    return n;
}
