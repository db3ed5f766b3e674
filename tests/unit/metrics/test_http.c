/* The HTTP server over real sockets: documents, health, which requests are answered. */
#include "http_fixture.h"

FR_FIXTURE(setup)
{
    struct scene *scene = scene_new();
    struct fr_err err = {0};
    static const char *const hosts[] = {"freshet.svc"};
    struct fr_http_options options = {
        .host = "127.0.0.1", .hosts = hosts, .n_hosts = 1, .clock = &scene->clock.clock, .registry = scene->registry};
    assert_int_equal(fr_http_new(&options, &scene->http, &err), FR_OK);
    *state = scene;
    return 0;
}

/* Sends text, reads until the server closes or `limit` bytes; returns the status code. */
static int exchange(const struct scene *scene, const char *text, char *reply, size_t limit)
{
    int fd = connect_to(scene);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    size_t size = 0;
    ssize_t n;
    while (size + 1 < limit && (n = recv(fd, reply + size, limit - 1 - size, 0)) > 0)
        size += (size_t)n;
    reply[size] = '\0';
    close(fd);
    int status = 0;
    (void)sscanf(reply, "HTTP/1.%*d %d", &status);
    return status;
}

static int get(const struct scene *scene, const char *path, char *reply, size_t limit)
{
    char text[256];
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    return exchange(scene, text, reply, limit);
}

FR_CASE(a_published_document_is_served_until_it_is_replaced)
{
    struct scene *scene = *state;
    char reply[4096];
    assert_int_equal(get(scene, "/status", reply, sizeof(reply)), 404);
    fr_http_publish(scene->http, "/status", 200, "application/json", "{\"a\":1}", 7);
    assert_int_equal(get(scene, "/status?x=1", reply, sizeof(reply)), 200);
    assert_non_null(strstr(reply, "{\"a\":1}"));
    assert_non_null(strstr(reply, "nosniff"));
    fr_http_publish(scene->http, "/status", 503, "application/json", "no", 2);
    assert_int_equal(get(scene, "/status", reply, sizeof(reply)), 503);
}

FR_CASE(health_is_degraded_with_a_reason_and_503_only_when_a_loop_is_stuck)
{
    struct scene *scene = *state;
    char reply[4096];
    assert_int_equal(get(scene, "/healthz", reply, sizeof(reply)), 200);
    assert_non_null(strstr(reply, "{\"status\":\"ok\",\"reasons\":[]}"));
    fr_http_reason(scene->http, "publisher", "broker \"down\"");
    assert_int_equal(get(scene, "/health", reply, sizeof(reply)), 200);
    assert_non_null(strstr(reply, "{\"status\":\"degraded\",\"reasons\":[\"publisher: broker \\\"down\\\"\"]}"));
    fr_http_reason(scene->http, "publisher", NULL);
    int loop = fr_http_watch(scene->http, "trainer", 1000);
    fr_clock_fake_advance_ms(&scene->clock, 1001);
    assert_int_equal(get(scene, "/healthz", reply, sizeof(reply)), 503);
    assert_non_null(strstr(reply, "trainer: no turn for 1001 ms"));
    fr_http_beat(scene->http, loop);
    assert_int_equal(get(scene, "/healthz", reply, sizeof(reply)), 200);
    fr_clock_fake_advance_ms(&scene->clock, 5000);
    fr_http_unwatch(scene->http, loop);
    assert_int_equal(get(scene, "/healthz", reply, sizeof(reply)), 200);
}

FR_CASE(metrics_are_rendered_on_request)
{
    struct scene *scene = *state;
    char reply[4096];
    fr_counter(scene->registry, "freshet_x_total", NULL, "X.", 5);
    assert_int_equal(get(scene, "/metrics", reply, sizeof(reply)), 200);
    assert_non_null(strstr(reply, "text/plain; version=0.0.4"));
    assert_non_null(strstr(reply, "freshet_x_total{model=\"m\"} 5\n"));
}

FR_CASE(head_is_get_without_the_body)
{
    struct scene *scene = *state;
    char reply[4096];
    fr_http_publish(scene->http, "/status", 200, "application/json", "{\"a\":1}", 7);
    assert_int_equal(
        exchange(scene, "HEAD /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", reply, sizeof(reply)),
        200);
    assert_non_null(strstr(reply, "Content-Length: 7\r\n"));
    assert_string_equal(strstr(reply, "\r\n\r\n"), "\r\n\r\n");
}

FR_CASE(other_methods_are_refused_with_those_that_are_allowed)
{
    struct scene *scene = *state;
    static const char *const requests[] = {
        "DELETE /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        char reply[4096];
        assert_int_equal(exchange(scene, requests[i], reply, sizeof(reply)), 405);
        assert_non_null(strstr(reply, "Allow: GET, HEAD\r\n"));
        assert_non_null(strstr(reply, "Connection: close\r\n"));
    }
}

/* A web page whose name points to this server sends that name as host. */
FR_CASE(a_request_for_another_host_is_refused)
{
    struct scene *scene = *state;
    static const struct {
        const char *host;
        int status;
    } hosts[] = {
        {"localhost", 200},      {"LocalHost:8080", 200},
        {"127.0.0.1:8080", 200}, {"10.1.2.3", 200},
        {"[::1]:8080", 200},     {"freshet.svc:8080", 200},
        {"evil.example", 403},   {"127.0.0.1.evil.example", 403},
        {"localhost.evil", 403}, {"freshet.svc.evil:8080", 403},
        {"[::1", 400},
    };
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        char text[256], reply[4096];
        snprintf(text, sizeof(text), "GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", hosts[i].host);
        assert_int_equal(exchange(scene, text, reply, sizeof(reply)), hosts[i].status);
    }
    char reply[4096];
    /* the absolute form's host is the one that counts */
    assert_int_equal(
        exchange(scene, "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                 reply, sizeof(reply)),
        403);
    assert_int_equal(exchange(scene, "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", reply, sizeof(reply)), 400);
    assert_int_equal(exchange(scene, "GET /healthz HTTP/1.0\r\n\r\n", reply, sizeof(reply)), 200);
}

FR_CASE(what_is_no_request_is_refused_and_closed)
{
    struct scene *scene = *state;
    static const struct {
        const char *text;
        int status;
    } requests[] = {
        {"GET /healthz\r\n\r\n", 400},
        {"GET /healthz HTTP/2.9\r\nHost: localhost\r\n\r\n", 505},
        {"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"get /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405},
        {"GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400},
        {"GET /heal\x01thz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"\x16\x03\x01\x02\r\n\r\n", 400}, /* TLS */
        {"GET /%68ealthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404},
        {"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: x, Close\r\n\r\n", 200},
        {"GET /healthz HTTP/1.1\nHost: localhost\nConnection: close\n\n", 200},
        {"GET /healthz?x=/y#z HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200},
        /* smuggled: what follows a body is not read as a request */
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
         "GET /auc HTTP/1.1\r\nHost: localhost\r\n\r\n",
         200},
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        char reply[4096];
        int status = exchange(scene, requests[i].text, reply, sizeof(reply));
        if (status != requests[i].status)
            fail_msg("%d instead of %d for: %s", status, requests[i].status, requests[i].text);
        assert_null(strstr(reply + 5, "HTTP/1.1")); /* one reply */
    }
}

FR_CASE(a_head_that_is_too_long_is_refused)
{
    struct scene *scene = *state;
    static char text[9000], reply[4096];
    memset(text, 'a', sizeof(text) - 1);
    memcpy(text, "GET /status HTTP/1.1\r\nX: ", 25);
    assert_int_equal(exchange(scene, text, reply, sizeof(reply)), 431);
    assert_int_equal(get(scene, "/healthz", reply, sizeof(reply)), 200);
}

static void put_problem(void *self, const char *source, const char *text)
{
    fr_buffer_printf(self, "%s: %s\n", source, text);
}

FR_CASE(the_problems_of_health_can_be_listed)
{
    struct scene *scene = *state;
    struct fr_buffer list = {0};
    fr_http_reason(scene->http, "publisher", "broker down");
    fr_http_reason(scene->http, "fold", "no room");
    fr_http_reason(scene->http, "publisher", NULL);
    (void)fr_http_watch(scene->http, "trainer", 1000);
    fr_clock_fake_advance_ms(&scene->clock, 1500);
    fr_http_visit_problems(scene->http, put_problem, &list);
    fr_buffer_terminate(&list);
    assert_string_equal((const char *)list.data, "trainer: no turn for 1500 ms; restart the daemon\nfold: no room\n");
    fr_buffer_release(&list);
}

FR_CASE(a_port_in_use_is_named)
{
    struct scene *scene = *state;
    struct fr_http *second = NULL;
    struct fr_err err = {0};
    struct fr_http_options options = {.host = "127.0.0.1",
                                      .port = fr_http_port(scene->http),
                                      .clock = &scene->clock.clock,
                                      .registry = scene->registry};
    assert_int_equal(fr_http_new(&options, &second, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "metrics.listen"));
    assert_null(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_published_document_is_served_until_it_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(the_problems_of_health_can_be_listed, setup, teardown),
        cmocka_unit_test_setup_teardown(health_is_degraded_with_a_reason_and_503_only_when_a_loop_is_stuck, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(metrics_are_rendered_on_request, setup, teardown),
        cmocka_unit_test_setup_teardown(head_is_get_without_the_body, setup, teardown),
        cmocka_unit_test_setup_teardown(other_methods_are_refused_with_those_that_are_allowed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_request_for_another_host_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_request_is_refused_and_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_head_that_is_too_long_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_port_in_use_is_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
