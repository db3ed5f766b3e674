/* Failed invariants and refused memory end the process (crash-only design): the state on disk is
 * complete at every instant, so a restart is the one recovery path, and it is tested all the time.
 *
 * Thread: any. fr_log is not used, because the broken invariant may be the log's own. The message
 * does not wait for the reader of standard error (log_writer.h). */
#include "base/check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_writer.h"

static volatile sig_atomic_t ended_by = FR_OK; /* enum fr_status */

enum fr_status fr_check_status(void)
{
    return (enum fr_status)ended_by;
}

__attribute__((noreturn, cold, format(printf, 2, 3))) static void end_process(enum fr_status status, const char *format,
                                                                              ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ended_by = status;
    fr_log_put_directly(text, size < 0 ? 0 : (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1);
    abort();
}

void fr_check_failed(const char *condition, const char *file, int line)
{
    end_process(FR_E_STATE, "%s:%d: check failed: %s\n", file, line, condition);
}

__attribute__((noreturn, cold)) static void refused(size_t count, size_t size)
{
    end_process(
        FR_E_NO_MEMORY,
        "out of memory: %zu x %zu bytes were refused; lower the configured limits or give the machine more memory\n",
        count, size);
}

void *fr_alloc(size_t count, size_t size)
{
    if (count == 0 || size == 0)
        count = size = 1; /* never NULL, not even for an empty array */
    void *memory = calloc(count, size);
    if (!memory)
        refused(count, size);
    return memory;
}

void *fr_realloc(void *memory, size_t count, size_t size)
{
    size_t bytes;
    if (!fr_mul_size(count, size, &bytes))
        refused(count, size);
    void *moved = realloc(memory, bytes ? bytes : 1);
    if (!moved)
        refused(count, size);
    return moved;
}

void *fr_alloc_aligned(size_t alignment, size_t size)
{
    FR_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    void *memory = NULL;
    size_t bytes = size ? size : 1;
    if (posix_memalign(&memory, alignment, bytes) != 0)
        refused(1, bytes);
    memset(memory, 0, bytes);
    return memory;
}

char *fr_strdup(const char *text)
{
    FR_CHECK(text != NULL);
    size_t size = strlen(text) + 1;
    char *copy = fr_alloc(size, 1);
    memcpy(copy, text, size);
    return copy;
}
