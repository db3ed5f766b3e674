/* Connections of the HTTP server, one thread, on libevent's buffered sockets.
 *
 * libevent has an HTTP server of its own (evhttp), which cannot do what is promised here: it counts
 * no connections, its timeout restarts with every byte, a HEAD gets a body, and where there are
 * no descriptors left it tries to accept as fast as it can.
 *
 * A connection is in one of four phases, each with an absolute end: no client stays in one longer
 * by sending or reading slowly.
 *
 *   HEAD (head_ms) ─► REPLY (REPLY_MS) ─► IDLE (IDLE_MS) ─ first byte ─► HEAD ...
 *                           └─► LINGER (LINGER_MS)
 *
 * LINGER reads and drops what still comes after the last reply, because closing a socket with
 * unread bytes resets it, and the reset may outrun the reply.
 *
 * One request at a time is read from a connection, so a client that sends many at once buffers them
 * in its own socket. At FR_HTTP_CONNECTIONS_MAX the connection that waits longest is closed for the
 * new one: idle before unanswered before unread. A probe therefore always gets its answer.
 *
 * Without descriptors (EMFILE) the oldest connection is closed, accepting stops for PAUSE_MS and is
 * tried again: the kernel's queue keeps the clients that connect meanwhile. */
#include "server.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "metrics/series.h"
#include "base/thread.h"
#include "metrics/http.h"

enum {
    BACKLOG = 128,
    REPLY_MS = 10000,
    IDLE_MS = 60000, /* longer than most scrape intervals: a connection a minute costs nothing */
    LINGER_MS = 1000,
    PAUSE_MS = 200,
    /* connections accepted in one turn, so that existing connections get a turn, too */
    ACCEPTS_MAX = 16,
};

/* In the order in which they give way to a new connection. */
enum phase { PHASE_LINGER, PHASE_IDLE, PHASE_HEAD, PHASE_REPLY };

struct connection {
    struct fr_http_server *server;
    struct connection *next;
    struct bufferevent *stream;
    struct event *deadline;
    enum phase phase;
    uint64_t since; /* number of the phase's beginning: smaller is older */
    bool close;     /* after the reply */
};

struct fr_http_server {
    struct fr_http_server_options options;
    struct event_base *base;
    struct event *stop, *readable, *resume;
    int listener;
    uint16_t port;
    pthread_t thread;
    bool running;
    /* HTTP thread */
    struct connection *first;
    uint32_t n_connections;
    uint64_t phases, evicted, timed_out, refused_accepts;
};

static void enter(struct connection *connection, enum phase phase)
{
    const uint32_t ms = phase == PHASE_HEAD    ? connection->server->options.head_ms
                        : phase == PHASE_REPLY ? REPLY_MS
                        : phase == PHASE_IDLE  ? IDLE_MS
                                               : LINGER_MS;
    const struct timeval after = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    connection->phase = phase;
    connection->since = connection->server->phases++;
    event_add(connection->deadline, &after);
}

static void release(struct connection *connection)
{
    event_free(connection->deadline);
    bufferevent_free(connection->stream);
    free(connection);
}

static void drop(struct connection *connection)
{
    struct fr_http_server *server = connection->server;
    struct connection **at = &server->first;
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    server->n_connections--;
    release(connection);
}

static void drop_oldest(struct fr_http_server *server)
{
    struct connection *oldest = server->first;
    for (struct connection *c = server->first; c; c = c->next)
        if (c->phase < oldest->phase || (c->phase == oldest->phase && c->since < oldest->since))
            oldest = c;
    if (oldest) {
        server->evicted++;
        drop(oldest);
    }
}

/* ---- requests ---- */

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 304:
        return "Not Modified";
    case 400:
        return "Bad Request";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    default:
        FR_CHECK(status == 505);
        return "HTTP Version Not Supported";
    }
}

/* What a browser may do with any answer: scripts, styles and requests of this server alone, nothing
 * inside a text, no frame around it. */
static const char POLICY[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n";

static void put_reply(struct connection *connection, const struct fr_http_reply *reply, bool with_body)
{
    struct evbuffer *out = bufferevent_get_output(connection->stream);
    const void *bytes = reply->stored ? (const void *)reply->stored : reply->body.data;
    size_t size = reply->stored ? reply->stored_size : reply->body.size;
    enter(connection, PHASE_REPLY);
    bufferevent_disable(connection->stream, EV_READ);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n%s", reply->status, reason_of(reply->status), POLICY);
    if (reply->status != 304) /* which has the length of no body */
        evbuffer_add_printf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n", reply->content_type, size);
    if (reply->etag)
        evbuffer_add_printf(out, "Cache-Control: no-cache\r\nVary: Accept-Encoding\r\nETag: %s\r\n%s", reply->etag,
                            reply->gzip && reply->status != 304 ? "Content-Encoding: gzip\r\n" : "");
    else
        evbuffer_add_printf(out, "Cache-Control: no-store\r\n");
    evbuffer_add_printf(out, "%s%s\r\n", reply->status == 405 ? "Allow: GET, HEAD\r\n" : "",
                        connection->close ? "Connection: close\r\n" : "");
    if (with_body && reply->status != 304)
        evbuffer_add(out, bytes, size);
}

static void refuse(struct connection *connection, int status, const char *why)
{
    struct fr_http_reply reply = {.status = status, .content_type = "application/json"};
    connection->close = true;
    fr_buffer_printf(&reply.body, "{\"error\":\"%s\"}\n", why);
    put_reply(connection, &reply, true);
    fr_buffer_release(&reply.body);
}

/* Sets the series of connections. Runs on the HTTP thread, which counts them, before a request that
 * may read the series. */
static void set_connection_series(const struct fr_http_server *server)
{
    struct fr_registry *registry = server->options.registry;
    fr_series_set(registry, FR_SERIES_HTTP_CONNECTIONS, NULL, (double)server->n_connections);
    fr_series_set(registry, FR_SERIES_HTTP_CONNECTIONS_MAX, NULL, FR_HTTP_CONNECTIONS_MAX);
    fr_series_count(registry, FR_SERIES_HTTP_CONNECTIONS_CLOSED_TOTAL, "reason=\"place\"", server->evicted);
    fr_series_count(registry, FR_SERIES_HTTP_CONNECTIONS_CLOSED_TOTAL, "reason=\"time\"", server->timed_out);
    fr_series_count(registry, FR_SERIES_HTTP_ACCEPT_ERRORS_TOTAL, NULL, server->refused_accepts);
}

static void answer(struct connection *connection, const char *head, size_t size)
{
    struct fr_http_server *server = connection->server;
    struct fr_http_request request;
    struct fr_http_reply reply = {.status = 200, .content_type = "application/json"};
    int status = fr_http_parse(head, size, &request);
    if (status) {
        refuse(connection, status, status == 505 ? "HTTP/1.0 or 1.1, please" : "not an HTTP request");
        return;
    }
    connection->close = !request.keep || request.body;
    set_connection_series(server);
    server->options.answer(server->options.self, &request, &reply);
    put_reply(connection, &reply, request.method != FR_HTTP_HEAD);
    fr_buffer_release(&reply.body);
}

static void on_readable(struct bufferevent *stream, void *self)
{
    struct connection *connection = self;
    struct evbuffer *in = bufferevent_get_input(stream);
    size_t size = evbuffer_get_length(in);
    if (connection->phase == PHASE_LINGER)
        evbuffer_drain(in, size);
    if (size == 0 || connection->phase == PHASE_LINGER || connection->phase == PHASE_REPLY)
        return;
    if (connection->phase == PHASE_IDLE)
        enter(connection, PHASE_HEAD);
    const char *bytes = (const char *)evbuffer_pullup(in, -1);
    size_t head = fr_http_head_size(bytes, size);
    if (head) {
        answer(connection, bytes, head);
        evbuffer_drain(in, head);
    } else if (size >= FR_HTTP_HEADERS_MAX) {
        refuse(connection, 431, "the head of a request has at most 8 KiB");
    }
}

/* The reply has left. */
static void on_written(struct bufferevent *stream, void *self)
{
    struct connection *connection = self;
    if (connection->phase != PHASE_REPLY || evbuffer_get_length(bufferevent_get_output(stream)))
        return;
    if (connection->close)
        shutdown(bufferevent_getfd(stream), SHUT_WR);
    enter(connection, connection->close ? PHASE_LINGER : PHASE_IDLE);
    bufferevent_enable(stream, EV_READ);
    /* The next request may be here already. */
    on_readable(stream, connection);
}

static void on_ended(struct bufferevent *stream, short what, void *self)
{
    (void)stream;
    (void)what;
    drop(self);
}

static void on_deadline(evutil_socket_t fd, short what, void *self)
{
    (void)fd;
    (void)what;
    struct connection *connection = self;
    connection->server->timed_out++;
    drop(connection);
}

/* ---- accepting ---- */

static void welcome(struct fr_http_server *server, int fd)
{
    int one = 1;
    if (server->n_connections == FR_HTTP_CONNECTIONS_MAX)
        drop_oldest(server);
    /* A reply of several writes would wait 40 ms for its first packet's acknowledgement. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    FR_CHECK(evutil_make_socket_nonblocking(fd) == 0 && evutil_make_socket_closeonexec(fd) == 0);
    struct connection *connection = fr_alloc(1, sizeof(*connection));
    connection->server = server;
    connection->stream = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
    connection->deadline = evtimer_new(server->base, on_deadline, connection);
    FR_CHECK(connection->stream && connection->deadline);
    bufferevent_setcb(connection->stream, on_readable, on_written, on_ended, connection);
    bufferevent_setwatermark(connection->stream, EV_READ, 0, FR_HTTP_HEADERS_MAX);
    connection->next = server->first;
    server->first = connection;
    server->n_connections++;
    enter(connection, PHASE_HEAD);
    bufferevent_enable(connection->stream, EV_READ | EV_WRITE);
}

static void on_connect(evutil_socket_t listener, short what, void *self)
{
    (void)what;
    struct fr_http_server *server = self;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0) {
            welcome(server, fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
            const struct timeval after = {.tv_usec = PAUSE_MS * 1000};
            server->refused_accepts++;
            drop_oldest(server);
            event_del(server->readable);
            event_add(server->resume, &after);
        }
        break;
    }
}

static void on_resume(evutil_socket_t fd, short what, void *self)
{
    (void)fd;
    (void)what;
    struct fr_http_server *server = self;
    event_add(server->readable, NULL);
}

static int bind_to(const struct addrinfo *address)
{
    int one = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_on(const struct fr_http_server_options *options, uint16_t *port, struct fr_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *address = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", options->port);
    if (getaddrinfo(options->host, service, &hints, &address) != 0) {
        (void)fr_err_set(err, FR_E_INVALID, "metrics.listen: %s is not an IPv4 or IPv6 address", options->host);
        return -1;
    }
    int fd = bind_to(address);
    if (fd < 0)
        (void)fr_err_set(err, FR_E_INVALID, /* a restart would find the same */
                         "metrics.listen: cannot listen on %s:%u (%m); stop what uses it or choose another port",
                         options->host, options->port);
    freeaddrinfo(address);
    struct sockaddr_in6 bound = {0}; /* has the port where sockaddr_in has it */
    socklen_t length = sizeof(bound);
    if (fd >= 0)
        FR_CHECK(getsockname(fd, (struct sockaddr *)&bound, &length) == 0);
    *port = ntohs(bound.sin6_port);
    return fd;
}

/* ---- life ---- */

/* Runs on the HTTP thread when the server is freed: unlike a loopbreak from outside it cannot come
 * before the loop begins. */
static void on_stop(evutil_socket_t fd, short what, void *self)
{
    (void)fd;
    (void)what;
    struct fr_http_server *server = self;
    event_base_loopbreak(server->base);
}

static void *server_main(void *self)
{
    struct fr_http_server *server = self;
    event_base_dispatch(server->base);
    return NULL;
}

static void set_up_locks(void)
{
    FR_CHECK(evthread_use_pthreads() == 0);
}

enum fr_status fr_http_server_new(const struct fr_http_server_options *options, struct fr_http_server **out,
                                  struct fr_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* services of a process may begin at once */
    FR_CHECK(pthread_once(&once, set_up_locks) == 0);
    uint16_t port = 0;
    int fd = listen_on(options, &port, err);
    if (fd < 0)
        return err ? err->status : FR_E_UNAVAILABLE;
    struct fr_http_server *server = fr_alloc(1, sizeof(*server));
    server->options = *options;
    server->listener = fd;
    server->port = port;
    server->base = event_base_new();
    FR_CHECK(server->base);
    server->stop = event_new(server->base, -1, 0, on_stop, server);
    server->resume = evtimer_new(server->base, on_resume, server);
    server->readable = event_new(server->base, fd, EV_READ | EV_PERSIST, on_connect, server);
    FR_CHECK(server->stop && server->resume && server->readable && event_add(server->readable, NULL) == 0);
    if (!fr_thread_start(&server->thread, "http", server_main, server)) {
        fr_http_server_free(server);
        return fr_err_set(err, FR_E_UNAVAILABLE, "metrics.listen: %s", FR_THREADS_SHORT);
    }
    server->running = true;
    *out = server;
    return FR_OK;
}

void fr_http_server_free(struct fr_http_server *server)
{
    if (!server)
        return;
    if (server->running) {
        event_active(server->stop, EV_TIMEOUT, 0);
        pthread_join(server->thread, NULL);
    }
    for (struct connection *next, *c = server->first; c; c = next) {
        next = c->next;
        release(c);
    }
    event_free(server->readable);
    event_free(server->resume);
    event_free(server->stop);
    event_base_free(server->base);
    close(server->listener);
    free(server);
}

uint16_t fr_http_server_port(const struct fr_http_server *server)
{
    return server->port;
}
