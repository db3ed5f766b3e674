/* One JSON value to MessagePack of the same shape: what `produce` does to each line of a file.
 * Private to tool.
 *
 * Integers stay integers (shortest encoding), other numbers become f32 where that holds the same
 * value, else f64; key order and duplicate keys are kept: judging samples is the daemon's business.
 * Nothing is allocated per line once the buffers have grown.
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
    struct fr_token *tokens; /* of the line; `count` is exact for containers */
    size_t n_tokens, tokens_max;
    struct fr_buffer scratch, strings; /* strings with escapes, unescaped */
};

struct fr_tool_transcoded {
    bool is_map;   /* a sample, a group or a block */
    bool is_block; /* a map with `cols` */
    int64_t t_ms;  /* of the outermost map; 0: it has none */
};

void fr_tool_transcoder_release(struct fr_tool_transcoder *transcoder);
/* Appends the value to `out` (NULL: only checks the line). FR_E_INVALID or FR_E_LIMIT with what is
 * wrong and where; nothing is appended then. */
enum fr_status fr_tool_transcode(struct fr_tool_transcoder *transcoder, const void *line, size_t size,
                                 struct fr_buffer *out, struct fr_tool_transcoded *what,
                                 struct fr_err *err) FR_MUST_CHECK;
/* Of the line last transcoded: index of the token just past the value that begins at `at`; that
 * value alone, appended. */
size_t fr_tool_transcode_end(const struct fr_tool_transcoder *transcoder, size_t at);
void fr_tool_transcode_value(const struct fr_tool_transcoder *transcoder, size_t at, struct fr_buffer *out);
/* msgpack-c's packer callback; data is a struct fr_buffer. */
int fr_tool_pack_write(void *data, const char *bytes, size_t size);

#endif
