/* The rows a device keeps: those in use lie there, by key, and are newer than the store's once a
 * step has changed them. fr_graph_settle brings these back before anybody reads the store's.
 *
 * A row that is not there comes from the store's before its batch, with the batch's arena. One that
 * this batch made comes in any case, for a key that went and came back is another row; of such a
 * row only key and address are sent, and it gets its first values where it lives, the bits that the
 * store's row has (fr_graph_device.first_places; where they are unknown it is sent too). When there
 * is no more room (row_bytes_max, or the device's memory) rows that no batch used lately make some:
 * the hand goes round; those that are newer are brought back first, for which the host waits.
 * While a step computes, rows of the next batch are sent beside it, as far as there is room that
 * nobody has to be asked for; they are scattered behind the step. So where a row is changes no
 * number.
 *
 * The store may drop or move a row meanwhile: it is found again by its key, and one that is gone is
 * not brought back. What left the store's memory was clean, so the device's copy, if it is still
 * there when the key returns, has the same bits.
 *
 * Owner thread: the graph's. It does not know the store (row_of). */
#include "device.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 4 << 20,
    INDEX_LOG2_MIN = 10,
    STAGING_BYTES = 8 << 20, /* of rows that go back, at least one; more go in turns */
    AHEAD_BYTES = 64 << 20,  /* of rows sent beside a step; others wait for their batch */
};
#define NO_ROW UINT32_MAX

/* ---- by key ---- */

static uint32_t home_of(const struct row_cache *cache, uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> (64 - cache->log2_index));
}

static uint32_t next_place(const struct row_cache *cache, uint32_t place)
{
    return (place + 1) & (uint32_t)(((uint64_t)1 << cache->log2_index) - 1);
}

static void insert(struct row_cache *cache, uint64_t key, uint32_t number)
{
    uint32_t place = home_of(cache, key);
    while (cache->index[place] != 0)
        place = next_place(cache, place);
    cache->index[place] = number + 1;
}

static uint32_t find(const struct row_cache *cache, uint64_t key)
{
    if (!cache->index)
        return NO_ROW;
    for (uint32_t place = home_of(cache, key); cache->index[place] != 0; place = next_place(cache, place))
        if (cache->rows[cache->index[place] - 1].key == key)
            return cache->index[place] - 1;
    return NO_ROW;
}

/* What follows moves up, so that no search ends too early. */
static void erase(struct row_cache *cache, uint32_t number)
{
    uint32_t mask = (uint32_t)(((uint64_t)1 << cache->log2_index) - 1), hole = home_of(cache, cache->rows[number].key);
    while (cache->index[hole] != number + 1)
        hole = next_place(cache, hole);
    for (uint32_t place = next_place(cache, hole); cache->index[place] != 0; place = next_place(cache, place)) {
        uint32_t home = home_of(cache, cache->rows[cache->index[place] - 1].key);
        if (((place - home) & mask) < ((place - hole) & mask))
            continue;
        cache->index[hole] = cache->index[place];
        hole = place;
    }
    cache->index[hole] = 0;
}

static void grow_index(struct row_cache *cache)
{
    cache->log2_index = cache->log2_index ? cache->log2_index + 1 : INDEX_LOG2_MIN;
    free(cache->index);
    cache->index = fr_alloc((size_t)1 << cache->log2_index, sizeof(*cache->index));
    for (uint32_t i = 0; i < cache->n; i++)
        insert(cache, cache->rows[i].key, i);
}

/* ---- memory ---- */

static float *row_at(const struct row_cache *cache, uint32_t number)
{
    size_t at = number & (((uint32_t)1 << cache->log2_chunk) - 1);
    return cache->chunks[number >> cache->log2_chunk] + at * cache->floats;
}

static bool add_chunk(struct graph_device *device, struct row_cache *cache)
{
    size_t bytes = ((size_t)cache->floats * sizeof(float)) << cache->log2_chunk;
    if (device->row_bytes_max - device->row_bytes < bytes)
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
    cache->rows = fr_realloc(cache->rows, cache->capacity, sizeof(*cache->rows));
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

/* ---- rows on their way ---- */

static void note_move(struct graph_device *device, struct row_move move)
{
    if (device->n_moves == device->capacity_moves) {
        device->capacity_moves = device->capacity_moves ? 2 * device->capacity_moves : 1024;
        device->moves = fr_realloc(device->moves, device->capacity_moves, sizeof(*device->moves));
    }
    device->moves[device->n_moves++] = move;
}

/* One turn of rows that go back: as many as staging holds. */
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

/* Room for rows that come, in the arena; their number follows. */
struct arriving {
    float **sent, **made; /* addresses */
    uint64_t *keys;       /* of those made */
    uint8_t *values;      /* of those sent */
};
/* How many rows come in which way. */
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
    memcpy(host->values + calls->sent.n++ * row_bytes, row.host, row_bytes);
}

/* All of all tables. What was started before does not see them. */
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

/* The next row that neither this batch uses nor, where one is being brought, the next; NO_ROW: they
 * use all. */
static uint32_t next_victim(const struct graph_device *device, struct row_cache *cache)
{
    for (uint32_t tries = 0; tries < cache->n; tries++) {
        uint32_t at = cache->hand;
        cache->hand = at + 1 < cache->n ? at + 1 : 0;
        if (cache->rows[at].used < device->batches)
            return at;
    }
    return NO_ROW;
}

static void mark_dirty(struct row_cache *cache, uint32_t number)
{
    if (cache->rows[number].dirty)
        return;
    cache->rows[number].dirty = true;
    if (cache->n_dirty == cache->capacity_dirty) {
        cache->capacity_dirty = cache->capacity_dirty ? 2 * cache->capacity_dirty : 1024;
        cache->dirty = fr_realloc(cache->dirty, cache->capacity_dirty, sizeof(*cache->dirty));
    }
    cache->dirty[cache->n_dirty++] = number;
}

static enum fr_status bring_back(struct graph_device *device, uint32_t t)
{
    struct row_cache *cache = &device->tables[t];
    for (size_t i = 0; i < cache->n_dirty; i++) {
        struct cached_row *row = &cache->rows[cache->dirty[i]];
        /* listed twice, or no longer newer: made again since */
        float *host = row->dirty ? device->row_of(device->row_of_self, t, row->key) : NULL;
        if (host)
            note_move(device, (struct row_move){.device = row_at(cache, cache->dirty[i]), .host = host});
        row->dirty = false;
    }
    cache->n_dirty = 0;
    return move_back(device, cache->floats);
}

/* A number that no row had yet; false: there is no room for one more. */
static bool take_new(struct graph_device *device, struct row_cache *cache, uint64_t key, uint32_t *number)
{
    if (cache->n == cache->capacity && !add_chunk(device, cache))
        return false;
    *number = cache->n++;
    cache->rows[*number] = (struct cached_row){.key = key};
    if (!cache->index || 3 * (uint64_t)cache->n > (uint64_t)2 << cache->log2_index)
        grow_index(cache); /* with this one */
    else
        insert(cache, key, *number);
    return true;
}

static void take_over(struct row_cache *cache, uint32_t victim, uint64_t key)
{
    erase(cache, victim);
    cache->rows[victim] = (struct cached_row){.key = key};
    insert(cache, key, victim);
}

/* A number for a key that has none. */
static enum fr_status make_room(struct graph_device *device, uint32_t t, uint64_t key, uint32_t *number)
{
    struct row_cache *cache = &device->tables[t];
    if (take_new(device, cache, key, number))
        return FR_OK;
    uint32_t victim = next_victim(device, cache);
    if (victim == NO_ROW) {
        fr_graph_device_fail(
            device, FR_E_NO_MEMORY,
            "the rows of one batch do not fit into gpu_memory_limit, or the device's memory: raise the "
            "limit or make ingest.batch_size smaller");
        return device->status;
    }
    if (cache->rows[victim].dirty) { /* all at once: the next victims are clean then */
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
    take_over(cache, victim, key);
    *number = victim;
    return FR_OK;
}

/* ---- a batch ---- */

static bool is_made(const struct fr_table_rows *rows, uint32_t u)
{
    return rows->rows[u] && rows->served && !rows->served[u];
}

/* It gets its first values on the device. */
static bool begins_there(const struct row_cache *cache, const struct fr_table_rows *rows, uint32_t u)
{
    return cache->parts && is_made(rows, u);
}

static struct row_move move_to(const struct row_cache *cache, uint32_t number, const struct fr_table_rows *rows,
                               uint32_t u)
{
    float *host = begins_there(cache, rows, u) ? NULL : rows->rows[u];
    return (struct row_move){row_at(cache, number), host, rows->keys[u]};
}

/* Numbers of those that are there: they must not make room for others. What the device has of a
 * row that was made anew is no longer true. */
static void find_present(const struct graph_device *device, struct row_cache *cache, const struct fr_table_rows *rows)
{
    if (rows->n_unique > cache->capacity_numbers) {
        cache->capacity_numbers = rows->n_unique + rows->n_unique / 2;
        cache->numbers = fr_realloc(cache->numbers, cache->capacity_numbers, sizeof(*cache->numbers));
    }
    for (uint32_t u = 0; u < rows->n_unique; u++) {
        uint32_t number = cache->numbers[u] = rows->rows[u] ? find(cache, rows->keys[u]) : NO_ROW;
        if (number == NO_ROW)
            continue;
        cache->rows[number].used = device->batches;
        cache->rows[number].dirty &= !is_made(rows, u);
    }
}

/* Where the rows are, once all have their place: what is in the arena is sent when rows move. */
static enum fr_status put_addresses(struct graph_device *device, const struct row_cache *cache,
                                    const struct fr_table_rows *rows, struct fr_table_rows *out)
{
    void *at_rows, *at_served;
    out->rows = fr_graph_device_room(device, rows->n_unique * sizeof(float *), &at_rows);
    out->served = fr_graph_device_room(device, rows->n_unique * sizeof(float *), &at_served);
    if (!at_rows || !at_served)
        return device->status;
    for (uint32_t u = 0; u < rows->n_unique; u++) {
        float *there = rows->rows[u] ? row_at(cache, cache->numbers[u]) : NULL;
        ((float **)at_rows)[u] = there;
        ((float **)at_served)[u] = is_made(rows, u) ? NULL : there;
    }
    return FR_OK;
}

static enum fr_status take_moves(struct graph_device *device, uint32_t t)
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

static enum fr_status take_table(struct graph_run *run, uint32_t t)
{
    struct graph_device *device = run->graph->device;
    struct row_cache *cache = &device->tables[t];
    const struct fr_table_rows *rows = &run->rows->tables[t];
    enum fr_status status = FR_OK;
    find_present(device, cache, rows);
    for (uint32_t u = 0; u < rows->n_unique && status == FR_OK; u++) {
        bool absent = cache->numbers[u] == NO_ROW;
        if (!rows->rows[u])
            continue;
        if (absent)
            status = make_room(device, t, rows->keys[u], &cache->numbers[u]);
        if (status != FR_OK)
            break;
        struct cached_row *row = &cache->rows[cache->numbers[u]];
        if (absent || (is_made(rows, u) && !row->first))
            note_move(device, move_to(cache, cache->numbers[u], rows, u));
        row->used = device->batches;
        row->first = false;
    }
    if (status == FR_OK)
        status = take_moves(device, t);
    return status == FR_OK ? put_addresses(device, cache, rows, &device->now->rows.tables[t]) : status;
}

static void open_table(const struct fr_graph *graph, uint32_t t)
{
    const struct graph_device *device = graph->device;
    struct row_cache *cache = &device->tables[t];
    cache->floats = graph->layouts[t].row_floats;
    cache->n_parts = graph->layouts[t].n_parts;
    while (((size_t)cache->floats * sizeof(float) << cache->log2_chunk) < CHUNK_BYTES)
        cache->log2_chunk++;
    /* a small limit is divided finely */
    while (cache->log2_chunk > 0 && ((size_t)cache->floats * sizeof(float) << cache->log2_chunk) >
                                        device->row_bytes_max / (4 * (size_t)graph->conf->n_tables))
        cache->log2_chunk--;
    if (device->first_places)
        cache->parts = fr_graph_device_row_parts(graph, t);
}

enum fr_status fr_graph_device_take_rows(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    enum fr_status status = FR_OK;
    device->batches += 2; /* the number between is of rows brought for a batch that may not come */
    for (uint32_t t = 0; t < graph->conf->n_tables && status == FR_OK; t++) {
        if (device->tables[t].floats == 0)
            open_table(graph, t);
        status = device->status == FR_OK ? take_table(run, t) : device->status;
    }
    if (status == FR_OK)
        start_arriving(device, graph->conf->n_tables);
    return status;
}

/* ---- the batch after it ---- */

/* Without asking for a row that is newer than the store's. */
static bool take_room_ahead(struct graph_device *device, struct row_cache *cache, uint64_t key, uint32_t *number)
{
    if (take_new(device, cache, key, number))
        return true;
    uint32_t victim = next_victim(device, cache);
    if (victim == NO_ROW || cache->rows[victim].dirty)
        return false;
    take_over(cache, victim, key);
    *number = victim;
    return true;
}

/* How many of the rows a table lacks; what it has stays. */
static struct arriving_counts keep_present(const struct graph_device *device, struct row_cache *cache,
                                           const struct fr_table_rows *rows)
{
    struct arriving_counts absent = {0};
    for (uint32_t u = 0; u < rows->n_unique; u++) {
        uint32_t number = rows->rows[u] ? find(cache, rows->keys[u]) : NO_ROW;
        if (number != NO_ROW)
            cache->rows[number].used = device->batches + 1;
        if (rows->rows[u] && number == NO_ROW)
            *(begins_there(cache, rows, u) ? &absent.made : &absent.sent) += 1;
    }
    return absent;
}

/* What a table lacks, as far as there is room. A row that the batch makes has its first values
 * there then; one of a key that the device has already comes with the batch, for the batch before
 * may still be refused. */
static void bring_table(struct graph_device *device, uint32_t t, const struct fr_table_rows *rows, size_t *bytes)
{
    struct row_cache *cache = &device->tables[t];
    const struct row_arrivals *calls = &device->arriving[t];
    size_t row_bytes = cache->floats * sizeof(float);
    struct arriving host;
    if (row_bytes == 0) /* no batch came so far */
        return;
    struct arriving_counts n = keep_present(device, cache, rows);
    size_t most = *bytes / (row_bytes + sizeof(float *));
    n.sent = n.sent < most ? n.sent : most;
    if (n.sent + n.made == 0 || !begin_arriving(device, t, n, &host))
        return;
    for (uint32_t u = 0, number; u < rows->n_unique; u++) {
        bool full = calls->sent.n == n.sent && !begins_there(cache, rows, u);
        if (!rows->rows[u] || full || find(cache, rows->keys[u]) != NO_ROW)
            continue;
        if (!take_room_ahead(device, cache, rows->keys[u], &number))
            break;
        cache->rows[number].used = device->batches + 1;
        cache->rows[number].first = is_made(rows, u);
        add_arriving(device, t, &host, move_to(cache, number, rows, u));
    }
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
    fr_graph_device_take_batch(graph, next, batch, rows);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        bring_table(device, t, &rows->tables[t], &bytes);
    fr_graph_device_send(device);
    start_arriving(device, graph->conf->n_tables);
    next->of_batch = next->arena.failed ? NULL : batch; /* then it comes at its turn */
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
    struct graph_device *device = run->graph->device;
    for (uint32_t t = 0; t < run->graph->conf->n_tables; t++) {
        struct row_cache *cache = &device->tables[t];
        const struct fr_table_rows *rows = &run->rows->tables[t];
        for (uint32_t u = 0; u < rows->n_unique; u++)
            if (rows->rows[u])
                mark_dirty(cache, cache->numbers[u]);
    }
}

enum fr_status fr_graph_device_settle_rows(struct graph_device *device, uint32_t n_tables)
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
        free(cache->rows);
        free(cache->dirty);
        free(cache->numbers);
        free(cache->index);
    }
    device->api->release_pinned(device->queue, device->staging);
    device->api->release(device->queue, device->at_staging);
    free(device->tables);
    free(device->moves);
}
