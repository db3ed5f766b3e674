/* Decides which clock is wrong when this host's clock refuses a live record: the record's or this
 * host's (docs/architecture.md, "Time").
 *
 * One witness does not suffice: a producer whose clock is ahead writes the same wrong time as
 * event time and as (CreateTime) Kafka timestamp, and must neither move the watermark nor stop
 * the stream. Two witnesses suffice against this host's clock: the record's event time, and one
 * of these:
 *
 * - the clock's own past: the latest time it showed in this run, advanced by the monotonic
 *   clock, or the time of the newest epoch's cut. By that time the record would have been
 *   accepted. The clock now shows a time that is earlier than that time by more than future_max,
 *   and by more than the minute that a correction may set the clock back. A good record whose
 *   Kafka timestamp is of the present minute refutes this witness: the clock was wrong in the
 *   past and has been corrected;
 * - the broker's clock, which stamps records of a topic with LogAppendTime. This witness counts
 *   if the timestamp is ahead of this host's clock by more than future_max, and the record has
 *   an event time other than that timestamp.
 *
 * The monotonic clock stands still while a machine sleeps. After a sleep the clock's past, as
 * computed, is too early, so the first witness may be missing, but it is never wrong.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"

/* a clock that is set back by at most this is assumed to be in correction */
enum { FR_CLOCK_STEP_MS = 60000 };

void fr_clocks_init(struct fr_clock_watch *watch, const struct fr_clock *clock, int64_t epoch_wall_ms)
{
    int64_t now_ms = fr_wall_ms(clock);
    *watch = (struct fr_clock_watch){
        .wall_ms = epoch_wall_ms > now_ms ? epoch_wall_ms : now_ms,
        .mono_ns = fr_mono_ns(clock),
        .of_epoch = epoch_wall_ms > now_ms,
    };
}

void fr_clocks_read(struct fr_ingest *ingest)
{
    struct fr_clock_watch *watch = &ingest->clocks;
    int64_t now_ms = fr_wall_ms(ingest->clock);
    uint64_t mono_ns = fr_mono_ns(ingest->clock);
    watch->back_ms = watch->wall_ms + (int64_t)((mono_ns - watch->mono_ns) / 1000000u) - now_ms;
    if (watch->back_ms <= 0)
        *watch = (struct fr_clock_watch){.wall_ms = now_ms, .mono_ns = mono_ns};
}

void fr_clocks_agree(struct fr_ingest *ingest, int64_t timestamp_ms, int64_t received_ms)
{
    struct fr_clock_watch *watch = &ingest->clocks;
    if (watch->back_ms <= FR_CLOCK_STEP_MS || timestamp_ms <= 0 || received_ms <= 0)
        return;
    int64_t apart_ms = timestamp_ms - received_ms;
    if (apart_ms >= -FR_CLOCK_STEP_MS && apart_ms <= FR_CLOCK_STEP_MS)
        *watch = (struct fr_clock_watch){.wall_ms = received_ms, .mono_ns = fr_mono_ns(ingest->clock)};
}

bool fr_clocks_behind(struct fr_ingest *ingest, int64_t t_ms, char *who, size_t size)
{
    const struct fr_clock_watch *watch = &ingest->clocks;
    const struct fr_source_event *event = &ingest->event;
    int64_t now_ms = ingest->received_ms, allowed_ms = ingest->conf->ingest.future_max_ms;
    char span[32];
    fr_clocks_read(ingest);
    if (event->of_broker && event->timestamp_ms - now_ms > allowed_ms && t_ms != event->timestamp_ms) {
        snprintf(who, size, "%s behind the brokers' clock and the records' event times",
                 fr_clocks_span(event->timestamp_ms - now_ms, span, sizeof(span)));
        return true;
    }
    int64_t step_ms = allowed_ms > FR_CLOCK_STEP_MS ? allowed_ms : FR_CLOCK_STEP_MS;
    if (watch->back_ms <= step_ms || t_ms - now_ms - watch->back_ms > allowed_ms)
        return false;
    snprintf(who, size, "%s behind %s and the records' event times", fr_clocks_span(watch->back_ms, span, sizeof(span)),
             watch->of_epoch ? "what it showed at the last epoch" : "what it showed before");
    return true;
}

const char *fr_clocks_span(int64_t ms, char *text, size_t size)
{
    static const struct {
        int64_t ms;
        const char *name;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}};
    for (size_t i = 0; i < FR_ARRAY_LEN(units); i++)
        if (ms >= 2 * units[i].ms || i + 1 == FR_ARRAY_LEN(units)) {
            snprintf(text, size, "%" PRId64 " %s", (ms + units[i].ms / 2) / units[i].ms, units[i].name);
            break;
        }
    return text;
}

const char *fr_clocks_utc(int64_t wall_ms, char text[FR_CLOCKS_UTC_MAX])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    text[0] = '\0';
    if (gmtime_r(&seconds, &utc))
        (void)strftime(text, FR_CLOCKS_UTC_MAX, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}
