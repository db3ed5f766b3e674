/* Broken configurations and, word for word, what is said about them: place, path, problem, what was
 * expected. Layers' own are in test_layers.c; test_refused.c asks for the essential words only. */
#include "conf_fixture.h"

static const char whole[] = EVERY_KIND_OF_SLOT "    - {name: a, gru: seen, units: 4}\n"
                                               "    - {name: zero, dense: price, units: 1}\n"
                                               "tasks: [{name: click, label: click, logit: zero}]\n";

static const struct message {
    const char *name, *from, *to, *text;
} messages[] = {
    {"a_wide_logit", "zero, dense: price, units: 1", "zero, dense: price, units: 2",
     "test.yaml:20:7: tasks: the logit of task `click` is layer `zero` of shape [2]; expected [1]\n"},
    {"a_sequence_as_a_logit", "logit: zero", "logit: a",
     "test.yaml:19:7: tasks: the logit of task `click` is layer `a` of shape [T, 4]; expected [1]\n"},
    {"a_task_with_logit_and_prob", "logit: zero}", "logit: zero}, {name: b, label: click, logit: zero, prob: [click]}",
     "test.yaml:21:51: tasks.1: both logit and prob; expected logit or prob\n"},
    {"a_task_without_logit", "logit: zero}", "weight: 1}",
     "test.yaml:21:9: tasks.0: neither logit nor prob; expected logit or prob\n"},
    {"a_product_of_a_later_task", "label: click, logit: zero}",
     "label: click, prob: [b]}, {name: b, label: click, logit: zero}",
     "test.yaml:21:44: tasks.0.prob.0: unknown earlier task `b`\n"},
    {"a_product_of_products", "logit: zero}",
     "logit: zero}, {name: b, label: click, prob: [click]}, {name: c, label: click, prob: [b]}",
     "test.yaml:21:122: tasks.2.prob.0: task `b` is a product itself; expected one with a logit and its probability\n"},
    {"a_product_of_a_value", "logit: zero}", "logit: zero, loss: mse}, {name: b, label: click, prob: [click]}",
     "test.yaml:21:93: tasks.1.prob.0: task `click` predicts a value (mse); expected one with a logit and its "
     "probability\n"},
    {"a_product_of_a_task_with_itself", "logit: zero}", "logit: zero}, {name: b, label: click, prob: [click, click]}",
     "test.yaml:21:89: tasks.1.prob.1: `click` is there twice; expected every task once\n"},
    {"a_product_with_a_focal_loss", "logit: zero}", "logit: zero}, {name: b, label: click, prob: [click], loss: focal}",
     "test.yaml:21:51: tasks.1: a product of probabilities with another loss; expected logloss or none\n"},
    {"an_unknown_loss", "logit: zero}", "logit: zero, loss: hinge}",
     "test.yaml:21:56: tasks.0.loss: unknown value `hinge`; expected logloss, none, mse, focal or pairwise\n"},
    {"a_loss_with_options_it_has_not", "logit: zero}", "logit: zero, loss: {mse: {gamma: 1}}}",
     "test.yaml:21:56: tasks.0.loss: a map; expected `logloss`, `none`, `mse`, `pairwise`, `focal` or `{focal: {gamma, "
     "alpha}}`\n"},
    {"a_focal_loss_with_an_alpha_above_one", "logit: zero}", "logit: zero, loss: {focal: {alpha: 1.5}}}",
     "test.yaml:21:72: tasks.0.loss.focal.alpha: `1.5` is out of range; expected 0 to 1\n"},
    {"a_derived_label_of_an_unknown_one", "labels: {click: {}}", "labels: {click: {}, b: {of: clik}}",
     "test.yaml:16:29: labels.b.of: unknown label `clik`; expected click or b; did you mean `click`?\n"},
    {"labels_in_a_circle", "labels: {click: {}}", "labels: {click: {}, b: {of: click, given: c}, c: {of: b}}",
     "test.yaml:16:24: labels.b: the label needs itself; expected no cycle\n"},
    {"a_label_of_itself", "labels: {click: {}}", "labels: {click: {given: click}}",
     "test.yaml:16:17: labels.click: the label needs itself; expected no cycle\n"},
    {"a_threshold_of_nothing", "labels: {click: {}}", "labels: {click: {min: 3}}",
     "test.yaml:16:17: labels.click: min needs another label to compare; expected of: LABEL\n"},
    {"a_threshold_that_is_no_number", "labels: {click: {}}", "labels: {click: {}, b: {of: click, min: high}}",
     "test.yaml:16:41: labels.b.min: `high` is not a number; expected a number such as 0.05 or 1e-8\n"},
    {"boundaries_that_descend", "bucketize: [18, 30.5, 65]", "bucketize: [18, 65, 30.5]",
     "test.yaml:15:62: slots.age.transform: boundary 30.5 after 65; expected ascending ones\n"},
    {"no_boundaries", "bucketize: [18, 30.5, 65]", "bucketize: []",
     "test.yaml:15:53: slots.age.transform: 0 entries; expected 1 to 255\n"},
    {"bucketize_without_boundaries", "{bucketize: [18, 30.5, 65]}", "bucketize",
     "test.yaml:15:41: slots.age.transform: a single value; expected `none`, `log1p`, `{clip: [low, high]}`, "
     "`standardize`, `{bucketize: [b, ..]}`, `time_of_day`, `time_of_week`, or a list of them\n"},
    {"an_unknown_transform", "{bucketize: [18, 30.5, 65]}", "standardise",
     "test.yaml:15:41: slots.age.transform: unknown value `standardise`; expected none, log1p, clip, "
     "time_of_day, time_of_week, standardize or bucketize; did you mean `standardize`?\n"},
    {"clip_without_bounds", "{bucketize: [18, 30.5, 65]}", "clip",
     "test.yaml:15:41: slots.age.transform: a single value; expected `none`, `log1p`, `{clip: [low, high]}`, "
     "`standardize`, `{bucketize: [b, ..]}`, `time_of_day`, `time_of_week`, or a list of them\n"},
    {"clip_to_one_bound", "{bucketize: [18, 30.5, 65]}", "{clip: [1]}",
     "test.yaml:15:48: slots.age.transform: 1 entries; expected 2\n"},
    {"clip_with_its_bounds_exchanged", "{bucketize: [18, 30.5, 65]}", "{clip: [5, -1]}",
     "test.yaml:15:48: slots.age.transform: clip to [5, -1]; expected the smaller bound first\n"},
    {"standardize_before_log1p", "{bucketize: [18, 30.5, 65]}", "[standardize, log1p]",
     "test.yaml:15:42: slots.age.transform: `standardize` before another transform; expected it last\n"},
    {"bucketize_before_standardize", "{bucketize: [18, 30.5, 65]}", "[{bucketize: [1]}, standardize]",
     "test.yaml:15:42: slots.age.transform: `bucketize` before another transform; expected it last\n"},
    {"a_time_among_others", "{bucketize: [18, 30.5, 65]}", "[time_of_day, standardize]",
     "test.yaml:15:42: slots.age.transform: `time_of_day` with another transform; expected it alone, the other "
     "in a slot of its own\n"},
    {"none_among_others", "{bucketize: [18, 30.5, 65]}", "[none, log1p]",
     "test.yaml:15:42: slots.age.transform: `none` with another transform; expected it alone\n"},
    {"too_many_transforms", "{bucketize: [18, 30.5, 65]}",
     "[log1p, log1p, log1p, log1p, log1p, log1p, log1p, log1p, log1p]",
     "test.yaml:15:41: slots.age.transform: 9 entries; expected 1 to 8\n"},
    {"an_indicator_of_a_sparse_slot", "user_id: {table: user}", "user_id: {table: user, indicator: true}",
     "test.yaml:9:37: slots.user_id.indicator: not for a slot of this kind; expected with kind dense only\n"},
    {"buckets_of_two_numbers", "user_id: {table: user}",
     "user_id: {table: user}\n  b: {table: user, buckets: {of: price, boundaries: [1]}}",
     "test.yaml:10:34: slots.b.buckets: `price` has no buckets; expected a dense slot of one number that is no time\n"},
    {"buckets_of_a_sparse_slot", "user_id: {table: user}",
     "user_id: {table: user}\n  b: {table: user, buckets: {of: item_id, boundaries: [1]}}",
     "test.yaml:10:34: slots.b.buckets: `item_id` has no buckets; expected a dense slot of one number that is "
     "no time\n"},
    {"buckets_of_a_time", "user_id: {table: user}",
     "user_id: {table: user}\n  t: {kind: dense, transform: time_of_day}\n  b: {table: user, buckets: {of: t, "
     "boundaries: [1]}}",
     "test.yaml:11:34: slots.b.buckets: `t` has no buckets; expected a dense slot of one number that is no time\n"},
    {"buckets_of_an_unknown_slot", "user_id: {table: user}",
     "user_id: {table: user}\n  one: {kind: dense}\n  b: {table: user, buckets: {of: ones, boundaries: [1]}}",
     "test.yaml:11:34: slots.b.buckets: unknown dense slot `ones`; expected one; did you mean `one`?\n"},
    {"buckets_without_boundaries", "user_id: {table: user}",
     "user_id: {table: user}\n  b: {table: user, buckets: {of: price}}",
     "test.yaml:10:29: slots.b.buckets: a map of other keys; expected `{of: slot, boundaries: [b, ..]}`\n"},
    {"buckets_with_a_number_of_ids", "user_id: {table: user}",
     "user_id: {table: user}\n  one: {kind: dense}\n  b: {table: user, buckets: {of: one, boundaries: [1]}, max_ids: "
     "3}",
     "test.yaml:11:66: slots.b.max_ids: not for a slot that is computed; expected none\n"},
    {"a_cross_of_a_sequence", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, history]}",
     "test.yaml:10:37: slots.c.cross: `history` cannot be crossed; expected sparse slots that are no crosses "
     "themselves (name their slots here)\n"},
    {"a_cross_of_a_cross", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, item_id]}\n  d: {table: user, cross: [user_id, c]}",
     "test.yaml:11:37: slots.d.cross: `c` cannot be crossed; expected sparse slots that are no crosses "
     "themselves (name their slots here)\n"},
    {"a_cross_of_one", "user_id: {table: user}", "user_id: {table: user}\n  c: {table: user, cross: [user_id]}",
     "test.yaml:10:27: slots.c.cross: 1 entries; expected 2 to 4\n"},
    {"a_cross_of_a_slot_with_itself", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, user_id]}",
     "test.yaml:10:37: slots.c.cross: `user_id` is there twice; expected every slot once\n"},
    {"a_cross_of_an_unknown_slot", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, item]}",
     "test.yaml:10:37: slots.c.cross: unknown sparse slot `item`; expected user_id or item_id; did you mean "
     "`item_id`?\n"},
    {"a_cross_with_an_index", "user_id: {table: user}",
     "user_id: {table: user}\n  c: {table: user, cross: [user_id, item_id], index: 3}",
     "test.yaml:10:54: slots.c.index: not for a slot that is computed; expected none\n"},
    {"buckets_that_are_a_cross_too", "user_id: {table: user}",
     "user_id: {table: user}\n  one: {kind: dense}\n  c: {table: user, buckets: {of: one, boundaries: [1]}, cross: "
     "[user_id, item_id]}",
     "test.yaml:11:64: slots.c.cross: a slot of buckets already; expected buckets or cross\n"},
    {"a_transform_of_a_sparse_slot", "user_id: {table: user}", "user_id: {table: user, transform: log1p}",
     "test.yaml:9:37: slots.user_id.transform: not for a slot of this kind; expected with kind dense only\n"},
    {"an_mse_of_two_widths", "tasks:", "losses: [{name: l, mse: [user_id, price]}]\ntasks:",
     "test.yaml:21:10: losses.0: loss `l` reads `{sum: user_id.v}` [8] and `price` [2]; expected one width for mse\n"},
    {"an_mse_of_a_sequence", "tasks:", "losses: [{name: l, mse: [user_id, seen]}]\ntasks:",
     "test.yaml:21:10: losses.0: loss `l` reads the sequence `seen.v` [T, 8] where a vector is needed; pool it with " POOLINGS
     ": {mean: seen.v}\n"},
    {"an_mse_of_three", "tasks:", "losses: [{name: l, mse: [user_id, user_id, user_id]}]\ntasks:",
     "test.yaml:21:25: losses.0.mse: 3 entries; expected 2\n"},
    {"a_next_step_of_a_vector",
     "tasks:", "losses: [{name: l, next_step: {states: a, positives: user_id, negatives: seen}}]\ntasks:",
     "test.yaml:21:10: losses.0: loss `l` reads the vector `{sum: user_id.v}` [8] where a sequence [T, n] is needed; "
     "expected a slot of kind sequence, or a layer over sequences\n"},
    {"a_next_step_of_two_widths",
     "tasks:", "losses: [{name: l, next_step: {states: a, positives: seen, negatives: seen}}]\ntasks:",
     "test.yaml:21:10: losses.0: loss `l` reads `a` [T, 4] and `seen.v` [T, 8]; expected one width for next_step\n"},
    {"a_next_step_without_negatives",
     "tasks:", "losses: [{name: l, next_step: {states: a, positives: seen, weight: 2}}]\ntasks:",
     "test.yaml:21:31: losses.0.next_step: no negatives; expected {states: .., positives: .., negatives: ..}\n"},
    {"a_loss_without_a_kind", "tasks:", "losses: [{name: l, weight: 2}]\ntasks:",
     "test.yaml:21:10: losses.0: no kind; expected mse or next_step\n"},
    {"a_loss_of_an_unknown_layer", "tasks:", "losses: [{name: l, mse: [user_id, hh]}]\ntasks:",
     "test.yaml:21:35: losses.0: loss `l` reads an unknown slot or layer `hh`; expected user_id, item_id, history, "
     "skipped, seen, price, age, a or zero\n"},
    {"two_losses_of_one_name",
     "tasks:", "losses: [{name: l, mse: [price, price]}, {name: l, mse: [price, price]}]\ntasks:",
     "test.yaml:21:42: losses.1: the name `l` is taken; expected every loss once\n"},
    {"adamw_for_rows", "user: {dim: 8}", "user: {dim: 8, optimizer: adamw}",
     "test.yaml:6:29: tables.user.optimizer: rows of tables have no `adamw`; expected sgd, momentum, adagrad, "
     "adagrad_rowwise, adam, adam_rowwise, rmsprop, ftrl or group_ftrl; did you mean `adam`?\n"},
    {"an_option_of_another_optimizer", "user: {dim: 8}", "user: {dim: 8, optimizer: {momentum: {rho: 0.5}}}",
     "test.yaml:6:41: tables.user.optimizer.momentum: unknown key `rho`; expected lr, momentum, l1, l2, clip_value, "
     "clip_norm, warmup_samples, decay_samples, decay_rate, decay_floor or decay_all\n"},
    {"a_decay_that_grows", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {decay_rate: 1.5}}}",
     "test.yaml:6:48: tables.user.optimizer.sgd.decay_rate: `1.5` is out of range; expected more than 0, at most 1\n"},
    {"warm_up_of_ftrl", "user: {dim: 8}", "user: {dim: 8, optimizer: {group_ftrl: {warmup_samples: 1000}}}",
     "test.yaml:6:42: tables.user.optimizer.group_ftrl: a rate that changes would rescale the weights group_ftrl has "
     "already; expected no warmup_samples and no decay_samples\n"},
    {"a_group_penalty_of_layers", "  layers:", "  optimizer: group_ftrl\n  layers:",
     "test.yaml:18:14: network.optimizer: layers have no `group_ftrl`; expected sgd, momentum, adagrad, adam, adamw, "
     "rmsprop or ftrl\n"},
    {"the_default_of_layers_for_rows", "user: {dim: 8}", "user: {dim: 8, init: default}",
     "test.yaml:6:24: tables.user.init: rows of tables have no `default`; expected zeros, uniform, normal, "
     "truncated_normal, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal or constant\n"},
    {"xavier_with_a_number", "user: {dim: 8}", "user: {dim: 8, init: {xavier_normal: 1}}",
     "test.yaml:6:25: tables.user.init: `xavier_normal` takes no number; expected `zeros`, `{uniform: a}`, `{normal: "
     "sd}`, `{truncated_normal: sd}`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, `kaiming_normal` or "
     "`{constant: x}`\n"},
    {"a_start_in_seconds", "topic: samples}", "topic: samples, start: 1767323045}",
     "test.yaml:4:45: ingest.start: `1767323045` is in seconds, not milliseconds; expected Unix ms\n"},
    {"a_start_that_is_no_day", "topic: samples}", "topic: samples, start: 2026-02-29T00:00:00Z}",
     "test.yaml:4:45: ingest.start: `2026-02-29T00:00:00Z` is not a start; expected `earliest`, `latest`, Unix ms or "
     "`2026-01-02T03:04:05Z`\n"},
    {"a_start_without_a_zone", "topic: samples}", "topic: samples, start: \"2026-02-28T00:00:00\"}",
     "test.yaml:4:45: ingest.start: `2026-02-28T00:00:00` is not a start; expected `earliest`, `latest`, Unix ms or "
     "`2026-01-02T03:04:05Z`\n"},
    {"an_empty_file_name", "topic: samples}", "topic: samples, files: [\"\"]}",
     "test.yaml:4:46: ingest.files.0: empty; expected a file\n"},
    {"an_unknown_sampling", "topic: samples}", "topic: samples, sampling: metric}",
     "test.yaml:4:48: ingest.sampling: unknown value `metric`; expected all, metrics or none; did you mean "
     "`metrics`?\n"},
    {"grouped_metrics_by_a_dense_slot", "tasks:", "metrics: {gauc_by: price}\ntasks:",
     "test.yaml:21:20: metrics.gauc_by: unknown sparse slot `price`; expected user_id or item_id\n"},
    {"grouped_metrics_by_an_unknown_slot", "tasks:", "metrics: {gauc_by: user}\ntasks:",
     "test.yaml:21:20: metrics.gauc_by: unknown sparse slot `user`; expected user_id or item_id; did you mean "
     "`user_id`?\n"},
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
    assert_string_equal(problems, message->text);
    free(problems);
    free(text);
}

FR_CASE(the_text_without_a_mistake_loads)
{
    fr_conf_free(load(whole));
}

enum { N_MESSAGES = sizeof(messages) / sizeof(messages[0]) };

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
