/* The publisher's table of transitions, walked: every state has a row and is reached, and each
 * event is taken and refused where it is listed here. */
#include "case.h"

#include <stdbool.h>

#include "../../../exporter/publisher_states.h"

#define NAME(name) FR_PUBLISHER_##name,
static const enum fr_publisher_state states[] = {FR_PUBLISHER_STATE_LIST(NAME)};
static const enum fr_publisher_event events[] = {FR_PUBLISHER_EVENT_LIST(NAME)};
#undef NAME
#define QUOTED(name) #name,
static const char *const state_names[] = {FR_PUBLISHER_STATE_LIST(QUOTED)};
static const char *const event_names[] = {FR_PUBLISHER_EVENT_LIST(QUOTED)};
#undef QUOTED

enum { N_STATES = sizeof(states) / sizeof(states[0]), N_EVENTS = sizeof(events) / sizeof(events[0]) };

/* An event, the state that follows it, and those in which it happens; all others refuse it. */
struct row {
    enum fr_publisher_event event;
    enum fr_publisher_state to, from[N_STATES + 1]; /* from: up to NO_STATE */
};

#define INSPECTING FR_PUBLISHER_NEW, FR_PUBLISHER_INSPECTS
#define PRODUCING                                                                                                      \
    FR_PUBLISHER_FOLLOWS, FR_PUBLISHER_AWAITS_FOLD, FR_PUBLISHER_FILLS, FR_PUBLISHER_FILLED,                           \
        FR_PUBLISHER_AWAITS_SNAPSHOT, FR_PUBLISHER_REWINDS

static const struct row rows[] = {
    {FR_PUBLISHER_NO_BROKERS, FR_PUBLISHER_OFFLINE, {FR_PUBLISHER_NEW}},
    {FR_PUBLISHER_BEGINNING_FOUND, FR_PUBLISHER_FOLLOWS, {INSPECTING}},
    {FR_PUBLISHER_STATE_NEEDED, FR_PUBLISHER_AWAITS_FOLD, {INSPECTING}},
    {FR_PUBLISHER_SNAPSHOT_NEEDED, FR_PUBLISHER_AWAITS_SNAPSHOT, {INSPECTING}},
    {FR_PUBLISHER_NAMED_SNAPSHOT_NEEDED, FR_PUBLISHER_REWINDS, {INSPECTING}},
    {FR_PUBLISHER_FOLD_OPENED, FR_PUBLISHER_FILLS, {FR_PUBLISHER_AWAITS_FOLD}},
    {FR_PUBLISHER_STATE_SENT, FR_PUBLISHER_FILLED, {FR_PUBLISHER_FILLS}},
    {FR_PUBLISHER_SNAPSHOT_NAMED, FR_PUBLISHER_REWINDS, {FR_PUBLISHER_AWAITS_SNAPSHOT}},
    {FR_PUBLISHER_BEGINNING_ACKNOWLEDGED,
     FR_PUBLISHER_FOLLOWS,
     {FR_PUBLISHER_FOLLOWS, FR_PUBLISHER_FILLED, FR_PUBLISHER_REWINDS}},
    {FR_PUBLISHER_BACKLOG_ABANDONED, FR_PUBLISHER_AWAITS_FOLD, {FR_PUBLISHER_FOLLOWS, FR_PUBLISHER_REWINDS}},
    {FR_PUBLISHER_SNAPSHOT_REFUSED, FR_PUBLISHER_INSPECTS, {FR_PUBLISHER_AWAITS_SNAPSHOT, FR_PUBLISHER_REWINDS}},
    {FR_PUBLISHER_TOPIC_CHANGED, FR_PUBLISHER_INSPECTS, {PRODUCING}},
    {FR_PUBLISHER_PRODUCER_FAILED, FR_PUBLISHER_INSPECTS, {PRODUCING}},
    {FR_PUBLISHER_DELIVERY_FAILED, FR_PUBLISHER_INSPECTS, {PRODUCING}},
};

static bool happens_in(const struct row *row, enum fr_publisher_state state)
{
    for (size_t i = 0; row->from[i] != FR_PUBLISHER_NO_STATE; i++)
        if (row->from[i] == state)
            return true;
    return false;
}

FR_CASE(an_event_leads_where_it_is_listed_and_is_refused_in_all_other_states)
{
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), N_EVENTS);
    for (size_t e = 0; e < N_EVENTS; e++) {
        assert_int_equal(rows[e].event, events[e]);
        for (size_t s = 0; s < N_STATES; s++) {
            const struct fr_publisher_transition *taken = fr_publisher_transition(states[s], events[e]);
            if ((taken != NULL) != happens_in(&rows[e], states[s]))
                fail_msg("%s is %s in %s", event_names[e], taken ? "taken" : "refused", state_names[s]);
            if (taken && taken->to != rows[e].to)
                fail_msg("%s leads from %s to %s", event_names[e], state_names[s], state_names[taken->to - 1]);
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
            fail_msg("no way leads to %s", state_names[s]);
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
            fail_msg("%s has no row, or none that leads on", state_names[s]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_leads_where_it_is_listed_and_is_refused_in_all_other_states),
        cmocka_unit_test(every_state_is_reached_from_a_new_publisher),
        cmocka_unit_test(every_state_but_one_has_a_row_and_leads_back_to_following_the_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
