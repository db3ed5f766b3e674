/* A card that has no more memory, or is lost, at any call: the error is reported and stays, nothing
 * of the step takes effect, and no memory is read that was not written. */
#include "device/twins.h"

#include "graph/networks.h"

enum { SAMPLES = 12, STEPS = 3, CALLS_MAX = 4000 };

static const char small[] =
    NX_HEAD "network:\n  layers:\n"
            "    - {name: h, mlp: [user_id, {mean: history.v}, price], units: [6], activation: dice}\n"
            "    - {name: out, dense: h, units: 1}\n"
            "  clip_global_norm: 0.05\n" NX_ONE_TASK;

static void open_twin(struct twin *twin)
{
    fx_load(&twin->fx, 60, small);
    fx_make_rows(&twin->fx, 5);
    tw_open(twin, true, 0);
}

static uint64_t host_hash(struct twin *twin)
{
    return fx_hash(&twin->fx, twin->graph);
}

/* Makes some steps on a card that fails at its n-th call. Returns whether the steps had so many
 * calls. */
static bool fails_at(enum fr_emulated_failure kind, uint64_t n, enum fr_status expected)
{
    struct twin twin = {0};
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    open_twin(&twin);
    uint64_t before = 0;
    fx_make_batch(&twin.fx, SAMPLES, 3, true, 1);
    fr_emulate_fail(kind, n);
    for (uint64_t step = 0; step < STEPS && status == FR_OK; step++) {
        fr_graph_forward(twin.graph, &twin.fx.batch, &twin.fx.rows);
        fr_graph_train_begin(twin.graph, &twin.fx.batch, &twin.fx.rows);
        fr_graph_bring(twin.graph, &twin.fx.batch, &twin.fx.rows); /* it is the next one, too */
        before = host_hash(&twin);
        status = fr_graph_train_finish(twin.graph, &twin.fx.batch, &twin.fx.rows, NULL);
    }
    bool failed = status != FR_OK;
    if (failed) {
        assert_int_equal(status, expected);
        assert_int_equal(fr_graph_failure(twin.graph, &err), expected);
        assert_true(err.text[0] != '\0');
        assert_int_equal(fr_graph_fetch(twin.graph, &err), expected);
        assert_true(host_hash(&twin) == before);
    }
    fr_emulate_fail(kind, 0);
    tw_close(&twin);
    return failed;
}

static void a_lost_card_is_said_and_leaves_the_host_as_it_was(void **state)
{
    (void)state;
    uint64_t n = 1;
    while (n < CALLS_MAX && fails_at(FR_EMULATED_LOST, n, FR_E_UNAVAILABLE))
        n += 1 + n / 8;
    /* n is one more than the number of calls, so nothing failed */
    assert_in_range(n, 50, CALLS_MAX - 1);
}

static void memory_that_ends_is_said_and_leaves_the_host_as_it_was(void **state)
{
    (void)state;
    uint64_t failed = 0, without = 0; /* a lack of memory for rows ahead is no error */
    for (uint64_t n = 1; n < CALLS_MAX && without < 4; n++) {
        bool fails = fails_at(FR_EMULATED_NO_MEMORY, n, FR_E_NO_MEMORY);
        failed += fails;
        without = fails ? 0 : without + 1;
    }
    assert_true(failed > 10 && without == 4);
}

/* Without memory for rows ahead, rows come with their batch. */
static void no_memory_for_rows_ahead_is_no_error(void **state)
{
    (void)state;
    struct twin twin = {0};
    open_twin(&twin);
    fx_make_batch(&twin.fx, SAMPLES, 3, true, 1);
    (void)tw_step(&twin);
    fr_graph_forward(twin.graph, &twin.fx.batch, &twin.fx.rows);
    fr_graph_train_begin(twin.graph, &twin.fx.batch, &twin.fx.rows);
    fr_emulate_fail(FR_EMULATED_NO_MEMORY, 1);
    fr_graph_bring(twin.graph, &twin.fx.batch, &twin.fx.rows);
    fr_emulate_fail(FR_EMULATED_NO_MEMORY, 0);
    assert_int_equal(fr_graph_train_finish(twin.graph, &twin.fx.batch, &twin.fx.rows, NULL), FR_OK);
    assert_int_equal(fr_graph_rows_brought(twin.graph), 0);
    tw_close(&twin);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_lost_card_is_said_and_leaves_the_host_as_it_was),
        cmocka_unit_test(memory_that_ends_is_said_and_leaves_the_host_as_it_was),
        cmocka_unit_test(no_memory_for_rows_ahead_is_no_error),
    };
    return cmocka_run_group_tests_name("device failures", cases, NULL, NULL);
}
