/* Series of the processor time of threads (contract: metrics/thread_series.h).
 *
 * A thread that comes and goes (a client of Kafka, a connection) would make a sum fall: those that
 * stay have series, and all others together are what the process had beyond these. */
#include "metrics/thread_series.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/thread.h"
#include "metrics/series.h"

enum { THREADS_MAX = 64, LOOK_NS = 1000000000 };

/* Names of threads as the kernel has them, or how they begin; and their series. */
static const struct {
    const char *name, *series;
} threads[] = {
    {"ingest", "ingest"},   {"owner", "owner"},         {"worker-", "worker"},    {"lookout", "lookout"},
    {"durable", "durable"}, {"fold", "fold"},           {"publish", "publish"},   {"upkeep", "upkeep"},
    {"http", "http"},       {"rocksdb:", "compaction"}, {"snapshot", "snapshot"},
};
_Static_assert(FR_ARRAY_LEN(threads) == FR_TIMED_THREADS, "a place each in the state");

static void add(const struct fr_thread_time *time, uint64_t *ns)
{
    for (size_t i = 0; i < FR_TIMED_THREADS; i++)
        if (strncmp(time->name, threads[i].name, strlen(threads[i].name)) == 0)
            ns[i] += time->ns;
}

/* Raises the value but never lowers it, because the time of a thread is gone when the thread has
 * ended. */
static void lift(uint64_t *value, uint64_t to)
{
    if (to > *value)
        *value = to;
}

static void look(struct fr_thread_series *state)
{
    struct fr_thread_time times[THREADS_MAX];
    uint64_t ns[FR_TIMED_THREADS] = {0}, sum = 0, all = fr_clock_process_ns();
    size_t n = fr_thread_times(times, THREADS_MAX);
    for (size_t i = 0; i < n; i++)
        add(&times[i], ns);
    for (size_t i = 0; i < FR_TIMED_THREADS; i++) {
        lift(&state->thread_ns[i], ns[i]);
        sum += state->thread_ns[i];
    }
    lift(&state->other_ns, all > sum ? all - sum : 0);
}

void fr_series_of_threads(struct fr_thread_series *state, struct fr_registry *registry, const struct fr_clock *clock)
{
    uint64_t now_ns = fr_mono_ns(clock);
    if (state->looked_ns && now_ns - state->looked_ns < LOOK_NS)
        return;
    state->looked_ns = now_ns;
    look(state);
    for (size_t i = 0; i <= FR_TIMED_THREADS; i++) {
        char labels[64];
        bool other = i == FR_TIMED_THREADS;
        snprintf(labels, sizeof(labels), "thread=\"%s\"", other ? "other" : threads[i].series);
        fr_series_set(registry, FR_SERIES_THREAD_CPU_SECONDS_TOTAL, labels,
                      (double)(other ? state->other_ns : state->thread_ns[i]) / 1e9);
    }
}
