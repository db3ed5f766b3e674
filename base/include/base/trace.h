/* A trace of what each thread did when, as a file that Perfetto and chrome://tracing open: Chrome's
 * trace events in JSON.
 *
 * Off unless fr_trace_open was called: a begin and an end are then two relaxed loads. The newest
 * FR_TRACE_EVENTS spans are kept in memory and written by fr_trace_close; a process that is killed
 * leaves an empty file. Thread: spans from any thread, each begun and ended by one; open and close
 * from one thread, while no other has a span open that it will end later. */
#ifndef FR_BASE_TRACE_H
#define FR_BASE_TRACE_H

#include <stdint.h>

#include "base/status.h"

enum { FR_TRACE_EVENTS = 1 << 18, FR_TRACE_THREADS = 256 };

/* FR_E_INVALID: the file cannot be made, and tracing stays off. */
enum fr_status fr_trace_open(const char *path, struct fr_err *err) FR_MUST_CHECK;
/* Writes the file; nothing when it is not open. *lost (may be NULL): spans that were overwritten.
 * FR_E_IO: the file is not whole. */
enum fr_status fr_trace_close(uint64_t *lost, struct fr_err *err) FR_MUST_CHECK;

/* The time, or 0 when tracing is off. */
uint64_t fr_trace_begin(void);
/* A span of the calling thread from then (CLOCK_MONOTONIC) to now; nothing for 0 or when tracing is
 * off. `name` lives as long as the process: a literal. */
void fr_trace_end(const char *name, uint64_t begin_ns);

#endif
