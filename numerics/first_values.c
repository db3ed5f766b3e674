/* See numerics/first_values.h. */
#include "numerics/first_values.h"

#include <math.h>

#include "base/random.h"

double fr_first_scale(const struct fr_conf_init *init, double fan_in, double fan_out)
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
    if (kind == FR_INIT_TRUNCATED_NORMAL) {
        for (size_t i = 0; i < out.n; i++)
            out.values[i] = fr_random_truncated_normal(at->seed, at->stream, at->key, index + i);
        return;
    }
    fr_random_uniforms(at->seed, at->stream, at->key, index, out);
    for (size_t i = 0; i < out.n; i++)
        out.values[i] = 2.0 * out.values[i] - 1.0;
}

static void draw_blocks(enum fr_init_kind kind, const struct fr_value_place *at, double scale, float *values, size_t n)
{
    double drawn[BLOCK];
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        size_t count = n - begin < BLOCK ? n - begin : BLOCK;
        draw(kind, at, at->index + begin, (struct fr_doubles){drawn, count});
        for (size_t i = 0; i < count; i++)
            values[begin + i] = (float)(drawn[i] * scale);
    }
}

void fr_first_values_of_rows(const struct fr_conf_init *init, const struct fr_value_place *at,
                             const struct fr_first_rows *rows, size_t n)
{
    double scale = fr_first_scale(init, at->fan_in, at->fan_out);
    struct fr_value_place place = *at;
    switch (init->kind) {
    case FR_INIT_ZEROS:
    case FR_INIT_CONSTANT:
        for (size_t r = 0; r < rows->n_rows; r++)
            for (size_t i = 0; i < n; i++)
                rows->rows[r][rows->offset + i] = (float)scale;
        return;
    case FR_INIT_NORMAL:
    case FR_INIT_XAVIER_NORMAL:
    case FR_INIT_KAIMING_NORMAL:
        fr_random_weights(&(struct fr_random_rows){.seed = at->seed,
                                                   .stream = at->stream,
                                                   .index = at->index,
                                                   .scale = scale,
                                                   .keys = rows->keys,
                                                   .values = rows->rows,
                                                   .n_keys = rows->n_rows,
                                                   .offset = rows->offset,
                                                   .n = n});
        return;
    case FR_INIT_TRUNCATED_NORMAL:
    case FR_INIT_DEFAULT:
    case FR_INIT_UNIFORM:
    case FR_INIT_XAVIER_UNIFORM:
    case FR_INIT_KAIMING_UNIFORM:
        for (size_t r = 0; r < rows->n_rows; r++) {
            place.key = rows->keys[r];
            draw_blocks(init->kind, &place, scale, rows->rows[r] + rows->offset, n);
        }
        return;
    }
}

void fr_first_values(const struct fr_conf_init *init, const struct fr_value_place *at, float *values, size_t n)
{
    fr_first_values_of_rows(init, at, &(struct fr_first_rows){.keys = &at->key, .rows = &values, .n_rows = 1}, n);
}
