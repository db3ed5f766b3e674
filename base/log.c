/* logfmt lines on stderr, the form that both people and log collectors read without a schema.
 *
 * Invariants: one write(2) per line, so that lines of several threads never mix (POSIX: writes to a
 * pipe of up to PIPE_BUF bytes are atomic; LINE_MAX_BYTES equals PIPE_BUF on Linux); a line holds
 * no control byte but its final newline, so that data cannot forge a second event; errno is kept;
 * nothing follows a line of fr_log_last.
 *
 * Thread: any; one mutex, held for the write alone, so that no line overtakes the last one. It
 * does not rotate, buffer or open files; a supervisor does. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, LABEL_MAX = 160 };

static atomic_int lowest_level = FR_LOG_INFO;
static char label[LABEL_MAX]; /* with a blank before it, or empty */
static pthread_mutex_t write_lock = PTHREAD_MUTEX_INITIALIZER;
static bool ended; /* under write_lock */

void fr_log_set_level(enum fr_log_level level)
{
    atomic_store_explicit(&lowest_level, (int)level, memory_order_relaxed);
}

void fr_log_set_label(const char *text)
{
    snprintf(label, sizeof(label), "%s%s", text && text[0] ? " " : "", text ? text : "");
}

static const char *level_name(enum fr_log_level level)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    return (unsigned)level < sizeof(names) / sizeof(names[0]) ? names[level] : "error";
}

static size_t begin_line(char *line, enum fr_log_level level, const char *component, const char *event)
{
    struct timespec now;
    struct tm utc;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        memset(&now, 0, sizeof(now));
    if (!gmtime_r(&now.tv_sec, &utc))
        memset(&utc, 0, sizeof(utc));
    int size =
        snprintf(line, LINE_MAX_BYTES, "ts=%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ level=%s%s component=%s event=%s",
                 utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                 now.tv_nsec / 1000000, level_name(level), label, component, event);
    return size < 0 ? 0 : size >= LINE_MAX_BYTES ? LINE_MAX_BYTES - 1 : (size_t)size;
}

static void write_line(const char *line, size_t size, bool last)
{
    ssize_t written = 0;
    pthread_mutex_lock(&write_lock);
    do {
        if (!ended)
            written = write(STDERR_FILENO, line, size);
    } while (written < 0 && errno == EINTR);
    ended |= last;
    pthread_mutex_unlock(&write_lock);
    /* A closed or full stderr has nowhere to be reported. */
}

static void put_line(enum fr_log_level level, bool last, const char *component, const char *event, const char *format,
                     va_list arguments)
{
    int saved_errno = errno;
    char line[LINE_MAX_BYTES];
    size_t size = begin_line(line, level, component, event);
    if (format && format[0] != '\0' && size < LINE_MAX_BYTES - 2) {
        size_t room = LINE_MAX_BYTES - size - 2; /* one for the space, one for the newline */
        line[size] = ' ';
        int more = vsnprintf(line + size + 1, room, format, arguments);
        if (more > 0)
            size += 1 + ((size_t)more < room ? (size_t)more : room - 1);
        if (more > 0 && (size_t)more >= room)
            memcpy(line + size - 3, "...", 3);
    }
    if (size > LINE_MAX_BYTES - 1)
        size = LINE_MAX_BYTES - 1;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    line[size] = '\n';
    write_line(line, size + 1, last);
    errno = saved_errno;
}

void fr_log(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;
    va_list arguments;
    va_start(arguments, format);
    put_line(level, false, component, event, format, arguments);
    va_end(arguments);
}

void fr_log_last(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_line(level, true, component, event, format, arguments);
    va_end(arguments);
}

/* How one byte stands inside a quoted value; returns its length in `piece` (at most 4). */
static size_t quote_byte(unsigned char byte, char piece[5])
{
    static const char hex[] = "0123456789abcdef";
    if (byte == '"' || byte == '\\') {
        piece[0] = '\\';
        piece[1] = (char)byte;
        return 2;
    }
    if (byte == '\n' || byte == '\t' || byte == '\r') {
        piece[0] = '\\';
        piece[1] = byte == '\n' ? 'n' : byte == '\t' ? 't' : 'r';
        return 2;
    }
    if (byte < 0x20 || byte == 0x7f) {
        piece[0] = '\\';
        piece[1] = 'x';
        piece[2] = hex[byte >> 4];
        piece[3] = hex[byte & 15];
        return 4;
    }
    piece[0] = (char)byte;
    return 1;
}

const char *fr_log_quote(char *out, size_t size, const char *text)
{
    if (size == 0)
        return "";
    if (size < 3) { /* no room for two quotes */
        out[0] = '\0';
        return out;
    }
    size_t at = 0;
    out[at++] = '"';
    for (const char *p = text ? text : ""; *p; p++) {
        char piece[5];
        size_t length = quote_byte((unsigned char)*p, piece);
        if (at + length + 2 > size)
            break;
        memcpy(out + at, piece, length);
        at += length;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}

bool fr_log_due(unsigned long long *last_ns, unsigned long long now_ns, unsigned long long interval_ns)
{
    if (*last_ns != 0 && now_ns - *last_ns < interval_ns)
        return false;
    *last_ns = now_ns ? now_ns : 1; /* 0 means "never" */
    return true;
}
