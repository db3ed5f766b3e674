/* The cold part of an expiry slice: what the cold store holds in a range of hashes, read one slice
 * ahead by whoever has time (fr_store_scan_ahead), else when the slice is due.
 *
 * What is read ahead stays true: an image of a key without an entry is its newest one, then and
 * when the slice is due, as long as no entry of the range leaves memory in between. So eviction
 * passes over the range of the scan that is wanted, and dead entries of it stay though they are
 * folded. An image of a key with an entry is skipped then.
 *
 * Thread: the owner loop holds the store's scan_lock while a slice uses parts, the thread that
 * reads ahead while it reads one part. */
#ifndef FR_STORE_SCAN_H
#define FR_STORE_SCAN_H

#include "tables.h"

struct fr_scan_image {
    uint64_t hash;
    struct fr_row_head head; /* pending: seen_ms only */
    uint8_t kind;
};

struct fr_scan_part { /* of a shard */
    bool done;
    size_t n, capacity;
    struct fr_scan_image *images;
    float *values; /* [n * value_floats] when a rule looks at them; else NULL */
};

struct fr_scan {
    bool wanted; /* a slice is read ahead, or will be */
    uint32_t bits;
    uint64_t slice;
    uint32_t todo; /* shards that are not read yet */
    struct fr_scan_part parts[FR_SHARDS];
};

void fr_scan_close(struct fr_table *table);
uint64_t fr_scan_bytes(const struct fr_table *table);
/* The slice after the one that has just run: from here on its cold part may be read. */
void fr_scan_expect(struct fr_table *table, uint32_t bits, uint64_t slice);
/* The part of a shard that is due; reads it when nobody did. */
const struct fr_scan_part *fr_scan_take(struct fr_store *store, uint32_t t, uint32_t s, uint32_t bits, uint64_t slice);
/* Whether a key of a wanted range: it must not leave memory. */
bool fr_scan_covers(const struct fr_table *table, uint64_t hash);

#endif
