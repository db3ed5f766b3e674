/* base/clock.h: a fake clock moves only when a test moves it, and the system clock never goes
 * back. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_clock.h"

FR_CASE(the_fake_moves_only_when_it_is_advanced)
{
    struct fr_clock_fake fake;
    fr_clock_fake_init(&fake, 1700000000000);
    uint64_t begin = fr_mono_ns(&fake.clock);
    assert_true(begin > 0);
    assert_true(fr_mono_ns(&fake.clock) == begin);
    fr_clock_fake_advance_ms(&fake, 1500);
    assert_true(fr_mono_ns(&fake.clock) - begin == 1500000000u);
    assert_true(fr_wall_ms(&fake.clock) == 1700000001500);
    fake.wall_ms -= 3600000; /* setting the wall clock back does not move the monotonic clock */
    assert_true(fr_mono_ns(&fake.clock) - begin == 1500000000u);
}

FR_CASE(the_system_clock_does_not_go_back)
{
    const struct fr_clock *clock = fr_clock_system();
    uint64_t before = fr_mono_ns(clock);
    for (int i = 0; i < 10000; i++) {
        uint64_t now = fr_mono_ns(clock);
        assert_true(now >= before);
        before = now;
    }
    assert_true(fr_wall_ms(clock) > 1500000000000); /* after 2017: milliseconds, not seconds */
}

static uint64_t ns_of(struct timespec at)
{
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

FR_CASE(a_deadline_is_so_far_from_now_and_a_year_at_most)
{
    const struct fr_clock *clock = fr_clock_system();
    const uint64_t year_ns = 366 * UINT64_C(86400000000000);
    static const uint64_t after[] = {0, 1, 999999999, 1000000000, 86400000000000};
    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        uint64_t before = fr_mono_ns(clock);
        struct timespec at = fr_clock_deadline(after[i]);
        uint64_t now = fr_mono_ns(clock);
        assert_in_range(at.tv_nsec, 0, 999999999);
        assert_true(before + after[i] <= ns_of(at) && ns_of(at) <= now + after[i]);
    }
    uint64_t before = fr_mono_ns(clock), at = ns_of(fr_clock_deadline(UINT64_MAX));
    assert_true(before + year_ns <= at && at <= fr_mono_ns(clock) + year_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fake_moves_only_when_it_is_advanced),
        cmocka_unit_test(the_system_clock_does_not_go_back),
        cmocka_unit_test(a_deadline_is_so_far_from_now_and_a_year_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
