/* What the state has of one key, for people (fr_store_read_key). Nothing changes: a key that is
 * read from the cold store does not become an entry. Owner: the owner loop, between two batches. */
#include <string.h>

#include "base/check.h"
#include "tier.h"

static void copy_row(const struct fr_table *table, const uint8_t *image, struct fr_store_key *out, float *row)
{
    out->state = FR_KEY_ROW;
    memcpy(&out->head, image, sizeof(out->head));
    memcpy(row, image + FR_ROW_IMAGE_HEAD, table->row_bytes);
}

static void read_entry(const struct fr_table *table, const struct fr_shard *shard, uint32_t number,
                       struct fr_store_key *out, float *row)
{
    const struct fr_entry *entry = fr_entries_at(&shard->entries, number);
    out->resident = true;
    switch ((enum fr_entry_state)entry->state) {
    case FR_ENTRY_LIVE:
        copy_row(table, fr_entries_image(&shard->entries, number), out, row);
        break;
    case FR_ENTRY_PENDING:
        out->state = FR_KEY_PENDING;
        out->head.seen_ms = fr_entries_light(&shard->entries, number)->seen_ms;
        out->count = fr_entries_light(&shard->entries, number)->count;
        break;
    case FR_ENTRY_DEAD:
        out->state = FR_KEY_REMOVED;
        break;
    }
}

struct reading {
    const struct fr_table *table;
    struct fr_store_key *out;
    float *row;
};

static enum fr_status read_image(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    const struct reading *reading = self;
    (void)index;
    (void)hash;
    if (!image)
        return FR_OK;
    if (!fr_tier_fits(reading->table, image))
        return FR_E_CORRUPT;
    if (image->kind == FR_IMAGE_ROW) {
        copy_row(reading->table, image->bytes, reading->out, reading->row);
        return FR_OK;
    }
    int64_t seen_ms;
    fr_pending_load(image->bytes, &seen_ms, &reading->out->count);
    reading->out->state = FR_KEY_PENDING;
    reading->out->head.seen_ms = seen_ms;
    return FR_OK;
}

enum fr_status fr_store_read_key(const struct fr_store *store, uint32_t table, uint64_t key, struct fr_store_key *out,
                                 float *row, struct fr_err *err)
{
    FR_CHECK(table < store->n_configured);
    const struct fr_table *t = fr_store_subtable_of(store, table, key);
    uint64_t hash = fr_order_hash(&store->order, key);
    const struct fr_shard *shard = &t->shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    memset(out, 0, sizeof(*out));
    if (number != FR_NO_ENTRY)
        read_entry(t, shard, number, out, row);
    if (number != FR_NO_ENTRY || shard->evicted == 0)
        return FR_OK;
    struct fr_durable_reader reader = {&(struct reading){t, out, row}, read_image};
    return fr_durable_fetch(store->durable, t->number, &hash, 1, &reader, err);
}
