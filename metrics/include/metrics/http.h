/* The HTTP server (libevent, on a thread of its own) serves documents that other threads publish by
 * swapping a pointer. It never takes a lock of the training path.
 *
 * Limits: GET and HEAD only (405/501 otherwise), headers <= 8 KiB, body <= 1 KiB, 64 connections, 5
 * s idle/partial request timeout. It listens on loopback by default.
 *
 * /healthz (and /health) is computed per request from heartbeats and reasons: 200
 * {"status":"ok"|"degraded","reasons":[..]}, or 503 when a loop missed its watchdog, and only
 * then. */
#ifndef FR_METRICS_HTTP_H
#define FR_METRICS_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "metrics/registry.h"

struct fr_http;

struct fr_http_options {
    const char *host;
    uint16_t port; /* 0: any free port */
    const struct fr_clock *clock;
    struct fr_registry *registry; /* rendered at /metrics */
};

enum fr_status fr_http_new(const struct fr_http_options *options, struct fr_http **out,
                           struct fr_err *err) FR_MUST_CHECK; /* FR_E_UNAVAILABLE: address in use */
void fr_http_free(struct fr_http *http);                      /* stops and joins */
uint16_t fr_http_port(const struct fr_http *http);

/* Publishes a document (copied); path is such as "/auc", status 200 or 503. Content types are
 * static strings. */
void fr_http_publish(struct fr_http *http, const char *path, int status, const char *content_type, const void *body,
                     size_t size);
/* Heartbeats: a loop calls beat, with the index that watch gave it, at least every watchdog_ms.
 * When it does not, /healthz answers 503 and names it. */
int fr_http_watch(struct fr_http *http, const char *loop, int64_t watchdog_ms);
void fr_http_beat(struct fr_http *http, int loop);
void fr_http_unwatch(struct fr_http *http, int loop);
/* Replaces the reason of `source` ("publisher"); NULL or empty clears it. Any reason makes /healthz
 * degraded. */
void fr_http_reason(struct fr_http *http, const char *source, const char *text);

#endif
