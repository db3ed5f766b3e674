/* Rows of one table: an open-addressing map from key to a cell of floats.
 *
 * Linear probing with backward-shift deletion (Knuth, TAOCP vol. 3, 6.4, algorithm R): no
 * tombstones, so that a table which turns over for ever does not slow down. The top bits of a
 * key's hash place it, in an order with a random salt of the map's own (base/order.h): who may
 * choose ids, or write to the topic, cannot choose places. What is dumped goes by key. Every u64 is
 * a valid key: emptiness is in `cells`. Cells lie in slabs whose addresses never change.
 *
 * Owner: the replica's thread. */
#ifndef FR_REPLICA_ROW_MAP_H
#define FR_REPLICA_ROW_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/order.h"

enum { FR_ROWS_PER_SLAB = 4096 };

struct fr_row_map {
    uint32_t width; /* floats a row */
    struct fr_order order;
    size_t n_rows, capacity; /* capacity: 2^(64 - shift) */
    unsigned shift;
    uint64_t *keys;  /* [capacity] */
    uint32_t *cells; /* [capacity] cell + 1; 0: empty */
    float **slabs;
    size_t n_slabs;
    uint32_t n_cells; /* ever used */
    uint32_t *spare;
    size_t n_spare, spare_capacity;
};

void fr_row_map_init(struct fr_row_map *map, uint32_t width);
void fr_row_map_release(struct fr_row_map *map);
/* Returns NULL when there is no such row. */
float *fr_row_map_find(const struct fr_row_map *map, uint64_t key);
/* Returns the row of key, which is made (with undefined values) when there is none. */
float *fr_row_map_put(struct fr_row_map *map, uint64_t key);
void fr_row_map_erase(struct fr_row_map *map, uint64_t key);
/* Returns all n_rows keys, ascending; the caller releases them with free(). */
uint64_t *fr_row_map_sorted_keys(const struct fr_row_map *map);

#endif
