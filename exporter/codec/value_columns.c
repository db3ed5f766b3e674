/* Columns of values: f32 is copied, f16 and bf16 are converted value by value, i8 row by row.
 *
 * Rows lie anywhere in an epoch, so they are fetched ahead, and short rows are converted together.
 *
 * Thread: any, no state. write.c writes the heads of MessagePack. */
#include "value_columns.h"

enum { ROWS_AHEAD = 16, LINE = 64, TOGETHER_BYTES = 4096 };

size_t fr_codec_width(enum fr_codec_quantize quantize)
{
    switch (quantize) {
    case FR_CODEC_F16:
    case FR_CODEC_BF16:
        return 2;
    case FR_CODEC_I8:
        return 1;
    case FR_CODEC_F32:
        break;
    }
    return 4;
}

void fr_codec_put_values(struct fr_buffer *out, const uint8_t *values, size_t count, enum fr_codec_quantize quantize,
                         uint64_t *saturated)
{
    size_t bytes = count * fr_codec_width(quantize);
    uint8_t *to = fr_buffer_reserve(out, bytes);
    if (quantize == FR_CODEC_F16)
        fr_f16_from_f32s(values, count, to, saturated);
    else if (quantize == FR_CODEC_BF16)
        fr_codec_bf16(values, count, to, saturated);
    else if (bytes > 0)
        memcpy(to, values, bytes);
    out->size += bytes;
}

static const uint8_t *part_of(const struct fr_delta_row *row, uint32_t offset)
{
    return (const uint8_t *)row->values + (size_t)offset * sizeof(float);
}

static void fetch_ahead(const uint8_t *part, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(part + at);
    __builtin_prefetch(part + bytes - 1);
}

static void put_rows_i8(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count,
                        const struct fr_codec_span *span, uint64_t *saturated)
{
    int8_t *to = (int8_t *)fr_buffer_reserve(out, count * span->dim);
    for (size_t i = 0; i < count; i++) {
        if (i + ROWS_AHEAD < count)
            fetch_ahead(part_of(rows[i + ROWS_AHEAD], span->offset), (size_t)span->dim * sizeof(float));
        (void)fr_codec_i8(part_of(rows[i], span->offset), span->dim, to + i * span->dim, saturated);
    }
    out->size += count * span->dim;
}

void fr_codec_put_rows(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count,
                       const struct fr_codec_span *span, uint64_t *saturated)
{
    if (span->quantize == FR_CODEC_I8) {
        put_rows_i8(out, rows, count, span, saturated);
        return;
    }
    uint8_t together[TOGETHER_BYTES];
    size_t dim = span->dim, bytes = dim * sizeof(float);
    size_t most = bytes <= TOGETHER_BYTES ? TOGETHER_BYTES / bytes : 0, held = 0;
    for (size_t i = 0; i < count; i++) {
        if (i + ROWS_AHEAD < count)
            fetch_ahead(part_of(rows[i + ROWS_AHEAD], span->offset), bytes);
        const uint8_t *row = part_of(rows[i], span->offset);
        if (most == 0) {
            fr_codec_put_values(out, row, dim, span->quantize, saturated);
            continue;
        }
        if (dim == 1)
            memcpy(together + held * sizeof(float), row, sizeof(float));
        else
            memcpy(together + held * bytes, row, bytes);
        if (++held < most && i + 1 < count)
            continue;
        fr_codec_put_values(out, together, held * dim, span->quantize, saturated);
        held = 0;
    }
}

void fr_codec_put_scales(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count, uint32_t offset,
                         uint32_t dim)
{
    for (size_t i = 0; i < count; i++) {
        float scale = fr_codec_i8_scale(part_of(rows[i], offset), dim);
        fr_buffer_append(out, &scale, sizeof(scale));
    }
}
