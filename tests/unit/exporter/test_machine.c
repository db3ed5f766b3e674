/* The publisher's table of transitions, walked: every state has a row and is reached, and what is
 * refused is what is listed here. */
#include "case.h"

#include "../../../exporter/publisher_machine.h"

#define STATE(name, text) FR_PUBLISHER_##name,
#define EVENT(name, text) FR_PUBLISHER_##name,
static const enum fr_publisher_state states[] = {FR_PUBLISHER_STATE_LIST(STATE)};
static const enum fr_publisher_event events[] = {FR_PUBLISHER_EVENT_LIST(EVENT)};
#undef STATE
#undef EVENT

enum { N_STATES = sizeof(states) / sizeof(states[0]), N_EVENTS = sizeof(events) / sizeof(events[0]) };

/* In which states an event happens; in all others it is refused. */
struct row {
    enum fr_publisher_event event;
    enum fr_publisher_state from[N_STATES + 1]; /* up to NO_STATE */
};

#define PRODUCES                                                                                                       \
    {                                                                                                                  \
        FR_PUBLISHER_FOLLOWS, FR_PUBLISHER_AWAITS_FOLD, FR_PUBLISHER_FILLS, FR_PUBLISHER_FILLED,                       \
            FR_PUBLISHER_AWAITS_SNAPSHOT, FR_PUBLISHER_REWINDS                                                         \
    }
#define HAS_NOT_LOOKED                                                                                                 \
    {                                                                                                                  \
        FR_PUBLISHER_NEW, FR_PUBLISHER_LOOKS                                                                           \
    }

static const struct row rows[] = {
    {FR_PUBLISHER_NO_BROKERS, {FR_PUBLISHER_NEW}},
    {FR_PUBLISHER_BEGINNING_FOUND, HAS_NOT_LOOKED},
    {FR_PUBLISHER_STATE_NEEDED, HAS_NOT_LOOKED},
    {FR_PUBLISHER_SNAPSHOT_NEEDED, HAS_NOT_LOOKED},
    {FR_PUBLISHER_SNAPSHOT_NEEDED_AGAIN, HAS_NOT_LOOKED},
    {FR_PUBLISHER_FOLD_OPENED, {FR_PUBLISHER_AWAITS_FOLD}},
    {FR_PUBLISHER_STATE_SENT, {FR_PUBLISHER_FILLS}},
    {FR_PUBLISHER_SNAPSHOT_NAMED, {FR_PUBLISHER_AWAITS_SNAPSHOT}},
    {FR_PUBLISHER_BEGINNING_ACKNOWLEDGED, {FR_PUBLISHER_FOLLOWS, FR_PUBLISHER_FILLED, FR_PUBLISHER_REWINDS}},
    {FR_PUBLISHER_BACKLOG_ABANDONED, {FR_PUBLISHER_FOLLOWS, FR_PUBLISHER_REWINDS}},
    {FR_PUBLISHER_SNAPSHOT_REFUSED, {FR_PUBLISHER_AWAITS_SNAPSHOT, FR_PUBLISHER_REWINDS}},
    {FR_PUBLISHER_TOPIC_CHANGED, PRODUCES},
    {FR_PUBLISHER_PRODUCER_FAILED, PRODUCES},
    {FR_PUBLISHER_DELIVERY_FAILED, PRODUCES},
};

static bool happens_in(const struct row *row, enum fr_publisher_state state)
{
    for (size_t i = 0; row->from[i] != FR_PUBLISHER_NO_STATE; i++)
        if (row->from[i] == state)
            return true;
    return false;
}

FR_CASE(an_event_is_refused_in_every_state_that_is_not_listed)
{
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), N_EVENTS);
    for (size_t e = 0; e < N_EVENTS; e++) {
        assert_int_equal(rows[e].event, events[e]);
        for (size_t s = 0; s < N_STATES; s++) {
            bool taken = fr_publisher_transition(states[s], events[e]) != NULL;
            if (taken != happens_in(&rows[e], states[s]))
                fail_msg("\"%s\" is %s by a publisher that %s", fr_publisher_event_text(events[e]),
                         taken ? "taken" : "refused", fr_publisher_state_text(states[s]));
        }
    }
}

FR_CASE(every_state_is_reached_from_a_new_publisher)
{
    bool reached[FR_PUBLISHER_STATES] = {[FR_PUBLISHER_NEW] = true};
    for (size_t round = 0; round < N_STATES; round++)
        for (size_t s = 0; s < N_STATES; s++)
            for (size_t e = 0; e < N_EVENTS && reached[states[s]]; e++)
                if (fr_publisher_transition(states[s], events[e]))
                    reached[fr_publisher_transition(states[s], events[e])->to] = true;
    for (size_t s = 0; s < N_STATES; s++)
        if (!reached[states[s]])
            fail_msg("no way leads to a publisher that %s", fr_publisher_state_text(states[s]));
    assert_false(reached[FR_PUBLISHER_NO_STATE]);
}

/* Without brokers nothing more happens to a publisher. */
FR_CASE(every_state_but_one_has_a_row_and_leads_back_to_following_the_journal)
{
    bool leads[FR_PUBLISHER_STATES] = {[FR_PUBLISHER_FOLLOWS] = true, [FR_PUBLISHER_OFFLINE] = true};
    for (size_t round = 0; round < N_STATES; round++)
        for (size_t s = 0; s < N_STATES; s++)
            for (size_t e = 0; e < N_EVENTS; e++) {
                const struct fr_publisher_transition *to = fr_publisher_transition(states[s], events[e]);
                if (to && leads[to->to] && to->to != FR_PUBLISHER_OFFLINE)
                    leads[states[s]] = true;
            }
    for (size_t s = 0; s < N_STATES; s++)
        if (!leads[states[s]])
            fail_msg("a publisher that %s has no row, or none that leads on", fr_publisher_state_text(states[s]));
}

FR_CASE(a_producer_that_ends_is_followed_by_a_look)
{
    for (size_t s = 0; s < N_STATES; s++)
        for (enum fr_publisher_event e = FR_PUBLISHER_SNAPSHOT_REFUSED; e <= FR_PUBLISHER_DELIVERY_FAILED; e++)
            if (fr_publisher_transition(states[s], e))
                assert_int_equal(fr_publisher_transition(states[s], e)->to, FR_PUBLISHER_LOOKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_refused_in_every_state_that_is_not_listed),
        cmocka_unit_test(every_state_is_reached_from_a_new_publisher),
        cmocka_unit_test(every_state_but_one_has_a_row_and_leads_back_to_following_the_journal),
        cmocka_unit_test(a_producer_that_ends_is_followed_by_a_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
