/* The roll call (trainer/roll_call.h): what all ranks decide from what each of them says. The rules
 * are written here a second time, as sentences about all ranks, and checked for every combination
 * of flags of one and of two ranks, and for random ones of more. */
#include "case.h"

#include <string.h>

#include "../../../trainer/roll_call.h"
#include "base/check.h"
#include "base/random.h"

enum { FLAGS = 9, RANKS = 8 };

static bool any(const struct fr_roll *rolls, uint32_t n, uint32_t flags)
{
    bool found = false;
    for (uint32_t r = 0; r < n; r++)
        found |= (rolls[r].flags & flags) != 0;
    return found;
}

static bool all(const struct fr_roll *rolls, uint32_t n, uint32_t flags)
{
    bool found = true;
    for (uint32_t r = 0; r < n; r++)
        found &= (rolls[r].flags & flags) != 0;
    return found;
}

static void check_rules(const struct fr_roll *rolls, uint32_t n)
{
    struct fr_decision d = fr_roll_decide(rolls, n);
    bool ends = any(rolls, n, FR_ROLL_STOP) || all(rolls, n, FR_ROLL_ENDED), begun = any(rolls, n, FR_ROLL_LETTERS);
    bool cut = any(rolls, n, FR_ROLL_DUE | FR_ROLL_MUST) && all(rolls, n, FR_ROLL_STAGE);
    bool waits = any(rolls, n, FR_ROLL_PAUSED | FR_ROLL_MUST);
    bool whole = !rolls[0].lockstep || all(rolls, n, FR_ROLL_READY | FR_ROLL_ENDED);
    assert_int_equal(d.ends, ends && !begun);
    assert_int_equal(d.interrupts, !begun && !ends && !cut && waits);
    assert_int_equal(d.next == FR_NEXT_END, !begun && ends && !any(rolls, n, FR_ROLL_NEWS));
    assert_int_equal(d.next == FR_NEXT_CUT_LAST,
                     !begun && ends && any(rolls, n, FR_ROLL_NEWS) && all(rolls, n, FR_ROLL_STAGE));
    assert_int_equal(d.next == FR_NEXT_CUT, !begun && !ends && cut);
    assert_int_equal(d.next == FR_NEXT_TRAIN,
                     !begun && !ends && !cut && !waits && whole && any(rolls, n, FR_ROLL_READY));
    if (d.next != FR_NEXT_WAIT || d.rank == UINT32_MAX)
        return;
    /* the rank that is named is one that the others wait for */
    assert_true(d.rank < n);
    uint32_t flags = rolls[d.rank].flags;
    assert_true(flags & (FR_ROLL_LETTERS | FR_ROLL_PAUSED) ||
                ((ends || any(rolls, n, FR_ROLL_MUST)) && !(flags & FR_ROLL_STAGE)) ||
                (rolls[0].lockstep && !(flags & (FR_ROLL_READY | FR_ROLL_ENDED))));
}

FR_CASE(one_rank_decides_by_the_rules)
{
    for (uint32_t flags = 0; flags < 1u << FLAGS; flags++)
        for (uint8_t lockstep = 0; lockstep < 2; lockstep++) {
            struct fr_roll roll = {.flags = flags, .lockstep = lockstep};
            check_rules(&roll, 1);
        }
}

FR_CASE(ranks_decide_by_the_rules_whatever_each_of_them_says)
{
    for (uint32_t a = 0; a < 1u << FLAGS; a++)
        for (uint32_t b = 0; b < 1u << FLAGS; b++) {
            struct fr_roll rolls[2] = {{.flags = a}, {.flags = b}};
            check_rules(rolls, 2);
            rolls[0].lockstep = rolls[1].lockstep = 1;
            check_rules(rolls, 2);
        }
    for (uint64_t i = 0; i < 200000; i++) {
        struct fr_roll rolls[RANKS] = {{0}};
        uint32_t n = 3 + (uint32_t)(fr_random_u64(5, 0, i, 0) % (RANKS - 2));
        uint32_t mask = (uint32_t)fr_random_u64(5, 0, i, 1) % (1u << FLAGS);
        for (uint32_t r = 0; r < n; r++) { /* few flags, or many */
            rolls[r].flags = (uint32_t)fr_random_u64(5, 1, i, r) & mask;
            if (i % 2)
                rolls[r].flags |= (uint32_t)fr_random_u64(5, 2, i, r) & mask;
            rolls[r].lockstep = i / 2 % 2;
        }
        check_rules(rolls, n);
    }
}

FR_CASE(a_rank_that_is_elsewhere_is_named)
{
    struct fr_err err;
    struct fr_roll rolls[3];
    for (int member = 0; member < 7; member++) {
        memset(rolls, 0, sizeof(rolls));
        assert_int_equal(fr_roll_check(rolls, 3, &err), FR_OK);
        struct fr_roll *other = &rolls[2];
        uint64_t *const numbers[] = {&other->fingerprint, &other->call, &other->epoch, &other->batches,
                                     &other->samples};
        if (member < 5)
            (*numbers[member])++;
        else if (member == 5)
            other->watermark_ms--;
        else
            other->lockstep = 1;
        assert_int_equal(fr_roll_check(rolls, 3, &err), FR_E_MISMATCH);
        assert_non_null(strstr(err.text, "rank 2"));
        assert_int_equal(fr_roll_check(rolls, 2, &err), FR_OK);
    }
}

FR_CASE(what_all_have_acknowledged_is_the_least)
{
    const struct fr_roll rolls[] = {{.acknowledged = 7}, {.acknowledged = 5}, {.acknowledged = 6}};
    assert_int_equal(fr_roll_acknowledged(rolls, 1), 7);
    assert_int_equal(fr_roll_acknowledged(rolls, 3), 5);
    assert_int_equal(fr_roll_acknowledged(rolls + 1, 2), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_decides_by_the_rules),
        cmocka_unit_test(ranks_decide_by_the_rules_whatever_each_of_them_says),
        cmocka_unit_test(a_rank_that_is_elsewhere_is_named),
        cmocka_unit_test(what_all_have_acknowledged_is_the_least),
    };
    return cmocka_run_group_tests_name("roll_call", tests, NULL, NULL);
}
