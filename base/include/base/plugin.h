/* Plug-ins: shared libraries of this tree that a program loads where they are there, so that the
 * program links none of the libraries that they need.
 *
 * Thread: any, one at a time. */
#ifndef FR_BASE_PLUGIN_H
#define FR_BASE_PLUGIN_H

#include <stdint.h>

#include "base/status.h"

struct fr_plugin {
    const char *name;         /* in messages: "CUDA" */
    const char *file;         /* "libfreshet_cuda.so" */
    const char *build_folder; /* of a build, from the program's folder: "../trainer/cuda/" */
    const char *function;     /* the plug-in's one exported function */
    uint32_t version;         /* of the interface; plug-in and program must be of the same tree */
};

/* The exported function returns the plug-in's interface: a struct of functions whose first member
 * is a uint32_t, its version. */
typedef const void *fr_plugin_function(void);

/* Loads the plug-in from `path`, or, if that is NULL, from the program's folder, its ../lib, the
 * build's folder or the linker's search path. Returns what the exported function returns, and the
 * library, which the caller closes with dlclose if it ever is closed. FR_E_NOT_FOUND: there is no
 * such file, or a library it needs is missing. FR_E_MISMATCH: the plug-in was built from another
 * tree. */
enum fr_status fr_plugin_load(const struct fr_plugin *plugin, const char *path, void **library, const void **interface,
                              struct fr_err *err) FR_MUST_CHECK;

#endif
