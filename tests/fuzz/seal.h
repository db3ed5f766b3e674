/* The head of a journal's record (docs/formats/state.md): what the writer puts before an epoch. */
#ifndef FR_FUZZ_SEAL_H
#define FR_FUZZ_SEAL_H

#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"

enum { SEAL_BYTES = 16 };

/* Fills the SEAL_BYTES before the epoch's bytes. */
static inline void seal_record(uint8_t *record, uint64_t epoch_size)
{
    static const uint32_t magic = 0x63726a66; /* "fjrc" */
    uint32_t crc = fr_crc32c(fr_crc32c(0, &epoch_size, sizeof(epoch_size)), record + SEAL_BYTES, (size_t)epoch_size);
    memcpy(record, &magic, sizeof(magic));
    memcpy(record + 4, &crc, sizeof(crc));
    memcpy(record + 8, &epoch_size, sizeof(epoch_size));
}

#endif
