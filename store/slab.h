/* Slabs of equal rows: stable addresses, 64-byte aligned, freed rows are reused.
 *
 * A new chunk is a quarter of what the slab holds, from 4 KiB (small tables stay small: there are
 * 16 slabs per table) to 8 MiB (a few huge pages). Chunks are returned only by release. A row just
 * taken holds no defined bytes.
 *
 * Owner: one worker at a time. */
#ifndef FR_STORE_SLAB_H
#define FR_STORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

struct fr_slab_chunk;

struct fr_slab {
    size_t row_bytes; /* multiple of 64 */
    struct fr_slab_chunk *chunks;
    uint8_t *fresh, *fresh_end; /* never used yet, in the newest chunk */
    void *free_rows;            /* linked through their first word */
    size_t reserved;            /* bytes of all chunks */
};

void fr_slab_init(struct fr_slab *slab, size_t row_bytes);
void fr_slab_release(struct fr_slab *slab);
void *fr_slab_take(struct fr_slab *slab);
void fr_slab_give(struct fr_slab *slab, void *row);
#endif
