/* Acknowledgements of replicas as JSON: see codec/acknowledgement.h. A reader ignores keys that it
 * does not know; if a key occurs twice, the last value counts.
 *
 * Thread: any, no state. */
#include "codec/acknowledgement.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cursor.h"
#include "base/json.h"

enum { MODEL_MAX = 128 };
#define TIME_MAX INT64_C(253402300799999) /* the last millisecond of the year 9999 */

#define FIELDS(FIELD)                                                                                                  \
    FIELD(VERSION, "v")                                                                                                \
    FIELD(MODEL, "m")                                                                                                  \
    FIELD(NAME, "name")                                                                                                \
    FIELD(TIMELINE, "tl")                                                                                              \
    FIELD(EPOCH, "e")                                                                                                  \
    FIELD(WRITTEN, "t")                                                                                                \
    FIELD(CUT, "cut")                                                                                                  \
    FIELD(WATERMARK, "wm")                                                                                             \
    FIELD(ROWS, "rows")                                                                                                \
    FIELD(SCORES, "scores")                                                                                            \
    FIELD(PROBLEM, "problem")                                                                                          \
    FIELD(LEAVING, "leaving")
#define NAME(field, text) FIELD_##field,
enum field { FIELDS(NAME) UNKNOWN };
#undef NAME
#define TEXT(field, text) text,
static const char *const names[] = {FIELDS(TEXT)};
#undef TEXT
#define BIT(field) (1u << FIELD_##field)
enum { REQUIRED = BIT(VERSION) | BIT(MODEL) | BIT(NAME) | BIT(TIMELINE) | BIT(EPOCH) };

bool fr_acknowledgement_name_is_sound(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return size > 0 && size <= FR_REPLICA_NAME_MAX && fr_utf8_valid((const uint8_t *)name, size);
}

/* ---- writing ---- */

static void put_time(struct fr_json *json, enum field field, int64_t ms)
{
    if (ms > 0)
        fr_json_i64(json, names[field], ms);
}

void fr_acknowledgement_write(const struct fr_acknowledgement *acknowledgement, const char *model,
                              struct fr_buffer *out)
{
    char problem[FR_REPLICA_PROBLEM_MAX + 1];
    snprintf(problem, sizeof(problem), "%s", acknowledgement->problem);
    for (size_t size = strlen(problem); !fr_utf8_valid((const uint8_t *)problem, size);)
        problem[--size] = '\0';
    struct fr_json json = {.out = out};
    fr_json_object(&json, NULL);
    fr_json_u64(&json, names[FIELD_VERSION], FR_ACKNOWLEDGEMENT_VERSION);
    fr_json_text(&json, names[FIELD_MODEL], model);
    fr_json_text(&json, names[FIELD_NAME], acknowledgement->name);
    fr_json_u64(&json, names[FIELD_TIMELINE], acknowledgement->timeline);
    fr_json_u64(&json, names[FIELD_EPOCH], acknowledgement->epoch);
    put_time(&json, FIELD_WRITTEN, acknowledgement->written_ms);
    put_time(&json, FIELD_CUT, acknowledgement->cut_ms);
    put_time(&json, FIELD_WATERMARK, acknowledgement->watermark_ms);
    if (acknowledgement->has_rows)
        fr_json_u64(&json, names[FIELD_ROWS], acknowledgement->rows);
    if (acknowledgement->has_scores)
        fr_json_number(&json, names[FIELD_SCORES], acknowledgement->scores_per_second);
    if (problem[0])
        fr_json_text(&json, names[FIELD_PROBLEM], problem);
    if (acknowledgement->leaving)
        fr_json_bool(&json, names[FIELD_LEAVING], true);
    fr_json_end(&json);
}

/* ---- reading ---- */

/* A record while it is read. */
struct reading {
    struct fr_acknowledgement found;
    char model[MODEL_MAX + 1];
    uint64_t version;
    unsigned have; /* bit set of fields */
};

static enum field field_of(const struct fr_token *key)
{
    for (size_t i = 0; i < UNKNOWN; i++)
        if (strlen(names[i]) == key->size && memcmp(names[i], key->bytes, key->size) == 0)
            return (enum field)i;
    return UNKNOWN;
}

/* Copies a text; one that is too long is cut between two characters. */
static bool read_cut(const struct fr_token *value, char *out, size_t max)
{
    if (value->kind != FR_TOKEN_STRING)
        return false;
    size_t size = value->size < max ? value->size : max;
    while (size < value->size && size > 0 && (value->bytes[size] & 0xc0) == 0x80)
        size--;
    memcpy(out, value->bytes, size);
    out[size] = '\0';
    return true;
}

static bool read_name(const struct fr_token *value, char *out, size_t max)
{
    return value->kind == FR_TOKEN_STRING && value->size <= max &&
           fr_acknowledgement_name_is_sound((const char *)value->bytes, value->size) && read_cut(value, out, max);
}

static bool read_unsigned(const struct fr_token *value, uint64_t *out)
{
    *out = value->u;
    return value->kind == FR_TOKEN_UINT;
}

static bool read_time(const struct fr_token *value, int64_t *out)
{
    *out = value->i;
    return value->kind == FR_TOKEN_UINT && value->u <= (uint64_t)TIME_MAX;
}

static bool read_scores(const struct fr_token *value, double *out)
{
    bool is_float = value->kind == FR_TOKEN_FLOAT;
    *out = is_float ? value->f : (double)value->u;
    return (is_float || value->kind == FR_TOKEN_UINT) && isfinite(*out) && *out >= 0;
}

static bool read_field(struct reading *reading, enum field field, const struct fr_token *value)
{
    struct fr_acknowledgement *found = &reading->found;
    switch (field) {
    case FIELD_VERSION:
        return read_unsigned(value, &reading->version) && reading->version == FR_ACKNOWLEDGEMENT_VERSION;
    case FIELD_MODEL:
        return read_name(value, reading->model, MODEL_MAX);
    case FIELD_NAME:
        return read_name(value, found->name, FR_REPLICA_NAME_MAX);
    case FIELD_TIMELINE:
        return read_unsigned(value, &found->timeline);
    case FIELD_EPOCH:
        return read_unsigned(value, &found->epoch);
    case FIELD_WRITTEN:
        return read_time(value, &found->written_ms);
    case FIELD_CUT:
        return read_time(value, &found->cut_ms);
    case FIELD_WATERMARK:
        return read_time(value, &found->watermark_ms);
    case FIELD_ROWS:
        return found->has_rows = read_unsigned(value, &found->rows);
    case FIELD_SCORES:
        return found->has_scores = read_scores(value, &found->scores_per_second);
    case FIELD_PROBLEM:
        return read_cut(value, found->problem, FR_REPLICA_PROBLEM_MAX);
    case FIELD_LEAVING:
        found->leaving = value->i != 0;
        return value->kind == FR_TOKEN_BOOL;
    case UNKNOWN:
        break;
    }
    return true;
}

/* Reads all members; null stands for a member that is absent. */
static enum fr_status read_members(struct fr_cursor *cursor, struct reading *reading)
{
    struct fr_token token;
    enum fr_status status = fr_cursor_next(cursor, &token);
    if (status == FR_OK && token.kind != FR_TOKEN_MAP)
        return FR_E_INVALID;
    while (status == FR_OK && (status = fr_cursor_next(cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        enum field field = field_of(&token);
        if (field == UNKNOWN) {
            status = fr_cursor_pass(cursor);
            continue;
        }
        if ((status = fr_cursor_next(cursor, &token)) != FR_OK || token.kind == FR_TOKEN_NIL)
            continue;
        if (!read_field(reading, field, &token))
            return FR_E_INVALID;
        reading->have |= 1u << field;
    }
    return status == FR_OK ? fr_cursor_next(cursor, &token) : status; /* FR_EOF: nothing follows */
}

enum fr_status fr_acknowledgement_parse(const void *bytes, size_t size, const char *model,
                                        struct fr_acknowledgement *out)
{
    struct reading reading = {.version = 0};
    struct fr_buffer scratch = {0};
    struct fr_cursor cursor;
    if (size > FR_ACKNOWLEDGEMENT_BYTES_MAX)
        return FR_E_INVALID;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, bytes, size, &scratch);
    enum fr_status status = read_members(&cursor, &reading);
    fr_buffer_release(&scratch);
    if (status != FR_EOF || (reading.have & REQUIRED) != REQUIRED)
        return FR_E_INVALID;
    if (strcmp(reading.model, model) != 0)
        return FR_E_MISMATCH;
    *out = reading.found;
    return FR_OK;
}
