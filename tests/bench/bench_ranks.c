/* `freshet-bench ranks`: a job of two ranks beside one rank with as many workers, on the same
 * batches.
 *
 * Each rank is a trainer (trainer/trainer.h) in a thread of this process, with its share of
 * --threads; the ranks reach each other by the threads back end of the exchange. The one rank has
 * the same configuration, two domains included, so both sides compute the same numbers. Batches are
 * decoded before the clock starts, and no epoch is cut while it runs: there is no Kafka and no disk
 * here. The sides take turns, so other work on the machine slows both down. The first round of each
 * side admits all rows and is not measured.
 *
 * At the end both sides are drained. Their last epochs must have the same parameters, metrics and
 * counters, bit for bit, and the same last loss; otherwise the benchmark fails.
 *
 * Thread: the caller's, one for each rank during a round, the pools'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/ranks.h"
#include "base/thread.h"
#include "bench.h"
#include "durable/epoch.h"
#include "eviction/eviction.h"
#include "exchange/threads.h"
#include "tool.h"
#include "trainer/trainer.h"

enum { RANKS = 2, BATCHES = 64, PAIRS = 25 };
/* What a round is for; in the last one, ranks run until their last epoch is cut. */
enum round { ADMITS, MEASURED, DRAINS };
/* The longest wait for a rank; only a rank that hangs reaches it. */
#define DEADLINE_NS 60000000000ULL

struct rank {
    struct side *side;
    struct fr_exchange *exchange; /* NULL: the side has one rank */
    struct fr_domains lanes;
    struct fr_pool *pool;
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stage; /* of the last epoch */
    struct fr_trainer *trainer;
    pthread_t thread;
    uint32_t n_applied; /* batches of this round */
    enum fr_status status;
    struct fr_err err;
    /* What the measured rounds took: processor time of the rank's thread, waits for other ranks. */
    uint64_t cpu_ns, waited_ns[FR_CHANNELS];
};

/* One rank, or the ranks of a job. */
struct side {
    uint32_t n_ranks;
    struct fr_exchange_group *group; /* NULL: one rank */
    struct rank ranks[RANKS];
    enum round round;
    double rates[PAIRS];    /* samples/s of each measured round */
    double process_seconds; /* processor time of the measured rounds, pools included */
};

struct ranks_bench {
    struct fr_conf *conf;
    struct fr_gate_count gate;
    struct fr_table_policies policies[FR_TABLES_MAX];
    struct fr_batch *batches[BATCHES];
    uint64_t n_samples; /* of all batches */
    struct side one, two;
};

/* ---- what a trainer asks for ---- */

static void count_batch(void *self, const struct fr_batch *batch)
{
    (void)batch;
    ((struct rank *)self)->n_applied++;
}

static void stage_nothing(void *self, struct fr_buffer *section)
{
    (void)self, (void)section;
}

static uint32_t no_offsets(void *self, struct fr_announced_offset **offsets)
{
    (void)self;
    *offsets = NULL;
    return 0;
}

/* ---- open and close ---- */

/* Two domains; nothing that would cut an epoch or look at one store only. */
static enum fr_status load_conf(const struct fr_bench *bench, struct fr_conf **conf)
{
    const char *sets[] = {"scale.domains=2",     "epoch=1d",           "heartbeat=1d",     "epoch_bytes_max=1TiB",
                          "insight.interval=0s", "memory_limit=64TiB", "unfolded_max=1TiB"};
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {.path = bench->config, .sets = sets, .n_sets = FR_ARRAY_LEN(sets)};
    enum fr_status status = fr_conf_load(&options, conf, &problems);
    if (status != FR_OK)
        fprintf(stderr, "freshet-bench ranks: %.*s\n", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    return status;
}

static void open_rank(const struct ranks_bench *b, struct rank *rank, uint32_t workers)
{
    rank->pool = fr_pool_new(workers);
    rank->full = fr_ring_new(BATCHES);
    rank->empty = fr_ring_new(BATCHES);
    rank->cut_stages = fr_ring_new(1);
    rank->free_stages = fr_ring_new(1);
    fr_stage_init(&rank->stage);
    for (uint32_t i = 0; i < BATCHES; i++)
        FR_CHECK(fr_ring_try_push(rank->empty, fr_batch_new(b->conf)));
    rank->trainer = fr_trainer_new(&(struct fr_trainer_options){
        .conf = b->conf,
        .clock = fr_clock_system(),
        .pool = rank->pool,
        .policies = b->policies,
        .stream = {.self = rank, .applied = count_batch, .stage = stage_nothing, .offsets = no_offsets},
        .full = rank->full,
        .empty = rank->empty,
        .cut_stages = rank->cut_stages,
        .free_stages = rank->free_stages,
        .exchange = rank->exchange});
}

static void open_side(const struct ranks_bench *b, struct side *side, uint32_t n_ranks, uint32_t workers)
{
    side->n_ranks = n_ranks;
    if (n_ranks > 1)
        side->group =
            fr_exchange_group_new(&(struct fr_exchange_group_options){.ranks = n_ranks, .deadline_ns = DEADLINE_NS});
    for (uint32_t r = 0; r < n_ranks; r++) {
        struct rank *rank = &side->ranks[r];
        rank->side = side;
        rank->exchange = side->group ? fr_exchange_group_rank(side->group, r) : NULL;
        rank->lanes = fr_rank_domains(r, n_ranks, fr_conf_domains(b->conf));
        open_rank(b, rank, workers);
    }
}

static void free_ring(struct fr_ring *ring)
{
    void *batch;
    while (fr_ring_pop(ring, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_ring_free(ring);
}

static void close_side(struct side *side)
{
    for (uint32_t r = 0; r < side->n_ranks; r++) {
        struct rank *rank = &side->ranks[r];
        fr_trainer_free(rank->trainer);
        free_ring(rank->full);
        free_ring(rank->empty);
        fr_ring_free(rank->cut_stages);
        fr_ring_free(rank->free_stages);
        fr_stage_release(&rank->stage);
        fr_pool_free(rank->pool);
    }
    fr_exchange_group_free(side->group);
}

/* ---- a round ---- */

/* Gives a rank the samples of its lanes of every batch. */
static void fill_ring(const struct ranks_bench *b, const struct rank *rank)
{
    for (uint32_t i = 0; i < BATCHES; i++) {
        const struct fr_batch *from = b->batches[i];
        uint32_t first = fr_batch_lane_entry(from, false, rank->lanes.first);
        uint32_t end = fr_batch_lane_entry(from, false, rank->lanes.end);
        uint8_t *left_out = fr_alloc(from->n_samples, sizeof(*left_out));
        memset(left_out, 1, from->n_samples);
        memset(left_out + first, 0, end - first);
        void *batch = NULL;
        FR_CHECK(fr_ring_pop(rank->empty, &batch, 0) == FR_OK);
        fr_batch_select(from, left_out, batch);
        FR_CHECK(fr_ring_try_push(rank->full, batch));
        free(left_out);
    }
}

/* Adds the waits since the rank began, with sign 1, or subtracts them, with sign -1. */
static void add_waits(struct rank *rank, int sign)
{
    for (int c = 0; c < FR_CHANNELS && rank->exchange; c++)
        rank->waited_ns[c] += (uint64_t)sign * fr_exchange_waited_ns(rank->exchange, (enum fr_channel)c);
}

static void *rank_main(void *self)
{
    struct rank *rank = self;
    enum round round = rank->side->round;
    rank->n_applied = 0;
    if (round == MEASURED)
        add_waits(rank, -1);
    do
        rank->status = fr_trainer_step(rank->trainer, &rank->err);
    while (rank->status >= 0 && (round == DRAINS ? rank->status != FR_EOF : rank->n_applied < BATCHES));
    if (rank->status < 0 && rank->exchange)
        fr_exchange_stop(rank->exchange, FR_TOOL_FAILED);
    if (round == MEASURED) {
        add_waits(rank, 1);
        rank->cpu_ns += fr_clock_thread_ns();
    }
    return NULL;
}

/* Runs the ranks of a side to the end of the round. err: that of the first rank with an error. */
static enum fr_status run_side(struct side *side, enum round round, struct fr_err *err)
{
    const char *name = side->n_ranks > 1 ? "two_ranks" : "one_rank"; /* for profiles by thread */
    side->round = round;
    for (uint32_t r = 0; r < side->n_ranks; r++)
        FR_CHECK(fr_thread_start(&side->ranks[r].thread, name, rank_main, &side->ranks[r]));
    enum fr_status status = FR_OK;
    for (uint32_t r = 0; r < side->n_ranks; r++) {
        struct rank *rank = &side->ranks[r];
        pthread_join(rank->thread, NULL);
        if (rank->status < 0 && status == FR_OK) {
            status = rank->status;
            *err = rank->err;
        }
    }
    return status;
}

/* All batches once; returns the rate in samples/s, of wall time. */
static enum fr_status run_round(const struct ranks_bench *b, struct side *side, enum round round, double *rate,
                                struct fr_err *err)
{
    for (uint32_t r = 0; r < side->n_ranks; r++)
        fill_ring(b, &side->ranks[r]);
    double begin = fr_bench_now(), cpu = fr_bench_cpu_seconds();
    enum fr_status status = run_side(side, round, err);
    *rate = (double)b->n_samples / (fr_bench_now() - begin);
    if (round == MEASURED)
        side->process_seconds += fr_bench_cpu_seconds() - cpu;
    return status;
}

/* Cuts the last epoch of all ranks, which also publishes their last status. */
static enum fr_status drain(struct side *side, struct fr_err *err)
{
    for (uint32_t r = 0; r < side->n_ranks; r++) {
        FR_CHECK(fr_ring_try_push(side->ranks[r].free_stages, &side->ranks[r].stage));
        fr_trainer_stop(side->ranks[r].trainer);
    }
    return run_side(side, DRAINS, err);
}

static enum fr_status run_rounds(struct ranks_bench *b, struct fr_err *err)
{
    double admitting;
    enum fr_status status = run_round(b, &b->one, ADMITS, &admitting, err);
    if (status == FR_OK)
        status = run_round(b, &b->two, ADMITS, &admitting, err);
    for (uint32_t i = 0; i < PAIRS && status == FR_OK; i++) {
        status = run_round(b, &b->one, MEASURED, &b->one.rates[i], err);
        if (status == FR_OK)
            status = run_round(b, &b->two, MEASURED, &b->two.rates[i], err);
    }
    if (status == FR_OK)
        status = drain(&b->one, err);
    return status == FR_OK ? drain(&b->two, err) : status;
}

/* ---- results ---- */

static bool depends_on_numbers(const char *name)
{
    return strncmp(name, "dense", 5) == 0 || strncmp(name, "metrics", 7) == 0 || strcmp(name, FR_SECTION_TRAINER) == 0;
}

static const struct fr_stage_section *find_section(const struct fr_stage *stage, const char *name)
{
    for (size_t i = 0; i < stage->n_sections; i++)
        if (strcmp(stage->sections[i].name, name) == 0)
            return &stage->sections[i];
    return NULL;
}

static double last_loss(const struct rank *rank)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_get_status(rank->trainer, status);
    double loss = status->run.last_loss;
    free(status);
    return loss;
}

/* Whether a rank has the results of the one rank, bit for bit; if not, says which differs. */
static bool same_results(const struct rank *one, const struct rank *other)
{
    double losses[] = {last_loss(one), last_loss(other)};
    const char *differs = memcmp(&losses[0], &losses[1], sizeof(losses[0])) == 0 ? NULL : "the last loss";
    uint32_t n_compared = 0;
    for (size_t i = 0; i < one->stage.n_sections && !differs; i++) {
        const struct fr_stage_section *section = &one->stage.sections[i];
        if (!depends_on_numbers(section->name))
            continue;
        n_compared++;
        const struct fr_stage_section *copy = find_section(&other->stage, section->name);
        if (!copy || copy->bytes.size != section->bytes.size ||
            memcmp(copy->bytes.data, section->bytes.data, section->bytes.size) != 0)
            differs = section->name;
    }
    FR_CHECK(differs || n_compared > 0);
    if (differs)
        fprintf(stderr, "freshet-bench ranks: %s differs from that of one rank\n", differs);
    return !differs;
}

/* Microseconds for a sample of all ranks. The times by phase include the round that admits rows. */
static void report_rank(struct fr_bench *bench, const struct ranks_bench *b, const struct rank *rank)
{
    static const char *const waits[FR_CHANNELS] = {[FR_CHANNEL_KEYS] = "waited_keys_microseconds_per_sample",
                                                   [FR_CHANNEL_VALUES] = "waited_values_microseconds_per_sample",
                                                   [FR_CHANNEL_ROLL] = "waited_roll_call_microseconds_per_sample"};
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_get_status(rank->trainer, status);
    const struct fr_trainer_run *run = &status->run;
    double all = 1e3 * (double)b->n_samples * (PAIRS + 1), measured = 1e3 * (double)b->n_samples * PAIRS;
    fr_bench_begin(bench, "ranks_rank");
    fr_bench_number(bench, "ranks", rank->side->n_ranks);
    fr_bench_number(bench, "rank", rank->exchange ? fr_exchange_rank(rank->exchange) : 0);
    fr_bench_number(bench, "step_microseconds_per_sample", (double)run->step_ns / all);
    fr_bench_number(bench, "plan_microseconds_per_sample", (double)run->plan_ns / all);
    fr_bench_number(bench, "forward_microseconds_per_sample", (double)run->forward_ns / all);
    fr_bench_number(bench, "backward_microseconds_per_sample", (double)run->backward_ns / all);
    fr_bench_number(bench, "update_microseconds_per_sample", (double)run->update_ns / all);
    fr_bench_number(bench, "metrics_microseconds_per_sample", (double)run->metrics_ns / all);
    for (int c = 0; c < FR_CHANNELS && rank->exchange; c++)
        fr_bench_number(bench, waits[c], (double)rank->waited_ns[c] / measured);
    fr_bench_number(bench, "thread_cpu_microseconds_per_sample", (double)rank->cpu_ns / measured);
    fr_bench_end(bench);
    free(status);
}

static void report(struct fr_bench *bench, struct ranks_bench *b)
{
    double ratios[PAIRS], samples = (double)b->n_samples * PAIRS;
    for (uint32_t i = 0; i < PAIRS; i++)
        ratios[i] = b->two.rates[i] / b->one.rates[i];
    for (uint32_t r = 0; r < b->one.n_ranks; r++)
        report_rank(bench, b, &b->one.ranks[r]);
    for (uint32_t r = 0; r < b->two.n_ranks; r++)
        report_rank(bench, b, &b->two.ranks[r]);
    fr_bench_begin(bench, "ranks");
    fr_bench_text(bench, "model", b->conf->model);
    fr_bench_text(bench, "kernel", fr_trainer_kernel(b->one.ranks[0].trainer));
    fr_bench_number(bench, "workers_per_rank", (double)fr_pool_workers(b->two.ranks[0].pool));
    fr_bench_number(bench, "one_rank_samples_per_second", fr_bench_median(b->one.rates, PAIRS));
    fr_bench_number(bench, "two_ranks_samples_per_second", fr_bench_median(b->two.rates, PAIRS));
    fr_bench_number(bench, "one_rank_cpu_microseconds_per_sample", b->one.process_seconds * 1e6 / samples);
    fr_bench_number(bench, "two_ranks_cpu_microseconds_per_sample", b->two.process_seconds * 1e6 / samples);
    fr_bench_number(bench, "ratio", fr_bench_median(ratios, PAIRS)); /* sorts the ratios */
    fr_bench_number(bench, "ratio_least", ratios[0]);
    fr_bench_number(bench, "ratio_most", ratios[PAIRS - 1]);
    fr_bench_end(bench);
}

static int measure(struct fr_bench *bench, struct ranks_bench *b)
{
    struct fr_err err = {0};
    if (run_rounds(b, &err) != FR_OK)
        return fr_bench_fail("ranks", &err);
    for (uint32_t r = 0; r < b->two.n_ranks; r++)
        if (!same_results(&b->one.ranks[0], &b->two.ranks[r]))
            return FR_TOOL_FAILED;
    report(bench, b);
    return FR_TOOL_OK;
}

int fr_bench_ranks(struct fr_bench *bench)
{
    struct ranks_bench *b = fr_alloc(1, sizeof(*b));
    uint32_t workers = bench->threads > RANKS ? bench->threads / RANKS : 1;
    int result = load_conf(bench, &b->conf) == FR_OK ? FR_TOOL_OK : FR_TOOL_FAILED;
    if (result == FR_TOOL_OK) {
        fr_bench_progress("ranks: %s, %d batches of %u, %d pairs of rounds and one to warm up", b->conf->model, BATCHES,
                          b->conf->ingest.batch_size, PAIRS);
        b->gate = (struct fr_gate_count){.count = 1};
        for (uint32_t t = 0; t < b->conf->n_tables; t++)
            b->policies[t].gate = fr_gate_count_policy(&b->gate);
        result = fr_bench_fill_batches(bench, b->conf, b->batches, BATCHES);
        for (uint32_t i = 0; i < BATCHES; i++)
            b->n_samples += b->batches[i]->n_samples;
        open_side(b, &b->one, 1, workers * RANKS);
        open_side(b, &b->two, RANKS, workers);
    }
    if (result == FR_TOOL_OK)
        result = measure(bench, b);
    close_side(&b->one);
    close_side(&b->two);
    for (uint32_t i = 0; i < BATCHES; i++)
        fr_batch_free(b->batches[i]);
    fr_conf_free(b->conf);
    free(b);
    return result;
}
