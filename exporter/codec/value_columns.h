/* Values of rows and parameters as columns of a record; private to the writer. */
#ifndef FR_CODEC_VALUE_COLUMNS_H
#define FR_CODEC_VALUE_COLUMNS_H

#include "codec/codec.h"

/* A part of every row of a table. */
struct fr_codec_span {
    uint32_t offset, dim; /* floats */
    enum fr_codec_quantize quantize;
};

/* Bytes of a value. */
size_t fr_codec_width(enum fr_codec_quantize quantize);
/* count f32 of any alignment, appended quantized; not i8, whose scale belongs to a row. */
void fr_codec_put_values(struct fr_buffer *out, const uint8_t *values, size_t count, enum fr_codec_quantize quantize,
                         uint64_t *saturated);
/* The span of each row, in order; rows lie anywhere. */
void fr_codec_put_rows(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count,
                       const struct fr_codec_span *span, uint64_t *saturated);
/* One f32 a row: what its i8 values are multiplied by. */
void fr_codec_put_scales(struct fr_buffer *out, const struct fr_delta_row *const *rows, size_t count, uint32_t offset,
                         uint32_t dim);

#endif
