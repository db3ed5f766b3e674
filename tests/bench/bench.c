/* `freshet-bench [NAME...]`: the benchmarks, each beside the roof it is measured against.
 *
 * gemm: the products of R16 alone; their rate is the roof of the others. decode: bytes to samples,
 * one core. train: plan, forward, metrics, backward, update in this process, without Kafka.
 * batches: the same in small ones. shared: groups beside plain samples. e2e: freshetd from a Kafka
 * topic, publishing on. grow: a table that grows, is swept and shrinks. recovery: a state directory
 * back into memory. tiers: training on tables larger than memory. epochs: a changed row from cut to
 * acknowledged. replica: readers beside a feeder. These five take gigabytes, so they run only when
 * they are named. So does ranks: two ranks beside one. One logfmt line a result on stdout, progress
 * on stderr, everything with the machine's description in --json FILE. Where the processor has
 * AVX-512, the program starts itself again with OPENBLAS_CORETYPE=SkylakeX, whatever was set:
 * OpenBLAS 0.3.21 chooses an AVX2 kernel, half as fast, on processors it does not know, and a roof
 * measured with that would flatter us.
 *
 * Thread: the caller's. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "bench.h"
#include "graph/graph.h"
#include "tool.h"

enum { NAMES_MAX = 16, PATH_BYTES = 4096, LEVELS_MAX = 6 };

static const char usage[] =
    "freshet-bench [gemm] [decode] [train] [batches] [shared] [e2e] [options]     (no name: these)\n"
    "       freshet-bench [epochs] [grow] [ranks] [recovery] [replica] [snapshot] [tiers] [options]     (only by name)\n"
    "\n"
    "  gemm    the matrix products of the reference model R16 alone: the roof\n"
    "  decode  bytes to samples, one core\n"
    "  train   the trainer in this process, without Kafka\n"
    "  batches the trainer in small batches: what a sample costs beside one in batches of 1024\n"
    "  shared  groups beside the same impressions as plain samples, 8 and 50 a request\n"
    "  e2e     freshetd from a Kafka topic with publishing on, beside the roof\n"
    "  epochs  what a changed row costs from cut to acknowledged, by stage, and its part of a fold\n"
    "  grow    a table that grows, is swept and shrinks: times of a plan, bytes of a row\n"
    "  ranks   a job of two ranks beside one rank with as many workers: what is left of its samples/s\n"
    "  recovery  a state directory back into memory: seconds for each GB of images\n"
    "  snapshot  what replicas begin with written out of a state, a start from a savepoint of it,\n            training beside a snapshot\n"
    "  replica  lookups and scores of two threads, idle and while 200,000 rows a second are applied\n"
    "  tiers   training with memory for a part of the rows beside all in memory\n"
    "\n"
    "  --json FILE       all numbers and the machine\n"
    "  --brokers B       e2e: a running Kafka (default: one from tests/kafka/start, else the embedded broker)\n"
    "  --source DIR      the source tree, for tests/kafka and conf (default: found above this program)\n"
    "  --config FILE     default: conf/bench_r16.yaml of the source tree\n"
    "  --samples N       e2e: samples in the topic (3000000)\n"
    "  --rows N          rows of the table (epochs 5000000, grow 30000000, recovery 10000000,\n"
    "                    snapshot 8500000, tiers 20000000)\n"
    "  --batches N       tiers: batches measured of each stream (2400)\n"
    "  --limit N         tiers: only a limit of so many percent, beside none (100, 30 and 10)\n"
    "  --ids N           ids of each slot (decode, train, e2e: 100000)\n"
    "  --threads N       workers (one per core)\n";

static const struct {
    const char *name;
    int (*run)(struct fr_bench *bench);
    bool only_named;
} benches[] = {
    {"gemm", fr_bench_gemm, false},       {"decode", fr_bench_decode, false},    {"train", fr_bench_train, false},
    {"batches", fr_bench_batches, false}, {"shared", fr_bench_shared, false},    {"e2e", fr_bench_e2e, false},
    {"grow", fr_bench_grow, true},        {"recovery", fr_bench_recovery, true}, {"snapshot", fr_bench_snapshot, true},
    {"tiers", fr_bench_tiers, true},      {"epochs", fr_bench_epochs, true},     {"replica", fr_bench_replica, true},
    {"ranks", fr_bench_ranks, true},
};

/* ---- report ---- */

double fr_bench_now(void)
{
    return (double)fr_mono_ns(fr_clock_system()) * 1e-9;
}

double fr_bench_cpu_seconds(void)
{
    return (double)fr_clock_process_ns() * 1e-9;
}

double fr_bench_thread_seconds(void)
{
    return (double)fr_clock_thread_ns() * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fr_bench_median(double *values, uint32_t n)
{
    FR_CHECK(n > 0);
    qsort(values, n, sizeof(*values), compare);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

int fr_bench_fail(const char *name, const struct fr_err *err)
{
    fprintf(stderr, "freshet-bench %s: %s\n", name, err->text);
    return FR_TOOL_FAILED;
}

void fr_bench_progress(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

void fr_bench_begin(struct fr_bench *bench, const char *name)
{
    FR_CHECK(!bench->open);
    bench->open = true;
    fr_buffer_clear(&bench->line);
    fr_buffer_printf(&bench->line, "bench=%s", name);
    fr_buffer_printf(&bench->results, "%s\n    {\"name\":\"%s\"", bench->results.size ? "," : "", name);
}

void fr_bench_number(struct fr_bench *bench, const char *name, double value)
{
    fr_buffer_printf(&bench->line, " %s=%.6g", name, value);
    fr_buffer_printf(&bench->results, ",\"%s\":%.9g", name, value);
}

/* Texts are names of processors, kernels and brokers: what JSON and logfmt would have to escape
 * becomes '_'. */
static void append_plain(struct fr_buffer *out, const char *text)
{
    for (; *text; text++)
        fr_put_u8(out, *text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? '_' : (uint8_t)*text);
}

void fr_bench_text(struct fr_bench *bench, const char *name, const char *value)
{
    fr_buffer_printf(&bench->line, " %s=\"", name);
    append_plain(&bench->line, value);
    fr_put_u8(&bench->line, '"');
    fr_buffer_printf(&bench->results, ",\"%s\":\"", name);
    append_plain(&bench->results, value);
    fr_put_u8(&bench->results, '"');
}

void fr_bench_end(struct fr_bench *bench)
{
    FR_CHECK(bench->open);
    bench->open = false;
    fr_buffer_printf(&bench->results, "}");
    printf("%.*s\n", (int)bench->line.size, (const char *)bench->line.data);
    fflush(stdout);
}

static void describe_processor(char *out, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown");
    while (file && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon + 2);
        break;
    }
    if (file)
        fclose(file);
}

static int write_json(struct fr_bench *bench, const char *path)
{
    char processor[256], date[32];
    struct utsname system = {0};
    time_t now = time(NULL);
    struct tm utc;
    describe_processor(processor, sizeof(processor));
    uname(&system);
    gmtime_r(&now, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "{\n  \"freshet\":\"%s\",\n  \"date\":\"%s\",\n  \"machine\":{\"processor\":\"", FR_VERSION,
                     date);
    append_plain(&text, processor);
    fr_buffer_printf(&text, "\",\"cores\":%ld,\"memory_bytes\":%.0f,\"system\":\"%s %s %s\"},\n  \"results\":[",
                     sysconf(_SC_NPROCESSORS_ONLN), (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
                     system.sysname, system.release, system.machine);
    fr_buffer_append(&text, bench->results.data, bench->results.size);
    fr_buffer_printf(&text, "\n  ]\n}\n");
    struct fr_err err = {0};
    enum fr_status status = fr_file_replace(fr_disk_system(), path, text.data, text.size, &err);
    fr_buffer_release(&text);
    if (status != FR_OK)
        fprintf(stderr, "freshet-bench: --json: %s\n", err.text);
    return status == FR_OK ? FR_TOOL_OK : FR_TOOL_FAILED;
}

/* ---- where things are ---- */

static bool program_path(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

static bool holds_source(const char *directory)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/conf/bench_r16.yaml", directory);
    return n > 0 && (size_t)n < sizeof(path) && access(path, R_OK) == 0;
}

/* The first folder above `directory` (itself included) that holds conf/bench_r16.yaml. */
static bool find_source(char *directory)
{
    for (int level = 0; level <= LEVELS_MAX; level++) {
        if (holds_source(directory))
            return true;
        char *slash = strrchr(directory, '/');
        if (!slash || slash == directory)
            return false;
        *slash = '\0';
    }
    return false;
}

bool fr_bench_find_program(const struct fr_bench *bench, const char *place, char *out, size_t size)
{
    const char *slash = strrchr(bench->program, '/');
    int n = slash ? snprintf(out, size, "%.*s/../../%s", (int)(slash - bench->program), bench->program, place) : -1;
    return n > 0 && (size_t)n < size && access(out, X_OK) == 0;
}

static void use_fastest_blas(const char *program, char **argv)
{
#if defined(__x86_64__)
    const char *core = getenv("OPENBLAS_CORETYPE");
    if ((core && strcmp(core, "SkylakeX") == 0) || !__builtin_cpu_supports("avx512f"))
        return;
    if (setenv("OPENBLAS_CORETYPE", "SkylakeX", 1) == 0)
        execv(program, argv);
    fprintf(stderr, "freshet-bench: cannot start %s again (%s): OpenBLAS keeps its own choice of kernel\n", program,
            strerror(errno));
#else
    (void)program, (void)argv;
#endif
}

/* ---- options ---- */

struct texts {
    const char *json, *brokers, *source, *config;
};

static bool is_bench(const char *name)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(benches); i++)
        if (strcmp(benches[i].name, name) == 0)
            return true;
    return false;
}

static bool wanted(size_t bench, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], benches[bench].name) == 0)
            return true;
    return n == 0 && !benches[bench].only_named;
}

static int load_conf(struct fr_bench *bench)
{
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {.path = bench->config};
    enum fr_status status = fr_conf_load(&options, &bench->conf, &problems);
    struct fr_err err = {0};
    if (status != FR_OK)
        fprintf(stderr, "freshet-bench: %.*s\n", (int)problems.size, (const char *)problems.data);
    else if ((status = fr_graph_check_machine(bench->conf, &err)) != FR_OK)
        fprintf(stderr, "freshet-bench: %s\n", err.text);
    fr_buffer_release(&problems);
    return status == FR_OK ? FR_TOOL_OK : FR_TOOL_FAILED;
}

static int run_all(struct fr_bench *bench, const char *const *names, size_t n_names, const char *json)
{
    int result = load_conf(bench);
    for (size_t i = 0; i < FR_ARRAY_LEN(benches) && result == FR_TOOL_OK; i++)
        if (wanted(i, names, n_names))
            result = benches[i].run(bench);
    if (json && result == FR_TOOL_OK)
        result = write_json(bench, json);
    fr_conf_free(bench->conf);
    fr_buffer_release(&bench->results);
    fr_buffer_release(&bench->line);
    return result;
}

/* Leading arguments without dashes are names; returns the index after them, or -1 after a
 * message. */
static int take_names(int argc, char **argv, const char **names, size_t *n)
{
    int i = 1;
    for (; i < argc && argv[i][0] != '-' && *n < NAMES_MAX; i++) {
        if (!is_bench(argv[i])) {
            fprintf(stderr, "freshet-bench: no benchmark %s\n\n%s", argv[i], usage);
            return -1;
        }
        names[(*n)++] = argv[i];
    }
    return i;
}

static int place_and_run(struct fr_bench *bench, const struct texts *t, const char *const *names, size_t n_names)
{
    char source[PATH_BYTES], config[PATH_BYTES + 32];
    snprintf(source, sizeof(source), "%s", t->source ? t->source : bench->program);
    bool found = t->source ? holds_source(source) : find_source(source);
    if (!found && !t->config) {
        fputs("freshet-bench: conf/bench_r16.yaml is not above this program: give --source DIR or --config FILE\n",
              stderr);
        return FR_TOOL_USAGE;
    }
    snprintf(config, sizeof(config), "%s/conf/bench_r16.yaml", source);
    bench->source = found ? source : NULL;
    bench->config = t->config ? t->config : config;
    return run_all(bench, names, n_names, t->json);
}

int main(int argc, char **argv)
{
    struct texts t = {0};
    uint64_t samples = 3000000, rows = 0, batches = 2400, limit = 0, ids = FR_R16_IDS,
             threads = fr_machine_processors(fr_machine());
    const struct fr_tool_option table[] = {
        {.name = "--json", .value = &t.json},
        {.name = "--brokers", .value = &t.brokers},
        {.name = "--source", .value = &t.source},
        {.name = "--config", .value = &t.config},
        {.name = "--samples", .number = &samples, .min = 100000, .max = UINT64_C(10000000000)},
        {.name = "--rows", .number = &rows, .min = 1000000, .max = UINT64_C(10000000000)},
        {.name = "--batches", .number = &batches, .min = 16, .max = 1000000},
        {.name = "--limit", .number = &limit, .min = 1, .max = 100},
        {.name = "--ids", .number = &ids, .min = 1, .max = 100000000},
        {.name = "--threads", .number = &threads, .min = 1, .max = 1024},
    };
    char program[PATH_BYTES];
    if (!program_path(program, sizeof(program)))
        return FR_TOOL_FAILED;
    use_fastest_blas(program, argv);
    const char *names[NAMES_MAX];
    size_t n_names = 0;
    int first = take_names(argc, argv, names, &n_names);
    if (first < 0)
        return FR_TOOL_USAGE;
    /* the option table expects the program's name before its arguments */
    char name[] = "freshet-bench";
    argv[first - 1] = name;
    int parsed = fr_tool_options_parse(argc - first + 1, argv + first - 1, table, FR_ARRAY_LEN(table), usage);
    if (parsed != FR_TOOL_OK)
        return parsed < 0 ? FR_TOOL_OK : parsed;
    struct fr_bench bench = {.brokers = t.brokers,
                             .program = program,
                             .samples = samples,
                             .rows = rows,
                             .batches = batches,
                             .limit = (uint32_t)limit,
                             .ids = (uint32_t)ids,
                             .threads = (uint32_t)threads};
    return place_and_run(&bench, &t, names, n_names);
}
