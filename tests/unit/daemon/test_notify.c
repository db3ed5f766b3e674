/* What the service manager gets: whole messages at the socket it named, or nothing. */
#include "case.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "notify.h"

static char folder[] = "/tmp/freshet-notify-XXXXXX";
static char path[64];

/* A socket of that name, as systemd has it; -1: the name is taken. */
static int listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(
        bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    return fd;
}

static void expect(int fd, const char *message)
{
    char got[256] = "";
    ssize_t size = recv(fd, got, sizeof(got) - 1, 0);
    assert_int_equal(size, message ? (ssize_t)strlen(message) : -1);
    assert_string_equal(got, message ? message : "");
}

FR_FIXTURE(begin)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/notify", folder);
    return 0;
}

FR_FIXTURE(end)
{
    unsetenv("NOTIFY_SOCKET");
    (void)unlink(path);
    return rmdir(folder);
}

FR_CASE(a_message_is_one_datagram)
{
    int fd = listen_at(path);
    fr_notify("STOPPING=1\nSTATUS=draining");
    fr_notify("WATCHDOG=1");
    expect(fd, "STOPPING=1\nSTATUS=draining");
    expect(fd, "WATCHDOG=1");
    expect(fd, NULL);
    close(fd);
    (void)unlink(path);
}

FR_CASE(a_name_may_be_of_the_abstract_namespace)
{
    char name[64];
    snprintf(name, sizeof(name), "@freshet-notify-%d", (int)getpid());
    int fd = listen_at(name);
    fr_notify("READY=1");
    expect(fd, "READY=1");
    close(fd);
}

FR_CASE(without_a_socket_that_takes_it_a_message_is_dropped)
{
    char longest[200];
    memset(longest, 'x', sizeof(longest));
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    const char *const names[] = {longest, "/", "@", "", "relative", "/nobody/listens"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", names[i], 1), 0);
        fr_notify("READY=1");
    }
    unsetenv("NOTIFY_SOCKET");
    fr_notify("READY=1");
}

FR_CASE(a_manager_that_does_not_read_is_not_waited_for)
{
    int fd = listen_at(path);
    for (int i = 0; i < 10000; i++) /* more than a socket holds */
        fr_notify("WATCHDOG=1");
    expect(fd, "WATCHDOG=1");
    close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_datagram),
        cmocka_unit_test(a_name_may_be_of_the_abstract_namespace),
        cmocka_unit_test(without_a_socket_that_takes_it_a_message_is_dropped),
        cmocka_unit_test(a_manager_that_does_not_read_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
