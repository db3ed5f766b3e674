/* The HTTP server (libevent, on a thread of its own) serves documents that other threads publish
 * by swapping a pointer. It never takes a lock of the training path.
 *
 * It answers GET and HEAD; other methods get 405. Host must be an address, localhost, or one of
 * `hosts`, otherwise the answer is 403 (request.h says why). It listens on loopback by default.
 *
 * Limits: heads <= 8 KiB (431); a request with a body is answered unread and its connection
 * closed; 64 connections, of which the one idle longest is closed for a new one, so that no
 * client is refused; 5 s for a head, 10 s to read a reply, 60 s between requests, all absolute.
 *
 * Every answer carries a Content-Security-Policy that allows scripts, styles and requests of this
 * server alone. Published and rendered documents must not be kept by a client (no-store).
 *
 * /healthz (and /health) is computed per request from heartbeats and reasons: 200
 * {"status":"ok"|"degraded","reasons":[..]}, or 503 when a loop missed its watchdog, and only
 * then. */
#ifndef FR_METRICS_HTTP_H
#define FR_METRICS_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "metrics/registry.h"

struct fr_http;

/* Bytes that never change, such as a script of the page. All members are borrowed. Clients may keep
 * them and ask whether they still hold (ETag), and get them compressed if they take that. */
struct fr_http_asset {
    const char *path, *content_type;
    const uint8_t *bytes, *gzip; /* gzip: the same compressed */
    size_t size, gzip_size;
};
/* Makes a document when it is asked for, on the HTTP thread: a status and its text of
 * application/json. The query is what follows the '?'. */
typedef int fr_http_render(void *self, const char *query, struct fr_buffer *out);

enum { FR_HTTP_ASSETS_MAX = 16, FR_HTTP_CONNECTIONS_MAX = 64, FR_HTTP_HEADERS_MAX = 8192, FR_HTTP_HEAD_MS = 5000 };

struct fr_http_options {
    const char *host;         /* IPv4 or IPv6 address */
    uint16_t port;            /* 0: any free port */
    const char *const *hosts; /* further host names that clients may use; borrowed */
    size_t n_hosts;
    uint32_t head_ms; /* to receive a whole head; 0: FR_HTTP_HEAD_MS */
    const struct fr_clock *clock;
    struct fr_registry *registry;       /* rendered at /metrics */
    const struct fr_http_asset *assets; /* [n_assets], at most FR_HTTP_ASSETS_MAX; borrowed */
    size_t n_assets;
};

enum fr_status fr_http_new(const struct fr_http_options *options, struct fr_http **out,
                           struct fr_err *err) FR_MUST_CHECK; /* FR_E_UNAVAILABLE: address in use */
void fr_http_free(struct fr_http *http);                      /* stops and joins */
uint16_t fr_http_port(const struct fr_http *http);

/* Publishes a document (copied); path is such as "/auc", status 200 or 503. Content types are
 * static strings. */
void fr_http_publish(struct fr_http *http, const char *path, int status, const char *content_type, const void *body,
                     size_t size);
/* Has every request of `path` answered by `render`, until fr_http_free. The path is static. */
void fr_http_serve(struct fr_http *http, const char *path, fr_http_render *render, void *self);
/* Heartbeats: a loop calls beat, with the index that watch returned, at least every watchdog_ms.
 * If it does not, /healthz answers 503 and names the loop. */
int fr_http_watch(struct fr_http *http, const char *loop, int64_t watchdog_ms);
void fr_http_beat(struct fr_http *http, int loop);
void fr_http_unwatch(struct fr_http *http, int loop);
/* No loop missed its watchdog: /healthz is not 503. Any thread. */
bool fr_http_live(struct fr_http *http);
/* Replaces the reason of `source` ("publisher"); NULL or empty clears it. Any reason makes /healthz
 * degraded. */
void fr_http_reason(struct fr_http *http, const char *source, const char *text);
/* Calls `visit` for every problem that /healthz shows at this moment: loops without a turn first,
 * then reasons. `visit` must not call the server. Any thread. */
void fr_http_visit_problems(struct fr_http *http, void (*visit)(void *self, const char *source, const char *text),
                            void *self);

#endif
