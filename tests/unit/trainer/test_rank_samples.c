/* Samples of all ranks for metrics (trainer/rank_samples.h): what a task's metrics are of the
 * messages of several ranks is what they are of the whole batch, bit for bit; messages that are cut
 * or forged are refused, or are samples like others. */
#include "case.h"

#include <math.h>
#include <string.h>

#include "../../../trainer/rank_samples.h"
#include "base/check.h"
#include "base/random.h"

enum { SAMPLES = 60, TASKS = 2, RANKS = 3, FLIPS = 4000 };

struct scene {
    struct fr_conf conf;
    struct fr_conf_task tasks[TASKS];
    struct fr_batch batch;
    struct fr_column column;
    float scores[TASKS][SAMPLES], labels[TASKS * SAMPLES], weights[TASKS * SAMPLES], keep[SAMPLES];
    float served[TASKS * SAMPLES];
    uint8_t use[SAMPLES];
    int64_t t_ms[SAMPLES];
    uint32_t begin[SAMPLES + 1], group_of[SAMPLES];
    uint64_t keys[2 * SAMPLES];
};

static double draw(uint64_t set, uint64_t i)
{
    return fr_random_uniform(71, 1, set, i);
}

/* Fills the samples [first, end) of a drawn batch, as a rank has them. */
static void fill(struct scene *s, uint64_t set, uint32_t first, uint32_t end, bool shared, bool any_served)
{
    memset(s, 0, sizeof(*s));
    s->conf = (struct fr_conf){.n_tasks = TASKS, .n_slots = 1, .metrics.gauc_by = set % 3 ? 0 : FR_NO_INDEX};
    s->conf.tasks = s->tasks;
    s->tasks[1].label = 1;
    s->column = (struct fr_column){.begin = s->begin, .keys = s->keys, .shared = shared};
    s->batch = (struct fr_batch){.capacity_samples = SAMPLES,
                                 .t_ms = s->t_ms,
                                 .use = s->use,
                                 .labels = s->labels,
                                 .weights = s->weights,
                                 .keep = s->keep,
                                 .served = any_served ? s->served : NULL,
                                 .group_of = s->group_of,
                                 .columns = &s->column,
                                 .n_slots = 1};
    uint32_t n_keys = 0, entry = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t k = s->batch.n_samples++;
        bool begins = !shared || i % 2 == 0 || k == 0; /* groups of two */
        for (uint32_t t = 0; t < TASKS; t++) {
            s->scores[t][k] = (float)(6 * draw(set, 100 * i + t) - 3);
            s->labels[t * SAMPLES + k] = draw(set, 100 * i + t + 2) < 0.1 ? NAN : draw(set, 100 * i + t + 4) < 0.4;
            s->weights[t * SAMPLES + k] = (float)draw(set, 100 * i + t + 6);
            s->served[t * SAMPLES + k] = draw(set, 100 * i + t + 8) < 0.5 ? NAN : (float)draw(set, 100 * i + t + 10);
        }
        s->keep[k] = (float)(0.5 + draw(set, 100 * i + 20) / 2);
        s->use[k] = (uint8_t)(4 * draw(set, 100 * i + 21));
        s->t_ms[k] = 1700000000000 + (int64_t)(1e6 * draw(set, 100 * i + 22));
        if (begins) {
            uint32_t group = i / 2 * 2; /* the keys of a group do not depend on the rank */
            for (uint32_t n = (uint32_t)(3 * draw(set, 100 * group + 23)); n > 0; n--)
                s->keys[n_keys++] = (uint64_t)(5 * draw(set, 100 * group + 23 + n));
            s->begin[++entry] = n_keys;
        }
        s->group_of[k] = entry - 1;
    }
    s->batch.n_groups = entry;
}

static struct fr_buffer message_of(const struct scene *s)
{
    const float *scores[TASKS] = {s->scores[0], s->scores[1]};
    struct fr_buffer out = {0};
    fr_rank_samples_put(&s->conf, &s->batch, scores, &out);
    return out;
}

static void encode(const struct fr_rank_samples *samples, uint32_t task, bool keep, struct fr_buffer *out)
{
    struct fr_task_metrics_options options = {.n_half_lives = 1, .half_life_ms = {600000}, .gauc_groups_max = 100};
    struct fr_task_metrics *metrics = fr_task_metrics_new(&options);
    struct fr_task_samples of = fr_rank_samples_of(samples, task);
    of.watermark_ms = 1700001000000;
    of.keep = keep ? of.keep : NULL;
    fr_task_metrics_add(metrics, &of);
    fr_task_metrics_encode(metrics, out);
    fr_task_metrics_free(metrics);
}

FR_CASE(metrics_of_all_ranks_are_those_of_one)
{
    struct scene *s = fr_alloc(1, sizeof(*s));
    for (uint64_t set = 0; set < 60; set++) {
        bool shared = set & 1, keep = set & 2;
        uint32_t ends[RANKS] = {(uint32_t)(SAMPLES * draw(set, 0)) / 2 * 2, 0, SAMPLES};
        /* sometimes rank 1 has no samples */
        ends[1] = set % 5 ? ends[0] + (SAMPLES - ends[0]) / 4 * 2 : ends[0];
        struct fr_err err = {0};
        fill(s, set, 0, SAMPLES, shared, set & 4);
        struct fr_rank_samples *one = fr_rank_samples_new(&s->conf), *all = fr_rank_samples_new(&s->conf);
        struct fr_buffer message = message_of(s);
        fr_rank_samples_clear(one);
        assert_int_equal(fr_rank_samples_take(one, (struct fr_bytes){message.data, message.size}, 0, &err), FR_OK);
        fr_buffer_release(&message);
        fr_rank_samples_clear(all);
        for (uint32_t r = 0, first = 0; r < RANKS; first = ends[r++]) {
            fill(s, set, first, ends[r], shared, set & 4);
            message = message_of(s);
            assert_int_equal(fr_rank_samples_take(all, (struct fr_bytes){message.data, message.size}, r, &err), FR_OK);
            fr_buffer_release(&message);
        }
        for (uint32_t t = 0; t < TASKS; t++) {
            struct fr_buffer want = {0}, got = {0};
            encode(one, t, keep, &want);
            encode(all, t, keep, &got);
            assert_int_equal(got.size, want.size);
            assert_memory_equal(got.data, want.data, want.size);
            fr_buffer_release(&want);
            fr_buffer_release(&got);
        }
        fr_rank_samples_free(one);
        fr_rank_samples_free(all);
    }
    free(s);
}

FR_CASE(a_rank_without_served_scores_has_missing_ones)
{
    struct scene *s = fr_alloc(1, sizeof(*s));
    struct fr_err err = {0};
    fill(s, 1, 0, 4, false, false);
    struct fr_rank_samples *all = fr_rank_samples_new(&s->conf);
    fr_rank_samples_clear(all);
    struct fr_buffer message = message_of(s);
    assert_int_equal(fr_rank_samples_take(all, (struct fr_bytes){message.data, message.size}, 0, &err), FR_OK);
    assert_null(fr_rank_samples_of(all, 0).served);
    fr_buffer_release(&message);
    fill(s, 1, 4, 6, false, true);
    message = message_of(s);
    assert_int_equal(fr_rank_samples_take(all, (struct fr_bytes){message.data, message.size}, 1, &err), FR_OK);
    struct fr_task_samples of = fr_rank_samples_of(all, 1);
    assert_int_equal(of.count, 6);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(isnan(of.served[i]));
    assert_memory_equal(of.served + 4, s->served + SAMPLES, 2 * sizeof(float));
    fr_buffer_release(&message);
    fr_rank_samples_free(all);
    free(s);
}

/* Takes a message from memory of exactly its size. */
static enum fr_status take_copy(struct fr_rank_samples *samples, const uint8_t *data, size_t size)
{
    struct fr_err err = {0};
    uint8_t *copy = fr_alloc(size + 1, 1);
    memcpy(copy, data, size);
    copy = fr_realloc(copy, size ? size : 1, 1);
    fr_rank_samples_clear(samples);
    enum fr_status status = fr_rank_samples_take(samples, (struct fr_bytes){copy, size}, 3, &err);
    assert_true(status == FR_OK || (status == FR_E_CORRUPT && strstr(err.text, "rank 3")));
    free(copy);
    return status;
}

FR_CASE(messages_that_are_cut_or_forged_are_refused)
{
    struct scene *s = fr_alloc(1, sizeof(*s));
    fill(s, 1, 0, SAMPLES, true, true);
    struct fr_rank_samples *samples = fr_rank_samples_new(&s->conf);
    struct fr_buffer message = message_of(s);
    for (size_t size = 0; size < message.size; size++)
        assert_int_equal(take_copy(samples, message.data, size), FR_E_CORRUPT);
    fr_put_u8(&message, 0);
    assert_int_equal(take_copy(samples, message.data, message.size), FR_E_CORRUPT);
    message.size--;
    for (uint64_t i = 0; i < FLIPS; i++) {
        size_t at = (size_t)(draw(900, i) * (double)(i % 2 ? message.size : 16));
        uint8_t before = message.data[at];
        message.data[at] ^= (uint8_t)(1 + 255 * draw(901, i));
        (void)take_copy(samples, message.data, message.size);
        message.data[at] = before;
    }
    assert_int_equal(take_copy(samples, message.data, message.size), FR_OK);
    fr_buffer_release(&message);
    fr_rank_samples_free(samples);
    free(s);
}

FR_CASE(a_message_without_groups_is_refused_where_metrics_have_groups)
{
    struct scene *s = fr_alloc(1, sizeof(*s));
    fill(s, 1, 0, SAMPLES, true, true);
    struct fr_rank_samples *samples = fr_rank_samples_new(&s->conf);
    s->conf.metrics.gauc_by = FR_NO_INDEX;
    struct fr_buffer message = message_of(s);
    assert_int_equal(take_copy(samples, message.data, message.size), FR_E_CORRUPT);
    fr_buffer_release(&message);
    fr_rank_samples_free(samples);
    free(s);
}

/* Metrics subtract event times from each other. */
FR_CASE(an_event_time_that_is_not_above_0_is_refused)
{
    static const int64_t forged[] = {0, -1, INT64_MIN};
    struct scene *s = fr_alloc(1, sizeof(*s));
    fill(s, 1, 0, SAMPLES, true, true);
    struct fr_rank_samples *samples = fr_rank_samples_new(&s->conf);
    for (size_t i = 0; i < FR_ARRAY_LEN(forged); i++) {
        s->t_ms[SAMPLES - 1] = forged[i];
        struct fr_buffer message = message_of(s);
        assert_int_equal(take_copy(samples, message.data, message.size), FR_E_CORRUPT);
        assert_int_equal(fr_rank_samples_of(samples, 0).count, 0);
        fr_buffer_release(&message);
    }
    fr_rank_samples_free(samples);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_of_all_ranks_are_those_of_one),
        cmocka_unit_test(a_rank_without_served_scores_has_missing_ones),
        cmocka_unit_test(messages_that_are_cut_or_forged_are_refused),
        cmocka_unit_test(a_message_without_groups_is_refused_where_metrics_have_groups),
        cmocka_unit_test(an_event_time_that_is_not_above_0_is_refused),
    };
    return cmocka_run_group_tests_name("rank_samples", tests, NULL, NULL);
}
