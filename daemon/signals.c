/* Signals, and the end of the process by abort.
 *
 * Only the main thread waits for signals; the threads it starts inherit the mask. A library may
 * have started threads before main (OpenBLAS does), with nothing blocked, so a handler passes
 * signals of those threads to the main thread. TERM, INT, QUIT and XCPU (the limit of processor
 * time) request a drain. A second TERM or INT ends the process at once. The kernel repeats XCPU
 * every second, which has no further effect. Other signals that would end the process are ignored,
 * except those that report a fault: a stray USR1 is no reason to stop.
 *
 * Libraries end a process by abort: a failed assertion, an uncaught exception, a damaged heap. A
 * supervisor would then get no log line and no exit code of ours. The handler of SIGABRT writes the
 * line, checks the resources that usually run short, and exits with the matching code. What was
 * durable is safe, as after every other end.
 *
 * Thread: the main one; the handlers run on any. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "durable/durable.h"
#include "exit_code.h"
#include "signals.h"

enum { MEMORY_PROBE = 16 << 20 }; /* about a thread's stack and a block of a file */

static pthread_t main_thread;
static char state_dir[PATH_MAX];
static const int drains[] = {SIGTERM, SIGINT, SIGQUIT, SIGXCPU};

/* ---- the end by abort ---- */

static bool disk_is_full(void)
{
    struct statvfs info;
    return state_dir[0] && statvfs(state_dir, &info) == 0 &&
           (unsigned long long)info.f_bavail * info.f_frsize < FR_DURABLE_OPEN_BYTES;
}

static bool memory_is_short(void)
{
    void *memory = mmap(NULL, MEMORY_PROBE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return true;
    (void)munmap(memory, MEMORY_PROBE);
    return false;
}

static void on_abort(int signal_number)
{
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    (void)signal_number;
    while (atomic_flag_test_and_set(&ending)) /* another thread's end is under way */
        pause();
    enum fr_status status = fr_check_status();
    const char *reason;
    if (status == FR_E_NO_MEMORY) {
        reason =
            "memory was refused (the line before has the amount): raise the limit of memory, or lower memory_limit";
    } else if (memory_is_short()) {
        status = FR_E_NO_MEMORY;
        reason = "memory is refused: raise the limit of the address space (ulimit -v, -d) or lower memory_limit";
    } else if (status == FR_E_STATE) {
        reason = "an internal check failed, which is a defect: start again, and report the line before";
    } else if (disk_is_full()) {
        status = FR_E_NO_SPACE;
        reason = "a library ended the process, and the disk under state_dir is full: free space on it and start again";
    } else {
        status = FR_E_STATE;
        reason =
            "a library ended the process, and the lines before may have the reason: start again; if it happens again, raise "
            "the limits of threads and memory, or report it with these lines";
    }
    int code = fr_exit_code(status);
    fr_log_last_words("daemon", "stopped", "code=%d status=%s reason=\"%s\"", code, fr_status_name(status), reason);
    _exit(code);
}

void fr_signals_aborts(const char *dir)
{
    struct sigaction action = {.sa_handler = on_abort};
    snprintf(state_dir, sizeof(state_dir), "%s", dir);
    FR_CHECK(sigaction(SIGABRT, &action, NULL) == 0);
}

/* ---- signals from outside ---- */

static void pass_on(int signal_number)
{
    /* this fails only after the main thread has ended, when no thread waits for signals */
    (void)pthread_kill(main_thread, signal_number);
}

/* Whether a signal keeps its action, because it reports a fault of this process, cannot be
 * handled, or does not end the process. */
static bool is_left(int signal_number)
{
    static const int left[] = {SIGABRT, SIGBUS,  SIGFPE,  SIGILL, SIGSEGV, SIGSYS,  SIGTRAP, SIGKILL,
                               SIGSTOP, SIGCHLD, SIGCONT, SIGURG, SIGTSTP, SIGTTIN, SIGWINCH};
    for (size_t i = 0; i < FR_ARRAY_LEN(left); i++)
        if (left[i] == signal_number)
            return true;
    return false;
}

/* Fills the set with the signals that fr_signals_wait returns. */
static void fill_with_awaited(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGHUP);
    for (size_t i = 0; i < FR_ARRAY_LEN(drains); i++)
        sigaddset(set, drains[i]);
}

void fr_signals_install(void)
{
    sigset_t set;
    fill_with_awaited(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    main_thread = pthread_self();
    /* sigaction fails for the signals that the C library uses itself. */
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction before;
        bool ours = sigismember(&set, number) == 1;
        const struct sigaction action = {.sa_handler = ours ? pass_on : SIG_IGN, .sa_flags = SA_RESTART};
        if (is_left(number) || sigaction(number, NULL, &before) != 0)
            continue;
        if (ours || before.sa_handler == SIG_DFL) /* a profiler's handler stays */
            (void)sigaction(number, &action, NULL);
    }
}

int fr_signals_wait(long most_ms)
{
    sigset_t set;
    fill_with_awaited(&set);
    struct timespec timeout = {.tv_nsec = most_ms * 1000000L};
    int number = sigtimedwait(&set, NULL, &timeout);
    if (number == SIGINT)
        return SIGTERM;
    if (number == SIGXCPU)
        return SIGQUIT;
    return number > 0 ? number : 0;
}
