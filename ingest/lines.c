/* Lines of plain, gzip and zstd files.
 *
 * A line ends with a newline or with the file. A carriage return before the newline stays, because
 * it is white space to JSON. Blank lines are numbered like all others. Memory is bounded: of a line
 * longer than line_max only size and CRC32C are kept. The time of a call is bounded, too: a seek in
 * a gzip file reads everything before it, so a call reads at most SLICE_BYTES.
 *
 * A gzip file begins with the two bytes of its magic and is a series of members, each of which is
 * checked whole (RFC 1952). After a member comes another one, the end of the file, or zero bytes up
 * to the end (padding of a block device); anything else is damage. zlib's own file interface is not
 * used: it ignores bytes after a member that do not look like another member, so a damaged later
 * member would end the file without an error.
 *
 * A zstd file is a series of frames (RFC 8878), including skippable ones, up to the end of the
 * file. Their windows have at most 128 MiB, the library's own limit for streams. A file that begins
 * like another format is refused by the name of that format.
 *
 * Invariants: bytes[at, at + scanned) hold no newline; long_size > 0 is the number of bytes of the
 * present line that were dropped. */
#include "ingest/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/crc32c.h"

enum { READ_BYTES = 256 << 10, SLICE_BYTES = 32 << 20, GZIP_WINDOW = 15 + 16, MAGIC_BYTES = 6 };

enum content {
    CONTENT_UNKNOWN, /* nothing was read yet */
    CONTENT_PLAIN,
    CONTENT_MEMBER,  /* inside a gzip member */
    CONTENT_BETWEEN, /* after a member */
    CONTENT_PADDING, /* after the last member: zero bytes only */
    CONTENT_FRAMES,  /* inside a zstd file */
};

struct fr_lines {
    int file;
    enum content content;
    z_stream inflate; /* next_in, avail_in: bytes that were read from the file and not used */
    bool inflates;
    ZSTD_DStream *zstd; /* NULL: none; it shares the input of `inflate` */
    bool in_frame;
    uint8_t *input;    /* [READ_BYTES] */
    int64_t read_to;   /* offset in the file at the end of the input */
    uint64_t member;   /* number of the present gzip member, from 1 */
    int64_t member_at; /* offset in the file at which it begins */
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
    lines->file = file;
    lines->input = fr_alloc(READ_BYTES, 1);
    return lines;
}

void fr_lines_free(struct fr_lines *lines)
{
    if (!lines)
        return;
    if (lines->inflates)
        inflateEnd(&lines->inflate);
    ZSTD_freeDStream(lines->zstd);
    close(lines->file);
    fr_buffer_release(&lines->bytes);
    free(lines->input);
    free(lines);
}

bool fr_lines_blank(const struct fr_line *line)
{
    for (size_t i = 0; line->value && i < line->size; i++)
        if (line->value[i] != ' ' && line->value[i] != '\t' && line->value[i] != '\r')
            return false;
    return line->value != NULL;
}

/* Reads more of the file after the input that was not used; *got 0: the file has ended. */
static enum fr_status read_file(struct fr_lines *lines, size_t *got, struct fr_err *err)
{
    z_stream *in = &lines->inflate;
    if (in->avail_in && in->next_in != lines->input)
        memmove(lines->input, in->next_in, in->avail_in);
    in->next_in = lines->input;
    ssize_t n;
    do
        n = read(lines->file, lines->input + in->avail_in, READ_BYTES - in->avail_in);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fr_err_set(err, FR_E_IO, "%s", strerror(errno));
    in->avail_in += (uInt)n;
    lines->read_to += n;
    *got = (size_t)n;
    return FR_OK;
}

static enum fr_status bad_member(const struct fr_lines *lines, const char *what, struct fr_err *err)
{
    return fr_err_set(err, FR_E_CORRUPT,
                      "gzip member %" PRIu64 ", which begins at byte %" PRId64 ", near byte %" PRId64 ": %s",
                      lines->member, lines->member_at, lines->read_to - lines->inflate.avail_in, what);
}

static void begin_member(struct fr_lines *lines)
{
    int code = lines->inflates ? inflateReset(&lines->inflate) : inflateInit2(&lines->inflate, GZIP_WINDOW);
    FR_CHECK(code == Z_OK); /* only memory can fail */
    lines->inflates = true;
    lines->content = CONTENT_MEMBER;
    lines->member++;
    lines->member_at = lines->read_to - lines->inflate.avail_in;
}

/* Makes one call of inflate, which writes *got bytes to room. */
static enum fr_status inflate_some(struct fr_lines *lines, uint8_t *room, size_t *got, struct fr_err *err)
{
    z_stream *in = &lines->inflate;
    in->next_out = room;
    in->avail_out = READ_BYTES;
    int code = inflate(in, Z_NO_FLUSH);
    FR_CHECK(code != Z_MEM_ERROR && code != Z_STREAM_ERROR);
    *got = READ_BYTES - in->avail_out;
    if (code == Z_STREAM_END)
        lines->content = CONTENT_BETWEEN;
    else if (code != Z_OK && code != Z_BUF_ERROR) /* Z_BUF_ERROR: more input is needed */
        return bad_member(lines, in->msg ? in->msg : "needs a dictionary", err);
    return FR_OK;
}

static enum fr_status skip_padding(struct fr_lines *lines, struct fr_err *err)
{
    z_stream *in = &lines->inflate;
    for (; in->avail_in; in->next_in++, in->avail_in--)
        if (*in->next_in != 0)
            return fr_err_set(err, FR_E_CORRUPT,
                              "byte %" PRId64 ", after gzip member %" PRIu64
                              ", is neither a further member nor padding of zeros up to the end",
                              lines->read_to - in->avail_in, lines->member);
    return FR_OK;
}

static bool begins(const uint8_t *bytes, size_t size, const char *magic, size_t magic_size)
{
    return size >= magic_size && memcmp(bytes, magic, magic_size) == 0;
}

const char *fr_lines_unreadable(const uint8_t *bytes, size_t size)
{
    static const struct {
        const char *magic;
        size_t size;
        const char *problem;
    } formats[] = {
        {"\xfd\x37\x7a\x58\x5a", 5, "is xz-compressed, which is not read; decompress it (xz -d) or use gzip or zstd"},
        {"BZh", 3, "is bzip2-compressed, which is not read; decompress it (bzip2 -d) or use gzip or zstd"},
        {"\x04\x22\x4d\x18", 4, "is lz4-compressed, which is not read; decompress it (lz4 -d) or use gzip or zstd"},
        {"PK\x03\x04", 4, "is a zip archive, which is not read; unpack it, or use gzip or zstd"},
        {"PAR1", 4, "is a Parquet file, which is not read; write its rows as JSON lines"},
        {"\xff\xfe", 2, "is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"},
        {"\xfe\xff", 2, "is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(formats); i++)
        if (begins(bytes, size, formats[i].magic, formats[i].size))
            return formats[i].problem;
    return NULL;
}

/* Recognizes the format of the file by its first bytes. */
static enum fr_status begin_content(struct fr_lines *lines, struct fr_err *err)
{
    const z_stream *in = &lines->inflate;
    const char *problem = fr_lines_unreadable(in->next_in, in->avail_in);
    if (problem)
        return fr_err_set(err, FR_E_INVALID, "%s", problem);
    bool skippable =
        in->avail_in >= 4 && (in->next_in[0] & 0xf0) == 0x50 && memcmp(in->next_in + 1, "\x2a\x4d\x18", 3) == 0;
    if (skippable || begins(in->next_in, in->avail_in, "\x28\xb5\x2f\xfd", 4)) {
        lines->zstd = ZSTD_createDStream();
        FR_CHECK(lines->zstd != NULL); /* only memory can fail */
        lines->content = CONTENT_FRAMES;
    } else if (begins(in->next_in, in->avail_in, "\x1f\x8b", 2)) {
        begin_member(lines);
    } else {
        lines->content = CONTENT_PLAIN;
    }
    return FR_OK;
}

/* Makes one call of the library, which writes *got bytes to room. The file must end between
 * frames. */
static enum fr_status unpack_some(struct fr_lines *lines, uint8_t *room, size_t *got, bool more, struct fr_err *err)
{
    z_stream *in = &lines->inflate;
    if (in->avail_in == 0 && !more && !lines->in_frame) {
        lines->ended = true;
        return FR_OK;
    }
    ZSTD_inBuffer input = {in->next_in, in->avail_in, 0};
    ZSTD_outBuffer output = {room, READ_BYTES, 0};
    size_t left = ZSTD_decompressStream(lines->zstd, &output, &input);
    in->next_in += input.pos;
    in->avail_in -= (uInt)input.pos;
    *got = output.pos;
    lines->in_frame = left != 0;
    bool cut = !more && in->avail_in == 0 && output.pos == 0 && lines->in_frame;
    if (!ZSTD_isError(left) && !cut)
        return FR_OK;
    return fr_err_set(err, FR_E_CORRUPT, "zstd near byte %" PRId64 ": %s", lines->read_to - in->avail_in,
                      cut ? "unexpected end of file" : ZSTD_getErrorName(left));
}

static unsigned bytes_wanted(enum content content)
{
    switch (content) {
    case CONTENT_UNKNOWN:
        return MAGIC_BYTES;
    case CONTENT_MEMBER:
    case CONTENT_BETWEEN:
    case CONTENT_PADDING:
        return 2; /* the file begins with the magic of gzip */
    case CONTENT_PLAIN:
    case CONTENT_FRAMES:
        break;
    }
    return 1;
}

/* Writes up to READ_BYTES of content to room, possibly none although the file continues. */
static enum fr_status read_content(struct fr_lines *lines, uint8_t *room, size_t *got, struct fr_err *err)
{
    z_stream *in = &lines->inflate;
    size_t more = 1;
    *got = 0;
    enum fr_status status = FR_OK;
    if (in->avail_in < bytes_wanted(lines->content))
        status = read_file(lines, &more, err);
    if (status != FR_OK)
        return status;
    switch (lines->content) {
    case CONTENT_UNKNOWN:
        if (in->avail_in < MAGIC_BYTES && more)
            return FR_OK; /* a short read: the next call reads more */
        return begin_content(lines, err);
    case CONTENT_PLAIN:
        *got = in->avail_in;
        memcpy(room, in->next_in, in->avail_in);
        in->avail_in = 0;
        lines->ended = more == 0;
        return FR_OK;
    case CONTENT_MEMBER:
        if (more == 0 && in->avail_in == 0)
            return bad_member(lines, "unexpected end of file", err);
        return inflate_some(lines, room, got, err);
    case CONTENT_BETWEEN:
        if (in->avail_in == 0)
            lines->ended = more == 0;
        else if (*in->next_in == 0)
            lines->content = CONTENT_PADDING;
        else if (in->avail_in >= 2 || more == 0)
            begin_member(lines); /* inflate checks its header */
        return FR_OK;
    case CONTENT_FRAMES:
        return unpack_some(lines, room, got, more > 0, err);
    case CONTENT_PADDING:
        lines->ended = more == 0;
        return skip_padding(lines, err);
    }
    return FR_OK;
}

/* Drops bytes that were given out and the beginning of a line that is too long, and reads more. */
static enum fr_status read_more(struct fr_lines *lines, struct fr_err *err)
{
    struct fr_buffer *bytes = &lines->bytes;
    size_t left = bytes->size - lines->at, got = 0;
    if (left > lines->line_max) {
        lines->long_crc = fr_crc32c(lines->long_crc, bytes->data + lines->at, left);
        lines->long_size += left;
        left = 0;
    } else if (left && lines->at) {
        memmove(bytes->data, bytes->data + lines->at, left);
    }
    bytes->size = lines->scanned = left;
    lines->at = 0;
    enum fr_status status = read_content(lines, fr_buffer_reserve(bytes, READ_BYTES), &got, err);
    bytes->size += got;
    return status;
}

/* Completes the line of `size` bytes at `at`; false: the line is passed over. */
static bool complete_line(struct fr_lines *lines, size_t size, bool newline, struct fr_line *line)
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
            if (complete_line(lines, newline ? (size_t)(newline - begin) : left, newline != NULL, line))
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
