/* A key image is what an epoch says about one key of one table. The store writes and restores
 * images; the publisher and tools read what is published of a row. They are little-endian, as the
 * machine is. */
#ifndef FR_DURABLE_IMAGE_H
#define FR_DURABLE_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vocabulary/removal.h"

/* Table numbers above are the cold store's own (sections, sentinel). */
enum { FR_IMAGE_TABLE_MAX = 0x7fffffff };

/* Images of these tables are no keys' but blocks of counters of table - FR_BLOCK_TABLES, which only
 * the store reads. */
enum { FR_BLOCK_TABLES = 0x40000000 };

enum fr_image_kind { FR_IMAGE_ROW = 0, FR_IMAGE_PENDING = 1, FR_IMAGE_ABSENT = 2, FR_IMAGE_BLOCK = 3, FR_IMAGE_KINDS };
struct fr_image {
    uint64_t key;
    uint32_t table;
    uint32_t size;  /* of bytes; 0 when absent */
    uint8_t kind;   /* enum fr_image_kind */
    uint8_t reason; /* enum fr_absent_reason */
    uint64_t epoch; /* read back: the one that holds it; 0: the cold store */
    /* Borrowed. Of any alignment when it comes from an epoch or the cold store: read with
     * memcpy. */
    const uint8_t *bytes;
};

/* Aligned as the floats behind it are, so that rows of an odd number of them take no padding. */
#define FR_AS_FLOATS __attribute__((packed, aligned(4)))

/* A row image: its head, then f32 row[row_floats], of which the first value_floats are published.
 * Counters that single samples add to must not stop at 2^24, as f32 would. */
struct FR_AS_FLOATS fr_row_head {
    int64_t seen_ms;
    uint64_t show;
    double click; /* labels may be fractions */
};
enum { FR_ROW_IMAGE_HEAD = sizeof(struct fr_row_head) };
_Static_assert(sizeof(struct fr_row_head) == 24, "stored");

/* A pending image: i64 seen_ms, u32 count. */
enum { FR_PENDING_IMAGE_SIZE = sizeof(int64_t) + sizeof(uint32_t) };
static inline void fr_pending_store(uint8_t *to, int64_t seen_ms, uint32_t count)
{
    memcpy(to, &seen_ms, sizeof(seen_ms));
    memcpy(to + sizeof(seen_ms), &count, sizeof(count));
}
static inline void fr_pending_load(const uint8_t *from, int64_t *seen_ms, uint32_t *count)
{
    memcpy(seen_ms, from, sizeof(*seen_ms));
    memcpy(count, from + sizeof(*seen_ms), sizeof(*count));
}

#endif
