/* First values of weights, for layers and for rows of tables: a function of the initializer, the
 * fans and the value's place (seed, stream, key, index). So a value's beginning does not depend on
 * what else exists. The bits never change (base/random.h). Thread: any. */
#ifndef FR_NUMERICS_FIRST_VALUES_H
#define FR_NUMERICS_FIRST_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"

/* The place of a run of values, and the number of inputs and outputs of the map that they belong to
 * (for rows, both are the width of the part). */
struct fr_value_place {
    uint64_t seed, stream, key, index; /* as in base/random; index: of the first value */
    double fan_in, fan_out;
};
void fr_first_values(const struct fr_conf_init *init, const struct fr_value_place *at, float *values, size_t n);
/* The same for several keys (at->key is not read): n values each, at rows[i] + offset. */
struct fr_first_rows {
    const uint64_t *keys;
    float *const *rows;
    size_t n_rows, offset;
};
void fr_first_values_of_rows(const struct fr_conf_init *init, const struct fr_value_place *at,
                             const struct fr_first_rows *rows, size_t n);
/* Returns the standard deviation, half the width of a uniform distribution, or the constant. */
double fr_first_scale(const struct fr_conf_init *init, double fan_in, double fan_out);

#endif
