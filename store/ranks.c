/* See store/ranks.h.
 *
 * Messages: of keys, u32 tables, u32 places of each, u32 wide keys, u32 0, then for each table u32
 * keys of each place, then the keys, table by table, place by place (struct fr_key_wire), then the
 * numbers of the wide ones (struct fr_key_numbers). Of rows: u32 keys, u32 0,
 * one byte for each key (ROW_*), padded to a multiple of 4, then the values of the keys that have
 * some and are not late. Of late rows: their values, in the order of the keys.
 *
 * Both sides number places as all plans do; a message has those of the home's domains only. */
#include "store/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "plan.h"

enum { ROW_THERE = 1, ROW_MADE = 2, ROW_LATE = 4 };
enum { CLICK_PARTS = 1 << 20, WIRE_NUMBER_MAX = (1 << (32 - FR_KEY_WIRE_FLAG_BITS)) - 1 };

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

/* Returns what is sent of a key; its numbers are `wide`, number n_wide of such, if they are too
 * large. */
static struct fr_key_wire wire_of(uint64_t key, const struct plan_key *of, uint32_t n_wide, struct fr_key_numbers *wide)
{
    uint32_t flags = (of->trained ? FR_KEY_WIRE_TRAINED : 0) | (of->fell ? FR_KEY_WIRE_FELL : 0);
    *wide = (struct fr_key_numbers){of->n_counted, of->n_touched, (uint64_t)(of->clicks * CLICK_PARTS)};
    if (wide->counted > UINT16_MAX || wide->touched > UINT16_MAX || wide->clicks > WIRE_NUMBER_MAX)
        return (struct fr_key_wire){.key = key, .numbers = n_wide << FR_KEY_WIRE_FLAG_BITS | FR_KEY_WIRE_WIDE | flags};
    return (struct fr_key_wire){.key = key,
                                .counted = (uint16_t)wide->counted,
                                .touched = (uint16_t)wide->touched,
                                .numbers = (uint32_t)wide->clicks << FR_KEY_WIRE_FLAG_BITS | flags};
}

/* Returns how many keys of a plan the domains have. */
static size_t count_keys(const struct fr_plan *plan, struct fr_domains domains)
{
    size_t n = 0;
    for (uint32_t t = 0; t < plan->store->n_configured; t++)
        for (uint32_t p = first_place(domains); p < first_place(domains) + n_places(domains); p++)
            n += plan->tables[t].places[p].n_unique;
    return n;
}

void fr_store_put_keys(const struct fr_store *store, struct fr_domains domains, struct fr_buffer *out)
{
    const struct fr_plan *plan = store->gathered;
    uint32_t first = first_place(domains), n = n_places(domains), n_wide = 0;
    size_t wide_at = out->size + 2 * sizeof(uint32_t);
    struct fr_buffer wide = {0};
    fr_put_u32(out, store->n_configured);
    fr_put_u32(out, n);
    fr_put_u64(out, 0);
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = first; p < first + n; p++)
            fr_put_u32(out, plan->tables[t].places[p].n_unique);
    size_t bytes = count_keys(plan, domains) * sizeof(struct fr_key_wire);
    uint8_t *to = fr_buffer_reserve(out, bytes);
    out->size += bytes;
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = first; p < first + n; p++) {
            const struct plan_place *place = &plan->tables[t].places[p];
            const struct plan_key *keys = plan->tables[t].keys + place->begin;
            for (uint32_t u = 0; u < place->n_unique; u++, to += sizeof(struct fr_key_wire)) {
                struct fr_key_numbers numbers;
                struct fr_key_wire wire =
                    wire_of(fr_order_key(&store->order, keys[u].hash), &keys[u], n_wide, &numbers);
                memcpy(to, &wire, sizeof(wire));
                if (!(wire.numbers & FR_KEY_WIRE_WIDE))
                    continue;
                fr_buffer_append(&wide, &numbers, sizeof(numbers));
                n_wide++;
            }
        }
    memcpy(out->data + wide_at, &n_wide, sizeof(n_wide));
    fr_buffer_append(out, wide.data, wide.size);
    fr_buffer_release(&wide);
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

/* Sets the row of a key from its flags. false: no home sends such flags, or values are missing. */
static bool take_row(uint8_t flags, size_t value_bytes, struct fr_reader *early, struct fr_reader *late, float **row,
                     float **served)
{
    static float nothing[1]; /* not written: its address alone says that there is a row */
    const uint8_t *values = NULL;
    switch (flags) {
    case 0:
    case ROW_THERE | ROW_MADE:
        break;
    case ROW_THERE:
        values = fr_take(early, value_bytes);
        break;
    case ROW_THERE | ROW_LATE:
        values = fr_take(late, value_bytes);
        break;
    default:
        return false;
    }
    *served = (float *)(uintptr_t)values;
    *row = values ? *served : flags ? nothing : NULL;
    return values || !flags || flags & ROW_MADE;
}

enum fr_status fr_store_take_rows(const struct fr_store *store, struct fr_domains domains, struct fr_bytes in,
                                  struct fr_bytes late_in, struct fr_rows *rows, struct fr_err *err)
{
    const struct fr_plan *plan = store->gathered;
    uint32_t first = first_place(domains), n = n_places(domains);
    size_t n_keys = count_keys(plan, domains);
    struct fr_reader reader = {.at = in.data, .end = in.data + in.size};
    struct fr_reader late = {.at = late_in.data, .end = late_in.size ? late_in.data + late_in.size : late_in.data};
    if ((uintptr_t)in.data % sizeof(float) != 0 || (uintptr_t)late_in.data % sizeof(float) != 0)
        return bad_rows(err, "it is not aligned");
    if (fr_take_u32(&reader) != n_keys || fr_take_u32(&reader) != 0 || reader.failed)
        return bad_rows(err, "another number of keys than were asked for");
    const uint8_t *flags = fr_take(&reader, (n_keys + 3) / 4 * 4);
    if (!flags)
        return bad_rows(err, "it ends within the flags");
    size_t k = 0;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        struct fr_table_rows *out = &rows->tables[t];
        size_t bytes = (size_t)store->tables[t].spec.layout.value_floats * sizeof(float);
        for (uint32_t p = first; p < first + n; p++) {
            const struct plan_place *place = &plan->tables[t].places[p];
            for (uint32_t u = place->unique_begin; u < place->unique_begin + place->n_unique; u++, k++)
                if (!take_row(flags[k], bytes, &reader, &late, &out->rows[u], &out->served[u]))
                    return bad_rows(err, "a key has unknown flags, or no values");
        }
    }
    return reader.at == reader.end && late.at == late.end ? FR_OK : bad_rows(err, "bytes are left");
}

/* ---- the home ---- */

/* A message of keys whose counts were checked. */
struct sent {
    const uint8_t *counts; /* [tables, places] u32 */
    const uint8_t *keys;   /* struct fr_key_wire, perhaps not aligned */
    const uint8_t *wide;   /* [n_wide] struct fr_key_numbers, perhaps not aligned */
    uint32_t n_wide;
    _Atomic bool bad; /* set while keys are merged: one of them is impossible */
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

/* Finds the parts of a message, whose sizes it checks, and not yet the keys. */
static enum fr_status read_message(const struct fr_store *store, struct fr_domains domains, uint32_t rank,
                                   struct fr_bytes in, struct sent *out, struct fr_err *err)
{
    struct fr_reader reader = {.at = in.data, .end = in.data + in.size};
    if (fr_take_u32(&reader) != store->n_configured || fr_take_u32(&reader) != n_places(domains))
        return bad_keys(err, rank, "other tables or domains");
    out->n_wide = fr_take_u32(&reader);
    if (fr_take_u32(&reader) != 0 || reader.failed)
        return bad_keys(err, rank, "it ends within its head, or has another");
    size_t cells = (size_t)store->n_configured * n_places(domains), total = 0;
    out->counts = fr_take(&reader, cells * sizeof(uint32_t));
    if (!out->counts)
        return bad_keys(err, rank, "it ends within the counts");
    for (size_t i = 0; i < cells; i++)
        total += count_at(out, i);
    out->keys = fr_take(&reader, total * sizeof(struct fr_key_wire));
    out->wide = fr_take(&reader, out->n_wide * sizeof(struct fr_key_numbers));
    if (!out->keys || !out->wide || reader.at != reader.end)
        return bad_keys(err, rank, "its size is not that of its keys");
    out->bad = false;
    return FR_OK;
}

/* The keys that all ranks sent, being merged. */
struct merge {
    struct fr_plan *plan;
    struct fr_domains domains;
    struct sent *sent; /* [ranks] */
    uint32_t n_ranks;
    const size_t *first; /* [ranks, tables, places] the rank's first key of a place */
};

/* Values of a row that leave late. */
struct late_row {
    const float *values;
    size_t bytes;
};

/* The merged keys of a plan as a list, and the memory of its arrays. */
struct fr_home_list {
    struct fr_home_rows rows;
    struct fr_buffer late[FR_DOMAINS_MAX]; /* [ranks] struct late_row, in the order of messages */
    size_t *first;                         /* as in struct merge */
    size_t capacity_rows, capacity_sent, capacity_ranks;
    float **row_memory;    /* [rows of all tables] */
    uint32_t *sent_memory; /* [keys that all ranks sent, of all tables] */
    uint32_t *counts;      /* [tables, ranks] */
    uint32_t **merged;     /* [tables, ranks] */
};

/* Adds what a rank sent of a key. */
static void add_key(struct plan_key *key, const struct fr_key_wire *wire, struct sent *sent)
{
    struct fr_key_numbers numbers = {wire->counted, wire->touched, wire->numbers >> FR_KEY_WIRE_FLAG_BITS};
    if (wire->numbers & FR_KEY_WIRE_WIDE) {
        uint32_t at = wire->numbers >> FR_KEY_WIRE_FLAG_BITS;
        if (at < sent->n_wide)
            memcpy(&numbers, sent->wide + at * sizeof(numbers), sizeof(numbers));
        else
            sent->bad = true;
    }
    key->n_counted += numbers.counted;
    key->n_touched += numbers.touched;
    key->clicks += (double)numbers.clicks / CLICK_PARTS;
    key->trained |= wire->numbers & FR_KEY_WIRE_TRAINED;
    key->fell |= (wire->numbers & FR_KEY_WIRE_FELL) != 0;
}

/* Empties a find-or-add table for at most n keys; returns the bits of its size. */
static uint32_t clear_heads(uint32_t *heads, uint32_t n)
{
    uint32_t bits = 4;
    while ((1u << bits) < 2 * n)
        bits++;
    memset(heads, UINT8_MAX, sizeof(*heads) << bits);
    return bits;
}

/* Returns where the find-or-add table has the key, or would have it. */
static uint32_t *find_head(uint32_t *heads, uint32_t bits, const struct plan_key *keys, uint64_t hash)
{
    uint32_t mask = (1u << bits) - 1, at = (uint32_t)((hash << FR_SHARD_BITS) >> (64 - bits));
    while (heads[at] != UINT32_MAX && keys[heads[at]].hash != hash)
        at = (at + 1) & mask;
    return &heads[at];
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
    struct plan_key *keys = table->keys + place->begin;
    uint32_t bits = clear_heads(heads, place[1].begin - place->begin);
    place->n_unique = 0;
    place->fetched.n = 0;
    for (uint32_t r = 0; r < merge->n_ranks; r++) {
        struct sent *sent = &merge->sent[r];
        size_t first = merge->first[r * n * (size_t)plan->store->n_configured + index];
        for (uint32_t count = count_at(sent, index), i = 0; i < count; i++) {
            struct fr_key_wire wire;
            memcpy(&wire, sent->keys + (first + i) * sizeof(wire), sizeof(wire));
            uint64_t hash = fr_order_hash(&plan->store->order, wire.key);
            uint32_t domain = fr_key_domain(wire.key, plan->store->n_domains);
            if (domain * FR_SHARDS + fr_shard_of(hash) != first_place(merge->domains) + p)
                sent->bad = true;
            uint32_t *head = find_head(heads, bits, keys, hash);
            if (*head == UINT32_MAX) {
                *head = place->n_unique;
                keys[place->n_unique++] = (struct plan_key){.hash = hash};
            }
            add_key(&keys[*head], &wire, sent);
            *merged++ = *head;
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
static struct fr_home_list *reserve_home(struct fr_plan *plan, uint32_t n_ranks)
{
    if (!plan->home)
        plan->home = fr_alloc(1, sizeof(*plan->home));
    struct fr_home_list *home = plan->home;
    size_t tables = plan->store->n_configured, places = plan->n_places;
    if (home->capacity_ranks < n_ranks) {
        home->capacity_ranks = n_ranks;
        home->first = fr_realloc(home->first, n_ranks * tables * places, sizeof(*home->first));
        home->counts = fr_realloc(home->counts, n_ranks * tables, sizeof(*home->counts));
        home->merged = fr_realloc(home->merged, n_ranks * tables, sizeof(*home->merged));
        home->rows.tables = fr_realloc(home->rows.tables, tables, sizeof(*home->rows.tables));
    }
    home->rows.n_ranks = n_ranks;
    home->rows.n_tables = plan->store->n_configured;
    return home;
}

void fr_plan_free_home(struct fr_home_list *home)
{
    if (!home)
        return;
    for (uint32_t r = 0; r < FR_DOMAINS_MAX; r++)
        fr_buffer_release(&home->late[r]);
    void *const arrays[] = {home->rows.tables, home->first, home->row_memory, home->sent_memory, home->counts,
                            home->merged,      home};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
}

/* Lists the rows of a place. */
static void list_rows(const struct fr_plan *plan, uint32_t t, uint32_t p)
{
    struct plan_place *place = &plan->tables[t].places[p];
    const struct plan_key *keys = plan->tables[t].keys + place->begin;
    const struct fr_entries *entries = &fr_plan_shard(plan, t, p)->entries;
    float **rows = plan->home->rows.tables[t].rows + place->unique_begin;
    place->moved = fr_entries_moved(entries);
    for (uint32_t u = 0; u < place->n_unique; u++)
        rows[u] = keys[u].number & FR_LIGHT ? NULL : fr_entries_row(entries, keys[u].number);
}

/* Reads the messages of all ranks and merges their keys into a plan, whose scratch is changed after
 * an error, too. */
static enum fr_status merge_messages(struct fr_store *store, struct fr_plan *plan, struct fr_domains domains,
                                     const struct fr_bytes *in, uint32_t n_ranks, struct fr_err *err)
{
    size_t total = 0;
    store->looked = NULL;
    store->sent = fr_realloc(store->sent, n_ranks, sizeof(*store->sent));
    for (uint32_t r = 0; r < n_ranks; r++) {
        enum fr_status status = read_message(store, domains, r, in[r], &store->sent[r], err);
        if (status != FR_OK)
            return status;
        total += in[r].size / sizeof(struct fr_key_wire);
    }
    if (total > OCC_ENTRY * (size_t)8)
        return fr_err_set(err, FR_E_LIMIT, "%zu keys in one batch; lower ingest.batch_size", total);
    struct merge merge = {.plan = plan, .domains = domains, .sent = store->sent, .n_ranks = n_ranks};
    lay_out(plan, &merge);
    struct fr_home_list *home = reserve_home(plan, n_ranks);
    find_first_keys(&merge, home->first);
    merge.first = home->first;
    fr_pool_run(store->pool, (size_t)store->n_configured * n_places(domains), merge_place, &merge);
    for (uint32_t r = 0; r < n_ranks; r++)
        if (store->sent[r].bad)
            return bad_keys(err, r, "a key lies in another place, or its numbers are missing");
    return FR_OK;
}

/* Plans the keys that were merged into store->plan. */
static void resolve(struct fr_store *store, struct fr_domains domains, int64_t watermark_ms, bool follows)
{
    store->resolved = domains;
    store->plan->watermark_ms = watermark_ms;
    store->plan->follows = follows;
    fr_plan_resolve(store->plan);
}

enum fr_status fr_store_resolve(struct fr_store *store, struct fr_domains domains, const struct fr_bytes *in,
                                uint32_t n_ranks, int64_t watermark_ms, struct fr_err *err)
{
    store->undoable = 0;
    enum fr_status status = merge_messages(store, store->plan, domains, in, n_ranks, err);
    if (status != FR_OK)
        return status;
    resolve(store, domains, watermark_ms, false);
    store->undoable = 1;
    return FR_OK;
}

/* Lists the rows of the plan before again where rows made since have moved them. */
static void follow_moves(const struct fr_store *store)
{
    uint32_t first = first_place(store->resolved), end = first + n_places(store->resolved);
    for (uint32_t t = 0; t < store->n_configured; t++)
        for (uint32_t p = first; p < end; p++)
            if (store->ahead->tables[t].places[p].moved !=
                fr_entries_moved(&fr_plan_shard(store->ahead, t, p)->entries))
                list_rows(store->ahead, t, p);
}

enum fr_status fr_store_resolve_next(struct fr_store *store, struct fr_domains domains, const struct fr_bytes *in,
                                     uint32_t n_ranks, int64_t watermark_ms, struct fr_err *err)
{
    FR_CHECK(store->undoable > 0 && store->plan->home);
    store->undoable = 1; /* the scratch of the plan before the last is used */
    enum fr_status status = merge_messages(store, store->ahead, domains, in, n_ranks, err);
    if (status != FR_OK)
        return status;
    fr_store_swap_plans(store);
    resolve(store, domains, watermark_ms, true);
    follow_moves(store);
    store->undoable = 2;
    return FR_OK;
}

/* Lists a place: the merged keys in the order in which each rank sent them. */
static void list_place(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct fr_store *store = context;
    const struct fr_home_list *home = store->plan->home;
    uint32_t n = n_places(store->resolved), t = (uint32_t)(index / n);
    uint32_t p = first_place(store->resolved) + (uint32_t)(index % n);
    const struct plan_place *place = &store->plan->tables[t].places[p];
    const uint32_t *merged = store->plan->tables[t].record_keys + place->begin;
    list_rows(store->plan, t, p);
    for (uint32_t r = 0; r < home->rows.n_ranks; r++) {
        const size_t *first = home->first + r * n * (size_t)store->n_configured;
        uint32_t *to = home->rows.tables[t].merged[r] + (first[index] - first[(size_t)t * n]);
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
    struct fr_home_list *home = store->plan->home;
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

void fr_store_own_rows(const struct fr_store *store, uint32_t rank, struct fr_rows *rows)
{
    const struct fr_plan *from = store->gathered, *plan = store->plan;
    uint32_t first = first_place(store->resolved), n = n_places(store->resolved);
    for (uint32_t t = 0; t < store->n_configured; t++) {
        struct fr_table_rows *out = &rows->tables[t];
        const struct fr_home_table *home = &plan->home->rows.tables[t];
        const uint32_t *merged = home->merged[rank];
        for (uint32_t p = first; p < first + n; p++) {
            const struct plan_place *sent = &from->tables[t].places[p], *place = &plan->tables[t].places[p];
            const struct plan_key *keys = plan->tables[t].keys + place->begin;
            for (uint32_t u = sent->unique_begin; u < sent->unique_begin + sent->n_unique; u++, merged++) {
                out->rows[u] = home->rows[*merged];
                out->served[u] = keys[*merged - place->unique_begin].made ? NULL : out->rows[u];
            }
        }
    }
}

void fr_store_put_rows(struct fr_store *store, uint32_t source, struct fr_buffer *out)
{
    const struct fr_plan *plan = store->plan;
    struct fr_buffer *late = &plan->home->late[source];
    const struct sent *sent = store->sent;
    uint32_t n = n_places(store->resolved), first = first_place(store->resolved), n_keys = 0;
    for (uint32_t i = 0; i < store->n_configured * n; i++)
        n_keys += count_at(&sent[source], i);
    fr_put_u32(out, n_keys);
    fr_put_u32(out, 0);
    size_t flags = out->size, k = 0, padded = (n_keys + 3) / 4 * (size_t)4;
    memset(fr_buffer_reserve(out, padded), 0, padded);
    out->size += padded;
    fr_buffer_clear(late);
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
                const float *row = fr_entries_row(entries, key->number);
                out->data[flags + k] = ROW_THERE | (key->made ? ROW_MADE : key->late ? ROW_LATE : 0);
                if (key->late)
                    fr_buffer_append(late, &(struct late_row){row, values}, sizeof(struct late_row));
                else if (!key->made)
                    fr_buffer_append(out, row, values);
            }
        }
    }
}

void fr_store_put_late_rows(const struct fr_store *store, uint32_t source, struct fr_buffer *out)
{
    const struct fr_buffer *late = &store->plan->home->late[source];
    for (size_t at = 0; at < late->size; at += sizeof(struct late_row)) {
        struct late_row row;
        memcpy(&row, late->data + at, sizeof(row));
        fr_buffer_append(out, row.values, row.bytes);
    }
}
