/* Files of lines that a command reads, plain or gzip, with the tool's error texts. Private to
 * tool. */
#ifndef FR_TOOL_INPUT_H
#define FR_TOOL_INPUT_H

#include "ingest/lines.h"

enum { FR_TOOL_LINE_MAX = 64 << 20 };

/* Errors: FR_E_NOT_FOUND, FR_E_IO. Release with fr_lines_free. */
enum fr_status fr_tool_lines_open(const char *path, struct fr_lines **out, struct fr_err *err) FR_MUST_CHECK;
/* Returns FR_OK, FR_EOF, FR_E_CORRUPT or FR_E_IO (a damaged or truncated file), or FR_E_LIMIT (a
 * line of more than FR_TOOL_LINE_MAX bytes). */
enum fr_status fr_tool_lines_next(struct fr_lines *lines, const char *path, struct fr_line *line,
                                  struct fr_err *err) FR_MUST_CHECK;

#endif
