/* The share of a thread that nothing waits for, by made-up times. */
#include "case.h"

#include "../../../exporter/snapshot_pace.h"

enum { MS = 1000000, PROCESSORS = 2 };

struct scene {
    struct fr_snapshot_pace pace;
    struct fr_snapshot_times now;
};

static struct scene begin(void)
{
    struct scene scene = {.now = {.mono_ns = 5 * MS, .process_ns = 700 * MS, .thread_ns = 30 * MS}};
    fr_snapshot_pace_init(&scene.pace, PROCESSORS, &scene.now);
    return scene;
}

/* Takes `own` processor time in `elapsed`, while the rest of the process takes `others`. Returns
 * how long the thread has to wait, and advances the clock by it. */
static double piece(struct scene *scene, double elapsed, double own, double others)
{
    scene->now.mono_ns += (uint64_t)(elapsed * MS);
    scene->now.thread_ns += (uint64_t)(own * MS);
    scene->now.process_ns += (uint64_t)((own + others) * MS);
    uint64_t until = fr_snapshot_pace_end(&scene->pace, &scene->now);
    double waits = until > scene->now.mono_ns ? (double)(until - scene->now.mono_ns) / MS : 0;
    scene->now.mono_ns += (uint64_t)(waits * MS);
    fr_snapshot_pace_begin(&scene->pace, scene->now.mono_ns);
    return waits;
}

FR_CASE(nobody_waits_while_processors_are_idle)
{
    struct scene scene = begin();
    for (int i = 0; i < 100; i++)
        assert_true(piece(&scene, 20, 20, 0.70 * 20 * PROCESSORS) == 0);
}

FR_CASE(a_busy_process_leaves_the_share_and_no_more)
{
    struct scene scene = begin();
    uint64_t began = scene.now.mono_ns, had = scene.now.thread_ns;
    double waited = 0;
    for (int i = 0; i < 100; i++)
        waited = piece(&scene, 20, 10, 0.9 * (20 + waited) * PROCESSORS);
    assert_true(waited > 100);
    double share = (double)(scene.now.thread_ns - had) / (double)(scene.now.mono_ns - began) / PROCESSORS;
    assert_true(share > 0.99 / FR_SNAPSHOT_PACE_SHARE && share < 1.01 / FR_SNAPSHOT_PACE_SHARE);
}

FR_CASE(a_piece_that_took_longer_than_its_share_needs_is_followed_at_once)
{
    struct scene scene = begin();
    assert_true(piece(&scene, 1000, 10, 2000) == 0);
}

FR_CASE(the_limit_ends_when_the_process_rests)
{
    struct scene scene = begin();
    assert_true(piece(&scene, 20, 10, 38) > 0);
    assert_true(piece(&scene, 180, 10, 5) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_while_processors_are_idle),
        cmocka_unit_test(a_busy_process_leaves_the_share_and_no_more),
        cmocka_unit_test(a_piece_that_took_longer_than_its_share_needs_is_followed_at_once),
        cmocka_unit_test(the_limit_ends_when_the_process_rests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
