/* Everything of a store that decides what it will do and say next, as bytes: two stores with equal
 * images are the same store. Left out on purpose: addresses, the index's layout and reserved
 * memory, which nothing depends on. */
#ifndef FR_TESTS_STORE_IMAGE_H
#define FR_TESTS_STORE_IMAGE_H

#include "case.h"

#include <stdlib.h>

#include "../../../store/tables.h"
#include "base/buffer.h"
#include "base/check.h"
#include "epoch_bytes.h"

struct image_entries {
    const struct fr_shard *shard;
    struct image_entry {
        uint64_t hash;
        uint32_t number;
    } * list;
    size_t n, capacity;
};

static inline void image_visit(void *self, uint32_t number)
{
    struct image_entries *entries = self;
    if (entries->n == entries->capacity) {
        entries->capacity = 2 * entries->capacity + 64;
        entries->list = fr_realloc(entries->list, entries->capacity, sizeof(*entries->list));
    }
    entries->list[entries->n++] =
        (struct image_entry){.hash = fr_shard_entry(entries->shard, number)->hash, .number = number};
}

static inline int image_compare(const void *a, const void *b)
{
    const struct image_entry *x = a, *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static inline int image_compare_hash(const void *a, const void *b)
{
    uint64_t x = fr_load_u64(a), y = fr_load_u64(b); /* entries need not be aligned */
    return (x > y) - (x < y);
}

static inline void image_of_entry(const struct fr_table *table, const struct fr_shard *shard, uint32_t number,
                                  struct fr_buffer *out)
{
    const struct fr_entry *entry = fr_shard_entry(shard, number);
    fr_put_u64(out, entry->hash);
    fr_put_u8(out, entry->state);
    fr_put_u8(out, entry->flags);
    fr_put_u8(out, entry->reason);
    if (entry->state == FR_ENTRY_PENDING) {
        fr_put_u64(out, (uint64_t)fr_entries_light(&shard->entries, number)->seen_ms);
        fr_put_u32(out, fr_entries_light(&shard->entries, number)->count);
    } else if (entry->state == FR_ENTRY_LIVE) {
        fr_buffer_append(out, &fr_entries_live(&shard->entries, number)->head, sizeof(struct fr_row_head));
        fr_buffer_append(out, fr_entries_row(&shard->entries, number), table->row_bytes);
    }
}

/* Appends the shard's entries in the order of their hashes. */
static inline void image_of_entries(const struct fr_table *table, const struct fr_shard *shard, struct fr_buffer *out)
{
    struct image_entries entries = {.shard = shard};
    fr_index_scan(&shard->index, &shard->entries, 0, 0, image_visit, &entries);
    if (entries.n > 0)
        qsort(entries.list, entries.n, sizeof(*entries.list), image_compare);
    fr_put_u64(out, entries.n);
    for (size_t i = 0; i < entries.n; i++)
        image_of_entry(table, shard, entries.list[i].number, out);
    free(entries.list);
}

static inline void image_of_shard(const struct fr_table *table, const struct fr_shard *shard, struct fr_buffer *out)
{
    image_of_entries(table, shard, out);
    fr_put_u64(out, shard->index.n_entries);
    fr_put_u64(out, shard->dirty_bytes);
    fr_put_u64(out, shard->n_dirty);
    size_t dirty = out->size; /* expiry adds to the list in the index's order */
    fr_buffer_append(out, shard->dirty, shard->n_dirty * sizeof(*shard->dirty));
    if (shard->n_dirty > 0)
        qsort(out->data + dirty, shard->n_dirty, sizeof(*shard->dirty), image_compare_hash);
    fr_buffer_append(out, &shard->counts, sizeof(shard->counts));
}

static inline void image_of_sketch(const struct fr_sketch *sketch, struct fr_buffer *out)
{
    fr_buffer_append(out, sketch->blocks, sketch->n_blocks * sizeof(*sketch->blocks));
    fr_buffer_append(out, sketch->changed, sketch->n_changed * sizeof(*sketch->changed));
}

/* Appends the sums of the bins over all shards, because nothing depends on which shard counted a
 * row. */
static inline void image_of_sweep(const struct fr_sweep *sweep, struct fr_buffer *out)
{
    fr_put_u64(out, sweep->next);
    fr_put_u64(out, (uint64_t)sweep->counted_ms);
    fr_put_u64(out, (uint64_t)sweep->began_ms);
    fr_put_u64(out, (uint64_t)sweep->swept_ms);
    fr_put_u8(out, sweep->edge.set);
    fr_put_u32(out, sweep->edge.bin);
    fr_put_u64(out, sweep->edge.share);
    fr_put_u64(out, (uint64_t)sweep->edge.rank_ms);
    fr_put_u8(out, sweep->changed);
    for (uint32_t b = 0; sweep->bins && b < FR_SWEEP_BINS; b++) {
        uint64_t sum = 0;
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            sum += sweep->bins[s][b];
        fr_put_u64(out, sum);
    }
}

static inline void store_image(const struct fr_store *store, struct fr_buffer *out)
{
    fr_buffer_clear(out);
    for (uint32_t t = 0; t < store->n_tables; t++) {
        const struct fr_table *table = &store->tables[t];
        fr_put_u32(out, table->slice_bits);
        image_of_sweep(table->sweep, out);
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            image_of_shard(table, &table->shards[s], out);
        for (uint32_t s = 0; table->sketches && s < FR_SHARDS; s++)
            image_of_sketch(&table->sketches[s], out);
    }
}

static inline void assert_same_store(const struct fr_store *a, const struct fr_store *b)
{
    struct fr_buffer x = {0}, y = {0};
    store_image(a, &x);
    store_image(b, &y);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    fr_buffer_release(&x);
    fr_buffer_release(&y);
}

/* Cuts both stores and expects the same epoch, byte by byte. */
static inline void assert_same_cut(struct fr_store *a, struct fr_store *b)
{
    const struct fr_sha256 previous = {0};
    const struct fr_order order = fr_order_of(0);
    struct fr_buffer bytes[2] = {0};
    struct fr_store *stores[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct fr_stage stage;
        fr_stage_init(&stage);
        stage.epoch = 1;
        stage.timeline = 1;
        fr_store_cut(stores[i], &stage);
        encode_epoch(&stage, &order, &previous, &bytes[i]);
        fr_stage_release(&stage);
    }
    assert_int_equal(bytes[0].size, bytes[1].size);
    assert_memory_equal(bytes[0].data, bytes[1].data, bytes[0].size);
    fr_buffer_release(&bytes[0]);
    fr_buffer_release(&bytes[1]);
}

#endif
