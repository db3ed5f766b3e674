/* See base/resident.h. */
#include "base/resident.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t fr_resident_bytes(void)
{
    char text[256], *second = NULL; /* total pages, resident pages, .. */
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fgets(text, sizeof(text), file))
        second = strchr(text, ' ');
    (void)fclose(file);
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
