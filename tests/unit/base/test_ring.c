/* base/ring.h: order, bounds, close, hand-over between threads (run it under the thread sanitizer,
 * too). */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <stdatomic.h>

#include "base/ring.h"

static const uint64_t forever = UINT64_MAX;

FR_CASE(items_leave_in_the_order_they_came)
{
    int items[10];
    struct fr_ring *ring = fr_ring_new(4);
    void *item = NULL;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            assert_true(fr_ring_try_push(ring, &items[i]));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(fr_ring_pop(ring, &item, 0), FR_OK);
            assert_ptr_equal(item, &items[i]);
        }
    }
    fr_ring_free(ring);
    fr_ring_free(NULL);
}

FR_CASE(a_full_ring_refuses_and_an_empty_one_has_nothing)
{
    int a, b, c;
    struct fr_ring *ring = fr_ring_new(2);
    void *item = &c;
    assert_int_equal(fr_ring_pop(ring, &item, 0), FR_AGAIN);
    assert_ptr_equal(item, &c); /* out-parameters are written only on success */
    assert_int_equal(fr_ring_push(ring, &a, 0), FR_OK);
    assert_int_equal(fr_ring_push(ring, &b, 0), FR_OK);
    assert_false(fr_ring_try_push(ring, &c));
    assert_int_equal(fr_ring_push(ring, &c, 1000000), FR_AGAIN);
    assert_int_equal(fr_ring_count(ring), 2);
    assert_int_equal(fr_ring_pop(ring, &item, forever), FR_OK);
    assert_true(fr_ring_try_push(ring, &c));
    fr_ring_free(ring);
}

FR_CASE(a_closed_ring_gives_out_what_is_inside_and_then_the_end)
{
    int a;
    void *item = NULL;
    struct fr_ring *ring = fr_ring_new(2);
    assert_true(fr_ring_try_push(ring, &a));
    fr_ring_close(ring);
    assert_int_equal(fr_ring_push(ring, &a, forever), FR_EOF);
    assert_false(fr_ring_try_push(ring, &a));
    assert_int_equal(fr_ring_pop(ring, &item, forever), FR_OK);
    assert_ptr_equal(item, &a);
    assert_int_equal(fr_ring_pop(ring, &item, forever), FR_EOF);
    fr_ring_free(ring);
}

enum { PUSHERS = 3, POPPERS = 3, PER_PUSHER = 5000 };

struct traffic {
    struct fr_ring *ring;
    int values[PUSHERS][PER_PUSHER];
    atomic_int next_pusher;
    atomic_int popped;
};

static void *push_all(void *argument)
{
    struct traffic *traffic = argument;
    int pusher = atomic_fetch_add(&traffic->next_pusher, 1);
    for (int i = 0; i < PER_PUSHER; i++) {
        traffic->values[pusher][i] = 1; /* written before the hand-over, read after it */
        if (fr_ring_push(traffic->ring, &traffic->values[pusher][i], forever) != FR_OK)
            abort();
    }
    return NULL;
}

static void *pop_all(void *argument)
{
    struct traffic *traffic = argument;
    void *item = NULL;
    while (fr_ring_pop(traffic->ring, &item, forever) == FR_OK) {
        int *value = item;
        *value += 1;
        atomic_fetch_add(&traffic->popped, 1);
    }
    return NULL;
}

FR_CASE(every_item_is_handed_over_exactly_once)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    assert_non_null(traffic);
    traffic->ring = fr_ring_new(7);
    pthread_t pushers[PUSHERS], poppers[POPPERS];
    for (int i = 0; i < POPPERS; i++)
        assert_int_equal(pthread_create(&poppers[i], NULL, pop_all, traffic), 0);
    for (int i = 0; i < PUSHERS; i++)
        assert_int_equal(pthread_create(&pushers[i], NULL, push_all, traffic), 0);
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(pushers[i], NULL);
    fr_ring_close(traffic->ring);
    for (int i = 0; i < POPPERS; i++)
        pthread_join(poppers[i], NULL);
    assert_int_equal(atomic_load(&traffic->popped), PUSHERS * PER_PUSHER);
    for (int p = 0; p < PUSHERS; p++)
        for (int i = 0; i < PER_PUSHER; i++)
            assert_int_equal(traffic->values[p][i], 2);
    fr_ring_free(traffic->ring);
    free(traffic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_leave_in_the_order_they_came),
        cmocka_unit_test(a_full_ring_refuses_and_an_empty_one_has_nothing),
        cmocka_unit_test(a_closed_ring_gives_out_what_is_inside_and_then_the_end),
        cmocka_unit_test(every_item_is_handed_over_exactly_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
