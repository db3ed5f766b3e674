/* The pipeline of two batches, on the emulated card: the real trainer makes every transition, what
 * it undoes is undone in the right order, and the state is that of plans made one after another,
 * with refused batches, slices, cuts, stops and clean rows that leave in between. */
#include "model_image.h"

#include "../store/store_image.h"
#include "emulate/emulated.h"

enum { BATCHES = 60 };

/* ---- wrapped by the linker ---- */

static bool steps_are_serial;   /* no batch is planned during a step of the present scene */
static bool nothing_is_suspect; /* refused batches are tried in halves */
static bool is_tiered;          /* the lookout thread reads for the next batch */
static uint32_t transitions_made[FR_PIPELINE_STATES][FR_PIPELINE_MOVES];
static char undone[8]; /* by the present move, in its order: p for a plan, s for slices */

bool __real_fr_graph_runs_beside(const struct fr_graph *graph);
bool __wrap_fr_graph_runs_beside(const struct fr_graph *graph);
bool __wrap_fr_graph_runs_beside(const struct fr_graph *graph)
{
    return __real_fr_graph_runs_beside(graph) && !steps_are_serial;
}

uint32_t __real_fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                  const struct fr_rows *rows, enum fr_suspect_look look, struct fr_suspect *found);
uint32_t __wrap_fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                  const struct fr_rows *rows, enum fr_suspect_look look, struct fr_suspect *found);
uint32_t __wrap_fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                  const struct fr_rows *rows, enum fr_suspect_look look, struct fr_suspect *found)
{
    return nothing_is_suspect ? 0 : __real_fr_graph_suspects(graph, batch, rows, look, found);
}

bool __real_fr_store_tiered(const struct fr_store *store);
bool __wrap_fr_store_tiered(const struct fr_store *store);
bool __wrap_fr_store_tiered(const struct fr_store *store)
{
    return is_tiered || __real_fr_store_tiered(store);
}

void __real_fr_store_undo(struct fr_store *store);
void __wrap_fr_store_undo(struct fr_store *store);
void __wrap_fr_store_undo(struct fr_store *store)
{
    strncat(undone, "p", sizeof(undone) - strlen(undone) - 1);
    __real_fr_store_undo(store);
}

void __real_fr_store_undo_slices(struct fr_store *store);
void __wrap_fr_store_undo_slices(struct fr_store *store);
void __wrap_fr_store_undo_slices(struct fr_store *store)
{
    strncat(undone, "s", sizeof(undone) - strlen(undone) - 1);
    __real_fr_store_undo_slices(store);
}

/* Checks what each move undoes, and in which order. */
void __real_fr_pipeline_move(struct fr_trainer *trainer, enum fr_pipeline_move move);
void __wrap_fr_pipeline_move(struct fr_trainer *trainer, enum fr_pipeline_move move);
void __wrap_fr_pipeline_move(struct fr_trainer *trainer, enum fr_pipeline_move move)
{
    enum fr_pipeline_state from = trainer->pipeline.state;
    const char *undoes = from == FR_PIPELINE_BOTH_PLANNED && move == FR_MOVE_REFUSE      ? "ps"
                         : from == FR_PIPELINE_NEXT_PLANNED && move == FR_MOVE_INTERRUPT ? "p"
                         : move == FR_MOVE_UNDO                                          ? "p"
                                                                                         : "";
    undone[0] = '\0';
    __real_fr_pipeline_move(trainer, move);
    assert_string_equal(undone, undoes);
    transitions_made[from][move]++;
}

/* One run; `next`: of the stream. */
struct scene {
    char dir[FR_TEST_FOLDER];
    struct fr_graph_device device;
    struct run run;
    uint64_t next;
    bool wanders; /* users come one after the other */
    bool serial;  /* no batch is planned during a step */
};

static size_t other_row_bytes;                /* for the next scene_open, too */
static const struct fr_device_api *other_api; /* likewise; NULL: the emulated card's */
static bool first_is_empty;                   /* the first batch has no user */

static void scene_open(struct scene *scene, const char *text, bool serial)
{
    struct fr_err err = {0};
    memset(scene, 0, sizeof(*scene));
    fr_test_folder(scene->dir);
    scene->device.api = other_api ? other_api : fr_emulate_api();
    scene->device.row_bytes_max = other_row_bytes;
    assert_int_equal(scene->device.api->open(0, &scene->device.queue, &err), FR_OK);
    other_text = text;
    other_device = &scene->device;
    scene->serial = serial;
    run_open(&scene->run, scene->dir, 2);
    other_text = NULL;
    other_device = NULL;
}

static void scene_close(struct scene *scene)
{
    drain_stages(&scene->run);
    run_close(&scene->run);
    scene->device.api->close(scene->device.queue);
    remove_dir(scene->dir);
}

static void offer(struct scene *scene)
{
    struct run *run = &scene->run;
    struct fr_batch *batch = make_batch(run->conf, scene->next);
    for (uint32_t i = 0; run->unfit && i < BATCH; i++)
        if (run->unfit(scene->next) >> i & 1)
            break_sample(batch, i);
    if (first_is_empty && scene->next == 0)
        memset(batch->columns[0].begin, 0, (BATCH + 1) * sizeof(*batch->columns[0].begin));
    for (uint32_t o = 0; scene->wanders && o < batch->columns[0].begin[BATCH]; o++)
        batch->columns[0].keys[o] += 1000 * (scene->next % 3);
    assert_true(fr_ring_try_push(run->full, batch));
    scene->next++;
}

static enum fr_status step(struct scene *scene)
{
    struct fr_err err = {0};
    steps_are_serial = scene->serial;
    return fr_trainer_step(scene->run.trainer, &err);
}

/* The ring is always full, as with a fast reader. */
static void feed(struct scene *scene, uint64_t end)
{
    struct run *run = &scene->run;
    while (run->applied < end) {
        void *used;
        while (scene->next < end && fr_ring_count(run->full) < 3)
            offer(scene);
        assert_true(step(scene) >= 0);
        drain_stages(run);
        while (fr_ring_pop(run->empty, &used, 0) == FR_OK)
            fr_batch_free(used);
    }
}

static void image_of(const struct scene *scene, struct fr_buffer *out)
{
    struct fr_err err = {0};
    assert_int_equal(fr_graph_fetch(scene->run.trainer->graph, &err), FR_OK);
    store_image(scene->run.trainer->store, out);
    model_image(scene->run.trainer, out);
    fr_put_f64(out, scene->run.trainer->run.last_loss);
    fr_put_u64(out, scene->run.left_out);
}

static void assert_same_runs(const struct scene *a, const struct scene *b)
{
    struct fr_buffer x = {0}, y = {0};
    image_of(a, &x);
    image_of(b, &y);
    assert_same_image(&x, &y);
    assert_int_equal(a->run.left_out, b->run.left_out);
}

/* Trains the stream with and without planning ahead, and compares after each turn. Returns the
 * counts of the run that plans ahead. */
static struct fr_trainer_run compare(const char *text, uint32_t (*unfit)(uint64_t number))
{
    struct scene serial, beside;
    scene_open(&serial, text, true);
    scene_open(&beside, text, false);
    serial.run.unfit = beside.run.unfit = unfit;
    for (uint64_t end = 5; end <= BATCHES; end += 5) {
        feed(&serial, end);
        feed(&beside, end);
        assert_same_runs(&serial, &beside);
    }
    struct fr_sha256 x = chain_digest(&serial.run), y = chain_digest(&beside.run);
    assert_memory_equal(&x, &y, sizeof(x));
    assert_int_equal(serial.run.trainer->run.planned_early, 0);
    struct fr_trainer_run run = beside.run.trainer->run;
    assert_true(beside.run.trainer->history.samples > 0);
    scene_close(&serial);
    scene_close(&beside);
    return run;
}

#define TEXT(table, ingest)                                                                                            \
    "version: 1\n"                                                                                                     \
    "model: unit\n"                                                                                                    \
    "state_dir: /nonexistent\n"                                                                                        \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 16, " ingest                               \
    "  lockstep: {records: 16, epoch_batches: 4}}\n"                                                                   \
    "tables:\n"                                                                                                        \
    "  user: {dim: 4, " table " optimizer: {adagrad: {lr: 0.1}}}\n"                                                    \
    "slots:\n"                                                                                                         \
    "  user_id: {table: user}\n"                                                                                       \
    "  price: {kind: dense, dim: 1, transform: standardize}\n"                                                         \
    "labels: {click: {}}\n"                                                                                            \
    "network:\n"                                                                                                       \
    "  layers:\n"                                                                                                      \
    "    - {name: h, mlp: [user_id, price], units: [8], activation: dice}\n"                                           \
    "    - {name: out, dense: h, units: 1}\n"                                                                          \
    "  optimizer: {adam: {lr: 0.01}}\n"                                                                                \
    "tasks: [{name: click, label: click, logit: out}]\n"                                                               \
    "export: {topic: d}\n"                                                                                             \
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m]}\n"

static const char sliced[] =
    TEXT("admit: {count: 2}, expire: {idle: 30s, every: 1, slice_rows: 8},", "watermark_step_max: 15s,");
static const char gated[] = TEXT("admit: {count: 2}, expire: {idle: 30s},", "");
static const char stepped[] = TEXT("admit: {count: 2}, expire: {idle: 30s, every: 3},", "watermark_step_max: 15s,");

/* Two samples of a batch, one or none are unfit; now and then all are. */
static uint32_t some_unfit(uint64_t number)
{
    return number % 11 == 7 ? 0xffff : number % 3 == 1 ? 0x0120 : number % 3 == 2 ? 0x8000 : 0;
}

FR_CASE(plans_beside_a_step_change_no_bit)
{
    struct fr_trainer_run run = compare(gated, NULL);
    /* all but those before a cut (every fourth batch), before a slice, and the last */
    assert_in_range(run.planned_early, BATCHES / 2, BATCHES);
    assert_int_equal(run.early_plans_undone, 0); /* in lockstep what comes between is known */
}

FR_CASE(a_refused_batch_takes_the_plan_after_it_back_first)
{
    struct fr_trainer_run run = compare(gated, some_unfit);
    assert_true(run.planned_early > BATCHES / 4);
    assert_in_range(run.early_plans_undone, BATCHES / 8, run.planned_early);
    (void)compare(config_text, some_unfit);
}

FR_CASE(the_watermark_and_slices_come_in_their_order)
{
    struct fr_trainer_run run = compare(stepped, some_unfit);
    assert_true(run.planned_early > BATCHES / 8 && run.watermark_held > 0);
}

/* Slices of nearly every batch, with rows beyond rows_max: they run beside the step, and go back
 * with a refused batch. */
FR_CASE(a_slice_does_not_end_the_overlap)
{
    static const struct fr_expire_capacity capacity = {.rows_max = 20};
    other_rule = fr_expire_capacity_policy(&capacity);
    struct fr_trainer_run run = compare(sliced, NULL);
    assert_in_range(run.planned_early, BATCHES / 2, BATCHES);
    assert_in_range(run.sliced_early, BATCHES / 3, run.planned_early);
    run = compare(sliced, some_unfit);
    assert_in_range(run.early_plans_undone, BATCHES / 8, run.planned_early);
    assert_true(run.sliced_early > BATCHES / 8);
    other_row_bytes = 1000; /* rows that go and come back meet others on the device */
    run = compare(sliced, some_unfit);
    assert_true(run.sliced_early > BATCHES / 8);
    other_row_bytes = 0;
    other_rule = (struct fr_expiry_policy){0};
}

/* The slice has no rows to examine yet; it would have some if the next batch were planned before
 * it. */
FR_CASE(what_a_plan_makes_is_not_looked_at_before_its_turn)
{
    first_is_empty = true;
    (void)compare(sliced, NULL);
    first_is_empty = false;
}

/* A rule that reads values waits for the values that the step gives. */
FR_CASE(a_slice_that_looks_at_values_comes_after_the_step)
{
    static const struct fr_expire_weak weak = {.norm = 0.05f};
    other_rule = fr_expire_weak_policy(&weak);
    struct fr_trainer_run run = compare(stepped, some_unfit);
    assert_true(run.planned_early > 0);
    assert_int_equal(run.sliced_early, 0);
    other_rule = (struct fr_expiry_policy){0};
}

/* Rows that the device lacks come beside the step before; where there is no room, with their
 * batch. */
FR_CASE(rows_that_are_brought_beside_a_step_change_no_bit)
{
    struct scene wide, narrow;
    scene_open(&wide, gated, true);
    other_row_bytes = 1000;
    scene_open(&narrow, gated, false);
    other_row_bytes = 0;
    wide.run.unfit = narrow.run.unfit = some_unfit;
    wide.wanders = narrow.wanders = true;
    for (uint64_t end = 5; end <= BATCHES; end += 5) {
        feed(&wide, end);
        feed(&narrow, end);
        assert_same_runs(&wide, &narrow);
    }
    struct fr_trainer_status status;
    fr_trainer_publish_status(wide.run.trainer);
    fr_trainer_get_status(wide.run.trainer, &status);
    assert_int_equal(status.run.rows_brought, 0);
    fr_trainer_publish_status(narrow.run.trainer);
    fr_trainer_get_status(narrow.run.trainer, &status);
    assert_true(status.run.rows_brought > BATCHES);
    scene_close(&wide);
    scene_close(&narrow);
}

/* ---- rows that a plan makes ---- */

/* The emulated card, which compares first values with those of the store that made the rows. */
static struct {
    const struct fr_store *store;
    uint64_t rows;
} made;

static void compare_made_rows(struct fr_device_queue *queue, const struct fr_device_row_init *call)
{
    const struct fr_device_api *api = fr_emulate_api();
    const struct fr_table *table = &made.store->tables[0];
    struct fr_err err = {0};
    float **rows = fr_alloc(call->n, sizeof(*rows)), *got = fr_alloc(1, table->row_bytes);
    uint64_t *keys = fr_alloc(call->n, sizeof(*keys));
    api->ops->init_rows(queue, call);
    api->download(queue, rows, call->rows, call->n * sizeof(*rows));
    api->download(queue, keys, call->keys, call->n * sizeof(*keys));
    assert_int_equal(api->finish(queue, &err), FR_OK);
    for (uint32_t r = 0; r < call->n; r++) {
        api->download(queue, got, rows[r], table->row_bytes);
        assert_int_equal(api->finish(queue, &err), FR_OK);
        const float *want = fr_store_row_of(made.store, 0, keys[r]);
        assert_non_null(want);
        assert_memory_equal(got, want, table->row_bytes);
    }
    made.rows += call->n;
    free(rows);
    free(got);
    free(keys);
}

/* Returns what the store counted; made.rows is the card's. */
static struct fr_store_counts make_rows(const char *text, bool serial, size_t row_bytes)
{
    struct fr_device_api api = *fr_emulate_api();
    struct fr_device_ops ops = *api.ops;
    struct scene scene;
    api.ops = &ops;
    ops.init_rows = compare_made_rows;
    other_api = &api;
    other_row_bytes = row_bytes;
    scene_open(&scene, text, serial);
    other_row_bytes = 0;
    other_api = NULL;
    made.store = scene.run.trainer->store;
    made.rows = 0;
    scene.run.unfit = some_unfit;
    scene.wanders = true;
    feed(&scene, BATCHES);
    struct fr_store_counts counts = fr_table_counts(&made.store->tables[0]);
    scene_close(&scene);
    return counts;
}

#define MADE(w, v)                                                                                                     \
    "version: 1\n"                                                                                                     \
    "model: unit\n"                                                                                                    \
    "state_dir: /nonexistent\n"                                                                                        \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 16, "                                      \
    "  lockstep: {records: 16, epoch_batches: 4}}\n"                                                                   \
    "tables:\n"                                                                                                        \
    "  user:\n"                                                                                                        \
    "    admit: {count: 2}\n"                                                                                          \
    "    expire: {idle: 30s}\n"                                                                                        \
    "    parts:\n"                                                                                                     \
    "      w: {dim: 3, optimizer: {adam: {lr: 0.01}}, init: " w "}\n"                                                  \
    "      v: {dim: 67, optimizer: {adagrad: {lr: 0.1, initial: 0.25}}, init: " v "}\n"                                \
    "slots:\n"                                                                                                         \
    "  user_id: {table: user}\n"                                                                                       \
    "  price: {kind: dense, dim: 1}\n"                                                                                 \
    "labels: {click: {}}\n"                                                                                            \
    "network:\n"                                                                                                       \
    "  layers: [{name: out, dense: [user_id.w, user_id.v, price], units: 1}]\n"                                        \
    "tasks: [{name: click, label: click, logit: out}]\n"                                                               \
    "export: {topic: d}\n"                                                                                             \
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m]}\n"

/* Refused batches make the rows once more, and so does a plan that is made beside a step. */
FR_CASE(rows_that_a_plan_makes_begin_on_the_card_as_in_the_store)
{
    static const char *const texts[] = {
        MADE("zeros", "{normal: 0.1}"),         MADE("{constant: 0.5}", "{uniform: 0.2}"),
        MADE("xavier_normal", "zeros"),         MADE("kaiming_uniform", "{truncated_normal: 0.1}"),
        MADE("{normal: 2}", "xavier_uniform"),  MADE("{truncated_normal: 3}", "kaiming_normal"),
        MADE("{uniform: 7}", "{constant: -3}"),
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(texts); i++) {
        struct fr_store_counts counts = make_rows(texts[i], i % 2 == 0, i % 3 == 0 ? 20000 : 0);
        assert_true(counts.admitted > BATCHES && made.rows >= counts.admitted);
    }
}

/* ---- what comes between ---- */

/* A stop, a pause: the plan is taken back, and the batch is not consumed. */
FR_CASE(what_comes_between_takes_the_plan_back)
{
    struct scene serial, beside;
    scene_open(&serial, gated, true);
    scene_open(&beside, gated, false);
    struct scene *const scenes[] = {&serial, &beside};
    for (size_t i = 0; i < FR_ARRAY_LEN(scenes); i++) {
        struct scene *scene = scenes[i];
        struct fr_trainer *trainer = scene->run.trainer;
        while (scene->next < 3)
            offer(scene);
        assert_int_equal(step(scene), FR_OK);
        assert_int_equal(trainer->pipeline.state, i == 1 ? FR_PIPELINE_NEXT_PLANNED : FR_PIPELINE_EMPTY);
        fr_trainer_pause(trainer, FR_PAUSE_DISK, "test");
        assert_int_equal(step(scene), FR_AGAIN);
        assert_int_equal(trainer->pipeline.state, FR_PIPELINE_EMPTY);
    }
    assert_same_runs(&serial, &beside);
    for (size_t i = 0; i < FR_ARRAY_LEN(scenes); i++) {
        struct scene *scene = scenes[i];
        struct fr_trainer *trainer = scene->run.trainer;
        fr_trainer_pause(trainer, FR_PAUSE_NONE, NULL);
        assert_int_equal(step(scene), FR_OK);
        assert_int_equal(trainer->pipeline.state, i == 1 ? FR_PIPELINE_NEXT_PLANNED : FR_PIPELINE_EMPTY);
        fr_trainer_stop(trainer);
        assert_int_equal(step(scene), FR_EOF);
        drain_stages(&scene->run);
        assert_int_equal(scene->run.applied, 2);
    }
    assert_same_runs(&serial, &beside);
    struct fr_sha256 x = chain_digest(&serial.run), y = chain_digest(&beside.run);
    assert_memory_equal(&x, &y, sizeof(x));
    for (size_t i = 0; i < FR_ARRAY_LEN(scenes); i++) {
        void *left;
        while (fr_ring_pop(scenes[i]->run.full, &left, 0) == FR_OK)
            fr_batch_free(left);
        scene_close(scenes[i]);
    }
}

/* ---- the walk ---- */

/* Trains a stream with refused batches, of which some are tried in halves, with pauses, and with an
 * empty batch at its end. */
static void walk(bool serial)
{
    struct scene scene;
    scene_open(&scene, sliced, serial);
    struct run *run = &scene.run;
    run->unfit = some_unfit;
    for (uint64_t end = 5; end <= BATCHES; end += 5) {
        nothing_is_suspect = end % 15 == 0;
        feed(&scene, end);
        while (scene.next < end + 2)
            offer(&scene);
        assert_true(step(&scene) >= 0);
        fr_trainer_pause(run->trainer, FR_PAUSE_DISK, "test");
        while (step(&scene) == FR_OK) /* a cut that is due */
            drain_stages(run);
        assert_int_equal(run->trainer->pipeline.state, FR_PIPELINE_EMPTY);
        fr_trainer_pause(run->trainer, FR_PAUSE_NONE, NULL);
    }
    nothing_is_suspect = false;
    feed(&scene, scene.next);
    struct fr_batch *last = fr_batch_new(run->conf);
    last->end_of_stream = true;
    assert_true(fr_ring_try_push(run->full, last));
    while (step(&scene) != FR_EOF)
        drain_stages(run);
    scene_close(&scene);
}

FR_CASE(the_trainer_makes_every_transition_and_no_other)
{
#define QUOTED(name) #name
    static const char *const states[] = {FR_PIPELINE_STATE_LIST(QUOTED)};
    static const char *const moves[] = {FR_PIPELINE_MOVE_LIST(QUOTED)};
#undef QUOTED
    memset(transitions_made, 0, sizeof(transitions_made));
    walk(false);
    is_tiered = true;
    walk(true);
    is_tiered = false;
    for (size_t from = 0; from < FR_PIPELINE_STATES; from++)
        for (size_t move = 0; move < FR_PIPELINE_MOVES; move++)
            if (fr_pipeline_allows(from, move) != (transitions_made[from][move] > 0))
                fail_msg("%s in %s is %s", moves[move], states[from],
                         transitions_made[from][move] ? "made, and not listed" : "listed, and never made");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(plans_beside_a_step_change_no_bit),
        cmocka_unit_test(a_refused_batch_takes_the_plan_after_it_back_first),
        cmocka_unit_test(the_watermark_and_slices_come_in_their_order),
        cmocka_unit_test(a_slice_does_not_end_the_overlap),
        cmocka_unit_test(what_a_plan_makes_is_not_looked_at_before_its_turn),
        cmocka_unit_test(a_slice_that_looks_at_values_comes_after_the_step),
        cmocka_unit_test(rows_that_are_brought_beside_a_step_change_no_bit),
        cmocka_unit_test(rows_that_a_plan_makes_begin_on_the_card_as_in_the_store),
        cmocka_unit_test(what_comes_between_takes_the_plan_back),
        cmocka_unit_test(the_trainer_makes_every_transition_and_no_other),
    };
    return cmocka_run_group_tests_name("pipeline", cases, NULL, NULL);
}
