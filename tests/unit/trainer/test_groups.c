/* The two forms of the same samples: groups with a shared slot train what single samples train. */
#include "trainer_fixture.h"

#include "../../../trainer/trainer_private.h"
#include "../store/store_find.h"

enum { GROUP = 4, ROUNDS = 60 };

/* Samples 4 g .. 4 g + 3 have the same users (none, one, or one twice); some only measure, some are
 * masked. */
static struct fr_batch *expanded_batch(const struct fr_conf *conf, uint64_t number)
{
    struct fr_batch *batch = make_batch(conf, number);
    struct fr_column *users = &batch->columns[0];
    fr_column_reserve_keys(users, 2 * (size_t)BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t group = (number * BATCH + i) / GROUP;
        users->begin[i + 1] = users->begin[i] + (uint32_t)(group % 5 == 0 ? 0 : group % 5 == 1 ? 2 : 1);
        for (uint32_t o = users->begin[i]; o < users->begin[i + 1]; o++)
            users->keys[o] = group * group % 29;
        uint64_t roll = (number * BATCH + i) * 7 % 10;
        if (roll < 2) {
            batch->role[i] = roll == 0 ? FR_ROLE_METRICS_ONLY : FR_ROLE_MASKED;
            batch->use[i] = FR_USE_METRICS;
        }
    }
    return batch;
}

static struct fr_batch *grouped_batch(const struct fr_conf *conf, uint64_t number)
{
    struct fr_batch *batch = expanded_batch(conf, number);
    struct fr_column *users = &batch->columns[0];
    users->shared = true;
    batch->n_groups = BATCH / GROUP;
    for (uint32_t i = 0; i < BATCH; i++)
        batch->group_of[i] = i / GROUP;
    uint32_t end = 0;
    for (uint32_t g = 0; g < batch->n_groups; g++) {
        uint32_t from = users->begin[GROUP * g], to = users->begin[GROUP * g + 1];
        batch->group_begin[g] = GROUP * g;
        memmove(users->keys + end, users->keys + from, (to - from) * sizeof(*users->keys));
        users->begin[g] = end; /* never beyond what is still read: g <= GROUP * g */
        end += to - from;
    }
    batch->group_begin[batch->n_groups] = BATCH;
    users->begin[batch->n_groups] = end;
    return batch;
}

static void feed(struct run *run, struct fr_batch *batch)
{
    struct fr_err err = {0};
    uint64_t before = run->applied;
    assert_true(fr_ring_try_push(run->full, batch));
    while (run->applied == before) {
        assert_int_equal(fr_trainer_step(run->trainer, &err), FR_OK);
        drain_stages(run);
    }
}

static void assert_near(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(a[i] - b[i]) <= 1e-4f * (1.0f + fabsf(a[i])));
}

static void assert_same_rows(const struct fr_store *a, const struct fr_store *b, uint32_t dim)
{
    struct fr_store_table_stats x, y;
    fr_store_stats(a, 0, &x);
    fr_store_stats(b, 0, &y);
    x.bytes = y.bytes = 0; /* the capacity of scratch may differ */
    assert_memory_equal(&x, &y, sizeof(x));
    for (uint64_t key = 0; key < 29; key++) {
        struct fr_store_view u = {0}, v = {0};
        enum fr_status found = fr_store_find(a, 0, key, &u);
        assert_int_equal(fr_store_find(b, 0, key, &v), found);
        assert_int_equal(u.kind, v.kind);
        assert_int_equal(u.count, v.count);
        assert_int_equal(u.seen_ms, v.seen_ms);
        assert_true(u.show == v.show && u.click == v.click);
        if (found == FR_OK && u.kind == FR_IMAGE_ROW)
            assert_near(u.row, v.row, dim);
    }
}

FR_CASE(groups_train_like_expanded_samples)
{
    char dirs[2][FR_TEST_FOLDER];
    struct run grouped, expanded;
    fr_test_folder(dirs[0]);
    fr_test_folder(dirs[1]);
    run_open(&grouped, dirs[0], 2);
    run_open(&expanded, dirs[1], 1);
    grouped.gate_config.count = expanded.gate_config.count = 9;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        feed(&grouped, grouped_batch(grouped.conf, i));
        feed(&expanded, expanded_batch(expanded.conf, i));
        assert_same_rows(grouped.trainer->store, expanded.trainer->store, 4);
        assert_int_equal(grouped.trainer->history.watermark_ms, expanded.trainer->history.watermark_ms);
        assert_near((float[]){(float)grouped.trainer->run.last_loss}, (float[]){(float)expanded.trainer->run.last_loss},
                    1);
    }
    const struct fr_parameter *a = fr_graph_parameters(grouped.trainer->graph),
                              *b = fr_graph_parameters(expanded.trainer->graph);
    for (size_t i = 0; i < fr_graph_parameter_count(grouped.trainer->graph); i++)
        assert_near(a[i].values, b[i].values, a[i].n_values);
    struct fr_store_table_stats stats;
    fr_store_stats(grouped.trainer->store, 0, &stats);
    assert_true(stats.counts.admitted > 0 && stats.counts.rejected > 0);
    drain_stages(&grouped);
    drain_stages(&expanded);
    run_close(&grouped);
    run_close(&expanded);
    remove_dir(dirs[0]);
    remove_dir(dirs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_train_like_expanded_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
