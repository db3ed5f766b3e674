/* A stream as one machine: whether a topic-partition or file can be read, and how far it is read.
 *
 *   NEW ── check passed ──────────┬─► READY ── begun at its mark ──► VERIFIES
 *    │                            │    │  │                           │
 *    │ check failed,              │    │  └───── begun ─────────┐     │ mark matched
 *    │ topic missing              │    │                        ▼     ▼
 *    ▼                            │    │ begun  ┌─ record ───► READS ─────── cut ──► CUT
 *   WAITS ── check passed ────────┤    │ at its │               │ ▲                   │
 *    │  ▲                         │    │ end    │               │ └──── record ───────┘
 *    │  │ check failed            │    └─────► AT_END ◄─ end ───┘
 *    ▼  │ topic missing again     │
 *   GONE ─── check passed ────────┤
 *                                 │
 *   HALTED ─ check passed ────────┘    HALTED ◄── restarted, failed: from READS, CUT and AT_END
 *    └─ check failed,
 *       topic missing ──► WAITS        DONE ◄── finished: from NEW, READY, READS and AT_END
 *
 *   NEW       the stream was found, and its log has not been checked WAITS     the last check
 *   found that it cannot be read now; it is checked again after a while GONE      the same,
 *   because its topic does not exist. A broker that starts may not know its topics yet, so only
 *   the second such answer counts READY     it can be read, and begins when it is next in order;
 *   a later check may find otherwise HALTED    reading was stopped, and nothing may take effect
 *   before a check VERIFIES  a file that was begun at its last delivered line, which must match
 *   the mark READS     records are given CUT       lockstep: the round ended within a record,
 *   and the rest of it waits for the next one AT_END    nothing is left as far as is known; a
 *   new record may come DONE      it is read to the end of a bounded run, or a file to its end;
 *   it is never read again
 *
 * The functions that make the transitions:
 *
 *   check passed or failed,      fr_streams_check, by the answer that partitions.c or files.c wrote
 *   topic missing
 *   begun (three ways)           fr_stream_begin
 *   mark matched                 fr_files_verify
 *   record, end                  fr_assembly_event, by add_record and reach_end
 *   cut                          fill_piece of assembly.c
 *   restarted                    fr_streams_identify and fr_streams_identify_some (log_identity.c),
 *                                and fr_assembly_event if another broker leads the partition
 *   failed                       fr_stream_fail
 *   finished                     fr_assembly_event or fr_stream_begin at an end, fr_streams_check
 *                                for files that were read before the topics
 *
 * Three things are no states, because they hold in several of them: events that are held
 * (`n_held`), an open transaction (`transaction_ns`), and an interruption that was logged and after
 * which nothing came (`interrupted`). Whether reading as a whole pauses is decided in malformed.c.
 *
 * Owner: the ingest thread. */
#include "internal.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/log.h"

/* ---- what transitions do ---- */

static void begin(struct fr_ingest *ingest, struct fr_stream *stream)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (stream->feed == &ingest->topics) /* another lane may still read files */
        ingest->polled = stream->feed;
    stream->seen = stream->next;
    stream->idle_at = stream->check.in_transaction ? stream->next : -1;
    stream->transaction_ns = 0;
    stream->wait_ms = 0;
    if (stream->check.in_transaction)
        fr_stream_recover(ingest, stream); /* it waits for the transaction, and for nothing else */
    fr_log(stream->interrupted ? FR_LOG_DEBUG : FR_LOG_INFO, "ingest", "reading",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " item=%" PRIu32 " high=%" PRId64, p->topic, p->partition,
           stream->next, stream->item, stream->high);
}

/* What the source and the queue of held events have of the stream is read again from `next`. */
static void halt(struct fr_ingest *ingest, struct fr_stream *stream)
{
    stream->feed->source.halt(stream->feed->source.self, stream->partition);
    fr_held_forget(ingest, stream);
    stream->transaction_ns = 0;
    stream->retry_ns = 0;
}

static void halt_and_drop_remainder(struct fr_ingest *ingest, struct fr_stream *stream)
{
    halt(ingest, stream);
    fr_stream_release(stream, &stream->remainder);
}

static void finish(struct fr_ingest *ingest, struct fr_stream *stream)
{
    stream->interrupted = false;
    fr_streams_next_files(ingest);
    if (stream->next < stream->end) { /* only markers were left, and they take effect too */
        stream->next = stream->end;
        stream->item = 0;
        fr_stream_moved(ingest, stream);
    }
    stream->seen = stream->next;
}

static void halt_and_finish(struct fr_ingest *ingest, struct fr_stream *stream)
{
    stream->feed->source.halt(stream->feed->source.self, stream->partition);
    finish(ingest, stream);
}

/* ---- the table ---- */

#define ON(event, to, act) [FR_STREAM_##event] = {FR_STREAM_##to, act}
#define CHECKED(missing) ON(CHECK_PASSED, READY, NULL), ON(CHECK_FAILED, WAITS, NULL), ON(TOPIC_MISSING, missing, NULL)
#define STOPPABLE(act) ON(RESTARTED, HALTED, act), ON(FAILED, HALTED, act)

static const struct fr_stream_transition transitions[FR_STREAM_STATES][FR_STREAM_EVENTS] = {
    [FR_STREAM_NEW] = {CHECKED(WAITS), ON(FINISHED, DONE, finish)},
    [FR_STREAM_WAITS] = {CHECKED(GONE)},
    [FR_STREAM_GONE] = {CHECKED(GONE)},
    [FR_STREAM_READY] = {CHECKED(WAITS), ON(BEGUN, READS, begin), ON(BEGUN_AT_MARK, VERIFIES, begin),
                         ON(BEGUN_AT_END, AT_END, begin), ON(FINISHED, DONE, finish)},
    [FR_STREAM_HALTED] = {CHECKED(WAITS)},
    [FR_STREAM_VERIFIES] = {ON(MARK_MATCHED, READS, NULL)},
    [FR_STREAM_READS] = {ON(RECORD_CUT, CUT, NULL), ON(END_CAME, AT_END, NULL), STOPPABLE(halt),
                         ON(FINISHED, DONE, halt_and_finish)},
    [FR_STREAM_CUT] = {ON(RECORD_CAME, READS, NULL), STOPPABLE(halt_and_drop_remainder)},
    [FR_STREAM_AT_END] = {ON(RECORD_CAME, READS, NULL), ON(END_CAME, AT_END, NULL), STOPPABLE(halt),
                          ON(FINISHED, DONE, halt_and_finish)},
    [FR_STREAM_DONE] = {{0}},
};

const struct fr_stream_transition *fr_stream_transition(enum fr_stream_state from, enum fr_stream_event event)
{
    const struct fr_stream_transition *found = &transitions[from][event];
    return found->to == FR_STREAM_NO_STATE ? NULL : found;
}

#define QUOTED(name) #name,
const char *fr_stream_state_name(enum fr_stream_state state)
{
    static const char *const names[] = {"", FR_STREAM_STATE_LIST(QUOTED)};
    return names[state];
}

const char *fr_stream_event_name(enum fr_stream_event event)
{
    static const char *const names[] = {"", FR_STREAM_EVENT_LIST(QUOTED)};
    return names[event];
}
#undef QUOTED

void fr_stream_change_state(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_stream_event event)
{
    const struct fr_stream_transition *transition = fr_stream_transition(stream->state, event);
    if (!transition) {
        const struct fr_partition_position *p = fr_stream_position(ingest, stream);
        fr_log(FR_LOG_ERROR, "ingest", "event_refused", "topic=%s partition=%" PRId32 " state=%s event=%s", p->topic,
               p->partition, fr_stream_state_name(stream->state), fr_stream_event_name(event));
    }
    FR_CHECK(transition != NULL);
    ingest->n_stopped -= fr_stream_is_stopped(stream);
    stream->state = transition->to;
    ingest->n_stopped += fr_stream_is_stopped(stream);
    ingest->n_done += stream->state == FR_STREAM_DONE;
    if (transition->act)
        transition->act(ingest, stream);
}
