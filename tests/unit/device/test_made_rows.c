/* Rows that a batch makes, on the emulated card: they get their first values there, with the same
 * bits as on the host, and the host does not send their floats. */
#include "device/twins.h"

enum { SAMPLES = 24, VOCABULARY = 60, ROUNDS = 8, REFUSED = 3 };
enum { WIDE, NARROW = 18000 /* of 34000 that all rows take */ };

static const char text[] =
    "version: 1\n"
    "model: test\n"
    "state_dir: nowhere\n"
    "ingest: {brokers: 'localhost:9092', topic: t}\n"
    "tables:\n"
    "  user: {dim: 40, optimizer: {adagrad: {lr: 0.05, initial: 0.25}}}\n"
    "  item:\n"
    "    parts: {w: {dim: 1, optimizer: {adam: {lr: 0.01}}}, v: {dim: 67, optimizer: {adagrad_rowwise: {lr: 0.1}}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  item_id: {table: item}\n"
    "  price: {kind: dense, dim: 1}\n"
    "labels: {click: {}}\n"
    "network:\n"
    "  layers:\n"
    "    - {name: h, mlp: [user_id, item_id.w, item_id.v, price], units: [6], activation: relu}\n"
    "    - {name: out, dense: h, units: 1}\n"
    "tasks: [{name: click, label: click, logit: out}]\n";

static const struct fr_value_place places[2] = {{.seed = 1, .stream = 1000}, {.seed = 7, .stream = 1001}};

/* What a store writes into the row of a key that it admits. */
static void begin_row(const struct fixture *fx, uint32_t t, uint64_t key, float *row)
{
    const struct fr_row_layout *layout = &fx->layouts[t];
    for (uint32_t p = 0; p < layout->n_parts; p++) {
        const struct fr_layout_part *part = &layout->parts[p];
        const struct fr_value_place at = {.seed = places[t].seed,
                                          .stream = places[t].stream,
                                          .key = key,
                                          .index = part->value_offset,
                                          .fan_in = (double)part->dim,
                                          .fan_out = (double)part->dim};
        fr_first_values(&part->init, &at, row + part->value_offset, part->dim);
        for (uint32_t j = 0; j < part->state_floats; j++)
            row[part->state_offset + j] = part->state_initial;
    }
}

/* Makes a third of the batch's keys new, whether they had rows or not. Returns the bytes of their
 * rows. */
static size_t make(struct twin *twin, uint64_t seed)
{
    struct fixture *fx = &twin->fx;
    size_t bytes = 0;
    fx_make_batch(fx, SAMPLES, 1, false, seed);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        struct fr_table_rows *table = &fx->rows.tables[t];
        table->served = fr_alloc(fx->vocabulary, sizeof(*table->served));
        for (uint32_t u = 0; u < table->n_unique; u++) {
            bool made = table->rows[u] && (table->keys[u] + seed) % 3 == 0;
            table->served[u] = made ? NULL : table->rows[u];
            if (made)
                begin_row(fx, t, table->keys[u], table->rows[u]);
            bytes += made ? fx->layouts[t].row_floats * sizeof(float) : 0;
        }
    }
    return bytes;
}

struct outcome {
    uint64_t hash, up_bytes;
    size_t made_bytes;
};

static struct outcome run(struct fr_conf_init init, bool there, size_t row_bytes_max)
{
    struct twin twin = {0};
    struct outcome outcome = {0};
    fx_load(&twin.fx, VOCABULARY, text);
    for (uint32_t t = 0; t < twin.fx.conf.n_tables; t++)
        for (uint32_t p = 0; p < twin.fx.conf.tables[t].n_parts; p++)
            twin.fx.conf.tables[t].parts[p].init =
                t + p == 1 ? (struct fr_conf_init){.kind = FR_INIT_NORMAL, .scale = 0.5f} : init;
    fx_make_rows(&twin.fx, 5);
    tw_places = there ? places : NULL;
    tw_open(&twin, true, row_bytes_max);
    tw_places = NULL;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        outcome.made_bytes += make(&twin, round);
        if (round == REFUSED) { /* the rows that the refused batch made begin again */
            twin.fx.batch.columns[2].dense[7] = 3e38f;
            twin.fx.batch.columns[2].dense[11] = -3e38f;
            fr_graph_forward(twin.graph, &twin.fx.batch, &twin.fx.rows);
            assert_int_equal(fr_graph_train(twin.graph, &twin.fx.batch, &twin.fx.rows, NULL), FR_E_NONFINITE);
            outcome.made_bytes += make(&twin, round);
        }
        (void)tw_step(&twin);
    }
    outcome.up_bytes = fr_emulate_counts(twin.queue).up_bytes;
    outcome.hash = tw_hash(&twin);
    tw_close(&twin);
    return outcome;
}

#define KIND(name, text, scaled, form) {.kind = (name), .scale = (scaled) ? 0.1f : 0.0f},
static const struct fr_conf_init inits[] = {FR_ROW_INITS(KIND, KIND)};

static void first_values_of_every_kind_are_the_hosts(void **state)
{
    (void)state;
    for (size_t i = 0; i < FR_ARRAY_LEN(inits); i++) {
        struct outcome sent = run(inits[i], false, WIDE), wide = run(inits[i], true, WIDE);
        struct outcome narrow = run(inits[i], true, NARROW);
        assert_true(narrow.up_bytes > wide.up_bytes);
        if (wide.hash != sent.hash || narrow.hash != sent.hash)
            fail_msg("kind %d: other bits", (int)inits[i].kind);
    }
}

static void rows_that_a_batch_makes_are_not_sent(void **state)
{
    (void)state;
    const struct fr_conf_init init = {.kind = FR_INIT_NORMAL, .scale = 0.1f};
    struct outcome sent = run(init, false, WIDE), there = run(init, true, WIDE);
    assert_true(there.made_bytes == sent.made_bytes && sent.made_bytes > 20000);
    assert_true(there.up_bytes < sent.up_bytes && sent.up_bytes - there.up_bytes > sent.made_bytes / 10 * 9);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(first_values_of_every_kind_are_the_hosts),
        cmocka_unit_test(rows_that_a_batch_makes_are_not_sent),
    };
    return cmocka_run_group_tests_name("made rows", cases, NULL, NULL);
}
