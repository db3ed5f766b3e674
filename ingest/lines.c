/* Lines of plain and gzip files (zlib reads both through one call).
 *
 * A line ends with a newline or with the file; a carriage return before it is white space to JSON
 * and stays. Blank lines are numbered like all others. Memory is bounded: of a line longer than
 * line_max only size and CRC32C are kept. So is the time of a call: a seek in a gzip file is
 * reading all before it, so a call reads at most SLICE_BYTES.
 *
 * Invariants: bytes[at, at + scanned) hold no newline; long_size > 0: so many bytes of the present
 * line went by already. */
#include "ingest/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/crc32c.h"

enum { READ_BYTES = 256 << 10, SLICE_BYTES = 32 << 20 };

struct fr_lines {
    gzFile file;
    size_t line_max;
    int64_t from, number; /* first line to give; the line that begins at `at` */
    struct fr_buffer bytes;
    size_t at, scanned;
    size_t long_size;
    uint32_t long_crc;
    bool skip_blank, ended;
};

struct fr_lines *fr_lines_new(int file, size_t line_max, int64_t from, bool skip_blank)
{
    struct fr_lines *lines = fr_alloc(1, sizeof(*lines));
    lines->line_max = line_max;
    lines->from = from;
    lines->skip_blank = skip_blank;
    lines->file = gzdopen(file, "rb");
    FR_CHECK(lines->file); /* only memory can fail */
    gzbuffer(lines->file, READ_BYTES);
    return lines;
}

void fr_lines_free(struct fr_lines *lines)
{
    if (!lines)
        return;
    gzclose_r(lines->file);
    fr_buffer_release(&lines->bytes);
    free(lines);
}

bool fr_lines_blank(const struct fr_line *line)
{
    for (size_t i = 0; line->value && i < line->size; i++)
        if (line->value[i] != ' ' && line->value[i] != '\t' && line->value[i] != '\r')
            return false;
    return line->value != NULL;
}

/* Drops what was given out, puts away the beginning of a line that is too long, reads more. */
static enum fr_status read_more(struct fr_lines *lines, struct fr_err *err)
{
    struct fr_buffer *bytes = &lines->bytes;
    size_t left = bytes->size - lines->at;
    if (left > lines->line_max) {
        lines->long_crc = fr_crc32c(lines->long_crc, bytes->data + lines->at, left);
        lines->long_size += left;
        left = 0;
    } else if (left && lines->at) {
        memmove(bytes->data, bytes->data + lines->at, left);
    }
    bytes->size = lines->scanned = left;
    lines->at = 0;
    int got = gzread(lines->file, fr_buffer_reserve(bytes, READ_BYTES), READ_BYTES);
    if (got > 0) {
        bytes->size += (size_t)got;
        return FR_OK;
    }
    int code = Z_OK;
    const char *text = gzerror(lines->file, &code);
    if (got == 0 && (code == Z_OK || code == Z_STREAM_END)) {
        lines->ended = true;
        return FR_OK;
    }
    const char *bare = strstr(text, ": "); /* behind zlib's name of the file, "<fd:7>" */
    text = bare ? bare + 2 : text;
    return code == Z_ERRNO ? fr_err_set(err, FR_E_IO, "%s", strerror(errno))
                           : fr_err_set(err, FR_E_CORRUPT, "%s", text);
}

/* The line of `size` bytes at `at` is complete; false: it is passed over. */
static bool take_line(struct fr_lines *lines, size_t size, bool newline, struct fr_line *line)
{
    const uint8_t *bytes = lines->bytes.data + lines->at;
    size_t whole = lines->long_size + size;
    bool wanted = lines->number >= lines->from;
    *line = (struct fr_line){.number = lines->number, .size = whole};
    if (whole > lines->line_max)
        line->crc32c = fr_crc32c(lines->long_crc, bytes, size);
    else
        line->value = (const char *)bytes;
    wanted &= !lines->skip_blank || !fr_lines_blank(line);
    lines->at += size + newline;
    lines->scanned = lines->long_size = 0;
    lines->long_crc = 0;
    lines->number++;
    return wanted;
}

enum fr_status fr_lines_next(struct fr_lines *lines, struct fr_line *line, struct fr_err *err)
{
    for (size_t slice = 0; slice < SLICE_BYTES;) {
        size_t left = lines->bytes.size - lines->at;
        const uint8_t *begin = left ? lines->bytes.data + lines->at : NULL;
        const uint8_t *newline =
            left > lines->scanned ? memchr(begin + lines->scanned, '\n', left - lines->scanned) : NULL;
        if (newline || (lines->ended && (left || lines->long_size))) {
            if (take_line(lines, newline ? (size_t)(newline - begin) : left, newline != NULL, line))
                return FR_OK;
            continue;
        }
        if (lines->ended) {
            *line = (struct fr_line){.number = lines->number};
            return FR_EOF;
        }
        *line = (struct fr_line){.number = lines->number};
        enum fr_status status = read_more(lines, err);
        if (status != FR_OK)
            return status;
        slice += READ_BYTES;
    }
    return FR_AGAIN;
}
