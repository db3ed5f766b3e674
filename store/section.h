/* Section "store" of an epoch: what is not in the images. Little-endian:
 *
 *   u32 version (1), u32 n_tables, then per table
 *     u64 rows, pending (to check the images against), admitted, rejected, forgotten, unremembered,
 *     expired[6],
 *     u32 slice_bits;
 *   u64 n_carried, then per carried key, ascending by (table, key)
 *     u32 table, u64 key, i64 seen_ms, u32 count.
 *
 * A carried key is pending although this epoch's image says absent (cut.c); its pending image is in
 * the next epoch. */
#ifndef FR_STORE_SECTION_H
#define FR_STORE_SECTION_H

#include "base/buffer.h"
#include "store/store.h"

#define FR_SECTION_STORE "store"

struct fr_carried_key {
    uint64_t key;
    int64_t seen_ms;
    uint32_t table, count;
};

void fr_section_encode(const struct fr_store *store, const struct fr_carried_key *carried, size_t n_carried,
                       struct fr_buffer *out);

#endif
