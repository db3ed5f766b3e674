/* Lines as ingest reads them (ingest/lines.h), also from pipes. A line that is too long ends the
 * reading.
 *
 * Thread: the caller's. */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum fr_status fr_tool_lines_open(const char *path, struct fr_lines **out, struct fr_err *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return fr_err_set(err, errno == ENOENT ? FR_E_NOT_FOUND : FR_E_IO, "%s: %s", path, strerror(errno));
    *out = fr_lines_new(file, FR_TOOL_LINE_MAX, 0, false);
    return FR_OK;
}

enum fr_status fr_tool_lines_next(struct fr_lines *lines, const char *path, struct fr_line *line, struct fr_err *err)
{
    enum fr_status status = FR_AGAIN;
    while (status == FR_AGAIN)
        status = fr_lines_next(lines, line, err);
    if (status == FR_OK && !line->value)
        return fr_err_set(err, FR_E_LIMIT, "%s: a line is longer than %d bytes", path, FR_TOOL_LINE_MAX);
    return status < 0 ? fr_err_wrap(err, "%s: cannot be read", path) : status;
}
