/* Messages to the service manager, by the protocol that systemd documents in sd_notify(3): one
 * datagram for each message, to the socket that NOTIFY_SOCKET names. An @ at the beginning of the
 * name stands for the null byte of the abstract namespace.
 *
 * The daemon sends READY=1 once the state is recovered and the loops run, so a state that a
 * start refuses makes the start of the unit fail. /healthz answers before that; brokers need not
 * answer. WATCHDOG=1 follows each turn of the main loop while /healthz is not 503, so a loop
 * that is stuck ends the process. STOPPING=1 begins a drain. While a recovery or a drain is
 * under way, its timeout is extended, so the unit's timeouts need not depend on the size of the
 * state.
 *
 * A message that cannot be sent at once is dropped, because nothing waits for a service manager. */
#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void fr_notify(const char *assignments)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    size_t length = name ? strlen(name) : 0;
    if (length < 2 || length >= sizeof(address.sun_path) || (name[0] != '/' && name[0] != '@'))
        return;
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, assignments, strlen(assignments), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(fd);
}
