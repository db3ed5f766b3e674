/* See store/ranks.h.
 *
 * Messages: of keys, u32 tables, u32 places of each, then for each table u32 keys of each place,
 * then the keys, table by table, place by place (struct fr_key_wire). Of rows: u32 keys, u32 0,
 * one byte for each key (ROW_*), padded to a multiple of 4, then the values of the keys that have
 * some.
 *
 * Both sides number places as all plans do; a message has those of the home's domains only. */
#include "store/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "plan.h"

enum { ROW_THERE = 1, ROW_MADE = 2 };
enum { CLICK_PARTS = 1 << 20 };

static uint32_t first_place(struct fr_domains domains)
{
    return domains.first * FR_SHARDS;
}

static uint32_t n_places(struct fr_domains domains)
{
    return (domains.end - domains.first) * FR_SHARDS;
}

/* ---- the source ---- */

void fr_store_gather(struct fr_store *store, const struct fr_batch *batch, struct fr_rows *rows)
{
    if (!store->gathered)
        store->gathered = fr_plan_new(store);
    fr_plan_look(store->gathered, batch, false, false);
    fr_plan_list(store->gathered, rows);
}

void fr_store_put_keys(const struct fr_store *store, struct fr_domains domains, struct fr_buffer *out)
{
    const struct fr_plan *plan = store->gathered;
    uint32_t first = first_place(domains), n = n_places(domains);
    fr_put_u32(out, store->n_configured);
    fr_put_u32(out, n);
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = first; p < first + n; p++)
            fr_put_u32(out, plan->tables[t].places[p].n_unique);
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = first; p < first + n; p++) {
            const struct plan_place *place = &plan->tables[t].places[p];
            const struct plan_key *keys = plan->tables[t].keys + place->begin;
            for (uint32_t u = 0; u < place->n_unique; u++) {
                struct fr_key_wire wire = {.key = fr_order_key(&store->order, keys[u].hash),
                                           .counted = keys[u].n_counted,
                                           .touched = keys[u].n_touched,
                                           .clicks = (int64_t)(keys[u].clicks * CLICK_PARTS),
                                           .flags = (keys[u].trained ? FR_KEY_WIRE_TRAINED : 0) |
                                                    (keys[u].fell ? FR_KEY_WIRE_FELL : 0)};
                fr_buffer_append(out, &wire, sizeof(wire));
            }
        }
}

void fr_store_sent_ranges(const struct fr_store *store, struct fr_domains domains, struct fr_unique_range *ranges)
{
    uint32_t first = first_place(domains), last = first + n_places(domains) - 1;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        const struct plan_place *places = store->gathered->tables[t].places;
        ranges[t] =
            (struct fr_unique_range){places[first].unique_begin, places[last].unique_begin + places[last].n_unique};
    }
}

static enum fr_status bad_rows(struct fr_err *err, const char *what)
{
    return fr_err_set(err, FR_E_CORRUPT, "a message with rows of a home is not whole: %s", what);
}

enum fr_status fr_store_take_rows(const struct fr_store *store, struct fr_domains domains, struct fr_bytes in,
                                  struct fr_rows *rows, struct fr_err *err)
{
    static float nothing[1]; /* not written: its address alone says that there is a row */
    const struct fr_plan *plan = store->gathered;
    uint32_t first = first_place(domains), n = n_places(domains);
    size_t n_keys = 0;
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = first; p < first + n; p++)
            n_keys += plan->tables[t].places[p].n_unique;
    struct fr_reader reader = {.at = in.data, .end = in.data + in.size};
    if ((uintptr_t)in.data % sizeof(float) != 0)
        return bad_rows(err, "it is not aligned");
    if (fr_take_u32(&reader) != n_keys || fr_take_u32(&reader) != 0 || reader.failed)
        return bad_rows(err, "another number of keys than were asked for");
    const uint8_t *flags = fr_take(&reader, (n_keys + 3) / 4 * 4);
    if (!flags)
        return bad_rows(err, "it ends within the flags");
    size_t k = 0;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        struct fr_table_rows *out = &rows->tables[t];
        size_t values = (size_t)store->tables[t].spec.layout.value_floats;
        for (uint32_t p = first; p < first + n; p++) {
            const struct plan_place *place = &plan->tables[t].places[p];
            for (uint32_t u = place->unique_begin; u < place->unique_begin + place->n_unique; u++, k++) {
                const uint8_t *bytes = flags[k] == ROW_THERE ? fr_take(&reader, values * sizeof(float)) : NULL;
                if (flags[k] > (ROW_THERE | ROW_MADE) || flags[k] == ROW_MADE || (flags[k] == ROW_THERE && !bytes))
                    return bad_rows(err, "a key has unknown flags, or no values");
                out->served[u] = (float *)(uintptr_t)bytes;
                out->rows[u] = bytes ? out->served[u] : flags[k] ? nothing : NULL;
            }
        }
    }
    return reader.at == reader.end ? FR_OK : bad_rows(err, "bytes are left");
}

/* ---- the home ---- */

/* A message of keys whose counts were checked. */
struct sent {
    const uint8_t *counts; /* [tables, places] u32 */
    const struct fr_key_wire *keys;
};

static uint32_t count_at(const struct sent *sent, size_t index)
{
    uint32_t count;
    memcpy(&count, sent->counts + index * sizeof(count), sizeof(count));
    return count;
}

static enum fr_status bad_keys(struct fr_err *err, uint32_t rank, const char *what)
{
    return fr_err_set(err, FR_E_CORRUPT, "the keys that rank %" PRIu32 " sent are no message of keys: %s", rank, what);
}

/* Checks a message and adds its counts to the places of the plan. */
static enum fr_status read_message(const struct fr_store *store, struct fr_domains domains, uint32_t rank,
                                   struct fr_bytes in, struct sent *out, struct fr_err *err)
{
    struct fr_reader reader = {.at = in.data, .end = in.data + in.size};
    uint32_t n = n_places(domains);
    if (fr_take_u32(&reader) != store->n_configured || fr_take_u32(&reader) != n || reader.failed)
        return bad_keys(err, rank, "other tables or domains");
    size_t cells = (size_t)store->n_configured * n, total = 0;
    out->counts = fr_take(&reader, cells * sizeof(uint32_t));
    if (!out->counts)
        return bad_keys(err, rank, "it ends within the counts");
    for (size_t i = 0; i < cells; i++)
        total += count_at(out, i);
    size_t left = (size_t)(reader.end - reader.at);
    if (left / sizeof(struct fr_key_wire) != total || left % sizeof(struct fr_key_wire) != 0)
        return bad_keys(err, rank, "its size is not that of its keys");
    out->keys = (const struct fr_key_wire *)(const void *)reader.at;
    size_t at = 0;
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = 0; p < n; p++)
            for (uint32_t end = count_at(out, (size_t)t * n + p), i = 0; i < end; i++, at++) {
                struct fr_key_wire key;
                memcpy(&key, out->keys + at, sizeof(key));
                uint64_t hash = fr_order_hash(&store->order, key.key);
                uint32_t place = fr_key_domain(key.key, store->n_domains) * FR_SHARDS + (uint32_t)fr_shard_of(hash);
                if (place != first_place(domains) + p || key.clicks < 0 || key.zero != 0 ||
                    key.flags > (FR_KEY_WIRE_TRAINED | FR_KEY_WIRE_FELL))
                    return bad_keys(err, rank, "a key lies in another place, or its numbers are impossible");
            }
    return FR_OK;
}

/* The keys that all ranks sent, being merged. */
struct merge {
    struct fr_plan *plan;
    struct fr_domains domains;
    const struct sent *sent; /* [ranks] */
    uint32_t n_ranks;
    const size_t *first; /* [ranks, tables, places] the rank's first key of a place */
};

/* The merged keys as a list, and the memory of its arrays. */
struct fr_home_list {
    struct fr_home_rows rows;
    size_t *first; /* as in struct merge */
    size_t capacity_rows, capacity_sent, capacity_ranks;
    float **row_memory;    /* [rows of all tables] */
    uint32_t *sent_memory; /* [keys that all ranks sent, of all tables] */
    uint32_t *counts;      /* [tables, ranks] */
    uint32_t **merged;     /* [tables, ranks] */
};

static void add_key(struct plan_key *key, const struct fr_key_wire *wire)
{
    key->n_counted += wire->counted;
    key->n_touched += wire->touched;
    key->clicks += (double)wire->clicks / CLICK_PARTS;
    key->trained |= wire->flags & FR_KEY_WIRE_TRAINED;
    key->fell |= (wire->flags & FR_KEY_WIRE_FELL) != 0;
}

/* Finds the distinct keys of a place, in the order of ranks, as gather_keys (look.c) does in that
 * of occurrences. */
static void merge_place(void *context, size_t index, size_t worker)
{
    const struct merge *merge = context;
    struct fr_plan *plan = merge->plan;
    uint32_t n = n_places(merge->domains), t = (uint32_t)(index / n), p = (uint32_t)(index % n);
    struct plan_table *table = &plan->tables[t];
    struct plan_place *place = &table->places[first_place(merge->domains) + p];
    uint32_t *heads = plan->workers[worker].heads, *merged = table->record_keys + place->begin;
    uint32_t most = place[1].begin - place->begin, size = 16, bits = 4;
    place->n_unique = 0;
    place->fetched.n = 0;
    for (; size < 2 * most; size *= 2)
        bits++;
    memset(heads, UINT8_MAX, size * sizeof(*heads));
    for (uint32_t r = 0; r < merge->n_ranks; r++) {
        const struct sent *sent = &merge->sent[r];
        size_t first = merge->first[r * n * (size_t)plan->store->n_configured + index];
        for (uint32_t count = count_at(sent, index), i = 0; i < count; i++) {
            struct fr_key_wire wire;
            memcpy(&wire, sent->keys + first + i, sizeof(wire));
            uint64_t hash = fr_order_hash(&plan->store->order, wire.key);
            uint32_t at = (uint32_t)((hash << FR_SHARD_BITS) >> (64 - bits));
            struct plan_key *keys = table->keys + place->begin;
            while (heads[at] != UINT32_MAX && keys[heads[at]].hash != hash)
                at = (at + 1) & (size - 1);
            if (heads[at] == UINT32_MAX) {
                heads[at] = place->n_unique;
                keys[place->n_unique++] = (struct plan_key){.hash = hash};
            }
            add_key(&keys[heads[at]], &wire);
            *merged++ = heads[at];
        }
    }
}

/* Lays out the places of all tables: only those of the domains have keys. */
static void lay_out(struct fr_plan *plan, const struct merge *merge)
{
    uint32_t n = n_places(merge->domains), first = first_place(merge->domains), most = 0;
    plan->n_units = 0;
    for (uint32_t t = 0; t < plan->store->n_configured; t++) {
        struct plan_table *table = &plan->tables[t];
        uint32_t begin = 0;
        for (uint32_t p = 0; p <= plan->n_places; p++) {
            uint32_t count = 0;
            for (uint32_t r = 0; p >= first && p < first + n && r < merge->n_ranks; r++)
                count += count_at(&merge->sent[r], (size_t)t * n + p - first);
            table->places[p].begin = begin;
            if (p < plan->n_places)
                table->places[p].n_unique = 0;
            most = count > most ? count : most;
            begin += count;
        }
        table->n_occurrences = begin;
        fr_plan_reserve_table(plan, t);
    }
    fr_plan_reserve_heads(plan, most);
}

static void find_first_keys(const struct merge *merge, size_t *first)
{
    size_t cells = n_places(merge->domains) * (size_t)merge->plan->store->n_configured;
    for (uint32_t r = 0; r < merge->n_ranks; r++)
        for (size_t i = 0; i < cells; i++)
            first[r * cells + i] = i > 0 ? first[r * cells + i - 1] + count_at(&merge->sent[r], i - 1) : 0;
}

/* Makes room for what of a list has a size that does not depend on keys. */
static struct fr_home_list *reserve_home(struct fr_store *store, uint32_t n_ranks)
{
    if (!store->home)
        store->home = fr_alloc(1, sizeof(*store->home));
    struct fr_home_list *home = store->home;
    size_t tables = store->n_configured, places = (size_t)store->n_domains * FR_SHARDS;
    if (home->capacity_ranks < n_ranks) {
        home->capacity_ranks = n_ranks;
        home->first = fr_realloc(home->first, n_ranks * tables * places, sizeof(*home->first));
        home->counts = fr_realloc(home->counts, n_ranks * tables, sizeof(*home->counts));
        home->merged = fr_realloc(home->merged, n_ranks * tables, sizeof(*home->merged));
        home->rows.tables = fr_realloc(home->rows.tables, tables, sizeof(*home->rows.tables));
    }
    home->rows.n_ranks = n_ranks;
    home->rows.n_tables = store->n_configured;
    return home;
}

void fr_store_free_home(struct fr_store *store)
{
    struct fr_home_list *home = store->home;
    if (!home)
        return;
    void *const arrays[] = {home->rows.tables, home->first, home->row_memory, home->sent_memory, home->counts,
                            home->merged,      home};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
}

enum fr_status fr_store_resolve(struct fr_store *store, struct fr_domains domains, const struct fr_bytes *in,
                                uint32_t n_ranks, int64_t watermark_ms, struct fr_err *err)
{
    struct sent *sent = fr_realloc(store->sent, n_ranks, sizeof(*sent));
    store->sent = sent;
    size_t total = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        enum fr_status status = read_message(store, domains, r, in[r], &sent[r], err);
        if (status != FR_OK)
            return status;
        total += in[r].size / sizeof(struct fr_key_wire);
    }
    if (total > OCC_ENTRY * (size_t)8)
        return fr_err_set(err, FR_E_LIMIT, "%zu keys in one batch; lower ingest.batch_size", total);
    struct fr_plan *plan = store->plan;
    struct merge merge = {.plan = plan, .domains = domains, .sent = sent, .n_ranks = n_ranks};
    store->looked = NULL;
    store->resolved = domains;
    plan->watermark_ms = watermark_ms;
    lay_out(plan, &merge);
    struct fr_home_list *home = reserve_home(store, n_ranks);
    find_first_keys(&merge, home->first);
    merge.first = home->first;
    fr_pool_run(store->pool, (size_t)store->n_configured * n_places(domains), merge_place, &merge);
    fr_plan_resolve(plan);
    store->undoable = 1;
    return FR_OK;
}

/* Lists a place: its rows, and the merged keys in the order in which each rank sent them. */
static void list_place(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct fr_store *store = context;
    uint32_t n = n_places(store->resolved), t = (uint32_t)(index / n);
    uint32_t p = first_place(store->resolved) + (uint32_t)(index % n);
    const struct plan_table *table = &store->plan->tables[t];
    const struct plan_place *place = &table->places[p];
    const struct fr_entries *entries = &fr_plan_shard(store->plan, t, p)->entries;
    const struct fr_home_table *out = &store->home->rows.tables[t];
    const struct plan_key *keys = table->keys + place->begin;
    for (uint32_t u = 0; u < place->n_unique; u++)
        out->rows[place->unique_begin + u] = keys[u].number & FR_LIGHT ? NULL : fr_entries_row(entries, keys[u].number);
    const uint32_t *merged = table->record_keys + place->begin;
    for (uint32_t r = 0; r < store->home->rows.n_ranks; r++) {
        const size_t *first = store->home->first + r * n * (size_t)store->n_configured;
        uint32_t *to = out->merged[r] + (first[index] - first[(size_t)t * n]);
        for (uint32_t count = count_at(&store->sent[r], index), i = 0; i < count; i++)
            to[i] = place->unique_begin + *merged++;
    }
}

/* Numbers the merged keys of a table; returns how many there are. */
static uint32_t number_keys(const struct fr_store *store, uint32_t t)
{
    struct plan_place *places = store->plan->tables[t].places;
    uint32_t first = first_place(store->resolved), n = 0;
    for (uint32_t p = first; p < first + n_places(store->resolved); p++) {
        places[p].unique_begin = n;
        n += places[p].n_unique;
    }
    return n;
}

const struct fr_home_rows *fr_store_home_rows(struct fr_store *store)
{
    struct fr_home_list *home = store->home;
    uint32_t n = n_places(store->resolved), n_ranks = home->rows.n_ranks;
    size_t rows = 0, sent = 0, cells = (size_t)store->n_configured * n;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        struct fr_home_table *table = &home->rows.tables[t];
        table->n_keys = number_keys(store, t);
        table->n_sent = home->counts + (size_t)t * n_ranks;
        table->merged = home->merged + (size_t)t * n_ranks;
        rows += table->n_keys;
        for (uint32_t r = 0; r < n_ranks; r++) {
            const size_t *first = home->first + r * cells;
            size_t last = (size_t)(t + 1) * n - 1;
            table->n_sent[r] = (uint32_t)(first[last] + count_at(&store->sent[r], last) - first[(size_t)t * n]);
            sent += table->n_sent[r];
        }
    }
    if (rows > home->capacity_rows)
        home->row_memory = fr_realloc(home->row_memory, home->capacity_rows = rows, sizeof(*home->row_memory));
    if (sent > home->capacity_sent)
        home->sent_memory = fr_realloc(home->sent_memory, home->capacity_sent = sent, sizeof(*home->sent_memory));
    rows = sent = 0;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        struct fr_home_table *table = &home->rows.tables[t];
        table->rows = home->row_memory + rows;
        rows += table->n_keys;
        for (uint32_t r = 0; r < n_ranks; r++) {
            table->merged[r] = home->sent_memory + sent;
            sent += table->n_sent[r];
        }
    }
    fr_pool_run(store->pool, cells, list_place, store);
    return &home->rows;
}

void fr_store_put_rows(const struct fr_store *store, uint32_t source, struct fr_buffer *out)
{
    const struct fr_plan *plan = store->plan;
    const struct sent *sent = store->sent;
    uint32_t n = n_places(store->resolved), first = first_place(store->resolved), n_keys = 0;
    for (uint32_t i = 0; i < store->n_configured * n; i++)
        n_keys += count_at(&sent[source], i);
    fr_put_u32(out, n_keys);
    fr_put_u32(out, 0);
    size_t flags = out->size, k = 0, padded = (n_keys + 3) / 4 * (size_t)4;
    memset(fr_buffer_reserve(out, padded), 0, padded);
    out->size += padded;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        size_t values = store->tables[t].spec.layout.value_floats * sizeof(float);
        for (uint32_t p = 0; p < n; p++) {
            const struct plan_place *place = &plan->tables[t].places[first + p];
            const struct fr_entries *entries = &fr_plan_shard(plan, t, first + p)->entries;
            const uint32_t *merged = plan->tables[t].record_keys + place->begin;
            for (uint32_t r = 0; r < source; r++)
                merged += count_at(&sent[r], (size_t)t * n + p);
            for (uint32_t count = count_at(&sent[source], (size_t)t * n + p), i = 0; i < count; i++, k++) {
                const struct plan_key *key = &plan->tables[t].keys[place->begin + merged[i]];
                if (key->number & FR_LIGHT) /* no row; FR_NO_ENTRY has that bit, too */
                    continue;
                out->data[flags + k] = ROW_THERE | (key->made ? ROW_MADE : 0);
                if (!key->made)
                    fr_buffer_append(out, fr_entries_row(entries, key->number), values);
            }
        }
    }
}
