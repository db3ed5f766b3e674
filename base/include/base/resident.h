/* What this process keeps in memory, as the kernel counts it. Thread: any. */
#ifndef FR_BASE_RESIDENT_H
#define FR_BASE_RESIDENT_H

#include <stdint.h>

/* Resident bytes (RSS); 0 where the system does not say. */
uint64_t fr_resident_bytes(void);

#endif
