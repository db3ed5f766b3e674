/* Log lines in logfmt on stderr. A line is one event: UTC RFC 3339 time, level, label, component,
 * stable event code, then key=value pairs.
 *
 *   fr_log(FR_LOG_INFO, "ingest", "assigned", "topic=%s partition=%d offset=%" PRId64, ...)
 *
 * String values that may contain spaces or quotes go through fr_log_quote.
 *
 * No caller waits for the reader of stderr: a line that cannot be written is dropped and counted,
 * and a line `lines_lost` gives the number of lines that are missing at its place.
 *
 * Thread: any; one write(2) per line. */
#ifndef FR_BASE_LOG_H
#define FR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fr_log_level { FR_LOG_DEBUG, FR_LOG_INFO, FR_LOG_WARN, FR_LOG_ERROR };

void fr_log_set_level(enum fr_log_level level);
/* Sets a pair such as `model=ctr`, which every later line has after its level; "" or NULL: none.
 * Call before other threads start. */
void fr_log_set_label(const char *text);
void fr_log(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Like fr_log, whatever the level is, for a line that must not be lost in a burst: waits for room,
 * at most FR_LOG_PATIENCE_MS without progress. */
void fr_log_surely(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Like fr_log_surely, and ends the log: later lines of any thread are dropped. */
void fr_log_last(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* How long fr_log_surely, fr_log_last, fr_log_flush and fr_log_text wait while nothing is being
 * written. */
enum { FR_LOG_PATIENCE_MS = 1000 };
/* Starts the log's own thread, which writes the lines from now on. Output of other code to standard
 * error, if that is a pipe or a terminal, does not wait either. The main thread of one of our
 * programs calls this once, before it starts other threads; a library never does. Returns false if
 * no thread could be started: callers then write their lines themselves, if that takes no time. A
 * process that forks later has no log. */
bool fr_log_start(void);
/* Returns when all lines are written, or after FR_LOG_PATIENCE_MS without progress. */
void fr_log_flush(void);
/* Writes text for people, line by line, unchanged. Waits for room, at most FR_LOG_PATIENCE_MS
 * without progress. */
void fr_log_text(const char *text, size_t size);
/* Writes a line of level error immediately, for a process that is about to end. Takes no lock, so
 * the handler of a signal that its own thread caused may call it. */
void fr_log_last_words(const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The standard error that this process was started with, for the output of other code. A write to
 * it may wait. */
int fr_log_descriptor(void);
/* Number of lines lost so far; *unsaid: those of them that no line `lines_lost` has counted yet. */
uint64_t fr_log_lost(uint64_t *unsaid);
/* Writes text as a quoted logfmt value into out, cut to size, always closed and NUL-terminated.
 * Returns out. */
const char *fr_log_quote(char *out, size_t size, const char *text);
/* Limits the rate of a repeated event: returns true, and stores now_ns, if *last_ns is 0 or older
 * than interval_ns. */
bool fr_log_due(unsigned long long *last_ns, unsigned long long now_ns, unsigned long long interval_ns);

#endif
