/* The Bloom filter of a sorted file, as RocksDB reads it. Module-internal. */
#ifndef FR_DURABLE_SORTED_FILTER_H
#define FR_DURABLE_SORTED_FILTER_H

#include <stdbool.h>

#include "base/buffer.h"

enum { SORTED_FILTER_LINE = 64, SORTED_FILTER_LINE_BITS = 9 };

/* Filter lines as they are in a file. */
struct fr_sorted_lines {
    const uint8_t *bytes; /* [n][SORTED_FILTER_LINE] */
    uint32_t n, n_probes;
};
/* false: the block is not a filter of this kind. */
bool fr_sorted_filter_take(const uint8_t *block, size_t size, struct fr_sorted_lines *out);

static inline size_t fr_sorted_filter_line(uint32_t n_lines, uint32_t line)
{
    return ((uint64_t)line * n_lines >> 32) * SORTED_FILTER_LINE;
}

/* The bit of a probe, and the step from one probe to the next. */
static inline uint32_t fr_sorted_filter_bit(uint32_t probe)
{
    return probe >> (32 - SORTED_FILTER_LINE_BITS);
}

static inline uint32_t fr_sorted_filter_next(uint32_t probe)
{
    return probe * UINT32_C(0x9e3779b9);
}

/* A filter that is being built. Zeroed memory is an empty one. */
struct fr_sorted_filter {
    uint64_t *hashes; /* hashes of its keys */
    size_t n, capacity;
};

/* The filter's hash of a key of 4 to 240 bytes. Its lower half chooses the line, its upper half the
 * bits. */
uint64_t fr_sorted_filter_hash(const uint8_t *key, size_t size);
void fr_sorted_filter_add(struct fr_sorted_filter *filter, const uint8_t *key, size_t size);
/* Appends the filter of all keys added so far. */
void fr_sorted_filter_put(const struct fr_sorted_filter *filter, struct fr_buffer *out);
void fr_sorted_filter_release(struct fr_sorted_filter *filter);

#endif
