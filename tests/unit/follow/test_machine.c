/* The follower's machine: real records, a real replica and real snapshots lead a follower through
 * every transition. The partitions of the topic are in memory (scripted_topic.h). */
#include "scripted_topic.h"

/* The transitions that were taken, by state and event. */
static bool taken[FR_FOLLOWER_STATES][FR_FOLLOWER_EVENTS];

void __real_fr_follower_change_state(struct fr_follower *follower, enum fr_follower_event event);
void __wrap_fr_follower_change_state(struct fr_follower *follower, enum fr_follower_event event);

void __wrap_fr_follower_change_state(struct fr_follower *follower, enum fr_follower_event event)
{
    taken[follower->state][event] = true;
    __real_fr_follower_change_state(follower, event);
}

/* ---- a follower and its topic ---- */

static char folder[FR_TEST_FOLDER];
static struct history *h;
static struct fr_follower *follower;

FR_FIXTURE(begin)
{
    fr_test_folder(folder);
    script = (struct script){0};
    h = history_new(0);
    script.history = h;
    snapshot_topic = "ctr.delta";
    return 0;
}

FR_FIXTURE(end)
{
    fr_follower_close(follower);
    follower = NULL;
    history_free(h);
    remove_folder(folder);
    return 0;
}

static void open_follower(bool patient)
{
    struct fr_err err = {0};
    struct fr_follower_options options = {
        .topic = {.brokers = "none", .topic = "ctr.delta"}, .snapshots = folder, .patient = patient};
    assert_int_equal(fr_follower_open(&options, &follower, &err), FR_OK);
}

static struct fr_err problem; /* of the last step */

/* Steps once; a step that only opens the topic is followed by another. */
static enum fr_status step(void)
{
    struct fr_followed followed;
    bool opens = !follower->consumer;
    enum fr_status status = fr_follower_step(follower, 0, &followed, &problem);
    return opens && status == FR_AGAIN && follower->consumer ? fr_follower_step(follower, 0, &followed, &problem)
                                                             : status;
}

/* Steps until the event leads from `from` to `to`, or nothing is left to read. Returns the last
 * status. */
static enum fr_status step_until(enum fr_follower_state from, enum fr_follower_event event, enum fr_follower_state to)
{
    enum fr_status status = FR_OK;
    for (taken[from][event] = false; status == FR_OK && !taken[from][event];)
        status = step();
    if (!taken[from][event] || follower->state != to)
        fail_msg("%s in %s: taken %d, now %s, status %d", fr_follower_event_name(event), fr_follower_state_name(from),
                 taken[from][event], fr_follower_state_name(follower->state), status);
    return status;
}

static void read_to_end(enum fr_follower_state state)
{
    enum fr_status status;
    while ((status = step()) == FR_OK)
        ;
    if (status != FR_AGAIN)
        fail_msg("%d: %s", status, problem.text);
    assert_int_equal(follower->state, state);
}

static void take_snapshot(void)
{
    char name[FR_MANIFEST_NAME_MAX];
    history_snapshot(h, folder, name);
}

/* Epoch 1, a snapshot of it, and a topic that continues it where the snapshot says, or `shift`
 * records later. */
static void begin_after_snapshot(int64_t shift)
{
    history_epoch(h, 20);
    take_snapshot();
    script_end_at_hints(shift);
}

/* A timeline that begins with nothing. */
static void rewind_to_nothing(void)
{
    h->timeline++;
    h->epoch = h->digest = 0;
    history_change(h, 20);
    history_write(h, &(struct write_options){.model = true, .rewind = &(struct fr_delta_rewind){.to = 0, .snap = ""}});
}

/* An epoch that holds the whole state. */
static void publish_whole_state(void)
{
    history_change(h, 20);
    history_write(h, &(struct write_options){.model = true, .from = 1, .set_previous = true});
}

/* ---- reaching each state ---- */

static void reach_reads_all(bool patient)
{
    history_epoch(h, 20);
    open_follower(patient);
    step_until(FR_FOLLOWER_READS_ALL, FR_FOLLOWER_EPOCH_APPLIED, FR_FOLLOWER_READS_ALL);
}

/* Brokers deleted all records of the topic, and the snapshot names another topic. */
static void reach_awaits_model(bool patient)
{
    snapshot_topic = "elsewhere";
    begin_after_snapshot(0);
    script.deleted = h->n_topic;
    open_follower(patient);
    assert_int_equal(follower->state, FR_FOLLOWER_AWAITS_MODEL);
}

static void reach_continues(bool patient)
{
    begin_after_snapshot(0);
    open_follower(patient);
    read_to_end(FR_FOLLOWER_CONTINUES);
}

static void reach_rereads(bool patient)
{
    begin_after_snapshot(-1);
    history_epoch(h, 20);
    open_follower(patient);
    step_until(FR_FOLLOWER_CONTINUES, FR_FOLLOWER_HINT_MISLED, FR_FOLLOWER_REREADS);
}

static void reach_lacks_beginning(bool patient)
{
    history_epoch(h, 20);
    script_hide(1, 1, 1, true);
    open_follower(patient);
    step_until(FR_FOLLOWER_READS_ALL, FR_FOLLOWER_PASSED_OVER, FR_FOLLOWER_LACKS_BEGINNING);
}

/* ---- each event ---- */

FR_CASE(a_follower_begins_with_the_snapshot_there_is)
{
    begin_after_snapshot(0);
    open_follower(true);
    assert_int_equal(follower->state, FR_FOLLOWER_CONTINUES);
    assert_true(taken[FR_FOLLOWER_READS_ALL][FR_FOLLOWER_SNAPSHOT_LOADED]);
}

FR_CASE(a_newer_snapshot_ends_a_lack_of_the_beginning)
{
    reach_lacks_beginning(true);
    history_epoch(h, 20);
    take_snapshot();
    step_until(FR_FOLLOWER_LACKS_BEGINNING, FR_FOLLOWER_SNAPSHOT_LOADED, FR_FOLLOWER_CONTINUES);
}

FR_CASE(a_snapshot_that_names_the_topic_needs_no_record)
{
    reach_awaits_model(true);
    step_until(FR_FOLLOWER_AWAITS_MODEL, FR_FOLLOWER_SNAPSHOT_UNPROVEN, FR_FOLLOWER_AWAITS_MODEL);
    history_epoch(h, 20);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        script_hide(2, p, 1, false);
    snapshot_topic = "ctr.delta";
    take_snapshot();
    follower->search_ns = 0;
    step_until(FR_FOLLOWER_AWAITS_MODEL, FR_FOLLOWER_SNAPSHOT_LOADED, FR_FOLLOWER_CONTINUES);
}

FR_CASE(a_snapshot_of_an_unknown_model_is_loaded_when_a_record_shows_the_model)
{
    reach_awaits_model(false);
    history_epoch(h, 20);
    step_until(FR_FOLLOWER_AWAITS_MODEL, FR_FOLLOWER_MODEL_SHOWN, FR_FOLLOWER_CONTINUES);
    read_to_end(FR_FOLLOWER_CONTINUES);
    assert_int_equal(info_of(follower->replica).epoch, 2);
}

FR_CASE(after_a_gap_the_topic_is_read_again_once)
{
    reach_continues(true);
    history_epoch(h, 20);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        script_hide(2, p, 1, false);
    history_epoch(h, 20);
    step_until(FR_FOLLOWER_CONTINUES, FR_FOLLOWER_GAP_FOUND, FR_FOLLOWER_REREADS);
    /* the snapshot was asked first, and took the gap back */
    assert_true(taken[FR_FOLLOWER_CONTINUES][FR_FOLLOWER_SNAPSHOT_LOADED]);
    read_to_end(FR_FOLLOWER_REREADS);
    take_snapshot();
    history_epoch(h, 20);
    step_until(FR_FOLLOWER_REREADS, FR_FOLLOWER_SNAPSHOT_LOADED, FR_FOLLOWER_CONTINUES);
}

FR_CASE(a_patient_follower_reads_the_topic_again_for_a_gap)
{
    reach_reads_all(true);
    history_epoch(h, 20);
    script_hide(2, 0, 1, false);
    history_epoch(h, 20);
    step_until(FR_FOLLOWER_READS_ALL, FR_FOLLOWER_GAP_FOUND, FR_FOLLOWER_REREADS);
    script_show_all();
    step_until(FR_FOLLOWER_REREADS, FR_FOLLOWER_EPOCH_APPLIED, FR_FOLLOWER_READS_ALL);
    read_to_end(FR_FOLLOWER_READS_ALL);
    assert_int_equal(info_of(follower->replica).epoch, 3);
}

FR_CASE(an_impatient_follower_reports_a_gap)
{
    enum fr_status status;
    reach_reads_all(false);
    history_epoch(h, 20);
    script_hide(2, 0, 1, false);
    history_epoch(h, 20);
    while ((status = step()) == FR_OK)
        ;
    assert_int_equal(status, FR_E_LOST);
    assert_non_null(strstr(problem.text, "epochs are missing"));
    assert_int_equal(follower->state, FR_FOLLOWER_READS_ALL);
}

FR_CASE(a_gap_where_the_beginning_is_lacking_reads_the_topic_again)
{
    reach_lacks_beginning(true);
    history_epoch(h, 20);
    script_hide(2, 0, 1, false);
    history_epoch(h, 20);
    step_until(FR_FOLLOWER_LACKS_BEGINNING, FR_FOLLOWER_GAP_FOUND, FR_FOLLOWER_REREADS);
}

FR_CASE(a_lack_of_the_beginning_ends_with_a_whole_state_or_a_new_timeline)
{
    reach_lacks_beginning(false);
    history_epoch(h, 20);
    publish_whole_state();
    step_until(FR_FOLLOWER_LACKS_BEGINNING, FR_FOLLOWER_EPOCH_APPLIED, FR_FOLLOWER_READS_ALL);
    assert_int_equal(info_of(follower->replica).epoch, 3);
    rewind_to_nothing();
    script_hide(1, 1, 2, true);
    step_until(FR_FOLLOWER_READS_ALL, FR_FOLLOWER_PASSED_OVER, FR_FOLLOWER_LACKS_BEGINNING);
    rewind_to_nothing();
    step_until(FR_FOLLOWER_LACKS_BEGINNING, FR_FOLLOWER_TIMELINE_BEGUN, FR_FOLLOWER_READS_ALL);
    read_to_end(FR_FOLLOWER_READS_ALL);
    assert_int_equal(info_of(follower->replica).timeline, 3);
}

FR_CASE(a_snapshot_is_followed_by_the_epochs_after_it)
{
    reach_continues(false);
    history_epoch(h, 20);
    step_until(FR_FOLLOWER_CONTINUES, FR_FOLLOWER_EPOCH_APPLIED, FR_FOLLOWER_CONTINUES);
    rewind_to_nothing();
    script_hide(1, 1, 2, true);
    step_until(FR_FOLLOWER_CONTINUES, FR_FOLLOWER_PASSED_OVER, FR_FOLLOWER_LACKS_BEGINNING);
}

/* A state restored from a savepoint: what is before the hint is a later epoch of the timeline that
 * was left. */
FR_CASE(a_snapshot_of_a_timeline_without_records_lacks_nothing)
{
    for (int i = 0; i < 3; i++)
        history_epoch(h, 20);
    h->timeline++;
    h->epoch = 2;
    take_snapshot();
    script_end_at_hints(0);
    open_follower(false);
    read_to_end(FR_FOLLOWER_CONTINUES);
}

FR_CASE(a_new_timeline_may_lack_its_beginning_while_the_topic_is_read_again)
{
    begin_after_snapshot(-1);
    rewind_to_nothing();
    script_hide(1, 1, 2, true);
    open_follower(false);
    step_until(FR_FOLLOWER_CONTINUES, FR_FOLLOWER_HINT_MISLED, FR_FOLLOWER_REREADS);
    step_until(FR_FOLLOWER_REREADS, FR_FOLLOWER_PASSED_OVER, FR_FOLLOWER_LACKS_BEGINNING);
}

/* The hint of the last partition alone is wrong, and is met after others have passed records over
 * and, in the second round, after another timeline has begun. */
FR_CASE(a_misleading_hint_is_noticed_whatever_the_other_partitions_brought)
{
    for (int round = 0; round < 2; round++) {
        if (round > 0) {
            end(state);
            begin(state);
        }
        begin_after_snapshot(0);
        script.offset[2] -= 1;
        rewind_to_nothing();
        script_hide(1, 1, 2, true);
        if (round > 0) { /* the hint skips that timeline, too */
            script.offset[2] -= offset_of(h->n_topic, 2) - 12;
            rewind_to_nothing();
        }
        open_follower(false);
        step_until(FR_FOLLOWER_CONTINUES, FR_FOLLOWER_PASSED_OVER, FR_FOLLOWER_LACKS_BEGINNING);
        step_until(round > 0 ? FR_FOLLOWER_READS_ALL : FR_FOLLOWER_LACKS_BEGINNING, FR_FOLLOWER_HINT_MISLED,
                   FR_FOLLOWER_REREADS);
    }
}

FR_CASE(lost_records_and_a_reopening_close_the_topic_in_every_state)
{
    static void (*const reach[])(bool patient) = {reach_reads_all, reach_awaits_model, reach_continues, reach_rereads,
                                                  reach_lacks_beginning};
    static const enum fr_follower_state lost[] = {FR_FOLLOWER_READS_ALL, FR_FOLLOWER_AWAITS_MODEL,
                                                  FR_FOLLOWER_READS_ALL, FR_FOLLOWER_READS_ALL, FR_FOLLOWER_READS_ALL};
    static const enum fr_follower_state reopened[] = {FR_FOLLOWER_READS_ALL, FR_FOLLOWER_AWAITS_MODEL,
                                                      FR_FOLLOWER_CONTINUES, FR_FOLLOWER_REREADS,
                                                      FR_FOLLOWER_READS_ALL};
    for (size_t i = 0; i < 2 * (sizeof(reach) / sizeof(reach[0])); i++) {
        if (i > 0) {
            end(state);
            begin(state);
        }
        reach[i / 2](false);
        if (i % 2 == 0) {
            script.lost = true;
            step_until(follower->state, FR_FOLLOWER_RECORDS_LOST, lost[i / 2]);
        } else {
            fr_follower_reopen(follower);
            assert_int_equal(follower->state, reopened[i / 2]);
        }
        assert_null(follower->consumer);
        script.lost = false;
    }
}

FR_CASE(all_transitions_were_taken_and_no_others_exist)
{
    for (enum fr_follower_state s = FR_FOLLOWER_READS_ALL; s < FR_FOLLOWER_STATES; s++)
        for (enum fr_follower_event e = 0; e < FR_FOLLOWER_EVENTS; e++)
            if (taken[s][e] != (fr_follower_next_state(s, e) != FR_FOLLOWER_NO_STATE))
                fail_msg("%s in %s: %s", fr_follower_event_name(e), fr_follower_state_name(s),
                         taken[s][e] ? "taken, and not in the table" : "in the table, and never taken");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_follower_begins_with_the_snapshot_there_is),
        CASE(a_newer_snapshot_ends_a_lack_of_the_beginning),
        CASE(a_snapshot_that_names_the_topic_needs_no_record),
        CASE(a_snapshot_of_an_unknown_model_is_loaded_when_a_record_shows_the_model),
        CASE(after_a_gap_the_topic_is_read_again_once),
        CASE(a_patient_follower_reads_the_topic_again_for_a_gap),
        CASE(an_impatient_follower_reports_a_gap),
        CASE(a_gap_where_the_beginning_is_lacking_reads_the_topic_again),
        CASE(a_lack_of_the_beginning_ends_with_a_whole_state_or_a_new_timeline),
        CASE(a_snapshot_is_followed_by_the_epochs_after_it),
        CASE(a_snapshot_of_a_timeline_without_records_lacks_nothing),
        CASE(a_new_timeline_may_lack_its_beginning_while_the_topic_is_read_again),
        CASE(a_misleading_hint_is_noticed_whatever_the_other_partitions_brought),
        CASE(lost_records_and_a_reopening_close_the_topic_in_every_state),
        cmocka_unit_test(all_transitions_were_taken_and_no_others_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
