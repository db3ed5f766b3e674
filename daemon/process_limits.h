/* What the process may use: descriptors, threads, memory (limits.c). Main thread, at the start. */
#ifndef FR_DAEMON_PROCESS_LIMITS_H
#define FR_DAEMON_PROCESS_LIMITS_H

#include "base/machine.h"
#include "conf/conf.h"

/* Descriptors, threads and address space that a run takes. FR_E_LIMIT, FR_E_NO_MEMORY. */
enum fr_status fr_limits_check(const struct fr_conf *conf, struct fr_err *err) FR_MUST_CHECK;
/* Writes one line for each setting that is beyond the machine. */
void fr_limits_warn(const struct fr_conf *conf, const struct fr_machine *machine, const char *config,
                    struct fr_buffer *out);
/* Writes to the log what the machine has. */
void fr_limits_tell(void);
/* Workers of the pool. */
size_t fr_limits_workers(const struct fr_conf *conf);
/* Bytes that, with memory_reserve, are touched at the start for each epoch that may exist at once:
 * two in stages and the newest durable one. About what the images of epoch_bytes_max take. */
size_t fr_limits_epoch_touch_bytes(const struct fr_conf *conf);

#endif
