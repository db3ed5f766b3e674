/* Stores the newest spans of all threads in a ring, which is written at the end (contract:
 * base/trace.h).
 *
 * A span takes the mutex for a few stores. There are some thousands of spans a second, one for each
 * phase of a batch or an epoch, never one for a sample. A thread gets its number and its name at
 * its first span. Times are CLOCK_MONOTONIC's.
 *
 * Like the log, there is one trace for the process, so that code with a span needs no object for
 * it. Thread: any. */
#include "base/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/thread.h"

struct span {
    const char *name;
    uint64_t begin_ns, end_ns;
    uint32_t thread;
};

static struct {
    pthread_mutex_t lock;
    FILE *file;
    char *path;
    struct span *spans; /* [FR_TRACE_EVENTS]; span number i is at i mod FR_TRACE_EVENTS */
    uint64_t n_spans;
    /* threads beyond the last number share that number */
    char threads[FR_TRACE_THREADS][FR_THREAD_NAME];
    uint32_t n_threads;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_uint opened; /* while open, the number of opens so far; otherwise 0 */
static unsigned n_opened;

static _Thread_local struct {
    unsigned opened;
    uint32_t number;
} mine;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

enum fr_status fr_trace_open(const char *path, struct fr_err *err)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return fr_err_set(err, FR_E_INVALID, "the trace %s cannot be written: %s", path, strerror(errno));
    pthread_mutex_lock(&trace.lock);
    trace.file = file;
    trace.path = fr_strdup(path);
    trace.spans = fr_alloc(FR_TRACE_EVENTS, sizeof(*trace.spans));
    trace.n_spans = 0;
    trace.n_threads = 0;
    atomic_store(&opened, ++n_opened);
    pthread_mutex_unlock(&trace.lock);
    return FR_OK;
}

uint64_t fr_trace_begin(void)
{
    return atomic_load_explicit(&opened, memory_order_relaxed) ? now_ns() : 0;
}

/* The caller holds the lock. */
static uint32_t number_of_thread(unsigned generation)
{
    if (mine.opened != generation) {
        mine.opened = generation;
        mine.number = trace.n_threads < FR_TRACE_THREADS ? trace.n_threads++ : FR_TRACE_THREADS - 1;
        char *name = trace.threads[mine.number];
        if (prctl(PR_GET_NAME, name) != 0)
            snprintf(name, FR_THREAD_NAME, "thread");
    }
    return mine.number;
}

void fr_trace_end(const char *name, uint64_t begin_ns)
{
    if (begin_ns == 0 || !atomic_load_explicit(&opened, memory_order_relaxed))
        return;
    uint64_t end_ns = now_ns();
    pthread_mutex_lock(&trace.lock);
    unsigned generation = atomic_load(&opened);
    if (generation)
        trace.spans[trace.n_spans++ % FR_TRACE_EVENTS] =
            (struct span){.name = name, .begin_ns = begin_ns, .end_ns = end_ns, .thread = number_of_thread(generation)};
    pthread_mutex_unlock(&trace.lock);
}

static void put_threads(struct fr_buffer *out)
{
    for (uint32_t t = 0; t < trace.n_threads; t++) {
        fr_buffer_printf(out,
                         "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%ld,\"tid\":%" PRIu32 ",\"args\":{\"name\":",
                         (long)getpid(), t);
        fr_buffer_json_text(out, trace.threads[t]);
        fr_buffer_printf(out, "}},\n");
    }
}

static void put_span(const struct span *span, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"ph\":\"X\",\"name\":");
    fr_buffer_json_text(out, span->name);
    fr_buffer_printf(out, ",\"pid\":%ld,\"tid\":%" PRIu32 ",\"ts\":%.3f,\"dur\":%.3f},\n", (long)getpid(), span->thread,
                     (double)span->begin_ns / 1e3, (double)(span->end_ns - span->begin_ns) / 1e3);
}

static bool write_out(FILE *file, struct fr_buffer *out)
{
    bool good = fwrite(out->data, 1, out->size, file) == out->size;
    fr_buffer_clear(out);
    return good;
}

static bool write_all(uint64_t lost)
{
    enum { WRITE_BYTES = 1 << 16 };
    struct fr_buffer out = {0};
    bool good = true;
    fr_buffer_printf(&out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"lost\":\"%" PRIu64 "\"},\"traceEvents\":[\n",
                     lost);
    put_threads(&out);
    for (uint64_t i = lost; i < trace.n_spans && good; i++) {
        put_span(&trace.spans[i % FR_TRACE_EVENTS], &out);
        if (out.size >= WRITE_BYTES)
            good = write_out(trace.file, &out);
    }
    fr_buffer_printf(&out, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%ld,\"args\":{\"name\":\"freshetd\"}}]}\n",
                     (long)getpid());
    good = good && write_out(trace.file, &out);
    fr_buffer_release(&out);
    return good;
}

enum fr_status fr_trace_close(uint64_t *lost, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    pthread_mutex_lock(&trace.lock);
    uint64_t overwritten = trace.n_spans > FR_TRACE_EVENTS ? trace.n_spans - FR_TRACE_EVENTS : 0;
    if (trace.file) {
        atomic_store(&opened, 0);
        bool good = write_all(overwritten);
        if (fclose(trace.file) != 0 || !good)
            status = fr_err_set(err, FR_E_IO, "the trace %s was not written whole: %s", trace.path, strerror(errno));
        free(trace.path);
        free(trace.spans);
        trace.file = NULL;
        trace.spans = NULL;
        trace.path = NULL;
    }
    if (lost)
        *lost = overwritten;
    pthread_mutex_unlock(&trace.lock);
    return status;
}
