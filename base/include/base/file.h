/* Files behind a function table ("disk"), so that tests inject faults into every write, sync and
 * rename. Nothing here retries a failed sync (P6). Paths are absolute or relative to the process;
 * modes 0600 and 0700. */
#ifndef FR_BASE_FILE_H
#define FR_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

/* POSIX semantics: -1 and errno on failure. Fault tests wrap fr_disk_system. */
struct fr_disk {
    void *self;
    int (*open)(void *self, const char *path, int flags, unsigned mode);
    int (*close)(void *self, int fd);
    long (*pwrite)(void *self, int fd, const void *bytes, size_t size, uint64_t offset);
    int (*fdatasync)(void *self, int fd);
    int (*ftruncate)(void *self, int fd, uint64_t size);
    int (*rename)(void *self, const char *from, const char *to);
    int (*unlink)(void *self, const char *path);
    int (*sync_dir)(void *self, const char *path); /* path: the directory itself */
};
const struct fr_disk *fr_disk_system(void);

/* Writes everything or returns an error; errno ENOSPC or EDQUOT becomes FR_E_NO_SPACE. `path` is
 * for the message. */
enum fr_status fr_disk_write(const struct fr_disk *disk, int fd, const void *bytes, size_t size, uint64_t offset,
                             const char *path, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_disk_sync(const struct fr_disk *disk, int fd, const char *path, struct fr_err *err) FR_MUST_CHECK;
/* What a failed call's errno means to a caller, with a text that says what to do: FR_E_NO_SPACE,
 * FR_E_NOT_FOUND, FR_E_DENIED, FR_E_MISMATCH (something else is there), FR_E_LIMIT (of a name, a
 * file's size), FR_E_NO_DESCRIPTORS, FR_E_IO. `what` was to be done to path. */
enum fr_status fr_disk_error(struct fr_err *err, const char *what, const char *path, int number) FR_MUST_CHECK;
/* Writes under path.tmp, syncs, renames, syncs the directory. On an error before the rename the old
 * file stands; on a failed directory sync the new one is in place, but may be gone after a power
 * cut. Errors: FR_E_IO, FR_E_NO_SPACE, FR_E_NOT_FOUND (no such directory), FR_E_DENIED, FR_E_LIMIT
 * (path too long). */
enum fr_status fr_file_replace(const struct fr_disk *disk, const char *path, const void *bytes, size_t size,
                               struct fr_err *err) FR_MUST_CHECK;
/* Reads a whole file of at most `limit` bytes, appended to out. FR_E_LIMIT: it is longer, or path
 * is. Otherwise as fr_disk_error. */
enum fr_status fr_file_read(const char *path, size_t limit, struct fr_buffer *out, struct fr_err *err) FR_MUST_CHECK;
/* For files in a directory that others write to: a pipe or a device in the place of one would be
 * waited for without end. Opens for reading and never waits. FR_E_CORRUPT: it is not a regular
 * file. Otherwise as fr_disk_error. The caller closes. */
enum fr_status fr_file_open_regular(const char *path, int *fd, struct fr_err *err) FR_MUST_CHECK;
/* As fr_file_read, of such a file. */
enum fr_status fr_file_read_regular(const char *path, size_t limit, struct fr_buffer *out,
                                    struct fr_err *err) FR_MUST_CHECK;
/* Parents, too, with mode 0700; one that exists is fine. FR_E_MISMATCH: it is no directory.
 * FR_E_LIMIT: path is empty or too long. Otherwise as fr_disk_error. */
enum fr_status fr_dir_make(const char *path, struct fr_err *err) FR_MUST_CHECK;
/* Removes path and all below it; nothing there is fine. The directory that path is in is synced
 * first: path may have got its name by a rename, and a power cut would take that back, to a name
 * under which files would be missing. FR_E_IO, FR_E_DENIED, FR_E_LIMIT: some of it may be left. */
enum fr_status fr_dir_remove(const struct fr_disk *disk, const char *path, struct fr_err *err) FR_MUST_CHECK;
/* The absolute path without links. It need not be there: what is missing follows the resolved rest
 * as it was written. False: a part cannot be looked at, or it is too long. */
bool fr_file_resolve(const char *path, char out[PATH_MAX]);
/* Of two resolved paths: they are one, or the first lies below the second. */
bool fr_file_is_within(const char *path, const char *directory);
/* flock(LOCK_EX|LOCK_NB) on path (created); FR_E_BUSY names the holder's pid when the file says it.
 * The descriptor stays open for the life of the process. */
enum fr_status fr_file_lock(const char *path, int *fd, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_disk_free_bytes(const char *path, uint64_t *bytes, struct fr_err *err) FR_MUST_CHECK;

#endif
