/* LD_PRELOAD shim for the power-cut tests: records what a process does to the files below a folder,
 * in the one order in which it happens, so that power_disk.py can make the folder as a power cut at
 * any moment may leave it. The product has no failpoints of its own.
 *
 * FRESHET_POWER_ROOT is the folder (an absolute path without symbolic links), FRESHET_POWER_LOG the
 * file that the records are appended to, outside the folder. A record (little-endian):
 *
 *     u8 operation, u8[3] 0, u32 bytes of data, u64 inode, u64 a, u64 b, data
 *
 * A: the folder itself, data: its path. C: open with O_CREAT or O_TRUNC; a: 1 if it cuts the file
 * to nothing, data: path. W: write; a: offset, data: the bytes. T: size; a: size, b: 1 if it only
 * grows. S: a sync of a file or a folder begins; a: its number. E: it has ended well; a: its
 * number. M: mkdir, U: unlink, D: rmdir; data: path. R: rename, L: link; a: bytes of the first
 * path, data: both paths. P: a message is given to librdkafka; data: its first bytes.
 *
 * Every change is made and recorded under one mutex, so the order of the records is the order of
 * the changes. A sync is recorded before and after it: what is written in between is not synced.
 *
 * Writes through memory maps and stdio are not seen: the test compares what the records say with
 * the folder when the process has ended. A call that cannot be recorded, and a log that would grow
 * beyond LOG_BYTES_MAX, ends the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 160, ARGUMENTS_MAX = 16 };
static const uint64_t LOG_BYTES_MAX = 1ULL << 30;

struct head {
    uint8_t operation, zero[3];
    uint32_t size;
    uint64_t inode, a, b;
};
_Static_assert(sizeof(struct head) == 32, "stored as it is: no padding");

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_size;
static int log_fd = -1;
static uint64_t log_bytes, syncs;

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "power_shim: the C library has no %s\n", name);
        abort();
    }
    return found;
}

static void refuse(const char *what)
{
    fprintf(stderr, "power_shim: %s\n", what);
    abort();
}

/* Of a caller that has `order`. */
static void record_two(struct head head, struct iovec first, struct iovec second)
{
    ssize_t (*real)(int, const struct iovec *, int) = (ssize_t(*)(int, const struct iovec *, int))next("writev");
    head.size = (uint32_t)(first.iov_len + second.iov_len);
    struct iovec parts[3] = {{&head, sizeof(head)}, first, second};
    log_bytes += sizeof(head) + head.size;
    if (log_bytes > LOG_BYTES_MAX)
        refuse("the log of changes is full");
    if (real(log_fd, parts, 3) != (ssize_t)(sizeof(head) + head.size))
        refuse("cannot write the log of changes");
}

static void record(uint8_t operation, uint64_t inode, uint64_t a, uint64_t b, const void *data, size_t size)
{
    struct head head = {.operation = operation, .inode = inode, .a = a, .b = b};
    record_two(head, (struct iovec){(void *)data, size}, (struct iovec){NULL, 0});
}

__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("FRESHET_POWER_ROOT"), *log = getenv("FRESHET_POWER_LOG");
    struct stat known;
    if (!folder || !log)
        return;
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next("open");
    if (!realpath(folder, root) || strcmp(root, folder) != 0 || stat(root, &known) != 0)
        refuse("FRESHET_POWER_ROOT is no folder's own path");
    root_size = strlen(root);
    log_fd = real(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0)
        refuse("cannot open FRESHET_POWER_LOG");
    record('A', known.st_ino, 0, 0, root, root_size);
}

static int is_below(const char *path)
{
    if (log_fd >= 0 && path[0] != '/')
        refuse("a relative path");
    return log_fd >= 0 && strncmp(path, root, root_size) == 0 && (path[root_size] == '/' || path[root_size] == '\0');
}

/* Whether fd is a file or a folder below the root, which one, and where a write without an offset
 * goes. */
static int is_watched(int fd, uint64_t *inode)
{
    char link[64], path[PATH_MAX];
    struct stat known;
    if (log_fd < 0)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    if (path[0] != '/' || !is_below(path) || fstat(fd, &known) != 0)
        return 0;
    *inode = known.st_ino;
    return 1;
}

/* ---- files ---- */

static int opened(const char *name, const char *path, int flags, unsigned mode)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next(name);
    if ((flags & (O_CREAT | O_TRUNC)) == 0 || !is_below(path))
        return real(path, flags, mode);
    pthread_mutex_lock(&order);
    int fd = real(path, flags, mode), error = errno;
    struct stat known;
    if (fd >= 0 && fstat(fd, &known) == 0)
        record('C', known.st_ino, (flags & O_TRUNC) != 0, 0, path, strlen(path));
    pthread_mutex_unlock(&order);
    errno = error;
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    return opened("open64", path, flags, mode);
}

static FILE *fopened(const char *name, const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) next(name);
    if (mode[0] == 'r' || !is_below(path))
        return real(path, mode);
    pthread_mutex_lock(&order);
    FILE *file = real(path, mode);
    int error = errno;
    struct stat known;
    if (file && fstat(fileno(file), &known) == 0)
        record('C', known.st_ino, mode[0] == 'w', 0, path, strlen(path));
    pthread_mutex_unlock(&order);
    errno = error;
    return file;
}

FILE *fopen(const char *path, const char *mode)
{
    return fopened("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopened("fopen64", path, mode);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t(*)(int, const void *, size_t, off64_t))next("pwrite64");
    uint64_t inode;
    if (!is_watched(fd, &inode))
        return real(fd, bytes, size, offset);
    pthread_mutex_lock(&order);
    ssize_t n = real(fd, bytes, size, offset);
    int error = errno;
    if (n > 0)
        record('W', inode, (uint64_t)offset, 0, bytes, (size_t)n);
    pthread_mutex_unlock(&order);
    errno = error;
    return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return pwrite64(fd, bytes, size, offset);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))next("write");
    uint64_t inode;
    if (!is_watched(fd, &inode))
        return real(fd, bytes, size);
    pthread_mutex_lock(&order);
    ssize_t n = real(fd, bytes, size);
    int error = errno;
    if (n > 0) /* with O_APPEND, too, the position is then the end of what was written */
        record('W', inode, (uint64_t)lseek(fd, 0, SEEK_CUR) - (uint64_t)n, 0, bytes, (size_t)n);
    pthread_mutex_unlock(&order);
    errno = error;
    return n;
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    ssize_t (*real)(int, const struct iovec *, int) = (ssize_t(*)(int, const struct iovec *, int))next("writev");
    uint64_t inode;
    if (is_watched(fd, &inode))
        refuse("writev below the root is not recorded");
    return real(fd, parts, n);
}

static int sized(int fd, uint64_t size, int grows, int (*change)(int fd, uint64_t size, int mode), int mode)
{
    uint64_t inode;
    if (!is_watched(fd, &inode))
        return change(fd, size, mode);
    pthread_mutex_lock(&order);
    int result = change(fd, size, mode), error = errno;
    if (result == 0)
        record('T', inode, size, (uint64_t)grows, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

static int real_ftruncate(int fd, uint64_t size, int mode)
{
    (void)mode;
    int (*real)(int, off64_t) = (int (*)(int, off64_t))next("ftruncate64");
    return real(fd, (off64_t)size);
}

int ftruncate64(int fd, off64_t size)
{
    return sized(fd, (uint64_t)size, 0, real_ftruncate, 0);
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

int truncate(const char *path, off_t size)
{
    if (is_below(path))
        refuse("truncate below the root is not recorded");
    int (*real)(const char *, off_t) = (int (*)(const char *, off_t))next("truncate");
    return real(path, size);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t size)
{
    int (*real)(int, int, off64_t, off64_t) = (int (*)(int, int, off64_t, off64_t))next("fallocate64");
    uint64_t inode;
    if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0 && is_watched(fd, &inode))
        refuse("a mode of fallocate that is not recorded");
    if ((mode & FALLOC_FL_KEEP_SIZE) != 0 || !is_watched(fd, &inode))
        return real(fd, mode, offset, size); /* blocks only */
    pthread_mutex_lock(&order);
    int result = real(fd, mode, offset, size), error = errno;
    if (result == 0)
        record('T', inode, (uint64_t)(offset + size), 1, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    return fallocate64(fd, mode, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    return fallocate64(fd, 0, offset, size) == 0 ? 0 : errno;
}

/* ---- syncs ---- */

static int synced(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))next(name);
    uint64_t inode;
    if (!is_watched(fd, &inode))
        return real(fd);
    pthread_mutex_lock(&order);
    uint64_t number = ++syncs;
    record('S', inode, number, 0, NULL, 0);
    pthread_mutex_unlock(&order);
    int result = real(fd), error = errno;
    pthread_mutex_lock(&order);
    if (result == 0)
        record('E', inode, number, 0, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

int fsync(int fd)
{
    return synced("fsync", fd);
}

int fdatasync(int fd)
{
    return synced("fdatasync", fd);
}

/* ---- names ---- */

static int named(uint8_t operation, const char *path, int (*change)(const char *path, mode_t mode), mode_t mode)
{
    if (!is_below(path))
        return change(path, mode);
    pthread_mutex_lock(&order);
    int result = change(path, mode), error = errno;
    struct stat known = {.st_ino = 0};
    if (result == 0 && (operation != 'M' || lstat(path, &known) == 0))
        record(operation, known.st_ino, 0, 0, path, strlen(path));
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

static int real_mkdir(const char *path, mode_t mode)
{
    int (*real)(const char *, mode_t) = (int (*)(const char *, mode_t))next("mkdir");
    return real(path, mode);
}

static int real_unlink(const char *path, mode_t mode)
{
    (void)mode;
    int (*real)(const char *) = (int (*)(const char *))next("unlink");
    return real(path);
}

static int real_rmdir(const char *path, mode_t mode)
{
    (void)mode;
    int (*real)(const char *) = (int (*)(const char *))next("rmdir");
    return real(path);
}

int mkdir(const char *path, mode_t mode)
{
    return named('M', path, real_mkdir, mode);
}

int unlink(const char *path)
{
    return named('U', path, real_unlink, 0);
}

int rmdir(const char *path)
{
    return named('D', path, real_rmdir, 0);
}

static int paired(uint8_t operation, const char *name, const char *from, const char *to)
{
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))next(name);
    int watched = is_below(from);
    if (watched != is_below(to))
        refuse("a name that crosses the root");
    if (!watched)
        return real(from, to);
    pthread_mutex_lock(&order);
    int result = real(from, to), error = errno;
    if (result == 0)
        record_two((struct head){.operation = operation, .a = strlen(from)}, (struct iovec){(void *)from, strlen(from)},
                   (struct iovec){(void *)to, strlen(to)});
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

int rename(const char *from, const char *to)
{
    return paired('R', "rename", from, to);
}

int link(const char *from, const char *to)
{
    return paired('L', "link", from, to);
}

/* ---- messages ---- */

rd_kafka_resp_err_t rd_kafka_producev(rd_kafka_t *client, ...)
{
    rd_kafka_vu_t arguments[ARGUMENTS_MAX];
    size_t n = 0;
    va_list from;
    va_start(from, client);
    for (rd_kafka_vtype_t type; (type = va_arg(from, rd_kafka_vtype_t)) != RD_KAFKA_VTYPE_END; n++) {
        if (n == ARGUMENTS_MAX)
            refuse("a message has too many arguments");
        arguments[n].vtype = type;
        if (type == RD_KAFKA_VTYPE_PARTITION)
            arguments[n].u.i32 = va_arg(from, int32_t);
        else if (type == RD_KAFKA_VTYPE_MSGFLAGS)
            arguments[n].u.i = va_arg(from, int);
        else if (type == RD_KAFKA_VTYPE_TIMESTAMP)
            arguments[n].u.i64 = va_arg(from, int64_t);
        else if (type == RD_KAFKA_VTYPE_HEADER)
            refuse("a message with single headers");
        else
            arguments[n].u.ptr = va_arg(from, void *);
        if (type == RD_KAFKA_VTYPE_KEY || type == RD_KAFKA_VTYPE_VALUE) {
            arguments[n].u.mem.ptr = arguments[n].u.ptr;
            arguments[n].u.mem.size = va_arg(from, size_t);
        }
        if (type == RD_KAFKA_VTYPE_VALUE && log_fd >= 0 && arguments[n].u.mem.ptr) {
            size_t size = arguments[n].u.mem.size;
            pthread_mutex_lock(&order);
            record('P', 0, 0, 0, arguments[n].u.mem.ptr, size < MESSAGE_BYTES ? size : MESSAGE_BYTES);
            pthread_mutex_unlock(&order);
        }
    }
    va_end(from);
    rd_kafka_error_t *error = rd_kafka_produceva(client, arguments, n);
    rd_kafka_resp_err_t code = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_error_destroy(error);
    return code;
}
