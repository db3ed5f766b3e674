/* What ranks find out together (trainer/agree.c): the median of the event times of all of them. The
 * other ranks are this thread, which sends for them before rank 0 asks. */
#include "case.h"

#include <string.h>

#include "../../../trainer/trainer_private.h"
#include "base/check.h"
#include "exchange/threads.h"

enum { RANKS = 3, SAMPLES = 4 };

struct scene {
    struct fr_trainer trainer; /* of rank 0: its exchange only */
    struct fr_exchange_group *group;
    struct fr_batch batch;
    int64_t t_ms[SAMPLES];
    uint8_t role[SAMPLES];
};

static struct scene *scene_new(void)
{
    struct scene *s = fr_alloc(1, sizeof(*s));
    s->group = fr_exchange_group_new(
        &(struct fr_exchange_group_options){.ranks = RANKS, .deadline_ns = UINT64_C(10000000000)});
    s->trainer.ranks.n = RANKS;
    s->trainer.ranks.exchange = fr_exchange_group_rank(s->group, 0);
    s->batch = (struct fr_batch){.n_samples = SAMPLES, .t_ms = s->t_ms, .role = s->role};
    memcpy(s->t_ms, (int64_t[]){40, 10, 1, 30}, sizeof(s->t_ms));
    s->role[2] = FR_ROLE_METRICS_ONLY;
    return s;
}

static void scene_free(struct scene *s)
{
    fr_exchange_group_free(s->group);
    free(s);
}

/* Sends for ranks 1 and 2, and returns the median that rank 0 gets. */
static int64_t median_of(struct scene *s, const void *one, size_t one_size, const void *two, size_t two_size)
{
    struct fr_err err = {0};
    for (uint32_t r = 1; r < RANKS; r++) {
        struct fr_bytes out[RANKS] = {{NULL, 0}};
        out[0] = r == 1 ? (struct fr_bytes){one, one_size} : (struct fr_bytes){two, two_size};
        assert_int_equal(fr_exchange_send(fr_exchange_group_rank(s->group, r), FR_CHANNEL_VALUES, out, &err), FR_OK);
    }
    return fr_trainer_median_time(&s->trainer, &s->batch);
}

FR_CASE(the_median_is_the_lower_one_of_the_trained_samples_of_all_ranks)
{
    static const int64_t one[] = {50, 20, 60}, odd[] = {35};
    struct scene *s = scene_new();
    assert_int_equal(median_of(s, one, sizeof(one), NULL, 0), 30); /* 10 20 30 40 50 60 */
    assert_int_equal(s->trainer.ranks.failure.status, FR_OK);
    scene_free(s);
    s = scene_new();
    assert_int_equal(median_of(s, one, sizeof(one), odd, sizeof(odd)), 35);
    scene_free(s);
}

FR_CASE(times_that_are_cut_or_not_above_0_are_refused)
{
    static const int64_t forged[] = {0, -1, INT64_MIN};
    static const int64_t good[] = {50, 20};
    for (size_t i = 0; i <= FR_ARRAY_LEN(forged); i++) {
        struct scene *s = scene_new();
        int64_t two[] = {20, i < FR_ARRAY_LEN(forged) ? forged[i] : 1};
        size_t size = sizeof(two) - (i < FR_ARRAY_LEN(forged) ? 0 : 1);
        /* the answer is that of this rank alone: 10 30 40 */
        assert_int_equal(median_of(s, good, sizeof(good), two, size), 30);
        assert_int_equal(s->trainer.ranks.failure.status, FR_E_CORRUPT);
        assert_non_null(strstr(s->trainer.ranks.failure.text, "rank 2"));
        scene_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_lower_one_of_the_trained_samples_of_all_ranks),
        cmocka_unit_test(times_that_are_cut_or_not_above_0_are_refused),
    };
    return cmocka_run_group_tests_name("agree", tests, NULL, NULL);
}
