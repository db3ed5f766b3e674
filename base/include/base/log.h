/* logfmt on stderr: one event a line, UTC RFC 3339 time, level, label, component, stable event
 * code, then key=value pairs.
 *
 *   fr_log(FR_LOG_INFO, "ingest", "assigned", "topic=%s partition=%d offset=%" PRId64, ...)
 *
 * String values that may hold spaces or quotes go through fr_log_quote.
 *
 * Thread: any; one write(2) per line. */
#ifndef FR_BASE_LOG_H
#define FR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum fr_log_level { FR_LOG_DEBUG, FR_LOG_INFO, FR_LOG_WARN, FR_LOG_ERROR };

void fr_log_set_level(enum fr_log_level level);
/* A pair such as `model=ctr`, which every later line has behind its level; "" or NULL: none. To be
 * called before there are threads. */
void fr_log_set_label(const char *text);
void fr_log(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same whatever the level is, and the end of the log: later lines, of any thread, are
 * dropped. */
void fr_log_last(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Writes text as a quoted logfmt value into out (cut to size, always closed and NUL-terminated);
 * returns out. */
const char *fr_log_quote(char *out, size_t size, const char *text);
/* Limits the rate of repeated events: it is true when *last_ns is 0 or older than interval_ns, and
 * then stores now_ns. */
bool fr_log_due(unsigned long long *last_ns, unsigned long long now_ns, unsigned long long interval_ns);

#endif
