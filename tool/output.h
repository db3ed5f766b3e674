/* Printing functions that every command of the tool uses. Private to tool. */
#ifndef FR_TOOL_OUTPUT_H
#define FR_TOOL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* A writer for the dump functions; self is unused. Returns 0, or -1 when stdout refuses. */
int fr_tool_write_stdout(void *self, const void *bytes, size_t size);
/* The same for a FILE *. */
int fr_tool_write_file(void *self, const void *bytes, size_t size);
/* Writes "1h", "5m", "90s" or "250ms": the largest unit that divides the duration. */
void fr_tool_duration_text(int64_t ms, char out[24]);

/* A file that appears whole or not at all: it is called path.tmp until fr_tool_replaced_commit. */
struct fr_tool_replaced {
    FILE *file;
    char *path, *temporary; /* owned */
};
enum fr_status fr_tool_replaced_open(const char *path, struct fr_tool_replaced *out, struct fr_err *err) FR_MUST_CHECK;
/* Renames the file into place, after a sync if `sync` is set (for files that must survive a power
 * cut). Releases the struct in any case. */
enum fr_status fr_tool_replaced_commit(struct fr_tool_replaced *replaced, bool sync, struct fr_err *err) FR_MUST_CHECK;
/* Removes the temporary file. A zeroed or committed struct is allowed. */
void fr_tool_replaced_abandon(struct fr_tool_replaced *replaced);

#endif
