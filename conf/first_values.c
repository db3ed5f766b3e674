/* First values of weights, of layers and of tables' rows alike: a function of the initializer, the
 * fans and where the value stands (seed, stream, key, index), so that what a value begins as does
 * not depend on what else there is.
 *
 * Thread: any. */
#include <math.h>

#include "base/random.h"
#include "conf/conf.h"

double fr_conf_init_scale(const struct fr_conf_init *init, double fan_in, double fan_out)
{
    switch (init->kind) {
    case FR_INIT_DEFAULT:
        return 1.0 / sqrt(fan_in);
    case FR_INIT_XAVIER_UNIFORM:
        return sqrt(6.0 / (fan_in + fan_out));
    case FR_INIT_XAVIER_NORMAL:
        return sqrt(2.0 / (fan_in + fan_out));
    case FR_INIT_KAIMING_UNIFORM:
        return sqrt(6.0 / fan_in);
    case FR_INIT_KAIMING_NORMAL:
        return sqrt(2.0 / fan_in);
    case FR_INIT_UNIFORM:
    case FR_INIT_NORMAL:
    case FR_INIT_TRUNCATED_NORMAL:
    case FR_INIT_CONSTANT:
        return (double)init->scale;
    case FR_INIT_ZEROS:
        break;
    }
    return 0.0;
}

enum { BLOCK = 64 };

static void draw(enum fr_init_kind kind, const struct fr_value_place *at, uint64_t index, struct fr_doubles out)
{
    switch (kind) {
    case FR_INIT_NORMAL:
    case FR_INIT_XAVIER_NORMAL:
    case FR_INIT_KAIMING_NORMAL:
        fr_random_normals(at->seed, at->stream, at->key, index, out);
        break;
    case FR_INIT_TRUNCATED_NORMAL:
        for (size_t i = 0; i < out.n; i++)
            out.values[i] = fr_random_truncated_normal(at->seed, at->stream, at->key, index + i);
        break;
    case FR_INIT_DEFAULT:
    case FR_INIT_UNIFORM:
    case FR_INIT_XAVIER_UNIFORM:
    case FR_INIT_KAIMING_UNIFORM:
        fr_random_uniforms(at->seed, at->stream, at->key, index, out);
        for (size_t i = 0; i < out.n; i++)
            out.values[i] = 2.0 * out.values[i] - 1.0;
        break;
    case FR_INIT_CONSTANT:
    case FR_INIT_ZEROS:
        for (size_t i = 0; i < out.n; i++)
            out.values[i] = kind == FR_INIT_CONSTANT;
        break;
    }
}

void fr_conf_first_values(const struct fr_conf_init *init, const struct fr_value_place *at, float *values, size_t n)
{
    double scale = fr_conf_init_scale(init, at->fan_in, at->fan_out), drawn[BLOCK];
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        size_t count = n - begin < BLOCK ? n - begin : BLOCK;
        draw(init->kind, at, at->index + begin, (struct fr_doubles){drawn, count});
        for (size_t i = 0; i < count; i++)
            values[begin + i] = (float)(drawn[i] * scale);
    }
}
