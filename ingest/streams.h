/* Streams: topic-partitions and files as far as they have been put into batches; the states of a
 * stream, the events that move it from one to another, and the table of all transitions, which
 * stream_machine.c draws. Private to ingest.
 *
 * Owner: the ingest thread. */
#ifndef FR_INGEST_STREAMS_H
#define FR_INGEST_STREAMS_H

#include "decode/decoder.h"
#include "ingest/source.h"

struct fr_ingest;
struct fr_stream;

/* ---- the machine ---- */

/* In this order: states in which nothing is read yet or any more, states in which the source gives
 * events of the stream, and the last state. */
#define FR_STREAM_STATE_LIST(STATE)                                                                                    \
    STATE(NEW)                                                                                                         \
    STATE(WAITS)                                                                                                       \
    STATE(GONE)                                                                                                        \
    STATE(READY)                                                                                                       \
    STATE(HALTED)                                                                                                      \
    STATE(VERIFIES)                                                                                                    \
    STATE(READS)                                                                                                       \
    STATE(CUT)                                                                                                         \
    STATE(AT_END)                                                                                                      \
    STATE(DONE)

#define FR_STREAM_EVENT_LIST(EVENT)                                                                                    \
    EVENT(CHECK_PASSED)                                                                                                \
    EVENT(CHECK_FAILED)                                                                                                \
    EVENT(TOPIC_MISSING)                                                                                               \
    EVENT(BEGUN)                                                                                                       \
    EVENT(BEGUN_AT_MARK)                                                                                               \
    EVENT(BEGUN_AT_END)                                                                                                \
    EVENT(MARK_MATCHED)                                                                                                \
    EVENT(RECORD_CAME)                                                                                                 \
    EVENT(RECORD_CUT)                                                                                                  \
    EVENT(END_CAME)                                                                                                    \
    EVENT(RESTARTED)                                                                                                   \
    EVENT(FAILED)                                                                                                      \
    EVENT(FINISHED)

#define FR_STREAM_NAME(name) FR_STREAM_##name,
enum fr_stream_state { FR_STREAM_NO_STATE, FR_STREAM_STATE_LIST(FR_STREAM_NAME) FR_STREAM_STATES };
enum fr_stream_event { FR_STREAM_NO_EVENT, FR_STREAM_EVENT_LIST(FR_STREAM_NAME) FR_STREAM_EVENTS };
#undef FR_STREAM_NAME

struct fr_stream_transition {
    enum fr_stream_state to; /* NO_STATE: the event is refused */
    /* what is done after the state was changed; NULL: nothing */
    void (*act)(struct fr_ingest *ingest, struct fr_stream *stream);
};
/* Returns the transition; NULL: a stream in this state refuses the event. */
const struct fr_stream_transition *fr_stream_transition(enum fr_stream_state from, enum fr_stream_event event);
/* Return the names as in the lists above. */
const char *fr_stream_state_name(enum fr_stream_state state);
const char *fr_stream_event_name(enum fr_stream_event event);
/* Makes the transition of the table, and calls its `act`. An event that the table refuses is an
 * error of this program and ends it. */
void fr_stream_change_state(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_stream_event event);

/* ---- what a stream is ---- */

struct fr_mark {    /* a delivered record of a partition, as it is found again */
    int64_t offset; /* -1: none */
    int64_t timestamp_ms;
    uint32_t crc32c;
};

/* A source of streams: topics, or files. */
struct fr_feed {
    struct fr_source source;
    struct fr_decoder *decoder;
    struct fr_proof *proof;
    uint32_t first;  /* number of its first stream; the others follow in the order of its layout */
    bool one_by_one; /* its streams are read one after the other, else all at once */
    /* Asks whether what was read is still there, and writes the findings of each stream (`check`).
     * Fails if one of the streams must stop the service, or if nothing can be asked; a stream
     * without an answer keeps the answer FR_AGAIN. */
    enum fr_status (*check)(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n, struct fr_err *err);
    /* Gets where a bounded run ends on the stream. */
    enum fr_status (*ask_end)(struct fr_ingest *ingest, const struct fr_stream *stream, int64_t *end,
                              struct fr_err *err);
    /* Sets the stream's end from the fixed ends of the run. */
    enum fr_status (*apply_end)(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err);
};

struct fr_stream {
    enum fr_stream_state state;
    const struct fr_feed *feed;
    uint32_t partition;    /* index in the feed's layout */
    uint32_t order;        /* streams of a smaller order are read before this one */
    uint32_t lane;         /* fr_stream_lane */
    uint32_t stream_index; /* index in the positions */
    /* was found on a topic that was read before, so it begins at its first record */
    bool added;

    /* ---- what is in batches (assembly.c) ---- */
    int64_t next;        /* first offset not fully in a batch; -1: the start policy decides */
    uint32_t item;       /* items of the record at `next` that are in batches */
    uint64_t delivered;  /* records, in this history */
    struct fr_mark mark; /* the last delivered record */
    /* offset below which records have been counted: at most `next`, except for records that are
     * held or cut and may be read again */
    int64_t counted;
    int64_t touched; /* number of the stream's entry in the open batch; -1: none */
    uint64_t lost;   /* records that on_loss skipped, for the next entry */
    /* `next` or `lost` changed without a record, so the next batch needs an entry */
    bool moved;
    struct fr_source_event remainder; /* of state CUT: the record that is partly in a batch */

    /* ---- what a check found (partitions.c, files.c) ---- */
    struct {
        /* FR_OK: the stream can be read; FR_EOF: it has been read to its end, and need not be
         * there any more; FR_E_NOT_FOUND: there is no such topic; FR_E_UNAVAILABLE, FR_E_DENIED;
         * FR_AGAIN: no answer */
        enum fr_status answer;
        char why[320]; /* why the stream cannot be read; valid if the answer is an error */
        int64_t from;  /* offset to begin at: `next`, or that of the mark */
        /* a transaction that began before `next` is open, so neither records nor an end come */
        bool in_transaction;
    } check;
    struct fr_mark anchor; /* the mark as of the check a minute ago (log_identity.c) */
    int64_t unverified;    /* offset of the mark that was last reported as gone; -1: none */
    int64_t high;          /* end of the log when last asked; files: -1 */
    int64_t bytes;         /* size of a file, when last asked */

    /* ---- while it cannot be read (open_streams.c) ---- */
    uint64_t retry_ns; /* time before which the stream is not checked; 0: it is checked at once */
    uint32_t wait_ms;  /* between the last two checks; grows */
    bool interrupted;  /* reading failed, and the stream has delivered nothing since */

    /* ---- the end of a bounded run (ends.c) ---- */
    int64_t end;       /* first offset not read; -1: none */
    int64_t fixed_end; /* end in the run's fixed ends; -1: they do not name the stream */

    /* ---- its next record (transactions.c) ---- */
    /* offset from which the source continues: `next`, or a later one if only markers followed */
    int64_t seen;
    /* offset at which the source reported its end and after which it delivered nothing; -1: none */
    int64_t idle_at;
    uint64_t transaction_ns; /* since when the log is longer than that; 0: it is not */

    /* ---- its events that have no effect yet (held.c) ---- */
    uint32_t n_held;
    bool end_held; /* one of them is its end */
};

static inline bool fr_stream_is_stopped(const struct fr_stream *stream)
{
    return stream->state <= FR_STREAM_HALTED;
}
/* Whether the source gives events of the stream. */
static inline bool fr_stream_is_read(const struct fr_stream *stream)
{
    return stream->state >= FR_STREAM_VERIFIES && stream->state <= FR_STREAM_AT_END;
}
static inline bool fr_stream_is_at_end(const struct fr_stream *stream)
{
    return stream->state >= FR_STREAM_AT_END;
}
/* Whether the stream was never checked, or the last check found that it cannot begin. */
static inline bool fr_stream_is_waiting(const struct fr_stream *stream)
{
    return stream->state <= FR_STREAM_GONE;
}
static inline void fr_stream_release(const struct fr_stream *stream, struct fr_source_event *event)
{
    if (stream->feed->source.release)
        stream->feed->source.release(stream->feed->source.self, event);
}

/* ---- open_streams.c ---- */

/* Returns the lane of a topic-partition or file (`file:<path>`, as ingest.files writes the path).
 * The lane depends on nothing else, so a stream stays in its lane. */
uint32_t fr_stream_lane(const char *topic, int32_t partition, uint32_t n_lanes);
/* Moves each share to its first file that is not done, or to the topics. */
void fr_streams_next_files(struct fr_ingest *ingest);
enum fr_status fr_streams_discover(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* Begins a READY stream, or finishes it if it is at the end of a bounded run. */
enum fr_status fr_stream_begin(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err) FR_MUST_CHECK;
/* Halts a stream, reading of which failed, and reports why. */
void fr_stream_fail(struct fr_ingest *ingest, struct fr_stream *stream, const char *why);
/* Ends the interruption of a stream that has delivered something. */
void fr_stream_recover(struct fr_ingest *ingest, struct fr_stream *stream);
/* Records that the stream's first offset is known, so that the owner may adopt it. */
void fr_stream_resolve(struct fr_ingest *ingest, struct fr_stream *stream);
/* Records that the stream's position changed without a record. */
void fr_stream_moved(struct fr_ingest *ingest, struct fr_stream *stream);
/* Checks stopped streams: all, or (again) those that are next in order and whose time has come.
 * Those that cannot be read make the problem; *n_there counts the others. */
enum fr_status fr_streams_check(struct fr_ingest *ingest, bool again, uint32_t *n_there,
                                struct fr_err *err) FR_MUST_CHECK;
/* Checks and begins stopped streams whose time has come; FR_E_UNAVAILABLE is not an error here. */
enum fr_status fr_streams_revive(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;

/* ---- partitions.c ---- */

/* The `check` of topics for partitions that are not being read. */
enum fr_status fr_streams_check_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                           struct fr_err *err) FR_MUST_CHECK;
/* Checks partitions while they are being read. `next` is changed for those that must begin
 * again. `anchored`: compares the anchors instead of the marks. */
enum fr_status fr_streams_check_read_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                                bool anchored, struct fr_err *err) FR_MUST_CHECK;

/* ---- log_identity.c ---- */

/* Checks all partitions that are read, after contact was lost: nothing may take effect before
 * the logs are known to be the same. `again`: what was fetched is dropped. */
enum fr_status fr_streams_identify(struct fr_ingest *ingest, bool again, struct fr_err *err) FR_MUST_CHECK;
/* Makes the check of each minute if it is due (identify_ns) and no record is half in effect. */
enum fr_status fr_streams_identify_some(struct fr_ingest *ingest, uint64_t now_ns, struct fr_err *err) FR_MUST_CHECK;

/* ---- skips.c ---- */

/* Parses `size` decimal digits; false: they are no number of [0, most]. */
bool fr_ingest_parse_offset(const char *text, size_t size, int64_t most, int64_t *out);
/* Adopts the ranges asked for. FR_E_INVALID: one names what is not read; FR_E_MISMATCH: one is not
 * ahead of its position, or overlaps another. */
enum fr_status fr_streams_skip(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* Removes the ranges of a stream whose log is another one now. */
void fr_stream_forget_skips(struct fr_ingest *ingest, const struct fr_stream *stream);

/* ---- ends.c ---- */

/* Gets the end of a topic's partition, for its feed. */
enum fr_status fr_ends_ask_partition(struct fr_ingest *ingest, const struct fr_stream *stream, int64_t *end,
                                     struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ends_apply_partition(struct fr_ingest *ingest, struct fr_stream *stream,
                                       struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ends_fix(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* Logs where the streams of a bounded run ended, next to the ends that the run was given. */
void fr_ends_log(const struct fr_ingest *ingest);

/* ---- transactions.c ---- */

/* Notes that the stream gave this event. */
void fr_transaction_event(struct fr_stream *stream, const struct fr_source_event *event);
/* Notes which streams wait for a transaction, after a poll that gave nothing. */
void fr_transactions_note_waiting(struct fr_ingest *ingest);
/* How long the stream's next record has waited for an open transaction; 0: it does not. */
int64_t fr_transaction_waited_ms(const struct fr_ingest *ingest, const struct fr_stream *stream);

#endif
