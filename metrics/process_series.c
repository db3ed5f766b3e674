/* Series of the process by the names that Prometheus has for them, so that the dashboards of others
 * fit (contract: metrics/process_series.h). */
#include "metrics/process_series.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "metrics/series.h"

enum { LOOK_NS = 1000000000 };

/* Reads a small file of /proc. The text is empty if the file cannot be read (no descriptors); the
 * values are then unknown. */
static void read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;
    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* Returns the number after `fields` fields, each of which a blank ends; NaN if there is none. */
static double number_after(const char *text, int fields)
{
    for (; text && fields > 0; fields--)
        text = (text = strchr(text, ' ')) ? text + 1 : NULL;
    char *end = NULL;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    return text && end > text ? (double)value : (double)NAN;
}

static double resident_bytes(void)
{
    char text[128];
    read_small("/proc/self/statm", text, sizeof(text));
    return number_after(text, 1) * (double)sysconf(_SC_PAGESIZE);
}

/* Field 22 of stat, in ticks since the host booted. The second one, a name in parentheses, may hold
 * anything. */
static double start_seconds(const struct fr_clock *clock)
{
    char text[1024];
    struct timespec up;
    read_small("/proc/self/stat", text, sizeof(text));
    const char *name_end = strrchr(text, ')');
    if (!name_end || clock_gettime(CLOCK_BOOTTIME, &up) != 0)
        return (double)NAN;
    double uptime = (double)up.tv_sec + (double)up.tv_nsec / 1e9;
    double ticks = number_after(name_end, 22 - 2);
    return (double)fr_wall_ms(clock) / 1e3 - uptime + ticks / (double)sysconf(_SC_CLK_TCK);
}

static double open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = -3; /* `.`, `..` and the descriptor of this look do not count */
    if (!dir)
        return (double)NAN;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

bool fr_series_of_process(struct fr_process_series *state, struct fr_registry *registry, const struct fr_clock *clock)
{
    uint64_t now_ns = fr_mono_ns(clock);
    if (state->looked_ns && now_ns - state->looked_ns < LOOK_NS)
        return false;
    if (!state->looked_ns)
        state->start_seconds = start_seconds(clock);
    state->looked_ns = now_ns;
    state->resident_bytes = resident_bytes();
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    fr_series_set(registry, FR_SERIES_PROCESS_CPU_SECONDS_TOTAL, NULL, (double)fr_clock_process_ns() / 1e9);
    fr_series_set(registry, FR_SERIES_PROCESS_RESIDENT_MEMORY_BYTES, NULL, state->resident_bytes);
    fr_series_set(registry, FR_SERIES_PROCESS_OPEN_FDS, NULL, open_descriptors());
    fr_series_set(registry, FR_SERIES_PROCESS_MAX_FDS, NULL, limited ? (double)limit.rlim_cur : (double)INFINITY);
    fr_series_set(registry, FR_SERIES_PROCESS_START_TIME_SECONDS, NULL, state->start_seconds);
    return true;
}
