/* A wall clock that a test sets. When this library is preloaded (LD_PRELOAD), it adds to
 * CLOCK_REALTIME the number of milliseconds at the beginning of the file that FRESHET_CLOCK names
 * (a native 64-bit integer). Other clocks do not change. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t *offset_ms;

__attribute__((constructor)) static void open_offset(void)
{
    const char *path = getenv("FRESHET_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = fd >= 0 ? mmap(NULL, sizeof(*offset_ms), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (page == MAP_FAILED) {
        fprintf(stderr, "clock_shim: FRESHET_CLOCK names no file that can be read\n");
        _exit(1);
    }
    (void)close(fd);
    offset_ms = page;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    if (syscall(SYS_clock_gettime, id, now) != 0)
        return -1;
    if (id != CLOCK_REALTIME || !offset_ms)
        return 0;
    int64_t ms = atomic_load(offset_ms);
    now->tv_sec += (time_t)(ms / 1000);
    now->tv_nsec += (long)(ms % 1000) * 1000000L;
    if (now->tv_nsec >= 1000000000L) {
        now->tv_sec++;
        now->tv_nsec -= 1000000000L;
    } else if (now->tv_nsec < 0) {
        now->tv_sec--;
        now->tv_nsec += 1000000000L;
    }
    return 0;
}
