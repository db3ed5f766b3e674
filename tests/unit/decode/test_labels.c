/* Derived labels, masks, ranges and roles: a batch holds what tasks look at. */
#include "fixture.h"

#include <math.h>

enum { RATING, CLICK, LIKED, LIKED_CLICK, AGAIN };

/* rating, click carried; liked = rating >= 4; liked_click = liked given click; again = liked, as it
 * is. */
FR_FIXTURE(setup)
{
    static struct fr_conf_label labels[5];
    static struct fr_conf_task tasks[2];
    fixture_setup(state);
    struct fixture *f = *state;
    labels[RATING] = (struct fr_conf_label){.name = "rating", .of = FR_NO_INDEX, .given = FR_NO_INDEX};
    labels[CLICK] = (struct fr_conf_label){.name = "click", .of = FR_NO_INDEX, .given = FR_NO_INDEX};
    labels[LIKED] =
        (struct fr_conf_label){.name = "liked", .of = RATING, .given = FR_NO_INDEX, .has_min = true, .min = 4};
    labels[LIKED_CLICK] = (struct fr_conf_label){.name = "liked_click", .of = LIKED, .given = CLICK};
    labels[AGAIN] = (struct fr_conf_label){.name = "again", .of = LIKED_CLICK, .given = FR_NO_INDEX};
    tasks[0] = (struct fr_conf_task){.name = "liked", .label = LIKED};
    tasks[1] = (struct fr_conf_task){.name = "rating", .label = RATING, .loss = FR_LOSS_MSE};
    f->schema.conf.labels = labels;
    f->schema.conf.n_labels = 5;
    f->schema.conf.n_sample_labels = 2;
    f->schema.conf.tasks = tasks;
    f->schema.conf.n_tasks = 1;
    fixture_renew(f);
    return 0;
}

static struct fr_conf_label *label(struct fixture *f, int l)
{
    return &f->schema.conf.labels[l];
}

FR_CASE(a_label_with_min_is_1_at_and_above_it)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{},\"y\":[4]},{\"f\":{},\"y\":[3.999]},{\"f\":{},\"y\":[5]},{\"f\":{},\"y\":[-1]}]");
    const float expected[] = {1, 0, 1, 0};
    for (uint32_t i = 0; i < 4; i++)
        assert_true(label_at(f, LIKED, i) == expected[i]);
    assert_true(label_at(f, RATING, 2) == 5.0f);
}

FR_CASE(a_masked_source_masks_what_is_derived_from_it)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{},\"y\":{\"click\":1}},{\"f\":{},\"y\":{\"rating\":5,\"click\":1}}]");
    assert_true(isnan(label_at(f, LIKED, 0)) && isnan(label_at(f, LIKED_CLICK, 0)) && isnan(label_at(f, AGAIN, 0)));
    assert_int_equal(f->batch->role[0], FR_ROLE_MASKED);
    assert_int_equal(f->batch->role[1], FR_ROLE_TRAIN);
}

FR_CASE(a_label_given_another_is_masked_unless_that_is_1)
{
    struct fixture *f = *state;
    accept_json(f,
                "[{\"f\":{},\"y\":[5,1]},{\"f\":{},\"y\":[5,0]},{\"f\":{},\"y\":[5,null]},{\"f\":{},\"y\":[5,0.5]}]");
    assert_true(label_at(f, LIKED_CLICK, 0) == 1.0f);
    for (uint32_t i = 1; i < 4; i++)
        assert_true(isnan(label_at(f, LIKED_CLICK, i)));
    assert_true(label_at(f, LIKED, 1) == 1.0f);
}

FR_CASE(masks_do_not_chain)
{
    struct fixture *f = *state;
    label(f, CLICK)->given = RATING;
    label(f, AGAIN)->given = CLICK; /* looks at click before its mask */
    fixture_renew(f);
    accept_json(f, "{\"f\":{},\"y\":[0,1]}");
    label(f, CLICK)->given = FR_NO_INDEX;
    label(f, AGAIN)->given = FR_NO_INDEX;
    assert_true(isnan(label_at(f, CLICK, 0)));
    assert_true(label_at(f, AGAIN, 0) == 0.0f);
}

FR_CASE(given_on_a_carried_label_masks_it)
{
    struct fixture *f = *state;
    label(f, RATING)->given = CLICK;
    f->schema.conf.n_tasks = 2;
    fixture_renew(f);
    accept_json(f, "[{\"f\":{},\"y\":[3,1]},{\"f\":{},\"y\":[3,0]}]");
    label(f, RATING)->given = FR_NO_INDEX;
    assert_true(label_at(f, RATING, 0) == 3.0f && isnan(label_at(f, RATING, 1)));
}

FR_CASE(given_looks_at_a_label_after_its_derivation)
{
    struct fixture *f = *state;
    label(f, CLICK)->given = LIKED;
    fixture_renew(f);
    accept_json(f, "[{\"f\":{},\"y\":[5,1]},{\"f\":{},\"y\":[2,1]}]");
    label(f, CLICK)->given = FR_NO_INDEX;
    assert_true(label_at(f, CLICK, 0) == 1.0f && isnan(label_at(f, CLICK, 1)));
}

FR_CASE(a_source_may_be_derived_later_in_the_list)
{
    struct fixture *f = *state;
    label(f, LIKED)->of = AGAIN;
    label(f, AGAIN)->of = RATING;
    fixture_renew(f);
    accept_json(f, "{\"f\":{},\"y\":[5,1],\"w\":{\"rating\":3}}");
    label(f, LIKED)->of = RATING;
    label(f, AGAIN)->of = LIKED_CLICK;
    assert_true(label_at(f, AGAIN, 0) == 5.0f && label_at(f, LIKED, 0) == 1.0f);
    assert_true(weight_at(f, LIKED, 0) == 3.0f);
}

FR_CASE(a_derived_label_has_the_weight_of_its_source)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{},\"y\":[5,1],\"w\":{\"rating\":2.5,\"click\":7}}");
    assert_true(weight_at(f, RATING, 0) == 2.5f && weight_at(f, CLICK, 0) == 7.0f);
    for (int l = LIKED; l <= AGAIN; l++)
        assert_true(weight_at(f, l, 0) == 2.5f);
}

FR_CASE(samples_do_not_carry_derived_labels)
{
    struct fixture *f = *state;
    refuse_json(f, "{\"f\":{},\"y\":{\"liked\":1}}", "$.y: \"liked\" is derived");
    refuse_json(f, "{\"f\":{},\"y\":{},\"w\":{\"liked\":1}}", "$.w: \"liked\" is derived");
    refuse_json(f, "{\"f\":{},\"y\":[1,1,1]}", "$.y: more than the 2 labels of the config");
}

FR_CASE(the_source_of_a_label_with_min_is_any_number)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{},\"y\":[-17.5]}");
    label(f, LIKED)->has_min = false;
    fixture_renew(f);
    refuse_json(f, "{\"f\":{},\"y\":[-17.5]}", "$.y[0]: label -17.5 is not in [0,1]");
    label(f, LIKED)->has_min = true;
}

FR_CASE(labels_of_log_losses_lie_in_0_to_1_however_they_are_used)
{
    struct fixture *f = *state;
    struct fr_conf_task *task = f->schema.conf.tasks;
    static const struct {
        enum fr_task_loss loss;
        uint32_t n_prob;
        bool unit;
    } cases[] = {{FR_LOSS_LOGLOSS, 0, true}, {FR_LOSS_FOCAL, 0, true},     {FR_LOSS_MSE, 0, false},
                 {FR_LOSS_NONE, 0, false},   {FR_LOSS_PAIRWISE, 0, false}, {FR_LOSS_NONE, 2, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        task[0] =
            (struct fr_conf_task){.name = "task", .label = CLICK, .loss = cases[i].loss, .n_prob = cases[i].n_prob};
        fixture_renew(f);
        if (cases[i].unit)
            refuse_json(f, "{\"f\":{},\"y\":[null,2]}", "$.y[1]: label 2 is not in [0,1]");
        else
            accept_json(f, "{\"f\":{},\"y\":[null,2]}");
    }
}

FR_CASE(one_log_loss_is_enough_for_the_range)
{
    struct fixture *f = *state;
    f->schema.conf.n_tasks = 2;
    f->schema.conf.tasks[0] = (struct fr_conf_task){.name = "log", .label = RATING};
    fixture_renew(f);
    refuse_json(f, "{\"f\":{},\"y\":[3]}", "$.y[0]: label 3 is not in [0,1]");
}

FR_FIXTURE(teardown)
{
    return fixture_teardown(state);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_label_with_min_is_1_at_and_above_it),
        CASE(a_masked_source_masks_what_is_derived_from_it),
        CASE(a_label_given_another_is_masked_unless_that_is_1),
        CASE(masks_do_not_chain),
        CASE(given_on_a_carried_label_masks_it),
        CASE(given_looks_at_a_label_after_its_derivation),
        CASE(a_source_may_be_derived_later_in_the_list),
        CASE(a_derived_label_has_the_weight_of_its_source),
        CASE(samples_do_not_carry_derived_labels),
        CASE(the_source_of_a_label_with_min_is_any_number),
        CASE(labels_of_log_losses_lie_in_0_to_1_however_they_are_used),
        CASE(one_log_loss_is_enough_for_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
