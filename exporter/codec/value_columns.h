/* Values of rows and parameters as columns of a record. Private to the codec. */
#ifndef FR_CODEC_VALUE_COLUMNS_H
#define FR_CODEC_VALUE_COLUMNS_H

#include "codec/codec.h"

/* One part of every row of a table. */
struct fr_codec_span {
    uint32_t offset, dim; /* floats */
    enum fr_codec_quantize quantize;
};

/* Returns the bytes of one value. */
size_t fr_codec_width(enum fr_codec_quantize quantize);
/* Appends count f32 of any alignment, quantized. Not for i8, which has a scale for each row. */
void fr_codec_put_values(struct fr_buffer *out, const uint8_t *values, size_t count, enum fr_codec_quantize quantize,
                         uint64_t *saturated);
/* Appends the span of each row, in order. The rows may lie anywhere. */
void fr_codec_put_rows(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count,
                       const struct fr_codec_span *span, uint64_t *saturated);
/* Appends one f32 for each row: the factor of its i8 values. */
void fr_codec_put_scales(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count, uint32_t offset,
                         uint32_t dim);

#endif
