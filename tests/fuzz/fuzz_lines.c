/* Fuzz target of plain and gzip lines: whatever a file holds ends in lines or in what is wrong with
 * it. The first byte of the input chooses: the rest is the file; the rest is compressed, in two
 * members, and reads as it does plain; that and a byte of it is changed, and then it reads the same
 * or is refused, never shorter. */
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "fuzz.h"
#include "ingest/lines.h"

enum { LINE_MAX_BYTES = 512, GZIP = 15 + 16, HEADER = 4 };

struct outcome {
    enum fr_status status;
    int64_t lines;
    uint64_t hash;
};

static void mix(struct outcome *outcome, const void *bytes, size_t size)
{
    outcome->hash = fr_xxh3_seed(bytes, size, outcome->hash);
}

static struct outcome read_all(const uint8_t *bytes, size_t size)
{
    struct outcome outcome = {.status = FR_AGAIN};
    struct fr_line line;
    struct fr_err err = {0};
    int file = memfd_create("lines", MFD_CLOEXEC);
    FR_CHECK(file >= 0);
    FR_CHECK(write(file, bytes, size) == (ssize_t)size);
    FR_CHECK(lseek(file, 0, SEEK_SET) == 0);
    struct fr_lines *lines = fr_lines_new(file, LINE_MAX_BYTES, 0, false);
    while (outcome.status == FR_OK || outcome.status == FR_AGAIN) {
        outcome.status = fr_lines_next(lines, &line, &err);
        if (outcome.status != FR_OK)
            continue;
        mix(&outcome, &line.size, sizeof(line.size));
        if (line.value)
            mix(&outcome, line.value, line.size);
        else
            mix(&outcome, &line.crc32c, sizeof(line.crc32c));
        FR_CHECK(line.number == outcome.lines);
        FR_CHECK(!line.value || line.size <= LINE_MAX_BYTES);
        outcome.lines += 1;
    }
    FR_CHECK(outcome.status == FR_EOF || outcome.status == FR_E_CORRUPT || outcome.status == FR_E_INVALID);
    fr_lines_free(lines);
    return outcome;
}

static void put_member(struct fr_buffer *out, const uint8_t *bytes, size_t size)
{
    z_stream stream = {0};
    FR_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t room = deflateBound(&stream, size);
    stream.next_in = (uint8_t *)(uintptr_t)bytes;
    stream.avail_in = (uInt)size;
    stream.next_out = fr_buffer_reserve(out, room);
    stream.avail_out = (uInt)room;
    FR_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out->size += room - stream.avail_out;
    FR_CHECK(deflateEnd(&stream) == Z_OK);
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return a->status == b->status && a->lines == b->lines && a->hash == b->hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER || data[0] % 3 == 0) {
        (void)read_all(size ? data + 1 : data, size ? size - 1 : 0);
        return 0;
    }
    const uint8_t *content = data + HEADER;
    const size_t n = size - HEADER, cut = n * data[1] / 256;
    if (n >= 2 && content[0] == 0x1f && content[1] == 0x8b)
        return -1; /* would be gzip as it is */
    if (fr_lines_unreadable(content, n) ||
        (n >= 4 && (!memcmp(content + 1, "\xb5\x2f\xfd", 3) || !memcmp(content + 1, "\x2a\x4d\x18", 3))))
        return -1; /* zstd, or a format that is not read */
    struct outcome plain = read_all(content, n);
    struct fr_buffer packed = {0};
    put_member(&packed, content, cut);
    put_member(&packed, content + cut, n - cut);
    struct outcome unpacked = read_all(packed.data, packed.size);
    FR_CHECK(plain.status == FR_EOF && same(&plain, &unpacked));
    if (data[0] % 3 == 2) {
        size_t at = 2 + (data[2] | (size_t)data[3] << 8) % (packed.size - 2); /* its magic stays */
        packed.data[at] ^= (uint8_t)(1 + data[1] % 255);
        unpacked = read_all(packed.data, packed.size);
        FR_CHECK(unpacked.status == FR_E_CORRUPT || same(&plain, &unpacked));
    }
    fr_buffer_release(&packed);
    return 0;
}
