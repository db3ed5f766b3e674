/* A store and its state directory against a model (store_model.h), through random operations:
 * batches, batches taken back, slices, cuts, appends, folds and restarts. Everything that can be
 * seen is compared: rows and counters, every image of every epoch, the newest images as recovery
 * visits them, and the section "store".
 *
 * FR_TEST_OPERATIONS=1000000 makes more of them (100,000 in all; 20,000 and 8,000 under ASan and
 * TSan, which make each ten times slower and more), FR_TEST_SEED repeats a run. An operation is a
 * row of `operations`, a set of rules a row of `worlds`. */
#include "store_model.h"

#if defined(__SANITIZE_THREAD__)
enum { OPERATIONS = 8000 };
#elif defined(__SANITIZE_ADDRESS__)
enum { OPERATIONS = 20000 };
#else
enum { OPERATIONS = 100000 };
#endif
enum { HOT = 250 };

struct scene {
    struct world w;
    const struct rules *rules;
    uint32_t n_domains;
    size_t workers;
    struct model now, cut, durable; /* as of the last cut, and of the last epoch in the journal */
    struct model_fixed fixed;
    struct model_batch mb;
    struct test_batch batch;
    uint64_t random;
    struct test_state state;
    struct fr_stage stage;
    bool staged; /* cut, and not appended yet */
    uint64_t evictions, scans;
    bool any_section; /* the state that is being restored has an epoch */
    bool restored_cold;
    /* the last image of each key in a walk over the state */
    struct model_image visited[MODEL_TABLES][MODEL_UNIVERSE];
};

static struct scene *s; /* of the case that runs */

/* ---- the worlds ---- */

struct rules {
    const char *name;
    struct {
        uint32_t gate_count;
        int64_t gate_idle_ms, idle_ms;
        uint64_t pending_max;
        uint32_t expire_every, expire_slice_rows;
    } tables[MODEL_TABLES];
};

static const struct rules worlds[] = {
    {"rows of every key, counted ones, few remembered ones",
     {{1, 0, 40, 1 << 20, 1, 40}, {4, 30, 60, 1 << 20, 2, 16}, {9, 15, 0, 100, 1, 100}}},
    {"all expire at once", {{1, 0, 5, 1 << 20, 1, 65536}, {2, 5, 5, 1 << 20, 1, 65536}, {3, 3, 8, 40, 3, 65536}}},
    {"rows that stay", {{1, 0, 0, 1 << 20, 1, 100}, {3, 0, 0, 1 << 20, 1, 100}, {5, 0, 300, 17, 4, 8}}},
};
enum { DOMAINS_SHARE = 5 }; /* with several domains, runs are that many times shorter */

static void open_world(size_t workers)
{
    s->w = (struct world){0};
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        world_add_table(&s->w, s->rules->tables[t].gate_count, s->rules->tables[t].gate_idle_ms,
                        s->rules->tables[t].idle_ms);
        s->w.tables[t].pending_max = s->rules->tables[t].pending_max;
        s->w.tables[t].expire_every = s->rules->tables[t].expire_every;
        s->w.tables[t].expire_slice_rows = s->rules->tables[t].expire_slice_rows;
    }
    world_add_slot(&s->w, 0, true, true);
    world_add_slot(&s->w, 1, true, true);
    world_add_slot(&s->w, FR_NO_INDEX, false, false);
    world_add_slot(&s->w, 1, false, true);
    world_add_slot(&s->w, 2, true, false);
    world_add_slot(&s->w, 2, true, true);
    s->w.conf.domains = s->n_domains;
    world_open(&s->w, workers);
}

static void open_scene(const struct rules *rules, uint32_t n_domains, uint64_t seed)
{
    s = fr_alloc(1, sizeof(*s));
    s->n_domains = s->now.n_domains = s->cut.n_domains = s->durable.n_domains = n_domains;
    s->rules = rules;
    s->random = seed;
    s->workers = 1;
    state_create(&s->state);
    model_fix(&s->fixed);
    fr_stage_init(&s->stage);
    open_world(s->workers);
    state_open(&s->state, s->w.store);
}

FR_FIXTURE(close_scene)
{
    if (!s)
        return 0;
    world_close(&s->w);
    state_close(&s->state);
    fr_stage_release(&s->stage);
    state_remove_tree(s->state.dir);
    free(s);
    s = NULL;
    return 0;
}

/* ---- what is compared ---- */

static void compare_counts(const struct model *m, uint32_t t, const struct fr_store_counts *counts)
{
    struct fr_store_counts want = model_counts(m, t);
    for (uint32_t i = 0; i < FR_STORE_COUNTS; i++)
        if (counts->of[i] != want.of[i])
            fail_msg("table %u: %s is %llu, not %llu", t, fr_store_count_names[i], (unsigned long long)counts->of[i],
                     (unsigned long long)want.of[i]);
}

static void compare_key(const struct model_key *key, const struct state_view *found)
{
    const struct fr_store_view view = found->view;
    assert_int_equal(found->found, key->state != MODEL_ABSENT);
    if (key->state == MODEL_ABSENT)
        return;
    assert_int_equal(view.kind, key->state == MODEL_LIVE ? FR_IMAGE_ROW : FR_IMAGE_PENDING);
    assert_int_equal(view.seen_ms, key->seen_ms);
    if (key->state == MODEL_PENDING) {
        assert_int_equal(view.count, key->count);
        return;
    }
    assert_true(view.show == key->show && view.click == key->click);
    assert_memory_equal(view.row, key->row, sizeof(key->row));
}

static void compare_all(void)
{
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        struct fr_store_table_stats stats;
        fr_store_stats(s->w.store, t, &stats);
        compare_counts(&s->now, t, &stats.counts);
        struct state_view *views = state_find_all(&s->state, s->w.store, t, MODEL_UNIVERSE);
        for (uint32_t i = 0; i < MODEL_UNIVERSE; i++)
            compare_key(&s->now.keys[t][i], &views[i]);
        free(views);
    }
}

/* Compares the rows of a plan before the step, and records the first values of new rows. */
static void compare_rows(uint32_t t)
{
    const struct fr_table_rows *rows = &s->w.rows->tables[t];
    assert_int_equal(rows->n_unique, s->mb.n_keys[t]);
    for (uint32_t u = 0; u < rows->n_unique; u++) {
        uint32_t number = model_number(&s->fixed, rows->keys[u]);
        struct model_key *key = &s->now.keys[t][number];
        assert_int_equal(rows->occ_begin[u + 1] - rows->occ_begin[u], s->mb.sums[t][number].occurrences);
        assert_int_equal(rows->rows[u] != NULL, key->state == MODEL_LIVE);
        if (rows->served)
            assert_int_equal(rows->served[u] != NULL, key->state == MODEL_LIVE && !s->mb.made[t][number]);
        if (key->state != MODEL_LIVE)
            continue;
        if (s->mb.made[t][number] && !s->fixed.first_known[t][number]) {
            memcpy(s->fixed.first[t][number], rows->rows[u], sizeof(key->row));
            memcpy(key->row, rows->rows[u], sizeof(key->row));
            s->fixed.first_known[t][number] = true;
        }
        assert_memory_equal(rows->rows[u], key->row, sizeof(key->row));
    }
}

static void compare_occurrences(void)
{
    for (uint32_t slot = 0; slot < s->w.conf.n_slots; slot++) {
        if (s->w.slots[slot].table < 0)
            continue;
        const struct fr_table_rows *rows = &s->w.rows->tables[s->w.slots[slot].table];
        for (uint32_t o = 0; o < s->batch.begin[slot][s->batch.batch.n_samples]; o++)
            assert_int_equal(rows->keys[rows->unique_of[s->w.rows->slot_base[slot] + o]], s->batch.keys[slot][o]);
    }
}

struct section_sum { /* over the domains */
    uint32_t n;
    size_t n_carried;
    struct fr_store_counts counts[MODEL_TABLES];
};

static void compare_section(const struct fr_buffer *bytes, uint32_t domain, const struct model *m,
                            struct section_sum *sum)
{
    struct fr_store_section section;
    assert_int_equal(fr_store_section_parse(bytes->data, bytes->size, &section), FR_OK);
    assert_int_equal(section.n_tables, MODEL_TABLES);
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        assert_int_equal(section.tables[t].counts.rows, m->of[t][domain].rows);
        assert_int_equal(section.tables[t].counts.pending, model_pending(&m->of[t][domain]));
        assert_int_equal(section.tables[t].slice_bits, m->of[t][domain].slice_bits);
        for (uint32_t i = 0; i < FR_STORE_COUNTS; i++)
            sum->counts[t].of[i] += section.tables[t].counts.of[i];
    }
    for (size_t i = 0; i < section.n_carried; i++) {
        const struct fr_carried_key *carried = &section.carried[i];
        uint32_t number = model_number(&s->fixed, carried->key), t = fr_subtable_table(carried->table);
        const struct model_key *key = &m->keys[t][number];
        assert_true(carried->table == (t | domain << 16) && model_domain_of(m, number) == domain);
        assert_true(key->state == MODEL_PENDING && key->dirty);
        assert_true(key->count == carried->count && key->seen_ms == carried->seen_ms);
    }
    sum->n++;
    sum->n_carried += section.n_carried;
    fr_store_section_release(&section);
}

/* There may also be sections of sweeps, whose effect shows in the rows that expire. */
static void compare_sections(size_t n_carried)
{
    struct section_sum sum = {0};
    uint32_t domain;
    for (size_t i = 0; i < s->stage.n_sections; i++) {
        const char *name = s->stage.sections[i].name;
        assert_int_equal(strchr(name, '/') != NULL, s->n_domains > 1);
        if (fr_store_section_is(name, FR_SECTION_STORE, &domain))
            compare_section(&s->stage.sections[i].bytes, domain, &s->now, &sum);
        else
            assert_true(fr_store_section_is(name, FR_SECTION_EXPIRY, &domain));
    }
    assert_int_equal(sum.n, s->n_domains);
    assert_int_equal(sum.n_carried, n_carried);
    for (uint32_t t = 0; t < MODEL_TABLES; t++)
        compare_counts(&s->now, t, &sum.counts[t]);
}

/* ---- operations ---- */

static uint64_t draw(uint64_t n)
{
    return test_random(&s->random) % n;
}

/* Clean keys leave memory, some or all of them; a batch that needs them gets them back. */
static void do_evict(void)
{
    fr_store_limit(s->w.store, draw(2) ? 1 : fr_store_kept_bytes(s->w.store) / 2);
    (void)fr_store_relieve(s->w.store);
    fr_store_limit(s->w.store, 0);
    s->evictions += fr_store_tiered(s->w.store);
}

static void do_slice(void);
static void do_cut(void);
static void do_append(void);
static void do_fold(void);

/* What may come between a look and its batch's plan: slices, a cut, and, while reading waits for
 * memory, folds. */
static void pass_time(void)
{
    for (uint64_t n = draw(8); n > 0; n--)
        do_slice();
    do_cut();
    do_append();
    if (draw(2))
        do_fold();
    do_evict();
}

static void draw_batch(void)
{
    random_batch(&s->batch, &s->w, &s->random, draw(4) == 0 ? MODEL_UNIVERSE : HOT);
    s->now.watermark_ms += (int64_t)draw(3);
    model_read(&s->fixed, &s->mb, &s->w, &s->batch);
    bool ahead = draw(2);
    if (ahead) /* keys that the look found may leave memory, or come back, before the plan */
        fr_store_look(s->w.store, &s->batch.batch);
    if (ahead && draw(4) == 0)
        do_evict();
    if (ahead && draw(16) == 0)
        pass_time();
}

static void plan(bool next)
{
    (next ? fr_store_plan_next : fr_store_plan)(s->w.store, &s->batch.batch, s->now.watermark_ms, s->w.rows);
    assert_int_equal(fr_store_failure(s->w.store, NULL), FR_OK);
    model_plan(&s->now, &s->fixed, &s->mb, &s->w);
    for (uint32_t t = 0; t < MODEL_TABLES; t++)
        compare_rows(t);
    compare_occurrences();
}

static void do_batch(void)
{
    while (draw(3) > 0) /* parts of the next slices, at any time */
        s->scans += fr_store_scan_ahead(s->w.store);
    draw_batch();
    plan(false);
    step_rows(&s->w, &s->batch);
    model_step(&s->now, &s->fixed, &s->w, &s->batch);
}

static void do_undo(void)
{
    struct model *before = fr_alloc(1, sizeof(*before));
    draw_batch();
    *before = s->now;
    plan(false);
    fr_store_undo(s->w.store);
    s->now = *before;
    free(before);
}

/* Plans a batch, what falls due after it and the batch after that, all before the first batch's
 * step; then undoes nothing, the last plan, or everything. */
static void do_beside(void)
{
    struct model *marks = fr_alloc(2, sizeof(*marks));
    struct fr_rows *rows = s->w.rows;
    draw_batch();
    marks[0] = s->now;
    plan(false);
    uint64_t first = s->now.batch_number + 1;
    for (uint64_t n = 1 + draw(3); n > 0; n--)
        model_slice(&s->now, &s->w);
    fr_store_slices_beside(s->w.store, first, s->now.batch_number, s->now.watermark_ms);
    marks[1] = s->now;
    random_batch(&s->batch, &s->w, &s->random, draw(4) == 0 ? MODEL_UNIVERSE : HOT);
    s->now.watermark_ms += (int64_t)draw(3);
    model_read(&s->fixed, &s->mb, &s->w, &s->batch);
    s->w.rows = fr_store_rows_new(s->w.store);
    plan(true);
    fr_store_rows_free(s->w.rows);
    s->w.rows = rows;
    uint64_t taken = draw(3);
    if (taken > 0) {
        fr_store_undo(s->w.store);
        s->now = marks[1];
    }
    if (taken > 1) {
        fr_store_undo_slices(s->w.store);
        fr_store_undo(s->w.store);
        s->now = marks[0];
    }
    free(marks);
}

static void do_slice(void)
{
    model_slice(&s->now, &s->w);
    fr_store_slice(s->w.store, s->now.batch_number, s->now.watermark_ms);
}

static void do_leap(void)
{
    s->now.watermark_ms += (int64_t)draw(200);
}

static void do_cut(void)
{
    if (s->staged)
        return;
    size_t n_images = 0, n_carried = 0;
    fr_stage_clear(&s->stage);
    s->stage.epoch = ++s->now.epoch;
    s->stage.timeline = 1;
    fr_store_cut(s->w.store, &s->stage);
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        for (uint32_t i = 0; i < MODEL_UNIVERSE; i++) {
            bool carried = false;
            n_images += model_cut_key(&s->now, t, i, &carried);
            n_carried += carried;
        }
    }
    /* A key is at most once in a stage (the encoder checks), so equal numbers are equal sets. */
    assert_int_equal(s->stage.n_images, n_images);
    compare_sections(n_carried);
    s->staged = true;
    s->cut = s->now;
}

/* The epoch as it is in the journal has the model's images. */
static void do_append(void)
{
    struct fr_err err = {0};
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch;
    struct fr_image image;
    if (!s->staged)
        return;
    if (fr_durable_append(s->state.durable, &s->stage, &bytes, NULL, &err) != FR_OK)
        fail_msg("append: %s", err.text);
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    for (const uint8_t *at = NULL; fr_epoch_next(&epoch, &at, &image) == FR_OK;) {
        uint32_t number = model_number(&s->fixed, image.key), t = fr_subtable_table(image.table);
        const struct model_image *want = &s->cut.images[t][number];
        assert_int_equal(image.table, t | model_domain_of(&s->cut, number) << 16);
        model_image_is(want, &image);
        assert_int_equal(image.reason, want->reason);
    }
    fr_buffer_release(&bytes);
    s->staged = false;
    s->durable = s->cut;
}

static void do_fold(void)
{
    state_fold(&s->state, s->durable.epoch - (s->durable.epoch > 0 ? draw(2) : 0));
}

static enum fr_status visit_image(void *self, size_t thread, const struct fr_image *image)
{
    (void)self, (void)thread;
    struct model_image *visited = &s->visited[fr_subtable_table(image->table)][model_number(&s->fixed, image->key)];
    *visited = (struct model_image){.known = true, .kind = image->kind, .size = image->size};
    assert_true(image->size <= sizeof(visited->bytes));
    if (image->size > 0)
        memcpy(visited->bytes, image->bytes, image->size);
    return fr_store_restore_image(s->w.store, image);
}

static enum fr_status visit_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    (void)self;
    s->any_section = true;
    return fr_store_restore_section(s->w.store, name, bytes, size);
}

/* Every other time there is no room for all rows: they follow on demand. */
static bool wants_cold(void *self)
{
    (void)self;
    struct fr_err err = {0};
    bool wants = true;
    fr_store_limit(s->w.store, draw(2));
    if (fr_store_restore_begin(s->w.store, &wants, &err) != FR_OK)
        fail_msg("restore begins: %s", err.text);
    fr_store_limit(s->w.store, 0);
    s->restored_cold = wants;
    return wants;
}

/* The newest image of every key is the model's; that of an absent one may be gone. */
static void compare_visited(void)
{
    for (uint32_t t = 0; t < MODEL_TABLES; t++) {
        for (uint32_t i = 0; i < MODEL_UNIVERSE; i++) {
            const struct model_image *got = &s->visited[t][i], *want = &s->durable.images[t][i];
            bool there = got->known && got->kind != FR_IMAGE_ABSENT;
            assert_int_equal(there, want->known && want->kind != FR_IMAGE_ABSENT);
            struct fr_image image = {.kind = got->kind, .size = got->size, .bytes = got->bytes};
            if (there)
                model_image_is(want, &image);
        }
    }
}

/* What was not appended is lost, as in a crash; a new store is filled from the directory. */
static void do_restart(void)
{
    struct fr_err err = {0};
    struct fr_restore_visitor visitor = {.image = visit_image, .section = visit_section, .wants_cold = wants_cold};
    world_close(&s->w);
    state_close(&s->state);
    s->workers = draw(4) == 0 ? 2 : 1;
    open_world(s->workers);
    state_open(&s->state, s->w.store);
    memset(s->visited, 0, sizeof(s->visited));
    s->any_section = false;
    if (fr_durable_restore(s->state.durable, &visitor, &err) != FR_OK)
        fail_msg("restore: %s", err.text);
    if (s->any_section && fr_store_restore_end(s->w.store, &err) != FR_OK)
        fail_msg("restore ends: %s", err.text);
    if (s->restored_cold)
        compare_visited();
    s->staged = false;
    s->now = s->durable;
    compare_all();
}

static const struct {
    const char *name;
    uint32_t weight; /* of 10,000 */
    void (*run)(void);
} operations[] = {
    {"batch", 5080, do_batch},    {"undo", 300, do_undo},     {"slice", 2600, do_slice},  {"leap", 20, do_leap},
    {"cut", 700, do_cut},         {"append", 800, do_append}, {"fold", 30, do_fold},      {"restart", 10, do_restart},
    {"compare", 60, compare_all}, {"evict", 100, do_evict},   {"beside", 300, do_beside},
};

static void run_operation(void)
{
    uint64_t roll = draw(10000);
    for (size_t i = 0; i < FR_ARRAY_LEN(operations); i++) {
        if (roll < operations[i].weight) {
            operations[i].run();
            return;
        }
        roll -= operations[i].weight;
    }
    fail_msg("the weights are not 10,000 in all");
}

static void run_world(const struct rules *rules, uint32_t n_domains, uint64_t number)
{
    const char *text = getenv("FR_TEST_OPERATIONS");
    uint64_t n = (text ? strtoull(text, NULL, 10) : OPERATIONS) / FR_ARRAY_LEN(worlds);
    uint64_t seed = test_seed(UINT64_C(71) + number);
    if (n_domains > 1)
        n /= DOMAINS_SHARE;
    print_message("%s: %u domains, %llu operations, FR_TEST_SEED=%llu\n", rules->name, n_domains, (unsigned long long)n,
                  (unsigned long long)seed);
    open_scene(rules, n_domains, seed);
    for (uint64_t i = 0; i < n; i++)
        run_operation();
    do_cut();
    do_append();
    do_restart();
    assert_true(s->now.epoch > n / 50 && s->now.counts[0].admitted > 0 && s->evictions > 3);
    print_message("%llu parts read ahead\n", (unsigned long long)s->scans);
}

FR_CASE(random_operations_of_mixed_rules_match_the_model)
{
    run_world(&worlds[0], 1, 0);
}

FR_CASE(random_operations_where_everything_expires_match_the_model)
{
    run_world(&worlds[1], 1, 1);
}

FR_CASE(random_operations_where_rows_stay_match_the_model)
{
    run_world(&worlds[2], 1, 2);
}

FR_CASE(random_operations_of_mixed_rules_in_three_domains_match_the_model)
{
    run_world(&worlds[0], MODEL_DOMAINS, 0);
}

FR_CASE(random_operations_where_everything_expires_in_three_domains_match_the_model)
{
    run_world(&worlds[1], MODEL_DOMAINS, 1);
}

FR_CASE(random_operations_where_rows_stay_in_three_domains_match_the_model)
{
    run_world(&worlds[2], MODEL_DOMAINS, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_operations_of_mixed_rules_match_the_model, close_scene),
        cmocka_unit_test_teardown(random_operations_where_everything_expires_match_the_model, close_scene),
        cmocka_unit_test_teardown(random_operations_where_rows_stay_match_the_model, close_scene),
        cmocka_unit_test_teardown(random_operations_of_mixed_rules_in_three_domains_match_the_model, close_scene),
        cmocka_unit_test_teardown(random_operations_where_everything_expires_in_three_domains_match_the_model,
                                  close_scene),
        cmocka_unit_test_teardown(random_operations_where_rows_stay_in_three_domains_match_the_model, close_scene),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
