/* Walks over a range of one sorted file (sorted_file.h).
 *
 * Blocks are read WINDOW_BLOCKS at a time, up to the last block of the range, so the walk of a
 * slice reads little more than the slice.
 *
 * Thread: one for each walk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cold_rocks.h"
#include "sorted_block.h"
#include "sorted_file.h"

enum { WINDOW_BLOCKS = 64 };

struct fr_sorted_walk {
    const struct fr_sorted_file *file;
    uint32_t table;
    uint64_t first, last;              /* hashes, both included */
    uint32_t block, end;               /* the open block; the block after the range's last one */
    uint32_t window_begin, window_end; /* blocks in memory */
    struct fr_buffer window;
    struct sorted_entries entries; /* of the open block */
    bool is_open;
};

struct fr_sorted_walk *fr_sorted_walk_new(const struct fr_sorted_file *file, uint32_t table, uint64_t first,
                                          uint64_t last)
{
    struct fr_sorted_walk *walk = fr_alloc(1, sizeof(*walk));
    struct fr_sorted_key begin = {.table = table, .hash = first}, end = {.table = table, .hash = last};
    walk->file = file;
    walk->table = table;
    walk->first = first;
    walk->last = last;
    walk->block = fr_sorted_block(file, &begin);
    walk->end = fr_sorted_block(file, &end);
    /* only the upper halves of hashes are compared, so later blocks may also have keys in the
     * range */
    while (walk->end < file->n_blocks && file->separators[walk->end] == (uint32_t)(last >> 32))
        walk->end++;
    walk->end += walk->end < file->n_blocks;
    return walk;
}

void fr_sorted_walk_free(struct fr_sorted_walk *walk)
{
    if (!walk)
        return;
    fr_buffer_release(&walk->window);
    free(walk);
}

/* Makes the bytes of the open block available in the window. */
static bool fill_window(struct fr_sorted_walk *walk)
{
    const uint32_t *offsets = walk->file->offsets;
    if (walk->block < walk->window_end)
        return true;
    uint32_t n = walk->end - walk->block < WINDOW_BLOCKS ? walk->end - walk->block : WINDOW_BLOCKS;
    walk->window_begin = walk->block;
    walk->window_end = walk->block + n;
    struct sorted_handle all = {offsets[walk->block],
                                offsets[walk->window_end] - offsets[walk->block] - SORTED_TRAILER};
    int fd = fr_sorted_use(walk->file);
    bool read = fr_sorted_load(fd, all, 0, &walk->window);
    fr_sorted_unuse(walk->file, fd);
    return read;
}

static bool open_block(struct fr_sorted_walk *walk)
{
    const uint32_t *offsets = walk->file->offsets;
    if (!fill_window(walk))
        return false;
    const uint8_t *block = walk->window.data + (offsets[walk->block] - offsets[walk->window_begin]);
    size_t size = offsets[walk->block + 1] - offsets[walk->block] - SORTED_TRAILER;
    walk->is_open = true;
    return fr_sorted_is_whole(block, size) && fr_sorted_begin_entries(block, size, false, &walk->entries);
}

/* The entry's place: 0 in the range, -1 before it, 1 after it. */
static int place_of(const struct fr_sorted_walk *walk, uint64_t *hash)
{
    const struct sorted_entries *entries = &walk->entries;
    size_t size = entries->key_size - SORTED_SEQUENCE;
    uint32_t table = size >= 4 ? (uint32_t)cold_take_be(entries->key, 4) : 0;
    if (size != COLD_KEY_SIZE || table > walk->table)
        return 1; /* keys that are not of images come after all images */
    *hash = cold_take_be(entries->key + 4, 8);
    if (table < walk->table || *hash < walk->first)
        return -1;
    return *hash > walk->last;
}

enum fr_sorted_answer fr_sorted_walk_next(struct fr_sorted_walk *walk, uint64_t *hash, struct fr_sorted_value *out)
{
    const struct sorted_entries *entries = &walk->entries;
    while (walk->block < walk->end) {
        if (!walk->is_open && !open_block(walk))
            return FR_SORTED_ODD;
        while (fr_sorted_next_entry(&walk->entries)) {
            if (entries->key_size < SORTED_SEQUENCE)
                return FR_SORTED_ODD;
            int place = place_of(walk, hash);
            if (place < 0)
                continue;
            if (place > 0) {
                walk->block = walk->end;
                return FR_SORTED_NONE;
            }
            out->bytes = entries->value.at;
            out->size = (size_t)(entries->value.end - entries->value.at);
            uint8_t kind = entries->key[COLD_KEY_SIZE];
            return kind == SORTED_KIND_PUT       ? FR_SORTED_VALUE
                   : kind == SORTED_KIND_DELETED ? FR_SORTED_DELETED
                                                 : FR_SORTED_ODD;
        }
        if (entries->odd)
            return FR_SORTED_ODD;
        walk->is_open = false;
        walk->block++;
    }
    return FR_SORTED_NONE;
}
