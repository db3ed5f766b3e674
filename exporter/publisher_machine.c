/* The publisher as one state machine: what it sends, and when it inspects the topic first.
 *
 *   NEW ── no brokers ──► OFFLINE
 *    │
 *    │ first inspection   INSPECTS ◄── topic changed, producer or delivery failed: from all below;
 *    │                       │         snapshot refused: from AWAITS_SNAPSHOT and REWINDS
 *    ▼                       ▼
 *   the inspection finds what must be sent so that new replicas can begin with the topic
 *    │
 *    ├─ the whole state ──► AWAITS_FOLD ── opened ──► FILLS ── sent ──► FILLED ─ acknowledged ─┐
 *    │                           ▲                                                             │
 *    │                           └────────────── backlog abandoned ──┬────────────────────┐    │
 *    │                                                               │                    │    │
 *    ├─ a snapshot ───────► AWAITS_SNAPSHOT ──── named ─────────► REWINDS ─ acknowledged ─│─┐  │
 *    │                                                               ▲                    │ │  │
 *    ├─ a snapshot that is named already ────────────────────────────┘                    │ ▼  ▼
 *    └─ only the epochs that follow ────────────────────────────────────────────────────► FOLLOWS
 *
 *   NEW              nothing is known of the topic; steps are refused
 *   OFFLINE          there is no topic: every offered epoch counts as acknowledged
 *   INSPECTS         there is no producer; after the pause that follows a failure, the topic is
 *                    inspected (publisher_inspection.c)
 *   FOLLOWS          new replicas can begin; epochs of the journal are sent
 *   AWAITS_FOLD      the whole state will be sent once it is folded up to a late enough epoch
 *   FILLS            records of the whole state are sent, and nothing else
 *   FILLED           all records of the whole state are sent but not acknowledged; the epochs after
 *                    it are sent
 *   AWAITS_SNAPSHOT  a timeline begins; the snapshot that it begins with is being made, and nothing
 *                    is sent
 *   REWINDS          the epochs after that snapshot are sent, the first of them with the rewind
 *                    record, which is not acknowledged yet
 *
 * Events are raised by these functions:
 *
 *   no brokers                   fr_publisher_check, in go_offline
 *   what an inspection finds     inspect, called by fr_publisher_check and inspect_again
 *   opened                       load_next
 *   sent                         send_waiting
 *   backlog abandoned            load_epochs
 *   named                        may_send
 *   acknowledged                 note_acknowledged
 *   refused, changed, failed     callbacks and parts notice these in the middle of a step
 *                                (fr_publisher_notice); the worst one is raised at its end
 *
 * Any other event is a defect and ends the process (change_state). Two things must outlive the
 * producer, because a resend must have the same bytes: the view of the whole state, from FILLS on,
 * and the name of the snapshot, from REWINDS on. Both are kept until they are acknowledged or an
 * inspection has no use for them.
 *
 * A failed delivery or a fatal error ends the producer: it is purged, and after a pause of 100 ms
 * to 5 s and an inspection, sending resumes after `acked`. The topic may then hold records twice,
 * which replicas drop by rule; the order within a partition still ascends from the resent epoch on.
 *
 * Invariants: nothing beyond `offered` is read; sent >= acked; memory is the records of one
 * epoch plus max_in_flight_bytes in librdkafka. Owner: the publisher thread, which also runs
 * librdkafka's callbacks. The acknowledged mark of the journal is moved by the daemon. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "publisher_inspection.h"

enum {
    IN_FLIGHT_DEFAULT = 64 << 20,
    /* Bounds of the pause before an inspection, after a failure. */
    PAUSE_MIN_MS = 100,
    PAUSE_MAX_MS = 5000,
    NS_PER_MS = 1000000,
};

struct fr_publisher {
    struct fr_publisher_board board;
    enum fr_publisher_state state;
    struct fr_publisher_topic topic;
    struct fr_publisher_known known;
    struct fr_publisher_sender sender;
    struct fr_publisher_epochs epochs;
    struct fr_publisher_rebase rebase;
    struct {
        uint64_t least; /* the snapshot must be as of this epoch or a later one */
        /* no snapshot will come, and this process requests none again */
        bool impossible;
        struct fr_publisher_rewind to; /* the snapshot; epoch 0: none is named yet */
    } rewind;
    struct fr_inspection_findings found; /* what the newest inspection found */
    struct {
        uint64_t until_ns, ms; /* ms: length of the last pause; 0 once something is acknowledged */
    } pause;
    _Atomic uint64_t least_timeline; /* timeline of epochs that no topic gets; 0: the state's own */
};

/* ---- actions of transitions ---- */

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
    publisher->rewind.least = publisher->found.least;
    follow(publisher);
}

static void send_after_snapshot(struct fr_publisher *publisher)
{
    publisher->board.tally.sent = publisher->rewind.to.epoch;
}

static void rewind_again(struct fr_publisher *publisher)
{
    want_snapshot(publisher);
    send_after_snapshot(publisher);
}

static void forget_snapshot(struct fr_publisher *publisher)
{
    publisher->rewind.to = (struct fr_publisher_rewind){0};
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
           publisher->rewind.to.snapshot);
    forget_snapshot(publisher);
}

static void drop_producer(struct fr_publisher *publisher)
{
    fr_publisher_drop_producer(&publisher->sender);
    publisher->epochs.measured_at = 0;
}

static void give_up_snapshot(struct fr_publisher *publisher)
{
    publisher->rewind.impossible = true;
    forget_snapshot(publisher);
    drop_producer(publisher);
}

static void leave_topic(struct fr_publisher *publisher)
{
    fr_log(FR_LOG_WARN, "publisher", "topic_changed",
           "topic=%s acked=%" PRIu64 " note=\"the topic was created again or lost records; it is inspected\"",
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
    publisher->pause.until_ns = fr_mono_ns(publisher->board.options.clock) + publisher->pause.ms * NS_PER_MS;
    tally->errors += 1;
    fr_log(FR_LOG_WARN, "publisher", "producer_restart", "acked=%" PRIu64 " retry_in_ms=%" PRIu64 " problem=%s",
           tally->acked, publisher->pause.ms, fr_log_quote(quoted, sizeof(quoted), tally->problem));
}

/* ---- the table of transitions ---- */

#define ON(event, to, act) [FR_PUBLISHER_##event] = {FR_PUBLISHER_##to, act}
#define AFTER_INSPECTION                                                                                               \
    ON(BEGINNING_FOUND, FOLLOWS, follow), ON(STATE_NEEDED, AWAITS_FOLD, want_rebase),                                  \
        ON(SNAPSHOT_NEEDED, AWAITS_SNAPSHOT, want_snapshot), ON(NAMED_SNAPSHOT_NEEDED, REWINDS, rewind_again)
#define WITH_A_PRODUCER                                                                                                \
    ON(TOPIC_CHANGED, INSPECTS, leave_topic), ON(PRODUCER_FAILED, INSPECTS, pause_after_failure),                      \
        ON(DELIVERY_FAILED, INSPECTS, pause_after_failure)

static const struct fr_publisher_transition transitions[FR_PUBLISHER_STATES][FR_PUBLISHER_EVENTS] = {
    [FR_PUBLISHER_NEW] = {ON(NO_BROKERS, OFFLINE, NULL), AFTER_INSPECTION},
    [FR_PUBLISHER_OFFLINE] = {{0}},
    [FR_PUBLISHER_INSPECTS] = {AFTER_INSPECTION},
    [FR_PUBLISHER_FOLLOWS] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, NULL),
                              ON(BACKLOG_ABANDONED, AWAITS_FOLD, abandon_backlog), WITH_A_PRODUCER},
    [FR_PUBLISHER_AWAITS_FOLD] = {ON(FOLD_OPENED, FILLS, forget_snapshot), WITH_A_PRODUCER},
    [FR_PUBLISHER_FILLS] = {ON(STATE_SENT, FILLED, NULL), WITH_A_PRODUCER},
    [FR_PUBLISHER_FILLED] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, end_rebase), WITH_A_PRODUCER},
    [FR_PUBLISHER_AWAITS_SNAPSHOT] = {ON(SNAPSHOT_NAMED, REWINDS, send_after_snapshot),
                                      ON(SNAPSHOT_REFUSED, INSPECTS, give_up_snapshot), WITH_A_PRODUCER},
    [FR_PUBLISHER_REWINDS] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, end_rewind),
                              ON(BACKLOG_ABANDONED, AWAITS_FOLD, abandon_backlog),
                              ON(SNAPSHOT_REFUSED, INSPECTS, give_up_snapshot), WITH_A_PRODUCER},
};

const struct fr_publisher_transition *fr_publisher_transition(enum fr_publisher_state from,
                                                              enum fr_publisher_event event)
{
    const struct fr_publisher_transition *found = &transitions[from][event];
    return found->to == FR_PUBLISHER_NO_STATE ? NULL : found;
}

static void change_state(struct fr_publisher *publisher, enum fr_publisher_event event)
{
#define QUOTED(name) #name,
    static const char *const states[] = {"", FR_PUBLISHER_STATE_LIST(QUOTED)};
    static const char *const events[] = {"", FR_PUBLISHER_EVENT_LIST(QUOTED)};
#undef QUOTED
    const struct fr_publisher_transition *transition = fr_publisher_transition(publisher->state, event);
    if (!transition)
        fr_log(FR_LOG_ERROR, "publisher", "event_refused", "state=%s event=%s", states[publisher->state],
               events[event]);
    FR_CHECK(transition != NULL);
    publisher->state = transition->to;
    if (transition->act)
        transition->act(publisher);
}

/* ---- life ---- */

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
    publisher->topic.board = sender->board = board;
    publisher->topic.begun_ns = publisher->topic.settings_asked_ns = fr_mono_ns(options->clock);
    sender->known = &publisher->known;
    sender->topic = &publisher->topic;
    sender->out.hps = fr_publisher_hps_new(options);
    sender->out.first_partition = board->options.first_partition;
    sender->out.end_partition = board->options.end_partition;
    publisher->epochs.sender = publisher->rebase.sender = sender;
    /* A property that librdkafka refuses is reported here and not at the first epoch. */
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
        continue; /* the publisher thread also offers, after the first check */
}

uint64_t fr_publisher_least_timeline(const struct fr_publisher *publisher)
{
    return atomic_load(&publisher->least_timeline);
}

/* Copies the tally and the next offsets for other threads. */
static void share_status(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    board->tally.topic.begin = publisher->known.begin.epoch;
    pthread_mutex_lock(&board->mutex);
    for (uint32_t p = board->options.first_partition; p < board->options.end_partition; p++)
        board->next[p] = publisher->known.partitions[p].next;
    board->status = board->tally;
    pthread_mutex_unlock(&board->mutex);
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

/* ---- inspecting the topic ---- */

static enum fr_status inspect(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_publisher_board *board = &publisher->board;
    const struct fr_inspection inspection = {
        .sender = &publisher->sender,
        .rebase = &publisher->rebase,
        .first = publisher->state == FR_PUBLISHER_NEW,
        .may_rewind = board->options.rewind && !publisher->rewind.impossible,
    };
    enum fr_status status = fr_publisher_inspect_topic(&inspection, &publisher->found, err);
    if (status != FR_OK) {
        if (err)
            fr_publisher_set_problem(board, err->text);
        return status;
    }
    bool named = publisher->found.event == FR_PUBLISHER_SNAPSHOT_NEEDED && publisher->rewind.to.epoch > 0;
    change_state(publisher, named ? FR_PUBLISHER_NAMED_SNAPSHOT_NEEDED : publisher->found.event);
    board->tally.topic.looks += 1;
    board->tally.topic.looked_ms = (uint64_t)fr_wall_ms(board->options.clock);
    board->tally.problem[0] = '\0';
    publisher->known.asked_ns = fr_mono_ns(board->options.clock);
    share_status(publisher);
    return FR_OK;
}

/* Epochs that no topic gets belong to a timeline that no topic has, so that a later start with
 * brokers fills its topic with the whole state. If every epoch so far is acknowledged, that
 * timeline begins with the next epoch (fr_publisher_least_timeline): a run without brokers that
 * trains nothing changes nothing. Otherwise it begins now, because from now on the epochs that the
 * topic lacks count as acknowledged. In a job of several ranks, ranks may differ in this: no
 * timeline begins, and a later start with brokers finds what the topic lacks. */
static enum fr_status go_offline(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_durable *of = publisher->board.options.durable;
    struct fr_durable_status durable;
    fr_publisher_read_begin(&publisher->known);
    fr_durable_get_status(of, &durable);
    enum fr_status status = FR_OK;
    bool published = durable.timeline <= 1 || publisher->known.begun_timeline == durable.timeline;
    published = published && fr_publisher_has_all(&publisher->board);
    if (published && durable.acked >= durable.epoch)
        atomic_store(&publisher->least_timeline, durable.timeline + 1);
    else if (published)
        status = fr_durable_begin_timeline(of, durable.timeline + 1, err);
    if (status != FR_OK)
        return status;
    fr_log(FR_LOG_INFO, "publisher", "no_brokers", "effect=\"no deltas are published; set ingest.brokers for them\"");
    change_state(publisher, FR_PUBLISHER_NO_BROKERS);
    return FR_OK;
}

enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err)
{
    return publisher->board.options.brokers ? inspect(publisher, err) : go_offline(publisher, err);
}

/* Inspects the topic once the pause after a failure is over. */
static enum fr_status inspect_again(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    const struct fr_clock *clock = publisher->board.options.clock;
    uint64_t now = fr_mono_ns(clock);
    if (now < publisher->pause.until_ns) {
        uint64_t left_ms = (publisher->pause.until_ns - now) / NS_PER_MS + 1;
        (void)poll(NULL, 0, wait_ms < 0 || left_ms < (uint64_t)wait_ms ? (int)left_ms : wait_ms);
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", publisher->board.tally.problem);
    }
    enum fr_status status = inspect(publisher, err);
    if (status == FR_E_UNAVAILABLE)
        publisher->pause.until_ns = fr_mono_ns(clock) + (uint64_t)PAUSE_MAX_MS * NS_PER_MS;
    return status;
}

/* ---- sending ---- */

/* Loads the next epochs of the journal. FR_AGAIN: there are none, or too many are in flight. */
static enum fr_status load_epochs(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_publisher_board *board = &publisher->board;
    const struct fr_publisher_rewind *to = &publisher->rewind.to;
    uint64_t sent = board->tally.sent, last = sent + 1;
    if (sent >= atomic_load(&board->offered) || publisher->sender.n_pending == PENDING_EPOCHS_MAX)
        return FR_AGAIN;
    if (fr_publisher_is_backlog(&publisher->epochs, &last) && board->options.backlog_rebases) {
        if (publisher->sender.n_pending == 0) {
            change_state(publisher, FR_PUBLISHER_BACKLOG_ABANDONED);
            return FR_OK;
        }
        last = sent + 1; /* the epochs in flight are acknowledged first */
    }
    const struct fr_delta_rewind named = {to->epoch, to->snapshot};
    const struct fr_delta_rewind *rewind =
        publisher->state == FR_PUBLISHER_REWINDS && sent == to->epoch ? &named : NULL;
    return last == sent + 1 ? fr_publisher_load_epoch(&publisher->epochs, rewind, err)
                            : fr_publisher_load_merged(&publisher->epochs, last, rewind, err);
}

/* Loads the next outgoing records. FR_AGAIN: there are none yet. */
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

/* Requests the snapshot of a rewind from its maker. NO_EVENT: there is no answer yet, or the named
 * snapshot still stands. */
static enum fr_publisher_event request_snapshot(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    struct fr_publisher_rewind to;
    enum fr_status status = board->options.rewind(board->options.self, publisher->rewind.least, &to);
    if (status != FR_OK && status != FR_AGAIN) {
        fr_log(FR_LOG_INFO, "publisher", "rewind_refused",
               "topic=%s note=\"there is no snapshot, or no epoch follows it: the topic is filled with the whole "
               "state\"",
               board->options.topic);
        return FR_PUBLISHER_SNAPSHOT_REFUSED;
    }
    if (status != FR_OK || publisher->rewind.to.epoch > 0 || to.epoch > atomic_load(&board->offered))
        return FR_PUBLISHER_NO_EVENT;
    publisher->rewind.to = to;
    fr_log(FR_LOG_INFO, "publisher", "rewind_begin", "topic=%s to=%" PRIu64 " snapshot=%s", board->options.topic,
           to.epoch, to.snapshot);
    return FR_PUBLISHER_SNAPSHOT_NAMED;
}

/* Whether epochs may be sent. A timeline that begins with a rewind needs its snapshot first. The
 * request is repeated while no epoch follows the snapshot, because it may be refused until then. */
static bool may_send(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    struct fr_publisher_status *tally = &board->tally;
    uint64_t offered = atomic_load(&board->offered);
    tally->rewind_waits =
        publisher->state == FR_PUBLISHER_REWINDS && tally->sent == publisher->rewind.to.epoch && tally->sent >= offered;
    if (publisher->state != FR_PUBLISHER_AWAITS_SNAPSHOT && !tally->rewind_waits)
        return true;
    enum fr_publisher_event event = request_snapshot(publisher);
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

/* Sends records, serves delivery reports, and judges records that others wrote between ours, before
 * an epoch next to them is counted as acknowledged. */
static enum fr_status send_and_listen(struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    rd_kafka_t *producer = publisher->sender.producer;
    enum fr_status status = send_waiting(publisher, err);
    rd_kafka_poll(producer, wait_ms);
    while (rd_kafka_poll(producer, 0) > 0)
        continue; /* bounded by the records in flight */
    fr_publisher_compare_ends(&publisher->known, &publisher->topic, producer);
    if ((status == FR_OK || status == FR_E_UNAVAILABLE) && fr_publisher_has_gaps(&publisher->known)) {
        enum fr_status between = fr_publisher_judge_gaps(&publisher->sender, err);
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
        change_state(publisher, FR_PUBLISHER_BEGINNING_ACKNOWLEDGED);
    }
    share_status(publisher);
    return status;
}

static enum fr_status step_offline(struct fr_publisher *publisher, int wait_ms)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    uint64_t offered = atomic_load(&publisher->board.offered);
    if (tally->acked == offered)
        (void)poll(NULL, 0, wait_ms);
    tally->sent = tally->acked = offered;
    share_status(publisher);
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
    enum fr_status status = publisher->state == FR_PUBLISHER_INSPECTS ? inspect_again(publisher, wait_ms, err) : FR_OK;
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
        change_state(publisher, board->noticed);
    if (failed)
        share_status(publisher);
    if (failed || (status == FR_OK && tally->in_flight_bytes > 0 && tally->problem[0] != '\0'))
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", tally->problem);
    if (status == FR_OK && tally->refused[0] != '\0') /* nothing was acknowledged since */
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", tally->refused);
    return status;
}
