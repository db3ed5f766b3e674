/* C11 threads, mutexes and conditions on top of pthreads, linked into every program of a
 * ThreadSanitizer build (cmake/options.cmake). The runtime of gcc 12 sees pthreads only: a thread
 * that librdkafka began with thrd_create has no sanitizer state and faults at its first intercepted
 * call, and what its mutexes order looks like a race in our own code. glibc's C11 types are its
 * pthread types by another name, of the same size, so the storage is the caller's. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "a C11 mutex has room for a pthread mutex");
_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "a C11 condition has room for a pthread condition");

struct start {
    thrd_start_t run;
    void *argument;
};

static void *trampoline(void *start)
{
    struct start s = *(struct start *)start;
    free(start);
    return (void *)(intptr_t)s.run(s.argument);
}

static int result_of(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case EBUSY:
        return thrd_busy;
    case ETIMEDOUT:
        return thrd_timedout;
    case ENOMEM:
        return thrd_nomem;
    default:
        return thrd_error;
    }
}

int thrd_create(thrd_t *thread, thrd_start_t run, void *argument)
{
    struct start *start = malloc(sizeof(*start));
    if (!start)
        return thrd_nomem;
    *start = (struct start){run, argument};
    int error = pthread_create(thread, NULL, trampoline, start);
    if (error != 0)
        free(start);
    return result_of(error);
}

int thrd_join(thrd_t thread, int *result)
{
    void *value;
    int error = pthread_join(thread, &value);
    if (error == 0 && result)
        *result = (int)(intptr_t)value;
    return result_of(error);
}

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (type & mtx_recursive)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    int error = pthread_mutex_init((pthread_mutex_t *)mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return result_of(error);
}

void mtx_destroy(mtx_t *mutex)
{
    pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int mtx_lock(mtx_t *mutex)
{
    return result_of(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

int mtx_trylock(mtx_t *mutex)
{
    return result_of(pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict until)
{
    return result_of(pthread_mutex_timedlock((pthread_mutex_t *)mutex, until));
}

int mtx_unlock(mtx_t *mutex)
{
    return result_of(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

int cnd_init(cnd_t *condition)
{
    return result_of(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy((pthread_cond_t *)condition);
}

int cnd_signal(cnd_t *condition)
{
    return result_of(pthread_cond_signal((pthread_cond_t *)condition));
}

int cnd_broadcast(cnd_t *condition)
{
    return result_of(pthread_cond_broadcast((pthread_cond_t *)condition));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return result_of(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
    return result_of(pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}
