/* Acknowledgements of a replica: see follow/acknowledger.h.
 *
 * The client is a producer, for which a query that names a topic would create it. So the topic is
 * looked up in the list of all topics before the first record, and again after a record was not
 * delivered.
 *
 * Thread: one, which also runs the client's callbacks. */
#include "follow/acknowledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/acknowledgement.h"
#include "kafka/kafka.h"

enum {
    PACE_MS = 1000,       /* between two acknowledgements */
    HEARTBEAT_MS = 10000, /* the longest time without one */
    LOOK_MS = 10000,      /* between two searches for the topic */
    ANSWER_MS = 500,      /* of such a search */
    LEAVE_MS = 500,       /* for the last record */
};
#define MS UINT64_C(1000000) /* in nanoseconds */

struct fr_acknowledger {
    char name[FR_REPLICA_NAME_MAX + 1];
    char topic[256]; /* "": not known, because the model is not */
    rd_kafka_t *client;
    bool found;           /* the topic exists */
    bool missing_logged;  /* the log says why nothing is written */
    char connection[256]; /* the newest report of the client about its connections */
    uint64_t look_ns;     /* when to search for the topic again */
    /* the last record; written_ns 0: none */
    uint64_t written_ns, scored;
    struct fr_acknowledgement last;
    char model[128];
    uint64_t taken_epoch;
};

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct fr_acknowledger *acknowledger = opaque;
    (void)client;
    (void)fr_kafka_explain_connection(code, reason, acknowledger->connection, sizeof(acknowledger->connection));
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    struct fr_acknowledger *acknowledger = opaque;
    uint64_t epoch = (uint64_t)(uintptr_t)message->_private;
    (void)client;
    if (fr_kafka_refusal(message))
        acknowledger->found = false;
    else if (epoch > 0)
        acknowledger->taken_epoch = epoch;
}

enum fr_status fr_acknowledger_open(const struct fr_acknowledger_options *options, struct fr_acknowledger **out,
                                    struct fr_err *err)
{
    static const struct fr_kafka_setting ours[] = {
        {"message.timeout.ms", "10000"}, /* an older acknowledgement is worth nothing */
        {"queue.buffering.max.messages", "100"},
        {"linger.ms", "0"},
        {NULL, NULL},
    };
    if (!options->name) {
        *out = NULL;
        return FR_OK;
    }
    if (!fr_acknowledgement_name_is_sound(options->name, strlen(options->name)))
        return fr_err_set(err, FR_E_INVALID,
                          "the name of a replica has 1 to %d bytes of UTF-8 without control characters",
                          FR_REPLICA_NAME_MAX);
    if (options->topic && strlen(options->topic) >= sizeof(((struct fr_acknowledger *)0)->topic))
        return fr_err_set(err, FR_E_INVALID, "the name of the acknowledgement topic is too long");
    struct fr_acknowledger *acknowledger = fr_alloc(1, sizeof(*acknowledger));
    snprintf(acknowledger->name, sizeof(acknowledger->name), "%s", options->name);
    snprintf(acknowledger->topic, sizeof(acknowledger->topic), "%s", options->topic ? options->topic : "");
    enum fr_status status = fr_kafka_open(&(struct fr_kafka_options){.type = RD_KAFKA_PRODUCER,
                                                                     .brokers = options->from->brokers,
                                                                     .name = "follow",
                                                                     .ours = ours,
                                                                     .file = options->from->kafka_file,
                                                                     .opaque = acknowledger,
                                                                     .on_error = on_error,
                                                                     .on_delivery = on_delivery,
                                                                     .texts = options->from->properties,
                                                                     .n_texts = options->from->n_properties},
                                          &acknowledger->client, err);
    if (status != FR_OK) {
        free(acknowledger);
        return status;
    }
    *out = acknowledger;
    return FR_OK;
}

/* ---- the topic ---- */

/* Logs once why nothing is written, until something is. */
static void note_missing(struct fr_acknowledger *acknowledger, const char *why)
{
    char quoted[600];
    if (!acknowledger->missing_logged)
        fr_log(FR_LOG_WARN, "follow", "acknowledgements_unwritten", "topic=%s reason=%s", acknowledger->topic,
               fr_log_quote(quoted, sizeof(quoted), why));
    acknowledger->missing_logged = true;
}

static void search(struct fr_acknowledger *acknowledger)
{
    struct fr_kafka_topic topic;
    rd_kafka_resp_err_t error = fr_kafka_topic_ask(acknowledger->client, acknowledger->topic, true, ANSWER_MS, &topic);
    const char *connection = acknowledger->connection;
    if (error || topic.error)
        note_missing(acknowledger, connection[0] ? connection : rd_kafka_err2str(error ? error : topic.error));
    else if (topic.partitions == 0)
        note_missing(acknowledger, "the topic does not exist; a daemon with export.acknowledgements creates it");
    acknowledger->found = !error && topic.partitions > 0;
    if (!acknowledger->found)
        return;
    acknowledger->missing_logged = false;
    acknowledger->connection[0] = '\0';
}

/* Returns whether records can be written now. */
static bool is_ready(struct fr_acknowledger *acknowledger, const struct freshet_replica *replica, uint64_t now_ns)
{
    const char *model = freshet_replica_model(replica);
    if (!model[0])
        return false;
    snprintf(acknowledger->model, sizeof(acknowledger->model), "%s", model);
    if (!acknowledger->topic[0])
        snprintf(acknowledger->topic, sizeof(acknowledger->topic), "%s.ack", acknowledger->model);
    if (acknowledger->found || now_ns < acknowledger->look_ns)
        return acknowledger->found;
    search(acknowledger);
    acknowledger->look_ns = fr_mono_ns(fr_clock_system()) + LOOK_MS * MS;
    return acknowledger->found;
}

/* ---- records ---- */

/* A record that the client has no room for is lost, as one that its broker does not take. After any
 * other refusal, such as of a topic that was deleted, the topic is searched again. */
static void write_record(struct fr_acknowledger *acknowledger, const struct fr_acknowledgement *said)
{
    struct fr_buffer bytes = {0};
    fr_acknowledgement_write(said, acknowledger->model, &bytes);
    rd_kafka_resp_err_t error = rd_kafka_producev(
        acknowledger->client, RD_KAFKA_V_TOPIC(acknowledger->topic),
        RD_KAFKA_V_KEY(acknowledger->name, strlen(acknowledger->name)), RD_KAFKA_V_VALUE(bytes.data, bytes.size),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE((void *)(uintptr_t)said->epoch), RD_KAFKA_V_END);
    if (error && error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
        acknowledger->found = false;
    fr_buffer_release(&bytes);
}

static struct fr_acknowledgement describe(const struct fr_acknowledger *acknowledger,
                                          const struct freshet_replica *replica, const char *problem)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(replica, &info);
    struct fr_acknowledgement said = {.timeline = info.timeline,
                                      .epoch = info.epoch,
                                      .written_ms = fr_wall_ms(fr_clock_system()),
                                      .cut_ms = info.commit_wall_ms,
                                      .watermark_ms = info.watermark_ms,
                                      .rows = info.rows,
                                      .has_rows = info.epoch > 0};
    memcpy(said.name, acknowledger->name, sizeof(said.name));
    snprintf(said.problem, sizeof(said.problem), "%.256s", problem ? problem : "");
    return said;
}

static bool is_due(const struct fr_acknowledger *acknowledger, const struct fr_acknowledgement *now, uint64_t now_ns)
{
    const struct fr_acknowledgement *last = &acknowledger->last;
    bool changed =
        now->timeline != last->timeline || now->epoch != last->epoch || strcmp(now->problem, last->problem) != 0;
    return acknowledger->written_ns == 0 || changed || now_ns >= acknowledger->written_ns + HEARTBEAT_MS * MS;
}

void fr_acknowledger_step(struct fr_acknowledger *acknowledger, const struct freshet_replica *replica,
                          const char *problem)
{
    if (!acknowledger)
        return;
    uint64_t now_ns = fr_mono_ns(fr_clock_system());
    rd_kafka_poll(acknowledger->client, 0);
    if (acknowledger->written_ns > 0 && now_ns < acknowledger->written_ns + PACE_MS * MS)
        return;
    struct fr_acknowledgement said = describe(acknowledger, replica, problem);
    if (!is_due(acknowledger, &said, now_ns) || !is_ready(acknowledger, replica, now_ns))
        return;
    uint64_t scored = freshet_replica_scored(replica);
    said.has_scores = acknowledger->written_ns > 0;
    if (said.has_scores)
        said.scores_per_second =
            (double)(scored - acknowledger->scored) * 1e9 / (double)(now_ns - acknowledger->written_ns);
    write_record(acknowledger, &said);
    acknowledger->written_ns = now_ns;
    acknowledger->scored = scored;
    acknowledger->last = said;
}

uint64_t fr_acknowledger_epoch(const struct fr_acknowledger *acknowledger)
{
    return acknowledger ? acknowledger->taken_epoch : 0;
}

void fr_acknowledger_close(struct fr_acknowledger *acknowledger)
{
    if (!acknowledger)
        return;
    if (acknowledger->written_ns > 0 && acknowledger->found) {
        acknowledger->last.leaving = true;
        write_record(acknowledger, &acknowledger->last);
        (void)rd_kafka_flush(acknowledger->client, LEAVE_MS);
    }
    (void)rd_kafka_purge(acknowledger->client, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_destroy(acknowledger->client);
    free(acknowledger);
}
