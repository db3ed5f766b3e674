/* All problems of the service at one moment, and whether it is ready, for /readyz and /status.
 * Thread: the one that publishes the documents (documents.h). */
#ifndef FR_DAEMON_READINESS_H
#define FR_DAEMON_READINESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fr_service;
struct fr_service_status;

/* Room for the problems that readiness.c names, and for all loops and reasons of /healthz. */
enum { FR_READINESS_PROBLEMS_MAX = 48, FR_READINESS_TEXT_MAX = 1100 };

struct fr_readiness_problem {
    char where[32]; /* the part that has the problem: "trainer", "brokers", a source of /healthz */
    char text[FR_READINESS_TEXT_MAX];
    int64_t since_ms; /* wall time from which on that part has had a problem without a break */
};

struct fr_readiness {
    /* Why the service is not ready: the first problem that blocks it; "": it is ready. */
    char reason[FR_READINESS_TEXT_MAX];
    size_t n;
    /* problems that block readiness come first, each before its consequences */
    struct fr_readiness_problem problems[FR_READINESS_PROBLEMS_MAX];
};

/* Replaces *readiness by the present problems. A part that already had a problem keeps its
 * since_ms. */
void fr_readiness_update(struct fr_readiness *readiness, struct fr_service *service, const struct fr_service_status *s);

#endif
