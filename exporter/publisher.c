/* The publisher's sending side: journal -> records -> librdkafka -> acknowledgements.
 *
 * One epoch at a time is read from the journal and encoded into `outgoing`; its records are handed
 * to the idempotent producer as far as the in-flight bound allows, then the next. A ring holds the
 * epochs in flight with the number of records not yet acknowledged; `acked` moves over its front.
 * Any failed delivery or fatal error ends the producer: it is purged and made anew after a
 * back-off, and sending starts again behind `acked`. Records may then be on the topic twice, which
 * replicas drop by rule; order within a partition stays ascending from the resent epoch on.
 *
 * Invariants: nothing beyond `offered` (durable, by contract of the caller) is read; sent >= acked;
 * memory is one epoch's records plus max_in_flight_bytes in librdkafka. Owner: the publisher
 * thread, which also runs librdkafka's callbacks; the mutex guards the copy of its tally that other
 * threads read. Source of the producer settings: Kafka's KIP-98 (idempotence).
 * Does not: move the acknowledged mark of the journal. */
#include "publisher_internal.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum { BACKOFF_MIN_MS = 100, BACKOFF_MAX_MS = 5000, PURGE_MS = 1000, TIMESTAMP_SKEW_MS = 3600 * 1000 };
/* Below the epoch in a delivery report. */
enum { MARK_BEGINS = 1, MARK_OTHER_TOPIC = 2, MARK_BITS = 2 };

void fr_publisher_problem(struct fr_publisher *publisher, const char *text)
{
    snprintf(publisher->tally.problem, sizeof(publisher->tally.problem), "%s", text);
    fr_publisher_tell(publisher);
}

/* ---- librdkafka's callbacks ---- */

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    struct fr_publisher *publisher = opaque;
    char text[256];
    if (error == RD_KAFKA_RESP_ERR__FATAL) {
        char cause[200];
        rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(client, cause, sizeof(cause));
        snprintf(text, sizeof(text), "producer failed (%s): %s", rd_kafka_err2name(fatal), cause);
        atomic_store(&publisher->fatal, true);
    } else {
        fr_kafka_explain(error, reason, text, sizeof(text));
    }
    /* That all brokers are down says less than why. */
    if (error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !publisher->connection[0])
        memcpy(publisher->connection, text, sizeof(text));
    fr_publisher_problem(publisher, text);
    uint64_t now = fr_mono_ns(publisher->options.clock);
    char quoted[300];
    if (fr_log_due(&publisher->logged_ns, now, UINT64_C(10000000000)))
        fr_log(FR_LOG_WARN, "publisher", "broker_error", "error=%s problem=%s", rd_kafka_err2name(error),
               fr_log_quote(quoted, sizeof(quoted), text));
}

static struct pending_epoch *pending_at(struct fr_publisher *publisher, size_t i)
{
    return &publisher->pending[(publisher->pending_begin + i) % PENDING_EPOCHS_MAX];
}

/* Epochs in the ring ascend, and are consecutive where none is merged. */
static struct pending_epoch *find_pending(struct fr_publisher *publisher, uint64_t epoch)
{
    size_t low = 0, high = publisher->n_pending;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pending_at(publisher, middle)->epoch < epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low < publisher->n_pending && pending_at(publisher, low)->epoch == epoch ? pending_at(publisher, low) : NULL;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    (void)client;
    struct fr_publisher *publisher = opaque;
    FR_CHECK(publisher->in_flight_bytes >= message->len);
    publisher->in_flight_bytes -= message->len;
    if (fr_kafka_refusal(message)) {
        if (!publisher->failed)
            fr_publisher_refused(publisher, message);
        publisher->failed = true;
        publisher->doubted |= !message->err;
        return;
    }
    uint64_t mark = (uint64_t)(uintptr_t)message->_private;
    if ((mark & MARK_OTHER_TOPIC) == 0)
        fr_publisher_landed(publisher, message->partition, message->offset, (mark & MARK_BEGINS) != 0);
    struct pending_epoch *pending = find_pending(publisher, mark >> MARK_BITS);
    if (pending && pending->outstanding > 0)
        pending->outstanding -= 1;
}

/* ---- handles ---- */

enum fr_status fr_publisher_client(struct fr_publisher *publisher, struct fr_kafka_options options, rd_kafka_t **out,
                                   struct fr_err *err)
{
    options.brokers = publisher->options.brokers;
    options.name = publisher->options.model;
    options.properties = publisher->properties;
    options.n_properties = publisher->options.n_properties;
    options.opaque = publisher;
    options.on_error = on_error;
    options.report = publisher->report;
    return fr_kafka_open(&options, out, err);
}

/* Brokers compare max.message.bytes with a batch, and librdkafka does not split one that was
 * refused. So several records together take no more than one may, which is what the start check
 * asks the topics to take. */
static unsigned batch_bytes(const struct fr_publisher_options *options)
{
    uint64_t most = BATCH_MAX;
    if (options->record_max > 0 && options->record_max < most)
        most = options->record_max;
    if (options->n_hps_tables > 0 && HPS_MESSAGE_MAX < most)
        most = HPS_MESSAGE_MAX;
    return (unsigned)most;
}

/* Ours come last where a promise hangs on them; linger and requests in flight may be the operator's
 * choice (with several, more is sent again: fr_kafka_refusal). A message never times out: what the
 * broker does not take waits (in the journal beyond the in-flight bound), with its problem. */
enum fr_status fr_publisher_producer(struct fr_publisher *publisher, struct fr_err *err)
{
    if (publisher->producer)
        return FR_OK;
    char record_max[16], batch_max[16];
    snprintf(record_max, sizeof(record_max), "%d", (int)RECORD_BYTES_MAX);
    snprintf(batch_max, sizeof(batch_max), "%u", batch_bytes(&publisher->options));
    const struct fr_kafka_setting ours[] = {
        {"linger.ms", "5"}, {"max.in.flight", "1"}, {"batch.size", batch_max}, {NULL, NULL}};
    const struct fr_kafka_setting required[] = {
        {"enable.idempotence", "true"},
        {"enable.gapless.guarantee", "true"}, /* no commit behind a lost piece */
        {"acks", "all"},
        {"message.timeout.ms", "0"},
        {"message.max.bytes", record_max},
        {"isolation.level", "read_uncommitted"}, /* of its questions: where the topic ends */
        {NULL, NULL},
    };
    struct fr_kafka_options options = {
        .type = RD_KAFKA_PRODUCER, .ours = ours, .required = required, .on_delivery = on_delivery};
    enum fr_status status = fr_publisher_client(publisher, options, &publisher->producer, err);
    if (status != FR_OK)
        return status;
    atomic_store(&publisher->fatal, false);
    publisher->failed = false;
    return FR_OK;
}

void fr_publisher_clear_outgoing(struct outgoing *out)
{
    for (size_t i = 0; i < out->n; i++)
        free(out->records[i].bytes);
    out->n = out->next = 0;
    fr_publisher_hps_forget(out->hps);
}

static void end_producer(struct fr_publisher *publisher)
{
    if (!publisher->producer)
        return;
    /* Purged records come back as failed deliveries, which set `failed` and nothing else. */
    (void)rd_kafka_purge(publisher->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    (void)rd_kafka_flush(publisher->producer, PURGE_MS);
    rd_kafka_destroy(publisher->producer);
    publisher->producer = NULL;
    publisher->in_flight_bytes = 0;
    publisher->n_pending = 0;
    fr_publisher_clear_outgoing(&publisher->out);
    publisher->sent = publisher->acked;
    publisher->backlog.look_at = 0;
    publisher->sent_begin = (struct fr_topic_begin){0};
}

/* ---- life ---- */

static void copy_properties(struct fr_publisher *publisher)
{
    const struct fr_publisher_options *options = &publisher->options;
    publisher->properties = fr_alloc(options->n_properties + 1, sizeof(*publisher->properties));
    for (size_t i = 0; i < options->n_properties; i++)
        publisher->properties[i] = (struct fr_kafka_property){options->properties[i].name, options->properties[i].value,
                                                              options->properties[i].place};
}

void fr_publisher_report(const struct fr_publisher_options *options,
                         void (*problem)(void *self, const char *place, const char *text), void *self)
{
    if (!options->brokers)
        return;
    struct fr_kafka_report report = {problem, self};
    struct fr_publisher *publisher = fr_alloc(1, sizeof(*publisher));
    struct fr_err err = {0};
    publisher->options = *options;
    publisher->report = &report;
    copy_properties(publisher);
    if (fr_publisher_producer(publisher, &err) != FR_OK || fr_publisher_reader(publisher, NULL, &err) != FR_OK)
        problem(self, NULL, err.text);
    free(publisher->properties);
    free(publisher);
}

enum fr_status fr_publisher_new(const struct fr_publisher_options *options, struct fr_publisher **out,
                                struct fr_err *err)
{
    if (options->partitions == 0 || options->partitions > FR_DELTA_PARTITIONS_MAX)
        return fr_err_set(err, FR_E_INVALID, "export.partitions is %u; expected 1 to %d", options->partitions,
                          FR_DELTA_PARTITIONS_MAX);
    struct fr_publisher *publisher = fr_alloc(1, sizeof(*publisher));
    publisher->options = *options;
    if (publisher->options.max_in_flight_bytes == 0)
        publisher->options.max_in_flight_bytes = IN_FLIGHT_DEFAULT;
    publisher->begun_ns = publisher->policy_ns = fr_mono_ns(options->clock);
    publisher->topic = fr_alloc(options->partitions, sizeof(*publisher->topic));
    publisher->told_next = fr_alloc(options->partitions, sizeof(*publisher->told_next));
    for (uint32_t p = 0; p < options->partitions; p++)
        publisher->told_next[p] = -1;
    copy_properties(publisher);
    publisher->out.hps = fr_publisher_hps_new(options);
    int rc = pthread_mutex_init(&publisher->mutex, NULL);
    FR_CHECK(rc == 0);
    /* a property that librdkafka refuses shows here, not at the first epoch */
    enum fr_status status =
        options->brokers ? fr_publisher_client(publisher, (struct fr_kafka_options){0}, NULL, err) : FR_OK;
    if (status != FR_OK) {
        fr_publisher_free(publisher);
        return status;
    }
    *out = publisher;
    return FR_OK;
}

void fr_publisher_free(struct fr_publisher *publisher)
{
    if (!publisher)
        return;
    end_producer(publisher);
    fr_publisher_end_rebase(publisher);
    pthread_mutex_destroy(&publisher->mutex);
    free(publisher->properties);
    free(publisher->topic);
    free(publisher->told_next);
    fr_publisher_clear_outgoing(&publisher->out);
    free(publisher->out.records);
    fr_publisher_hps_free(publisher->out.hps);
    fr_buffer_release(&publisher->borrowed.own);
    fr_buffer_release(&publisher->head_bytes);
    fr_export_room_release(&publisher->room);
    free(publisher);
}

void fr_publisher_offer(struct fr_publisher *publisher, uint64_t epoch)
{
    uint64_t before = atomic_load(&publisher->offered);
    while (before < epoch && !atomic_compare_exchange_weak(&publisher->offered, &before, epoch))
        continue; /* the publisher's thread, after the check, offers too */
}

/* ---- sending ---- */

struct outgoing_record *fr_publisher_add_outgoing(struct outgoing *out, const char *topic, uint32_t partition,
                                                  const void *bytes, size_t size)
{
    if (out->n == out->capacity) {
        out->capacity = out->capacity ? out->capacity * 2 : 64;
        out->records = fr_realloc(out->records, out->capacity, sizeof(*out->records));
    }
    uint8_t *own = fr_realloc(NULL, size, 1);
    memcpy(own, bytes, size);
    out->records[out->n] = (struct outgoing_record){topic, partition, false, size, own};
    return &out->records[out->n++];
}

static enum fr_status keep_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct outgoing *out = self;
    fr_publisher_add_outgoing(out, NULL, partition, bytes, size)->begins = out->begins && piece == 0;
    return out->hps ? fr_publisher_hps_add(out->hps, out, bytes, size) : FR_OK;
}

/* The Kafka timestamp is the wall time of the cut. In lockstep mode the announcement says the
 * watermark instead, event time, and a broker deletes by timestamp: a time that is far from the
 * present gives way to it. */
static int64_t record_timestamp(const struct fr_publisher *publisher, int64_t cut_ms)
{
    int64_t now = fr_wall_ms(publisher->options.clock);
    return cut_ms < now - TIMESTAMP_SKEW_MS || cut_ms > now + TIMESTAMP_SKEW_MS ? now : cut_ms;
}

/* Encodes the borrowed epoch with the settings of its own journal file. */
static enum fr_status encode_epoch(struct fr_publisher *publisher, uint64_t number, struct fr_err *err)
{
    struct outgoing *out = &publisher->out;
    struct fr_epoch epoch;
    struct fr_codec_settings settings;
    const struct fr_borrowed_epoch *borrowed = &publisher->borrowed;
    enum fr_status status = borrowed->kept ? fr_epoch_own(borrowed->bytes, borrowed->size, &epoch)
                                           : fr_epoch_view(borrowed->bytes, borrowed->size, &epoch);
    if (status != FR_OK || epoch.epoch != number)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " of the journal does not parse", number);
    epoch.digest = borrowed->digest;
    status = fr_codec_settings_parse(publisher->head_bytes.data, publisher->head_bytes.size, &settings);
    if (status != FR_OK)
        return fr_err_set(err, status, "the head of the journal file of epoch %" PRIu64 " does not parse", number);
    uint64_t saturated = 0, asked = settings.piece_max;
    struct fr_delta_rewind room;
    const struct fr_export_span one = {&epoch, 1, fr_publisher_rewind_of(publisher, number, &room), &publisher->room};
    out->begins = number == 1 || one.rewind;
    fr_publisher_begin_sent(publisher, number, &epoch);
    if (settings.np != publisher->options.partitions)
        status = fr_err_set(err, FR_E_MISMATCH, "epoch %" PRIu64 " was cut for %u delta partitions, the config says %u",
                            number, settings.np, publisher->options.partitions);
    int64_t cut_ms = 0;
    if (status == FR_OK)
        status = fr_export_wall_ms(&epoch, &cut_ms, err);
    if (status == FR_OK)
        status = fr_export_span(&settings, &one, keep_record, out, &saturated, err);
    while (status == FR_E_LIMIT && fr_export_widen(&settings)) {
        fr_publisher_clear_outgoing(out);
        saturated = 0;
        status = fr_export_span(&settings, &one, keep_record, out, &saturated, err);
    }
    if (status == FR_OK && settings.piece_max != asked)
        fr_log(FR_LOG_WARN, "publisher", "piece_max_widened",
               "epoch=%" PRIu64 " from=%" PRIu64 " to=%" PRIu64
               " problem=\"a row, the model or the commit does not fit export.piece_max of its journal file; the "
               "brokers and readers of the topic must take records of the larger size\"",
               number, asked, settings.piece_max);
    fr_codec_settings_release(&settings);
    if (status != FR_OK)
        return status;
    out->epoch = number;
    out->timestamp_ms = record_timestamp(publisher, cut_ms);
    if (number > publisher->highest_sent) {
        publisher->tally.saturated += saturated;
        publisher->highest_sent = number;
    } else {
        publisher->tally.resent_epochs += 1;
    }
    return FR_OK;
}

/* Takes epoch sent + 1, from memory or from the journal, and encodes it. */
static enum fr_status load_epoch(struct fr_publisher *publisher, uint64_t number, struct fr_err *err)
{
    struct outgoing *out = &publisher->out;
    fr_publisher_clear_outgoing(out);
    fr_buffer_clear(&publisher->head_bytes);
    struct fr_borrowed_epoch *borrowed = &publisher->borrowed;
    enum fr_status status =
        fr_durable_borrow(publisher->options.durable, number, borrowed, &publisher->head_bytes, err);
    if (status == FR_OK)
        status = encode_epoch(publisher, number, err);
    fr_durable_give_back(publisher->options.durable, borrowed);
    if (status != FR_OK) {
        fr_publisher_clear_outgoing(out);
        return status;
    }
    *pending_at(publisher, publisher->n_pending++) = (struct pending_epoch){number, 0, false};
    return FR_OK;
}
/* Hands over records of the outgoing epoch while they fit; FR_AGAIN when the bound or librdkafka's
 * queue is full. */
static enum fr_status produce_some(struct fr_publisher *publisher, struct fr_err *err)
{
    struct outgoing *out = &publisher->out;
    struct pending_epoch *pending = find_pending(publisher, out->epoch);
    FR_CHECK(pending != NULL);
    for (; out->next < out->n; out->next++) {
        struct outgoing_record *record = &out->records[out->next];
        size_t limit = publisher->options.max_in_flight_bytes, used = publisher->in_flight_bytes;
        if (used >= limit || (used > 0 && record->size > limit - used))
            return FR_AGAIN; /* a record beyond the limit goes alone */
        const char *topic = record->topic ? record->topic : publisher->options.topic;
        uint64_t mark =
            out->epoch << MARK_BITS | (record->topic ? MARK_OTHER_TOPIC : 0) | (record->begins ? MARK_BEGINS : 0);
        rd_kafka_resp_err_t error = rd_kafka_producev(
            publisher->producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION((int32_t)record->partition),
            RD_KAFKA_V_VALUE(record->bytes, record->size), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_FREE),
            RD_KAFKA_V_TIMESTAMP(out->timestamp_ms), RD_KAFKA_V_OPAQUE((void *)(uintptr_t)mark), RD_KAFKA_V_END);
        if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL)
            return FR_AGAIN;
        if (error) {
            publisher->failed = true;
            return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s refuses a record of %zu bytes: %s", topic, record->size,
                              rd_kafka_err2str(error));
        }
        record->bytes = NULL;
        publisher->in_flight_bytes += record->size;
        pending->outstanding += 1;
        publisher->tally.records += 1;
        publisher->tally.bytes += record->size;
    }
    fr_publisher_hps_tell(publisher);
    if (publisher->rebase.wanted && !publisher->rebase.sent)
        return FR_OK; /* more of this epoch follows */
    publisher->rebase.wanted = false;
    pending->complete = true;
    publisher->sent = out->epoch;
    return FR_OK;
}

/* Takes the next records of the merged epoch; its entry comes with the first. */
static enum fr_status load_rebase(struct fr_publisher *publisher, struct fr_err *err)
{
    fr_publisher_clear_outgoing(&publisher->out);
    enum fr_status status = fr_publisher_load_rebase(publisher, keep_record, err);
    if (status != FR_OK) {
        fr_publisher_clear_outgoing(&publisher->out);
        return status;
    }
    if (publisher->n_pending == 0)
        *pending_at(publisher, publisher->n_pending++) = (struct pending_epoch){publisher->out.epoch, 0, false};
    return FR_OK;
}

static enum fr_status load_merged(struct fr_publisher *publisher, struct fr_err *err)
{
    fr_publisher_clear_outgoing(&publisher->out);
    enum fr_status status = fr_publisher_load_merged(publisher, keep_record, err);
    if (status != FR_OK)
        fr_publisher_clear_outgoing(&publisher->out);
    else
        *pending_at(publisher, publisher->n_pending++) = (struct pending_epoch){publisher->out.epoch, 0, false};
    return status;
}

static enum fr_status send_waiting(struct fr_publisher *publisher, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (!fr_publisher_await_rewind(publisher))
        return FR_OK;
    while (status == FR_OK) {
        if (publisher->out.next == publisher->out.n && publisher->rebase.wanted) {
            status = load_rebase(publisher, err);
        } else if (publisher->out.next == publisher->out.n) {
            if (publisher->sent >= atomic_load(&publisher->offered) || publisher->n_pending == PENDING_EPOCHS_MAX)
                return FR_OK;
            bool merges = fr_publisher_wants_merge(publisher);
            if (!merges && publisher->rebase.wanted)
                continue;
            status = merges ? load_merged(publisher, err) : load_epoch(publisher, publisher->sent + 1, err);
        }
        if (status == FR_OK)
            status = produce_some(publisher, err);
    }
    return status == FR_AGAIN ? FR_OK : status;
}

static enum fr_status begin_landed(struct fr_publisher *publisher, struct fr_err *err)
{
    if (publisher->rebase.full) {
        publisher->tally.rebases += 1;
        fr_log(FR_LOG_INFO, "publisher", "rebase_end", "topic=%s epoch=%" PRIu64, publisher->options.topic,
               publisher->sent_begin.epoch);
        fr_publisher_end_rebase(publisher);
    }
    if (publisher->sent_begin.to > 0)
        fr_publisher_rewind_landed(publisher);
    return fr_publisher_begin_landed(publisher, err);
}

static enum fr_status settle(struct fr_publisher *publisher, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    bool moved = false;
    while (publisher->n_pending > 0 && pending_at(publisher, 0)->complete &&
           pending_at(publisher, 0)->outstanding == 0) {
        publisher->acked = pending_at(publisher, 0)->epoch;
        publisher->pending_begin = (publisher->pending_begin + 1) % PENDING_EPOCHS_MAX;
        publisher->n_pending -= 1;
        moved = true;
    }
    if (moved) {
        publisher->backoff_ms = 0;
        publisher->tally.problem[0] = publisher->tally.refused[0] = '\0';
    }
    if (publisher->sent_begin.epoch > 0 && publisher->acked >= publisher->sent_begin.epoch)
        status = begin_landed(publisher, err);
    fr_publisher_tell(publisher);
    return status;
}

/* Ends the producer after a failure and plans the next attempt. */
static void restart_later(struct fr_publisher *publisher)
{
    char quoted[300];
    end_producer(publisher);
    publisher->failed = false;
    publisher->moved = true; /* what the topic took of it is looked at */
    atomic_store(&publisher->fatal, false);
    publisher->backoff_ms = publisher->backoff_ms ? publisher->backoff_ms * 2 : BACKOFF_MIN_MS;
    if (publisher->backoff_ms > BACKOFF_MAX_MS)
        publisher->backoff_ms = BACKOFF_MAX_MS;
    publisher->retry_at_ns = fr_mono_ns(publisher->options.clock) + publisher->backoff_ms * 1000000u;
    publisher->tally.errors += 1;
    fr_log(FR_LOG_WARN, "publisher", "producer_restart", "acked=%" PRIu64 " retry_in_ms=%" PRIu64 " problem=%s",
           publisher->acked, publisher->backoff_ms, fr_log_quote(quoted, sizeof(quoted), publisher->tally.problem));
}

/* A producer, once the back-off is over and the topic was looked at. */
static enum fr_status make_producer(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(publisher->options.clock);
    if (now < publisher->retry_at_ns) {
        uint64_t left_ms = (publisher->retry_at_ns - now) / 1000000u + 1;
        (void)poll(NULL, 0, wait_ms < 0 || left_ms < (uint64_t)wait_ms ? (int)left_ms : wait_ms);
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", publisher->tally.problem);
    }
    enum fr_status status = publisher->moved ? fr_publisher_check(publisher, err) : FR_OK;
    if (status == FR_E_UNAVAILABLE)
        publisher->retry_at_ns = fr_mono_ns(publisher->options.clock) + BACKOFF_MAX_MS * UINT64_C(1000000);
    return status == FR_OK ? fr_publisher_producer(publisher, err) : status;
}

/* The topic is not what it was; everything that was not acknowledged is sent after a look at it. */
static void look_again(struct fr_publisher *publisher)
{
    if (!publisher->rewind.looks)
        fr_log(FR_LOG_WARN, "publisher", "topic_changed",
               "topic=%s acked=%" PRIu64 " note=\"it was made anew or lost records; it is looked at\"",
               publisher->options.topic, publisher->acked);
    publisher->rewind.looks = false;
    end_producer(publisher);
}

/* One turn with a producer that works. */
static enum fr_status turn(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    enum fr_status status = send_waiting(publisher, err);
    rd_kafka_poll(publisher->producer, wait_ms);
    while (rd_kafka_poll(publisher->producer, 0) > 0)
        continue; /* bounded by the records in flight */
    fr_publisher_ask(publisher);
    if ((status == FR_OK || status == FR_E_UNAVAILABLE) && fr_publisher_has_gaps(publisher)) {
        /* before anything is told: nothing is acknowledged beside another writer */
        enum fr_status between = fr_publisher_check_gaps(publisher, err);
        status = between == FR_OK ? status : between;
    }
    return status;
}

enum fr_status fr_publisher_step(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    if (!publisher->checked)
        return fr_err_set(err, FR_E_STATE, "the delta topic was not checked yet");
    if (!publisher->options.brokers)
        return fr_publisher_step_without_brokers(publisher, wait_ms);
    enum fr_status status = FR_OK;
    if (!publisher->producer) {
        status = make_producer(publisher, wait_ms, err);
        if (status != FR_OK)
            return status;
    }
    status = turn(publisher, wait_ms, err);
    if (status == FR_E_MISMATCH)
        return status;
    enum fr_status settled = settle(publisher, err);
    if (settled != FR_OK)
        return settled;
    if (publisher->failed || atomic_load(&publisher->fatal)) {
        if (status == FR_E_UNAVAILABLE && err)
            fr_publisher_problem(publisher, err->text);
        restart_later(publisher);
        fr_publisher_tell(publisher);
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", publisher->tally.problem);
    }
    if (publisher->moved)
        look_again(publisher);
    if (status == FR_OK && publisher->in_flight_bytes > 0 && publisher->tally.problem[0] != '\0')
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", publisher->tally.problem);
    if (status == FR_OK && publisher->tally.refused[0] != '\0') /* nothing was acknowledged since */
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", publisher->tally.refused);
    return status;
}
