/* HTTP server on libevent's evhttp, one thread (contract and limits: metrics/http.h).
 *
 * Other threads publish documents by swapping a pointer under a short mutex; the HTTP thread copies
 * the reply out under the same mutex, so that no training thread ever waits for a slow reader.
 * evhttp 2.1 has no connection limit (counted here) and no default limits on headers and bodies
 * (set here). Listening sockets get TCP_NODELAY, or keep-alive replies wait 40 ms. */
#include "metrics/http.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/thread.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/thread.h"

enum {
    FR_HTTP_DOCUMENTS_MAX = 32,
    FR_HTTP_WATCHES_MAX = 16,
    FR_HTTP_REASONS_MAX = 16,
    FR_HTTP_HEADERS_MAX = 8192,
    FR_HTTP_BODY_MAX = 1024,
    FR_HTTP_CONNECTIONS_MAX = 64,
    FR_HTTP_TIMEOUT_S = 5,
};

struct document {
    char path[64];
    const char *content_type;
    int status;
    struct fr_buffer body;
};

struct watch {
    char loop[32];
    int64_t watchdog_ms;
    uint64_t beat_ns;
    bool used;
};

struct reason {
    char source[32];
    char text[256];
};

struct fr_http {
    struct event_base *base;
    struct evhttp *server;
    struct event *stop;
    pthread_t thread;
    bool running;
    uint16_t port;
    const struct fr_clock *clock;
    struct fr_registry *registry;
    struct evhttp_connection *connections[FR_HTTP_CONNECTIONS_MAX]; /* HTTP thread only */
    int n_connections;

    pthread_mutex_t lock; /* documents, watches, reasons */
    struct document documents[FR_HTTP_DOCUMENTS_MAX];
    size_t n_documents;
    struct watch watches[FR_HTTP_WATCHES_MAX];
    struct reason reasons[FR_HTTP_REASONS_MAX];
};

static void reply(struct evhttp_request *request, int status, const char *content_type, const struct fr_buffer *body)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", content_type);
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    struct evbuffer *out = evbuffer_new();
    FR_CHECK(out);
    evbuffer_add(out, body->data, body->size);
    evhttp_send_reply(request, status, status == 200 ? "OK" : status == 404 ? "Not Found" : "Service Unavailable", out);
    evbuffer_free(out);
}

static void put_reason(struct fr_buffer *body, size_t *count, const char *source, const char *text)
{
    char joined[320];
    snprintf(joined, sizeof(joined), "%s: %s", source, text);
    if ((*count)++)
        fr_put_u8(body, ',');
    fr_buffer_json_text(body, joined);
}

static int health(struct fr_http *http, struct fr_buffer *body)
{
    uint64_t now_ns = fr_mono_ns(http->clock);
    size_t stuck = 0, count = 0;
    struct fr_buffer reasons = {0};
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < FR_HTTP_WATCHES_MAX; i++) {
        const struct watch *watch = &http->watches[i];
        if (!watch->used || now_ns < watch->beat_ns ||
            (int64_t)((now_ns - watch->beat_ns) / 1000000) <= watch->watchdog_ms)
            continue;
        char text[96];
        snprintf(text, sizeof(text), "no turn for %lld ms; restart the daemon",
                 (long long)((now_ns - watch->beat_ns) / 1000000));
        put_reason(&reasons, &count, watch->loop, text);
        stuck++;
    }
    for (size_t i = 0; i < FR_HTTP_REASONS_MAX; i++)
        if (http->reasons[i].source[0] && http->reasons[i].text[0])
            put_reason(&reasons, &count, http->reasons[i].source, http->reasons[i].text);
    pthread_mutex_unlock(&http->lock);
    fr_buffer_printf(body, "{\"status\":\"%s\",\"reasons\":[", count ? "degraded" : "ok");
    if (reasons.size)
        fr_buffer_append(body, reasons.data, reasons.size);
    fr_buffer_printf(body, "]}\n");
    fr_buffer_release(&reasons);
    return stuck ? 503 : 200;
}

/* Status 0: no such document. */
static int find_document(struct fr_http *http, const char *path, struct fr_buffer *body, const char **content_type)
{
    int status = 0;
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < http->n_documents && !status; i++)
        if (strcmp(http->documents[i].path, path) == 0) {
            status = http->documents[i].status;
            *content_type = http->documents[i].content_type;
            fr_buffer_append(body, http->documents[i].body.data, http->documents[i].body.size);
        }
    pthread_mutex_unlock(&http->lock);
    return status;
}

static void on_closed(struct evhttp_connection *connection, void *self)
{
    struct fr_http *http = self;
    for (int i = 0; i < http->n_connections; i++)
        if (http->connections[i] == connection) {
            http->connections[i] = http->connections[--http->n_connections];
            return;
        }
}

/* A connection counts from its first request until it closes; over the limit it is answered 503 and
 * closed. One that never sends a request is closed by the idle timeout. */
static bool admit_connection(struct fr_http *http, struct evhttp_request *request)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    for (int i = 0; i < http->n_connections; i++)
        if (http->connections[i] == connection)
            return true;
    if (http->n_connections == FR_HTTP_CONNECTIONS_MAX) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
        return false;
    }
    http->connections[http->n_connections++] = connection;
    evhttp_connection_set_closecb(connection, on_closed, http);
    return true;
}

static void on_request(struct evhttp_request *request, void *self)
{
    struct fr_http *http = self;
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const char *content_type = "application/json";
    struct fr_buffer body = {0};
    int status;
    path = path && path[0] ? path : "/";
    if (!admit_connection(http, request)) {
        fr_buffer_printf(&body, "{\"error\":\"%d connections are open; close one\"}\n", FR_HTTP_CONNECTIONS_MAX);
        status = 503;
    } else if (strcmp(path, "/healthz") == 0 || strcmp(path, "/health") == 0) {
        status = health(http, &body);
    } else if (strcmp(path, "/metrics") == 0) {
        content_type = "text/plain; version=0.0.4; charset=utf-8";
        fr_registry_render(http->registry, &body);
        status = 200;
    } else {
        status = find_document(http, path, &body, &content_type);
    }
    if (!status) {
        fr_buffer_printf(&body, "{\"error\":\"no such path; try /healthz /readyz /auc /metrics /status\"}\n");
        status = 404;
    }
    reply(request, status, content_type, &body);
    fr_buffer_release(&body);
}

static int listen_on(const struct fr_http_options *options, uint16_t *port, struct fr_err *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1) {
        (void)fr_err_set(err, FR_E_INVALID, "metrics.listen: %s is not an IPv4 address", options->host);
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    socklen_t length = sizeof(address);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        (void)fr_err_set(err, FR_E_UNAVAILABLE,
                         "metrics.listen: cannot listen on %s:%u (%m); stop what uses it or choose another port",
                         options->host, options->port);
        if (fd >= 0)
            evutil_closesocket(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    *port = ntohs(address.sin_port);
    return fd;
}

/* Runs on the HTTP thread when fr_http_free activates the event: unlike a loopbreak from outside it
 * cannot come before the loop begins. */
static void on_stop(evutil_socket_t fd, short what, void *self)
{
    (void)fd;
    (void)what;
    struct fr_http *http = self;
    event_base_loopbreak(http->base);
}

static void *http_main(void *self)
{
    struct fr_http *http = self;
    event_base_dispatch(http->base);
    return NULL;
}

enum fr_status fr_http_new(const struct fr_http_options *options, struct fr_http **out, struct fr_err *err)
{
    FR_CHECK(evthread_use_pthreads() == 0);
    uint16_t port = 0;
    int fd = listen_on(options, &port, err);
    if (fd < 0)
        return err ? err->status : FR_E_UNAVAILABLE;
    struct fr_http *http = fr_alloc(1, sizeof(*http));
    pthread_mutex_init(&http->lock, NULL);
    http->clock = options->clock;
    http->registry = options->registry;
    http->port = port;
    http->base = event_base_new();
    FR_CHECK(http->base);
    http->server = evhttp_new(http->base);
    http->stop = event_new(http->base, -1, 0, on_stop, http);
    FR_CHECK(http->server && http->stop);
    evhttp_set_allowed_methods(http->server, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    evhttp_set_max_headers_size(http->server, FR_HTTP_HEADERS_MAX);
    evhttp_set_max_body_size(http->server, FR_HTTP_BODY_MAX);
    evhttp_set_timeout(http->server, FR_HTTP_TIMEOUT_S);
    evhttp_set_gencb(http->server, on_request, http);
    /* from then on the server closes it */
    bool accepted = evhttp_accept_socket(http->server, fd) == 0;
    if (!accepted)
        evutil_closesocket(fd);
    if (!accepted || !fr_thread_start(&http->thread, "http", http_main, http)) {
        fr_http_free(http);
        return fr_err_set(err, FR_E_UNAVAILABLE, "metrics.listen: the HTTP server did not start");
    }
    http->running = true;
    *out = http;
    return FR_OK;
}

void fr_http_free(struct fr_http *http)
{
    if (!http)
        return;
    if (http->running) {
        event_active(http->stop, EV_TIMEOUT, 0);
        pthread_join(http->thread, NULL);
    }
    evhttp_free(http->server);
    event_free(http->stop);
    event_base_free(http->base);
    for (size_t i = 0; i < http->n_documents; i++)
        fr_buffer_release(&http->documents[i].body);
    pthread_mutex_destroy(&http->lock);
    free(http);
}

uint16_t fr_http_port(const struct fr_http *http)
{
    return http->port;
}

void fr_http_publish(struct fr_http *http, const char *path, int status, const char *content_type, const void *body,
                     size_t size)
{
    struct fr_buffer fresh = {0};
    fr_buffer_append(&fresh, body, size);
    pthread_mutex_lock(&http->lock);
    size_t i = 0;
    while (i < http->n_documents && strcmp(http->documents[i].path, path) != 0)
        i++;
    if (i == http->n_documents) {
        FR_CHECK(http->n_documents < FR_HTTP_DOCUMENTS_MAX);
        snprintf(http->documents[i].path, sizeof(http->documents[i].path), "%s", path);
        http->n_documents++;
    }
    struct fr_buffer old = http->documents[i].body;
    http->documents[i].body = fresh;
    http->documents[i].status = status;
    http->documents[i].content_type = content_type;
    pthread_mutex_unlock(&http->lock);
    fr_buffer_release(&old);
}

int fr_http_watch(struct fr_http *http, const char *loop, int64_t watchdog_ms)
{
    pthread_mutex_lock(&http->lock);
    int i = 0;
    while (i < FR_HTTP_WATCHES_MAX && http->watches[i].used)
        i++;
    FR_CHECK(i < FR_HTTP_WATCHES_MAX);
    struct watch *watch = &http->watches[i];
    snprintf(watch->loop, sizeof(watch->loop), "%s", loop);
    watch->watchdog_ms = watchdog_ms;
    watch->beat_ns = fr_mono_ns(http->clock);
    watch->used = true;
    pthread_mutex_unlock(&http->lock);
    return i;
}

void fr_http_beat(struct fr_http *http, int loop)
{
    pthread_mutex_lock(&http->lock);
    http->watches[loop].beat_ns = fr_mono_ns(http->clock);
    pthread_mutex_unlock(&http->lock);
}

void fr_http_unwatch(struct fr_http *http, int loop)
{
    pthread_mutex_lock(&http->lock);
    http->watches[loop].used = false;
    pthread_mutex_unlock(&http->lock);
}

void fr_http_reason(struct fr_http *http, const char *source, const char *text)
{
    bool clear = !text || !text[0];
    pthread_mutex_lock(&http->lock);
    struct reason *place = NULL;
    for (size_t i = 0; i < FR_HTTP_REASONS_MAX; i++) {
        struct reason *reason = &http->reasons[i];
        if (strcmp(reason->source, source) == 0) {
            place = reason;
            break;
        }
        if (!reason->source[0] && !place)
            place = reason;
    }
    FR_CHECK(place || clear);
    if (place) {
        snprintf(place->source, sizeof(place->source), "%s", clear ? "" : source);
        snprintf(place->text, sizeof(place->text), "%s", clear ? "" : text);
    }
    pthread_mutex_unlock(&http->lock);
}
