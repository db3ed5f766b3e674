/* Series of where time goes: phases of the owner loop by the clock, threads by what they had of the
 * processors.
 *
 * A thread that comes and goes (a client of Kafka, a connection) would make a sum fall: those that
 * stay have series, and all others together are what the process had beyond these.
 *
 * Thread: the main one. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "service.h"

enum { THREADS_MAX = 64, LOOK_NS = 1000000000 };

/* Names of threads as the kernel has them, or how they begin; and their series. */
static const struct {
    const char *name, *series;
} threads[] = {
    {"ingest", "ingest"},   {"owner", "owner"},         {"worker-", "worker"},    {"lookout", "lookout"},
    {"durable", "durable"}, {"fold", "fold"},           {"publish", "publish"},   {"upkeep", "upkeep"},
    {"http", "http"},       {"rocksdb:", "compaction"}, {"snapshot", "snapshot"},
};
_Static_assert(FR_ARRAY_LEN(threads) == FR_TIMED_THREADS, "a place each in the service");

static void add(const struct fr_thread_time *time, uint64_t *ns)
{
    for (size_t i = 0; i < FR_TIMED_THREADS; i++)
        if (strncmp(time->name, threads[i].name, strlen(threads[i].name)) == 0)
            ns[i] += time->ns;
}

/* Never less than before: threads that end take their time with them. */
static void lift(uint64_t *value, uint64_t to)
{
    if (to > *value)
        *value = to;
}

static void look(struct fr_service *service)
{
    struct fr_thread_time times[THREADS_MAX];
    uint64_t ns[FR_TIMED_THREADS] = {0}, sum = 0, all = fr_clock_process_ns();
    size_t n = fr_thread_times(times, THREADS_MAX);
    for (size_t i = 0; i < n; i++)
        add(&times[i], ns);
    for (size_t i = 0; i < FR_TIMED_THREADS; i++) {
        lift(&service->times.thread_ns[i], ns[i]);
        sum += service->times.thread_ns[i];
    }
    lift(&service->times.other_ns, all > sum ? all - sum : 0);
}

static void series_threads(struct fr_service *service)
{
    uint64_t now_ns = fr_mono_ns(service->clock);
    if (service->times.looked_ns && now_ns - service->times.looked_ns < LOOK_NS)
        return;
    service->times.looked_ns = now_ns;
    look(service);
    for (size_t i = 0; i <= FR_TIMED_THREADS; i++) {
        char labels[64];
        bool other = i == FR_TIMED_THREADS;
        snprintf(labels, sizeof(labels), "thread=\"%s\"", other ? "other" : threads[i].series);
        fr_counter_seconds(service->registry, "freshet_thread_cpu_seconds_total", labels,
                           "Processor time of this process by thread; worker: those of the pool together.",
                           (double)(other ? service->times.other_ns : service->times.thread_ns[i]) / 1e9);
    }
}

void fr_documents_times(struct fr_service *service, const struct fr_trainer_run *run)
{
    const struct {
        const char *phase;
        uint64_t ns;
    } phases[] = {{"plan", run->plan_ns},     {"forward", run->forward_ns}, {"backward", run->backward_ns},
                  {"update", run->update_ns}, {"metrics", run->metrics_ns}, {"cut", run->cut_ns},
                  {"wait", run->wait_ns}};
    for (size_t i = 0; i < FR_ARRAY_LEN(phases); i++) {
        char labels[64];
        snprintf(labels, sizeof(labels), "phase=\"%s\"", phases[i].phase);
        fr_counter_seconds(service->registry, "freshet_phase_seconds_total", labels,
                           "Seconds that the owner loop spent by phase since the start; the pool works with it.",
                           (double)phases[i].ns / 1e9);
    }
    series_threads(service);
}
