/* Shared by the two readers behind base/cursor.h; not for other modules. */
#ifndef FR_BASE_CURSOR_INTERNAL_H
#define FR_BASE_CURSOR_INTERNAL_H

#include <stdbool.h>

#include "base/check.h"
#include "base/cursor.h"

#define FR_LIKELY(x) __builtin_expect(!!(x), 1)
#define FR_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* level[0] is the top: one value, then the end of the input. */
enum { FR_LEVELS = FR_ARRAY_LEN(((struct fr_cursor *)0)->level) };

/* JSON grammar: what may come next on a level. */
enum { FR_JSON_FIRST, FR_JSON_AFTER, FR_JSON_VALUE };

bool fr_utf8_valid_slow(const uint8_t *at, size_t size);

/* RFC 3629: shortest forms only, no surrogates, at most U+10FFFF. Most strings are short and ASCII: those take two
 * loads. */
static inline bool fr_utf8_valid(const uint8_t *at, size_t size)
{
    const uint64_t high = 0x8080808080808080ULL;
    uint64_t seen = 0;
    if (size >= 8) {
        for (size_t i = 0; i + 8 <= size; i += 8)
            seen |= fr_load_u64(at + i);
        seen |= fr_load_u64(at + size - 8);
    } else if (size >= 4) {
        seen = (uint64_t)fr_load_u32(at) | fr_load_u32(at + size - 4);
    } else if (size > 0) {
        seen = (uint64_t)at[0] | at[size / 2] | at[size - 1];
    }
    return FR_LIKELY((seen & high) == 0) || fr_utf8_valid_slow(at, size);
}

static inline enum fr_status fr_cursor_fail(struct fr_cursor *cursor, enum fr_status status, const char *problem)
{
    cursor->problem = problem;
    return status;
}

enum fr_status fr_cursor_next_json(struct fr_cursor *cursor, struct fr_token *token) FR_MUST_CHECK;

#endif
