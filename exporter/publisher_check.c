/* The look at the delta topic: is it ours, from which epoch on must be sent, can a replica begin.
 *
 * It is made at start, after every restart of the producer, and when the minute's question shows
 * that the topic is not what it was. The newest record of every partition is read back (strays,
 * transaction markers or aborted records may lie behind it, hence the walk back) and compared with
 * the chain of the journal: same model, timeline not newer, epoch not newer than the durable one,
 * digest that of our own epoch of that number. Anything else is a copy of the state directory, a
 * second writer or a foreign topic, and an operator must decide. A commit shows its epoch complete
 * in its partition; any other record shows the epoch before. Sending resumes behind the least of
 * them, so that an epoch which was cut off in the middle is completed before anything later (the
 * replicas drop what they hold already). A start also sends again what the journal has not noted as
 * acknowledged: such a commit may lack a piece.
 *
 * A new replica begins with piece 0 of an epoch that has `from` 1. Where that lies in each
 * partition is the topic's beginning (publisher_known.c); when it is gone, or sending would have to
 * resume where the journal no longer reaches, the topic has to be filled anew: from epoch 1 on
 * where the journal still begins there.
 *
 * Source: reading back one's own log before writing, docs/architecture.md, "Publishing". Thread:
 * the publisher thread. It does not read whole partitions or change the topic. */
#include "publisher_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"

enum { WALK_FIRST = 4, WALK_FACTOR = 16, WALK_MAX = 1 << 14 };

#define REMEDY "start in the right state directory, or name an empty topic in export.topic"

/* What one look found. */
struct look {
    struct fr_publisher *publisher;
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
        status = fr_publisher_read(look->publisher, look->client, look->spans, n, &visitor, err);
        for (size_t i = 0; i < n; i++)
            look->strays += look->spans[i].strays;
    }
    for (uint32_t p = 0; p < look->np && status == FR_OK; p++)
        if (!look->tails[p].found && look->high[p] - look->low[p] > WALK_MAX)
            return fr_err_set(err, FR_E_MISMATCH,
                              "none of the newest %d records of topic %s partition %u is a delta record; %s", WALK_MAX,
                              look->publisher->options.topic, p, REMEDY);
    return status;
}

/* The records at which partitions begin, or where they are known to. */
static enum fr_status read_heads(struct look *look, struct fr_err *err)
{
    const struct fr_topic_visitor visitor = {look, keep_first};
    const struct fr_topic_partition *topic = look->publisher->topic;
    size_t n = 0;
    memset(look->heads, 0, look->np * sizeof(*look->heads));
    for (uint32_t p = 0; p < look->np; p++) {
        int64_t from = topic[p].begin >= look->low[p] ? topic[p].begin : look->low[p];
        int64_t to = look->high[p] - from > WALK_MAX ? from + WALK_MAX : look->high[p];
        look->spans[n++] = (struct fr_topic_span){(int32_t)p, from, to, 0, false};
    }
    return fr_publisher_read(look->publisher, look->client, look->spans, n, &visitor, err);
}

/* The model's name from the head of the newest epoch's journal file. */
static enum fr_status learn_chain(struct look *look, struct fr_err *err)
{
    struct fr_publisher *publisher = look->publisher;
    fr_durable_get_status(publisher->options.durable, &look->durable);
    if (look->durable.epoch == 0)
        return FR_OK;
    struct fr_codec_settings settings;
    fr_buffer_clear(&publisher->head_bytes);
    enum fr_status status = fr_durable_newest_head(publisher->options.durable, &publisher->head_bytes, err);
    if (status != FR_OK)
        return status;
    status = fr_codec_settings_parse(publisher->head_bytes.data, publisher->head_bytes.size, &settings);
    if (status != FR_OK)
        return fr_err_set(err, status, "the head of the newest journal file does not parse");
    memcpy(look->model, settings.model, sizeof(look->model));
    fr_codec_settings_release(&settings);
    return FR_OK;
}

/* ---- judging ---- */

/* Who wrote a record, as far as it says: brokers tell nobody who produced what. */
static const char *written(const struct fr_topic_record *record, char *text, size_t size)
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

static enum fr_status other_epoch(const struct look *look, int32_t partition, const struct fr_topic_record *record,
                                  struct fr_err *err)
{
    const char *topic = look->publisher->options.topic;
    const struct fr_durable_status *durable = &look->durable;
    struct fr_sha256 digest;
    char who[96];
    if (fr_durable_digest(look->publisher->options.durable, record->epoch, &digest) != FR_OK)
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
                          written(record, who, sizeof(who)), fr_sha256_u64(&digest), REMEDY);
    return FR_OK;
}

/* A record of the topic against our chain; FR_E_MISMATCH says whose it is. */
static enum fr_status judge_record(const struct look *look, int32_t partition, const struct fr_topic_record *record,
                                   struct fr_err *err)
{
    const struct fr_publisher *publisher = look->publisher;
    const char *topic = publisher->options.topic;
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
                          written(record, who, sizeof(who)), look->model, REMEDY);
    if (record->timeline > durable->timeline && durable->epoch > 0)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "topic %s partition %d holds epoch %" PRIu64 " of timeline %" PRIu64 " of model %s at offset %" PRId64
            " (%s), and this state is of timeline %" PRIu64
            ": another state began that timeline here and is the one that replicas follow. Run that one; or begin a "
            "further one with this state (freshetd --new-timeline %" PRIu64 "); %s",
            topic, (int)partition, record->epoch, record->timeline, record->model, record->offset,
            written(record, who, sizeof(who)), durable->timeline, durable->timeline, REMEDY);
    if (record->timeline >= durable->timeline && record->epoch > durable->epoch)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d holds epoch %" PRIu64 " of model %s at offset %" PRId64
                          " (%s), but this state ends at epoch %" PRIu64 " of timeline %" PRIu64
                          ": an older copy of the state, or another writer; %s; or begin a new timeline here (freshetd "
                          "--new-timeline %" PRIu64 ")",
                          topic, (int)partition, record->epoch, record->model, record->offset,
                          written(record, who, sizeof(who)), durable->epoch, durable->timeline, REMEDY,
                          durable->timeline > 0 ? durable->timeline : 1);
    if (record->np != publisher->options.partitions || record->partition != (uint32_t)partition)
        return fr_err_set(err, FR_E_MISMATCH, "topic %s partition %d holds a record of partition %u of %u; %s", topic,
                          (int)partition, record->partition, record->np, REMEDY);
    if (record->timeline < durable->timeline)
        return FR_OK; /* replicas pass over it once ours began */
    return other_epoch(look, partition, record, err);
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
        look->publisher->topic[p].last = complete;
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
    struct fr_publisher *publisher = look->publisher;
    struct fr_topic_begin begin = publisher->begin;
    bool known = begin.epoch > 0;
    if (!known && look->np > 0)
        begin = (struct fr_topic_begin){look->heads[0].timeline, look->heads[0].epoch, look->heads[0].digest, 0};
    bool sound = true;
    for (uint32_t p = 0; p < look->np && sound; p++) {
        const struct fr_topic_record *head = &look->heads[p];
        sound = begins(look, head) && head->timeline == begin.timeline && head->epoch == begin.epoch &&
                head->digest == begin.digest && (!known || head->offset == publisher->topic[p].begin);
    }
    if (!sound)
        return false;
    for (uint32_t p = 0; p < look->np; p++)
        publisher->topic[p].begin = look->heads[p].offset;
    publisher->begin = begin;
    publisher->settled = begin.timeline;
    return true;
}

static enum fr_status check_heads(struct look *look, bool *sound, struct fr_err *err)
{
    enum fr_status status = read_heads(look, err);
    if (status != FR_OK)
        return status;
    *sound = judge_heads(look);
    if (*sound || look->publisher->begin.epoch == 0)
        return FR_OK;
    fr_publisher_forget_begin(look->publisher);
    status = read_heads(look, err);
    *sound = status == FR_OK && judge_heads(look);
    return status;
}

/* ---- timelines ---- */

/* The timeline's beginning was acknowledged on this topic. */
static bool is_settled(const struct look *look)
{
    return look->durable.timeline <= 1 || look->publisher->settled == look->durable.timeline;
}

/* A number that is taken is not used again: who took it may have been another state from the same
 * savepoint, or this one before a kill, and nobody can tell them apart by what both began with. */
static enum fr_status choose_timeline(struct look *look, struct fr_err *err)
{
    struct fr_publisher *publisher = look->publisher;
    uint64_t newest = 0;
    for (uint32_t p = 0; p < look->np; p++) {
        const struct fr_topic_record *tail = &look->tails[p];
        if (tail->found && tail->status == FR_OK && tail->timeline > newest)
            newest = tail->timeline;
    }
    if (publisher->checked || is_settled(look) || newest < look->durable.timeline)
        return FR_OK;
    enum fr_status status = fr_durable_begin_timeline(publisher->options.durable, newest + 1, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "publisher", "timeline_taken",
               "topic=%s timeline=%" PRIu64 " instead=%" PRIu64 " note=\"the number was taken\"",
               publisher->options.topic, newest, newest + 1);
    fr_durable_get_status(publisher->options.durable, &look->durable);
    return status;
}

/* ---- deciding ---- */

/* Partitions that have nothing although epochs were acknowledged (P8). */
static void count_losses(struct look *look)
{
    struct fr_publisher *publisher = look->publisher;
    for (uint32_t p = 0; p < look->np; p++) {
        if (look->tails[p].found || look->durable.acked == 0 || !is_settled(look))
            continue;
        fr_log(FR_LOG_WARN, "publisher", "delta_topic_lost_records",
               "topic=%s partition=%u acked=%" PRIu64
               " problem=\"the partition is empty although epochs were acknowledged; it is filled again\"",
               publisher->options.topic, p, look->durable.acked);
        publisher->tally.lost_partitions += 1;
    }
}

static uint64_t above_merged(const struct look *look, const struct fr_topic_record *record, uint64_t mine,
                             uint64_t above)
{
    bool merged = record->found && record->status == FR_OK && record->timeline == look->durable.timeline &&
                  record->from == 1 && record->epoch != mine;
    return merged && record->epoch > above ? record->epoch : above;
}

/* What a new replica needs has left the topic and the journal. A merged epoch of which replicas may
 * hold pieces must not be written again with other ones: the next is of a later epoch, but for the
 * one that this process writes. */
static enum fr_status want_rebase(struct look *look, struct fr_err *err)
{
    struct fr_publisher *publisher = look->publisher;
    const char *topic = publisher->options.topic;
    if (publisher->options.stop_on_loss && is_settled(look) && !publisher->rebase.full)
        return fr_err_set(
            err, FR_E_LOST,
            "topic %s does not hold what a new replica begins with (it lost its beginning, was made anew, "
            "or is new for this state), and the journal begins with epoch %" PRIu64
            ": set export.on_loss: rebase, and it is filled with the whole state",
            topic, look->durable.journal_first);
    uint64_t now = fr_mono_ns(publisher->options.clock), last = publisher->rebase.begun_ns;
    if (!publisher->rebase.full && last > 0 && now - last < REBASE_EVERY_MS * UINT64_C(1000000))
        return fr_err_set(
            err, FR_E_LOST,
            "topic %s lost its beginning again within %d minutes after it was filled with the whole state: "
            "set retention.ms=-1 and retention.bytes=-1 on it",
            topic, REBASE_EVERY_MS / 60000);
    /* all that is of an older timeline goes out in it */
    uint64_t base = fr_durable_timeline_base(publisher->options.durable);
    uint64_t above = base > 0 ? base - 1 : 0,
             mine = publisher->rebase.full ? fr_export_full_epoch(publisher->rebase.full).epoch : 0;
    for (uint32_t p = 0; p < look->np; p++) {
        above = above_merged(look, &look->heads[p], mine, above);
        above = above_merged(look, &look->tails[p], mine, above);
    }
    if (publisher->rebase.full && above < mine)
        fr_export_full_rewind(publisher->rebase.full);
    else
        fr_publisher_end_rebase(publisher);
    publisher->rebase.wanted = true;
    publisher->rebase.sent = false;
    publisher->rebase.above = above;
    fr_publisher_tell_rebase(publisher, &look->durable);
    fr_log(FR_LOG_WARN, "publisher", "rebase",
           "topic=%s timeline=%" PRIu64 " journal_first=%" PRIu64
           " note=\"the topic does not hold what a new replica begins with; it is filled with the whole state\"",
           topic, look->durable.timeline, look->durable.journal_first);
    return FR_OK;
}

/* New replicas begin with a snapshot and find in the topic what is later. */
static bool covered(const struct look *look)
{
    const struct fr_publisher_options *options = &look->publisher->options;
    return options->covers && options->covers(options->self, look->low, look->high, look->np);
}

/* A commit may be on the topic without a piece before it (fr_kafka_refusal), so a start goes by
 * what the journal has noted as acknowledged, and so does whoever had a report without offset. HPS
 * topics have no commits at all. noted: the epoch of the beginning that was known before the
 * look. */
static uint64_t resume_behind(const struct look *look, uint64_t complete, uint64_t noted, uint64_t journal)
{
    const struct fr_publisher *publisher = look->publisher;
    uint64_t acked = look->durable.acked > journal ? look->durable.acked : journal;
    bool first = !publisher->checked;
    if (first && journal > 0 && publisher->begin.epoch != noted && publisher->begin.epoch > acked)
        return 0; /* a whole state that was not acknowledged, and cannot be sent again */
    if (publisher->doubted && complete > publisher->acked)
        return publisher->acked;
    return (first || publisher->out.hps) && complete > acked ? acked : complete;
}

static enum fr_status decide(struct look *look, struct fr_err *err)
{
    struct fr_publisher *publisher = look->publisher;
    uint64_t resume = 0, noted = publisher->begin.epoch;
    bool sound = false;
    enum fr_status status = choose_timeline(look, err);
    if (status == FR_OK)
        status = judge_tails(look, &resume, err);
    if (status == FR_OK)
        status = check_heads(look, &sound, err);
    if (status != FR_OK)
        return status;
    count_losses(look);
    /* a state that begins from a savepoint has no journal yet */
    uint64_t journal = look->durable.journal_first > 0 ? look->durable.journal_first - 1 : look->durable.epoch;
    uint64_t base = fr_durable_timeline_base(publisher->options.durable);
    journal = journal < base ? base : journal;
    publisher->covered = !sound && is_settled(look) && covered(look);
    resume = sound || publisher->covered ? resume_behind(look, resume, noted, journal) : 0;
    /* Both a lost beginning and a hole before the journal need all of the state. */
    bool whole = resume < journal;
    if (whole)
        resume = 0;
    if (whole && !is_settled(look))
        whole = !fr_publisher_wants_rewind(publisher, journal, &resume);
    status = whole ? want_rebase(look, err) : FR_OK;
    if (status != FR_OK)
        return status;
    if (!whole)
        fr_publisher_end_rebase(publisher);
    publisher->doubted = false;
    for (uint32_t p = 0; p < look->np; p++) {
        publisher->topic[p].low = look->low[p];
        publisher->topic[p].next = look->high[p];
        publisher->topic[p].gap_from = publisher->topic[p].gap_to = 0;
    }
    publisher->sent = publisher->acked = resume;
    if (publisher->highest_sent < resume)
        publisher->highest_sent = resume;
    publisher->tally.strays = look->strays;
    return FR_OK;
}

static void release(struct look *look)
{
    fr_publisher_reader_close(look->client);
    free(look->low);
    free(look->high);
    free(look->heads);
    free(look->tails);
    free(look->spans);
}

static enum fr_status begin_look(struct fr_publisher *publisher, struct look *look, struct fr_err *err)
{
    uint32_t np = publisher->options.partitions;
    *look = (struct look){.publisher = publisher, .np = np};
    look->low = fr_alloc(np, sizeof(*look->low));
    look->high = fr_alloc(np, sizeof(*look->high));
    look->heads = fr_alloc(np, sizeof(*look->heads));
    look->tails = fr_alloc(np, sizeof(*look->tails));
    look->spans = fr_alloc(np, sizeof(*look->spans));
    publisher->connection[0] = '\0';
    if (!publisher->checked)
        fr_publisher_load_begin(publisher);
    enum fr_status status = fr_publisher_reader(publisher, &look->client, err);
    return status == FR_OK ? learn_chain(look, err) : status;
}

enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err)
{
    if (!publisher->options.brokers)
        return fr_publisher_check_without_brokers(publisher, err);
    struct look look;
    enum fr_status status = begin_look(publisher, &look, err);
    if (status == FR_OK)
        status = fr_publisher_check_topic(publisher, look.client, err);
    if (status == FR_OK)
        status = fr_publisher_hps_check(publisher, look.client, look.durable.acked, err);
    if (status == FR_OK)
        status = fr_publisher_ends(publisher, look.client, look.low, look.high, err);
    if (status == FR_OK)
        status = read_tails(&look, err);
    if (status == FR_OK)
        status = decide(&look, err);
    /* a drain that ends now ends for what is the reason now */
    if (publisher->tally.refused[0] != '\0' && (status != FR_OK || fr_publisher_takes_refused(publisher, look.client)))
        publisher->tally.refused[0] = '\0';
    release(&look);
    if (status != FR_OK) {
        if (err)
            fr_publisher_problem(publisher, err->text);
        return status;
    }
    publisher->checked = true;
    publisher->moved = false;
    publisher->tally.topic.looks += 1;
    publisher->tally.topic.looked_ms = (uint64_t)fr_wall_ms(publisher->options.clock);
    publisher->looked_ns = fr_mono_ns(publisher->options.clock);
    fr_publisher_problem(publisher, "");
    fr_log(FR_LOG_INFO, "publisher", "topic_checked", "topic=%s durable=%" PRIu64 " complete=%" PRIu64,
           publisher->options.topic, look.durable.epoch, publisher->acked);
    return FR_OK;
}

/* ---- records between ours ---- */

struct stranger {
    struct look *look;
    struct fr_err *err;
    enum fr_status status;
    uint64_t ours;
};

static bool meet(void *self, int32_t partition, const struct fr_topic_record *record)
{
    struct stranger *stranger = self;
    stranger->status = judge_record(stranger->look, partition, record, stranger->err);
    stranger->ours += stranger->status == FR_OK;
    return stranger->status != FR_OK;
}

enum fr_status fr_publisher_check_gaps(struct fr_publisher *publisher, struct fr_err *err)
{
    struct look look;
    size_t n = 0;
    enum fr_status status = begin_look(publisher, &look, err);
    for (uint32_t p = 0; p < look.np; p++)
        if (publisher->topic[p].gap_to > publisher->topic[p].gap_from)
            look.spans[n++] =
                (struct fr_topic_span){(int32_t)p, publisher->topic[p].gap_from, publisher->topic[p].gap_to, 0, false};
    struct stranger stranger = {.look = &look, .err = err};
    const struct fr_topic_visitor visitor = {&stranger, meet};
    if (status == FR_OK)
        status = fr_publisher_read(publisher, look.client, look.spans, n, &visitor, err);
    if (stranger.status != FR_OK)
        status = stranger.status;
    if (status == FR_OK) {
        for (uint32_t p = 0; p < look.np; p++)
            publisher->topic[p].gap_from = publisher->topic[p].gap_to = 0;
        for (size_t i = 0; i < n; i++)
            publisher->tally.strays += look.spans[i].strays;
        if (stranger.ours > 0)
            fr_log(FR_LOG_INFO, "publisher", "records_arrived_twice", "topic=%s records=%" PRIu64,
                   publisher->options.topic, stranger.ours);
    }
    release(&look);
    return status;
}
