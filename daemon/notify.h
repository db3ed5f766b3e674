/* Messages to the service manager (notify.c). Any thread. */
#ifndef FR_DAEMON_NOTIFY_H
#define FR_DAEMON_NOTIFY_H

/* A start or a stop that takes long is not ended within this time after the message. */
#define FR_NOTIFY_EXTEND "EXTEND_TIMEOUT_USEC=30000000"
enum { FR_NOTIFY_EXTEND_MS = 5000 }; /* time between two such messages */

/* Sends assignments such as "READY=1", separated by line feeds. Without a service manager that
 * asked for messages, and where its socket does not take them, nothing happens. */
void fr_notify(const char *assignments);

#endif
