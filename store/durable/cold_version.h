/* Which RocksDB may open a cold store. Module-internal. */
#ifndef FR_DURABLE_COLD_VERSION_H
#define FR_DURABLE_COLD_VERSION_H

#include "base/file.h"

/* Compares the version that last opened the store at `path` for writing with those whose files this
 * program's RocksDB reads. FR_E_MISMATCH: it is a later one; nothing was changed. */
enum fr_status fr_cold_check_version(const char *path, struct fr_err *err) FR_MUST_CHECK;

#endif
