/* The Bloom filter of a sorted file, as RocksDB reads it. Module-internal. */
#ifndef FR_DURABLE_COLD_FILTER_H
#define FR_DURABLE_COLD_FILTER_H

#include "base/buffer.h"

/* Zeroed: empty. */
struct fr_cold_filter {
    uint64_t *hashes; /* of its keys */
    size_t n, capacity;
};

/* Key: of 4 to 240 bytes. */
void fr_cold_filter_add(struct fr_cold_filter *filter, const uint8_t *key, size_t size);
/* Appends the filter of the keys added. */
void fr_cold_filter_put(const struct fr_cold_filter *filter, struct fr_buffer *out);
void fr_cold_filter_release(struct fr_cold_filter *filter);

#endif
