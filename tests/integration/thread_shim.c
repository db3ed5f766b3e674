/* Refuses threads as the system does at a limit of processes: when this library is preloaded
 * (LD_PRELOAD), pthread_create returns EAGAIN. FRESHET_THREADS_ALIVE=n: while n other threads run;
 * FRESHET_THREADS_NOT=n: for the n-th thread that is requested, counted from 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef int create_function(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

struct start {
    void *(*run)(void *);
    void *argument;
};

static atomic_int alive, asked;

static void leave(void *unused)
{
    (void)unused;
    atomic_fetch_sub(&alive, 1);
}

static void *run_counted(void *argument)
{
    struct start start = *(struct start *)argument;
    void *result;
    free(argument);
    pthread_cleanup_push(leave, NULL);
    result = start.run(start.argument);
    pthread_cleanup_pop(1);
    return result;
}

static int limit(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    create_function *create;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    int most = limit("FRESHET_THREADS_ALIVE"), number = atomic_fetch_add(&asked, 1) + 1;
    if (atomic_fetch_add(&alive, 1) >= most && most >= 0) {
        atomic_fetch_sub(&alive, 1);
        return EAGAIN;
    }
    struct start *start = number == limit("FRESHET_THREADS_NOT") ? NULL : malloc(sizeof(*start));
    int rc = EAGAIN;
    if (start) {
        *start = (struct start){run, argument};
        rc = create(thread, attributes, run_counted, start);
    }
    if (rc != 0) {
        free(start);
        atomic_fetch_sub(&alive, 1);
    }
    return rc;
}
