/* Index of one shard: 64-bit hash -> number of an entry, in segments that split one by one.
 *
 * Extendible hashing (Fagin, Nievergelt, Pippenger, Strong 1979): a directory over the bits below
 * the shard's names the segment, so the shard grows by one small segment at a time and never
 * pauses. A segment doubles until it has 64 KiB, then grows by three quarters of that once, then
 * splits: partial expansions (Larson 1980). Three steps of a quarter each would take 2.5 bytes a
 * key less and move four keys instead of one for each that comes. How full is too full depends on
 * the place in the key space, so that segments, which are filled alike, do not grow together. When
 * rows went, neighbours merge and the memory goes back.
 *
 * In a segment there are groups of one cache line: 12 tags and 12 numbers, compared with one
 * instruction (SwissTable, Benzaquen et al., Abseil 2017; groups that are lines: F14, Bronson and
 * Shi 2019). The home group is given by the bits below the directory's, so entries lie in hash
 * order up to displacement, and a range of hashes is a range of groups: that is what a slice scans.
 * Probing goes group by group, wrapping in the segment; it ends at the first group that has an
 * empty tag. An entry erased from a group without one leaves "deleted".
 *
 * For each key that comes, one is moved by a step of growth and two by splits. A step reads
 * no entries, each of which would be a miss of the cache: a place says how many groups behind its
 * home it is, and a tag is the eight bits of the hash that follow the home's ten, so that home and
 * tag give the 18 bits behind those of the segment. A split needs one bit more, and does read them.
 *
 * The hash is the state's keyed order (base/order.h): nobody can choose keys that crowd one
 * segment. Hashes stand in the entries (entries.h); a place takes 5.3 bytes, a key about 9.7.
 *
 * Owner: one worker at a time; any number may look up while nothing changes. It does not know
 * tables, rows or policies. */
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
    FR_SEGMENT_GROUPS = 1024,     /* of a segment that has just been split */
    FR_SEGMENT_STEP = 768,        /* groups by which it grows */
    FR_SEGMENT_GROUPS_MAX = 1792, /* at which it splits */
    FR_HOME_BITS = 10,            /* of a hash, which FR_SEGMENT_GROUPS homes tell apart */
    FR_TAG_BITS = 8,
    FR_INDEX_SLICE_BITS_MAX = 40, /* finer slices of a table than its groups mean nothing */
};
_Static_assert(FR_SEGMENT_GROUPS == 1 << FR_HOME_BITS, "homes tell so many bits apart");
#define FR_NO_ENTRY UINT32_MAX

enum { FR_BEHIND_FAR = 3, FR_FILLED_SHIFT = 2 * FR_GROUP_PLACES };
enum { FR_TAG_EMPTY = 0, FR_TAG_DELETED = 1, FR_TAG_FULL_MIN = 2 };

struct fr_group {
    uint8_t tags[FR_GROUP_PLACES];
    /* Of each place two bits, how many groups it is behind its home (FR_BEHIND_FAR: so many or
     * more); from FR_FILLED_SHIFT on, places filled while the segment is made. 16 bytes are
     * loaded. */
    uint32_t behind;
    uint32_t numbers[FR_GROUP_PLACES];
};
_Static_assert(sizeof(struct fr_group) == FR_LINE, "a cache line");

struct fr_segment {
    struct fr_group *groups;
    uint32_t used, full; /* places: full and deleted, full */
    uint32_t limit;      /* of used: at it the segment grows */
    uint32_t n_groups;
    uint32_t depth;     /* bits that all its hashes share below the shard's */
    uint32_t tag_shift; /* of a hash; 0: its last bits, which say nothing of its home */
};
_Static_assert(sizeof(struct fr_segment) == 32, "two in a cache line");

struct fr_index {
    uint32_t *directory; /* [1 << depth] segment numbers, by the bits below the shard's */
    uint32_t depth;
    uint32_t n_segments, capacity;
    struct fr_segment *segments;
    struct fr_pieces pieces;
    size_t trim_left; /* places of the directory that a round of merging has before it */
    size_t least;     /* entries that there is always room for; the owner sets it */
    size_t n_entries;
    size_t bytes;
};

void fr_index_init(struct fr_index *index);
void fr_index_release(struct fr_index *index);
/* Room for n entries in all, or `least` if that is more, so that taking them moves little: for a
 * start and recovery, into an empty index. */
void fr_index_reserve(struct fr_index *index, size_t n);
/* FR_NO_ENTRY: there is none. */
uint32_t fr_index_find(const struct fr_index *index, const struct fr_entries *entries, uint64_t hash);
/* The hash must be absent, and the entry of that number have it already. */
void fr_index_insert(struct fr_index *index, const struct fr_entries *entries, uint64_t hash, uint32_t number);
/* Both need the pair to be there. */
void fr_index_erase(struct fr_index *index, uint64_t hash, uint32_t number);
void fr_index_renumber(struct fr_index *index, uint64_t hash, uint32_t from, uint32_t to);
/* Merges two segments that became sparse, the next ones each time; their memory goes back. */
void fr_index_trim(struct fr_index *index, const struct fr_entries *entries);

/* Calls visit for every entry whose hash, without its shard bits, begins with the `bits` bits of
 * `slice`. The visitor must not change the index. */
typedef void fr_index_visitor(void *self, uint32_t number);
void fr_index_scan(const struct fr_index *index, const struct fr_entries *entries, uint32_t bits, uint64_t slice,
                   fr_index_visitor *visit, void *self);

/* ---- for callers that look many hashes up ---- */

static inline struct fr_segment *fr_index_segment(const struct fr_index *index, uint64_t hash)
{
    /* In two shifts, because one of 64 is undefined (depth 0). */
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

/* Always inline: GCC 12 takes a function that only prefetches for one without effect, and drops
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

/* The entry to which the hash most likely belongs, or FR_NO_ENTRY; brings it on its way into the
 * cache, with the line on which its row begins or goes on, or else what fr_index_find goes on to.
 * absent: it has none, for certain, until it is inserted. */
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
