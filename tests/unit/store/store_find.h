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
    FR_CHECK(table < store->n_tables);
    *out = (struct fr_store_view){0};
    const struct fr_table *t = &store->tables[table];
    uint64_t hash = fr_fmix64(key);
    const struct fr_entry *entry = fr_index_find(&t->shards[fr_shard_of(hash)].index, hash);
    if (!entry || entry->state == FR_ENTRY_DEAD)
        return FR_E_NOT_FOUND;
    if (entry->state == FR_ENTRY_PENDING) {
        *out = (struct fr_store_view){.kind = FR_IMAGE_PENDING, .count = entry->count, .seen_ms = entry->seen_ms};
        return FR_OK;
    }
    const struct fr_row_head *tail = fr_row_tail(t, entry->row);
    *out = (struct fr_store_view){
        .kind = FR_IMAGE_ROW, .seen_ms = tail->seen_ms, .show = tail->show, .click = tail->click, .row = entry->row};
    return FR_OK;
}

#endif
