/* Section "store" of an epoch holds what is not in the images. The store writes and restores it,
 * tools print it.
 *
 * Little-endian: u32 version, u32 n_tables, per table u64 per number in the order of their names,
 * u64 rows and then u64 pending keys of each shard, u32 slice_bits; u64 n_carried, per carried key,
 * ascending by (table, key), u32 table, u64 key, i64 seen_ms, u32 count. The numbers of rows and
 * pending keys say how many images there are, wherever they lie. A carried key is pending although
 * this epoch's image says absent (cut.c); its pending image is in the next epoch.
 *
 * Thread: any. */
#ifndef FR_STORE_SECTION_H
#define FR_STORE_SECTION_H

#include "base/buffer.h"
#include "store/store.h"

#define FR_SECTION_STORE "store"
/* Where sweeps of expiry stand (store/expiry_section.c); the newest holds. */
#define FR_SECTION_EXPIRY "expiry"

extern const char *const fr_store_count_names[FR_STORE_COUNTS]; /* of fr_store_counts.of */

struct fr_carried_key {
    uint64_t key;
    int64_t seen_ms;
    uint32_t table, count;
};

struct fr_store_section {
    uint32_t n_tables;
    struct fr_store_section_table {
        struct fr_store_counts counts;
        uint64_t rows[FR_SHARDS], pending[FR_SHARDS]; /* what the counts are sums of */
        uint32_t slice_bits;
    } tables[FR_TABLES_MAX];
    size_t n_carried;
    struct fr_carried_key *carried;
};

void fr_store_section_encode(const struct fr_store_section *section, struct fr_buffer *out);
/* FR_E_MISMATCH: another version; FR_E_CORRUPT: does not parse. *out is written on success only;
 * the caller frees its carried keys. */
enum fr_status fr_store_section_parse(const uint8_t *bytes, size_t size, struct fr_store_section *out) FR_MUST_CHECK;

#endif
