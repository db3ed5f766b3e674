/* `freshet produce`: writes samples to a topic: the lines of a file, or the synthetic stream
 * (docs/commands.md, "freshet produce").
 *
 * Sample number n (a line, from 0) goes to partition n mod N. A pack is an array of consecutive
 * samples of one partition and leaves when it is full or at the end. JSON lines become MessagePack
 * of the same shape unless `--format json`. A line that is not JSON ends the run with its number:
 * the samples before it are sent, and nothing of the line is. The command ends at the end of the
 * file, or by --count, --seconds, SIGTERM or SIGINT; then it waits for all acknowledgements and
 * prints one logfmt line.
 *
 * Checking samples against a model is left to the daemon, and partitions are never chosen by key.
 *
 * Thread: the caller's. */
#include <inttypes.h>
#include <msgpack.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "samples/attainable.h"
#include "base/check.h"
#include "base/clock.h"
#include "samples/block_writer.h"
#include "input.h"
#include "samples/producer.h"
#include "samples/synthetic.h"
#include "tool.h"
#include "samples/transcode.h"

enum {
    PACK_MAX = 65536,
    PACK_DEFAULT = 64,
    ARRAY_HEAD = 5, /* the longest MessagePack array header */
    CLOCK_EVERY = 64,
    PROGRESS_TERMINAL_MS = 1000,
    PROGRESS_PIPE_MS = 5000,
    PROGRESS_FILE_MS = 1000,
    RATE_WAIT_MS = 1,
};

enum { FORM_SAMPLE, FORM_ARRAY, FORM_BLOCK };

static const char usage[] =
    "freshet produce --brokers B --topic T (--file F.jsonl[.gz|.zst] | --synthetic clicks [--seed S]) [options]\n"
    "\n"
    "  --partitions N        partitions of a topic that is made (1); an existing topic keeps its own\n"
    "  --form sample|array|block  one sample a record (default), or arrays or blocks of --pack samples\n"
    "  --pack N              samples in an array or block (64)\n"
    "  --labels a,b          names of the labels, for blocks of samples whose `y` has none\n"
    "  --format msgpack|json  form of a record (msgpack)\n"
    "  --rate N              samples a second (as fast as possible)\n"
    "  --count N             ends after N samples\n"
    "  --seconds N           ends after N seconds\n"
    "  --timestamps wall|event  Kafka timestamp: now (default), or the sample's `t`\n"
    "  --group G --max-ahead N  stays at most N records per partition ahead of what group G has committed\n"
    "  --kafka-file FILE     librdkafka properties, NAME=VALUE a line: the place of passwords\n"
    "  --kafka NAME=VALUE    a librdkafka property (many); every user of the host can see it\n"
    "  --truth FILE          synthetic: the true probability of each sample, one a line\n"
    "  --progress-file FILE  synthetic: samples and attainable AUC so far as JSON, replaced every second\n";

struct pack {
    struct fr_buffer bytes;
    /* --form block: gathers the samples; `bytes` is the block's record, or scratch for one
     * sample */
    struct fr_tool_block *block;
    uint32_t count;
    int64_t t_ms; /* the largest t; 0: no sample has one */
};

struct job {
    const char *file_path, *progress_path;
    const char *labels;
    bool array, block, json, event_time;
    uint32_t pack_max;
    uint64_t rate, count, seconds, seed; /* 0: no limit */
    struct fr_tool_producer *producer;
    uint32_t n_partitions;
    struct pack *packs; /* one per partition */
    struct fr_tool_transcoder transcoder;
    struct fr_tool_attainable *attainable; /* only for the synthetic stream */
    FILE *truth;
    uint64_t samples;
    uint64_t begin_ns, progress_ns, progress_file_ns, progress_samples;
    bool terminal;
};

static volatile sig_atomic_t stop_asked; /* the only variable that the signal handler writes */

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

/* ---- packs ---- */

static enum fr_status send_pack(struct job *job, uint32_t partition, struct fr_err *err)
{
    struct pack *pack = &job->packs[partition];
    if (pack->count == 0)
        return FR_OK;
    if (job->block) {
        fr_buffer_clear(&pack->bytes);
        fr_tool_block_write(pack->block, job->json, &pack->bytes);
    }
    const uint8_t *bytes = pack->bytes.data;
    size_t size = pack->bytes.size;
    if (job->array && job->json) {
        fr_put_u8(&pack->bytes, ']');
        bytes = pack->bytes.data;
        size = pack->bytes.size;
    } else if (job->array) { /* the shortest header, directly before the first element */
        uint8_t head[ARRAY_HEAD] = {0xdd, (uint8_t)(pack->count >> 24), (uint8_t)(pack->count >> 16),
                                    (uint8_t)(pack->count >> 8), (uint8_t)pack->count};
        size_t skipped = pack->count < 16 ? 4 : pack->count < 65536 ? 2 : 0;
        head[skipped] = pack->count < 16 ? (uint8_t)(0x90 | pack->count) : pack->count < 65536 ? 0xdc : 0xdd;
        memcpy(pack->bytes.data, head, ARRAY_HEAD);
        bytes += skipped;
        size -= skipped;
    }
    enum fr_status status =
        fr_tool_producer_send(job->producer, partition, bytes, size, job->event_time ? pack->t_ms : 0, err);
    if (status == FR_OK) {
        fr_buffer_clear(&pack->bytes);
        pack->count = 0;
        pack->t_ms = 0;
    }
    return status;
}

/* Returns the buffer in which the next element of the partition's pack is written. */
static struct fr_buffer *begin_element(struct job *job, uint32_t partition)
{
    static const uint8_t room[ARRAY_HEAD];
    struct pack *pack = &job->packs[partition];
    if (job->array && job->json)
        fr_put_u8(&pack->bytes, pack->count ? ',' : '[');
    else if (job->array && pack->count == 0)
        fr_buffer_append(&pack->bytes, room, ARRAY_HEAD);
    return &pack->bytes;
}

static enum fr_status end_element(struct job *job, uint32_t partition, int64_t t_ms, struct fr_err *err)
{
    struct pack *pack = &job->packs[partition];
    if (t_ms > pack->t_ms)
        pack->t_ms = t_ms;
    job->samples++;
    return ++pack->count == job->pack_max ? send_pack(job, partition, err) : FR_OK;
}

/* ---- pace and progress ---- */

static void report_progress(struct job *job, uint64_t now_ns)
{
    uint64_t interval_ns = (job->terminal ? PROGRESS_TERMINAL_MS : PROGRESS_PIPE_MS) * UINT64_C(1000000);
    if (now_ns - job->progress_ns < interval_ns)
        return;
    double seconds = (double)(now_ns - job->progress_ns) * 1e-9;
    struct fr_tool_producer_totals totals = fr_tool_producer_totals(job->producer);
    fprintf(stderr, "%sproduced samples=%" PRIu64 " records=%" PRIu64 " acknowledged=%" PRIu64 " rate=%.0f%s",
            job->terminal ? "\r" : "", job->samples, totals.records, totals.acknowledged,
            (double)(job->samples - job->progress_samples) / seconds, job->terminal ? "   " : "\n");
    job->progress_ns = now_ns;
    job->progress_samples = job->samples;
}

static enum fr_status write_progress_file(struct job *job, uint64_t now_ns, bool now, struct fr_err *err)
{
    if (!job->progress_path || (!now && now_ns - job->progress_file_ns < PROGRESS_FILE_MS * UINT64_C(1000000)))
        return FR_OK;
    job->progress_file_ns = now_ns;
    return fr_tool_attainable_write(job->attainable, job->progress_path, err);
}

/* Called before each sample. FR_EOF: no more samples. */
static enum fr_status pace(struct job *job, struct fr_err *err)
{
    if (stop_asked || (job->count && job->samples == job->count))
        return FR_EOF;
    if (!job->rate && job->samples % CLOCK_EVERY)
        return FR_OK;
    for (;;) {
        uint64_t now_ns = fr_mono_ns(fr_clock_system());
        double seconds = (double)(now_ns - job->begin_ns) * 1e-9;
        if (stop_asked || (job->seconds && seconds >= (double)job->seconds))
            return FR_EOF;
        report_progress(job, now_ns);
        enum fr_status status = write_progress_file(job, now_ns, false, err);
        if (status != FR_OK)
            return status;
        if (!job->rate || (double)job->samples < seconds * (double)job->rate)
            return FR_OK;
        fr_tool_producer_poll(job->producer, RATE_WAIT_MS);
    }
}

/* ---- sources ---- */

static enum fr_status append_to_block(struct job *job, uint32_t partition, const char *line, size_t size,
                                      struct fr_tool_transcoded *what, struct fr_err *err)
{
    enum fr_status status = fr_tool_transcode(&job->transcoder, line, size, NULL, what, err);
    return status == FR_OK ? fr_tool_block_add(job->packs[partition].block, &job->transcoder, err) : status;
}

/* Appends a line to the pack. A refused line leaves the pack unchanged. */
static enum fr_status append_line(struct job *job, uint32_t partition, const char *line, size_t size,
                                  struct fr_tool_transcoded *what, struct fr_err *err)
{
    if (job->block)
        return append_to_block(job, partition, line, size, what, err);
    size_t before = job->packs[partition].bytes.size;
    struct fr_buffer *element = begin_element(job, partition);
    enum fr_status status = fr_tool_transcode(&job->transcoder, line, size, job->json ? NULL : element, what, err);
    if (status == FR_OK && job->array && (!what->is_map || what->is_block))
        status = fr_err_set(err, FR_E_INVALID, "only samples and groups go into an array");
    if (status != FR_OK)
        element->size = before;
    else if (job->json)
        fr_buffer_append(element, line, size);
    return status;
}

static enum fr_status produce_file(struct job *job, struct fr_err *err)
{
    FR_CHECK(job->n_partitions > 0);
    struct fr_lines *lines = NULL;
    enum fr_status status = fr_tool_lines_open(job->file_path, &lines, err);
    while (status == FR_OK && (status = pace(job, err)) == FR_OK) {
        struct fr_line line;
        status = fr_tool_lines_next(lines, job->file_path, &line, err);
        if (status != FR_OK)
            break;
        uint32_t partition = (uint32_t)(job->samples % job->n_partitions);
        struct fr_tool_transcoded what = {0};
        status = append_line(job, partition, line.value, line.size, &what, err);
        if (status != FR_OK) {
            status = fr_err_wrap(err, "%s, line %" PRIu64 " (from 0)", job->file_path, job->samples);
            break;
        }
        status = end_element(job, partition, what.t_ms, err);
    }
    fr_lines_free(lines);
    return status;
}

static void pack_text(msgpack_packer *packer, const char *text)
{
    size_t size = strlen(text);
    msgpack_pack_str(packer, size);
    msgpack_pack_str_body(packer, text, size);
}

static void encode_msgpack(const struct fr_tool_synthetic_sample *s, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    msgpack_pack_map(&packer, 3);
    pack_text(&packer, "f");
    msgpack_pack_map(&packer, 6);
    pack_text(&packer, "user_id");
    msgpack_pack_uint32(&packer, s->user_id);
    pack_text(&packer, "item_id");
    msgpack_pack_uint64(&packer, s->item_id);
    pack_text(&packer, "site_id");
    msgpack_pack_uint32(&packer, s->site_id);
    pack_text(&packer, "device");
    pack_text(&packer, s->device);
    pack_text(&packer, "hour");
    msgpack_pack_uint32(&packer, s->hour);
    pack_text(&packer, "price");
    msgpack_pack_float(&packer, s->price);
    pack_text(&packer, "y");
    msgpack_pack_map(&packer, 1);
    pack_text(&packer, "click");
    msgpack_pack_uint8(&packer, s->label > 0.0f);
    pack_text(&packer, "t");
    msgpack_pack_int64(&packer, s->t_ms);
}

static void encode_json(const struct fr_tool_synthetic_sample *s, struct fr_buffer *out)
{
    fr_buffer_printf(out,
                     "{\"f\":{\"user_id\":%" PRIu32 ",\"item_id\":%" PRIu64 ",\"site_id\":%" PRIu32
                     ",\"device\":\"%s\",\"hour\":%" PRIu32 ",\"price\":%.9g},\"y\":{\"click\":%d},\"t\":%" PRId64 "}",
                     s->user_id, s->item_id, s->site_id, s->device, s->hour, (double)s->price, s->label > 0.0f,
                     s->t_ms);
}

static enum fr_status produce_synthetic(struct job *job, struct fr_err *err)
{
    struct fr_tool_synthetic *synthetic = fr_tool_synthetic_new(job->seed);
    enum fr_status status = FR_OK;
    while (status == FR_OK && (status = pace(job, err)) == FR_OK) {
        struct fr_tool_synthetic_sample sample;
        fr_tool_synthetic_next(synthetic, &sample);
        fr_tool_attainable_add(job->attainable, &sample);
        if (job->truth && fprintf(job->truth, "%.9g\n", sample.probability) < 0)
            status = fr_err_set(err, FR_E_IO, "--truth cannot be written");
        uint32_t partition = (uint32_t)(job->samples % job->n_partitions);
        struct fr_buffer *element = begin_element(job, partition);
        if (job->json || job->block)
            encode_json(&sample, element);
        else
            encode_msgpack(&sample, element);
        if (job->block && status == FR_OK) {
            struct fr_tool_transcoded what;
            status = append_to_block(job, partition, (const char *)element->data, element->size, &what, err);
            fr_buffer_clear(element);
        }
        if (status == FR_OK)
            status = end_element(job, partition, sample.t_ms, err);
    }
    fr_tool_synthetic_free(synthetic);
    return status;
}

/* ---- the run ---- */

static void print_summary(struct job *job, const char *topic)
{
    double seconds = (double)(fr_mono_ns(fr_clock_system()) - job->begin_ns) * 1e-9;
    struct fr_tool_producer_totals totals = fr_tool_producer_totals(job->producer);
    struct fr_buffer line = {0};
    fr_buffer_printf(&line,
                     "produced topic=%s partitions=%" PRIu32 " records=%" PRIu64 " samples=%" PRIu64 " bytes=%" PRIu64
                     " acknowledged=%" PRIu64 " failed=%" PRIu64 " seconds=%.3f rate=%.0f",
                     topic, job->n_partitions, totals.records, job->samples, totals.bytes, totals.acknowledged,
                     totals.failed, seconds, (double)job->samples / seconds);
    if (job->attainable)
        fr_tool_attainable_print(job->attainable, &line);
    if (job->terminal)
        fputc('\n', stderr);
    printf("%.*s\n", (int)line.size, (const char *)line.data);
    fr_buffer_release(&line);
}

static int run(struct job *job, const char *topic)
{
    struct fr_err err = {0};
    job->begin_ns = job->progress_ns = job->progress_file_ns = fr_mono_ns(fr_clock_system());
    if (job->seconds)
        fr_tool_producer_stop_at(job->producer, job->begin_ns + job->seconds * UINT64_C(1000000000));
    enum fr_status status = job->file_path ? produce_file(job, &err) : produce_synthetic(job, &err);
    int result = status < 0 ? fr_tool_fail("produce", &err) : FR_TOOL_OK;
    /* Samples of a pack that a stop kept from leaving were counted when they were packed. They get
     * one more chance; samples that still cannot be sent are subtracted from the count. */
    for (uint32_t p = 0; p < job->n_partitions; p++) {
        status = send_pack(job, p, &err);
        if (status < 0)
            result = fr_tool_fail("produce", &err);
        job->samples -= status == FR_OK ? 0 : job->packs[p].count;
    }
    if (fr_tool_producer_finish(job->producer, &err) != FR_OK)
        result = fr_tool_fail("produce", &err);
    if (write_progress_file(job, fr_mono_ns(fr_clock_system()), true, &err) != FR_OK)
        result = fr_tool_fail("produce", &err);
    print_summary(job, topic);
    return result;
}

static void release(struct job *job)
{
    for (uint32_t p = 0; job->packs && p < job->n_partitions; p++) {
        fr_buffer_release(&job->packs[p].bytes);
        fr_tool_block_free(job->packs[p].block);
    }
    free(job->packs);
    fr_tool_transcoder_release(&job->transcoder);
    fr_tool_attainable_free(job->attainable);
    fr_tool_producer_close(job->producer);
}

static int open_and_run(struct job *job, const struct fr_tool_producer_options *options, const char *truth_path)
{
    struct fr_err err = {0};
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0)
        return FR_TOOL_FAILED;
    if (fr_tool_producer_open(options, &job->producer, &err) != FR_OK)
        return fr_tool_fail("produce", &err);
    if (truth_path && !(job->truth = fopen(truth_path, "w"))) {
        fprintf(stderr, "freshet produce: --truth %s cannot be written\n", truth_path);
        return FR_TOOL_FAILED;
    }
    job->n_partitions = fr_tool_producer_partitions(job->producer);
    job->packs = fr_alloc(job->n_partitions, sizeof(*job->packs));
    for (uint32_t p = 0; job->block && p < job->n_partitions; p++)
        job->packs[p].block = fr_tool_block_new(job->labels);
    if (!job->file_path)
        job->attainable = fr_tool_attainable_new();
    int result = run(job, options->topic);
    if (job->truth && fclose(job->truth) != 0) {
        fputs("freshet produce: --truth: not all of it was written\n", stderr);
        result = FR_TOOL_FAILED;
    }
    return result;
}

/* ---- options ---- */

/* The options of the command line that belong neither to the job nor to the producer. */
struct given {
    const char *synthetic, *seed, *rate, *truth;
    uint64_t partitions, pack;
    int form, format, timestamps;
};

/* Reads "1000" or "1000/s". */
static bool read_rate(const char *text, uint64_t *out)
{
    char digits[32];
    size_t size = text ? strlen(text) : 0;
    if (size > 2 && size < sizeof(digits) && strcmp(text + size - 2, "/s") == 0) {
        memcpy(digits, text, size - 2);
        digits[size - 2] = '\0';
        text = digits;
    }
    return !text || fr_tool_option_u64("freshet produce: --rate", text, 1, UINT64_C(1000000000), out);
}

static bool check_combination(const struct given *given, const struct job *job,
                              const struct fr_tool_producer_options *options)
{
    const char *wrong = NULL;
    if (!job->file_path == !given->synthetic)
        wrong = "exactly one of --file and --synthetic";
    else if (given->synthetic && strcmp(given->synthetic, "clicks") != 0)
        wrong = "--synthetic knows one stream: clicks";
    else if (job->file_path && (given->seed || given->truth || job->progress_path))
        wrong = "--seed, --truth and --progress-file belong to --synthetic";
    else if (given->pack && given->form == FORM_SAMPLE)
        wrong = "--pack needs --form array or block";
    else if (job->labels && given->form != FORM_BLOCK)
        wrong = "--labels needs --form block";
    else if (!options->group != !options->max_ahead)
        wrong = "--group and --max-ahead go together";
    if (wrong)
        fprintf(stderr, "freshet produce: %s\n", wrong);
    return !wrong;
}

int fr_tool_produce(int argc, char **argv)
{
    static const char *const forms[] = {"sample", "array", "block", NULL}, *const formats[] = {"msgpack", "json", NULL},
                             *const timestamps[] = {"wall", "event", NULL};
    const char *kafka[FR_PRODUCER_KAFKA_MAX];
    struct given given = {0};
    struct job job = {.seed = 1, .terminal = isatty(STDERR_FILENO)};
    struct fr_tool_producer_options options = {.kafka = kafka, .stop = &stop_asked};
    const struct fr_tool_option table[] = {
        {.name = "--brokers", .value = &options.brokers, .required = true},
        {.name = "--topic", .value = &options.topic, .required = true},
        {.name = "--file", .value = &job.file_path},
        {.name = "--synthetic", .value = &given.synthetic},
        {.name = "--seed", .value = &given.seed, .number = &job.seed},
        {.name = "--partitions", .number = &given.partitions, .min = 1, .max = FR_PRODUCER_PARTITIONS_MAX},
        {.name = "--form", .choice = &given.form, .choices = forms},
        {.name = "--pack", .number = &given.pack, .min = 1, .max = PACK_MAX},
        {.name = "--labels", .value = &job.labels},
        {.name = "--format", .choice = &given.format, .choices = formats},
        {.name = "--rate", .value = &given.rate},
        {.name = "--count", .number = &job.count, .min = 1},
        {.name = "--seconds", .number = &job.seconds, .min = 1, .max = 1000000000},
        {.name = "--timestamps", .choice = &given.timestamps, .choices = timestamps},
        {.name = "--group", .value = &options.group},
        {.name = "--max-ahead", .number = &options.max_ahead, .min = 1, .max = INT64_MAX},
        {.name = "--truth", .value = &given.truth},
        {.name = "--progress-file", .value = &job.progress_path},
        {.name = "--kafka-file", .value = &options.kafka_file},
        {.name = "--kafka", .many = kafka, .n_many = &options.n_kafka, .many_max = FR_PRODUCER_KAFKA_MAX},
    };
    int parsed = fr_tool_options_parse(argc, argv, table, FR_ARRAY_LEN(table), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (!check_combination(&given, &job, &options) || !read_rate(given.rate, &job.rate))
        return FR_TOOL_USAGE;
    job.array = given.form == FORM_ARRAY;
    job.block = given.form == FORM_BLOCK;
    job.pack_max = given.form == FORM_SAMPLE ? 1 : given.pack ? (uint32_t)given.pack : PACK_DEFAULT;
    job.json = given.format == 1;
    job.event_time = given.timestamps == 1;
    options.partitions = (uint32_t)given.partitions;
    int result = open_and_run(&job, &options, given.truth);
    release(&job);
    return result;
}
