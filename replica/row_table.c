/* Slots and the index of a table: see row_table.h.
 *
 * Order of stores: first a slot's bytes, then the cell that names the slot (release), then the tag
 * that shows the cell (release). Readers load them in the opposite order (acquire). A reader that
 * follows a tag which has been removed meanwhile finds a cell that names the slot of another key,
 * whose bytes are there; comparing the key decides. A removed cell is marked `removed`, not
 * `empty`, if its line was ever full, because keys stored after it must still be found.
 *
 * Thread: the feeder's, with the exceptions in row_table.h. */
#include "row_table.h"

#include <stdlib.h>

#include "base/check.h"

enum {
    TAG_EMPTY = 0,
    TAG_REMOVED = 1,
    TAG_FIRST = 2,
    LINES_FIRST = 2,
    SLABS_FIRST = 8,
    DIRECTORY_DEPTH_MAX = 24, /* 4e11 cells, which is more than FR_ROWS_MAX */
    /* A segment is rebuilt when more than 85 % of its cells were used, into a segment that is 66 %
     * full. */
    USED_MAX_PERCENT = 85,
    REBUILT_PERCENT = 66,
};

/* ---- lines ---- */

static uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)hash;
    return tag < TAG_FIRST ? (uint8_t)(tag + TAG_FIRST) : tag;
}

static const uint64_t low_bits = 0x7f7f7f7f7f7f7f7fULL, ones = 0x0101010101010101ULL, half = 0xffffffffULL;

/* Returns x with the high bit set in every byte that was zero. */
static uint64_t zero_bytes(uint64_t x)
{
    return ~(((x & low_bits) + low_bits) | x | low_bits);
}

/* Bit 8 i + 7 of element [i / 8] means that cell i has this tag. */
struct matches {
    uint64_t bits[2];
};

static struct matches cells_with(uint64_t first, uint64_t second, uint8_t tag)
{
    return (struct matches){{zero_bytes(first ^ ones * tag), zero_bytes(second ^ ones * tag) & half}};
}

static bool any(struct matches m)
{
    return (m.bits[0] | m.bits[1]) != 0;
}

/* Removes the first match and returns it. */
static uint32_t next_match(struct matches *m)
{
    int half_of = m->bits[0] == 0;
    uint32_t i = (uint32_t)__builtin_ctzll(m->bits[half_of]) / 8;
    m->bits[half_of] &= m->bits[half_of] - 1;
    return i + (half_of ? 8 : 0);
}

static uint8_t tag_at(const struct fr_row_line *line, uint32_t i)
{
    return (uint8_t)(atomic_load_explicit(&line->tags[i / 8], memory_order_relaxed) >> (i % 8 * 8));
}

static void set_tag(struct fr_row_line *line, uint32_t i, uint8_t tag)
{
    uint64_t tags = atomic_load_explicit(&line->tags[i / 8], memory_order_relaxed);
    tags = (tags & ~((uint64_t)0xff << (i % 8 * 8))) | (uint64_t)tag << (i % 8 * 8);
    atomic_store_explicit(&line->tags[i / 8], tags, memory_order_release);
}

static struct matches load_matches(const struct fr_row_line *line, uint8_t tag, bool *has_empty)
{
    uint64_t first = atomic_load_explicit(&line->tags[0], memory_order_acquire);
    uint64_t second = atomic_load_explicit(&line->tags[1], memory_order_acquire);
    *has_empty = any(cells_with(first, second, TAG_EMPTY));
    return cells_with(first, second, tag);
}

/* ---- finding ---- */

static size_t place_in(unsigned depth, uint64_t hash)
{
    return depth ? (size_t)(hash >> (64 - depth)) : 0;
}

static struct fr_row_segment *segment_of(const struct fr_row_table *rows, uint64_t hash)
{
    const struct fr_row_directory *directory = atomic_load_explicit(&rows->directory, memory_order_acquire);
    return atomic_load_explicit(&directory->segments[place_in(directory->depth, hash)], memory_order_acquire);
}

/* Chosen by the 32 bits of the hash that follow the bits which the segment's keys share. */
static uint32_t home_of(const struct fr_row_segment *segment, uint64_t hash)
{
    return (uint32_t)(((hash << segment->depth) >> 32) * segment->n_lines >> 32);
}

struct place {
    struct fr_row_line *line; /* NULL: no cell */
    uint32_t i, slot;
};

static struct place find_cell(const struct fr_row_table *rows, struct fr_row_segment *segment, uint64_t hash,
                              uint64_t key)
{
    const uint8_t tag = tag_of(hash);
    uint32_t at = home_of(segment, hash);
    for (uint32_t tried = 0; tried < segment->n_lines; tried++) {
        struct fr_row_line *line = &segment->lines[at];
        bool has_empty;
        struct matches m = load_matches(line, tag, &has_empty);
        while (any(m)) {
            uint32_t i = next_match(&m);
            uint32_t slot = atomic_load_explicit(&line->cells[i], memory_order_acquire);
            if (fr_row_key(rows, slot) == key)
                return (struct place){line, i, slot};
        }
        if (has_empty)
            break;
        at = at + 1 == segment->n_lines ? 0 : at + 1;
    }
    return (struct place){NULL, 0, FR_NO_SLOT};
}

uint32_t fr_row_find(const struct fr_row_table *rows, uint64_t hash, uint64_t key)
{
    return find_cell(rows, segment_of(rows, hash), hash, key).slot;
}

void fr_row_prefetch(const struct fr_row_table *rows, uint64_t hash)
{
    const struct fr_row_segment *segment = segment_of(rows, hash);
    __builtin_prefetch(&segment->lines[home_of(segment, hash)]);
}

void fr_row_prefetch_slot(const struct fr_row_table *rows, uint64_t hash)
{
    const struct fr_row_segment *segment = segment_of(rows, hash);
    const struct fr_row_line *line = &segment->lines[home_of(segment, hash)];
    bool has_empty;
    struct matches m = load_matches(line, tag_of(hash), &has_empty);
    if (!any(m))
        return;
    const float *slot = fr_row_slot(rows, atomic_load_explicit(&line->cells[next_match(&m)], memory_order_acquire));
    __builtin_prefetch(slot);
    __builtin_prefetch(slot + rows->stride - 1);
}

/* A key is visited where the directory places it. Otherwise, while a segment splits, the key would
 * be visited twice. */
void fr_row_list(const struct fr_row_table *rows, void (*visit)(void *self, uint64_t key), void *self)
{
    const struct fr_row_directory *directory = atomic_load_explicit(&rows->directory, memory_order_acquire);
    for (size_t d = 0; d < (size_t)1 << directory->depth; d++) {
        struct fr_row_segment *segment = atomic_load_explicit(&directory->segments[d], memory_order_acquire);
        for (uint32_t l = 0; l < segment->n_lines; l++)
            for (uint32_t i = 0; i < FR_LINE_CELLS; i++) {
                uint64_t tags = atomic_load_explicit(&segment->lines[l].tags[i / 8], memory_order_acquire);
                if ((uint8_t)(tags >> (i % 8 * 8)) < TAG_FIRST)
                    continue;
                uint64_t key =
                    fr_row_key(rows, atomic_load_explicit(&segment->lines[l].cells[i], memory_order_acquire));
                if (place_in(directory->depth, fr_row_hash(rows, key)) == d)
                    visit(self, key);
            }
    }
}

/* ---- segments ---- */

static void drop(const struct fr_row_table *rows, struct fr_retired *item)
{
    if (rows->retirement)
        fr_retired_add(rows->retirement, item, fr_retired_free);
    else
        free(item);
}

static struct fr_row_segment *make_segment(const struct fr_row_table *rows, uint64_t n_rows, unsigned depth)
{
    uint64_t lines = n_rows * 100 / ((uint64_t)REBUILT_PERCENT * FR_LINE_CELLS) + 1;
    lines = lines < LINES_FIRST ? LINES_FIRST : lines;
    struct fr_row_segment *segment =
        fr_replica_memory_try(rows->memory, 64, sizeof(*segment) + (size_t)lines * sizeof(struct fr_row_line));
    if (!segment)
        return NULL;
    segment->n_lines = (uint32_t)lines;
    segment->depth = depth;
    return segment;
}

/* Puts an absent key into a segment that has an empty cell. */
static void put_cell(struct fr_row_segment *segment, uint64_t hash, uint32_t slot)
{
    for (uint32_t at = home_of(segment, hash);; at = at + 1 == segment->n_lines ? 0 : at + 1) {
        struct fr_row_line *line = &segment->lines[at];
        for (uint32_t i = 0; i < FR_LINE_CELLS; i++) {
            uint8_t tag = tag_at(line, i);
            if (tag >= TAG_FIRST)
                continue;
            segment->n_used += tag == TAG_EMPTY;
            segment->n_live += 1;
            atomic_store_explicit(&line->cells[i], slot, memory_order_release);
            set_tag(line, i, tag_of(hash));
            return;
        }
    }
}

/* Returns the hash of a cell's key; false: the cell has none. */
static bool hash_at(const struct fr_row_table *rows, const struct fr_row_line *line, uint32_t i, uint32_t *slot,
                    uint64_t *hash)
{
    if (tag_at(line, i) < TAG_FIRST)
        return false;
    *slot = atomic_load_explicit(&line->cells[i], memory_order_relaxed);
    *hash = fr_row_hash(rows, fr_row_key(rows, *slot));
    return true;
}

static bool goes_high(const struct fr_row_segment *from, uint64_t hash)
{
    return (hash << from->depth) >> 63;
}

static uint32_t count_high(const struct fr_row_table *rows, const struct fr_row_segment *from)
{
    uint32_t n = 0, slot;
    uint64_t hash;
    for (uint32_t l = 0; l < from->n_lines; l++)
        for (uint32_t i = 0; i < FR_LINE_CELLS; i++)
            n += hash_at(rows, &from->lines[l], i, &slot, &hash) && goes_high(from, hash);
    return n;
}

/* Copies cells into one segment, or divides them between two. */
static void copy_cells(const struct fr_row_table *rows, const struct fr_row_segment *from, struct fr_row_segment *low,
                       struct fr_row_segment *high)
{
    uint32_t slot;
    uint64_t hash;
    for (uint32_t l = 0; l < from->n_lines; l++)
        for (uint32_t i = 0; i < FR_LINE_CELLS; i++)
            if (hash_at(rows, &from->lines[l], i, &slot, &hash))
                put_cell(high && goes_high(from, hash) ? high : low, hash, slot);
}

/* Gives every directory place of `old` to the one or two segments that take its keys. */
static void replace_segment(struct fr_row_table *rows, uint64_t hash, struct fr_row_segment *old,
                            struct fr_row_segment *low, struct fr_row_segment *high)
{
    struct fr_row_directory *directory = atomic_load_explicit(&rows->directory, memory_order_relaxed);
    size_t n = (size_t)1 << (directory->depth - old->depth);
    size_t first = place_in(directory->depth, hash) & ~(n - 1);
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&directory->segments[first + i], high && i >= n / 2 ? high : low, memory_order_release);
    drop(rows, &old->retired);
}

static bool double_directory(struct fr_row_table *rows)
{
    struct fr_row_directory *old = atomic_load_explicit(&rows->directory, memory_order_relaxed);
    const size_t n = (size_t)2 << old->depth;
    struct fr_row_directory *directory =
        fr_replica_memory_try(rows->memory, 16, sizeof(*directory) + n * sizeof(directory->segments[0]));
    if (!directory)
        return false;
    directory->depth = old->depth + 1;
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&directory->segments[i],
                              atomic_load_explicit(&old->segments[i / 2], memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(&rows->directory, directory, memory_order_release);
    drop(rows, &old->retired);
    return true;
}

static bool split_segment(struct fr_row_table *rows, uint64_t hash, struct fr_row_segment *old)
{
    const struct fr_row_directory *directory = atomic_load_explicit(&rows->directory, memory_order_relaxed);
    if (old->depth == directory->depth && !double_directory(rows))
        return false;
    const uint32_t n_high = count_high(rows, old);
    struct fr_row_segment *low = make_segment(rows, old->n_live - n_high, old->depth + 1);
    struct fr_row_segment *high = low ? make_segment(rows, n_high, old->depth + 1) : NULL;
    if (!high) {
        free(low);
        return false;
    }
    copy_cells(rows, old, low, high);
    replace_segment(rows, hash, old, low, high);
    return true;
}

static bool rebuild_segment(struct fr_row_table *rows, uint64_t hash, struct fr_row_segment *old)
{
    struct fr_row_segment *segment = make_segment(rows, (uint64_t)old->n_live + 1, old->depth);
    if (!segment)
        return false;
    copy_cells(rows, old, segment, NULL);
    replace_segment(rows, hash, old, segment, NULL);
    return true;
}

static bool is_full(const struct fr_row_segment *segment)
{
    return (uint64_t)(segment->n_used + 1) * 100 > (uint64_t)segment->n_lines * FR_LINE_CELLS * USED_MAX_PERCENT;
}

static bool make_room(struct fr_row_table *rows, uint64_t hash)
{
    for (;;) {
        struct fr_row_segment *segment = segment_of(rows, hash);
        if (!is_full(segment))
            return true;
        bool large = (uint64_t)segment->n_live * 100 > (uint64_t)FR_SEGMENT_LINES_MAX * FR_LINE_CELLS * REBUILT_PERCENT;
        bool made = large && segment->depth < DIRECTORY_DEPTH_MAX ? split_segment(rows, hash, segment)
                                                                  : rebuild_segment(rows, hash, segment);
        if (!made)
            return false;
    }
}

/* ---- cells ---- */

bool fr_row_set(struct fr_row_table *rows, uint64_t key, uint32_t slot, uint32_t *old)
{
    const uint64_t hash = fr_row_hash(rows, key);
    struct place place = find_cell(rows, segment_of(rows, hash), hash, key);
    *old = place.slot;
    if (place.line) {
        atomic_store_explicit(&place.line->cells[place.i], slot, memory_order_release);
        return true;
    }
    if (!make_room(rows, hash))
        return false;
    put_cell(segment_of(rows, hash), hash, slot);
    rows->n_rows += 1;
    return true;
}

uint32_t fr_row_unset(struct fr_row_table *rows, uint64_t key)
{
    const uint64_t hash = fr_row_hash(rows, key);
    struct fr_row_segment *segment = segment_of(rows, hash);
    struct place place = find_cell(rows, segment, hash, key);
    if (!place.line)
        return FR_NO_SLOT;
    bool has_empty;
    (void)load_matches(place.line, TAG_EMPTY, &has_empty);
    set_tag(place.line, place.i, has_empty ? TAG_EMPTY : TAG_REMOVED);
    segment->n_used -= has_empty;
    segment->n_live -= 1;
    rows->n_rows -= 1;
    return place.slot;
}

/* ---- slots ---- */

static bool add_slab(struct fr_row_table *rows)
{
    struct fr_row_slabs *slabs = atomic_load_explicit(&rows->slabs, memory_order_relaxed);
    if (rows->n_slabs == slabs->capacity) {
        struct fr_row_slabs *more =
            fr_replica_memory_try(rows->memory, 16, sizeof(*more) + 2 * slabs->capacity * sizeof(more->slabs[0]));
        if (!more)
            return false;
        more->capacity = 2 * slabs->capacity;
        memcpy(more->slabs, slabs->slabs, rows->n_slabs * sizeof(more->slabs[0]));
        atomic_store_explicit(&rows->slabs, more, memory_order_release);
        drop(rows, &slabs->retired);
        slabs = more;
    }
    float *slab = fr_replica_memory_try(rows->memory, 64, ((size_t)rows->stride << rows->slab_bits) * sizeof(float));
    if (!slab)
        return false;
    slabs->slabs[rows->n_slabs++] = slab;
    return true;
}

bool fr_row_take(struct fr_row_table *rows, uint64_t key, uint32_t *slot)
{
    if (rows->spare != FR_NO_SLOT) {
        *slot = rows->spare;
        memcpy(&rows->spare, fr_row_slot(rows, *slot), sizeof(rows->spare));
        rows->n_spare -= 1;
    } else {
        if (rows->n_slots == FR_ROWS_MAX || (rows->n_slots >> rows->slab_bits == rows->n_slabs && !add_slab(rows)))
            return false;
        *slot = rows->n_slots++;
    }
    memcpy(fr_row_slot(rows, *slot), &key, sizeof(key));
    return true;
}

void fr_row_give(struct fr_row_table *rows, uint32_t slot)
{
    memcpy(fr_row_slot(rows, slot), &rows->spare, sizeof(rows->spare));
    rows->spare = slot;
    rows->n_spare += 1;
}

/* ---- creation and release ---- */

struct fr_row_table *fr_row_table_new(uint32_t width, struct fr_replica_memory *memory)
{
    FR_CHECK(width > 0);
    struct fr_row_table *rows = fr_replica_memory_try(memory, 16, sizeof(*rows));
    if (!rows)
        return NULL;
    rows->order = fr_order_of(fr_order_random_salt());
    rows->width = width;
    rows->stride = width + FR_KEY_FLOATS;
    rows->memory = memory;
    rows->spare = FR_NO_SLOT;
    while ((uint32_t)2 << rows->slab_bits <= FR_ROWS_PER_SLAB_MAX &&
           ((uint64_t)rows->stride * 2 << rows->slab_bits) <= FR_SLAB_FLOATS)
        rows->slab_bits += 1;
    struct fr_row_directory *directory =
        fr_replica_memory_try(memory, 16, sizeof(*directory) + sizeof(directory->segments[0]));
    struct fr_row_slabs *slabs =
        fr_replica_memory_try(memory, 16, sizeof(*slabs) + SLABS_FIRST * sizeof(slabs->slabs[0]));
    struct fr_row_segment *segment = make_segment(rows, 0, 0);
    if (!directory || !slabs || !segment) {
        free(directory);
        free(slabs);
        free(segment);
        free(rows);
        return NULL;
    }
    slabs->capacity = SLABS_FIRST;
    atomic_init(&directory->segments[0], segment);
    atomic_init(&rows->directory, directory);
    atomic_init(&rows->slabs, slabs);
    return rows;
}

static void free_segments(struct fr_row_directory *directory)
{
    size_t places;
    for (size_t d = 0; d < (size_t)1 << directory->depth; d += places) {
        struct fr_row_segment *segment = atomic_load_explicit(&directory->segments[d], memory_order_relaxed);
        places = (size_t)1 << (directory->depth - segment->depth);
        free(segment);
    }
}

void fr_row_table_free(struct fr_row_table *rows)
{
    if (!rows)
        return;
    struct fr_row_directory *directory = atomic_load_explicit(&rows->directory, memory_order_relaxed);
    struct fr_row_slabs *slabs = atomic_load_explicit(&rows->slabs, memory_order_relaxed);
    free_segments(directory);
    free(directory);
    for (size_t i = 0; i < rows->n_slabs; i++)
        free(slabs->slabs[i]);
    free(slabs);
    free(rows);
}

bool fr_row_table_reserve(struct fr_row_table *rows, uint64_t n)
{
    FR_CHECK(rows->n_rows == 0 && !rows->retirement);
    const uint64_t of_segment = (uint64_t)FR_SEGMENT_LINES_MAX * FR_LINE_CELLS / 2;
    struct fr_row_directory *directory = atomic_load_explicit(&rows->directory, memory_order_relaxed);
    struct fr_row_segment *old = atomic_load_explicit(&directory->segments[0], memory_order_relaxed);
    FR_CHECK(old->depth == 0);
    while (directory->depth < DIRECTORY_DEPTH_MAX && n >> directory->depth > of_segment) {
        if (!double_directory(rows))
            return false;
        directory = atomic_load_explicit(&rows->directory, memory_order_relaxed);
    }
    for (size_t d = 0; d < (size_t)1 << directory->depth; d++) {
        struct fr_row_segment *segment = make_segment(rows, n >> directory->depth, directory->depth);
        if (!segment) {
            while (d-- > 0) {
                free(atomic_load_explicit(&directory->segments[d], memory_order_relaxed));
                atomic_store_explicit(&directory->segments[d], old, memory_order_relaxed);
            }
            return false;
        }
        atomic_store_explicit(&directory->segments[d], segment, memory_order_relaxed);
    }
    free(old);
    return true;
}
