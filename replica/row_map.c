/* The map from key to row: see row_map.h. Grows by doubling at 3/4 full; never shrinks.
 *
 * It does not know parts. */
#include "row_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { CAPACITY_BITS_MIN = 6, ROWS_MAX = INT32_MAX };

void fr_row_map_init(struct fr_row_map *map, uint32_t width)
{
    FR_CHECK(width > 0);
    *map = (struct fr_row_map){
        .width = width, .order = fr_order_of(fr_order_random_salt()), .rows_per_slab = FR_ROWS_PER_SLAB_MAX};
    while (map->rows_per_slab > 1 && (uint64_t)map->rows_per_slab * width > FR_SLAB_FLOATS)
        map->rows_per_slab /= 2;
}

void fr_row_map_release(struct fr_row_map *map)
{
    for (size_t i = 0; i < map->n_slabs; i++)
        free(map->slabs[i]);
    free(map->slabs);
    free(map->keys);
    *map = (struct fr_row_map){0};
}

static size_t home_of(const struct fr_row_map *map, uint64_t key)
{
    return (size_t)(fr_order_hash(&map->order, key) >> map->shift);
}

/* Where key is, or the empty place where it belongs. */
static size_t place_of(const struct fr_row_map *map, uint64_t key)
{
    size_t mask = map->capacity - 1, at = home_of(map, key);
    while (map->cells[at] != 0 && map->keys[at] != key)
        at = (at + 1) & mask;
    return at;
}

static float *row_at(const struct fr_row_map *map, uint32_t cell)
{
    return map->slabs[cell / map->rows_per_slab] + (size_t)(cell % map->rows_per_slab) * map->width;
}

float *fr_row_map_find(const struct fr_row_map *map, uint64_t key)
{
    uint32_t cell = map->capacity ? map->cells[place_of(map, key)] : 0;
    return cell ? row_at(map, cell - 1) : NULL;
}

/* ---- room ---- */

static void grow(struct fr_row_map *map)
{
    struct fr_row_map old = *map;
    const unsigned bits = old.capacity ? 64 - old.shift + 1 : CAPACITY_BITS_MIN;
    const size_t capacity = (size_t)1 << bits;
    map->keys = fr_alloc(capacity, sizeof(*map->keys) + sizeof(*map->cells));
    map->cells = (uint32_t *)(map->keys + capacity);
    map->capacity = capacity;
    map->shift = 64 - bits;
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.cells[i] == 0)
            continue;
        size_t at = place_of(map, old.keys[i]);
        map->keys[at] = old.keys[i];
        map->cells[at] = old.cells[i];
    }
    free(old.keys);
}

static void add_slab(struct fr_row_map *map)
{
    map->slabs = fr_realloc(map->slabs, map->n_slabs + 1, sizeof(*map->slabs));
    float *slab = fr_alloc_aligned(64, (size_t)map->rows_per_slab * map->width * sizeof(float));
    map->slabs[map->n_slabs++] = slab;
}

bool fr_row_map_reserve(struct fr_row_map *map, size_t more)
{
    /* cells are numbered in 32 bits; not more were ever used at once, so n_cells fits too */
    if (more > ROWS_MAX || map->n_rows > ROWS_MAX - more)
        return false;
    while ((map->n_rows + more) * 4 > map->capacity * 3)
        grow(map);
    while (map->n_spare + map->n_slabs * map->rows_per_slab - map->n_cells < more)
        add_slab(map);
    return true;
}

static uint32_t take_cell(struct fr_row_map *map)
{
    if (map->spare == 0)
        return map->n_cells++;
    uint32_t cell = map->spare - 1;
    memcpy(&map->spare, row_at(map, cell), sizeof(map->spare));
    map->n_spare -= 1;
    return cell;
}

static void give_cell(struct fr_row_map *map, uint32_t cell)
{
    memcpy(row_at(map, cell), &map->spare, sizeof(map->spare));
    map->spare = cell + 1;
    map->n_spare += 1;
}

/* ---- rows ---- */

float *fr_row_map_put(struct fr_row_map *map, uint64_t key)
{
    float *row = fr_row_map_find(map, key);
    if (row)
        return row;
    bool room = fr_row_map_reserve(map, 1);
    FR_CHECK(room); /* the caller reserved */
    size_t at = place_of(map, key);
    uint32_t cell = take_cell(map);
    map->keys[at] = key;
    map->cells[at] = cell + 1;
    map->n_rows += 1;
    return row_at(map, cell);
}

void fr_row_map_erase(struct fr_row_map *map, uint64_t key)
{
    if (map->capacity == 0)
        return;
    size_t mask = map->capacity - 1, hole = place_of(map, key);
    if (map->cells[hole] == 0)
        return;
    give_cell(map, map->cells[hole] - 1);
    map->n_rows -= 1;
    /* An entry moves into the hole unless its home lies cyclically in (hole, at]. */
    for (size_t at = (hole + 1) & mask; map->cells[at] != 0; at = (at + 1) & mask) {
        size_t home = home_of(map, map->keys[at]);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        map->keys[hole] = map->keys[at];
        map->cells[hole] = map->cells[at];
        hole = at;
    }
    map->cells[hole] = 0;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t *fr_row_map_sorted_keys(const struct fr_row_map *map)
{
    uint64_t *keys = fr_alloc(map->n_rows + 1, sizeof(*keys));
    size_t n = 0;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->cells[i] != 0)
            keys[n++] = map->keys[i];
    FR_CHECK(n == map->n_rows);
    qsort(keys, n, sizeof(*keys), ascending);
    return keys;
}
