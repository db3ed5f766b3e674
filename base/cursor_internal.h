/* Shared by the MessagePack and the JSON reader of base/cursor.h; not for other modules. */
#ifndef FR_BASE_CURSOR_INTERNAL_H
#define FR_BASE_CURSOR_INTERNAL_H

#include <stdbool.h>

#include "base/check.h"
#include "base/cursor.h"

#define FR_LIKELY(x) __builtin_expect(!!(x), 1)
#define FR_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* level[0] is the input itself: one value, then the end. */
enum { FR_LEVELS = FR_ARRAY_LEN(((struct fr_cursor *)0)->level) };

/* JSON grammar: what may come next on a level. */
enum { FR_JSON_FIRST, FR_JSON_AFTER, FR_JSON_VALUE };

static inline enum fr_status fr_cursor_fail(struct fr_cursor *cursor, enum fr_status status, const char *problem)
{
    cursor->problem = problem;
    return status;
}

static inline enum fr_status fr_cursor_too_deep(struct fr_cursor *cursor)
{
    return fr_cursor_fail(cursor, FR_E_LIMIT,
                          cursor->passing ? "nested deeper than 64 containers" : "nested deeper than 8 containers");
}

enum fr_status fr_cursor_next_json(struct fr_cursor *cursor, struct fr_token *token) FR_MUST_CHECK;

#endif
