/* First values of weights, of layers and of tables' rows alike: a function of the initializer, the
 * fans and where the value stands (seed, stream, key, index), so that what a value begins as does
 * not depend on what else there is. The bits never change (base/random.h). Thread: any. */
#ifndef FR_NUMERICS_FIRST_VALUES_H
#define FR_NUMERICS_FIRST_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"

/* Where values stand, and the inputs and outputs of the map they belong to (of rows both the width
 * of their part). */
struct fr_value_place {
    uint64_t seed, stream, key, index; /* of base/random; index of the first value */
    double fan_in, fan_out;
};
void fr_first_values(const struct fr_conf_init *init, const struct fr_value_place *at, float *values, size_t n);
/* The same of several keys (at->key is not read), n values each, at rows[i] + offset. */
struct fr_first_rows {
    const uint64_t *keys;
    float *const *rows;
    size_t n_rows, offset;
};
void fr_first_values_of_rows(const struct fr_conf_init *init, const struct fr_value_place *at,
                             const struct fr_first_rows *rows, size_t n);
/* Standard deviation, half the width of a uniform distribution, or the constant. */
double fr_first_scale(const struct fr_conf_init *init, double fan_in, double fan_out);

#endif
