/* Signals of the process (signals.c). Main thread. */
#ifndef FR_DAEMON_SIGNALS_H
#define FR_DAEMON_SIGNALS_H

/* Blocks the signals that fr_signals_wait returns, and ignores other signals that would end the
 * process. */
void fr_signals_install(void);
/* Waits for a signal. Returns SIGTERM (also for SIGINT), SIGQUIT (also for SIGXCPU), SIGHUP, or 0
 * when none came. */
int fr_signals_wait(long most_ms);
/* Makes an abort end the process with a line of the log and an exit code. dir: the directory
 * whose disk an abort checks for room. */
void fr_signals_aborts(const char *dir);

#endif
