/* What a program can print of a compiled network: nodes in the order of the forward pass, where
 * their values lie, and the parameters they read. */
#include "fixture.h"

#include "graph/describe.h"
#include "networks.h"

static const char small[] = NX_HEAD "network:\n"
                                    "  layers:\n"
                                    "    - {name: x, concat: [user_id, {mean: history.v}, age]}\n"
                                    "    - {name: out, dense: x, units: 1}\n" NX_ONE_TASK;

static struct fr_graph_node_info node(const struct fr_graph *graph, uint32_t n)
{
    struct fr_graph_node_info info;
    fr_graph_node_info(graph, n, &info);
    return info;
}

FR_CASE(leaves_name_slot_part_and_pooling)
{
    struct fixture fx;
    fx_load(&fx, 8, small);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    struct fr_graph_node_info user = node(graph, 0), history = node(graph, 1), age = node(graph, 2);
    assert_string_equal(user.kind, "pooled");
    assert_string_equal(user.slot, "user_id");
    assert_string_equal(user.part, "v");
    assert_string_equal(user.pooling, "sum");
    assert_string_equal(user.layer, "x");
    assert_string_equal(history.slot, "history");
    assert_string_equal(history.pooling, "mean");
    assert_string_equal(age.kind, "dense");
    assert_string_equal(age.slot, "age");
    assert_null(age.part);
    assert_null(age.pooling);
    assert_true(user.trained && history.trained && !age.trained);
    assert_int_equal(age.n_parameters, 3); /* standardize: mean, variance, count */
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(arguments_of_a_concatenation_are_views_of_its_buffer)
{
    struct fixture fx;
    fx_load(&fx, 8, small);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    assert_int_equal(fr_graph_node_count(graph), 5);
    struct fr_graph_node_info concat = node(graph, 3), linear = node(graph, 4);
    assert_string_equal(concat.kind, "concat");
    assert_int_equal(concat.width, 4 + 4 + 2);
    uint32_t column = concat.column;
    for (uint32_t i = 0; i < concat.n_arguments; i++) {
        struct fr_graph_node_info view = node(graph, fr_graph_node_argument(graph, 3, i));
        assert_int_equal(view.buffer, concat.buffer);
        assert_int_equal(view.column, column);
        column += view.width;
    }
    assert_int_not_equal(linear.buffer, concat.buffer);
    assert_int_equal(linear.n_parameters, 2);
    assert_string_equal(fr_graph_parameters(graph)[linear.parameters[0]].name, "out/kernel");
    assert_string_equal(fr_graph_parameters(graph)[linear.parameters[1]].name, "out/bias");
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Every node of every operation: it reads earlier nodes, and every trained parameter has a reader.
 * Statistics of a slot are there also where no layer reads the slot. */
static void check_network(struct fr_graph *graph)
{
    bool read[64] = {false};
    assert_true(fr_graph_parameter_count(graph) <= FR_ARRAY_LEN(read));
    for (uint32_t n = 0; n < fr_graph_node_count(graph); n++) {
        struct fr_graph_node_info info = node(graph, n);
        assert_true(strlen(info.kind) > 0 && strspn(info.kind, "abcdefghijklmnopqrstuvwxyz_") == strlen(info.kind));
        assert_true(info.space < fr_graph_space_count(graph));
        for (uint32_t i = 0; i < info.n_arguments; i++)
            assert_true(fr_graph_node_argument(graph, n, i) < n);
        for (uint32_t i = 0; i < info.n_parameters; i++)
            read[info.parameters[i]] = true;
    }
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        if (!read[p] && fr_graph_parameters(graph)[p].trained)
            fail_msg("no node reads %s", fr_graph_parameters(graph)[p].name);
}

FR_CASE(nodes_read_earlier_ones_and_every_trained_parameter_is_read)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct fixture fx;
        fx_load(&fx, 8, nx_networks[i].text);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        check_network(graph);
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

FR_CASE(steps_of_a_sequence_are_a_space_of_their_own)
{
    struct fixture fx;
    fx_load(&fx, 8,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: steps, gru: history.v, units: [3]}\n"
                    "    - {name: end, last: steps}\n"
                    "    - {name: out, dense: end, units: 1}\n" NX_ONE_TASK);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    struct fr_graph_node_info rows = node(graph, 0), end = node(graph, fr_graph_node_count(graph) - 1);
    struct fr_graph_space_info space;
    assert_string_equal(rows.kind, "sequence");
    fr_graph_space_info(graph, rows.space, &space);
    assert_string_equal(space.rows, "steps");
    assert_string_equal(space.slot, "history");
    fr_graph_space_info(graph, end.space, &space);
    assert_string_equal(space.rows, "samples");
    assert_null(space.slot);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_name_slot_part_and_pooling),
        cmocka_unit_test(arguments_of_a_concatenation_are_views_of_its_buffer),
        cmocka_unit_test(nodes_read_earlier_ones_and_every_trained_parameter_is_read),
        cmocka_unit_test(steps_of_a_sequence_are_a_space_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
