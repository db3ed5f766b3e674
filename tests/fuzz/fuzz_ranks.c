/* Fuzz target of the messages between ranks: what one of three ranks (rank_scene.h) sends is any
 * bytes, and the others send what the product writes. A message is refused as FR_E_CORRUPT or
 * FR_E_LIMIT, or what follows it is done with it, as the trainer does it (trainer/rank_rows.c,
 * measure.c, agree.c): numbers may be any.
 *
 * The first byte says which message the rest is. No input leaves anything behind that the next one
 * depends on: plans are undone, and what was accepted goes to a graph, metrics or an exchange of
 * its own. Seeds are the messages of our own writers, whole and cut (seeds.c). */
#include "rank_scene.h"

#include "../../trainer/trainer_private.h"
#include "base/math.h"
#include "exchange/threads.h"
#include "fuzz.h"
#include "metrics/task.h"

enum { WATERMARK_MS = SCENE_BATCHES };

static struct scene *scene;

static bool accepted(enum fr_status status)
{
    FR_CHECK(status == FR_OK || status == FR_E_CORRUPT || status == FR_E_LIMIT);
    return status == FR_OK;
}

/* ---- the plan ---- */

static void count(const struct fr_store *store, struct fr_store_counts *counts)
{
    struct fr_store_table_stats stats;
    for (uint32_t t = 0; t < SCENE_TABLES; t++) {
        fr_store_stats(store, t, &stats);
        counts[t] = stats.counts;
    }
}

/* Each key that the rank sent has the row that the store finds for it. The keys follow the counts
 * of all places. */
static void check_home(const struct scene_rank *home, struct fr_bytes message, uint32_t rank)
{
    const struct fr_home_rows *rows = fr_store_home_rows(home->store);
    size_t sent = 0;
    for (uint32_t t = 0; t < SCENE_TABLES; t++)
        sent += rows->tables[t].n_sent[rank];
    size_t head = 4 * sizeof(uint32_t), places = fr_load_u32(message.data + sizeof(uint32_t));
    const uint8_t *at = message.data + head + SCENE_TABLES * places * sizeof(uint32_t);
    FR_CHECK(at + sent * sizeof(struct fr_key_wire) <= message.data + message.size);
    for (uint32_t t = 0; t < SCENE_TABLES; t++)
        for (uint32_t i = 0; i < rows->tables[t].n_sent[rank]; i++, at += sizeof(struct fr_key_wire)) {
            uint64_t key = fr_load_u64(at);
            uint32_t merged = rows->tables[t].merged[rank][i];
            FR_CHECK(merged < rows->tables[t].n_keys);
            FR_CHECK(rows->tables[t].rows[merged] == fr_store_row_of(home->store, t, key));
        }
}

static void keys(struct fr_bytes forged)
{
    struct scene_rank *home = &scene->ranks[SCENE_TO];
    struct fr_bytes in[SCENE_RANKS];
    struct fr_store_counts before[SCENE_TABLES], after[SCENE_TABLES];
    struct fr_err err = {0};
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        in[r] = r == SCENE_FROM ? forged : scene_bytes(&scene->ranks[r].keys[SCENE_TO]);
    count(home->store, before);
    if (accepted(fr_store_resolve(home->store, home->domains, in, SCENE_RANKS, WATERMARK_MS, &err))) {
        for (uint32_t r = 0; r < SCENE_RANKS; r++) {
            struct fr_buffer out = {0};
            check_home(home, in[r], r);
            fr_store_put_rows(home->store, r, &out);
            fuzz_read(out.data, out.size);
            fr_buffer_release(&out);
        }
        fr_store_undo(home->store);
    }
    count(home->store, after);
    FR_CHECK(memcmp(before, after, sizeof(before)) == 0);
}

static void rows(struct fr_bytes forged)
{
    struct scene_rank *rank = &scene->ranks[SCENE_TO];
    struct fr_domains domains = scene->ranks[SCENE_FROM].domains;
    struct fr_err err = {0};
    if (accepted(fr_store_take_rows(rank->store, domains, forged, (struct fr_bytes){0}, rank->rows, &err))) {
        struct fr_graph *graph = scene_graph(rank);
        struct fr_buffer out = {0};
        scene_sum(rank, graph);
        fr_graph_put_sums(graph, SCENE_FROM, &out);
        fr_buffer_release(&out);
        scene_put_row_sums(scene, rank, graph, SCENE_FROM, &out);
        fr_buffer_release(&out);
        fr_graph_free(graph);
    }
    FR_CHECK(fr_store_take_rows(rank->store, domains, scene_bytes(&scene->ranks[SCENE_FROM].values[SCENE_TO]),
                                (struct fr_bytes){0}, rank->rows, &err) == FR_OK);
}

/* ---- the step ---- */

static void examine(struct fr_graph *graph)
{
    const struct scene_rank *rank = &scene->ranks[SCENE_TO];
    struct fr_suspect suspects[SCENE_SAMPLES];
    for (enum fr_suspect_look look = 0; look < FR_SUSPECT_LOOKS; look++)
        (void)fr_graph_suspects(graph, &rank->fx.batch, rank->rows, look, suspects);
}

static void step_rows(struct fr_graph *graph, const struct fr_graph_join *join, const struct fr_bytes *in)
{
    struct fr_err err = {0};
    memcpy(scene->floats, scene->first, scene->n_floats * sizeof(float));
    FR_CHECK(fr_graph_read_row_sums(graph, &scene->home, in, &err) == FR_OK);
    uint32_t bits = fr_graph_row_bits(graph);
    if (join->rows_bounded || bits <= fr_f32_bits(FR_GRADIENT_MAX))
        fr_graph_step(graph);
}

/* A step in which either message may be forged; NULL: it is not. */
static void step(const struct fr_bytes *sums, const struct fr_bytes *row_sums)
{
    const struct scene_rank *rank = &scene->ranks[SCENE_TO];
    struct fr_bytes in[SCENE_RANKS], in_rows[SCENE_RANKS];
    struct fr_graph_join join = {0};
    struct fr_err err = {0};
    for (uint32_t r = 0; r < SCENE_RANKS; r++) {
        in[r] = r == SCENE_FROM && sums ? *sums : scene_bytes(&scene->ranks[r].sums[SCENE_TO]);
        in_rows[r] = r == SCENE_FROM && row_sums ? *row_sums : scene_bytes(&scene->ranks[r].row_sums[SCENE_TO]);
    }
    /* most inputs end here, without the cost of a graph */
    if (!accepted(fr_graph_join_sums(rank->graph, in, &join, &err)) ||
        !accepted(fr_graph_read_row_sums(rank->graph, &scene->home, in_rows, &err)))
        return;
    struct fr_graph *graph = scene_graph(rank);
    scene_sum(rank, graph);
    FR_CHECK(fr_graph_join_sums(graph, in, &join, &err) == FR_OK);
    if (join.refused || (!join.bounded && join.gradient_bits > fr_f32_bits(FR_GRADIENT_MAX)))
        examine(graph);
    else if (join.steps)
        step_rows(graph, &join, in_rows);
    fr_graph_free(graph);
}

static void sums(struct fr_bytes forged)
{
    step(&forged, NULL);
}

static void row_sums(struct fr_bytes forged)
{
    step(NULL, &forged);
}

/* ---- metrics ---- */

static void measure(const struct fr_conf *conf, const struct fr_rank_samples *samples, uint32_t task)
{
    static struct fr_task_result result;
    struct fr_task_metrics_options options = {.n_half_lives = 1,
                                              .half_life_ms = {600000},
                                              .gauc_groups_max = 20,
                                              .regression =
                                                  fr_loss_prediction(conf->tasks[task].loss) == FR_PREDICTS_VALUE};
    struct fr_task_metrics *metrics = fr_task_metrics_new(&options);
    struct fr_task_samples of = fr_rank_samples_of(samples, task);
    of.watermark_ms = 1700000005000;
    fr_task_metrics_add(metrics, &of);
    fr_task_metrics_result(metrics, &result);
    fr_task_metrics_free(metrics);
}

static void samples(struct fr_bytes forged)
{
    const struct fr_conf *conf = &scene->ranks[SCENE_TO].fx.conf;
    struct fr_rank_samples *all = fr_rank_samples_new(conf);
    struct fr_err err = {0};
    bool whole = true;
    fr_rank_samples_clear(all);
    for (uint32_t r = 0; r < SCENE_RANKS && whole; r++)
        whole = accepted(
            fr_rank_samples_take(all, r == SCENE_FROM ? forged : scene_bytes(&scene->ranks[r].samples), r, &err));
    for (uint32_t t = 0; t < conf->n_tasks && whole; t++)
        measure(conf, all, t);
    fr_rank_samples_free(all);
}

/* ---- what all ranks decide ---- */

/* All ranks are this thread, which sends for the others before it asks for the median. */
static void times(struct fr_bytes forged)
{
    static struct fr_trainer trainer;
    struct fr_exchange_group *group =
        fr_exchange_group_new(&(struct fr_exchange_group_options){.ranks = 2, .deadline_ns = UINT64_C(1000000000)});
    struct fr_bytes out[2] = {forged, forged};
    struct fr_err err = {0};
    trainer.ranks.n = 2;
    trainer.ranks.exchange = fr_exchange_group_rank(group, 0);
    trainer.ranks.failure.status = FR_OK;
    FR_CHECK(fr_exchange_send(fr_exchange_group_rank(group, 1), FR_CHANNEL_VALUES, out, &err) == FR_OK);
    int64_t median_ms = fr_trainer_median_time(&trainer, &scene->ranks[SCENE_TO].fx.batch);
    (void)accepted(trainer.ranks.failure.status);
    FR_CHECK(median_ms > 0); /* the watermark is computed from it without overflow */
    fr_exchange_group_free(group);
}

static void rolls(struct fr_bytes forged)
{
    struct fr_roll of[SCENE_RANKS] = {{0}};
    struct fr_err err = {0};
    if (forged.size > 0)
        memcpy(of, forged.data, forged.size < sizeof(of) ? forged.size : sizeof(of));
    enum fr_status status = fr_roll_check(of, SCENE_RANKS, &err);
    FR_CHECK(status == FR_OK || status == FR_E_MISMATCH);
    struct fr_decision decision = fr_roll_decide(of, SCENE_RANKS);
    FR_CHECK(decision.next <= FR_NEXT_END);
    FR_CHECK(decision.next != FR_NEXT_WAIT || decision.rank < SCENE_RANKS || decision.rank == UINT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
#define RANK_MESSAGE_READER(name, text) text
    static void (*const readers[])(struct fr_bytes forged) = {RANK_MESSAGES(RANK_MESSAGE_READER)};
    if (!scene)
        scene = scene_new();
    if (size == 0)
        return 0;
    uint8_t *message = fuzz_copy(data + 1, size - 1, 0);
    readers[data[0] % RANK_MESSAGE_KINDS]((struct fr_bytes){message, size - 1});
    free(message);
    return 0;
}
