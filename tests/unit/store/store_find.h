/* One row of a store, or a pending key, looked at from outside. */
#ifndef TEST_STORE_FIND_H
#define TEST_STORE_FIND_H

#include "../../../store/tables.h"
#include "base/check.h"

struct fr_store_view {
    enum fr_image_kind kind;
    uint32_t count; /* pending */
    int64_t seen_ms;
    uint64_t show;
    double click;
    const float *row; /* live: row_floats, borrowed until the next plan or slice */
};

/* FR_E_NOT_FOUND: no entry. */
static inline enum fr_status fr_store_find(const struct fr_store *store, uint32_t table, uint64_t key,
                                           struct fr_store_view *out)
{
    FR_CHECK(table < store->n_configured);
    *out = (struct fr_store_view){0};
    const struct fr_table *t = fr_store_subtable_of(store, table, key);
    uint64_t hash = fr_order_hash(&store->order, key);
    const struct fr_shard *shard = &t->shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    if (number == FR_NO_ENTRY || fr_shard_entry(shard, number)->state == FR_ENTRY_DEAD)
        return FR_E_NOT_FOUND;
    if (number & FR_LIGHT) {
        const struct fr_light_entry *light = fr_entries_light(&shard->entries, number);
        *out = (struct fr_store_view){.kind = FR_IMAGE_PENDING, .count = light->count, .seen_ms = light->seen_ms};
        return FR_OK;
    }
    const struct fr_row_head *head = &fr_entries_live(&shard->entries, number)->head;
    *out = (struct fr_store_view){.kind = FR_IMAGE_ROW,
                                  .seen_ms = head->seen_ms,
                                  .show = head->show,
                                  .click = head->click,
                                  .row = fr_entries_row(&shard->entries, number)};
    return FR_OK;
}

#endif
