/* Threads with names, which `top -H`, `perf` and /proc/PID/task/TID/comm show. */
#ifndef FR_BASE_THREAD_H
#define FR_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For messages: the reason why no thread started, and the remedy. */
#define FR_THREADS_SHORT                                                                                               \
    "no thread can be started: raise the user's limit of processes (ulimit -u) or the control group's (TasksMax= of "  \
    "systemd, pids.max), or free memory"

/* pthread_create with default attributes; false: no thread was started. The name only helps people,
 * so a name that cannot be set is no error. The kernel shows 15 bytes of it. */
bool fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument)
    __attribute__((warn_unused_result));

/* Processor time of the threads that this process has now, summed over threads of the same name.
 * Returns the number of names written, at most `capacity`; further names are left out. 0: the
 * system does not report the times. */
enum { FR_THREAD_NAME = 16 };
struct fr_thread_time {
    char name[FR_THREAD_NAME];
    uint64_t ns;
};
size_t fr_thread_times(struct fr_thread_time *out, size_t capacity);

#endif
