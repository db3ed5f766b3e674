/* CRC-32C (Castagnoli), by the processor's instruction if there is one, otherwise by a table. The
 * values are the same. */
#ifndef FR_BASE_CRC32C_H
#define FR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues the checksum `crc` (0 to begin) with more bytes. fr_crc32c(0, "123456789", 9) ==
 * 0xE3069283. */
uint32_t fr_crc32c(uint32_t crc, const void *bytes, size_t size);
/* The table version alone, for the test that compares both. */
uint32_t fr_crc32c_portable(uint32_t crc, const void *bytes, size_t size);

#endif
