/* Lines of one plain, gzip or zstd file, numbered from 0. What is wrong with it is said in bare
 * words: who reads it knows where it was named and what to do about it. Thread: one. */
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
    size_t size;
    uint32_t crc32c; /* of a line without value */
};

/* Owns the open file from now on. Lines before `from` are passed over, and blank ones if asked. */
struct fr_lines *fr_lines_new(int file, size_t line_max, int64_t from, bool skip_blank);
void fr_lines_free(struct fr_lines *lines);
/* The next line. FR_AGAIN: a slice of the file was read and no line is complete. FR_EOF:
 * line->number is how many lines there are. FR_E_CORRUPT (damaged or cut off), FR_E_IO: in line
 * line->number. FR_E_INVALID: the file is in another format. */
enum fr_status fr_lines_next(struct fr_lines *lines, struct fr_line *line, struct fr_err *err) FR_MUST_CHECK;
/* Says which format that is not read a file of these first bytes is in, and what to do; NULL: none
 * that is known. */
const char *fr_lines_unreadable(const uint8_t *bytes, size_t size);
/* It has a value, of nothing but white space. */
bool fr_lines_blank(const struct fr_line *line);

#endif
