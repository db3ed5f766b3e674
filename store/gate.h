/* What a gate remembers of keys without a row, other than pending entries (policy/policy.h): the
 * sketches of a table, how they are saved in epochs and restored, and the coins of samples.
 *
 * A sketch is state. The blocks that changed since the last cut are in the epoch as images
 * (FR_IMAGE_BLOCK), with table number FR_BLOCK_TABLES + sub-table. The key of a block's image is
 * the key whose hash is the shard's number followed by the block's. Followers never see these
 * images.
 *
 * Thread: as for the store; one worker handles a shard at a time. */
#ifndef FR_STORE_GATE_H
#define FR_STORE_GATE_H

#include "policy/sketch.h"
#include "tables.h"

/* Makes the table's sketches if its gate uses them; otherwise allocates nothing. */
void fr_admission_open(struct fr_table *table);
void fr_admission_close(struct fr_table *table);
uint64_t fr_admission_bytes(const struct fr_table *table);

/* Counts a key's n >= 1 trained occurrences of a batch in the shard's sketch and returns the key's
 * count. If the block was unchanged until now, the size of its image is added to the shard's dirty
 * bytes. */
uint32_t fr_admission_count_sketch(const struct fr_table *table, uint32_t shard, uint64_t hash, uint64_t n,
                                   int64_t watermark_ms, struct fr_sketch_log *log);

/* Whether the coin of a trained sample in [begin, end) admits the key. A coin is a function of
 * seed, table, key and the sample's origin. */
bool fr_admission_falls(const struct fr_store *store, const struct fr_table *table, const struct fr_batch *batch,
                        uint32_t begin, uint32_t end, uint64_t key);

/* Stages the blocks that changed since the last cut. */
void fr_admission_cut(struct fr_store *store, struct fr_stage *stage);
/* FR_E_CORRUPT: the image is not a block of this table's sketch. */
enum fr_status fr_admission_restore(struct fr_store *store, const struct fr_image *image) FR_MUST_CHECK;

#endif
