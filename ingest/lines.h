/* Lines of one file, plain or gzip, numbered from 0. Private to ingest. Thread: one. */
#ifndef FR_INGEST_LINES_H
#define FR_INGEST_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct fr_lines;

struct fr_line {
    int64_t number;
    const char *value; /* without its newline; until the next call; NULL: longer than line_max */
    size_t size;
    uint32_t crc32c; /* of a line without value */
};

/* Size in bytes of a regular file. FR_E_UNAVAILABLE: it is not there; FR_E_DENIED; FR_E_INVALID:
 * not a regular file; FR_E_IO. */
enum fr_status fr_lines_size(const char *path, int64_t *out, struct fr_err *err) FR_MUST_CHECK;
/* Lines before `from` are passed over. Errors as above. */
enum fr_status fr_lines_open(const char *path, size_t line_max, int64_t from, struct fr_lines **out,
                             struct fr_err *err) FR_MUST_CHECK;
void fr_lines_close(struct fr_lines *lines);
/* The next line that holds more than blanks. FR_AGAIN: a slice of the file was read and none is
 * complete; FR_EOF: line->number is how many lines there are; FR_E_CORRUPT: damaged or cut off;
 * FR_E_IO. */
enum fr_status fr_lines_next(struct fr_lines *lines, struct fr_line *line, struct fr_err *err) FR_MUST_CHECK;

#endif
