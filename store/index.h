/* Flat open-addressing index of one shard: 64-bit hash -> entry, in groups of 16 with one tag byte
 * per entry.
 *
 * Idea: SwissTable (Benzaquen et al., Abseil, 2017): compare 16 tags with one instruction, then the
 * few entries that match. Three things are different here.
 *
 * The home group is given by the TOP bits of the hash (after the shard's), so entries lie in hash
 * order up to displacement and a range of hashes is a range of groups: that is what an expiry slice
 * scans.
 *
 * Growth never pauses: a larger generation takes the inserts, and each prepare moves at most
 * FR_INDEX_MIGRATE_PER_KEY groups per key it prepares for, in group order, until the old generation
 * is empty.
 *
 * Tag 0 is "empty", so that fresh pages from the system are a valid empty table: no memset of a
 * large table.
 *
 * The hash is fr_fmix64(key), a bijection: equal hashes are equal keys, and the key is recovered
 * with fr_fmix64_inverse. Probing goes group by group from the home group, wrapping; it ends at the
 * first group that has an empty tag. Used (full and deleted) tags are at most 13 of 16, so there is
 * one. An entry erased from a group without an empty tag leaves "deleted". Entry pointers are valid
 * until the next prepare. An index never shrinks.
 *
 * Owner: one worker at a time. It does not know tables, rows or policies. */
#ifndef FR_STORE_INDEX_H
#define FR_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    FR_GROUP_ENTRIES = 16,
    FR_SHARD_BITS = 4,
    /* groups moved at most per key prepared for: 64 entries, a few microseconds */
    FR_INDEX_MIGRATE_PER_KEY = 4,
    FR_INDEX_USED_PER_GROUP = 13, /* on average, at most: above it a larger generation is begun */
    FR_INDEX_LOG2_GROUPS_MAX = 40,
    FR_INDEX_SLICE_BITS_MAX = 40, /* finer slices of a table than its groups mean nothing */
};

enum fr_entry_state { FR_ENTRY_PENDING = 1, FR_ENTRY_LIVE = 2, FR_ENTRY_DEAD = 3 };
enum fr_entry_flag {
    FR_ENTRY_DIRTY = 1,    /* in the shard's list of the open epoch */
    FR_ENTRY_IN_EPOCH = 2, /* an earlier epoch holds an image of this key */
    /* an earlier epoch holds a row image of this key that no later one took back */
    FR_ENTRY_PUBLISHED = 4,
};

struct fr_entry {
    uint64_t hash;
    union {
        float *row;      /* live */
        int64_t seen_ms; /* pending */
    };
    uint32_t count; /* pending */
    uint8_t state;  /* enum fr_entry_state */
    uint8_t flags;  /* enum fr_entry_flag */
    uint8_t reason; /* why the published row went, while FR_ENTRY_PUBLISHED and not live */
    uint8_t padding;
};
_Static_assert(sizeof(struct fr_entry) == 24, "three words");

enum { FR_TAG_EMPTY = 0, FR_TAG_DELETED = 1, FR_TAG_FULL = 0x80 /* | low 7 bits of the hash */ };

struct fr_group {
    uint8_t tags[FR_GROUP_ENTRIES];
    struct fr_entry entries[FR_GROUP_ENTRIES];
};
_Static_assert(sizeof(struct fr_group) == 400, "tags, then entries");

struct fr_generation {
    struct fr_group *groups;
    uint32_t log2_groups;
    size_t used; /* full and deleted tags */
};

struct fr_index {
    struct fr_generation now;
    struct fr_generation old; /* groups NULL: nothing to migrate */
    size_t next_group;        /* of old, to migrate */
    size_t n_entries;
};

void fr_index_init(struct fr_index *index);
void fr_index_release(struct fr_index *index);
/* Room for up to `extra` inserts: none of them moves an entry. Returns how many groups it migrated:
 * at most extra * FR_INDEX_MIGRATE_PER_KEY. */
size_t fr_index_prepare(struct fr_index *index, size_t extra);
/* NULL: no such entry. */
struct fr_entry *fr_index_find(const struct fr_index *index, uint64_t hash);
/* The hash must be absent and prepared for. The entry is zeroed but for its hash. */
struct fr_entry *fr_index_insert(struct fr_index *index, uint64_t hash);
void fr_index_erase(struct fr_index *index, struct fr_entry *entry);
/* Takes inserts back, the last one first, with no other change in between: every tag is again what
 * it was. was_empty: the insert made index->now.used grow. */
void fr_index_uninsert(struct fr_index *index, struct fr_entry *entry, bool was_empty);
size_t fr_index_bytes(const struct fr_index *index);

/* Calls visit for every entry whose hash, without its shard bits, begins with the `bits` bits of
 * `slice`: groups in order. The visitor may change and erase the entry it is given. Looks at the
 * groups of the range and the run of groups without an empty tag behind it. */
typedef void fr_index_visitor(void *self, struct fr_entry *entry);
void fr_index_scan(struct fr_index *index, uint32_t bits, uint64_t slice, fr_index_visitor *visit, void *self);

/* ---- for callers that look many hashes up: prefetch first, find later ---- */

static inline size_t fr_generation_home(const struct fr_generation *generation, uint64_t hash)
{
    /* In two shifts, because one of 64 is undefined (log2_groups 0). */
    return (size_t)(((hash << FR_SHARD_BITS) >> 1) >> (63 - generation->log2_groups));
}

static inline void fr_index_prefetch(const struct fr_index *index, uint64_t hash)
{
    const struct fr_group *group = &index->now.groups[fr_generation_home(&index->now, hash)];
    __builtin_prefetch(group);
    if (index->old.groups)
        __builtin_prefetch(&index->old.groups[fr_generation_home(&index->old, hash)]);
}

/* ---- group matching: bit i of the result is tag i ---- */

static inline uint32_t fr_group_match_portable(const uint8_t tags[FR_GROUP_ENTRIES], uint8_t tag)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < FR_GROUP_ENTRIES; i++)
        mask |= (uint32_t)(tags[i] == tag) << i;
    return mask;
}

static inline uint32_t fr_group_match(const uint8_t tags[FR_GROUP_ENTRIES], uint8_t tag)
{
#if defined(__SSE2__)
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)tags);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(t, _mm_set1_epi8((char)tag)));
#else
    return fr_group_match_portable(tags, tag);
#endif
}

static inline uint32_t fr_group_full_portable(const uint8_t tags[FR_GROUP_ENTRIES])
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < FR_GROUP_ENTRIES; i++)
        mask |= (uint32_t)(tags[i] >> 7) << i;
    return mask;
}

static inline uint32_t fr_group_full(const uint8_t tags[FR_GROUP_ENTRIES])
{
#if defined(__SSE2__)
    return (uint32_t)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)tags));
#else
    return fr_group_full_portable(tags);
#endif
}

#endif
