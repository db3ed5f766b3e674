/* The high-water mark, which records the last durable epoch. One file has two copies of it, written
 * alternately. Module-internal. */
#ifndef FR_DURABLE_HWM_H
#define FR_DURABLE_HWM_H

#include "base/file.h"
#include "base/hash.h"

enum { HWM_COPY_BYTES = 128, HWM_COPY_DISTANCE = 4096, HWM_FILE_BYTES = 2 * HWM_COPY_DISTANCE };

struct fr_hwm {
    uint64_t sequence; /* grows by one with each write; the copy is sequence mod 2 */
    uint64_t timeline;
    uint64_t epoch;
    struct fr_sha256 digest;
    uint64_t acked;
    uint64_t salt; /* the same in every write of a directory */
};

/* Creates a new file with two good copies of the mark and sets the mark's sequence. */
enum fr_status fr_hwm_create(const struct fr_disk *disk, const char *path, struct fr_hwm *mark,
                             struct fr_err *err) FR_MUST_CHECK;
/* Reads the newest good copy; *copy_lost is set if the other copy is not good (recovery.c has the
 * consequences). FR_E_NOT_FOUND: there is no file. FR_E_MISMATCH: another format version.
 * FR_E_CORRUPT: no copy is good, or the two have different salts. */
enum fr_status fr_hwm_read(const char *path, struct fr_hwm *out, bool *copy_lost, struct fr_err *err) FR_MUST_CHECK;
/* Writes and syncs the copy that hwm->sequence selects. */
enum fr_status fr_hwm_write(const struct fr_disk *disk, int fd, const char *path, const struct fr_hwm *hwm,
                            struct fr_err *err) FR_MUST_CHECK;

#endif
