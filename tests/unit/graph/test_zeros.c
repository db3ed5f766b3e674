/* What begins at zero and can never learn is named, and nothing else: every answer is compared with
 * training. */
#include "fixture.h"

#include "networks.h"

enum { STEPS = 12, FOUND_MAX = 16 };

#define HEAD                                                                                                           \
    "version: 1\n"                                                                                                     \
    "model: test\n"                                                                                                    \
    "state_dir: nowhere\n"                                                                                             \
    "ingest: {brokers: 'localhost:9092', topic: t}\n"                                                                  \
    "tables:\n"                                                                                                        \
    "  user: {parts: {z: {dim: 3, optimizer: {sgd: {lr: 0.05}}, init: zeros}, n: {dim: 3, optimizer: {sgd: {lr: "      \
    "0.5}}}}}\n"                                                                                                       \
    "  item: {parts: {z: {dim: 3, optimizer: {adagrad: {lr: 0.05}}, init: {constant: 0}}, w: {dim: 1, optimizer: "     \
    "ftrl}}}\n"                                                                                                        \
    "slots: {u: {table: user}, i: {table: item}, h: {table: item, kind: sequence}, p: {kind: dense, dim: 3}}\n"        \
    "labels: {click: {}, buy: {}}\n"

#define TASK "tasks: [{name: click, label: click, logit: out}]\n"

struct answer {
    const char *name, *layers, *stuck; /* in the order they are found */
};

static const struct answer answers[] = {
    {"fm of zeros", "[{name: out, fm: [u.z, i.z]}]", "user.z@out item.z@out "},
    {"fm beside a weight", "[{name: f, fm: [u.z, i.z]}, {name: w, sum: [i.w]}, {name: out, add: [f, w]}]",
     "user.z@f item.z@f "},
    {"fm of a zero and a number", "[{name: f, fm: [u.z, p]}, {name: out, add: [f]}]", ""},
    {"fm of three, one not zero", "[{name: out, fm: [u.z, i.z, u.n]}]", ""},
    {"product of a zero and another", "[{name: m, multiply: [u.z, u.n]}, {name: out, dense: m, units: 1}]", ""},
    {"product of three, two zero", "[{name: m, multiply: [u.z, i.z, u.n]}, {name: out, dense: m, units: 1}]",
     "user.z@m item.z@m "},
    {"bi_interaction and a dense over it", "[{name: b, bi_interaction: [u.z, i.z]}, {name: out, dense: b, units: 1}]",
     "user.z@b item.z@b "},
    {"dot_interaction", "[{name: d, dot_interaction: [u.z, i.z]}, {name: out, dense: d, units: 1}]",
     "user.z@d item.z@d "},
    {"a path around the product",
     "[{name: f, fm: [u.z, i.z]}, {name: d, dense: u.z, units: 1}, {name: out, add: [f, d]}]", ""},
    {"one slot's history with its item", "[{name: out, fm: [i.z, {sum: h.z}]}]", "item.z@out "},
    {"kernels of zero before a linear layer",
     "[{name: k, mlp: [p, u.n], units: [4], activation: relu}, {name: out, dense: k, units: 1, init: zeros}]", ""},
    {"kernels of zero under relu",
     "[{name: a, mlp: [p, u.n], units: [4], activation: relu, init: zeros}, {name: b, dense: p, units: 1}, "
     "{name: c, dense: a, units: 1}, {name: out, add: [b, c]}]",
     "layer@a "},
    {"kernels of zero, twice",
     "[{name: a, dense: p, units: 4, init: zeros}, {name: out, dense: a, units: 1, init: zeros}]",
     "layer@a layer@out "},
    {"zeros into relu without biases",
     "[{name: a, mlp: [u.z, i.z], units: [4], activation: relu, init: xavier_uniform}, "
     "{name: out, dense: a, units: 1}]",
     "user.z@a item.z@a "},
    {"zeros and numbers into relu without biases",
     "[{name: a, mlp: [u.z, p], units: [6], activation: relu, init: xavier_uniform}, {name: out, dense: a, units: 1}]",
     ""},
    {"zeros into relu with biases",
     "[{name: a, mlp: [u.z, i.z], units: [6], activation: relu}, {name: out, dense: a, units: 1}]", ""},
    {"cross of zeros", "[{name: c, cross: [u.z, i.z], depth: 2}, {name: out, dense: c, units: 1}]", ""},
    {"attention over zeros",
     "[{name: a, attention: {query: i.z, keys: h.z}, units: [3]}, {name: out, dense: a, units: 1}]", ""},
    {"attention with a zero score and zero keys",
     "[{name: a, attention: {query: i.z, keys: h.z}, units: [3], init: zeros}, {name: out, dense: a, units: 1}]",
     "item.z@a layer@a "},
    {"a zero row beside what is stopped",
     "[{name: s, stop_gradient: u.z}, {name: m, multiply: [s, i.z]}, {name: out, dense: m, units: 1}]", "item.z@m "},
    {"an interaction of one is zero",
     "[{name: s, stop_gradient: u.z}, {name: b, bi_interaction: [s, p]}, {name: m, multiply: [b, i.z]}, "
     "{name: out, dense: m, units: 1}]",
     "item.z@m "},
    {"a cross of zero kernels", "[{name: c, cross: p, init: zeros}, {name: out, dense: c, units: 1}]", ""},
    {"nothing begins at zero", "[{name: m, multiply: [u.n, p]}, {name: out, dense: m, units: 1}]", ""},
};

static void load(struct fixture *fx, const struct answer *answer)
{
    char text[8192];
    snprintf(text, sizeof(text), HEAD "network:\n  layers: %s\n" TASK, answer->layers);
    fx_load(fx, 20, text);
    fx->conf.dense_optimizer = fx_optimizer(FR_OPT_ADAM, 0.05f);
    fx->conf.ingest.batch_size = 90;
    fx_make_rows(fx, 3);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->conf.tables[t].n_parts; p++)
            for (uint32_t id = 0; id < 20 && fx->conf.tables[t].parts[p].init.kind != FR_INIT_NORMAL; id++)
                memset(fx->row_memory[t] + id * fx->layouts[t].row_floats + fx->layouts[t].parts[p].value_offset, 0,
                       fx->layouts[t].parts[p].dim * sizeof(float));
}

static bool part_is_zero(const struct fixture *fx, uint32_t t, uint32_t p)
{
    bool zero = true;
    for (uint32_t id = 0; id < 20; id++)
        for (uint32_t i = 0; i < fx->layouts[t].parts[p].dim; i++)
            zero &=
                fx->row_memory[t][id * fx->layouts[t].row_floats + fx->layouts[t].parts[p].value_offset + i] == 0.0f;
    return zero;
}

/* Returns whether one of the layer's kernels has only zeros. */
static bool layer_is_zero(const struct fixture *fx, struct fr_graph *graph, uint32_t l)
{
    char prefix[FR_NAME_MAX + 2];
    int size = snprintf(prefix, sizeof(prefix), "%s/", fx->conf.layers[l].name);
    bool any = false;
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
        bool zero = q->n_dims == 2 && strncmp(q->name, prefix, (size_t)size) == 0;
        for (size_t i = 0; i < q->n_values; i++)
            zero &= q->values[i] == 0.0f;
        any |= zero;
    }
    return any;
}

/* After training, layers that were found are zero, and layers that were not found and are read are
 * not. */
static void compare_with_training(struct fixture *fx, struct fr_graph *graph, const struct answer *answer)
{
    struct fr_graph_stuck found[FOUND_MAX];
    uint32_t n = fr_graph_find_stuck(graph, found, FOUND_MAX);
    for (uint64_t i = 0; i < STEPS; i++) {
        fx_make_batch(fx, 90, 3, false, 40 + i);
        fx_step(fx, graph);
    }
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->conf.tables[t].n_parts; p++) {
            char ref[2][FR_NAME_MAX + 32];
            bool listed = false;
            for (uint32_t i = 0; i < n; i++)
                listed |= found[i].table == (int32_t)t && found[i].part == (int32_t)p;
            snprintf(ref[0], sizeof(ref[0]), "%c.%.40s", fx->conf.tables[t].name[0], fx->conf.tables[t].parts[p].name);
            snprintf(ref[1], sizeof(ref[1]), "stop_gradient: %.60s", ref[0]);
            bool read = strstr(answer->layers, ref[0]) && !strstr(answer->layers, ref[1]);
            if (read && part_is_zero(fx, t, p) != listed)
                fail_msg("%s: %s is %s", answer->name, ref[0], listed ? "not zero for ever" : "zero and was not named");
        }
    for (uint32_t l = 0; l < fx->conf.n_layers; l++) {
        bool listed = false;
        for (uint32_t i = 0; i < n; i++)
            listed |= found[i].table == FR_NO_INDEX && found[i].layer == (int32_t)l;
        if (layer_is_zero(fx, graph, l) != listed)
            fail_msg("%s: layer %s is %s", answer->name, fx->conf.layers[l].name,
                     listed ? "not zero for ever" : "zero and was not named");
    }
}

FR_CASE(what_can_never_learn_is_named_and_nothing_else)
{
    for (size_t a = 0; a < FR_ARRAY_LEN(answers); a++) {
        struct fixture fx;
        load(&fx, &answers[a]);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        struct fr_graph_stuck found[FOUND_MAX];
        uint32_t n = fr_graph_find_stuck(graph, found, FOUND_MAX);
        char text[1024] = "";
        for (uint32_t i = 0; i < n; i++) {
            size_t at = strlen(text);
            const char *layer = fx.conf.layers[found[i].layer].name;
            if (found[i].table == FR_NO_INDEX)
                snprintf(text + at, sizeof(text) - at, "layer@%s ", layer);
            else
                snprintf(text + at, sizeof(text) - at, "%s.%s@%s ", fx.conf.tables[found[i].table].name,
                         fx.conf.tables[found[i].table].parts[found[i].part].name, layer);
        }
        if (strcmp(text, answers[a].stuck) != 0)
            fail_msg("%s: found \"%s\", expected \"%s\"", answers[a].name, text, answers[a].stuck);
        compare_with_training(&fx, graph, &answers[a]);
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

/* In every network of every layer, when all tables begin at zero. */
FR_CASE(what_is_named_stays_zero_in_every_network)
{
    unsigned stuck = 0;
    for (size_t k = 0; k < FR_ARRAY_LEN(nx_networks); k++) {
        struct fixture fx;
        fx_load(&fx, 20, nx_networks[k].text);
        fx_make_rows(&fx, 3);
        for (uint32_t t = 0; t < fx.conf.n_tables; t++) {
            memset(fx.row_memory[t], 0, 20 * fx.layouts[t].row_floats * sizeof(float));
            for (uint32_t p = 0; p < fx.conf.tables[t].n_parts; p++)
                fx.conf.tables[t].parts[p].init = (struct fr_conf_init){.kind = FR_INIT_ZEROS};
        }
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        struct fr_graph_stuck found[FOUND_MAX];
        uint32_t n = fr_graph_find_stuck(graph, found, FOUND_MAX);
        for (uint64_t i = 0; i < STEPS; i++) {
            fx_vary(&fx, 40 + i);
            fx_step(&fx, graph);
        }
        for (uint32_t i = 0; i < n; i++)
            if (found[i].table != FR_NO_INDEX && !part_is_zero(&fx, (uint32_t)found[i].table, (uint32_t)found[i].part))
                fail_msg("%s: table %d, part %d learns", nx_networks[k].name, found[i].table, found[i].part);
        stuck += n;
        fr_graph_free(graph);
        fx_release(&fx);
    }
    assert_true(stuck > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_never_learn_is_named_and_nothing_else),
        cmocka_unit_test(what_is_named_stays_zero_in_every_network),
    };
    return cmocka_run_group_tests_name("zeros", tests, NULL, NULL);
}
