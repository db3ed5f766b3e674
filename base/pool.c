/* Fork-join pool.
 *
 * One atomic word, the gate, has the whole state of the current loop: bit 0 open, bits 1..15 the
 * number of threads inside, bits 16.. the loop's number. A thread enters by adding one to "inside"
 * while the gate is open. So it never enters a loop that is over, and the caller waits only for
 * threads that did enter: a thread that the scheduler wakes late delays nobody. Between loops,
 * threads spin for SPIN_NS, because the next loop of a training step follows within microseconds;
 * then they sleep on a condition variable.
 *
 * Each thread has a range of the indexes, the same one in every loop of that length. It takes
 * indexes from the front of its own range, then from the back of other threads' ranges. So the data
 * of a shard or a row stays in one processor's cache from loop to loop and from batch to batch.
 * When indexes were handed out one by one, neighbours went to different processors, and cache lines
 * moved between them.
 *
 * Invariants: the job's fields change only while the gate is closed and no thread is inside.
 *
 * Owner: the caller's thread; one fr_pool_run at a time, and none from within a task. The order of
 * indexes is undefined. */
#include "base/pool.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/thread.h"

enum {
    WORKERS_MAX = 1024, /* far less than the gate's 15 bits can count */
    SPIN_NS = 25000,
    PAUSES_PER_CLOCK_READ = 32,
};

#define GATE_OPEN ((uint64_t)1)
#define GATE_ONE_INSIDE ((uint64_t)2)
#define GATE_INSIDE_MASK ((uint64_t)0xfffe)
#define GATE_ONE_LOOP ((uint64_t)0x10000)

struct worker {
    struct fr_pool *pool;
    size_t number; /* 1..workers-1; the caller is 0 */
    pthread_t thread;
};

/* The indexes left in a thread's range: from the low 32 bits up to the high 32 bits. */
struct range {
    _Alignas(64) _Atomic uint64_t left;
};

struct fr_pool {
    _Alignas(64) _Atomic uint64_t gate;
    /* The job: written by the caller while the gate is closed, read by the threads inside. */
    _Alignas(64) size_t count;
    fr_pool_task *task;
    void *context;

    size_t workers;
    struct range *ranges; /* [workers] */
    /* 0 if threads outnumber processors, because spinning would keep other threads from working */
    uint64_t spin_ns;
    struct worker *threads;
    atomic_bool stopping;
    _Atomic size_t sleeping;
    pthread_mutex_t mutex; /* guards only the waits on the conditions below */
    pthread_cond_t work;
    pthread_cond_t done;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static uint64_t now_ns(void)
{
    return fr_mono_ns(fr_clock_system());
}

static void share_out(struct fr_pool *pool)
{
    for (size_t w = 0; w < pool->workers; w++) {
        uint64_t begin = pool->count * w / pool->workers, end = pool->count * (w + 1) / pool->workers;
        atomic_store_explicit(&pool->ranges[w].left, end << 32 | begin, memory_order_relaxed);
    }
}

/* Takes the first or the last index of the range; false: none is left. */
static bool take_index(struct range *range, bool first, size_t *index)
{
    uint64_t left = atomic_load_explicit(&range->left, memory_order_relaxed), taken;
    do {
        uint64_t begin = (uint32_t)left, end = left >> 32;
        if (begin == end)
            return false;
        *index = first ? begin : end - 1;
        taken = first ? left + 1 : left - ((uint64_t)1 << 32);
    } while (
        !atomic_compare_exchange_weak_explicit(&range->left, &left, taken, memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void run_indexes(struct fr_pool *pool, size_t worker)
{
    size_t index;
    for (size_t i = 0; i < pool->workers; i++)
        while (take_index(&pool->ranges[(worker + i) % pool->workers], i == 0, &index))
            pool->task(pool->context, index, worker);
}

/* Whether there is work for a thread that last worked in loop `seen`: a new open loop, or the
 * end. */
static bool has_work(struct fr_pool *pool, uint64_t seen)
{
    uint64_t gate = atomic_load(&pool->gate);
    return ((gate & GATE_OPEN) && gate / GATE_ONE_LOOP != seen) || atomic_load(&pool->stopping);
}

static void wait_for_work(struct fr_pool *pool, uint64_t seen)
{
    if (pool->spin_ns > 0) {
        uint64_t until = now_ns() + pool->spin_ns;
        do {
            for (int i = 0; i < PAUSES_PER_CLOCK_READ; i++) {
                if (has_work(pool, seen))
                    return;
                pause_briefly();
            }
        } while (now_ns() < until);
    }
    pthread_mutex_lock(&pool->mutex);
    /* Both sides are sequentially consistent: either the caller sees that this thread sleeps, or
     * this thread sees the loop. */
    atomic_fetch_add(&pool->sleeping, 1);
    while (!has_work(pool, seen))
        pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct fr_pool *pool = worker->pool;
    uint64_t seen = 0;
    for (;;) {
        wait_for_work(pool, seen);
        if (atomic_load(&pool->stopping))
            return NULL;
        uint64_t gate = atomic_load(&pool->gate);
        bool entered = false;
        while ((gate & GATE_OPEN) && gate / GATE_ONE_LOOP != seen && !entered)
            entered = atomic_compare_exchange_weak(&pool->gate, &gate, gate + GATE_ONE_INSIDE);
        if (!entered)
            continue;
        seen = gate / GATE_ONE_LOOP;
        run_indexes(pool, worker->number);
        uint64_t before = atomic_fetch_sub(&pool->gate, GATE_ONE_INSIDE);
        if (!(before & GATE_OPEN) && (before & GATE_INSIDE_MASK) == GATE_ONE_INSIDE) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

/* Signals belong to the thread that installed the handlers. If the system refuses a thread, the
 * pool has the workers that could be started. Nothing depends on their number, so this does not end
 * the process. */
static void start_threads(struct fr_pool *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    FR_CHECK(rc == 0);
    for (size_t i = 0; i + 1 < pool->workers; i++) {
        pool->threads[i] = (struct worker){.pool = pool, .number = i + 1};
        char name[32];
        snprintf(name, sizeof(name), "worker-%zu", i + 1);
        if (!fr_thread_start(&pool->threads[i].thread, name, worker_main, &pool->threads[i]))
            pool->workers = i + 1;
    }
    rc = pthread_sigmask(SIG_SETMASK, &before, NULL);
    FR_CHECK(rc == 0);
}

struct fr_pool *fr_pool_new(size_t workers)
{
    FR_CHECK(workers >= 1 && workers <= WORKERS_MAX);
    struct fr_pool *pool = fr_alloc_aligned(_Alignof(struct fr_pool), sizeof(*pool));
    pool->workers = workers;
    pool->spin_ns = workers <= fr_machine_processors(fr_machine()) ? SPIN_NS : 0;
    atomic_init(&pool->gate, 0);
    atomic_init(&pool->stopping, false);
    atomic_init(&pool->sleeping, 0);
    int rc = pthread_mutex_init(&pool->mutex, NULL);
    rc |= pthread_cond_init(&pool->work, NULL);
    rc |= pthread_cond_init(&pool->done, NULL);
    FR_CHECK(rc == 0);
    if (workers > 1) {
        pool->ranges = fr_alloc_aligned(_Alignof(struct range), workers * sizeof(*pool->ranges));
        pool->threads = fr_alloc(workers - 1, sizeof(*pool->threads));
        start_threads(pool);
    }
    return pool;
}

void fr_pool_free(struct fr_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stopping, true);
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (size_t i = 0; i + 1 < pool->workers; i++)
        pthread_join(pool->threads[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->threads);
    free(pool->ranges);
    free(pool);
}

size_t fr_pool_workers(const struct fr_pool *pool)
{
    return pool->workers;
}

static void wake_sleepers(struct fr_pool *pool, size_t wanted)
{
    size_t sleeping = atomic_load(&pool->sleeping);
    if (sleeping == 0)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (wanted >= sleeping)
        pthread_cond_broadcast(&pool->work);
    else
        for (size_t i = 0; i < wanted; i++)
            pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

static bool anyone_inside(struct fr_pool *pool)
{
    return (atomic_load(&pool->gate) & GATE_INSIDE_MASK) != 0;
}

static void wait_until_empty(struct fr_pool *pool)
{
    if (!anyone_inside(pool))
        return;
    if (pool->spin_ns > 0) {
        uint64_t until = now_ns() + pool->spin_ns;
        do {
            for (int i = 0; i < PAUSES_PER_CLOCK_READ; i++) {
                if (!anyone_inside(pool))
                    return;
                pause_briefly();
            }
        } while (now_ns() < until);
    }
    pthread_mutex_lock(&pool->mutex);
    while (anyone_inside(pool))
        pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void fr_pool_run(struct fr_pool *pool, size_t count, fr_pool_task *task, void *context)
{
    if (pool->workers == 1 || count <= 1) {
        for (size_t index = 0; index < count; index++)
            task(context, index, 0);
        return;
    }
    uint64_t gate = atomic_load(&pool->gate);
    FR_CHECK((gate & (GATE_OPEN | GATE_INSIDE_MASK)) == 0); /* no second caller and no nesting */
    FR_CHECK(count <= UINT32_MAX);
    pool->count = count;
    pool->task = task;
    pool->context = context;
    share_out(pool);
    atomic_store(&pool->gate, gate + GATE_ONE_LOOP + GATE_OPEN);
    wake_sleepers(pool, count - 1);
    run_indexes(pool, 0);
    atomic_fetch_and(&pool->gate, ~GATE_OPEN);
    wait_until_empty(pool);
}
