/* `freshet-bench epochs`: what a changed row costs from the cut until the topic has it.
 *
 * A table of five million rows, all durable and folded, has some hundred thousand rows of random
 * keys changed an epoch. Every epoch goes the service's way: cut, append (encoding, checks, writing
 * and both syncs), publish through the real publisher to the embedded broker in a process of its
 * own until that has acknowledged it, and after several epochs a fold. Each stage runs in the
 * calling thread and is timed by that thread's processor time, without what waits; the number
 * printed is nanoseconds a changed row. `background` is what other threads of this process took
 * meanwhile: librdkafka's sender, RocksDB's compactions. Rows are those of R16 (dim 16, row-wise
 * Adagrad) and of a linear model (dim 1, FTRL).
 *
 * Thread: the caller's, and those of librdkafka and RocksDB. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "bench_table.h"
#include "process.h"
#include "exporter/publisher.h"
#include "tool.h"

enum {
    ROWS = 5000000,
    CHANGED = 300000,
    EPOCHS = 16,
    ROUNDS = 2,
    WARM_ROUNDS = 1,
    PATH_BYTES = 4096,
    PARTITIONS = 2,
    STEP_MS = 20
};
enum { BROKER_TRIES = 500, BROKER_NAP_US = 20000, PUBLISH_TRIES = 3000 };

enum stage_of_epoch { STAGE_CUT, STAGE_APPEND, STAGE_PUBLISH, STAGE_FOLD, STAGES };
static const char *const stage_names[STAGES] = {"cut_ns", "append_ns", "publish_ns", "fold_ns"};

struct epochs {
    struct fr_bench *bench;
    const struct fr_conf *conf; /* of the rows measured */
    struct fr_bench_table table;
    struct fr_durable *durable;
    struct fr_publisher *publisher;
    char directory[PATH_BYTES], brokers[256], topic[64];
    pid_t broker;
    double seconds[STAGES][ROUNDS * EPOCHS]; /* of folds: the first ROUNDS */
    double images[ROUNDS * EPOCHS];
};

/* ---- the state directory and its topic ---- */

static void encode_settings(const struct fr_conf *conf, struct fr_buffer *out)
{
    struct fr_codec_table table = {.n_parts = 1, .value_floats = conf->tables[0].parts[0].dim};
    memcpy(table.name, conf->tables[0].name, FR_NAME_MAX);
    memcpy(table.parts[0].name, conf->tables[0].parts[0].name, FR_NAME_MAX);
    table.parts[0].dim = table.value_floats;
    struct fr_codec_settings settings = {.revision = FR_CODEC_REVISION,
                                         .np = PARTITIONS,
                                         .quantize = FR_CODEC_F16,
                                         .piece_max = conf->export_.piece_max,
                                         .model = "bench",
                                         .kernel = "bench",
                                         .cfg = "{}",
                                         .cfg_size = 2,
                                         .n_tables = 1,
                                         .tables = &table};
    fr_codec_settings_encode(&settings, out);
}

static int open_state(struct epochs *epochs)
{
    struct fr_err err = {0};
    struct fr_buffer head = {0};
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", epochs->directory, epochs->topic);
    encode_settings(epochs->conf, &head);
    struct fr_durable_options options = {.dir = path, .head = head.data, .head_size = head.size};
    enum fr_status status = fr_durable_open(&options, &epochs->durable, &err);
    fr_buffer_release(&head);
    struct fr_publisher_options publish = {.durable = epochs->durable,
                                           .clock = fr_clock_system(),
                                           .model = "bench",
                                           .brokers = epochs->brokers,
                                           .topic = epochs->topic,
                                           .partitions = PARTITIONS};
    if (status == FR_OK)
        status = fr_publisher_new(&publish, &epochs->publisher, &err);
    if (status == FR_OK)
        status = fr_publisher_check(epochs->publisher, &err);
    return status == FR_OK ? FR_TOOL_OK : fr_bench_fail("epochs", &err);
}

/* ---- one epoch ---- */

static void announce(struct epochs *epochs)
{
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    announcement->wall_ms = fr_wall_ms(fr_clock_system());
    fr_announcement_encode(announcement, fr_stage_section(&epochs->table.stage, "announce"));
    free(announcement);
}

static enum fr_status publish(struct epochs *epochs, struct fr_err *err)
{
    struct fr_publisher_status now = {0};
    enum fr_status status = FR_OK;
    fr_publisher_offer(epochs->publisher, epochs->table.epoch);
    for (int i = 0; i < PUBLISH_TRIES && status == FR_OK && now.acked < epochs->table.epoch; i++) {
        status = fr_publisher_step(epochs->publisher, STEP_MS, err);
        fr_publisher_get_status(epochs->publisher, &now);
    }
    if (status == FR_OK && now.acked < epochs->table.epoch)
        status = fr_err_set(err, FR_E_UNAVAILABLE, "the embedded broker does not acknowledge an epoch");
    return status == FR_OK ? fr_durable_acknowledge(epochs->durable, epochs->table.epoch, err) : status;
}

/* at[s]: thread seconds before stage s; at[STAGE_FOLD] is the end. */
static enum fr_status run_epoch(struct epochs *epochs, double at[STAGES], struct fr_err *err)
{
    at[STAGE_CUT] = fr_bench_thread_seconds();
    fr_bench_table_cut(&epochs->table);
    announce(epochs);
    at[STAGE_APPEND] = fr_bench_thread_seconds();
    enum fr_status status = fr_durable_append(epochs->durable, &epochs->table.stage, NULL, NULL, err);
    at[STAGE_PUBLISH] = fr_bench_thread_seconds();
    if (status == FR_OK)
        status = publish(epochs, err);
    at[STAGE_FOLD] = fr_bench_thread_seconds();
    return status;
}

static int fill(struct epochs *epochs, uint64_t rows)
{
    struct fr_err err = {0};
    struct fr_bench_table *table = &epochs->table;
    enum fr_status status = FR_OK;
    double at[STAGES];
    while (table->n_made < rows && status == FR_OK) {
        fr_bench_table_fill_new(table);
        fr_bench_table_plan(table, 0);
        if (table->n_made >= rows || table->n_batches % FR_TABLE_CUT_BATCHES == 0)
            status = run_epoch(epochs, at, &err);
    }
    if (status == FR_OK)
        status = fr_durable_fold(epochs->durable, &err);
    return status == FR_OK ? FR_TOOL_OK : fr_bench_fail("epochs", &err);
}

/* Epoch i of the table, and the fold behind every EPOCHS-th.  */
static enum fr_status run_changed(struct epochs *epochs, uint64_t rows, size_t i, bool timed, struct fr_err *err)
{
    struct fr_bench_table *table = &epochs->table;
    double at[STAGES];
    for (uint32_t n = 0; n < CHANGED; n += table->n_keys) {
        fr_bench_table_fill_known(table, rows, 1);
        fr_bench_table_plan(table, 1);
    }
    enum fr_status status = run_epoch(epochs, at, err);
    if (status == FR_OK && (i + 1) % EPOCHS == 0)
        status = fr_durable_fold(epochs->durable, err);
    double end = fr_bench_thread_seconds();
    if (!timed)
        return status;
    epochs->images[i] = (double)table->stage.n_images;
    for (int s = 0; s < STAGE_FOLD; s++)
        epochs->seconds[s][i] = at[s + 1] - at[s];
    if ((i + 1) % EPOCHS == 0)
        epochs->seconds[STAGE_FOLD][i / EPOCHS] = end - at[STAGE_FOLD];
    return status;
}

/* A first round finds memory, page cache and cold store as a running service has them. */
static int measure(struct epochs *epochs, uint64_t rows, double *background)
{
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < (size_t)WARM_ROUNDS * EPOCHS && status == FR_OK; i++)
        status = run_changed(epochs, rows, i, false, &err);
    double process = fr_bench_cpu_seconds(), thread = fr_bench_thread_seconds();
    for (size_t i = 0; i < (size_t)ROUNDS * EPOCHS && status == FR_OK; i++)
        status = run_changed(epochs, rows, i, true, &err);
    *background = fr_bench_cpu_seconds() - process - (fr_bench_thread_seconds() - thread);
    return status == FR_OK ? FR_TOOL_OK : fr_bench_fail("epochs", &err);
}

/* ---- report ---- */

static double sum_of(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

static void report(struct epochs *epochs, const char *name, double background)
{
    struct fr_bench *bench = epochs->bench;
    double sum = 0, images = sum_of(epochs->images, (size_t)ROUNDS * EPOCHS);
    fr_bench_begin(bench, name);
    fr_bench_number(bench, "rows", (double)epochs->table.n_made);
    fr_bench_number(bench, "changed_per_epoch", images / (ROUNDS * EPOCHS));
    fr_bench_number(bench, "image_bytes",
                    (double)epochs->table.stage.image_bytes / (double)epochs->table.stage.n_images);
    fr_bench_text(bench, "broker", "embedded");
    for (int s = 0; s < STAGES; s++) {
        double each[ROUNDS * EPOCHS], ns = 0;
        size_t n = s == STAGE_FOLD ? ROUNDS : (size_t)ROUNDS * EPOCHS;
        double per = s == STAGE_FOLD ? images / ROUNDS : images / (ROUNDS * EPOCHS);
        for (size_t i = 0; i < n; i++)
            each[i] = epochs->seconds[s][i] / per * 1e9;
        ns = fr_bench_median(each, (uint32_t)n);
        fr_bench_number(bench, stage_names[s], ns);
        sum += ns;
        if (s == STAGE_PUBLISH)
            fr_bench_number(bench, "cut_to_acknowledged_ns", sum);
    }
    fr_bench_number(bench, "sum_ns", sum);
    fr_bench_number(bench, "background_ns", background / images * 1e9);
    fr_bench_end(bench);
}

/* ---- the whole ---- */

static bool take_address(struct epochs *epochs, const char *path)
{
    FILE *file = fopen(path, "r");
    bool whole = file && fgets(epochs->brokers, sizeof(epochs->brokers), file) && strchr(epochs->brokers, '\n');
    if (file)
        fclose(file);
    epochs->brokers[whole ? strcspn(epochs->brokers, "\n") : 0] = '\0';
    return whole;
}

static int start_broker(struct epochs *epochs)
{
    char out[PATH_BYTES + 16], errors[PATH_BYTES + 16], topics[2][16], freshet[PATH_BYTES];
    snprintf(out, sizeof(out), "%s/broker.out", epochs->directory);
    snprintf(errors, sizeof(errors), "%s/broker.err", epochs->directory);
    snprintf(topics[0], sizeof(topics[0]), "r16:%d", PARTITIONS);
    snprintf(topics[1], sizeof(topics[1]), "ftrl:%d", PARTITIONS);
    if (!fr_bench_find_program(epochs->bench, "tool/freshet", freshet, sizeof(freshet))) {
        fputs("freshet-bench epochs: freshet, which runs the embedded broker, is not built\n", stderr);
        return FR_TOOL_FAILED;
    }
    const char *argv[] = {freshet, "broker", "--topic", topics[0], "--topic", topics[1], NULL};
    epochs->broker = fr_bench_process_start(argv, out, errors);
    for (int i = 0; epochs->broker > 0 && i < BROKER_TRIES; i++) {
        if (take_address(epochs, out))
            return FR_TOOL_OK;
        usleep(BROKER_NAP_US);
    }
    fputs("freshet-bench epochs: the embedded broker did not start\n", stderr);
    return FR_TOOL_FAILED;
}

static int run_rows(struct epochs *epochs, const char *topic, const char *name, const struct fr_conf *conf)
{
    uint64_t rows = epochs->bench->rows ? epochs->bench->rows : ROWS;
    epochs->conf = conf;
    snprintf(epochs->topic, sizeof(epochs->topic), "%s", topic);
    fr_bench_progress("epochs: %llu rows of %s", (unsigned long long)rows, topic);
    fr_bench_table_init(&epochs->table, conf, 1, 0);
    int result = open_state(epochs);
    if (result == FR_TOOL_OK)
        result = fill(epochs, rows);
    double background = 0;
    if (result == FR_TOOL_OK)
        result = measure(epochs, rows, &background);
    if (result == FR_TOOL_OK)
        report(epochs, name, background);
    fr_publisher_free(epochs->publisher);
    fr_durable_close(epochs->durable);
    epochs->publisher = NULL;
    epochs->durable = NULL;
    fr_bench_table_release(&epochs->table);
    return result;
}

/* R16 with rows of one value and FTRL's two floats. */
static int run_linear(struct epochs *epochs)
{
    static const char *const sets[] = {"tables.ids={dim: 1, optimizer: {ftrl: {lr: 0.1}}}"};
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    struct fr_conf_load_options options = {.path = epochs->bench->config, .sets = sets, .n_sets = 1};
    int result = FR_TOOL_FAILED;
    if (fr_conf_load(&options, &conf, &problems) == FR_OK)
        result = run_rows(epochs, "ftrl", "epochs_ftrl", conf);
    else
        fprintf(stderr, "freshet-bench epochs: %.*s\n", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    fr_conf_free(conf);
    return result;
}

int fr_bench_epochs(struct fr_bench *bench)
{
    struct epochs *epochs = fr_alloc(1, sizeof(*epochs));
    epochs->bench = bench;
    int result = FR_TOOL_FAILED;
    if (fr_bench_scratch_make(epochs->directory, sizeof(epochs->directory))) {
        result = start_broker(epochs);
        if (result == FR_TOOL_OK)
            result = run_rows(epochs, "r16", "epochs_r16", bench->conf);
        if (result == FR_TOOL_OK)
            result = run_linear(epochs);
        if (epochs->broker > 0)
            fr_bench_process_stop(epochs->broker, SIGTERM, 5);
        fr_bench_scratch_remove(epochs->directory);
    } else {
        fputs("freshet-bench: no temporary directory could be made (TMPDIR)\n", stderr);
    }
    free(epochs);
    return result;
}
