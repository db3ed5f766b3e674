/* The store as a whole: construction from table descriptions, accounting, and finding one row.
 *
 * See tables.h for the structures and store.h for the contract. Owner: the owner loop. Planning,
 * expiry, cut and recovery are in files of these names. */
#include "store/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/machine.h"
#include "gate.h"
#include "base/pages.h"
#include "removed.h"
#include "scan.h"
#include "tables.h"

enum { EXPIRE_EVERY_DEFAULT = 16, EXPIRE_SLICE_ROWS_DEFAULT = 65536 };
enum { SKETCH_BYTES_MIN = 64 * 1024 }; /* as in the option tables.*.admit.sketch.bytes */

static void check_table(const struct fr_store_table *spec)
{
    const struct fr_row_layout *layout = &spec->layout;
    FR_CHECK(layout->row_floats > 0 && layout->value_floats <= layout->row_floats);
    /* an image's size is stored as a u32 */
    FR_CHECK(layout->row_floats <= (UINT32_MAX - FR_ROW_IMAGE_HEAD) / sizeof(float));
    FR_CHECK(layout->n_parts <= FR_PARTS_MAX);
    for (uint32_t p = 0; p < layout->n_parts; p++) {
        const struct fr_layout_part *part = &layout->parts[p];
        FR_CHECK((uint64_t)part->value_offset + part->dim <= layout->value_floats);
        FR_CHECK(part->state_floats == 0 || part->state_offset >= layout->value_floats);
        FR_CHECK((uint64_t)part->state_offset + part->state_floats <= layout->row_floats || part->state_floats == 0);
    }
    FR_CHECK(spec->gate.admits);
    FR_CHECK(spec->gate.memory != FR_GATE_ENTRIES || spec->gate.forgets);
    FR_CHECK(spec->gate.memory != FR_GATE_NOTHING || spec->gate.falls);
    FR_CHECK(spec->n_expiries <= FR_EXPIRY_RULES);
    for (uint32_t i = 0; i < spec->n_expiries; i++) {
        FR_CHECK(spec->expiries[i].rank);
        FR_CHECK(spec->expiries[i].rows_max == 0 || i + 1 == spec->n_expiries);
        FR_CHECK(spec->expiries[i].reason > FR_ABSENT_SILENT && spec->expiries[i].reason < FR_ABSENT_REASONS);
    }
}

/* A part's share of a limit that is divided equally; the first parts get the rest. */
static uint64_t share_of(uint64_t limit, uint32_t part, uint32_t n_parts)
{
    return limit / n_parts + (part < limit % n_parts);
}

static uint64_t share_above(uint64_t least, uint64_t limit, uint32_t part, uint32_t n_parts)
{
    uint64_t share = share_of(limit, part, n_parts);
    least = limit < least ? limit : least;
    return share > least ? share : least;
}

/* Gives the sub-table of one domain its share of the table's limits. The limits are divided instead
 * of counted in common, because nothing in a domain may depend on another domain. */
static void share_limits(struct fr_store_table *spec, uint32_t domain, uint32_t n_domains)
{
    if (n_domains == 1)
        return;
    spec->pending_max = share_above(1, spec->pending_max, domain, n_domains);
    spec->gate.sketch_bytes = share_above(SKETCH_BYTES_MIN, spec->gate.sketch_bytes, domain, n_domains);
    spec->expire_slice_rows = (uint32_t)share_above(1, spec->expire_slice_rows, domain, n_domains);
    spec->initial_capacity = share_of(spec->initial_capacity, domain, n_domains);
    for (uint32_t i = 0; i < spec->n_expiries; i++)
        spec->expiries[i].rows_max = share_above(1, spec->expiries[i].rows_max, domain, n_domains);
}

static void init_table(struct fr_table *table, const struct fr_store_table *spec, uint32_t domain, uint32_t n_domains)
{
    check_table(spec);
    table->spec = *spec;
    if (table->spec.expire_every == 0)
        table->spec.expire_every = EXPIRE_EVERY_DEFAULT;
    if (table->spec.expire_slice_rows == 0)
        table->spec.expire_slice_rows = EXPIRE_SLICE_ROWS_DEFAULT;
    share_limits(&table->spec, domain, n_domains);
    table->random_stream = fr_xxh3(spec->name, strnlen(spec->name, sizeof(spec->name)));
    table->row_bytes = (size_t)spec->layout.row_floats * sizeof(float);
    table->image_size = FR_ROW_IMAGE_HEAD + table->row_bytes;
    table->shards = fr_alloc_aligned(FR_LINE, FR_SHARDS * sizeof(*table->shards));
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        /* The limit is divided over the shards instead of counted in common, because which keys are
         * remembered must not depend on the order in which shards are handled. */
        fr_shard_init(&table->shards[s], s, table->row_bytes, share_of(table->spec.pending_max, s, FR_SHARDS));
        table->shards[s].index.least = table->spec.initial_capacity / FR_SHARDS;
        fr_index_reserve(&table->shards[s].index, 0);
    }
    fr_admission_open(table);
    table->sweep = fr_sweep_open(table->spec.expiries, table->spec.n_expiries, FR_SHARDS);
}

static void release_table(struct fr_table *table)
{
    for (uint32_t s = 0; table->shards && s < FR_SHARDS; s++)
        fr_shard_release(&table->shards[s]);
    free(table->shards);
    fr_admission_close(table);
    fr_sweep_close(table->sweep);
    table->sweep = NULL;
    fr_scan_close(table);
}

enum fr_status fr_store_check_machine(const struct fr_conf *conf, struct fr_err *err)
{
    uint64_t machine = fr_machine_memory(fr_machine());
    if (conf->memory_reserve < machine)
        return FR_OK;
    return fr_err_set(err, FR_E_UNSUPPORTED,
                      "memory_reserve: %" PRIu64 "B, but this machine has %" PRIu64
                      "B in all: lower it, and memory_limit",
                      conf->memory_reserve, machine);
}

struct fr_store *fr_store_new(const struct fr_store_options *options)
{
    const struct fr_conf *conf = options->conf;
    FR_CHECK(options->pool && conf && options->n_tables <= FR_TABLES_MAX);
    struct fr_store *store = fr_alloc(1, sizeof(*store));
    store->seed = options->seed;
    store->order = fr_order_of(0);
    store->pool = options->pool;
    fr_pages_reserve(conf->memory_reserve, options->pool);
    store->n_domains = fr_conf_domains(conf);
    store->n_configured = options->n_tables;
    store->n_tables = store->n_domains * store->n_configured;
    store->tables = fr_alloc(store->n_tables, sizeof(*store->tables));
    store->due = fr_alloc(store->n_tables, sizeof(*store->due));
    store->restoring = fr_alloc(store->n_domains, sizeof(*store->restoring));
    for (uint32_t d = 0; d < store->n_domains; d++)
        for (uint32_t t = 0; t < store->n_configured; t++) {
            struct fr_table *table = fr_store_subtable(store, t, d);
            table->number = fr_subtable(t, d);
            init_table(table, &options->tables[t], d, store->n_domains);
        }
    store->n_slots = conf->n_slots;
    store->slots = fr_alloc(store->n_slots, sizeof(*store->slots));
    for (uint32_t s = 0; s < store->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        bool dense = fr_slot_has_numbers(slot->kind);
        FR_CHECK(dense || (slot->table >= 0 && (uint32_t)slot->table < store->n_configured));
        store->slots[s] = (struct fr_store_slot){
            .table = dense ? FR_NO_INDEX : slot->table, .admit = slot->admit, .touch = slot->touch};
    }
    store->plan = fr_plan_new(store);
    store->ahead = fr_plan_new(store);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->scan_lock, NULL);
    store->cut = fr_cut_new(store);
    return store;
}

void fr_store_free(struct fr_store *store)
{
    if (!store)
        return;
    fr_plan_free(store->plan);
    fr_plan_free(store->ahead);
    fr_plan_free(store->gathered);
    free(store->sent);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->scan_lock);
    fr_cut_free(store->cut);
    fr_removed_free(store);
    for (uint32_t t = 0; t < store->n_tables; t++)
        release_table(&store->tables[t]);
    for (uint32_t d = 0; d < store->n_domains; d++)
        fr_buffer_release(&store->restoring[d]);
    free(store->restoring);
    free(store->due);
    free(store->tables);
    free(store->slots);
    free(store);
}

void fr_store_open_state(struct fr_store *store, uint64_t salt, struct fr_durable *durable)
{
    for (uint32_t t = 0; t < store->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            FR_CHECK(store->tables[t].shards[s].index.n_entries == 0);
    store->order = fr_order_of(salt);
    store->durable = durable;
}

uint64_t fr_store_folded(const struct fr_store *store)
{
    return store->durable ? fr_durable_folded(store->durable) : UINT64_MAX;
}

uint64_t fr_store_dirty_bytes(const struct fr_store *store)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < store->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            bytes += store->tables[t].shards[s].dirty_bytes;
    return bytes;
}

static uint64_t table_bytes(const struct fr_table *table)
{
    uint64_t bytes = fr_admission_bytes(table) + fr_sweep_bytes(table->sweep) + fr_scan_bytes(table);
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        bytes += fr_shard_bytes(&table->shards[s]);
    return bytes;
}

uint64_t fr_store_kept_bytes(const struct fr_store *store)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < store->n_tables; t++)
        bytes += table_bytes(&store->tables[t]);
    return bytes;
}

uint64_t fr_store_limited_bytes(const struct fr_store *store)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < store->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            bytes += fr_shard_bytes(&store->tables[t].shards[s]);
    return bytes;
}

uint64_t fr_store_idle_bytes(void)
{
    return fr_pages_idle();
}

uint64_t fr_store_bytes(const struct fr_store *store)
{
    uint64_t gathered = store->gathered ? fr_plan_bytes(store->gathered) : 0;
    return fr_plan_bytes(store->plan) + fr_plan_bytes(store->ahead) + gathered + fr_cut_bytes(store->cut) +
           fr_removed_bytes(store) + fr_store_kept_bytes(store);
}

float *fr_store_row_of(const struct fr_store *store, uint32_t table, uint64_t key)
{
    uint64_t hash = fr_order_hash(&store->order, key);
    const struct fr_shard *shard = &fr_store_subtable_of(store, table, key)->shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    return number == FR_NO_ENTRY || (number & FR_LIGHT) ? NULL : fr_entries_row(&shard->entries, number);
}

void fr_store_stats(const struct fr_store *store, uint32_t table, struct fr_store_table_stats *out)
{
    FR_CHECK(table < store->n_configured);
    *out = (struct fr_store_table_stats){.bytes = 0};
    for (uint32_t d = 0; d < store->n_domains; d++) {
        const struct fr_table *t = fr_store_subtable(store, table, d);
        struct fr_store_counts counts = fr_table_counts(t);
        for (uint32_t i = 0; i < FR_STORE_COUNTS; i++)
            out->counts.of[i] += counts.of[i];
        out->bytes += table_bytes(t);
        out->resident += counts.rows + counts.pending;
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            out->resident -= t->shards[s].evicted;
            out->evictions += t->shards[s].evictions;
        }
    }
}
