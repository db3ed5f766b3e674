/* The gate and the rules of expiry that the configuration requests for each table. They are
 * written before the trainer is made, and are then constant. */
#ifndef FR_DAEMON_POLICIES_H
#define FR_DAEMON_POLICIES_H

#include "conf/conf.h"
#include "eviction/eviction.h"

/* The settings that the gate of a table points to. */
struct fr_policy_configs {
    struct fr_gate_count count;
    struct fr_gate_sketch sketch;
    struct fr_gate_probability probability;
};

struct fr_service_policies {
    struct fr_policy_configs configs[FR_TABLES_MAX];
    struct fr_table_policies of[FR_TABLES_MAX];
};

/* `table` and `configs` must outlive `out`. */
void fr_service_policies(const struct fr_conf_table *table, struct fr_policy_configs *configs,
                         struct fr_table_policies *out);

#endif
