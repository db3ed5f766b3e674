/* What epochs of two ranks announce (trainer/announce.c): the same bytes, with the positions of
 * both, whatever their clocks say. */
#include "rank_job.h"

#include "../../../trainer/trainer_private.h"

enum { EPOCH_MS = 600000, DENSE_MS = 3600000 };

static const char text[] =
    "version: 1\n"
    "model: unit\n"
    "state_dir: /nonexistent\n"
    "scale: {domains: 2}\n"
    "epoch: 10m\n"
    "heartbeat: 10m\n"
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 32}\n"
    "tables: {user: {dim: 4, admit: {count: 2}, optimizer: {adagrad: {lr: 0.1}}}}\n"
    "slots: {user_id: {table: user}, price: {kind: dense, dim: 1}}\n"
    "labels: {click: {}}\n"
    "network: {layers: [{name: out, dense: [user_id, price], units: 1}], optimizer: {adam: {lr: 0.01}}}\n"
    "tasks: [{name: click, label: click, logit: out}]\n"
    "export: {topic: d, dense_every: 1h}\n";

static struct fr_announced_offset of_rank[RANKS][2];

static uint32_t list_first(void *self, struct fr_announced_offset **offsets)
{
    (void)self;
    *offsets = of_rank[0];
    return 2;
}

static uint32_t list_second(void *self, struct fr_announced_offset **offsets)
{
    (void)self;
    *offsets = of_rank[1];
    return 2;
}

static void name_first(void *self, struct fr_announced_snapshot *out)
{
    (void)self;
    snprintf(out->name, sizeof(out->name), "first");
}

static void name_second(void *self, struct fr_announced_snapshot *out)
{
    (void)self;
    snprintf(out->name, sizeof(out->name), "second");
}

static void open_job(struct job *job)
{
    memset(of_rank, 0, sizeof(of_rank));
    of_rank[0][0] = (struct fr_announced_offset){"clicks", 2, 20};
    of_rank[0][1] = (struct fr_announced_offset){"views", 0, 7};
    of_rank[1][0] = (struct fr_announced_offset){"clicks", 0, 9};
    of_rank[1][1] = (struct fr_announced_offset){"file:/a", 0, 3};
    job_open(job, text);
    struct fr_trainer_stream *first = &job->ranks[0].run.trainer->options.stream;
    struct fr_trainer_stream *second = &job->ranks[1].run.trainer->options.stream;
    first->offsets = list_first;
    first->snapshot = name_first;
    second->offsets = list_second;
    second->snapshot = name_second;
}

static void train(struct job *job)
{
    for (uint32_t r = 0; r < RANKS; r++)
        assert_true(fr_ring_try_push(job->ranks[r].run.full, make_lane(job, r, job->ranks[r].run.applied)));
    assert_int_equal(step(job, 0), FR_OK);
}

static const struct fr_buffer *section_of(const struct fr_stage *stage, const char *name)
{
    for (size_t i = 0; i < stage->n_sections; i++)
        if (strcmp(stage->sections[i].name, name) == 0)
            return &stage->sections[i].bytes;
    return NULL;
}

/* What the epoch that both ranks have cut announces, which is the same on both, and whether each
 * has staged the parameters that it publishes. */
static void cut(struct job *job, struct fr_arena *arena, struct fr_announcement *out)
{
    void *stages[RANKS];
    assert_int_equal(step(job, EPOCH_MS), FR_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(fr_ring_pop(job->ranks[r].run.cut_stages, &stages[r], 0), FR_OK);
    const struct fr_buffer *first = section_of(stages[0], "announce"), *second = section_of(stages[1], "announce");
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(first->size, second->size);
    assert_memory_equal(first->data, second->data, first->size);
    assert_int_equal(fr_announcement_parse(first->data, first->size, arena, out), FR_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        /* an epoch has the changes of a parameter, and those not published yet when it publishes */
        const struct fr_cuts *cuts = &job->ranks[r].run.trainer->cuts;
        assert_int_equal(cuts->published[0] == cuts->journaled[0], out->publish_dense);
        assert_true(fr_ring_try_push(job->ranks[r].run.free_stages, stages[r]));
    }
}

FR_CASE(all_ranks_announce_the_positions_of_all_and_the_time_and_snapshot_of_rank_0)
{
    struct job job;
    struct fr_arena arena = {0};
    struct fr_announcement announced;
    open_job(&job);
    fr_clock_fake_advance_ms(&job.ranks[1].run.clock, 12345);
    train(&job);
    cut(&job, &arena, &announced);
    assert_int_equal(announced.samples, 2 * BATCH);
    assert_int_equal(announced.wall_ms, fr_wall_ms(&job.ranks[0].run.clock.clock));
    assert_int_not_equal(announced.wall_ms, fr_wall_ms(&job.ranks[1].run.clock.clock));
    assert_string_equal(announced.snapshot.name, "first");
    assert_int_equal(announced.n_offsets, 4);
    const struct fr_announced_offset expected[] = {
        {"clicks", 0, 9}, {"clicks", 2, 20}, {"file:/a", 0, 3}, {"views", 0, 7}};
    for (uint32_t i = 0; i < announced.n_offsets; i++) {
        assert_string_equal(announced.offsets[i].topic, expected[i].topic);
        assert_int_equal(announced.offsets[i].partition, expected[i].partition);
        assert_int_equal(announced.offsets[i].next_offset, expected[i].next_offset);
    }
    fr_arena_release(&arena);
    job_close(&job);
}

FR_CASE(all_ranks_publish_parameters_when_they_are_due_on_rank_0)
{
    struct job job;
    struct fr_arena arena = {0};
    struct fr_announcement announced;
    open_job(&job);
    train(&job);
    cut(&job, &arena, &announced);
    assert_true(announced.publish_model && announced.publish_dense);
    train(&job);
    fr_clock_fake_advance_ms(&job.ranks[1].run.clock, DENSE_MS);
    cut(&job, &arena, &announced);
    assert_false(announced.publish_model || announced.publish_dense);
    train(&job);
    fr_clock_fake_advance_ms(&job.ranks[0].run.clock, DENSE_MS);
    cut(&job, &arena, &announced);
    assert_false(announced.publish_model);
    assert_true(announced.publish_dense);
    fr_arena_release(&arena);
    job_close(&job);
}

FR_CASE(a_partition_with_a_position_on_two_ranks_ends_the_job)
{
    struct job job;
    open_job(&job);
    of_rank[1][1] = of_rank[0][1];
    train(&job);
    try_step(&job, EPOCH_MS);
    try_step(&job, 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(job.ranks[r].status, FR_E_MISMATCH);
        assert_non_null(strstr(job.ranks[r].err.text, "two ranks have a position in views/0: "));
    }
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(all_ranks_announce_the_positions_of_all_and_the_time_and_snapshot_of_rank_0),
        cmocka_unit_test(all_ranks_publish_parameters_when_they_are_due_on_rank_0),
        cmocka_unit_test(a_partition_with_a_position_on_two_ranks_ends_the_job),
    };
    return cmocka_run_group_tests_name("announce", cases, NULL, NULL);
}
