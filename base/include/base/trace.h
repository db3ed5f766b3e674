/* A trace of when each thread did what, as a file that Perfetto and chrome://tracing open: Chrome's
 * trace events in JSON.
 *
 * Off unless fr_trace_open was called; fr_trace_begin and fr_trace_end are then two relaxed loads.
 * The newest FR_TRACE_EVENTS spans are kept in memory, and fr_trace_close writes them; a process
 * that is killed leaves an empty file.
 *
 * Thread: any thread records spans, each of which begins and ends in one thread. One thread opens
 * and closes, while no other thread has a span open that it will end later. */
#ifndef FR_BASE_TRACE_H
#define FR_BASE_TRACE_H

#include <stdint.h>

#include "base/status.h"

enum { FR_TRACE_EVENTS = 1 << 18, FR_TRACE_THREADS = 256 };

/* FR_E_INVALID: the file cannot be created, and tracing stays off. */
enum fr_status fr_trace_open(const char *path, struct fr_err *err) FR_MUST_CHECK;
/* Writes the file; does nothing while tracing is off. *lost (may be NULL): number of spans that
 * were overwritten. FR_E_IO: the file is incomplete. */
enum fr_status fr_trace_close(uint64_t *lost, struct fr_err *err) FR_MUST_CHECK;

/* The time, or 0 while tracing is off. */
uint64_t fr_trace_begin(void);
/* Records a span of the calling thread from begin_ns (CLOCK_MONOTONIC) to now; does nothing if
 * begin_ns is 0 or tracing is off. `name` must live as long as the process: pass a literal. */
void fr_trace_end(const char *name, uint64_t begin_ns);

#endif
