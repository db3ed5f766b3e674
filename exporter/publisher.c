/* The publisher's public functions: one step of the machine (publisher_machine.c) at a time.
 *
 * A step looks at the topic if that is due, puts the next records into `outgoing` and hands them
 * over while they fit, serves librdkafka's callbacks, reads what somebody wrote between our
 * records, counts what is acknowledged, and makes the transition that was noticed meanwhile.
 *
 * Invariants: nothing beyond `offered` (durable, by contract of the caller) is read; sent >= acked;
 * memory is one epoch's records plus max_in_flight_bytes in librdkafka. Owner: the publisher
 * thread, which also runs librdkafka's callbacks. Does not: move the acknowledged mark of the
 * journal. */
#include <poll.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "publisher_machine.h"

enum { IN_FLIGHT_DEFAULT = 64 << 20 };

/* ---- life ---- */

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

enum fr_status fr_publisher_new(const struct fr_publisher_options *options, struct fr_publisher **out,
                                struct fr_err *err)
{
    if (options->partitions == 0 || options->partitions > FR_DELTA_PARTITIONS_MAX)
        return fr_err_set(err, FR_E_INVALID, "export.partitions is %u; expected 1 to %d", options->partitions,
                          FR_DELTA_PARTITIONS_MAX);
    struct fr_publisher *publisher = fr_alloc(1, sizeof(*publisher));
    struct fr_publisher_board *board = &publisher->board;
    struct fr_publisher_sender *sender = &publisher->sender;
    publisher->state = FR_PUBLISHER_NEW;
    fr_publisher_board_init(board, options);
    if (board->options.max_in_flight_bytes == 0)
        board->options.max_in_flight_bytes = IN_FLIGHT_DEFAULT;
    fr_publisher_known_init(&publisher->known, board);
    publisher->topic.board = publisher->rewinding.board = sender->board = board;
    publisher->topic.begun_ns = publisher->topic.settings_asked_ns = fr_mono_ns(options->clock);
    sender->known = &publisher->known;
    sender->topic = &publisher->topic;
    sender->out.hps = fr_publisher_hps_new(options);
    publisher->epochs.sender = publisher->rebase.sender = sender;
    /* a property that librdkafka refuses shows here, not at the first epoch */
    enum fr_status status =
        options->brokers ? fr_publisher_client(board, (struct fr_kafka_options){0}, NULL, err) : FR_OK;
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
    fr_publisher_drop_producer(&publisher->sender);
    fr_publisher_close_rebase(&publisher->rebase);
    fr_publisher_release_outgoing(&publisher->sender.out);
    fr_publisher_hps_free(publisher->sender.out.hps);
    fr_publisher_epochs_release(&publisher->epochs);
    fr_publisher_known_release(&publisher->known);
    fr_publisher_board_release(&publisher->board);
    free(publisher);
}

/* ---- for other threads ---- */

void fr_publisher_offer(struct fr_publisher *publisher, uint64_t epoch)
{
    _Atomic uint64_t *offered = &publisher->board.offered;
    uint64_t before = atomic_load(offered);
    while (before < epoch && !atomic_compare_exchange_weak(offered, &before, epoch))
        continue; /* the publisher's thread, after the check, offers too */
}

/* Shows the tally, and which offsets of the topic are known. */
static void show(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    board->tally.topic.begin = publisher->known.begin.epoch;
    pthread_mutex_lock(&board->mutex);
    for (uint32_t p = 0; p < board->options.partitions; p++)
        board->next[p] = publisher->known.partitions[p].next;
    pthread_mutex_unlock(&board->mutex);
    fr_publisher_show_status(board);
}

bool fr_publisher_offsets(struct fr_publisher *publisher, uint64_t *out)
{
    struct fr_publisher_board *board = &publisher->board;
    bool known = true;
    pthread_mutex_lock(&board->mutex);
    for (uint32_t p = 0; p < board->options.partitions && known; p++) {
        known = board->next[p] >= 0;
        out[p] = (uint64_t)board->next[p];
    }
    pthread_mutex_unlock(&board->mutex);
    return known;
}

void fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    struct fr_publisher_board *board = &publisher->board;
    pthread_mutex_lock(&board->mutex);
    *out = board->status;
    pthread_mutex_unlock(&board->mutex);
    out->offered = atomic_load(&board->offered);
}

/* ---- looking ---- */

static struct fr_look_request request_of(struct fr_publisher *publisher)
{
    return (struct fr_look_request){&publisher->sender, &publisher->rebase, &publisher->rewinding,
                                    publisher->state == FR_PUBLISHER_NEW};
}

static enum fr_status look_at_topic(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_publisher_board *board = &publisher->board;
    const struct fr_look_request request = request_of(publisher);
    enum fr_status status = fr_publisher_look_at_topic(&request, &publisher->found, err);
    if (status != FR_OK) {
        if (err)
            fr_publisher_set_problem(board, err->text);
        return status;
    }
    fr_publisher_change_state(publisher, publisher->found.event);
    board->tally.topic.looks += 1;
    board->tally.topic.looked_ms = (uint64_t)fr_wall_ms(board->options.clock);
    board->tally.problem[0] = '\0';
    publisher->known.asked_ns = fr_mono_ns(board->options.clock);
    show(publisher);
    return FR_OK;
}

/* No topic gets the epochs that count as acknowledged now. They are of a timeline that no topic
 * knows, so that a later start with brokers fills its topic with the whole state. */
static enum fr_status go_offline(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_durable *of = publisher->board.options.durable;
    struct fr_durable_status durable;
    fr_publisher_read_begin(&publisher->known);
    fr_durable_get_status(of, &durable);
    enum fr_status status = FR_OK;
    if (durable.timeline <= 1 || publisher->known.begun_timeline == durable.timeline)
        status = fr_durable_begin_timeline(of, durable.timeline + 1, err);
    if (status != FR_OK)
        return status;
    fr_log(FR_LOG_INFO, "publisher", "no_brokers", "effect=\"no deltas are published; set ingest.brokers for them\"");
    fr_publisher_change_state(publisher, FR_PUBLISHER_NO_BROKERS);
    return FR_OK;
}

enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err)
{
    return publisher->board.options.brokers ? look_at_topic(publisher, err) : go_offline(publisher, err);
}

/* When the pause is over. */
static enum fr_status look_again(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    const struct fr_clock *clock = publisher->board.options.clock;
    uint64_t now = fr_mono_ns(clock);
    if (now < publisher->pause.until_ns) {
        uint64_t left_ms = (publisher->pause.until_ns - now) / 1000000u + 1;
        (void)poll(NULL, 0, wait_ms < 0 || left_ms < (uint64_t)wait_ms ? (int)left_ms : wait_ms);
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", publisher->board.tally.problem);
    }
    enum fr_status status = look_at_topic(publisher, err);
    if (status == FR_E_UNAVAILABLE)
        publisher->pause.until_ns = fr_mono_ns(clock) + PAUSE_MAX_MS * UINT64_C(1000000);
    return status;
}

/* ---- sending ---- */

/* The next epochs of the journal, or nothing (FR_AGAIN). */
static enum fr_status load_epochs(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_publisher_board *board = &publisher->board;
    const struct fr_publisher_rewind *to = &publisher->rewinding.to;
    uint64_t sent = board->tally.sent, last = sent + 1;
    if (sent >= atomic_load(&board->offered) || publisher->sender.n_pending == PENDING_EPOCHS_MAX)
        return FR_AGAIN;
    if (fr_publisher_is_backlog(&publisher->epochs, &last) && board->options.backlog_rebases) {
        if (publisher->sender.n_pending == 0) {
            fr_publisher_change_state(publisher, FR_PUBLISHER_BACKLOG_ABANDONED);
            return FR_OK;
        }
        last = sent + 1; /* what is in flight lands first */
    }
    const struct fr_delta_rewind named = {to->epoch, to->snapshot};
    const struct fr_delta_rewind *rewind =
        publisher->state == FR_PUBLISHER_REWINDS && sent == to->epoch ? &named : NULL;
    return last == sent + 1 ? fr_publisher_load_epoch(&publisher->epochs, rewind, err)
                            : fr_publisher_load_merged(&publisher->epochs, last, rewind, err);
}

/* The next outgoing records; FR_AGAIN: there are none yet. */
static enum fr_status load_next(struct fr_publisher *publisher, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    fr_publisher_clear_outgoing(&publisher->sender.out);
    if (publisher->state == FR_PUBLISHER_AWAITS_FOLD) {
        status = fr_publisher_open_rebase(&publisher->rebase, err);
        if (status == FR_OK)
            fr_publisher_change_state(publisher, FR_PUBLISHER_FOLD_OPENED);
    } else if (publisher->state == FR_PUBLISHER_FILLS) {
        status = fr_publisher_load_rebase(&publisher->rebase, err);
    } else {
        status = load_epochs(publisher, err);
    }
    if (status != FR_OK)
        fr_publisher_clear_outgoing(&publisher->sender.out);
    return status;
}

/* Whether epochs may go out. A snapshot is asked for where one is needed, and again while no epoch
 * follows it, because it may be refused then. */
static bool may_send(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    struct fr_publisher_status *tally = &board->tally;
    uint64_t offered = atomic_load(&board->offered);
    tally->rewind_waits = publisher->state == FR_PUBLISHER_REWINDS && tally->sent == publisher->rewinding.to.epoch &&
                          tally->sent >= offered;
    if (publisher->state != FR_PUBLISHER_AWAITS_SNAPSHOT && !tally->rewind_waits)
        return true;
    enum fr_publisher_event event = fr_publisher_ask_rewind(&publisher->rewinding);
    if (event == FR_PUBLISHER_SNAPSHOT_REFUSED)
        fr_publisher_notice(board, event);
    if (event != FR_PUBLISHER_SNAPSHOT_NAMED)
        return false;
    fr_publisher_change_state(publisher, event);
    tally->rewind_waits = tally->sent >= offered;
    return true;
}

static enum fr_status send_waiting(struct fr_publisher *publisher, struct fr_err *err)
{
    const struct fr_outgoing *out = &publisher->sender.out;
    enum fr_status status = may_send(publisher) ? FR_OK : FR_AGAIN;
    while (status == FR_OK) {
        if (out->next == out->n) {
            status = load_next(publisher, err);
            continue;
        }
        status = fr_publisher_hand_over(&publisher->sender, err);
        if (status == FR_OK && publisher->state == FR_PUBLISHER_FILLS && out->ends)
            fr_publisher_change_state(publisher, FR_PUBLISHER_STATE_SENT);
    }
    return status == FR_AGAIN ? FR_OK : status;
}

/* Sends, takes reports, and reads what somebody wrote in between: before anything is acknowledged
 * next to another writer. */
static enum fr_status send_and_listen(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    rd_kafka_t *producer = publisher->sender.producer;
    enum fr_status status = send_waiting(publisher, err);
    rd_kafka_poll(producer, wait_ms);
    while (rd_kafka_poll(producer, 0) > 0)
        continue; /* bounded by the records in flight */
    fr_publisher_compare_ends(&publisher->known, &publisher->topic, producer);
    if ((status == FR_OK || status == FR_E_UNAVAILABLE) && fr_publisher_has_gaps(&publisher->known)) {
        const struct fr_look_request request = request_of(publisher);
        enum fr_status between = fr_publisher_judge_gaps(&request, err);
        status = between == FR_OK ? status : between;
    }
    return status;
}

static enum fr_status note_acknowledged(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    enum fr_status status = FR_OK;
    uint64_t begin = publisher->known.sent_begin.epoch;
    if (fr_publisher_count_acknowledged(&publisher->sender)) {
        publisher->pause.ms = 0;
        tally->problem[0] = tally->refused[0] = '\0';
    }
    if (begin > 0 && tally->acked >= begin) {
        status = fr_publisher_begin_is_acknowledged(&publisher->known, err);
        fr_publisher_change_state(publisher, FR_PUBLISHER_BEGINNING_ACKNOWLEDGED);
    }
    show(publisher);
    return status;
}

static enum fr_status step_offline(struct fr_publisher *publisher, int wait_ms)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    uint64_t offered = atomic_load(&publisher->board.offered);
    if (tally->acked == offered)
        (void)poll(NULL, 0, wait_ms);
    tally->sent = tally->acked = offered;
    show(publisher);
    return FR_OK;
}

enum fr_status fr_publisher_step(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    struct fr_publisher_board *board = &publisher->board;
    struct fr_publisher_status *tally = &board->tally;
    if (publisher->state == FR_PUBLISHER_NEW)
        return fr_err_set(err, FR_E_STATE, "the delta topic was not checked yet");
    if (publisher->state == FR_PUBLISHER_OFFLINE)
        return step_offline(publisher, wait_ms);
    enum fr_status status = publisher->state == FR_PUBLISHER_LOOKS ? look_again(publisher, wait_ms, err) : FR_OK;
    if (status == FR_OK)
        status = fr_publisher_open_producer(&publisher->sender, err);
    if (status != FR_OK)
        return status;
    status = send_and_listen(publisher, wait_ms, err);
    if (status == FR_E_MISMATCH)
        return status;
    enum fr_status counted = note_acknowledged(publisher, err);
    if (counted != FR_OK)
        return counted;
    bool failed = board->noticed >= FR_PUBLISHER_PRODUCER_FAILED;
    if (failed && status == FR_E_UNAVAILABLE && err)
        fr_publisher_set_problem(board, err->text);
    if (board->noticed != FR_PUBLISHER_NO_EVENT)
        fr_publisher_change_state(publisher, board->noticed);
    if (failed) {
        show(publisher);
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", tally->problem);
    }
    if (status == FR_OK && tally->in_flight_bytes > 0 && tally->problem[0] != '\0')
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", tally->problem);
    if (status == FR_OK && tally->refused[0] != '\0') /* nothing was acknowledged since */
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", tally->refused);
    return status;
}
