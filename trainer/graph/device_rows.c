/* The rows that a device keeps, by key. They are the rows in use, and a row is newer than the
 * store's after a step has changed it. fr_graph_fetch copies the newer rows back before the
 * store's rows are read.
 *
 * A row that the device lacks is copied from the store before its batch, with the batch's arena.
 * A row that the batch creates is always transferred, because a key that was removed and returns
 * has a new row. Only the key and the address of such a row are sent. The device computes the
 * first values, with the bits of the store's row (fr_graph_device.first_places; if that is NULL,
 * the values are sent too). When there is no more room (row_bytes_max, or the device's memory),
 * rows that no recent batch used are evicted in the order of the hand; those that are newer are
 * copied back first, and the host waits for that. While a step computes, rows of the next batch
 * are sent, as far as no changed row must be evicted for them; they are scattered after the
 * step. The place of a row therefore changes no number.
 *
 * The keys of a batch are looked up once, by the pool (device_index.c); during the previous
 * step, if the batch was sent early. No row is added or evicted between the look-up and the
 * batch's turn, so at that turn only the keys remain whose rows found no room or were created.
 *
 * The store may drop or move a row meanwhile. A row is therefore found again by its key, and a
 * row that the store no longer has is not copied back. What left the store's memory was clean,
 * so the device's copy, if it is still there when the key returns, has the same bits.
 *
 * Owner thread: the graph's. The store is reached through row_of only. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 4 << 20,
    /* bytes of rows copied back at once, at least one row; more are copied in several rounds */
    STAGING_BYTES = 8 << 20,
    /* limit of the bytes of rows sent while a step runs; other rows wait for their batch */
    AHEAD_BYTES = 64 << 20,
};

/* ---- memory ---- */

static bool add_chunk(struct graph_device *device, struct row_cache *cache)
{
    size_t bytes = ((size_t)cache->floats * sizeof(float)) << cache->log2_chunk;
    if (device->row_bytes_max - device->row_bytes < bytes ||
        cache->n_chunks >= (uint32_t)FR_DEVICE_ROWS_MAX >> cache->log2_chunk)
        return false;
    float *chunk = device->api->alloc(device->queue, bytes);
    if (!chunk)
        return false;
    if (cache->n_chunks == cache->capacity_chunks) {
        cache->capacity_chunks = cache->capacity_chunks ? 2 * cache->capacity_chunks : 4;
        cache->chunks = fr_realloc(cache->chunks, cache->capacity_chunks, sizeof(*cache->chunks));
    }
    cache->chunks[cache->n_chunks++] = chunk;
    cache->capacity = cache->n_chunks << cache->log2_chunk;
    cache->keys = fr_realloc(cache->keys, cache->capacity, sizeof(*cache->keys));
    cache->dirty = fr_realloc(cache->dirty, cache->capacity, sizeof(*cache->dirty));
    device->row_bytes += bytes;
    return true;
}

static bool reserve_staging(struct graph_device *device, size_t row_bytes)
{
    size_t bytes = row_bytes > STAGING_BYTES ? row_bytes : STAGING_BYTES;
    if (bytes <= device->staging_bytes)
        return true;
    device->api->release_pinned(device->queue, device->staging);
    device->api->release(device->queue, device->at_staging);
    device->staging = device->api->alloc_pinned(device->queue, bytes);
    device->at_staging = device->api->alloc(device->queue, bytes);
    device->staging_bytes = device->staging && device->at_staging ? bytes : 0;
    if (device->staging_bytes == 0)
        fr_graph_device_fail(device, FR_E_NO_MEMORY, "there is no memory to bring rows from the device");
    return device->staging_bytes > 0;
}

/* ---- transfer of rows ---- */

static void note_move(struct graph_device *device, struct row_move move)
{
    if (device->n_moves == device->capacity_moves) {
        device->capacity_moves = device->capacity_moves ? 2 * device->capacity_moves : 1024;
        device->moves = fr_realloc(device->moves, device->capacity_moves, sizeof(*device->moves));
    }
    device->moves[device->n_moves++] = move;
}

/* Copies back as many rows as the staging memory holds. */
static enum fr_status move_some(struct graph_device *device, size_t first, size_t n, uint32_t floats)
{
    size_t row_bytes = floats * sizeof(float);
    void *host;
    struct fr_device_rows call = {.n = (uint32_t)n, .staging = device->at_staging, .floats = floats};
    call.rows = fr_graph_device_room(device, n * sizeof(float *), &host);
    if (!host)
        return device->status;
    for (size_t i = 0; i < n; i++)
        ((float **)host)[i] = device->moves[first + i].device;
    fr_graph_device_send(device);
    device->ops->gather_rows(device->queue, &call);
    device->api->download(device->queue, device->staging, device->at_staging, n * row_bytes);
    enum fr_status status = fr_graph_device_wait(device);
    for (size_t i = 0; i < n && status == FR_OK; i++)
        memcpy(device->moves[first + i].host, device->staging + i * row_bytes, row_bytes);
    return status;
}

static enum fr_status move_back(struct graph_device *device, uint32_t floats)
{
    size_t row_bytes = floats * sizeof(float), n = device->n_moves;
    device->n_moves = 0;
    if (n == 0 || !reserve_staging(device, row_bytes))
        return device->status;
    size_t turn = device->staging_bytes / row_bytes;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < n && status == FR_OK; i += turn)
        status = move_some(device, i, n - i < turn ? n - i : turn, floats);
    return status;
}

/* Room in the arena for rows that are sent; their number follows. */
struct arriving {
    /* addresses of rows that are sent with values, and of rows that begin with first values */
    float **sent, **made;
    uint64_t *keys;  /* keys of the rows that begin with first values */
    uint8_t *values; /* values of the other rows */
};
/* How many rows are sent with values, and how many begin with first values. */
struct arriving_counts {
    size_t sent, made;
};

static bool begin_arriving(struct graph_device *device, uint32_t t, struct arriving_counts n, struct arriving *host)
{
    struct row_arrivals *calls = &device->arriving[t];
    const struct row_cache *cache = &device->tables[t];
    void *sent, *made, *keys, *values;
    *calls = (struct row_arrivals){.sent = {.floats = cache->floats},
                                   .made = {.parts = cache->parts, .n_parts = cache->n_parts}};
    if (cache->parts) {
        calls->made.seed = device->first_places[t].seed;
        calls->made.stream = device->first_places[t].stream;
    }
    calls->made.rows = fr_graph_device_room(device, n.made * sizeof(float *), &made);
    calls->made.keys = fr_graph_device_room(device, n.made * sizeof(uint64_t), &keys);
    calls->sent.rows = fr_graph_device_room(device, n.sent * sizeof(float *), &sent);
    calls->sent.staging = fr_graph_device_room(device, n.sent * cache->floats * sizeof(float), &values);
    *host = (struct arriving){sent, made, keys, values};
    return sent && made && keys && values;
}

static void add_arriving(struct graph_device *device, uint32_t t, const struct arriving *host, struct row_move row)
{
    struct row_arrivals *calls = &device->arriving[t];
    size_t row_bytes = calls->sent.floats * sizeof(float);
    if (!row.host) {
        host->made[calls->made.n] = row.device;
        host->keys[calls->made.n++] = row.key;
        return;
    }
    host->sent[calls->sent.n] = row.device;
    fr_graph_device_copy_later(device, host->values + calls->sent.n++ * row_bytes, row.host, row_bytes);
}

/* Starts the transfer of the rows of all tables. Work that was started before does not read
 * these rows. */
static void start_arriving(struct graph_device *device, uint32_t n_tables)
{
    bool any = false;
    for (uint32_t t = 0; t < n_tables; t++)
        any |= device->arriving[t].sent.n > 0 || device->arriving[t].made.n > 0;
    if (any)
        fr_graph_device_send(device);
    for (uint32_t t = 0; t < n_tables; t++) {
        if (device->arriving[t].sent.n > 0)
            device->ops->scatter_rows(device->queue, &device->arriving[t].sent);
        if (device->arriving[t].made.n > 0)
            device->ops->init_rows(device->queue, &device->arriving[t].made);
    }
    memset(device->arriving, 0, n_tables * sizeof(*device->arriving));
}

/* ---- room for a row ---- */

/* Returns the next row that is used neither by this batch nor by the next one, if that is being
 * sent; FR_NO_ROW: they use all rows. */
static uint32_t next_victim(const struct graph_device *device, struct row_cache *cache)
{
    for (uint32_t tries = 0; tries < cache->n; tries++) {
        uint32_t at = cache->hand;
        cache->hand = at + 1 < cache->n ? at + 1 : 0;
        uint32_t turn = fr_graph_device_find_row(cache, cache->keys[at])->turn;
        if (turn != device->now->turn && turn != device->next->turn)
            return at;
    }
    return FR_NO_ROW;
}

static enum fr_status bring_back(struct graph_device *device, uint32_t t)
{
    struct row_cache *cache = &device->tables[t];
    for (size_t i = 0; i < cache->n_changed; i++) {
        uint32_t number = cache->changed[i];
        /* a row that is not dirty was listed twice, or was created again since */
        float *host = cache->dirty[number] ? device->row_of(device->row_of_self, t, cache->keys[number]) : NULL;
        if (host)
            note_move(device, (struct row_move){.device = fr_graph_device_row_at(cache, number), .host = host});
        cache->dirty[number] = false;
    }
    cache->n_changed = 0;
    return move_back(device, cache->floats);
}

/* Gets a number that no row had yet, for a key of the arrival; false: there is no room for one
 * more row. */
static bool new_number(struct graph_device *device, const struct arrival *arrival, struct row_cache *cache,
                       uint64_t key, uint32_t *number)
{
    if (cache->n == cache->capacity && !add_chunk(device, cache))
        return false;
    *number = cache->n++;
    fr_graph_device_insert_row(cache, key, *number, arrival->turn);
    return true;
}

static void replace_row(const struct arrival *arrival, struct row_cache *cache, uint32_t victim, uint64_t key)
{
    fr_graph_device_erase_row(cache, cache->keys[victim]);
    fr_graph_device_insert_row(cache, key, victim, arrival->turn);
}

/* Gets a number for a key that has none. */
static enum fr_status make_room(struct graph_device *device, uint32_t t, uint64_t key, uint32_t *number)
{
    struct row_cache *cache = &device->tables[t];
    if (new_number(device, device->now, cache, key, number))
        return FR_OK;
    uint32_t victim = next_victim(device, cache);
    if (victim == FR_NO_ROW) {
        fr_graph_device_fail(
            device, FR_E_NO_MEMORY,
            "the rows of one batch do not fit into gpu_memory_limit, or the device's memory: raise the "
            "limit or make ingest.batch_size smaller");
        return device->status;
    }
    /* all changed rows are copied back at once, so the next victims are clean */
    if (cache->dirty[victim]) {
        size_t pending = device->n_moves;
        struct row_move *kept = fr_alloc(pending ? pending : 1, sizeof(*kept));
        if (pending)
            memcpy(kept, device->moves, pending * sizeof(*kept));
        device->n_moves = 0;
        enum fr_status status = bring_back(device, t);
        for (size_t i = 0; i < pending; i++)
            note_move(device, kept[i]);
        free(kept);
        if (status != FR_OK)
            return status;
    }
    replace_row(device->now, cache, victim, key);
    *number = victim;
    return FR_OK;
}

/* ---- a batch ---- */

/* Whether the row gets its first values on the device. */
static bool begins_there(const struct row_cache *cache, const struct fr_table_rows *rows, uint32_t u)
{
    return cache->parts && fr_graph_device_is_made(rows, u);
}

static struct row_move move_to(const struct row_cache *cache, uint32_t number, const struct fr_table_rows *rows,
                               uint32_t u)
{
    float *host = begins_there(cache, rows, u) ? NULL : rows->rows[u];
    return (struct row_move){fr_graph_device_row_at(cache, number), host, rows->keys[u]};
}

/* Sends the addresses of the rows that have their place. */
static void put_addresses(struct graph_device *device, struct arrival *arrival, uint32_t t, uint32_t n_unique)
{
    struct device_plan *plan = &arrival->plans[t];
    struct fr_table_rows *out = &arrival->rows.tables[t];
    out->rows = (float **)(uintptr_t)fr_graph_device_put_later(device, plan->rows, n_unique * sizeof(float *));
    out->served = (float **)(uintptr_t)fr_graph_device_put_later(device, plan->served, n_unique * sizeof(float *));
    plan->sent = true;
}

static enum fr_status send_moves(struct graph_device *device, uint32_t t)
{
    struct arriving host;
    struct arriving_counts counts = {0};
    size_t n = device->n_moves;
    device->n_moves = 0;
    for (size_t i = 0; i < n; i++)
        *(device->moves[i].host ? &counts.sent : &counts.made) += 1;
    if (n > 0 && !begin_arriving(device, t, counts, &host))
        return device->status;
    for (size_t i = 0; i < n; i++)
        add_arriving(device, t, &host, device->moves[i]);
    return FR_OK;
}

/* Handles one of the keys that need more than their number. */
static enum fr_status place_key(struct graph_device *device, uint32_t t, const struct fr_table_rows *rows, uint32_t u)
{
    struct row_cache *cache = &device->tables[t];
    struct device_plan *plan = &device->now->plans[t];
    bool absent = plan->numbers[u] == FR_NO_ROW;
    if (absent) {
        enum fr_status status = make_room(device, t, rows->keys[u], &plan->numbers[u]);
        if (status != FR_OK)
            return status;
        fr_graph_device_set_address(cache, plan, rows, u);
        plan->sent = false;
    }
    struct row_place *place = fr_graph_device_find_row(cache, rows->keys[u]);
    if (absent || (fr_graph_device_is_made(rows, u) && !place->first))
        note_move(device, move_to(cache, plan->numbers[u], rows, u));
    place->first = false;
    return FR_OK;
}

static enum fr_status place_table(struct graph_run *run, uint32_t t)
{
    struct graph_device *device = run->graph->device;
    const struct row_cache *cache = &device->tables[t];
    const struct fr_table_rows *rows = &run->rows->tables[t];
    const struct device_plan *plan = &device->now->plans[t];
    const struct key_list *listed = &plan->listed;
    enum fr_status status = FR_OK;
    /* the device's copy of a row that was created again is no longer valid */
    for (uint32_t i = 0; i < listed->n; i++)
        if (plan->numbers[listed->of[i]] != FR_NO_ROW && fr_graph_device_is_made(rows, listed->of[i]))
            cache->dirty[plan->numbers[listed->of[i]]] = false;
    for (uint32_t i = 0; i < listed->n && status == FR_OK; i++)
        status = place_key(device, t, rows, listed->of[i]);
    if (status == FR_OK)
        status = send_moves(device, t);
    if (status == FR_OK && !plan->sent)
        put_addresses(device, device->now, t, rows->n_unique);
    return status == FR_OK ? device->status : status;
}

static void open_table(const struct fr_graph *graph, uint32_t t)
{
    const struct graph_device *device = graph->device;
    struct row_cache *cache = &device->tables[t];
    cache->floats = graph->layouts[t].row_floats;
    cache->n_parts = graph->layouts[t].n_parts;
    while (((size_t)cache->floats * sizeof(float) << cache->log2_chunk) < CHUNK_BYTES)
        cache->log2_chunk++;
    /* a small limit is divided into small chunks */
    while (cache->log2_chunk > 0 && ((size_t)cache->floats * sizeof(float) << cache->log2_chunk) >
                                        device->row_bytes_max / (4 * (size_t)graph->conf->n_tables))
        cache->log2_chunk--;
    if (device->first_places)
        cache->parts = fr_graph_device_row_parts(graph, t);
}

enum fr_status fr_graph_device_send_rows(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    enum fr_status status = FR_OK;
    for (uint32_t t = 0; t < graph->conf->n_tables && status == FR_OK; t++) {
        if (device->tables[t].floats == 0)
            open_table(graph, t);
        status = device->status == FR_OK ? place_table(run, t) : device->status;
    }
    if (status == FR_OK)
        start_arriving(device, graph->conf->n_tables);
    return status;
}

/* ---- the next batch ---- */

/* Gets a number without evicting a row that is newer than the store's. */
static bool make_room_ahead(struct graph_device *device, struct row_cache *cache, uint64_t key, uint32_t *number)
{
    if (new_number(device, device->next, cache, key, number))
        return true;
    uint32_t victim = next_victim(device, cache);
    if (victim == FR_NO_ROW || cache->dirty[victim])
        return false;
    replace_row(device->next, cache, victim, key);
    *number = victim;
    return true;
}

/* Counts the rows that the table lacks on the device. */
static struct arriving_counts count_absent(const struct row_cache *cache, const struct device_plan *plan,
                                           const struct fr_table_rows *rows)
{
    struct arriving_counts absent = {0};
    for (uint32_t i = 0; i < plan->listed.n; i++)
        if (plan->numbers[plan->listed.of[i]] == FR_NO_ROW)
            *(begins_there(cache, rows, plan->listed.of[i]) ? &absent.made : &absent.sent) += 1;
    return absent;
}

/* Sends one row early. False: there is no more room. */
static bool bring_row(struct graph_device *device, uint32_t t, const struct fr_table_rows *rows, uint32_t u,
                      const struct arriving *host)
{
    struct row_cache *cache = &device->tables[t];
    struct device_plan *plan = &device->next->plans[t];
    uint32_t number;
    if (!make_room_ahead(device, cache, rows->keys[u], &number))
        return false;
    fr_graph_device_find_row(cache, rows->keys[u])->first = fr_graph_device_is_made(rows, u);
    add_arriving(device, t, host, move_to(cache, number, rows, u));
    plan->numbers[u] = number;
    fr_graph_device_set_address(cache, plan, rows, u);
    return true;
}

/* Sends early the rows that a table lacks, as far as there is room; rows that are there stay. A
 * row that the batch creates gets its first values at once, unless the device already has a row
 * of this key. That row is replaced when the batch comes, because the batch before may still be
 * refused. */
static void bring_table(struct graph_device *device, uint32_t t, const struct fr_table_rows *rows, size_t *bytes)
{
    const struct row_cache *cache = &device->tables[t];
    const struct row_arrivals *calls = &device->arriving[t];
    struct device_plan *plan = &device->next->plans[t];
    struct key_list *listed = &plan->listed;
    size_t row_bytes = cache->floats * sizeof(float);
    struct arriving host;
    if (row_bytes == 0) /* no batch has come so far */
        return;
    struct arriving_counts n = count_absent(cache, plan, rows);
    size_t most = *bytes / (row_bytes + sizeof(float *));
    n.sent = n.sent < most ? n.sent : most;
    if (n.sent + n.made == 0 || !begin_arriving(device, t, n, &host))
        return;
    uint32_t kept = 0;
    bool room = true;
    for (uint32_t i = 0; i < listed->n; i++) {
        uint32_t u = listed->of[i];
        bool full = calls->sent.n == n.sent && !begins_there(cache, rows, u);
        bool brought = false;
        if (plan->numbers[u] == FR_NO_ROW && !full && room)
            brought = room = bring_row(device, t, rows, u, &host);
        /* the key needs more when the batch comes */
        if (!brought || fr_graph_device_is_made(rows, u))
            listed->of[kept++] = u;
    }
    listed->n = kept;
    fr_graph_device_trim(device, host.values + calls->sent.n * row_bytes);
    *bytes -= n.sent * (row_bytes + sizeof(float *));
    device->brought += calls->sent.n + calls->made.n;
}

void fr_graph_bring(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows)
{
    struct graph_device *device = graph->device;
    size_t bytes = AHEAD_BYTES;
    if (!device || device->status != FR_OK)
        return;
    struct arrival *next = device->next;
    next->arena.optional = true;
    fr_graph_device_begin_arena(device, &next->arena);
    fr_graph_device_send_batch(graph, next, batch, rows);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        bring_table(device, t, &rows->tables[t], &bytes);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        put_addresses(device, next, t, rows->tables[t].n_unique);
    fr_graph_device_send(device);
    start_arriving(device, graph->conf->n_tables);
    /* if it failed, the batch is sent at its turn */
    next->of_batch = next->arena.failed ? NULL : batch;
    next->of_rows = rows;
    next->arena.optional = false;
    device->arena = &device->now->arena;
}

uint64_t fr_graph_rows_brought(const struct fr_graph *graph)
{
    return graph->device ? graph->device->brought : 0;
}

void fr_graph_device_trained_rows(const struct graph_run *run)
{
    fr_graph_device_mark_rows(run->graph, run->graph->device->now, run->rows);
}

enum fr_status fr_graph_device_bring_back_rows(struct graph_device *device, uint32_t n_tables)
{
    enum fr_status status = FR_OK;
    fr_graph_device_begin_arena(device, &device->now->arena);
    for (uint32_t t = 0; t < n_tables && status == FR_OK; t++)
        status = bring_back(device, t);
    return status;
}

void fr_graph_device_free_rows(struct graph_device *device, uint32_t n_tables)
{
    for (uint32_t t = 0; t < n_tables; t++) {
        struct row_cache *cache = &device->tables[t];
        for (uint32_t c = 0; c < cache->n_chunks; c++)
            device->api->release(device->queue, cache->chunks[c]);
        device->api->release(device->queue, (void *)(uintptr_t)cache->parts);
        free(cache->chunks);
        free(cache->keys);
        free(cache->dirty);
        free(cache->changed);
        free(cache->index);
    }
    device->api->release_pinned(device->queue, device->staging);
    device->api->release(device->queue, device->at_staging);
    free(device->tables);
    free(device->moves);
}
