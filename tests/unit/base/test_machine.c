/* base/machine.h: affinity, quotas and limits of control groups of both versions. */
#define _GNU_SOURCE
#include "case.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"

static char root[PATH_MAX];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/freshet-machine-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[PATH_MAX + 16];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}

static void put(const char *path, const char *text)
{
    char command[2 * PATH_MAX], file[2 * PATH_MAX];
    snprintf(command, sizeof(command), "mkdir -p $(dirname %s%s)", root, path);
    assert_int_equal(system(command), 0);
    snprintf(file, sizeof(file), "%s%s", root, path);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static struct fr_machine read_machine(void)
{
    struct fr_machine machine;
    fr_machine_read(root, &machine);
    return machine;
}

FR_CASE(a_machine_without_groups_has_no_limit)
{
    struct fr_machine machine = read_machine();
    assert_true(machine.online >= 1 && machine.allowed >= 1);
    assert_true(machine.quota == 0 && machine.limit == 0);
    assert_true(fr_machine_memory(&machine) == machine.memory);
    put("/proc/self/cgroup", "not a line\n\n0::\n");
    machine = read_machine();
    assert_true(machine.quota == 0 && machine.limit == 0);
}

FR_CASE(the_least_of_a_group_and_those_above_it_holds)
{
    put("/proc/self/cgroup", "0::/pod/container/app\n");
    put("/sys/fs/cgroup/pod/container/app/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/pod/container/app/memory.max", "max\n");
    put("/sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/pod/container/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/pod/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/pod/memory.max", "2147483648\n");
    struct fr_machine machine = read_machine();
    assert_true(machine.quota == 1.5 && machine.limit == 1073741824);
    assert_true(fr_machine_memory(&machine) == 1073741824);
}

FR_CASE(a_path_of_the_host_that_is_not_mounted_ends_at_the_root)
{
    put("/proc/self/cgroup", "0::/elsewhere/of/the/host\n");
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/memory.max", "536870912\n");
    struct fr_machine machine = read_machine();
    assert_true(machine.quota == 0.5 && machine.limit == 536870912);
    assert_int_equal(fr_machine_processors(&machine), 1);
}

FR_CASE(version_1_has_a_tree_for_each_controller)
{
    put("/proc/self/cgroup", "7:cpuset:/x\n4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n0::/\n");
    put("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "268435456\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    struct fr_machine machine = read_machine();
    assert_true(machine.quota == 2.5 && machine.limit == 268435456);
}

FR_CASE(processors_are_the_least_of_host_affinity_and_quota)
{
    struct fr_machine machine = {.online = 8, .allowed = 4};
    assert_int_equal(fr_machine_processors(&machine), 4);
    machine.quota = 2.5;
    assert_int_equal(fr_machine_processors(&machine), 3);
    machine.quota = 2;
    assert_int_equal(fr_machine_processors(&machine), 2);
    machine.quota = 0.1;
    assert_int_equal(fr_machine_processors(&machine), 1);
    machine.quota = 64;
    assert_int_equal(fr_machine_processors(&machine), 4);
}

FR_CASE(affinity_is_the_processes_own)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    struct fr_machine machine = read_machine();
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(machine.allowed, 1);
    assert_int_equal(fr_machine_processors(&machine), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_machine_without_groups_has_no_limit, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_least_of_a_group_and_those_above_it_holds, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_path_of_the_host_that_is_not_mounted_ends_at_the_root, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(version_1_has_a_tree_for_each_controller, make_root, remove_root),
        cmocka_unit_test(processors_are_the_least_of_host_affinity_and_quota),
        cmocka_unit_test_setup_teardown(affinity_is_the_processes_own, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
