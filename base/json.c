/* The writer of JSON (json.h). It keeps no tree: what is opened is a stack of closing brackets. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>

#include "base/check.h"

/* What stands before a value. */
static void begin(struct fr_json *json, const char *name)
{
    if (json->follows)
        fr_put_u8(json->out, ',');
    if (json->breaks)
        fr_put_u8(json->out, '\n');
    json->follows = true;
    json->breaks = false;
    if (!name)
        return;
    fr_buffer_json_text(json->out, name);
    fr_put_u8(json->out, ':');
}

static void open_nested(struct fr_json *json, const char *name, char bracket, char end)
{
    FR_CHECK(json->depth < FR_JSON_DEPTH_MAX);
    begin(json, name);
    fr_put_u8(json->out, (uint8_t)bracket);
    json->ends[json->depth++] = end;
    json->follows = false;
}

void fr_json_object(struct fr_json *json, const char *name)
{
    open_nested(json, name, '{', '}');
}

void fr_json_array(struct fr_json *json, const char *name)
{
    open_nested(json, name, '[', ']');
}

void fr_json_end(struct fr_json *json)
{
    FR_CHECK(json->depth > 0);
    fr_put_u8(json->out, (uint8_t)json->ends[--json->depth]);
    json->follows = true;
    json->breaks = false;
}

void fr_json_break(struct fr_json *json)
{
    json->breaks = true;
}

void fr_json_text(struct fr_json *json, const char *name, const char *text)
{
    if (!text) {
        fr_json_null(json, name);
        return;
    }
    begin(json, name);
    fr_buffer_json_text(json->out, text);
}

void fr_json_u64(struct fr_json *json, const char *name, uint64_t value)
{
    begin(json, name);
    fr_buffer_printf(json->out, "%" PRIu64, value);
}

void fr_json_i64(struct fr_json *json, const char *name, int64_t value)
{
    begin(json, name);
    fr_buffer_printf(json->out, "%" PRId64, value);
}

void fr_json_number(struct fr_json *json, const char *name, double value)
{
    begin(json, name);
    fr_buffer_printf(json->out, isfinite(value) ? "%.9g" : "null", value);
}

void fr_json_exact(struct fr_json *json, const char *name, double value)
{
    begin(json, name);
    fr_buffer_printf(json->out, isfinite(value) ? "%.17g" : "null", value);
}

void fr_json_floats(struct fr_json *json, const char *name, const void *values, uint64_t count)
{
    fr_json_array(json, name);
    for (uint64_t i = 0; i < count; i++) {
        begin(json, NULL);
        fr_buffer_number(json->out, fr_load_f32((const uint8_t *)values + i * sizeof(float)));
    }
    fr_json_end(json);
}

void fr_json_id(struct fr_json *json, const char *name, uint64_t value)
{
    begin(json, name);
    fr_buffer_printf(json->out, "\"%" PRIu64 "\"", value);
}

void fr_json_hash(struct fr_json *json, const char *name, uint64_t value)
{
    begin(json, name);
    fr_buffer_printf(json->out, "\"0x%016" PRIx64 "\"", value);
}

void fr_json_bool(struct fr_json *json, const char *name, bool value)
{
    begin(json, name);
    fr_buffer_printf(json->out, value ? "true" : "false");
}

void fr_json_null(struct fr_json *json, const char *name)
{
    begin(json, name);
    fr_buffer_printf(json->out, "null");
}
