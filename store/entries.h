/* The entries of a shard: what is known of each key in memory, in dense arrays.
 *
 * A live entry has a row: 40 bytes, and behind them its floats, so that what one key's plan, step
 * and cut touch lies together. A light one (32 bytes) is pending, or dead: removed, and kept until
 * no older image of the key can come back. An entry's number says which, and where; removing one
 * moves the last of its array into its place, so numbers and addresses hold only while nothing is
 * removed. A row's floats stay where they are while rows are only added (array.h), as long as the
 * array has chunks; plans hand addresses out after all rows of a batch are made.
 *
 * Owner: one worker at a time. It does not know the index: who removes tells it who moved. */
#ifndef FR_STORE_ENTRIES_H
#define FR_STORE_ENTRIES_H

#include <stdbool.h>

#include "array.h"
#include "durable/image.h"

enum fr_entry_state { FR_ENTRY_PENDING = 1, FR_ENTRY_LIVE = 2, FR_ENTRY_DEAD = 3 };
enum fr_entry_flag {
    FR_ENTRY_DIRTY = 1,    /* in the shard's list of the open epoch */
    FR_ENTRY_IN_EPOCH = 2, /* an earlier epoch holds an image of this key */
    /* an earlier epoch holds a row image of this key that no later one took back */
    FR_ENTRY_PUBLISHED = 4,
    /* epoch `changed` says absent, and may not be folded yet: the entry must not vanish
     * (entry.c) */
    FR_ENTRY_BURIED = 8,
};

enum {
    FR_RECENT_MAX = 3,
    FR_RECENT_BACK, /* it was read back, and no batch has trained it since */
};

struct FR_AS_FLOATS fr_entry {
    uint64_t hash;
    uint32_t changed; /* epoch that holds the newest image, unless it is dirty; 0: a folded one */
    uint8_t state;    /* enum fr_entry_state */
    uint8_t flags;    /* enum fr_entry_flag */
    uint8_t reason;   /* why the published row went, while FR_ENTRY_PUBLISHED and not live */
    uint8_t recent;   /* rounds of the hand that it survives (tier.c) */
};
_Static_assert(sizeof(struct fr_entry) == 16, "two words");

struct FR_AS_FLOATS fr_live_entry {
    struct fr_entry entry;
    struct fr_row_head head; /* the row's image: this, and the floats that follow */
};
_Static_assert(sizeof(struct fr_live_entry) == 40, "no padding");

struct fr_light_entry {
    struct fr_entry entry;
    int64_t seen_ms; /* pending */
    uint32_t count;  /* pending */
    uint32_t padding;
};
_Static_assert(sizeof(struct fr_light_entry) == 32, "no padding");

#define FR_LIGHT ((uint32_t)1 << 31) /* in a number: of a light entry */

struct fr_entries {
    struct fr_array live, light;
};

static inline void fr_entries_init(struct fr_entries *entries, size_t row_bytes)
{
    fr_array_init(&entries->live, (uint32_t)(sizeof(struct fr_live_entry) + row_bytes));
    fr_array_init(&entries->light, sizeof(struct fr_light_entry));
}

static inline void fr_entries_release(struct fr_entries *entries)
{
    fr_array_release(&entries->live);
    fr_array_release(&entries->light);
}

static inline struct fr_live_entry *fr_entries_live(const struct fr_entries *entries, uint32_t number)
{
    return fr_array_at(&entries->live, number);
}

static inline struct fr_light_entry *fr_entries_light(const struct fr_entries *entries, uint32_t number)
{
    return fr_array_at(&entries->light, number & ~FR_LIGHT);
}

static inline struct fr_entry *fr_entries_at(const struct fr_entries *entries, uint32_t number)
{
    return number & FR_LIGHT ? &fr_entries_light(entries, number)->entry : &fr_entries_live(entries, number)->entry;
}

/* Whether that is the number of an entry with this hash: a number that was found before others
 * were made or removed. */
static inline bool fr_entries_is(const struct fr_entries *entries, uint32_t number, uint64_t hash)
{
    uint32_t n = number & FR_LIGHT ? entries->light.n : entries->live.n;
    return (number & ~FR_LIGHT) < n && fr_entries_at(entries, number)->hash == hash;
}

static inline float *fr_entries_row(const struct fr_entries *entries, uint32_t number)
{
    return (float *)(void *)(fr_entries_live(entries, number) + 1);
}

/* Bytes of a live entry's image: FR_ROW_IMAGE_HEAD, then the floats. */
static inline uint8_t *fr_entries_image(const struct fr_entries *entries, uint32_t number)
{
    return (uint8_t *)fr_entries_live(entries, number) + offsetof(struct fr_live_entry, head);
}

#endif
