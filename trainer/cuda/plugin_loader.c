/* Finds and loads the plug-in. The program links no CUDA library: anything missing is reported, and
 * training continues without it.
 *
 * Thread: any, one at a time. No card is opened here. */
#include "cuda/api.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "libfreshet_cuda.so"

static void *loaded; /* a process has one plug-in, because it has one dynamic linker */

/* Writes the folder of the program, with its '/'; empty if it is unknown. */
static void program_folder(char *folder, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    folder[n > 0 ? n : 0] = '\0';
    char *end = strrchr(folder, '/');
    *(end ? end + 1 : folder) = '\0';
}

/* Tries the places where a plug-in may be; the linker's own places come last. */
static void *open_first(const char *path)
{
    static const char *const places[] = {"", "../lib/", "../trainer/cuda/"};
    char folder[PATH_MAX], name[PATH_MAX + 64];
    if (path)
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    program_folder(folder, sizeof(folder));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && folder[0]; i++) {
        snprintf(name, sizeof(name), "%s%s%s", folder, places[i], PLUGIN_FILE);
        if (access(name, R_OK) == 0)
            return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
}

enum fr_status fr_cuda_load(const char *path, const struct fr_device_api **api, struct fr_err *err)
{
    void *library = open_first(path);
    if (!library)
        return fr_err_set(err, FR_E_NOT_FOUND, "the CUDA plug-in cannot be loaded: %s", dlerror());
    fr_device_plugin_function *plugin = NULL;
    void *symbol = dlsym(library, FR_DEVICE_PLUGIN);
    /* ISO C has no cast from a data pointer to a function pointer */
    memcpy(&plugin, &symbol, sizeof(plugin));
    const struct fr_device_api *found = plugin ? plugin() : NULL;
    if (!found || found->version != FR_DEVICE_API) {
        dlclose(library);
        return fr_err_set(err, FR_E_MISMATCH,
                          "%s is another version's plug-in (interface %u, not %u): install those of one build together",
                          path ? path : PLUGIN_FILE, found ? found->version : 0, (unsigned)FR_DEVICE_API);
    }
    *api = found;
    loaded = library;
    return FR_OK;
}

void fr_cuda_unload(void)
{
    if (loaded)
        dlclose(loaded);
    loaded = NULL;
}
