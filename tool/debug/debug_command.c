/* `freshet debug graph`: the network that is compiled from a configuration, as tables or as one
 * JSON object (graph/describe.h). Nothing is trained and no state is read: parameters have their
 * first values, and only the widths of rows are used.
 *
 * Thread: the caller's. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "graph/describe.h"
#include "tool.h"

static const char usage[] =
    "freshet debug graph --config FILE [--json] [--set path=value]...\n"
    "\n"
    "Prints the network that a configuration is compiled to.\n"
    "\n"
    "  spaces      what one row of a node is: a sample, a group, a step of a sequence\n"
    "  nodes       in the order of the forward pass: kind, layer it was made for, space, width, the nodes and\n"
    "              parameters it reads, and where its values lie (buffer+column: views of a concatenation\n"
    "              have its buffer); * after the width: a loss's gradient comes to it\n"
    "  parameters  shape, and whether they are trained or statistics\n"
    "\n"
    "  --json            one JSON object instead of tables\n"
    "  --set path=value  changes the configuration (many)\n";

static void print_spaces(const struct fr_graph *graph, struct fr_buffer *out)
{
    fr_buffer_printf(out, "spaces\n");
    for (uint32_t s = 0; s < fr_graph_space_count(graph); s++) {
        struct fr_graph_space_info space;
        fr_graph_space_info(graph, s, &space);
        fr_buffer_printf(out, "%5" PRIu32 "  %s%s%s\n", s, space.rows, space.slot ? " of " : "",
                         space.slot ? space.slot : "");
    }
}

/* Prints "mean(user_id.v)", "price", or the numbers of the nodes that the node reads. */
static void print_reads(const struct fr_graph *graph, uint32_t n, const struct fr_graph_node_info *node,
                        struct fr_buffer *out)
{
    if (node->pooling)
        fr_buffer_printf(out, " %s", node->pooling);
    if (node->slot)
        fr_buffer_printf(out, "%s%s%s%s%s", node->pooling ? "(" : " ", node->slot, node->part ? "." : "",
                         node->part ? node->part : "", node->pooling ? ")" : "");
    for (uint32_t i = 0; i < node->n_arguments; i++)
        fr_buffer_printf(out, " %" PRIu32, fr_graph_node_argument(graph, n, i));
}

static void print_nodes(struct fr_graph *graph, struct fr_buffer *out)
{
    const struct fr_parameter *parameters = fr_graph_parameters(graph);
    fr_buffer_printf(out, "nodes\n%5s  %-16s %-16s %5s %6s  %-10s reads\n", "", "kind", "layer", "space", "width",
                     "buffer");
    for (uint32_t n = 0; n < fr_graph_node_count(graph); n++) {
        struct fr_graph_node_info node;
        char place[32];
        fr_graph_node_info(graph, n, &node);
        snprintf(place, sizeof(place), "%" PRIu32 "+%" PRIu32, node.buffer, node.column);
        fr_buffer_printf(out, "%5" PRIu32 "  %-16s %-16s %5" PRIu32 " %6" PRIu32 "%c %-10s", n, node.kind,
                         node.layer ? node.layer : "-", node.space, node.width, node.trained ? '*' : ' ', place);
        print_reads(graph, n, &node, out);
        for (uint32_t i = 0; i < node.n_parameters; i++)
            fr_buffer_printf(out, " %s", parameters[node.parameters[i]].name);
        fr_buffer_printf(out, "\n");
    }
}

static void print_parameters(struct fr_graph *graph, struct fr_buffer *out)
{
    const struct fr_parameter *parameters = fr_graph_parameters(graph);
    fr_buffer_printf(out, "parameters\n");
    for (size_t i = 0; i < fr_graph_parameter_count(graph); i++) {
        const struct fr_parameter *p = &parameters[i];
        char shape[32];
        if (p->n_dims == 2)
            snprintf(shape, sizeof(shape), "[%" PRIu32 ", %" PRIu32 "]", p->shape[0], p->shape[1]);
        else
            snprintf(shape, sizeof(shape), "[%" PRIu32 "]", p->shape[0]);
        fr_buffer_printf(out, "%5zu  %-32s %-14s %s\n", i, p->name, shape, p->trained ? "trained" : "statistics");
    }
}

static void json_node(struct fr_graph *graph, uint32_t n, struct fr_json *json)
{
    struct fr_graph_node_info node;
    fr_graph_node_info(graph, n, &node);
    fr_json_object(json, NULL);
    fr_json_text(json, "kind", node.kind);
    fr_json_text(json, "layer", node.layer);
    fr_json_text(json, "slot", node.slot);
    fr_json_text(json, "part", node.part);
    fr_json_text(json, "pooling", node.pooling);
    fr_json_u64(json, "space", node.space);
    fr_json_u64(json, "width", node.width);
    fr_json_bool(json, "trained", node.trained);
    fr_json_u64(json, "buffer", node.buffer);
    fr_json_u64(json, "column", node.column);
    fr_json_array(json, "reads");
    for (uint32_t i = 0; i < node.n_arguments; i++)
        fr_json_u64(json, NULL, fr_graph_node_argument(graph, n, i));
    fr_json_end(json);
    fr_json_array(json, "parameters");
    for (uint32_t i = 0; i < node.n_parameters; i++)
        fr_json_text(json, NULL, fr_graph_parameters(graph)[node.parameters[i]].name);
    fr_json_end(json);
    fr_json_end(json);
}

static void json_parameter(const struct fr_parameter *p, struct fr_json *json)
{
    fr_json_object(json, NULL);
    fr_json_text(json, "name", p->name);
    fr_json_array(json, "shape");
    for (uint32_t d = 0; d < p->n_dims; d++)
        fr_json_u64(json, NULL, p->shape[d]);
    fr_json_end(json);
    fr_json_bool(json, "trained", p->trained);
    fr_json_end(json);
}

static void json_graph(struct fr_graph *graph, struct fr_buffer *out)
{
    struct fr_json json = {.out = out};
    fr_json_object(&json, NULL);
    fr_json_array(&json, "spaces");
    for (uint32_t s = 0; s < fr_graph_space_count(graph); s++) {
        struct fr_graph_space_info space;
        fr_graph_space_info(graph, s, &space);
        fr_json_object(&json, NULL);
        fr_json_text(&json, "rows", space.rows);
        fr_json_text(&json, "slot", space.slot);
        fr_json_end(&json);
    }
    fr_json_end(&json);
    fr_json_array(&json, "nodes");
    for (uint32_t n = 0; n < fr_graph_node_count(graph); n++)
        json_node(graph, n, &json);
    fr_json_end(&json);
    fr_json_array(&json, "parameters");
    for (size_t i = 0; i < fr_graph_parameter_count(graph); i++)
        json_parameter(&fr_graph_parameters(graph)[i], &json);
    fr_json_end(&json);
    fr_json_end(&json);
    fr_put_u8(out, '\n');
}

static int show(const struct fr_conf *conf, bool json)
{
    struct fr_err err;
    if (fr_graph_check_machine(conf, &err) != FR_OK)
        return fr_tool_fail("debug graph", &err);
    struct fr_graph *graph = fr_graph_new(&(struct fr_graph_options){.conf = conf});
    struct fr_buffer out = {0};
    if (json) {
        json_graph(graph, &out);
    } else {
        print_spaces(graph, &out);
        print_nodes(graph, &out);
        print_parameters(graph, &out);
    }
    bool written = fwrite(out.data, 1, out.size, stdout) == out.size && fflush(stdout) == 0;
    fr_buffer_release(&out);
    fr_graph_free(graph);
    return written ? FR_TOOL_OK : FR_TOOL_FAILED;
}

static int run_graph(int argc, char **argv)
{
    const char *sets[FR_TOOL_SETS_MAX];
    struct fr_conf_load_options load = {.sets = sets};
    bool json = false;
    const struct fr_tool_option options[] = {
        FR_TOOL_CONFIG_OPTIONS(load, sets, true),
        {.name = "--json", .flag = &json},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    struct fr_conf *conf = NULL;
    int code = fr_tool_load_conf(&load, &conf);
    if (code == FR_TOOL_OK)
        code = show(conf, json);
    fr_conf_free(conf);
    return code;
}

int fr_tool_debug(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "graph") == 0)
        return run_graph(argc - 1, argv + 1);
    bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs(usage, help ? stdout : stderr);
    return help ? FR_TOOL_OK : FR_TOOL_USAGE;
}
