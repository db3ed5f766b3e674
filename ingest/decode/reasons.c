/* Reasons of refusals: where the cursor stands and what was found there, as printable ASCII. The
 * functions that get tokens turn the cursor's own refusals into such reasons.
 *
 * Limits: parse.h.
 *
 * Owner: the thread that decodes. */
#include "parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FR_MALFORMED_NAME(kind, name) name,
const char *const fr_malformed_names[FR_MALFORMED_KINDS] = {FR_MALFORMED(FR_MALFORMED_NAME)};

/* Returns the kind of a refusal, by the field that was being read. */
static enum fr_malformed kind_of(const struct fr_decode_path *path, enum fr_status status)
{
    static const struct {
        const char *field;
        enum fr_malformed kind;
    } kinds[] = {
        {"f", FR_MALFORMED_SLOTS},  {"shared", FR_MALFORMED_SLOTS}, {"cols", FR_MALFORMED_SLOTS},
        {"y", FR_MALFORMED_LABELS}, {"w", FR_MALFORMED_WEIGHTS},    {"s", FR_MALFORMED_WEIGHTS},
        {"t", FR_MALFORMED_TIME},
    };
    if (status == FR_E_LIMIT)
        return FR_MALFORMED_LIMIT;
    for (size_t i = 0; path->field && i < FR_ARRAY_LEN(kinds); i++)
        if (strcmp(path->field, kinds[i].field) == 0)
            return kinds[i].kind;
    return FR_MALFORMED_FORM;
}

enum fr_status fr_decode_fail(struct fr_decoder *d, enum fr_status status, const char *format, ...)
{
    d->malformed = kind_of(&d->path, status);
    const struct fr_decode_path *path = &d->path;
    struct fr_buffer *text = &d->reason;
    fr_buffer_clear(text);
    fr_buffer_printf(text, "$");
    if (path->item >= 0)
        fr_buffer_printf(text, "[%lld]", (long long)path->item);
    if (path->sub >= 0)
        fr_buffer_printf(text, ".items[%lld]", (long long)path->sub);
    if (path->field)
        fr_buffer_printf(text, ".%s", path->field);
    if (path->name)
        fr_buffer_printf(text, ".%s", path->name);
    if (path->entry >= 0)
        fr_buffer_printf(text, "[%lld]", (long long)path->entry);
    if (path->part)
        fr_buffer_printf(text, ".%s", path->part);
    if (path->index >= 0)
        fr_buffer_printf(text, "[%lld]", (long long)path->index);
    fr_buffer_printf(text, ": ");
    char said[FR_REASON_MAX]; /* the cursor's text is cut to this size */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    fr_buffer_append(text, said, strlen(said) + 1);
    return status;
}

const char *fr_decode_shown(struct fr_decoder *d, const struct fr_token *key)
{
    char *shown = d->shown;
    if (key->kind == FR_TOKEN_UINT || key->kind == FR_TOKEN_INT) {
        if (key->kind == FR_TOKEN_UINT)
            snprintf(shown, sizeof(d->shown), "%llu", (unsigned long long)key->u);
        else
            snprintf(shown, sizeof(d->shown), "%lld", (long long)key->i);
        return shown;
    }
    if (key->kind != FR_TOKEN_STRING)
        return fr_decode_kind(key);
    char *out = shown;
    *out++ = '"';
    for (uint32_t i = 0; i < key->size && i < FR_NAME_SHOWN_MAX; i++)
        *out++ = key->bytes[i] >= 0x20 && key->bytes[i] < 0x7f ? (char)key->bytes[i] : '?';
    *out++ = '"';
    memcpy(out, key->size > FR_NAME_SHOWN_MAX ? "..." : "", key->size > FR_NAME_SHOWN_MAX ? 4 : 1);
    return shown;
}

const char *fr_decode_kind(const struct fr_token *token)
{
    switch (token->kind) {
    case FR_TOKEN_NIL:
        return "nil";
    case FR_TOKEN_BOOL:
        return "a boolean";
    case FR_TOKEN_INT:
    case FR_TOKEN_UINT:
        return "an integer";
    case FR_TOKEN_FLOAT:
        return "a float";
    case FR_TOKEN_STRING:
        return "a string";
    case FR_TOKEN_BIN:
        return "a bin";
    case FR_TOKEN_EXT:
        return "an extension type";
    case FR_TOKEN_ARRAY:
        return "an array";
    case FR_TOKEN_MAP:
        return "a map";
    case FR_TOKEN_END:
        break;
    }
    return "nothing";
}

enum fr_status fr_decode_refused(struct fr_decoder *d, enum fr_status status)
{
    FR_CHECK(status < 0); /* FR_EOF cannot come inside a container */
    (void)fr_decode_fail(d, status, "%s at byte %zu", d->cursor.problem, fr_cursor_offset(&d->cursor));
    if (status != FR_E_LIMIT)
        d->malformed = FR_MALFORMED_SYNTAX;
    return status;
}

enum fr_status fr_decode_pass(struct fr_decoder *d)
{
    enum fr_status status = fr_cursor_pass(&d->cursor);
    return status == FR_OK ? FR_OK : fr_decode_refused(d, status);
}
