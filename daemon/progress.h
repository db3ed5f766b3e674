/* Log lines of a healthy run (progress.c). Main thread. */
#ifndef FR_DAEMON_PROGRESS_H
#define FR_DAEMON_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fr_service;

struct fr_progress {
    /* of the last line of a minute */
    uint64_t told_ns, samples;
    /* the open pause: its begin (0: none), and from where on no line has it */
    uint64_t paused_ns, pause_counted_ns;
    uint64_t pause_total_ns; /* of pauses since the last line */
    unsigned long long pause_told_ns;
    uint32_t pauses;
    bool pause_told;
};

/* The first line of a run: what runs, on what. */
void fr_progress_start(const struct fr_service *service);
/* To be called every FR_TICK_MS: the line of the minute, pauses. */
void fr_progress_turn(struct fr_service *service);
/* The text of the last line. */
void fr_progress_end(struct fr_service *service, char *out, size_t size);

#endif
