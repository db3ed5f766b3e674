/* The emulated card as a plug-in that the loader of trainer/cuda takes for the real one: for tests
 * that run the daemon itself. */
#include "emulate/emulated.h"

const struct fr_device_api *fr_device_plugin(void);

const struct fr_device_api *fr_device_plugin(void)
{
    return fr_emulate_api();
}
