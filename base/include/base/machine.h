/* What the process may use of this machine: processors by affinity and quota, memory by control
 * group. Tools show the size of the host, which is not what a container gets. */
#ifndef FR_BASE_MACHINE_H
#define FR_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

struct fr_machine {
    uint32_t online;  /* processors of the host */
    uint32_t allowed; /* processors that affinity allows (taskset, cpuset) */
    double quota;     /* processor time by cpu.max, in processors; 0: not limited */
    uint64_t memory;  /* bytes of the host */
    uint64_t limit;   /* bytes that the control group allows (memory.max); 0: not limited */
};

/* The smallest of the numbers above. At least one processor; a part of a processor counts as
 * one. */
uint32_t fr_machine_processors(const struct fr_machine *machine);
uint64_t fr_machine_memory(const struct fr_machine *machine);

/* Reads the present values. `root` is put before /proc and /sys; it is "" except in tests. A value
 * that cannot be read counts as not limited. Both versions of control groups are read, with their
 * parent groups. */
void fr_machine_read(const char *root, struct fr_machine *out);
/* The values as of the first call. Thread: any. */
const struct fr_machine *fr_machine(void);

#endif
