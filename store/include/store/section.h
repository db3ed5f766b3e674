/* Section "store" of an epoch: the store's numbers, and what the key images cannot hold. The store
 * writes and restores the section; tools print it.
 *
 * Layout, little-endian: u32 version, u32 n_tables; for each table its counts as u64, in the order
 * of fr_store_count_names, then u64 rows and u64 pending keys of each shard, then u32 slice_bits;
 * u64 n_carried; for each carried key, ascending by (table, key): u32 table, u64 key, i64 seen_ms,
 * u32 count.
 *
 * The rows and pending keys say how many images the state has, in whatever epoch or file an image
 * is. A carried key is pending although its image in this epoch says "absent" (cut.c); the key's
 * pending image is in the next epoch.
 *
 * Thread: any. */
#ifndef FR_STORE_SECTION_H
#define FR_STORE_SECTION_H

#include "base/buffer.h"
#include "store/store.h"

#define FR_SECTION_STORE "store"
/* The section that holds the state of each table's sweep (store/expiry_section.c). The newest value
 * of the section is valid. */
#define FR_SECTION_EXPIRY "expiry"
/* A state of several domains has sections "store/<d>" and "expiry/<d>" instead, one for each domain
 * d, with the domain's sub-tables in the order of their tables. */
void fr_store_section_name(const char *kind, uint32_t domain, uint32_t n_domains, char name[FR_SECTION_NAME_MAX]);
/* Whether the section is the one that `kind` (FR_SECTION_STORE or FR_SECTION_EXPIRY) names, of the
 * whole state or of a domain. Sets *domain, to 0 for the whole state. */
bool fr_store_section_is(const char *name, const char *kind, uint32_t *domain);

/* the names of the numbers in fr_store_counts.of */
extern const char *const fr_store_count_names[FR_STORE_COUNTS];

struct fr_carried_key {
    uint64_t key;
    int64_t seen_ms;
    uint32_t table; /* a sub-table (durable/image.h) */
    uint32_t count;
};

struct fr_store_section {
    uint32_t n_tables;
    struct fr_store_section_table {
        struct fr_store_counts counts;
        /* per shard; their sums are the rows and pending in counts */
        uint64_t rows[FR_SHARDS], pending[FR_SHARDS];
        uint32_t slice_bits;
    } * tables;
    size_t n_carried;
    struct fr_carried_key *carried;
};

void fr_store_section_encode(const struct fr_store_section *section, struct fr_buffer *out);
/* *out is written on success only; release it. FR_E_MISMATCH: the section has another version.
 * FR_E_CORRUPT: the bytes do not parse. */
enum fr_status fr_store_section_parse(const uint8_t *bytes, size_t size, struct fr_store_section *out) FR_MUST_CHECK;
void fr_store_section_release(struct fr_store_section *section);

#endif
