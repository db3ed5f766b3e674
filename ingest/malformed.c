/* Malformed records: what an operator hears of them, and when reading pauses.
 *
 * One line in the log tells of all since the line before it; counters by kind, the last refusal and
 * the share of the last minute go into the status. While no record of a feed was decoded since the
 * start, the format may be wrong: what came so far waits in the open batch (its letters are sent,
 * its positions stand still), and after FR_UNPROVEN_MAX records reading pauses, so that a wrong
 * ingest.format takes nothing from the stream. Live, the wait ends after FR_UNPROVEN_HOLD_NS: a
 * stream of little but garbage goes on, and a pause may come after some of the FR_UNPROVEN_MAX took
 * effect. A bounded run ends with an error in place of the pause, and also when all it read was
 * malformed: FR_UNPROVEN_END records, or bytes that look like the other format.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/log.h"

/* Between two lines about malformed records. */
#define FR_TELL_MALFORMED_NS 10000000000ULL
/* How long malformed records may wait for the first good one of a start. */
#define FR_UNPROVEN_HOLD_NS 60000000000ULL
#define FR_MINUTE_PART_NS 10000000000ULL

enum {
    FR_UNPROVEN_MAX = 1000, /* malformed records of a start, and no good one, that pause reading */
    FR_UNPROVEN_END = 10,   /* of a bounded run that ends, that are an error */
    FR_SHARE_MIN = 10,      /* malformed records of a minute, or their share says nothing */
};

static const char *const formats[] = {[FR_FORMAT_MSGPACK] = "msgpack", [FR_FORMAT_JSON] = "json"};

/* What the record may be in place of the decoder's format; NULL: nothing that is known. Maps and
 * arrays of MessagePack begin with bytes that no JSON begins with, and the other way round. */
static const char *looks_like(enum fr_format format, const struct fr_source_event *event)
{
    const uint8_t *bytes = event->value;
    if (!bytes || event->size == 0)
        return NULL;
    size_t at = 0;
    while (at + 1 < event->size && (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\r' || bytes[at] == '\t'))
        at++;
    uint8_t first = bytes[at];
    if (first == '{' || first == '[')
        return format == FR_FORMAT_JSON ? NULL : "json";
    if ((first >= 0x80 && first < 0xa0) || (first >= 0xdc && first <= 0xdf))
        return format == FR_FORMAT_MSGPACK ? NULL : "msgpack";
    if (bytes[0] == 0 && event->size > 5)
        return "a schema registry's framing (Avro, Protobuf), which is not read";
    if (event->size > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        return "gzip, which values must not be (the producer's compression.type is fine)";
    return NULL;
}

/* ---- counting ---- */

static void turn_minute(struct fr_malformed_watch *watch, uint64_t now_ns)
{
    uint64_t part = now_ns / FR_MINUTE_PART_NS;
    uint64_t passed = part - watch->part;
    for (uint64_t i = 1; i <= passed && i <= FR_MINUTE_PARTS; i++)
        watch->minute[(watch->part + i) % FR_MINUTE_PARTS] = (struct fr_minute_part){0};
    watch->part = part;
}

void fr_ingest_malformed_accepted(struct fr_ingest *ingest, struct fr_stream *stream)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    watch->minute[watch->part % FR_MINUTE_PARTS].records++;
    stream->feed->proof->proven = true;
}

static void say_paused(struct fr_ingest *ingest, const struct fr_feed *feed, const struct fr_proof *proof)
{
    const struct fr_ingest_refusal *first = &proof->first;
    char what[192];
    if (proof->looks_like)
        snprintf(what, sizeof(what), "looks like %.90s and the format is %s", proof->looks_like,
                 formats[feed == &ingest->files ? FR_FORMAT_JSON : ingest->conf->ingest.format]);
    else
        snprintf(what, sizeof(what), "%.90s", first->reason);
    snprintf(ingest->malformed.paused, sizeof(ingest->malformed.paused),
             "all %" PRIu64 " records since the start are malformed (%.40s/%" PRId32 " offset %" PRId64
             ": %s): correct ingest.format and restart; ingest.malformed_max: 1 passes over them",
             proof->refused, first->topic, first->partition, first->offset, what);
    char quoted[512], reason[1100];
    fr_log(FR_LOG_ERROR, "ingest", "paused", "why=%s first_reason=%s note=\"%s\"",
           fr_log_quote(quoted, sizeof(quoted), ingest->malformed.paused),
           fr_log_quote(reason, sizeof(reason), first->reason),
           proof->waited_out ? "some of them took effect: they are in the dead-letter topic"
                             : "no position moved: the next start reads them again");
}

/* The pending record is malformed. */
void fr_ingest_malformed_refused(struct fr_ingest *ingest, struct fr_stream *stream)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    const struct fr_partition_position *place = fr_stream_position(ingest, stream);
    struct fr_proof *proof = stream->feed->proof;
    struct fr_ingest_refusal *last = &ingest->tally.last_malformed;
    struct fr_minute_part *part = &watch->minute[watch->part % FR_MINUTE_PARTS];
    part->records++;
    part->malformed++;
    last->partition = place->partition;
    last->offset = ingest->event.offset;
    last->kind = fr_decoder_malformed(stream->feed->decoder);
    memcpy(last->topic, place->topic, sizeof(last->topic));
    snprintf(last->reason, sizeof(last->reason), "%s", ingest->reason);
    ingest->tally.malformed++;
    ingest->tally.malformed_kinds[last->kind]++;
    if (watch->untold++ == 0)
        watch->first = *last;
    if (proof->proven)
        return;
    if (proof->refused++ == 0) {
        proof->first = *last;
        proof->since_ns = fr_mono_ns(ingest->clock);
        proof->looks_like =
            looks_like(stream->feed == &ingest->files ? FR_FORMAT_JSON : ingest->conf->ingest.format, &ingest->event);
    }
    if (proof->refused == FR_UNPROVEN_MAX && ingest->conf->ingest.malformed_max < 1.0f)
        say_paused(ingest, stream->feed, proof);
}

/* ---- telling ---- */

static void tell(struct fr_ingest *ingest, uint64_t now_ns)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    unsigned long long told_ns = watch->told_ns;
    if (watch->untold == 0 || !fr_log_due(&told_ns, now_ns, FR_TELL_MALFORMED_NS))
        return;
    watch->told_ns = told_ns;
    char reason[1100];
    fr_log(FR_LOG_WARN, "ingest", "malformed",
           "count=%" PRIu64 " since_start=%" PRIu64 " topic=%s partition=%" PRId32 " offset=%" PRId64
           " kind=%s reason=%s note=\"place and reason are the first one's; all are in the dead-letter topic\"",
           watch->untold, ingest->tally.malformed, watch->first.topic, watch->first.partition, watch->first.offset,
           fr_malformed_names[watch->first.kind], fr_log_quote(reason, sizeof(reason), watch->first.reason));
    watch->untold = 0;
}

void fr_ingest_malformed_status(struct fr_ingest *ingest, struct fr_ingest_status *status)
{
    struct fr_malformed_watch *watch = &ingest->malformed;
    uint64_t now_ns = fr_mono_ns(ingest->clock), records = 0, malformed = 0;
    turn_minute(watch, now_ns);
    tell(ingest, now_ns);
    for (size_t i = 0; i < FR_MINUTE_PARTS; i++) {
        records += watch->minute[i].records;
        malformed += watch->minute[i].malformed;
    }
    status->malformed_share = records ? (double)malformed / (double)records : 0.0;
    status->paused = watch->paused[0] != 0;
    if (status->problem[0])
        return;
    if (status->paused)
        snprintf(status->problem, sizeof(status->problem), "%s", watch->paused);
    else if (malformed >= FR_SHARE_MIN && status->malformed_share > (double)ingest->conf->ingest.malformed_max)
        snprintf(status->problem, sizeof(status->problem),
                 "%" PRIu64 " of the last minute's %" PRIu64 " records are malformed (%s; %.60s/%" PRId32
                 " offset %" PRId64 ": %.80s); they are in the dead-letter topic",
                 malformed, records, fr_malformed_names[status->last_malformed.kind], status->last_malformed.topic,
                 status->last_malformed.partition, status->last_malformed.offset, status->last_malformed.reason);
}

/* ---- before the first good record ---- */

bool fr_ingest_malformed_holds(struct fr_ingest *ingest)
{
    struct fr_proof *proof = ingest->topics.proof;
    if (proof->proven || proof->refused == 0 || ingest->open->n_samples || ingest->conf->ingest.malformed_max >= 1.0f)
        return false;
    if (ingest->malformed.paused[0] || ingest->lockstep || ingest->until_end ||
        fr_mono_ns(ingest->clock) - proof->since_ns < FR_UNPROVEN_HOLD_NS)
        return true;
    proof->waited_out = true;
    return false;
}

enum fr_status fr_ingest_malformed_pauses(struct fr_ingest *ingest, struct fr_err *err)
{
    if (!ingest->malformed.paused[0])
        return FR_OK;
    return ingest->until_end ? fr_err_set(err, FR_E_INVALID, "%s", ingest->malformed.paused) : FR_AGAIN;
}

enum fr_status fr_ingest_malformed_end(struct fr_ingest *ingest, struct fr_err *err)
{
    const struct fr_feed *feeds[] = {&ingest->files, &ingest->topics};
    for (size_t i = 0; i < FR_ARRAY_LEN(feeds) && ingest->conf->ingest.malformed_max < 1.0f; i++) {
        const struct fr_proof *proof = feeds[i]->proof;
        if (proof->proven || !(proof->refused >= FR_UNPROVEN_END || (proof->refused && proof->looks_like)))
            continue;
        say_paused(ingest, feeds[i], proof);
        return fr_ingest_malformed_pauses(ingest, err);
    }
    return FR_OK;
}
