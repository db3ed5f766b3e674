/* A state directory of the benchmarks' table, written as the daemon writes one, and read back.
 * Private to tests/bench. Thread: the caller's. */
#ifndef FR_BENCH_RECOVERY_H
#define FR_BENCH_RECOVERY_H

#include "bench_table.h"

struct fr_bench_recovery {
    struct fr_bench *bench;
    const char *name;       /* of the benchmark, for messages */
    struct fr_buffer *head; /* of journal files; NULL: empty. With one, epochs are announced */
    struct fr_bench_table table;
    struct fr_durable *durable;
    char directory[4096];
};

/* Opens the directory; FR_TOOL_OK, or what the tool exits with. */
int fr_bench_recovery_open(struct fr_bench_recovery *recovery);
void fr_bench_recovery_close(struct fr_bench_recovery *recovery);
/* Rows of new keys in epochs, all of them folded in the end. */
int fr_bench_recovery_write(struct fr_bench_recovery *recovery, uint64_t rows);
/* Restores what is open into an empty store. */
enum fr_status fr_bench_recovery_read(struct fr_durable *durable, struct fr_store *store, uint32_t threads,
                                      uint64_t *bytes, struct fr_err *err) FR_MUST_CHECK;

#endif
