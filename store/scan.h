/* The cold part of an expiry slice: the cold store's images in a range of hashes. They are read one
 * slice ahead by a thread that has time (fr_store_scan_ahead), otherwise when the slice is due.
 *
 * Images read ahead stay valid: the image of a key without an entry is the key's newest, both when
 * it is read and when the slice is due, as long as no entry in the range leaves memory in between.
 * So eviction skips the range of a wanted scan, and dead entries in the range stay even after their
 * epoch is folded. When the slice runs, images of keys that have an entry are skipped.
 *
 * Thread: the owner loop holds the store's scan_lock while a slice uses parts; the thread that
 * reads ahead holds it while it reads one part. */
#ifndef FR_STORE_SCAN_H
#define FR_STORE_SCAN_H

#include "tables.h"

struct fr_scan_image {
    uint64_t hash;
    struct fr_row_head head; /* for a pending key only seen_ms is valid */
    uint8_t kind;
};

struct fr_scan_part { /* the part of one shard */
    bool done;
    size_t n, capacity;
    struct fr_scan_image *images;
    float *values; /* [n * value_floats] if a rule of the table reads values; otherwise NULL */
};

struct fr_scan {
    bool wanted; /* a slice is being read ahead or will be */
    uint32_t bits;
    uint64_t slice;
    uint32_t todo; /* shards that are not read yet */
    struct fr_scan_part parts[FR_SHARDS];
};

void fr_scan_close(struct fr_table *table);
uint64_t fr_scan_bytes(const struct fr_table *table);
/* Announces the slice after the one that has just run: its cold part may be read from now on. */
void fr_scan_expect(struct fr_table *table, uint32_t bits, uint64_t slice);
/* Returns a shard's part of the due slice, reading it now if it was not read ahead. */
const struct fr_scan_part *fr_scan_take(struct fr_store *store, uint32_t t, uint32_t s, uint32_t bits, uint64_t slice);
/* Whether the key is in the range of a wanted scan, so that it must not leave memory. */
bool fr_scan_covers(const struct fr_table *table, uint64_t hash);

#endif
