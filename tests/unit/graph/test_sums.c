/* Rows summed in place (sums.c): the bits are those of the nodes that this replaces, in every form,
 * and a refusal names the same samples. */
#include "../../../trainer/graph/passes.h"
#include "fixture.h"
#include "looks.h"

#define SUMS_HEAD(table)                                                                                               \
    "version: 1\nmodel: test\nstate_dir: nowhere\n"                                                                    \
    "ingest: {brokers: 'localhost:9092', topic: t}\n"                                                                  \
    "tables:\n  ids: " table "\n"                                                                                      \
    "slots:\n  a: {table: ids}\n  b: {table: ids}\n  c: {table: ids}\n  d: {table: ids}\n"                             \
    "  price: {kind: dense, dim: 2}\n"                                                                                 \
    "labels: {click: {}}\n"                                                                                            \
    "tasks: [{name: click, label: click, logit: out}]\n"                                                               \
    "network:\n  optimizer: {adam: {lr: 0.01}}\n  layers:\n"
#define SUM "    - {name: sum, sum: [a, b, c, d]}\n"
#define PAIRS "    - {name: pairs, bi_interaction: [a, b, c, d]}\n"
#define DEEP                                                                                                           \
    "    - {name: h, mlp: [sum, pairs, price], units: [7]}\n"                                                          \
    "    - {name: out, dense: h, units: 1}\n"

struct summed {
    const char *name, *text;
    uint32_t n_sums;
};

static const struct summed networks[] = {
    {"weights", SUMS_HEAD("{dim: 1, optimizer: {ftrl: {lr: 0.1}}}") SUM "    - {name: out, bias: sum}\n", 1},
    {"weights of another rule",
     SUMS_HEAD("{dim: 1, optimizer: {adam: {lr: 0.1}}}") SUM "    - {name: out, bias: sum}\n", 1},
    {"pairs of eight", SUMS_HEAD("{dim: 8, optimizer: {adagrad_rowwise: {lr: 0.1}}}") SUM PAIRS DEEP, 1},
    {"pairs first", SUMS_HEAD("{dim: 8, optimizer: {adagrad_rowwise: {lr: 0.1, half_life: 100}}}") PAIRS SUM DEEP, 1},
    {"pairs of eight, clipped",
     SUMS_HEAD("{dim: 8, optimizer: {adagrad_rowwise: {lr: 0.1, clip_norm: 0.01}}}") SUM PAIRS DEEP, 1},
    {"pairs of sixteen", SUMS_HEAD("{dim: 16, optimizer: {adagrad_rowwise: {lr: 0.1}}}") SUM PAIRS DEEP, 1},
    {"pairs of sixteen by momentum", SUMS_HEAD("{dim: 16, optimizer: {momentum: {lr: 0.1}}}") SUM PAIRS DEEP, 1},
    {"pairs of three", SUMS_HEAD("{dim: 3, optimizer: {adagrad: {lr: 0.1}}}") SUM PAIRS DEEP, 1},
    {"pairs of weights", SUMS_HEAD("{dim: 1, optimizer: {ftrl: {lr: 0.1}}}") SUM PAIRS DEEP, 1},
    {"a part of the rows",
     SUMS_HEAD("{parts: {w: {dim: 1, optimizer: {ftrl: {lr: 0.1}}}, "
               "v: {dim: 8, optimizer: {sgd: {lr: 0.1}}}}}") "    - {name: wide, sum: [a.w, b.w, c.w, d.w]}\n"
                                                             "    - {name: sum, sum: [a.v, b.v, c.v]}\n"
                                                             "    - {name: pairs, bi_interaction: [a.v, b.v, c.v]}\n"
                                                             "    - {name: h, mlp: [sum, pairs, d.v], units: [7]}\n"
                                                             "    - {name: deep, dense: h, units: 1}\n"
                                                             "    - {name: out, add: [deep, wide]}\n",
     2},
    {"beside another reader of the table",
     SUMS_HEAD(
         "{dim: 8, optimizer: {adagrad_rowwise: {lr: 0.1}}}") "    - {name: sum, sum: [a, b]}\n"
                                                              "    - {name: pairs, bi_interaction: [a, b]}\n"
                                                              "    - {name: h, mlp: [sum, pairs, c, d, price], units: [7]}\n"
                                                              "    - {name: out, dense: h, units: 1}\n",
     1},
    /* no sum can be made in place */
    {"a row read twice",
     SUMS_HEAD("{dim: 8, optimizer: {sgd: {lr: 0.1}}}") SUM
     "    - {name: h, mlp: [sum, a], units: [7]}\n    - {name: out, dense: h, units: 1}\n",
     0},
    {"pairs of other slots",
     SUMS_HEAD("{dim: 8, optimizer: {sgd: {lr: 0.1}}}") SUM "    - {name: pairs, bi_interaction: [a, b, c]}\n" DEEP, 0},
    {"means",
     SUMS_HEAD(
         "{dim: 1, optimizer: {sgd: {lr: 0.1}}}") "    - {name: sum, sum: [{mean: a}, {mean: b}]}\n    - {name: out, bias: sum}\n",
     0},
};

enum { VOCABULARY = 150 };

/* Marks rows that this batch made as absent from the forward pass. */
static void serve(struct fixture *fx)
{
    struct fr_table_rows *table = &fx->rows.tables[0];
    free(table->served);
    table->served = fr_alloc(VOCABULARY, sizeof(*table->served));
    for (uint32_t u = 0; u < table->n_unique; u++)
        table->served[u] = u % 5 == 1 ? NULL : table->rows[u];
}

struct outcome {
    double losses;
    uint64_t hash;
    uint32_t n_suspects;
    struct fr_suspect suspects[400];
    enum fr_status status;
};

static uint32_t count_active(const struct fr_graph *graph)
{
    uint32_t active = 0;
    for (uint32_t i = 0; i < graph->variant->n_sums; i++)
        active += graph->variant->sums[i].active;
    return active;
}

static void train(const struct summed *network, const struct fr_ops *ops, struct outcome *out)
{
    struct fixture fx;
    memset(out, 0, sizeof(*out));
    fx_load(&fx, VOCABULARY, network->text);
    fx_make_rows(&fx, 5);
    struct fr_graph *graph = fx_graph(&fx, ops, NULL);
    static const uint32_t sizes[] = {400, 37, 300, 1};
    for (uint32_t i = 0; i < 8; i++) {
        bool single = i % 3 != 2;
        fx_make_batch(&fx, sizes[i % 4], single ? 1 : 3, i == 5, 70 + i);
        if (i > 0) /* all samples of the first batch are trained */
            fx_vary_roles(&fx);
        if (i % 2 == 1)
            serve(&fx);
        out->losses += fx_step(&fx, graph);
        assert_int_equal(count_active(graph), ops->sum_rows && single ? network->n_sums : 0);
    }
    out->hash = fx_hash(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
}

static struct fr_ops without_sums(const struct fr_ops *ops)
{
    struct fr_ops plain = *ops;
    plain.sum_rows = NULL;
    return plain;
}

FR_CASE(bits_are_those_of_the_nodes)
{
    const struct fr_ops *all[] = {fr_ops_cpu_avx512(), fr_ops_cpu_avx2(), fr_ops_bf16()};
    for (size_t b = 0; b < FR_ARRAY_LEN(all); b++)
        for (size_t n = 0; all[b] && n < FR_ARRAY_LEN(networks); n++) {
            struct outcome summed, plain;
            const struct fr_ops ops = without_sums(all[b]);
            train(&networks[n], all[b], &summed);
            train(&networks[n], &ops, &plain);
            if (summed.hash != plain.hash || summed.losses != plain.losses)
                fail_msg("%s, %s: loss %.17g and %.17g", all[b]->name, networks[n].name, summed.losses, plain.losses);
        }
}

/* A step on good numbers, and one that is refused. */
static void refuse(const struct summed *network, const struct fr_ops *ops, float value, float weight,
                   struct outcome *out)
{
    struct fixture fx;
    memset(out, 0, sizeof(*out));
    fx_load(&fx, VOCABULARY, network->text);
    fx_make_rows(&fx, 5);
    struct fr_graph *graph = fx_graph(&fx, ops, NULL);
    fx_make_batch(&fx, 400, 1, false, 3);
    (void)fx_step(&fx, graph);
    fx_make_batch(&fx, 400, 1, false, 4);
    fx.batch.weights[17] *= weight;
    fx.rows.tables[0].rows[3][0] *= value;
    fr_graph_forward(graph, &fx.batch, &fx.rows);
    out->status = fr_graph_train(graph, &fx.batch, &fx.rows, &out->losses);
    if (out->status != FR_OK)
        out->n_suspects = find_suspects(graph, &fx.batch, &fx.rows, out->suspects);
    out->hash = fx_hash(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(a_refusal_and_its_suspects_are_those_of_the_nodes)
{
    static const float factors[][2] = {{1.0f, 1e20f}, {1.0f, 1e14f}, {1.0f, 3e15f},   {1e8f, 1.0f},
                                       {1e12f, 1.0f}, {1e18f, 1.0f}, {1e30f, 1.0f},   {1e9f, 1e9f},
                                       {1e10f, 1e7f}, {1e4f, 1e12f}, {INFINITY, 1.0f}};
    const struct fr_ops ops = without_sums(fr_ops_cpu());
    uint32_t refused = 0, taken = 0;
    for (size_t n = 0; n < FR_ARRAY_LEN(networks); n++)
        for (size_t f = 0; f < FR_ARRAY_LEN(factors); f++) {
            struct outcome summed, plain;
            refuse(&networks[n], fr_ops_cpu(), factors[f][0], factors[f][1], &summed);
            refuse(&networks[n], &ops, factors[f][0], factors[f][1], &plain);
            if (memcmp(&summed, &plain, sizeof(plain)) != 0)
                fail_msg("%s, %g and %g: status %d and %d, suspects %u and %u", networks[n].name, (double)factors[f][0],
                         (double)factors[f][1], summed.status, plain.status, summed.n_suspects, plain.n_suspects);
            refused += plain.n_suspects > 0;
            taken += plain.status == FR_OK;
        }
    assert_true(refused > 30 && taken > 30);
}

/* The bound is above the largest gradient of a leaf, and not far. */
FR_CASE(the_bound_of_a_gradient_holds)
{
    for (size_t n = 0; n < FR_ARRAY_LEN(networks); n++) {
        struct fixture fx;
        fx_load(&fx, VOCABULARY, networks[n].text);
        fx_make_rows(&fx, 5);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        fx_make_batch(&fx, 300, 1, false, 6);
        (void)fx_step(&fx, graph);
        for (uint32_t i = 0; i < graph->variant->n_sums; i++) {
            const struct variant *v = graph->variant;
            const struct node *add = &v->nodes[v->sums[i].add];
            uint32_t bits[3], largest[3] = {0};
            for (uint32_t c = 0; c < fr_level_chunks(graph, LEVEL_SAMPLE); c++) {
                struct chunk chunk = fr_chunk_of(graph, LEVEL_SAMPLE, c, 0);
                bits[c] = fr_graph_sum_bits(graph, &v->sums[i], &chunk);
            }
            fr_graph_write_sums(&(struct graph_run){
                .graph = graph, .batch = &fx.batch, .rows = &fx.rows, .at_batch = &fx.batch, .at_rows = &fx.rows});
            for (uint32_t e = 0; e < 300; e++)
                for (uint32_t a = 0; a < add->n_arguments; a++) {
                    uint32_t one =
                        graph->ops->max_bits(1, add->width, fr_node_gradients(v, fr_argument(graph, add, a), e));
                    uint32_t c = e / graph->chunk_rows;
                    largest[c] = one > largest[c] ? one : largest[c];
                }
            for (uint32_t c = 0; c < fr_level_chunks(graph, LEVEL_SAMPLE); c++)
                assert_true(largest[c] > 0 && bits[c] >= largest[c] &&
                            fr_bits_f32(bits[c]) < 10.0f * fr_bits_f32(largest[c]));
        }
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_nodes),
        cmocka_unit_test(the_bound_of_a_gradient_holds),
        cmocka_unit_test(a_refusal_and_its_suspects_are_those_of_the_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
