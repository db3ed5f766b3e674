/* Plan: occurrences and their numbering, gates, roles, admit and touch, initial rows, independence
 * of the worker count. */
#include "store_fixture.h"

#include "../../../store/tables.h"
#include "random_weight.h"

static const struct fr_table_rows *table_rows(const struct world *w, uint32_t t)
{
    return &w->rows->tables[t];
}

static uint32_t unique_of_key(const struct fr_table_rows *rows, uint64_t key)
{
    for (uint32_t u = 0; u < rows->n_unique; u++)
        if (rows->keys[u] == key)
            return u;
    fail_msg("key %llu is not in the batch", (unsigned long long)key);
    return 0;
}

FR_CASE(occurrences_are_numbered_slot_by_slot_and_listed_ascending_by_key)
{
    struct world w = {0};
    world_add_table(&w, 1, 0, 0);
    world_add_slot(&w, 0, true, true);
    world_add_slot(&w, FR_NO_INDEX, false, false);
    world_add_slot(&w, 0, true, true);
    world_open(&w, 1);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, 0);
    batch_id(b, 0, 10);
    batch_id(b, 0, 20);
    batch_id(b, 2, 20);
    batch_sample(b, FR_ROLE_TRAIN, 0);
    batch_id(b, 0, 10);
    batch_id(b, 2, 30);
    batch_id(b, 2, 10);
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    /* slot 0: 10 20 10, slot 2: 20 30 10 -> numbers 0..5 */
    const uint64_t by_number[] = {10, 20, 10, 20, 30, 10};
    const uint32_t entries[] = {0, 0, 1, 0, 1, 1};
    const struct fr_table_rows *rows = table_rows(&w, 0);
    assert_int_equal(w.rows->slot_base[0], 0);
    assert_int_equal(w.rows->slot_base[2], 3);
    assert_int_equal(rows->n_occurrences, 6);
    assert_int_equal(rows->n_unique, 3);
    assert_int_equal(rows->occ_begin[0], 0);
    assert_int_equal(rows->occ_begin[3], 6);
    for (uint32_t o = 0; o < 6; o++)
        assert_int_equal(rows->keys[rows->unique_of[o]], by_number[o]);
    for (uint32_t u = 0; u < 3; u++) {
        assert_non_null(rows->rows[u]);
        for (uint32_t i = rows->occ_begin[u]; i < rows->occ_begin[u + 1]; i++) {
            assert_int_equal(by_number[rows->occ[i]], rows->keys[u]);
            assert_true(i == rows->occ_begin[u] || rows->occ[i] > rows->occ[i - 1]);
            assert_int_equal(rows->occ_from[i], (rows->occ[i] / 3) << FR_ENTRY_BITS | entries[rows->occ[i]]);
        }
    }
    free(b);
    world_close(&w);
}

FR_CASE(an_empty_batch_has_no_keys)
{
    struct world w;
    world_simple(&w, 1, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    assert_int_equal(table_rows(&w, 0)->n_unique, 0);
    assert_int_equal(table_rows(&w, 0)->n_occurrences, 0);
    assert_int_equal(table_rows(&w, 0)->occ_begin[0], 0);
    free(b);
    world_close(&w);
}

FR_CASE(the_gate_counts_the_whole_batch_before_dedup)
{
    struct world w;
    world_simple(&w, 3, 0);
    plan_key_times(&w, 99, 2, 5);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 99, &view), FR_OK);
    assert_int_equal(view.kind, FR_IMAGE_PENDING);
    assert_int_equal(view.count, 2);
    assert_int_equal(view.seen_ms, 5);
    assert_null(table_rows(&w, 0)->rows[0]);
    /* This batch has the second and third occurrence; both see the row. */
    plan_key_times(&w, 99, 2, 6);
    assert_true(is_live(&w, 0, 99));
    assert_non_null(table_rows(&w, 0)->rows[0]);
    assert_int_equal(fr_store_find(w.store, 0, 99, &view), FR_OK);
    assert_int_equal(view.seen_ms, 6);
    assert_true(view.show == 2.0f);
    struct fr_store_table_stats stats;
    fr_store_stats(w.store, 0, &stats);
    assert_int_equal(stats.counts.admitted, 1);
    assert_int_equal(stats.counts.rejected, 2);
    assert_int_equal(stats.counts.pending, 0);
    assert_int_equal(stats.counts.rows, 1);
    world_close(&w);
}

FR_CASE(samples_that_do_not_train_look_up_only)
{
    struct world w;
    world_simple(&w, 1, 0);
    plan_key_times(&w, 1, 1, 10);
    struct fr_stage stage;
    fr_stage_init(&stage);
    fr_store_cut(w.store, &stage);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_METRICS_ONLY, 1);
    batch_id(b, 0, 1);
    batch_id(b, 0, 2);
    batch_sample(b, FR_ROLE_MASKED, 1);
    batch_id(b, 0, 1);
    batch_id(b, 0, 3);
    fr_store_plan(w.store, &b->batch, 20, w.rows);
    const struct fr_table_rows *rows = table_rows(&w, 0);
    assert_int_equal(rows->n_unique, 3);
    assert_non_null(rows->rows[unique_of_key(rows, 1)]);
    assert_null(rows->rows[unique_of_key(rows, 2)]);
    assert_null(rows->rows[unique_of_key(rows, 3)]);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 1, &view), FR_OK);
    assert_int_equal(view.seen_ms, 10);
    assert_true(view.show == 1.0f && view.click == 0.0f);
    assert_int_equal(fr_store_find(w.store, 0, 2, &view), FR_E_NOT_FOUND);
    assert_int_equal(fr_store_dirty_bytes(w.store), 0);
    struct fr_store_table_stats stats;
    fr_store_stats(w.store, 0, &stats);
    assert_int_equal(stats.counts.rejected, 0);
    fr_stage_release(&stage);
    free(b);
    world_close(&w);
}

FR_CASE(a_slot_that_does_not_admit_neither_counts_nor_admits)
{
    struct world w = {0};
    world_add_table(&w, 2, 0, 0);
    world_add_slot(&w, 0, true, true);
    world_add_slot(&w, 0, false, true);
    world_open(&w, 1);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, 0);
    for (int i = 0; i < 5; i++)
        batch_id(b, 1, 7);
    batch_id(b, 0, 8);
    batch_id(b, 1, 8);
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 7, &view), FR_E_NOT_FOUND);
    assert_int_equal(fr_store_find(w.store, 0, 8, &view), FR_OK);
    assert_int_equal(view.count, 1);
    /* Once the row exists, that slot reads and touches it, too. */
    plan_key_times(&w, 8, 1, 2);
    assert_int_equal(fr_store_find(w.store, 0, 8, &view), FR_OK);
    assert_true(view.kind == FR_IMAGE_ROW && view.show == 1.0f);
    fr_store_plan(w.store, &b->batch, 3, w.rows);
    assert_int_equal(fr_store_find(w.store, 0, 8, &view), FR_OK);
    assert_true(view.show == 3.0f && view.seen_ms == 3);
    free(b);
    world_close(&w);
}

FR_CASE(a_slot_that_does_not_touch_leaves_seen_and_counters_but_marks_dirty)
{
    struct world w = {0};
    world_add_table(&w, 1, 0, 0);
    world_add_slot(&w, 0, true, true);
    world_add_slot(&w, 0, true, false);
    world_open(&w, 1);
    plan_key_times(&w, 5, 1, 10);
    struct fr_stage stage;
    fr_stage_init(&stage);
    fr_store_cut(w.store, &stage);
    assert_int_equal(fr_store_dirty_bytes(w.store), 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, 1);
    batch_id(b, 1, 5);
    fr_store_plan(w.store, &b->batch, 20, w.rows);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 5, &view), FR_OK);
    assert_int_equal(view.seen_ms, 10);
    assert_true(view.show == 1.0f && view.click == 0.0f);
    assert_true(fr_store_dirty_bytes(w.store) > 0); /* its values are trained nevertheless */
    batch_id(b, 1, 6);
    fr_store_plan(w.store, &b->batch, 20, w.rows);
    assert_int_equal(fr_store_find(w.store, 0, 6, &view), FR_OK);
    assert_int_equal(view.seen_ms, 20); /* the watermark of its admission */
    assert_true(view.show == 0.0f);
    fr_stage_release(&stage);
    free(b);
    world_close(&w);
}

FR_CASE(clicks_add_up_label_0_where_it_is_positive)
{
    struct world w;
    world_simple(&w, 1, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    const float labels[] = {1.0f, 0.0f, 0.25f, nanf(""), -3.0f};
    for (size_t i = 0; i < FR_ARRAY_LEN(labels); i++) {
        batch_sample(b, FR_ROLE_TRAIN, labels[i]);
        batch_id(b, 0, 44);
    }
    batch_id(b, 0, 44);
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 44, &view), FR_OK);
    assert_true(view.show == 6.0f && view.click == 1.25f);
    free(b);
    world_close(&w);
}

/* As f32, a counter that grows by one would stay at 2^24. */
FR_CASE(counters_count_beyond_2_to_the_24th)
{
    struct world w, r;
    world_simple(&w, 1, 0);
    world_simple(&r, 1, 0);
    plan_key_times(&w, 44, 1, 1);
    uint64_t hash = fr_order_hash(&w.store->order, 44);
    const struct fr_shard *shard = &w.store->tables[0].shards[fr_shard_of(hash)];
    struct fr_row_head *tail = &fr_entries_live(&shard->entries, fr_shard_find(shard, hash))->head;
    tail->show = (1u << 24) - 1;
    tail->click = (1u << 24) - 1;
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    for (int i = 0; i < 5; i++) {
        batch_begin(b, &w);
        batch_sample(b, FR_ROLE_TRAIN, 1.0f);
        batch_id(b, 0, 44);
        fr_store_plan(w.store, &b->batch, 1, w.rows);
    }
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 44, &view), FR_OK);
    assert_int_equal(view.show, (1u << 24) + 4);
    assert_true(view.click == (double)((1u << 24) + 4));
    struct fr_stage stage;
    fr_stage_init(&stage);
    fr_store_cut(w.store, &stage);
    struct fr_epoch images = stage_view(&stage);
    struct fr_image image;
    const uint8_t *at = NULL;
    assert_int_equal(fr_epoch_next(&images, &at, &image), FR_OK);
    assert_int_equal(fr_store_restore_image(r.store, &image), FR_OK);
    assert_int_equal(fr_store_find(r.store, 0, 44, &view), FR_OK);
    assert_int_equal(view.show, (1u << 24) + 4);
    assert_true(view.click == (double)((1u << 24) + 4));
    fr_stage_release(&stage);
    free(b);
    world_close(&w);
    world_close(&r);
}

FR_CASE(what_is_served_lacks_the_rows_this_batch_made)
{
    struct world w;
    world_simple(&w, 2, 0);
    plan_key_times(&w, 1, 2, 1); /* admitted here */
    assert_non_null(table_rows(&w, 0)->rows[0]);
    assert_null(table_rows(&w, 0)->served[0]);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, 0);
    batch_id(b, 0, 1); /* has its row */
    batch_id(b, 0, 2); /* stays pending */
    batch_id(b, 0, 3); /* gets one now */
    batch_id(b, 0, 3);
    batch_sample(b, FR_ROLE_METRICS_ONLY, 0);
    batch_id(b, 0, 3);
    fr_store_plan(w.store, &b->batch, 2, w.rows);
    const struct fr_table_rows *rows = table_rows(&w, 0);
    for (uint32_t u = 0; u < 3; u++) {
        uint64_t key = rows->keys[u];
        assert_int_equal(rows->rows[u] != NULL, key != 2);
        assert_ptr_equal(rows->served[u], key == 1 ? rows->rows[u] : NULL);
    }
    plan_key_times(&w, 3, 1, 3);
    assert_ptr_equal(table_rows(&w, 0)->served[0], table_rows(&w, 0)->rows[0]);
    assert_non_null(table_rows(&w, 0)->served[0]);
    free(b);
    world_close(&w);
}

FR_CASE(a_new_row_is_a_function_of_seed_table_key_and_index)
{
    struct world w = {0};
    world_add_table(&w, 1, 0, 0);
    world_add_table(&w, 1, 0, 0);
    w.tables[1].layout.parts[0].init = (struct fr_conf_init){.kind = FR_INIT_UNIFORM, .scale = 2.0f};
    world_add_slot(&w, 0, true, true);
    world_add_slot(&w, 1, true, true);
    world_open(&w, 2);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, 0);
    batch_id(b, 0, UINT64_MAX);
    batch_id(b, 1, 0);
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, UINT64_MAX, &view), FR_OK);
    uint64_t stream = fr_xxh3("table0", 6);
    for (uint32_t j = 0; j < TEST_DIM; j++)
        assert_true(view.row[j] == (float)((double)random_weight(7, stream, UINT64_MAX, j) * (double)0.1f));
    assert_true(view.row[3] == 0.5f && view.row[4] == 0.5f);
    assert_int_equal(fr_store_find(w.store, 1, 0, &view), FR_OK);
    stream = fr_xxh3("table1", 6);
    for (uint32_t j = 0; j < TEST_DIM; j++) {
        assert_true(view.row[j] == (float)((2.0 * fr_random_uniform(7, stream, 0, j) - 1.0) * 2.0));
        assert_true(view.row[j] >= -2.0f && view.row[j] < 2.0f);
    }
    free(b);
    world_close(&w);
}

FR_CASE(rows_keep_their_values_while_the_table_grows)
{
    struct world w;
    world_simple(&w, 1, 0);
    plan_key_times(&w, 1, 1, 1);
    float values[TEST_ROW_FLOATS] = {1, 2, 3, 4, 5};
    memcpy(table_rows(&w, 0)->rows[0], values, sizeof(values));
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint64_t random = 3;
    for (int i = 0; i < 200; i++) {
        random_batch(b, &w, &random, 20000);
        fr_store_plan(w.store, &b->batch, 1, w.rows);
    }
    plan_key_times(&w, 1, 1, 1);
    assert_memory_equal(table_rows(&w, 0)->rows[0], values, sizeof(values));
    free(b);
    world_close(&w);
}

FR_CASE(steady_batches_take_no_more_memory)
{
    struct world w;
    world_simple(&w, 1, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint64_t random = 5;
    random_batch(b, &w, &random, 100);
    for (int i = 0; i < 3; i++)
        fr_store_plan(w.store, &b->batch, 1, w.rows);
    uint64_t bytes = fr_store_bytes(w.store);
    /* kept bytes do not include scratch */
    assert_true(fr_store_kept_bytes(w.store) < bytes);
    const uint64_t *keys = table_rows(&w, 0)->keys;
    for (int i = 0; i < 50; i++)
        fr_store_plan(w.store, &b->batch, 1, w.rows);
    assert_int_equal(fr_store_bytes(w.store), bytes);
    assert_ptr_equal(table_rows(&w, 0)->keys, keys);
    free(b);
    world_close(&w);
}

/* ---- against a model ---- */

enum { UNIVERSE = 400 };

struct model_key {
    uint32_t state; /* 0 absent, 1 pending, 2 live */
    uint32_t count;
    int64_t seen_ms;
    uint64_t show;
    double click;
};

struct model {
    struct model_key keys[TEST_TABLES][UNIVERSE];
    uint64_t admitted[TEST_TABLES], rejected[TEST_TABLES];
};

struct model_sum {
    uint32_t occurrences, counted, touched;
    double clicks;
};

static void model_key_plan(struct model *m, const struct world *w, uint32_t t, uint32_t k, const struct model_sum *sum,
                           int64_t watermark_ms)
{
    struct model_key *key = &m->keys[t][k];
    if (key->state != 2 && sum->counted > 0) {
        key->count += sum->counted;
        key->seen_ms = watermark_ms;
        if (key->count >= w->gates[t].count) {
            *key = (struct model_key){.state = 2, .seen_ms = watermark_ms};
            m->admitted[t]++;
        } else {
            key->state = 1;
            m->rejected[t] += sum->counted;
        }
    }
    if (key->state == 2 && sum->touched > 0) {
        key->seen_ms = watermark_ms;
        key->show += sum->touched;
        key->click += sum->clicks;
    }
}

static void model_plan(struct model *m, const struct world *w, const struct test_batch *b, int64_t watermark_ms)
{
    for (uint32_t t = 0; t < w->n_tables; t++) {
        for (uint32_t k = 0; k < UNIVERSE; k++) {
            struct model_sum sum = {0};
            for (uint32_t s = 0; s < w->conf.n_slots; s++)
                for (uint32_t i = 0; w->slots[s].table == (int32_t)t && i < b->batch.n_samples; i++)
                    for (uint32_t o = b->begin[s][i]; o < b->begin[s][i + 1]; o++) {
                        if (b->keys[s][o] != test_key(k) || b->role[i] != FR_ROLE_TRAIN)
                            continue;
                        sum.counted += w->slots[s].admit;
                        sum.touched += w->slots[s].touch;
                        if (w->slots[s].touch && b->labels[i] > 0)
                            sum.clicks += b->labels[i];
                    }
            model_key_plan(m, w, t, k, &sum, watermark_ms);
        }
    }
}

static void model_compare(const struct model *m, const struct world *w)
{
    for (uint32_t t = 0; t < w->n_tables; t++) {
        uint64_t pending = 0, live = 0;
        for (uint32_t k = 0; k < UNIVERSE; k++) {
            const struct model_key *key = &m->keys[t][k];
            pending += key->state == 1;
            live += key->state == 2;
            struct fr_store_view view = {0};
            enum fr_status status = fr_store_find(w->store, t, test_key(k), &view);
            assert_int_equal(status, key->state == 0 ? FR_E_NOT_FOUND : FR_OK);
            if (key->state == 0)
                continue;
            assert_int_equal(view.kind, key->state == 2 ? FR_IMAGE_ROW : FR_IMAGE_PENDING);
            assert_int_equal(view.seen_ms, key->seen_ms);
            assert_int_equal(view.count, key->state == 1 ? key->count : 0);
            assert_true(view.show == key->show && view.click == key->click);
        }
        struct fr_store_table_stats stats;
        fr_store_stats(w->store, t, &stats);
        assert_int_equal(stats.counts.rows, live);
        assert_int_equal(stats.counts.pending, pending);
        assert_int_equal(stats.counts.admitted, m->admitted[t]);
        assert_int_equal(stats.counts.rejected, m->rejected[t]);
    }
}

static void world_mixed(struct world *w, size_t workers)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 0);
    world_add_table(w, 3, 0, 0);
    world_add_table(w, 7, 0, 0);
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, FR_NO_INDEX, false, false);
    world_add_slot(w, 1, false, true);
    world_add_slot(w, 2, true, false);
    world_add_slot(w, 2, true, true);
    world_open(w, workers);
}

FR_CASE(random_batches_over_several_tables_match_a_model)
{
    struct world w;
    world_mixed(&w, 2);
    struct model *m = fr_alloc(1, sizeof(*m));
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint64_t seed = test_seed(11), random = seed;
    print_message("FR_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < 60; round++) {
        random_batch(b, &w, &random, UNIVERSE);
        fr_store_plan(w.store, &b->batch, 1000 + round, w.rows);
        model_plan(m, &w, b, 1000 + round);
        if (round % 10 == 9)
            model_compare(m, &w);
    }
    free(m);
    free(b);
    world_close(&w);
}

static uint64_t hash_rows(const struct world *w, uint64_t hash)
{
    for (uint32_t t = 0; t < w->n_tables; t++) {
        const struct fr_table_rows *rows = table_rows(w, t);
        hash = fr_xxh3_seed(rows->keys, rows->n_unique * sizeof(*rows->keys), hash);
        hash = fr_xxh3_seed(rows->unique_of, rows->n_occurrences * sizeof(*rows->unique_of), hash);
        hash = fr_xxh3_seed(rows->occ_begin, (rows->n_unique + 1) * sizeof(*rows->occ_begin), hash);
        hash = fr_xxh3_seed(rows->occ, rows->n_occurrences * sizeof(*rows->occ), hash);
        for (uint32_t u = 0; u < rows->n_unique; u++)
            hash = rows->rows[u] ? fr_xxh3_seed(rows->rows[u], TEST_ROW_FLOATS * sizeof(float), hash) : hash + 1;
    }
    return hash;
}

static uint64_t run_with_workers(size_t workers)
{
    struct world w;
    world_mixed(&w, workers);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint64_t random = 17, hash = 0;
    for (int round = 0; round < 80; round++) {
        random_batch(b, &w, &random, 3000);
        fr_store_plan(w.store, &b->batch, round, w.rows);
        step_rows(&w, b);
        hash = hash_rows(&w, hash);
    }
    free(b);
    world_close(&w);
    return hash;
}

FR_CASE(results_do_not_depend_on_the_number_of_workers)
{
    uint64_t one = run_with_workers(1);
    assert_int_equal(run_with_workers(2), one);
    assert_int_equal(run_with_workers(3), one);
}

FR_CASE(one_slot_larger_than_a_work_unit_keeps_its_order)
{
    enum { SAMPLES = 1000, PER_SAMPLE = 40 };
    struct world w;
    world_simple(&w, 1, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    uint32_t *begin = fr_alloc(SAMPLES + 1, sizeof(*begin));
    uint64_t *keys = fr_alloc(SAMPLES * PER_SAMPLE, sizeof(*keys));
    uint8_t *role = fr_alloc(SAMPLES, 1);
    for (uint32_t i = 0; i <= SAMPLES; i++)
        begin[i] = i < SAMPLES / 2 ? i : i == SAMPLES ? SAMPLES * PER_SAMPLE : SAMPLES / 2 + (i - SAMPLES / 2) * 60;
    for (uint32_t o = 0; o < SAMPLES * PER_SAMPLE; o++)
        keys[o] = test_key(o * 7919 % 3001);
    b->batch.n_samples = SAMPLES;
    b->batch.n_labels = 0;
    b->batch.role = role;
    b->columns[0].begin = begin;
    b->columns[0].keys = keys;
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    const struct fr_table_rows *rows = table_rows(&w, 0);
    assert_int_equal(rows->n_unique, 3001);
    assert_int_equal(rows->n_occurrences, SAMPLES * PER_SAMPLE);
    for (uint32_t u = 0; u < rows->n_unique; u++)
        for (uint32_t i = rows->occ_begin[u]; i < rows->occ_begin[u + 1]; i++) {
            assert_int_equal(keys[rows->occ[i]], rows->keys[u]);
            assert_int_equal(rows->unique_of[rows->occ[i]], u);
            assert_true(i == rows->occ_begin[u] || rows->occ[i] > rows->occ[i - 1]);
        }
    free(begin);
    free(keys);
    free(role);
    free(b);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(occurrences_are_numbered_slot_by_slot_and_listed_ascending_by_key),
        cmocka_unit_test(an_empty_batch_has_no_keys),
        cmocka_unit_test(the_gate_counts_the_whole_batch_before_dedup),
        cmocka_unit_test(samples_that_do_not_train_look_up_only),
        cmocka_unit_test(a_slot_that_does_not_admit_neither_counts_nor_admits),
        cmocka_unit_test(a_slot_that_does_not_touch_leaves_seen_and_counters_but_marks_dirty),
        cmocka_unit_test(clicks_add_up_label_0_where_it_is_positive),
        cmocka_unit_test(counters_count_beyond_2_to_the_24th),
        cmocka_unit_test(what_is_served_lacks_the_rows_this_batch_made),
        cmocka_unit_test(a_new_row_is_a_function_of_seed_table_key_and_index),
        cmocka_unit_test(rows_keep_their_values_while_the_table_grows),
        cmocka_unit_test(steady_batches_take_no_more_memory),
        cmocka_unit_test(random_batches_over_several_tables_match_a_model),
        cmocka_unit_test(results_do_not_depend_on_the_number_of_workers),
        cmocka_unit_test(one_slot_larger_than_a_work_unit_keeps_its_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
