/* One turn of each loop of the daemon, by a fake clock: what is tried again and when, what an epoch
 * waits for, what is folded, why reading pauses, and what the operator sees of it. The modules
 * behind the steps are scripted; nothing sleeps. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "service.h"

struct world {
    struct fr_service service;
    struct fr_clock_fake clock;
    struct fr_conf conf;
    struct fr_err err;
    struct fr_stage stage;
    /* what the modules answer */
    enum fr_status start, read, check, publish, append, train;
    struct fr_publisher_status publisher;
    struct fr_durable_status durable;
    uint64_t letters;
    bool held;
    /* what they were told */
    unsigned starts, reads, served, checks, folds, acknowledgements, commits, tellings;
    uint64_t acknowledged, offered;
    char pause[256];
    char reasons[8][2][512]; /* source, text */
};

static struct world *w;

/* ---- the modules ---- */

#define WRAP(type, name, ...)                                                                                          \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

static enum fr_status answer(enum fr_status status, struct fr_err *err)
{
    return status < 0 ? fr_err_set(err, status, "as scripted") : status;
}

WRAP(enum fr_status, fr_ingest_start, struct fr_ingest *ingest, struct fr_err *err)
{
    (void)ingest;
    w->starts++;
    return answer(w->start, err);
}

WRAP(enum fr_status, fr_ingest_step, struct fr_ingest *ingest, int wait_ms, struct fr_err *err)
{
    (void)ingest, (void)wait_ms;
    w->reads++;
    return answer(w->read, err);
}

WRAP(void, fr_ingest_serve, struct fr_ingest *ingest)
{
    (void)ingest;
    w->served++;
}

WRAP(uint64_t, fr_ingest_dead_acknowledged, struct fr_ingest *ingest)
{
    (void)ingest;
    return w->letters;
}

WRAP(void, fr_ingest_commit, struct fr_ingest *ingest, const struct fr_positions *positions)
{
    (void)ingest;
    w->commits += positions->count;
}

WRAP(enum fr_status, fr_publisher_check, struct fr_publisher *publisher, struct fr_err *err)
{
    (void)publisher;
    w->checks++;
    return answer(w->check, err);
}

WRAP(enum fr_status, fr_publisher_step, struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    (void)publisher, (void)wait_ms;
    return answer(w->publish, err);
}

WRAP(void, fr_publisher_offer, struct fr_publisher *publisher, uint64_t epoch)
{
    (void)publisher;
    w->offered = epoch;
}

WRAP(void, fr_publisher_get_status, struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    (void)publisher;
    *out = w->publisher;
}

WRAP(enum fr_status, fr_durable_append, struct fr_durable *durable, struct fr_stage *stage, struct fr_buffer *bytes,
     struct fr_sha256 *digest, struct fr_err *err)
{
    (void)durable, (void)bytes;
    *digest = (struct fr_sha256){{0}};
    if (w->append == FR_OK)
        w->durable.epoch = stage->epoch;
    return answer(w->append, err);
}

WRAP(enum fr_status, fr_durable_acknowledge, struct fr_durable *durable, uint64_t acked, struct fr_err *err)
{
    (void)durable, (void)err;
    w->acknowledgements++;
    w->durable.acked = w->acknowledged = acked;
    return FR_OK;
}

WRAP(enum fr_status, fr_durable_fold, struct fr_durable *durable, struct fr_err *err)
{
    (void)durable, (void)err;
    w->folds++;
    w->durable.folded = w->durable.epoch;
    w->durable.unfolded_bytes = 0;
    return FR_OK;
}

WRAP(void, fr_durable_get_status, struct fr_durable *durable, struct fr_durable_status *out)
{
    (void)durable;
    *out = w->durable;
}

WRAP(enum fr_status, fr_trainer_step, struct fr_trainer *trainer, struct fr_err *err)
{
    (void)trainer;
    return answer(w->train, err);
}

WRAP(bool, fr_trainer_held, struct fr_trainer *trainer)
{
    (void)trainer;
    return w->held;
}

WRAP(void, fr_trainer_pause, struct fr_trainer *trainer, const char *reason)
{
    (void)trainer;
    snprintf(w->pause, sizeof(w->pause), "%s", reason ? reason : "");
}

static char *reason(const char *source)
{
    size_t i = 0;
    while (w->reasons[i][0][0] && strcmp(w->reasons[i][0], source) != 0)
        i++;
    snprintf(w->reasons[i][0], sizeof(w->reasons[i][0]), "%s", source);
    return w->reasons[i][1];
}

WRAP(void, fr_http_reason, struct fr_http *http, const char *source, const char *text)
{
    (void)http;
    w->tellings++;
    snprintf(reason(source), sizeof(w->reasons[0][1]), "%s", text ? text : "");
}

/* ---- the scene ---- */

FR_FIXTURE(open_world)
{
    w = fr_alloc(1, sizeof(*w));
    fr_clock_fake_init(&w->clock, 1000);
    w->clock.mono_ns = 1;
    w->conf.journal_max = 1000;
    w->conf.unfolded_max = 100;
    struct fr_service *service = &w->service;
    service->conf = &w->conf;
    service->clock = &w->clock.clock;
    service->registry = fr_registry_new("m");
    fr_timings_init(&service->timings, service->registry);
    service->freshness = fr_freshness_new(service->registry, &service->timings);
    service->cut_stages = fr_ring_new(FR_STAGES);
    service->free_stages = fr_ring_new(FR_STAGES);
    pthread_mutex_init(&service->lock, NULL);
    fr_stage_init(&w->stage);
    return 0;
}

FR_FIXTURE(close_world)
{
    struct fr_service *service = &w->service;
    fr_stage_release(&w->stage);
    fr_positions_release(&service->durable_positions);
    fr_ring_free(service->cut_stages);
    fr_ring_free(service->free_stages);
    fr_freshness_free(service->freshness);
    fr_registry_free(service->registry);
    pthread_mutex_destroy(&service->lock);
    free(w);
    return 0;
}

static void expect(enum fr_status (*step)(struct fr_service *service, struct fr_err *err), enum fr_status expected)
{
    w->err = (struct fr_err){0};
    assert_int_equal(step(&w->service, &w->err), expected);
}

static void cut_epoch(uint64_t epoch, uint64_t letters)
{
    struct fr_positions positions = {0};
    (void)fr_positions_index(&positions, "samples", 0);
    fr_positions_encode(&positions, fr_stage_section(&w->stage, "positions"));
    fr_positions_release(&positions);
    w->stage.epoch = w->stage.publishable = epoch;
    w->stage.dead_sequence = letters;
    assert_true(fr_ring_try_push(w->service.cut_stages, &w->stage));
}

/* ---- start ---- */

FR_CASE(a_check_is_tried_again_after_twice_the_time_and_says_why_until_it_is_good)
{
    w->check = FR_E_UNAVAILABLE;
    int64_t wait_ms = FR_RETRY_MS_MIN;
    for (unsigned tries = 1; tries <= 8; tries++) {
        expect(fr_step_publish, FR_AGAIN);
        assert_int_equal(w->checks, tries);
        /* a topic that was just made has no leader: no trouble in the first moments */
        assert_string_equal(reason("publisher"), wait_ms < FR_RETRY_TOLD_MS ? "" : "as scripted");
        assert_string_equal(w->service.starting, "as scripted");
        fr_clock_fake_advance_ms(&w->clock, wait_ms - 1);
        expect(fr_step_publish, FR_AGAIN);
        assert_int_equal(w->checks, tries);
        fr_clock_fake_advance_ms(&w->clock, 1);
        wait_ms = 2 * wait_ms > FR_RETRY_MS_MAX ? FR_RETRY_MS_MAX : 2 * wait_ms;
    }
    w->check = FR_OK;
    atomic_store(&w->service.publishable, 7);
    expect(fr_step_publish, FR_OK);
    assert_true(atomic_load(&w->service.delta_checked));
    assert_int_equal(w->offered, 7);
    assert_string_equal(reason("publisher"), "");
    assert_string_equal(w->service.starting, "");
}

FR_CASE(a_check_that_can_never_be_good_ends_the_loop)
{
    w->check = FR_E_MISMATCH;
    expect(fr_step_publish, FR_E_MISMATCH);
    assert_string_equal(w->err.text, "as scripted");
}

FR_CASE(nothing_is_read_before_the_delta_topic_is_known_to_be_ours)
{
    expect(fr_step_ingest, FR_AGAIN);
    assert_int_equal(w->starts, 0);
    atomic_store(&w->service.delta_checked, true);
    expect(fr_step_ingest, FR_OK);
    assert_int_equal(w->starts, 1);
    assert_true(atomic_load(&w->service.ingest_started));
    assert_int_equal(w->reads, 0);
    expect(fr_step_ingest, FR_OK);
    assert_int_equal(w->reads, 1);
}

FR_CASE(a_stop_before_the_start_ends_reading)
{
    atomic_store(&w->service.stop_ingest, true);
    expect(fr_step_ingest, FR_EOF);
}

FR_CASE(dead_letters_are_served_until_the_last_epoch_is_durable)
{
    atomic_store(&w->service.delta_checked, true);
    expect(fr_step_ingest, FR_OK);
    w->read = FR_EOF;
    expect(fr_step_ingest, FR_OK);
    expect(fr_step_ingest, FR_AGAIN); /* the stream has ended; it is served only */
    expect(fr_step_ingest, FR_AGAIN);
    atomic_store(&w->service.loops[FR_LOOP_DURABLE].done, true);
    expect(fr_step_ingest, FR_EOF);
    assert_int_equal(w->reads, 1);
    assert_int_equal(w->served, 2);
}

FR_CASE(after_a_stop_nothing_more_is_read_and_the_loop_naps)
{
    atomic_store(&w->service.delta_checked, true);
    expect(fr_step_ingest, FR_OK);
    expect(fr_step_ingest, FR_OK);
    assert_int_equal(w->reads, 1);
    atomic_store(&w->service.stop_ingest, true);
    for (unsigned i = 0; i < 3; i++)
        expect(fr_step_ingest, FR_AGAIN); /* a nap each */
    assert_int_equal(w->reads, 1);
    assert_int_equal(w->served, 3);
}

/* ---- trainer ---- */

FR_CASE(the_durable_thread_ends_after_the_stages_of_a_drained_trainer)
{
    w->train = FR_AGAIN;
    expect(fr_step_trainer, FR_AGAIN);
    cut_epoch(1, 0);
    w->train = FR_EOF;
    expect(fr_step_trainer, FR_EOF);
    expect(fr_step_durable, FR_OK);
    assert_int_equal(w->durable.epoch, 1);
    expect(fr_step_durable, FR_EOF);
}

/* ---- durable ---- */

FR_CASE(an_epoch_waits_for_its_dead_letters_and_says_so)
{
    cut_epoch(3, 5);
    w->letters = 4;
    for (unsigned seconds = 0; seconds < 10; seconds++) { /* said every 5 s */
        expect(fr_step_durable, FR_AGAIN);
        assert_int_equal(w->tellings, 1 + seconds / 5);
        fr_clock_fake_advance_ms(&w->clock, 1000);
    }
    assert_int_equal(w->durable.epoch, 0);
    assert_string_equal(reason("dead_letters"), "the dead-letter topic does not acknowledge; epochs wait for it");
    w->letters = 5;
    expect(fr_step_durable, FR_OK);
    assert_int_equal(w->durable.epoch, 3);
    assert_string_equal(reason("dead_letters"), "");
}

FR_CASE(a_durable_epoch_is_offered_and_its_positions_shown_and_committed)
{
    cut_epoch(3, 0);
    w->stage.publishable = 2; /* held since */
    expect(fr_step_durable, FR_OK);
    assert_int_equal(w->offered, 2);
    assert_int_equal(atomic_load(&w->service.durable_epoch), 3);
    assert_int_equal(atomic_load(&w->service.publishable), 2);
    assert_int_equal(w->commits, 1);
    assert_int_equal(w->service.durable_positions.count, 1);
    void *item = NULL;
    assert_int_equal(fr_ring_pop(w->service.free_stages, &item, 0), FR_OK);
    assert_ptr_equal(item, &w->stage);
    assert_int_equal(w->stage.n_sections, 0);
}

FR_CASE(a_given_up_epoch_is_never_durable)
{
    cut_epoch(3, 5);
    expect(fr_step_durable, FR_AGAIN);
    atomic_store(&w->service.abandon, true);
    expect(fr_step_durable, FR_EOF);
    assert_int_equal(w->durable.epoch, 0);
}

FR_CASE(an_epoch_that_cannot_be_written_is_offered_to_nobody)
{
    cut_epoch(3, 0);
    w->append = FR_E_IO;
    expect(fr_step_durable, FR_E_IO);
    assert_int_equal(w->offered, 0);
    assert_int_equal(atomic_load(&w->service.durable_epoch), 0);
}

/* ---- publish ---- */

FR_CASE(trouble_of_the_delta_topic_is_said_once_and_taken_back)
{
    atomic_store(&w->service.delta_checked, true);
    expect(fr_step_publish, FR_OK);
    w->publish = FR_E_UNAVAILABLE;
    expect(fr_step_publish, FR_AGAIN);
    assert_string_equal(reason("publisher"), "as scripted");
    w->publish = FR_AGAIN;
    expect(fr_step_publish, FR_OK);
    assert_string_equal(reason("publisher"), "");
    w->publish = FR_E_MISMATCH;
    expect(fr_step_publish, FR_E_MISMATCH);
    atomic_store(&w->service.abandon, true);
    expect(fr_step_publish, FR_EOF);
}

/* ---- upkeep ---- */

FR_CASE(what_is_acknowledged_is_passed_on_once)
{
    w->publisher.acked = 4;
    w->durable.epoch = 5;
    for (int i = 0; i < 3; i++)
        expect(fr_step_upkeep, FR_AGAIN);
    assert_int_equal(w->acknowledgements, 1);
    assert_int_equal(w->acknowledged, 4);
}

FR_CASE(a_fold_begins_at_unfolded_max)
{
    w->durable.unfolded_bytes = w->conf.unfolded_max - 1;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_int_equal(w->folds, 0);
    w->durable.unfolded_bytes = w->conf.unfolded_max;
    expect(fr_step_upkeep, FR_AGAIN);
    expect(fr_step_upkeep, FR_AGAIN);
    assert_int_equal(w->folds, 1);
}

FR_CASE(a_fold_that_was_asked_for_comes_once_and_only_if_there_is_something)
{
    w->durable = (struct fr_durable_status){.epoch = 4, .folded = 4};
    atomic_store(&w->service.fold_wanted, true);
    expect(fr_step_upkeep, FR_AGAIN);
    assert_int_equal(w->folds, 0);
    w->durable.epoch = 5;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_int_equal(w->folds, 0); /* the wish was for what was durable then */
    atomic_store(&w->service.fold_wanted, true);
    expect(fr_step_upkeep, FR_AGAIN);
    expect(fr_step_upkeep, FR_AGAIN);
    assert_int_equal(w->folds, 1);
}

FR_CASE(reading_pauses_at_each_limit_and_goes_on_below)
{
    w->durable = (struct fr_durable_status){.epoch = 9, .acked = 8, .journal_bytes = 999};
    expect(fr_step_upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "");
    w->durable.journal_bytes = 1000;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "journal_max: the journal holds 1000 bytes; epochs up to 8 of 9 are acknowledged. "
                                  "Look at the delta topic");
    w->held = true;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_string_equal(fr_documents_pause_reason(w->pause), "journal_max");
    assert_non_null(strstr(w->pause, "because publishing is held after non-finite numbers"));
    w->durable.acked = 9; /* then no pause can shorten it */
    expect(fr_step_upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "");
    w->durable.unfolded_bytes = 2 * w->conf.unfolded_max;
    expect(fr_step_upkeep, FR_AGAIN); /* and folds */
    assert_non_null(strstr(w->pause, "unfolded_max: 200 journal bytes wait for a fold"));
    assert_string_equal(fr_documents_pause_reason(w->pause), "unfolded_max");
    expect(fr_step_upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "");
    w->durable.level0_files = FR_LEVEL0_FILES_MAX;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_non_null(strstr(w->pause, "files to compact"));
    assert_string_equal(fr_documents_pause_reason(w->pause), "compaction");
    assert_string_equal(fr_documents_pause_reason(""), "");
    assert_string_equal(fr_documents_pause_reason("something new"), "other");
}

FR_CASE(a_hold_is_a_reason_until_it_ends)
{
    w->held = true;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_non_null(strstr(reason("numbers"), "publishing is held: 3 batches in a row"));
    w->held = false;
    expect(fr_step_upkeep, FR_AGAIN);
    assert_string_equal(reason("numbers"), "");
}

#define FR_STEP_CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FR_STEP_CASE(a_check_is_tried_again_after_twice_the_time_and_says_why_until_it_is_good),
        FR_STEP_CASE(a_check_that_can_never_be_good_ends_the_loop),
        FR_STEP_CASE(nothing_is_read_before_the_delta_topic_is_known_to_be_ours),
        FR_STEP_CASE(a_stop_before_the_start_ends_reading),
        FR_STEP_CASE(dead_letters_are_served_until_the_last_epoch_is_durable),
        FR_STEP_CASE(after_a_stop_nothing_more_is_read_and_the_loop_naps),
        FR_STEP_CASE(the_durable_thread_ends_after_the_stages_of_a_drained_trainer),
        FR_STEP_CASE(an_epoch_waits_for_its_dead_letters_and_says_so),
        FR_STEP_CASE(a_durable_epoch_is_offered_and_its_positions_shown_and_committed),
        FR_STEP_CASE(a_given_up_epoch_is_never_durable),
        FR_STEP_CASE(an_epoch_that_cannot_be_written_is_offered_to_nobody),
        FR_STEP_CASE(trouble_of_the_delta_topic_is_said_once_and_taken_back),
        FR_STEP_CASE(what_is_acknowledged_is_passed_on_once),
        FR_STEP_CASE(a_fold_begins_at_unfolded_max),
        FR_STEP_CASE(a_fold_that_was_asked_for_comes_once_and_only_if_there_is_something),
        FR_STEP_CASE(reading_pauses_at_each_limit_and_goes_on_below),
        FR_STEP_CASE(a_hold_is_a_reason_until_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
