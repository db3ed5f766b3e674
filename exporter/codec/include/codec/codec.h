/* Delta records (docs/formats/deltas.md) as bytes: there is no Kafka and no journal here.
 *
 * The writer turns the settings of a timeline and one epoch's public content into every partition's
 * records 0..n-1 and its commit. The same input gives the same bytes.
 *
 * The reader turns a record into checked views into its bytes. It accepts any MessagePack encoding
 * and ignores unknown keys and kinds (an unknown kind still counts as a piece). Another `v` is
 * FR_E_UNSUPPORTED, a bad crc FR_E_CORRUPT.
 *
 * Thread: any; there is no state. */
#ifndef FR_CODEC_CODEC_H
#define FR_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"

enum { FR_DELTA_VERSION = 1, FR_CODEC_REVISION = 1, FR_CODEC_PARTS_MAX = 8, FR_DELTA_PARTITIONS_MAX = 1024 };

enum fr_codec_quantize { FR_CODEC_F32, FR_CODEC_F16, FR_CODEC_BF16, FR_CODEC_I8 };
const char *fr_codec_quantize_name(enum fr_codec_quantize quantize);

struct fr_codec_table {
    char name[64];
    uint32_t n_parts;
    struct {
        char name[64];
        uint32_t dim;
    } parts[FR_CODEC_PARTS_MAX];
    uint32_t value_floats;
};

/* The content of a journal file's head: everything that the delta records depend on, except the
 * epoch itself. */
struct fr_codec_settings {
    uint32_t revision;
    uint32_t np;
    enum fr_codec_quantize quantize;
    uint64_t piece_max;
    uint64_t fp;
    char model[128];
    char kernel[128];
    char *cfg; /* canonical model JSON; owned */
    size_t cfg_size;
    uint32_t n_tables;
    struct fr_codec_table *tables; /* owned */
};
void fr_codec_settings_encode(const struct fr_codec_settings *settings, struct fr_buffer *out);
enum fr_status fr_codec_settings_parse(const void *bytes, size_t size, struct fr_codec_settings *out) FR_MUST_CHECK;
void fr_codec_settings_release(struct fr_codec_settings *settings);

/* fr_key_range, ((k >> 32) * np) >> 32 */
static inline uint32_t fr_delta_partition(uint64_t key, uint32_t np)
{
    return fr_key_range(key, np);
}

/* Converts f32 to f16 bits and back. The conversion rounds half to even and saturates at 65504;
 * *saturated counts the values that saturate. NaN stays NaN. */
uint16_t fr_f16_from_f32(float value, uint64_t *saturated);
float fr_f32_from_f16(uint16_t bits);
/* Converts `count` values from f32 to f16. Neither array needs alignment. The bits are the same
 * on every processor. */
void fr_f16_from_f32s(const uint8_t *values, size_t count, uint8_t *out, uint64_t *saturated);
void fr_codec_bf16(const uint8_t *values, size_t count, uint8_t *out, uint64_t *saturated);
/* Two functions for one row of a part: the factor of its i8 values, and the values. NaN becomes
 * 0. Infinities become the largest finite step, and count as saturated. */
float fr_codec_i8_scale(const uint8_t *values, size_t count);
float fr_codec_i8(const uint8_t *values, size_t count, int8_t *out, uint64_t *saturated);
/* Returns what a replica holds for `value` under this quantization (f32, f16, bf16; i8 is per
 * row). */
float fr_quantized(float value, enum fr_codec_quantize quantize);

/* ---- writing one epoch ---- */

struct fr_delta_auc {
    const char *task;
    double auc; /* NaN: nil */
};

struct fr_delta_offset {
    const char *topic;
    int32_t partition;
    int64_t next_offset;
};

struct fr_delta_commit {
    int64_t wm_ms;
    uint64_t samples;
    int64_t t_ms;
    uint32_t n_auc;
    const struct fr_delta_auc *auc;
    uint32_t n_offsets; /* sorted by topic, then partition */
    const struct fr_delta_offset *offsets;
    struct { /* snapshot; name NULL: nil */
        const char *name;
        uint64_t bytes;
        uint8_t sha256[32];
    } snap;
};

struct fr_delta_row {
    uint64_t key;
    uint32_t table;
    uint8_t why;         /* drop: 1..5; row: 0 */
    const float *values; /* value_floats, may be unaligned bytes; NULL: drop */
};

struct fr_delta_dense {
    const char *name;
    uint32_t n_dims;
    uint32_t shape[2];
    uint64_t n_values;
    const void *values; /* f32, may be unaligned */
    bool exact;         /* stays f32 on the wire and in dumps, whatever the settings quantize to */
};

/* Returns the form in which a parameter is published when rows are in `quantize`: f32 for
 * statistics, and for all parameters if `quantize` is i8. */
enum fr_codec_quantize fr_delta_dense_quantize(const struct fr_delta_dense *dense, enum fr_codec_quantize quantize);

struct fr_delta_rewind {
    uint64_t to;
    const char *snap;
};

/* Rows and drops must come sorted by (table, key), each key once. */
struct fr_delta_epoch {
    uint64_t timeline, epoch, from;
    uint64_t digest, previous;
    bool with_model;
    const struct fr_delta_rewind *rewind; /* NULL: none */
    const struct fr_delta_row *rows;      /* rows and drops together */
    size_t n_rows;
    const struct fr_delta_dense *dense; /* NULL/0: none in this epoch */
    size_t n_dense;
    struct fr_delta_commit commit;
};

/* A sink is called for every record, partition by partition, pieces ascending, the commit last. The
 * bytes are valid during the call. A status other than FR_OK stops. */
typedef enum fr_status fr_delta_sink(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size);
/* Adds the number of values that were cut to the largest finite f16 to *saturated. FR_E_INVALID:
 * the input's order; FR_E_LIMIT: piece_max; FR_E_STATE: a record was made that readers would
 * refuse; it was not given to the sink. */
enum fr_status fr_delta_write(const struct fr_codec_settings *settings, const struct fr_delta_epoch *epoch,
                              fr_delta_sink *sink, void *self, uint64_t *saturated) FR_MUST_CHECK;

/* Writes an epoch that is too large to be held in memory, part by part. The head has timeline,
 * epoch, from, digest and previous; its rows, dense parameters and commit are ignored. Parts
 * must come in the order of the functions below, rows by ascending table. Across calls, the keys
 * of a table may come in any order, each key once. Settings are borrowed until free. FR_E_LIMIT:
 * a part does not fit piece_max; nothing of that record was given to the sink. */
struct fr_delta_stream;
struct fr_delta_stream *fr_delta_stream_new(const struct fr_codec_settings *settings, const struct fr_delta_epoch *head,
                                            fr_delta_sink *sink, void *self);
void fr_delta_stream_free(struct fr_delta_stream *stream);
/* Directs later parts to another sink. */
void fr_delta_stream_to(struct fr_delta_stream *stream, fr_delta_sink *sink, void *self, uint64_t *saturated);
/* Writes the model. Call it after the rewind, if the head has one. */
enum fr_status fr_delta_stream_model(struct fr_delta_stream *stream) FR_MUST_CHECK;
/* Writes rows (no drops), sorted by (table, key). */
enum fr_status fr_delta_stream_rows(struct fr_delta_stream *stream, const struct fr_delta_row *rows,
                                    size_t n) FR_MUST_CHECK;
enum fr_status fr_delta_stream_dense(struct fr_delta_stream *stream, const struct fr_delta_dense *dense) FR_MUST_CHECK;
/* Writes the commit of every partition. */
enum fr_status fr_delta_stream_commit(struct fr_delta_stream *stream,
                                      const struct fr_delta_commit *commit) FR_MUST_CHECK;

/* ---- reading one record ---- */

enum fr_delta_kind {
    FR_DELTA_ROWS,
    FR_DELTA_DROP,
    FR_DELTA_DENSE,
    FR_DELTA_MODEL,
    FR_DELTA_REWIND,
    FR_DELTA_COMMIT,
    FR_DELTA_UNKNOWN
};

struct fr_delta_text { /* borrowed, not NUL-terminated */
    const char *bytes;
    size_t size;
};

struct fr_delta_record {
    enum fr_delta_kind kind;
    struct fr_delta_text model;
    uint64_t fp, timeline, epoch, from, digest;
    uint32_t partition, np, piece;
    union {
        struct {
            struct fr_delta_text table;
            uint32_t n_rows;
            const uint8_t *keys; /* u64 LE, ascending (checked) */
            uint32_t n_segments;
            struct {
                struct fr_delta_text part;
                uint32_t dim;
                enum fr_codec_quantize quantize;
                const uint8_t *values;
                const uint8_t *scales; /* i8 only */
            } segments[FR_CODEC_PARTS_MAX];
        } rows;
        struct {
            struct fr_delta_text table;
            uint32_t n_rows;
            const uint8_t *keys;
            const uint8_t *why;
        } drop;
        struct {
            struct fr_delta_text name;
            uint32_t n_dims;
            uint32_t shape[2];
            enum fr_codec_quantize quantize;
            uint64_t offset, n_values;
            const uint8_t *values;
        } dense;
        struct {
            struct fr_delta_text cfg, kernel;
        } model_record;
        struct {
            uint64_t to;
            struct fr_delta_text snap;
        } rewind;
        struct {
            uint32_t n_pieces;
            uint64_t n_rows, n_drops;
            uint64_t previous;
            int64_t wm_ms, t_ms;
            uint64_t samples;
            /* the MessagePack values, for callers that need them */
            const uint8_t *auc, *offsets, *snap;
            size_t auc_size, offsets_size, snap_size;
        } commit;
    };
};

/* Errors: FR_E_CORRUPT (crc), FR_E_UNSUPPORTED (another v), FR_E_INVALID (anything else, with
 * text). Lengths are checked against the bytes and against n_rows * dim before use. */
enum fr_status fr_delta_read(const void *bytes, size_t size, struct fr_delta_record *out,
                             struct fr_err *err) FR_MUST_CHECK;
/* Writes count f32 values of a segment (dequantized) starting at row `row`. */
void fr_delta_segment_row(const struct fr_delta_record *record, uint32_t segment, uint32_t row, float *out);
void fr_delta_dense_values(const struct fr_delta_record *record, float *out); /* n_values floats */

#endif
