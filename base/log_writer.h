/* The queue and the writer of the log's lines (log_writer.c). Private to base/. */
#ifndef FR_BASE_LOG_WRITER_H
#define FR_BASE_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PIPE_BUF on Linux: a write of this size to a pipe is complete or fails. */
enum { FR_LOG_LINE_MAX = 4096 };

/* How a line reaches the descriptor. */
enum fr_log_line {
    FR_LOG_LINE_PLAIN, /* dropped when there is no room for the line */
    FR_LOG_LINE_TEXT,  /* waits for room, at most FR_LOG_PATIENCE_MS without progress */
    /* as FR_LOG_LINE_TEXT, but returns once the line is written; later lines are dropped */
    FR_LOG_LINE_LAST,
};

/* Copies at most FR_LOG_LINE_MAX bytes, newline included. Thread: any. */
void fr_log_put(enum fr_log_line kind, const char *line, size_t size);
/* Writes a line at once, after the lines that are waiting; gives up after FR_LOG_PATIENCE_MS. For a
 * process that cannot continue: takes no lock, so a signal handler may call it. */
void fr_log_put_directly(const char *line, size_t size);
/* Makes the line that gives the number of lines missing at its place (log.c). Returns its size. */
size_t fr_log_lost_line(char line[FR_LOG_LINE_MAX], uint64_t lost);

#endif
