/* The reader of standard error may stop reading: a full pipe, a stopped terminal, a log collector
 * that hangs. Only one thread waits for that: lines go to a ring of fixed size, and the writer's
 * thread writes them in order. A line is dropped and counted if the ring has no room, or if the
 * system refuses it (a closed descriptor, a full disk, a reader that is gone). The next line that
 * is written is preceded by a line with the number of lines missing there. A process that ends
 * waits until the ring is empty, but at most FR_LOG_PATIENCE_MS without progress, and FLUSH_MS in
 * all.
 *
 * Without fr_log_start, in tools and in a host's process, there is no thread and no ring. A line is
 * then written if poll reports that the write will not wait; otherwise it is dropped and counted in
 * the same way.
 *
 * Libraries, too, write to standard error before they abort. So fr_log_start opens the pipe or
 * terminal a second time with O_NONBLOCK, through /proc, and puts that descriptor in place of
 * standard error. Setting the flag on the original would change the open file that the shell and
 * other processes share. If the second open is refused, or standard error is a socket, it stays as
 * it was.
 *
 * Invariants: a line takes one write(2) if the descriptor accepts it as a whole; lines keep their
 * order; no line follows one of FR_LOG_LINE_LAST.
 *
 * Thread: any. The mutex is held for copies, never while the writer's thread writes. */
#include "log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

enum {
    RING_BYTES = 256 << 10, /* about 1300 lines: a burst such as a start with many partitions */
    /* interval at which a signal handler checks whether the ring is empty */
    LOOK_MS = 5,
    FLUSH_MS = 5000, /* for a reader that reads too slowly */
};

struct head { /* before each line of the ring */
    uint64_t size, lost;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, moved;
    pthread_t thread;
    bool running, ended;
    /* of the waiting bytes; the place of byte number n is n modulo RING_BYTES */
    uint64_t begin, end;
    uint64_t gap; /* lines lost since the newest line in the ring */
    char bytes[RING_BYTES];
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* lines lost that no written line has counted; belongs to the thread that writes */
static uint64_t untold;
/* standard error as the process was started with it; -1: it was not replaced */
static int original_fd = -1;
static _Atomic uint64_t total; /* lines lost in all */
/* missing: lines lost that no written line has counted; waiting: lines that are not written yet */
static _Atomic uint64_t missing, waiting;

/* ---- the descriptor ---- */

/* Writes all bytes, however long that takes; false: the system refuses them. */
static bool write_all(const char *at, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, at, size);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            return false;
        } else if (errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
        }
    }
    return true;
}

/* Writes a line for a caller that waits at most wait_ms. A pipe that poll reports as writable has
 * room for a line. */
static bool write_soon(const char *line, size_t size, int wait_ms)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready;
    do
        ready = poll(&fd, 1, wait_ms);
    while (ready < 0 && errno == EINTR);
    /* without a reader, a write would only raise a signal */
    if (ready <= 0 || !(fd.revents & POLLOUT) || (fd.revents & (POLLERR | POLLNVAL)))
        return false;
    ssize_t n;
    do
        n = write(STDERR_FILENO, line, size);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size;
}

static bool write_line(const char *line, size_t size, int wait_ms)
{
    return wait_ms < 0 ? write_all(line, size) : write_soon(line, size, wait_ms);
}

static void count_lost(void)
{
    atomic_fetch_add(&total, 1);
    atomic_fetch_add(&missing, 1);
}

/* Writes a line (size 0: none) after the note that `lost` lines are missing before it. wait_ms < 0:
 * waits for ever. */
static void deliver(const char *line, size_t size, uint64_t lost, int wait_ms)
{
    char note[FR_LOG_LINE_MAX];
    untold += lost;
    if (untold > 0 && write_line(note, fr_log_lost_line(note, untold), wait_ms)) {
        atomic_fetch_sub(&missing, untold);
        untold = 0;
    }
    if (size > 0 && !write_line(line, size, wait_ms)) {
        untold++;
        count_lost();
    }
}

/* ---- the ring ---- */

static void copy_in(const void *from, size_t size)
{
    size_t at = ring.end % RING_BYTES, first = size < RING_BYTES - at ? size : RING_BYTES - at;
    memcpy(ring.bytes + at, from, first);
    memcpy(ring.bytes, (const char *)from + first, size - first);
    ring.end += size;
}

static void copy_out(void *to, size_t size)
{
    size_t at = ring.begin % RING_BYTES, first = size < RING_BYTES - at ? size : RING_BYTES - at;
    memcpy(to, ring.bytes + at, first);
    memcpy((char *)to + first, ring.bytes, size - first);
    ring.begin += size;
}

static bool has_room(size_t size)
{
    return ring.end - ring.begin + sizeof(struct head) + size <= RING_BYTES;
}

static void *writer_main(void *unused)
{
    char line[FR_LOG_LINE_MAX];
    (void)unused;
    pthread_mutex_lock(&ring.lock);
    for (;;) {
        struct head head = {.size = 0};
        while (ring.begin == ring.end && ring.gap == 0)
            pthread_cond_wait(&ring.filled, &ring.lock);
        if (ring.begin != ring.end) {
            copy_out(&head, sizeof(head));
            copy_out(line, head.size);
        } else { /* lines were lost after the last one in the ring */
            head.lost = ring.gap;
            ring.gap = 0;
        }
        pthread_mutex_unlock(&ring.lock);
        deliver(line, head.size, head.lost, -1);
        pthread_mutex_lock(&ring.lock);
        if (head.size > 0)
            atomic_fetch_sub(&waiting, 1);
        pthread_cond_broadcast(&ring.moved);
    }
    return NULL;
}

/* Waits until the writer has made progress; false: it has made none for FR_LOG_PATIENCE_MS. */
static bool wait_moved(void)
{
    const struct timespec until = fr_clock_deadline(FR_LOG_PATIENCE_MS * UINT64_C(1000000));
    return pthread_cond_timedwait(&ring.moved, &ring.lock, &until) == 0;
}

/* Waits until all lines are written, there is no progress, or FLUSH_MS have passed. */
static void wait_written(void)
{
    const struct fr_clock *clock = fr_clock_system();
    uint64_t end_ns = fr_mono_ns(clock) + FLUSH_MS * UINT64_C(1000000);
    while (atomic_load(&waiting) > 0 && fr_mono_ns(clock) < end_ns && wait_moved())
        ;
}

static void put_in_ring(enum fr_log_line kind, const char *line, size_t size)
{
    bool patient = kind != FR_LOG_LINE_PLAIN;
    while (patient && !has_room(size))
        patient = wait_moved();
    if (has_room(size)) {
        struct head head = {.size = size, .lost = ring.gap};
        copy_in(&head, sizeof(head));
        copy_in(line, size);
        ring.gap = 0;
        atomic_fetch_add(&waiting, 1);
    } else {
        ring.gap++;
        count_lost();
    }
    pthread_cond_signal(&ring.filled);
}

void fr_log_put(enum fr_log_line kind, const char *line, size_t size)
{
    pthread_mutex_lock(&ring.lock);
    bool ended = ring.ended;
    ring.ended |= kind == FR_LOG_LINE_LAST;
    if (!ended && ring.running) {
        put_in_ring(kind, line, size);
        if (kind == FR_LOG_LINE_LAST)
            wait_written();
    } else if (!ended) {
        deliver(line, size, 0, kind == FR_LOG_LINE_PLAIN ? 0 : FR_LOG_PATIENCE_MS);
    }
    pthread_mutex_unlock(&ring.lock);
}

void fr_log_put_directly(const char *line, size_t size)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    /* the writer's own thread cannot wait for itself */
    bool own = ring.running && pthread_equal(ring.thread, pthread_self());
    for (int ms = 0; !own && ms < FR_LOG_PATIENCE_MS && atomic_load(&waiting) > 0; ms += LOOK_MS)
        nanosleep(&look, NULL);
    (void)write_soon(line, size, 0);
}

/* ---- for the process ---- */

/* Opens the pipe or terminal a second time, which gives an open file that no other process
 * shares. */
static void open_nonblocking(void)
{
    struct stat info;
    if (fstat(STDERR_FILENO, &info) != 0 || (!S_ISFIFO(info.st_mode) && !isatty(STDERR_FILENO)))
        return;
    int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0)
        return;
    original_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (original_fd >= 0)
        (void)dup2(own, STDERR_FILENO);
    close(own);
}

bool fr_log_start(void)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_mutex_lock(&ring.lock);
    bool running = ring.running;
    pthread_mutex_unlock(&ring.lock);
    if (running)
        return true;
    if (pthread_condattr_init(&monotonic) != 0)
        return false;
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    bool made = pthread_cond_init(&ring.moved, &monotonic) == 0 && pthread_cond_init(&ring.filled, NULL) == 0;
    (void)pthread_condattr_destroy(&monotonic);
    if (!made)
        return false;
    open_nonblocking();
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&ring.lock); /* so that the thread has its name before it writes */
    ring.running = fr_thread_start(&ring.thread, "log", writer_main, NULL);
    pthread_mutex_unlock(&ring.lock);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ring.running;
}

void fr_log_flush(void)
{
    pthread_mutex_lock(&ring.lock);
    if (ring.running)
        wait_written();
    pthread_mutex_unlock(&ring.lock);
}

int fr_log_descriptor(void)
{
    return original_fd >= 0 ? original_fd : STDERR_FILENO;
}

uint64_t fr_log_lost(uint64_t *unsaid)
{
    *unsaid = atomic_load(&missing);
    return atomic_load(&total);
}
