/* Makes the policies of a table from its configuration. Thread: the main thread, before others
 * start. */
#include "policies.h"

static void add_rule(struct fr_table_policies *policies, struct fr_expiry_policy rule)
{
    if (rule.rank)
        policies->expiries[policies->n_expiries++] = rule;
}
#define ADD_RULE(name, text, number, rule) add_rule(out, fr_expire_##rule##_policy(&table->expire.rule));

void fr_service_policies(const struct fr_conf_table *table, struct fr_policy_configs *configs,
                         struct fr_table_policies *out)
{
    *out = (struct fr_table_policies){0};
    if (table->admit_sketch) {
        configs->sketch = (struct fr_gate_sketch){.min = table->admit_sketch_min,
                                                  .half_life_ms = table->admit_sketch_half_life_ms,
                                                  .bytes = table->admit_sketch_bytes};
        out->gate = fr_gate_sketch_policy(&configs->sketch);
    } else if (table->admit_coins) {
        configs->probability = (struct fr_gate_probability){.probability = table->admit_probability};
        out->gate = fr_gate_probability_policy(&configs->probability);
    } else {
        configs->count = (struct fr_gate_count){.count = table->admit_count, .idle_ms = table->admit_idle_ms};
        out->gate = fr_gate_count_policy(&configs->count);
    }
    FR_EXPIRIES(ADD_RULE)
}
