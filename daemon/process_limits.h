/* The limits of the process: descriptors, threads, memory (limits.c). Main thread, at the start. */
#ifndef FR_DAEMON_PROCESS_LIMITS_H
#define FR_DAEMON_PROCESS_LIMITS_H

#include "base/machine.h"
#include "conf/conf.h"

/* Checks that the process may have the descriptors, threads and address space of a run. FR_E_LIMIT,
 * FR_E_NO_MEMORY. */
enum fr_status fr_limits_check(const struct fr_conf *conf, struct fr_err *err) FR_MUST_CHECK;
/* Writes one line for each setting that exceeds the machine. */
void fr_limits_warn(const struct fr_conf *conf, const struct fr_machine *machine, const char *config,
                    struct fr_buffer *out);
/* Logs the processors and the memory of the machine. */
void fr_limits_log_machine(void);
/* Returns the number of workers of the pool. */
size_t fr_limits_workers(const struct fr_conf *conf);
/* Returns the bytes that are touched at the start, if memory_reserve is set, for each epoch that
 * may exist at once (two in stages and the newest durable one): about the images of
 * epoch_bytes_max. */
size_t fr_limits_epoch_touch_bytes(const struct fr_conf *conf);
/* Raises the limit of open files as far as the process may: every sorted file of the cold store and
 * of the journal is an open file. */
void fr_limits_raise_files(void);
/* Keeps freed memory in the allocator's arenas, up to a 64th of the limit in each, because memory
 * of epochs, deltas and brokers' answers is soon needed again, and pages fresh from the system cost
 * a fault each. */
void fr_limits_keep_freed(uint64_t memory_limit);

#endif
