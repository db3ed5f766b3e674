/* The memory of this process, as the kernel counts it. Thread: any. */
#ifndef FR_BASE_RESIDENT_H
#define FR_BASE_RESIDENT_H

#include <stdint.h>

/* Resident bytes (RSS); 0 if the system does not report them. */
uint64_t fr_resident_bytes(void);

#endif
