/* CRC-32C (Castagnoli): by the processor's instruction where it has one, by a table otherwise, with
 * the same values. */
#ifndef FR_BASE_CRC32C_H
#define FR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the crc of bytes that follow those which gave `crc` (0 to begin). fr_crc32c(0,
 * "123456789", 9) == 0xE3069283. */
uint32_t fr_crc32c(uint32_t crc, const void *bytes, size_t size);
/* The table path by itself, for the test that compares the two. */
uint32_t fr_crc32c_portable(uint32_t crc, const void *bytes, size_t size);

#endif
