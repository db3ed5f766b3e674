/* Rows over ranks (graph/ranks.h): ranks that have some of the lanes each write the sums of their
 * rows, and homes that have some of the keys each join and step them. Rows and their state are
 * those of one graph that has all lanes, bit for bit. Messages that are cut or forged are refused.
 * */
#include "graph/ranks.h"

#include "lanes_world.h"
#include "networks.h"

enum { VOCABULARY = 160, RANKS_MAX = 6, SAMPLES = 200 };
enum form { PLAIN, GROUPS, SINGLE, FORMS };

struct rank {
    struct fixture fx;
    struct fr_pool *pool;
    struct fr_graph *graph;
    struct fr_domains lanes;
    struct fr_unique_range ranges[RANKS_MAX][FX_SLOTS]; /* of each home */
    struct fr_buffer out[RANKS_MAX];
    struct fr_home_rows home;
};

struct world {
    const struct network *network;
    enum form form;
    uint32_t lanes, n;
    struct fr_ops ops;
    struct rank one, ranks[RANKS_MAX];
};

/* The sums are applied by the test, after all have read the rows. */
static void no_update(const struct fr_row_update *update)
{
    (void)update;
}

static uint32_t home_of(const struct world *w, uint64_t key)
{
    return (uint32_t)(key * w->n / VOCABULARY);
}

/* ---- batches ---- */

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the unique keys, as those of one home must be adjacent. */
static void sort_uniques(struct fixture *fx, uint32_t t)
{
    struct fr_table_rows *table = &fx->rows.tables[t], old = *table;
    uint32_t n = table->n_unique, number[VOCABULARY];
    table->keys = fr_alloc(VOCABULARY, sizeof(*table->keys));
    table->rows = fr_alloc(VOCABULARY, sizeof(*table->rows));
    table->occ = fr_alloc(old.n_occurrences, sizeof(*table->occ));
    table->occ_from = fr_alloc(old.n_occurrences, sizeof(*table->occ_from));
    table->occ_begin = fr_alloc(VOCABULARY + 1, sizeof(*table->occ_begin));
    memcpy(table->keys, old.keys, n * sizeof(*table->keys));
    qsort(table->keys, n, sizeof(*table->keys), by_key);
    for (uint32_t u = 0; u < n; u++)
        for (uint32_t from = 0; from < n; from++) {
            if (old.keys[from] != table->keys[u])
                continue;
            uint32_t size = old.occ_begin[from + 1] - old.occ_begin[from];
            number[from] = u;
            table->rows[u] = old.rows[from];
            table->occ_begin[u + 1] = table->occ_begin[u] + size;
            memcpy(table->occ + table->occ_begin[u], old.occ + old.occ_begin[from], size * sizeof(uint32_t));
            memcpy(table->occ_from + table->occ_begin[u], old.occ_from + old.occ_begin[from], size * sizeof(uint32_t));
        }
    for (uint32_t o = 0; o < table->n_occurrences; o++)
        table->unique_of[o] = number[table->unique_of[o]];
    void *const arrays[] = {old.keys, old.rows, old.occ, old.occ_from, old.occ_begin};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
}

static void make_batch(const struct world *w, struct rank *rank, uint64_t seed)
{
    struct fixture *fx = &rank->fx;
    if (w->form == GROUPS)
        fx_make_groups(fx, SAMPLES, 5, 0x155, seed);
    else
        fx_make_batch(fx, SAMPLES, w->form == SINGLE ? 1 : 4, w->form == PLAIN, seed);
    if (w->form != SINGLE)
        fx_vary_roles(fx);
    lx_divide(fx, w->lanes, SPLIT_UNEVEN, 0);
    struct fr_batch *b = &fx->batch;
    uint32_t first = fr_batch_lane_begin(b, rank->lanes.first), end = fr_batch_lane_begin(b, rank->lanes.end);
    lx_keep_groups(fx, first, end - first);
    for (uint32_t l = 0; l < w->lanes; l++) {
        uint32_t at = b->lane_begin[l] < first ? first : b->lane_begin[l];
        b->lane_begin[l] = (at < end ? at : end) - first;
    }
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        sort_uniques(fx, t);
    if (w->lanes > 1)
        lx_order_rows(fx);
    lx_serve(fx);
    for (uint32_t h = 0; h < w->n; h++)
        for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
            const struct fr_table_rows *table = &fx->rows.tables[t];
            struct fr_unique_range *range = &rank->ranges[h][t];
            for (range->begin = 0; range->begin < table->n_unique && home_of(w, table->keys[range->begin]) < h;)
                range->begin++;
            for (range->end = range->begin; range->end < table->n_unique && home_of(w, table->keys[range->end]) == h;)
                range->end++;
        }
}

/* ---- homes ---- */

/* Merges the keys that all ranks send to a home, as the store does. */
static void merge_keys(struct world *w, uint32_t h)
{
    struct fixture *fx = &w->ranks[h].fx;
    struct fr_home_rows *home = &w->ranks[h].home;
    *home = (struct fr_home_rows){.n_ranks = w->n, .n_tables = fx->conf.n_tables};
    home->tables = fr_alloc(home->n_tables, sizeof(*home->tables));
    for (uint32_t t = 0; t < home->n_tables; t++) {
        struct fr_home_table *table = &home->tables[t];
        uint32_t number[VOCABULARY] = {0};
        table->rows = fr_alloc(VOCABULARY, sizeof(*table->rows));
        table->n_sent = fr_alloc(w->n, sizeof(*table->n_sent));
        table->merged = fr_alloc(w->n, sizeof(*table->merged));
        for (uint32_t r = 0; r < w->n; r++) {
            struct fr_unique_range range = w->ranks[r].ranges[h][t];
            table->n_sent[r] = range.end - range.begin;
            table->merged[r] = fr_alloc(VOCABULARY, sizeof(**table->merged));
            for (uint32_t i = 0; i < table->n_sent[r]; i++) {
                uint64_t key = w->ranks[r].fx.rows.tables[t].keys[range.begin + i];
                if (number[key] == 0) {
                    table->rows[table->n_keys] =
                        key % 7 == 3 ? NULL : fx->row_memory[t] + key * fx->layouts[t].row_floats;
                    number[key] = ++table->n_keys;
                }
                table->merged[r][i] = number[key] - 1;
            }
        }
    }
}

static void release_home(struct fr_home_rows *home)
{
    for (uint32_t t = 0; t < home->n_tables; t++) {
        for (uint32_t r = 0; r < home->n_ranks; r++)
            free(home->tables[t].merged[r]);
        free(home->tables[t].merged);
        free(home->tables[t].n_sent);
        free(home->tables[t].rows);
    }
    free(home->tables);
}

/* ---- steps ---- */

static void open_rank(struct world *w, struct rank *rank, uint32_t number, struct fr_domains lanes, size_t workers)
{
    fx_load(&rank->fx, VOCABULARY, w->network->text);
    rank->fx.conf.domains = w->lanes;
    rank->lanes = lanes;
    fx_make_rows(&rank->fx, 5);
    rank->pool = workers > 1 ? fr_pool_new(workers) : NULL;
    rank->graph = fr_graph_new(&(struct fr_graph_options){.conf = &rank->fx.conf,
                                                          .ops = &w->ops,
                                                          .pool = rank->pool,
                                                          .lanes = w->n > 1 ? lanes : (struct fr_domains){0},
                                                          .rank = number,
                                                          .n_ranks = w->n});
}

static void close_rank(struct rank *rank, uint32_t n)
{
    for (uint32_t h = 0; h < n; h++)
        fr_buffer_release(&rank->out[h]);
    fr_graph_free(rank->graph);
    fr_pool_free(rank->pool);
    fx_release(&rank->fx);
}

/* Gives a rank the parameters, their state and the rows of the graph that has all lanes. */
static void follow(const struct world *w, struct rank *rank)
{
    struct fr_buffer state = {0};
    for (size_t p = 0; p < fr_graph_parameter_count(w->one.graph); p++) {
        const struct fr_parameter *from = &fr_graph_parameters(w->one.graph)[p];
        memcpy(fr_graph_parameters(rank->graph)[p].values, from->values, from->n_values * sizeof(float));
    }
    save_state(w->one.graph, &state);
    assert_int_equal(restore_state(rank->graph, state.data, state.size), FR_OK);
    fr_buffer_release(&state);
    for (uint32_t t = 0; t < rank->fx.conf.n_tables; t++)
        memcpy(rank->fx.row_memory[t], w->one.fx.row_memory[t],
               (size_t)VOCABULARY * rank->fx.layouts[t].row_floats * sizeof(float));
}

static void update_one(const struct world *w, uint32_t *bits)
{
    const struct rank *one = &w->one;
    struct graph_run run = {.graph = one->graph, .batch = &one->fx.batch, .rows = &one->fx.rows};
    *bits = 0;
    for (uint32_t t = 0; t < one->fx.conf.n_tables; t++) {
        struct fr_row_update update = fr_graph_row_update(&run, t, 0);
        update.end = one->fx.rows.tables[t].n_unique;
        if (update.source_begin[update.n_groups] == 0)
            continue;
        uint32_t found = fr_ops_cpu()->check_rows(&update);
        *bits = found > *bits ? found : *bits;
        fr_ops_cpu()->update_rows(&update);
    }
}

static void compare_rows(const struct world *w)
{
    for (uint32_t t = 0; t < w->one.fx.conf.n_tables; t++)
        for (uint64_t key = 0; key < VOCABULARY; key++) {
            uint32_t h = home_of(w, key), n = w->one.fx.layouts[t].row_floats;
            const float *want = w->one.fx.row_memory[t] + key * n, *got = w->ranks[h].fx.row_memory[t] + key * n;
            for (uint32_t i = 0; i < n; i++)
                if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
                    fail_msg("%s, form %d, %u lanes, %u ranks: table %u, key %u, float %u: %a, expected %a",
                             w->network->name, (int)w->form, w->lanes, w->n, t, (uint32_t)key, i, (double)got[i],
                             (double)want[i]);
        }
}

/* The backward pass of all, and the messages. */
static void sum_ranks(struct world *w, uint64_t seed)
{
    make_batch(w, &w->one, seed);
    for (uint32_t r = 0; r < w->n; r++) {
        struct rank *rank = &w->ranks[r];
        follow(w, rank);
        make_batch(w, rank, seed);
        if (rank->fx.batch.n_samples > 0)
            (void)fx_step(&rank->fx, rank->graph);
        for (uint32_t h = 0; h < w->n; h++) {
            fr_buffer_clear(&rank->out[h]);
            fr_graph_put_row_sums(rank->graph, &rank->fx.batch, &rank->fx.rows, rank->ranges[h], &rank->out[h]);
        }
    }
}

/* The optimizers of the step, as fr_graph_begin_step sets them from what all ranks know. */
static void begin_step(const struct world *w, struct rank *rank)
{
    for (uint32_t t = 0; t < rank->fx.conf.n_tables; t++)
        memcpy(rank->graph->tables[t].parts, w->one.graph->tables[t].parts, sizeof(w->one.graph->tables[t].parts));
}

static void step(struct world *w, uint64_t seed)
{
    struct fr_err err = {0};
    uint32_t want = 0, bits = 0;
    sum_ranks(w, seed);
    (void)fx_step(&w->one.fx, w->one.graph);
    update_one(w, &want);
    for (uint32_t h = 0; h < w->n; h++) {
        struct fr_bytes in[RANKS_MAX];
        struct rank *home = &w->ranks[h];
        for (uint32_t r = 0; r < w->n; r++)
            in[r] = (struct fr_bytes){w->ranks[r].out[h].data, w->ranks[r].out[h].size};
        merge_keys(w, h);
        if (fr_graph_read_row_sums(home->graph, &home->home, in, &err) != FR_OK)
            fail_msg("%s", err.text);
        uint32_t found = fr_graph_row_bits(home->graph);
        bits = found > bits ? found : bits;
        begin_step(w, home);
        fr_graph_step_home_rows(home->graph);
        release_home(&home->home);
    }
    assert_int_equal(bits, want);
    compare_rows(w);
}

static struct world *open_world(const struct network *network, enum form form, uint32_t lanes, uint32_t n)
{
    struct world *w = fr_alloc(1, sizeof(*w));
    *w = (struct world){.network = network, .form = form, .lanes = lanes, .n = n, .ops = *fr_ops_cpu()};
    w->ops.update_rows = no_update;
    open_rank(w, &w->one, 0, (struct fr_domains){0, lanes}, 1);
    for (uint32_t r = 0; r < n; r++)
        open_rank(w, &w->ranks[r], r, fr_rank_domains(r, n, lanes), 1 + (r + n) % 3);
    return w;
}

static void close_world(struct world *w)
{
    close_rank(&w->one, 0);
    for (uint32_t r = 0; r < w->n; r++)
        close_rank(&w->ranks[r], w->n);
    free(w);
}

FR_CASE(rows_of_any_number_of_ranks_are_those_of_one)
{
    static const struct {
        uint32_t lanes, n;
    } divisions[] = {{12, 1}, {12, 2}, {12, 3}, {12, 4}, {12, 6}, {5, 2}, {5, 5}, {1, 1}};
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++)
        for (size_t d = 0; d < FR_ARRAY_LEN(divisions); d++) {
            struct world *w =
                open_world(&nx_networks[i], (enum form)((i + d) % FORMS), divisions[d].lanes, divisions[d].n);
            for (uint64_t seed = 3; seed < 6; seed++)
                step(w, seed);
            close_world(w);
        }
}

/* ---- messages ---- */

/* Reads messages of which that of rank 1 is replaced, in memory of exactly its size, so that a
 * sanitizer sees a read beyond it. What is accepted is applied. */
static bool reads(struct world *w, const uint8_t *bytes, size_t size)
{
    struct fr_err err = {0};
    struct rank *home = &w->ranks[0];
    struct fr_bytes in[RANKS_MAX];
    uint8_t *exact = fr_alloc(size ? size : 1, 1);
    memcpy(exact, bytes, size);
    for (uint32_t r = 0; r < w->n; r++)
        in[r] = (struct fr_bytes){w->ranks[r].out[0].data, w->ranks[r].out[0].size};
    in[1] = (struct fr_bytes){exact, size};
    enum fr_status status = fr_graph_read_row_sums(home->graph, &home->home, in, &err);
    if (status == FR_OK) {
        (void)fr_graph_row_bits(home->graph);
        fr_graph_step_home_rows(home->graph);
    } else {
        assert_int_equal(status, FR_E_CORRUPT);
        assert_non_null(strstr(err.text, "rank 1"));
    }
    free(exact);
    return status == FR_OK;
}

FR_CASE(a_cut_or_forged_message_is_refused)
{
    struct world *w = open_world(&nx_networks[0], PLAIN, 12, 4);
    sum_ranks(w, 3);
    merge_keys(w, 0);
    const struct fr_buffer *whole = &w->ranks[1].out[0];
    for (size_t size = 0; size < whole->size; size++)
        assert_false(reads(w, whole->data, size));
    assert_true(reads(w, whole->data, whole->size));
    uint32_t accepted = 0;
    for (uint64_t round = 0, drawn = 0; round < 2000; round++) {
        uint8_t *forged = fr_alloc(whole->size + 8, 1);
        memcpy(forged, whole->data, whole->size);
        /* half of the changes are in the head, and the rest anywhere */
        size_t range = round % 2 ? whole->size : 160;
        for (uint64_t n = 1 + fr_random_u64(7, 1, 0, drawn++) % 3; n > 0; n--) {
            size_t at = fr_random_u64(7, 1, 0, drawn++) % range;
            forged[at] ^= (uint8_t)(1 + fr_random_u64(7, 1, 0, drawn++) % 255);
        }
        accepted += reads(w, forged, whole->size + (round % 50 == 7 ? 4 : 0));
        free(forged);
    }
    assert_true(accepted > 0 && accepted < 1800); /* floats may be any */
    release_home(&w->ranks[0].home);
    close_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_any_number_of_ranks_are_those_of_one),
        cmocka_unit_test(a_cut_or_forged_message_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
