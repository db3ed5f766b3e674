/* Every gate with every set of rules of expiry against a model of lists and plain formulas, while
 * batches are refused, keys leave memory for the cold store and come back, and the store is cut and
 * restored on the way. */
#include "store/section.h"
#include "store_image.h"
#include "store_state.h"

#include "policy/sweep.h"

enum { UNIVERSE = 300, BATCHES = 60, GATES = 3, RULE_SETS = 1 << FR_EXPIRY_RULES };

#define PROBABILITY 0.2f

struct policies { /* configs of one run */
    struct fr_gate_sketch sketch;
    struct fr_gate_probability coin;
    uint32_t gate, rules; /* a bit for each rule, in the order in which they are asked */
};

/* The names cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define PARAMETERS(name, text, number, rule) struct fr_expire_##rule rule;
#define POLICY(name, text, number, rule) fr_expire_##rule##_policy(&parameters.rule),
#define JUDGE(name, text, number, rule) {name, goes_by_##rule},
/* NOLINTEND(bugprone-macro-parentheses) */

static const struct {
    FR_EXPIRIES(PARAMETERS)
} parameters = {.idle = {25}, .weak = {1.0f}, .score = {0.5f, 1.0f, 0.3f, 7}, .capacity = {60}};

struct model_key {
    enum { ABSENT, PENDING, LIVE } state;
    uint32_t count, period; /* of the gate */
    int64_t seen_ms;
    uint64_t show;
    double click;
};

struct model {
    struct model_key keys[UNIVERSE];
    double norm[UNIVERSE]; /* of the rows' values, after the last step */
    uint64_t admitted, expired[FR_ABSENT_REASONS];
    struct fr_sweep_edge edge;
};

static void world_of(struct world *w, struct policies *p, size_t workers)
{
    *w = (struct world){0};
    world_add_table(w, 3, 12, 25);
    struct fr_store_table *table = &w->tables[0];
    p->sketch = (struct fr_gate_sketch){.min = 3, .half_life_ms = 16, .bytes = 16 << 14};
    p->coin = (struct fr_gate_probability){.probability = PROBABILITY};
    if (p->gate == 1)
        table->gate = fr_gate_sketch_policy(&p->sketch);
    if (p->gate == 2)
        table->gate = fr_gate_probability_policy(&p->coin);
    const struct fr_expiry_policy rules[] = {FR_EXPIRIES(POLICY)};
    table->n_expiries = 0;
    for (uint32_t i = 0; i < FR_ARRAY_LEN(rules); i++)
        if (p->rules >> i & 1)
            table->expiries[table->n_expiries++] = rules[i];
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 0, false, true);
    world_add_slot(w, 0, true, false);
    world_open(w, workers);
}

/* ---- the model ---- */

static uint64_t coin_of(const struct world *w, uint64_t key, uint64_t origin)
{
    return fr_fmix64(fr_fmix64(fr_fmix64(key ^ 7) + fr_xxh3(w->tables[0].name, strlen(w->tables[0].name))) ^ origin);
}

struct sum {
    uint32_t counted, touched;
    double clicks;
    bool trained, fell;
};

struct known {
    uint64_t key;
    uint32_t number;
};

static int compare_known(const void *left, const void *right)
{
    const struct known *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key);
}

static uint32_t number_of(uint64_t key)
{
    static struct known known[UNIVERSE];
    if (known[UNIVERSE - 1].key == 0) {
        for (uint32_t k = 0; k < UNIVERSE; k++)
            known[k] = (struct known){test_key(k), k};
        qsort(known, UNIVERSE, sizeof(*known), compare_known);
    }
    const struct known *found = bsearch(&key, known, UNIVERSE, sizeof(*known), compare_known);
    assert_non_null(found);
    return found->number;
}

static void sum_up(struct sum sums[UNIVERSE], const struct world *w, const struct test_batch *b)
{
    for (uint32_t s = 0; s < w->conf.n_slots; s++)
        for (uint32_t i = 0; i < b->batch.n_samples; i++)
            for (uint32_t o = b->begin[s][i]; b->role[i] == FR_ROLE_TRAIN && o < b->begin[s][i + 1]; o++) {
                uint64_t key = b->keys[s][o];
                struct sum *sum = &sums[number_of(key)];
                sum->trained = true;
                sum->counted += w->slots[s].admit;
                sum->fell |= w->slots[s].admit &&
                             (double)coin_of(w, key, b->origin[i]) < (double)PROBABILITY * 18446744073709551616.0;
                sum->touched += w->slots[s].touch;
                if (w->slots[s].touch && b->labels[i] > 0)
                    sum->clicks += (double)b->labels[i];
            }
}

static bool model_admits(const struct policies *p, struct model_key *key, const struct sum *sum, int64_t watermark_ms)
{
    switch (p->gate) {
    case 0:
        key->count += sum->counted;
        return key->count >= 3;
    case 1: {
        uint32_t period = (uint32_t)(watermark_ms / 16);
        key->count >>= period - key->period < 8 ? period - key->period : 8;
        key->period = period;
        key->count = key->count + sum->counted < 15 ? key->count + sum->counted : 15;
        return key->count >= 3;
    }
    default:
        return sum->fell;
    }
}

static void model_plan(struct model *m, const struct policies *p, const struct world *w, const struct test_batch *b,
                       int64_t watermark_ms)
{
    struct sum sums[UNIVERSE] = {0};
    sum_up(sums, w, b);
    for (uint32_t k = 0; k < UNIVERSE; k++) {
        struct model_key *key = &m->keys[k];
        const struct sum sum = sums[k];
        if (key->state != LIVE && sum.counted > 0) {
            key->seen_ms = watermark_ms;
            bool admitted = model_admits(p, key, &sum, watermark_ms);
            key->state = admitted ? LIVE : p->gate == 0 ? PENDING : ABSENT;
            m->admitted += admitted;
            if (admitted) {
                key->show = 0;
                key->click = 0;
                key->count = p->gate == 1 ? key->count : 0; /* counters are shared */
            }
        }
        if (key->state == LIVE && sum.touched > 0) {
            key->seen_ms = watermark_ms;
            key->show += sum.touched;
            key->click += sum.clicks;
        }
    }
}

/* A key that is judged. */
struct judged {
    const struct model *m;
    const struct world *w;
    uint32_t k;
    const struct model_key *key;
    double age;
    bool over; /* the table has more than rows_max rows */
};

static bool goes_by_idle(const struct judged *j)
{
    return j->age > 25;
}

static bool goes_by_weak(const struct judged *j)
{
    return j->m->norm[j->k] < 1.0;
}

static bool goes_by_score(const struct judged *j)
{
    return (0.5 * (double)j->key->show + j->key->click) * exp2(-j->age / 7) < (double)0.3f;
}

static bool goes_by_capacity(const struct judged *j)
{
    const struct fr_sweep_edge *edge = &j->m->edge;
    if (!j->over || !edge->set || j->key->seen_ms > edge->rank_ms)
        return false;
    uint32_t bin = fr_sweep_bin(-(double)(edge->rank_ms - j->key->seen_ms));
    uint64_t draw = fr_fmix64(fr_order_hash(&j->w->store->order, test_key(j->k)) ^ 0x5eed) >> 32;
    return bin > edge->bin || (bin == edge->bin && draw < edge->share);
}

static const struct {
    uint8_t reason;
    bool (*goes)(const struct judged *j);
} judges[] = {FR_EXPIRIES(JUDGE)};

static uint8_t model_judge(const struct model *m, const struct policies *p, const struct world *w, uint32_t k,
                           int64_t watermark_ms, bool over)
{
    const struct model_key *key = &m->keys[k];
    const struct judged judged = {m, w, k, key, (double)(watermark_ms - key->seen_ms), over};
    for (uint32_t i = 0; i < FR_EXPIRY_RULES; i++)
        if ((p->rules >> i & 1) && judges[i].goes(&judged))
            return judges[i].reason;
    return FR_ABSENT_SILENT;
}

/* There are few rows, so every slice is a whole sweep. */
static void model_slice(struct model *m, const struct policies *p, const struct world *w, int64_t watermark_ms)
{
    uint64_t bins[FR_SWEEP_BINS] = {0}, rows = 0, pending = 0;
    for (uint32_t k = 0; k < UNIVERSE; k++) {
        rows += m->keys[k].state == LIVE;
        pending += m->keys[k].state == PENDING;
    }
    if (pending == 0 && (rows == 0 || p->rules == 0))
        return;
    bool over = rows > parameters.capacity.rows_max;
    for (uint32_t k = 0; k < UNIVERSE; k++) {
        struct model_key *key = &m->keys[k];
        if (key->state == PENDING && watermark_ms - key->seen_ms > 12)
            *key = (struct model_key){.state = ABSENT};
        if (key->state != LIVE)
            continue;
        uint8_t reason = model_judge(m, p, w, k, watermark_ms, over);
        if (reason == FR_ABSENT_SILENT) {
            bins[fr_sweep_bin((double)(key->seen_ms - watermark_ms))]++;
            continue;
        }
        m->expired[reason]++;
        rows--;
        *key = (struct model_key){.state = ABSENT, .count = key->count, .period = key->period};
    }
    m->edge = fr_sweep_find_edge(bins, rows > parameters.capacity.rows_max ? rows - parameters.capacity.rows_max : 0);
    m->edge.rank_ms = watermark_ms;
}

static void compare(struct model *m, const struct world *w, const struct test_state *state)
{
    struct fr_store_table_stats stats;
    fr_store_stats(w->store, 0, &stats);
    assert_int_equal(stats.counts.admitted, m->admitted);
    for (uint32_t r = 0; r < FR_ABSENT_REASONS; r++)
        assert_int_equal(stats.counts.expired[r], m->expired[r]);
    struct state_view *views = state_find_all(state, w->store, 0, UNIVERSE);
    for (uint32_t k = 0; k < UNIVERSE; k++) {
        const struct model_key *key = &m->keys[k];
        const struct fr_store_view *view = &views[k].view;
        assert_int_equal(views[k].found, key->state != ABSENT);
        if (!views[k].found)
            continue;
        assert_int_equal(view->kind == FR_IMAGE_ROW, key->state == LIVE);
        assert_int_equal(view->seen_ms, key->seen_ms);
        if (key->state != LIVE)
            continue;
        assert_int_equal(view->show, key->show);
        assert_true(view->click == key->click);
        double norm2 = 0;
        for (uint32_t i = 0; i < TEST_DIM; i++)
            norm2 += (double)view->row[i] * (double)view->row[i];
        m->norm[k] = sqrt(norm2);
    }
    free(views);
}

/* ---- the run ---- */

struct run {
    struct world w;
    struct policies p;
    struct test_state state;
    struct model m;
    struct test_batch batch;
    uint64_t random, epoch;
    uint64_t evicted; /* times that keys were in the cold store only */
};

static struct run *r; /* of the case that runs */

static void cut_world(void)
{
    struct fr_err err = {0};
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage.epoch = ++r->epoch;
    stage.timeline = 1;
    fr_store_cut(r->w.store, &stage);
    if (fr_durable_append(r->state.durable, &stage, NULL, NULL, &err) != FR_OK)
        fail_msg("append: %s", err.text);
    fr_stage_release(&stage);
}

static enum fr_status restore_image(void *self, size_t thread, const struct fr_image *image)
{
    (void)self, (void)thread;
    return fr_store_restore_image(r->w.store, image);
}

static enum fr_status restore_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    (void)self;
    return fr_store_restore_section(r->w.store, name, bytes, size);
}

/* Every other time there is no room for all rows: they follow on demand. */
static bool restore_wants_cold(void *self)
{
    (void)self;
    struct fr_err err = {0};
    bool wants = true;
    fr_store_limit(r->w.store, r->epoch % 2);
    assert_int_equal(fr_store_restore_begin(r->w.store, &wants, &err), FR_OK);
    fr_store_limit(r->w.store, 0);
    return wants;
}

static void restore_world(void)
{
    struct fr_err err = {0};
    struct fr_restore_visitor visitor = {
        .image = restore_image, .section = restore_section, .wants_cold = restore_wants_cold};
    world_close(&r->w);
    state_close(&r->state);
    world_of(&r->w, &r->p, 1 + r->epoch % 3);
    state_open(&r->state, r->w.store);
    if (fr_durable_restore(r->state.durable, &visitor, &err) != FR_OK)
        fail_msg("restore: %s", err.text);
    assert_int_equal(fr_store_restore_end(r->w.store, &err), FR_OK);
}

/* Clean keys leave memory; a batch that needs them gets them back. */
static void evict(void)
{
    fr_store_limit(r->w.store, 1);
    (void)fr_store_relieve(r->w.store);
    fr_store_limit(r->w.store, 0);
    r->evicted += fr_store_tiered(r->w.store);
}

static void fill(uint64_t batch)
{
    random_batch(&r->batch, &r->w, &r->random, batch / 10 % 2 == 0 ? UNIVERSE : UNIVERSE / 6);
    for (uint32_t i = 0; i < r->batch.batch.n_samples; i++)
        r->batch.origin[i] = batch << 32 | i;
}

/* Plans a batch, with the slices that fall due after it, and undoes both. Rows that were read back
 * for a refused batch stay in memory. */
static void plan_and_undo(uint64_t k, int64_t watermark_ms)
{
    struct fr_buffer before = {0}, after = {0};
    bool whole = !fr_store_tiered(r->w.store);
    store_image(r->w.store, &before);
    fr_store_plan(r->w.store, &r->batch.batch, watermark_ms, r->w.rows);
    fr_store_slices_beside(r->w.store, k, k + 1, watermark_ms);
    fr_store_undo_slices(r->w.store);
    fr_store_undo(r->w.store);
    store_image(r->w.store, &after);
    if (whole) {
        assert_int_equal(before.size, after.size);
        assert_memory_equal(before.data, after.data, before.size);
    }
    compare(&r->m, &r->w, &r->state);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
}

static void train(uint64_t k, int64_t watermark_ms)
{
    fill(k);
    if (test_random(&r->random) % 2 == 0)
        fr_store_look(r->w.store, &r->batch.batch);
    if (test_random(&r->random) % 8 == 0)
        evict();
    fr_store_plan(r->w.store, &r->batch.batch, watermark_ms, r->w.rows);
    step_rows(&r->w, &r->batch);
    model_plan(&r->m, &r->p, &r->w, &r->batch, watermark_ms);
    compare(&r->m, &r->w, &r->state);
}

static void expire(uint64_t k, int64_t watermark_ms)
{
    if (test_random(&r->random) % 4 == 0)
        evict();
    model_slice(&r->m, &r->p, &r->w, watermark_ms);
    fr_store_slice(r->w.store, k, watermark_ms);
    compare(&r->m, &r->w, &r->state);
}

static void run_batches(void)
{
    for (uint64_t k = 1; k <= BATCHES; k++) {
        int64_t watermark_ms = (int64_t)(k * 3);
        if (test_random(&r->random) % 4 == 0) {
            fill(k + 1000);
            plan_and_undo(k, watermark_ms + 40);
        }
        train(k, watermark_ms);
        expire(k, watermark_ms);
        assert_int_equal(fr_store_failure(r->w.store, NULL), FR_OK);
        if (test_random(&r->random) % 4 != 0)
            continue;
        cut_world();
        if (test_random(&r->random) % 2 == 0)
            state_fold(&r->state, r->epoch);
        if (test_random(&r->random) % 4 == 0)
            restore_world();
        compare(&r->m, &r->w, &r->state);
    }
}

static void open_run(uint32_t gate, uint32_t rules, uint64_t seed)
{
    r = fr_alloc(1, sizeof(*r));
    r->p = (struct policies){.gate = gate, .rules = rules};
    r->random = seed;
    state_create(&r->state);
    world_of(&r->w, &r->p, 2);
    state_open(&r->state, r->w.store);
}

FR_FIXTURE(close_run)
{
    if (!r)
        return 0;
    world_close(&r->w);
    state_close(&r->state);
    state_remove_tree(r->state.dir);
    free(r);
    r = NULL;
    return 0;
}

FR_CASE(every_gate_with_every_set_of_rules_does_what_the_model_does)
{
    uint64_t seed = test_seed(3), evicted = 0;
    print_message("FR_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint32_t gate = 0; gate < GATES; gate++)
        for (uint32_t rules = 0; rules < RULE_SETS; rules++) {
            open_run(gate, rules, seed + gate * RULE_SETS + rules);
            run_batches();
            /* The run must have had the events that the case is about. */
            assert_true(r->m.admitted > 50);
            for (uint32_t i = 0; i < FR_EXPIRY_RULES; i++)
                assert_true(rules != 1u << i || r->m.expired[judges[i].reason] > 10);
            evicted += r->evicted;
            close_run(NULL);
        }
    assert_true(evicted > GATES * RULE_SETS);
}

/* ---- capacity by itself ---- */

FR_CASE(a_full_table_keeps_about_as_many_rows_as_it_may_and_the_newest)
{
    enum { MAX = 1000, TURNS = 60, NEW = 100 };
    struct fr_expire_capacity config = {.rows_max = MAX};
    struct world w = {0};
    world_add_table(&w, 1, 0, 0);
    w.tables[0].expire_slice_rows = 300;
    w.tables[0].n_expiries = 1;
    w.tables[0].expiries[0] = fr_expire_capacity_policy(&config);
    world_add_slot(&w, 0, true, true);
    world_open(&w, 2);
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        for (uint64_t i = 0; i < NEW; i++)
            plan_key_times(&w, test_key(100 + turn * NEW + i), 1, (int64_t)(1000000 * turn + i));
        fr_store_slice(w.store, turn, (int64_t)(1000000 * turn + NEW));
        struct fr_store_table_stats stats;
        fr_store_stats(w.store, 0, &stats);
        /* A sweep is at most 8 slices: two sweeps' growth may lie on top. */
        assert_true(stats.counts.rows <= MAX + 2 * 8 * NEW);
        assert_true(turn * NEW <= MAX ? stats.counts.rows == turn * NEW : stats.counts.rows > MAX - 300);
    }
    for (uint64_t k = 100 + (TURNS - 5) * NEW; k < 100 + (TURNS + 1) * NEW; k++)
        assert_true(is_live(&w, 0, test_key(k)));
    for (uint64_t k = 200; k < 1000; k++)
        assert_false(is_live(&w, 0, test_key(k)));
    world_close(&w);
}

FR_CASE(rows_of_one_time_go_by_share_not_all_or_none)
{
    enum { ROWS = 4000, MAX = 1000 };
    struct fr_expire_capacity config = {.rows_max = MAX};
    struct world w = {0};
    world_add_table(&w, 1, 0, 0);
    w.tables[0].n_expiries = 1;
    w.tables[0].expiries[0] = fr_expire_capacity_policy(&config);
    world_add_slot(&w, 0, true, true);
    world_open(&w, 1);
    for (uint64_t i = 0; i < ROWS; i++)
        plan_key_times(&w, test_key(i), 1, 5000);
    for (uint64_t turn = 1; turn <= 4; turn++)
        fr_store_slice(w.store, turn, 9000);
    struct fr_store_table_stats stats;
    fr_store_stats(w.store, 0, &stats);
    assert_true(stats.counts.rows > MAX - 150 && stats.counts.rows < MAX + 150);
    assert_int_equal(stats.counts.expired[FR_ABSENT_CAPACITY], ROWS - stats.counts.rows);
    world_close(&w);
}

/* ---- gates of slots ---- */

FR_CASE(a_slot_that_never_admits_counts_for_no_gate)
{
    for (uint32_t gate = 0; gate < GATES; gate++) {
        struct policies p = {.gate = gate};
        struct world w;
        struct test_batch *b = fr_alloc(1, sizeof(*b));
        world_of(&w, &p, 1);
        for (uint64_t k = 0; k < 50; k++) {
            batch_begin(b, &w);
            batch_sample(b, FR_ROLE_TRAIN, 1.0f);
            b->origin[0] = k;
            batch_id(b, 1, 77);
            batch_id(b, 1, 77);
            fr_store_plan(w.store, &b->batch, 1, w.rows);
            assert_false(is_live(&w, 0, 77));
        }
        struct fr_store_table_stats stats;
        fr_store_stats(w.store, 0, &stats);
        assert_true(stats.counts.pending == 0 && stats.counts.rejected == 0);
        for (uint32_t s = 0; w.store->tables[0].sketches && s < FR_SHARDS; s++)
            assert_int_equal(w.store->tables[0].sketches[s].n_changed, 0);
        free(b);
        world_close(&w);
    }
}

FR_CASE(a_shared_column_throws_the_coins_of_its_samples)
{
    struct policies p = {.gate = 2};
    struct world grouped, expanded;
    struct test_batch *g = fr_alloc(1, sizeof(*g)), *e = fr_alloc(1, sizeof(*e));
    world_of(&grouped, &p, 1);
    world_of(&expanded, &p, 2);
    uint64_t random = 9;
    for (uint64_t k = 0; k < 30; k++) {
        random_groups(g, e, &grouped, &random);
        for (uint32_t i = 0; i < g->batch.n_samples; i++)
            g->origin[i] = e->origin[i] = k << 32 | i;
        fr_store_plan(grouped.store, &g->batch, 1, grouped.rows);
        fr_store_plan(expanded.store, &e->batch, 1, expanded.rows);
        assert_same_store(grouped.store, expanded.store);
    }
    free(g);
    free(e);
    world_close(&grouped);
    world_close(&expanded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_gate_with_every_set_of_rules_does_what_the_model_does, close_run),
        cmocka_unit_test(a_full_table_keeps_about_as_many_rows_as_it_may_and_the_newest),
        cmocka_unit_test(rows_of_one_time_go_by_share_not_all_or_none),
        cmocka_unit_test(a_slot_that_never_admits_counts_for_no_gate),
        cmocka_unit_test(a_shared_column_throws_the_coins_of_its_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
