/* Gradients of rows over ranks (graph/ranks.h): the source writes the sums of its lanes for each
 * home, and the home joins those of all ranks and steps its rows.
 *
 * A message: u32 tables, u32 spans, u32 the first lane of each span; for each table u32 keys, u32
 * 0, u64 floats; for each table u16 parts that are reached [keys, spans], padded to 4 bytes, and
 * u32 samples [keys, parts]; then the sums of all tables (struct fr_row_spans). All of it is
 * aligned to 4 bytes, and is read where it lies.
 *
 * Keys are divided into blocks of fixed size, at the source and at the home, and a block is one
 * worker's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ranks.h"
#include "passes.h"

enum { MASKS = 1 << FR_PARTS_MAX };

/* Unique keys of the source, or rows of the home. */
struct row_block {
    uint32_t table, begin, end;
    size_t at, floats; /* the source: room for the block's sums begins here; what was written */
};

struct row_ranks {
    size_t n_blocks, capacity_blocks;
    struct row_block *blocks; /* of the call in progress */
    /* What fr_graph_read_row_sums read; home is NULL if there is nothing. */
    const struct fr_home_rows *home;
    size_t capacity_sent, capacity_keys, capacity_rows;
    struct fr_row_sent *sent;    /* [tables, ranks] */
    const char **wrong;          /* [tables, ranks] what is wrong with a message; NULL: nothing */
    struct fr_row_join *joins;   /* [tables] without ranges and scratch */
    size_t *begin;               /* [keys that all ranks sent, of all tables] */
    struct fr_row_place *places; /* [the same] */
    uint32_t *places_begin;      /* [rows of all tables, and one for each table] */
};

static struct row_ranks *state_of(struct fr_graph *graph)
{
    if (!graph->row_ranks)
        graph->row_ranks = fr_alloc(1, sizeof(*graph->row_ranks));
    return graph->row_ranks;
}

void fr_graph_free_row_ranks(struct fr_graph *graph)
{
    struct row_ranks *s = graph->row_ranks;
    if (!s)
        return;
    void *const arrays[] = {s->blocks, s->sent, s->wrong, s->joins, s->begin, s->places, s->places_begin, s};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
}

static void add_blocks(struct row_ranks *s, uint32_t table, uint32_t begin, uint32_t end)
{
    size_t n = s->n_blocks + fr_blocks_of(end - begin, FR_UNIQUE_BLOCK);
    if (n > s->capacity_blocks)
        s->blocks = fr_realloc(s->blocks, s->capacity_blocks = 2 * n, sizeof(*s->blocks));
    for (; s->n_blocks < n; begin += FR_UNIQUE_BLOCK)
        s->blocks[s->n_blocks++] = (struct row_block){
            .table = table, .begin = begin, .end = end - begin < FR_UNIQUE_BLOCK ? end : begin + FR_UNIQUE_BLOCK};
}

static size_t masks_bytes(size_t keys, uint32_t n_spans)
{
    return (keys * n_spans * sizeof(uint16_t) + 3) / 4 * 4;
}

/* ---- the source ---- */

struct put {
    struct graph_run run;
    const struct fr_unique_range *ranges;
    struct table_head {
        uint16_t *reached;
        uint32_t *counts;
    } heads[FR_TABLES_MAX];
    float *sums;
};

/* Returns how many floats the sums of a block have at most. */
static size_t most_floats(const struct put *put, const struct row_block *block)
{
    const struct fr_graph *graph = put->run.graph;
    const struct table_state *table = &graph->tables[block->table];
    const struct fr_table_rows *rows = &put->run.rows->tables[block->table];
    size_t floats = 0, dims = 0;
    for (uint32_t p = 0; p < table->n_parts; p++)
        dims += table->parts[p].dim;
    for (uint32_t u = block->begin; u < block->end; u++) {
        uint32_t n = rows->occ_begin[u + 1] - rows->occ_begin[u];
        floats += rows->rows[u] ? (n < graph->lanes.n_spans ? n : graph->lanes.n_spans) * dims : 0;
    }
    return floats;
}

static void sum_block(void *context, size_t index, size_t worker)
{
    const struct put *put = context;
    const struct fr_graph *graph = put->run.graph;
    struct row_block *block = &graph->row_ranks->blocks[index];
    const struct table_head *head = &put->heads[block->table];
    size_t first = block->begin - put->ranges[block->table].begin;
    struct fr_row_spans call = {.update = fr_graph_row_update(&put->run, block->table, worker),
                                .n_spans = graph->lanes.n_spans,
                                .spans = graph->lanes.spans,
                                .reached = head->reached + first * graph->lanes.n_spans,
                                .counts = head->counts + first * graph->tables[block->table].n_parts,
                                .sums = put->sums + block->at};
    call.update.begin = block->begin;
    call.update.end = block->end;
    block->floats = graph->ops->sum_spans(&call);
}

/* Adds the blocks whose keys may have sums: none of a table that nothing reads, and none at all
 * without a backward pass. Returns the floats of their sums at most. */
static size_t lay_out_blocks(const struct put *put)
{
    const struct fr_graph *graph = put->run.graph;
    struct row_ranks *s = graph->row_ranks;
    size_t floats = 0;
    s->n_blocks = 0;
    for (uint32_t t = 0; t < graph->conf->n_tables && graph->swept; t++)
        if (graph->variant->tables[t].source_begin[graph->tables[t].n_groups] > 0)
            add_blocks(s, t, put->ranges[t].begin, put->ranges[t].end);
    for (size_t b = 0; b < s->n_blocks; b++) {
        s->blocks[b].at = floats;
        floats += most_floats(put, &s->blocks[b]);
    }
    return floats;
}

/* Writes the head of a message, and zeros where the numbers of keys follow. Returns where the
 * number of floats of the first table is. */
static size_t put_head(struct put *put, struct fr_buffer *out)
{
    const struct fr_graph *graph = put->run.graph;
    uint32_t n_tables = graph->conf->n_tables;
    size_t bytes = 0;
    fr_put_u32(out, n_tables);
    fr_put_u32(out, graph->lanes.n_spans);
    for (uint32_t i = 0; i < graph->lanes.n_spans; i++)
        fr_put_u32(out, graph->lanes.spans[i].first);
    size_t floats_at = out->size + 2 * sizeof(uint32_t);
    for (uint32_t t = 0; t < n_tables; t++) {
        uint32_t keys = put->ranges[t].end - put->ranges[t].begin;
        fr_put_u32(out, keys);
        fr_put_u32(out, 0);
        fr_put_u64(out, 0);
        bytes += masks_bytes(keys, graph->lanes.n_spans) + (size_t)keys * graph->tables[t].n_parts * sizeof(uint32_t);
    }
    memset(fr_buffer_reserve(out, bytes), 0, bytes);
    out->size += bytes;
    return floats_at;
}

/* Sets where the numbers of each table and the sums go. */
static void point(struct put *put, uint8_t *at)
{
    const struct fr_graph *graph = put->run.graph;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        uint32_t keys = put->ranges[t].end - put->ranges[t].begin;
        put->heads[t].reached = (uint16_t *)(void *)at;
        at += masks_bytes(keys, graph->lanes.n_spans);
        put->heads[t].counts = (uint32_t *)(void *)at;
        at += (size_t)keys * graph->tables[t].n_parts * sizeof(uint32_t);
    }
    put->sums = (float *)(void *)at;
}

void fr_graph_put_row_sums(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                           const struct fr_unique_range *ranges, struct fr_buffer *out)
{
    struct row_ranks *s = state_of(graph);
    struct put put = {.run = {.graph = graph, .batch = batch, .rows = rows}, .ranges = ranges};
    FR_CHECK(out->size % sizeof(float) == 0);
    size_t most = lay_out_blocks(&put), begin = out->size, floats_at = put_head(&put, out), floats = 0;
    size_t heads = begin + (2 + graph->lanes.n_spans) * sizeof(uint32_t) + graph->conf->n_tables * 2 * sizeof(uint64_t);
    fr_buffer_reserve(out, most * sizeof(float));
    point(&put, out->data + heads);
    fr_graph_run_tasks(graph, s->n_blocks, sum_block, &put);
    uint64_t of_table[FR_TABLES_MAX] = {0};
    for (size_t b = 0; b < s->n_blocks; b++) {
        const struct row_block *block = &s->blocks[b];
        if (block->at != floats)
            memmove(put.sums + floats, put.sums + block->at, block->floats * sizeof(float));
        floats += block->floats;
        of_table[block->table] += block->floats;
    }
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        memcpy(out->data + floats_at + t * 2 * sizeof(uint64_t), &of_table[t], sizeof(of_table[t]));
    out->size += floats * sizeof(float);
}

/* ---- the home ---- */

static enum fr_status bad_sums(struct fr_err *err, uint32_t rank, const char *what)
{
    return fr_err_set(err, FR_E_CORRUPT, "the sums of rows that rank %" PRIu32 " sent are no message of sums: %s", rank,
                      what);
}

/* Makes room for what all ranks sent, and sets where that of each table goes. */
static void reserve_home(struct fr_graph *graph, const struct fr_home_rows *home)
{
    struct row_ranks *s = graph->row_ranks;
    size_t sent = (size_t)home->n_tables * home->n_ranks, keys = 0, rows = 0;
    for (uint32_t t = 0; t < home->n_tables; t++) {
        rows += home->tables[t].n_keys + (size_t)1;
        for (uint32_t r = 0; r < home->n_ranks; r++)
            keys += home->tables[t].n_sent[r];
    }
    if (sent > s->capacity_sent) {
        s->capacity_sent = sent;
        s->sent = fr_realloc(s->sent, sent, sizeof(*s->sent));
        s->wrong = fr_realloc(s->wrong, sent, sizeof(*s->wrong));
        s->joins = fr_realloc(s->joins, sent, sizeof(*s->joins));
    }
    if (keys > s->capacity_keys) {
        s->capacity_keys = keys;
        s->begin = fr_realloc(s->begin, keys, sizeof(*s->begin));
        s->places = fr_realloc(s->places, keys, sizeof(*s->places));
    }
    if (rows > s->capacity_rows)
        s->places_begin = fr_realloc(s->places_begin, s->capacity_rows = rows, sizeof(*s->places_begin));
    keys = rows = 0;
    for (uint32_t t = 0; t < home->n_tables; t++) {
        s->joins[t] = (struct fr_row_join){.sent = s->sent + (size_t)t * home->n_ranks,
                                           .rows = home->tables[t].rows,
                                           .places_begin = s->places_begin + rows,
                                           .places = s->places + keys,
                                           .parts = graph->tables[t].parts,
                                           .n_parts = graph->tables[t].n_parts};
        rows += home->tables[t].n_keys + (size_t)1;
        for (uint32_t r = 0; r < home->n_ranks; r++) {
            s->sent[(size_t)t * home->n_ranks + r].begin = s->begin + keys;
            keys += home->tables[t].n_sent[r];
        }
    }
}

/* Finds the parts of a message, whose sizes it checks, and not yet the numbers in them. */
static const char *read_head(const struct fr_graph *graph, const struct fr_home_rows *home, uint32_t rank,
                             struct fr_bytes in)
{
    struct fr_lane_span spans[FR_LANE_SPANS_MAX];
    uint32_t domains = fr_conf_domains(graph->conf);
    struct fr_domains lanes = fr_rank_domains(rank, home->n_ranks, domains);
    uint32_t n_spans = fr_lane_spans(lanes.first, lanes.end, domains, spans);
    struct fr_row_sent *sent = graph->row_ranks->sent;
    struct fr_reader reader = {.at = in.data, .end = in.data + in.size};
    if (fr_take_u32(&reader) != home->n_tables)
        return "other tables";
    if (fr_take_u32(&reader) != n_spans)
        return "other lanes than this rank has";
    const uint8_t *firsts = fr_take(&reader, n_spans * sizeof(uint32_t));
    const uint8_t *tables = fr_take(&reader, home->n_tables * 2 * sizeof(uint64_t));
    if (!firsts || !tables)
        return "it ends within the head";
    for (uint32_t i = 0; i < n_spans; i++)
        if (fr_load_u32(firsts + i * sizeof(uint32_t)) != spans[i].first)
            return "other lanes than this rank has";
    for (uint32_t t = 0; t < home->n_tables; t++) {
        uint32_t keys = fr_load_u32(tables + t * 2 * sizeof(uint64_t));
        if (keys != home->tables[t].n_sent[rank] || fr_load_u32(tables + t * 2 * sizeof(uint64_t) + 4) != 0)
            return "a table has another number of keys than this rank sent";
        struct fr_row_sent *to = &sent[(size_t)t * home->n_ranks + rank];
        to->n_spans = n_spans;
        to->lanes = (const uint32_t *)(const void *)firsts;
        to->reached = (const uint16_t *)(const void *)fr_take(&reader, masks_bytes(keys, n_spans));
        to->counts = (const uint32_t *)(const void *)fr_take(&reader, (size_t)keys * graph->tables[t].n_parts *
                                                                          sizeof(uint32_t));
    }
    for (uint32_t t = 0; t < home->n_tables && !reader.failed; t++) {
        uint64_t floats = fr_load_u64(tables + t * 2 * sizeof(uint64_t) + sizeof(uint64_t));
        bool fits = floats <= (size_t)(reader.end - reader.at) / sizeof(float);
        struct fr_row_sent *to = &sent[(size_t)t * home->n_ranks + rank];
        to->sums = (const float *)(const void *)fr_take(&reader, fits ? (size_t)floats * sizeof(float) : SIZE_MAX);
    }
    return reader.failed || reader.at != reader.end ? "its size is not that of its keys and sums" : NULL;
}

struct reading {
    struct fr_graph *graph;
    const struct fr_home_rows *home;
};

/* Checks the numbers that a rank sent of a table, and finds where the sums of each key begin. */
static const char *check_numbers(const struct reading *reading, uint32_t t, uint32_t rank, uint64_t floats)
{
    const struct table_state *table = &reading->graph->tables[t];
    const struct fr_home_table *home = &reading->home->tables[t];
    const struct row_ranks *s = reading->graph->row_ranks;
    struct fr_row_sent *sent = &s->sent[(size_t)t * reading->home->n_ranks + rank];
    size_t *begin = s->begin + (sent->begin - s->begin), at = 0;
    uint32_t floats_of[MASKS], known = 1u << table->n_parts, most = UINT32_MAX / reading->home->n_ranks;
    for (uint32_t mask = 0; mask < known; mask++) {
        floats_of[mask] = 0;
        for (uint32_t p = 0; p < table->n_parts; p++)
            floats_of[mask] += mask >> p & 1 ? table->parts[p].dim : 0;
    }
    for (uint32_t k = 0; k < home->n_sent[rank]; k++) {
        uint32_t all = 0;
        begin[k] = at;
        for (uint32_t i = 0; i < sent->n_spans; i++) {
            uint32_t mask = sent->reached[(size_t)k * sent->n_spans + i];
            if (mask >= known)
                return "a part is reached that rows do not have";
            at += floats_of[mask];
            all |= mask;
        }
        for (uint32_t p = 0; p < table->n_parts; p++) {
            uint32_t count = sent->counts[(size_t)k * table->n_parts + p];
            if ((count > 0) != (all >> p & 1) || count > most)
                return "a number of samples is impossible";
        }
        if (all != 0 && !home->rows[home->merged[rank][k]])
            return "a key without a row has sums";
    }
    return at == floats ? NULL : "it has not as many sums as its keys";
}

static void check_task(void *context, size_t index, size_t worker)
{
    const struct reading *reading = context;
    const struct row_ranks *s = reading->graph->row_ranks;
    uint32_t n_ranks = reading->home->n_ranks, t = (uint32_t)(index / n_ranks), rank = (uint32_t)(index % n_ranks);
    (void)worker;
    /* the head has the number of floats of each table directly after the lanes */
    const struct fr_row_sent *sent = &s->sent[index];
    const uint8_t *tables = (const uint8_t *)(sent->lanes + sent->n_spans);
    s->wrong[index] =
        check_numbers(reading, t, rank, fr_load_u64(tables + t * 2 * sizeof(uint64_t) + sizeof(uint64_t)));
}

/* Lists, for each row of a table, the places of its sums. */
static void place_task(void *context, size_t index, size_t worker)
{
    const struct reading *reading = context;
    struct row_ranks *s = reading->graph->row_ranks;
    const struct fr_home_table *home = &reading->home->tables[index];
    const struct fr_row_join *join = &s->joins[index];
    uint32_t *begin = s->places_begin + (join->places_begin - s->places_begin), n_ranks = reading->home->n_ranks;
    struct fr_row_place *places = s->places + (join->places - s->places);
    (void)worker;
    memset(begin, 0, (home->n_keys + (size_t)1) * sizeof(*begin));
    for (uint32_t r = 0; r < n_ranks; r++)
        for (uint32_t k = 0; k < home->n_sent[r]; k++)
            begin[home->merged[r][k] + 1]++;
    for (uint32_t i = 0; i < home->n_keys; i++)
        begin[i + 1] += begin[i];
    for (uint32_t r = 0; r < n_ranks; r++)
        for (uint32_t k = 0; k < home->n_sent[r]; k++)
            places[begin[home->merged[r][k]]++] = (struct fr_row_place){r, k};
    /* each number is that of the next row now */
    memmove(begin + 1, begin, home->n_keys * sizeof(*begin));
    begin[0] = 0;
    for (uint32_t i = 0; i < home->n_keys; i++)
        for (uint32_t k = begin[i] + 1; k < begin[i + 1]; k++)
            if (places[k].rank == places[k - 1].rank)
                s->wrong[index * n_ranks + places[k].rank] = "it has a key twice";
}

static enum fr_status first_wrong(const struct row_ranks *s, const struct fr_home_rows *home, struct fr_err *err)
{
    for (uint32_t r = 0; r < home->n_ranks; r++)
        for (uint32_t t = 0; t < home->n_tables; t++)
            if (s->wrong[(size_t)t * home->n_ranks + r])
                return bad_sums(err, r, s->wrong[(size_t)t * home->n_ranks + r]);
    return FR_OK;
}

enum fr_status fr_graph_read_row_sums(struct fr_graph *graph, const struct fr_home_rows *home,
                                      const struct fr_bytes *in, struct fr_err *err)
{
    struct row_ranks *s = state_of(graph);
    struct reading reading = {graph, home};
    s->home = NULL;
    FR_CHECK(home->n_tables == graph->conf->n_tables);
    reserve_home(graph, home);
    for (uint32_t r = 0; r < home->n_ranks; r++) {
        bool aligned = (uintptr_t)in[r].data % sizeof(float) == 0;
        const char *wrong = aligned ? read_head(graph, home, r, in[r]) : "it is not aligned";
        if (wrong)
            return bad_sums(err, r, wrong);
    }
    fr_graph_run_tasks(graph, (size_t)home->n_tables * home->n_ranks, check_task, &reading);
    enum fr_status status = first_wrong(s, home, err);
    if (status != FR_OK)
        return status;
    fr_graph_run_tasks(graph, home->n_tables, place_task, &reading);
    status = first_wrong(s, home, err);
    if (status == FR_OK)
        s->home = home;
    return status;
}

/* Makes the blocks of the home's rows. */
static void list_rows(const struct fr_graph *graph)
{
    struct row_ranks *s = graph->row_ranks;
    FR_CHECK(s && s->home);
    s->n_blocks = 0;
    for (uint32_t t = 0; t < s->home->n_tables; t++)
        add_blocks(s, t, 0, s->home->tables[t].n_keys);
}

static uint32_t join_block(const struct fr_graph *graph, size_t index, size_t worker, bool checks)
{
    const struct row_ranks *s = graph->row_ranks;
    const struct row_block *block = &s->blocks[index];
    struct fr_row_join call = s->joins[block->table];
    call.begin = block->begin;
    call.end = block->end;
    call.scratch = graph->scratch + worker * graph->scratch_floats;
    call.checks = checks;
    return graph->ops->join_spans(&call);
}

static void check_block(void *context, size_t index, size_t worker)
{
    const struct fr_graph *graph = context;
    uint32_t bits = join_block(graph, index, worker, true);
    graph->worker_bits[worker] = bits > graph->worker_bits[worker] ? bits : graph->worker_bits[worker];
}

uint32_t fr_graph_row_bits(struct fr_graph *graph)
{
    uint32_t bits = 0;
    memset(graph->worker_bits, 0, graph->workers * sizeof(*graph->worker_bits));
    list_rows(graph);
    fr_graph_run_tasks(graph, graph->row_ranks->n_blocks, check_block, graph);
    for (uint32_t w = 0; w < graph->workers; w++)
        bits = graph->worker_bits[w] > bits ? graph->worker_bits[w] : bits;
    return bits;
}

static void step_block(void *context, size_t index, size_t worker)
{
    (void)join_block(context, index, worker, false);
}

void fr_graph_step_home_rows(struct fr_graph *graph)
{
    list_rows(graph);
    fr_graph_run_tasks(graph, graph->row_ranks->n_blocks, step_block, graph);
    graph->row_ranks->home = NULL;
}
