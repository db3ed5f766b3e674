/* C11 threads on top of pthreads, to be preloaded under ThreadSanitizer: its runtime (gcc 12) sees pthread_create only,
 * and a thread that librdkafka began with thrd_create has no sanitizer state and faults at its first intercepted call.
 * Its mutexes stay its own: what happens inside librdkafka is not looked at anyway (tsan.supp). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

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

int thrd_create(thrd_t *thread, thrd_start_t run, void *argument)
{
    struct start *start = malloc(sizeof(*start));
    if (!start)
        return thrd_nomem;
    *start = (struct start){run, argument};
    return pthread_create(thread, NULL, trampoline, start) == 0 ? thrd_success : thrd_error;
}

int thrd_join(thrd_t thread, int *result)
{
    void *value;
    if (pthread_join(thread, &value) != 0)
        return thrd_error;
    if (result)
        *result = (int)(intptr_t)value;
    return thrd_success;
}
