/* The inspection of the delta topic (publisher_inspection.h).
 *
 * The topic is inspected at the start, after every restart of the producer, and when it has changed
 * unexpectedly. The newest record of every partition is read back and compared with the chain of
 * the journal: same model, no newer timeline, no epoch beyond the durable one, and the digest of
 * our own epoch of that number. (Strays, transaction markers or aborted records may follow the
 * newest record, so reading walks back.) Any other record means a copy of the state directory, a
 * second writer or a foreign topic, and an operator must decide.
 *
 * A commit shows that its epoch is complete in its partition; any other record shows that the epoch
 * before is. Sending resumes after the least of these epochs, so that an epoch that was cut off in
 * the middle is completed before anything later is sent (replicas drop repeated records). The first
 * inspection resumes no later than after the epoch that the journal notes as acknowledged, because
 * a commit may be on the topic without a piece before it.
 *
 * A new replica begins with piece 0 of an epoch that has `from` 1. The offset of that record in
 * each partition is the topic's beginning (publisher_known.c). If the beginning is gone, or sending
 * would have to resume before the first epoch of the journal, a beginning must be sent: a rewind to
 * a snapshot if a timeline begins and snapshots are made, otherwise the whole state. If the journal
 * still holds epoch 1, its epochs are the beginning.
 *
 * Source: reading back one's own log before writing, docs/architecture.md, "Publishing". Thread:
 * the publisher thread. The inspection does not read whole partitions, change the topic, or choose
 * what is sent. */
#include "publisher_inspection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"

enum {
    WALK_FIRST = 4,
    WALK_FACTOR = 16,
    WALK_MAX = 1 << 14,
    /* Least time between two fillings, so that a topic that keeps less than a state is not filled
     * for ever. */
    REBASE_EVERY_MS = 600000,
};

#define REMEDY "start in the right state directory, or name an empty topic in export.topic"

/* An inspection under way: the parts of the topic and of the state that it has read. */
struct topic_view {
    struct fr_publisher_sender *sender;
    struct fr_publisher_board *board;
    struct fr_publisher_known *known;
    const struct fr_inspection *asked; /* NULL: only records between ours are judged */
    rd_kafka_t *client;
    struct fr_durable_status durable;
    char model[128];
    uint32_t np, first, end; /* partitions of the topic; [first, end): those of this publisher */
    int64_t *low, *high;
    struct fr_topic_record *heads, *tails; /* [np] the first and the newest record with a crc */
    struct fr_topic_span *spans;
    uint64_t strays;
};

/* ---- reading ---- */

static bool keep_newest(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct topic_view *view = self;
    view->tails[partition] = *record;
    return false;
}

static bool keep_first(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct topic_view *view = self;
    view->heads[partition] = *record;
    return true;
}

static enum fr_status read_spans(const struct topic_view *view, size_t n, const struct fr_topic_visitor *visitor,
                                 struct fr_err *err)
{
    const struct fr_topic_reading reading = {view->board, view->client, view->spans, n};
    return fr_publisher_read(&reading, visitor, err);
}

static enum fr_status read_tails(struct topic_view *view, struct fr_err *err)
{
    const struct fr_topic_visitor visitor = {view, keep_newest};
    enum fr_status status = FR_OK;
    for (int64_t back = WALK_FIRST; back <= WALK_MAX && status == FR_OK; back *= WALK_FACTOR) {
        size_t n = 0;
        for (uint32_t p = view->first; p < view->end; p++) {
            int64_t low = view->low[p], high = view->high[p];
            bool walked = back > WALK_FIRST && high - back / WALK_FACTOR <= low;
            if (view->tails[p].found || high <= low || walked)
                continue;
            view->spans[n++] =
                (struct fr_topic_span){(int32_t)p, high - back > low ? high - back : low, high, 0, false};
        }
        status = read_spans(view, n, &visitor, err);
        for (size_t i = 0; i < n; i++)
            view->strays += view->spans[i].strays;
    }
    for (uint32_t p = view->first; p < view->end && status == FR_OK; p++)
        if (!view->tails[p].found && view->high[p] - view->low[p] > WALK_MAX)
            return fr_err_set(err, FR_E_MISMATCH,
                              "none of the newest %d records of topic %s partition %u is a delta record; %s", WALK_MAX,
                              view->board->options.topic, p, REMEDY);
    return status;
}

/* Reads the record at which each partition begins, or is known to begin. */
static enum fr_status read_heads(struct topic_view *view, struct fr_err *err)
{
    const struct fr_topic_visitor visitor = {view, keep_first};
    const struct fr_topic_partition *partitions = view->known->partitions;
    size_t n = 0;
    memset(view->heads, 0, view->np * sizeof(*view->heads));
    for (uint32_t p = view->first; p < view->end; p++) {
        int64_t from = partitions[p].begin >= view->low[p] ? partitions[p].begin : view->low[p];
        int64_t to = view->high[p] - from > WALK_MAX ? from + WALK_MAX : view->high[p];
        view->spans[n++] = (struct fr_topic_span){(int32_t)p, from, to, 0, false};
    }
    return read_spans(view, n, &visitor, err);
}

/* Reads the durable status, and the model's name from the head of the newest journal file. */
static enum fr_status learn_chain(struct topic_view *view, struct fr_err *err)
{
    struct fr_durable *durable = view->board->options.durable;
    fr_durable_get_status(durable, &view->durable);
    if (view->durable.epoch == 0)
        return FR_OK;
    struct fr_codec_settings settings;
    struct fr_buffer head = {0};
    enum fr_status status = fr_durable_newest_head(durable, &head, err);
    if (status == FR_OK) {
        status = fr_codec_settings_parse(head.data, head.size, &settings);
        if (status != FR_OK)
            (void)fr_err_set(err, status, "the head of the newest journal file does not parse");
    }
    if (status == FR_OK) {
        memcpy(view->model, settings.model, sizeof(view->model));
        fr_codec_settings_release(&settings);
    }
    fr_buffer_release(&head);
    return status;
}

/* ---- judging ---- */

/* Describes the writer of a record as far as the record shows it, because brokers do not keep who
 * produced a record. */
static const char *describe_writer(const struct fr_topic_record *record, char *text, size_t size)
{
    struct tm utc;
    time_t seconds = (time_t)(record->written_ms / 1000);
    char when[32] = "at an unknown time";
    if (record->written_ms >= 0 && gmtime_r(&seconds, &utc))
        (void)strftime(when, sizeof(when), "at %Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(text, size, "timeline %" PRIu64 ", digest 0x%016" PRIx64 ", written %s", record->timeline, record->digest,
             when);
    return text;
}

static enum fr_status judge_digest(const struct topic_view *view, int32_t partition,
                                   const struct fr_topic_record *record, struct fr_err *err)
{
    const char *topic = view->board->options.topic;
    const struct fr_durable_status *durable = &view->durable;
    struct fr_sha256 digest;
    char who[96];
    if (fr_publisher_digest(view->board, record->epoch, &digest) != FR_OK)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "topic %s partition %d ends at epoch %" PRIu64 ", which the journal (from epoch %" PRIu64
            ") no longer knows: the topic lost its newest records, or another state writes to it; %s, which is filled with all of it",
            topic, (int)partition, record->epoch, durable->journal_first, REMEDY);
    if (fr_sha256_u64(&digest) != record->digest)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d holds an epoch %" PRIu64 " of model %s at offset %" PRId64
                          " (%s) with another digest than ours, 0x%016" PRIx64
                          ": a second writer, or a copy of this state. Let one of them run only; %s",
                          topic, (int)partition, record->epoch, record->model, record->offset,
                          describe_writer(record, who, sizeof(who)), fr_sha256_u64(&digest), REMEDY);
    return FR_OK;
}

/* Compares a record of the topic with our chain. FR_E_MISMATCH: the text describes its writer. */
static enum fr_status judge_record(const struct topic_view *view, int32_t partition,
                                   const struct fr_topic_record *record, struct fr_err *err)
{
    const char *topic = view->board->options.topic;
    const struct fr_durable_status *durable = &view->durable;
    char who[96];
    if (record->status != FR_OK)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d has a record at offset %" PRId64 " that is not ours (%s); %s", topic,
                          (int)partition, record->offset, record->problem, REMEDY);
    if (view->model[0] != '\0' && strcmp(record->model, view->model) != 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s holds deltas of model %s (epoch %" PRIu64 " at offset %" PRId64
                          " of partition %d, %s), this state is of model %s; %s",
                          topic, record->model, record->epoch, record->offset, (int)partition,
                          describe_writer(record, who, sizeof(who)), view->model, REMEDY);
    if (record->timeline > durable->timeline && durable->epoch > 0)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "topic %s partition %d holds epoch %" PRIu64 " of timeline %" PRIu64 " of model %s at offset %" PRId64
            " (%s), and this state is of timeline %" PRIu64
            ": another state began that timeline here and is the one that replicas follow. Run that one; or begin a "
            "further one with this state (freshetd --new-timeline %" PRIu64 "); %s",
            topic, (int)partition, record->epoch, record->timeline, record->model, record->offset,
            describe_writer(record, who, sizeof(who)), durable->timeline, durable->timeline, REMEDY);
    if (record->timeline >= durable->timeline && record->epoch > durable->epoch)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d holds epoch %" PRIu64 " of model %s at offset %" PRId64
                          " (%s), but this state ends at epoch %" PRIu64 " of timeline %" PRIu64
                          ": an older copy of the state, or another writer; %s; or begin a new timeline here (freshetd "
                          "--new-timeline %" PRIu64 ")",
                          topic, (int)partition, record->epoch, record->model, record->offset,
                          describe_writer(record, who, sizeof(who)), durable->epoch, durable->timeline, REMEDY,
                          durable->timeline > 0 ? durable->timeline : 1);
    if (record->np != view->np || record->partition != (uint32_t)partition)
        return fr_err_set(err, FR_E_MISMATCH, "topic %s partition %d holds a record of partition %u of %u; %s", topic,
                          (int)partition, record->partition, record->np, REMEDY);
    if (record->timeline < durable->timeline)
        return FR_OK; /* replicas ignore it once our timeline has begun */
    return judge_digest(view, partition, record, err);
}

/* Judges the newest records. *least: the newest epoch that is complete in every partition. */
static enum fr_status judge_tails(struct topic_view *view, uint64_t *least, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    *least = UINT64_MAX;
    for (uint32_t p = view->first; p < view->end && status == FR_OK; p++) {
        const struct fr_topic_record *tail = &view->tails[p];
        uint64_t complete = 0;
        if (tail->found)
            status = judge_record(view, (int32_t)p, tail, err);
        if (tail->found && tail->timeline == view->durable.timeline)
            complete = tail->kind == FR_DELTA_COMMIT ? tail->epoch : tail->from - 1;
        *least = complete < *least ? complete : *least;
    }
    return status;
}

static bool begins(const struct topic_view *view, const struct fr_topic_record *head)
{
    return head->found && head->status == FR_OK && head->timeline == view->durable.timeline && head->from == 1 &&
           head->piece == 0 && strcmp(head->model, view->model) == 0;
}

/* Whether a new replica can begin, in every partition with the same epoch. A beginning that was
 * known before must still be at its offsets; otherwise all partitions must begin with one. */
static bool judge_heads(struct topic_view *view)
{
    struct fr_publisher_known *known = view->known;
    struct fr_topic_begin begin = known->begin;
    bool was_known = begin.epoch > 0;
    const struct fr_topic_record *first = &view->heads[view->first];
    if (!was_known)
        begin = (struct fr_topic_begin){first->timeline, first->epoch, first->digest, 0};
    for (uint32_t p = view->first; p < view->end; p++) {
        const struct fr_topic_record *head = &view->heads[p];
        if (!begins(view, head) || head->timeline != begin.timeline || head->epoch != begin.epoch ||
            head->digest != begin.digest || (was_known && head->offset != known->partitions[p].begin))
            return false;
    }
    for (uint32_t p = view->first; p < view->end; p++)
        known->partitions[p].begin = view->heads[p].offset;
    known->begin = begin;
    known->begun_timeline = begin.timeline;
    return true;
}

static enum fr_status check_heads(struct topic_view *view, bool *sound, struct fr_err *err)
{
    enum fr_status status = read_heads(view, err);
    if (status != FR_OK)
        return status;
    *sound = judge_heads(view);
    if (*sound || view->known->begin.epoch == 0)
        return FR_OK;
    fr_publisher_forget_begin(view->known);
    status = read_heads(view, err);
    *sound = status == FR_OK && judge_heads(view);
    return status;
}

/* ---- timelines ---- */

/* Whether the timeline's beginning was acknowledged on this topic. */
static bool has_begun(const struct topic_view *view)
{
    return view->durable.timeline <= 1 || view->known->begun_timeline == view->durable.timeline;
}

/* Refuses what the publisher of some of the partitions cannot do alone. status: of the error. */
static enum fr_status refuse_alone(const struct topic_view *view, enum fr_status status, const char *why,
                                   struct fr_err *err)
{
    if (fr_publisher_has_all(view->board))
        return FR_OK;
    return fr_err_set(err, status,
                      "topic %s, partitions %u to %u: %s, which this version cannot do in a job of several ranks; give "
                      "the topic its records back, or begin a new job, with empty state directories and an empty "
                      "topic in export.topic",
                      view->board->options.topic, view->first, view->end - 1, why);
}

/* Chooses another number for a timeline that has not begun, if the topic has records of that
 * number. They may be of another state from the same savepoint, or of this state before a kill, and
 * readers cannot distinguish these two by what both began with. */
static enum fr_status choose_timeline(struct topic_view *view, struct fr_err *err)
{
    const struct fr_publisher_options *options = &view->board->options;
    uint64_t newest = 0;
    for (uint32_t p = view->first; p < view->end; p++) {
        const struct fr_topic_record *tail = &view->tails[p];
        if (tail->found && tail->status == FR_OK && tail->timeline > newest)
            newest = tail->timeline;
    }
    if (!view->asked->first || has_begun(view) || newest < view->durable.timeline)
        return FR_OK;
    enum fr_status status =
        refuse_alone(view, FR_E_MISMATCH, "they hold records of this state's timeline, so another one must begin", err);
    if (status == FR_OK)
        status = fr_durable_begin_timeline(options->durable, newest + 1, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "publisher", "timeline_taken",
               "topic=%s timeline=%" PRIu64 " instead=%" PRIu64 " note=\"the topic holds records of that number\"",
               options->topic, newest, newest + 1);
    fr_durable_get_status(options->durable, &view->durable);
    return status;
}

/* ---- deciding ---- */

/* Counts and logs partitions that are empty although epochs were acknowledged (P8). */
static void count_losses(struct topic_view *view)
{
    for (uint32_t p = view->first; p < view->end; p++) {
        if (view->tails[p].found || view->durable.acked == 0 || !has_begun(view))
            continue;
        fr_log(FR_LOG_WARN, "publisher", "delta_topic_lost_records",
               "topic=%s partition=%u acked=%" PRIu64
               " problem=\"the partition is empty although epochs were acknowledged; it is filled again\"",
               view->board->options.topic, p, view->durable.acked);
        view->board->tally.lost_partitions += 1;
    }
}

/* Whether the topic may be filled with the whole state. */
static enum fr_status allow_rebase(const struct topic_view *view, struct fr_err *err)
{
    const struct fr_publisher_options *options = &view->board->options;
    const struct fr_publisher_rebase *rebase = view->asked->rebase;
    if (rebase->full)
        return FR_OK; /* filling has begun already */
    if (options->stop_on_loss && has_begun(view))
        return fr_err_set(
            err, FR_E_LOST,
            "topic %s does not hold what a new replica begins with (it lost its beginning, was created again, "
            "or is new for this state), and the journal begins with epoch %" PRIu64
            ": set export.on_loss: rebase, and it is filled with the whole state",
            options->topic, view->durable.journal_first);
    uint64_t now = fr_mono_ns(options->clock), last = rebase->begun_ns;
    if (last > 0 && now - last < REBASE_EVERY_MS * UINT64_C(1000000))
        return fr_err_set(
            err, FR_E_LOST,
            "topic %s lost its beginning again within %d minutes after it was filled with the whole state: "
            "set retention.ms=-1 and retention.bytes=-1 on it",
            options->topic, REBASE_EVERY_MS / 60000);
    return FR_OK;
}

static uint64_t later_merged(const struct topic_view *view, const struct fr_topic_record *record, uint64_t above)
{
    const struct fr_export_full *full = view->asked->rebase->full;
    bool merged = record->found && record->status == FR_OK && record->timeline == view->durable.timeline &&
                  record->from == 1 && record->epoch != (full ? fr_export_full_epoch(full).epoch : 0);
    return merged && record->epoch > above ? record->epoch : above;
}

/* Returns the epoch that the whole state must be later than. Replicas may hold pieces of a merged
 * epoch that was cut off, so that epoch is not written again with other pieces, except by the
 * process that is writing it. Everything of an older timeline must be part of the whole state. */
static uint64_t rebase_above(const struct topic_view *view, uint64_t base)
{
    uint64_t above = base > 0 ? base - 1 : 0;
    for (uint32_t p = view->first; p < view->end; p++) {
        above = later_merged(view, &view->heads[p], above);
        above = later_merged(view, &view->tails[p], above);
    }
    return above;
}

/* Whether new replicas can begin with a snapshot and find everything later in the topic. */
static bool is_covered(const struct topic_view *view)
{
    const struct fr_publisher_options *options = &view->board->options;
    return fr_publisher_has_all(view->board) && options->covers &&
           options->covers(options->self, view->low, view->high, view->np);
}

/* Returns the epoch after which sending resumes. A commit may be on the topic without a piece
 * before it (fr_kafka_refusal). So the first inspection, and a sender that had a report without an
 * offset, resume no later than after the acknowledged epoch; so does a sender for HPS, whose topics
 * have no commits. noted: the epoch of the beginning that was known before the inspection. */
static uint64_t resume_after(const struct topic_view *view, uint64_t complete, uint64_t noted, uint64_t journal)
{
    const struct fr_publisher_sender *sender = view->sender;
    uint64_t acked = view->durable.acked > journal ? view->durable.acked : journal;
    uint64_t begin = view->known->begin.epoch;
    bool first = view->asked->first;
    if (first && journal > 0 && begin != noted && begin > acked)
        return 0; /* the topic begins with a whole state that another process did not finish */
    if (sender->commits_doubted && complete > view->board->tally.acked)
        return view->board->tally.acked;
    return (first || sender->out.hps) && complete > acked ? acked : complete;
}

/* Chooses what is sent for new replicas to begin with. journal: the epoch before the journal's
 * first. */
static enum fr_status choose_beginning(const struct topic_view *view, uint64_t journal, uint64_t base,
                                       struct fr_inspection_findings *found, struct fr_err *err)
{
    enum fr_status status = refuse_alone(
        view, FR_E_LOST, "they lack epochs that the journals no longer have, so they need the whole state", err);
    if (status != FR_OK)
        return status;
    if (!has_begun(view) && view->asked->may_rewind && !view->asked->rebase->full) {
        found->event = FR_PUBLISHER_SNAPSHOT_NEEDED;
        found->least = journal;
        return FR_OK;
    }
    status = allow_rebase(view, err);
    if (status != FR_OK)
        return status;
    found->event = FR_PUBLISHER_STATE_NEEDED;
    found->above = rebase_above(view, base);
    fr_log(FR_LOG_WARN, "publisher", "rebase",
           "topic=%s timeline=%" PRIu64 " journal_first=%" PRIu64
           " note=\"the topic does not hold what a new replica begins with; it is filled with the whole state\"",
           view->board->options.topic, view->durable.timeline, view->durable.journal_first);
    return FR_OK;
}

static enum fr_status decide(struct topic_view *view, struct fr_inspection_findings *found, struct fr_err *err)
{
    struct fr_publisher_known *known = view->known;
    uint64_t complete = 0, noted = known->begin.epoch;
    bool sound = false;
    enum fr_status status = choose_timeline(view, err);
    if (status == FR_OK)
        status = judge_tails(view, &complete, err);
    if (status == FR_OK)
        status = check_heads(view, &sound, err);
    if (status != FR_OK)
        return status;
    count_losses(view);
    /* A state that begins from a savepoint has no journal yet. */
    uint64_t journal = view->durable.journal_first > 0 ? view->durable.journal_first - 1 : view->durable.epoch;
    uint64_t base = fr_durable_timeline_base(view->board->options.durable);
    uint64_t digests = view->board->options.digests.of ? view->board->options.digests.first : 0;
    journal = journal < base ? base : journal;
    journal = journal < digests ? digests : journal;
    known->snapshot_is_begin = !sound && has_begun(view) && is_covered(view);
    uint64_t resume = sound || known->snapshot_is_begin ? resume_after(view, complete, noted, journal) : 0;
    *found = (struct fr_inspection_findings){.event = FR_PUBLISHER_BEGINNING_FOUND, .resume = resume};
    /* After a lost beginning, or a gap before the journal, a beginning must be sent. */
    if (resume < journal) {
        found->resume = 0;
        status = choose_beginning(view, journal, base, found, err);
        if (status != FR_OK)
            return status;
    }
    for (uint32_t p = view->first; p < view->end; p++) {
        known->partitions[p].low = view->low[p];
        known->partitions[p].next = view->high[p];
        known->partitions[p].gap_from = known->partitions[p].gap_to = 0;
    }
    view->board->tally.strays = view->strays;
    return FR_OK;
}

/* ---- the whole inspection ---- */

static void close_view(struct topic_view *view)
{
    fr_publisher_reader_close(view->client);
    free(view->low);
    free(view->high);
    free(view->heads);
    free(view->tails);
    free(view->spans);
}

static enum fr_status open_view(struct fr_publisher_sender *sender, const struct fr_inspection *asked,
                                struct topic_view *view, struct fr_err *err)
{
    struct fr_publisher_board *board = sender->board;
    uint32_t np = board->options.partitions;
    *view = (struct topic_view){.sender = sender, .board = board, .known = sender->known, .asked = asked, .np = np};
    view->first = board->options.first_partition;
    view->end = board->options.end_partition;
    view->low = fr_alloc(np, sizeof(*view->low));
    view->high = fr_alloc(np, sizeof(*view->high));
    view->heads = fr_alloc(np, sizeof(*view->heads));
    view->tails = fr_alloc(np, sizeof(*view->tails));
    view->spans = fr_alloc(np, sizeof(*view->spans));
    board->connection[0] = '\0';
    enum fr_status status = fr_publisher_reader_open(board, &view->client, err);
    return status == FR_OK ? learn_chain(view, err) : status;
}

enum fr_status fr_publisher_inspect_topic(const struct fr_inspection *asked, struct fr_inspection_findings *found,
                                          struct fr_err *err)
{
    struct fr_publisher_sender *sender = asked->sender;
    char *refused = sender->board->tally.refused;
    struct topic_view view;
    if (asked->first)
        fr_publisher_read_begin(sender->known);
    enum fr_status status = open_view(sender, asked, &view, err);
    if (status == FR_OK)
        status = fr_publisher_check_topic(sender->topic, view.client, asked->first, err);
    if (status == FR_OK)
        status = fr_publisher_hps_check(sender->out.hps, view.board, view.client,
                                        asked->first ? &view.durable.acked : NULL, err);
    if (status == FR_OK)
        status = fr_publisher_ends(view.board, view.client, view.low, view.high, err);
    if (status == FR_OK)
        status = read_tails(&view, err);
    if (status == FR_OK)
        status = decide(&view, found, err);
    /* A drain that ends now must not report a reason that no longer holds. */
    if (refused[0] != '\0' && (status != FR_OK || fr_publisher_accepts_refused(sender->topic, view.client)))
        refused[0] = '\0';
    close_view(&view);
    if (status != FR_OK)
        return status;
    sender->commits_doubted = false;
    fr_log(FR_LOG_INFO, "publisher", "topic_checked", "topic=%s durable=%" PRIu64 " complete=%" PRIu64,
           view.board->options.topic, view.durable.epoch, found->resume);
    return FR_OK;
}

/* ---- records between ours ---- */

struct stranger {
    struct topic_view *view;
    struct fr_err *err;
    enum fr_status status;
    uint64_t ours;
};

static bool judge_stranger(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct stranger *stranger = self;
    stranger->status = judge_record(stranger->view, partition, record, stranger->err);
    stranger->ours += stranger->status == FR_OK;
    return stranger->status != FR_OK;
}

enum fr_status fr_publisher_judge_gaps(struct fr_publisher_sender *sender, struct fr_err *err)
{
    struct topic_view view;
    size_t n = 0;
    enum fr_status status = open_view(sender, NULL, &view, err);
    struct fr_topic_partition *partitions = view.known->partitions;
    for (uint32_t p = view.first; p < view.end; p++)
        if (partitions[p].gap_to > partitions[p].gap_from)
            view.spans[n++] =
                (struct fr_topic_span){(int32_t)p, partitions[p].gap_from, partitions[p].gap_to, 0, false};
    struct stranger stranger = {.view = &view, .err = err};
    const struct fr_topic_visitor visitor = {&stranger, judge_stranger};
    if (status == FR_OK)
        status = read_spans(&view, n, &visitor, err);
    if (stranger.status != FR_OK)
        status = stranger.status;
    if (status == FR_OK) {
        for (uint32_t p = view.first; p < view.end; p++)
            partitions[p].gap_from = partitions[p].gap_to = 0;
        for (size_t i = 0; i < n; i++)
            view.board->tally.strays += view.spans[i].strays;
        if (stranger.ours > 0)
            fr_log(FR_LOG_INFO, "publisher", "records_arrived_twice", "topic=%s records=%" PRIu64,
                   view.board->options.topic, stranger.ours);
    }
    close_view(&view);
    return status;
}
