/* Where each optimizer may be used, and which numbers it may have. The loader alone checks this,
 * and all code that computes relies on it (values that stay finite: trainer/ops/README.md). */
#include "conf_fixture.h"

/* Loads a configuration with the optimizer at the place; `problem` NULL: it must be accepted. */
static void expect(const char *place, const char *optimizer, const char *problem)
{
    char set[160];
    const char *sets[] = {set};
    snprintf(set, sizeof(set), "%s=%s", place, optimizer);
    if (!problem) {
        struct fr_conf *conf = load_with(base_text, sets, 1);
        bool layers = strncmp(place, "network", 7) == 0;
        /* The option has its row. */
        assert_true((layers ? conf->dense_optimizer : conf->tables[0].parts[0].optimizer).lr > 0.0f);
        fr_conf_free(conf);
        return;
    }
    char *problems = problems_of(base_text, sets, 1);
    assert_contains(problems, problem);
    free(problems);
}

FR_CASE(every_optimizer_stands_where_it_may)
{
#define PLACES(kind, name, number, where, ...) {name, #where[0] != 'L', #where[0] != 'R'},
    static const struct {
        const char *name;
        bool rows, layers;
    } all[] = {FR_OPTIMIZERS(PLACES)};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        expect("tables.user.optimizer", all[i].name, all[i].rows ? NULL : "rows of tables have no");
        expect("network.optimizer", all[i].name, all[i].layers ? NULL : "layers have no");
    }
}

FR_CASE(numbers_of_an_optimizer_have_bounds)
{
    static const char *const refused[][2] = {
        {"{sgd: {lr: 0}}", "lr: `0` is out of range"},
        {"{adam: {eps: 0}}", "eps: `0` is out of range"},
        {"{adam: {beta2: 1}}", "beta2: `1` is out of range"},
        {"{sgd: {l1: .nan}}", "l1: `.nan`"},
        {"{sgd: {l2: -1}}", "l2: `-1` is out of range"},
        {"{sgd: {clip_norm: -1}}", "clip_norm: `-1` is out of range"},
        {"{sgd: {decay_rate: 0}}", "decay_rate: `0` is out of range"},
        {"{ftrl: {warmup_samples: 100}}", "expected no warmup_samples"},
        {"{ftrl: {decay_samples: 100}}", "expected no warmup_samples"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        expect("tables.user.optimizer", refused[i][0], refused[i][1]);
        expect("network.optimizer", refused[i][0], refused[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_stands_where_it_may),
        cmocka_unit_test(numbers_of_an_optimizer_have_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
