/* Which policies a table's configuration asks for. Thread: main, before any other runs. */
#include "service.h"

void fr_service_policies(const struct fr_conf_table *table, struct fr_policy_configs *configs,
                         struct fr_table_policies *out)
{
    *out = (struct fr_table_policies){0};
    configs->count = (struct fr_gate_count){.count = table->admit_count, .idle_ms = table->admit_idle_ms};
    out->gate = fr_gate_count_policy(&configs->count);
    if (table->expire_idle_ms > 0) {
        configs->idle = (struct fr_expire_idle){.idle_ms = table->expire_idle_ms};
        out->expiries[out->n_expiries++] = fr_expire_idle_policy(&configs->idle);
    }
}
