/* Finds and loads the plug-in. The program links no CUDA library: anything missing is reported, and
 * training continues without it.
 *
 * Thread: any, one at a time. No card is opened here. */
#include "cuda/api.h"

#include <dlfcn.h>
#include <stddef.h>

#include "base/plugin.h"

static const struct fr_plugin plugin = {.name = "CUDA",
                                        .file = "libfreshet_cuda.so",
                                        .build_folder = "../trainer/cuda/",
                                        .function = FR_DEVICE_PLUGIN,
                                        .version = FR_DEVICE_API};

static void *loaded; /* a process has one plug-in, because it has one dynamic linker */

enum fr_status fr_cuda_load(const char *path, const struct fr_device_api **api, struct fr_err *err)
{
    const void *interface = NULL;
    enum fr_status status = fr_plugin_load(&plugin, path, &loaded, &interface, err);
    if (status == FR_OK)
        *api = interface;
    return status;
}

void fr_cuda_unload(void)
{
    if (loaded)
        dlclose(loaded);
    loaded = NULL;
}
