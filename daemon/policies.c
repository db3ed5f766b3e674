/* Makes the policies of a table from its configuration. Thread: the main thread, before others
 * start. */
#include "policies.h"

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
    if (table->expire_idle_ms > 0) {
        configs->idle = (struct fr_expire_idle){.idle_ms = table->expire_idle_ms};
        out->expiries[out->n_expiries++] = fr_expire_idle_policy(&configs->idle);
    }
    if (table->expires_weak) {
        configs->weak = (struct fr_expire_weak){.norm = table->expire_weak};
        out->expiries[out->n_expiries++] = fr_expire_weak_policy(&configs->weak);
    }
    if (table->expires_score) {
        configs->score = (struct fr_expire_score){.show_weight = (double)table->expire_score.show_weight,
                                                  .click_weight = (double)table->expire_score.click_weight,
                                                  .half_life_ms = table->expire_score.half_life_ms,
                                                  .min = (double)table->expire_score.min};
        out->expiries[out->n_expiries++] = fr_expire_score_policy(&configs->score);
    }
    if (table->has_rows_max) {
        configs->capacity = (struct fr_expire_capacity){.rows_max = table->rows_max};
        out->expiries[out->n_expiries++] = fr_expire_capacity_policy(&configs->capacity);
    }
}
