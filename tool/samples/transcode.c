/* See transcode.h. Two passes, because MessagePack needs a container's count before its values and
 * JSON shows it only after them: the first pass keeps the tokens and counts, the second packs. */
#include "samples/transcode.h"

#include <msgpack.h>
#include <stdlib.h>

#include "base/check.h"

/* Deeper and longer than what the daemon accepts, so that records which it must refuse can be
 * produced. */
enum { DEPTH_MAX = 15, STRING_MAX = 16 << 20 };

int fr_tool_pack_write(void *data, const char *bytes, size_t size)
{
    fr_buffer_append(data, bytes, size);
    return 0;
}

void fr_tool_transcoder_release(struct fr_tool_transcoder *transcoder)
{
    free(transcoder->tokens);
    fr_buffer_release(&transcoder->scratch);
    fr_buffer_release(&transcoder->strings);
    *transcoder = (struct fr_tool_transcoder){0};
}

static struct fr_token *append_token(struct fr_tool_transcoder *t)
{
    if (t->n_tokens == t->tokens_max) {
        t->tokens_max = t->tokens_max ? t->tokens_max * 2 : 256;
        t->tokens = fr_realloc(t->tokens, t->tokens_max, sizeof(*t->tokens));
    }
    return &t->tokens[t->n_tokens++];
}

static enum fr_status read_tokens(struct fr_tool_transcoder *t, struct fr_cursor *cursor)
{
    size_t open[DEPTH_MAX + 1] = {0};
    uint32_t depth = 0;
    for (;;) {
        struct fr_token token;
        enum fr_status status = fr_cursor_next(cursor, &token);
        if (status != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END) {
            FR_CHECK(depth > 0);
            struct fr_token *container = &t->tokens[open[--depth]];
            if (container->kind == FR_TOKEN_MAP)
                container->count /= 2;
            continue;
        }
        if (token.kind == FR_TOKEN_STRING && token.bytes == t->scratch.data && token.size > 0) {
            size_t at = t->strings.size; /* the next escaped string overwrites the scratch buffer */
            fr_buffer_append(&t->strings, token.bytes, token.size);
            token.bytes = t->strings.data + at;
        }
        if (depth > 0)
            t->tokens[open[depth - 1]].count++;
        if (token.kind == FR_TOKEN_ARRAY || token.kind == FR_TOKEN_MAP) {
            token.count = 0;
            open[depth++] = t->n_tokens;
        }
        *append_token(t) = token;
    }
}

static bool is_text(const struct fr_token *token, const char *text)
{
    return token->kind == FR_TOKEN_STRING && token->size == strlen(text) &&
           memcmp(token->bytes, text, token->size) == 0;
}

size_t fr_tool_transcode_end(const struct fr_tool_transcoder *t, size_t at)
{
    for (uint64_t left = 1; left > 0; left--, at++) {
        const struct fr_token *token = &t->tokens[at];
        if (token->kind == FR_TOKEN_ARRAY)
            left += token->count;
        else if (token->kind == FR_TOKEN_MAP)
            left += 2 * (uint64_t)token->count;
    }
    return at;
}

static struct fr_tool_transcoded describe(const struct fr_tool_transcoder *t)
{
    struct fr_tool_transcoded what = {.is_map = t->tokens[0].kind == FR_TOKEN_MAP};
    size_t at = 1;
    for (uint32_t i = 0; what.is_map && i < t->tokens[0].count; i++) {
        const struct fr_token *key = &t->tokens[at], *value = key + 1;
        if (is_text(key, "t") && value->kind == FR_TOKEN_UINT && value->u <= INT64_MAX)
            what.t_ms = (int64_t)value->u;
        if (is_text(key, "cols"))
            what.is_block = true;
        at = fr_tool_transcode_end(t, at + 1);
    }
    return what;
}

static void pack_number(msgpack_packer *packer, double value)
{
    float narrow = (float)value;
    if ((double)narrow == value)
        msgpack_pack_float(packer, narrow);
    else
        msgpack_pack_double(packer, value);
}

static void pack_tokens(const struct fr_tool_transcoder *t, size_t begin, size_t end, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    for (size_t i = begin; i < end; i++) {
        const struct fr_token *token = &t->tokens[i];
        switch (token->kind) {
        case FR_TOKEN_NIL:
            msgpack_pack_nil(&packer);
            break;
        case FR_TOKEN_BOOL:
            if (token->i)
                msgpack_pack_true(&packer);
            else
                msgpack_pack_false(&packer);
            break;
        case FR_TOKEN_INT:
            msgpack_pack_int64(&packer, token->i);
            break;
        case FR_TOKEN_UINT:
            msgpack_pack_uint64(&packer, token->u);
            break;
        case FR_TOKEN_FLOAT:
            pack_number(&packer, token->f);
            break;
        case FR_TOKEN_STRING:
            msgpack_pack_str(&packer, token->size);
            msgpack_pack_str_body(&packer, token->bytes, token->size);
            break;
        case FR_TOKEN_ARRAY:
            msgpack_pack_array(&packer, token->count);
            break;
        case FR_TOKEN_MAP:
            msgpack_pack_map(&packer, token->count);
            break;
        case FR_TOKEN_BIN:
        case FR_TOKEN_EXT:
        case FR_TOKEN_END:
            FR_CHECK(!"a token JSON does not have");
        }
    }
}

void fr_tool_transcode_value(const struct fr_tool_transcoder *transcoder, size_t at, struct fr_buffer *out)
{
    pack_tokens(transcoder, at, fr_tool_transcode_end(transcoder, at), out);
}

enum fr_status fr_tool_transcode(struct fr_tool_transcoder *transcoder, const void *line, size_t size,
                                 struct fr_buffer *out, struct fr_tool_transcoded *what, struct fr_err *err)
{
    struct fr_cursor cursor;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, line, size, &transcoder->scratch);
    cursor.depth_max = DEPTH_MAX;
    cursor.string_max = STRING_MAX;
    transcoder->n_tokens = 0;
    fr_buffer_clear(&transcoder->strings);
    /* unescaping never lengthens, so the bytes stay in place */
    fr_buffer_reserve(&transcoder->strings, size + 1);
    enum fr_status status = read_tokens(transcoder, &cursor);
    if (status != FR_EOF)
        return fr_err_set(err, status, "%s (byte %zu)", cursor.problem ? cursor.problem : "not JSON",
                          fr_cursor_offset(&cursor));
    if (out)
        pack_tokens(transcoder, 0, transcoder->n_tokens, out);
    *what = describe(transcoder);
    return FR_OK;
}
