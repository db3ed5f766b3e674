/* freshetd: command line, configuration, exit code. The service itself is in wiring.c, run.c and
 * loops/. Exit codes (docs/commands.md, "Exit codes"): 0 drained, 1 failure, 2 config, 3 an
 * operator must decide (never restart), 75 try again. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include "config_check.h"
#include "init_command.h"
#include "job.h"
#include "process_limits.h"
#include "progress.h"
#include "service.h"
#include "signals.h"

enum { SETS_MAX = 256, ASKED_SKIPS_MAX = 256, CLOSE_LOOK_MS = 5 };

struct arguments {
    struct fr_service_options service;
    const char *as, *trace;
    const char *sets[SETS_MAX];
    size_t n_sets;
    struct fr_ingest_skip skips[ASKED_SKIPS_MAX];
    bool check, print_config, help, version;
    enum fr_log_level level;
};

static const char usage[] =
    "freshetd --config FILE [options]\n"
    "freshetd init --brokers B --topic T [options] > FILE\n"
    "\n"
    "  --config FILE        the YAML configuration (conf/OPTIONS.md lists every option)\n"
    "  --set path=value     overrides one option, e.g. --set metrics.listen=127.0.0.1:0; may be repeated\n"
    "  --check              checks the configuration and this process's limits, and exits: 0; 2 with every problem of\n"
    "                       the file; 3 or 75 when a limit of the process is too low\n"
    "  --print-config       prints the effective configuration and exits\n"
    "  --until end|TIME     drains and exits 0 at the ends the topics have at the start, or, partition by partition,\n"
    "                       before the first record of that Kafka timestamp or later (2026-01-02T03:04:05Z, Unix ms)\n"
    "  --skip TOPIC:PARTITION:FIRST-LAST\n"
    "                       passes over the records of these offsets, FIRST and LAST too: decoded and counted, not\n"
    "                       trained; recorded in the state, so later starts need not name it; may be repeated\n"
    "  --restore DIR        begins the state, which must not exist yet, from a savepoint, in a new timeline\n"
    "  --as NAME            another model of this configuration: model NAME, the state directory NAME next to the\n"
    "                       file's, topics NAME.delta and NAME.dead, a free port; --set comes after that\n"
    "  --new-timeline N     leaves timeline N, which the state is in, for a new one, once: replicas drop what the topic\n"
    "                       holds and take all of this state\n"
    "  --log LEVEL          debug, info (default), warn, error\n"
    "  --trace FILE         writes at the end what each thread did when (the newest 262144 phases of batches and epochs),\n"
    "                       as trace events that ui.perfetto.dev and chrome://tracing open\n"
    "  --version, --help\n"
    "\n"
    "SIGTERM drains: the current batch, a last epoch, published, exit 0. A second one, 1 s later, exits at once.\n"
    "Exit codes: 0 drained, 1 failure, 2 configuration, 3 an operator must decide, 75 try again.\n";

/* Writes a problem of the command line or of the configuration. */
__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
    char text[1400];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (size > 0)
        fr_log_text(text, (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1);
}

static bool parse_level(const char *text, struct arguments *out)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++)
        if (strcmp(text, names[i]) == 0) {
            out->level = (enum fr_log_level)i;
            return true;
        }
    complain("freshetd: --log %s: expected debug, info, warn or error\n", text);
    return false;
}

static bool parse_timeline(const char *text, struct arguments *out)
{
    char *end = NULL;
    errno = 0;
    uint64_t timeline = text[0] >= '1' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    out->service.left_timeline = timeline;
    if (timeline > 0 && *end == '\0' && errno == 0)
        return true;
    complain("freshetd: --new-timeline %s: expected the number of the timeline that the state is in and leaves\n",
             text);
    return false;
}

static bool parse_until(const char *text, struct arguments *out)
{
    out->service.until_end = true;
    out->service.until_ms = 0;
    if (strcmp(text, "end") == 0 || fr_conf_time(text, &out->service.until_ms))
        return true;
    complain("freshetd: --until %s: expected `end`, a time like 2026-01-02T03:04:05Z or Unix ms\n", text);
    return false;
}

static bool add_set(const char *text, struct arguments *out)
{
    if (out->n_sets == SETS_MAX) {
        complain("freshetd: more than %d --set\n", SETS_MAX);
        return false;
    }
    /* A text without `=` is refused here. Otherwise the next argument, probably the missing
     * value, would be refused as unknown. */
    if (!strchr(text, '=')) {
        complain("freshetd: --set %s: no value; expected path=value\n", text);
        return false;
    }
    out->sets[out->n_sets++] = text;
    return true;
}

static bool add_skip(const char *text, struct arguments *out)
{
    struct fr_err err = {0};
    if (out->service.n_skips == ASKED_SKIPS_MAX) {
        complain("freshetd: more than %d --skip\n", ASKED_SKIPS_MAX);
        return false;
    }
    if (fr_ingest_skip_parse(text, &out->skips[out->service.n_skips], &err)) {
        out->service.n_skips++;
        return true;
    }
    complain("freshetd: --skip %s: %s\n", text, err.text);
    return false;
}

static bool parse_option(int argc, char **argv, int *i, struct arguments *out)
{
    const char *name = argv[*i];
    const struct {
        const char *name;
        bool *flag;
        const char **text;
        bool (*parse)(const char *text, struct arguments *out);
    } options[] = {{"--check", .flag = &out->check},
                   {"--print-config", .flag = &out->print_config},
                   {"--help", .flag = &out->help},
                   {"-h", .flag = &out->help},
                   {"--version", .flag = &out->version},
                   {"--config", .text = &out->service.config},
                   {"--restore", .text = &out->service.restore},
                   {"--as", .text = &out->as},
                   {"--trace", .text = &out->trace},
                   {"--set", .parse = add_set},
                   {"--skip", .parse = add_skip},
                   {"--until", .parse = parse_until},
                   {"--new-timeline", .parse = parse_timeline},
                   {"--log", .parse = parse_level}};
    size_t o = 0;
    while (o < FR_ARRAY_LEN(options) && strcmp(name, options[o].name) != 0)
        o++;
    if (o == FR_ARRAY_LEN(options)) {
        complain("freshetd: unknown argument %s; see freshetd --help\n", name);
        return false;
    }
    if (options[o].flag)
        return *options[o].flag = true;
    if (*i + 1 >= argc) {
        complain("freshetd: %s needs a value; see freshetd --help\n", name);
        return false;
    }
    const char *value = argv[++*i];
    if (options[o].parse)
        return options[o].parse(value, out);
    *options[o].text = value;
    return true;
}

struct closing {
    struct fr_service *service;
    atomic_bool done;
};

static void *close_main(void *self)
{
    struct closing *closing = self;
    fr_service_close(closing->service);
    atomic_store(&closing->done, true);
    return NULL;
}

/* Closes the service within FR_CLOSE_S. Otherwise returns false, and the process must end: durable
 * epochs are safe, nothing else was promised, and librdkafka may wait a minute for the answer of a
 * broker that is gone. */
static bool close_in_time(struct fr_service *service)
{
    /* never freed if the thread does not end */
    struct closing *closing = fr_alloc(1, sizeof(*closing));
    pthread_t thread;
    const struct fr_clock *clock = service->clock;
    uint64_t until_ns = fr_mono_ns(clock) + FR_CLOSE_S * UINT64_C(1000000000);
    closing->service = service;
    if (!fr_thread_start(&thread, "close", close_main, closing)) {
        fr_log(FR_LOG_WARN, "daemon", "close_cut_short", "why=\"%s\" effect=\"none: what is durable is safe\"",
               FR_THREADS_SHORT);
        return false;
    }
    while (!atomic_load(&closing->done)) {
        if (fr_mono_ns(clock) >= until_ns) {
            fr_log(FR_LOG_WARN, "daemon", "close_cut_short", "seconds=%d effect=\"none: what is durable is safe\"",
                   FR_CLOSE_S);
            return false;
        }
        (void)poll(NULL, 0, CLOSE_LOOK_MS);
    }
    pthread_join(thread, NULL);
    free(closing);
    return true;
}

/* Logs an end that is not a drain. Returns the exit code. */
static int log_stopped(enum fr_status status, const struct fr_err *err)
{
    char text[2200];
    int code = fr_exit_code(status);
    fr_log_surely(FR_LOG_ERROR, "daemon", "stopped", "code=%d status=%s reason=%s", code, fr_status_name(status),
                  fr_log_quote(text, sizeof(text), err->text));
    return code;
}

/* Ends all ranks of the job with a code. MPI may end this process at once. */
static void end_job(struct fr_exchange *exchange, int code)
{
    if (!exchange)
        return;
    fr_log_flush();
    fr_exchange_stop(exchange, code);
}

static void end_trace(const char *path)
{
    struct fr_err err = {0};
    char text[600];
    uint64_t lost = 0;
    if (!path)
        return;
    if (fr_trace_close(&lost, &err) != FR_OK)
        fr_log(FR_LOG_WARN, "daemon", "trace", "problem=%s", fr_log_quote(text, sizeof(text), err.text));
    else
        fr_log(FR_LOG_INFO, "daemon", "trace", "file=%s lost=%" PRIu64, fr_log_quote(text, sizeof(text), path), lost);
}

static int run(struct fr_conf *conf, const struct arguments *arguments)
{
    struct fr_err err = {0};
    if (arguments->trace && fr_trace_open(arguments->trace, &err) != FR_OK)
        return log_stopped(FR_E_INVALID, &err);
    struct fr_service *service = fr_alloc(1, sizeof(*service));
    service->conf = conf;
    service->options = arguments->service;
    service->clock = fr_clock_system();
    enum fr_status status = fr_service_open(service, &err);
    if (status == FR_OK)
        status = fr_service_run(service, &err);
    int code = FR_EXIT_OK;
    char text[2200] = "";
    if (status != FR_OK) { /* logged before the close, which may fail after such an error */
        code = log_stopped(status, &err);
        end_job(service->options.exchange, code);
    } else {
        fr_progress_end(service, text, sizeof(text));
    }
    bool closed = close_in_time(service);
    end_trace(arguments->trace);
    /* this must be the last line, because no other thread is left to write the log */
    if (status == FR_OK)
        fr_log_last(FR_LOG_INFO, "daemon", "drained", "%s", text);
    if (!closed) {
        fr_log_flush();
        _exit(code);
    }
    free(service);
    return code;
}

/* Logs the configuration's warnings, one line each. */
static void log_warnings(struct fr_buffer *warnings)
{
    char quoted[1400];
    fr_put_u8(warnings, 0);
    char *rest = (char *)warnings->data;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (line[0])
            fr_log(FR_LOG_WARN, "config", "warning", "text=%s", fr_log_quote(quoted, sizeof(quoted), line));
}

static enum fr_status check_machine(const struct fr_conf *conf, struct fr_err *err)
{
    enum fr_status status = fr_store_check_machine(conf, err);
    return status == FR_OK && conf->device != FR_DEVICE_CUDA ? fr_graph_check_machine(conf, err) : status;
}

/* Ends a start that lacks the resources for its checks. It uses _exit, because libraries that
 * were refused threads before main fail in their own cleanup, and Freshet has nothing to close
 * yet. */
__attribute__((noreturn)) static void refuse(enum fr_status status, const struct fr_err *err)
{
    int code = log_stopped(status, err);
    fr_log_flush();
    _exit(code);
}

/* Does what the command line requests, with a configuration that was loaded. Returns the exit
 * code. */
static int run_command(struct fr_conf *conf, const struct arguments *arguments, struct fr_buffer *warnings)
{
    struct fr_buffer text = {0};
    struct fr_err err = {0};
    enum fr_status status;
    int code = FR_EXIT_OK;
    fr_limits_raise_files();
    fr_signals_aborts(conf->state_dir);
    if (arguments->print_config) {
        fr_conf_print(conf, &text);
        fwrite(text.data, 1, text.size, stdout);
    } else if ((status = fr_limits_check(conf, &err)) != FR_OK) {
        refuse(status, &err);
    } else if (check_machine(conf, &err) != FR_OK) {
        complain("%s: %s\n", arguments->service.config, err.text);
        code = FR_EXIT_CONFIG;
    } else if (!fr_service_check_clients(conf, arguments->service.config, &text)) {
        fr_log_text((const char *)text.data, text.size);
        code = FR_EXIT_CONFIG;
    } else if (arguments->check) {
        fr_limits_warn(conf, fr_machine(), arguments->service.config, warnings);
        fr_service_check_warnings(conf, arguments->service.config, warnings);
        printf("%.*s%s: ok\n", (int)warnings->size, (const char *)warnings->data, arguments->service.config);
    } else {
        fr_limits_log_machine();
        fr_limits_warn(conf, fr_machine(), arguments->service.config, warnings);
        log_warnings(warnings);
        fr_limits_keep_freed(conf->memory_limit);
        code = run(conf, arguments);
    }
    fr_buffer_release(&text);
    return code;
}

/* ---- another model of the same configuration ---- */

enum { AS_SETS = 5, AS_BYTES = 1200 };

/* Writes, as --set, the options that each model must have for itself. The operator's --set follow
 * and take precedence. */
static bool name_sets(const struct fr_conf *conf, const char *name, char sets[AS_SETS][AS_BYTES], struct fr_buffer *out)
{
    const char *dir = conf->state_dir;
    size_t above = strlen(dir);
    while (above > 1 && dir[above - 1] == '/')
        above--;
    while (above > 0 && dir[above - 1] != '/')
        above--;
    if (strcmp(name, conf->model) == 0) {
        fr_buffer_printf(out,
                         "freshetd: --as %.120s: that is the model of the configuration itself, whose topics would be "
                         "taken over; choose another name, or leave --as out\n",
                         name);
        return false;
    }
    bool ipv6 = strchr(conf->metrics.listen_host, ':') != NULL;
    const int lengths[AS_SETS] = {
        snprintf(sets[0], AS_BYTES, "model=%s", name),
        snprintf(sets[1], AS_BYTES, "state_dir=%.*s%s", (int)above, dir, name),
        snprintf(sets[2], AS_BYTES, "export.topic=%s.delta", name),
        snprintf(sets[3], AS_BYTES, "ingest.dead_letter_topic=%s.dead", name),
        snprintf(sets[4], AS_BYTES, "metrics.listen=\"%s%s%s:0\"", ipv6 ? "[" : "", conf->metrics.listen_host,
                 ipv6 ? "]" : ""),
    };
    for (size_t i = 0; i < AS_SETS; i++)
        if (lengths[i] < 0 || lengths[i] >= AS_BYTES) {
            fr_buffer_printf(out, "freshetd: --as %.100s: too long\n", name);
            return false;
        }
    return true;
}

/* All --set: those of --as, the operator's, those of a rank. */
struct sets {
    char as[AS_SETS][AS_BYTES], job[FR_JOB_SETS][FR_JOB_SET_BYTES];
    const char *all[AS_SETS + SETS_MAX + FR_JOB_SETS];
    size_t n;
};

static void add_sets(struct sets *sets, const char *const *more, size_t n)
{
    memcpy(sets->all + sets->n, more, n * sizeof(more[0]));
    sets->n += n;
}

/* Loads the configuration, in place of *out. */
static enum fr_status load_sets(const struct arguments *arguments, const struct sets *sets, struct fr_conf **out,
                                struct fr_buffer *warnings, struct fr_buffer *problems)
{
    struct fr_conf_load_options options = {
        .path = arguments->service.config, .sets = sets->all, .n_sets = sets->n, .warnings = warnings};
    fr_conf_free(*out);
    *out = NULL;
    fr_buffer_clear(warnings);
    return fr_conf_load(&options, out, problems);
}

static enum fr_status load(const struct arguments *arguments, struct sets *sets, struct fr_conf **out,
                           struct fr_buffer *warnings, struct fr_buffer *problems)
{
    const char *as[AS_SETS];
    add_sets(sets, arguments->sets, arguments->n_sets);
    enum fr_status status = load_sets(arguments, sets, out, warnings, problems);
    if (status != FR_OK || !arguments->as)
        return status;
    if (!name_sets(*out, arguments->as, sets->as, problems))
        return FR_E_INVALID;
    for (size_t i = 0; i < AS_SETS; i++)
        as[i] = sets->as[i];
    sets->n = 0;
    add_sets(sets, as, AS_SETS);
    add_sets(sets, arguments->sets, arguments->n_sets);
    return load_sets(arguments, sets, out, warnings, problems);
}

/* ---- a job of several ranks ---- */

static enum fr_status join_job(struct arguments *arguments, const struct fr_conf *conf, struct fr_err *err)
{
    enum fr_status status = fr_job_check_directory(conf->state_dir, conf->ranks, err);
    if (status != FR_OK || conf->ranks == 1)
        return status;
    if (arguments->service.restore || arguments->service.left_timeline)
        return fr_err_set(err, FR_E_INVALID,
                          "--restore and --new-timeline are for one rank in this version, and scale.ranks is %" PRIu32,
                          conf->ranks);
    return fr_job_join(conf, &arguments->service.exchange, err);
}

/* Loads the configuration again, with what is this rank's own. */
static bool load_rank(const struct arguments *arguments, struct sets *sets, struct fr_conf **conf,
                      struct fr_buffer *warnings)
{
    struct fr_buffer problems = {0};
    const char *job[FR_JOB_SETS];
    bool loaded = fr_job_sets(*conf, fr_exchange_rank(arguments->service.exchange), sets->job, &problems);
    for (size_t i = 0; i < FR_JOB_SETS; i++)
        job[i] = sets->job[i];
    add_sets(sets, job, FR_JOB_SETS);
    loaded = loaded && load_sets(arguments, sets, conf, warnings, &problems) == FR_OK;
    fr_log_text((const char *)problems.data, problems.size);
    fr_buffer_release(&problems);
    return loaded;
}

/* Runs the loaded configuration, alone or as a rank. Returns the exit code. */
static int run_loaded(struct arguments *arguments, struct sets *sets, struct fr_conf **conf, struct fr_buffer *warnings)
{
    struct fr_err err = {0};
    char label[200];
    int code = FR_EXIT_CONFIG;
    bool runs = !arguments->check && !arguments->print_config;
    snprintf(label, sizeof(label), "model=%s", (*conf)->model);
    fr_log_set_label(label);
    enum fr_status status = runs ? join_job(arguments, *conf, &err) : FR_OK;
    struct fr_exchange *exchange = arguments->service.exchange;
    if (status != FR_OK) {
        code = log_stopped(status, &err);
    } else if (!exchange) {
        code = run_command(*conf, arguments, warnings);
    } else if (load_rank(arguments, sets, conf, warnings)) {
        snprintf(label, sizeof(label), "model=%s rank=%" PRIu32, (*conf)->model, fr_exchange_rank(exchange));
        fr_log_set_label(label);
        code = run_command(*conf, arguments, warnings);
    }
    if (code != FR_EXIT_OK)
        end_job(exchange, code);
    fr_exchange_free(exchange); /* does not return after the end of the job */
    return code;
}

static int load_and_run(struct arguments *arguments)
{
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0}, warnings = {0};
    struct sets *sets = fr_alloc(1, sizeof(*sets));
    int code = FR_EXIT_CONFIG;
    if (load(arguments, sets, &conf, &warnings, &problems) != FR_OK)
        fr_log_text((const char *)problems.data, problems.size);
    else
        code = run_loaded(arguments, sets, &conf, &warnings);
    fr_buffer_release(&problems);
    fr_buffer_release(&warnings);
    fr_conf_free(conf);
    free(sets);
    return code;
}

/* OpenBLAS starts a thread for each processor before main, and raises SIGINT if a thread is
 * refused, which would end the process without a log line. Freshet does not compute on those
 * threads and checks for threads itself at the start, so SIGINT is ignored until main. Sanitizers
 * must initialize first and are left out. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static struct sigaction interrupt;

static void ignore_interrupt(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGINT, &ignore, &interrupt);
}

static void restore_interrupt(void)
{
    (void)sigaction(SIGINT, &interrupt, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = ignore_interrupt;
#else
static void restore_interrupt(void)
{
}
#endif

/* Opens descriptors 0, 1 and 2 if they are closed. Otherwise the next file would get such a number,
 * and the log would be written into that file. */
static void fill_standard_files(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static int start(int argc, char **argv)
{
    struct arguments arguments = {.level = FR_LOG_INFO};
    arguments.service.skips = arguments.skips;
    if (argc > 1 && strcmp(argv[1], "init") == 0)
        return fr_init_command(argc - 1, argv + 1);
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
    if (!arguments.service.config) {
        complain("freshetd: --config FILE is missing; see freshetd --help\n");
        return FR_EXIT_CONFIG;
    }
    fr_log_set_level(arguments.level);
    umask(077);
    (void)prctl(PR_SET_DUMPABLE, 0); /* core dumps hold secrets; best effort */
    if (!arguments.check && !arguments.print_config)
        fr_signals_install();
    return load_and_run(&arguments);
}

int main(int argc, char **argv)
{
    restore_interrupt();
    fr_signals_aborts("");
    fill_standard_files();
    if (!fr_log_start())
        fr_log(FR_LOG_WARN, "log", "no_thread", "note=\"lines that cannot be written at once are lost\"");
    int code = start(argc, argv);
    fr_log_flush();
    return code;
}
