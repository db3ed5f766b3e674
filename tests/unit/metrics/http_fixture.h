/* A server of the HTTP tests and connections to it. */
#ifndef METRICS_HTTP_FIXTURE_H
#define METRICS_HTTP_FIXTURE_H

#include <arpa/inet.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_clock.h"
#include "metrics/http.h"

struct scene {
    struct fr_clock_fake clock;
    struct fr_registry *registry;
    struct fr_http *http;
};

static inline struct scene *scene_new(void)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    fr_clock_fake_init(&scene->clock, 1700000000000);
    scene->registry = fr_registry_new("m");
    return scene;
}

FR_FIXTURE(teardown)
{
    struct scene *scene = *state;
    fr_http_free(scene->http);
    fr_registry_free(scene->registry);
    free(scene);
    return 0;
}

/* Returns a connection, or a negative number if there is no descriptor. */
static inline int try_connect(const struct scene *scene)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(fr_http_port(scene->http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0)
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static inline int connect_to(const struct scene *scene)
{
    int fd = try_connect(scene);
    assert_true(fd >= 0);
    return fd;
}

#endif
