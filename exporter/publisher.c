/* The publisher as one machine: what it sends, and when it looks at the topic first.
 *
 *   NEW ── no brokers ──► OFFLINE
 *    │
 *    │ first look       LOOKS ◄── topic changed, a producer or delivery failed: from all below;
 *    │                    │       snapshot refused: from AWAITS_SNAPSHOT and REWINDS
 *    ▼                    ▼
 *   a look finds what has to be sent, that new replicas can begin with the topic
 *    │
 *    ├─ the whole state ──► AWAITS_FOLD ── opened ──► FILLS ── sent ──► FILLED ─ acknowledged ─┐
 *    │                           ▲                                                             │
 *    │                           └────────────── backlog abandoned ──┬────────────────────┐    │
 *    │                                                               │                    │    │
 *    ├─ a snapshot ───────► AWAITS_SNAPSHOT ──── named ─────────► REWINDS ─ acknowledged ─│─┐  │
 *    │                                                               ▲                    │ │  │
 *    ├─ a snapshot that is named already ────────────────────────────┘                    │ ▼  ▼
 *    └─ nothing but the epochs that follow ─────────────────────────────────────────────► FOLLOWS
 *
 *   NEW              nothing is known of the topic; steps are refused
 *   OFFLINE          there is no topic: what is offered counts as acknowledged
 *   LOOKS            there is no producer; when the pause after a failure is over, the topic is
 *                    looked at (publisher_look.c)
 *   FOLLOWS          new replicas have something to begin with; epochs of the journal go out
 *   AWAITS_FOLD      the whole state is to go out, and is not folded so far yet
 *   FILLS            records of the whole state go out, and nothing else
 *   FILLED           they are all sent and not acknowledged; epochs after it go out
 *   AWAITS_SNAPSHOT  a timeline begins; the snapshot that it begins with is being made, and nothing
 *                    goes out
 *   REWINDS          epochs after that snapshot go out, the first of them with the rewind, which is
 *                    not acknowledged yet
 *
 * The functions that make the transitions:
 *
 *   no brokers                   fr_publisher_check, by go_offline
 *   what a look finds            look: at first by fr_publisher_check, then by look_again
 *   opened                       load_next, by fr_publisher_open_rebase
 *   sent                         send_waiting
 *   backlog abandoned            load_epochs
 *   named                        may_send, by fr_publisher_ask_rewind
 *   acknowledged                 count_acknowledged
 *   refused, changed, failed     fr_publisher_step, at its end. Callbacks and parts notice them in
 *                                the middle of a step (fr_publisher_notice); the worst one counts.
 *
 * Any other event is an error of this program and ends it (change_state). What a resend needs to
 * have the same bytes outlives the producer: the view of the whole state, from FILLS on, and the
 * name of the snapshot, from REWINDS on, until they are acknowledged or a look has no use for them.
 *
 * A failed delivery or a fatal error ends the producer: it is purged, and after a pause of 100 ms
 * to 5 s and a look sending resumes after `acked`. Records may then be on the topic twice, which
 * replicas drop by rule; order within a partition stays ascending from the resent epoch on.
 *
 * Owner: the publisher thread, which also runs librdkafka's callbacks.
 * Does not: move the acknowledged mark of the journal. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "publisher_look.h"

enum { PAUSE_MIN_MS = 100, PAUSE_MAX_MS = 5000, IN_FLIGHT_DEFAULT = 64 << 20 };

struct fr_publisher {
    struct fr_publisher_board board;
    enum fr_publisher_state state;
    struct fr_publisher_topic topic;
    struct fr_publisher_known known;
    struct fr_publisher_sender sender;
    struct fr_publisher_epochs epochs;
    struct fr_publisher_rebase rebase;
    struct fr_publisher_rewinding rewinding;
    struct fr_look_findings found; /* by the last look */
    struct {
        uint64_t until_ns, ms; /* ms: of the last pause; 0: none since something was acknowledged */
    } pause;
};

/* ---- what transitions do ---- */

static void resume(struct fr_publisher *publisher)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    tally->sent = tally->acked = publisher->found.resume;
    if (publisher->epochs.highest < tally->acked)
        publisher->epochs.highest = tally->acked;
}

static void follow(struct fr_publisher *publisher)
{
    fr_publisher_close_rebase(&publisher->rebase);
    resume(publisher);
}

static void want_rebase(struct fr_publisher *publisher)
{
    fr_publisher_want_rebase(&publisher->rebase, publisher->found.above);
    resume(publisher);
}

static void want_snapshot(struct fr_publisher *publisher)
{
    publisher->rewinding.least = publisher->found.least;
    follow(publisher);
}

static void send_after_snapshot(struct fr_publisher *publisher)
{
    publisher->board.tally.sent = publisher->rewinding.to.epoch;
}

static void rewind_again(struct fr_publisher *publisher)
{
    want_snapshot(publisher);
    send_after_snapshot(publisher);
}

static void forget_snapshot(struct fr_publisher *publisher)
{
    publisher->rewinding.to = (struct fr_publisher_rewind){0};
}

static void abandon_backlog(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    uint64_t last = atomic_load(&board->offered);
    fr_publisher_want_rebase(&publisher->rebase, last - 1);
    board->tally.backlog.abandoned += 1;
    fr_log(FR_LOG_WARN, "publisher", "backlog_abandoned",
           "first=%" PRIu64 " last=%" PRIu64 " note=\"the whole state is published instead\"", board->tally.sent + 1,
           last);
}

static void end_rebase(struct fr_publisher *publisher)
{
    publisher->board.tally.rebases += 1;
    fr_log(FR_LOG_INFO, "publisher", "rebase_end", "topic=%s epoch=%" PRIu64, publisher->board.options.topic,
           publisher->known.begin.epoch);
    fr_publisher_close_rebase(&publisher->rebase);
}

static void end_rewind(struct fr_publisher *publisher)
{
    publisher->known.snapshot_is_begin = true;
    publisher->board.tally.rewinds += 1;
    fr_log(FR_LOG_INFO, "publisher", "rewind_end", "topic=%s snapshot=%s", publisher->board.options.topic,
           publisher->rewinding.to.snapshot);
    forget_snapshot(publisher);
}

static void drop_producer(struct fr_publisher *publisher)
{
    fr_publisher_drop_producer(&publisher->sender);
    publisher->epochs.measured_at = 0;
}

static void give_up_snapshot(struct fr_publisher *publisher)
{
    publisher->rewinding.impossible = true;
    forget_snapshot(publisher);
    drop_producer(publisher);
}

static void leave_topic(struct fr_publisher *publisher)
{
    fr_log(FR_LOG_WARN, "publisher", "topic_changed",
           "topic=%s acked=%" PRIu64 " note=\"it was made anew or lost records; it is looked at\"",
           publisher->board.options.topic, publisher->board.tally.acked);
    drop_producer(publisher);
}

static void pause_after_failure(struct fr_publisher *publisher)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    char quoted[300];
    uint64_t ms = publisher->pause.ms > 0 ? publisher->pause.ms * 2 : PAUSE_MIN_MS;
    drop_producer(publisher);
    publisher->pause.ms = ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
    publisher->pause.until_ns = fr_mono_ns(publisher->board.options.clock) + publisher->pause.ms * 1000000u;
    tally->errors += 1;
    fr_log(FR_LOG_WARN, "publisher", "producer_restart", "acked=%" PRIu64 " retry_in_ms=%" PRIu64 " problem=%s",
           tally->acked, publisher->pause.ms, fr_log_quote(quoted, sizeof(quoted), tally->problem));
}

/* ---- the table ---- */

#define ON(event, to, act) [FR_PUBLISHER_##event] = {FR_PUBLISHER_##to, act}
#define AFTER_A_LOOK                                                                                                   \
    ON(BEGINNING_FOUND, FOLLOWS, follow), ON(STATE_NEEDED, AWAITS_FOLD, want_rebase),                                  \
        ON(SNAPSHOT_NEEDED, AWAITS_SNAPSHOT, want_snapshot), ON(SNAPSHOT_NEEDED_AGAIN, REWINDS, rewind_again)
#define WITH_A_PRODUCER                                                                                                \
    ON(TOPIC_CHANGED, LOOKS, leave_topic), ON(PRODUCER_FAILED, LOOKS, pause_after_failure),                            \
        ON(DELIVERY_FAILED, LOOKS, pause_after_failure)

static const struct fr_publisher_transition transitions[FR_PUBLISHER_STATES][FR_PUBLISHER_EVENTS] = {
    [FR_PUBLISHER_NEW] = {ON(NO_BROKERS, OFFLINE, NULL), AFTER_A_LOOK},
    [FR_PUBLISHER_OFFLINE] = {{0}},
    [FR_PUBLISHER_LOOKS] = {AFTER_A_LOOK},
    [FR_PUBLISHER_FOLLOWS] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, NULL),
                              ON(BACKLOG_ABANDONED, AWAITS_FOLD, abandon_backlog), WITH_A_PRODUCER},
    [FR_PUBLISHER_AWAITS_FOLD] = {ON(FOLD_OPENED, FILLS, forget_snapshot), WITH_A_PRODUCER},
    [FR_PUBLISHER_FILLS] = {ON(STATE_SENT, FILLED, NULL), WITH_A_PRODUCER},
    [FR_PUBLISHER_FILLED] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, end_rebase), WITH_A_PRODUCER},
    [FR_PUBLISHER_AWAITS_SNAPSHOT] = {ON(SNAPSHOT_NAMED, REWINDS, send_after_snapshot),
                                      ON(SNAPSHOT_REFUSED, LOOKS, give_up_snapshot), WITH_A_PRODUCER},
    [FR_PUBLISHER_REWINDS] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, end_rewind),
                              ON(BACKLOG_ABANDONED, AWAITS_FOLD, abandon_backlog),
                              ON(SNAPSHOT_REFUSED, LOOKS, give_up_snapshot), WITH_A_PRODUCER},
};

const struct fr_publisher_transition *fr_publisher_transition(enum fr_publisher_state from,
                                                              enum fr_publisher_event event)
{
    const struct fr_publisher_transition *found = &transitions[from][event];
    return found->to == FR_PUBLISHER_NO_STATE ? NULL : found;
}

const char *fr_publisher_state_text(enum fr_publisher_state state)
{
#define STATE(name, text) [FR_PUBLISHER_##name] = (text),
    static const char *const texts[FR_PUBLISHER_STATES] = {FR_PUBLISHER_STATE_LIST(STATE)};
#undef STATE
    return texts[state];
}

const char *fr_publisher_event_text(enum fr_publisher_event event)
{
#define EVENT(name, text) [FR_PUBLISHER_##name] = (text),
    static const char *const texts[FR_PUBLISHER_EVENTS] = {FR_PUBLISHER_EVENT_LIST(EVENT)};
#undef EVENT
    return texts[event];
}

static void change_state(struct fr_publisher *publisher, enum fr_publisher_event event)
{
    const struct fr_publisher_transition *transition = fr_publisher_transition(publisher->state, event);
    if (!transition)
        fr_log(FR_LOG_ERROR, "publisher", "event_refused", "state=\"%s\" event=\"%s\"",
               fr_publisher_state_text(publisher->state), fr_publisher_event_text(event));
    FR_CHECK(transition != NULL);
    publisher->state = transition->to;
    if (transition->act)
        transition->act(publisher);
}

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
    fr_publisher_show(board);
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

static enum fr_status look(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_publisher_board *board = &publisher->board;
    const struct fr_look_request request = request_of(publisher);
    enum fr_status status = fr_publisher_look(&request, &publisher->found, err);
    if (status != FR_OK) {
        if (err)
            fr_publisher_set_problem(board, err->text);
        return status;
    }
    change_state(publisher, publisher->found.event);
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
    if (durable.timeline <= 1 || publisher->known.settled == durable.timeline)
        status = fr_durable_begin_timeline(of, durable.timeline + 1, err);
    if (status != FR_OK)
        return status;
    fr_log(FR_LOG_INFO, "publisher", "no_brokers", "effect=\"no deltas are published; set ingest.brokers for them\"");
    change_state(publisher, FR_PUBLISHER_NO_BROKERS);
    return FR_OK;
}

enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err)
{
    return publisher->board.options.brokers ? look(publisher, err) : go_offline(publisher, err);
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
    enum fr_status status = look(publisher, err);
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
            change_state(publisher, FR_PUBLISHER_BACKLOG_ABANDONED);
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
            change_state(publisher, FR_PUBLISHER_FOLD_OPENED);
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
    change_state(publisher, event);
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
            change_state(publisher, FR_PUBLISHER_STATE_SENT);
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
        enum fr_status between = fr_publisher_look_between(&request, err);
        status = between == FR_OK ? status : between;
    }
    return status;
}

static enum fr_status count_acknowledged(struct fr_publisher *publisher, struct fr_err *err)
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
        change_state(publisher, FR_PUBLISHER_BEGINNING_ACKNOWLEDGED);
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
    enum fr_status counted = count_acknowledged(publisher, err);
    if (counted != FR_OK)
        return counted;
    bool failed = board->noticed >= FR_PUBLISHER_PRODUCER_FAILED;
    if (failed && status == FR_E_UNAVAILABLE && err)
        fr_publisher_set_problem(board, err->text);
    if (board->noticed != FR_PUBLISHER_NO_EVENT)
        change_state(publisher, board->noticed);
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
