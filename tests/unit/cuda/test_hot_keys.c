/* Rows' gradients and updates have the processor's bits: short keys, keys of a whole block, and
 * frequent keys, whose blocks are summed by several warps. */
#include "ops/backends.h"

#include "shim/shim.h"

enum { KEYS = 6, ENTRIES = 220, IDS = 1400, ROW_FLOATS = 160 };
static const uint32_t lengths[KEYS] = {1000, 64, 65, 1, 0, 270}; /* occurrences of a key */

struct world {
    struct fr_view memory, narrow, wide;
    float *rows[KEYS], *scratch, *weights;
    uint32_t occ_begin[KEYS + 1], occ[IDS], trained[ENTRIES], source_begin[2];
    uint32_t occ_from[IDS];
    struct fr_row_source sources[3];
    struct fr_row_part parts[2];
    struct fr_row_update update;
};

static void make_world(struct world *w, enum fr_optimizer_kind kind)
{
    memset(w, 0, sizeof(*w));
    struct fr_optimizer optimizer = test_optimizer(kind);
    optimizer.clip_norm = 0.7f;
    w->memory = random_view(KEYS, ROW_FLOATS, ROW_FLOATS, 31);
    for (size_t i = 0; i < KEYS * ROW_FLOATS; i++)
        w->memory.values[i] = fabsf(w->memory.values[i]); /* states are not negative */
    w->narrow = random_view(ENTRIES, 3, 4, 32);
    w->wide = random_view(IDS, 45, 45, 33);
    w->weights = guarded(IDS);
    fill(w->weights, IDS, 34);
    w->scratch = guarded(2 * (16 + 48));
    w->parts[0] = (struct fr_row_part){0, 3, 48, optimizer};
    w->parts[1] = (struct fr_row_part){3, 45, 60, optimizer};
    for (uint32_t k = 0; k < KEYS; k++) {
        w->rows[k] = w->memory.values + k * ROW_FLOATS;
        w->occ_begin[k + 1] = w->occ_begin[k] + lengths[k];
    }
    for (uint32_t o = 0; o < IDS; o++) {
        w->occ[o] = o;
        w->occ_from[o] = o * 7 % ENTRIES;
    }
    for (uint32_t s = 0; s < ENTRIES; s++)
        w->trained[s] = s % 13 == 4 ? 0 : 1 + s % 2;
    w->source_begin[1] = 3;
    const struct fr_row_source plain = {.gradient = w->narrow, .trained = w->trained, .counted = w->trained};
    w->sources[0] = w->sources[1] = w->sources[2] = plain;
    w->sources[1].weights = w->weights;
    w->sources[2].part = 1;
    w->sources[2].by_id = true;
    w->sources[2].gradient = w->wide;
    w->update = (struct fr_row_update){.rows = w->rows,
                                       .occ_begin = w->occ_begin,
                                       .occ = w->occ,
                                       .occ_from = w->occ_from,
                                       .entry_bits = 8,
                                       .n_groups = 1,
                                       .source_begin = w->source_begin,
                                       .sources = w->sources,
                                       .parts = w->parts,
                                       .n_parts = 2,
                                       .end = KEYS,
                                       .scratch = w->scratch};
}

static void release_world(struct world *w)
{
    release_guarded(w->memory.values, KEYS * ROW_FLOATS);
    release_guarded(w->narrow.values, ENTRIES * w->narrow.ld);
    release_guarded(w->wide.values, IDS * w->wide.ld);
    release_guarded(w->weights, IDS);
    release_guarded(w->scratch, 2 * (16 + 48));
}

#define ROW_KIND(name, text, number, where, ...) FR_ROWS_##where(name, )
static const enum fr_optimizer_kind row_kinds[] = {FR_OPTIMIZERS(ROW_KIND)};

FR_CASE(rows_of_hot_and_of_rare_keys_have_the_processors_bits)
{
    for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds); k++) {
        struct world got, want, before;
        char what[64];
        snprintf(what, sizeof(what), "optimizer %d", (int)row_kinds[k]);
        make_world(&got, row_kinds[k]);
        make_world(&want, row_kinds[k]);
        make_world(&before, row_kinds[k]);
        assert_int_equal(fr_shim_ops()->check_rows(&got.update), fr_ops_cpu()->check_rows(&want.update));
        assert_same_bits(got.memory, before.memory, KEYS, ROW_FLOATS, "checking changes nothing");
        for (int step = 0; step < 2; step++) {
            fr_shim_ops()->update_rows(&got.update);
            fr_ops_cpu()->update_rows(&want.update);
        }
        assert_same_bits(got.memory, want.memory, KEYS, ROW_FLOATS, what);
        assert_true(memcmp(got.rows[0], before.rows[0], 48 * sizeof(float)) != 0);
        release_world(&got);
        release_world(&want);
        release_world(&before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_hot_and_of_rare_keys_have_the_processors_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
