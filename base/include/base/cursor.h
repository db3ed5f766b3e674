/* A bounded pull cursor over one MessagePack or JSON value: the only reader of bytes from outside.
 *
 * Both formats give the same tokens; a container ends with FR_TOKEN_END. Nothing is allocated:
 * strings point into the input or, for JSON strings with escapes, into the caller's scratch buffer.
 *
 * Every length is compared with the bytes that remain before it is used. Depth is limited, and
 * strings of both formats are checked for UTF-8.
 *
 * Source: msgpack spec 2013, RFC 8259. */
#ifndef FR_BASE_CURSOR_H
#define FR_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum { FR_DEPTH_MAX = 8, FR_STRING_MAX = 4096, FR_PASSED_DEPTH_MAX = 64 };

enum fr_format { FR_FORMAT_MSGPACK, FR_FORMAT_JSON };

enum fr_token_kind {
    FR_TOKEN_NIL,
    FR_TOKEN_BOOL, /* i: 0 or 1 */
    FR_TOKEN_INT,  /* negative integer, i */
    FR_TOKEN_UINT, /* integer >= 0, u */
    /* f. In JSON: a number with a fraction or an exponent, or an integer beyond 64 bits. size:
     * bytes of the encoding, 4 or 8 (JSON: 8). count: for such an integer, the number of its
     * characters, which end at the cursor; otherwise 0. */
    FR_TOKEN_FLOAT,
    /* bytes, size: UTF-8, valid until the next call that uses the scratch buffer */
    FR_TOKEN_STRING,
    FR_TOKEN_BIN, /* bytes, size (MessagePack only) */
    FR_TOKEN_EXT, /* MessagePack extension, which callers treat as malformed */
    /* count: in MessagePack the number of elements (in a map: pairs), as a hint; in JSON 0 */
    FR_TOKEN_ARRAY,
    /* keys and values alternate until FR_TOKEN_END; in JSON a key is always a string */
    FR_TOKEN_MAP,
    FR_TOKEN_END, /* the innermost container is complete */
};

struct fr_token {
    enum fr_token_kind kind;
    uint32_t size;
    uint32_t count;
    union {
        int64_t i;
        uint64_t u;
        double f;
        const uint8_t *bytes;
    };
};

struct fr_cursor {
    const uint8_t *begin, *at, *end;
    enum fr_format format;
    uint32_t depth;
    uint32_t depth_max; /* default FR_DEPTH_MAX */
    /* default FR_STRING_MAX; the length of bin is limited by the remaining bytes only */
    uint32_t string_max;
    bool passing; /* inside fr_cursor_pass */
    struct {
        uint64_t remaining; /* MessagePack: values left (keys and values of a map) */
        uint8_t is_map;     /* JSON grammar state */
        uint8_t state;
    } level[FR_PASSED_DEPTH_MAX + 1];
    /* buffer for JSON strings with escapes, overwritten by each of them; may be NULL for
     * MessagePack */
    struct fr_buffer *scratch;
    const char *problem; /* static text, set when FR_E_INVALID or FR_E_LIMIT is returned */
};

void fr_cursor_init(struct fr_cursor *cursor, enum fr_format format, const void *bytes, size_t size,
                    struct fr_buffer *scratch);
/* Reads the next token. FR_EOF: the one top-level value is complete, and nothing (in JSON: only
 * whitespace) follows. FR_E_INVALID: malformed, or trailing bytes. FR_E_LIMIT: depth, string length
 * or length of a number's text. With both errors cursor->problem is set. A failed call does not
 * move the cursor, so calling again fails again. */
enum fr_status fr_cursor_next(struct fr_cursor *cursor, struct fr_token *token) FR_MUST_CHECK;
/* Consumes the rest of the value whose first token was just read. A scalar has no rest. */
enum fr_status fr_cursor_skip(struct fr_cursor *cursor, const struct fr_token *first) FR_MUST_CHECK;
/* Passes over the next value without giving its tokens. The value must be well-formed; it may have
 * any size and numbers of any magnitude, and containers nested up to FR_PASSED_DEPTH_MAX deep,
 * those around it included (FR_E_LIMIT). */
enum fr_status fr_cursor_pass(struct fr_cursor *cursor) FR_MUST_CHECK;
/* In MessagePack: consumes the next value if its encoding is exactly these bytes (1 to 64 bytes, a
 * scalar that was a valid token before), so that an expected value costs one comparison. */
static inline bool fr_cursor_take(struct fr_cursor *cursor, const uint8_t *bytes, size_t size)
{
    if (cursor->format != FR_FORMAT_MSGPACK || cursor->level[cursor->depth].remaining == 0 ||
        (size_t)(cursor->end - cursor->at) < size)
        return false;
    for (size_t i = 0; i + 4 <= size; i += 4)
        if (fr_load_u32(cursor->at + i) != fr_load_u32(bytes + i))
            return false;
    for (size_t i = size & ~(size_t)3; i < size; i++)
        if (cursor->at[i] != bytes[i])
            return false;
    cursor->at += size;
    cursor->level[cursor->depth].remaining -= 1;
    return true;
}
/* In MessagePack: consumes the next value if it is an unsigned integer. Returns false in the last 9
 * bytes of the input, where fr_cursor_next is as good. */
static inline bool fr_cursor_take_unsigned(struct fr_cursor *cursor, uint64_t *value)
{
    if (cursor->format != FR_FORMAT_MSGPACK || cursor->level[cursor->depth].remaining == 0 ||
        cursor->end - cursor->at < 9)
        return false;
    uint8_t head = cursor->at[0];
    if (head < 0x80) {
        *value = head;
        cursor->at += 1;
    } else if (head >= 0xcc && head <= 0xcf) {
        unsigned size = 1u << (head - 0xcc);
        *value = __builtin_bswap64(fr_load_u64(cursor->at + 1)) >> (64 - 8 * size);
        cursor->at += 1 + size;
    } else {
        return false;
    }
    cursor->level[cursor->depth].remaining -= 1;
    return true;
}
/* Like fr_cursor_take_unsigned, for a float: f32 or f64, NaN and infinities included. */
static inline bool fr_cursor_take_float(struct fr_cursor *cursor, double *value)
{
    if (cursor->format != FR_FORMAT_MSGPACK || cursor->level[cursor->depth].remaining == 0 ||
        cursor->end - cursor->at < 9 || (cursor->at[0] & 0xfe) != 0xca)
        return false;
    if (cursor->at[0] == 0xca) {
        uint32_t bits = __builtin_bswap32(fr_load_u32(cursor->at + 1));
        float single;
        memcpy(&single, &bits, sizeof(single));
        *value = (double)single;
        cursor->at += 5;
    } else {
        uint64_t bits = __builtin_bswap64(fr_load_u64(cursor->at + 1));
        memcpy(value, &bits, sizeof(bits));
        cursor->at += 9;
    }
    cursor->level[cursor->depth].remaining -= 1;
    return true;
}
/* Byte position of the cursor, for messages. */
static inline size_t fr_cursor_offset(const struct fr_cursor *cursor)
{
    return (size_t)(cursor->at - cursor->begin);
}

/* Valid UTF-8 as RFC 3629 defines it: shortest forms only, no surrogates, at most U+10FFFF. Most
 * strings are short and ASCII; those take two loads. */
bool fr_utf8_valid_slow(const uint8_t *at, size_t size);
/* Returns the bytes of the character that begins at `at`; 0 if no valid one begins there. size is
 * at least 1. */
size_t fr_utf8_length(const uint8_t *at, size_t size);
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
    return __builtin_expect((seen & high) == 0, 1) || fr_utf8_valid_slow(at, size);
}

#endif
