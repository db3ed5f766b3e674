/* What of this machine the process may use: processors by affinity and quota, memory by control
 * group. The host's own size is what tools show, and not what a container gets. */
#ifndef FR_BASE_MACHINE_H
#define FR_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

struct fr_machine {
    uint32_t online;  /* processors of the host */
    uint32_t allowed; /* of these, by affinity (taskset, cpuset) */
    double quota;     /* processors' worth of time (cpu.max); 0: not limited */
    uint64_t memory;  /* bytes of the host */
    uint64_t limit;   /* of the control group (memory.max); 0: not limited */
};

/* The least of what is given above: at least one processor, a part of one counts as one. */
uint32_t fr_machine_processors(const struct fr_machine *machine);
uint64_t fr_machine_memory(const struct fr_machine *machine);

/* As it is now; `root` is put before /proc and /sys, "" but in tests. What cannot be read counts as
 * not limited. Control groups of both versions, and of those above. */
void fr_machine_read(const char *root, struct fr_machine *out);
/* The same of when it was first asked. Thread: any. */
const struct fr_machine *fr_machine(void);

#endif
