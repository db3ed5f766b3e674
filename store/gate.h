/* What a gate remembers of keys without a row, other than pending entries (policy/policy.h): the
 * sketches of a table, their way into epochs and back, and the coins of samples.
 *
 * A sketch is state: the blocks that changed since the last cut are in the epoch, as images
 * (FR_IMAGE_BLOCK) of a table number of their own, FR_BLOCK_TABLES + table. Their key is the one
 * whose hash is the shard's number, then the block's. Followers never see them.
 *
 * Thread: as the store's; a shard is one worker's at a time. */
#ifndef FR_STORE_GATE_H
#define FR_STORE_GATE_H

#include "policy/sketch.h"
#include "tables.h"

/* Sketches of a table whose gate has them; else nothing is taken. */
void fr_admission_open(struct fr_table *table);
void fr_admission_close(struct fr_table *table);
uint64_t fr_admission_bytes(const struct fr_table *table);

/* Counts a key's n >= 1 trained occurrences of a batch in the shard's sketch; what an image of the
 * block adds to the epoch is added to the shard's dirty bytes. */
uint32_t fr_admission_count_sketch(const struct fr_table *table, uint32_t shard, uint64_t hash, uint64_t n,
                                   int64_t watermark_ms, struct fr_sketch_log *log);

/* Whether the coin of some sample in [begin, end) that trains falls for the key. A coin is a
 * function of seed, table, key and the sample's origin. */
bool fr_admission_falls(const struct fr_store *store, const struct fr_table *table, const struct fr_batch *batch,
                        uint32_t begin, uint32_t end, uint64_t key);

/* Stages the blocks that changed since the last cut. */
void fr_admission_cut(struct fr_store *store, struct fr_stage *stage);
/* FR_E_CORRUPT: no block of this table's sketch. */
enum fr_status fr_admission_restore(struct fr_store *store, const struct fr_image *image) FR_MUST_CHECK;

#endif
