/* Small things every command of the tool prints with. Private to tool. */
#ifndef FR_TOOL_OUTPUT_H
#define FR_TOOL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* Writer for the dump functions: self is unused. 0, or -1 when stdout refuses. */
int fr_tool_write_stdout(void *self, const void *bytes, size_t size);
/* The same into a FILE *. */
int fr_tool_write_file(void *self, const void *bytes, size_t size);
/* "1h", "5m", "90s", "250ms": the largest unit that divides it. */
void fr_tool_duration_text(int64_t ms, char out[24]);

/* A file that appears whole or not at all: path.tmp until fr_tool_replaced_commit. */
struct fr_tool_replaced {
    FILE *file;
    char *path, *temporary; /* owned */
};
enum fr_status fr_tool_replaced_open(const char *path, struct fr_tool_replaced *out, struct fr_err *err) FR_MUST_CHECK;
/* Syncs, unless nobody needs the file after a power cut, and renames. Releases in any case. */
enum fr_status fr_tool_replaced_commit(struct fr_tool_replaced *replaced, bool sync, struct fr_err *err) FR_MUST_CHECK;
/* Removes the temporary file; takes a zeroed or committed one. */
void fr_tool_replaced_abandon(struct fr_tool_replaced *replaced);

#endif
