/* Broken configurations. Their messages (place, path, problem, what was expected) are recorded word
 * for word in tests/golden. */
#include "conf_fixture.h"

static const char whole[] = EVERY_KIND_OF_SLOT "    - {name: a, gru: seen, units: 4}\n"
                                               "    - {name: zero, dense: price, units: 1}\n"
                                               "tasks: [{name: click, label: click, logit: zero}]\n";

static const struct message {
    const char *name, *from, *to;
} messages[] = {
    {"a_wide_logit", "zero, dense: price, units: 1", "zero, dense: price, units: 2"},
    {"a_sequence_as_a_logit", "logit: zero", "logit: a"},
    {"a_task_with_logit_and_prob", "logit: zero}", "logit: zero}, {name: b, label: click, logit: zero, prob: [click]}"},
    {"a_task_without_logit", "logit: zero}", "weight: 1}"},
    {"a_product_of_a_later_task", "label: click, logit: zero}",
     "label: click, prob: [b]}, {name: b, label: click, logit: zero}"},
    {"a_product_of_products", "logit: zero}",
     "logit: zero}, {name: b, label: click, prob: [click]}, {name: c, label: click, prob: [b]}"},
    {"a_product_of_a_value", "logit: zero}", "logit: zero, loss: mse}, {name: b, label: click, prob: [click]}"},
    {"a_product_of_a_task_with_itself", "logit: zero}", "logit: zero}, {name: b, label: click, prob: [click, click]}"},
    {"a_product_with_a_focal_loss", "logit: zero}",
     "logit: zero}, {name: b, label: click, prob: [click], loss: focal}"},
    {"an_unknown_loss", "logit: zero}", "logit: zero, loss: hinge}"},
    {"a_loss_with_options_it_has_not", "logit: zero}", "logit: zero, loss: {mse: {gamma: 1}}}"},
    {"a_focal_loss_with_an_alpha_above_one", "logit: zero}", "logit: zero, loss: {focal: {alpha: 1.5}}}"},
    {"a_derived_label_of_an_unknown_one", "labels: {click: {}}", "labels: {click: {}, b: {of: clik}}"},
    {"labels_in_a_circle", "labels: {click: {}}", "labels: {click: {}, b: {of: click, given: c}, c: {of: b}}"},
    {"a_label_of_itself", "labels: {click: {}}", "labels: {click: {given: click}}"},
    {"a_threshold_of_nothing", "labels: {click: {}}", "labels: {click: {min: 3}}"},
    {"a_threshold_that_is_no_number", "labels: {click: {}}", "labels: {click: {}, b: {of: click, min: high}}"},
    {"boundaries_that_descend", "bucketize: [18, 30.5, 65]", "bucketize: [18, 65, 30.5]"},
    {"no_boundaries", "bucketize: [18, 30.5, 65]", "bucketize: []"},
    {"bucketize_without_boundaries", "{bucketize: [18, 30.5, 65]}", "bucketize"},
    {"an_unknown_transform", "{bucketize: [18, 30.5, 65]}", "standardise"},
    {"clip_without_bounds", "{bucketize: [18, 30.5, 65]}", "clip"},
    {"clip_to_one_bound", "{bucketize: [18, 30.5, 65]}", "{clip: [1]}"},
    {"clip_with_its_bounds_exchanged", "{bucketize: [18, 30.5, 65]}", "{clip: [5, -1]}"},
    {"standardize_before_log1p", "{bucketize: [18, 30.5, 65]}", "[standardize, log1p]"},
    {"bucketize_before_standardize", "{bucketize: [18, 30.5, 65]}", "[{bucketize: [1]}, standardize]"},
    {"a_time_among_others", "{bucketize: [18, 30.5, 65]}", "[time_of_day, standardize]"},
    {"none_among_others", "{bucketize: [18, 30.5, 65]}", "[none, log1p]"},
    {"too_many_transforms", "{bucketize: [18, 30.5, 65]}",
     "[log1p, log1p, log1p, log1p, log1p, log1p, log1p, log1p, log1p]"},
    {"an_indicator_of_a_sparse_slot", "user_id: {table: user}", "user_id: {table: user, indicator: true}"},
    {"buckets_of_two_numbers", "user_id: {table: user}",
     "user_id: {table: user}\n  b: {table: user, buckets: {of: price, boundaries: [1]}}"},
    {"buckets_of_a_sparse_slot", "user_id: {table: user}",
     "user_id: {table: user}\n  b: {table: user, buckets: {of: item_id, boundaries: [1]}}"},
    {"buckets_of_a_time", "user_id: {table: user}",
     "user_id: {table: user}\n  t: {kind: dense, transform: time_of_day}\n  b: {table: user, buckets: {of: t, "
     "boundaries: [1]}}"},
    {"buckets_of_an_unknown_slot", "user_id: {table: user}",
     "user_id: {table: user}\n  one: {kind: dense}\n  b: {table: user, buckets: {of: ones, boundaries: [1]}}"},
    {"buckets_without_boundaries", "user_id: {table: user}",
     "user_id: {table: user}\n  b: {table: user, buckets: {of: price}}"},
    {"buckets_with_a_number_of_ids", "user_id: {table: user}",
     "user_id: {table: user}\n  one: {kind: dense}\n  b: {table: user, buckets: {of: one, boundaries: [1]}, max_ids: "
     "3}"},
    {"a_cross_of_a_sequence", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, history]}"},
    {"a_cross_of_a_cross", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, item_id]}\n  d: {table: user, cross: [user_id, c]}"},
    {"a_cross_of_one", "user_id: {table: user}", "user_id: {table: user}\n  c: {table: user, cross: [user_id]}"},
    {"a_cross_of_a_slot_with_itself", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, user_id]}"},
    {"a_cross_of_an_unknown_slot", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, item]}"},
    {"a_cross_with_an_index", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, item_id], index: 3}"},
    {"buckets_that_are_a_cross_too", "user_id: {table: user}",
     "user_id: {table: user}\n  one: {kind: dense}\n  c: {table: user, buckets: {of: one, boundaries: [1]}, cross: "
     "[user_id, item_id]}"},
    {"a_transform_of_a_sparse_slot", "user_id: {table: user}", "user_id: {table: user, transform: log1p}"},
    {"an_mse_of_two_widths", "tasks:", "losses: [{name: l, mse: [user_id, price]}]\ntasks:"},
    {"an_mse_of_a_sequence", "tasks:", "losses: [{name: l, mse: [user_id, seen]}]\ntasks:"},
    {"an_mse_of_three", "tasks:", "losses: [{name: l, mse: [user_id, user_id, user_id]}]\ntasks:"},
    {"a_next_step_of_a_vector",
     "tasks:", "losses: [{name: l, next_step: {states: a, positives: user_id, negatives: seen}}]\ntasks:"},
    {"a_next_step_of_two_widths",
     "tasks:", "losses: [{name: l, next_step: {states: a, positives: seen, negatives: seen}}]\ntasks:"},
    {"a_next_step_without_negatives",
     "tasks:", "losses: [{name: l, next_step: {states: a, positives: seen, weight: 2}}]\ntasks:"},
    {"a_loss_without_a_kind", "tasks:", "losses: [{name: l, weight: 2}]\ntasks:"},
    {"a_loss_of_an_unknown_layer", "tasks:", "losses: [{name: l, mse: [user_id, hh]}]\ntasks:"},
    {"two_losses_of_one_name",
     "tasks:", "losses: [{name: l, mse: [price, price]}, {name: l, mse: [price, price]}]\ntasks:"},
    {"adamw_for_rows", "user: {dim: 8}", "user: {dim: 8, optimizer: adamw}"},
    {"an_option_of_another_optimizer", "user: {dim: 8}", "user: {dim: 8, optimizer: {momentum: {rho: 0.5}}}"},
    {"a_decay_that_grows", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {decay_rate: 1.5}}}"},
    {"warm_up_of_ftrl", "user: {dim: 8}", "user: {dim: 8, optimizer: {group_ftrl: {warmup_samples: 1000}}}"},
    {"a_group_penalty_of_layers", "  layers:", "  optimizer: group_ftrl\n  layers:"},
    {"the_default_of_layers_for_rows", "user: {dim: 8}", "user: {dim: 8, init: default}"},
    {"xavier_with_a_number", "user: {dim: 8}", "user: {dim: 8, init: {xavier_normal: 1}}"},
    {"a_start_in_seconds", "topic: samples}", "topic: samples, start: 1767323045}"},
    {"a_start_that_is_no_day", "topic: samples}", "topic: samples, start: 2026-02-29T00:00:00Z}"},
    {"a_start_without_a_zone", "topic: samples}", "topic: samples, start: \"2026-02-28T00:00:00\"}"},
    {"an_empty_file_name", "topic: samples}", "topic: samples, files: [\"\"]}"},
    {"an_unknown_sampling", "topic: samples}", "topic: samples, sampling: metric}"},
    {"grouped_metrics_by_a_dense_slot", "tasks:", "metrics: {gauc_by: price}\ntasks:"},
    {"grouped_metrics_by_an_unknown_slot", "tasks:", "metrics: {gauc_by: user}\ntasks:"},
};

FR_CASE(is_refused_in_these_words)
{
    const struct message *message = *state;
    const char *at = strstr(whole, message->from);
    assert_non_null(at);
    size_t room = sizeof(whole) + strlen(message->to);
    char *text = calloc(1, room);
    assert_non_null(text);
    snprintf(text, room, "%.*s%s%s", (int)(at - whole), whole, message->to, at + strlen(message->from));
    char *problems = problems_of(text, NULL, 0);
    assert_said("messages", message->name, problems);
    free(problems);
    free(text);
}

enum { N_MESSAGES = sizeof(messages) / sizeof(messages[0]) };

FR_CASE(the_text_without_a_mistake_loads)
{
    fr_conf_free(load(whole));
    assert_said_of("messages", N_MESSAGES);
}

int main(void)
{
    static struct CMUnitTest tests[N_MESSAGES + 1];
    static char names[N_MESSAGES][128];
    for (size_t i = 0; i < N_MESSAGES; i++) {
        snprintf(names[i], sizeof(names[i]), "%s_is_refused_in_these_words", messages[i].name);
        tests[i] =
            (struct CMUnitTest){names[i], is_refused_in_these_words, NULL, NULL, (void *)(uintptr_t)&messages[i]};
    }
    tests[N_MESSAGES] = (struct CMUnitTest)cmocka_unit_test(the_text_without_a_mistake_loads);
    return _cmocka_run_group_tests("messages", tests, N_MESSAGES + 1, NULL, NULL);
}
