/* A key image: the content of an epoch for one key of one table. The store writes and restores
 * images; publisher and tools read the published part of a row. Images are little-endian, as the
 * machine is. */
#ifndef FR_DURABLE_IMAGE_H
#define FR_DURABLE_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "vocabulary/removal.h"

/* Larger table numbers are reserved for the cold store itself (sections, sentinel). */
enum { FR_IMAGE_TABLE_MAX = 0x7fffffff };

/* Images of table FR_BLOCK_TABLES + n belong to no key: they are blocks of counters of sub-table n,
 * which only the store reads. */
enum { FR_BLOCK_TABLES = 0x40000000 };

/* Tables in images are sub-tables (docs/formats/state.md): the keys of table t that lie in domain d
 * are those of sub-table t | d << 16. Numbers ascend by domain, then table. A state of one domain
 * has the table's number, and readers that do not care for domains take the table out of the
 * number. */
enum { FR_SUBTABLE_BITS = 16 };
static inline uint32_t fr_subtable(uint32_t table, uint32_t domain)
{
    return table | domain << FR_SUBTABLE_BITS;
}
/* The table of a sub-table; of a block, the table whose counters it holds. */
static inline uint32_t fr_subtable_table(uint32_t subtable)
{
    return subtable & (((uint32_t)1 << FR_SUBTABLE_BITS) - 1);
}
static inline uint32_t fr_subtable_domain(uint32_t subtable)
{
    return (subtable & (uint32_t)(FR_BLOCK_TABLES - 1)) >> FR_SUBTABLE_BITS;
}
/* The domain of a key, one of n_domains >= 1. A domain is a range of keys, as a delta partition
 * is. */
static inline uint32_t fr_key_domain(uint64_t key, uint32_t n_domains)
{
    return fr_key_range(key, n_domains);
}

enum fr_image_kind { FR_IMAGE_ROW = 0, FR_IMAGE_PENDING = 1, FR_IMAGE_ABSENT = 2, FR_IMAGE_BLOCK = 3, FR_IMAGE_KINDS };
struct fr_image {
    uint64_t key;
    uint32_t table; /* a sub-table (fr_subtable), or FR_BLOCK_TABLES + a sub-table */
    uint32_t size;  /* number of bytes; 0 when absent */
    uint8_t kind;   /* enum fr_image_kind */
    uint8_t reason; /* enum fr_absent_reason */
    uint64_t epoch; /* when read back: the epoch that holds the image; 0: the cold store */
    /* Borrowed. The bytes have any alignment when they come from an epoch or the cold store: read
     * them with memcpy. */
    const uint8_t *bytes;
};

/* Alignment of a float, so that a row with an odd number of floats after this struct needs no
 * padding. */
#define FR_AS_FLOATS __attribute__((packed, aligned(4)))

/* A row image: this head, then f32 row[row_floats], of which the first value_floats are published.
 * Single samples add to the counters, so the counters must not stop at 2^24, as f32 would. */
struct FR_AS_FLOATS fr_row_head {
    int64_t seen_ms;
    uint64_t show;
    double click; /* a double, because labels may be fractions */
};
enum { FR_ROW_IMAGE_HEAD = sizeof(struct fr_row_head) };
_Static_assert(sizeof(struct fr_row_head) == 24, "stored");

/* A pending image: i64 seen_ms, then u32 count. */
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
