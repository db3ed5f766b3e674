/* Hands outgoing records to librdkafka and counts acknowledgements (publisher_sender.h).
 *
 * The producer is idempotent, so that the records of a partition keep their order, and gapless, so
 * that no commit follows a lost piece within its life. A ring holds the epochs in flight with the
 * number of records not yet acknowledged; `acked` moves over its front. A failed delivery or a
 * fatal error is noticed and ends the producer at the end of the step (publisher_machine.c); what
 * is not acknowledged is then sent again.
 *
 * Invariants: sent >= acked; at most max_in_flight_bytes, or one larger record, are in librdkafka.
 * Thread: the publisher thread, which also runs the callbacks. Source of the producer's settings:
 * Kafka's KIP-98 (idempotence). */
#include "publisher_sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    PURGE_MS = 1000,
    /* message.max.bytes: the largest piece_max (64 MiB) and its envelope */
    RECORD_BYTES_MAX = 65 << 20,
    BATCH_MAX = 1000000, /* bytes of a batch of several records; librdkafka's own default */
};
/* Bits below the epoch's number in the opaque value of a delivery report. */
enum { TAG_BEGINS = 1, TAG_OTHER_TOPIC = 2, TAG_BITS = 2 };

/* ---- epochs in flight ---- */

static struct fr_pending_epoch *pending_at(struct fr_publisher_sender *sender, size_t i)
{
    return &sender->pending[(sender->pending_begin + i) % PENDING_EPOCHS_MAX];
}

/* Finds an epoch in flight. Epochs in the ring ascend; they are consecutive unless some are merged.
 * NULL: it is not in flight. */
static struct fr_pending_epoch *find_pending(struct fr_publisher_sender *sender, uint64_t epoch)
{
    size_t low = 0, high = sender->n_pending;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pending_at(sender, middle)->epoch < epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sender->n_pending && pending_at(sender, low)->epoch == epoch ? pending_at(sender, low) : NULL;
}

bool fr_publisher_count_acknowledged(struct fr_publisher_sender *sender)
{
    bool some = false;
    while (sender->n_pending > 0 && pending_at(sender, 0)->complete && pending_at(sender, 0)->outstanding == 0) {
        sender->board->tally.acked = pending_at(sender, 0)->epoch;
        sender->pending_begin = (sender->pending_begin + 1) % PENDING_EPOCHS_MAX;
        sender->n_pending -= 1;
        some = true;
    }
    return some;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    (void)client;
    struct fr_publisher_sender *sender = opaque;
    struct fr_publisher_board *board = sender->board;
    FR_CHECK(board->tally.in_flight_bytes >= message->len);
    board->tally.in_flight_bytes -= message->len;
    if (fr_kafka_refusal(message)) {
        if (board->noticed != FR_PUBLISHER_DELIVERY_FAILED)
            fr_publisher_record_refused(sender->topic, message);
        fr_publisher_notice(board, FR_PUBLISHER_DELIVERY_FAILED);
        sender->commits_doubted |= !message->err;
        return;
    }
    uint64_t tag = (uint64_t)(uintptr_t)message->_private;
    if ((tag & TAG_OTHER_TOPIC) == 0)
        fr_publisher_record_landed(sender->known, message->partition, message->offset, (tag & TAG_BEGINS) != 0);
    struct fr_pending_epoch *pending = find_pending(sender, tag >> TAG_BITS);
    if (pending && pending->outstanding > 0)
        pending->outstanding -= 1;
}

/* ---- the producer ---- */

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    struct fr_publisher_sender *sender = opaque;
    fr_publisher_client_error(client, error, reason, sender->board);
}

/* Brokers compare max.message.bytes with a batch, and librdkafka does not split a batch that was
 * refused. So a batch of several records is at most as large as one record may be, which is the
 * size that the first inspection requires the topics to accept. */
static unsigned batch_bytes(const struct fr_publisher_options *options)
{
    uint64_t most = BATCH_MAX;
    if (options->record_max > 0 && options->record_max < most)
        most = options->record_max;
    if (options->n_hps_tables > 0 && HPS_MESSAGE_MAX < most)
        most = HPS_MESSAGE_MAX;
    return (unsigned)most;
}

/* Settings that a promise depends on override the operator's. Linger time and requests in flight
 * may be chosen by the operator; with several requests in flight, more is sent again
 * (fr_kafka_refusal). A message never times out: records that the broker does not accept wait (in
 * the journal beyond the in-flight bound), and the status has the problem. */
enum fr_status fr_publisher_open_producer(struct fr_publisher_sender *sender, struct fr_err *err)
{
    if (sender->producer)
        return FR_OK;
    char record_max[16], batch_max[16];
    snprintf(record_max, sizeof(record_max), "%d", (int)RECORD_BYTES_MAX);
    snprintf(batch_max, sizeof(batch_max), "%u", batch_bytes(&sender->board->options));
    const struct fr_kafka_setting ours[] = {
        {"linger.ms", "5"}, {"max.in.flight", "1"}, {"batch.size", batch_max}, {NULL, NULL}};
    const struct fr_kafka_setting required[] = {
        {"enable.idempotence", "true"},
        {"enable.gapless.guarantee", "true"}, /* no commit follows a lost piece */
        {"acks", "all"},
        {"message.timeout.ms", "0"},
        {"message.max.bytes", record_max},
        {"isolation.level", "read_uncommitted"}, /* for its queries of the topic's ends */
        {NULL, NULL},
    };
    struct fr_kafka_options options = {.type = RD_KAFKA_PRODUCER,
                                       .ours = ours,
                                       .required = required,
                                       .opaque = sender,
                                       .on_error = on_error,
                                       .on_delivery = on_delivery};
    enum fr_status status = fr_publisher_client(sender->board, options, &sender->producer, err);
    if (status == FR_OK)
        sender->board->noticed = FR_PUBLISHER_NO_EVENT;
    return status;
}

void fr_publisher_report(const struct fr_publisher_options *options,
                         void (*problem)(void *self, const char *place, const char *text), void *self)
{
    if (!options->brokers)
        return;
    struct fr_kafka_report report = {problem, self};
    struct fr_publisher_board *board = fr_alloc(1, sizeof(*board));
    struct fr_publisher_sender *sender = fr_alloc(1, sizeof(*sender));
    struct fr_err err = {0};
    fr_publisher_board_init(board, options);
    board->report = &report;
    sender->board = board;
    if (fr_publisher_open_producer(sender, &err) != FR_OK || fr_publisher_reader_open(board, NULL, &err) != FR_OK)
        problem(self, NULL, err.text);
    fr_publisher_board_release(board);
    free(board);
    free(sender);
}

void fr_publisher_drop_producer(struct fr_publisher_sender *sender)
{
    struct fr_publisher_board *board = sender->board;
    if (!sender->producer)
        return;
    /* Purged records are reported as failed deliveries; the events they raise are cleared below. */
    (void)rd_kafka_purge(sender->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    (void)rd_kafka_flush(sender->producer, PURGE_MS);
    rd_kafka_destroy(sender->producer);
    sender->producer = NULL;
    sender->n_pending = 0;
    fr_publisher_clear_outgoing(&sender->out);
    sender->known->sent_begin = (struct fr_topic_begin){0};
    board->tally.in_flight_bytes = 0;
    board->tally.sent = board->tally.acked;
    board->noticed = FR_PUBLISHER_NO_EVENT;
}

/* ---- sending ---- */

enum fr_status fr_publisher_add_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct fr_outgoing *out = self;
    if (partition < out->first_partition || partition >= out->end_partition)
        return FR_OK; /* another rank sends it */
    fr_publisher_append(out, NULL, partition, bytes, size)->begins = out->begins && piece == 0;
    return out->hps ? fr_publisher_hps_add(out, bytes, size) : FR_OK;
}

static enum fr_status produce(struct fr_publisher_sender *sender, struct fr_outgoing_record *record, struct fr_err *err)
{
    struct fr_publisher_board *board = sender->board;
    size_t limit = board->options.max_in_flight_bytes, used = board->tally.in_flight_bytes;
    if (used >= limit || (used > 0 && record->size > limit - used))
        return FR_AGAIN; /* a record larger than the limit is sent alone */
    const char *topic = record->topic ? record->topic : board->options.topic;
    uint64_t tag =
        sender->out.epoch << TAG_BITS | (record->topic ? TAG_OTHER_TOPIC : 0) | (record->begins ? TAG_BEGINS : 0);
    rd_kafka_resp_err_t error = rd_kafka_producev(
        sender->producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION((int32_t)record->partition),
        RD_KAFKA_V_VALUE(record->bytes, record->size), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_FREE),
        RD_KAFKA_V_TIMESTAMP(sender->out.timestamp_ms), RD_KAFKA_V_OPAQUE((void *)(uintptr_t)tag), RD_KAFKA_V_END);
    if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        return FR_AGAIN;
    if (error) {
        fr_publisher_notice(board, FR_PUBLISHER_DELIVERY_FAILED);
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s refuses a record of %zu bytes: %s", topic, record->size,
                          rd_kafka_err2str(error));
    }
    record->bytes = NULL;
    board->tally.in_flight_bytes += record->size;
    board->tally.records += 1;
    board->tally.bytes += record->size;
    return FR_OK;
}

enum fr_status fr_publisher_hand_over(struct fr_publisher_sender *sender, struct fr_err *err)
{
    struct fr_outgoing *out = &sender->out;
    struct fr_publisher_status *tally = &sender->board->tally;
    struct fr_pending_epoch *pending = find_pending(sender, out->epoch);
    if (!pending) {
        FR_CHECK(sender->n_pending < PENDING_EPOCHS_MAX);
        pending = pending_at(sender, sender->n_pending++);
        *pending = (struct fr_pending_epoch){out->epoch, 0, false};
    }
    for (; out->next < out->n; out->next++) {
        enum fr_status status = produce(sender, &out->records[out->next], err);
        if (status != FR_OK)
            return status;
        pending->outstanding += 1;
    }
    tally->hps.rows += out->hps_rows;
    tally->hps.drops += out->hps_drops;
    out->hps_rows = out->hps_drops = 0;
    if (out->ends) {
        pending->complete = true;
        tally->sent = out->epoch;
    }
    return FR_OK;
}
