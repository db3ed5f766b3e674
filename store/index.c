/* Index of one shard: see index.h for the layout, the probing rule and why growth never pauses. */
#include "index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum {
    USED_PER_16_GROUPS = 168, /* limit of used places in 16 groups, of 192: 7/8 */
    STAGGER = 64,             /* number of different limits, by place in the key space */
    LOOK_AHEAD = 16,          /* places whose entries are being prefetched */
    SPLIT_AHEAD = 8,          /* groups whose entries are being prefetched */
    /* A segment with this many more common bits than its neighbours' is not split further. Only
     * inputs that are not hashes cause that, and they must not make the directory explode. */
    EXTRA_DEPTH_MAX = 6,
    GROUPS_MAX = 1 << 30,
};

static bool in_pieces(uint32_t n_groups)
{
    return n_groups >= FR_SEGMENT_GROUPS && n_groups <= FR_SEGMENT_GROUPS_MAX;
}

static struct fr_group *take_groups(struct fr_index *index, uint32_t n_groups)
{
    FR_CHECK(n_groups <= GROUPS_MAX);
    size_t bytes = n_groups * sizeof(struct fr_group);
    index->bytes += bytes;
    return in_pieces(n_groups) ? fr_pieces_take(&index->pieces, (uint32_t)(bytes / FR_PIECE)) : fr_pages_take(bytes, 0);
}

static void give_groups(struct fr_index *index, const struct fr_segment *segment)
{
    size_t bytes = segment->n_groups * sizeof(struct fr_group);
    index->bytes -= bytes;
    if (in_pieces(segment->n_groups))
        fr_pieces_give(&index->pieces, segment->groups, (uint32_t)(bytes / FR_PIECE));
    else
        fr_pages_give(segment->groups, bytes);
}

/* In a segment of a usual size, the tag is the bits that follow those of the home. */
static uint32_t tag_shift_of(uint32_t depth, uint32_t n_groups)
{
    uint32_t before = FR_SHARD_BITS + depth + FR_HOME_BITS + FR_TAG_BITS;
    return in_pieces(n_groups) && before < 64 ? 64 - before : 0;
}

/* The limit of used places: between 0.84 and 1 times what probing tolerates, by place in the key
 * space. That range is one step of growth. */
static uint32_t limit_of(uint64_t prefix, uint32_t n_groups)
{
    /* by the shard bits and the six bits below */
    uint32_t place = (uint32_t)(fr_fmix64(prefix >> 54) % STAGGER);
    double share = exp2(-0.25 * (double)place / STAGGER);
    return (uint32_t)((double)n_groups * USED_PER_16_GROUPS / 16 * share);
}

static uint32_t next_size(uint32_t n_groups)
{
    bool steps = n_groups >= FR_SEGMENT_GROUPS && n_groups < FR_SEGMENT_GROUPS_MAX;
    return steps ? n_groups + FR_SEGMENT_STEP : 2 * n_groups;
}

/* The smallest segment in which n entries leave room. */
static uint32_t size_for(uint64_t prefix, size_t n)
{
    uint32_t n_groups = 1;
    while (limit_of(prefix, n_groups) <= n)
        n_groups = next_size(n_groups);
    return n_groups;
}

static struct fr_segment make_segment(struct fr_index *index, uint64_t prefix, uint32_t depth, uint32_t n_groups)
{
    return (struct fr_segment){.groups = take_groups(index, n_groups),
                               .limit = limit_of(prefix, n_groups),
                               .n_groups = n_groups,
                               .depth = depth,
                               .tag_shift = tag_shift_of(depth, n_groups)};
}

static uint32_t add_segment(struct fr_index *index, struct fr_segment segment)
{
    if (index->n_segments == index->capacity) {
        index->capacity = index->capacity ? 2 * index->capacity : 1;
        index->segments = fr_realloc(index->segments, index->capacity, sizeof(*index->segments));
    }
    index->segments[index->n_segments] = segment;
    return index->n_segments++;
}

void fr_index_init(struct fr_index *index)
{
    *index = (struct fr_index){0};
    index->directory = fr_alloc(1, sizeof(*index->directory));
    (void)add_segment(index, make_segment(index, 0, 0, 1));
}

void fr_index_release(struct fr_index *index)
{
    for (uint32_t i = 0; i < index->n_segments; i++)
        give_groups(index, &index->segments[i]);
    fr_pieces_release(&index->pieces);
    free(index->directory);
    free(index->segments);
    *index = (struct fr_index){0};
}

/* ---- places ---- */

uint32_t fr_index_find(const struct fr_index *index, const struct fr_entries *entries, uint64_t hash)
{
    const struct fr_segment *segment = fr_index_segment(index, hash);
    uint8_t tag = fr_segment_tag(segment, hash);
    for (uint32_t g = fr_segment_home(segment, hash);; g = g + 1 == segment->n_groups ? 0 : g + 1) {
        const struct fr_group *group = &segment->groups[g];
        for (uint32_t match = fr_group_match(group, tag); match; match &= match - 1) {
            uint32_t number = group->numbers[__builtin_ctz(match)];
            if (fr_entries_at(entries, number)->hash == hash)
                return number;
        }
        if (fr_group_match(group, FR_TAG_EMPTY))
            return FR_NO_ENTRY;
    }
}

static uint32_t behind_of(uint32_t groups, uint32_t at)
{
    return (groups < FR_BEHIND_FAR ? groups : FR_BEHIND_FAR) << 2 * at;
}

static void place(struct fr_segment *segment, uint64_t hash, uint32_t number)
{
    uint32_t g = fr_segment_home(segment, hash);
    for (uint32_t i = 0;; i++, g = g + 1 == segment->n_groups ? 0 : g + 1) {
        struct fr_group *group = &segment->groups[g];
        uint32_t vacant = ~fr_group_full(group) & FR_GROUP_MASK;
        if (!vacant)
            continue;
        uint32_t at = (uint32_t)__builtin_ctz(vacant);
        segment->used += group->tags[at] == FR_TAG_EMPTY;
        segment->full++;
        group->tags[at] = fr_segment_tag(segment, hash);
        group->behind = (group->behind & ~behind_of(FR_BEHIND_FAR, at)) | behind_of(i, at);
        group->numbers[at] = number;
        return;
    }
}

/* Finds the place of a number that is in the index. */
static struct fr_group *locate(struct fr_segment *segment, uint64_t hash, uint32_t number, uint32_t *at)
{
    uint8_t tag = fr_segment_tag(segment, hash);
    uint32_t g = fr_segment_home(segment, hash);
    for (uint32_t i = 0;; i++, g = g + 1 < segment->n_groups ? g + 1 : 0) {
        FR_CHECK(i < segment->n_groups); /* the number is in the index */
        struct fr_group *group = &segment->groups[g];
        for (uint32_t match = fr_group_match(group, tag); match; match &= match - 1) {
            *at = (uint32_t)__builtin_ctz(match);
            if (group->numbers[*at] == number)
                return group;
        }
    }
}

void fr_index_erase(struct fr_index *index, uint64_t hash, uint32_t number)
{
    uint32_t at;
    struct fr_segment *segment = fr_index_segment(index, hash);
    struct fr_group *group = locate(segment, hash, number, &at);
    /* If the group has an empty tag, no probe ever continued past the group, so the place may
     * become empty again. */
    bool empty = fr_group_match(group, FR_TAG_EMPTY) != 0;
    group->tags[at] = empty ? FR_TAG_EMPTY : FR_TAG_DELETED;
    segment->used -= empty;
    segment->full--;
    index->n_entries--;
}

void fr_index_renumber(struct fr_index *index, uint64_t hash, uint32_t from, uint32_t to)
{
    uint32_t at;
    struct fr_group *group = locate(fr_index_segment(index, hash), hash, from, &at);
    group->numbers[at] = to;
}

/* ---- growth ---- */

/* Adds an entry to a segment that is being built, from which nothing has been erased yet. */
static void put_entry(struct fr_segment *made, uint32_t home, uint8_t tag, uint32_t number)
{
    uint32_t g = home;
    for (uint32_t i = 0;; i++, g = g + 1 == made->n_groups ? 0 : g + 1) {
        struct fr_group *group = &made->groups[g];
        uint32_t at = group->behind >> FR_FILLED_SHIFT;
        if (at == FR_GROUP_PLACES)
            continue;
        group->tags[at] = tag;
        group->numbers[at] = number;
        group->behind += ((uint32_t)1 << FR_FILLED_SHIFT) + behind_of(i, at);
        made->used++;
        made->full++;
        return;
    }
}

static void put_entry_by_hash(struct fr_segment *made, const struct fr_entries *entries, uint32_t number)
{
    uint64_t hash = fr_entries_at(entries, number)->hash;
    put_entry(made, fr_segment_home(made, hash), fr_segment_tag(made, hash), number);
}

/* Computes the home of a place; false if the place is too far from its home to tell. */
static bool home_of(const struct fr_segment *segment, uint32_t g, uint32_t at, uint32_t *home)
{
    uint32_t behind = segment->groups[g].behind >> 2 * at & FR_BEHIND_FAR;
    *home = g >= behind ? g - behind : g + segment->n_groups - behind;
    return behind < FR_BEHIND_FAR;
}

/* Puts every entry of `from` into one of two segments, by the bit of its hash that follows the
 * first `depth` bits below the shard's. */
static void distribute(const struct fr_segment *from, const struct fr_entries *entries, uint32_t depth,
                       struct fr_segment *const to[2])
{
    for (uint32_t g = 0; g < from->n_groups + SPLIT_AHEAD; g++) {
        const struct fr_group *ahead = &from->groups[g];
        for (uint32_t full = g < from->n_groups ? fr_group_full(ahead) : 0; full; full &= full - 1)
            __builtin_prefetch(fr_entries_at(entries, ahead->numbers[__builtin_ctz(full)]));
        if (g < SPLIT_AHEAD)
            continue;
        const struct fr_group *group = &from->groups[g - SPLIT_AHEAD];
        for (uint32_t full = fr_group_full(group); full; full &= full - 1) {
            uint32_t number = group->numbers[__builtin_ctz(full)];
            uint64_t hash = fr_entries_at(entries, number)->hash;
            put_entry_by_hash(to[(hash << (FR_SHARD_BITS + depth)) >> 63], entries, number);
        }
    }
}

/* Computes the home, in a segment of the same depth but another size, of all hashes with this home
 * and tag. False: the hashes lie on a border between two homes. Borders of homes lie where the ten
 * bits begin or at sevenths of them, so it does not matter that each of the lowest tags stands for
 * two hashes. */
static bool carried_home(const struct fr_segment *from, uint32_t home, uint8_t tag, const struct fr_segment *to,
                         uint32_t *carried)
{
    /* low bits among those that determine fr_segment_home */
    enum { REST = 32 - FR_HOME_BITS - FR_TAG_BITS };
    /* the value of the ten bits at which the home begins */
    uint64_t begin = ((uint64_t)home << FR_HOME_BITS) / from->n_groups;
    uint64_t first = (begin << FR_TAG_BITS | tag) << REST, last = first + ((uint64_t)1 << REST) - 1;
    if (last * from->n_groups >> 32 < home) {
        /* the home begins after these hashes: they have the next value of the ten bits */
        first += (uint64_t)1 << (FR_TAG_BITS + REST);
        last += (uint64_t)1 << (FR_TAG_BITS + REST);
    }
    *carried = (uint32_t)(first * to->n_groups >> 32);
    return *carried == last * to->n_groups >> 32;
}

/* Puts every entry of `from` into a segment of the same depth, in which the tags stay the same. The
 * few entries that must be read are collected, so that their cache misses overlap. */
static void carry_entries(const struct fr_segment *from, const struct fr_entries *entries, struct fr_segment *to)
{
    uint32_t waiting[LOOK_AHEAD + FR_GROUP_PLACES], n = 0;
    for (uint32_t g = 0; g < from->n_groups; g++) {
        const struct fr_group *group = &from->groups[g];
        for (uint32_t full = fr_group_full(group); full; full &= full - 1) {
            uint32_t at = (uint32_t)__builtin_ctz(full), number = group->numbers[at], home, carried;
            if (home_of(from, g, at, &home) && carried_home(from, home, group->tags[at], to, &carried)) {
                put_entry(to, carried, group->tags[at], number);
            } else {
                __builtin_prefetch(fr_entries_at(entries, number));
                waiting[n++] = number;
            }
        }
        if (n < LOOK_AHEAD && g + 1 < from->n_groups)
            continue;
        for (uint32_t i = 0; i < n; i++)
            put_entry_by_hash(to, entries, waiting[i]);
        n = 0;
    }
}

/* Moves the entries into a segment of another size, dropping deleted places. */
static void rebuild(struct fr_index *index, const struct fr_entries *entries, uint32_t s, uint64_t prefix,
                    uint32_t n_groups)
{
    struct fr_segment old = index->segments[s];
    struct fr_segment made = make_segment(index, prefix, old.depth, n_groups);
    struct fr_segment *const to[2] = {&made, &made};
    if (old.tag_shift > 0 && made.tag_shift > 0)
        carry_entries(&old, entries, &made);
    else
        distribute(&old, entries, old.depth, to);
    index->segments[s] = made;
    give_groups(index, &old);
}

static void double_directory(struct fr_index *index)
{
    size_t n = (size_t)1 << index->depth;
    index->directory = fr_realloc(index->directory, 2 * n, sizeof(*index->directory));
    for (size_t i = n; i-- > 0;)
        index->directory[2 * i] = index->directory[2 * i + 1] = index->directory[i];
    index->depth++;
}

/* The range of the directory that a segment with this hash and depth has. */
static void directory_range(const struct fr_index *index, uint64_t hash, uint32_t depth, size_t *begin, size_t *end)
{
    size_t prefix = (size_t)(((hash << FR_SHARD_BITS) >> 1) >> (63 - depth));
    *begin = prefix << (index->depth - depth);
    *end = (prefix + 1) << (index->depth - depth);
}

static uint64_t prefix_of(uint64_t hash, uint32_t depth)
{
    uint32_t bits = FR_SHARD_BITS + depth;
    return hash >> (64 - bits) << (64 - bits);
}

/* Counts the entries for each half. The number of groups is even, so homes in the first half have
 * bit 0. */
static void count_halves(const struct fr_segment *segment, const struct fr_entries *entries, size_t n[2])
{
    n[0] = n[1] = 0;
    for (uint32_t g = 0; g < segment->n_groups; g++) {
        const struct fr_group *group = &segment->groups[g];
        for (uint32_t full = fr_group_full(group); full; full &= full - 1) {
            uint32_t at = (uint32_t)__builtin_ctz(full), home;
            if (!home_of(segment, g, at, &home))
                home = fr_segment_home(segment, fr_entries_at(entries, group->numbers[at])->hash);
            n[home >= segment->n_groups / 2]++;
        }
    }
}

static void split(struct fr_index *index, const struct fr_entries *entries, uint32_t s, uint64_t hash)
{
    struct fr_segment old = index->segments[s];
    if (old.depth == index->depth)
        double_directory(index);
    uint64_t prefix[2] = {prefix_of(hash, old.depth)};
    prefix[1] = prefix[0] | (uint64_t)1 << (63 - FR_SHARD_BITS - old.depth);
    struct fr_segment made[2];
    size_t n[2];
    count_halves(&old, entries, n);
    for (int i = 0; i < 2; i++) {
        uint32_t n_groups = size_for(prefix[i], n[i]);
        made[i] =
            make_segment(index, prefix[i], old.depth + 1, n_groups < FR_SEGMENT_GROUPS ? FR_SEGMENT_GROUPS : n_groups);
    }
    struct fr_segment *const to[2] = {&made[0], &made[1]};
    distribute(&old, entries, old.depth, to);
    give_groups(index, &old);
    index->segments[s] = made[0];
    uint32_t added = add_segment(index, made[1]);
    size_t begin, end;
    directory_range(index, prefix[1], old.depth + 1, &begin, &end);
    for (size_t i = begin; i < end; i++)
        index->directory[i] = added;
}

/* Makes room in the segment of a hash: by dropping deleted places, by a larger segment, or by a
 * split. */
static void grow(struct fr_index *index, const struct fr_entries *entries, uint64_t hash)
{
    struct fr_segment *segment = fr_index_segment(index, hash);
    uint32_t s = (uint32_t)(segment - index->segments), usual = 0;
    uint64_t prefix = prefix_of(hash, segment->depth);
    while (index->n_segments >> usual)
        usual++;
    if (segment->full < segment->limit / 4 * 3)
        rebuild(index, entries, s, prefix, segment->n_groups);
    else if (segment->n_groups >= FR_SEGMENT_GROUPS_MAX && segment->depth < usual + EXTRA_DEPTH_MAX)
        split(index, entries, s, hash);
    else
        rebuild(index, entries, s, prefix, next_size(segment->n_groups));
}

void fr_index_insert(struct fr_index *index, const struct fr_entries *entries, uint64_t hash, uint32_t number)
{
    struct fr_segment *segment = fr_index_segment(index, hash);
    while (segment->used >= segment->limit) {
        grow(index, entries, hash);
        segment = fr_index_segment(index, hash);
    }
    place(segment, hash, number);
    index->n_entries++;
}

void fr_index_reserve(struct fr_index *index, size_t n)
{
    FR_CHECK(index->n_entries == 0);
    size_t depth = 0, least = index->least;
    n = n > least ? n : least;
    while (n >> depth > limit_of(0, FR_SEGMENT_GROUPS_MAX) / 4 * 3)
        depth++;
    uint32_t n_groups = size_for(0, (n >> depth) + (n >> depth) / 8);
    fr_index_release(index);
    index->least = least;
    index->depth = (uint32_t)depth;
    index->capacity = (uint32_t)1 << depth;
    index->segments = fr_alloc(index->capacity, sizeof(*index->segments));
    index->directory = fr_alloc(index->capacity, sizeof(*index->directory));
    for (uint64_t i = 0; i >> depth == 0; i++) {
        uint64_t prefix = depth ? i << (64 - FR_SHARD_BITS - depth) : 0;
        index->directory[i] = add_segment(index, make_segment(index, prefix, (uint32_t)depth, n_groups));
    }
}

/* ---- shrinking ---- */

static void remove_segment(struct fr_index *index, uint32_t s)
{
    uint32_t last = --index->n_segments;
    if (s == last)
        return;
    index->segments[s] = index->segments[last];
    for (size_t i = 0; i >> index->depth == 0; i++)
        if (index->directory[i] == last)
            index->directory[i] = s;
}

/* Merges the segment at a place of the directory with its neighbour, if both have the same depth
 * and together leave enough room. */
static bool merge(struct fr_index *index, const struct fr_entries *entries, size_t at)
{
    struct fr_segment *one = &index->segments[index->directory[at]];
    if (one->depth == 0)
        return false;
    size_t width = (size_t)1 << (index->depth - one->depth);
    size_t low = at / (2 * width) * (2 * width);
    uint32_t a = index->directory[low], b = index->directory[low + width];
    FR_CHECK(a != b);
    struct fr_segment left = index->segments[a], right = index->segments[b];
    if (left.depth != right.depth || left.full + right.full > limit_of(0, FR_SEGMENT_GROUPS) / 2)
        return false;
    uint64_t prefix = (uint64_t)low << (63 - FR_SHARD_BITS - index->depth) << 1;
    struct fr_segment made =
        make_segment(index, prefix, left.depth - 1, size_for(prefix, (size_t)left.full + right.full));
    struct fr_segment *const to[2] = {&made, &made};
    distribute(&left, entries, made.depth, to);
    distribute(&right, entries, made.depth, to);
    give_groups(index, &left);
    give_groups(index, &right);
    index->segments[a] = made;
    for (size_t i = low; i < low + 2 * width; i++)
        index->directory[i] = a;
    remove_segment(index, b);
    return true;
}

static void halve_directory(struct fr_index *index)
{
    for (uint32_t i = 0; i < index->n_segments; i++)
        if (index->segments[i].depth == index->depth)
            return;
    index->depth--;
    for (size_t i = 0; i >> index->depth == 0; i++)
        index->directory[i] = index->directory[2 * i];
    index->directory = fr_realloc(index->directory, (size_t)1 << index->depth, sizeof(*index->directory));
}

/* Whether n entries would use at most a quarter of the places. */
static bool is_sparse(const struct fr_index *index, size_t n)
{
    return n <= index->bytes / sizeof(struct fr_group) * FR_GROUP_PLACES / 4;
}

/* When at most a quarter of the places are in use, a round through the directory begins. Each call
 * makes one merge, which moves at most half a segment of entries, so no batch bears more of a mass
 * removal. */
void fr_index_trim(struct fr_index *index, const struct fr_entries *entries)
{
    size_t directory = (size_t)1 << index->depth;
    size_t wanted = index->n_entries > index->least ? index->n_entries : index->least;
    if (!is_sparse(index, index->least))
        index->trim_left = 0;
    else if (index->trim_left == 0 && is_sparse(index, index->n_entries))
        index->trim_left = directory;
    if (index->trim_left == 0)
        return;
    while (index->trim_left > 0) {
        if (merge(index, entries, index->trim_left < directory ? directory - index->trim_left : 0))
            return;
        index->trim_left--;
    }
    for (uint32_t depth = index->depth; depth > 0 && index->depth == depth; depth--)
        halve_directory(index);
    uint32_t n_groups = size_for(0, wanted);
    if (index->n_segments == 1 && n_groups < index->segments[0].n_groups)
        rebuild(index, entries, 0, 0, n_groups);
}

/* ---- scan ---- */

/* Visits homes first .. last (both included), and then the following groups while a group has no
 * empty tag, because displaced entries are there. */
static void scan_segment(const struct fr_segment *segment, const struct fr_entries *entries, const uint64_t range[2],
                         fr_index_visitor *visit, void *self)
{
    uint32_t found[LOOK_AHEAD + FR_GROUP_PLACES], n = 0;
    uint32_t first = fr_segment_home(segment, range[0] >> FR_SHARD_BITS);
    uint32_t last = fr_segment_home(segment, range[1] >> FR_SHARD_BITS);
    for (uint32_t i = 0, at = first;; i++, at = at + 1 < segment->n_groups ? at + 1 : 0) {
        bool more = i < segment->n_groups;
        const struct fr_group *group = &segment->groups[at];
        for (uint32_t full = more ? fr_group_full(group) : 0; full; full &= full - 1) {
            found[n] = group->numbers[__builtin_ctz(full)];
            __builtin_prefetch(fr_entries_at(entries, found[n++]));
        }
        more = more && !(first + i >= last && fr_group_match(group, FR_TAG_EMPTY));
        if (more && n < LOOK_AHEAD)
            continue;
        for (uint32_t k = 0; k < n; k++) {
            uint64_t position = fr_entries_at(entries, found[k])->hash << FR_SHARD_BITS;
            if (position >= range[0] && position <= range[1])
                visit(self, found[k]);
        }
        n = 0;
        if (!more)
            return;
    }
}

void fr_index_scan(const struct fr_index *index, const struct fr_entries *entries, uint32_t bits, uint64_t slice,
                   fr_index_visitor *visit, void *self)
{
    FR_CHECK(bits <= FR_INDEX_SLICE_BITS_MAX && slice >> bits == 0);
    uint64_t width = bits ? (uint64_t)1 << (64 - bits) : 0; /* 0: the whole range */
    uint64_t range[2] = {slice * width, slice * width + (width - 1)};
    uint32_t before = UINT32_MAX;
    size_t begin = (size_t)(range[0] >> 1 >> (63 - index->depth)), end = (size_t)(range[1] >> 1 >> (63 - index->depth));
    for (size_t i = begin; i <= end; i++) {
        /* the places of one segment in the directory are contiguous */
        if (index->directory[i] == before)
            continue;
        before = index->directory[i];
        const struct fr_segment *segment = &index->segments[before];
        /* the part of the range that belongs to the segment */
        /* 0: the whole range */
        uint64_t size = segment->depth ? (uint64_t)1 << (64 - segment->depth) : 0;
        uint64_t first = (uint64_t)(i >> (index->depth - segment->depth)) * size, last = first + (size - 1);
        uint64_t own[2] = {range[0] > first ? range[0] : first, range[1] < last ? range[1] : last};
        scan_segment(segment, entries, own, visit, self);
    }
}
