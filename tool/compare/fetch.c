/* One GET over plain HTTP, for the documents of a daemon nearby. Bounded in time and bytes;
 * redirects are not followed, and there is no TLS, because `metrics.listen` has none.
 *
 * Thread: any, no state. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "compare/auc_document.h"

enum { BODY_MAX = 16 << 20, TIMEOUT_S = 5, HOST_MAX = 256, PATH_MAX_BYTES = 1024 };

static const char scheme[] = "http://";

struct address {
    char host[HOST_MAX], port[8], path[PATH_MAX_BYTES];
    bool bracketed; /* an IPv6 address */
};

static bool copy_text(const char *from, size_t size, char *out, size_t room)
{
    if (size == 0 || size >= room)
        return false;
    memcpy(out, from, size);
    out[size] = '\0';
    return true;
}

static bool split(const char *url, struct address *out)
{
    const char *at = url + sizeof(scheme) - 1, *path = strchr(at, '/');
    size_t size = path ? (size_t)(path - at) : strlen(at);
    const char *end = at + size, *host_end, *host = at;
    out->bracketed = *at == '[';
    if (out->bracketed) {
        host++;
        host_end = memchr(at, ']', size);
        if (!host_end || host_end + 1 >= end || host_end[1] != ':')
            return false;
        at = host_end + 2;
    } else {
        host_end = memchr(at, ':', size);
        if (!host_end)
            return false;
        at = host_end + 1;
    }
    if (!path || !path[1])
        path = "/auc";
    return copy_text(host, (size_t)(host_end - host), out->host, sizeof(out->host)) &&
           copy_text(at, (size_t)(end - at), out->port, sizeof(out->port)) &&
           copy_text(path, strlen(path), out->path, sizeof(out->path));
}

static int connect_to(const struct address *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int rc = getaddrinfo(address->host, address->port, &hints, &list), connected = -1;
    for (const struct addrinfo *one = rc == 0 ? list : NULL; one && connected < 0; one = one->ai_next) {
        connected = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
        if (connected < 0)
            continue;
        (void)setsockopt(connected, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        (void)setsockopt(connected, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
        if (connect(connected, one->ai_addr, one->ai_addrlen) != 0) {
            (void)close(connected);
            connected = -1;
        }
    }
    if (rc == 0)
        freeaddrinfo(list);
    return connected;
}

static bool exchange(int connected, const struct address *address, struct fr_buffer *reply)
{
    char request[PATH_MAX_BYTES + 2 * HOST_MAX];
    int size = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: %s%s%s:%s\r\n\r\n", address->path,
                        address->bracketed ? "[" : "", address->host, address->bracketed ? "]" : "", address->port);
    ssize_t n = send(connected, request, (size_t)size, MSG_NOSIGNAL);
    bool good = n == size;
    while (good && reply->size < BODY_MAX) {
        uint8_t *room = fr_buffer_reserve(reply, 1 << 16);
        n = recv(connected, room, 1 << 16, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return true;
        good = n > 0;
        reply->size += good ? (size_t)n : 0;
    }
    return false;
}

enum fr_status fr_tool_fetch(const char *url, struct fr_buffer *body, struct fr_err *err)
{
    struct address address = {.bracketed = false};
    if (!split(url, &address))
        return fr_err_set(err, FR_E_INVALID, "%.200s: expected http://HOST:PORT or http://HOST:PORT/auc", url);
    int connected = connect_to(&address);
    if (connected < 0)
        return fr_err_set(err, FR_E_UNAVAILABLE, "%.200s: cannot connect: is it metrics.listen of a running daemon?",
                          url);
    struct fr_buffer reply = {0};
    bool whole = exchange(connected, &address, &reply);
    (void)close(connected);
    fr_buffer_terminate(&reply);
    const char *text = (const char *)reply.data, *end = strstr(text, "\r\n\r\n");
    enum fr_status status = FR_OK;
    if (!whole || !end)
        status = fr_err_set(err, FR_E_UNAVAILABLE, "%.200s: no whole answer within %d s and %d MiB", url, TIMEOUT_S,
                            BODY_MAX >> 20);
    else if (strncmp(text, "HTTP/1.", 7) != 0 || strncmp(text + 8, " 200", 4) != 0)
        status = fr_err_set(err, FR_E_UNAVAILABLE, "%.200s: answered %.40s", url, text);
    else
        fr_buffer_append(body, end + 4, strlen(end + 4));
    fr_buffer_release(&reply);
    return status;
}
