/* `freshet topic create`: makes a topic for samples (docs/commands.md, "freshet topic").
 *
 * A topic of samples keeps every record for a time (cleanup.policy=delete): the daemon refuses a
 * compacted one, because compaction removes samples that were not read. A topic that exists is
 * never changed; the command prints its settings. Topics of deltas and dead letters are made by the
 * daemon itself.
 *
 * Thread: the caller's. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "kafka/kafka.h"
#include "tool.h"

enum {
    PARTITIONS_DEFAULT = 4,
    PARTITIONS_MAX = 4096,
    REPLICAS_MAX = 64,
    KAFKA_MAX = 64, /* --kafka in one command */
    ANSWER_MS = 10000,
    APPEAR_MS = 10000, /* a new topic is announced and gets leaders after its creation */
    POLL_MS = 20,
};
static const int64_t retention_default_ms = INT64_C(7) * 86400000;

static const char usage[] =
    "freshet topic create --brokers B --topic T [options]\n"
    "\n"
    "Makes a topic for samples and prints its settings. A topic that exists is not changed: prints its settings, exit 1.\n"
    "\n"
    "  --partitions N        number of partitions, which are read at the same time (4)\n"
    "  --retention D         how long records are kept, such as 36h or 7d (7d): a model can be trained again from these\n"
    "  --replication N       copies of each partition (the brokers' default); 3 where samples must not be lost\n"
    "  --kafka-file FILE     librdkafka properties, NAME=VALUE a line: the place of passwords\n"
    "  --kafka NAME=VALUE    a librdkafka property (many); every user of the host can see it\n";

struct request {
    const char *brokers, *topic, *kafka_file;
    const char *kafka[KAFKA_MAX];
    size_t n_kafka;
    uint64_t partitions, replicas;
    int64_t retention_ms;
    char problem[FR_KAFKA_TEXT_MAX]; /* the last error of a connection; "": none */
};

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct request *request = opaque;
    (void)client;
    (void)fr_kafka_explain_connection(code, reason, request->problem, sizeof(request->problem));
}

static enum fr_status look_up(rd_kafka_t *client, struct request *request, struct fr_kafka_topic *found,
                              struct fr_err *err)
{
    rd_kafka_resp_err_t code = fr_kafka_topic_ask(client, request->topic, true, ANSWER_MS, found);
    rd_kafka_poll(client, 0); /* reports errors of connections */
    bool known = request->problem[0] != '\0';
    if (code)
        return fr_err_set(err, FR_E_UNAVAILABLE,
                          "no answer from the brokers at %s: %s%s%s%s; start the brokers, or correct --brokers",
                          request->brokers, rd_kafka_err2str(code), known ? " (" : "", request->problem,
                          known ? ")" : "");
    if (found->error)
        return fr_err_set(err, fr_kafka_status(found->error), "topic %s: %s", request->topic,
                          rd_kafka_err2str(found->error));
    return FR_OK;
}

/* Writes "topic=clicks partitions=4 replication=1 retention.ms=604800000 cleanup.policy=delete";
 * the last two if the brokers give them. */
static void describe(rd_kafka_t *client, const struct request *request, const struct fr_kafka_topic *found, char *text,
                     size_t size)
{
    char *const topic = (char *)(uintptr_t)request->topic;
    char reason[FR_KAFKA_TEXT_MAX];
    struct fr_kafka_topic_settings settings;
    int n = snprintf(text, size, "topic=%s partitions=%" PRIu32 " replication=%" PRIu32, request->topic,
                     found->partitions, found->replicas);
    if (n < 0 || (size_t)n >= size || !fr_kafka_topic_describe(client, &topic, 1, &settings, reason) || settings.error)
        return;
    snprintf(text + n, size - (size_t)n, " retention.ms=%" PRId64 " cleanup.policy=%s", settings.retention_ms,
             settings.cleanup);
}

static enum fr_status wait_for_topic(rd_kafka_t *client, struct request *request, struct fr_kafka_topic *found,
                                     struct fr_err *err)
{
    const struct fr_clock *clock = fr_clock_system();
    uint64_t end_ns = fr_mono_ns(clock) + APPEAR_MS * UINT64_C(1000000);
    for (;;) {
        enum fr_status status = look_up(client, request, found, err);
        if (status != FR_OK || (found->partitions > 0 && found->led))
            return status;
        if (fr_mono_ns(clock) > end_ns)
            return fr_err_set(
                err, FR_E_UNAVAILABLE,
                "topic %s was made, but the brokers do not list all of its partitions yet: run this again to see its settings",
                request->topic);
        rd_kafka_poll(client, POLL_MS);
    }
}

static enum fr_status make_topic(rd_kafka_t *client, struct request *request, struct fr_err *err)
{
    char retention[24], text[512];
    struct fr_kafka_topic found;
    enum fr_status status = look_up(client, request, &found, err);
    if (status != FR_OK)
        return status;
    if (found.partitions > 0) {
        describe(client, request, &found, text, sizeof(text));
        return fr_err_set(
            err, FR_E_EXISTS,
            "the topic is there already and was not changed: %s (if these settings are wrong, give another --topic)",
            text);
    }
    snprintf(retention, sizeof(retention), "%" PRId64, request->retention_ms);
    const struct fr_kafka_setting settings[] = {
        {"cleanup.policy", "delete"}, {"retention.ms", retention}, {NULL, NULL}};
    const struct fr_kafka_new_topic wanted = {.name = request->topic,
                                              .partitions = (uint32_t)request->partitions,
                                              .replicas = (uint32_t)request->replicas,
                                              .settings = settings};
    status = found.administrable ? fr_kafka_topic_create(client, &wanted, err) : FR_AGAIN;
    if (status == FR_AGAIN)
        return fr_err_set(err, FR_E_UNSUPPORTED,
                          "these brokers make no topics on request; the embedded broker makes them when it starts "
                          "(`freshet broker --topic %s:%" PRIu64 "`)",
                          request->topic, request->partitions);
    if (status != FR_OK) {
        (void)fr_err_wrap(err, "topic %s cannot be made", request->topic);
        return status;
    }
    status = wait_for_topic(client, request, &found, err);
    if (status != FR_OK)
        return status;
    describe(client, request, &found, text, sizeof(text));
    printf("made %s\n", text);
    return FR_OK;
}

static int create(int argc, char **argv)
{
    struct request request = {.partitions = PARTITIONS_DEFAULT, .retention_ms = retention_default_ms};
    const struct fr_tool_option options[] = {
        {.name = "--brokers", .value = &request.brokers, .required = true},
        {.name = "--topic", .value = &request.topic, .required = true},
        {.name = "--partitions", .number = &request.partitions, .min = 1, .max = PARTITIONS_MAX},
        {.name = "--retention", .duration_ms = &request.retention_ms},
        {.name = "--replication", .number = &request.replicas, .min = 1, .max = REPLICAS_MAX},
        {.name = "--kafka-file", .value = &request.kafka_file},
        {.name = "--kafka", .many = request.kafka, .n_many = &request.n_kafka, .many_max = KAFKA_MAX},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (request.retention_ms == 0) {
        fputs("freshet topic: --retention: expected more than 0\n", stderr);
        return FR_TOOL_USAGE;
    }
    struct fr_err err = {0};
    rd_kafka_t *client = NULL;
    enum fr_status status = fr_kafka_open(&(struct fr_kafka_options){.type = RD_KAFKA_PRODUCER,
                                                                     .brokers = request.brokers,
                                                                     .name = "topic",
                                                                     .file = request.kafka_file,
                                                                     .texts = request.kafka,
                                                                     .n_texts = request.n_kafka,
                                                                     .opaque = &request,
                                                                     .on_error = on_error},
                                          &client, &err);
    if (status == FR_OK)
        status = make_topic(client, &request, &err);
    if (client)
        rd_kafka_destroy(client);
    return status == FR_OK ? FR_TOOL_OK : fr_tool_fail("topic", &err);
}

int fr_tool_topic(int argc, char **argv)
{
    char named[] = "freshet topic create"; /* as messages say it */
    if (argc >= 2 && strcmp(argv[1], "create") == 0) {
        argv[1] = named;
        return create(argc - 1, argv + 1);
    }
    bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs(usage, help ? stdout : stderr);
    return help ? FR_TOOL_OK : FR_TOOL_USAGE;
}
