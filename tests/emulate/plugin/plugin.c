/* The emulated card as a plug-in that the loader of trainer/cuda takes for the real one: for tests
 * that run the daemon itself. FRESHET_EMULATED_FAILURE=lost:N, memory:N or code:N has the card fail
 * at its N-th start, allocation or opening. */
#include "emulate/emulated.h"

#include <stdlib.h>
#include <string.h>

const void *fr_device_plugin(void);

const void *fr_device_plugin(void)
{
    const char *failure = getenv("FRESHET_EMULATED_FAILURE");
    const char *calls = failure ? strchr(failure, ':') : NULL;
    if (calls)
        fr_emulate_fail(strncmp(failure, "lost", 4) == 0   ? FR_EMULATED_LOST
                        : strncmp(failure, "code", 4) == 0 ? FR_EMULATED_NO_CODE
                                                           : FR_EMULATED_NO_MEMORY,
                        strtoull(calls + 1, NULL, 10));
    return fr_emulate_api();
}
