/* The look at the delta topic (publisher_look.h).
 *
 * It is made at start, after every restart of the producer, and when the topic is not what it was.
 * The newest record of every partition is read back (strays, transaction markers or aborted records
 * may follow it, hence the walk back) and compared with the chain of the journal: same model,
 * timeline not newer, epoch not newer than the durable one, digest that of our own epoch of that
 * number. Anything else is a copy of the state directory, a second writer or a foreign topic, and
 * an operator must decide. A commit shows its epoch complete in its partition; any other record
 * shows the epoch before. Sending resumes after the least of them, so that an epoch which was cut
 * off in the middle is completed before anything later (replicas drop what they have already). A
 * start also sends again what the journal has not noted as acknowledged: such a commit may lack a
 * piece.
 *
 * A new replica begins with piece 0 of an epoch that has `from` 1. Where that lies in each
 * partition is the topic's beginning (publisher_known.c). When it is gone, or sending would have to
 * resume where the journal no longer reaches, a beginning has to be sent: a rewind to a snapshot
 * where a timeline begins and somebody makes one, else the whole state. From epoch 1 on, where the
 * journal still begins there, the epochs themselves are that.
 *
 * Source: reading back one's own log before writing, docs/architecture.md, "Publishing". Thread:
 * the publisher thread. It does not read whole partitions, change the topic, or choose what is
 * sent. */
#include "publisher_look.h"

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
    REBASE_EVERY_MS = 600000, /* a topic that keeps less than a state is not filled for ever */
};

#define REMEDY "start in the right state directory, or name an empty topic in export.topic"

/* A look that is being made. */
struct look {
    const struct fr_look_request *request;
    struct fr_publisher_board *board;
    struct fr_publisher_known *known;
    rd_kafka_t *client;
    struct fr_durable_status durable;
    char model[128];
    uint32_t np;
    int64_t *low, *high;
    struct fr_topic_record *heads, *tails; /* the first and the newest record that somebody meant */
    struct fr_topic_span *spans;
    uint64_t strays;
};

/* ---- reading ---- */

static bool keep_newest(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct look *look = self;
    look->tails[partition] = *record;
    return false;
}

static bool keep_first(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct look *look = self;
    look->heads[partition] = *record;
    return true;
}

static enum fr_status read_spans(const struct look *look, size_t n, const struct fr_topic_visitor *visitor,
                                 struct fr_err *err)
{
    const struct fr_topic_reading reading = {look->board, look->client, look->spans, n};
    return fr_publisher_read(&reading, visitor, err);
}

static enum fr_status read_tails(struct look *look, struct fr_err *err)
{
    const struct fr_topic_visitor visitor = {look, keep_newest};
    enum fr_status status = FR_OK;
    for (int64_t back = WALK_FIRST; back <= WALK_MAX && status == FR_OK; back *= WALK_FACTOR) {
        size_t n = 0;
        for (uint32_t p = 0; p < look->np; p++) {
            int64_t low = look->low[p], high = look->high[p];
            bool walked = back > WALK_FIRST && high - back / WALK_FACTOR <= low;
            if (look->tails[p].found || high <= low || walked)
                continue;
            look->spans[n++] =
                (struct fr_topic_span){(int32_t)p, high - back > low ? high - back : low, high, 0, false};
        }
        status = read_spans(look, n, &visitor, err);
        for (size_t i = 0; i < n; i++)
            look->strays += look->spans[i].strays;
    }
    for (uint32_t p = 0; p < look->np && status == FR_OK; p++)
        if (!look->tails[p].found && look->high[p] - look->low[p] > WALK_MAX)
            return fr_err_set(err, FR_E_MISMATCH,
                              "none of the newest %d records of topic %s partition %u is a delta record; %s", WALK_MAX,
                              look->board->options.topic, p, REMEDY);
    return status;
}

/* The records at which partitions begin, or where they are known to. */
static enum fr_status read_heads(struct look *look, struct fr_err *err)
{
    const struct fr_topic_visitor visitor = {look, keep_first};
    const struct fr_topic_partition *partitions = look->known->partitions;
    size_t n = 0;
    memset(look->heads, 0, look->np * sizeof(*look->heads));
    for (uint32_t p = 0; p < look->np; p++) {
        int64_t from = partitions[p].begin >= look->low[p] ? partitions[p].begin : look->low[p];
        int64_t to = look->high[p] - from > WALK_MAX ? from + WALK_MAX : look->high[p];
        look->spans[n++] = (struct fr_topic_span){(int32_t)p, from, to, 0, false};
    }
    return read_spans(look, n, &visitor, err);
}

/* The model's name from the head of the newest epoch's journal file. */
static enum fr_status learn_chain(struct look *look, struct fr_err *err)
{
    struct fr_durable *durable = look->board->options.durable;
    fr_durable_get_status(durable, &look->durable);
    if (look->durable.epoch == 0)
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
        memcpy(look->model, settings.model, sizeof(look->model));
        fr_codec_settings_release(&settings);
    }
    fr_buffer_release(&head);
    return status;
}

/* ---- judging ---- */

/* Who wrote a record, as far as it shows: brokers do not keep who produced what. */
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

static enum fr_status judge_digest(const struct look *look, int32_t partition, const struct fr_topic_record *record,
                                   struct fr_err *err)
{
    const char *topic = look->board->options.topic;
    const struct fr_durable_status *durable = &look->durable;
    struct fr_sha256 digest;
    char who[96];
    if (fr_durable_digest(look->board->options.durable, record->epoch, &digest) != FR_OK)
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

/* A record of the topic against our chain; FR_E_MISMATCH says whose it is. */
static enum fr_status judge_record(const struct look *look, int32_t partition, const struct fr_topic_record *record,
                                   struct fr_err *err)
{
    const char *topic = look->board->options.topic;
    const struct fr_durable_status *durable = &look->durable;
    char who[96];
    if (record->status != FR_OK)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d has a record at offset %" PRId64 " that is not ours (%s); %s", topic,
                          (int)partition, record->offset, record->problem, REMEDY);
    if (look->model[0] != '\0' && strcmp(record->model, look->model) != 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s holds deltas of model %s (epoch %" PRIu64 " at offset %" PRId64
                          " of partition %d, %s), this state is of model %s; %s",
                          topic, record->model, record->epoch, record->offset, (int)partition,
                          describe_writer(record, who, sizeof(who)), look->model, REMEDY);
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
    if (record->np != look->np || record->partition != (uint32_t)partition)
        return fr_err_set(err, FR_E_MISMATCH, "topic %s partition %d holds a record of partition %u of %u; %s", topic,
                          (int)partition, record->partition, record->np, REMEDY);
    if (record->timeline < durable->timeline)
        return FR_OK; /* replicas pass over it once ours began */
    return judge_digest(look, partition, record, err);
}

/* *least = the newest epoch that every partition holds wholly. */
static enum fr_status judge_tails(struct look *look, uint64_t *least, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    *least = UINT64_MAX;
    for (uint32_t p = 0; p < look->np && status == FR_OK; p++) {
        const struct fr_topic_record *tail = &look->tails[p];
        uint64_t complete = 0;
        if (tail->found)
            status = judge_record(look, (int32_t)p, tail, err);
        if (tail->found && tail->timeline == look->durable.timeline)
            complete = tail->kind == FR_DELTA_COMMIT ? tail->epoch : tail->from - 1;
        *least = complete < *least ? complete : *least;
    }
    return status;
}

static bool begins(const struct look *look, const struct fr_topic_record *head)
{
    return head->found && head->status == FR_OK && head->timeline == look->durable.timeline && head->from == 1 &&
           head->piece == 0 && strcmp(head->model, look->model) == 0;
}

/* A new replica can begin, in every partition with the same epoch. What was known of it must still
 * lie where it lay; else all partitions begin with it. */
static bool judge_heads(struct look *look)
{
    struct fr_publisher_known *known = look->known;
    struct fr_topic_begin begin = known->begin;
    bool was_known = begin.epoch > 0;
    if (!was_known && look->np > 0)
        begin = (struct fr_topic_begin){look->heads[0].timeline, look->heads[0].epoch, look->heads[0].digest, 0};
    for (uint32_t p = 0; p < look->np; p++) {
        const struct fr_topic_record *head = &look->heads[p];
        if (!begins(look, head) || head->timeline != begin.timeline || head->epoch != begin.epoch ||
            head->digest != begin.digest || (was_known && head->offset != known->partitions[p].begin))
            return false;
    }
    for (uint32_t p = 0; p < look->np; p++)
        known->partitions[p].begin = look->heads[p].offset;
    known->begin = begin;
    known->begun_timeline = begin.timeline;
    return true;
}

static enum fr_status check_heads(struct look *look, bool *sound, struct fr_err *err)
{
    enum fr_status status = read_heads(look, err);
    if (status != FR_OK)
        return status;
    *sound = judge_heads(look);
    if (*sound || look->known->begin.epoch == 0)
        return FR_OK;
    fr_publisher_forget_begin(look->known);
    status = read_heads(look, err);
    *sound = status == FR_OK && judge_heads(look);
    return status;
}

/* ---- timelines ---- */

/* The timeline's beginning was acknowledged on this topic. */
static bool has_begun(const struct look *look)
{
    return look->durable.timeline <= 1 || look->known->begun_timeline == look->durable.timeline;
}

/* A number that is taken is not used again: who took it may have been another state from the same
 * savepoint, or this one before a kill, and nobody can tell them apart by what both began with. */
static enum fr_status choose_timeline(struct look *look, struct fr_err *err)
{
    const struct fr_publisher_options *options = &look->board->options;
    uint64_t newest = 0;
    for (uint32_t p = 0; p < look->np; p++) {
        const struct fr_topic_record *tail = &look->tails[p];
        if (tail->found && tail->status == FR_OK && tail->timeline > newest)
            newest = tail->timeline;
    }
    if (!look->request->first || has_begun(look) || newest < look->durable.timeline)
        return FR_OK;
    enum fr_status status = fr_durable_begin_timeline(options->durable, newest + 1, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "publisher", "timeline_taken",
               "topic=%s timeline=%" PRIu64 " instead=%" PRIu64 " note=\"the number was taken\"", options->topic,
               newest, newest + 1);
    fr_durable_get_status(options->durable, &look->durable);
    return status;
}

/* ---- deciding ---- */

/* Partitions that have nothing although epochs were acknowledged (P8). */
static void count_losses(struct look *look)
{
    for (uint32_t p = 0; p < look->np; p++) {
        if (look->tails[p].found || look->durable.acked == 0 || !has_begun(look))
            continue;
        fr_log(FR_LOG_WARN, "publisher", "delta_topic_lost_records",
               "topic=%s partition=%u acked=%" PRIu64
               " problem=\"the partition is empty although epochs were acknowledged; it is filled again\"",
               look->board->options.topic, p, look->durable.acked);
        look->board->tally.lost_partitions += 1;
    }
}

/* Whether the topic may be filled with the whole state. */
static enum fr_status allow_rebase(const struct look *look, struct fr_err *err)
{
    const struct fr_publisher_options *options = &look->board->options;
    const struct fr_publisher_rebase *rebase = look->request->rebase;
    if (rebase->full)
        return FR_OK; /* it was begun */
    if (options->stop_on_loss && has_begun(look))
        return fr_err_set(
            err, FR_E_LOST,
            "topic %s does not hold what a new replica begins with (it lost its beginning, was made anew, "
            "or is new for this state), and the journal begins with epoch %" PRIu64
            ": set export.on_loss: rebase, and it is filled with the whole state",
            options->topic, look->durable.journal_first);
    uint64_t now = fr_mono_ns(options->clock), last = rebase->begun_ns;
    if (last > 0 && now - last < REBASE_EVERY_MS * UINT64_C(1000000))
        return fr_err_set(
            err, FR_E_LOST,
            "topic %s lost its beginning again within %d minutes after it was filled with the whole state: "
            "set retention.ms=-1 and retention.bytes=-1 on it",
            options->topic, REBASE_EVERY_MS / 60000);
    return FR_OK;
}

static uint64_t later_merged(const struct look *look, const struct fr_topic_record *record, uint64_t above)
{
    const struct fr_export_full *full = look->request->rebase->full;
    bool merged = record->found && record->status == FR_OK && record->timeline == look->durable.timeline &&
                  record->from == 1 && record->epoch != (full ? fr_export_full_epoch(full).epoch : 0);
    return merged && record->epoch > above ? record->epoch : above;
}

/* A merged epoch of which replicas may have pieces must not be written again with other ones: the
 * whole state is of a later epoch than this, except the one that this process writes. All that is
 * of an older timeline goes out in it too. */
static uint64_t rebase_above(const struct look *look, uint64_t base)
{
    uint64_t above = base > 0 ? base - 1 : 0;
    for (uint32_t p = 0; p < look->np; p++) {
        above = later_merged(look, &look->heads[p], above);
        above = later_merged(look, &look->tails[p], above);
    }
    return above;
}

/* New replicas begin with a snapshot and find in the topic what is later. */
static bool is_covered(const struct look *look)
{
    const struct fr_publisher_options *options = &look->board->options;
    return options->covers && options->covers(options->self, look->low, look->high, look->np);
}

/* A commit may be on the topic without a piece before it (fr_kafka_refusal), so a start goes by
 * what the journal has noted as acknowledged, and so does a sender that had a report without
 * offset. HPS topics have no commits at all. noted: the epoch of the beginning that was known
 * before the look. */
static uint64_t resume_after(const struct look *look, uint64_t complete, uint64_t noted, uint64_t journal)
{
    const struct fr_publisher_sender *sender = look->request->sender;
    uint64_t acked = look->durable.acked > journal ? look->durable.acked : journal;
    uint64_t begin = look->known->begin.epoch;
    bool first = look->request->first;
    if (first && journal > 0 && begin != noted && begin > acked)
        return 0; /* a whole state that was not acknowledged, and cannot be sent again */
    if (sender->commits_doubted && complete > look->board->tally.acked)
        return look->board->tally.acked;
    return (first || sender->out.hps) && complete > acked ? acked : complete;
}

/* What has to be sent that new replicas can begin with. journal: the epoch before its first. */
static enum fr_status choose_beginning(const struct look *look, uint64_t journal, uint64_t base,
                                       struct fr_look_findings *found, struct fr_err *err)
{
    const struct fr_publisher_rewinding *rewinding = look->request->rewinding;
    if (!has_begun(look) && look->board->options.rewind && !rewinding->impossible && !look->request->rebase->full) {
        found->event = rewinding->to.epoch > 0 ? FR_PUBLISHER_NAMED_SNAPSHOT_NEEDED : FR_PUBLISHER_SNAPSHOT_NEEDED;
        found->least = journal;
        return FR_OK;
    }
    enum fr_status status = allow_rebase(look, err);
    if (status != FR_OK)
        return status;
    found->event = FR_PUBLISHER_STATE_NEEDED;
    found->above = rebase_above(look, base);
    fr_log(FR_LOG_WARN, "publisher", "rebase",
           "topic=%s timeline=%" PRIu64 " journal_first=%" PRIu64
           " note=\"the topic does not hold what a new replica begins with; it is filled with the whole state\"",
           look->board->options.topic, look->durable.timeline, look->durable.journal_first);
    return FR_OK;
}

static enum fr_status decide(struct look *look, struct fr_look_findings *found, struct fr_err *err)
{
    struct fr_publisher_known *known = look->known;
    uint64_t complete = 0, noted = known->begin.epoch;
    bool sound = false;
    enum fr_status status = choose_timeline(look, err);
    if (status == FR_OK)
        status = judge_tails(look, &complete, err);
    if (status == FR_OK)
        status = check_heads(look, &sound, err);
    if (status != FR_OK)
        return status;
    count_losses(look);
    /* a state that begins from a savepoint has no journal yet */
    uint64_t journal = look->durable.journal_first > 0 ? look->durable.journal_first - 1 : look->durable.epoch;
    uint64_t base = fr_durable_timeline_base(look->board->options.durable);
    journal = journal < base ? base : journal;
    known->snapshot_is_begin = !sound && has_begun(look) && is_covered(look);
    uint64_t resume = sound || known->snapshot_is_begin ? resume_after(look, complete, noted, journal) : 0;
    *found = (struct fr_look_findings){.event = FR_PUBLISHER_BEGINNING_FOUND, .resume = resume};
    /* Both a lost beginning and a hole before the journal need all of the state. */
    if (resume < journal) {
        found->resume = 0;
        status = choose_beginning(look, journal, base, found, err);
        if (status != FR_OK)
            return status;
    }
    for (uint32_t p = 0; p < look->np; p++) {
        known->partitions[p].low = look->low[p];
        known->partitions[p].next = look->high[p];
        known->partitions[p].gap_from = known->partitions[p].gap_to = 0;
    }
    look->board->tally.strays = look->strays;
    return FR_OK;
}

/* ---- the whole look ---- */

static void release(struct look *look)
{
    fr_publisher_reader_close(look->client);
    free(look->low);
    free(look->high);
    free(look->heads);
    free(look->tails);
    free(look->spans);
}

static enum fr_status begin_look(const struct fr_look_request *request, struct look *look, struct fr_err *err)
{
    struct fr_publisher_board *board = request->sender->board;
    uint32_t np = board->options.partitions;
    *look = (struct look){.request = request, .board = board, .known = request->sender->known, .np = np};
    look->low = fr_alloc(np, sizeof(*look->low));
    look->high = fr_alloc(np, sizeof(*look->high));
    look->heads = fr_alloc(np, sizeof(*look->heads));
    look->tails = fr_alloc(np, sizeof(*look->tails));
    look->spans = fr_alloc(np, sizeof(*look->spans));
    board->connection[0] = '\0';
    enum fr_status status = fr_publisher_reader_open(board, &look->client, err);
    return status == FR_OK ? learn_chain(look, err) : status;
}

enum fr_status fr_publisher_look_at_topic(const struct fr_look_request *request, struct fr_look_findings *found,
                                          struct fr_err *err)
{
    struct fr_publisher_sender *sender = request->sender;
    char *refused = sender->board->tally.refused;
    struct look look;
    if (request->first)
        fr_publisher_read_begin(sender->known);
    enum fr_status status = begin_look(request, &look, err);
    if (status == FR_OK)
        status = fr_publisher_check_topic(sender->topic, look.client, request->first, err);
    if (status == FR_OK)
        status = fr_publisher_hps_check(sender->out.hps, look.board, look.client,
                                        request->first ? &look.durable.acked : NULL, err);
    if (status == FR_OK)
        status = fr_publisher_ends(look.board, look.client, look.low, look.high, err);
    if (status == FR_OK)
        status = read_tails(&look, err);
    if (status == FR_OK)
        status = decide(&look, found, err);
    /* a drain that ends now reports the reason that holds now */
    if (refused[0] != '\0' && (status != FR_OK || fr_publisher_takes_refused(sender->topic, look.client)))
        refused[0] = '\0';
    release(&look);
    if (status != FR_OK)
        return status;
    sender->commits_doubted = false;
    fr_log(FR_LOG_INFO, "publisher", "topic_checked", "topic=%s durable=%" PRIu64 " complete=%" PRIu64,
           look.board->options.topic, look.durable.epoch, found->resume);
    return FR_OK;
}

/* ---- records between ours ---- */

struct stranger {
    struct look *look;
    struct fr_err *err;
    enum fr_status status;
    uint64_t ours;
};

static bool judge_stranger(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct stranger *stranger = self;
    stranger->status = judge_record(stranger->look, partition, record, stranger->err);
    stranger->ours += stranger->status == FR_OK;
    return stranger->status != FR_OK;
}

enum fr_status fr_publisher_judge_gaps(const struct fr_look_request *request, struct fr_err *err)
{
    struct look look;
    size_t n = 0;
    enum fr_status status = begin_look(request, &look, err);
    struct fr_topic_partition *partitions = look.known->partitions;
    for (uint32_t p = 0; p < look.np; p++)
        if (partitions[p].gap_to > partitions[p].gap_from)
            look.spans[n++] =
                (struct fr_topic_span){(int32_t)p, partitions[p].gap_from, partitions[p].gap_to, 0, false};
    struct stranger stranger = {.look = &look, .err = err};
    const struct fr_topic_visitor visitor = {&stranger, judge_stranger};
    if (status == FR_OK)
        status = read_spans(&look, n, &visitor, err);
    if (stranger.status != FR_OK)
        status = stranger.status;
    if (status == FR_OK) {
        for (uint32_t p = 0; p < look.np; p++)
            partitions[p].gap_from = partitions[p].gap_to = 0;
        for (size_t i = 0; i < n; i++)
            look.board->tally.strays += look.spans[i].strays;
        if (stranger.ours > 0)
            fr_log(FR_LOG_INFO, "publisher", "records_arrived_twice", "topic=%s records=%" PRIu64,
                   look.board->options.topic, stranger.ours);
    }
    release(&look);
    return status;
}
