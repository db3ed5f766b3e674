/* The ingest module inside: streams (topic-partitions being read), the batch being assembled, what
 * other threads see.
 *
 * Everything here belongs to the ingest thread, except `shared`, which its mutex guards. */
#ifndef FR_INGEST_INTERNAL_H
#define FR_INGEST_INTERNAL_H

#include <pthread.h>

#include "decode/decoder.h"
#include "batch/records.h"
#include "ingest/ingest.h"

enum {
    /* samples at which a round of huge records is cut; without it a batch would have no bound */
    FR_LOCKSTEP_SAMPLES_MAX = 65536,
    /* records after which a step ends, for status, commits and the watchdog */
    FR_STEP_RECORDS_MAX = 4096,
    /* between two checks of a partition that cannot be read; doubles each time up to the maximum */
    FR_RECHECK_MS = 1000,
    FR_RECHECK_MS_MAX = 16000,
    /* between two checks for partitions added to a topic, or less (discover_ms) */
    FR_DISCOVER_MS = 30000,
    FR_DISCOVER_MS_MIN = 100,
    /* between two commits of the group, which lag tools read; the last is written at once */
    FR_COMMIT_MS = 1000,
    /* between two checks of the last delivered record, if nothing else requests one; and the number
     * of partitions checked together in one round of requests (up to 16 MiB of records) */
    FR_LOOK_MS = 60000,
    FR_LOOK_PARTITIONS = 256,
};

struct fr_mark {    /* the last delivered record of a partition */
    int64_t offset; /* -1: none */
    int64_t timestamp_ms;
    uint32_t crc32c;
};

enum { FR_MINUTE_PARTS = 7 }; /* those of a minute, and the current one */

/* Malformed records (malformed.c). */
struct fr_malformed_watch {
    uint64_t untold; /* since the last line in the log */
    struct fr_ingest_refusal first;
    unsigned long long told_ns;
    uint64_t part; /* number of the present part of a minute */
    struct fr_minute_part {
        uint64_t records, malformed, future;
    } minute[FR_MINUTE_PARTS];   /* by number of the part */
    char paused[FR_PROBLEM_MAX]; /* why reading is paused; empty: it is not */
    enum fr_ingest_pause pause;
    int64_t until_ms; /* of a pause for the clock: the event time that the clock must not refuse */
    /* Records of a start whose labels may be -1 and 1 are held until their share is known. */
    bool trial;
    uint64_t trial_records, trial_negative;
};

/* Whether a feed's records are what its decoder reads. */
struct fr_proof {
    bool proven;              /* since the start one was good (lockstep: or of the future only) */
    bool waited_out;          /* refused records of the start took effect before one was good */
    bool tried;               /* there was a trial of its labels */
    uint64_t taken;           /* since the start */
    uint64_t refused;         /* since the last good one, or the start */
    uint64_t settled;         /* of them: took effect as dead letters */
    uint64_t why[FR_FUTURES]; /* of them: malformed, or ahead of what */
    struct fr_ingest_refusal first;
    const struct fr_likeness *looks_like; /* what the first one looks like; NULL: nothing known */
    uint32_t told_slots, told_keys;       /* unknown names in the log */
};

/* Past readings of this host's clock (clocks.c). */
struct fr_clock_watch {
    int64_t wall_ms;  /* the latest time it showed, or the last epoch's, */
    uint64_t mono_ns; /* and when that was */
    bool of_epoch;
    int64_t back_ms; /* as last looked: how far the clock is behind what it would show by now */
};

/* An event whose effect waits (held.c). */
struct fr_held {
    enum fr_held_kind { FR_HELD_RECORD, FR_HELD_END, FR_HELD_FINISHED, FR_HELD_GONE } kind;
    uint32_t stream; /* index */
    int64_t offset, timestamp_ms;
    size_t size;
    uint32_t crc32c;
    bool withheld, of_broker;
    struct fr_record_image *image; /* value, key, headers; NULL: no record */
};

struct fr_held_queue {
    struct fr_held *records; /* [head, head + n) of [capacity] */
    size_t head, n, capacity;
    size_t bytes;
    uint32_t n_ends;   /* streams whose end is among them */
    uint64_t since_ns; /* when the first came */
    enum fr_held_state {
        FR_HELD_WAITS,   /* until it is decided what they are */
        FR_HELD_REPLAYS, /* they take effect now, before anything else is read */
        FR_HELD_TAKEN,   /* likewise, and the first one is the pending record, or was */
    } state;
};

struct fr_ingest;
struct fr_stream;

/* A source of streams: topics, or files. */
struct fr_feed {
    struct fr_source source;
    struct fr_decoder *decoder;
    struct fr_proof *proof;
    uint32_t first; /* number of its first stream; the others follow in the order of its layout */
    bool in_turn;   /* its streams are read one after the other, else all at once */
    /* Whether what was read is there still; sets where reading continues (`from`), and of each
     * stream whether it is there (`there`), else its `why`. Fails when one of them must stop the
     * service. */
    enum fr_status (*check)(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n, struct fr_err *err);
    /* ask_end gets where a bounded run ends on the stream; take_end applies a fixed end. */
    enum fr_status (*ask_end)(struct fr_ingest *ingest, const struct fr_stream *stream, int64_t *end,
                              struct fr_err *err);
    enum fr_status (*take_end)(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err);
};

enum fr_stream_state {
    FR_STREAM_STOPPED,   /* waits for its turn, or until it can be read */
    FR_STREAM_VERIFYING, /* begun at its last delivered record, which must match the mark */
    FR_STREAM_READING,
    FR_STREAM_DONE, /* read to its end; never read again */
};

/* A topic-partition or file as far as it has been put into batches. */
struct fr_stream {
    enum fr_stream_state state;
    const struct fr_feed *feed;
    uint32_t partition;    /* in the feed's layout */
    uint32_t turn;         /* streams of a smaller turn are read before */
    uint32_t stream_index; /* in the positions */
    int64_t next;          /* first offset not fully in a batch; -1: the start policy decides */
    uint32_t item;         /* items of the record at `next` that are in batches */
    uint64_t delivered;    /* records, in this history */
    struct fr_mark mark;
    struct fr_mark anchor; /* the mark as of the minute's look before */
    int64_t unverified;    /* offset of a mark that was said to be gone; -1: none */
    int64_t from;          /* offset to begin at: `next`, or that of the mark */
    int64_t end;           /* --until end, lockstep: first offset not read; -1: none */
    int64_t fixed_end;     /* what the fixed ends of the run say; -1: they do not name it */
    int64_t high;          /* end of the log when last asked; files: -1 */
    int64_t bytes;         /* of a file, when last asked */
    /* offset from which the source continues: `next`, or a later one if only markers followed */
    int64_t seen;
    /* offset at which the source reported its end and after which it delivered nothing; -1: none */
    int64_t idle_at;
    uint64_t transaction_ns; /* since when the log is longer than that; 0: it is not */
    /* records below were counted; at most `next`, or those that are held and may be read again */
    int64_t counted;
    int64_t touched; /* entry in the open batch; -1 none */
    uint64_t lost;   /* records that on_loss skipped, for the next entry */
    uint64_t retry_ns;
    uint32_t wait_ms; /* before the next try; grows */
    /* FR_OK as last checked; FR_E_NOT_FOUND: its topic is gone; FR_E_UNAVAILABLE, FR_E_DENIED */
    enum fr_status there;
    char why[320]; /* why the stream is not there; valid when `there` is not FR_OK */
    /* `next` or `lost` changed without a record: the next batch needs an entry */
    bool moved;
    /* as last checked: a transaction that began before `next` is open, so no record comes */
    bool held_back;
    bool added; /* found on a topic that was read before: begins at its first record */
    bool at_end;
    uint32_t n_held; /* of its events wait (held.c), */
    bool end_held;   /* its end among them */
    bool troubled;   /* was interrupted and has delivered nothing since */
    /* lockstep: what is left of a record that was read and cut by the end of a long round; while
     * the stream is read */
    bool has_interrupted;
    struct fr_source_event interrupted;
};

enum fr_pending { FR_PENDING_NONE, FR_PENDING_SAMPLES, FR_PENDING_SKIP, FR_PENDING_LETTER };

struct fr_ingest_shared {
    pthread_mutex_t mutex;
    struct fr_positions known; /* offsets of those that were new are where reading begins */
    uint32_t n_resolved;       /* of them: the first ones, which have an offset */
    bool skips_due;            /* ranges of `known` changed: the owner has to hear of them */
    struct fr_ingest_status status;
    uint32_t status_capacity;
    struct fr_positions commit;
    bool commit_due;
};

struct fr_ingest {
    const struct fr_conf *conf;
    const struct fr_clock *clock;
    uint64_t committed_ns; /* 0: not yet */
    struct fr_ring *full, *empty;
    bool lockstep, until_end;
    int64_t until_ms;
    char *end_offsets;
    enum fr_status (*fix_end)(void *self, const char *text, size_t size, struct fr_err *err);
    void *fix_end_self;
    const struct fr_ingest_skip *skips; /* asked for, borrowed */
    size_t n_skips;
    struct fr_feed files, topics;
    struct fr_proof proofs[2];
    const struct fr_feed *polled; /* that of the stream begun last: files come before topics */
    struct fr_dead_sink sink;
    bool own_sink;

    /* a copy that reads JSON; borrows what `conf` borrows */
    struct fr_conf file_conf;
    uint32_t n_files; /* the first streams */
    uint32_t turn;    /* streams up to this one are read now; n_files: all files are done */
    /* records of topics are in effect: files were read to their ends before */
    bool past_files;
    uint32_t n_streams, capacity_streams;
    struct fr_stream *streams;
    uint32_t n_moved, n_stopped, n_done; /* streams with `moved`; STOPPED; DONE */
    bool started, finished, said_down;

    struct fr_batch *open, *ready; /* being filled; closed and not yet in the ring */
    uint32_t *touched;             /* [open->n_positions] stream of each entry */
    uint64_t open_since_ns;        /* first entry of the open batch */
    enum fr_pending pending;       /* what remains to be done with `event` before the next poll */
    uint32_t pending_stream;       /* whose record it is; its feed's decoder holds it */
    struct fr_source_event event;
    int64_t received_ms; /* wall clock when it came; 0: does not matter */
    uint32_t staged, staged_from;
    const char *reason;
    uint64_t history_samples; /* of all batches before the open one, in this history */
    uint64_t dead_sequence;   /* of the last letter of a malformed record */
    /* of the last record that was split between batches and is large; NULL: none */
    struct fr_record_image *image;
    uint32_t image_stream; /* which record that is */
    int64_t image_offset;
    int64_t *lettered; /* [n_lettered] by stream_index; the owner loop's (letters.c) */
    uint32_t n_lettered;
    uint32_t round_stream, round_taken; /* lockstep */

    struct fr_ingest_status tally; /* counters only */
    struct fr_malformed_watch malformed;
    struct fr_clock_watch clocks;
    struct fr_held_queue held;
    bool withholding;  /* lockstep: the sink keeps letters until a record of the start is good */
    uint64_t *present; /* [n_slots] samples that carried a value */
    unsigned long long told_future_ns, told_transaction_ns;
    bool drained;        /* the last poll of the last turn gave nothing */
    uint64_t drained_ns; /* when that was so last */
    int64_t last_timestamp_ms, started_ms;
    uint64_t discover_ns, look_ns;   /* of the last look for partitions; of the next at logs */
    uint32_t discover_ms, look_from; /* the stream that the next look begins at */
    char problem[FR_PROBLEM_MAX];    /* of streams that are stopped or troubled; empty: none */
    struct fr_ingest_shared shared;
};

/* open_streams.c */
enum fr_status fr_streams_discover(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_stream_begin(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err) FR_MUST_CHECK;
void fr_stream_stop(struct fr_ingest *ingest, struct fr_stream *stream, const char *why);
/* Stops a stream without a reason to report: the next turn checks it and begins it again. */
void fr_stream_renew(struct fr_ingest *ingest, struct fr_stream *stream);
void fr_stream_finish(struct fr_ingest *ingest, struct fr_stream *stream);
/* Records that the stream's first offset is known, so that the owner may adopt it. */
void fr_stream_resolve(struct fr_ingest *ingest, struct fr_stream *stream);
/* Checks stopped streams: all, or (again) those whose time has come and turn it is. Those that are
 * not there make the problem; *n_there of the others could be read. */
enum fr_status fr_streams_check(struct fr_ingest *ingest, bool again, uint32_t *n_there,
                                struct fr_err *err) FR_MUST_CHECK;
/* Checks and begins stopped streams whose time has come; FR_E_UNAVAILABLE is not an error here. */
enum fr_status fr_streams_revive(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
void fr_stream_moved(struct fr_ingest *ingest, struct fr_stream *stream);
/* Whether the stream may be read now: files one after the other, partitions after all files. */
static inline bool fr_stream_its_turn(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    return stream->turn <= ingest->turn;
}
static inline bool fr_stream_is_read(const struct fr_stream *stream)
{
    return stream->state == FR_STREAM_READING || stream->state == FR_STREAM_VERIFYING;
}
/* Whether brokers answer. While files are read it does not matter. */
static inline bool fr_is_connected(const struct fr_ingest *ingest, char *problem, size_t size)
{
    const struct fr_source *source = &ingest->polled->source;
    return !source->connected || source->connected(source->self, problem, size);
}
static inline bool fr_files_left(const struct fr_ingest *ingest)
{
    return ingest->turn < ingest->n_files;
}
static inline const struct fr_partition_position *fr_stream_position(const struct fr_ingest *ingest,
                                                                     const struct fr_stream *stream)
{
    return &ingest->shared.known.partitions[stream->stream_index];
}
static inline void fr_stream_release(const struct fr_stream *stream, struct fr_source_event *event)
{
    if (stream->feed->source.release)
        stream->feed->source.release(stream->feed->source.self, event);
}
/* A stream that was troubled gave something. */
void fr_stream_recovered(struct fr_ingest *ingest, struct fr_stream *stream);
/* Of topics' partitions, for their feed (partitions.c). */
enum fr_status fr_streams_check_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                           struct fr_err *err) FR_MUST_CHECK;

/* Likewise while they are read; of those that must begin again `next` was changed. `anchored`: at
 * the anchors in place of the marks. */
enum fr_status fr_streams_look_at_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                             bool anchored, struct fr_err *err) FR_MUST_CHECK;

/* log_identity.c */
/* Contact was lost, and nothing may take effect before the log is known to be the same: asks about
 * all partitions that are read. `again`: what was fetched is dropped. */
enum fr_status fr_streams_identify(struct fr_ingest *ingest, bool again, struct fr_err *err) FR_MUST_CHECK;
/* The minute's look, when it is due (look_ns) and no event is half done. */
enum fr_status fr_streams_look(struct fr_ingest *ingest, uint64_t now_ns, struct fr_err *err) FR_MUST_CHECK;

/* skips.c */
/* Takes over the ranges asked for; or FR_E_INVALID: one names what is not read; FR_E_MISMATCH: one
 * is not ahead, or overlaps another. */
enum fr_status fr_streams_skip(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* The stream is another log now. */
void fr_stream_forget_skips(struct fr_ingest *ingest, const struct fr_stream *stream);

/* ends.c */
/* Of a topic's partition, for its feed. */
enum fr_status fr_ends_ask_partition(struct fr_ingest *ingest, const struct fr_stream *stream, int64_t *end,
                                     struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ends_take_partition(struct fr_ingest *ingest, struct fr_stream *stream,
                                      struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ends_fix(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* All are reached: says where, beside the ends that the run was given. */
void fr_ends_tell(const struct fr_ingest *ingest);

/* assembly.c */
/* FR_AGAIN: no batch, no room, or the dead-letter sink is full; FR_EOF: a ring was closed. */
enum fr_status fr_assembly_ready(struct fr_ingest *ingest, int wait_ms) FR_MUST_CHECK;
enum fr_status fr_assembly_event(struct fr_ingest *ingest, struct fr_stream *stream,
                                 struct fr_source_event *event) FR_MUST_CHECK;
enum fr_status fr_assembly_pending(struct fr_ingest *ingest) FR_MUST_CHECK;
/* Entries for streams that moved without a record. */
void fr_assembly_moved(struct fr_ingest *ingest);
/* Whether the open batch is smaller than batch_size because the model is young. */
bool fr_assembly_young(const struct fr_ingest *ingest);
bool fr_assembly_due(struct fr_ingest *ingest, uint64_t now_ns);
void fr_assembly_close(struct fr_ingest *ingest);
/* The last batch of the stream: closes an open one first; then one without samples. */
void fr_assembly_end(struct fr_ingest *ingest);

/* malformed.c */
/* The record in `event` is good; is refused for `reason`. True: it is held, and has no effect
 * yet. `counted`: it was read before, and counts no more. */
bool fr_ingest_malformed_accepted(struct fr_ingest *ingest, struct fr_stream *stream, bool counted);
bool fr_ingest_malformed_refused(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_future future,
                                 bool counted);
/* One more event is held: whether they are enough to decide. */
void fr_ingest_malformed_held(struct fr_ingest *ingest, const struct fr_stream *stream);
/* Held events have waited long enough. */
void fr_ingest_malformed_look(struct fr_ingest *ingest, uint64_t now_ns);
/* The sink is full of letters that are withheld. */
void fr_ingest_malformed_full(struct fr_ingest *ingest, const struct fr_stream *stream);
/* Share, pause and the problem of records; writes what is due to the log. */
void fr_ingest_malformed_status(struct fr_ingest *ingest, struct fr_ingest_status *status);
/* Lockstep: the open batch waits for a first good record. */
bool fr_ingest_malformed_holds(struct fr_ingest *ingest);
/* FR_AGAIN: reading is paused; FR_E_INVALID: and nobody waits for it (a bounded run). */
enum fr_status fr_ingest_malformed_pauses(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* A bounded run is at its end: FR_E_INVALID when nothing it read was good. */
enum fr_status fr_ingest_malformed_end(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;

/* clocks.c */
void fr_clocks_init(struct fr_clock_watch *watch, const struct fr_clock *clock, int64_t epoch_wall_ms);
void fr_clocks_look(struct fr_ingest *ingest);
/* A record of this Kafka timestamp, received at this time of the clock, is good. */
void fr_clocks_agree(struct fr_ingest *ingest, int64_t timestamp_ms, int64_t received_ms);
/* Looks at the clock, and at whether two witnesses say that it is behind: the record in `event`,
 * whose event time t_ms it refuses, and the clock's own past or the broker's clock. False: no.
 * Else `who` says which clocks disagree. */
bool fr_clocks_behind(struct fr_ingest *ingest, int64_t t_ms, char *who, size_t size);
/* A span as a person says it: "3 h", "90 s". */
const char *fr_clocks_span(int64_t ms, char *text, size_t size);

/* held.c */
static inline bool fr_held_replays(const struct fr_ingest *ingest)
{
    return ingest->held.state != FR_HELD_WAITS;
}
/* What is held takes effect now, or nothing is held. */
static inline void fr_held_replay(struct fr_ingest *ingest)
{
    ingest->held.state = ingest->held.n ? FR_HELD_REPLAYS : FR_HELD_WAITS;
}
/* Takes the event over and releases it. `again`: it was held before, and waits since then. */
void fr_held_push(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event, bool again);
/* A record of this size alone is as much as may be held. */
bool fr_held_is_filled_by(size_t size);
bool fr_held_is_full(const struct fr_ingest *ingest);
/* The stream is read again from its position; not while what is held takes effect. */
void fr_held_forget(struct fr_ingest *ingest, struct fr_stream *stream);
/* The next of the held events, as if it were read now; false: there is none, or the pending record
 * is not done. */
bool fr_held_next(struct fr_ingest *ingest, struct fr_stream **stream, struct fr_source_event *out);
/* The parts of the held record that is pending. */
void fr_held_parts(const struct fr_ingest *ingest, struct fr_record_header *headers, struct fr_record_parts *out);
void fr_held_release(struct fr_held_queue *held);

/* transactions.c */
/* The stream gave this event. */
void fr_transaction_event(struct fr_stream *stream, const struct fr_source_event *event);
/* Nothing came: which streams wait for a transaction? */
void fr_transactions_look(struct fr_ingest *ingest);
/* How long the stream's next record has waited for an open transaction; 0: it does not. */
int64_t fr_transaction_waited_ms(const struct fr_ingest *ingest, const struct fr_stream *stream);
/* Lag, the end and the problem of transactions; writes what is due to the log. */
void fr_transactions_status(struct fr_ingest *ingest, struct fr_ingest_status *status);

/* ingest_status.c */
/* What other threads see from now on; says in the log when brokers are lost or found. */
void fr_ingest_publish_status(struct fr_ingest *ingest);

/* letters.c */
/* What a letter repeats of a record that the stream's source gave; borrowed until its release. */
struct fr_record_parts fr_letter_parts(const struct fr_stream *stream, const struct fr_source_event *event,
                                       struct fr_record_header headers[static FR_SOURCE_HEADERS_MAX]);
/* The pending record goes to the dead letters for `reason`. FR_AGAIN: no room. */
enum fr_status fr_letter_send(struct fr_ingest *ingest, const char *reason) FR_MUST_CHECK;
/* Whether the open batch has room for the pending record's bytes. */
bool fr_letter_fits(struct fr_ingest *ingest);
/* `count` samples of the pending record are appended next: its bytes go with the batch. */
void fr_letter_keep(struct fr_ingest *ingest, uint32_t count);

#endif
