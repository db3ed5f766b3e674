/* Threads with names: what `top -H`, `perf` and /proc/PID/task/TID/comm show of them. */
#ifndef FR_BASE_THREAD_H
#define FR_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with default attributes; false: no thread. The name is a help, never a reason to
 * fail. Limits: the kernel shows 15 bytes of it. */
bool fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument)
    __attribute__((warn_unused_result));

#endif
