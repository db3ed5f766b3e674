/* Processors and memory that this process may use.
 *
 * A control group limits all groups below it. So the group of the process and all its parents are
 * read, up to the root of the mounted tree. In a container with its own namespace, that root is the
 * container's group. If /proc/self/cgroup has a path of the host that is not mounted here, the walk
 * upwards still ends at the root. Version 1 has one tree per controller, version 2 one for all.
 *
 * Thread: any. */
#define _GNU_SOURCE
#include "base/machine.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUPS_MAX = 64, ALLOWED_MAX = 1 << 16 };

/* A quota of more processors, or a limit of more memory, than any host has is no limit: version 1
 * reports 2^63 minus a page. */
static const uint64_t no_limit = (uint64_t)1 << 60;

/* ---- control groups ---- */

/* Reads the first two numbers of a small file; a word that is not a number (`max`) ends them.
 * Returns how many there are. */
static int read_numbers(const char *path, uint64_t numbers[2])
{
    char text[128];
    int n = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const char *at = fgets(text, sizeof(text), file);
    (void)fclose(file);
    while (at && n < 2) {
        char *end;
        at += strspn(at, " \t");
        if (*at < '0' || *at > '9') /* also a minus sign: in version 1, -1 is no quota */
            break;
        numbers[n++] = strtoull(at, &end, 10);
        at = end;
    }
    return n;
}

static int read_in(const char *group, const char *name, uint64_t numbers[2])
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", group, name);
    return length > 0 && (size_t)length < sizeof(path) ? read_numbers(path, numbers) : 0;
}

static void take_quota(double quota, struct fr_machine *out)
{
    if (quota > 0 && (out->quota == 0 || quota < out->quota))
        out->quota = quota;
}

static void take_limit(uint64_t bytes, struct fr_machine *out)
{
    if (bytes < no_limit && (out->limit == 0 || bytes < out->limit))
        out->limit = bytes;
}

/* Reads one group, with the file names of both versions. */
static void read_group(const char *group, struct fr_machine *out)
{
    uint64_t quota[2], period[2], bytes[2];
    if (read_in(group, "cpu.max", quota) == 2 && quota[1] > 0)
        take_quota((double)quota[0] / (double)quota[1], out);
    if (read_in(group, "cpu.cfs_quota_us", quota) > 0 && read_in(group, "cpu.cfs_period_us", period) > 0 &&
        period[0] > 0)
        take_quota((double)quota[0] / (double)period[0], out);
    if (read_in(group, "memory.max", bytes) > 0 || read_in(group, "memory.limit_in_bytes", bytes) > 0)
        take_limit(bytes[0], out);
}

/* Reads a group and its parents. */
static void read_group_and_parents(const char *tree, const char *path, struct fr_machine *out)
{
    char group[PATH_MAX];
    size_t root = strlen(tree);
    int length = snprintf(group, sizeof(group), "%s%s", tree, path);
    if (length < 0 || (size_t)length >= sizeof(group))
        return;
    for (int i = 0; i < GROUPS_MAX; i++) {
        read_group(group, out);
        char *slash = strrchr(group + root, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

static bool names_controller(const char *controllers, const char *wanted)
{
    size_t length = strlen(wanted);
    for (const char *at = controllers; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, wanted, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* A line of /proc/self/cgroup: number, controllers, path; version 2 has no controllers. */
static void read_group_line(const char *root, char *line, struct fr_machine *out)
{
    static const char *const wanted[] = {"cpu", "memory"};
    char tree[PATH_MAX];
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return;
    *path++ = '\0';
    controllers++;
    if (controllers[0] == '\0' && snprintf(tree, sizeof(tree), "%s/sys/fs/cgroup", root) < (int)sizeof(tree))
        read_group_and_parents(tree, path, out);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (names_controller(controllers, wanted[i]) &&
            snprintf(tree, sizeof(tree), "%s/sys/fs/cgroup/%s", root, wanted[i]) < (int)sizeof(tree))
            read_group_and_parents(tree, path, out);
}

/* ---- all of it ---- */

/* The kernel's mask may be wider than cpu_set_t, so larger sets are tried. */
static uint32_t count_allowed(void)
{
    for (int processors = CPU_SETSIZE; processors <= ALLOWED_MAX; processors *= 2) {
        size_t size = CPU_ALLOC_SIZE(processors);
        cpu_set_t *set = CPU_ALLOC(processors);
        int count = set && sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        if (set)
            CPU_FREE(set);
        if (count > 0)
            return (uint32_t)count;
    }
    return 0;
}

void fr_machine_read(const char *root, struct fr_machine *out)
{
    char path[PATH_MAX], line[PATH_MAX];
    long online = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *out = (struct fr_machine){.online = online > 0 ? (uint32_t)online : 1,
                               .memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX};
    out->allowed = count_allowed();
    if (out->allowed == 0)
        out->allowed = out->online;
    int length = snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
    for (int i = 0; file && i < GROUPS_MAX && fgets(line, sizeof(line), file); i++)
        read_group_line(root, line, out);
    if (file)
        (void)fclose(file);
}

uint32_t fr_machine_processors(const struct fr_machine *machine)
{
    uint32_t least = machine->allowed < machine->online ? machine->allowed : machine->online;
    if (machine->quota > 0 && machine->quota < (double)least) {
        least = (uint32_t)machine->quota;
        least += (double)least < machine->quota;
    }
    return least > 0 ? least : 1;
}

uint64_t fr_machine_memory(const struct fr_machine *machine)
{
    return machine->limit > 0 && machine->limit < machine->memory ? machine->limit : machine->memory;
}

static struct fr_machine first;

static void read_first(void)
{
    fr_machine_read("", &first);
}

const struct fr_machine *fr_machine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, read_first);
    return &first;
}
