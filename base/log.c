/* logfmt lines on stderr, a form that people and log collectors can read without a schema.
 *
 * Invariants: a line has at most FR_LOG_LINE_MAX bytes. That is PIPE_BUF on Linux, so a line
 * reaches a pipe by one write(2), and lines of several processes never mix. A line has no control
 * byte except the final newline, so data cannot forge a second event. errno is preserved. No line
 * follows one of fr_log_last. log_writer.c writes the lines and handles those that cannot be
 * written.
 *
 * Thread: any. Files are not opened or rotated; a supervisor does that. */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "log_writer.h"

enum { LINE_MAX_BYTES = FR_LOG_LINE_MAX, LABEL_MAX = 160 };

static atomic_int lowest_level = FR_LOG_INFO;
static char label[LABEL_MAX]; /* begins with a blank, or is empty */

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

static size_t make_line(char line[LINE_MAX_BYTES], enum fr_log_level level, const char *component, const char *event,
                        const char *format, va_list arguments)
{
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
    return size + 1;
}

/* Preserves errno. */
static void put_line(enum fr_log_line kind, enum fr_log_level level, const char *component, const char *event,
                     const char *format, va_list arguments)
{
    int saved_errno = errno;
    char line[LINE_MAX_BYTES];
    fr_log_put(kind, line, make_line(line, level, component, event, format, arguments));
    errno = saved_errno;
}

void fr_log(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;
    va_list arguments;
    va_start(arguments, format);
    put_line(FR_LOG_LINE_PLAIN, level, component, event, format, arguments);
    va_end(arguments);
}

void fr_log_surely(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_line(FR_LOG_LINE_TEXT, level, component, event, format, arguments);
    va_end(arguments);
}

void fr_log_last(enum fr_log_level level, const char *component, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_line(FR_LOG_LINE_LAST, level, component, event, format, arguments);
    va_end(arguments);
}

void fr_log_last_words(const char *component, const char *event, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    fr_log_put_directly(line, make_line(line, FR_LOG_ERROR, component, event, format, arguments));
    va_end(arguments);
}

void fr_log_text(const char *text, size_t size)
{
    while (size > 0) {
        size_t piece = size < LINE_MAX_BYTES ? size : LINE_MAX_BYTES;
        const char *newline = memchr(text, '\n', piece);
        if (newline)
            piece = (size_t)(newline - text) + 1;
        fr_log_put(FR_LOG_LINE_TEXT, text, piece);
        text += piece;
        size -= piece;
    }
}

static size_t make_lost_line(char line[LINE_MAX_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t size = make_line(line, FR_LOG_WARN, "log", "lines_lost", format, arguments);
    va_end(arguments);
    return size;
}

size_t fr_log_lost_line(char line[LINE_MAX_BYTES], uint64_t lost)
{
    return make_lost_line(line, "lines=%" PRIu64 " note=\"standard error took no lines here\"", lost);
}

/* Writes the form of one byte inside a quoted value to `piece` and returns its length (at most
 * 4). */
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
    if (size < 3) { /* no room for two quotes and the NUL */
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
