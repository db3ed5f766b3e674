/* logfmt on stderr: one event a line, UTC RFC 3339 time, level, label, component, stable event
 * code, then key=value pairs.
 *
 *   fr_log(FR_LOG_INFO, "ingest", "assigned", "topic=%s partition=%d offset=%" PRId64, ...)
 *
 * String values that may hold spaces or quotes go through fr_log_quote.
 *
 * No caller waits for whoever reads stderr: a line that cannot be written is dropped and counted,
 * and a line `lines_lost` says where so many are missing.
 *
 * Thread: any; one write(2) per line. */
#ifndef FR_BASE_LOG_H
#define FR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fr_log_level { FR_LOG_DEBUG, FR_LOG_INFO, FR_LOG_WARN, FR_LOG_ERROR };

void fr_log_set_level(enum fr_log_level level);
/* A pair such as `model=ctr`, which every later line has behind its level; "" or NULL: none. To be
 * called before there are threads. */
void fr_log_set_label(const char *text);
void fr_log(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same whatever the level is, for a line that no burst may push out: it waits for room, with
 * patience. */
void fr_log_surely(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same whatever the level is, and the end of the log: later lines, of any thread, are
 * dropped. */
void fr_log_last(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The longest that fr_log_surely, fr_log_last and the calls below wait without seeing anything
 * being written. */
enum { FR_LOG_PATIENCE_MS = 1000 };
/* For the main thread of a program of ours, once, before there are others, and never in a library:
 * from here on a thread of the log's own writes the lines, and what other code writes to a pipe or
 * terminal as standard error does not wait either. False: there is no thread, and lines are written
 * by their callers where that takes no time. A process that forks later has no log. */
bool fr_log_start(void);
/* Returns when all lines are written, or with patience. */
void fr_log_flush(void);
/* Text for people, line by line and as it is: waits for room, with patience. */
void fr_log_text(const char *text, size_t size);
/* A line of level error at once, by a process that is about to end: it takes no lock, so it may be
 * called in the handler of a signal that its own thread caused. */
void fr_log_last_words(const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Standard error as this process was given it, for the output of others: a write may wait. */
int fr_log_descriptor(void);
/* Lines lost so far; *unsaid: of these, the ones that no line of the log has named yet. */
uint64_t fr_log_lost(uint64_t *unsaid);
/* Writes text as a quoted logfmt value into out (cut to size, always closed and NUL-terminated);
 * returns out. */
const char *fr_log_quote(char *out, size_t size, const char *text);
/* Limits the rate of repeated events: it is true when *last_ns is 0 or older than interval_ns, and
 * then stores now_ns. */
bool fr_log_due(unsigned long long *last_ns, unsigned long long now_ns, unsigned long long interval_ns);

#endif
