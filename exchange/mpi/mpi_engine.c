/* The plug-in freshet-mpi.so: the exchange over MPI. See exchange/mpi.h.
 *
 * One thread, `exchange`, makes all calls of MPI (MPI_THREAD_FUNNELED: several threads would cost
 * every call a lock). A channel belongs to its owner while it is at rest, and to that thread from a
 * send until all parts have come and gone; its state hands it over. Each channel has a
 * communicator, so channels never wait for each other.
 *
 * A call sends one message to each other rank, also of no bytes, and receives one from each: by
 * matched probes, which give the size, so no sizes are sent in advance. MPI_Ialltoallv would need
 * them, and its displacements are int, while the parts of all ranks together may be larger. The tag
 * is the call's number modulo 2: a rank sends call s + 1 only after it has received call s, so at
 * most these two can be under way, and messages of one rank and tag keep their order.
 *
 * While the owner waits, the thread looks again at once, SPIN_NS long. Then it sleeps between two
 * looks, an eighth of the time since something last moved, but 50 µs at least and 4 ms at most: a
 * sleep of 1 ms takes 1 to 3 % of a processor on a virtual machine. With nothing in flight it looks
 * every 4 ms, because a message that MPI has copied leaves only while some function of MPI runs.
 *
 * After an error or a stop, no function of MPI is called but MPI_Abort: the memory that a caller
 * lent for a send may be gone. */
#include "mpi_plugin.h"

#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/thread.h"

enum {
    SPIN_NS = 50000,
    OWNER_SPIN_NS = 100000,
    PAUSE_NS_MIN = 50000,
    PAUSE_NS_MAX = 4000000,
    CODE_AGAIN = 75,           /* of a job that is started again */
    LAST_WORDS_NS = 1000000000 /* from an error to the end, for the caller's log */
};
/* from MPI_Abort to _exit, if MPI hangs, too */
static const uint64_t abort_ns = 2000000000;
/* At least so long may the launcher and MPI take to start all ranks, on a machine that is busy. */
#define START_NS UINT64_C(60000000000)

enum state { AT_REST, GIVEN, MOVING };

struct channel {
    _Atomic enum state state;
    uint64_t call; /* number of sends */
    struct fr_bytes out[FR_RANKS_MAX], in[FR_RANKS_MAX];
    /* Bit r: the part of rank r has not come, or rank r has not taken its part. Written by the
     * thread while the channel moves; the owner reads whom it waits for. */
    _Atomic uint64_t awaited, untaken;
    MPI_Comm comm;
    uint32_t unmatched;                     /* messages that have not been found yet */
    MPI_Request requests[2 * FR_RANKS_MAX]; /* r: from rank r; size + r: to rank r */
    struct fr_buffer buffers[FR_RANKS_MAX]; /* what `in` points to */
};

enum stage { STARTING, RUNNING, LEAVING, LEFT };

struct engine {
    struct fr_mpi_options options;
    pthread_t thread;
    int rank, size;
    struct channel channels[FR_CHANNELS];
    MPI_Request barrier; /* of the last call of all ranks */
    uint64_t moved_ns;   /* the thread's: when something moved last, or the owner called */
    uint64_t seen;       /* the thread's: the value of `wakes` when it slept last */

    _Atomic enum stage stage;
    atomic_int waiting;     /* threads of the owners that are in receive */
    _Atomic bool over;      /* an error or a stop: no function of MPI but MPI_Abort */
    _Atomic bool abort_now; /* the thread is to call MPI_Abort */

    pthread_mutex_t lock; /* guards what follows, and every change that someone may sleep for */
    pthread_cond_t changed;
    uint64_t wakes;        /* what the thread must not sleep through */
    struct fr_err failure; /* the first error; status FR_OK: none */
    bool ending;
    int code;
    uint64_t end_ns; /* when MPI_Abort is due */
};

static uint64_t now_ns(void)
{
    return fr_mono_ns(fr_clock_system());
}

static void sleep_locked(struct engine *engine, uint64_t at_most_ns)
{
    struct timespec until = fr_clock_deadline(at_most_ns);
    int rc = pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
    FR_CHECK(rc == 0 || rc == ETIMEDOUT);
}

static void wake_locked(struct engine *engine)
{
    engine->wakes++;
    pthread_cond_broadcast(&engine->changed);
}

/* ---- the end of a job that failed or was stopped ---- */

/* Ends the process when it is due, and also if the exchange thread hangs in MPI. */
static void *end_process(void *self)
{
    struct engine *engine = self;
    pthread_mutex_lock(&engine->lock);
    for (uint64_t now = now_ns(); now < engine->end_ns; now = now_ns())
        sleep_locked(engine, engine->end_ns - now);
    engine->abort_now = true;
    wake_locked(engine);
    for (uint64_t begin = now_ns(), now = begin; now < begin + abort_ns; now = now_ns())
        sleep_locked(engine, begin + abort_ns - now);
    _exit(engine->code);
}

/* The first call gives the code, the earliest the time. */
static void end_locked(struct engine *engine, int code, uint64_t after_ns)
{
    pthread_t thread;
    uint64_t end_ns = now_ns() + after_ns;
    bool first = !engine->ending;
    if (first)
        engine->code = code;
    if (first || end_ns < engine->end_ns)
        engine->end_ns = end_ns;
    engine->ending = true;
    engine->over = true;
    wake_locked(engine);
    if (first && !fr_thread_start(&thread, "exchange-end", end_process, engine))
        _exit(code);
}

static void stop(void *self, int code)
{
    struct engine *engine = self;
    pthread_mutex_lock(&engine->lock);
    end_locked(engine, code, 0);
    pthread_mutex_unlock(&engine->lock);
}

static void fail_locked(struct engine *engine, const struct fr_err *err)
{
    if (engine->failure.status == FR_OK)
        engine->failure = *err;
    end_locked(engine, CODE_AGAIN, LAST_WORDS_NS);
}

/* Returns why the exchange is over. */
static enum fr_status over_locked(const struct engine *engine, struct fr_err *err)
{
    if (engine->failure.status == FR_OK)
        return fr_exchange_stopped((uint32_t)engine->rank, engine->code, err);
    *err = engine->failure;
    return err->status;
}

/* ---- the exchange thread ---- */

/* Returns whether a function of MPI has done its work. If it has not, the exchange is over. */
static bool done(struct engine *engine, int rc, const char *function)
{
    char text[MPI_MAX_ERROR_STRING] = "no text";
    int length = 0;
    struct fr_err err;
    if (rc == MPI_SUCCESS)
        return true;
    MPI_Error_string(rc, text, &length);
    fr_err_set(&err, FR_E_UNAVAILABLE, "%s: %s; look at the logs of the other ranks, then start again", function, text);
    pthread_mutex_lock(&engine->lock);
    fail_locked(engine, &err);
    pthread_mutex_unlock(&engine->lock);
    return false;
}

static bool post_sends(struct engine *engine, struct channel *channel)
{
    bool fine = true;
    channel->unmatched = (uint32_t)engine->size - 1;
    for (int r = 0; r < engine->size && fine; r++)
        if (r != engine->rank)
            fine = done(engine,
                        MPI_Isend(channel->out[r].data, (int)channel->out[r].size, MPI_BYTE, r,
                                  (int)(channel->call % 2), channel->comm, &channel->requests[engine->size + r]),
                        "MPI_Isend");
    channel->state = MOVING;
    return fine;
}

/* Begins to receive every message of this call that has come. */
static bool match_messages(struct engine *engine, struct channel *channel)
{
    while (channel->unmatched > 0) {
        MPI_Message message;
        MPI_Status status;
        int found = 0, bytes = 0;
        if (!done(engine,
                  MPI_Improbe(MPI_ANY_SOURCE, (int)(channel->call % 2), channel->comm, &found, &message, &status),
                  "MPI_Improbe"))
            return false;
        if (!found)
            return true;
        int from = status.MPI_SOURCE;
        struct fr_buffer *buffer = &channel->buffers[from];
        if (!done(engine, MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"))
            return false;
        fr_buffer_clear(buffer);
        channel->in[from] = (struct fr_bytes){fr_buffer_reserve(buffer, (size_t)bytes), (size_t)bytes};
        if (!done(engine, MPI_Imrecv(buffer->data, bytes, MPI_BYTE, &message, &channel->requests[from]), "MPI_Imrecv"))
            return false;
        channel->unmatched--;
    }
    return true;
}

/* Counts the messages that have come and gone. Returns whether there were any. */
static bool complete_requests(struct engine *engine, struct channel *channel)
{
    MPI_Status statuses[2 * FR_RANKS_MAX];
    int n = 0, indices[2 * FR_RANKS_MAX];
    int rc = MPI_Testsome(2 * engine->size, channel->requests, &n, indices, statuses);
    for (int i = 0; rc == MPI_ERR_IN_STATUS && i < n; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            rc = statuses[i].MPI_ERROR;
    if (!done(engine, rc, "MPI_Testsome"))
        return false;
    for (int i = 0; i < n; i++) {
        int r = indices[i] % engine->size;
        atomic_fetch_and(indices[i] < engine->size ? &channel->awaited : &channel->untaken, ~(UINT64_C(1) << r));
    }
    return n > 0;
}

/* Returns whether anything moved. */
static bool move_channel(struct engine *engine, struct channel *channel)
{
    bool given = channel->state == GIVEN;
    if (given && !post_sends(engine, channel))
        return false;
    if (!match_messages(engine, channel))
        return false;
    bool moved = complete_requests(engine, channel);
    if (!engine->over && channel->awaited == 0 && channel->untaken == 0) {
        pthread_mutex_lock(&engine->lock);
        channel->state = AT_REST;
        pthread_cond_broadcast(&engine->changed);
        pthread_mutex_unlock(&engine->lock);
    }
    return moved || given;
}

/* All ranks leave together; nothing is in flight. */
static void leave(struct engine *engine)
{
    int all = 0;
    if (engine->barrier == MPI_REQUEST_NULL &&
        !done(engine, MPI_Ibarrier(engine->channels[0].comm, &engine->barrier), "MPI_Ibarrier"))
        return;
    if (!done(engine, MPI_Test(&engine->barrier, &all, MPI_STATUS_IGNORE), "MPI_Test") || !all)
        return;
    for (int c = 0; c < FR_CHANNELS; c++)
        if (!done(engine, MPI_Comm_free(&engine->channels[c].comm), "MPI_Comm_free"))
            return;
    if (!done(engine, MPI_Finalize(), "MPI_Finalize"))
        return;
    pthread_mutex_lock(&engine->lock);
    engine->stage = LEFT;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* Lets time go by until the next look. */
static void rest(struct engine *engine, bool in_flight, bool moved)
{
    uint64_t now = now_ns();
    if (moved)
        engine->moved_ns = now;
    uint64_t quiet_ns = now - engine->moved_ns, pause_ns = quiet_ns / 8;
    if (in_flight && engine->waiting && quiet_ns < SPIN_NS) {
        sched_yield();
        return;
    }
    if (pause_ns < PAUSE_NS_MIN)
        pause_ns = PAUSE_NS_MIN;
    if (pause_ns > PAUSE_NS_MAX || !in_flight)
        pause_ns = PAUSE_NS_MAX;
    pthread_mutex_lock(&engine->lock);
    if (engine->wakes == engine->seen)
        sleep_locked(engine, pause_ns);
    if (engine->wakes != engine->seen)
        engine->moved_ns = now_ns();
    engine->seen = engine->wakes;
    pthread_mutex_unlock(&engine->lock);
}

static void step(struct engine *engine)
{
    bool in_flight = false, moved = false;
    int found;
    if (engine->abort_now)
        MPI_Abort(MPI_COMM_WORLD, engine->code);
    for (int c = 0; c < FR_CHANNELS && !engine->over; c++)
        if (engine->channels[c].state != AT_REST) {
            in_flight = true;
            moved |= move_channel(engine, &engine->channels[c]);
        }
    if (engine->stage == LEAVING && !in_flight && !engine->over)
        leave(engine);
    if (!in_flight && engine->stage == RUNNING && !engine->over)
        (void)done(engine, MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE),
                   "MPI_Iprobe");
    rest(engine, (in_flight || engine->stage == LEAVING) && !engine->over, moved);
}

/* Returns whether MPI has started; otherwise `err` is filled. */
static enum fr_status start(struct engine *engine, struct fr_err *err)
{
    int provided = 0, before = 0;
    if (MPI_Initialized(&before) != MPI_SUCCESS || before)
        return fr_err_set(err, FR_E_STATE, "MPI was started before in this process");
    /* Ranks of one machine would read each other's memory, which containers and processes with
     * secrets (PR_SET_DUMPABLE) refuse: Open MPI then fails in the middle of a message. */
    (void)setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED)
        return fr_err_set(err, FR_E_UNAVAILABLE, "MPI_Init_thread failed, or this MPI is built without threads");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* communicators inherit it */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &engine->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &engine->size);
    if (engine->size > FR_RANKS_MAX)
        return fr_err_set(err, FR_E_LIMIT, "the launcher has started %d ranks, more than %d", engine->size,
                          FR_RANKS_MAX);
    engine->barrier = MPI_REQUEST_NULL;
    for (int c = 0; c < FR_CHANNELS; c++) {
        struct channel *channel = &engine->channels[c];
        for (int i = 0; i < 2 * engine->size; i++)
            channel->requests[i] = MPI_REQUEST_NULL;
        if (MPI_Comm_dup(MPI_COMM_WORLD, &channel->comm) != MPI_SUCCESS)
            return fr_err_set(err, FR_E_UNAVAILABLE, "MPI_Comm_dup failed");
    }
    return FR_OK;
}

static void *run(void *self)
{
    struct engine *engine = self;
    struct fr_err err = {0};
    bool started = start(engine, &err) == FR_OK;
    pthread_mutex_lock(&engine->lock);
    engine->failure = err;
    engine->stage = started ? RUNNING : LEFT;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    while (engine->stage != LEFT)
        step(engine);
    return NULL;
}

/* ---- the owner ---- */

static enum fr_status send(void *self, enum fr_channel number, const struct fr_bytes *out, struct fr_err *err)
{
    struct engine *engine = self;
    struct channel *channel = &engine->channels[number];
    uint64_t all = engine->size == FR_RANKS_MAX ? UINT64_MAX : (UINT64_C(1) << engine->size) - 1;
    uint64_t others = all & ~(UINT64_C(1) << engine->rank);
    enum fr_status status = FR_OK;
    pthread_mutex_lock(&engine->lock);
    if (engine->over) {
        status = over_locked(engine, err);
    } else {
        memcpy(channel->out, out, (size_t)engine->size * sizeof(*out));
        channel->in[engine->rank] = out[engine->rank];
        channel->call++;
        channel->awaited = others;
        channel->untaken = others;
        channel->state = GIVEN;
        wake_locked(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static void spin(struct engine *engine, const struct channel *channel)
{
    uint64_t until_ns = now_ns() + OWNER_SPIN_NS;
    while (channel->state != AT_REST && !engine->over && now_ns() < until_ns)
        sched_yield();
}

static enum fr_status await_locked(struct engine *engine, enum fr_channel number, uint64_t begin_ns, struct fr_err *err)
{
    struct channel *channel = &engine->channels[number];
    while (channel->state != AT_REST) {
        uint64_t waited_ns = now_ns() - begin_ns;
        if (engine->over)
            return over_locked(engine, err);
        if (waited_ns >= engine->options.deadline_ns) {
            enum fr_status status =
                fr_exchange_missed(channel->awaited | channel->untaken, number, channel->call, waited_ns, err);
            fail_locked(engine, err);
            return status;
        }
        sleep_locked(engine, engine->options.deadline_ns - waited_ns);
    }
    return FR_OK;
}

static enum fr_status receive(void *self, enum fr_channel number, struct fr_bytes *in, struct fr_err *err)
{
    struct engine *engine = self;
    struct channel *channel = &engine->channels[number];
    uint64_t begin_ns = now_ns();
    engine->waiting++;
    if (channel->state != AT_REST) {
        pthread_mutex_lock(&engine->lock);
        wake_locked(engine);
        pthread_mutex_unlock(&engine->lock);
        spin(engine, channel);
    }
    pthread_mutex_lock(&engine->lock);
    enum fr_status status = await_locked(engine, number, begin_ns, err);
    engine->waiting--;
    pthread_mutex_unlock(&engine->lock);
    if (status == FR_OK)
        memcpy(in, channel->in, (size_t)engine->size * sizeof(*in));
    return status;
}

/* Waits until the thread has come to a stage, or the job is over. Returns false if it takes
 * longer. */
static bool await_stage_locked(struct engine *engine, enum stage stage, uint64_t most_ns)
{
    uint64_t begin_ns = now_ns();
    while (engine->stage < stage && !engine->over) {
        uint64_t waited_ns = now_ns() - begin_ns;
        if (waited_ns >= most_ns)
            return false;
        sleep_locked(engine, most_ns - waited_ns);
    }
    return true;
}

/* Frees an engine whose thread has ended. */
static void free_left(struct engine *engine)
{
    pthread_join(engine->thread, NULL);
    for (int c = 0; c < FR_CHANNELS; c++)
        for (int r = 0; r < FR_RANKS_MAX; r++)
            fr_buffer_release(&engine->channels[c].buffers[r]);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

static void release(void *self)
{
    struct engine *engine = self;
    struct fr_err err;
    pthread_mutex_lock(&engine->lock);
    if (!engine->over)
        engine->stage = LEAVING;
    wake_locked(engine);
    if (!await_stage_locked(engine, LEFT, engine->options.deadline_ns)) {
        fr_err_set(&err, FR_E_UNAVAILABLE, "a rank has not come to the end of the job for %" PRIu64 " ms",
                   engine->options.deadline_ns / 1000000);
        engine->options.report(err.text);
        fail_locked(engine, &err);
    }
    while (engine->stage != LEFT) /* the process ends */
        pthread_cond_wait(&engine->changed, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    free_left(engine);
}

static const struct fr_exchange_backend backend = {send, receive, stop, release};

/* If MPI has not started in time, the engine stays with its thread: the process ends soon. */
static enum fr_status open_job(const struct fr_mpi_options *options, struct fr_exchange *out, struct fr_err *err)
{
    struct engine *engine = fr_alloc(1, sizeof(*engine));
    engine->options = *options;
    pthread_condattr_t monotonic;
    int rc = pthread_condattr_init(&monotonic);
    rc |= pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    rc |= pthread_mutex_init(&engine->lock, NULL);
    rc |= pthread_cond_init(&engine->changed, &monotonic);
    rc |= pthread_condattr_destroy(&monotonic);
    FR_CHECK(rc == 0);
    if (!fr_thread_start(&engine->thread, "exchange", run, engine))
        return fr_err_set(err, FR_E_NO_MEMORY, "%s", FR_THREADS_SHORT);
    pthread_mutex_lock(&engine->lock);
    uint64_t most_ns = options->deadline_ns > START_NS ? options->deadline_ns : START_NS;
    bool in_time = await_stage_locked(engine, RUNNING, most_ns);
    *err = engine->failure;
    engine->over = !in_time;
    pthread_mutex_unlock(&engine->lock);
    if (!in_time)
        return fr_err_set(err, FR_E_UNAVAILABLE,
                          "MPI has not started all ranks within %" PRIu64
                          " ms: look at the launcher's output, then start again",
                          most_ns / 1000000);
    if (err->status != FR_OK) {
        free_left(engine);
        return err->status;
    }
    *out = (struct fr_exchange){
        .backend = &backend, .self = engine, .rank = (uint32_t)engine->rank, .size = (uint32_t)engine->size};
    return FR_OK;
}

__attribute__((visibility("default"))) const void *fr_mpi_plugin(void);

__attribute__((visibility("default"))) const void *fr_mpi_plugin(void)
{
    static const struct fr_mpi_api api = {FR_MPI_API, open_job};
    return &api;
}
