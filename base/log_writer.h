/* Where the lines of the log go (log_writer.c). Private to base/. */
#ifndef FR_BASE_LOG_WRITER_H
#define FR_BASE_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PIPE_BUF on Linux: a write of so much to a pipe is whole or not at all. */
enum { FR_LOG_LINE_MAX = 4096 };

/* How a line reaches the descriptor. */
enum fr_log_line {
    FR_LOG_LINE_PLAIN, /* lost when there is no room for it */
    FR_LOG_LINE_TEXT,  /* waits for room, at most FR_LOG_PATIENCE_MS without progress */
    FR_LOG_LINE_LAST,  /* the same; later lines are dropped; it returns once written */
};

/* Takes a copy of at most FR_LOG_LINE_MAX bytes, newline included. Thread: any. */
void fr_log_put(enum fr_log_line kind, const char *line, size_t size);
/* Writes at once, after what waits, or gives up after FR_LOG_PATIENCE_MS. For the end of a process
 * that cannot continue: it takes no lock, so that it may be called in a signal handler. */
void fr_log_put_directly(const char *line, size_t size);
/* The line that says how many are missing where it stands; log.c. Returns its size. */
size_t fr_log_lost_line(char line[FR_LOG_LINE_MAX], uint64_t lost);

#endif
