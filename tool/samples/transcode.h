/* Converts one JSON value to MessagePack of the same shape, as `produce` does for each line of a
 * file. Private to tool.
 *
 * Integers stay integers (shortest encoding). Other numbers become f32 if f32 holds the same value,
 * otherwise f64. Key order and duplicate keys are kept, because judging samples is left to the
 * daemon. Nothing is allocated per line once the buffers have grown.
 *
 * Thread: the caller's. */
#ifndef FR_TOOL_TRANSCODE_H
#define FR_TOOL_TRANSCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/cursor.h"

struct fr_tool_transcoder {
    struct fr_token *tokens; /* tokens of the line; `count` is exact for containers */
    size_t n_tokens, tokens_max;
    struct fr_buffer scratch, strings; /* for strings with escapes, unescaped */
};

struct fr_tool_transcoded {
    bool is_map;   /* the line is a sample, a group or a block */
    bool is_block; /* a map with `cols` */
    int64_t t_ms;  /* `t` of the outermost map; 0: it has none */
};

void fr_tool_transcoder_release(struct fr_tool_transcoder *transcoder);
/* Appends the value to `out` (NULL: only checks the line). FR_E_INVALID or FR_E_LIMIT with the
 * problem and its place; then nothing is appended. */
enum fr_status fr_tool_transcode(struct fr_tool_transcoder *transcoder, const void *line, size_t size,
                                 struct fr_buffer *out, struct fr_tool_transcoded *what,
                                 struct fr_err *err) FR_MUST_CHECK;
/* Both refer to the line last transcoded. The first returns the index of the token after the value
 * that begins at `at`; the second appends that value alone. */
size_t fr_tool_transcode_end(const struct fr_tool_transcoder *transcoder, size_t at);
void fr_tool_transcode_value(const struct fr_tool_transcoder *transcoder, size_t at, struct fr_buffer *out);
/* msgpack-c's packer callback; data is a struct fr_buffer. */
int fr_tool_pack_write(void *data, const char *bytes, size_t size);

#endif
