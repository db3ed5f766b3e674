/* One turn of each loop of the daemon, by a fake clock: what is tried again and when, what an
 * epoch waits for, and what an operator sees. The modules behind the steps are scripted; nothing
 * sleeps. */
#include "world.h"

/* ---- start ---- */

FR_CASE(a_check_is_tried_again_after_twice_the_time_and_says_why_until_it_is_good)
{
    w->check = FR_E_UNAVAILABLE;
    int64_t wait_ms = FR_RETRY_MS_MIN;
    for (unsigned tries = 1; tries <= 8; tries++) {
        expect(publish, FR_AGAIN);
        assert_int_equal(w->checks, tries);
        /* a topic that was just made has no leader, which is no problem in the first moments */
        assert_string_equal(reason("publisher"), wait_ms < FR_RETRY_QUIET_MS ? "" : "as scripted");
        assert_int_equal(strncmp(w->service.life.starting, "as scripted", strlen("as scripted")), 0);
        fr_clock_fake_advance_ms(&w->clock, wait_ms - 1);
        expect(publish, FR_AGAIN);
        assert_int_equal(w->checks, tries);
        fr_clock_fake_advance_ms(&w->clock, 1);
        wait_ms = 2 * wait_ms > FR_RETRY_MS_MAX ? FR_RETRY_MS_MAX : 2 * wait_ms;
    }
    w->check = FR_OK;
    w->publisher.epoch_wanted = true;
    atomic_store(&w->service.loops.durable.shared.publishable, 7);
    expect(publish, FR_OK);
    /* a stream may end from here on */
    assert_true(atomic_load(&w->service.loops.publish.shared.epoch_wanted));
    assert_true(atomic_load(&w->service.loops.publish.shared.delta_checked));
    assert_int_equal(w->offered, 7);
    assert_string_equal(reason("publisher"), "");
    assert_string_equal(w->service.life.starting, "");
}

/* A broker that hangs accepts connections but answers nothing, so each question waits until its
 * timeout. */
FR_CASE(a_broker_that_hangs_is_trouble_at_once_and_readiness_says_for_how_long)
{
    w->check = FR_E_UNAVAILABLE;
    w->check_ms = 5000;
    expect(publish, FR_AGAIN);
    assert_string_equal(reason("publisher"), "as scripted");
    assert_string_equal(w->service.life.starting, "as scripted (tried again for 5 s)");
    fr_clock_fake_advance_ms(&w->clock, FR_RETRY_MS_MIN);
    expect(publish, FR_AGAIN);
    assert_string_equal(w->service.life.starting, "as scripted (tried again for 10 s)");
    w->check = FR_OK;
    fr_clock_fake_advance_ms(&w->clock, 2 * FR_RETRY_MS_MIN);
    expect(publish, FR_OK);
    assert_string_equal(w->service.life.starting, "");
    assert_string_equal(reason("publisher"), "");
}

FR_CASE(a_check_that_keeps_failing_is_logged_when_its_reason_changes_and_once_a_minute)
{
    const struct fr_retry *retry = &w->service.loops.publish.retry;
    unsigned long long logged_ns = 0, lines = 0;
    w->check = FR_E_UNAVAILABLE;
    for (int second = 0; second < 150; second += 5) {
        expect(publish, FR_AGAIN);
        lines += retry->logged_ns != logged_ns;
        logged_ns = retry->logged_ns;
        fr_clock_fake_advance_ms(&w->clock, FR_RETRY_MS_MAX);
    }
    assert_int_equal(lines, 3); /* at 0, 60 and 120 s */
    uint64_t text = retry->logged_text;
    w->check = FR_E_DENIED;
    expect(publish, FR_AGAIN);
    assert_int_equal(retry->logged_ns, logged_ns);
    assert_int_equal(retry->logged_text, text); /* the same text is not logged again */
}

FR_CASE(a_check_that_can_never_be_good_ends_the_loop)
{
    w->check = FR_E_MISMATCH;
    expect(publish, FR_E_MISMATCH);
    assert_string_equal(w->err.text, "as scripted");
}

FR_CASE(nothing_is_read_before_the_delta_topic_is_known_to_be_ours)
{
    expect(ingest, FR_AGAIN);
    assert_int_equal(w->starts, 0);
    atomic_store(&w->service.loops.publish.shared.delta_checked, true);
    expect(ingest, FR_OK);
    assert_int_equal(w->starts, 1);
    assert_true(atomic_load(&w->service.loops.ingest.shared.started));
    assert_int_equal(w->reads, 0);
    expect(ingest, FR_OK);
    assert_int_equal(w->reads, 1);
}

FR_CASE(a_stop_before_the_start_ends_reading)
{
    atomic_store(&w->service.life.stop_ingest, true);
    expect(ingest, FR_EOF);
}

FR_CASE(dead_letters_are_served_until_the_last_epoch_is_durable)
{
    atomic_store(&w->service.loops.publish.shared.delta_checked, true);
    expect(ingest, FR_OK);
    w->read = FR_EOF;
    expect(ingest, FR_OK);
    expect(ingest, FR_AGAIN); /* the stream has ended; it is served only */
    expect(ingest, FR_AGAIN);
    atomic_store(&w->service.loops.threads[FR_LOOP_DURABLE].done, true);
    expect(ingest, FR_EOF);
    assert_int_equal(w->reads, 1);
    assert_int_equal(w->served, 2);
}

FR_CASE(after_a_stop_nothing_more_is_read_and_the_loop_naps)
{
    atomic_store(&w->service.loops.publish.shared.delta_checked, true);
    expect(ingest, FR_OK);
    expect(ingest, FR_OK);
    assert_int_equal(w->reads, 1);
    atomic_store(&w->service.life.stop_ingest, true);
    for (unsigned i = 0; i < 3; i++)
        expect(ingest, FR_AGAIN); /* the loop sleeps in each step */
    assert_int_equal(w->reads, 1);
    assert_int_equal(w->served, 3);
}

/* ---- trainer ---- */

FR_CASE(the_durable_thread_ends_after_the_stages_of_a_drained_trainer)
{
    w->train = FR_AGAIN;
    expect(trainer, FR_AGAIN);
    cut_epoch(1, 0);
    w->train = FR_EOF;
    expect(trainer, FR_EOF);
    expect(durable, FR_OK);
    assert_int_equal(w->durable.epoch, 1);
    expect(durable, FR_EOF);
}

/* ---- durable ---- */

FR_CASE(an_epoch_waits_for_its_dead_letters_and_says_so)
{
    cut_epoch(3, 5);
    w->letters = 4;
    for (unsigned seconds = 0; seconds < 10; seconds++) { /* said every 5 s */
        expect(durable, FR_AGAIN);
        assert_int_equal(w->tellings, 1 + seconds / 5);
        fr_clock_fake_advance_ms(&w->clock, 1000);
    }
    assert_int_equal(w->durable.epoch, 0);
    assert_string_equal(reason("dead_letters"), "dead letters are not acknowledged; epochs wait for them");
    assert_int_equal(w->letters_released, 0);
    w->conf.domains = 2; /* then batches do not wait for a first good record */
    expect(durable, FR_AGAIN);
    assert_int_equal(w->letters_released, 1);
    w->letters = 5;
    expect(durable, FR_OK);
    assert_int_equal(w->durable.epoch, 3);
    assert_string_equal(reason("dead_letters"), "");
}

FR_CASE(a_durable_epoch_is_offered_and_its_positions_shown_and_committed)
{
    cut_epoch(3, 0);
    w->stage.publishable = 2; /* held since */
    expect(durable, FR_OK);
    assert_int_equal(w->offered, 2);
    assert_int_equal(atomic_load(&w->service.loops.durable.shared.epoch), 3);
    assert_int_equal(atomic_load(&w->service.loops.durable.shared.publishable), 2);
    assert_int_equal(w->commits, 1);
    assert_int_equal(w->service.loops.durable.shared.positions.count, 1);
    void *item = NULL;
    assert_int_equal(fr_ring_pop(w->service.rings.free_stages, &item, 0), FR_OK);
    assert_ptr_equal(item, &w->stage);
    assert_int_equal(w->stage.n_sections, 0);
}

FR_CASE(an_epoch_that_no_topic_gets_is_of_a_timeline_that_no_topic_has)
{
    cut_epoch(3, 0);
    w->stage.timeline = 1;
    expect(durable, FR_OK);
    assert_int_equal(w->timeline, 1);
    w->least_timeline = 4;
    cut_epoch(4, 0);
    expect(durable, FR_OK);
    assert_int_equal(w->timeline, 4);
}

FR_CASE(a_given_up_epoch_is_never_durable)
{
    cut_epoch(3, 5);
    expect(durable, FR_AGAIN);
    atomic_store(&w->service.life.abandon, true);
    expect(durable, FR_EOF);
    assert_int_equal(w->durable.epoch, 0);
}

FR_CASE(an_epoch_that_cannot_be_written_is_offered_to_nobody)
{
    cut_epoch(3, 0);
    w->append = FR_E_IO;
    expect(durable, FR_E_IO);
    assert_int_equal(w->offered, 0);
    assert_int_equal(atomic_load(&w->service.loops.durable.shared.epoch), 0);
}

FR_CASE(an_epoch_waits_for_room_on_the_disk_and_continues_by_itself)
{
    cut_epoch(3, 0);
    w->append = FR_E_NO_SPACE;
    int64_t wait_ms = FR_RETRY_MS_MIN;
    for (unsigned tries = 1; tries <= 8; tries++) {
        expect(durable, FR_AGAIN);
        assert_int_equal(w->appends, tries);
        assert_non_null(strstr(reason("journal"), "make room under state"));
        assert_string_equal(atomic_load(&w->service.loops.durable.shared.waits_for),
                            "room on the disk under state_dir");
        fr_clock_fake_advance_ms(&w->clock, wait_ms - 1);
        expect(durable, FR_AGAIN);
        assert_int_equal(w->appends, tries);
        fr_clock_fake_advance_ms(&w->clock, 1);
        wait_ms = 2 * wait_ms > FR_RETRY_MS_MAX ? FR_RETRY_MS_MAX : 2 * wait_ms;
    }
    assert_int_equal(w->offered, 0);
    w->append = FR_OK;
    expect(durable, FR_OK);
    assert_int_equal(w->durable.epoch, 3);
    assert_string_equal(reason("journal"), "");
}

FR_CASE(a_drain_that_is_given_up_does_not_wait_for_room)
{
    cut_epoch(3, 0);
    w->append = FR_E_NO_SPACE;
    expect(durable, FR_AGAIN);
    atomic_store(&w->service.life.abandon, true);
    expect(durable, FR_EOF);
}

static bool is_late(char text[256])
{
    return fr_shared_durable_late(&w->service.loops.durable.shared, &w->conf, &w->clock.clock, text, 256);
}

FR_CASE(an_epoch_that_is_late_says_what_it_waits_for)
{
    char text[256] = "";
    w->clock.mono_ns = 1000000000;
    w->stage.cut_mono_ns = w->clock.mono_ns;
    cut_epoch(3, 5);
    atomic_store(&w->service.loops.durable.shared.epoch, 2);
    expect(durable, FR_AGAIN);
    fr_clock_fake_advance_ms(&w->clock, FR_LATE_MS - 1);
    assert_false(is_late(text));
    fr_clock_fake_advance_ms(&w->clock, 1);
    assert_true(is_late(text));
    assert_string_equal(text, "epoch 3 is not durable 2.0 s after its cut: it waits for dead letters to be "
                              "acknowledged");
    w->conf.epoch_ms = 5000;
    assert_false(is_late(text));
    w->letters = 5;
    expect(durable, FR_OK);
    fr_clock_fake_advance_ms(&w->clock, 60000);
    assert_false(is_late(text));
}

/* ---- publish ---- */

FR_CASE(trouble_of_the_delta_topic_is_said_once_and_taken_back)
{
    atomic_store(&w->service.loops.publish.shared.delta_checked, true);
    expect(publish, FR_OK);
    w->publish = FR_E_UNAVAILABLE;
    expect(publish, FR_AGAIN);
    assert_string_equal(reason("publisher"), "as scripted");
    w->publish = FR_AGAIN;
    expect(publish, FR_OK);
    assert_string_equal(reason("publisher"), "");
    w->publish = FR_E_MISMATCH;
    expect(publish, FR_E_MISMATCH);
    atomic_store(&w->service.life.abandon, true);
    expect(publish, FR_EOF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FR_STEP_CASE(a_check_is_tried_again_after_twice_the_time_and_says_why_until_it_is_good),
        FR_STEP_CASE(a_broker_that_hangs_is_trouble_at_once_and_readiness_says_for_how_long),
        FR_STEP_CASE(a_check_that_keeps_failing_is_logged_when_its_reason_changes_and_once_a_minute),
        FR_STEP_CASE(a_check_that_can_never_be_good_ends_the_loop),
        FR_STEP_CASE(nothing_is_read_before_the_delta_topic_is_known_to_be_ours),
        FR_STEP_CASE(a_stop_before_the_start_ends_reading),
        FR_STEP_CASE(dead_letters_are_served_until_the_last_epoch_is_durable),
        FR_STEP_CASE(after_a_stop_nothing_more_is_read_and_the_loop_naps),
        FR_STEP_CASE(the_durable_thread_ends_after_the_stages_of_a_drained_trainer),
        FR_STEP_CASE(an_epoch_waits_for_its_dead_letters_and_says_so),
        FR_STEP_CASE(a_durable_epoch_is_offered_and_its_positions_shown_and_committed),
        FR_STEP_CASE(an_epoch_that_no_topic_gets_is_of_a_timeline_that_no_topic_has),
        FR_STEP_CASE(a_given_up_epoch_is_never_durable),
        FR_STEP_CASE(an_epoch_that_cannot_be_written_is_offered_to_nobody),
        FR_STEP_CASE(an_epoch_waits_for_room_on_the_disk_and_continues_by_itself),
        FR_STEP_CASE(a_drain_that_is_given_up_does_not_wait_for_room),
        FR_STEP_CASE(an_epoch_that_is_late_says_what_it_waits_for),
        FR_STEP_CASE(trouble_of_the_delta_topic_is_said_once_and_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
