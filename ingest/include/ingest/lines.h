/* Lines of one plain, gzip or zstd file, numbered from 0. Errors name the
 * fault only; the caller adds the file's name and the remedy. Thread: one. */
#ifndef FR_INGEST_LINES_H
#define FR_INGEST_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct fr_lines;

struct fr_line {
    int64_t number;
    const char *value; /* without its newline; until the next call; NULL: longer than line_max */
    size_t size;       /* bytes of the whole line, also if there is no value */
    uint32_t crc32c;   /* of a line that is longer than line_max */
};

/* Takes ownership of the open file. Lines before `from` are passed over, and blank ones if
 * `skip_blank`. */
struct fr_lines *fr_lines_new(int file, size_t line_max, int64_t from, bool skip_blank);
void fr_lines_free(struct fr_lines *lines);
/* Gets the next line. FR_AGAIN: a slice of the file was read and no line is complete. FR_EOF:
 * line->number is the number of lines of the file. FR_E_CORRUPT (damaged or cut off), FR_E_IO: in
 * line line->number. FR_E_INVALID: the file is in another format. */
enum fr_status fr_lines_next(struct fr_lines *lines, struct fr_line *line, struct fr_err *err) FR_MUST_CHECK;
/* Returns which unsupported format a file with these first bytes is in, and the remedy; NULL: none
 * that is known. */
const char *fr_lines_unreadable(const uint8_t *bytes, size_t size);
/* Whether the line has a value that is white space only. */
bool fr_lines_blank(const struct fr_line *line);

#endif
