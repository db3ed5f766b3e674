/* Connections of the HTTP server over real sockets: many, slow, greedy, without descriptors. */
#include "http_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>

/* No load makes a client that sends at once take so long, but where the end of a head is waited
 * for. */
enum { HEAD_MS = 3000, PATIENT_MS = 200000, DESCRIPTORS = 512 };

static const char keep[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

static struct fr_http *serve(struct fr_registry *registry, const char *host, uint32_t head_ms, struct fr_err *err)
{
    struct fr_http *http = NULL;
    struct fr_http_options options = {
        .host = host, .clock = fr_clock_system(), .registry = registry, .head_ms = head_ms};
    return fr_http_new(&options, &http, err) == FR_OK ? http : NULL;
}

FR_FIXTURE(setup)
{
    struct scene *scene = scene_new();
    scene->http = serve(scene->registry, "127.0.0.1", PATIENT_MS, NULL);
    assert_non_null(scene->http);
    *state = scene;
    return 0;
}

static void ask(int fd, const char *text)
{
    /* the server may have closed the connection already */
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Reads until `count` replies are there; returns how many there are when the server closes. */
static int replies(int fd, int count)
{
    char text[65536];
    size_t size = 0;
    int found = 0;
    while (found < count) {
        ssize_t n = recv(fd, text + size, sizeof(text) - 1 - size, 0);
        if (n <= 0)
            return found;
        size += (size_t)n;
        text[size] = '\0';
        found = 0;
        for (const char *at = text; (at = strstr(at, "\"reasons\":[]}\n")); at++)
            found++;
    }
    return found;
}

/* Waits until the server has closed the connection. */
static void expect_closed(int fd)
{
    char bytes[4096];
    while (recv(fd, bytes, sizeof(bytes), 0) > 0)
        ;
    close(fd);
}

static double series(const struct scene *scene, const char *name)
{
    struct fr_buffer out = {0};
    double value = -1;
    fr_registry_render(scene->registry, &out);
    fr_put_u8(&out, 0);
    const char *at = strstr((const char *)out.data, name);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(name), " %lf", &value), 1);
    fr_buffer_release(&out);
    return value;
}

FR_CASE(beyond_the_cap_the_connection_that_is_idle_longest_goes)
{
    struct scene *scene = *state;
    int held[FR_HTTP_CONNECTIONS_MAX];
    for (int i = 0; i < FR_HTTP_CONNECTIONS_MAX; i++) {
        held[i] = connect_to(scene);
        ask(held[i], keep);
        assert_int_equal(replies(held[i], 1), 1);
    }
    ask(held[0], keep); /* now the second is idle longest */
    assert_int_equal(replies(held[0], 1), 1);
    int probe = connect_to(scene);
    ask(probe, keep);
    assert_int_equal(replies(probe, 1), 1);
    expect_closed(held[1]);
    for (int i = 0; i < FR_HTTP_CONNECTIONS_MAX; i++) {
        if (i == 1)
            continue;
        ask(held[i], keep);
        assert_int_equal(replies(held[i], 1), 1);
        close(held[i]);
    }
    assert_true(series(scene, "freshet_http_connections_closed_total{model=\"m\",reason=\"place\"}") == 1);
    close(probe);
}

FR_CASE(connections_without_a_request_take_nobodys_place)
{
    struct scene *scene = *state;
    int held[4 * FR_HTTP_CONNECTIONS_MAX];
    for (int i = 0; i < 4 * FR_HTTP_CONNECTIONS_MAX; i++) {
        held[i] = connect_to(scene);
        ask(held[i], "GET /healthz HTTP/1.1\r\nX: ");
        if (i % 32 == 0) {
            int probe = connect_to(scene);
            ask(probe, keep);
            assert_int_equal(replies(probe, 1), 1);
            close(probe);
        }
    }
    for (int i = 0; i < 4 * FR_HTTP_CONNECTIONS_MAX; i++) {
        if (i < 3 * FR_HTTP_CONNECTIONS_MAX)
            expect_closed(held[i]);
        else
            close(held[i]);
    }
}

/* A byte now and then does not keep a connection open. */
FR_CASE(a_slow_head_has_an_end)
{
    struct scene *scene = *state;
    fr_http_free(scene->http);
    scene->http = serve(scene->registry, "127.0.0.1", HEAD_MS, NULL);
    int fd = connect_to(scene);
    ask(fd, "GET /healthz HTTP/1.1\r\nX: ");
    char byte;
    FR_UNTIL (recv(fd, &byte, 1, MSG_DONTWAIT) == 0) {
        (void)!send(fd, "a", 1, MSG_NOSIGNAL);
        usleep(HEAD_MS * 1000 / 8);
    }
    close(fd);
    fd = connect_to(scene); /* the head of a later request must end in time, too */
    ask(fd, keep);
    assert_int_equal(replies(fd, 1), 1);
    ask(fd, "GET");
    expect_closed(fd);
    ask(fd = connect_to(scene), keep);
    assert_int_equal(replies(fd, 1), 1);
    assert_true(series(scene, "freshet_http_connections_closed_total{model=\"m\",reason=\"time\"}") == 2);
    close(fd);
}

FR_CASE(requests_sent_at_once_are_answered_one_by_one)
{
    struct scene *scene = *state;
    char many[64 * sizeof(keep)] = "";
    for (int i = 0; i < 64; i++)
        strcat(many, keep);
    int fd = connect_to(scene);
    ask(fd, many);
    assert_int_equal(replies(fd, 64), 64);
    close(fd);
}

FR_CASE(without_descriptors_it_tries_now_and_then_and_continues)
{
    struct scene *scene = *state;
    struct rlimit before, low;
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int client = connect_to(scene), waiting = socket(AF_INET, SOCK_STREAM, 0), taken[2 * DESCRIPTORS], n = 0;
    ask(client, keep);
    assert_int_equal(replies(client, 1), 1);
    while ((taken[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    uint64_t begin_ns = fr_mono_ns(fr_clock_system());
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(fr_http_port(scene->http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(waiting, (struct sockaddr *)&address, sizeof(address)), 0);
    /* this connection was closed to make room: two descriptors are free, and are soon taken
     * again */
    expect_closed(client);
    while ((taken[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    ask(waiting, keep);
    usleep(700000);
    for (int i = 0; i < n; i++)
        close(taken[i]);
    assert_int_equal(replies(waiting, 1), 1);
    double tries = (double)(fr_mono_ns(fr_clock_system()) - begin_ns) / 200e6;
    double errors = series(scene, "freshet_http_accept_errors_total{model=\"m\"}");
    assert_true(errors >= 1 && errors <= tries + 1);
    close(waiting);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

FR_CASE(it_listens_on_ipv6)
{
    struct scene *scene = *state;
    struct fr_err err = {0};
    struct fr_http *http = serve(scene->registry, "::1", PATIENT_MS, &err);
    if (!http && strstr(err.text, "assign")) /* this machine has no IPv6 */
        skip();
    assert_non_null(http);
    struct sockaddr_in6 address = {
        .sin6_family = AF_INET6, .sin6_port = htons(fr_http_port(http)), .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ask(fd, "GET /healthz HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n");
    assert_int_equal(replies(fd, 1), 1);
    close(fd);
    fr_http_free(http);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(beyond_the_cap_the_connection_that_is_idle_longest_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(connections_without_a_request_take_nobodys_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_head_has_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_sent_at_once_are_answered_one_by_one, setup, teardown),
        cmocka_unit_test_setup_teardown(without_descriptors_it_tries_now_and_then_and_continues, setup, teardown),
        cmocka_unit_test_setup_teardown(it_listens_on_ipv6, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
