/* Lines of plain and gzip files (zlib reads both through one call).
 *
 * A line ends with a newline or with the file; a carriage return before it is white space to JSON
 * and stays. Blank lines are numbered and passed over. Memory is bounded: of a line longer than
 * line_max only size and CRC32C are kept. So is the time of a call: a seek in a gzip file is
 * reading all before it, so a call reads at most SLICE_BYTES. Invariants: bytes[at, at + scanned)
 * hold no newline; long_size > 0: so many bytes of the present line went by already. */
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/crc32c.h"

enum { READ_BYTES = 256 << 10, SLICE_BYTES = 32 << 20 };

struct fr_lines {
    char *path;
    gzFile file;
    size_t line_max;
    int64_t from, number; /* first line to give; the line that begins at `at` */
    struct fr_buffer bytes;
    size_t at, scanned;
    size_t long_size;
    uint32_t long_crc;
    bool ended;
};

static enum fr_status open_regular(const char *path, int *out, int64_t *size, struct fr_err *err)
{
    struct stat stat;
    /* not to wait for the writer of a pipe */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return fr_err_set(err,
                          errno == ENOENT                     ? FR_E_UNAVAILABLE
                          : errno == EACCES || errno == EPERM ? FR_E_DENIED
                                                              : FR_E_IO,
                          "ingest.files: %s: %s; put the file there, or take it out of ingest.files", path,
                          strerror(errno));
    enum fr_status status = FR_OK;
    if (fstat(file, &stat) != 0)
        status = fr_err_set(err, FR_E_IO, "ingest.files: %s: %s", path, strerror(errno));
    else if (!S_ISREG(stat.st_mode))
        status = fr_err_set(err, FR_E_INVALID,
                            "ingest.files: %s is not a regular file: only such a file can be read again after a "
                            "restart; use a file, or take it out of ingest.files",
                            path);
    if (status != FR_OK) {
        close(file);
        return status;
    }
    *out = file;
    *size = stat.st_size;
    return FR_OK;
}

enum fr_status fr_lines_size(const char *path, int64_t *out, struct fr_err *err)
{
    int file = -1;
    enum fr_status status = open_regular(path, &file, out, err);
    if (status == FR_OK)
        close(file);
    return status;
}

enum fr_status fr_lines_open(const char *path, size_t line_max, int64_t from, struct fr_lines **out, struct fr_err *err)
{
    int file = -1;
    int64_t size;
    enum fr_status status = open_regular(path, &file, &size, err);
    if (status != FR_OK)
        return status;
    struct fr_lines *self = fr_alloc(1, sizeof(*self));
    self->path = fr_strdup(path);
    self->line_max = line_max;
    self->from = from;
    self->file = gzdopen(file, "rb");
    FR_CHECK(self->file); /* only memory can fail */
    gzbuffer(self->file, READ_BYTES);
    *out = self;
    return FR_OK;
}

void fr_lines_close(struct fr_lines *self)
{
    if (!self)
        return;
    gzclose_r(self->file);
    fr_buffer_release(&self->bytes);
    free(self->path);
    free(self);
}

/* Drops what was given out, puts away the beginning of a line that is too long, reads more. */
static enum fr_status read_more(struct fr_lines *self, struct fr_err *err)
{
    struct fr_buffer *bytes = &self->bytes;
    size_t held = bytes->size - self->at;
    if (held > self->line_max) {
        self->long_crc = fr_crc32c(self->long_crc, bytes->data + self->at, held);
        self->long_size += held;
        held = 0;
    } else if (held && self->at) {
        memmove(bytes->data, bytes->data + self->at, held);
    }
    bytes->size = self->scanned = held;
    self->at = 0;
    int got = gzread(self->file, fr_buffer_reserve(bytes, READ_BYTES), READ_BYTES);
    if (got > 0) {
        bytes->size += (size_t)got;
        return FR_OK;
    }
    int code = Z_OK;
    const char *text = gzerror(self->file, &code);
    if (got == 0 && (code == Z_OK || code == Z_STREAM_END)) {
        self->ended = true;
        return FR_OK;
    }
    if (code == Z_ERRNO)
        return fr_err_set(err, FR_E_IO, "ingest.files: %s: %s", self->path, strerror(errno));
    return fr_err_set(err, FR_E_CORRUPT,
                      "ingest.files: %s is damaged or cut off after line %" PRId64
                      " (%s); put the whole file there and start again: reading goes on where it stopped",
                      self->path, self->number, text);
}

static bool blank(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != ' ' && bytes[i] != '\t' && bytes[i] != '\r')
            return false;
    return true;
}

/* The line of `size` bytes at `at` is complete; false: it is passed over. */
static bool take_line(struct fr_lines *self, size_t size, bool newline, struct fr_line *line)
{
    const uint8_t *bytes = self->bytes.data + self->at;
    size_t whole = self->long_size + size;
    bool wanted = self->number >= self->from;
    *line = (struct fr_line){.number = self->number, .size = whole};
    if (whole > self->line_max)
        line->crc32c = fr_crc32c(self->long_crc, bytes, size);
    else
        line->value = (const char *)bytes;
    wanted &= line->value == NULL || !blank(bytes, size);
    self->at += size + newline;
    self->scanned = self->long_size = 0;
    self->long_crc = 0;
    self->number++;
    return wanted;
}

enum fr_status fr_lines_next(struct fr_lines *self, struct fr_line *line, struct fr_err *err)
{
    for (size_t slice = 0; slice < SLICE_BYTES;) {
        size_t held = self->bytes.size - self->at;
        const uint8_t *begin = held ? self->bytes.data + self->at : NULL;
        const uint8_t *newline =
            held > self->scanned ? memchr(begin + self->scanned, '\n', held - self->scanned) : NULL;
        if (newline || (self->ended && (held || self->long_size))) {
            if (take_line(self, newline ? (size_t)(newline - begin) : held, newline != NULL, line))
                return FR_OK;
            continue;
        }
        if (self->ended) {
            *line = (struct fr_line){.number = self->number};
            return FR_EOF;
        }
        enum fr_status status = read_more(self, err);
        if (status != FR_OK)
            return status;
        slice += READ_BYTES;
    }
    return FR_AGAIN;
}
