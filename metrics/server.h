/* Connections of the HTTP server: accepted, limited, read to the end of a head, answered (libevent;
 * contract and limits: metrics/http.h). It knows no document: `answer` does. Not public. */
#ifndef FR_METRICS_SERVER_H
#define FR_METRICS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "metrics/registry.h"
#include "request.h"

struct fr_http_server;

/* An answer is made text (`body`), or bytes that are there as long as the server (`stored`). */
struct fr_http_reply {
    int status;
    const char *content_type; /* static */
    struct fr_buffer body;    /* owned by the server */
    const uint8_t *stored;    /* instead of `body`; NULL: none */
    size_t stored_size;
    bool gzip;        /* `stored` is compressed */
    const char *etag; /* of `stored`, quoted; NULL: a client must not keep the answer */
};
/* Answers one request; *reply is zero except for a 200 of application/json. Runs on the HTTP
 * thread. */
typedef void fr_http_answer(void *self, const struct fr_http_request *request, struct fr_http_reply *reply);

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
