/* LD_PRELOAD shim for the fault tests: ends the process with SIGKILL at a named point. The product
 * has no failpoints of its own.
 *
 * FRESHET_KILL=point:n asks for the first passage of the point once this process has made n new
 * epochs durable:
 *
 * - hwm_write: the next epoch is synced in the journal, the HWM that will name it is not written.
 *   The process lingers here before it dies, so that a publisher that is too early has the time to
 *   publish.
 * - hwm_synced: the n-th epoch is durable by its HWM; no other thread has learned of it, and
 *   nothing of it is published.
 * - fold_open: a sorted file of a fold has been created.
 * - fold_ingest: just before RocksDB takes the files in.
 * - fold_done: just after.
 *
 * FRESHET_FAIL=journal_enospc:n makes the n-th write to the journal, and every later one, fail with
 * ENOSPC, while the file that FRESHET_FULL names exists.
 *
 * FRESHET_SLOW=fold:n makes writes of a fold's sorted files take a second per n bytes.
 *
 * An epoch counts as durable when the HWM is synced by the thread that wrote and synced the journal
 * before. Marks that only move the acknowledged epoch, and what recovery cuts off and syncs, do not
 * count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINGER_MS = 4000 }; /* a publisher that has just started waits for its broker first */

static atomic_int durable_epochs, journal_writes;
/* Of this thread: bytes are in the journal and not synced; an epoch is synced and the HWM does not
 * name it. */
static _Thread_local int journal_written, journal_is_ahead;

static int armed(const char *variable, const char *point, int *count)
{
    const char *text = getenv(variable);
    size_t length = strlen(point);
    if (!text || strncmp(text, point, length) != 0 || text[length] != ':')
        return 0;
    *count = atoi(text + length + 1);
    return 1;
}

static void sleep_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static void pass(const char *point, int linger_ms)
{
    int count;
    if (!armed("FRESHET_KILL", point, &count) || atomic_load(&durable_epochs) < count)
        return;
    sleep_ms(linger_ms);
    kill(getpid(), SIGKILL);
    pause();
}

/* Name of the file behind fd, or "". */
static void name_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = '\0';
}

static int ends_with(const char *path, const char *end)
{
    size_t a = strlen(path), b = strlen(end);
    return a >= b && strcmp(path + a - b, end) == 0;
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "kill_shim: no %s behind the shim\n", name);
        abort();
    }
    return found;
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))next("fdatasync");
    int result = real(fd);
    char path[4096];
    name_of(fd, path, sizeof(path));
    if (journal_written && ends_with(path, ".fj")) {
        journal_written = 0;
        journal_is_ahead = 1;
    } else if (journal_is_ahead && ends_with(path, "/hwm")) {
        journal_is_ahead = 0;
        atomic_fetch_add(&durable_epochs, 1);
        pass("hwm_synced", 0);
    }
    return result;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t(*)(int, const void *, size_t, off64_t))next("pwrite64");
    char path[4096];
    name_of(fd, path, sizeof(path));
    if (journal_is_ahead && ends_with(path, "/hwm"))
        pass("hwm_write", LINGER_MS);
    int count, rate, is_journal = ends_with(path, ".fj");
    if (armed("FRESHET_SLOW", "fold", &rate) && strstr(path, "/fold/"))
        sleep_ms((long)(size * 1000 / (size_t)rate));
    journal_written |= is_journal;
    const char *full = getenv("FRESHET_FULL");
    if (armed("FRESHET_FAIL", "journal_enospc", &count) && is_journal &&
        atomic_fetch_add(&journal_writes, 1) + 1 >= count && full && access(full, F_OK) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, size, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return pwrite64(fd, bytes, size, offset);
}

static int opened(const char *path, int fd, int flags)
{
    if (fd >= 0 && (flags & O_CREAT) && ends_with(path, ".sst") && strstr(path, "/fold/"))
        pass("fold_open", 0);
    return fd;
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next("open");
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    return opened(path, real(path, flags, mode), flags);
}

int open64(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next("open64");
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    return opened(path, real(path, flags, mode), flags);
}

/* The one call by which a fold enters the cold store. */
void rocksdb_ingest_external_file(void *db, const char *const *files, size_t count, const void *options, char **error)
{
    void (*real)(void *, const char *const *, size_t, const void *, char **) =
        (void (*)(void *, const char *const *, size_t, const void *, char **))next("rocksdb_ingest_external_file");
    pass("fold_ingest", 0);
    real(db, files, count, options, error);
    pass("fold_done", 0);
}
