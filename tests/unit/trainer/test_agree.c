/* What ranks find out together (trainer/agree.c): the facts of a batch, and the median of the event
 * times of all of them. The other ranks are this thread, which sends for them before rank 0
 * asks. */
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
    fr_buffer_release(&s->trainer.ranks.answers);
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

/* What a rank says of its batch, as in agree.c. */
struct said {
    uint64_t ready, n_samples, n_trained;
    int64_t latest_ms;
    struct fr_batch_shape shape;
};

/* Sends for ranks 1 and 2, and returns the facts that rank 0 gets. */
static struct fr_facts facts_of(struct scene *s, struct said two)
{
    const struct said one = {1, 5, 2, 60, {0}};
    struct fr_facts facts;
    struct fr_err err = {0};
    for (uint32_t r = 1; r < RANKS; r++) {
        struct fr_bytes out[RANKS] = {{NULL, 0}};
        out[0] = (struct fr_bytes){(const uint8_t *)(r == 1 ? &one : &two), sizeof(one)};
        assert_int_equal(fr_exchange_send(fr_exchange_group_rank(s->group, r), FR_CHANNEL_ROLL, out, &err), FR_OK);
    }
    fr_trainer_agree(&s->trainer, &s->batch, &facts);
    return facts;
}

FR_CASE(the_facts_of_a_batch_are_those_of_all_ranks)
{
    struct scene *s = scene_new();
    struct fr_facts facts = facts_of(s, (struct said){1, 0, 0, INT64_MIN, {0}});
    assert_int_equal(s->trainer.ranks.failure.status, FR_OK);
    assert_true(facts.n_samples == 9 && facts.n_trained == 5 && facts.latest_ms == 60 && facts.first == 0);
    scene_free(s);
}

/* Loops go by these numbers: a forged one must not make them run for years. */
FR_CASE(facts_that_no_batch_has_are_refused)
{
    static const struct said forged[] = {
        {1, UINT64_C(1) << 23, 1, 60, {0}},
        {1, UINT64_MAX, UINT64_MAX, 60, {0}},
        {1, 3, 4, 60, {0}},
        {1, 3, UINT64_MAX, 60, {0}},
        {1, 3, 2, 0, {0}},
        {1, 3, 2, INT64_MIN, {0}},
        {1, 3, 0, 60, {0}},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(forged); i++) {
        struct scene *s = scene_new();
        struct fr_facts facts = facts_of(s, forged[i]);
        assert_int_equal(s->trainer.ranks.failure.status, FR_E_CORRUPT);
        assert_non_null(strstr(s->trainer.ranks.failure.text, "rank 2 says"));
        assert_true(facts.n_samples == 4 && facts.n_trained == 3 && facts.latest_ms == 40);
        scene_free(s);
    }
}

/* Sends for ranks 1 and 2 what they have done with a batch; returns what rank 0 finds. */
static enum fr_status count_with(uint64_t trained)
{
    struct scene *s = scene_new();
    struct fr_batch_counts counts = {.n_samples = 5};
    struct fr_err err = {0};
    counts.roles[FR_ROLE_TRAIN] = trained;
    for (uint32_t r = 1; r < RANKS; r++) {
        struct fr_bytes out[RANKS] = {{(const uint8_t *)&counts, sizeof(counts)}};
        assert_int_equal(fr_exchange_send(fr_exchange_group_rank(s->group, r), FR_CHANNEL_ROLL, out, &err), FR_OK);
    }
    fr_trainer_count(&s->trainer, &s->batch);
    enum fr_status status = s->trainer.ranks.failure.status;
    scene_free(s);
    return status;
}

FR_CASE(more_trained_samples_than_batches_have_are_refused)
{
    assert_int_equal(count_with(5), FR_OK);
    assert_int_equal(count_with(UINT64_C(1) << 40), FR_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_lower_one_of_the_trained_samples_of_all_ranks),
        cmocka_unit_test(times_that_are_cut_or_not_above_0_are_refused),
        cmocka_unit_test(the_facts_of_a_batch_are_those_of_all_ranks),
        cmocka_unit_test(facts_that_no_batch_has_are_refused),
        cmocka_unit_test(more_trained_samples_than_batches_have_are_refused),
    };
    return cmocka_run_group_tests_name("agree", tests, NULL, NULL);
}
