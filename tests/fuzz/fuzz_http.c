/* Fuzz target of the HTTP server, over real sockets: whatever a client sends is answered or closed
 * soon after the client's end of it, and the server answers the next one. A byte 0xff in the input
 * ends a segment. Only our own part is instrumented, not libevent. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz.h"
#include "metrics/http.h"

enum { SEPARATOR = 0xff, PATIENCE_S = 60, ASK_EVERY = 16 };

static struct fr_http *http;

static void make_server(void)
{
    struct fr_err err = {0};
    if (http)
        return;
    struct fr_registry *registry = fr_registry_new("m");
    fr_counter(registry, "freshet_x_total", NULL, "X.", 5);
    struct fr_http_options options = {.host = "127.0.0.1", .clock = fr_clock_system(), .registry = registry};
    FR_CHECK(fr_http_new(&options, &http, &err) == FR_OK);
    fr_http_publish(http, "/status", 200, "application/json", "{\"a\":1}", 7);
    fr_http_publish(http, "/readyz", 503, "text/plain", "not yet", 7);
}

static int connect_to(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(fr_http_port(http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    struct linger reset = {.l_onoff = 1}; /* no port stays behind in TIME_WAIT */
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    FR_CHECK(fd >= 0);
    FR_CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
    FR_CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    FR_CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
    int rc;
    do /* libFuzzer's alarm interrupts */
        rc = connect(fd, (struct sockaddr *)&address, sizeof(address));
    while (rc != 0 && (errno == EINTR || errno == EALREADY));
    FR_CHECK(rc == 0 || errno == EISCONN);
    return fd;
}

/* Reads until the server closes; returns how much there is of it, at most room. */
static size_t receive(int fd, char *reply, size_t room)
{
    char rest[4096];
    size_t size = 0;
    for (;;) {
        ssize_t n = size < room ? recv(fd, reply + size, room - size, 0) : recv(fd, rest, sizeof(rest), 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return size;
        if (n < 0 && errno == EINTR)
            continue;
        FR_CHECK(n > 0); /* EAGAIN: the server neither answered nor closed */
        size += size < room ? (size_t)n : 0;
    }
}

static void send_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        if (n < 0)
            return; /* closed already */
        bytes += n;
        size -= (size_t)n;
    }
}

static void ask_health(void)
{
    char text[128], reply[256];
    int size = snprintf(text, sizeof(text), "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n",
                        fr_http_port(http));
    int fd = connect_to();
    send_all(fd, (uint8_t *)text, (size_t)size);
    size_t n = receive(fd, reply, sizeof(reply));
    close(fd);
    FR_CHECK(n > 12 && memcmp(reply, "HTTP/1.1 200", 12) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    char reply[1024];
    make_server();
    int fd = connect_to();
    while (size > 0) {
        const uint8_t *end = memchr(data, SEPARATOR, size);
        size_t n = end ? (size_t)(end - data) : size;
        send_all(fd, data, n);
        n += end != NULL;
        data += n;
        size -= n;
    }
    (void)shutdown(fd, SHUT_WR);
    (void)receive(fd, reply, sizeof(reply));
    close(fd);
    if (runs++ % ASK_EVERY == 0)
        ask_health();
    return 0;
}
