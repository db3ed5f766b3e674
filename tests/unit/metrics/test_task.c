/* What counts for a task's metrics, sampling correction, served scores, groups of shared columns,
 * the section. */
#include <math.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "metrics/task.h"

enum { N = 4000 };

struct stream {
    float scores[N], labels[N], weights[N], keep[N], served[N];
    uint8_t use[N];
    int64_t t_ms[N];
    uint32_t entry_of[N], begin[N + 1];
    uint64_t keys[N];
};

static const struct fr_task_metrics_options options = {
    .n_half_lives = 2, .half_life_ms = {60000, 3600000}, .gauc_salt = 3, .gauc_groups_max = 64};
static const struct fr_task_metrics_options regression = {.regression = true, .gauc_salt = 3, .gauc_groups_max = 64};

/* One positive in twenty; every sample has its own entry and one key out of 40. */
static struct stream *make_stream(uint64_t seed)
{
    struct stream *s = fr_alloc(1, sizeof(*s));
    for (uint32_t i = 0; i < N; i++) {
        s->labels[i] = fr_random_uniform(seed, 1, i, 0) < 0.05 ? 1.0f : 0.0f;
        s->scores[i] = (float)(-3 + fr_random_normal(seed, 2, i, 0) + (double)s->labels[i]);
        s->served[i] = (float)(1 / (1 + exp(-(double)s->scores[i] * 0.5)));
        s->weights[i] = s->keep[i] = 1;
        s->use[i] = 3;
        s->t_ms[i] = 1700000000000 + i;
        s->entry_of[i] = s->begin[i] = i;
        s->keys[i] = i % 40;
    }
    s->begin[N] = N;
    return s;
}

static struct fr_task_samples view(const struct stream *s)
{
    return (struct fr_task_samples){.count = N,
                                    .scores = s->scores,
                                    .labels = s->labels,
                                    .weights = s->weights,
                                    .use = s->use,
                                    .t_ms = s->t_ms,
                                    .watermark_ms = s->t_ms[N - 1],
                                    .group_begin = s->begin,
                                    .group_keys = s->keys};
}

static struct fr_task_result measure(const struct fr_task_metrics_options *how, const struct fr_task_samples *samples)
{
    struct fr_task_metrics *task = fr_task_metrics_new(how);
    struct fr_task_result result;
    fr_task_metrics_add(task, samples);
    fr_task_metrics_result(task, &result);
    fr_task_metrics_free(task);
    return result;
}

FR_CASE(only_samples_for_metrics_with_a_label_and_a_weight_count)
{
    struct stream *s = make_stream(1);
    s->use[0] = 1;         /* train only */
    s->labels[1] = NAN;    /* masked */
    s->labels[2] = 1.5f;   /* no class */
    s->labels[3] = -0.25f; /* no class */
    s->weights[4] = 0;     /* no weight */
    s->begin[N] = N - 1;   /* the last one has no key */
    struct fr_task_samples samples = view(s);
    struct fr_task_result result = measure(&options, &samples);
    assert_true(result.lifetime.weight == N - 5);
    assert_true(result.gauc.weight == N - 6);
    struct fr_task_result values = measure(&regression, &samples);
    assert_true(values.lifetime.weight == N - 3); /* for such a task any number is a label */
    free(s);
}

FR_CASE(the_keep_rate_gives_back_the_calibration_of_the_whole_stream)
{
    struct stream *s = make_stream(2);
    struct fr_task_samples samples = view(s);
    struct fr_task_result whole = measure(&options, &samples);
    double positives = 0, weight = 0, prediction = 0;
    for (uint32_t i = 0; i < N; i++) {
        if (s->labels[i] == 0) { /* one negative in four is kept */
            s->keep[i] = 0.25f;
            s->use[i] = fr_random_uniform(9, 1, i, 0) < 0.25 ? 3 : 0;
        }
        double w = s->use[i] ? 1.0 / (double)s->keep[i] : 0;
        positives += w * (double)s->labels[i];
        prediction += w / (1 + exp(-(double)s->scores[i]));
        weight += w;
    }
    struct fr_task_result plain = measure(&options, &samples);
    samples.keep = s->keep;
    struct fr_task_result corrected = measure(&options, &samples);
    assert_true(plain.lifetime.positive_rate > 2.5 * whole.lifetime.positive_rate);
    assert_true(fabs(corrected.lifetime.positive_rate / whole.lifetime.positive_rate - 1) < 0.05);
    assert_true(fabs(corrected.lifetime.calibration / whole.lifetime.calibration - 1) < 0.05);
    assert_true(fabs(plain.lifetime.calibration / whole.lifetime.calibration - 1) > 0.3);
    assert_true(fabs(corrected.lifetime.calibration - prediction / positives) < 1e-5);
    assert_true(fabs(corrected.lifetime.weight - weight) < 1e-9);
    assert_true(fabs(corrected.decayed[1].calibration / corrected.lifetime.calibration - 1) < 1e-3);
    assert_true(fabs(corrected.gauc.weight - weight) < 1e-9);
    free(s);
}

FR_CASE(served_scores_have_their_own_numbers_and_gaps)
{
    struct stream *s = make_stream(3);
    struct fr_task_samples samples = view(s);
    struct fr_task_result without = measure(&options, &samples);
    assert_true(without.served.weight == 0);
    double area = 0, positives = 0, negatives = 0, loss = 0;
    for (int i = 0; i < N; i++)
        s->served[i] = i % 3 == 0 ? NAN : s->served[i];
    s->served[1] = 1.5f; /* not a probability */
    for (int i = 0; i < N; i++) {
        if (!(s->served[i] <= 1))
            continue;
        *(s->labels[i] > 0 ? &positives : &negatives) += 1;
        loss -= log(s->labels[i] > 0 ? (double)s->served[i] : 1 - (double)s->served[i]);
        for (int j = 0; s->labels[i] > 0 && j < N; j++)
            if (s->labels[j] == 0 && s->served[j] <= s->served[i])
                area += s->served[j] < s->served[i] ? 1 : 0.5;
    }
    samples.served = s->served;
    struct fr_task_result result = measure(&options, &samples);
    assert_true(result.served.weight == positives + negatives);
    assert_true(fabs(result.served.auc - area / positives / negatives) < 1e-3);
    assert_true(fabs(result.served.logloss - loss / (positives + negatives)) < 1e-5);
    assert_true(result.lifetime.auc == without.lifetime.auc);
    free(s);
}

FR_CASE(groups_of_a_shared_column_are_those_of_the_expanded_one)
{
    struct stream *s = make_stream(4);
    for (uint32_t i = 0; i < N; i++)
        s->keys[i] = i / 10 % 40; /* the first key of the group's entry; ten samples a group */
    struct fr_task_samples samples = view(s);
    struct fr_task_result expanded = measure(&options, &samples);
    uint64_t keys[N];
    for (uint32_t g = 0; g < N / 10; g++) { /* two keys an entry: the first counts */
        s->begin[g] = 2 * g;
        keys[2 * g] = g % 40;
        keys[2 * g + 1] = 12345;
    }
    s->begin[N / 10] = N / 5;
    for (uint32_t i = 0; i < N; i++)
        s->entry_of[i] = i / 10;
    samples.entry_of = s->entry_of;
    samples.group_keys = keys;
    struct fr_task_result shared = measure(&options, &samples);
    const struct fr_gauc_result *a = &expanded.gauc, *b = &shared.gauc;
    assert_true(a->groups > 30);
    assert_true(a->auc == b->auc && a->groups == b->groups && a->weight == b->weight && a->error_max == b->error_max);
    free(s);
}

FR_CASE(a_regression_has_neither_auc_nor_groups)
{
    struct stream *s = make_stream(5);
    struct fr_task_samples samples = view(s);
    /* served predictions of a regression are values, not probabilities */
    samples.served = s->scores;
    struct fr_task_result result = measure(&regression, &samples);
    assert_true(!result.has_gauc && isnan(result.lifetime.auc) && isnan(result.lifetime.logloss));
    double squares = 0;
    for (int i = 0; i < N; i++)
        squares += ((double)s->scores[i] - (double)s->labels[i]) * ((double)s->scores[i] - (double)s->labels[i]);
    assert_true(fabs(result.lifetime.mse - squares / N) < 1e-9 && fabs(result.served.mse - squares / N) < 1e-9);
    free(s);
}

FR_CASE(the_sections_keep_every_task)
{
    struct stream *s = make_stream(6);
    struct fr_task_samples samples = view(s);
    samples.served = s->served;
    struct fr_task_metrics *click = fr_task_metrics_new(&options), *price = fr_task_metrics_new(&regression);
    fr_task_metrics_add(click, &samples);
    fr_task_metrics_add(price, &samples);
    struct fr_buffer section = {0}, images[2] = {{0}, {0}};
    struct fr_metrics_section listed = {0}, tasks;
    fr_metrics_section_add(&listed, "click", click);
    fr_metrics_section_add(&listed, "price", price);
    fr_metrics_section_encode(&listed, &section);
    fr_task_metrics_encode(click, &images[0]);
    fr_task_metrics_encode(price, &images[1]);

    struct fr_task_result was, read;
    assert_int_equal(fr_metrics_section_parse(section.data, section.size, &tasks), FR_OK);
    assert_int_equal(tasks.n_tasks, 2);
    const struct fr_metrics_listed *first = fr_metrics_section_find(&tasks, "click");
    assert_ptr_equal(first, &tasks.tasks[0]);
    assert_null(fr_metrics_section_find(&tasks, "clic"));
    assert_int_equal(first->as_of_ms, samples.watermark_ms);
    assert_int_equal(fr_task_metrics_read(images[0].data, images[0].size, first->as_of_ms, &read), FR_OK);
    fr_task_metrics_result(click, &was);
    assert_true(read.lifetime.auc == was.lifetime.auc && read.decayed[0].auc == was.decayed[0].auc);
    assert_true(read.decayed[0].weight == was.decayed[0].weight); /* as of the same time */
    assert_true(read.served.auc == was.served.auc && read.gauc.auc == was.gauc.auc && read.n_half_lives == 2);
    assert_int_equal(fr_task_metrics_read(images[1].data, images[1].size, tasks.tasks[1].as_of_ms, &read), FR_OK);
    assert_true(read.regression && read.lifetime.mse > 0 && !read.has_gauc);

    struct fr_task_metrics *restored = fr_task_metrics_new(&options);
    assert_int_equal(fr_task_metrics_parse(restored, images[0].data, images[0].size, samples.watermark_ms), FR_OK);
    struct fr_buffer again = {0}, image = {0};
    listed.n_tasks = 0;
    fr_metrics_section_add(&listed, "click", restored);
    listed.n_tasks = 2;
    fr_metrics_section_encode(&listed, &again);
    assert_int_equal(again.size, section.size);
    assert_memory_equal(again.data, section.data, again.size);
    fr_task_metrics_encode(restored, &image);
    assert_int_equal(image.size, images[0].size);
    assert_memory_equal(image.data, images[0].data, image.size);

    for (size_t cut = 0; cut < section.size; cut++)
        assert_int_equal(fr_metrics_section_parse(section.data, cut, &tasks), FR_E_CORRUPT);
    section.data[0]++;
    assert_int_equal(fr_metrics_section_parse(section.data, section.size, &tasks), FR_E_MISMATCH);
    fr_buffer_release(&section);
    fr_buffer_release(&images[0]);
    fr_buffer_release(&images[1]);
    fr_buffer_release(&again);
    fr_buffer_release(&image);
    fr_task_metrics_free(click);
    fr_task_metrics_free(price);
    fr_task_metrics_free(restored);
    free(s);
}

/* An image is written only if `changes` increased, so as long as it has not, the image must stay
 * the same. */
FR_CASE(the_image_changes_only_with_its_count)
{
    struct stream *s = make_stream(8);
    struct fr_task_samples samples = view(s);
    struct fr_task_metrics *task = fr_task_metrics_new(&options);
    struct fr_buffer image = {0}, now = {0};
    uint64_t changes = UINT64_MAX, carried = 0;
    samples.count = 4;
    for (int batch = 0; batch < 400; batch++) {
        samples.watermark_ms +=
            /* in half of the batches nothing counts; the reference time moves nevertheless */
            11000;
        memset(s->use, batch % 2 ? 0 : 2, 4);
        fr_task_metrics_add(task, &samples);
        fr_buffer_clear(&now);
        fr_task_metrics_encode(task, &now);
        if (fr_task_metrics_changes(task) != changes) {
            changes = fr_task_metrics_changes(task);
            carried++;
            fr_buffer_clear(&image);
            fr_buffer_append(&image, now.data, now.size);
        }
        assert_int_equal(now.size, image.size);
        assert_memory_equal(now.data, image.data, now.size);
    }
    assert_true(carried >= 200 && carried < 240);
    fr_buffer_release(&image);
    fr_buffer_release(&now);
    fr_task_metrics_free(task);
    free(s);
}

FR_CASE(another_grouping_starts_empty_and_the_rest_stays)
{
    struct stream *s = make_stream(7);
    struct fr_task_samples samples = view(s);
    struct fr_task_metrics *task = fr_task_metrics_new(&options);
    fr_task_metrics_add(task, &samples);
    struct fr_buffer image = {0};
    fr_task_metrics_encode(task, &image);
    struct fr_task_metrics_options changed = options;
    changed.gauc_salt++;
    struct fr_task_metrics *other = fr_task_metrics_new(&changed);
    assert_int_equal(fr_task_metrics_parse(other, image.data, image.size, samples.watermark_ms), FR_E_MISMATCH);
    struct fr_task_result result;
    fr_task_metrics_result(other, &result);
    assert_true(result.lifetime.weight == N && result.decayed[0].weight > 0 && result.gauc.groups == 0);
    fr_buffer_release(&image);
    fr_task_metrics_free(task);
    fr_task_metrics_free(other);
    free(s);
}

FR_CASE(the_document_has_null_where_nothing_is_defined)
{
    static const char *const names[] = {"1m", "1h"};
    struct fr_task_metrics_options plain = {.n_half_lives = 1, .half_life_ms = {60000}};
    struct fr_task_metrics *task = fr_task_metrics_new(&plain);
    struct fr_task_result result;
    struct fr_buffer text = {0};
    fr_task_metrics_result(task, &result);
    fr_task_result_json(&(struct fr_json){.out = &text}, NULL, &result, names);
    fr_put_u8(&text, 0);
    assert_string_equal(
        (const char *)text.data,
        "{\"decayed\":{\"1m\":{\"auc\":null,\"logloss\":null,\"calibration\":null,\"positive_rate\":null,"
        "\"prediction_mean\":null,\"outside\":0,\"weight\":0}},\"lifetime\":{\"auc\":null,\"logloss\":null,"
        "\"calibration\":null,\"positive_rate\":null,\"prediction_mean\":null,\"outside\":0,\"weight\":0},"
        "\"curve\":{\"1m\":[]},\"gauc\":null,\"served\":null}");
    fr_buffer_clear(&text);
    result.curves[0] = (struct fr_auc_curve){1, {{0.25, 0.5, 0.125, 0.875, 4}}};
    fr_task_result_json(&(struct fr_json){.out = &text}, NULL, &result, names);
    fr_put_u8(&text, 0);
    assert_non_null(strstr((const char *)text.data,
                           "\"curve\":{\"1m\":[{\"predicted\":0.25,\"observed\":0.5,\"low\":0.125,"
                           "\"high\":0.875,\"weight\":4}]},\"gauc\""));
    fr_buffer_clear(&text);
    struct fr_task_metrics *grouped = fr_task_metrics_new(&options);
    fr_task_metrics_result(grouped, &result);
    fr_task_result_json(&(struct fr_json){.out = &text}, NULL, &result, names);
    fr_put_u8(&text, 0);
    assert_non_null(strstr((const char *)text.data,
                           "\"gauc\":{\"auc\":null,\"error_max\":0,\"groups\":0,\"weight\":0,\"decayed\":{\"1m\":{"
                           "\"auc\":null,\"error_max\":0,\"groups\":0,\"weight\":0},"));
    fr_buffer_release(&text);
    fr_task_metrics_free(task);
    fr_task_metrics_free(grouped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_samples_for_metrics_with_a_label_and_a_weight_count),
        cmocka_unit_test(the_keep_rate_gives_back_the_calibration_of_the_whole_stream),
        cmocka_unit_test(served_scores_have_their_own_numbers_and_gaps),
        cmocka_unit_test(groups_of_a_shared_column_are_those_of_the_expanded_one),
        cmocka_unit_test(a_regression_has_neither_auc_nor_groups),
        cmocka_unit_test(the_sections_keep_every_task),
        cmocka_unit_test(the_image_changes_only_with_its_count),
        cmocka_unit_test(another_grouping_starts_empty_and_the_rest_stays),
        cmocka_unit_test(the_document_has_null_where_nothing_is_defined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
