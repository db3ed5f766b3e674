/* The threads of the service: each repeats its step (steps.c), with a heartbeat and one way out on
 * failure. Who owns what: service.h. */
#include "service.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/thread.h"

struct loop {
    const char *thread, *watch, *failure; /* names */
    enum fr_status (*step)(struct fr_service *service, struct fr_err *err);
    long nap_ms; /* when there is nothing to do: waiting for the outside world, brokers and disks */
    /* Threads that may run late yield to training: on few cores a fork-join loop waits for its
     * slowest worker, and a worker that loses its core to a fold holds up all of them. */
    int nice;
};

static const struct loop loops[FR_LOOPS] = {
    [FR_LOOP_PUBLISH] = {"publish", "publisher", "publisher", fr_step_publish, 100, FR_BACKGROUND_NICE},
    [FR_LOOP_INGEST] = {"ingest", "ingest", "ingest", fr_step_ingest, 20, 0},
    [FR_LOOP_TRAINER] = {"owner", "trainer", "trainer", fr_step_trainer, 2, 0},
    [FR_LOOP_DURABLE] = {"durable", "durable", "journal", fr_step_durable, 2, FR_BACKGROUND_NICE},
    [FR_LOOP_UPKEEP] = {"upkeep", "upkeep", "upkeep", fr_step_upkeep, 20, 0},
    [FR_LOOP_FOLD] = {"fold", "fold", "fold", fr_step_fold, 20, FR_BACKGROUND_NICE},
    [FR_LOOP_SNAPSHOT] = {"snapshot", "snapshot", "snapshot", fr_step_snapshots, 50, FR_SNAPSHOT_NICE},
};

static void fail(struct fr_service *service, enum fr_status status, struct fr_err *err, const char *what)
{
    if (err->text[0] == '\0')
        (void)fr_err_set(err, status, "%s", fr_status_name(status));
    (void)fr_err_wrap(err, "%s", what);
    fr_service_fail(service, err);
}

static void *loop_main(void *self)
{
    struct fr_loop_thread *thread = self;
    struct fr_service *service = thread->service;
    const struct loop *loop = &loops[thread - service->loops];
    if (loop->nice > 0) /* per thread on Linux; best effort */
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), loop->nice);
    thread->beat = fr_http_watch(service->http, loop->watch, FR_WATCHDOG_MS);
    enum fr_status status = FR_OK;
    while (status >= 0 && status != FR_EOF) {
        struct fr_err err = {0};
        fr_http_beat(service->http, thread->beat);
        status = loop->step(service, &err);
        if (status == FR_AGAIN)
            nanosleep(&(struct timespec){.tv_nsec = loop->nap_ms * 1000000L}, NULL);
        else if (status < 0)
            fail(service, status, &err, loop->failure);
    }
    fr_http_unwatch(service->http, thread->beat);
    atomic_store(&thread->done, true);
    return NULL;
}

enum fr_status fr_loops_start(struct fr_service *service, struct fr_err *err)
{
    for (size_t i = 0; i < FR_LOOPS; i++) {
        struct fr_loop_thread *thread = &service->loops[i];
        thread->service = service;
        thread->started = fr_thread_start(&thread->thread, loops[i].thread, loop_main, thread);
        if (!thread->started)
            return fr_err_set(err, FR_E_NO_MEMORY, "cannot start thread %s: %s", loops[i].thread, FR_THREADS_SHORT);
    }
    return FR_OK;
}

void fr_loops_join(struct fr_service *service)
{
    for (size_t i = 0; i < FR_LOOPS; i++)
        if (service->loops[i].started)
            pthread_join(service->loops[i].thread, NULL);
}
