/* Log lines of a healthy run (progress.c). Main thread. */
#ifndef FR_DAEMON_PROGRESS_H
#define FR_DAEMON_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fr_service;

/* Zeroed: nothing was logged. */
struct fr_progress {
    uint64_t logged_ns, samples;        /* time and samples of the last line of a minute; 0: none */
    uint64_t paused_ns;                 /* when the open pause began; 0: there is none */
    uint64_t pause_counted_ns;          /* up to when the open pause is counted in a line */
    uint64_t pause_total_ns;            /* length of the pauses that ended since the last line */
    unsigned long long pause_logged_ns; /* when a pause was last logged by itself; 0: never */
    uint32_t pauses;                    /* pauses that began since the last line */
    bool pause_logged;                  /* the open pause was logged, so its end will be, too */
};

/* Logs the first line of a run. */
void fr_progress_start(const struct fr_service *service);
/* Logs the line of the minute and pauses. Called every FR_TICK_MS. */
void fr_progress_log(struct fr_progress *progress, struct fr_service *service);
/* Writes the text of the last line. */
void fr_progress_end(struct fr_service *service, char *out, size_t size);

#endif
