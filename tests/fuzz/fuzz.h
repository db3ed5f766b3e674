/* What the fuzz targets share. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly size + extra bytes, so that a read beyond it is caught. */
static inline uint8_t *fuzz_copy(const void *bytes, size_t size, size_t extra)
{
    uint8_t *copy = malloc(size + extra > 0 ? size + extra : 1);
    FR_CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

/* Touches all of it. */
static inline void fuzz_read(const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        (void)((const volatile uint8_t *)bytes)[i];
}

#endif
