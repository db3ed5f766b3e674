/* See base/resident.h. */
#include "base/resident.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

uint64_t fr_resident_bytes(void)
{
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%*s %" SCNu64, &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
