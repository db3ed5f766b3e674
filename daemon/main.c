/* freshetd: command line, configuration, signals, exit code. The service itself is in service.c and
 * loops.c. Exit codes (DESIGN section 8): 0 drained, 1 failure, 2 config, 3 an operator must decide
 * (never restart), 75 try again. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "service.h"

enum { SETS_MAX = 256, FILES_MAX = 65536 };

struct arguments {
    const char *config, *restore;
    const char *sets[SETS_MAX];
    size_t n_sets;
    bool check, print_config, until_end, help, version;
    int64_t until_ms;
    enum fr_log_level level;
};

static const char usage[] =
    "freshetd --config FILE [options]\n"
    "\n"
    "  --config FILE        the YAML configuration (conf/OPTIONS.md lists every option)\n"
    "  --set path=value     overrides one option, e.g. --set metrics.listen=127.0.0.1:0; may be repeated\n"
    "  --check              checks the configuration and exits: 0, or 2 with every problem\n"
    "  --print-config       prints the effective configuration and exits\n"
    "  --until end|TIME     drains and exits 0 at the ends the topics have at the start, or, partition by partition,\n"
    "                       before the first record of that Kafka timestamp or later (2026-01-02T03:04:05Z, Unix ms)\n"
    "  --restore DIR        begins the state, which must not exist yet, from a savepoint, in a new timeline\n"
    "  --log LEVEL          debug, info (default), warn, error\n"
    "  --version, --help\n"
    "\n"
    "SIGTERM drains: the current batch, a last epoch, published, exit 0. A second one, 1 s later, exits at once.\n"
    "Exit codes: 0 drained, 1 failure, 2 configuration, 3 an operator must decide, 75 try again.\n";

static bool parse_level(const char *text, enum fr_log_level *out)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum fr_log_level)i;
            return true;
        }
    fprintf(stderr, "freshetd: --log %s: expected debug, info, warn or error\n", text);
    return false;
}

static bool parse_until(const char *text, struct arguments *out)
{
    out->until_end = true;
    out->until_ms = 0;
    if (strcmp(text, "end") == 0 || fr_conf_time(text, &out->until_ms))
        return true;
    fprintf(stderr, "freshetd: --until %s: expected `end`, a time like 2026-01-02T03:04:05Z or Unix ms\n", text);
    return false;
}

static bool add_set(const char *text, struct arguments *out)
{
    if (out->n_sets == SETS_MAX) {
        fprintf(stderr, "freshetd: more than %d --set\n", SETS_MAX);
        return false;
    }
    /* here, before the value that follows by mistake is named as unknown */
    if (!strchr(text, '=')) {
        fprintf(stderr, "freshetd: --set %s: no value; expected path=value\n", text);
        return false;
    }
    out->sets[out->n_sets++] = text;
    return true;
}

static bool parse_option(int argc, char **argv, int *i, struct arguments *out)
{
    const char *name = argv[*i];
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--check", &out->check},
                 {"--print-config", &out->print_config},
                 {"--help", &out->help},
                 {"-h", &out->help},
                 {"--version", &out->version}};
    for (size_t f = 0; f < FR_ARRAY_LEN(flags); f++)
        if (strcmp(name, flags[f].name) == 0)
            return *flags[f].flag = true;
    if (strcmp(name, "--new-timeline") == 0) {
        fprintf(stderr, "freshetd: %s is not in this version\n", name);
        return false;
    }
    bool config = strcmp(name, "--config") == 0, set = strcmp(name, "--set") == 0, until = strcmp(name, "--until") == 0;
    bool restore = strcmp(name, "--restore") == 0;
    if (!config && !set && !until && !restore && strcmp(name, "--log") != 0) {
        fprintf(stderr, "freshetd: unknown argument %s; see freshetd --help\n", name);
        return false;
    }
    if (*i + 1 >= argc) {
        fprintf(stderr, "freshetd: %s needs a value; see freshetd --help\n", name);
        return false;
    }
    const char *value = argv[++*i];
    if (config || restore)
        return (*(config ? &out->config : &out->restore) = value) != NULL;
    return set ? add_set(value, out) : until ? parse_until(value, out) : parse_level(value, &out->level);
}

struct closing {
    struct fr_service *service;
    sem_t done;
};

static void *close_main(void *self)
{
    struct closing *closing = self;
    fr_service_close(closing->service);
    (void)sem_post(&closing->done); /* cannot overflow */
    return NULL;
}

/* Closes within FR_CLOSE_S, or gives up with false, and the process must end: what is durable is
 * safe, what is not was never promised, and librdkafka may wait a minute for the answer of a broker
 * that is gone. */
static bool close_in_time(struct fr_service *service)
{
    /* left to a thread that does not end */
    struct closing *closing = fr_alloc(1, sizeof(*closing));
    pthread_t thread;
    struct timespec until;
    closing->service = service;
    FR_CHECK(sem_init(&closing->done, 0, 0) == 0);
    FR_CHECK(fr_thread_start(&thread, "close", close_main, closing));
    clock_gettime(CLOCK_REALTIME, &until); /* the only clock of sem_timedwait */
    until.tv_sec += FR_CLOSE_S;
    while (sem_timedwait(&closing->done, &until) != 0) {
        if (errno == EINTR)
            continue;
        fr_log(FR_LOG_WARN, "daemon", "close_cut_short", "seconds=%d effect=\"none: what is durable is safe\"",
               FR_CLOSE_S);
        return false;
    }
    pthread_join(thread, NULL);
    sem_destroy(&closing->done);
    free(closing);
    return true;
}

static int run(struct fr_conf *conf, const struct arguments *arguments)
{
    struct fr_service *service = fr_alloc(1, sizeof(*service));
    service->conf = conf;
    service->config = arguments->config;
    service->clock = fr_clock_system();
    service->until_end = arguments->until_end;
    service->until_ms = arguments->until_ms;
    service->restore = arguments->restore;
    struct fr_err err = {0};
    enum fr_status status = fr_service_open(service, &err);
    if (status == FR_OK)
        status = fr_service_run(service, &err);
    int code = fr_exit_code(status);
    char text[2200] = "";
    if (status != FR_OK) /* at once: what is closed now may be broken */
        fr_log(FR_LOG_ERROR, "daemon", "stopped", "code=%d status=%s reason=%s", code, fr_status_name(status),
               fr_log_quote(text, sizeof(text), err.text));
    else
        fr_progress_end(service, text, sizeof(text));
    bool closed = close_in_time(service);
    if (status == FR_OK) /* the last line: nobody is left who could add one */
        fr_log_last(FR_LOG_INFO, "daemon", "drained", "%s", text);
    if (!closed)
        _exit(code);
    free(service);
    return code;
}

/* Signals are waited for by the main thread only; the threads it starts inherit the mask. A library
 * may have started threads before main (OpenBLAS does), with nothing blocked: what the kernel hands
 * to one of those is passed on. */
static pthread_t main_thread;

static void pass_on(int signal_number)
{
    /* fails only where there is nobody left to tell */
    (void)pthread_kill(main_thread, signal_number);
}

static void take_signals(void)
{
    static const int taken[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < FR_ARRAY_LEN(taken); i++)
        sigaddset(&set, taken[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < FR_ARRAY_LEN(taken); i++)
        FR_CHECK(sigaction(taken[i], &action, NULL) == 0);
    signal(SIGPIPE, SIG_IGN);
}

/* As many open files as the process may give itself: every sorted file of the cold store and of the
 * journal is one. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES_MAX)
        return;
    limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* what is too few the cold store refuses, by name */
}

/* The configuration's warnings, each a line of the log. */
static void log_warnings(struct fr_buffer *warnings)
{
    char quoted[1400];
    fr_put_u8(warnings, 0);
    char *rest = (char *)warnings->data;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (line[0])
            fr_log(FR_LOG_WARN, "config", "warning", "text=%s", fr_log_quote(quoted, sizeof(quoted), line));
}

/* What the command line asks for with a configuration that loaded; the exit code. */
static int go_on(struct fr_conf *conf, const struct arguments *arguments, struct fr_buffer *warnings)
{
    struct fr_buffer text = {0};
    struct fr_err err = {0};
    int code = FR_EXIT_OK;
    if (arguments->print_config) {
        fr_conf_print(conf, &text);
        fwrite(text.data, 1, text.size, stdout);
    } else if (fr_graph_check_machine(conf, &err) != FR_OK) {
        fprintf(stderr, "%s: %s\n", arguments->config, err.text);
        code = FR_EXIT_CONFIG;
    } else if (!fr_service_check_clients(conf, arguments->config, &text)) {
        fwrite(text.data, 1, text.size, stderr);
        code = FR_EXIT_CONFIG;
    } else if (arguments->check) {
        fr_service_check_warnings(conf, arguments->config, warnings);
        printf("%.*s%s: ok\n", (int)warnings->size, (const char *)warnings->data, arguments->config);
    } else {
        log_warnings(warnings);
        raise_file_limit();
        code = run(conf, arguments);
    }
    fr_buffer_release(&text);
    return code;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.level = FR_LOG_INFO};
    for (int i = 1; i < argc; i++)
        if (!parse_option(argc, argv, &i, &arguments))
            return FR_EXIT_CONFIG;
    if (arguments.help) {
        fputs(usage, stdout);
        return FR_EXIT_OK;
    }
    if (arguments.version) {
        puts("freshetd " FR_VERSION);
        return FR_EXIT_OK;
    }
    if (!arguments.config) {
        fputs("freshetd: --config FILE is missing; see freshetd --help\n", stderr);
        return FR_EXIT_CONFIG;
    }
    fr_log_set_level(arguments.level);
    umask(077);
    (void)prctl(PR_SET_DUMPABLE, 0); /* core dumps hold secrets; best effort */

    take_signals();

    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0}, warnings = {0};
    struct fr_conf_load_options load = {
        .path = arguments.config, .sets = arguments.sets, .n_sets = arguments.n_sets, .warnings = &warnings};
    int code = FR_EXIT_CONFIG;
    if (fr_conf_load(&load, &conf, &problems) != FR_OK) {
        fwrite(problems.data, 1, problems.size, stderr);
    } else {
        char label[160];
        snprintf(label, sizeof(label), "model=%s", conf->model);
        fr_log_set_label(label);
        code = go_on(conf, &arguments, &warnings);
    }
    fr_buffer_release(&problems);
    fr_buffer_release(&warnings);
    fr_conf_free(conf);
    return code;
}
