/* Files: the system's disk table, whole writes, atomic replacement, locks.
 *
 * Replacement uses the one order that survives a power cut on POSIX file systems: write a temporary
 * file, sync it, rename it over the target, sync the directory. A failed sync is never retried,
 * because the kernel may have dropped the dirty pages and would report success (Rebello et al.,
 * "Can applications recover from fsync failures?", 2020); the caller stops (P6). Every open has
 * O_CLOEXEC. Files that are written or locked are opened with O_NOFOLLOW, so that a planted link
 * cannot redirect the write.
 *
 * Thread: any. Nothing is retried, except calls that a signal interrupted before they did
 * anything. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"

enum { READ_CHUNK = 64 * 1024, LOCK_TEXT_MAX = 32 };

/* ---- the system's table ---- */

static int system_open(void *self, const char *path, int flags, unsigned mode)
{
    (void)self;
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static int system_close(void *self, int fd)
{
    (void)self;
    /* On EINTR, Linux has released the descriptor nevertheless; a second close could hit another
     * thread's file. */
    if (close(fd) != 0 && errno != EINTR)
        return -1;
    return 0;
}

static long system_pwrite(void *self, int fd, const void *bytes, size_t size, uint64_t offset)
{
    (void)self;
    ssize_t written;
    do
        written = pwrite(fd, bytes, size, (off_t)offset);
    while (written < 0 && errno == EINTR);
    return (long)written;
}

static int system_fdatasync(void *self, int fd)
{
    (void)self;
    int rc;
    do /* NFS and FUSE are interrupted before they begin, so no sync has failed */
        rc = fdatasync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

static int system_ftruncate(void *self, int fd, uint64_t size)
{
    (void)self;
    int rc;
    do
        rc = ftruncate(fd, (off_t)size);
    while (rc != 0 && errno == EINTR);
    return rc;
}

static int system_rename(void *self, const char *from, const char *to)
{
    (void)self;
    return rename(from, to);
}

static int system_unlink(void *self, const char *path)
{
    (void)self;
    return unlink(path);
}

static int system_sync_dir(void *self, const char *path)
{
    (void)self;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    int saved = errno;
    close(fd);
    errno = saved;
    return rc;
}

const struct fr_disk *fr_disk_system(void)
{
    static const struct fr_disk disk = {
        .self = NULL,
        .open = system_open,
        .close = system_close,
        .pwrite = system_pwrite,
        .fdatasync = system_fdatasync,
        .ftruncate = system_ftruncate,
        .rename = system_rename,
        .unlink = system_unlink,
        .sync_dir = system_sync_dir,
    };
    return &disk;
}

/* ---- errors ---- */

enum fr_status fr_disk_error(struct fr_err *err, const char *what, const char *path, int number)
{
    char reason[128];
    if (strerror_r(number, reason, sizeof(reason)) != 0)
        snprintf(reason, sizeof(reason), "error %d", number);
    if (number == ENOSPC || number == EDQUOT)
        return fr_err_set(err, FR_E_NO_SPACE, "cannot %s %s: %s; free space on that file system and start again", what,
                          path, reason);
    if (number == ENOENT)
        return fr_err_set(err, FR_E_NOT_FOUND, "cannot %s %s: %s", what, path, reason);
    if (number == EACCES || number == EPERM || number == EROFS)
        return fr_err_set(err, FR_E_DENIED, "cannot %s %s: %s; check its owner and mode", what, path, reason);
    if (number == ENOTDIR)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "cannot %s %s: %s: a part of the path is not a directory; correct the path, or move that file away", what,
            path, reason);
    if (number == EISDIR)
        return fr_err_set(err, FR_E_MISMATCH, "cannot %s %s: %s", what, path, reason);
    if (number == ENAMETOOLONG)
        return fr_err_set(err, FR_E_LIMIT, "cannot %s %s: %s; use a shorter path", what, path, reason);
    if (number == EFBIG)
        return fr_err_set(err, FR_E_LIMIT,
                          "cannot %s %s: %s; raise the limit of the size of files (LimitFSIZE= of systemd, ulimit -f)",
                          what, path, reason);
    if (number == ELOOP)
        return fr_err_set(err, FR_E_DENIED, "cannot %s %s: %s; symbolic links are not followed there", what, path,
                          reason);
    if (number == EMFILE || number == ENFILE)
        return fr_err_set(err, FR_E_NO_DESCRIPTORS,
                          "cannot %s %s: %s; raise the limit (LimitNOFILE= of systemd, ulimit -n)", what, path, reason);
    return fr_err_set(err, FR_E_IO, "cannot %s %s: %s", what, path, reason);
}

/* ---- writes ---- */

/* The parameters are those of pwrite, and the names for a message.
 * NOLINTNEXTLINE(readability-function-size) */
enum fr_status fr_disk_write(const struct fr_disk *disk, int fd, const void *bytes, size_t size, uint64_t offset,
                             const char *path, struct fr_err *err)
{
    const uint8_t *at = bytes;
    if (offset > (uint64_t)INT64_MAX - size)
        return fr_err_set(err, FR_E_LIMIT, "cannot write %s: offset beyond 2^63", path);
    while (size > 0) {
        long written = disk->pwrite(disk->self, fd, at, size, offset);
        if (written < 0)
            return fr_disk_error(err, "write", path, errno);
        if (written == 0) /* POSIX does not define this case; a loop without progress must end */
            return fr_disk_error(err, "write", path, ENOSPC);
        FR_CHECK((size_t)written <= size);
        at += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return FR_OK;
}

enum fr_status fr_disk_sync(const struct fr_disk *disk, int fd, const char *path, struct fr_err *err)
{
    if (disk->fdatasync(disk->self, fd) == 0)
        return FR_OK;
    return fr_disk_error(err, "sync", path, errno);
}

/* Writes the directory part of path to out ("." if there is none). */
static bool parent_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 0;
    if (size >= PATH_MAX)
        return false;
    if (!slash)
        memcpy(out, ".", 2);
    else if (size == 0)
        memcpy(out, "/", 2);
    else {
        memcpy(out, path, size);
        out[size] = '\0';
    }
    return true;
}

static enum fr_status write_temporary(const struct fr_disk *disk, const char *path, const void *bytes, size_t size,
                                      struct fr_err *err)
{
    int fd = disk->open(disk->self, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fr_disk_error(err, "create", path, errno);
    enum fr_status status = fr_disk_write(disk, fd, bytes, size, 0, path, err);
    if (status == FR_OK)
        status = fr_disk_sync(disk, fd, path, err);
    if (disk->close(disk->self, fd) != 0 && status == FR_OK)
        status = fr_disk_error(err, "close", path, errno);
    return status;
}

enum fr_status fr_file_replace(const struct fr_disk *disk, const char *path, const void *bytes, size_t size,
                               struct fr_err *err)
{
    char temporary[PATH_MAX], directory[PATH_MAX];
    int length = snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    if (length < 0 || (size_t)length >= sizeof(temporary) || !parent_of(path, directory))
        return fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", path);
    enum fr_status status = write_temporary(disk, temporary, bytes, size, err);
    if (status == FR_OK && disk->rename(disk->self, temporary, path) != 0)
        status = fr_disk_error(err, "rename to", path, errno);
    if (status != FR_OK) {
        /* the old file is unchanged; the next call overwrites a temporary file that is left */
        (void)disk->unlink(disk->self, temporary);
        return status;
    }
    if (disk->sync_dir(disk->self, directory) != 0)
        return fr_disk_error(err, "sync directory", directory, errno);
    return FR_OK;
}

/* ---- reads ---- */

static enum fr_status read_all(int fd, const char *path, size_t limit, struct fr_buffer *out, struct fr_err *err)
{
    size_t begin = out->size;
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fr_disk_error(err, "stat", path, errno);
    if (S_ISREG(info.st_mode) && info.st_size > 0 && (uint64_t)info.st_size <= limit)
        /* one byte more, for the read that finds the end */
        fr_buffer_reserve(out, (size_t)info.st_size + 1);
    for (;;) {
        size_t got = out->size - begin;
        if (out->capacity - out->size == 0)
            fr_buffer_reserve(out, READ_CHUNK);
        size_t room = out->capacity - out->size;
        /* Reads at most one byte beyond the limit, enough to see that the file is longer. */
        if (room > limit - got && limit - got < SIZE_MAX)
            room = limit - got + 1;
        ssize_t n = read(fd, out->data + out->size, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fr_disk_error(err, "read", path, errno);
        if (n == 0)
            return FR_OK;
        if ((size_t)n > limit - got)
            return fr_err_set(err, FR_E_LIMIT, "%s is larger than its limit of %zu bytes", path, limit);
        out->size += (size_t)n;
    }
}

static enum fr_status read_and_close(int fd, const char *path, size_t limit, struct fr_buffer *out, struct fr_err *err)
{
    size_t begin = out->size;
    enum fr_status status = read_all(fd, path, limit, out, err);
    close(fd);
    if (status != FR_OK)
        out->size = begin;
    return status;
}

enum fr_status fr_file_read(const char *path, size_t limit, struct fr_buffer *out, struct fr_err *err)
{
    int fd = system_open(NULL, path, O_RDONLY, 0);
    return fd < 0 ? fr_disk_error(err, "open", path, errno) : read_and_close(fd, path, limit, out, err);
}

enum fr_status fr_file_open_regular(const char *path, int *out, struct fr_err *err)
{
    struct stat info;
    int fd = system_open(NULL, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fr_disk_error(err, "open", path, errno);
    enum fr_status status = FR_OK;
    if (fstat(fd, &info) != 0)
        status = fr_disk_error(err, "stat", path, errno);
    else if (!S_ISREG(info.st_mode))
        status = fr_err_set(err, FR_E_CORRUPT,
                            "%s is not a regular file; move it away, and put the file there that was written", path);
    if (status == FR_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

enum fr_status fr_file_read_regular(const char *path, size_t limit, struct fr_buffer *out, struct fr_err *err)
{
    int fd = -1;
    enum fr_status status = fr_file_open_regular(path, &fd, err);
    return status == FR_OK ? read_and_close(fd, path, limit, out, err) : status;
}

/* ---- directories, locks, space ---- */

/* Makes one directory. The parent is synced after a new entry; otherwise a power cut could remove
 * the directory and everything in it. */
static enum fr_status make_one(const char *path, struct fr_err *err)
{
    if (mkdir(path, 0700) == 0) {
        char parent[PATH_MAX];
        if (parent_of(path, parent) && system_sync_dir(NULL, parent) != 0)
            return fr_disk_error(err, "sync directory", parent, errno);
        return FR_OK;
    }
    int number = errno;
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return FR_OK; /* also if the parent is read-only for this process */
        return fr_err_set(err, FR_E_MISMATCH, "%s exists and is not a directory; give another path", path);
    }
    if (number == EEXIST)
        return fr_err_set(err, FR_E_MISMATCH, "%s is a link that leads nowhere; make its target, or give another path",
                          path);
    return fr_disk_error(err, "create directory", path, number);
}

enum fr_status fr_dir_make(const char *path, struct fr_err *err)
{
    char part[PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof(part))
        return fr_err_set(err, FR_E_LIMIT, "cannot create directory: path is empty or longer than %d bytes",
                          PATH_MAX - 1);
    memcpy(part, path, size + 1);
    while (size > 1 && part[size - 1] == '/')
        part[--size] = '\0';
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        if (slash[-1] == '/')
            continue;
        *slash = '\0';
        enum fr_status status = make_one(part, err);
        *slash = '/';
        if (status != FR_OK)
            return status;
    }
    return make_one(part, err);
}

bool fr_file_resolve(const char *path, char out[PATH_MAX])
{
    char there[PATH_MAX], found[PATH_MAX];
    size_t end = strlen(path);
    if (end >= sizeof(there))
        return false;
    memcpy(there, path, end + 1);
    while (!realpath(end ? there : ".", found)) {
        if (errno != ENOENT || end == 0)
            return false;
        while (end > 0 && there[end - 1] == '/')
            end--;
        while (end > 0 && there[end - 1] != '/')
            end--;
        there[end] = '\0';
    }
    const char *missing = path + end + strspn(path + end, "/");
    const char *between = missing[0] && strcmp(found, "/") != 0 ? "/" : "";
    return snprintf(out, PATH_MAX, "%s%s%s", found, between, missing) < PATH_MAX;
}

bool fr_file_is_within(const char *path, const char *directory)
{
    size_t size = strlen(directory);
    return strcmp(directory, "/") == 0 ||
           (strncmp(path, directory, size) == 0 && (path[size] == '\0' || path[size] == '/'));
}

/* Returns 0 or errno. */
static int remove_entry(const FTSENT *entry)
{
    if (entry->fts_info == FTS_D)
        return 0; /* the entry comes again after its content */
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
        return entry->fts_errno;
    int rc = entry->fts_info == FTS_DP ? rmdir(entry->fts_path) : unlink(entry->fts_path);
    return rc == 0 || errno == ENOENT ? 0 : errno;
}

enum fr_status fr_dir_remove(const struct fr_disk *disk, const char *path, struct fr_err *err)
{
    char name[PATH_MAX], directory[PATH_MAX];
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? FR_OK : fr_disk_error(err, "look at", path, errno);
    if (!parent_of(path, directory) || snprintf(name, sizeof(name), "%s", path) >= (int)sizeof(name))
        return fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", path);
    if (disk->sync_dir(disk->self, directory) != 0)
        return fr_disk_error(err, "sync directory", directory, errno);
    char *const roots[] = {name, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk)
        return fr_disk_error(err, "list", path, errno);
    enum fr_status status = FR_OK;
    const FTSENT *entry;
    while (status == FR_OK && (errno = 0, entry = fts_read(walk)) != NULL) {
        int number = remove_entry(entry);
        if (number != 0)
            status = fr_disk_error(err, "remove", entry->fts_path, number);
    }
    if (status == FR_OK && errno != 0) /* errno 0: the walk has ended */
        status = fr_disk_error(err, "list", path, errno);
    (void)fts_close(walk);
    return status;
}

static enum fr_status lock_is_held(int fd, const char *path, struct fr_err *err)
{
    char text[LOCK_TEXT_MAX] = {0};
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    char *end = text;
    long holder = n > 0 ? strtol(text, &end, 10) : 0;
    if (holder > 0 && (*end == '\n' || *end == '\0'))
        return fr_err_set(err, FR_E_BUSY, "%s is locked by process %ld; stop it first, or use another directory", path,
                          holder);
    return fr_err_set(err, FR_E_BUSY, "%s is locked by another process; stop it first, or use another directory", path);
}

enum fr_status fr_file_lock(const char *path, int *fd, struct fr_err *err)
{
    int lock = system_open(NULL, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (lock < 0)
        return fr_disk_error(err, "open", path, errno);
    int rc;
    do
        rc = flock(lock, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        enum fr_status status =
            errno == EWOULDBLOCK ? lock_is_held(lock, path, err) : fr_disk_error(err, "lock", path, errno);
        close(lock);
        return status;
    }
    char text[LOCK_TEXT_MAX];
    int size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    FR_CHECK(size > 0 && (size_t)size < sizeof(text));
    enum fr_status status = FR_OK;
    if (system_ftruncate(NULL, lock, 0) != 0)
        status = fr_disk_error(err, "truncate", path, errno);
    /* the pid is information only and is not synced; the kernel holds the lock */
    if (status == FR_OK)
        status = fr_disk_write(fr_disk_system(), lock, text, (size_t)size, 0, path, err);
    if (status != FR_OK) {
        close(lock);
        return status;
    }
    *fd = lock;
    return FR_OK;
}

enum fr_status fr_disk_free_bytes(const char *path, uint64_t *bytes, struct fr_err *err)
{
    struct statvfs info;
    int rc;
    do
        rc = statvfs(path, &info);
    while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return fr_disk_error(err, "statvfs", path, errno);
    uint64_t free_bytes;
    if (__builtin_mul_overflow((uint64_t)info.f_bavail, (uint64_t)info.f_frsize, &free_bytes))
        free_bytes = UINT64_MAX;
    *bytes = free_bytes;
    return FR_OK;
}
