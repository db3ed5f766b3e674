/* All problems of the service at one moment, and whether it is ready, for /readyz and /status.
 *
 * Main thread; during recovery the recovery thread, which publishes the documents then. */
#ifndef FR_DAEMON_READINESS_H
#define FR_DAEMON_READINESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fr_service;
struct fr_snapshots;

/* Those that readiness.c names, and all loops and reasons that /healthz has room for. */
enum { FR_READINESS_PROBLEMS_MAX = 48, FR_READINESS_TEXT_MAX = 1100 };

struct fr_readiness_problem {
    char where[32]; /* what it is a problem of: "trainer", "brokers", a source of /healthz */
    char text[FR_READINESS_TEXT_MAX];
    int64_t since_ms; /* wall time of the first look that found a problem there, without a break */
};

struct fr_readiness {
    /* Why it is not ready: the first problem that keeps it from being ready; "": it is ready. */
    char reason[FR_READINESS_TEXT_MAX];
    size_t n;
    /* those that keep it from being ready first, in the order of their causes */
    struct fr_readiness_problem problems[FR_READINESS_PROBLEMS_MAX];
};

/* Replaces *readiness by what holds now; a problem that it had keeps its since_ms. */
void fr_readiness_update(struct fr_readiness *readiness, struct fr_service *service, const struct fr_snapshots *s);

#endif
