/* File operations through a function table ("disk"), so that tests can inject faults into every
 * write, sync and rename. Nothing here retries a failed sync (P6). Paths are absolute or relative
 * to the working directory; files are created with mode 0600, directories with 0700. */
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

/* Writes all bytes or returns an error; errno ENOSPC or EDQUOT becomes FR_E_NO_SPACE. `path` is for
 * the message. */
enum fr_status fr_disk_write(const struct fr_disk *disk, int fd, const void *bytes, size_t size, uint64_t offset,
                             const char *path, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_disk_sync(const struct fr_disk *disk, int fd, const char *path, struct fr_err *err) FR_MUST_CHECK;
/* Translates the errno `number` of a failed call into a status, with a text that includes what to
 * do: FR_E_NO_SPACE, FR_E_NOT_FOUND, FR_E_DENIED, FR_E_MISMATCH (something else has this path),
 * FR_E_LIMIT (name length, file size), FR_E_NO_DESCRIPTORS, FR_E_IO. `what` is the action that
 * failed. */
enum fr_status fr_disk_error(struct fr_err *err, const char *what, const char *path, int number) FR_MUST_CHECK;
/* Writes path.tmp, syncs it, renames it and syncs the directory. After an error before the rename,
 * the old file is unchanged. After a failed directory sync the new file is in place but may be gone
 * after a power cut. Errors: FR_E_IO, FR_E_NO_SPACE, FR_E_NOT_FOUND (no such directory),
 * FR_E_DENIED, FR_E_LIMIT (path too long). */
enum fr_status fr_file_replace(const struct fr_disk *disk, const char *path, const void *bytes, size_t size,
                               struct fr_err *err) FR_MUST_CHECK;
/* Appends the content of a file of at most `limit` bytes to out. FR_E_LIMIT: the file or the path
 * is too long. Other errors are those of fr_disk_error. */
enum fr_status fr_file_read(const char *path, size_t limit, struct fr_buffer *out, struct fr_err *err) FR_MUST_CHECK;
/* Opens a file for reading without waiting, for directories in which others write, where the open
 * of a pipe or a device could wait for ever. FR_E_CORRUPT: path is not a regular file. Other errors
 * are those of fr_disk_error. The caller closes *fd. */
enum fr_status fr_file_open_regular(const char *path, int *fd, struct fr_err *err) FR_MUST_CHECK;
/* Like fr_file_read, for a file opened by fr_file_open_regular. */
enum fr_status fr_file_read_regular(const char *path, size_t limit, struct fr_buffer *out,
                                    struct fr_err *err) FR_MUST_CHECK;
/* Creates a directory and its parents with mode 0700; an existing directory is fine. FR_E_MISMATCH:
 * path exists and is no directory. FR_E_LIMIT: path is empty or too long. Other errors are those of
 * fr_disk_error. */
enum fr_status fr_dir_make(const char *path, struct fr_err *err) FR_MUST_CHECK;
/* Removes path and everything below it; a missing path is fine. The parent directory is synced
 * first: if `path` got its name by a rename, a power cut could undo the rename after files were
 * removed, and the old name would then refer to an incomplete directory. After FR_E_IO, FR_E_DENIED
 * or FR_E_LIMIT a part may be left. */
enum fr_status fr_dir_remove(const struct fr_disk *disk, const char *path, struct fr_err *err) FR_MUST_CHECK;
/* Writes the absolute path without links. The path need not exist: its missing part is appended, as
 * it was written, to the resolved part. False: a part cannot be read, or the result is too long. */
bool fr_file_resolve(const char *path, char out[PATH_MAX]);
/* Whether path is the directory or below it. Both must be resolved paths. */
bool fr_file_is_within(const char *path, const char *directory);
/* flock(LOCK_EX|LOCK_NB) on path, which is created if missing. FR_E_BUSY has the pid of the holder
 * if the file contains it. The descriptor stays open for the life of the process. */
enum fr_status fr_file_lock(const char *path, int *fd, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_disk_free_bytes(const char *path, uint64_t *bytes, struct fr_err *err) FR_MUST_CHECK;

#endif
