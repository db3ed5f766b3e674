/* The entries of a shard: what memory holds of each key, in dense arrays.
 *
 * A live entry has a row: 40 bytes, followed by the row's floats, so that everything that plan,
 * step and cut touch for one key is together. A light entry (32 bytes) is pending or dead; a dead
 * entry is removed, and kept until no older image of the key can be taken for its newest. The
 * entry's number gives its array and place. Removing an entry moves the last one of its array into
 * its place, so numbers and addresses are valid only while nothing is removed. While rows are only
 * added, a row's floats stay at their address once the array has left the heap (array.h); plans
 * hand out addresses after all rows of a batch are created.
 *
 * Owner: one worker at a time. The index is separate: code that removes an entry tells the index
 * which entry moved. */
#ifndef FR_STORE_ENTRIES_H
#define FR_STORE_ENTRIES_H

#include <stdbool.h>

#include "array.h"
#include "durable/image.h"

enum fr_entry_state { FR_ENTRY_PENDING = 1, FR_ENTRY_LIVE = 2, FR_ENTRY_DEAD = 3 };
enum fr_entry_flag {
    FR_ENTRY_DIRTY = 1,    /* listed in the shard's dirty keys of the open epoch */
    FR_ENTRY_IN_EPOCH = 2, /* an earlier epoch holds an image of this key */
    /* an earlier epoch holds a row image of this key, and no later epoch a tombstone for it */
    FR_ENTRY_PUBLISHED = 4,
    /* epoch `changed` holds the absence of this key and may not be folded yet: the entry must stay
     * (entry.c) */
    FR_ENTRY_BURIED = 8,
};

enum { FR_PLANNED_BITS = 5 };
enum {
    FR_RECENT_MAX = 3,
    FR_RECENT_BACK, /* read back from the cold store, and not trained by a batch since */
};

struct FR_AS_FLOATS fr_entry {
    uint64_t hash;
    /* the epoch that holds the newest image, unless the entry is dirty; 0: a folded epoch */
    uint32_t changed;
    uint8_t state; /* enum fr_entry_state */
    uint8_t flags; /* enum fr_entry_flag */
    /* absent reason of the published row that was removed; valid while FR_ENTRY_PUBLISHED is set
     * and the entry is not live */
    uint8_t reason;
    uint8_t recent : 3; /* rounds of the eviction hand that the entry survives (tier.c) */
    /* of several ranks: the lowest bits of the number of the last plan that has the row (ranks.c)
     * */
    uint8_t planned : FR_PLANNED_BITS;
};
_Static_assert(sizeof(struct fr_entry) == 16, "two words");

struct FR_AS_FLOATS fr_live_entry {
    struct fr_entry entry;
    /* beginning of the row's image, which continues with the floats after it */
    struct fr_row_head head;
};
_Static_assert(sizeof(struct fr_live_entry) == 40, "no padding");

struct fr_light_entry {
    struct fr_entry entry;
    int64_t seen_ms; /* valid for a pending entry */
    uint32_t count;  /* valid for a pending entry */
    uint32_t padding;
};
_Static_assert(sizeof(struct fr_light_entry) == 32, "no padding");

#define FR_LIGHT ((uint32_t)1 << 31) /* bit of an entry number that marks a light entry */

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

/* Whether `number` is that of an entry with this hash. For a number found before entries were added
 * or removed. */
static inline bool fr_entries_is(const struct fr_entries *entries, uint32_t number, uint64_t hash)
{
    uint32_t n = number & FR_LIGHT ? entries->light.n : entries->live.n;
    return (number & ~FR_LIGHT) < n && fr_entries_at(entries, number)->hash == hash;
}

static inline float *fr_entries_row(const struct fr_entries *entries, uint32_t number)
{
    return (float *)(void *)(fr_entries_live(entries, number) + 1);
}

/* Another number than before: the rows have moved since. Otherwise rows were added at most. */
static inline uint32_t fr_entries_moved(const struct fr_entries *entries)
{
    return entries->live.small;
}

/* The bytes of a live entry's image: FR_ROW_IMAGE_HEAD bytes, then the floats. */
static inline uint8_t *fr_entries_image(const struct fr_entries *entries, uint32_t number)
{
    return (uint8_t *)fr_entries_live(entries, number) + offsetof(struct fr_live_entry, head);
}

#endif
