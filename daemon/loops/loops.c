/* The threads of the service (loops.h): each repeats its step, with a heartbeat and one way to end
 * when it fails. */
#include "loops/loops.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define STEP(name)                                                                                                     \
    static enum fr_status step_##name(struct fr_loops *loops, struct fr_err *err)                                      \
    {                                                                                                                  \
        return fr_step_##name(&loops->name, err);                                                                      \
    }
STEP(publish)
STEP(ingest)
STEP(trainer)
STEP(durable)
STEP(upkeep)
STEP(fold)
STEP(snapshot)
STEP(replicas)
#undef STEP

struct loop {
    /* names of the thread, of the loop in /healthz, and of the loop in an error */
    const char *thread, *watch, *failure;
    enum fr_status (*step)(struct fr_loops *loops, struct fr_err *err);
    long nap_ms; /* the pause after FR_AGAIN, while brokers or disks are waited for */
    /* Threads that may run late yield to training. A fork-join loop waits for its slowest worker,
     * so on few cores a worker that loses its core to a fold delays all workers. */
    int nice;
};

static const struct loop table[FR_LOOPS] = {
    [FR_LOOP_PUBLISH] = {"publish", "publisher", "publisher", step_publish, 100, FR_BACKGROUND_NICE},
    [FR_LOOP_INGEST] = {"ingest", "ingest", "ingest", step_ingest, 20, 0},
    [FR_LOOP_TRAINER] = {"owner", "trainer", "trainer", step_trainer, 2, 0},
    [FR_LOOP_DURABLE] = {"durable", "durable", "journal", step_durable, 2, FR_BACKGROUND_NICE},
    [FR_LOOP_UPKEEP] = {"upkeep", "upkeep", "upkeep", step_upkeep, 20, 0},
    [FR_LOOP_FOLD] = {"fold", "fold", "fold", step_fold, 20, FR_BACKGROUND_NICE},
    [FR_LOOP_SNAPSHOT] = {"snapshot", "snapshot", "snapshot", step_snapshot, 50, FR_SNAPSHOT_NICE},
    [FR_LOOP_REPLICAS] = {"replicas", "replicas", "replicas", step_replicas, 200, FR_BACKGROUND_NICE},
};

void fr_loops_init(struct fr_loops *loops)
{
    const struct fr_loop_context *context = &loops->context;
    loops->publish.context = loops->ingest.context = loops->trainer.context = loops->durable.context = context;
    loops->upkeep.context = loops->fold.context = loops->snapshot.context = loops->replicas.context = context;
    const struct fr_loop_thread *durable_thread = &loops->threads[FR_LOOP_DURABLE];
    loops->publish.durable = &loops->durable.shared;
    loops->ingest.publish = &loops->publish.shared;
    loops->ingest.durable_thread = durable_thread;
    loops->trainer.snapshots = &loops->snapshot.shared;
    loops->upkeep.appended = &loops->durable.shared;
    loops->fold.appended = &loops->durable.shared;
    loops->fold.disk = &loops->upkeep.shared;
    loops->snapshot.appended = &loops->durable.shared;
    loops->snapshot.publish = &loops->publish.shared;
    loops->snapshot.disk = &loops->upkeep.shared;
    loops->snapshot.fold = &loops->fold.shared;
    loops->snapshot.thread = &loops->threads[FR_LOOP_SNAPSHOT];
    loops->snapshot.trainer_thread = &loops->threads[FR_LOOP_TRAINER];
    loops->snapshot.durable_thread = durable_thread;
    fr_shared_durable_init(&loops->durable.shared);
    fr_shared_digests_init(&loops->durable.digests);
    fr_shared_snapshots_init(&loops->snapshot.shared);
}

void fr_loops_release(struct fr_loops *loops)
{
    fr_loop_trainer_release(&loops->trainer);
    fr_shared_durable_release(&loops->durable.shared);
    fr_shared_digests_release(&loops->durable.digests);
    fr_shared_snapshots_release(&loops->snapshot.shared);
}

static void fail(struct fr_lifecycle *life, enum fr_status status, struct fr_err *err, const char *what)
{
    if (err->text[0] == '\0')
        (void)fr_err_set(err, status, "%s", fr_status_name(status));
    (void)fr_err_wrap(err, "%s", what);
    fr_lifecycle_fail(life, err);
}

static void *loop_main(void *self)
{
    struct fr_loop_thread *thread = self;
    struct fr_loops *loops = thread->loops;
    const struct fr_loop_context *context = &loops->context;
    const struct loop *loop = &table[thread - loops->threads];
    if (loop->nice > 0) /* best effort; on Linux the niceness is the thread's own */
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), loop->nice);
    thread->beat = fr_http_watch(context->http, loop->watch, FR_WATCHDOG_MS);
    enum fr_status status = FR_OK;
    while (status >= 0 && status != FR_EOF) {
        struct fr_err err = {0};
        fr_http_beat(context->http, thread->beat);
        status = loop->step(loops, &err);
        if (status == FR_AGAIN)
            nanosleep(&(struct timespec){.tv_nsec = loop->nap_ms * 1000000L}, NULL);
        else if (status < 0)
            fail(context->life, status, &err, loop->failure);
    }
    fr_http_unwatch(context->http, thread->beat);
    atomic_store(&thread->done, true);
    return NULL;
}

enum fr_status fr_loops_start(struct fr_loops *loops, struct fr_err *err)
{
    for (size_t i = 0; i < FR_LOOPS; i++) {
        struct fr_loop_thread *thread = &loops->threads[i];
        thread->loops = loops;
        thread->started = fr_thread_start(&thread->thread, table[i].thread, loop_main, thread);
        if (!thread->started)
            return fr_err_set(err, FR_E_NO_MEMORY, "cannot start thread %s: %s", table[i].thread, FR_THREADS_SHORT);
    }
    return FR_OK;
}

void fr_loops_join(struct fr_loops *loops)
{
    for (size_t i = 0; i < FR_LOOPS; i++)
        if (loops->threads[i].started)
            pthread_join(loops->threads[i].thread, NULL);
}

bool fr_loops_done(const struct fr_loops *loops, enum fr_loop loop)
{
    return atomic_load(&loops->threads[loop].done);
}
