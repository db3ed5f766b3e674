/* The map from key to row: see row_map.h. Grows by doubling at 3/4 full; never shrinks.
 *
 * It does not know parts. */
#include "row_map.h"

#include <stdlib.h>

#include "base/check.h"

enum { CAPACITY_BITS_MIN = 6 };

static void set_capacity(struct fr_row_map *map, unsigned bits)
{
    map->capacity = (size_t)1 << bits;
    map->shift = 64 - bits;
    map->keys = fr_alloc(map->capacity, sizeof(*map->keys));
    map->cells = fr_alloc(map->capacity, sizeof(*map->cells));
}

void fr_row_map_init(struct fr_row_map *map, uint32_t width)
{
    FR_CHECK(width > 0);
    *map = (struct fr_row_map){.width = width, .order = fr_order_of(fr_order_random_salt())};
    set_capacity(map, CAPACITY_BITS_MIN);
}

void fr_row_map_release(struct fr_row_map *map)
{
    for (size_t i = 0; i < map->n_slabs; i++)
        free(map->slabs[i]);
    free(map->slabs);
    free(map->keys);
    free(map->cells);
    free(map->spare);
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
    return map->slabs[cell / FR_ROWS_PER_SLAB] + (size_t)(cell % FR_ROWS_PER_SLAB) * map->width;
}

float *fr_row_map_find(const struct fr_row_map *map, uint64_t key)
{
    uint32_t cell = map->cells[place_of(map, key)];
    return cell ? row_at(map, cell - 1) : NULL;
}

static void grow(struct fr_row_map *map)
{
    struct fr_row_map old = *map;
    set_capacity(map, 64 - old.shift + 1);
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.cells[i] == 0)
            continue;
        size_t at = place_of(map, old.keys[i]);
        map->keys[at] = old.keys[i];
        map->cells[at] = old.cells[i];
    }
    free(old.keys);
    free(old.cells);
}

static uint32_t take_cell(struct fr_row_map *map)
{
    if (map->n_spare > 0)
        return map->spare[--map->n_spare];
    FR_CHECK(map->n_cells < UINT32_MAX - 1);
    if (map->n_cells == map->n_slabs * FR_ROWS_PER_SLAB) {
        map->slabs = fr_realloc(map->slabs, map->n_slabs + 1, sizeof(*map->slabs));
        map->slabs[map->n_slabs++] = fr_alloc_aligned(64, (size_t)FR_ROWS_PER_SLAB * map->width * sizeof(float));
    }
    return map->n_cells++;
}

float *fr_row_map_put(struct fr_row_map *map, uint64_t key)
{
    size_t at = place_of(map, key);
    if (map->cells[at] != 0)
        return row_at(map, map->cells[at] - 1);
    if ((map->n_rows + 1) * 4 > map->capacity * 3) {
        grow(map);
        at = place_of(map, key);
    }
    uint32_t cell = take_cell(map);
    map->keys[at] = key;
    map->cells[at] = cell + 1;
    map->n_rows += 1;
    return row_at(map, cell);
}

void fr_row_map_erase(struct fr_row_map *map, uint64_t key)
{
    size_t mask = map->capacity - 1, hole = place_of(map, key);
    if (map->cells[hole] == 0)
        return;
    if (map->n_spare == map->spare_capacity) {
        map->spare_capacity = map->spare_capacity ? map->spare_capacity * 2 : 64;
        map->spare = fr_realloc(map->spare, map->spare_capacity, sizeof(*map->spare));
    }
    map->spare[map->n_spare++] = map->cells[hole] - 1;
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
