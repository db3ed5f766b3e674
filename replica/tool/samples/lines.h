/* Lines of a file, plain or gzip. Private to replica/tool. Thread: the caller's. Limits: a line of
 * FR_LINE_MAX bytes. */
#ifndef FR_TOOL_LINES_H
#define FR_TOOL_LINES_H

#include <stddef.h>

#include "base/status.h"

enum { FR_LINE_MAX = 64 << 20 };

struct fr_tool_lines;

enum fr_status fr_tool_lines_open(const char *path, struct fr_tool_lines **out, struct fr_err *err) FR_MUST_CHECK;
void fr_tool_lines_close(struct fr_tool_lines *lines);
/* FR_OK with the line without its newline, valid until the next call; FR_EOF at the end (a last
 * line needs no newline); FR_E_CORRUPT (damaged or cut gzip), FR_E_LIMIT. */
enum fr_status fr_tool_lines_next(struct fr_tool_lines *lines, const char **line, size_t *size,
                                  struct fr_err *err) FR_MUST_CHECK;

#endif
