/* See import_lines.h.
 *
 * A line is walked once, and the place of each value is recorded. Then the values are read in the
 * order in which they depend on each other. So keys may come in any order, and an unknown key is
 * refused before any value is read.
 *
 * Thread: one. Which keys or parameters came before is known to the visitors only. */
#include "import/import_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/hash.h"
#include "decode/decoder.h"
#include "input.h"
#include "ops/row.h"

#define FIELDS(FIELD)                                                                                                  \
    FIELD(TABLE, "table")                                                                                              \
    FIELD(KEY, "key")                                                                                                  \
    FIELD(ID, "id")                                                                                                    \
    FIELD(SLOT, "slot")                                                                                                \
    FIELD(PARTS, "parts")                                                                                              \
    FIELD(STATE, "state")                                                                                              \
    FIELD(SEEN, "seen_ms")                                                                                             \
    FIELD(SHOW, "show")                                                                                                \
    FIELD(CLICK, "click")                                                                                              \
    FIELD(DENSE, "dense")                                                                                              \
    FIELD(SHAPE, "shape")                                                                                              \
    FIELD(VALUES, "values")                                                                                            \
    FIELD(SAMPLES, "samples")                                                                                          \
    FIELD(ROWS, "rows")                                                                                                \
    FIELD(TIMELINE, "tl")                                                                                              \
    FIELD(EPOCH, "epoch")                                                                                              \
    FIELD(WATERMARK, "wm")                                                                                             \
    FIELD(HASH, "hash")
#define FIELD_MEMBER(field, text) FIELD_##field,
#define FIELD_TEXT(field, text) text,
enum field { FIELDS(FIELD_MEMBER) FIELD_COUNT };
static const char *const field_names[] = {FIELDS(FIELD_TEXT)};
#define BIT(field) (1u << FIELD_##field)

enum { SHOWN_MAX = 64, TEXT_MAX = 160 };

struct reading {
    const struct fr_tool_import_file *file;
    const struct fr_conf *conf;
    const struct fr_row_layout *layouts;
    struct fr_err *err;
    uint32_t table;              /* the table of the row that is being read */
    struct fr_xxh3_stream *hash; /* hash of the lines so far; NULL: the file is not a dump */
    struct fr_buffer scratch;    /* for JSON strings with escapes */
    struct fr_buffer floats;
    struct fr_cursor places[FIELD_COUNT]; /* the place before each value */
    uint32_t present;                     /* one bit per field */
    uint64_t lines;                       /* lines with a row or a parameter */
    bool ended;
};

static enum fr_status bad(struct reading *r, const char *what)
{
    return fr_err_set(r->err, FR_E_INVALID, "%s", what);
}

static bool is_text(const struct fr_token *token, const char *text)
{
    return token->kind == FR_TOKEN_STRING && token->size == strlen(text) &&
           memcmp(token->bytes, text, token->size) == 0;
}

static int shown(const struct fr_token *token)
{
    return token->size < SHOWN_MAX ? (int)token->size : SHOWN_MAX;
}

static enum fr_status not_json(struct reading *r, const struct fr_cursor *cursor)
{
    return fr_err_set(r->err, FR_E_INVALID, "not JSON at byte %zu: %s", fr_cursor_offset(cursor),
                      cursor->problem ? cursor->problem : "the value ends too early");
}

/* ---- the line ---- */

static enum fr_status read_field(struct reading *r, const struct fr_token *name, struct fr_cursor *cursor)
{
    enum field field = 0;
    enum field end = r->file->dump ? FIELD_COUNT : FIELD_TIMELINE;
    while (field < end && !is_text(name, field_names[field]))
        field++;
    if (field == end)
        return fr_err_set(r->err, FR_E_INVALID, "unknown key \"%.*s\"", shown(name), (const char *)name->bytes);
    if (r->present & 1u << field)
        return fr_err_set(r->err, FR_E_INVALID, "\"%s\" comes twice", field_names[field]);
    r->present |= 1u << field;
    r->places[field] = *cursor;
    struct fr_token value;
    if (fr_cursor_next(cursor, &value) != FR_OK || fr_cursor_skip(cursor, &value) != FR_OK)
        return not_json(r, cursor);
    return FR_OK;
}

/* Recognizes files for the Python package that were given to this command by mistake. */
static const char *foreign_format(const char *line, size_t size)
{
    static const struct {
        const char *magic, *what;
    } formats[] = {{"PAR1", "a Parquet file"}, {"PK\003\004", "an archive, as .npz is"}, {"\223NUM", "a NumPy array"}};
    for (size_t i = 0; i < FR_ARRAY_LEN(formats); i++)
        if (size >= 4 && memcmp(line, formats[i].magic, 4) == 0)
            return formats[i].what;
    return NULL;
}

static enum fr_status read_fields(struct reading *r, const char *line, size_t size)
{
    const char *foreign = foreign_format(line, size);
    if (foreign)
        return fr_err_set(r->err, FR_E_INVALID, "%s: `python -m freshet import` reads it, this command JSON Lines",
                          foreign);
    struct fr_cursor cursor;
    struct fr_token token;
    enum fr_status status = FR_OK;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, line, size, &r->scratch);
    r->present = 0;
    if (fr_cursor_next(&cursor, &token) != FR_OK)
        return not_json(r, &cursor);
    if (token.kind != FR_TOKEN_MAP)
        return bad(r, "not an object");
    while (status == FR_OK) {
        if (fr_cursor_next(&cursor, &token) != FR_OK)
            return not_json(r, &cursor);
        if (token.kind == FR_TOKEN_END)
            break;
        status = read_field(r, &token, &cursor);
    }
    if (status == FR_OK && fr_cursor_next(&cursor, &token) != FR_EOF)
        return not_json(r, &cursor);
    return status;
}

/* Returns the value of a field that is present. The walk has shown that it is JSON. */
static struct fr_token value_of(struct reading *r, enum field field, struct fr_cursor *cursor)
{
    struct fr_token token = {0};
    *cursor = r->places[field];
    FR_CHECK(fr_cursor_next(cursor, &token) == FR_OK);
    return token;
}

/* ---- numbers ---- */

static bool number_of(const struct fr_token *token, double *out)
{
    if (token->kind == FR_TOKEN_UINT)
        *out = (double)token->u;
    else if (token->kind == FR_TOKEN_INT)
        *out = (double)token->i;
    else if (token->kind == FR_TOKEN_FLOAT)
        *out = token->f;
    else
        return false;
    return true;
}

/* Appends an array of numbers within +-most to `floats`. */
static enum fr_status read_floats(struct reading *r, struct fr_cursor *cursor, const char *what, float most,
                                  uint64_t *count)
{
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_ARRAY)
        return fr_err_set(r->err, FR_E_INVALID, "%s: expected an array of numbers", what);
    for (*count = 0; fr_cursor_next(cursor, &token) == FR_OK && token.kind != FR_TOKEN_END; ++*count) {
        double number;
        if (!number_of(&token, &number))
            return fr_err_set(r->err, FR_E_INVALID, "%s[%" PRIu64 "] is not a number", what, *count);
        if (!(fabs(number) <= (double)most))
            return fr_err_set(r->err, FR_E_INVALID, "%s[%" PRIu64 "] is %.9g: at most %.9g can be kept", what, *count,
                              number, (double)most);
        float value = (float)number;
        fr_buffer_append(&r->floats, &value, sizeof(value));
    }
    return FR_OK;
}

static enum fr_status read_count(struct reading *r, enum field field, double most, double *out)
{
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, field, &cursor);
    if (!number_of(&token, out) || !(*out >= 0.0 && *out <= most))
        return fr_err_set(r->err, FR_E_INVALID, "\"%s\": expected a number from 0 to %.9g", field_names[field], most);
    return FR_OK;
}

/* ---- rows ---- */

static enum fr_status read_key(struct reading *r, uint64_t *out)
{
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, FIELD_KEY, &cursor);
    char text[24], *end;
    if (token.kind == FR_TOKEN_UINT) {
        *out = token.u;
        return FR_OK;
    }
    if (token.kind == FR_TOKEN_STRING && token.size > 0 && token.size < sizeof(text)) {
        memcpy(text, token.bytes, token.size);
        text[token.size] = '\0';
        errno = 0;
        *out = strtoull(text, &end, 10);
        if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0)
            return FR_OK;
    }
    return bad(r, "\"key\": expected a key, an integer from 0 to 2^64 - 1 (of raw ids give \"id\")");
}

/* Returns, among the slots of a table that the samples carry, the named one, or any if all of them
 * make the same keys; NULL: err contains the reason. */
static const struct fr_conf_slot *read_slot(struct reading *r)
{
    const struct fr_conf_slot *found = NULL;
    struct fr_cursor cursor;
    struct fr_token name = {0};
    bool named = r->present & BIT(SLOT);
    if (named)
        name = value_of(r, FIELD_SLOT, &cursor);
    for (uint32_t s = 0; s < r->conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &r->conf->slots[s];
        if (slot->table != (int32_t)r->table || slot->source != FR_SOURCE_SAMPLE ||
            (named && !is_text(&name, slot->name)))
            continue;
        if (found && (found->seed != slot->seed || found->id_raw != slot->id_raw)) {
            (void)fr_err_set(r->err, FR_E_INVALID,
                             "slots %s and %s of the table make different keys of an id: say which with \"slot\"",
                             found->name, slot->name);
            return NULL;
        }
        found = slot;
    }
    if (!found)
        (void)bad(r, named ? "\"slot\": no slot of this name with raw ids reads the table"
                           : "no slot with raw ids reads the table: give \"key\"");
    return found;
}

static enum fr_status read_id(struct reading *r, uint64_t *out)
{
    const struct fr_conf_slot *slot = read_slot(r);
    if (!slot)
        return FR_E_INVALID;
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, FIELD_ID, &cursor);
    if (token.kind == FR_TOKEN_STRING)
        *out = fr_key_string(token.bytes, token.size, slot->seed, slot->id_raw);
    else if (token.kind == FR_TOKEN_UINT || token.kind == FR_TOKEN_INT)
        *out = fr_key_integer(token.kind == FR_TOKEN_UINT ? token.u : (uint64_t)token.i, slot->seed);
    else
        return bad(r, "\"id\": expected a string or an integer, as samples carry it");
    return FR_OK;
}

static enum fr_status read_which(struct reading *r, uint64_t *key)
{
    bool by_key = r->present & BIT(KEY), by_id = r->present & BIT(ID);
    if (by_key == by_id)
        return bad(r, by_key ? "\"key\" and \"id\" exclude each other" : "neither \"key\" nor \"id\"");
    if (by_key && r->present & BIT(SLOT))
        return bad(r, "\"slot\" belongs to \"id\", not to \"key\"");
    return by_key ? read_key(r, key) : read_id(r, key);
}

static enum fr_status check_state(struct reading *r, const struct fr_conf_part *part, const float *state, uint32_t n)
{
    for (uint32_t j = fr_optimizer_first_state_signed(part->optimizer.kind) ? part->dim : 0; j < n; j++)
        if (state[j] < 0.0f)
            return fr_err_set(r->err, FR_E_INVALID, "state.%s[%u] is %.9g, and is never negative with %s", part->name,
                              j, (double)state[j], fr_optimizer_kind_text(part->optimizer.kind));
    return FR_OK;
}

/* Reads "parts" or "state" into the row. */
static enum fr_status read_parts(struct reading *r, enum field field, float *row)
{
    const struct fr_conf_table *table = &r->conf->tables[r->table];
    const struct fr_row_layout *layout = &r->layouts[r->table];
    bool state = field == FIELD_STATE;
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, field, &cursor);
    uint32_t taken = 0;
    if (token.kind != FR_TOKEN_MAP)
        return fr_err_set(r->err, FR_E_INVALID, "\"%s\": expected a map from part to numbers", field_names[field]);
    while (fr_cursor_next(&cursor, &token) == FR_OK && token.kind != FR_TOKEN_END) {
        uint32_t p = 0;
        while (p < table->n_parts && !is_text(&token, table->parts[p].name))
            p++;
        if (p == table->n_parts)
            return fr_err_set(r->err, FR_E_INVALID, "table %s has no part \"%.*s\"", table->name, shown(&token),
                              (const char *)token.bytes);
        if (taken & 1u << p)
            return fr_err_set(r->err, FR_E_INVALID, "%s.%s comes twice", field_names[field], table->parts[p].name);
        taken |= 1u << p;
        char what[TEXT_MAX];
        uint64_t count = 0;
        uint32_t n = state ? layout->parts[p].state_floats : layout->parts[p].dim;
        snprintf(what, sizeof(what), "%s.%s", field_names[field], table->parts[p].name);
        fr_buffer_clear(&r->floats);
        enum fr_status status = read_floats(r, &cursor, what, state ? FR_STATE_MAX : FR_VALUE_MAX, &count);
        if (status == FR_OK && count != n)
            status = fr_err_set(r->err, FR_E_INVALID, "%s has %" PRIu64 " numbers, and the configuration says %u%s",
                                what, count, n, state ? " (docs/python.md: state of optimizers)" : "");
        if (status == FR_OK && state)
            status = check_state(r, &table->parts[p], (const float *)(const void *)r->floats.data, n);
        if (status != FR_OK)
            return status;
        if (n > 0)
            memcpy(row + (state ? layout->parts[p].state_offset : layout->parts[p].value_offset), r->floats.data,
                   n * sizeof(float));
    }
    for (uint32_t p = 0; p < table->n_parts && !state; p++)
        if (!(taken & 1u << p))
            return fr_err_set(r->err, FR_E_INVALID, "part \"%s\" is missing: a row has all parts of its table",
                              table->parts[p].name);
    return FR_OK;
}

static enum fr_status read_head(struct reading *r, struct fr_row_head *out)
{
    const double whole = 9007199254740992.0; /* 2^53: integers that JSON readers agree on */
    double seen = (double)r->file->seen_ms, show = 0.0, click = 0.0;
    enum fr_status status = FR_OK;
    if (r->present & BIT(SEEN))
        status = read_count(r, FIELD_SEEN, whole, &seen);
    if (status == FR_OK && r->present & BIT(SHOW))
        status = read_count(r, FIELD_SHOW, whole, &show);
    if (status == FR_OK && r->present & BIT(CLICK))
        status = read_count(r, FIELD_CLICK, whole, &click);
    *out = (struct fr_row_head){.seen_ms = (int64_t)seen, .show = (uint64_t)show, .click = click};
    return status;
}

static enum fr_status find_table(struct reading *r)
{
    struct fr_cursor cursor;
    struct fr_token name = {0};
    if (r->present & BIT(TABLE))
        name = value_of(r, FIELD_TABLE, &cursor);
    for (r->table = 0; r->file->dump && r->table < r->conf->n_tables; r->table++)
        if (is_text(&name, r->conf->tables[r->table].name))
            return FR_OK;
    if (r->file->dump)
        return fr_err_set(r->err, FR_E_MISMATCH, "the model has no table %.*s", shown(&name), (const char *)name.bytes);
    r->table = (uint32_t)r->file->table;
    const char *expected = r->conf->tables[r->table].name;
    if (r->present & BIT(TABLE) && !is_text(&name, expected))
        return fr_err_set(r->err, FR_E_INVALID, "a row of another table than %s", expected);
    return FR_OK;
}

static enum fr_status read_row(struct reading *r, const struct fr_tool_import_visitor *visitor, float *row)
{
    static const uint32_t known =
        BIT(TABLE) | BIT(KEY) | BIT(ID) | BIT(SLOT) | BIT(PARTS) | BIT(STATE) | BIT(SEEN) | BIT(SHOW) | BIT(CLICK);
    if (r->present & ~known)
        return bad(r, "not a row of a table: it has keys of a dense parameter");
    enum fr_status status = find_table(r);
    if (status != FR_OK)
        return status;
    const struct fr_row_layout *layout = &r->layouts[r->table];
    struct fr_tool_import_row out = {.table = r->table, .floats = row};
    if (!(r->present & BIT(PARTS)))
        return bad(r, "\"parts\" is missing");
    for (uint32_t p = 0; p < layout->n_parts; p++)
        for (uint32_t j = 0; j < layout->parts[p].state_floats; j++)
            row[layout->parts[p].state_offset + j] = layout->parts[p].state_initial;
    status = read_which(r, &out.key);
    if (status == FR_OK)
        status = read_head(r, &out.head);
    if (status == FR_OK)
        status = read_parts(r, FIELD_PARTS, row);
    if (status == FR_OK && r->present & BIT(STATE))
        status = read_parts(r, FIELD_STATE, row);
    return status == FR_OK ? visitor->row(visitor->self, &out, r->err) : status;
}

/* ---- dense parameters ---- */

static enum fr_status read_shape(struct reading *r, struct fr_tool_import_dense *out)
{
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, FIELD_SHAPE, &cursor);
    out->shape[0] = out->shape[1] = 1;
    if (token.kind != FR_TOKEN_ARRAY)
        return bad(r, "\"shape\": expected one or two numbers");
    while (fr_cursor_next(&cursor, &token) == FR_OK && token.kind != FR_TOKEN_END) {
        if (token.kind != FR_TOKEN_UINT || token.u == 0 || token.u > UINT32_MAX || out->n_dims == 2)
            return bad(r, "\"shape\": expected one or two numbers, from 1 on");
        out->shape[out->n_dims++] = (uint32_t)token.u;
    }
    return out->n_dims > 0 ? FR_OK : bad(r, "\"shape\" is empty");
}

/* Reads the optimizer's arrays, which follow the values. */
static enum fr_status read_dense_state(struct reading *r, struct fr_tool_import_dense *out)
{
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, FIELD_STATE, &cursor);
    enum fr_status status = FR_OK;
    double samples = 0.0;
    if (token.kind != FR_TOKEN_ARRAY)
        return bad(r, "\"state\": expected a list of arrays of numbers");
    for (;;) {
        struct fr_cursor ahead = cursor;
        char what[TEXT_MAX];
        uint64_t count = 0;
        if (fr_cursor_next(&ahead, &token) != FR_OK || token.kind == FR_TOKEN_END)
            break;
        snprintf(what, sizeof(what), "state[%u]", out->n_states);
        status = read_floats(r, &cursor, what, FR_STATE_MAX, &count);
        if (status == FR_OK && count != out->n_values)
            status = fr_err_set(r->err, FR_E_INVALID, "%s has %" PRIu64 " numbers, and values %" PRIu64, what, count,
                                out->n_values);
        if (status != FR_OK)
            return status;
        out->n_states++;
    }
    status = read_count(r, FIELD_SAMPLES, 9007199254740992.0, &samples);
    out->samples = (uint64_t)samples;
    return status;
}

static enum fr_status read_dense(struct reading *r, const struct fr_tool_import_visitor *visitor)
{
    static const uint32_t all = BIT(DENSE) | BIT(SHAPE) | BIT(VALUES), more = BIT(STATE) | BIT(SAMPLES);
    struct fr_tool_import_dense out = {0};
    if (r->present != all && r->present != (all | more))
        return bad(r, "a dense parameter has the keys dense, shape and values, and state and samples or neither");
    struct fr_cursor cursor;
    struct fr_token name = value_of(r, FIELD_DENSE, &cursor);
    if (name.kind != FR_TOKEN_STRING || name.size >= sizeof(out.name))
        return bad(r, "\"dense\": expected the name of a parameter");
    memcpy(out.name, name.bytes, name.size);
    enum fr_status status = read_shape(r, &out);
    if (status != FR_OK)
        return status;
    fr_buffer_clear(&r->floats);
    status = read_floats(r, &r->places[FIELD_VALUES], "values", FR_VALUE_MAX, &out.n_values);
    if (status == FR_OK && out.n_values != (uint64_t)out.shape[0] * out.shape[1])
        status = fr_err_set(r->err, FR_E_INVALID, "%s has %" PRIu64 " values, and its shape says %" PRIu64, out.name,
                            out.n_values, (uint64_t)out.shape[0] * out.shape[1]);
    if (status == FR_OK && r->present & BIT(STATE))
        status = read_dense_state(r, &out);
    out.values = (const float *)(const void *)r->floats.data;
    out.state = r->present & BIT(STATE) ? out.values + out.n_values : NULL;
    return status == FR_OK ? visitor->dense(visitor->self, &out, r->err) : status;
}

/* ---- the file ---- */

static enum fr_status read_end(struct reading *r)
{
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, FIELD_ROWS, &cursor);
    if (r->present != BIT(ROWS) || token.kind != FR_TOKEN_UINT || token.u != r->lines)
        return fr_err_set(r->err, FR_E_INVALID, "the closing line does not say {\"rows\":%" PRIu64 "}", r->lines);
    r->ended = true;
    return FR_OK;
}

static uint64_t whole_of(struct reading *r, enum field field, uint32_t *n_found)
{
    struct fr_cursor cursor;
    struct fr_token token = value_of(r, field, &cursor);
    *n_found += token.kind == FR_TOKEN_UINT;
    return token.u;
}

static enum fr_status read_dump_end(struct reading *r)
{
    struct fr_tool_import_end *out = r->file->dump;
    char text[19] = {0};
    uint32_t n_found = 0;
    if (r->present != (BIT(TIMELINE) | BIT(EPOCH) | BIT(WATERMARK) | BIT(SAMPLES) | BIT(HASH)))
        return bad(r, "the closing line is not that of a public dump");
    out->end.timeline = whole_of(r, FIELD_TIMELINE, &n_found);
    out->end.epoch = whole_of(r, FIELD_EPOCH, &n_found);
    out->end.wm_ms = (int64_t)whole_of(r, FIELD_WATERMARK, &n_found);
    out->end.samples = whole_of(r, FIELD_SAMPLES, &n_found);
    struct fr_cursor cursor;
    struct fr_token hash = value_of(r, FIELD_HASH, &cursor);
    if (n_found != 4 || hash.kind != FR_TOKEN_STRING || hash.size != 18)
        return bad(r, "the closing line is not that of a public dump");
    memcpy(text, hash.bytes, hash.size);
    out->hash = strtoull(text, NULL, 16);
    r->ended = true;
    return out->hash == fr_xxh3_stream_digest(r->hash)
               ? FR_OK
               : fr_err_set(r->err, FR_E_CORRUPT, "the hash does not fit the lines before it");
}

static enum fr_status read_line(struct reading *r, const struct fr_line *line,
                                const struct fr_tool_import_visitor *visitor, float *row)
{
    if (r->ended)
        return bad(r, "something follows the closing line");
    enum fr_status status = read_fields(r, line->value, line->size);
    if (status != FR_OK)
        return status;
    if (r->present & BIT(ROWS))
        return read_end(r);
    if (r->present & BIT(TIMELINE))
        return read_dump_end(r);
    bool dense = r->file->dump ? r->present & BIT(DENSE) : r->file->table == FR_NO_INDEX;
    status = dense ? read_dense(r, visitor) : read_row(r, visitor, row);
    r->lines++;
    if (r->hash) {
        fr_xxh3_stream_update(r->hash, line->value, line->size);
        fr_xxh3_stream_update(r->hash, "\n", 1);
    }
    return status;
}

enum fr_status fr_tool_import_read(const struct fr_tool_import_file *file, const struct fr_conf *conf,
                                   const struct fr_row_layout *layouts, const struct fr_tool_import_visitor *visitor,
                                   struct fr_err *err)
{
    struct reading r = {.file = file, .conf = conf, .layouts = layouts, .err = err};
    size_t floats = 1; /* floats of the longest row */
    struct fr_lines *lines = NULL;
    struct fr_line line;
    enum fr_status status = fr_tool_lines_open(file->path, &lines, err);
    if (status != FR_OK)
        return status;
    for (uint32_t t = 0; t < conf->n_tables; t++)
        floats = layouts[t].row_floats > floats ? layouts[t].row_floats : floats;
    float *row = fr_alloc(floats, sizeof(*row));
    r.hash = file->dump ? fr_xxh3_stream_new() : NULL;
    while ((status = fr_tool_lines_next(lines, file->path, &line, err)) == FR_OK) {
        if (fr_lines_blank(&line))
            continue;
        status = read_line(&r, &line, visitor, row);
        if (status != FR_OK) {
            status = fr_err_wrap(err, "%s, line %" PRId64, file->path, line.number + 1);
            break;
        }
    }
    if (status == FR_EOF && (file->closed || file->dump) && !r.ended)
        status = fr_err_set(err, FR_E_INVALID, "%s ends without its closing line: it is cut short", file->path);
    fr_lines_free(lines);
    fr_buffer_release(&r.scratch);
    fr_buffer_release(&r.floats);
    fr_xxh3_stream_free(r.hash);
    free(row);
    return status == FR_EOF ? FR_OK : status;
}
