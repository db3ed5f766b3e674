/* A graph on the emulated card beside the processor's: every network of the layer grammar, plain
 * and grouped, learns the same; what is refused changes nothing; where rows are changes no bit. */
#include "device/twins.h"

#include "graph/looks.h"
#include "graph/networks.h"

enum { SAMPLES = 40, STEPS = 3, VOCABULARY = 60 };
#define LIMIT 1e-8

static void load(struct twin *twin, const char *text, bool device, size_t row_bytes_max)
{
    fx_load(&twin->fx, VOCABULARY, text);
    fx_make_rows(&twin->fx, 5);
    tw_open(twin, device, row_bytes_max);
}

static void make(struct twin *twin, bool groups, uint64_t seed)
{
    if (groups)
        fx_make_groups(&twin->fx, SAMPLES, 5, (uint32_t)seed * 0x35u, seed);
    else
        fx_make_batch(&twin->fx, SAMPLES, 3, true, seed);
    fx_vary_roles(&twin->fx);
}

static void learn(const struct network *network, bool groups)
{
    struct twin a = {0}, b = {0};
    load(&a, network->text, false, 0);
    load(&b, network->text, true, 0);
    for (uint64_t step = 0; step < STEPS; step++) {
        make(&a, groups, step + 1);
        make(&b, groups, step + 1);
        double x = tw_step(&a), y = tw_step(&b);
        if (!(fabs(x - y) <= 1e-5 * (1.0 + fabs(x))))
            fail_msg("%s: loss %.9g, on the device %.9g", network->name, x, y);
        tw_compare(network->name, &a, &b, LIMIT);
    }
    tw_close(&a);
    tw_close(&b);
}

static void every_network_learns_the_same_on_a_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        learn(&nx_networks[i], false);
}

static void every_network_learns_the_same_of_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        learn(&nx_networks[i], true);
}

/* ---- what the optimizers of layers have together ---- */

#define SMALL(options, top)                                                                                            \
    NX_HEAD "network:\n" options "  layers:\n"                                                                         \
            "    - {name: h, mlp: [user_id, {mean: history.v}, price], units: [6], activation: relu}\n"                \
            "    - {name: out, dense: h, units: 1}\n" NX_ONE_TASK top

static void gradients_are_clipped_together(void **state)
{
    (void)state;
    learn(&(struct network){"global", SMALL("  clip_global_norm: 0.05\n", ""), false}, false);
    learn(&(struct network){"own", SMALL("  optimizer: {sgd: {lr: 0.1, clip_norm: 0.01}}\n", ""), false}, false);
}

static void an_average_is_published(void **state)
{
    (void)state;
    learn(&(struct network){"average", SMALL("", "export: {average: {half_life: 100}}\n"), false}, false);
}

/* ---- precision ---- */

static double distance(struct twin *a, struct twin *b)
{
    struct distance d = {0};
    tw_fetch(a);
    tw_fetch(b);
    for (size_t p = 0; p < fr_graph_parameter_count(a->graph); p++) {
        struct fr_parameter *x = &fr_graph_parameters(a->graph)[p], *y = &fr_graph_parameters(b->graph)[p];
        tw_add(&d, x->values, y->values, x->n_values);
    }
    return d.difference / d.size;
}

/* Nearer to the processor's bf16 than to f32; parameters themselves are never rounded. */
static void compare_precisions(const struct network *network)
{
    enum { F32, BF16_DEVICE, BF16, TWINS };
    struct twin twins[TWINS] = {{.queue = NULL}};
    uint32_t n = fr_ops_bf16() ? TWINS : BF16;
    for (uint32_t i = 0; i < n; i++) {
        struct twin *twin = &twins[i];
        fx_load(&twin->fx, VOCABULARY, network->text);
        fx_make_rows(&twin->fx, 5);
        twin->fx.conf.precision = i == F32 ? FR_PRECISION_F32 : FR_PRECISION_BF16;
        tw_open(twin, i == BF16_DEVICE, 0);
        for (uint64_t step = 0; step < STEPS; step++) {
            make(twin, false, step + 1);
            (void)tw_step(twin);
        }
    }
    assert_string_equal(fr_graph_kernel(twins[BF16_DEVICE].graph), "cuda bf16");
    double rounding = distance(&twins[F32], &twins[BF16_DEVICE]);
    if (!(rounding > 1e-12 && rounding < 1e-2))
        fail_msg("%s: bf16 is %g from f32", network->name, rounding);
    if (n == TWINS && !(distance(&twins[BF16], &twins[BF16_DEVICE]) < rounding / 4))
        fail_msg("%s: bf16 on the device is %g from the processor's, which is %g from f32", network->name,
                 distance(&twins[BF16], &twins[BF16_DEVICE]), distance(&twins[F32], &twins[BF16]));
    if (n < TWINS)
        print_message("this processor has no bf16 to compare with\n");
    for (uint32_t i = 0; i < n; i++)
        tw_close(&twins[i]);
}

static void factors_of_products_are_rounded_to_bf16(void **state)
{
    (void)state;
    compare_precisions(&nx_networks[0]);
    compare_precisions(&(struct network){"small", SMALL("", ""), false});
}

/* ---- refusals ---- */

static void a_refused_step_changes_nothing_and_names_the_same_samples(void **state)
{
    (void)state;
    struct twin twins[2] = {{.queue = NULL}};
    struct fr_suspect found[2][SAMPLES];
    uint32_t n[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct twin *twin = &twins[i];
        load(twin, SMALL("", ""), i == 1, 0);
        make(twin, false, 1);
        (void)tw_step(twin);
        uint64_t before = tw_hash(twin);
        make(twin, false, 2);
        twin->fx.batch.columns[5].dense[2 * 7] = 3e38f;
        twin->fx.batch.columns[5].dense[2 * 11] = -3e38f;
        fr_graph_forward(twin->graph, &twin->fx.batch, &twin->fx.rows);
        assert_int_equal(fr_graph_train(twin->graph, &twin->fx.batch, &twin->fx.rows, NULL), FR_E_NONFINITE);
        n[i] = find_suspects(twin->graph, &twin->fx.batch, &twin->fx.rows, found[i]);
        assert_true(tw_hash(twin) == before);
        make(twin, false, 3);
        (void)tw_step(twin); /* learning continues */
        assert_true(tw_hash(twin) != before);
    }
    assert_true(n[0] > 0);
    assert_int_equal(n[0], n[1]);
    for (uint32_t i = 0; i < SAMPLES; i++)
        assert_int_equal(found[0][i].why != FR_SUSPECT_NONE, found[1][i].why != FR_SUSPECT_NONE);
    tw_compare("refused", &twins[0], &twins[1], LIMIT);
    tw_close(&twins[0]);
    tw_close(&twins[1]);
}

/* The weight of an id without a row is in no sum, but the bound that is computed before the sums
 * includes it. */
static void a_step_that_is_unsure_is_made_once_its_rows_are_checked(void **state)
{
    (void)state;
    struct twin a = {0}, b = {0};
    load(&a, nx_networks[0].text, false, 0);
    load(&b, nx_networks[0].text, true, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct twin *twin = i == 0 ? &a : &b;
        make(twin, false, 1);
        struct fr_column *column = &twin->fx.batch.columns[0];
        assert_non_null(column->weights);
        column->keys[0] = 3; /* has no row */
        column->weights[0] = 1e30f;
        fx_resolve(&twin->fx);
        uint64_t before = tw_hash(twin);
        (void)tw_step(twin);
        assert_true(tw_hash(twin) != before);
    }
    tw_compare("unsure", &a, &b, LIMIT);
    tw_close(&a);
    tw_close(&b);
}

/* ---- graphs ---- */

struct run {
    uint64_t hash;
    struct fr_device_graph_counts counts;
};

static struct run run_steps(const char *text, bool graphs);

/* Dropout and a schedule give every step other arguments. */
static struct run steps_of_one_shape(bool graphs)
{
    static const char text[] =
        NX_HEAD "network:\n  layers:\n"
                "    - {name: h, mlp: [user_id, {mean: history.v}, price], units: [6], activation: relu}\n"
                "    - {name: d, dropout: h, rate: 0.4}\n"
                "    - {name: out, dense: d, units: 1}\n"
                "  optimizer: {adam: {lr: 0.01, warmup_samples: 300}}\n" NX_ONE_TASK;
    return run_steps(text, graphs);
}

static struct run run_steps(const char *text, bool graphs)
{
    struct twin twin = {0};
    struct run run;
    fr_emulate_fail(FR_EMULATED_NO_GRAPH, graphs ? 0 : 1);
    load(&twin, text, true, 0);
    for (uint64_t step = 0; step < 6; step++) {
        fx_make_batch(&twin.fx, SAMPLES, 3, true, step + 1);
        (void)tw_step(&twin);
    }
    fr_emulate_api()->count_graphs(twin.queue, &run.counts);
    run.hash = tw_hash(&twin);
    tw_close(&twin);
    fr_emulate_fail(FR_EMULATED_NO_GRAPH, 0);
    return run;
}

static void a_step_as_a_graph_has_the_bits_of_one_call_by_call(void **state)
{
    (void)state;
    struct run with = steps_of_one_shape(true), without = steps_of_one_shape(false);
    assert_int_equal(with.counts.made, 2); /* forward; all else */
    /* of six steps; the first forward pass brings parameters, too */
    assert_int_equal(with.counts.launched, 9);
    assert_int_equal(without.counts.launched, 0);
    assert_true(with.hash == without.hash);
}

/* How many steps the sequences have differs from batch to batch. */
static void what_has_no_sequence_of_a_step_is_a_graph(void **state)
{
    static const char text[] = NX_HEAD "network:\n  layers:\n"
                                       "    - {name: a, attention: {query: item_id.v, keys: history.v}, units: [5]}\n"
                                       "    - {name: h, mlp: [a, user_id, price], units: [6], activation: relu}\n"
                                       "    - {name: out, dense: h, units: 1}\n" NX_ONE_TASK;
    (void)state;
    struct run with = run_steps(text, true), without = run_steps(text, false);
    assert_in_range(with.counts.made, 2, 6);
    assert_in_range(with.counts.launched, 8, 36);
    assert_int_equal(without.counts.launched, 0);
    assert_true(with.hash == without.hash);
}

/* ---- beside a step ---- */

enum { BATCHES = 3, TURNS = 4, WIDE = 1 << 20 };

/* Batches that exist at the same time, each with its rows. */
struct stream {
    struct twin twin;
    struct fr_batch batches[BATCHES];
    struct fr_rows rows[BATCHES];
};

/* If the room for rows is small, the batches are small, too: only then do rows of one batch take
 * the place of another's. */
static void stream_open(struct stream *stream, const char *text, bool groups, size_t row_bytes_max)
{
    struct fixture *fx = &stream->twin.fx;
    memset(stream, 0, sizeof(*stream));
    load(&stream->twin, text, true, row_bytes_max);
    for (uint64_t i = 0; i < BATCHES; i++) {
        if (row_bytes_max > 0)
            fx_make_batch(fx, 6, 2, true, i + 1);
        else
            make(&stream->twin, groups, i + 1);
        stream->batches[i] = fx->batch;
        stream->rows[i] = fx->rows;
        memset(&fx->batch, 0, sizeof(fx->batch));
        memset(&fx->rows, 0, sizeof(fx->rows));
    }
}

static void stream_close(struct stream *stream)
{
    for (uint64_t i = 0; i < BATCHES; i++) {
        stream->twin.fx.batch = stream->batches[i];
        stream->twin.fx.rows = stream->rows[i];
        fx_batch_release(&stream->twin.fx);
    }
    tw_close(&stream->twin);
}

/* Makes a step of batch i while the next batch is sent. Returns what the queue was asked for. */
static struct fr_emulated_counts step_beside(struct stream *stream, uint64_t i, bool beside)
{
    struct fr_graph *graph = stream->twin.graph;
    const struct fr_batch *batch = &stream->batches[i % BATCHES];
    const struct fr_rows *rows = &stream->rows[i % BATCHES];
    struct fr_emulated_counts before = fr_emulate_counts(stream->twin.queue), after;
    fr_graph_forward(graph, batch, rows);
    fr_graph_train_begin(graph, batch, rows);
    if (beside)
        fr_graph_bring(graph, &stream->batches[(i + 1) % BATCHES], &stream->rows[(i + 1) % BATCHES]);
    assert_int_equal(fr_graph_train_finish(graph, batch, rows, NULL), FR_OK);
    after = fr_emulate_counts(stream->twin.queue);
    return (struct fr_emulated_counts){.waits = after.waits - before.waits,
                                       .up = after.up - before.up,
                                       .down = after.down - before.down,
                                       .up_bytes = after.up_bytes - before.up_bytes};
}

static uint64_t hash_of_stream(const struct network *network, bool groups, size_t row_bytes_max, bool beside)
{
    struct stream stream;
    stream_open(&stream, network->text, groups, row_bytes_max);
    for (uint64_t i = 0; i < (uint64_t)BATCHES * TURNS; i++) {
        (void)step_beside(&stream, i, beside);
        if (i % 4 == 2)
            tw_fetch(&stream.twin);
    }
    uint64_t hash = tw_hash(&stream.twin);
    stream_close(&stream);
    return hash;
}

static void a_batch_that_comes_beside_a_step_has_the_bits_of_one_at_its_turn(void **state)
{
    (void)state;
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        for (int groups = 0; groups < 2; groups++)
            if (hash_of_stream(&nx_networks[i], groups, 0, true) != hash_of_stream(&nx_networks[i], groups, 0, false))
                fail_msg("%s: other bits", nx_networks[i].name);
    uint64_t hash = hash_of_stream(&nx_networks[0], false, WIDE, false);
    for (size_t narrow = 900; narrow < 2400; narrow += 300)
        if (hash_of_stream(&nx_networks[0], false, narrow, true) != hash)
            fail_msg("other bits with %zu bytes of rows", narrow);
}

/* Once memory has its size, every network makes the same copies: three to the card (the next batch;
 * what is added when its turn comes; what is added when it is trained), and two back, the logits
 * and the answer. The host waits for the answer only. */
static void a_step_waits_once_and_copies_in_few_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct stream stream;
        stream_open(&stream, nx_networks[i].text, false, 0);
        for (uint64_t n = 0; n < (uint64_t)BATCHES * TURNS; n++) {
            struct fr_emulated_counts counts = step_beside(&stream, n, true);
            if (n < (uint64_t)BATCHES * 2)
                continue;
            if (counts.waits != 1 || counts.up > 3 || counts.down != stream.twin.fx.conf.n_tasks + 1)
                fail_msg("%s: step %llu has %llu waits, %llu copies up, %llu back", nx_networks[i].name,
                         (unsigned long long)n, (unsigned long long)counts.waits, (unsigned long long)counts.up,
                         (unsigned long long)counts.down);
        }
        stream_close(&stream);
    }
}

/* ---- rows ---- */

static uint64_t hash_within(size_t row_bytes_max)
{
    struct twin twin = {0};
    load(&twin, nx_networks[0].text, true, row_bytes_max);
    for (uint64_t step = 0; step < 6; step++) {
        fx_make_batch(&twin.fx, 6, 2, true, step + 1);
        (void)tw_step(&twin);
    }
    uint64_t hash = tw_hash(&twin);
    tw_close(&twin);
    return hash;
}

static void where_rows_are_changes_no_bit(void **state)
{
    (void)state;
    uint64_t hash = hash_within(0);
    assert_true(hash_within(0) == hash); /* a second run gives the same */
    assert_true(hash_within(900) == hash);
}

static void rows_of_one_batch_that_do_not_fit_are_an_error(void **state)
{
    (void)state;
    struct twin twin = {0};
    struct fr_err err = {0};
    load(&twin, nx_networks[0].text, true, 400);
    make(&twin, false, 1);
    fr_graph_forward(twin.graph, &twin.fx.batch, &twin.fx.rows);
    assert_int_equal(fr_graph_train(twin.graph, &twin.fx.batch, &twin.fx.rows, NULL), FR_E_NO_MEMORY);
    assert_int_equal(fr_graph_failure(twin.graph, &err), FR_E_NO_MEMORY);
    assert_non_null(strstr(err.text, "gpu_memory_limit"));
    assert_int_equal(fr_graph_fetch(twin.graph, &err), FR_E_NO_MEMORY);
    tw_close(&twin);
}

/* A key that was removed and came back starts from its first values, even if the device still has
 * its old row. The batch that made the row does not see those values. */
static void a_row_made_again_is_not_the_earlier_one(void **state)
{
    (void)state;
    struct twin a = {0}, b = {0};
    load(&a, nx_networks[0].text, false, 0);
    load(&b, nx_networks[0].text, true, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct twin *twin = i == 0 ? &a : &b;
        make(twin, false, 1);
        (void)tw_step(twin);
        for (uint32_t t = 0; t < twin->fx.conf.n_tables; t++) {
            struct fr_table_rows *table = &twin->fx.rows.tables[t];
            table->served = fr_alloc(twin->fx.vocabulary, sizeof(*table->served));
            memcpy(table->served, table->rows, table->n_unique * sizeof(*table->rows));
            for (uint32_t u = 0; u < table->n_unique; u += 2) {
                table->served[u] = NULL;
                for (uint32_t j = 0; j < twin->fx.layouts[t].row_floats && table->rows[u]; j++)
                    table->rows[u][j] = 0.01f * (float)j;
            }
        }
        (void)tw_step(twin);
    }
    tw_compare("made", &a, &b, LIMIT);
    tw_close(&a);
    tw_close(&b);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_network_learns_the_same_on_a_device),
        cmocka_unit_test(every_network_learns_the_same_of_groups),
        cmocka_unit_test(gradients_are_clipped_together),
        cmocka_unit_test(an_average_is_published),
        cmocka_unit_test(factors_of_products_are_rounded_to_bf16),
        cmocka_unit_test(a_refused_step_changes_nothing_and_names_the_same_samples),
        cmocka_unit_test(a_step_that_is_unsure_is_made_once_its_rows_are_checked),
        cmocka_unit_test(a_step_as_a_graph_has_the_bits_of_one_call_by_call),
        cmocka_unit_test(what_has_no_sequence_of_a_step_is_a_graph),
        cmocka_unit_test(a_batch_that_comes_beside_a_step_has_the_bits_of_one_at_its_turn),
        cmocka_unit_test(a_step_waits_once_and_copies_in_few_pieces),
        cmocka_unit_test(where_rows_are_changes_no_bit),
        cmocka_unit_test(rows_of_one_batch_that_do_not_fit_are_an_error),
        cmocka_unit_test(a_row_made_again_is_not_the_earlier_one),
    };
    return cmocka_run_group_tests_name("device", cases, NULL, NULL);
}
