/* Which counters of the history may be shown: those that a crash cannot take back. */
#include "case.h"

#include <stdlib.h>

#include "documents.h"

/* Returns how many samples the history shows when `samples` are trained, `cut` is the newest epoch
 * cut and `durable` the newest durable one; -1 if it shows nothing yet. */
static int64_t shown_samples(struct fr_shown_history *settled, uint64_t samples, uint64_t cut, bool open,
                             uint64_t durable)
{
    struct fr_trainer_status *now = calloc(1, sizeof(*now));
    now->history.samples = samples;
    now->epoch = cut;
    now->open = open;
    const struct fr_trainer_status *shown = fr_documents_shown_history(settled, now, durable);
    int64_t result = shown ? (int64_t)shown->history.samples : -1;
    free(now);
    return result;
}

FR_CASE(what_recovery_found_is_shown_at_once)
{
    struct fr_shown_history settled = {0};
    assert_int_equal(shown_samples(&settled, 6798176, 91, false, 91), 6798176);
    fr_documents_shown_release(&settled);
}

FR_CASE(samples_are_shown_when_their_epoch_is_durable)
{
    struct fr_shown_history settled = {0};
    assert_int_equal(shown_samples(&settled, 0, 0, false, 0), 0);
    /* the samples belong to epoch 1, which is open */
    assert_int_equal(shown_samples(&settled, 100, 0, true, 0), 0);
    assert_int_equal(shown_samples(&settled, 150, 1, false, 0), 0); /* cut */
    assert_int_equal(shown_samples(&settled, 180, 1, true, 1), 100);
    assert_int_equal(shown_samples(&settled, 190, 1, true, 1), 100);
    assert_int_equal(shown_samples(&settled, 200, 2, false, 1), 100);
    assert_int_equal(shown_samples(&settled, 200, 2, false, 2), 200); /* and nothing since */
    fr_documents_shown_release(&settled);
}

FR_CASE(what_is_shown_never_falls_and_keeps_up_while_data_comes)
{
    struct fr_shown_history settled = {0};
    int64_t before = -1;
    for (uint64_t turn = 1; turn < 1000; turn++) {
        uint64_t cut = turn / 5, durable = cut > 1 ? cut - 1 : 0;
        int64_t shown = shown_samples(&settled, turn * 10, cut, turn % 5 != 0, durable);
        assert_true(shown >= before);
        /* a crash goes back to what was cut as epoch `durable` */
        assert_true(shown <= (int64_t)durable * 50);
        assert_true(turn < 30 || shown >= (int64_t)(turn - 20) * 10);
        before = shown;
    }
    fr_documents_shown_release(&settled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_recovery_found_is_shown_at_once),
        cmocka_unit_test(samples_are_shown_when_their_epoch_is_durable),
        cmocka_unit_test(what_is_shown_never_falls_and_keeps_up_while_data_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
