/* Index of one shard: 64-bit hash -> number of an entry, in segments that split one at a time.
 *
 * Extendible hashing (Fagin, Nievergelt, Pippenger, Strong 1979): a directory over the bits below
 * the shard's gives the segment. So the shard grows by one small segment at a time, without a
 * pause. A segment doubles until it has 64 KiB, then grows once by three quarters of that, then
 * splits: partial expansions (Larson 1980). Three steps of a quarter each would take 2.5 bytes a
 * key less, but move four keys instead of one for each key added. The fill at which a segment grows
 * depends on its place in the key space, so that segments, which fill at the same rate, do not all
 * grow at the same time. After rows were removed, neighbouring segments merge and give memory back.
 *
 * A segment consists of groups of one cache line: 12 tags and 12 numbers, compared with one
 * instruction (SwissTable, Benzaquen et al., Abseil 2017; groups of one line: F14, Bronson and Shi
 * 2019). The bits below the directory's give the home group, so entries are in hash order except
 * for displacement, and a range of hashes is a range of groups: that is what a slice scans. A probe
 * goes from group to group, wraps within the segment, and ends at the first group that has an empty
 * tag. Erasing an entry from a group without an empty tag leaves the tag "deleted".
 *
 * For each key added, growth moves one key and splits move two. A growth step reads no entries,
 * each of which would be a cache miss. It does not need to: a place stores how many groups it is
 * behind its home, and a tag is the eight bits of the hash that follow the home's ten bits, so home
 * and tag give the 18 bits after those of the segment. A split needs one more bit and does read the
 * entries.
 *
 * The hash is the state's keyed order (base/order.h), so nobody can choose keys that crowd one
 * segment. Hashes are stored in the entries (entries.h). A place takes 5.3 bytes, a key about 9.7.
 *
 * Owner: one worker at a time. Any number of threads may look keys up while nothing changes. The
 * index has no notion of tables, rows or policies. */
#ifndef FR_STORE_INDEX_H
#define FR_STORE_INDEX_H

#include "entries.h"
#include "base/pages.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    FR_GROUP_PLACES = 12,
    FR_SHARD_BITS = 4,
    FR_SEGMENT_GROUPS = 1024,     /* groups of a segment that was just split */
    FR_SEGMENT_STEP = 768,        /* groups by which a segment grows */
    FR_SEGMENT_GROUPS_MAX = 1792, /* groups at which a segment splits */
    FR_HOME_BITS = 10,            /* bits of a hash that select one of FR_SEGMENT_GROUPS homes */
    FR_TAG_BITS = 8,
    FR_INDEX_SLICE_BITS_MAX = 40, /* a table has fewer groups than slices that are finer */
};
_Static_assert(FR_SEGMENT_GROUPS == 1 << FR_HOME_BITS, "homes tell so many bits apart");
#define FR_NO_ENTRY UINT32_MAX

enum { FR_BEHIND_FAR = 3, FR_FILLED_SHIFT = 2 * FR_GROUP_PLACES };
enum { FR_TAG_EMPTY = 0, FR_TAG_DELETED = 1, FR_TAG_FULL_MIN = 2 };

struct fr_group {
    uint8_t tags[FR_GROUP_PLACES];
    /* For each place two bits: the number of groups between the place and its home (FR_BEHIND_FAR:
     * that many or more). From bit FR_FILLED_SHIFT on: places filled so far while the segment is
     * being built. Loading tags for a comparison reads 16 bytes, so it includes this word. */
    uint32_t behind;
    uint32_t numbers[FR_GROUP_PLACES];
};
_Static_assert(sizeof(struct fr_group) == FR_LINE, "a cache line");

struct fr_segment {
    struct fr_group *groups;
    uint32_t used, full; /* used: places that are full or deleted; full: places that are full */
    uint32_t limit;      /* the segment grows when `used` reaches this */
    uint32_t n_groups;
    uint32_t depth; /* number of bits below the shard's that all hashes of the segment share */
    /* shift of the hash that gives the tag; 0: the tag is the hash's last bits and independent of
     * the home */
    uint32_t tag_shift;
};
_Static_assert(sizeof(struct fr_segment) == 32, "two in a cache line");

struct fr_index {
    uint32_t *directory; /* [1 << depth] segment numbers, indexed by the bits below the shard's */
    uint32_t depth;
    uint32_t n_segments, capacity;
    struct fr_segment *segments;
    struct fr_pieces pieces;
    /* places of the directory that the present round of merging has still to examine */
    size_t trim_left;
    size_t least; /* entries for which there is always room; set by the owner */
    size_t n_entries;
    size_t bytes;
};

void fr_index_init(struct fr_index *index);
void fr_index_release(struct fr_index *index);
/* Makes room for n entries in all, or for `least` if that is larger, so that adding them moves few
 * entries. For the start and for recovery; the index must be empty. */
void fr_index_reserve(struct fr_index *index, size_t n);
/* Returns FR_NO_ENTRY if there is none. */
uint32_t fr_index_find(const struct fr_index *index, const struct fr_entries *entries, uint64_t hash);
/* Requires that the hash is absent from the index and that entry `number` already has it. */
void fr_index_insert(struct fr_index *index, const struct fr_entries *entries, uint64_t hash, uint32_t number);
/* Both functions require that the pair is in the index. */
void fr_index_erase(struct fr_index *index, uint64_t hash, uint32_t number);
void fr_index_renumber(struct fr_index *index, uint64_t hash, uint32_t from, uint32_t to);
/* Merges two segments that have become sparse and gives their memory back. Each call continues
 * where the last one stopped. */
void fr_index_trim(struct fr_index *index, const struct fr_entries *entries);

/* Calls visit for every entry whose hash, without its shard bits, begins with the `bits` bits of
 * `slice`. The visitor must not change the index. */
typedef void fr_index_visitor(void *self, uint32_t number);
void fr_index_scan(const struct fr_index *index, const struct fr_entries *entries, uint32_t bits, uint64_t slice,
                   fr_index_visitor *visit, void *self);

/* ---- for callers that look up many hashes ---- */

static inline struct fr_segment *fr_index_segment(const struct fr_index *index, uint64_t hash)
{
    /* Two shifts, because a shift by 64 (depth 0) is undefined. */
    return &index->segments[index->directory[((hash << FR_SHARD_BITS) >> 1) >> (63 - index->depth)]];
}

static inline uint32_t fr_segment_home(const struct fr_segment *segment, uint64_t hash)
{
    uint64_t top = (hash << (FR_SHARD_BITS + segment->depth)) >> 32;
    return (uint32_t)(top * segment->n_groups >> 32);
}

static inline uint8_t fr_segment_tag(const struct fr_segment *segment, uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> segment->tag_shift);
    return tag < FR_TAG_FULL_MIN ? (uint8_t)(tag + FR_TAG_FULL_MIN) : tag;
}

/* Always inline: GCC 12 considers a function that only prefetches to be without effect and drops
 * calls of it. */
__attribute__((always_inline)) static inline void fr_index_prefetch(const struct fr_index *index, uint64_t hash)
{
    const struct fr_segment *segment = fr_index_segment(index, hash);
    __builtin_prefetch(&segment->groups[fr_segment_home(segment, hash)]);
}

/* ---- group matching: bit i of the result is tag i ---- */

enum { FR_GROUP_MASK = (1 << FR_GROUP_PLACES) - 1 };

static inline uint32_t fr_group_match_portable(const struct fr_group *group, uint8_t tag)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < FR_GROUP_PLACES; i++)
        mask |= (uint32_t)(group->tags[i] == tag) << i;
    return mask;
}

static inline uint32_t fr_group_match(const struct fr_group *group, uint8_t tag)
{
#if defined(__SSE2__)
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)group);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(t, _mm_set1_epi8((char)tag))) & FR_GROUP_MASK;
#else
    return fr_group_match_portable(group, tag);
#endif
}

static inline uint32_t fr_group_full_portable(const struct fr_group *group)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < FR_GROUP_PLACES; i++)
        mask |= (uint32_t)(group->tags[i] >= FR_TAG_FULL_MIN) << i;
    return mask;
}

static inline uint32_t fr_group_full(const struct fr_group *group)
{
#if defined(__SSE2__)
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)group), least = _mm_set1_epi8(FR_TAG_FULL_MIN);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(t, least), t)) & FR_GROUP_MASK;
#else
    return fr_group_full_portable(group);
#endif
}

/* Returns the entry to which the hash most likely belongs, or FR_NO_ENTRY. Prefetches that entry
 * and the line in which its row begins or continues; without an entry, the group that fr_index_find
 * would read next. *absent: it is certain that the hash has no entry, until one is inserted. */
__attribute__((always_inline)) static inline uint32_t
fr_index_guess(const struct fr_index *index, const struct fr_entries *entries, uint64_t hash, bool *absent)
{
    const struct fr_segment *segment = fr_index_segment(index, hash);
    const struct fr_group *group = &segment->groups[fr_segment_home(segment, hash)];
    uint32_t match = fr_group_match(group, fr_segment_tag(segment, hash));
    *absent = !match && fr_group_match(group, FR_TAG_EMPTY);
    if (!match) {
        if (!*absent)
            __builtin_prefetch(group + 1);
        return FR_NO_ENTRY;
    }
    uint32_t number = group->numbers[__builtin_ctz(match)];
    const char *at = (const char *)fr_entries_at(entries, number);
    __builtin_prefetch(at, 1);
    __builtin_prefetch(at + (entries->live.stride < FR_LINE ? entries->live.stride : FR_LINE) - 1, 1);
    return number;
}

__attribute__((always_inline)) static inline void
fr_index_prefetch_entry(const struct fr_index *index, const struct fr_entries *entries, uint64_t hash)
{
    bool absent;
    (void)fr_index_guess(index, entries, hash, &absent);
}

#endif
