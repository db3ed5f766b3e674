/* See process.h. */
#include "process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fts.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { HTTP_BODY_MAX = 16 << 20, HTTP_WAIT_S = 5, POLL_MS = 10 };

static void redirect(const char *path, int to)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(127);
}

pid_t fr_bench_process_start(const char *const *argv, const char *out_path, const char *err_path)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent)
        _exit(127);
    redirect("/dev/null", STDIN_FILENO);
    redirect(out_path, STDOUT_FILENO);
    redirect(err_path, STDERR_FILENO);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

bool fr_bench_process_ended(pid_t pid, int *code)
{
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) != pid)
        return false;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

int fr_bench_process_stop(pid_t pid, int signal_number, double seconds)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    uint64_t end = fr_mono_ns(fr_clock_system()) + (uint64_t)(seconds * 1e9);
    int code = -1;
    if (signal_number)
        kill(pid, signal_number);
    while (!fr_bench_process_ended(pid, &code)) {
        if (fr_mono_ns(fr_clock_system()) > end)
            kill(pid, SIGKILL);
        nanosleep(&pause, NULL);
    }
    return code;
}

double fr_bench_process_cpu_seconds(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    /* the name may hold anything; fields are counted from its end */
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 14; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return 0.0;
    char *rest = NULL;
    unsigned long long user = strtoull(at, &rest, 10), system = strtoull(rest, NULL, 10);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static bool exchange(int fd, const char *request, struct fr_buffer *answer)
{
    size_t size = strlen(request);
    if (send(fd, request, size, MSG_NOSIGNAL) != (ssize_t)size)
        return false;
    while (answer->size < HTTP_BODY_MAX) {
        ssize_t n = recv(fd, fr_buffer_reserve(answer, 65536), 65536, 0);
        if (n == 0)
            return true;
        if (n < 0)
            return false;
        answer->size += (size_t)n;
    }
    return false;
}

bool fr_bench_http_get(uint16_t port, const char *path, struct fr_buffer *body)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval limit = {.tv_sec = HTTP_WAIT_S};
    struct fr_buffer answer = {0};
    char request[256];
    int n = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && n > 0 && (size_t)n < sizeof(request) &&
              setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
              connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && exchange(fd, request, &answer);
    fr_put_u8(&answer, 0);
    const char *text = (const char *)answer.data, *end = ok ? strstr(text, "\r\n\r\n") : NULL;
    ok = end && strncmp(text, "HTTP/1.1 200", 12) == 0;
    if (ok)
        fr_buffer_append(body, end + 4, answer.size - 1 - (size_t)(end + 4 - text));
    if (fd >= 0)
        close(fd);
    fr_buffer_release(&answer);
    return ok;
}

bool fr_bench_scratch_make(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/freshet-bench-XXXXXX", parent ? parent : "/tmp");
    return n > 0 && (size_t)n < size && mkdtemp(path) != NULL;
}

void fr_bench_scratch_remove(char *path)
{
    char *paths[] = {path, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    bool ok = tree != NULL;
    for (FTSENT *entry = tree ? fts_read(tree) : NULL; entry; entry = fts_read(tree))
        /* directories after what they hold */
        if (entry->fts_info != FTS_D && remove(entry->fts_accpath) != 0)
            ok = false;
    if (tree)
        fts_close(tree);
    if (!ok)
        fprintf(stderr, "freshet-bench: %s could not be removed\n", path);
}
