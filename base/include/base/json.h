/* Writes JSON into a buffer: commas, quotes and closing brackets are the writer's, so that a
 * document is one line of code for each member. Reading JSON is cursor.h's.
 *
 *     struct fr_json json = {.out = &buffer};
 *     fr_json_object(&json, NULL);
 *     fr_json_u64(&json, "epoch", 7);
 *     fr_json_array(&json, "lags");
 *     fr_json_number(&json, NULL, 0.5);
 *     fr_json_end(&json);
 *     fr_json_end(&json);              {"epoch":7,"lags":[0.5]}
 *
 * `name` is the member's name in an object, and NULL in an array and at the top. Names and texts
 * are escaped as fr_buffer_json_text does.
 *
 * Owner: one thread. The buffer is borrowed and may hold something before. */
#ifndef FR_BASE_JSON_H
#define FR_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

enum { FR_JSON_DEPTH_MAX = 16 };

struct fr_json {
    struct fr_buffer *out;
    bool follows;                 /* a comma comes before the next value */
    bool breaks;                  /* ... and a line break */
    uint8_t depth;                /* open objects and arrays */
    char ends[FR_JSON_DEPTH_MAX]; /* the bracket that ends each */
};

/* Opens an object or an array. Deeper than FR_JSON_DEPTH_MAX: FR_CHECK. */
void fr_json_object(struct fr_json *json, const char *name);
void fr_json_array(struct fr_json *json, const char *name);
/* Ends the innermost one. */
void fr_json_end(struct fr_json *json);
/* The next value begins on a line of its own. */
void fr_json_break(struct fr_json *json);

/* text NULL: null. */
void fr_json_text(struct fr_json *json, const char *name, const char *text);
void fr_json_u64(struct fr_json *json, const char *name, uint64_t value);
void fr_json_i64(struct fr_json *json, const char *name, int64_t value);
/* As `%.9g`; null when it is not finite, because JSON has no word for that. */
void fr_json_number(struct fr_json *json, const char *name, double value);
/* As `%.17g`, which reads back as the same double; null when it is not finite. */
void fr_json_exact(struct fr_json *json, const char *name, double value);
/* An array of numbers. `values` are f32 and may be unaligned; null where they are not finite. */
void fr_json_floats(struct fr_json *json, const char *name, const void *values, uint64_t count);
/* A number as a string, because integers beyond 2^53 are not safe in JSON: decimal, or as "0x" and
 * 16 hexadecimal digits. */
void fr_json_id(struct fr_json *json, const char *name, uint64_t value);
void fr_json_hash(struct fr_json *json, const char *name, uint64_t value);
void fr_json_bool(struct fr_json *json, const char *name, bool value);
void fr_json_null(struct fr_json *json, const char *name);

#endif
