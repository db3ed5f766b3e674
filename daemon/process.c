/* Series of the process by the names that Prometheus has for them, so that the dashboards of others
 * fit, and of what runs.
 *
 * Thread: the main one. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "service.h"

enum { LOOK_NS = 1000000000 };

/* A small file of /proc; empty when it cannot be read (no descriptors): what it says is then not
 * known. */
static void read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;
    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* The number behind so many fields, which blanks end; NaN when there is none. */
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
    int count = -3; /* `.`, `..`, and the one that looks */
    if (!dir)
        return (double)NAN;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void series_build(struct fr_service *service)
{
    char labels[512] = "", fingerprint[32];
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, fr_conf_fingerprint(service->conf));
    fr_metric_label(labels, sizeof(labels), "version", FR_VERSION);
    fr_metric_label(labels, sizeof(labels), "kernel", fr_trainer_kernel(service->trainer));
    fr_metric_label(labels, sizeof(labels), "fp", fingerprint);
    fr_gauge(service->registry, "freshet_build_info", labels,
             "Always 1; the version, the kernel of products and the fingerprint of the model are labels.", 1);
}

static void series_device(struct fr_service *service)
{
    char labels[256] = "";
    fr_metric_label(labels, sizeof(labels), "device", service->computes_on.name);
    fr_metric_label(labels, sizeof(labels), "card", service->computes_on.card);
    fr_gauge(service->registry, "freshet_device_info", labels,
             "Always 1; the device that computes the network, and what a card's driver calls it, are labels.", 1);
}

/* That lines are missing can be said everywhere but there, until its reader is back. */
static void look_at_log(struct fr_service *service)
{
    char text[200] = "";
    uint64_t unsaid = 0, lost = fr_log_lost(&unsaid);
    fr_counter(service->registry, "freshet_log_lines_lost_total", NULL,
               "Lines of the log that standard error did not take.", lost);
    if (unsaid > 0)
        snprintf(text, sizeof(text),
                 "%" PRIu64 " lines of the log are lost because standard error does not accept them: check the pipe, "
                 "the disk or the collector that takes them",
                 unsaid);
    fr_http_reason(service->http, "log", text);
}

void fr_documents_process(struct fr_service *service)
{
    struct fr_registry *registry = service->registry;
    uint64_t now_ns = fr_mono_ns(service->clock);
    if (service->process.looked_ns && now_ns - service->process.looked_ns < LOOK_NS)
        return;
    if (!service->process.looked_ns)
        service->process.start_seconds = start_seconds(service->clock);
    service->process.looked_ns = now_ns;
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    fr_counter_seconds(registry, "process_cpu_seconds_total", NULL, "Processor time of the process, user and system.",
                       (double)fr_clock_process_ns() / 1e9);
    fr_gauge(registry, "process_resident_memory_bytes", NULL, "Memory of the process that is resident.",
             resident_bytes());
    fr_gauge(registry, "process_open_fds", NULL, "Descriptors that the process has open.", open_descriptors());
    fr_gauge(registry, "process_max_fds", NULL, "Descriptors that the process may have open.",
             limited ? (double)limit.rlim_cur : (double)INFINITY);
    fr_gauge(registry, "process_start_time_seconds", NULL, "When the process began, Unix time.",
             service->process.start_seconds);
    if (service->trainer)
        series_build(service);
    if (service->computes_on.name[0])
        series_device(service);
    look_at_log(service);
}
