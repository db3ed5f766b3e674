/* A new thread names itself before its main function runs: a name set by the starting thread could
 * come after the first span of a trace or the first line of a log. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct start {
    char name[FR_THREAD_NAME]; /* with the NUL; the kernel refuses longer names */
    void *(*run)(void *argument);
    void *argument;
};

static void *named(void *own)
{
    struct start start = *(struct start *)own;
    free(own);
    (void)pthread_setname_np(pthread_self(), start.name);
    return start.run(start.argument);
}

bool fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument)
{
    struct start *start = fr_alloc(1, sizeof(*start));
    *start = (struct start){.run = run, .argument = argument};
    memcpy(start->name, name, strnlen(name, FR_THREAD_NAME - 1));
    bool started = pthread_create(out, NULL, named, start) == 0;
    if (!started)
        free(start);
    return started;
}

/* ---- processor time ---- */

/* Reads the first line of /proc/self/task/TID/NAME; empty if the thread has just ended. */
static void read_line(const char *tid, const char *name, char *out, int size)
{
    char path[64];
    out[0] = '\0';
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", tid, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(out, size, file))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    (void)fclose(file);
}

static void add_time(struct fr_thread_time *out, size_t *n, size_t capacity, const char *name, uint64_t ns)
{
    size_t i = 0;
    while (i < *n && strcmp(out[i].name, name) != 0)
        i++;
    if (i == capacity)
        return;
    if (i == *n) {
        out[i] = (struct fr_thread_time){.ns = 0};
        memcpy(out[i].name, name, strnlen(name, FR_THREAD_NAME - 1));
        ++*n;
    }
    out[i].ns += ns;
}

size_t fr_thread_times(struct fr_thread_time *out, size_t capacity)
{
    DIR *tasks = opendir("/proc/self/task");
    size_t n = 0;
    for (const struct dirent *task = tasks ? readdir(tasks) : NULL; task; task = readdir(tasks)) {
        /* name: with the newline; times: ns run, ns waited, .. */
        char name[FR_THREAD_NAME + 1], times[64];
        if (task->d_name[0] == '.')
            continue;
        read_line(task->d_name, "comm", name, sizeof(name));
        read_line(task->d_name, "schedstat", times, sizeof(times));
        if (name[0] && times[0])
            add_time(out, &n, capacity, name, strtoull(times, NULL, 10));
    }
    if (tasks)
        (void)closedir(tasks);
    return n;
}
