/* The cursor's JSON reader (RFC 8259).
 *
 * The reader is strict: one value, UTF-8 everywhere, keys are strings, no comments, no trailing
 * commas, no NaN or Infinity. The state of a level determines what may come next; it changes only
 * when a token is complete. Integers that fit 64 bits stay exact; other numbers become the nearest
 * double (Clinger 1990: up to 15 digits and powers of ten up to 22 are exact in one multiplication
 * or division; all others go through strtod, which glibc rounds correctly; the process keeps the
 * locale "C").
 *
 * Owner: one thread. Duplicate keys are not detected. */
#include "cursor_internal.h"

#include <math.h>
#include <stdlib.h>

/* Longest text of a number. Doubles need up to 17 digits and 64-bit integers 20; more digits carry
 * no information, and strtod needs a bounded copy. */
enum { NUMBER_MAX = 512 };

static const char cut_short[] = "the input ends inside a value";

static enum fr_status invalid(struct fr_cursor *cursor, const char *problem)
{
    return fr_cursor_fail(cursor, FR_E_INVALID, problem);
}

static const uint8_t *skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* ---- strings ---- */

static bool hex4(const uint8_t *at, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        uint32_t digit;
        if (is_digit(c))
            digit = c - '0';
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return false;
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

static size_t put_utf8(uint8_t *out, uint32_t point)
{
    if (point < 0x80) {
        out[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (uint8_t)(0xc0 | point >> 6);
        out[1] = (uint8_t)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (uint8_t)(0xe0 | point >> 12);
        out[1] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (point & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | point >> 18);
    out[1] = (uint8_t)(0x80 | (point >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (point & 0x3f));
    return 4;
}

/* Reads \uXXXX, with its second half for points beyond U+FFFF; `at` is after "\u". Returns the
 * number of bytes read; 0: invalid. */
static size_t read_unicode_escape(const uint8_t *at, const uint8_t *end, uint32_t *point)
{
    uint32_t first, second;
    if (end - at < 4 || !hex4(at, &first))
        return 0;
    if (first < 0xd800 || first > 0xdfff) {
        *point = first;
        return 4;
    }
    if (first > 0xdbff || end - at < 10 || at[4] != '\\' || at[5] != 'u' || !hex4(at + 6, &second) || second < 0xdc00 ||
        second > 0xdfff)
        return 0;
    *point = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    return 10;
}

static uint8_t simple_escape(uint8_t letter)
{
    switch (letter) {
    case '"':
    case '\\':
    case '/':
        return letter;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return 0;
    }
}

/* Copies the text between the quotes into the scratch buffer. An escape is never shorter than its
 * UTF-8 form (\u: 6 bytes for at most 3, or 12 for 4), so room for the raw text is enough. */
static enum fr_status unescape(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at, const uint8_t *end)
{
    fr_buffer_clear(cursor->scratch);
    uint8_t *begin = fr_buffer_reserve(cursor->scratch, (size_t)(end - at));
    uint8_t *out = begin;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        at++; /* safe: the scan for the closing quote saw a byte after every backslash */
        if (*at == 'u') {
            uint32_t point;
            size_t length = read_unicode_escape(at + 1, end, &point);
            if (length == 0)
                return invalid(cursor, "string has a bad \\u escape");
            out += put_utf8(out, point);
            at += 1 + length;
            continue;
        }
        uint8_t byte = simple_escape(*at);
        if (byte == 0)
            return invalid(cursor, "string has an unknown escape");
        *out++ = byte;
        at++;
    }
    cursor->scratch->size = (size_t)(out - begin);
    if (cursor->scratch->size > cursor->string_max)
        return fr_cursor_fail(cursor, FR_E_LIMIT, "string longer than the limit");
    token->bytes = begin;
    token->size = (uint32_t)cursor->scratch->size;
    return FR_OK;
}

/* `at` is after the opening quote; *next becomes the position after the closing quote. */
static enum fr_status take_string(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at,
                                  const uint8_t **next)
{
    const uint8_t *begin = at;
    bool escapes = false;
    while (at < cursor->end && *at != '"') {
        if (*at < 0x20)
            return invalid(cursor, "string has a control character");
        if (*at == '\\') {
            escapes = true;
            at++;
        }
        at++;
    }
    if (at >= cursor->end)
        return invalid(cursor, cut_short);
    size_t size = (size_t)(at - begin);
    /* An escape takes at most six bytes of text for one byte of the string. */
    if (size > (escapes ? (uint64_t)cursor->string_max * 6 : cursor->string_max))
        return fr_cursor_fail(cursor, FR_E_LIMIT, "string longer than the limit");
    if (!fr_utf8_valid(begin, size))
        return invalid(cursor, "string is not UTF-8");
    token->kind = FR_TOKEN_STRING;
    token->bytes = begin;
    token->size = (uint32_t)size;
    if (escapes) {
        enum fr_status status = unescape(cursor, token, begin, at);
        if (status != FR_OK)
            return status;
    }
    *next = at + 1;
    return FR_OK;
}

static bool is_word(const uint8_t *at, const uint8_t *end, const char *word)
{
    size_t size = strlen(word);
    return (size_t)(end - at) >= size && memcmp(at, word, size) == 0;
}

/* ---- numbers ---- */

/* Python and JavaScript write these words by default. */
static const char no_such_number[] =
    "not a JSON value: JSON has no NaN and no Infinity; send null, or leave the value out";

/* The text of a number, split while its grammar is checked. */
struct number {
    bool negative;
    bool integer;     /* the number has neither a fraction nor an exponent */
    bool overflow;    /* the digits do not fit `digits` */
    uint64_t digits;  /* all digits as one integer */
    int32_t exponent; /* power of ten for the digits as an integer; saturates */
};

static const uint8_t *scan_digits(const uint8_t *at, const uint8_t *end, struct number *number)
{
    for (; at < end && is_digit(*at); at++)
        if (__builtin_mul_overflow(number->digits, 10u, &number->digits) ||
            __builtin_add_overflow(number->digits, (uint64_t)(*at - '0'), &number->digits))
            number->overflow = true;
    return at;
}

static const uint8_t *scan_exponent(const uint8_t *at, const uint8_t *end, struct number *number)
{
    /* beyond the exponent of any double; adding the length of the fraction cannot overflow */
    const int32_t saturated = 1 << 20;
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    if (at == end || !is_digit(*at))
        return NULL;
    int32_t value = 0;
    for (; at < end && is_digit(*at); at++)
        value = value < saturated ? value * 10 + (*at - '0') : saturated;
    number->exponent += negative ? -value : value;
    return at;
}

/* Returns the end of the number at `at`, or NULL if the text is not a JSON number. */
static const uint8_t *scan_number(const uint8_t *at, const uint8_t *end, struct number *number)
{
    *number = (struct number){.integer = true};
    number->negative = *at == '-';
    at += number->negative;
    if (at == end || !is_digit(*at))
        return NULL;
    at = *at == '0' ? at + 1 : scan_digits(at, end, number);
    if (at < end && *at == '.') {
        number->integer = false;
        const uint8_t *fraction = ++at;
        at = scan_digits(at, end, number);
        if (at == fraction)
            return NULL;
        /* the caller refuses longer ones, whatever their value */
        if (at - fraction <= NUMBER_MAX)
            number->exponent = -(int32_t)(at - fraction);
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        number->integer = false;
        at = scan_exponent(at + 1, end, number);
    }
    return at;
}

static double number_value(const struct number *number, const uint8_t *text, size_t size)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const int32_t exact = (int32_t)FR_ARRAY_LEN(power) - 1;
    if (!number->overflow && number->digits <= (1ULL << 53) && number->exponent >= -exact &&
        number->exponent <= exact) {
        double value = (double)number->digits;
        value = number->exponent < 0 ? value / power[-number->exponent] : value * power[number->exponent];
        return number->negative ? -value : value;
    }
    char copy[NUMBER_MAX + 1];
    memcpy(copy, text, size);
    copy[size] = '\0';
    return strtod(copy, NULL);
}

static enum fr_status take_number(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at,
                                  const uint8_t **next)
{
    struct number number;
    const uint8_t *stop = scan_number(at, cursor->end, &number);
    if (!stop && is_word(at + 1, cursor->end, "Infinity"))
        return invalid(cursor, no_such_number);
    if (!stop)
        return invalid(cursor, "not a JSON number");
    *next = stop;
    if (FR_UNLIKELY(cursor->passing)) { /* the value is not needed */
        token->kind = FR_TOKEN_FLOAT;
        token->f = 0;
        return FR_OK;
    }
    if (stop - at > NUMBER_MAX)
        return fr_cursor_fail(cursor, FR_E_LIMIT, "number longer than 512 characters");
    if (number.integer && !number.overflow) {
        if (!number.negative || number.digits == 0) {
            token->kind = FR_TOKEN_UINT;
            token->u = number.digits;
            return FR_OK;
        }
        if (number.digits <= (uint64_t)INT64_MAX + 1) {
            token->kind = FR_TOKEN_INT;
            token->u = 0 - number.digits; /* the bits of i, modulo 2^64; also correct for -2^63 */
            return FR_OK;
        }
    }
    token->kind = FR_TOKEN_FLOAT;
    token->size = sizeof(token->f);
    token->count = number.integer ? (uint32_t)(stop - at) : 0;
    token->f = number_value(&number, at, (size_t)(stop - at));
    if (!isfinite(token->f))
        return invalid(cursor, "number is not finite");
    return FR_OK;
}

/* ---- values and containers ---- */

static enum fr_status take_word(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at,
                                const uint8_t **next)
{
    static const struct {
        const char *text;
        size_t size;
        enum fr_token_kind kind;
        int64_t value;
    } words[] = {{"true", 4, FR_TOKEN_BOOL, 1}, {"false", 5, FR_TOKEN_BOOL, 0}, {"null", 4, FR_TOKEN_NIL, 0}};
    for (size_t i = 0; i < FR_ARRAY_LEN(words); i++) {
        if ((size_t)(cursor->end - at) >= words[i].size && memcmp(at, words[i].text, words[i].size) == 0) {
            token->kind = words[i].kind;
            token->i = words[i].value;
            *next = at + words[i].size;
            return FR_OK;
        }
    }
    if (is_word(at, cursor->end, "NaN") || is_word(at, cursor->end, "Infinity"))
        return invalid(cursor, no_such_number);
    return invalid(cursor, "not a JSON value");
}

static enum fr_status open_container(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at)
{
    if (cursor->depth >= cursor->depth_max || cursor->depth + 1 >= FR_LEVELS)
        return fr_cursor_too_deep(cursor);
    token->kind = *at == '{' ? FR_TOKEN_MAP : FR_TOKEN_ARRAY;
    cursor->level[cursor->depth].state = FR_JSON_AFTER;
    cursor->depth += 1;
    cursor->level[cursor->depth].is_map = *at == '{';
    cursor->level[cursor->depth].state = FR_JSON_FIRST;
    cursor->at = at + 1;
    return FR_OK;
}

static enum fr_status take_value(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at)
{
    if (at == cursor->end)
        return invalid(cursor, cut_short);
    enum fr_status status;
    const uint8_t *next = at;
    if (*at == '{' || *at == '[')
        return open_container(cursor, token, at);
    if (*at == '"')
        status = take_string(cursor, token, at + 1, &next);
    else if (*at == '-' || is_digit(*at))
        status = take_number(cursor, token, at, &next);
    else
        status = take_word(cursor, token, at, &next);
    if (status != FR_OK)
        return status;
    cursor->level[cursor->depth].state = FR_JSON_AFTER;
    cursor->at = next;
    return FR_OK;
}

static enum fr_status take_key(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at)
{
    if (at == cursor->end)
        return invalid(cursor, cut_short);
    if (*at != '"')
        return invalid(cursor, "expected a string as key");
    const uint8_t *next = at;
    enum fr_status status = take_string(cursor, token, at + 1, &next);
    if (status != FR_OK)
        return status;
    cursor->level[cursor->depth].state = FR_JSON_VALUE;
    cursor->at = next;
    return FR_OK;
}

static enum fr_status next_at_top(struct fr_cursor *cursor, struct fr_token *token, const uint8_t *at)
{
    /* U+FEFF, which RFC 8259 allows readers to ignore */
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf};
    size_t left = (size_t)(cursor->end - at);
    if (cursor->level[0].state == FR_JSON_FIRST && at == cursor->begin && left >= 2 && (at[0] ^ at[1]) == 1 &&
        at[0] >= 0xfe)
        return invalid(cursor, "UTF-16, which is not JSON here: write UTF-8");
    if (cursor->level[0].state == FR_JSON_FIRST && at == cursor->begin && left >= sizeof(mark) &&
        memcmp(at, mark, sizeof(mark)) == 0)
        at = skip_space(at + sizeof(mark), cursor->end);
    if (cursor->level[0].state == FR_JSON_FIRST)
        return take_value(cursor, token, at);
    if (at == cursor->end)
        return FR_EOF;
    return invalid(cursor, "bytes after the value");
}

enum fr_status fr_cursor_next_json(struct fr_cursor *cursor, struct fr_token *token)
{
    const uint8_t *at = skip_space(cursor->at, cursor->end);
    token->size = 0;
    token->count = 0;
    if (cursor->depth == 0)
        return next_at_top(cursor, token, at);
    if (at == cursor->end)
        return invalid(cursor, cut_short);
    bool is_map = cursor->level[cursor->depth].is_map;
    uint8_t state = cursor->level[cursor->depth].state;
    if (state == FR_JSON_VALUE) {
        if (*at != ':')
            return invalid(cursor, "expected ':'");
        return take_value(cursor, token, skip_space(at + 1, cursor->end));
    }
    if (*at == (is_map ? '}' : ']')) {
        token->kind = FR_TOKEN_END;
        cursor->depth -= 1;
        cursor->at = at + 1;
        return FR_OK;
    }
    if (state == FR_JSON_AFTER) {
        if (*at != ',')
            return invalid(cursor, is_map ? "expected ',' or '}'" : "expected ',' or ']'");
        at = skip_space(at + 1, cursor->end);
    }
    return is_map ? take_key(cursor, token, at) : take_value(cursor, token, at);
}
