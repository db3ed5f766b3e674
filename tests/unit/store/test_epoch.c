/* Cut and recovery: what an epoch says about each key, and that a restart changes nothing. */
#include "store/section.h"
#include "store_fixture.h"
#include "epoch_bytes.h"

/* ---- epochs ---- */

static void cut(struct world *w, struct fr_stage *stage)
{
    fr_stage_clear(stage);
    fr_store_cut(w->store, stage);
}

static const struct fr_image *image_of(const struct fr_stage *stage, uint64_t key)
{
    static struct fr_image image;
    struct fr_epoch images = stage_view(stage);
    struct fr_image next;
    const uint8_t *at = NULL;
    bool found = false;
    while (fr_epoch_next(&images, &at, &next) == FR_OK) {
        if (next.key != key)
            continue;
        assert_false(found); /* a key occurs at most once */
        found = true;
        image = next;
    }
    return found ? &image : NULL;
}

static void assert_absent(const struct fr_stage *stage, uint64_t key, uint8_t reason)
{
    const struct fr_image *image = image_of(stage, key);
    assert_non_null(image);
    assert_int_equal(image->kind, FR_IMAGE_ABSENT);
    assert_int_equal(image->size, 0);
    assert_int_equal(image->reason, reason);
}

static void assert_kind(const struct fr_stage *stage, uint64_t key, enum fr_image_kind kind)
{
    const struct fr_image *image = image_of(stage, key);
    assert_non_null(image);
    assert_int_equal(image->kind, kind);
}

static enum fr_status restore_end(struct fr_store *store, const uint8_t *bytes, size_t size)
{
    assert_int_equal(fr_store_restore_section(store, FR_SECTION_STORE, bytes, size), FR_OK);
    return fr_store_restore_end(store, NULL);
}

/* Every epoch so far into an empty store, as recovery does. */
static void restore_stage(struct world *w, const struct fr_stage *stage, bool newest)
{
    struct fr_epoch images = stage_view(stage);
    struct fr_image image;
    const uint8_t *at = NULL;
    while (fr_epoch_next(&images, &at, &image) == FR_OK)
        assert_int_equal(fr_store_restore_image(w->store, &image), FR_OK);
    assert_int_equal(stage->n_loose, 0);
    if (!newest)
        return;
    assert_string_equal(stage->sections[0].name, "store");
    assert_true(stage->n_sections == 1 || strcmp(stage->sections[1].name, "expiry") == 0);
    const struct fr_buffer *bytes = &stage->sections[0].bytes;
    assert_int_equal(restore_end(w->store, bytes->data, bytes->size), FR_OK);
}

struct pair { /* the running store and the one that recovers at the same time, with two epochs */
    struct world w, r;
    struct fr_stage one, two;
};

static struct pair p; /* of the case that runs */

static void pair_open(uint32_t gate_count, int64_t gate_idle_ms, int64_t idle_ms)
{
    p = (struct pair){0};
    world_add_table(&p.w, gate_count, gate_idle_ms, idle_ms);
    world_add_slot(&p.w, 0, true, true);
    world_open(&p.w, 1);
    world_add_table(&p.r, gate_count, gate_idle_ms, idle_ms);
    world_add_slot(&p.r, 0, true, true);
    world_open(&p.r, 1);
    fr_stage_init(&p.one);
    fr_stage_init(&p.two);
}

FR_FIXTURE(pair_close)
{
    world_close(&p.w);
    world_close(&p.r);
    fr_stage_release(&p.one);
    fr_stage_release(&p.two);
    p = (struct pair){0};
    return 0;
}

FR_CASE(a_cut_holds_each_changed_key_once_and_the_next_nothing)
{
    pair_open(2, 0, 0);
    plan_key_times(&p.w, 1, 2, 5);
    plan_key_times(&p.w, 1, 1, 6);
    plan_key_times(&p.w, 2, 1, 7);
    assert_true(fr_store_dirty_bytes(p.w.store) >= FR_ROW_IMAGE_HEAD + 4 * TEST_ROW_FLOATS + FR_PENDING_IMAGE_SIZE);
    cut(&p.w, &p.one);
    assert_int_equal(p.one.n_images, 2);
    const struct fr_image *row = image_of(&p.one, 1);
    assert_int_equal(row->kind, FR_IMAGE_ROW);
    assert_int_equal(row->size, FR_ROW_IMAGE_HEAD + 4 * TEST_ROW_FLOATS);
    assert_int_equal(fr_load_u64(row->bytes), 6);
    assert_true(fr_load_u64(row->bytes + 8) == 3 && fr_load_f64(row->bytes + 16) == 0);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(p.w.store, 0, 1, &view), FR_OK);
    assert_memory_equal(row->bytes + FR_ROW_IMAGE_HEAD, view.row, 4 * TEST_ROW_FLOATS);
    const struct fr_image *pending = image_of(&p.one, 2);
    assert_int_equal(pending->kind, FR_IMAGE_PENDING);
    assert_int_equal(pending->size, FR_PENDING_IMAGE_SIZE);
    assert_int_equal(fr_load_u64(pending->bytes), 7);
    assert_int_equal(fr_load_u32(pending->bytes + 8), 1);
    assert_int_equal(fr_store_dirty_bytes(p.w.store), 0);
    cut(&p.w, &p.two);
    assert_int_equal(p.two.n_images, 0);
    assert_int_equal(p.two.n_sections, 1);
}

FR_CASE(a_pending_key_that_is_admitted_leaves_only_its_row)
{
    pair_open(2, 0, 0);
    plan_key_times(&p.w, 1, 1, 1);
    plan_key_times(&p.w, 1, 1, 2);
    cut(&p.w, &p.one);
    assert_int_equal(p.one.n_images, 1);
    assert_kind(&p.one, 1, FR_IMAGE_ROW);
}

FR_CASE(a_published_row_that_expires_gets_a_tombstone_with_its_reason)
{
    pair_open(1, 0, 100);
    plan_key_times(&p.w, 1, 1, 0);
    cut(&p.w, &p.one);
    fr_store_slice(p.w.store, 1, 1000);
    cut(&p.w, &p.two);
    assert_int_equal(p.two.n_images, 1);
    assert_absent(&p.two, 1, FR_ABSENT_IDLE);
    cut(&p.w, &p.one);
    assert_int_equal(p.one.n_images, 0);
}

FR_CASE(keys_no_epoch_ever_held_vanish_without_an_image)
{
    pair_open(2, 50, 100);
    plan_key_times(&p.w, 1, 1, 0); /* pending, forgotten */
    plan_key_times(&p.w, 2, 2, 0); /* row, expired */
    fr_store_slice(p.w.store, 1, 1000);
    cut(&p.w, &p.one);
    assert_int_equal(p.one.n_images, 0);
}

FR_CASE(a_key_that_vanished_and_came_back_before_the_cut_is_in_it_once)
{
    pair_open(2, 50, 100);
    plan_key_times(&p.w, 1, 1, 0);
    fr_store_slice(p.w.store, 1, 1000);
    plan_key_times(&p.w, 1, 1, 1000);
    cut(&p.w, &p.one);
    assert_int_equal(p.one.n_images, 1);
    assert_kind(&p.one, 1, FR_IMAGE_PENDING);
}

FR_CASE(removals_of_never_published_keys_are_silent)
{
    pair_open(2, 50, 100);
    plan_key_times(&p.w, 1, 1, 0);
    plan_key_times(&p.w, 2, 1, 0);
    cut(&p.w, &p.one);
    plan_key_times(&p.w, 2, 1, 0); /* a row, but in no epoch yet */
    fr_store_slice(p.w.store, 1, 1000);
    cut(&p.w, &p.two);
    assert_int_equal(p.two.n_images, 2);
    assert_absent(&p.two, 1, FR_ABSENT_SILENT);
    assert_absent(&p.two, 2, FR_ABSENT_SILENT);
}

/* A row is dropped and admitted again within one epoch. */
FR_CASE(a_row_dropped_and_readmitted_in_one_epoch_is_one_fresh_row_image)
{
    pair_open(1, 0, 100);
    plan_key_times(&p.w, 1, 1, 0);
    float first[TEST_ROW_FLOATS];
    memcpy(first, p.w.rows->tables[0].rows[0], sizeof(first));
    p.w.rows->tables[0].rows[0][0] = 77.0f;
    cut(&p.w, &p.one);
    fr_store_slice(p.w.store, 1, 1000);
    plan_key_times(&p.w, 1, 1, 1000);
    cut(&p.w, &p.two);
    assert_int_equal(p.two.n_images, 1);
    assert_kind(&p.two, 1, FR_IMAGE_ROW);
    assert_memory_equal(image_of(&p.two, 1)->bytes + FR_ROW_IMAGE_HEAD, first, sizeof(first));
    /* The row is published again, so its next removal is a tombstone. */
    fr_store_slice(p.w.store, 2, 5000);
    cut(&p.w, &p.one);
    assert_absent(&p.one, 1, FR_ABSENT_IDLE);
}

FR_CASE(a_published_row_back_as_pending_gives_tombstone_then_pending_and_restores)
{
    pair_open(3, 500, 100);
    plan_key_times(&p.w, 1, 3, 0);
    cut(&p.w, &p.one);
    restore_stage(&p.r, &p.one, false);
    fr_store_slice(p.w.store, 1, 1000);
    plan_key_times(&p.w, 1, 2, 1000);
    cut(&p.w, &p.one);
    assert_int_equal(p.one.n_images, 1);
    assert_absent(&p.one, 1, FR_ABSENT_IDLE);
    /* Recovery at this epoch knows the count, and says so in its next epoch as the running store
     * does. */
    restore_stage(&p.r, &p.one, true);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(p.r.store, 0, 1, &view), FR_OK);
    assert_true(view.kind == FR_IMAGE_PENDING && view.count == 2 && view.seen_ms == 1000);
    cut(&p.w, &p.one);
    cut(&p.r, &p.two);
    assert_int_equal(p.one.n_images, 1);
    assert_kind(&p.one, 1, FR_IMAGE_PENDING);
    assert_int_equal(p.two.n_images, 1);
    assert_kind(&p.two, 1, FR_IMAGE_PENDING);
    /* When the key is forgotten now, no tombstone follows, because it was sent already. */
    fr_store_slice(p.w.store, 2, 9000);
    cut(&p.w, &p.one);
    assert_absent(&p.one, 1, FR_ABSENT_SILENT);
}

FR_CASE(a_published_row_back_as_pending_and_forgotten_in_one_epoch_is_a_tombstone)
{
    pair_open(3, 500, 100);
    plan_key_times(&p.w, 1, 3, 0);
    cut(&p.w, &p.one);
    fr_store_slice(p.w.store, 1, 1000);
    plan_key_times(&p.w, 1, 1, 1000);
    fr_store_slice(p.w.store, 2, 9000);
    cut(&p.w, &p.two);
    assert_int_equal(p.two.n_images, 1);
    assert_absent(&p.two, 1, FR_ABSENT_IDLE);
}

/* 50 published rows, made in some order, that expire and come back as pending keys, all in one
 * epoch. */
static void cut_carried(struct world *w, bool backwards, struct fr_stage *stage)
{
    for (uint32_t i = 0; i < 50; i++)
        plan_key_times(w, test_key(backwards ? 49 - i : i), 3, 0);
    cut(w, stage);
    fr_store_slice(w->store, 1, 1000);
    for (uint32_t i = 0; i < 50; i++)
        plan_key_times(w, test_key(i), 1 + i % 2, 1000);
    cut(w, stage);
    assert_int_equal(stage->n_images, 50);
}

FR_CASE(the_section_of_carried_keys_does_not_depend_on_the_order_of_arrival)
{
    pair_open(3, 500, 100);
    cut_carried(&p.w, false, &p.one);
    cut_carried(&p.r, true, &p.two);
    const struct fr_buffer *a = &p.one.sections[0].bytes, *b = &p.two.sections[0].bytes;
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->data, b->data, a->size);
}

static uint32_t dead_entries(const struct world *w, uint32_t *largest)
{
    uint32_t sum = 0;
    *largest = 0;
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        uint32_t n = w->store->tables[0].shards[s].entries.light.n;
        sum += n;
        *largest = n > *largest ? n : *largest;
    }
    return sum;
}

/* Otherwise the cut after a fold would be a long pause, if the fold made the absences of a mass
 * expiry forgettable. */
FR_CASE(absences_that_are_folded_are_forgotten_a_few_thousand_at_a_cut)
{
    enum { BATCHES = 60, AT_A_CUT = 1024 };
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint32_t most, dead;
    pair_open(1, 0, 100);
    for (uint64_t k = 0; k < BATCHES; k++) {
        batch_begin(b, &p.w);
        batch_sample(b, FR_ROLE_TRAIN, 0.0f);
        for (uint64_t i = 0; i < TEST_SLOT_KEYS; i++)
            batch_id(b, 0, test_key(k * TEST_SLOT_KEYS + i));
        fr_store_plan(p.w.store, &b->batch, 0, p.w.rows);
    }
    cut(&p.w, &p.one);
    while (fr_table_counts(&p.w.store->tables[0]).rows > 0)
        fr_store_slice(p.w.store, 16, 1000);
    fr_store_look(p.w.store, &b->batch);
    p.w.store->looked_folded = 0; /* as if the store had looked before the fold */
    fr_stage_clear(&p.two);
    p.two.epoch = 2;
    fr_store_cut(p.w.store, &p.two);
    assert_int_equal(dead_entries(&p.w, &most), BATCHES * TEST_SLOT_KEYS);
    p.w.store->looked = NULL;
    for (dead = most; dead > 0; dead = most) {
        cut(&p.w, &p.two);
        (void)dead_entries(&p.w, &most);
        assert_int_equal(most, dead > AT_A_CUT ? dead - AT_A_CUT : 0);
    }
    free(b);
}

/* The state is the newest image, even if the cold store still holds an older one. */
FR_CASE(an_absent_image_hides_the_older_row_and_a_later_row_is_fresh)
{
    pair_open(1, 0, 100);
    plan_key_times(&p.w, 1, 1, 0);
    p.w.rows->tables[0].rows[0][0] = 55.0f;
    cut(&p.w, &p.one);
    restore_stage(&p.r, &p.one, false);
    fr_store_slice(p.w.store, 1, 1000);
    cut(&p.w, &p.two);
    restore_stage(&p.r, &p.two, true);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(p.r.store, 0, 1, &view), FR_E_NOT_FOUND);
    plan_key_times(&p.r, 1, 1, 1000);
    assert_int_equal(fr_store_find(p.r.store, 0, 1, &view), FR_OK);
    assert_true(view.row[0] != 55.0f && view.show == 1.0f);
}

/* A crash comes after the cut and before the next batch is durable. */
FR_CASE(occurrences_are_not_counted_twice_by_a_crash_after_the_cut)
{
    pair_open(3, 0, 0);
    plan_key_times(&p.w, 1, 1, 1); /* batch k */
    cut(&p.w, &p.one);
    plan_key_times(&p.w, 1, 1, 2); /* batch k + 1, lost in the crash */
    restore_stage(&p.r, &p.one, true);
    plan_key_times(&p.r, 1, 1, 2); /* replayed */
    struct fr_store_view view;
    assert_int_equal(fr_store_find(p.r.store, 0, 1, &view), FR_OK);
    assert_true(view.kind == FR_IMAGE_PENDING && view.count == 2);
    plan_key_times(&p.r, 1, 1, 3);
    assert_true(is_live(&p.r, 0, 1));
}

/* ---- bytes from disk ---- */

FR_CASE(images_that_do_not_fit_are_refused)
{
    struct world w;
    world_simple(&w, 2, 0);
    const uint8_t bytes[64] = {0};
    struct fr_image row = {.key = 1, .size = FR_ROW_IMAGE_HEAD + 4 * TEST_ROW_FLOATS, .bytes = bytes};
    assert_int_equal(fr_store_restore_image(w.store, &row), FR_OK);
    row.table = 1;
    assert_int_equal(fr_store_restore_image(w.store, &row), FR_E_CORRUPT);
    row.table = 0;
    row.size -= 4;
    assert_int_equal(fr_store_restore_image(w.store, &row), FR_E_CORRUPT);
    struct fr_image pending = {.key = 2, .size = 11, .kind = FR_IMAGE_PENDING, .bytes = bytes};
    assert_int_equal(fr_store_restore_image(w.store, &pending), FR_E_CORRUPT);
    struct fr_image absent = {.key = 2, .size = 1, .kind = FR_IMAGE_ABSENT, .bytes = bytes};
    assert_int_equal(fr_store_restore_image(w.store, &absent), FR_E_CORRUPT);
    absent = (struct fr_image){.key = 2, .kind = 3};
    assert_int_equal(fr_store_restore_image(w.store, &absent), FR_E_CORRUPT);
    world_close(&w);
}

FR_CASE(sections_that_are_cut_short_or_do_not_fit_the_images_are_refused)
{
    pair_open(3, 500, 100);
    plan_key_times(&p.w, 1, 3, 0);
    plan_key_times(&p.w, 2, 3, 1000);
    cut(&p.w, &p.one);
    fr_store_slice(p.w.store, 1, 1000);
    plan_key_times(&p.w, 1, 2, 1000); /* carried */
    cut(&p.w, &p.two);
    const struct fr_buffer *bytes = &p.two.sections[0].bytes;
    for (size_t size = 0; size < bytes->size; size++) {
        struct world r = {0};
        world_add_table(&r, 3, 500, 100);
        world_add_slot(&r, 0, true, true);
        world_open(&r, 1);
        restore_stage(&r, &p.one, false);
        restore_stage(&r, &p.two, false);
        uint8_t *copy = fr_alloc(size, 1); /* exact, so that a read past the end is seen */
        memcpy(copy, bytes->data, size);
        assert_int_equal(restore_end(r.store, copy, size), FR_E_CORRUPT);
        free(copy);
        world_close(&r);
    }
    /* The section of a state that lost images is refused. */
    assert_int_equal(restore_end(p.r.store, bytes->data, bytes->size), FR_E_CORRUPT);
    /* So is the section of a state with another number of tables. */
    struct fr_buffer other = {0};
    struct fr_store_section_table tables[2] = {0};
    fr_store_section_encode(&(struct fr_store_section){.n_tables = 2, .tables = tables}, &other);
    assert_int_equal(restore_end(p.r.store, other.data, other.size), FR_E_MISMATCH);
    fr_buffer_release(&other);
}

/* ---- restart equivalence ---- */

enum { BATCHES = 90, EPOCHS_MAX = BATCHES, UNIVERSE = 700 };

struct history {
    struct fr_buffer epochs[EPOCHS_MAX]; /* encoded */
    uint32_t n_epochs;
    struct fr_store_table_stats stats[TEST_TABLES];
};

struct plan_of_run {
    uint64_t seed;
    bool restart;     /* after some of the cuts */
    bool other_sizes; /* the worker count changes at restarts */
};

static void world_churning(struct world *w, size_t workers)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 40);
    world_add_table(w, 4, 30, 60);
    world_add_table(w, 9, 15, 0);
    w->tables[0].expire_slice_rows = 40;
    w->tables[1].expire_slice_rows = 16;
    w->tables[1].expire_every = 2;
    w->tables[2].expire_slice_rows = 100;
    w->tables[2].pending_max = 100;
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, 1, false, true);
    world_add_slot(w, 2, true, false);
    world_open(w, workers);
}

static void restart_world(struct world *w, const struct history *h, size_t workers)
{
    world_close(w);
    world_churning(w, workers);
    for (uint32_t e = 0; e < h->n_epochs; e++) {
        struct fr_epoch epoch;
        assert_int_equal(fr_epoch_parse(h->epochs[e].data, h->epochs[e].size, &epoch), FR_OK);
        struct fr_image image;
        for (const uint8_t *at = NULL; fr_epoch_next(&epoch, &at, &image) == FR_OK;)
            assert_int_equal(fr_store_restore_image(w->store, &image), FR_OK);
        const uint8_t *bytes;
        size_t size;
        if (fr_epoch_section(&epoch, "expiry", &bytes, &size) == FR_OK)
            assert_int_equal(fr_store_restore_section(w->store, FR_SECTION_EXPIRY, bytes, size), FR_OK);
        if (e + 1 < h->n_epochs)
            continue;
        assert_int_equal(fr_epoch_section(&epoch, "store", &bytes, &size), FR_OK);
        assert_int_equal(restore_end(w->store, bytes, size), FR_OK);
    }
}

static void cut_history(struct world *w, struct history *h)
{
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage.epoch = h->n_epochs + 1;
    stage.timeline = 1;
    fr_store_cut(w->store, &stage);
    struct fr_sha256 previous = {{0}};
    struct fr_order order = fr_order_of(0);
    struct fr_buffer *bytes = &h->epochs[h->n_epochs];
    encode_epoch(&stage, &order, &previous, bytes);
    h->n_epochs++;
    fr_stage_release(&stage);
}

static struct history *run(const struct plan_of_run *plan)
{
    struct history *h = fr_alloc(1, sizeof(*h));
    struct world w;
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    size_t workers = 1;
    world_churning(&w, workers);
    uint64_t random = plan->seed, restarts = plan->seed ^ 0xabcdef;
    for (uint64_t k = 1; k <= BATCHES; k++) {
        /* The busy part of the universe wanders, so that keys go idle and come back. */
        random_batch(b, &w, &random, k / 15 % 2 == 0 ? UNIVERSE : UNIVERSE / 8);
        int64_t watermark_ms = (int64_t)(k * 3);
        fr_store_plan(w.store, &b->batch, watermark_ms, w.rows);
        step_rows(&w, b);
        if (test_random(&random) % 3 == 0 || k == BATCHES) {
            cut_history(&w, h);
            if (plan->restart && test_random(&restarts) % 2 == 0) {
                workers = plan->other_sizes ? workers % 3 + 1 : workers;
                restart_world(&w, h, workers);
            }
        }
        fr_store_slice(w.store, k, watermark_ms);
    }
    for (uint32_t t = 0; t < w.n_tables; t++)
        fr_store_stats(w.store, t, &h->stats[t]);
    free(b);
    world_close(&w);
    return h;
}

static void history_free(struct history *h)
{
    for (uint32_t e = 0; e < h->n_epochs; e++)
        fr_buffer_release(&h->epochs[e]);
    free(h);
}

static void assert_same_history(const struct history *a, const struct history *b)
{
    assert_int_equal(a->n_epochs, b->n_epochs);
    for (uint32_t e = 0; e < a->n_epochs; e++) {
        assert_int_equal(a->epochs[e].size, b->epochs[e].size);
        assert_memory_equal(a->epochs[e].data, b->epochs[e].data, a->epochs[e].size);
    }
}

FR_CASE(a_run_with_restarts_writes_the_same_epochs_as_one_without)
{
    uint64_t first = test_seed(1);
    for (uint64_t seed = first; seed < first + 12; seed++) {
        print_message("FR_TEST_SEED=%llu\n", (unsigned long long)seed);
        struct history *a = run(&(struct plan_of_run){.seed = seed});
        struct history *b = run(&(struct plan_of_run){.seed = seed, .restart = true, .other_sizes = true});
        assert_same_history(a, b);
        /* The run must have had the events that the case is about. */
        assert_true(a->stats[0].counts.expired[FR_ABSENT_IDLE] > 0 && a->stats[1].counts.expired[FR_ABSENT_IDLE] > 0);
        assert_true(a->stats[1].counts.forgotten > 0 && a->stats[2].counts.forgotten > 0);
        assert_true(a->stats[2].counts.unremembered > 0 && a->stats[1].counts.admitted > 0 &&
                    a->stats[1].counts.rejected > 0);
        history_free(a);
        history_free(b);
    }
}

FR_CASE(every_count_has_its_name)
{
    for (size_t i = 0; i < FR_STORE_COUNTS; i++)
        assert_non_null(fr_store_count_names[i]);
    assert_string_equal(fr_store_count_names[0], "rows");
    assert_string_equal(fr_store_count_names[FR_STORE_COUNTS - FR_ABSENT_REASONS + FR_ABSENT_MANUAL], "expired_manual");
}

/* Of each version that may be in a state. Counts that a version does not have are 0. */
FR_CASE(a_section_of_version_3_is_read)
{
    enum { COUNTS = 12, BITS = 5 };
    struct fr_buffer bytes = {0};
    struct fr_store_section read;
    fr_put_u32(&bytes, 3);
    fr_put_u32(&bytes, 1);
    for (uint64_t i = 0; i < COUNTS + 2 * FR_SHARDS; i++)
        fr_put_u64(&bytes, i + 1);
    fr_put_u32(&bytes, BITS);
    fr_put_u64(&bytes, 0);
    assert_int_equal(fr_store_section_parse(bytes.data, bytes.size, &read), FR_OK);
    for (uint64_t i = 0; i < FR_STORE_COUNTS; i++)
        assert_int_equal(read.tables[0].counts.of[i], i < COUNTS ? i + 1 : 0);
    assert_int_equal(read.tables[0].rows[0], COUNTS + 1);
    assert_int_equal(read.tables[0].pending[0], COUNTS + FR_SHARDS + 1);
    assert_int_equal(read.tables[0].slice_bits, BITS);
    fr_store_section_release(&read);
    fr_buffer_release(&bytes);
}

#define PAIR_CASE(name) cmocka_unit_test_teardown(name, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_CASE(a_cut_holds_each_changed_key_once_and_the_next_nothing),
        PAIR_CASE(a_pending_key_that_is_admitted_leaves_only_its_row),
        PAIR_CASE(a_published_row_that_expires_gets_a_tombstone_with_its_reason),
        PAIR_CASE(keys_no_epoch_ever_held_vanish_without_an_image),
        PAIR_CASE(a_key_that_vanished_and_came_back_before_the_cut_is_in_it_once),
        PAIR_CASE(removals_of_never_published_keys_are_silent),
        PAIR_CASE(a_row_dropped_and_readmitted_in_one_epoch_is_one_fresh_row_image),
        PAIR_CASE(a_published_row_back_as_pending_gives_tombstone_then_pending_and_restores),
        PAIR_CASE(a_published_row_back_as_pending_and_forgotten_in_one_epoch_is_a_tombstone),
        PAIR_CASE(the_section_of_carried_keys_does_not_depend_on_the_order_of_arrival),
        PAIR_CASE(absences_that_are_folded_are_forgotten_a_few_thousand_at_a_cut),
        PAIR_CASE(an_absent_image_hides_the_older_row_and_a_later_row_is_fresh),
        PAIR_CASE(occurrences_are_not_counted_twice_by_a_crash_after_the_cut),
        PAIR_CASE(images_that_do_not_fit_are_refused),
        PAIR_CASE(sections_that_are_cut_short_or_do_not_fit_the_images_are_refused),
        cmocka_unit_test(every_count_has_its_name),
        cmocka_unit_test(a_section_of_version_3_is_read),
        PAIR_CASE(a_run_with_restarts_writes_the_same_epochs_as_one_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
