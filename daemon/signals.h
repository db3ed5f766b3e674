/* Signals of the process (signals.c). Main thread. */
#ifndef FR_DAEMON_SIGNALS_H
#define FR_DAEMON_SIGNALS_H

/* Blocks and takes the signals that ask for something, ignores others that would end the
 * process. */
void fr_signals_take(void);
/* Waits for one of ours: SIGTERM, also for SIGINT; SIGQUIT, also for SIGXCPU; SIGHUP; 0: none. */
int fr_signals_wait(long most_ms);
/* From here on an abort ends with a line and an exit code; the disk of `dir` is checked for
 * room. */
void fr_signals_aborts(const char *dir);

#endif
