/* The limits of the process, checked before libraries need the resources: a library ends the
 * process when a thread, memory or a descriptor is refused. Each check takes as much as a run
 * takes and gives it back, so that every limit is found, whatever its name. The exit code is 75
 * for a shortage that may pass, and 3 for one that only an operator can change.
 *
 * Processors and memory of the machine are logged, with warnings of settings beyond them.
 *
 * Thread: the main thread, before other threads start. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/thread.h"
#include "loops/loops.h"
#include "process_limits.h"

enum {
    /* the loops, and one thread each for HTTP, recovery, letters, lookout and close */
    OWN_THREADS = FR_LOOPS + 5,
    /* RocksDB opens files on 16 threads and keeps three to five threads. It runs two to four
     * merges at a time, each on as many ranges, with a thread for each range. Three Kafka
     * clients, made later, have one or two threads each, and one for each broker they know. */
    LIBRARY_THREADS = 32,
    FILES_MAX = 65536,
};
enum { KEPT_SHARE = 64, KEPT_MIN = 1 << 20, KEPT_MAX = 128 << 20 };

size_t fr_limits_workers(const struct fr_conf *conf)
{
    return conf->threads ? conf->threads : fr_machine_processors(fr_machine());
}

/* Writes a limit for a message: a number or `none`. */
static const char *limit_text(int resource, char text[24])
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return "none";
    snprintf(text, 24, "%" PRIu64, (uint64_t)limit.rlim_cur);
    return text;
}

/* ---- descriptors ---- */

static enum fr_status check_descriptors(struct fr_err *err)
{
    int taken[FR_DURABLE_FILES_MIN], n = 0;
    while (n < FR_DURABLE_FILES_MIN && (taken[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    int number = errno;
    for (int i = 0; i < n; i++)
        close(taken[i]);
    if (n == FR_DURABLE_FILES_MIN)
        return FR_OK;
    char limit[24];
    return fr_err_set(err, FR_E_LIMIT,
                      "the process may open %d files more (%s), at least %d are needed: raise its limit of %s "
                      "(LimitNOFILE= of systemd, ulimit -n)",
                      n, strerror(number), FR_DURABLE_FILES_MIN, limit_text(RLIMIT_NOFILE, limit));
}

/* ---- threads and address space ---- */

struct probe {
    pthread_mutex_t lock; /* held until all threads are made, so that they exist at once */
    pthread_t *threads;
    size_t n;
};

static void *probe_main(void *self)
{
    struct probe *probe = self;
    pthread_mutex_lock(&probe->lock);
    pthread_mutex_unlock(&probe->lock);
    return NULL;
}

/* Returns how many of `wanted` threads the process can have at once. */
static size_t count_threads(size_t wanted)
{
    struct probe probe = {.threads = fr_alloc(wanted, sizeof(pthread_t))};
    FR_CHECK(pthread_mutex_init(&probe.lock, NULL) == 0);
    pthread_mutex_lock(&probe.lock);
    while (probe.n < wanted && fr_thread_start(&probe.threads[probe.n], "probe", probe_main, &probe))
        probe.n++;
    pthread_mutex_unlock(&probe.lock);
    for (size_t i = 0; i < probe.n; i++)
        pthread_join(probe.threads[i], NULL);
    pthread_mutex_destroy(&probe.lock);
    free(probe.threads);
    return probe.n;
}

static bool is_limited(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* Checks the process's own limits only. The memory of the machine causes a warning
 * (fr_limits_warn). */
static enum fr_status check_address_space(const struct fr_conf *conf, void **mapped, struct fr_err *err)
{
    *mapped = NULL;
    if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA))
        return FR_OK;
    void *memory = mmap(NULL, (size_t)conf->memory_limit, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char space[24], data[24];
    if (memory == MAP_FAILED)
        return fr_err_set(err, FR_E_LIMIT,
                          "memory_limit is %" PRIu64
                          "B, and the process may not have so much in addition to what it has "
                          "(ulimit -v: %s bytes, ulimit -d: %s bytes): raise its limit or lower memory_limit",
                          conf->memory_limit, limit_text(RLIMIT_AS, space), limit_text(RLIMIT_DATA, data));
    *mapped = memory;
    return FR_OK;
}

static enum fr_status check_threads(const struct fr_conf *conf, struct fr_err *err)
{
    size_t own = fr_limits_workers(conf) + OWN_THREADS, wanted = own + LIBRARY_THREADS, n = count_threads(wanted);
    char limit[24];
    if (n == wanted)
        return FR_OK;
    return fr_err_set(err, FR_E_NO_MEMORY,
                      "the process needs %zu threads (%zu of them for libraries) and could start %zu: raise the user's "
                      "limit (ulimit -u: %s) or the control group's (TasksMax= of systemd, pids.max), lower `threads`, "
                      "or free memory for their stacks",
                      wanted, (size_t)LIBRARY_THREADS, n, limit_text(RLIMIT_NPROC, limit));
}

enum fr_status fr_limits_check(const struct fr_conf *conf, struct fr_err *err)
{
    void *mapped;
    enum fr_status status = check_descriptors(err);
    if (status == FR_OK)
        status = check_address_space(conf, &mapped, err);
    if (status != FR_OK)
        return status;
    status = check_threads(conf, err); /* while that memory is mapped */
    if (mapped)
        (void)munmap(mapped, (size_t)conf->memory_limit);
    return status;
}

/* ---- the machine ---- */

void fr_limits_warn(const struct fr_conf *conf, const struct fr_machine *machine, const char *config,
                    struct fr_buffer *out)
{
    uint64_t memory = fr_machine_memory(machine);
    uint32_t processors = fr_machine_processors(machine);
    if (conf->memory_limit > memory)
        fr_buffer_printf(out,
                         "%s: memory_limit: %" PRIu64 "B, but %s gives %" PRIu64
                         "B: the system ends the process where it takes more; lower memory_limit\n",
                         config, conf->memory_limit, memory < machine->memory ? "the control group" : "this machine",
                         memory);
    if (conf->threads > processors)
        fr_buffer_printf(out,
                         "%s: threads: %u, but the process may use %u of %u processors (affinity %u, quota %.4g): they "
                         "wait for one another; lower threads, or take 0\n",
                         config, (unsigned)conf->threads, processors, machine->online, machine->allowed,
                         machine->quota);
}

void fr_limits_log_machine(void)
{
    const struct fr_machine *machine = fr_machine();
    fr_log(FR_LOG_INFO, "daemon", "machine",
           "processors=%u online=%u allowed=%u quota=%.4g memory=%" PRIu64 " memory_limit_of_group=%" PRIu64,
           fr_machine_processors(machine), machine->online, machine->allowed, machine->quota, machine->memory,
           machine->limit);
}

size_t fr_limits_epoch_touch_bytes(const struct fr_conf *conf)
{
    return conf->memory_reserve > 0 ? (size_t)(conf->epoch_bytes_max / 4 * 3) : 0;
}

void fr_limits_raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES_MAX)
        return;
    limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
    /* if the limit stays too low, a later check refuses it by name */
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void fr_limits_keep_freed(uint64_t memory_limit)
{
    uint64_t kept = memory_limit / KEPT_SHARE < KEPT_MAX ? memory_limit / KEPT_SHARE : KEPT_MAX;
    if (kept < KEPT_MIN)
        return; /* the allocator's default is about as much */
    (void)mallopt(M_MMAP_THRESHOLD, (int)(kept / 4));
    (void)mallopt(M_TRIM_THRESHOLD, (int)kept);
}
