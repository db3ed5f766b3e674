/* The frame of the cursor, and its MessagePack reader (msgpack specification, 2013 revision with
 * str, bin and ext).
 *
 * One value is one token; a container pushes a level that counts the values left. The state changes
 * only when a token is complete, so a failed call leaves the cursor at the bad byte, and the next
 * call fails in the same way. A count is refused if the bytes that remain cannot hold it (one byte
 * an element), so no caller allocates by a made-up number. This is the hot path of ingestion:
 * single bytes and short strings, which are nearly all tokens, are handled first.
 *
 * Owner: one thread. Nothing is allocated. Duplicate keys are not detected, and numbers are not
 * judged (NaN passes; callers check). */
#include "cursor_internal.h"

void fr_cursor_init(struct fr_cursor *cursor, enum fr_format format, const void *bytes, size_t size,
                    struct fr_buffer *scratch)
{
    FR_CHECK(bytes != NULL || size == 0);
    FR_CHECK(format == FR_FORMAT_MSGPACK || scratch != NULL);
    static const uint8_t nothing[1];
    cursor->begin = bytes ? bytes : nothing;
    cursor->at = cursor->begin;
    cursor->end = cursor->begin + size;
    cursor->format = format;
    cursor->depth = 0;
    cursor->depth_max = FR_DEPTH_MAX;
    cursor->string_max = FR_STRING_MAX;
    cursor->passing = false;
    cursor->level[0].remaining = 1;
    cursor->level[0].is_map = 0;
    cursor->level[0].state = FR_JSON_FIRST;
    cursor->scratch = scratch;
    cursor->problem = NULL;
}

size_t fr_utf8_length(const uint8_t *at, size_t size)
{
    uint8_t first = *at;
    if (first < 0x80)
        return 1;
    size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first < 0xc2 || first > 0xf4 || size < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates and points beyond U+10FFFF are recognised by the second
     * byte. */
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) || (first == 0xf0 && at[1] < 0x90) ||
        (first == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

bool fr_utf8_valid_slow(const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size;
    while (at < end) {
        size_t length = fr_utf8_length(at, (size_t)(end - at));
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

static const char cut_short[] = "the input ends inside a value";

static inline size_t left_after(const struct fr_cursor *cursor, const uint8_t *at)
{
    return (size_t)(cursor->end - at);
}

/* Accepts the token. This is the one place where the state advances. */
static inline enum fr_status accept(struct fr_cursor *cursor, const uint8_t *at)
{
    cursor->at = at;
    cursor->level[cursor->depth].remaining -= 1;
    return FR_OK;
}

static inline enum fr_status take_string(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at,
                                         uint32_t size)
{
    if (FR_UNLIKELY(left_after(cursor, at) < size))
        return fr_cursor_fail(cursor, FR_E_INVALID, cut_short);
    if (FR_UNLIKELY(size > cursor->string_max))
        return fr_cursor_fail(cursor, FR_E_LIMIT, "string longer than the limit");
    if (FR_UNLIKELY(!fr_utf8_valid(at, size)))
        return fr_cursor_fail(cursor, FR_E_INVALID, "string is not UTF-8");
    token->kind = FR_TOKEN_STRING;
    token->size = size;
    token->bytes = at;
    return accept(cursor, at + size);
}

static inline enum fr_status take_bytes(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at,
                                        uint32_t size)
{
    if (FR_UNLIKELY(left_after(cursor, at) < size))
        return fr_cursor_fail(cursor, FR_E_INVALID, cut_short);
    token->size = size;
    token->bytes = at;
    return accept(cursor, at + size);
}

/* `values` per counted element: 1 in arrays, 2 in maps. */
static inline enum fr_status take_container(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at,
                                            uint32_t count)
{
    uint64_t values = token->kind == FR_TOKEN_MAP ? (uint64_t)count * 2 : count;
    if (FR_UNLIKELY(values > left_after(cursor, at)))
        return fr_cursor_fail(cursor, FR_E_INVALID, "container counts more values than the input can hold");
    if (FR_UNLIKELY(cursor->depth >= cursor->depth_max || cursor->depth + 1 >= FR_LEVELS))
        return fr_cursor_too_deep(cursor);
    enum fr_status status = accept(cursor, at);
    cursor->depth += 1;
    cursor->level[cursor->depth].remaining = values;
    token->count = count;
    return status;
}

static inline uint16_t big_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t big_u32(const uint8_t *at)
{
    return __builtin_bswap32(fr_load_u32(at));
}

static inline uint64_t big_u64(const uint8_t *at)
{
    return __builtin_bswap64(fr_load_u64(at));
}

static inline void set_int(struct fr_token *token, int64_t value)
{
    token->kind = value < 0 ? FR_TOKEN_INT : FR_TOKEN_UINT;
    token->i = value; /* for value >= 0, u has the same bits */
}

/* Reads nil, booleans, floats and integers of 1 to 8 bytes. The caller has checked that the bytes
 * are there. */
static enum fr_status take_number(struct fr_cursor *cursor, struct fr_token *token, uint8_t head, const uint8_t *at)
{
    uint32_t bits32;
    uint64_t bits64;
    float single;
    switch (head) {
    case 0xca:
        bits32 = big_u32(at);
        memcpy(&single, &bits32, sizeof(single));
        token->kind = FR_TOKEN_FLOAT;
        token->size = sizeof(single);
        token->f = (double)single;
        return accept(cursor, at + 4);
    case 0xcb:
        bits64 = big_u64(at);
        token->kind = FR_TOKEN_FLOAT;
        token->size = sizeof(bits64);
        memcpy(&token->f, &bits64, sizeof(bits64));
        return accept(cursor, at + 8);
    case 0xcc:
        token->kind = FR_TOKEN_UINT;
        token->u = at[0];
        return accept(cursor, at + 1);
    case 0xcd:
        token->kind = FR_TOKEN_UINT;
        token->u = big_u16(at);
        return accept(cursor, at + 2);
    case 0xce:
        token->kind = FR_TOKEN_UINT;
        token->u = big_u32(at);
        return accept(cursor, at + 4);
    case 0xcf:
        token->kind = FR_TOKEN_UINT;
        token->u = big_u64(at);
        return accept(cursor, at + 8);
    case 0xd0:
        set_int(token, (int8_t)at[0]);
        return accept(cursor, at + 1);
    case 0xd1:
        set_int(token, (int16_t)big_u16(at));
        return accept(cursor, at + 2);
    case 0xd2:
        set_int(token, (int32_t)big_u32(at));
        return accept(cursor, at + 4);
    case 0xd3:
        set_int(token, (int64_t)big_u64(at));
        return accept(cursor, at + 8);
    default: /* c0 nil, c2 false, c3 true */
        token->kind = head == 0xc0 ? FR_TOKEN_NIL : FR_TOKEN_BOOL;
        token->i = head == 0xc3;
        return accept(cursor, at);
    }
}

/* For heads 0xc0..0xdf: the number of bytes that must follow before the length or the value can be
 * read (for ext, the type byte included). */
static const uint8_t fixed_part[32] = {
    [0xc4 - 0xc0] = 1, [0xc5 - 0xc0] = 2, [0xc6 - 0xc0] = 4, [0xc7 - 0xc0] = 2, [0xc8 - 0xc0] = 3, [0xc9 - 0xc0] = 5,
    [0xca - 0xc0] = 4, [0xcb - 0xc0] = 8, [0xcc - 0xc0] = 1, [0xcd - 0xc0] = 2, [0xce - 0xc0] = 4, [0xcf - 0xc0] = 8,
    [0xd0 - 0xc0] = 1, [0xd1 - 0xc0] = 2, [0xd2 - 0xc0] = 4, [0xd3 - 0xc0] = 8, [0xd4 - 0xc0] = 1, [0xd5 - 0xc0] = 1,
    [0xd6 - 0xc0] = 1, [0xd7 - 0xc0] = 1, [0xd8 - 0xc0] = 1, [0xd9 - 0xc0] = 1, [0xda - 0xc0] = 2, [0xdb - 0xc0] = 4,
    [0xdc - 0xc0] = 2, [0xdd - 0xc0] = 4, [0xde - 0xc0] = 2, [0xdf - 0xc0] = 4,
};

/* Heads 0xc0..0xdf: all values whose length is not in the head byte. */
static enum fr_status take_sized(struct fr_cursor *cursor, struct fr_token *token, uint8_t head, const uint8_t *at)
{
    size_t fixed = fixed_part[head - 0xc0];
    if (FR_UNLIKELY(left_after(cursor, at) < fixed))
        return fr_cursor_fail(cursor, FR_E_INVALID, cut_short);
    switch (head) {
    case 0xc1:
        return fr_cursor_fail(cursor, FR_E_INVALID, "byte 0xc1 is no MessagePack value");
    case 0xc4:
    case 0xc5:
    case 0xc6:
        token->kind = FR_TOKEN_BIN;
        return take_bytes(cursor, token, at + fixed, fixed == 1 ? at[0] : fixed == 2 ? big_u16(at) : big_u32(at));
    case 0xc7:
    case 0xc8:
    case 0xc9:
        token->kind = FR_TOKEN_EXT;
        return take_bytes(cursor, token, at + fixed, fixed == 2 ? at[0] : fixed == 3 ? big_u16(at) : big_u32(at));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        token->kind = FR_TOKEN_EXT;
        return take_bytes(cursor, token, at + 1, 1u << (head - 0xd4));
    case 0xd9:
        return take_string(cursor, token, at + 1, at[0]);
    case 0xda:
        return take_string(cursor, token, at + 2, big_u16(at));
    case 0xdb:
        return take_string(cursor, token, at + 4, big_u32(at));
    case 0xdc:
    case 0xdd:
        token->kind = FR_TOKEN_ARRAY;
        return take_container(cursor, token, at + fixed, head == 0xdc ? big_u16(at) : big_u32(at));
    case 0xde:
    case 0xdf:
        token->kind = FR_TOKEN_MAP;
        return take_container(cursor, token, at + fixed, head == 0xde ? big_u16(at) : big_u32(at));
    default:
        return take_number(cursor, token, head, at);
    }
}

/* Ends the innermost container, or the whole value, which has no values left. */
static enum fr_status finish_level(struct fr_cursor *cursor, struct fr_token *token)
{
    if (cursor->depth > 0) {
        cursor->depth -= 1;
        token->kind = FR_TOKEN_END;
        return FR_OK;
    }
    if (cursor->at != cursor->end)
        return fr_cursor_fail(cursor, FR_E_INVALID, "bytes after the value");
    return FR_EOF;
}

static inline enum fr_status next_msgpack(struct fr_cursor *cursor, struct fr_token *token)
{
    if (cursor->level[cursor->depth].remaining == 0)
        return finish_level(cursor, token);
    if (FR_UNLIKELY(cursor->at == cursor->end))
        return fr_cursor_fail(cursor, FR_E_INVALID, cut_short);
    const uint8_t *at = cursor->at;
    uint8_t head = *at++;
    token->size = 0;
    token->count = 0;
    if (head < 0x80) {
        token->kind = FR_TOKEN_UINT;
        token->u = head;
        return accept(cursor, at);
    }
    if (head >= 0xa0 && head < 0xc0)
        return take_string(cursor, token, at, head & 0x1fu);
    if (head >= 0xc0 && head < 0xe0)
        return take_sized(cursor, token, head, at);
    if (head >= 0xe0) {
        token->kind = FR_TOKEN_INT;
        token->i = (int8_t)head;
        return accept(cursor, at);
    }
    token->kind = head < 0x90 ? FR_TOKEN_MAP : FR_TOKEN_ARRAY;
    return take_container(cursor, token, at, head & 0x0fu);
}

enum fr_status fr_cursor_next(struct fr_cursor *cursor, struct fr_token *token)
{
    if (FR_LIKELY(cursor->format == FR_FORMAT_MSGPACK))
        return next_msgpack(cursor, token);
    return fr_cursor_next_json(cursor, token);
}

enum fr_status fr_cursor_skip(struct fr_cursor *cursor, const struct fr_token *first)
{
    if (first->kind != FR_TOKEN_ARRAY && first->kind != FR_TOKEN_MAP)
        return FR_OK;
    FR_CHECK(cursor->depth > 0);
    /* The container is open; the loop ends when its level is closed. Each step consumes bytes or
     * closes a level, so the loop terminates. */
    uint32_t outside = cursor->depth - 1;
    struct fr_token token;
    while (cursor->depth > outside) {
        enum fr_status status = fr_cursor_next(cursor, &token);
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}

enum fr_status fr_cursor_pass(struct fr_cursor *cursor)
{
    uint32_t depth_max = cursor->depth_max, string_max = cursor->string_max;
    cursor->depth_max = FR_PASSED_DEPTH_MAX;
    cursor->string_max = UINT32_MAX;
    cursor->passing = true;
    struct fr_token token;
    enum fr_status status = fr_cursor_next(cursor, &token);
    if (status == FR_OK)
        status = fr_cursor_skip(cursor, &token);
    cursor->depth_max = depth_max;
    cursor->string_max = string_max;
    cursor->passing = false;
    return status;
}
