/* The agreement of several ranks about epochs (durable/agreement.h): every order in which the ranks
 * of a small job can take their steps, with crashes anywhere, is searched. The model has the states
 * of the code, and takes its decisions from the functions that the service calls.
 *
 * A crash ends all ranks. A rank then has of its journal all that it wrote, or what it had synced
 * (a power cut); with LOST_MARKS it may also have the mark before its last one. An epoch is
 * published as soon as any rank has marked it. Rules that are wrong must be found: the search would
 * prove little if it found nothing. */
#include "durable/agreement.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "case.h"

enum { RANKS_MAX = 3, EPOCHS_MAX = 4 };

enum phase { DOWN, AGREED, CUT, PREPARED, RUNNING };

struct model_rank {
    uint8_t phase, written, synced, mark; /* numbers of epochs */
    uint8_t made[EPOCHS_MAX + 1];         /* which life of the job made the epoch that is written */
};

struct model {
    struct model_rank ranks[RANKS_MAX];
    uint8_t published, made[EPOCHS_MAX + 1]; /* and which life made what was published */
    uint8_t crashes, keep;
};

enum rule {
    RIGHT,
    KEEPS_MARKED,   /* T is the largest mark */
    PUBLISHES_OWN,  /* an epoch is published when the rank itself has synced it */
    MARKS_AT_ONCE,  /* a start does not wait until all have synced what they keep */
    KEEPS_ALL_MINE, /* a rank keeps all that its own journal has */
};

struct search {
    uint32_t n_ranks, n_epochs, n_crashes;
    bool lost_marks;
    enum rule rule;
    const char *violation; /* NULL: none */
    size_t n_states, capacity, n_waiting, capacity_waiting;
    struct model *states; /* find-or-add table; keep is 0: unused */
    struct model *waiting;
};

static struct model *place_of(const struct search *search, const struct model *state)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(*state); i++)
        hash = fr_fmix64(hash ^ ((const uint8_t *)state)[i]);
    size_t at = hash & (search->capacity - 1);
    while (search->states[at].keep != 0 && memcmp(&search->states[at], state, sizeof(*state)) != 0)
        at = (at + 1) & (search->capacity - 1);
    return &search->states[at];
}

static void grow(struct search *search)
{
    struct model *old = search->states;
    size_t n = search->capacity;
    search->capacity = n ? 2 * n : 1 << 16;
    search->states = fr_alloc(search->capacity, sizeof(*search->states));
    for (size_t i = 0; i < n; i++)
        if (old[i].keep != 0)
            *place_of(search, &old[i]) = old[i];
    free(old);
}

static void add(struct search *search, const struct model *state)
{
    if (2 * search->n_states >= search->capacity)
        grow(search);
    struct model *place = place_of(search, state);
    if (place->keep != 0)
        return;
    *place = *state;
    search->n_states++;
    if (search->n_waiting == search->capacity_waiting) {
        search->capacity_waiting = 2 * search->capacity_waiting + 1024;
        search->waiting = fr_realloc(search->waiting, search->capacity_waiting, sizeof(*search->waiting));
    }
    search->waiting[search->n_waiting++] = *state;
}

static void violate(struct search *search, const char *what)
{
    if (!search->violation)
        search->violation = what;
}

/* ---- the steps of a rank ---- */

static void publish(struct search *search, struct model *state, const struct model_rank *rank, uint8_t epoch)
{
    if (epoch <= state->published)
        return;
    if (epoch != state->published + 1)
        violate(search, "an epoch was left out");
    state->published = epoch;
    state->made[epoch] = rank->made[epoch];
}

/* Whether all ranks have voted for the epoch. */
static bool voted(struct search *search, const struct model *state, uint8_t epoch)
{
    struct fr_durable_vote votes[RANKS_MAX] = {{0}};
    struct fr_err err = {0};
    bool all = false;
    uint32_t waits;
    for (uint32_t r = 0; r < search->n_ranks; r++) {
        const struct model_rank *rank = &state->ranks[r];
        bool prepared = rank->phase == RUNNING && rank->synced >= epoch;
        votes[r] = (struct fr_durable_vote){.epoch = epoch, .waits_for = prepared ? 0 : 1};
    }
    if (fr_durable_voted(votes, search->n_ranks, &all, &waits, &err) != FR_OK)
        violate(search, "the votes are about different epochs");
    return all;
}

static void run_step(struct search *search, struct model state, uint32_t r)
{
    struct model_rank *rank = &state.ranks[r];
    if (rank->written > rank->synced) {
        rank->synced = rank->written;
        if (search->rule == PUBLISHES_OWN)
            publish(search, &state, rank, rank->synced);
    } else if (rank->written == rank->mark && rank->mark < search->n_epochs) {
        rank->made[++rank->written] = (uint8_t)(state.crashes + 1);
    } else if (rank->written > rank->mark && voted(search, &state, rank->mark + 1)) {
        rank->mark++;
        publish(search, &state, rank, rank->mark);
    } else {
        return;
    }
    add(search, &state);
}

/* ---- a start ---- */

/* All ranks look what they have, and agree. */
static void agree(struct search *search, struct model state)
{
    struct fr_durable_ends ends[RANKS_MAX];
    struct fr_err err = {0};
    uint64_t keep = 0, most = 0;
    for (uint32_t r = 0; r < search->n_ranks; r++) {
        ends[r] = (struct fr_durable_ends){.journal = state.ranks[r].written, .mark = state.ranks[r].mark};
        most = ends[r].mark > most ? ends[r].mark : most;
    }
    if (fr_durable_agree(ends, search->n_ranks, &keep, &err) != FR_OK)
        violate(search, "a start is refused");
    if (search->rule == KEEPS_MARKED)
        keep = most;
    if (keep < state.published)
        violate(search, "what was published is lost");
    state.keep = (uint8_t)(keep + 1);
    for (uint32_t r = 0; r < search->n_ranks; r++) {
        struct model_rank *rank = &state.ranks[r];
        uint8_t mine = search->rule == KEEPS_ALL_MINE ? rank->written : (uint8_t)keep;
        if (mine < rank->mark)
            violate(search, "a rank goes back behind its mark");
        for (uint32_t e = 1; e <= mine; e++)
            if (rank->made[e] != state.ranks[0].made[e])
                violate(search, "ranks have epochs of different lives");
        for (uint32_t e = 1; e <= state.published; e++)
            if (rank->made[e] != state.made[e])
                violate(search, "a rank has another epoch than was published");
        rank->phase = AGREED;
    }
    add(search, &state);
}

static bool all_prepared(const struct search *search, const struct model *state)
{
    bool all = true;
    for (uint32_t r = 0; r < search->n_ranks; r++)
        all &= state->ranks[r].phase >= PREPARED;
    return all;
}

static void start_step(struct search *search, struct model state, uint32_t r)
{
    struct model_rank *rank = &state.ranks[r];
    uint8_t keep = (uint8_t)(search->rule == KEEPS_ALL_MINE ? rank->written : state.keep - 1);
    if (rank->phase == AGREED) {
        for (uint32_t e = keep + 1U; e <= EPOCHS_MAX; e++)
            rank->made[e] = 0;
        rank->written = keep;
        rank->synced = rank->synced < keep ? rank->synced : keep;
        rank->phase = CUT;
    } else if (rank->phase == CUT) {
        rank->synced = rank->written;
        rank->phase = PREPARED;
    } else if (rank->phase == PREPARED && (search->rule == MARKS_AT_ONCE || all_prepared(search, &state))) {
        rank->mark = rank->written;
        publish(search, &state, rank, rank->mark);
        rank->phase = RUNNING;
    } else {
        return;
    }
    add(search, &state);
}

/* ---- crashes ---- */

static void crash(struct search *search, const struct model *before, uint32_t power, uint32_t marks)
{
    struct model state = *before;
    for (uint32_t r = 0; r < search->n_ranks; r++) {
        struct model_rank *rank = &state.ranks[r];
        rank->phase = DOWN;
        if (power >> r & 1)
            rank->written = rank->synced;
        if ((marks >> r & 1) && rank->mark > 0)
            rank->mark--;
        for (uint32_t e = rank->written + 1U; e <= EPOCHS_MAX; e++)
            rank->made[e] = 0;
    }
    state.crashes++;
    state.keep = 1;
    add(search, &state);
}

static void expand(struct search *search, const struct model *state)
{
    uint32_t subsets = 1u << search->n_ranks;
    if (state->ranks[0].phase == DOWN) {
        agree(search, *state);
        return;
    }
    for (uint32_t r = 0; r < search->n_ranks; r++)
        if (state->ranks[r].phase == RUNNING)
            run_step(search, *state, r);
        else
            start_step(search, *state, r);
    for (uint32_t power = 0; state->crashes < search->n_crashes && power < subsets; power++)
        for (uint32_t marks = 0; marks < (search->lost_marks ? subsets : 1); marks++)
            crash(search, state, power, marks);
}

/* Searches all states; returns what is wrong with one of them, or NULL. */
static const char *run_search(struct search *search)
{
    struct model first;
    memset(&first, 0, sizeof(first));
    first.keep = 1;
    add(search, &first);
    while (search->n_waiting > 0 && !search->violation) {
        struct model state = search->waiting[--search->n_waiting];
        expand(search, &state);
    }
    free(search->states);
    free(search->waiting);
    return search->violation;
}

static void expect_right(uint32_t n_ranks, uint32_t n_epochs, uint32_t n_crashes, bool lost_marks, size_t least_states)
{
    struct search search = {.n_ranks = n_ranks, .n_epochs = n_epochs, .n_crashes = n_crashes, .lost_marks = lost_marks};
    const char *violation = run_search(&search);
    print_message("%u ranks, %u epochs, %u crashes%s: %zu states\n", n_ranks, n_epochs, n_crashes,
                  lost_marks ? " with lost marks" : "", search.n_states);
    if (violation)
        fail_msg("%s", violation);
    assert_true(search.n_states > least_states);
}

FR_CASE(no_order_of_steps_and_crashes_loses_an_epoch)
{
    expect_right(1, 4, 3, true, 1000);
    expect_right(2, 4, 3, false, 1000);
    expect_right(2, 4, 3, true, 1000);
    expect_right(3, 3, 2, true, 1000);
    expect_right(3, 4, 3, true, 1000);
}

static void expect_wrong(enum rule rule, bool lost_marks)
{
    struct search search = {.n_ranks = 2, .n_epochs = 3, .n_crashes = 2, .lost_marks = lost_marks, .rule = rule};
    const char *violation = run_search(&search);
    print_message("rule %d: %s\n", rule, violation ? violation : "nothing was found");
    assert_non_null(violation);
}

FR_CASE(the_search_finds_wrong_rules)
{
    expect_wrong(KEEPS_MARKED, true);
    expect_wrong(PUBLISHES_OWN, false);
    expect_wrong(MARKS_AT_ONCE, false);
    expect_wrong(KEEPS_ALL_MINE, false);
}

FR_CASE(votes_about_different_epochs_are_refused)
{
    struct fr_durable_vote votes[2] = {{.epoch = 4}, {.epoch = 5}};
    struct fr_err err = {0};
    bool all;
    uint32_t waits = 7;
    assert_int_equal(fr_durable_voted(votes, 2, &all, &waits, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "rank 1 makes epoch 5 durable, and rank 0 epoch 4"));
    votes[1] = (struct fr_durable_vote){.epoch = 4, .waits_for = 2};
    assert_int_equal(fr_durable_voted(votes, 2, &all, &waits, &err), FR_OK);
    assert_false(all);
    assert_int_equal(waits, 1);
}

FR_CASE(the_digest_of_a_job_is_that_of_all_journals_in_the_order_of_ranks)
{
    const struct fr_sha256 own[2] = {fr_sha256("a", 1), fr_sha256("b", 1)}, turned[2] = {own[1], own[0]};
    struct fr_sha256 one = fr_durable_join_digests(own, 1), both = fr_durable_join_digests(own, 2);
    assert_memory_equal(&one, &own[0], sizeof(one));
    uint8_t bytes[64];
    memcpy(bytes, own[0].bytes, 32);
    memcpy(bytes + 32, own[1].bytes, 32);
    struct fr_sha256 expected = fr_sha256(bytes, sizeof(bytes));
    assert_memory_equal(&both, &expected, sizeof(both));
    both = fr_durable_join_digests(turned, 2);
    assert_memory_not_equal(&both, &expected, sizeof(both));
}

FR_CASE(a_directory_that_lacks_a_marked_epoch_is_named)
{
    struct fr_durable_ends ends[] = {{.journal = 9, .mark = 8}, {.journal = 6, .mark = 6}, {.journal = 8, .mark = 7}};
    struct fr_err err = {0};
    uint64_t keep = 0;
    assert_int_equal(fr_durable_agree(ends, 3, &keep, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "the journal of rank 1 ends with epoch 6, but rank 0 has marked epoch 8"));
    ends[1] = (struct fr_durable_ends){.journal = 8, .mark = 8};
    assert_int_equal(fr_durable_agree(ends, 3, &keep, &err), FR_OK);
    assert_int_equal(keep, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_steps_and_crashes_loses_an_epoch),
        cmocka_unit_test(the_search_finds_wrong_rules),
        cmocka_unit_test(votes_about_different_epochs_are_refused),
        cmocka_unit_test(the_digest_of_a_job_is_that_of_all_journals_in_the_order_of_ranks),
        cmocka_unit_test(a_directory_that_lacks_a_marked_epoch_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
