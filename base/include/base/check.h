/* Assertions that stay on in release builds, and arithmetic that cannot overflow silently. FR_CHECK
 * checks invariants and arguments from our own code, never data from a wire, a disk or a
 * configuration. */
#ifndef FR_BASE_CHECK_H
#define FR_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define FR_CHECK(condition) ((condition) ? (void)0 : fr_check_failed(#condition, __FILE__, __LINE__))
__attribute__((noreturn, cold)) void fr_check_failed(const char *condition, const char *file, int line);
/* For a handler of SIGABRT: why the process ends. FR_E_STATE: a check failed. FR_E_NO_MEMORY:
 * memory was refused. FR_OK: neither, so a library called abort. */
enum fr_status fr_check_status(void);

/* fr_add_size and fr_mul_size write *out only if the result fits, and return false otherwise. */
static inline bool fr_add_size(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool fr_mul_size(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

#define FR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* calloc and realloc that never return NULL: a refused allocation ends the process with a
 * message. */
void *fr_alloc(size_t count, size_t size) __attribute__((alloc_size(1, 2), returns_nonnull));
void *fr_realloc(void *memory, size_t count, size_t size) __attribute__((alloc_size(2, 3), returns_nonnull));
/* Returns zeroed memory aligned to `alignment`, a power of two. The caller releases it with
 * free(). */
void *fr_alloc_aligned(size_t alignment, size_t size) __attribute__((returns_nonnull));
char *fr_strdup(const char *text);

#endif
