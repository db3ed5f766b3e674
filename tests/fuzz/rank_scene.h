/* A small job for the fuzz target of messages between ranks: three ranks with five lanes and
 * domains train some batches, and the messages of the last batch are kept, as the product's own
 * writers made them. The target replaces one message from rank SCENE_FROM to rank SCENE_TO; seeds
 * are these messages. Every run makes the same bytes. */
#ifndef FR_FUZZ_RANK_SCENE_H
#define FR_FUZZ_RANK_SCENE_H

#include "../unit/graph/lanes_world.h"

#include "../../trainer/rank_samples.h"
#include "../../trainer/roll_call.h"
#include "eviction/eviction.h"
#include "graph/ranks.h"
#include "store/ranks.h"

/* The first byte of an input: what the rest is. */
#define RANK_MESSAGES(MESSAGE)                                                                                         \
    MESSAGE(KEYS, keys), MESSAGE(ROWS, rows), MESSAGE(SUMS, sums), MESSAGE(ROW_SUMS, row_sums),                        \
        MESSAGE(SAMPLES, samples), MESSAGE(TIMES, times), MESSAGE(ROLLS, rolls)
#define RANK_MESSAGE(name, text) MESSAGE_##name
#define RANK_MESSAGE_TEXT(name, text) #text
enum rank_message { RANK_MESSAGES(RANK_MESSAGE), RANK_MESSAGE_KINDS };

enum {
    SCENE_RANKS = 3,
    SCENE_LANES = 5, /* and domains: rank 1 has two spans of lanes, the others have one */
    SCENE_TABLES = 3,
    SCENE_SAMPLES = 30,
    SCENE_BATCHES = 3,
    SCENE_IDS = 40,
    SCENE_FROM = 1, /* there is a rank before it, and one after it */
    SCENE_TO = 2,
};

static const char scene_text[] =
    "version: 1\n"
    "model: test\n"
    "state_dir: nowhere\n"
    "ingest: {brokers: 'localhost:9092', topic: t}\n"
    "tables:\n"
    "  word: {dim: 1, optimizer: {ftrl: {lr: 0.05}}}\n"
    "  user: {dim: 8, optimizer: {adagrad: {lr: 0.05}}}\n"
    "  item:\n"
    "    parts: {w: {dim: 1, optimizer: {ftrl: {lr: 0.05}}}, v: {dim: 3, optimizer: {adam: {lr: 0.05}}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  item_id: {table: item}\n"
    "  words: {table: word}\n"
    "  history: {table: item, kind: sequence}\n"
    "  clicks: {table: item, kind: sequence}\n"
    "  price: {kind: dense, dim: 2}\n"
    "  age: {kind: dense, dim: 2, transform: standardize}\n"
    "labels: {click: {}, buy: {}}\n"
    "metrics: {gauc_by: user_id}\n"
    "network:\n"
    "  optimizer: {adam: {lr: 0.01, clip_norm: 0.05}}\n"
    "  clip_global_norm: 0.2\n"
    "  layers:\n"
    "    - {name: g, gru: [history.v, clicks.v], units: 4}\n"
    "    - {name: l, last: g}\n"
    "    - {name: h, mlp: [user_id, item_id.v, l, price, age], units: [4], activation: dice}\n"
    "    - {name: z, dense: [h, price], units: 1}\n"
    "    - {name: wide, sum: [item_id.w, words]}\n"
    "    - {name: out, add: [z, wide]}\n"
    "    - {name: other, dense: [h, user_id], units: 1}\n"
    "tasks:\n"
    "  - {name: click, label: click, logit: out}\n"
    "  - {name: pair, label: click, logit: other, loss: pairwise, weight: 0.7}\n"
    "  - {name: buy, label: buy, logit: other, loss: mse, weight: 0.3}\n"
    "losses:\n"
    "  - {name: near, mse: [l, {stop_gradient: h}], weight: 0.4}\n";

struct scene_rank {
    struct fixture fx; /* its rows are not used */
    uint32_t number;
    struct fr_domains domains; /* and lanes */
    struct fr_gate_count gates[SCENE_TABLES];
    struct fr_store *store;
    struct fr_graph *graph;
    struct fr_rows *rows;
    int64_t t_ms[SCENE_SAMPLES];
    float *served;
    /* What it sent: for each home, for each source, to all. */
    struct fr_buffer keys[SCENE_RANKS], values[SCENE_RANKS], sums[SCENE_RANKS], row_sums[SCENE_RANKS];
    struct fr_buffer parameters, samples;
    struct fr_roll roll;
};

struct scene {
    struct fr_pool *pool;
    struct scene_rank ranks[SCENE_RANKS];
    /* The keys whose home rank SCENE_TO is. Their rows are in `floats`, and `first` is what they
     * have before the step. */
    struct fr_home_rows home;
    struct fr_home_table tables[SCENE_TABLES];
    float *floats, *first;
    size_t n_floats;
};

static inline struct fr_bytes scene_bytes(const struct fr_buffer *buffer)
{
    return (struct fr_bytes){buffer->data, buffer->size};
}

/* ---- ranks ---- */

static inline struct fr_graph *scene_graph(const struct scene_rank *rank)
{
    return fr_graph_new(&(struct fr_graph_options){.conf = &rank->fx.conf,
                                                   .ops = fr_ops_cpu(),
                                                   .lanes = rank->domains,
                                                   .rank = rank->number,
                                                   .n_ranks = SCENE_RANKS});
}

static inline void scene_open_rank(struct scene *scene, uint32_t number)
{
    struct scene_rank *rank = &scene->ranks[number];
    struct fr_store_table tables[SCENE_TABLES];
    fx_load(&rank->fx, SCENE_IDS, scene_text);
    rank->fx.conf.domains = SCENE_LANES;
    rank->fx.conf.ingest.batch_size = 16;
    rank->fx.conf.tasks[0].bias_from_labels = true;
    FR_CHECK(rank->fx.conf.n_tables == SCENE_TABLES);
    fx_make_rows(&rank->fx, 5);
    for (uint32_t t = 0; t < SCENE_TABLES; t++) {
        rank->gates[t].count = t == SCENE_TABLES - 1 ? 9 : 1; /* some keys have no row */
        tables[t] = (struct fr_store_table){
            .layout = rank->fx.layouts[t], .gate = fr_gate_count_policy(&rank->gates[t]), .pending_max = 1 << 20};
        memcpy(tables[t].name, rank->fx.conf.tables[t].name, sizeof(tables[t].name));
    }
    rank->number = number;
    rank->domains = fr_rank_domains(number, SCENE_RANKS, SCENE_LANES);
    rank->store = fr_store_new(&(struct fr_store_options){
        .n_tables = SCENE_TABLES, .tables = tables, .seed = 7, .pool = scene->pool, .conf = &rank->fx.conf});
    rank->rows = fr_store_rows_new(rank->store);
    rank->graph = scene_graph(rank);
    rank->roll = (struct fr_roll){.fingerprint = 5,
                                  .call = 3,
                                  .epoch = 1,
                                  .batches = 2,
                                  .samples = 60,
                                  .watermark_ms = 1700000000000,
                                  .flags = FR_ROLL_STAGE | FR_ROLL_READY,
                                  .lockstep = 1};
}

/* The rank's samples of a batch of all ranks; ids become keys that are spread over domains. */
static inline void scene_make_batch(struct scene_rank *rank, uint64_t seed)
{
    struct fixture *fx = &rank->fx;
    fx_make_groups(fx, SCENE_SAMPLES, 3, 0x15, seed);
    fx_vary_roles(fx);
    struct fr_batch *batch = &fx->batch;
    batch->n_lanes = SCENE_LANES;
    batch->lane_begin = fr_alloc(SCENE_LANES, sizeof(*batch->lane_begin));
    for (uint32_t l = 0; l < SCENE_LANES; l++)
        batch->lane_begin[l] = l * batch->n_groups / SCENE_LANES;
    lx_order_rows(fx);
    lx_keep_lanes(fx, rank->domains);
    for (uint32_t s = 0; s < batch->n_slots; s++)
        for (uint32_t i = 0; batch->columns[s].keys && i < fx_ids(fx, s); i++)
            batch->columns[s].keys[i] = fr_fmix64(batch->columns[s].keys[i] + 1);
    free(rank->served);
    rank->served = fr_alloc((size_t)batch->n_tasks * batch->capacity_samples, sizeof(float));
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        rank->t_ms[i] = 1700000000000 + 1000 * (int64_t)i;
        for (uint32_t t = 0; t < batch->n_tasks; t++)
            rank->served[t * batch->capacity_samples + i] = i % 3 ? 0.25f : NAN;
    }
    batch->t_ms = rank->t_ms;
    batch->served = rank->served;
}

/* ---- messages ---- */

static inline void scene_plan(struct scene *scene, int64_t watermark_ms)
{
    struct fr_err err = {0};
    struct fr_bytes in[SCENE_RANKS];
    for (struct scene_rank *rank = scene->ranks; rank < scene->ranks + SCENE_RANKS; rank++) {
        fr_store_gather(rank->store, &rank->fx.batch, rank->rows);
        for (uint32_t h = 0; h < SCENE_RANKS; h++) {
            fr_buffer_clear(&rank->keys[h]);
            fr_store_put_keys(rank->store, scene->ranks[h].domains, &rank->keys[h]);
        }
    }
    for (uint32_t h = 0; h < SCENE_RANKS; h++) {
        struct scene_rank *home = &scene->ranks[h];
        for (uint32_t r = 0; r < SCENE_RANKS; r++)
            in[r] = scene_bytes(&scene->ranks[r].keys[h]);
        FR_CHECK(fr_store_resolve(home->store, home->domains, in, SCENE_RANKS, watermark_ms, &err) == FR_OK);
        for (uint32_t r = 0; r < SCENE_RANKS; r++) {
            fr_buffer_clear(&home->values[r]);
            fr_store_put_rows(home->store, r, &home->values[r]);
        }
    }
    for (struct scene_rank *rank = scene->ranks; rank < scene->ranks + SCENE_RANKS; rank++)
        for (uint32_t h = 0; h < SCENE_RANKS; h++)
            FR_CHECK(fr_store_take_rows(rank->store, scene->ranks[h].domains,
                                        scene_bytes(&scene->ranks[h].values[rank->number]), (struct fr_bytes){0},
                                        rank->rows, &err) == FR_OK);
}

/* The passes of a rank over its samples, and its sums. */
static inline void scene_sum(const struct scene_rank *rank, struct fr_graph *graph)
{
    if (rank->fx.batch.n_samples > 0)
        fr_graph_forward(graph, &rank->fx.batch, rank->rows);
    fr_graph_sum(graph, &rank->fx.batch, rank->rows);
}

static inline void scene_put_row_sums(const struct scene *scene, const struct scene_rank *rank, struct fr_graph *graph,
                                      uint32_t home, struct fr_buffer *out)
{
    struct fr_unique_range ranges[SCENE_TABLES];
    fr_store_sent_ranges(rank->store, scene->ranks[home].domains, ranges);
    fr_graph_put_row_sums(graph, &rank->fx.batch, rank->rows, ranges, out);
}

static inline void scene_put_sums(struct scene *scene, struct scene_rank *rank)
{
    const float *scores[FR_TASKS_MAX];
    scene_sum(rank, rank->graph);
    for (uint32_t h = 0; h < SCENE_RANKS; h++) {
        fr_buffer_clear(&rank->sums[h]);
        fr_graph_put_sums(rank->graph, h, &rank->sums[h]);
        fr_buffer_clear(&rank->row_sums[h]);
        scene_put_row_sums(scene, rank, rank->graph, h, &rank->row_sums[h]);
    }
    for (uint32_t t = 0; t < rank->fx.conf.n_tasks; t++)
        scores[t] = fr_graph_logits(rank->graph, t);
    fr_buffer_clear(&rank->samples);
    fr_rank_samples_put(&rank->fx.conf, &rank->fx.batch, scores, &rank->samples);
}

static inline void scene_step(struct scene *scene)
{
    struct fr_err err = {0};
    struct fr_graph_join join;
    struct fr_bytes in[SCENE_RANKS];
    for (uint32_t h = 0; h < SCENE_RANKS; h++) {
        struct scene_rank *rank = &scene->ranks[h];
        for (uint32_t r = 0; r < SCENE_RANKS; r++)
            in[r] = scene_bytes(&scene->ranks[r].sums[h]);
        FR_CHECK(fr_graph_join_sums(rank->graph, in, &join, &err) == FR_OK && join.steps && !join.refused);
        for (uint32_t r = 0; r < SCENE_RANKS; r++)
            in[r] = scene_bytes(&scene->ranks[r].row_sums[h]);
        FR_CHECK(fr_graph_read_row_sums(rank->graph, fr_store_home_rows(rank->store), in, &err) == FR_OK);
        fr_graph_step(rank->graph);
        fr_buffer_clear(&rank->parameters);
        fr_graph_put_values(rank->graph, &rank->parameters);
    }
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        in[r] = scene_bytes(&scene->ranks[r].parameters);
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        FR_CHECK(fr_graph_take_values(scene->ranks[r].graph, in, &err) == FR_OK);
}

/* Keeps a copy of the home's list, which stays when the plan is undone. */
static inline void scene_keep_home(struct scene *scene)
{
    struct scene_rank *rank = &scene->ranks[SCENE_TO];
    const struct fr_home_rows *home = fr_store_home_rows(rank->store);
    scene->home = (struct fr_home_rows){.n_ranks = SCENE_RANKS, .n_tables = SCENE_TABLES, .tables = scene->tables};
    for (uint32_t t = 0; t < SCENE_TABLES; t++)
        scene->n_floats += (size_t)home->tables[t].n_keys * rank->fx.layouts[t].row_floats;
    float *floats = scene->floats = fr_alloc(scene->n_floats, sizeof(float));
    for (uint32_t t = 0; t < SCENE_TABLES; t++) {
        const struct fr_home_table *from = &home->tables[t];
        struct fr_home_table *to = &scene->tables[t];
        size_t row_floats = rank->fx.layouts[t].row_floats;
        *to = (struct fr_home_table){.n_keys = from->n_keys};
        to->rows = fr_alloc(from->n_keys, sizeof(*to->rows));
        to->n_sent = fr_alloc(SCENE_RANKS, sizeof(*to->n_sent));
        to->merged = fr_alloc(SCENE_RANKS, sizeof(*to->merged));
        for (uint32_t k = 0; k < from->n_keys; k++, floats += row_floats)
            if (from->rows[k]) {
                to->rows[k] = floats;
                memcpy(floats, from->rows[k], row_floats * sizeof(float));
            }
        for (uint32_t r = 0; r < SCENE_RANKS; r++) {
            to->n_sent[r] = from->n_sent[r];
            to->merged[r] = fr_alloc(from->n_sent[r], sizeof(**to->merged));
            memcpy(to->merged[r], from->merged[r], from->n_sent[r] * sizeof(**to->merged));
        }
    }
    scene->first = fr_alloc(scene->n_floats, sizeof(float));
    memcpy(scene->first, scene->floats, scene->n_floats * sizeof(float));
}

/* The last plan is undone, so that the target can resolve other keys. */
static inline struct scene *scene_new(void)
{
    struct scene *scene = fr_alloc(1, sizeof(*scene));
    scene->pool = fr_pool_new(1);
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        scene_open_rank(scene, r);
    for (uint32_t b = 1; b <= SCENE_BATCHES; b++) {
        for (uint32_t r = 0; r < SCENE_RANKS; r++)
            scene_make_batch(&scene->ranks[r], b);
        scene_plan(scene, b);
        for (uint32_t r = 0; r < SCENE_RANKS; r++)
            scene_put_sums(scene, &scene->ranks[r]);
        if (b < SCENE_BATCHES)
            scene_step(scene);
    }
    scene_keep_home(scene);
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        fr_store_undo(scene->ranks[r].store);
    return scene;
}

#endif
