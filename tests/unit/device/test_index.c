/* The rows of a device by key. Look-ups of more keys, and copies of more bytes, than one task takes
 * give the same result with any number of workers. */
#include "../../../trainer/graph/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

enum { TABLES = 3, KEYS = 9000, FEW = 3, ROUNDS = 40000, SPACE = 3000, COPIES = 700 };

/* ---- the index ---- */

static void make_room_for_numbers(struct row_cache *cache, uint32_t n)
{
    cache->keys = fr_alloc(n, sizeof(*cache->keys));
    cache->dirty = fr_alloc(n, sizeof(*cache->dirty));
}

static void release_cache(struct row_cache *cache)
{
    free(cache->keys);
    free(cache->dirty);
    free(cache->changed);
    free(cache->index);
    free(cache->chunks);
}

/* Multiples of a large power of two lie close together in a small index. */
static uint64_t key_of(uint32_t i)
{
    return i % 2 ? fr_fmix64(i) : (uint64_t)i << 40;
}

static void a_row_is_found_until_it_is_erased(void **state)
{
    (void)state;
    static uint32_t numbers[SPACE]; /* a row's number + 1; 0: no row */
    static uint32_t free_numbers[SPACE];
    struct row_cache cache = {0};
    uint32_t n_free = 0;
    make_room_for_numbers(&cache, SPACE);
    assert_null(fr_graph_device_find_row(&cache, 1));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = (uint32_t)(fr_fmix64(round + 1) % SPACE);
        if (numbers[i] == 0) {
            uint32_t number = n_free > 0 ? free_numbers[--n_free] : cache.n++;
            fr_graph_device_insert_row(&cache, key_of(i), number, round);
            numbers[i] = number + 1;
        } else {
            fr_graph_device_erase_row(&cache, key_of(i));
            free_numbers[n_free++] = numbers[i] - 1;
            numbers[i] = 0;
        }
        for (uint32_t k = round % 97; k < SPACE; k += 97) {
            const struct row_place *place = fr_graph_device_find_row(&cache, key_of(k));
            assert_int_equal(place ? place->number : 0, numbers[k]);
        }
    }
    release_cache(&cache);
}

/* ---- keys of a batch ---- */

struct world {
    struct fr_conf conf;
    struct fr_graph graph;
    struct graph_device device;
    struct row_cache caches[TABLES];
    struct arrival arrival;
    struct device_plan plans[TABLES];
    struct fr_rows rows;
    struct fr_table_rows tables[TABLES];
};

static const uint32_t n_keys[TABLES] = {KEYS, 0, FEW};
static float row[1];

static bool is_there(uint32_t u)
{
    return u % 7 != 3;
}

/* Every fifth key has no row, every eleventh row was made by this batch, and every thousandth key
 * has more occurrences than one block holds. */
static void open_world(struct world *w, size_t workers)
{
    memset(w, 0, sizeof(*w));
    w->conf.n_tables = w->rows.n_tables = TABLES;
    w->graph.conf = &w->conf;
    w->graph.device = &w->device;
    w->graph.pool = fr_pool_new(workers);
    w->device.graph = &w->graph;
    w->device.tables = w->caches;
    w->arrival.plans = w->plans;
    w->arrival.turn = 5;
    w->rows.tables = w->tables;
    for (uint32_t t = 0; t < TABLES; t++) {
        struct fr_table_rows *table = &w->tables[t];
        struct row_cache *cache = &w->caches[t];
        table->n_unique = n_keys[t];
        table->keys = fr_alloc(n_keys[t] + 1, sizeof(*table->keys));
        table->rows = fr_alloc(n_keys[t] + 1, sizeof(*table->rows));
        table->served = fr_alloc(n_keys[t] + 1, sizeof(*table->served));
        table->occ_begin = fr_alloc(n_keys[t] + 1, sizeof(*table->occ_begin));
        make_room_for_numbers(cache, KEYS);
        cache->floats = 1;
        cache->log2_chunk = 20;
        cache->chunks = fr_alloc(1, sizeof(*cache->chunks));
        cache->chunks[0] = row;
        for (uint32_t u = 0; u < n_keys[t]; u++) {
            table->keys[u] = key_of(u);
            table->rows[u] = u % 5 != 4 ? row : NULL;
            table->served[u] = u % 11 != 6 ? table->rows[u] : NULL;
            table->occ_begin[u + 1] = table->occ_begin[u] + (u % 1000 == 999 ? 65 : 1);
            if (is_there(u)) {
                fr_graph_device_insert_row(cache, key_of(u), cache->n, 1);
                cache->dirty[cache->n++] = u % 3 == 0;
            }
        }
    }
}

static void close_world(struct world *w)
{
    for (uint32_t t = 0; t < TABLES; t++) {
        free(w->tables[t].keys);
        free(w->tables[t].rows);
        free(w->tables[t].served);
        free(w->tables[t].occ_begin);
        free(w->plans[t].numbers);
        free(w->plans[t].rows);
        free(w->plans[t].served);
        free(w->plans[t].listed.of);
        free(w->plans[t].listed.counts);
        free(w->plans[t].longs.of);
        free(w->plans[t].longs.counts);
        release_cache(&w->caches[t]);
    }
    fr_pool_free(w->graph.pool);
}

static void check_table(const struct world *w, uint32_t t)
{
    const struct device_plan *plan = &w->plans[t];
    uint32_t number = 0, n_listed = 0, n_long = 0;
    for (uint32_t u = 0; u < n_keys[t]; u++) {
        bool wants = u % 5 != 4, there = is_there(u), made = wants && u % 11 == 6;
        uint32_t expected = there ? number++ : FR_NO_ROW;
        assert_int_equal(plan->numbers[u], wants ? expected : FR_NO_ROW);
        assert_ptr_equal(plan->rows[u], wants && there ? row + expected : NULL);
        assert_ptr_equal(plan->served[u], made ? NULL : plan->rows[u]);
        if (there)
            assert_int_equal(fr_graph_device_find_row(&w->caches[t], key_of(u))->turn, wants ? 5 : 1);
        if (wants && (!there || made))
            assert_int_equal(plan->listed.of[n_listed++], u);
        if (u % 1000 == 999)
            assert_int_equal(plan->longs.of[n_long++], u);
    }
    assert_int_equal(plan->listed.n, n_listed);
    assert_int_equal(plan->longs.n, n_long);
}

static void check_changed(const struct world *w, uint32_t t)
{
    const struct row_cache *cache = &w->caches[t];
    uint32_t number = 0;
    size_t n = 0;
    for (uint32_t u = 0; u < n_keys[t]; u++) {
        if (is_there(u) && u % 5 != 4 && u % 3 != 0)
            assert_int_equal(cache->changed[n++], number);
        if (is_there(u))
            assert_int_equal(cache->dirty[number++], u % 5 != 4 || u % 3 == 0);
    }
    assert_int_equal(cache->n_changed, n);
}

static void lists_have_the_order_of_the_keys_with_any_number_of_workers(void **state)
{
    (void)state;
    struct world w;
    for (size_t workers = 1; workers <= 4; workers++) {
        open_world(&w, workers);
        fr_graph_device_find_keys(&w.graph, &w.arrival, &w.rows);
        for (uint32_t t = 0; t < TABLES; t++)
            check_table(&w, t);
        fr_graph_device_mark_rows(&w.graph, &w.arrival, &w.rows);
        for (uint32_t t = 0; t < TABLES; t++)
            check_changed(&w, t);
        close_world(&w);
    }
}

/* ---- copies ---- */

static void copies_of_every_length_arrive_before_the_arena_is_sent(void **state)
{
    (void)state;
    static uint8_t from[3 << 20], to[sizeof(from)];
    struct world w;
    struct arena arena = {0};
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)fr_fmix64(i + 1);
    open_world(&w, 3);
    w.device.arena = &arena;
    for (int turn = 0; turn < 2; turn++) {
        memset(to, 0, sizeof(to));
        size_t at = 0;
        for (size_t i = 0; i < COPIES; i++) {
            size_t n = i == COPIES / 2 ? 1100000 : fr_fmix64(i) % 1500;
            fr_graph_device_copy_later(&w.device, to + at, from + at, n);
            at += n;
        }
        fr_graph_device_copy_later(&w.device, to + at, from + at, sizeof(from) - at);
        fr_graph_device_send(&w.device);
        assert_memory_equal(to, from, sizeof(from));
    }
    free(w.device.copies);
    free(w.device.copy_groups);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_found_until_it_is_erased),
        cmocka_unit_test(lists_have_the_order_of_the_keys_with_any_number_of_workers),
        cmocka_unit_test(copies_of_every_length_arrive_before_the_arena_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
