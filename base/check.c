/* Failed invariants and refused memory end the process (crash-only design): the state on disk is
 * whole at every instant, so a restart is the one recovery path that is tested all the time.
 *
 * Thread: any. It does not log through fr_log, because a broken invariant may be the log's own. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fr_check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
    abort();
}

__attribute__((noreturn, cold)) static void refused(size_t count, size_t size)
{
    fprintf(
        stderr,
        "out of memory: %zu x %zu bytes were refused; lower the configured limits or give the machine more memory\n",
        count, size);
    abort();
}

void *fr_alloc(size_t count, size_t size)
{
    if (count == 0 || size == 0)
        count = size = 1; /* never NULL, also for an empty array */
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
