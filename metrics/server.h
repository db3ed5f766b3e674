/* Connections of the HTTP server: accepted, limited, read to the end of a head, answered (libevent;
 * contract and limits: metrics/http.h). It knows no document: `answer` does. Not public. */
#ifndef FR_METRICS_SERVER_H
#define FR_METRICS_SERVER_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "metrics/registry.h"
#include "request.h"

struct fr_http_server;

/* Answers one request: a status, the content type (static) and the body. Runs on the HTTP
 * thread. */
typedef int fr_http_answer(void *self, const struct fr_http_request *request, const char **content_type,
                           struct fr_buffer *body);

struct fr_http_server_options {
    const char *host;
    uint16_t port; /* 0: any */
    uint32_t head_ms;
    struct fr_registry *registry;
    fr_http_answer *answer;
    void *self;
};

/* Listens, starts the thread; FR_E_INVALID, FR_E_UNAVAILABLE. */
enum fr_status fr_http_server_new(const struct fr_http_server_options *options, struct fr_http_server **out,
                                  struct fr_err *err) FR_MUST_CHECK;
void fr_http_server_free(struct fr_http_server *server); /* stops and joins; NULL is fine */
uint16_t fr_http_server_port(const struct fr_http_server *server);

#endif
