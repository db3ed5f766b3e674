/* The high-water mark: which epoch is durable. Two copies in one file, written in turn.
 * Module-internal. */
#ifndef FR_DURABLE_HWM_H
#define FR_DURABLE_HWM_H

#include "base/file.h"
#include "base/hash.h"

enum { HWM_COPY_BYTES = 128, HWM_COPY_DISTANCE = 4096, HWM_FILE_BYTES = 2 * HWM_COPY_DISTANCE };

struct fr_hwm {
    uint64_t sequence; /* grows by one with each write; copy = sequence mod 2 */
    uint64_t timeline;
    uint64_t epoch;
    struct fr_sha256 digest;
    uint64_t acked;
    uint64_t salt; /* the same in every write of a directory */
};

/* A new file with two good copies of the mark, whose sequence is set. */
enum fr_status fr_hwm_create(const struct fr_disk *disk, const char *path, struct fr_hwm *mark,
                             struct fr_err *err) FR_MUST_CHECK;
/* The newest good copy; *copy_lost when the other one is not good (recovery.c says what follows).
 * FR_E_NOT_FOUND: no file. FR_E_MISMATCH: another format version. FR_E_CORRUPT: no good copy,
 * or two with different salts. */
enum fr_status fr_hwm_read(const char *path, struct fr_hwm *out, bool *copy_lost, struct fr_err *err) FR_MUST_CHECK;
/* Writes and syncs the copy that hwm->sequence selects. */
enum fr_status fr_hwm_write(const struct fr_disk *disk, int fd, const char *path, const struct fr_hwm *hwm,
                            struct fr_err *err) FR_MUST_CHECK;

#endif
