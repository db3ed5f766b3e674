/* CUDA graphs: a step whose shape was seen before is launched as a graph, with its present
 * arguments; any other step is started call by call. Both give the same bits. */
#include "ops/backends.h"

#include "shim/shim.h"

enum { N = 3000, M = 12, STEPS = 6 };

/* each case has a queue of its own, because a queue keeps graphs */
static struct fr_device_queue *queue;

static void open_queue(void)
{
    struct fr_err err = {0};
    assert_int_equal(fr_shim_api()->open(0, &queue, &err), FR_OK);
}

/* What a step reads and writes. */
struct work {
    float *values, *left, *right, *product, *copy;
    double *sum;
};

static void *to_device(const void *host, size_t bytes)
{
    struct fr_err err = {0};
    void *device = fr_shim_api()->alloc(queue, bytes);
    assert_non_null(device);
    fr_shim_api()->upload(queue, device, host, bytes);
    assert_int_equal(fr_shim_api()->finish(queue, &err), FR_OK);
    return device;
}

static struct work work_new(void)
{
    float values[N], matrix[M * M];
    fill(values, N, 1);
    fill(matrix, M * M, 2);
    return (struct work){.values = to_device(values, sizeof(values)),
                         .left = to_device(matrix, sizeof(matrix)),
                         .right = to_device(matrix, sizeof(matrix)),
                         .product = to_device(matrix, sizeof(matrix)),
                         .copy = to_device(matrix, sizeof(matrix)),
                         .sum = to_device(&(double){0.0}, sizeof(double))};
}

static void work_release(struct work *work)
{
    void *memory[] = {work->values, work->left, work->right, work->product, work->copy, work->sum};
    for (size_t i = 0; i < FR_ARRAY_LEN(memory); i++)
        fr_shim_api()->release(queue, memory[i]);
}

/* Another `offset` gives kernels another size and another address; the product's `rows` decide the
 * shape. */
static void start(const struct work *work, uint32_t offset, uint32_t rows)
{
    struct fr_multiply call = {.left = &(struct fr_operand){.values = work->left, .ld = M, .columns = M},
                               .right = &(struct fr_operand){.values = work->right, .ld = M, .columns = M},
                               .out = {work->product, M},
                               .row_end = rows};
    fr_shim_api()->zero(queue, work->sum, sizeof(double));
    fr_shim_api()->ops->sum_squares(queue, work->sum, N - offset, work->values + offset);
    fr_shim_api()->ops->multiply(queue, &call, false);
    fr_shim_api()->copy(queue, work->copy, work->product, M * M * sizeof(float));
}

struct result {
    double sum;
    float product[M * M];
};

static struct result read_back(const struct work *work)
{
    struct result result;
    struct fr_err err = {0};
    fr_shim_api()->download(queue, &result.sum, work->sum, sizeof(result.sum));
    fr_shim_api()->download(queue, result.product, work->copy, sizeof(result.product));
    assert_int_equal(fr_shim_api()->finish(queue, &err), FR_OK);
    return result;
}

static struct fr_device_graph_counts counts_now(void)
{
    struct fr_device_graph_counts counts;
    fr_shim_api()->count_graphs(queue, &counts);
    return counts;
}

/* Expects the same results from the same step as a graph and call by call. */
static void assert_same(const struct work *work, const struct work *other, uint32_t offset, uint32_t rows)
{
    fr_shim_api()->begin_graph(queue);
    start(work, offset, rows);
    fr_shim_api()->end_graph(queue);
    start(other, offset, rows);
    struct result got = read_back(work), want = read_back(other);
    assert_true(got.sum == want.sum && got.sum > 0.0);
    assert_memory_equal(got.product, want.product, sizeof(got.product));
}

FR_CASE(the_second_step_of_a_shape_is_a_graph_and_has_its_own_arguments)
{
    open_queue();
    struct work work = work_new(), other = work_new();
    for (uint32_t step = 0; step < STEPS; step++)
        assert_same(&work, &other, 400 * step, M);
    assert_int_equal(counts_now().made, 1);
    assert_int_equal(counts_now().launched, STEPS - 1);
    work_release(&work);
    work_release(&other);
    fr_shim_api()->close(queue);
}

FR_CASE(steps_of_several_shapes_have_a_graph_each)
{
    open_queue();
    struct work work = work_new(), other = work_new();
    for (uint32_t step = 0; step < 3 * STEPS; step++)
        assert_same(&work, &other, step, 3 + step % 3);
    assert_int_equal(counts_now().made, 3);
    assert_int_equal(counts_now().launched, 3 * STEPS - 3);
    work_release(&work);
    work_release(&other);
    fr_shim_api()->close(queue);
}

FR_CASE(steps_that_never_repeat_are_started_call_by_call)
{
    open_queue();
    struct work work = work_new(), other = work_new();
    for (uint32_t step = 0; step < M; step++)
        assert_same(&work, &other, 0, step + 1);
    assert_int_equal(counts_now().made, 0);
    assert_int_equal(counts_now().launched, 0);
    work_release(&work);
    work_release(&other);
    fr_shim_api()->close(queue);
}

FR_CASE(more_shapes_than_graphs_are_kept_give_the_same)
{
    open_queue();
    struct work work = work_new(), other = work_new();
    for (uint32_t step = 0; step < 4 * M; step++)
        assert_same(&work, &other, step, step / 2 % M + 1);
    work_release(&work);
    work_release(&other);
    fr_shim_api()->close(queue);
}

FR_CASE(who_waits_within_a_graph_sees_what_was_started)
{
    open_queue();
    struct work work = work_new();
    struct result want, got;
    start(&work, 7, M);
    want = read_back(&work);
    for (uint32_t step = 0; step < STEPS; step++) {
        fr_shim_api()->begin_graph(queue);
        start(&work, 7, M);
        got = read_back(&work);
        start(&work, 9, M);
        fr_shim_api()->end_graph(queue);
        assert_true(got.sum == want.sum);
    }
    assert_int_equal(counts_now().launched, 0);
    work_release(&work);
    fr_shim_api()->close(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_step_of_a_shape_is_a_graph_and_has_its_own_arguments),
        cmocka_unit_test(steps_of_several_shapes_have_a_graph_each),
        cmocka_unit_test(steps_that_never_repeat_are_started_call_by_call),
        cmocka_unit_test(more_shapes_than_graphs_are_kept_give_the_same),
        cmocka_unit_test(who_waits_within_a_graph_sees_what_was_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
