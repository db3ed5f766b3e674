/* Running a hook (hook.h): posix_spawn, then polling, so that no thread waits for the process.
 *
 * The process begins without blocked signals, with the default action of each signal, and in a
 * process group of its own, so that the processes it starts end with it. If the daemon is killed,
 * the hook continues to run, and the next daemon may start it a second time. A hook must therefore
 * tolerate being repeated and running twice at once.
 *
 * Thread: the owner of the struct. A failed hook is not repeated here. */
#include "loops/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

extern char **environ;

bool fr_hook_runs(const struct fr_hook *hook)
{
    return hook->pid > 0;
}

static int spawn(pid_t *pid, char **arguments)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawn_file_actions_init(&files);
    FR_CHECK(rc == 0);
    rc = posix_spawnattr_init(&attributes);
    FR_CHECK(rc == 0);
    rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0) /* the log's descriptor is in blocking mode, the daemon's standard error is not */
        rc = posix_spawn_file_actions_adddup2(&files, fr_log_descriptor(), STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(&attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(&attributes, &all);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(&attributes, 0);
    if (rc == 0)
        rc = posix_spawnattr_setflags(&attributes,
                                      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    if (rc == 0)
        rc = posix_spawn(pid, arguments[0], &files, &attributes, arguments, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return rc;
}

enum fr_status fr_hook_start(struct fr_hook *hook, const struct fr_hook_command *command, const struct fr_clock *clock,
                             struct fr_err *err)
{
    FR_CHECK(!fr_hook_runs(hook) && command->n > 0);
    char **arguments = fr_alloc(command->n + 2u, sizeof(*arguments));
    char *last = fr_strdup(command->last);
    memcpy(arguments, command->arguments, command->n * sizeof(*arguments));
    arguments[command->n] = last;
    pid_t pid = 0;
    int rc = spawn(&pid, arguments);
    free(last);
    free(arguments);
    if (rc != 0)
        return fr_err_set(err,
                          rc == ENOENT   ? FR_E_NOT_FOUND
                          : rc == EACCES ? FR_E_DENIED
                                         : FR_E_IO,
                          "snapshot.hook: %s did not start: %s", command->arguments[0], strerror(rc));
    *hook = (struct fr_hook){.pid = pid, .begin_ns = fr_mono_ns(clock), .timeout_ms = command->timeout_ms};
    return FR_OK;
}

enum fr_status fr_hook_poll(struct fr_hook *hook, const struct fr_clock *clock, struct fr_err *err)
{
    int ended = 0;
    FR_CHECK(fr_hook_runs(hook));
    pid_t pid = waitpid(hook->pid, &ended, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) {
        if ((int64_t)((fr_mono_ns(clock) - hook->begin_ns) / 1000000) < hook->timeout_ms)
            return FR_AGAIN;
        int64_t timeout_ms = hook->timeout_ms;
        fr_hook_end(hook);
        return fr_err_set(err, FR_E_UNAVAILABLE,
                          "snapshot.hook ran for %" PRId64
                          " ms and was ended: look at what it does, or raise snapshot.hook_timeout",
                          timeout_ms);
    }
    (void)kill(-hook->pid, SIGKILL); /* ends processes that the hook left running */
    hook->pid = 0;
    if (pid < 0)
        return fr_err_set(err, FR_E_IO, "snapshot.hook: cannot wait for it: %s", strerror(errno));
    if (WIFSIGNALED(ended))
        return fr_err_set(err, FR_E_STATE, "snapshot.hook was ended by signal %d", WTERMSIG(ended));
    return WEXITSTATUS(ended) == 0 ? FR_OK
                                   : fr_err_set(err, FR_E_STATE,
                                                "snapshot.hook ended with exit status %d: its output "
                                                "is in this log",
                                                WEXITSTATUS(ended));
}

void fr_hook_end(struct fr_hook *hook)
{
    int ended;
    if (!fr_hook_runs(hook))
        return;
    (void)kill(-hook->pid, SIGKILL);
    while (waitpid(hook->pid, &ended, 0) < 0 && errno == EINTR)
        ;
    hook->pid = 0;
}
