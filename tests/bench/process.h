/* Child processes, one HTTP question and a directory that goes, for the benchmarks. Private to
 * tests/bench.
 *
 * Thread: the caller's. */
#ifndef FR_BENCH_PROCESS_H
#define FR_BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

/* Starts argv[0] (a path) with stdout and stderr into files; it gets SIGTERM when this process
 * ends. -1: failed. */
pid_t fr_bench_process_start(const char *const *argv, const char *out_path, const char *err_path);
/* True once it has ended, with its exit code (128 + signal when killed). */
bool fr_bench_process_ended(pid_t pid, int *code);
/* Sends the signal (0: none) and waits up to `seconds`, then kills. Returns the exit code. */
int fr_bench_process_stop(pid_t pid, int signal_number, double seconds);
/* Processor seconds a running process has used, user and system; 0 when it is gone. */
double fr_bench_process_cpu_seconds(pid_t pid);
/* GET http://127.0.0.1:port/path, body appended; false when there is no 200. Limit: 16 MiB, 5 s. */
bool fr_bench_http_get(uint16_t port, const char *path, struct fr_buffer *body);

/* Makes a directory of this run's own below TMPDIR (/tmp); false when it cannot. */
bool fr_bench_scratch_make(char *path, size_t size);
/* Removes it with all it holds, or says on stderr that it could not. */
void fr_bench_scratch_remove(char *path);

#endif
