/* Refused records: what is reported of them, and when reading pauses.
 *
 * One log line summarizes all malformed records since the line before it. Counters by kind, the
 * last refusal and the share of the last minute are in the status.
 *
 * If all records are refused, the configuration, a producer's change or a clock is wrong rather
 * than the records. Reading then pauses before their positions move: at a start, after FR_ROW_MAX
 * refusals and no good record, or FR_ROW_MIN that fill what may be held; in a running service,
 * after FR_ROW_MAX in a row. Until that is decided, records are held without any effect (held.c).
 * At a start these are all refused records until the first good one, for at most FR_START_HOLD_NS,
 * so that a stream of little but garbage is still read. Later they are the refused records from the
 * FR_ROW_MIN-th in a row on, for at most FR_ROW_HOLD_NS. Before a pause of a running service fewer
 * than FR_ROW_MAX records become dead letters, and only those of a slow stream or large ones.
 *
 * A record that this host's clock refuses against two witnesses (clocks.c) pauses reading at once.
 * A pause for the clock ends by itself when the clock accepts the record that began it; any other
 * pause ends with a restart. At a start where labels are -1 and 1, only the positives would train:
 * the first -1 begins a trial, during which good records are held, too.
 *
 * A bounded run ends with an error instead of a pause, and also if all it read was refused:
 * FR_ROW_MIN records, or bytes that look like the other format. Lockstep, whose batches are a
 * function of the log, has only the rule of the start, and only for malformed records: the open
 * batch waits with their positions, and the sink with their letters. A batch of several lanes does
 * not wait, because each lane's piece depends on this lane alone (assembly.c). The sink then waits
 * until a record is good or an epoch has the positions of refused records.
 *
 * The rules know the records of this process only, not those of other ranks.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/log.h"

/* Between two log lines about malformed records. */
#define LOG_MALFORMED_NS 10000000000ULL
/* Longest time for which refused records are held: at a start, if no record was good yet, and in
 * a running service. The second is also the limit of a trial of labels. */
#define FR_START_HOLD_NS 60000000000ULL
#define FR_ROW_HOLD_NS 2000000000ULL
#define FR_MINUTE_PART_NS 10000000000ULL

enum {
    FR_ROW_MAX = 1000,      /* refused records in a row that pause reading */
    FR_ROW_MIN = 10,        /* refused records in a row that mean anything */
    FR_SHARE_MIN = 10,      /* refused records of a minute from which their share means anything */
    FR_TRIAL_WITHIN = 1000, /* records of a start among which a label -1 begins a trial */
    FR_TRIAL_RECORDS = 100, /* records of a trial */
};

static const char *const formats[] = {[FR_FORMAT_MSGPACK] = "msgpack", [FR_FORMAT_JSON] = "json"};

/* A format that a record may be in although the decoder does not read it, and what its sender
 * can do. */
struct fr_likeness {
    const char *what, *remedy;
};

/* Returns whether the record begins as a map or an array of the format does. Those of MessagePack
 * begin with bytes that no JSON text begins with, and conversely. */
static bool begins_as(enum fr_format format, const struct fr_source_event *event)
{
    const uint8_t *bytes = event->value;
    if (!bytes || event->size == 0)
        return false;
    size_t at = 0;
    while (at + 1 < event->size && (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\r' || bytes[at] == '\t'))
        at++;
    uint8_t first = bytes[at];
    return format == FR_FORMAT_JSON ? first == '{' || first == '['
                                    : (first >= 0x80 && first < 0xa0) || (first >= 0xdc && first <= 0xdf);
}

/* Recognizes the format of a refused record, if it is another one than the configured; NULL:
 * unknown. */
static const struct fr_likeness *recognize(enum fr_format format, const struct fr_source_event *event)
{
    static const struct fr_likeness json = {"json", "correct ingest.format"};
    static const struct fr_likeness msgpack = {"msgpack", "correct ingest.format"};
    static const struct fr_likeness framed = {"a schema registry's framing (Avro, Protobuf; not read)",
                                              "send MessagePack or JSON without that framing"};
    static const struct fr_likeness gzip = {
        "gzip (values must not be compressed)",
        "send values uncompressed, and compress by the producer's compression.type,"};
    const uint8_t *bytes = event->value;
    if (!bytes || event->size == 0 || begins_as(format, event))
        return NULL;
    if (begins_as(FR_FORMAT_JSON, event))
        return &json;
    if (begins_as(FR_FORMAT_MSGPACK, event))
        return &msgpack;
    if (bytes[0] == 0 && event->size > 5)
        return &framed;
    if (event->size > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        return &gzip;
    return NULL;
}

/* ---- counting ---- */

static void advance_minute(struct fr_malformed_watch *watch, uint64_t now_ns)
{
    uint64_t part = now_ns / FR_MINUTE_PART_NS;
    uint64_t passed = part - watch->part;
    for (uint64_t i = 1; i <= passed && i <= FR_MINUTE_PARTS; i++)
        watch->minute[(watch->part + i) % FR_MINUTE_PARTS] = (struct fr_minute_part){0};
    watch->part = part;
}

void fr_ingest_release_letters(struct fr_ingest *ingest)
{
    if (atomic_exchange(&ingest->withholding, false))
        ingest->sink.withhold(ingest->sink.self, false);
}

/* A good record ends the row of refused ones. */
static void end_row(struct fr_proof *proof)
{
    if (proof->refused == 0)
        return;
    proof->refused = proof->dead_lettered = 0;
    memset(proof->why, 0, sizeof(proof->why));
}

bool fr_ingest_malformed_accepted(struct fr_ingest *ingest, struct fr_stream *stream, bool counted)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    struct fr_proof *proof = stream->feed->proof;
    if (fr_held_replays(ingest))
        return false;
    watch->minute[watch->part % FR_MINUTE_PARTS].records += !counted;
    proof->read += !counted;
    proof->proven = true;
    end_row(proof);
    if (watch->trial) {
        watch->trial_records += !counted;
        return true;
    }
    fr_ingest_release_letters(ingest);
    fr_clocks_agree(ingest, ingest->event.timestamp_ms, ingest->received_ms);
    fr_held_replay(ingest); /* the records that were refused before come first */
    return fr_held_replays(ingest);
}

/* ---- pauses ---- */

static void pause_reading(struct fr_ingest *ingest, enum fr_ingest_pause pause, const struct fr_proof *proof)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    char note[160], quoted[FR_PROBLEM_MAX + 64], reason[1100];
    if (proof->dead_lettered)
        snprintf(note, sizeof(note), "%" PRIu64 " of them took effect: they are dead letters", proof->dead_lettered);
    else
        snprintf(note, sizeof(note),
                 "no position moved, and none became a dead letter: the next start reads them again");
    watch->pause = pause;
    watch->trial = false;
    ingest->held.state = FR_HELD_WAITS;
    fr_log(FR_LOG_ERROR, "ingest", "paused", "why=%s first_reason=%s note=\"%s\"",
           fr_log_quote(quoted, sizeof(quoted), watch->paused),
           fr_log_quote(reason, sizeof(reason), proof->first.reason), note);
}

/* Writes "all 12 records since the start" or "all of the last 1000 records". */
static const char *name_records(const struct fr_proof *proof, char *text, size_t size)
{
    if (proof->proven)
        snprintf(text, size, "all of the last %" PRIu64 " records", proof->refused);
    else
        snprintf(text, size, "all %" PRIu64 " records since the start", proof->refused);
    return text;
}

static const char *remedy_of(const struct fr_proof *proof, bool of_files)
{
    if (of_files && (proof->looks_like || proof->first.kind == FR_MALFORMED_SYNTAX))
        return "correct the file (ingest.files hold JSON lines)";
    if (proof->looks_like)
        return proof->looks_like->remedy;
    if (proof->first.kind == FR_MALFORMED_SYNTAX)
        return proof->begins_right ? "correct what is sent, which begins as the format does and is not valid,"
                                   : "correct ingest.format or what is sent";
    if (proof->first.kind == FR_MALFORMED_FORM)
        return "a sample is a map with `f`, `y` and `t`, see docs/formats/samples.md: set ingest.envelope where records "
               "are flat objects, or correct what is sent";
    return "correct what is sent (docs/formats/samples.md) or the configuration";
}

static void pause_malformed(struct fr_ingest *ingest, const struct fr_feed *feed)
{
    const struct fr_proof *proof = feed->proof;
    const struct fr_ingest_refusal *first = &proof->first;
    char what[192], all[96];
    bool of_files = feed == &ingest->files;
    if (proof->looks_like)
        snprintf(what, sizeof(what), "looks like %.90s and the format is %s", proof->looks_like->what,
                 formats[of_files ? FR_FORMAT_JSON : ingest->conf->ingest.format]);
    else
        snprintf(what, sizeof(what), "%.120s", first->reason);
    snprintf(ingest->malformed.paused, sizeof(ingest->malformed.paused),
             "%s are malformed (%.40s/%" PRId32 " offset %" PRId64
             ": %s): %s and restart; ingest.malformed_max: 1 passes over them",
             name_records(proof, all, sizeof(all)), first->topic, first->partition, first->offset, what,
             remedy_of(proof, of_files));
    pause_reading(ingest, FR_INGEST_PAUSED_RECORDS, proof);
}

/* Event times are ahead of Kafka timestamps, which come from the broker's clock or the
 * producer's. */
static void pause_timestamps(struct fr_ingest *ingest, const struct fr_proof *proof)
{
    const struct fr_ingest_refusal *first = &proof->first;
    int64_t apart_ms = ingest->event.timestamp_ms - fr_wall_ms(ingest->clock);
    bool agree = apart_ms <= ingest->conf->ingest.future_max_ms && -apart_ms <= ingest->conf->ingest.future_max_ms;
    char all[96];
    snprintf(ingest->malformed.paused, sizeof(ingest->malformed.paused),
             "%s have event times further than ingest.future_max after their Kafka timestamps%s (%.40s/%" PRId32
             " offset %" PRId64 ": %.120s): set the producers' clocks, or the unit of `t` (ms), right and restart; "
             "ingest.malformed_max: 1 passes over them",
             name_records(proof, all, sizeof(all)),
             !agree                    ? ""
             : ingest->event.of_broker ? ", where the brokers' clock and this host's agree"
                                       : ", which agree with this host's clock",
             first->topic, first->partition, first->offset, first->reason);
    pause_reading(ingest, FR_INGEST_PAUSED_RECORDS, proof);
}

/* `who`: the clocks that contradict this host's (two witnesses); NULL: the event times only. The
 * record in `event` is the last refused one. */
static void pause_clock(struct fr_ingest *ingest, const struct fr_feed *feed, int64_t t_ms, const char *who)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    const struct fr_proof *proof = feed->proof;
    const struct fr_ingest_refusal *first = &proof->first;
    int64_t now_ms = fr_wall_ms(ingest->clock);
    char now[FR_CLOCKS_UTC_MAX], all[96], span[32];
    (void)fr_clocks_utc(now_ms, now);
    if (who)
        snprintf(watch->paused, sizeof(watch->paused),
                 "this host's clock (%s) is %s (%.40s/%" PRId32 " offset %" PRId64
                 "): set the clock right (NTP)%s, and nothing is lost",
                 now, who, first->topic, first->partition, first->offset,
                 ingest->until_end ? " and run it again; no position moved for these records"
                                   : "; reading continues by itself when it agrees");
    else
        snprintf(watch->paused, sizeof(watch->paused),
                 "%s lie more than ingest.future_max after this host's clock (%s; the last one %s, %.40s/%" PRId32
                 " offset %" PRId64 "), and nothing else says which clock is wrong: set the producers' clocks or this "
                 "host's right (NTP)%s pass over them",
                 name_records(proof, all, sizeof(all)), now, fr_clocks_span(t_ms - now_ms, span, sizeof(span)),
                 first->topic, first->partition, first->offset,
                 ingest->until_end ? " and run it again; ingest.malformed_max: 1 would"
                                   : "; reading continues by itself when this clock agrees; ingest.malformed_max: 1 "
                                     "and a restart");
    watch->until_ms = t_ms;
    pause_reading(ingest, FR_INGEST_PAUSED_CLOCK, proof);
}

/* Pauses for the reason that most of the refused records have. */
static void pause_all(struct fr_ingest *ingest, const struct fr_feed *feed)
{
    const struct fr_proof *proof = feed->proof;
    if (2 * proof->why[FR_FUTURE_CLOCK] > proof->refused)
        pause_clock(ingest, feed, fr_decoder_refused_time(feed->decoder), NULL);
    else if (2 * proof->why[FR_FUTURE_TIMESTAMP] > proof->refused)
        pause_timestamps(ingest, proof);
    else
        pause_malformed(ingest, feed);
}

/* ---- labels -1 and 1 ---- */

static bool is_negative(const struct fr_stream *stream)
{
    return fr_decoder_malformed(stream->feed->decoder) == FR_MALFORMED_SIGNED;
}

static bool are_negative(const struct fr_ingest *ingest)
{
    const struct fr_malformed_watch *watch = &ingest->malformed;
    return watch->trial_negative >= FR_ROW_MIN &&
           (double)watch->trial_negative > (double)ingest->conf->ingest.malformed_max * (double)watch->trial_records;
}

/* In lockstep nothing is held, so the records before have taken effect. */
static void pause_labels(struct fr_ingest *ingest, struct fr_proof *proof)
{
    const struct fr_malformed_watch *watch = &ingest->malformed;
    const struct fr_ingest_refusal *last = &ingest->tally.last_malformed;
    snprintf(ingest->malformed.paused, sizeof(ingest->malformed.paused),
             "%" PRIu64 " of %" PRIu64 " records are malformed for a label of -1 (the last one %.40s/%" PRId32
             " offset %" PRId64 ": %.120s), and the others alone would train: labels -1/1: map them to 0/1 "
             "(labels.NAME.negative: -1), and restart; ingest.malformed_max: 1 passes over them",
             watch->trial_negative, watch->trial_records, last->topic, last->partition, last->offset, last->reason);
    if (proof->refused == 0)
        proof->first = *last;
    pause_reading(ingest, FR_INGEST_PAUSED_RECORDS, proof);
}

/* Counts the record in a trial of labels. True: the record is held. */
static bool try_labels(struct fr_ingest *ingest, struct fr_stream *stream, bool counted)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    struct fr_proof *proof = stream->feed->proof;
    bool negative = is_negative(stream);
    if (ingest->lockstep && !proof->tried && negative) {
        watch->trial_negative++;
        watch->trial_records = proof->read;
        proof->tried = proof->read > FR_TRIAL_WITHIN;
        if (!proof->tried && are_negative(ingest)) {
            proof->dead_lettered = watch->trial_negative;
            pause_labels(ingest, proof);
        }
        return false;
    }
    if (!watch->trial && negative && !ingest->lockstep && !proof->tried && proof->read <= FR_TRIAL_WITHIN) {
        watch->trial = proof->tried = true;
        watch->trial_records = watch->trial_negative = 0;
    }
    if (!watch->trial)
        return false;
    watch->trial_records += !counted;
    watch->trial_negative += negative && !counted;
    return true;
}

/* ---- one refusal ---- */

static void note_refusal(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_ingest_refusal *out)
{
    const struct fr_partition_position *place = fr_stream_position(ingest, stream);
    out->partition = place->partition;
    out->offset = ingest->event.offset;
    out->kind = fr_decoder_malformed(stream->feed->decoder);
    memcpy(out->topic, place->topic, sizeof(out->topic));
    snprintf(out->reason, sizeof(out->reason), "%s", ingest->reason);
}

static void count_malformed(struct fr_ingest *ingest, struct fr_stream *stream)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    struct fr_ingest_refusal *last = &ingest->tally.last_malformed;
    note_refusal(ingest, stream, last);
    ingest->tally.malformed++;
    ingest->tally.malformed_kinds[last->kind]++;
    if (watch->unlogged++ == 0)
        watch->first = *last;
}

static void count_row(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_future future)
{
    struct fr_proof *proof = stream->feed->proof;
    proof->why[future]++;
    if (proof->refused++ > 0)
        return;
    note_refusal(ingest, stream, &proof->first);
    enum fr_format format = stream->feed == &ingest->files ? FR_FORMAT_JSON : ingest->conf->ingest.format;
    proof->looks_like = future == FR_FUTURE_NONE ? recognize(format, &ingest->event) : NULL;
    proof->begins_right = begins_as(format, &ingest->event);
}

/* In lockstep the open batch of one lane waits, and nothing is held. */
static void refused_in_lockstep(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_future future)
{
    struct fr_proof *proof = stream->feed->proof;
    if (future != FR_FUTURE_NONE) {
        proof->proven = true;
        fr_ingest_release_letters(ingest);
        return;
    }
    (void)try_labels(ingest, stream, false);
    if (proof->proven)
        return;
    count_row(ingest, stream, future);
    if (proof->refused == FR_ROW_MAX)
        pause_malformed(ingest, stream->feed);
}

/* Pauses if two witnesses contradict the clock. */
static bool refused_by_wrong_clock(struct fr_ingest *ingest, struct fr_stream *stream)
{
    char who[160];
    int64_t t_ms = fr_decoder_refused_time(stream->feed->decoder);
    if (!fr_clocks_behind(ingest, t_ms, who, sizeof(who)))
        return false;
    note_refusal(ingest, stream, &stream->feed->proof->first);
    pause_clock(ingest, stream->feed, t_ms, who);
    return true;
}

static bool waits_at_start(const struct fr_proof *proof)
{
    return !proof->proven && !proof->waited_out;
}

bool fr_ingest_malformed_refused(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_future future,
                                 bool counted)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    struct fr_proof *proof = stream->feed->proof;
    bool again = fr_held_replays(ingest), pauses = ingest->conf->ingest.malformed_max < 1.0f;
    if (!counted) {
        struct fr_minute_part *part = &watch->minute[watch->part % FR_MINUTE_PARTS];
        part->records++;
        part->malformed += future == FR_FUTURE_NONE;
        part->future += future != FR_FUTURE_NONE;
        proof->read++;
        if (future == FR_FUTURE_NONE)
            count_malformed(ingest, stream);
    }
    if (ingest->lockstep && pauses)
        refused_in_lockstep(ingest, stream, future);
    if (ingest->lockstep || !pauses)
        return false;
    if (future == FR_FUTURE_CLOCK && refused_by_wrong_clock(ingest, stream))
        return true;
    if (again)
        return false;
    if (try_labels(ingest, stream, counted))
        return true;
    if (!counted)
        count_row(ingest, stream, future);
    /* A record that alone reaches the limit of held bytes would take effect as soon as it was
     * copied. */
    if (ingest->held.n == 0 && proof->refused < FR_ROW_MIN && fr_held_is_filled_by(ingest->event.size))
        proof->waited_out = true;
    if (waits_at_start(proof) || proof->refused >= FR_ROW_MIN)
        return true;
    proof->dead_lettered++;
    return false;
}

/* ---- held events ---- */

static void let_take_effect(struct fr_ingest *ingest, struct fr_proof *proof)
{
    ingest->malformed.trial = false;
    proof->waited_out |= !proof->proven;
    proof->dead_lettered = proof->refused;
    fr_held_replay(ingest);
}

/* The feed of the held events. There is one, because files are done before topics begin. */
static struct fr_feed *held_feed(struct fr_ingest *ingest)
{
    const struct fr_stream *stream = &ingest->streams[ingest->held.records[ingest->held.head].stream];
    return stream->feed == &ingest->files ? &ingest->files : &ingest->topics;
}

/* Pauses reading, or lets the held events take effect. */
static void decide(struct fr_ingest *ingest)
{
    const struct fr_feed *feed = held_feed(ingest);
    struct fr_proof *proof = feed->proof;
    if (ingest->malformed.trial && are_negative(ingest))
        pause_labels(ingest, proof);
    else if (!ingest->malformed.trial && proof->refused >= FR_ROW_MAX)
        pause_all(ingest, feed);
    else if (!proof->proven && fr_held_is_full(ingest) && proof->refused >= FR_ROW_MIN)
        pause_all(ingest, feed);
    else if (waits_at_start(proof) && proof->refused >= FR_ROW_MIN && 2 * proof->why[FR_FUTURE_CLOCK] > proof->refused)
        pause_all(ingest, feed);
    else
        let_take_effect(ingest, proof);
}

void fr_ingest_malformed_held(struct fr_ingest *ingest, const struct fr_stream *stream)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    const struct fr_proof *proof = stream->feed->proof;
    if (fr_held_replays(ingest) || watch->pause != FR_INGEST_READS)
        return;
    bool trial_over = watch->trial && watch->trial_records >= FR_TRIAL_RECORDS;
    bool start_over = !watch->trial && !proof->proven && proof->refused >= FR_ROW_MAX;
    /* The next file waits for the end of this one. */
    bool file_over = stream->end_held && stream->feed->one_by_one &&
                     !(ingest->until_end && ingest->n_done + ingest->held.n_ends == ingest->n_streams);
    if (trial_over || start_over || file_over || fr_held_is_full(ingest))
        decide(ingest);
}

void fr_ingest_malformed_decide_due(struct fr_ingest *ingest, uint64_t now_ns)
{
    const struct fr_held_queue *held = &ingest->held;
    if (held->n == 0 || fr_held_replays(ingest) || ingest->malformed.pause != FR_INGEST_READS)
        return;
    bool start = !ingest->malformed.trial && waits_at_start(held_feed(ingest)->proof);
    if (now_ns - held->since_ns >= (start ? FR_START_HOLD_NS : FR_ROW_HOLD_NS))
        decide(ingest);
}

void fr_ingest_malformed_full(struct fr_ingest *ingest, const struct fr_stream *stream)
{
    if (stream->feed->proof->refused >= FR_ROW_MIN)
        pause_malformed(ingest, stream->feed);
    else
        fr_ingest_release_letters(ingest);
}

/* ---- reports ---- */

static const char waits[] = "they wait until it is known whether all records are malformed";

static void log_malformed(struct fr_ingest *ingest, uint64_t now_ns)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    if (watch->unlogged == 0 || !fr_log_due(&watch->logged_ns, now_ns, LOG_MALFORMED_NS))
        return;
    char reason[1100];
    fr_log(FR_LOG_WARN, "ingest", "malformed",
           "count=%" PRIu64 " since_start=%" PRIu64 " topic=%s partition=%" PRId32 " offset=%" PRId64
           " kind=%s reason=%s note=\"place and reason are the first one's; %s\"",
           watch->unlogged, ingest->tally.malformed, watch->first.topic, watch->first.partition, watch->first.offset,
           fr_malformed_names[watch->first.kind], fr_log_quote(reason, sizeof(reason), watch->first.reason),
           watch->pause != FR_INGEST_READS         ? "reading is paused"
           : ingest->held.n || ingest->withholding ? waits
                                                   : "all are dead letters");
    watch->unlogged = 0;
}

void fr_ingest_malformed_status(struct fr_ingest *ingest, struct fr_ingest_status *status)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    uint64_t now_ns = fr_mono_ns(ingest->clock), records = 0, malformed = 0, future = 0;
    advance_minute(watch, now_ns);
    log_malformed(ingest, now_ns);
    for (size_t i = 0; i < FR_MINUTE_PARTS; i++) {
        records += watch->minute[i].records;
        malformed += watch->minute[i].malformed;
        future += watch->minute[i].future;
    }
    status->malformed_share = records ? (double)malformed / (double)records : 0.0;
    status->pause = watch->pause;
    double most = (double)ingest->conf->ingest.malformed_max;
    char *problem = status->problems[FR_INGEST_PROBLEM_RECORDS];
    if (status->pause != FR_INGEST_READS)
        snprintf(problem, FR_PROBLEM_MAX, "%s", watch->paused);
    else if (malformed >= FR_SHARE_MIN && status->malformed_share > most)
        snprintf(problem, FR_PROBLEM_MAX,
                 "%" PRIu64 " of the last minute's %" PRIu64 " records are malformed (%s; %.60s/%" PRId32
                 " offset %" PRId64 ": %.80s); %s",
                 malformed, records, fr_malformed_names[status->last_malformed.kind], status->last_malformed.topic,
                 status->last_malformed.partition, status->last_malformed.offset, status->last_malformed.reason,
                 ingest->held.n || ingest->withholding ? waits : "they go to the dead-letter topic");
    else if (future >= FR_SHARE_MIN && (double)future > most * (double)records)
        snprintf(problem, FR_PROBLEM_MAX,
                 "%" PRIu64 " of the last minute's %" PRIu64
                 " records lie further than ingest.future_max ahead and go to the dead-letter topic: some producers' "
                 "clocks are ahead; find them by topic and partition of record_from_future in the log, and set their "
                 "clocks right (NTP)",
                 future, records);
}

/* ---- pause and end ---- */

bool fr_ingest_malformed_holds(struct fr_ingest *ingest)
{
    const struct fr_proof *proof = ingest->topics.proof;
    return ingest->n_shares == 1 && !proof->proven && proof->refused && ingest->open->n_samples == 0 &&
           ingest->conf->ingest.malformed_max < 1.0f;
}

enum fr_status fr_ingest_malformed_pauses(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    if (watch->pause == FR_INGEST_READS)
        return FR_OK;
    if (ingest->until_end)
        return fr_err_set(err, FR_E_INVALID, "%s", watch->paused);
    if (watch->pause != FR_INGEST_PAUSED_CLOCK ||
        watch->until_ms - fr_wall_ms(ingest->clock) > ingest->conf->ingest.future_max_ms)
        return FR_AGAIN;
    end_row(ingest->files.proof);
    end_row(ingest->topics.proof);
    watch->pause = FR_INGEST_READS;
    fr_held_replay(ingest);
    fr_log(FR_LOG_INFO, "ingest", "continues", "why=\"the clock agrees\" held=%zu", ingest->held.n);
    return FR_OK;
}

enum fr_status fr_ingest_malformed_end(struct fr_ingest *ingest, struct fr_err *err)
{
    const struct fr_feed *feeds[] = {&ingest->files, &ingest->topics};
    if (ingest->malformed.trial && are_negative(ingest))
        pause_labels(ingest, held_feed(ingest)->proof);
    for (size_t i = 0; i < FR_ARRAY_LEN(feeds) && ingest->conf->ingest.malformed_max < 1.0f; i++) {
        const struct fr_proof *proof = feeds[i]->proof;
        bool refused = proof->proven ? proof->refused >= FR_ROW_MAX
                                     : proof->refused >= FR_ROW_MIN || (proof->refused && proof->looks_like);
        if (refused && ingest->malformed.pause == FR_INGEST_READS)
            pause_all(ingest, feeds[i]);
    }
    ingest->malformed.trial = false;
    if (ingest->malformed.pause == FR_INGEST_READS)
        fr_ingest_release_letters(ingest);
    return fr_ingest_malformed_pauses(ingest, err);
}
