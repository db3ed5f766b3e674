/* See gate.h. The policy decides whether a key is admitted. Owner: the owner loop and its
 * workers. */
#include "gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { BLOCK_IMAGE_SIZE = sizeof(struct fr_sketch_block) };

static bool has_sketch(const struct fr_table *table)
{
    return table->spec.gate.memory == FR_GATE_SKETCH;
}

void fr_admission_open(struct fr_table *table)
{
    if (!has_sketch(table))
        return;
    table->sketches = fr_alloc(FR_SHARDS, sizeof(*table->sketches));
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        fr_sketch_init(&table->sketches[s], table->spec.gate.sketch_bytes / FR_SHARDS,
                       table->spec.gate.sketch_half_life_ms);
}

void fr_admission_close(struct fr_table *table)
{
    for (uint32_t s = 0; table->sketches && s < FR_SHARDS; s++)
        fr_sketch_release(&table->sketches[s]);
    free(table->sketches);
    table->sketches = NULL;
}

uint64_t fr_admission_bytes(const struct fr_table *table)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; table->sketches && s < FR_SHARDS; s++)
        bytes += fr_sketch_bytes(&table->sketches[s]);
    return bytes;
}

uint32_t fr_admission_count_sketch(const struct fr_table *table, uint32_t shard, uint64_t hash, uint64_t n,
                                   int64_t watermark_ms, struct fr_sketch_log *log)
{
    bool changed;
    uint32_t count = fr_sketch_add(&table->sketches[shard], hash, n, watermark_ms, log, &changed);
    if (changed)
        table->shards[shard].dirty_bytes += BLOCK_IMAGE_SIZE;
    return count;
}

bool fr_admission_falls(const struct fr_store *store, const struct fr_table *table, const struct fr_batch *batch,
                        uint32_t begin, uint32_t end, uint64_t key)
{
    const struct fr_gate_policy *gate = &table->spec.gate;
    uint64_t coins = fr_fmix64(fr_fmix64(key ^ store->seed) + table->random_stream);
    for (uint32_t i = begin; i < end; i++)
        if (batch->role[i] == FR_ROLE_TRAIN && gate->falls(gate->config, fr_fmix64(coins ^ batch->origin[i])))
            return true;
    return false;
}

/* ---- in epochs ---- */

static uint64_t key_of_block(const struct fr_order *order, uint32_t shard, uint32_t block)
{
    return fr_order_key(order, (uint64_t)shard << (64 - FR_SHARD_BITS) | block);
}

void fr_admission_cut(struct fr_store *store, struct fr_stage *stage)
{
    for (uint32_t t = 0; t < store->n_tables; t++) {
        struct fr_sketch *sketches = store->tables[t].sketches;
        for (uint32_t s = 0; sketches && s < FR_SHARDS; s++) {
            for (size_t i = 0; i < sketches[s].n_changed; i++) {
                uint32_t block = sketches[s].changed[i];
                struct fr_image image = {.key = key_of_block(&store->order, s, block),
                                         .table = FR_BLOCK_TABLES + store->tables[t].number,
                                         .size = BLOCK_IMAGE_SIZE,
                                         .kind = FR_IMAGE_BLOCK};
                memcpy(fr_stage_image(stage, &image), &sketches[s].blocks[block], BLOCK_IMAGE_SIZE);
            }
            fr_sketch_clear_changes(&sketches[s]);
        }
    }
}

enum fr_status fr_admission_restore(struct fr_store *store, const struct fr_image *image)
{
    const struct fr_table *table =
        image->table < FR_BLOCK_TABLES ? NULL : fr_store_numbered(store, image->table - FR_BLOCK_TABLES);
    if (!table || !has_sketch(table) || image->size != BLOCK_IMAGE_SIZE)
        return FR_E_CORRUPT;
    uint64_t hash = fr_order_hash(&store->order, image->key), block = hash << FR_SHARD_BITS >> FR_SHARD_BITS;
    struct fr_sketch *sketch = &table->sketches[fr_shard_of(hash)];
    if (block >= sketch->n_blocks)
        return FR_E_CORRUPT;
    memcpy(&sketch->blocks[block], image->bytes, BLOCK_IMAGE_SIZE);
    return FR_OK;
}
