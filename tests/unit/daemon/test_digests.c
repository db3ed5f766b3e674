/* The digests of epochs of several ranks (loops/shared_digests.h). */
#include "case.h"

#include "loops/shared_digests.h"

static struct fr_sha256 digest_of(uint64_t epoch)
{
    return fr_sha256(&epoch, sizeof(epoch));
}

static bool has(struct fr_shared_digests *digests, uint64_t epoch)
{
    struct fr_sha256 found, expected = digest_of(epoch);
    if (fr_shared_digests_get(digests, epoch, &found) != FR_OK)
        return false;
    assert_memory_equal(&found, &expected, sizeof(found));
    return true;
}

FR_CASE(an_epoch_has_its_digest_until_it_is_dropped)
{
    enum { FIRST = 40, EPOCHS = 5000, DROPPED = 3000 };
    struct fr_shared_digests digests = {0};
    fr_shared_digests_init(&digests);
    fr_shared_digests_begin(&digests, FIRST);
    assert_false(has(&digests, FIRST));
    for (uint64_t epoch = FIRST; epoch < FIRST + EPOCHS; epoch++) {
        struct fr_sha256 digest = digest_of(epoch);
        fr_shared_digests_add(&digests, epoch, &digest);
    }
    fr_shared_digests_drop(&digests, FIRST); /* none is before it */
    fr_shared_digests_drop(&digests, 0);
    assert_false(has(&digests, FIRST - 1));
    assert_true(has(&digests, FIRST));
    assert_true(has(&digests, FIRST + EPOCHS - 1));
    assert_false(has(&digests, FIRST + EPOCHS));
    fr_shared_digests_drop(&digests, FIRST + DROPPED);
    assert_false(has(&digests, FIRST + DROPPED - 1));
    for (uint64_t epoch = FIRST + DROPPED; epoch < FIRST + EPOCHS; epoch++)
        assert_true(has(&digests, epoch));
    struct fr_sha256 next = digest_of(FIRST + EPOCHS);
    fr_shared_digests_add(&digests, FIRST + EPOCHS, &next);
    assert_true(has(&digests, FIRST + EPOCHS));
    fr_shared_digests_release(&digests);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_epoch_has_its_digest_until_it_is_dropped),
    };
    return cmocka_run_group_tests_name("digests", cases, NULL, NULL);
}
