/* See base/plugin.h. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

/* Writes the folder of the program, with its '/'; empty if it is unknown. */
static void program_folder(char *folder, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    folder[n > 0 ? n : 0] = '\0';
    char *end = strrchr(folder, '/');
    *(end ? end + 1 : folder) = '\0';
}

/* Tries the places where a plug-in may be; the linker's own places come last. */
static void *open_first(const struct fr_plugin *plugin, const char *path)
{
    const char *const places[] = {"", "../lib/", plugin->build_folder};
    char folder[PATH_MAX], name[PATH_MAX + 128];
    if (path)
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    program_folder(folder, sizeof(folder));
    for (size_t i = 0; i < FR_ARRAY_LEN(places) && folder[0]; i++) {
        int length = snprintf(name, sizeof(name), "%s%s%s", folder, places[i], plugin->file);
        if (length < (int)sizeof(name) && access(name, R_OK) == 0)
            return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(plugin->file, RTLD_NOW | RTLD_LOCAL);
}

enum fr_status fr_plugin_load(const struct fr_plugin *plugin, const char *path, void **library, const void **interface,
                              struct fr_err *err)
{
    void *opened = open_first(plugin, path);
    if (!opened)
        return fr_err_set(err, FR_E_NOT_FOUND, "the %s plug-in cannot be loaded: %s", plugin->name, dlerror());
    fr_plugin_function *function = NULL;
    void *symbol = dlsym(opened, plugin->function);
    /* ISO C has no cast from a data pointer to a function pointer */
    memcpy(&function, &symbol, sizeof(function));
    const void *found = function ? function() : NULL;
    uint32_t version = 0;
    if (found)
        memcpy(&version, found, sizeof(version));
    if (version != plugin->version) {
        dlclose(opened);
        return fr_err_set(err, FR_E_MISMATCH,
                          "%s is another version's plug-in (interface %u, not %u): install those of one build together",
                          path ? path : plugin->file, version, plugin->version);
    }
    *library = opened;
    *interface = found;
    return FR_OK;
}
