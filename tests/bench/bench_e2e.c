/* `freshet-bench e2e`: freshetd trains R16 from a Kafka topic and publishes its deltas; its rate
 * beside the roof.
 *
 * The roof (products alone) is measured before and after with broker and daemon stopped; the higher
 * one counts. The topic (8 partitions, arrays of 64 samples) is filled beforehand, the
 * daemon runs with `--until end`; its rate is the slope of `samples.trained` in /status from a
 * tenth of the samples to the last change seen, so start, first admissions and the drain are out,
 * cuts, syncs and publishing are in. Without a Kafka (tests/kafka/start needs Java and Maven) the
 * embedded broker is used: it holds 5 MiB a partition, so a producer beside the daemon feeds it,
 * and the result says so. Everything runs in a directory of its own that is removed.
 *
 * Thread: the caller's. */
#include <fts.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "bench.h"
#include "process.h"
#include "samples/producer.h"
#include "tool.h"

enum { PATH_BYTES = 4096, PARTITIONS = 8, POLL_MS = 20, MAX_AHEAD = 300, FILE_LIMIT = 64 << 20 };

static const double start_seconds = 30.0, kafka_seconds = 180.0, stop_seconds = 90.0, stall_seconds = 60.0;
static const double warm_share = 0.1;
static const char group[] = "freshet.bench_r16";

enum broker_kind { BROKER_GIVEN, BROKER_KAFKA, BROKER_EMBEDDED };
static const char *const broker_names[] = {"given", "kafka", "embedded"};

struct run {
    struct fr_bench *bench;
    char directory[64];
    char brokers[256];
    char topic[64], delta[80];
    char daemon[PATH_BYTES];
    enum broker_kind kind;
    pid_t broker, feeder, service; /* 0: none */
    double first_time, last_time, first_cpu, last_cpu;
    uint64_t first, last, acknowledged;
    double produce_rate;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    nanosleep(&pause, NULL);
}

static int fail(const char *what)
{
    fprintf(stderr, "freshet-bench e2e: %s\n", what);
    return FR_TOOL_FAILED;
}

static void path_in(const struct run *run, char *out, const char *name)
{
    snprintf(out, PATH_BYTES, "%s/%s", run->directory, name);
}

/* The file's text, NUL-terminated; empty when it is not there yet. */
static const char *read_text(const struct run *run, const char *name, struct fr_buffer *out)
{
    char path[PATH_BYTES];
    path_in(run, path, name);
    fr_buffer_clear(out);
    if (fr_file_read(path, FILE_LIMIT, out, NULL) != FR_OK)
        fr_buffer_clear(out);
    fr_put_u8(out, 0);
    return (const char *)out->data;
}

static void show_log(const struct run *run, const char *name)
{
    struct fr_buffer text = {0};
    const char *all = read_text(run, name, &text);
    size_t size = strlen(all);
    fprintf(stderr, "%s\n", size > 2000 ? all + size - 2000 : all);
    fr_buffer_release(&text);
}

/* ---- broker ---- */

/* Takes the first line of `name` as the address. */
static bool take_address(struct run *run, const char *name)
{
    struct fr_buffer text = {0};
    const char *line = read_text(run, name, &text);
    size_t size = strcspn(line, "\n");
    bool whole = line[size] == '\n' && size > 0 && size < sizeof(run->brokers);
    if (whole) {
        memcpy(run->brokers, line, size);
        run->brokers[size] = '\0';
    }
    fr_buffer_release(&text);
    return whole;
}

static bool run_script(const struct run *run, const char *script, const char *option, const char *argument)
{
    char path[PATH_BYTES], out[PATH_BYTES], err[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/tests/kafka/%s", run->bench->source, script);
    path_in(run, out, "kafka.out");
    path_in(run, err, "kafka.err");
    if (n < 0 || (size_t)n >= sizeof(path) || access(path, X_OK) != 0)
        return false;
    const char *with_option[] = {path, option, argument, NULL}, *without[] = {path, argument, NULL};
    pid_t pid = fr_bench_process_start(option ? with_option : without, out, err);
    return pid > 0 && fr_bench_process_stop(pid, 0, kafka_seconds) == 0;
}

static int start_broker(struct run *run)
{
    char node[PATH_BYTES], out[PATH_BYTES], err[PATH_BYTES], freshet[PATH_BYTES];
    if (run->bench->brokers) {
        run->kind = BROKER_GIVEN;
        snprintf(run->brokers, sizeof(run->brokers), "%s", run->bench->brokers);
        return FR_TOOL_OK;
    }
    path_in(run, node, "kafka");
    run->kind = BROKER_KAFKA;
    if (run->bench->source && run_script(run, "start", "--dir", node) && take_address(run, "kafka.out"))
        return FR_TOOL_OK;
    fr_bench_progress("e2e: no Kafka could be started, the embedded broker takes its place");
    run->kind = BROKER_EMBEDDED;
    char samples[96], deltas[96], dead[96];
    snprintf(samples, sizeof(samples), "%s:%d", run->topic, PARTITIONS);
    snprintf(deltas, sizeof(deltas), "%s:2", run->delta);
    snprintf(dead, sizeof(dead), "%s.dead:1", run->topic);
    if (!fr_bench_find_program(run->bench, "tool/freshet", freshet, sizeof(freshet)))
        return fail("freshet, which runs the embedded broker, is not built");
    const char *argv[] = {freshet, "broker", "--topic", samples, "--topic", deltas, "--topic", dead, NULL};
    path_in(run, out, "broker.out");
    path_in(run, err, "broker.err");
    run->broker = fr_bench_process_start(argv, out, err);
    double end = fr_bench_now() + start_seconds;
    while (run->broker > 0 && fr_bench_now() < end && !interrupted) {
        if (take_address(run, "broker.out"))
            return FR_TOOL_OK;
        nap();
    }
    return fail("no broker could be started");
}

static void stop_broker(struct run *run)
{
    char node[PATH_BYTES];
    path_in(run, node, "kafka");
    if (run->kind == BROKER_KAFKA && run->brokers[0] && !run_script(run, "stop", NULL, node))
        fprintf(stderr, "freshet-bench e2e: tests/kafka/stop %s failed\n", node);
    if (run->broker > 0)
        fr_bench_process_stop(run->broker, SIGTERM, stop_seconds);
    run->broker = 0;
}

/* ---- samples ---- */

static int produce(struct run *run)
{
    struct fr_err err = {0};
    struct fr_tool_producer *producer = NULL;
    struct fr_tool_producer_options options = {
        .brokers = run->brokers, .topic = run->topic, .partitions = PARTITIONS, .stop = &interrupted};
    if (run->kind == BROKER_EMBEDDED) {
        options.group = group;
        options.max_ahead = MAX_AHEAD;
    }
    double begin = fr_bench_now();
    enum fr_status status = fr_tool_producer_open(&options, &producer, &err);
    struct fr_bench_r16 stream;
    struct fr_buffer record = {0};
    fr_bench_r16_init(&stream, 1, run->bench->ids);
    for (uint64_t r = 0; status == FR_OK && r * FR_R16_PACK < run->bench->samples; r++) {
        fr_buffer_clear(&record);
        fr_bench_r16_append_record(&stream, &record);
        uint32_t partition = (uint32_t)(r % fr_tool_producer_partitions(producer));
        status = fr_tool_producer_send(producer, partition, record.data, record.size, 0, &err);
    }
    if (status == FR_OK)
        status = fr_tool_producer_finish(producer, &err);
    run->produce_rate = (double)run->bench->samples / (fr_bench_now() - begin);
    fr_buffer_release(&record);
    fr_bench_r16_release(&stream);
    fr_tool_producer_close(producer);
    return status == FR_OK ? FR_TOOL_OK : fail(status == FR_AGAIN ? "interrupted" : err.text);
}

/* Samples come in whole records. */
static uint64_t total_samples(const struct run *run)
{
    return (run->bench->samples + FR_R16_PACK - 1) / FR_R16_PACK * FR_R16_PACK;
}

/* ---- the daemon ---- */

static int start_daemon(struct run *run, uint16_t *port)
{
    char brokers[320], topic[96], delta[112], threads[32], state[PATH_BYTES], out[PATH_BYTES], err[PATH_BYTES];
    snprintf(brokers, sizeof(brokers), "ingest.brokers=\"%s\"", run->brokers);
    snprintf(topic, sizeof(topic), "ingest.topic=%s", run->topic);
    snprintf(delta, sizeof(delta), "export.topic=%s", run->delta);
    snprintf(threads, sizeof(threads), "threads=%" PRIu32, run->bench->threads);
    snprintf(state, sizeof(state), "state_dir=%s/state", run->directory);
    const char *argv[] = {run->daemon, "--config", run->bench->config,
                          "--set",     brokers,    "--set",
                          topic,       "--set",    delta,
                          "--set",     threads,    "--set",
                          state,       "--set",    "metrics.listen=127.0.0.1:0",
                          NULL,        NULL,       NULL};
    if (run->kind != BROKER_EMBEDDED) { /* there the topic's end at the start is not its end */
        argv[FR_ARRAY_LEN(argv) - 3] = "--until";
        argv[FR_ARRAY_LEN(argv) - 2] = "end";
    }
    path_in(run, out, "freshetd.out");
    path_in(run, err, "freshetd.err");
    run->service = fr_bench_process_start(argv, out, err);
    struct fr_buffer log = {0};
    double end = fr_bench_now() + start_seconds;
    *port = 0;
    while (run->service > 0 && !*port && fr_bench_now() < end && !interrupted) {
        int code = 0;
        const char *event = strstr(read_text(run, "freshetd.err", &log), "event=http ");
        const char *number = event && strchr(event, '\n') ? strstr(event, "port=") : NULL;
        if (number)
            *port = (uint16_t)strtoul(number + 5, NULL, 10);
        else if (fr_bench_process_ended(run->service, &code))
            run->service = 0;
        else
            nap();
    }
    fr_buffer_release(&log);
    if (*port)
        return FR_TOOL_OK;
    show_log(run, "freshetd.err");
    return fail("freshetd did not start");
}

static bool find_number(const char *text, const char *name, uint64_t *out)
{
    const char *at = strstr(text, name);
    if (at)
        *out = strtoull(at + strlen(name), NULL, 10);
    return at;
}

/* One look at /status. */
static void observe(struct run *run, uint16_t port, struct fr_buffer *body)
{
    uint64_t trained = 0;
    fr_buffer_clear(body);
    if (!fr_bench_http_get(port, "/status", body))
        return;
    fr_put_u8(body, 0);
    const char *text = (const char *)body->data;
    if (!find_number(text, "\"samples\":{\"trained\":", &trained) || trained == run->last)
        return;
    double now = fr_bench_now();
    (void)find_number(text, "\"acked\":", &run->acknowledged);
    if (!run->first && (double)trained >= warm_share * (double)total_samples(run)) {
        run->first = trained;
        run->first_time = now;
        run->first_cpu = fr_bench_process_cpu_seconds(run->service);
    }
    run->last_cpu = fr_bench_process_cpu_seconds(run->service);
    run->last = trained;
    run->last_time = now;
}

static int watch_daemon(struct run *run, uint16_t port)
{
    struct fr_buffer body = {0};
    int code = -1;
    double printed = fr_bench_now();
    run->last_time = printed;
    while (!fr_bench_process_ended(run->service, &code)) {
        observe(run, port, &body);
        double now = fr_bench_now();
        if (now - printed >= 5.0) {
            fr_bench_progress("e2e: trained %" PRIu64 " of %" PRIu64, run->last, total_samples(run));
            printed = now;
        }
        bool complete = run->kind == BROKER_EMBEDDED && run->last == total_samples(run);
        if (complete || interrupted || now - run->last_time > stall_seconds) {
            code = fr_bench_process_stop(run->service, SIGTERM, stop_seconds);
            code = complete ? code : -1;
            break;
        }
        nap();
    }
    run->service = 0;
    fr_buffer_release(&body);
    if (code == 0)
        return FR_TOOL_OK;
    if (interrupted)
        return fail("interrupted");
    show_log(run, "freshetd.err");
    return fail("freshetd did not train to the end of the topic");
}

/* ---- the benchmark ---- */

static int fill_and_train(struct run *run)
{
    uint16_t port = 0;
    int result = start_broker(run);
    if (result != FR_TOOL_OK)
        return result;
    if (run->kind != BROKER_EMBEDDED) {
        fr_bench_progress("e2e: producing %" PRIu64 " samples", total_samples(run));
        result = produce(run);
    } else {
        run->feeder = fork(); /* feeds while the daemon trains */
        if (run->feeder == 0)
            _exit(produce(run));
    }
    if (result == FR_TOOL_OK)
        result = start_daemon(run, &port);
    if (result == FR_TOOL_OK)
        result = watch_daemon(run, port);
    if (run->service > 0)
        fr_bench_process_stop(run->service, SIGTERM, stop_seconds);
    if (run->feeder > 0)
        fr_bench_process_stop(run->feeder, result == FR_TOOL_OK ? 0 : SIGTERM, stop_seconds);
    stop_broker(run);
    return result;
}

static int report(struct run *run, double before, double after)
{
    struct fr_bench *bench = run->bench;
    double roof = before > after ? before : after;
    if (!run->first || run->last <= run->first)
        return fail("too few samples to see a rate: give more --samples");
    double rate = (double)(run->last - run->first) / (run->last_time - run->first_time);
    fr_bench_begin(bench, "e2e");
    fr_bench_text(bench, "broker", broker_names[run->kind]);
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "samples", (double)(run->last - run->first));
    fr_bench_number(bench, "seconds", run->last_time - run->first_time);
    fr_bench_number(bench, "samples_per_second", rate);
    fr_bench_number(bench, "freshetd_cores", (run->last_cpu - run->first_cpu) / (run->last_time - run->first_time));
    fr_bench_number(bench, "cpu_microseconds_per_sample",
                    (run->last_cpu - run->first_cpu) * 1e6 / (double)(run->last - run->first));
    fr_bench_number(bench, "epochs_acknowledged", (double)run->acknowledged);
    if (run->kind != BROKER_EMBEDDED)
        fr_bench_number(bench, "produced_samples_per_second", run->produce_rate);
    fr_bench_number(bench, "roof_before_samples_per_second", before);
    fr_bench_number(bench, "roof_after_samples_per_second", after);
    fr_bench_number(bench, "roof_samples_per_second", roof);
    fr_bench_number(bench, "ratio_to_roof", rate / roof);
    fr_bench_number(bench, "blas_roof_samples_per_second", bench->blas_roof);
    fr_bench_number(bench, "ratio_to_blas_roof", rate / bench->blas_roof);
    fr_bench_end(bench);
    return FR_TOOL_OK;
}

int fr_bench_e2e(struct fr_bench *bench)
{
    struct run run = {.bench = bench};
    if (!fr_bench_find_program(bench, "daemon/freshetd", run.daemon, sizeof(run.daemon)))
        return fail("freshetd is not built");
    if (!fr_bench_scratch_make(run.directory, sizeof(run.directory)))
        return fail("no temporary directory could be made (TMPDIR)");
    snprintf(run.topic, sizeof(run.topic), "bench_r16_%ld", (long)getpid());
    snprintf(run.delta, sizeof(run.delta), "%s.delta", run.topic);
    struct sigaction action = {.sa_handler = on_signal}, previous_int, previous_term;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous_int);
    sigaction(SIGTERM, &action, &previous_term);
    fr_bench_progress("e2e: the roof, before");
    double before = fr_bench_measure_roof(bench);
    int result = fill_and_train(&run);
    if (result == FR_TOOL_OK) {
        fr_bench_progress("e2e: the roof, after");
        result = report(&run, before, fr_bench_measure_roof(bench));
    }
    sigaction(SIGINT, &previous_int, NULL);
    sigaction(SIGTERM, &previous_term, NULL);
    fr_bench_scratch_remove(run.directory);
    return result;
}
