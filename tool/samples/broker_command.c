/* `freshet broker`: librdkafka's embedded (mock) broker as a separate process, for trying things
 * without a Kafka.
 *
 * It runs one broker on a free loopback port and prints its address as one line on stdout, then
 * runs until SIGTERM or SIGINT (exit 0). It keeps 5 MiB or 100000 record batches of each partition
 * in memory and drops the oldest, so a producer must be paced by its consumer (`produce --group
 * --max-ahead`). Topics that are not named are created with 4 partitions when they are first
 * requested. It does not support transactions, compaction, admin requests, times or restarts.
 *
 * Thread: the caller's; the broker runs in librdkafka's threads. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kafka/kafka.h"
#include <librdkafka/rdkafka_mock.h>
#include "tool.h"

enum { TOPICS_MAX = 64, PARTITIONS_MAX = 1024, NAME_MAX_BYTES = 249 /* Kafka's own limit */ };

static const char usage[] =
    "freshet broker [--topic NAME:PARTITIONS]...\n"
    "\n"
    "Runs an embedded broker on a free loopback port, prints its address, lives until SIGTERM.\n"
    "  --topic NAME:PARTITIONS  makes a topic (many); others get 4 partitions when first used\n"
    "It keeps 5 MiB per partition, oldest dropped: pace the producer (produce --group G --max-ahead N).\n";

/* The last colon separates the name from the count: topic names contain no colon. */
static bool make_topic(rd_kafka_mock_cluster_t *cluster, const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || (size_t)(colon - text) > NAME_MAX_BYTES) {
        fprintf(stderr, "freshet broker: --topic %s: expected NAME:PARTITIONS\n", text);
        return false;
    }
    uint64_t partitions;
    if (!fr_tool_option_u64("freshet broker: --topic: partitions", colon + 1, 1, PARTITIONS_MAX, &partitions))
        return false;
    char name[NAME_MAX_BYTES + 1];
    memcpy(name, text, (size_t)(colon - text));
    name[colon - text] = '\0';
    rd_kafka_resp_err_t error = rd_kafka_mock_topic_create(cluster, name, (int)partitions, 1);
    if (error)
        fprintf(stderr, "freshet broker: topic %s: %s\n", name, rd_kafka_err2str(error));
    return !error;
}

static int serve(rd_kafka_t *handle, const char **topics, size_t n_topics, const sigset_t *stop)
{
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(handle, 1);
    if (!cluster) {
        fputs("freshet broker: the embedded broker did not start\n", stderr);
        return FR_TOOL_FAILED;
    }
    int result = FR_TOOL_OK;
    for (size_t i = 0; i < n_topics && result == FR_TOOL_OK; i++)
        result = make_topic(cluster, topics[i]) ? FR_TOOL_OK : FR_TOOL_USAGE;
    if (result == FR_TOOL_OK) {
        int received = 0;
        if (printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster)) < 0 || fflush(stdout) != 0)
            /* the address could not be printed, so no client could learn it */
            result = FR_TOOL_FAILED;
        else if (sigwait(stop, &received) != 0)
            result = FR_TOOL_FAILED;
    }
    rd_kafka_mock_cluster_destroy(cluster);
    return result;
}

int fr_tool_broker(int argc, char **argv)
{
    const char *topics[TOPICS_MAX];
    size_t n_topics = 0;
    const struct fr_tool_option options[] = {
        {.name = "--topic", .many = topics, .n_many = &n_topics, .many_max = TOPICS_MAX},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;

    /* Blocked before librdkafka starts its threads, so that all of them leave the signals to
     * sigwait. */
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    if (pthread_sigmask(SIG_BLOCK, &stop, NULL) != 0)
        return FR_TOOL_FAILED;

    /* The handle only carries the cluster. Without this, librdkafka would warn that the handle has
     * no servers of its own. */
    static const struct fr_kafka_setting quiet[] = {{"log_level", "3"}, {NULL, NULL}};
    rd_kafka_t *handle = NULL;
    struct fr_err err = {0};
    struct fr_kafka_options client = {.type = RD_KAFKA_PRODUCER, .name = "broker", .ours = quiet};
    if (fr_kafka_open(&client, &handle, &err) != FR_OK)
        return fr_tool_fail("broker", &err);
    int result = serve(handle, topics, n_topics, &stop);
    rd_kafka_destroy(handle);
    return result;
}
