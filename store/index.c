/* Index of one shard: see index.h for the layout, the probing rule and why growth never pauses.
 *
 * Why migration always ends in time: a new generation is begun with at least as many groups G as
 * the old one, and so large that what is there and what is prepared for use at most three quarters
 * of its limit of 13 per group: more than 3 G places are left. A prepare that finds migration
 * unfinished has moved 4 groups per key so far, so fewer than G/4 keys came in; to overflow the new
 * generation now takes more than 2 G keys at once, and those migrate everything first. */
#include "index.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "pages.h"

static size_t group_count(const struct fr_generation *generation)
{
    return (size_t)1 << generation->log2_groups;
}

static size_t bytes_of_groups(uint32_t log2_groups)
{
    return sizeof(struct fr_group) << log2_groups;
}

static size_t generation_bytes(const struct fr_generation *generation)
{
    return generation->groups ? bytes_of_groups(generation->log2_groups) : 0;
}

static size_t used_max(const struct fr_generation *generation)
{
    return group_count(generation) * FR_INDEX_USED_PER_GROUP;
}

static struct fr_generation generation_new(uint32_t log2_groups)
{
    FR_CHECK(log2_groups <= FR_INDEX_LOG2_GROUPS_MAX);
    return (struct fr_generation){.groups = fr_pages_take(bytes_of_groups(log2_groups)), .log2_groups = log2_groups};
}

static void generation_free(struct fr_generation *generation)
{
    fr_pages_give(generation->groups, generation_bytes(generation));
    *generation = (struct fr_generation){0};
}

void fr_index_init(struct fr_index *index)
{
    *index = (struct fr_index){0};
    index->now = generation_new(0);
}

void fr_index_release(struct fr_index *index)
{
    generation_free(&index->now);
    generation_free(&index->old);
    *index = (struct fr_index){0};
}

size_t fr_index_bytes(const struct fr_index *index)
{
    return generation_bytes(&index->now) + generation_bytes(&index->old);
}

static uint8_t tag_of(uint64_t hash)
{
    return (uint8_t)(FR_TAG_FULL | (hash & 0x7f));
}

static struct fr_entry *generation_find(const struct fr_generation *generation, uint64_t hash)
{
    size_t mask = group_count(generation) - 1;
    uint8_t tag = tag_of(hash);
    for (size_t g = fr_generation_home(generation, hash);; g = (g + 1) & mask) {
        struct fr_group *group = &generation->groups[g];
        for (uint32_t match = fr_group_match(group->tags, tag); match; match &= match - 1) {
            struct fr_entry *entry = &group->entries[__builtin_ctz(match)];
            if (entry->hash == hash)
                return entry;
        }
        if (fr_group_match(group->tags, FR_TAG_EMPTY))
            return NULL;
    }
}

static struct fr_entry *generation_insert(struct fr_generation *generation, uint64_t hash)
{
    size_t mask = group_count(generation) - 1;
    for (size_t g = fr_generation_home(generation, hash);; g = (g + 1) & mask) {
        struct fr_group *group = &generation->groups[g];
        uint32_t vacant = ~fr_group_full(group->tags) & 0xffffu;
        if (!vacant)
            continue;
        uint32_t place = (uint32_t)__builtin_ctz(vacant);
        generation->used += group->tags[place] == FR_TAG_EMPTY;
        group->tags[place] = tag_of(hash);
        return &group->entries[place];
    }
}

struct fr_entry *fr_index_find(const struct fr_index *index, uint64_t hash)
{
    struct fr_entry *entry = generation_find(&index->now, hash);
    if (!entry && index->old.groups)
        entry = generation_find(&index->old, hash);
    return entry;
}

struct fr_entry *fr_index_insert(struct fr_index *index, uint64_t hash)
{
    struct fr_entry *entry = generation_insert(&index->now, hash);
    FR_CHECK(index->now.used <= used_max(&index->now));
    *entry = (struct fr_entry){.hash = hash};
    index->n_entries++;
    return entry;
}

static bool holds(const struct fr_generation *generation, const struct fr_entry *entry)
{
    uintptr_t begin = (uintptr_t)generation->groups;
    return (uintptr_t)entry >= begin && (uintptr_t)entry < begin + generation_bytes(generation);
}

static struct fr_group *group_of(const struct fr_generation *generation, const struct fr_entry *entry)
{
    FR_CHECK(generation->groups);
    FR_CHECK(holds(generation, entry));
    size_t g = ((uintptr_t)entry - (uintptr_t)generation->groups) / sizeof(struct fr_group);
    struct fr_group *group = &generation->groups[g];
    FR_CHECK(group->tags[entry - group->entries] & FR_TAG_FULL);
    return group;
}

void fr_index_uninsert(struct fr_index *index, struct fr_entry *entry, bool was_empty)
{
    struct fr_group *group = group_of(&index->now, entry);
    group->tags[entry - group->entries] = was_empty ? FR_TAG_EMPTY : FR_TAG_DELETED;
    index->now.used -= was_empty;
    index->n_entries--;
}

void fr_index_erase(struct fr_index *index, struct fr_entry *entry)
{
    struct fr_generation *generation = holds(&index->now, entry) ? &index->now : &index->old;
    struct fr_group *group = group_of(generation, entry);
    size_t place = (size_t)(entry - group->entries);
    /* With an empty tag in the group no probe ever went past it, so the place may be empty
     * again. */
    if (fr_group_match(group->tags, FR_TAG_EMPTY)) {
        group->tags[place] = FR_TAG_EMPTY;
        generation->used--;
    } else {
        group->tags[place] = FR_TAG_DELETED;
    }
    index->n_entries--;
}

static void migrate_group(struct fr_index *index, struct fr_group *group)
{
    for (uint32_t full = fr_group_full(group->tags); full; full &= full - 1) {
        uint32_t place = (uint32_t)__builtin_ctz(full);
        *generation_insert(&index->now, group->entries[place].hash) = group->entries[place];
        /* Deleted, never empty: probes for entries not yet moved must still go past here. */
        group->tags[place] = FR_TAG_DELETED;
    }
}

static size_t migrate(struct fr_index *index, size_t groups_max)
{
    size_t end = group_count(&index->old);
    size_t moved = 0;
    for (; moved < groups_max && index->next_group < end; moved++)
        migrate_group(index, &index->old.groups[index->next_group++]);
    if (index->next_group == end)
        generation_free(&index->old);
    return moved;
}

/* Also when deleted tags, not entries, fill it: then the new generation has the same size. */
static void begin_generation(struct fr_index *index, size_t extra)
{
    uint32_t log2_groups = index->now.log2_groups;
    while (((size_t)FR_INDEX_USED_PER_GROUP << log2_groups) / 4 * 3 < index->n_entries + extra)
        log2_groups++;
    index->old = index->now;
    index->next_group = 0;
    index->now = generation_new(log2_groups);
}

size_t fr_index_prepare(struct fr_index *index, size_t extra)
{
    FR_CHECK(extra <= SIZE_MAX / FR_INDEX_MIGRATE_PER_KEY);
    size_t moved = 0;
    if (index->old.groups && extra)
        moved = migrate(index, extra * FR_INDEX_MIGRATE_PER_KEY);
    if (!index->old.groups && index->now.used + extra > used_max(&index->now))
        begin_generation(index, extra);
    return moved;
}

/* Groups first .. last (both included), then on while a group has no empty tag: displaced entries
 * lie there. Erasing from a group never changes whether it has an empty tag, so the visitor may
 * erase. */
static void scan_groups(struct fr_generation *generation, const uint64_t range[2], fr_index_visitor *visit, void *self)
{
    size_t n_groups = group_count(generation), mask = n_groups - 1;
    /* fr_generation_home drops the shard bits, which the range does not have. */
    size_t first = fr_generation_home(generation, range[0] >> FR_SHARD_BITS);
    size_t last = fr_generation_home(generation, range[1] >> FR_SHARD_BITS);
    for (size_t i = 0; i < n_groups; i++) {
        struct fr_group *group = &generation->groups[(first + i) & mask];
        for (uint32_t full = fr_group_full(group->tags); full; full &= full - 1) {
            struct fr_entry *entry = &group->entries[__builtin_ctz(full)];
            uint64_t position = entry->hash << FR_SHARD_BITS;
            if (position >= range[0] && position <= range[1])
                visit(self, entry);
        }
        if (first + i >= last && fr_group_match(group->tags, FR_TAG_EMPTY))
            return;
    }
}

void fr_index_scan(struct fr_index *index, uint32_t bits, uint64_t slice, fr_index_visitor *visit, void *self)
{
    FR_CHECK(bits <= FR_INDEX_SLICE_BITS_MAX && slice >> bits == 0);
    uint64_t width = bits ? (uint64_t)1 << (64 - bits) : 0; /* 0: everything */
    uint64_t range[2] = {slice * width, slice * width + (width - 1)};
    scan_groups(&index->now, range, visit, self);
    if (index->old.groups)
        scan_groups(&index->old, range, visit, self);
}
