/* See lines.h. One buffer: what is left of it moves to the front when no whole line remains. */
#include "samples/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/check.h"

enum { READ_BYTES = 256 << 10 };

struct fr_tool_lines {
    gzFile file;
    struct fr_buffer bytes;
    size_t at;      /* the first byte not yet given out */
    size_t scanned; /* bytes after `at` known to hold no newline */
    bool ended;
};

enum fr_status fr_tool_lines_open(const char *path, struct fr_tool_lines **out, struct fr_err *err)
{
    gzFile file = gzopen(path, "rb");
    if (!file)
        return fr_err_set(err, errno == ENOENT ? FR_E_NOT_FOUND : FR_E_IO, "%s: %s", path, strerror(errno));
    gzbuffer(file, READ_BYTES);
    struct fr_tool_lines *lines = fr_alloc(1, sizeof(*lines));
    lines->file = file;
    *out = lines;
    return FR_OK;
}

void fr_tool_lines_close(struct fr_tool_lines *lines)
{
    if (!lines)
        return;
    gzclose_r(lines->file);
    fr_buffer_release(&lines->bytes);
    free(lines);
}

static enum fr_status read_more(struct fr_tool_lines *lines, struct fr_err *err)
{
    struct fr_buffer *bytes = &lines->bytes;
    if (lines->at > 0) {
        memmove(bytes->data, bytes->data + lines->at, bytes->size - lines->at);
        bytes->size -= lines->at;
        lines->at = 0;
    }
    if (bytes->size > FR_LINE_MAX)
        return fr_err_set(err, FR_E_LIMIT, "a line is longer than %d bytes", FR_LINE_MAX);
    int got = gzread(lines->file, fr_buffer_reserve(bytes, READ_BYTES), READ_BYTES);
    if (got > 0) {
        bytes->size += (size_t)got;
        return FR_OK;
    }
    int code = Z_OK;
    const char *text = gzerror(lines->file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) /* Z_BUF_ERROR: a cut gzip stream */
        return fr_err_set(err, FR_E_CORRUPT, "cannot be read: %s", code == Z_ERRNO ? strerror(errno) : text);
    lines->ended = true;
    return FR_OK;
}

enum fr_status fr_tool_lines_next(struct fr_tool_lines *lines, const char **line, size_t *size, struct fr_err *err)
{
    for (;;) {
        size_t held = lines->bytes.size - lines->at;
        const char *begin = (const char *)lines->bytes.data + lines->at;
        const char *newline =
            held > lines->scanned ? memchr(begin + lines->scanned, '\n', held - lines->scanned) : NULL;
        if (newline || (lines->ended && held > 0)) {
            *line = begin;
            *size = newline ? (size_t)(newline - begin) : held;
            lines->at += *size + (newline ? 1 : 0);
            lines->scanned = 0;
            return FR_OK;
        }
        if (lines->ended)
            return FR_EOF;
        lines->scanned = held;
        enum fr_status status = read_more(lines, err);
        if (status != FR_OK)
            return status;
    }
}
