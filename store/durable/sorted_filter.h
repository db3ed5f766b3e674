/* The Bloom filter of a sorted file, as RocksDB reads it. Module-internal. */
#ifndef FR_DURABLE_SORTED_FILTER_H
#define FR_DURABLE_SORTED_FILTER_H

#include "base/buffer.h"

/* Zeroed: empty. */
struct fr_sorted_filter {
    uint64_t *hashes; /* of its keys */
    size_t n, capacity;
};

/* What a filter takes of a key of 4 to 240 bytes: the lower half chooses the line, the upper one
 * the bits. */
uint64_t fr_sorted_filter_hash(const uint8_t *key, size_t size);
void fr_sorted_filter_add(struct fr_sorted_filter *filter, const uint8_t *key, size_t size);
/* Appends the filter of the keys added. */
void fr_sorted_filter_put(const struct fr_sorted_filter *filter, struct fr_buffer *out);
void fr_sorted_filter_release(struct fr_sorted_filter *filter);

#endif
