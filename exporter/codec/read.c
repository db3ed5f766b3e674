/* The reader of delta records turns bytes into checked views of these bytes
 * (docs/formats/deltas.md).
 *
 * One pass over the map notes where the value of every known field lies. Then version, envelope and
 * the fields of the kind are checked, whatever order and encoding the writer chose. Every length is
 * compared with the bytes and with rows x dim before it is used, so a caller may index without
 * further checks. The crc is checked first: nothing else of a record with a wrong crc is read.
 *
 * Thread: any, no state. The reader does not allocate and knows no model, so the caller judges
 * names of tables, parts and parameters. */
#include "codec/codec.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/math.h"
#include "value_columns.h"

enum { CRC_FIELD_SIZE = 9 };

enum field {
    F_V,
    F_K,
    F_M,
    F_FP,
    F_TL,
    F_E,
    F_FROM,
    F_DIG,
    F_P,
    F_NP,
    F_I,
    F_TB,
    F_KEYS,
    F_SEG,
    F_WHY,
    F_NAME,
    F_SHAPE,
    F_Q,
    F_OFF,
    F_VALS,
    F_CFG,
    F_KERNEL,
    F_TO,
    F_SNAP,
    F_N,
    F_ROWS,
    F_DROPS,
    F_PREV,
    F_WM,
    F_SAMPLES,
    F_AUC,
    F_T,
    F_CRC,
    F_PART,
    F_DIM,
    F_SC,
    FIELDS,
};

static const char *const field_names[FIELDS] = {
    "v",    "k",    "m",     "fp",   "tl",    "e",       "from", "dig",  "p",   "np",     "i",   "tb",
    "keys", "seg",  "why",   "name", "shape", "q",       "off",  "vals", "cfg", "kernel", "to",  "snap",
    "n",    "rows", "drops", "prev", "wm",    "samples", "auc",  "t",    "crc", "part",   "dim", "sc",
};

struct value {
    bool present;
    struct fr_token token;      /* the first token of the value */
    const uint8_t *begin, *end; /* all bytes of the value */
};

struct parse {
    struct value fields[FIELDS];
    struct fr_err *err;
};

static enum fr_status bad(struct parse *parse, enum field field, const char *problem)
{
    return fr_err_set(parse->err, FR_E_INVALID, "delta record: field \"%s\" %s", field_names[field], problem);
}

static int find_field(const struct fr_token *key)
{
    for (int f = 0; f < FIELDS; f++)
        if (strlen(field_names[f]) == key->size && memcmp(field_names[f], key->bytes, key->size) == 0)
            return f;
    return -1;
}

static enum fr_status cursor_error(const struct fr_cursor *cursor, struct fr_err *err)
{
    return fr_err_set(err, FR_E_INVALID, "delta record: %s at byte %zu",
                      cursor->problem ? cursor->problem : "not one map", fr_cursor_offset(cursor));
}

/* Reads key-value pairs of the map whose first token was just taken, up to its end. */
static enum fr_status scan_map(struct parse *parse, struct fr_cursor *cursor)
{
    for (;;) {
        struct fr_token key, first;
        if (fr_cursor_next(cursor, &key) != FR_OK)
            return cursor_error(cursor, parse->err);
        if (key.kind == FR_TOKEN_END)
            return FR_OK;
        int field = key.kind == FR_TOKEN_STRING ? find_field(&key) : -1;
        if (fr_cursor_skip(cursor, &key) != FR_OK)
            return cursor_error(cursor, parse->err);
        const uint8_t *begin = cursor->at;
        if (fr_cursor_next(cursor, &first) != FR_OK || fr_cursor_skip(cursor, &first) != FR_OK)
            return cursor_error(cursor, parse->err);
        if (field < 0)
            continue;
        if (parse->fields[field].present)
            return bad(parse, (enum field)field, "occurs twice");
        parse->fields[field] = (struct value){true, first, begin, cursor->at};
    }
}

static void open_cursor(struct fr_cursor *cursor, const uint8_t *begin, const uint8_t *end)
{
    fr_cursor_init(cursor, FR_FORMAT_MSGPACK, begin, (size_t)(end - begin), NULL);
    cursor->string_max = UINT32_MAX; /* `cfg` may be as long as a record */
}

/* Reads bytes that must be one map and nothing else. */
static enum fr_status scan_value(struct parse *parse, const uint8_t *begin, const uint8_t *end)
{
    struct fr_cursor cursor;
    struct fr_token token;
    open_cursor(&cursor, begin, end);
    if (fr_cursor_next(&cursor, &token) != FR_OK || token.kind != FR_TOKEN_MAP)
        return cursor_error(&cursor, parse->err);
    enum fr_status status = scan_map(parse, &cursor);
    if (status != FR_OK)
        return status;
    return fr_cursor_next(&cursor, &token) == FR_EOF ? FR_OK : cursor_error(&cursor, parse->err);
}

static enum fr_status get_uint(struct parse *parse, enum field field, uint64_t limit, uint64_t *out)
{
    const struct value *value = &parse->fields[field];
    if (!value->present)
        return bad(parse, field, "is missing");
    if (value->token.kind != FR_TOKEN_UINT || value->token.u > limit)
        return bad(parse, field, "is not an unsigned integer in its range");
    *out = value->token.u;
    return FR_OK;
}

static enum fr_status get_u32(struct parse *parse, enum field field, uint32_t *out)
{
    uint64_t wide = 0;
    enum fr_status status = get_uint(parse, field, UINT32_MAX, &wide);
    if (status == FR_OK)
        *out = (uint32_t)wide;
    return status;
}

static enum fr_status get_time(struct parse *parse, enum field field, int64_t *out)
{
    const struct value *value = &parse->fields[field];
    if (value->present && value->token.kind == FR_TOKEN_INT) {
        *out = value->token.i;
        return FR_OK;
    }
    uint64_t wide = 0;
    enum fr_status status = get_uint(parse, field, INT64_MAX, &wide);
    if (status == FR_OK)
        *out = (int64_t)wide;
    return status;
}

static enum fr_status get_text(struct parse *parse, enum field field, struct fr_delta_text *out)
{
    const struct value *value = &parse->fields[field];
    if (!value->present || value->token.kind != FR_TOKEN_STRING)
        return bad(parse, field, value->present ? "is not a string" : "is missing");
    *out = (struct fr_delta_text){(const char *)value->token.bytes, value->token.size};
    return FR_OK;
}

static enum fr_status get_bin(struct parse *parse, enum field field, const uint8_t **bytes, uint32_t *size)
{
    const struct value *value = &parse->fields[field];
    if (!value->present || value->token.kind != FR_TOKEN_BIN)
        return bad(parse, field, value->present ? "is not a bin" : "is missing");
    *bytes = value->token.bytes;
    *size = value->token.size;
    return FR_OK;
}

static enum fr_status get_span(struct parse *parse, enum field field, const uint8_t **bytes, size_t *size)
{
    const struct value *value = &parse->fields[field];
    if (!value->present)
        return bad(parse, field, "is missing");
    *bytes = value->begin;
    *size = (size_t)(value->end - value->begin);
    return FR_OK;
}

static bool text_is(const struct fr_delta_text *text, const char *name)
{
    return text->size == strlen(name) && memcmp(text->bytes, name, text->size) == 0;
}

static enum fr_status get_quantize(struct parse *parse, enum fr_codec_quantize *out)
{
    struct fr_delta_text text = {0};
    enum fr_status status = get_text(parse, F_Q, &text);
    for (int q = FR_CODEC_F32; status == FR_OK && q <= FR_CODEC_I8; q++)
        if (text_is(&text, fr_codec_quantize_name((enum fr_codec_quantize)q))) {
            *out = (enum fr_codec_quantize)q;
            return FR_OK;
        }
    return status != FR_OK ? status
                           : fr_err_set(parse->err, FR_E_UNSUPPORTED, "delta record: quantization \"%.*s\" is unknown",
                                        text.size > 16 ? 16 : (int)text.size, text.bytes);
}

/* Checks that u64 keys ascend strictly and are all of this record's partition. The partition grows
 * with the key, so the ends suffice. */
static enum fr_status get_keys(struct parse *parse, const struct fr_delta_record *record, const uint8_t **keys,
                               uint32_t *n_rows)
{
    uint32_t size = 0;
    enum fr_status status = get_bin(parse, F_KEYS, keys, &size);
    if (status != FR_OK)
        return status;
    if (size % 8 != 0)
        return bad(parse, F_KEYS, "is not a whole number of 8-byte keys");
    *n_rows = size / 8;
    for (uint32_t i = 1; i < *n_rows; i++)
        if (fr_load_u64(*keys + (size_t)i * 8 - 8) >= fr_load_u64(*keys + (size_t)i * 8))
            return bad(parse, F_KEYS, "is not strictly ascending");
    if (*n_rows > 0 && (fr_delta_partition(fr_load_u64(*keys), record->np) != record->partition ||
                        fr_delta_partition(fr_load_u64(*keys + (size_t)size - 8), record->np) != record->partition))
        return bad(parse, F_KEYS, "holds keys of another partition");
    return FR_OK;
}

static enum fr_status read_segment(struct parse *outer, const uint8_t *begin, const uint8_t *end,
                                   struct fr_delta_record *out, uint32_t s)
{
    struct parse parse = {.err = outer->err};
    enum fr_status status = scan_value(&parse, begin, end);
    uint32_t dim = 0, size = 0;
    if (status == FR_OK)
        status = get_text(&parse, F_PART, &out->rows.segments[s].part);
    if (status == FR_OK)
        status = get_u32(&parse, F_DIM, &dim);
    if (status == FR_OK)
        status = get_quantize(&parse, &out->rows.segments[s].quantize);
    if (status == FR_OK)
        status = get_bin(&parse, F_VALS, &out->rows.segments[s].values, &size);
    if (status != FR_OK)
        return status;
    /* At most 2^29 rows (they came as bytes) times 2^32 times 4: below 2^64. */
    if (dim == 0 || (uint64_t)out->rows.n_rows * dim * fr_codec_width(out->rows.segments[s].quantize) != size)
        return bad(&parse, F_VALS, "does not hold rows x dim values");
    out->rows.segments[s].dim = dim;
    out->rows.segments[s].scales = NULL;
    if (out->rows.segments[s].quantize == FR_CODEC_I8) {
        status = get_bin(&parse, F_SC, &out->rows.segments[s].scales, &size);
        if (status == FR_OK && size != (uint64_t)out->rows.n_rows * 4)
            return bad(&parse, F_SC, "does not hold one scale a row");
    }
    return status;
}

static enum fr_status read_rows(struct parse *parse, struct fr_delta_record *out)
{
    enum fr_status status = get_text(parse, F_TB, &out->rows.table);
    if (status == FR_OK)
        status = get_keys(parse, out, &out->rows.keys, &out->rows.n_rows);
    if (status != FR_OK)
        return status;
    const struct value *value = &parse->fields[F_SEG];
    if (!value->present || value->token.kind != FR_TOKEN_ARRAY || value->token.count == 0 ||
        value->token.count > FR_CODEC_PARTS_MAX)
        return bad(parse, F_SEG, "is not an array of 1 to 8 segments");
    struct fr_cursor cursor;
    struct fr_token token;
    open_cursor(&cursor, value->begin, value->end);
    if (fr_cursor_next(&cursor, &token) != FR_OK)
        return cursor_error(&cursor, parse->err);
    for (uint32_t s = 0; s < value->token.count; s++) {
        const uint8_t *begin = cursor.at;
        if (fr_cursor_next(&cursor, &token) != FR_OK || fr_cursor_skip(&cursor, &token) != FR_OK)
            return cursor_error(&cursor, parse->err);
        status = read_segment(parse, begin, cursor.at, out, s);
        if (status != FR_OK)
            return status;
    }
    out->rows.n_segments = value->token.count;
    return FR_OK;
}

static enum fr_status read_drop(struct parse *parse, struct fr_delta_record *out)
{
    uint32_t size = 0;
    enum fr_status status = get_text(parse, F_TB, &out->drop.table);
    if (status == FR_OK)
        status = get_keys(parse, out, &out->drop.keys, &out->drop.n_rows);
    if (status == FR_OK)
        status = get_bin(parse, F_WHY, &out->drop.why, &size);
    if (status == FR_OK && size != out->drop.n_rows)
        return bad(parse, F_WHY, "does not hold one reason a key");
    return status;
}

static enum fr_status read_shape(struct parse *parse, struct fr_delta_record *out)
{
    const struct value *value = &parse->fields[F_SHAPE];
    if (!value->present || value->token.kind != FR_TOKEN_ARRAY || value->token.count < 1 || value->token.count > 2)
        return bad(parse, F_SHAPE, "is not an array of 1 or 2 numbers");
    struct fr_cursor cursor;
    struct fr_token token;
    open_cursor(&cursor, value->begin, value->end);
    if (fr_cursor_next(&cursor, &token) != FR_OK)
        return cursor_error(&cursor, parse->err);
    out->dense.n_dims = value->token.count;
    out->dense.shape[1] = 1;
    for (uint32_t d = 0; d < out->dense.n_dims; d++) {
        if (fr_cursor_next(&cursor, &token) != FR_OK || token.kind != FR_TOKEN_UINT || token.u > UINT32_MAX)
            return bad(parse, F_SHAPE, "is not an array of 1 or 2 numbers");
        out->dense.shape[d] = (uint32_t)token.u;
    }
    return FR_OK;
}

static enum fr_status read_dense(struct parse *parse, struct fr_delta_record *out)
{
    uint32_t size = 0;
    enum fr_status status = get_text(parse, F_NAME, &out->dense.name);
    if (status == FR_OK)
        status = read_shape(parse, out);
    if (status == FR_OK)
        status = get_quantize(parse, &out->dense.quantize);
    if (status == FR_OK)
        status = get_uint(parse, F_OFF, UINT64_MAX, &out->dense.offset);
    if (status == FR_OK)
        status = get_bin(parse, F_VALS, &out->dense.values, &size);
    if (status != FR_OK)
        return status;
    if (out->dense.quantize == FR_CODEC_I8)
        return bad(parse, F_Q, "is i8, which dense parameters do not have");
    size_t width = fr_codec_width(out->dense.quantize);
    uint64_t total = (uint64_t)out->dense.shape[0] * out->dense.shape[1];
    out->dense.n_values = size / width;
    if (size % width != 0 || out->dense.offset > total || out->dense.n_values > total - out->dense.offset)
        return bad(parse, F_VALS, "does not lie inside the shape");
    return FR_OK;
}

static enum fr_status read_commit(struct parse *parse, struct fr_delta_record *out)
{
    enum fr_status status = get_u32(parse, F_N, &out->commit.n_pieces);
    if (status == FR_OK && out->commit.n_pieces != out->piece)
        return bad(parse, F_N, "is not the commit's own piece number");
    if (status == FR_OK)
        status = get_uint(parse, F_ROWS, UINT64_MAX, &out->commit.n_rows);
    if (status == FR_OK)
        status = get_uint(parse, F_DROPS, UINT64_MAX, &out->commit.n_drops);
    if (status == FR_OK)
        status = get_uint(parse, F_PREV, UINT64_MAX, &out->commit.previous);
    if (status == FR_OK)
        status = get_time(parse, F_WM, &out->commit.wm_ms);
    if (status == FR_OK)
        status = get_uint(parse, F_SAMPLES, UINT64_MAX, &out->commit.samples);
    if (status == FR_OK)
        status = get_span(parse, F_AUC, &out->commit.auc, &out->commit.auc_size);
    if (status == FR_OK)
        status = get_span(parse, F_OFF, &out->commit.offsets, &out->commit.offsets_size);
    if (status == FR_OK)
        status = get_time(parse, F_T, &out->commit.t_ms);
    if (status == FR_OK)
        status = get_span(parse, F_SNAP, &out->commit.snap, &out->commit.snap_size);
    return status;
}

static enum fr_status read_model(struct parse *parse, struct fr_delta_record *out)
{
    enum fr_status status = get_text(parse, F_CFG, &out->model_record.cfg);
    return status == FR_OK ? get_text(parse, F_KERNEL, &out->model_record.kernel) : status;
}

static enum fr_status read_rewind(struct parse *parse, struct fr_delta_record *out)
{
    enum fr_status status = get_uint(parse, F_TO, UINT64_MAX - 1, &out->rewind.to);
    return status == FR_OK ? get_text(parse, F_SNAP, &out->rewind.snap) : status;
}

static enum fr_status read_envelope(struct parse *parse, struct fr_delta_record *out)
{
    enum fr_status status = get_text(parse, F_M, &out->model);
    static const struct {
        enum field field;
        size_t at;
    } wide[] = {{F_FP, offsetof(struct fr_delta_record, fp)},
                {F_TL, offsetof(struct fr_delta_record, timeline)},
                {F_E, offsetof(struct fr_delta_record, epoch)},
                {F_FROM, offsetof(struct fr_delta_record, from)},
                {F_DIG, offsetof(struct fr_delta_record, digest)}};
    for (size_t i = 0; i < FR_ARRAY_LEN(wide) && status == FR_OK; i++) {
        uint64_t number = 0;
        status = get_uint(parse, wide[i].field, UINT64_MAX, &number);
        memcpy((char *)out + wide[i].at, &number, sizeof(number));
    }
    if (status == FR_OK)
        status = get_u32(parse, F_P, &out->partition);
    if (status == FR_OK)
        status = get_u32(parse, F_NP, &out->np);
    if (status == FR_OK)
        status = get_u32(parse, F_I, &out->piece);
    if (status != FR_OK)
        return status;
    if (out->model.size == 0 || out->model.size > 127)
        return bad(parse, F_M, "is empty or too long");
    if (out->np == 0 || out->np > FR_DELTA_PARTITIONS_MAX || out->partition >= out->np)
        return bad(parse, F_P, "and \"np\" do not fit");
    if (out->from == 0 || out->from > out->epoch)
        return bad(parse, F_FROM, "is 0 or beyond \"e\"");
    return FR_OK;
}

static enum fr_status read_kind(struct parse *parse, struct fr_delta_record *out)
{
    static const struct {
        const char *name;
        enum fr_delta_kind kind;
        enum fr_status (*read)(struct parse *parse, struct fr_delta_record *out);
        bool first_partition_only;
    } kinds[] = {{"rows", FR_DELTA_ROWS, read_rows, false},       {"drop", FR_DELTA_DROP, read_drop, false},
                 {"dense", FR_DELTA_DENSE, read_dense, true},     {"model", FR_DELTA_MODEL, read_model, true},
                 {"rewind", FR_DELTA_REWIND, read_rewind, false}, {"commit", FR_DELTA_COMMIT, read_commit, false}};
    struct fr_delta_text kind = {0};
    enum fr_status status = get_text(parse, F_K, &kind);
    if (status != FR_OK)
        return status;
    for (size_t i = 0; i < FR_ARRAY_LEN(kinds); i++) {
        if (!text_is(&kind, kinds[i].name))
            continue;
        out->kind = kinds[i].kind;
        if (kinds[i].first_partition_only && out->partition != 0)
            return bad(parse, F_P, "is not 0 in a dense or model record");
        return kinds[i].read(parse, out);
    }
    out->kind = FR_DELTA_UNKNOWN;
    return FR_OK;
}

enum fr_status fr_delta_read(const void *bytes, size_t size, struct fr_delta_record *out, struct fr_err *err)
{
    static const uint8_t crc_head[5] = {0xa3, 'c', 'r', 'c', 0xce};
    const uint8_t *data = bytes;
    if (size <= CRC_FIELD_SIZE || memcmp(data + size - CRC_FIELD_SIZE, crc_head, sizeof(crc_head)) != 0)
        return fr_err_set(err, FR_E_CORRUPT, "delta record: %zu bytes without a crc at their end", size);
    uint32_t stored = __builtin_bswap32(fr_load_u32(data + size - 4));
    uint32_t actual = fr_crc32c(0, data, size - CRC_FIELD_SIZE);
    if (stored != actual)
        return fr_err_set(err, FR_E_CORRUPT, "delta record: crc is %08x, its bytes give %08x", stored, actual);

    struct parse parse = {.err = err};
    enum fr_status status = scan_value(&parse, data, data + size);
    uint64_t version = 0;
    if (status == FR_OK)
        status = get_uint(&parse, F_V, UINT64_MAX, &version);
    if (status != FR_OK)
        return status;
    if (version != FR_DELTA_VERSION)
        return fr_err_set(err, FR_E_UNSUPPORTED, "delta record: format version %llu, this reader knows %d",
                          (unsigned long long)version, FR_DELTA_VERSION);
    if (!parse.fields[F_CRC].present || parse.fields[F_CRC].end != data + size)
        return bad(&parse, F_CRC, "is not the last one");
    struct fr_delta_record record = {0};
    status = read_envelope(&parse, &record);
    if (status == FR_OK)
        status = read_kind(&parse, &record);
    if (status == FR_OK)
        *out = record;
    return status;
}

static float load_value(const uint8_t *values, uint64_t index, enum fr_codec_quantize quantize, float scale)
{
    uint16_t narrow;
    switch (quantize) {
    case FR_CODEC_F32:
        break;
    case FR_CODEC_F16:
        memcpy(&narrow, values + index * 2, sizeof(narrow));
        return fr_f32_from_f16(narrow);
    case FR_CODEC_BF16:
        memcpy(&narrow, values + index * 2, sizeof(narrow));
        return fr_bits_f32((uint32_t)narrow << 16);
    case FR_CODEC_I8:
        return (float)(int8_t)values[index] * scale;
    }
    return fr_load_f32(values + index * 4);
}

void fr_delta_segment_row(const struct fr_delta_record *record, uint32_t segment, uint32_t row, float *out)
{
    uint32_t dim = record->rows.segments[segment].dim;
    const uint8_t *scales = record->rows.segments[segment].scales;
    float scale = scales ? fr_load_f32(scales + (size_t)row * 4) : 0.0f;
    for (uint32_t i = 0; i < dim; i++)
        out[i] = load_value(record->rows.segments[segment].values, (uint64_t)row * dim + i,
                            record->rows.segments[segment].quantize, scale);
}

void fr_delta_dense_values(const struct fr_delta_record *record, float *out)
{
    for (uint64_t i = 0; i < record->dense.n_values; i++)
        out[i] = load_value(record->dense.values, i, record->dense.quantize, 0.0f);
}
