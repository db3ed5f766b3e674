/* Rows of one table: an open-addressing map from key to a cell of floats.
 *
 * Linear probing with backward-shift deletion (Knuth, TAOCP vol. 3, 6.4, algorithm R): no
 * tombstones, so that a table which turns over for ever does not slow down. The top bits of a key's
 * hash place it, in an order with a random salt of the map's own (base/order.h): who may choose
 * ids, or write to the topic, cannot choose places. What is dumped goes by key. Every u64 is a
 * valid key: emptiness is in `cells`. Cells lie in slabs whose addresses never change; a free cell
 * holds the number of the next one.
 *
 * Memory is taken by reserve and put only, in an order that leaves the map whole where it is
 * refused (memory.h). Owner: the replica's thread. */
#ifndef FR_REPLICA_ROW_MAP_H
#define FR_REPLICA_ROW_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/order.h"

enum { FR_ROWS_PER_SLAB_MAX = 4096, FR_SLAB_FLOATS = 1 << 20 }; /* at least one row */

struct fr_row_map {
    uint32_t width; /* floats a row */
    struct fr_order order;
    size_t n_rows, capacity; /* capacity: 0 or 2^(64 - shift) */
    unsigned shift;
    uint64_t *keys;  /* [capacity], and in the same block: */
    uint32_t *cells; /* [capacity] cell + 1; 0: empty */
    float **slabs;
    size_t n_slabs;
    uint32_t rows_per_slab;
    uint32_t n_cells; /* ever used */
    uint32_t spare;   /* cell + 1 of the first free one; 0: none */
    size_t n_spare;
};

void fr_row_map_init(struct fr_row_map *map, uint32_t width);
void fr_row_map_release(struct fr_row_map *map);
/* Returns NULL when there is no such row. */
float *fr_row_map_find(const struct fr_row_map *map, uint64_t key);
/* Makes room for so many more rows: none of these puts takes memory then. False: the map cannot
 * have as many (2^31 - 1). */
bool fr_row_map_reserve(struct fr_row_map *map, size_t more);
/* Returns the row of key, which is made (with undefined values) when there is none. */
float *fr_row_map_put(struct fr_row_map *map, uint64_t key);
void fr_row_map_erase(struct fr_row_map *map, uint64_t key);
/* Returns all n_rows keys, ascending; the caller releases them with free(). */
uint64_t *fr_row_map_sorted_keys(const struct fr_row_map *map);

#endif
