/* See block_writer.h. Values are kept as the transcoder's MessagePack and turned into text only
 * where JSON is requested, so that there is one input path and two output paths. */
#include "samples/block_writer.h"

#include <inttypes.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { LABELS_MAX = 16, FIELDS = 4 };

struct column {
    char *name;
    uint32_t n; /* values so far */
    struct fr_buffer values;
};

struct columns {
    uint32_t n, capacity;
    struct column *list;
};

struct fr_tool_block {
    char *labels;
    uint32_t n_labels;
    const char *label[LABELS_MAX];
    uint32_t n;
    bool timed; /* its samples have t */
    struct columns slots, y;
    struct column fields[FIELDS]; /* t, w, u, s */
};

static const char *const field_names[FIELDS] = {"t", "w", "u", "s"};
/* The meaning of an absent field. For t no value means "the Kafka timestamp". */
static const uint8_t field_defaults[FIELDS] = {0xc0, 1, 3, 1};

struct fr_tool_block *fr_tool_block_new(const char *labels)
{
    struct fr_tool_block *block = fr_alloc(1, sizeof(*block));
    if (!labels)
        return block;
    size_t size = strlen(labels) + 1;
    block->labels = fr_alloc(size, 1);
    memcpy(block->labels, labels, size);
    for (char *at = block->labels; at && block->n_labels < LABELS_MAX;) {
        char *comma = strchr(at, ',');
        block->label[block->n_labels++] = at;
        if (comma)
            *comma++ = '\0';
        at = comma;
    }
    return block;
}

static void release_columns(struct columns *columns)
{
    for (uint32_t i = 0; i < columns->n; i++) {
        free(columns->list[i].name);
        fr_buffer_release(&columns->list[i].values);
    }
    free(columns->list);
}

void fr_tool_block_free(struct fr_tool_block *block)
{
    if (!block)
        return;
    release_columns(&block->slots);
    release_columns(&block->y);
    for (int i = 0; i < FIELDS; i++)
        fr_buffer_release(&block->fields[i].values);
    free(block->labels);
    free(block);
}

/* ---- input ---- */

static void pad(struct column *column, uint32_t n, uint8_t value)
{
    for (; column->n < n; column->n++)
        fr_put_u8(&column->values, value);
}

static struct column *find_column(struct columns *columns, const char *name, size_t size)
{
    for (uint32_t i = 0; i < columns->n; i++)
        if (strlen(columns->list[i].name) == size && memcmp(columns->list[i].name, name, size) == 0)
            return &columns->list[i];
    if (columns->n == columns->capacity) {
        columns->capacity = columns->capacity ? 2 * columns->capacity : 32;
        columns->list = fr_realloc(columns->list, columns->capacity, sizeof(*columns->list));
    }
    struct column *column = &columns->list[columns->n++];
    *column = (struct column){.name = fr_alloc(size + 1, 1)};
    memcpy(column->name, name, size);
    return column;
}

static void add_value(struct fr_tool_block *block, struct columns *columns, const char *name, size_t size,
                      const struct fr_tool_transcoder *sample, size_t at)
{
    struct column *column = find_column(columns, name, size);
    pad(column, block->n, 0xc0);
    /* ^a name twice in one sample: the first value is kept */
    if (column->n == block->n) {
        fr_tool_transcode_value(sample, at, &column->values);
        column->n++;
    }
}

static bool is_key(const struct fr_token *key, const char *text)
{
    return key->kind == FR_TOKEN_STRING && key->size == strlen(text) && memcmp(key->bytes, text, key->size) == 0;
}

/* Adds each value of a map to the column of its key. */
static void add_map(struct fr_tool_block *block, struct columns *columns, const struct fr_tool_transcoder *sample,
                    size_t at)
{
    uint32_t count = sample->tokens[at++].count;
    for (uint32_t i = 0; i < count; i++) {
        const struct fr_token *key = &sample->tokens[at];
        add_value(block, columns, (const char *)key->bytes, key->size, sample, at + 1);
        at = fr_tool_transcode_end(sample, at + 1);
    }
}

static void add_labels(struct fr_tool_block *block, const struct fr_tool_transcoder *sample, size_t at)
{
    const struct fr_token *y = &sample->tokens[at];
    if (y->kind == FR_TOKEN_MAP) {
        add_map(block, &block->y, sample, at);
        return;
    }
    bool list = y->kind == FR_TOKEN_ARRAY;
    for (uint32_t i = 0; i < (list ? y->count : 1); i++)
        add_value(block, &block->y, block->label[i], strlen(block->label[i]), sample, list ? at + 1 + i : at);
}

static enum fr_status check_labels(const struct fr_tool_block *block, const struct fr_tool_transcoder *sample,
                                   size_t at, struct fr_err *err)
{
    const struct fr_token *y = &sample->tokens[at];
    if (y->kind == FR_TOKEN_MAP || y->kind == FR_TOKEN_NIL)
        return FR_OK;
    if (y->kind == FR_TOKEN_ARRAY) {
        for (uint32_t i = 0; i < y->count; i++)
            if (fr_tool_transcode_end(sample, at + 1 + i) != at + 2 + i)
                return fr_err_set(err, FR_E_INVALID, "y[%" PRIu32 "] is no label", i);
    }
    uint32_t needed = y->kind == FR_TOKEN_ARRAY ? y->count : 1;
    if (needed > block->n_labels)
        return fr_err_set(err, FR_E_INVALID,
                          "y has %" PRIu32 " values without names, and a block names its labels: give --labels a,b",
                          needed);
    return FR_OK;
}

/* Checks the whole sample before anything is added. */
static enum fr_status check_sample(const struct fr_tool_block *block, const struct fr_tool_transcoder *sample,
                                   struct fr_err *err)
{
    if (sample->tokens[0].kind != FR_TOKEN_MAP)
        return fr_err_set(err, FR_E_INVALID, "only samples (maps with f) go into a block");
    size_t at = 1;
    bool has_f = false, has_t = false;
    for (uint32_t i = 0; i < sample->tokens[0].count; i++) {
        const struct fr_token *key = &sample->tokens[at], *value = key + 1;
        bool known = is_key(key, "f") || is_key(key, "y") || is_key(key, "id") ||
                     (key->size >= 2 && memcmp(key->bytes, "x_", 2) == 0);
        for (int f = 0; f < FIELDS; f++)
            known |= is_key(key, field_names[f]);
        if (!known)
            return fr_err_set(err, FR_E_INVALID, "`%.*s` has no place in a block; send samples or arrays",
                              (int)(key->size < 64 ? key->size : 64), (const char *)key->bytes);
        if (is_key(key, "f") && value->kind != FR_TOKEN_MAP)
            return fr_err_set(err, FR_E_INVALID, "f is no map");
        has_f |= is_key(key, "f");
        has_t |= is_key(key, "t");
        enum fr_status status = is_key(key, "y") ? check_labels(block, sample, at + 1, err) : FR_OK;
        if (status != FR_OK)
            return status;
        at = fr_tool_transcode_end(sample, at + 1);
    }
    if (!has_f)
        return fr_err_set(err, FR_E_INVALID, "only samples (maps with f) go into a block");
    if (block->n > 0 && has_t != block->timed)
        return fr_err_set(err, FR_E_INVALID, "t is in some samples only, which a block cannot say");
    return FR_OK;
}

enum fr_status fr_tool_block_add(struct fr_tool_block *block, const struct fr_tool_transcoder *sample,
                                 struct fr_err *err)
{
    enum fr_status status = check_sample(block, sample, err);
    if (status != FR_OK)
        return status;
    size_t at = 1;
    block->timed = false;
    for (uint32_t i = 0; i < sample->tokens[0].count; i++) {
        const struct fr_token *key = &sample->tokens[at];
        block->timed |= is_key(key, "t");
        if (is_key(key, "f"))
            add_map(block, &block->slots, sample, at + 1);
        else if (is_key(key, "y") && key[1].kind != FR_TOKEN_NIL)
            add_labels(block, sample, at + 1);
        for (int f = 0; f < FIELDS; f++) {
            struct column *field = &block->fields[f];
            if (!is_key(key, field_names[f]))
                continue;
            pad(field, block->n, field_defaults[f]);
            fr_tool_transcode_value(sample, at + 1, &field->values);
            field->n = block->n + 1;
        }
        at = fr_tool_transcode_end(sample, at + 1);
    }
    block->n++;
    return FR_OK;
}

/* ---- output ---- */

/* Writes the kept MessagePack as JSON text. */
static void write_json(const msgpack_object *value, struct fr_buffer *out)
{
    switch (value->type) {
    case MSGPACK_OBJECT_NIL:
        fr_buffer_printf(out, "null");
        break;
    case MSGPACK_OBJECT_BOOLEAN:
        fr_buffer_printf(out, value->via.boolean ? "true" : "false");
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        fr_buffer_printf(out, "%" PRIu64, value->via.u64);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        fr_buffer_printf(out, "%" PRId64, value->via.i64);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        fr_buffer_printf(out, "%.17g", value->via.f64);
        break;
    case MSGPACK_OBJECT_STR:
        fr_buffer_json_bytes(out, value->via.str.ptr, value->via.str.size);
        break;
    case MSGPACK_OBJECT_ARRAY:
        for (uint32_t i = 0; i < value->via.array.size; i++) {
            fr_put_u8(out, i ? ',' : '[');
            write_json(&value->via.array.ptr[i], out);
        }
        fr_buffer_printf(out, value->via.array.size ? "]" : "[]");
        break;
    case MSGPACK_OBJECT_MAP:
        for (uint32_t i = 0; i < value->via.map.size; i++) {
            fr_put_u8(out, i ? ',' : '{');
            write_json(&value->via.map.ptr[i].key, out);
            fr_put_u8(out, ':');
            write_json(&value->via.map.ptr[i].val, out);
        }
        fr_buffer_printf(out, value->via.map.size ? "}" : "{}");
        break;
    case MSGPACK_OBJECT_BIN:
    case MSGPACK_OBJECT_EXT:
        FR_CHECK(!"a value JSON does not have");
    }
}

static void put_text(struct fr_buffer *out, const char *text)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    msgpack_pack_str(&packer, strlen(text));
    msgpack_pack_str_body(&packer, text, strlen(text));
}

static void put_head(struct fr_buffer *out, bool map, uint32_t n)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    if (map)
        msgpack_pack_map(&packer, n);
    else
        msgpack_pack_array(&packer, n);
}

static void put_column(struct fr_tool_block *block, struct column *column, const char *name, uint8_t missing,
                       struct fr_buffer *out)
{
    pad(column, block->n, missing);
    put_text(out, name);
    put_head(out, false, block->n);
    fr_buffer_append(out, column->values.data, column->values.size);
    fr_buffer_clear(&column->values);
    column->n = 0;
}

static void put_columns(struct fr_tool_block *block, struct columns *columns, const char *name, struct fr_buffer *out)
{
    put_text(out, name);
    put_head(out, true, columns->n);
    for (uint32_t i = 0; i < columns->n; i++)
        put_column(block, &columns->list[i], columns->list[i].name, 0xc0, out);
}

static void write_msgpack(struct fr_tool_block *block, struct fr_buffer *out)
{
    uint32_t fields = 0;
    for (int f = 0; f < FIELDS; f++)
        fields += block->fields[f].n > 0;
    put_head(out, true, 3 + fields);
    put_text(out, "n");
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    msgpack_pack_uint32(&packer, block->n);
    put_columns(block, &block->slots, "cols", out);
    put_columns(block, &block->y, "y", out);
    for (int f = 0; f < FIELDS; f++)
        if (block->fields[f].n > 0)
            put_column(block, &block->fields[f], field_names[f], field_defaults[f], out);
    block->n = 0;
}

void fr_tool_block_write(struct fr_tool_block *block, bool json, struct fr_buffer *out)
{
    if (!json) {
        write_msgpack(block, out);
        return;
    }
    struct fr_buffer bytes = {0};
    write_msgpack(block, &bytes);
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    bool whole = msgpack_unpack_next(&unpacked, (const char *)bytes.data, bytes.size, NULL) == MSGPACK_UNPACK_SUCCESS;
    FR_CHECK(whole);
    write_json(&unpacked.data, out);
    msgpack_unpacked_destroy(&unpacked);
    fr_buffer_release(&bytes);
}
