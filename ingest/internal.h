/* The ingest module inside: the batch being assembled, refused and held records, what other threads
 * see. Streams have a header of their own.
 *
 * Everything here belongs to the ingest thread, except `shared`, which its mutex guards. */
#ifndef FR_INGEST_INTERNAL_H
#define FR_INGEST_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "batch/records.h"
#include "ingest/ingest.h"
#include "streams.h"

enum {
    /* samples at which a round of huge records is cut; without it a batch would have no bound */
    FR_LOCKSTEP_SAMPLES_MAX = 65536,
    /* records after which a step ends, for status, commits and the watchdog */
    FR_STEP_RECORDS_MAX = 4096,
    /* time between two checks of a partition that cannot be read; it doubles with each check up
     * to the maximum */
    FR_RECHECK_MS = 1000,
    FR_RECHECK_MS_MAX = 16000,
    /* longest time between two checks for partitions added to a topic (discover_ms) */
    FR_DISCOVER_MS = 30000,
    FR_DISCOVER_MS_MIN = 100,
    /* time between two commits of the group, which lag tools read; the last one of a run is
     * written at once */
    FR_COMMIT_MS = 1000,
    /* time between two checks of the last delivered records, if nothing else requests a check;
     * and the number of partitions checked together in one round of requests (up to 16 MiB of
     * records) */
    FR_IDENTIFY_MS = 60000,
    FR_IDENTIFY_PARTITIONS = 256,
};

/* number of parts: those that a minute is divided into, and the current one */
enum { FR_MINUTE_PARTS = 7 };

/* Refused records of the last minute, and the pause of reading (malformed.c). */
struct fr_malformed_watch {
    uint64_t unlogged;              /* malformed records since the last log line */
    struct fr_ingest_refusal first; /* the first of them */
    unsigned long long logged_ns;   /* when the last line was written */
    uint64_t part;                  /* number of the present part of a minute */
    struct fr_minute_part {
        uint64_t records, malformed, future;
    } minute[FR_MINUTE_PARTS]; /* by number of the part */
    enum fr_ingest_pause pause;
    char paused[FR_PROBLEM_MAX]; /* why reading is paused; valid during a pause */
    /* during a pause for the clock: the event time that the clock must accept before reading
     * continues */
    int64_t until_ms;
    /* A trial of labels runs: good records are held until the share of labels -1 is known. */
    bool trial;
    uint64_t trial_records, trial_negative;
};

/* Whether the records of a feed are of the form that its decoder reads. */
struct fr_proof {
    /* a record since the start was good (lockstep: or only from the future) */
    bool proven;
    /* the refused records of the start took effect, although none was good before */
    bool waited_out;
    bool tried;                     /* the feed's labels had their trial */
    uint64_t read;                  /* records since the start */
    uint64_t refused;               /* records since the last good one, or since the start */
    uint64_t dead_lettered;         /* refused records that took effect, as dead letters */
    uint64_t why[FR_FUTURES];       /* refused records: malformed, or ahead of which clock */
    struct fr_ingest_refusal first; /* the first refused record */
    /* what the first refused record looks like; NULL: nothing known */
    const struct fr_likeness *looks_like;
    /* the first refused record begins as records of the configured format do */
    bool begins_right;
    uint32_t logged_slots, logged_keys; /* unknown names that the log has a line about */
};

/* Past readings of this host's clock (clocks.c). */
struct fr_clock_watch {
    int64_t wall_ms;  /* the latest time that the clock showed, or the time of the last epoch */
    uint64_t mono_ns; /* when the clock showed it */
    bool of_epoch;    /* wall_ms is the time of the last epoch */
    int64_t back_ms;  /* how far the clock is behind what it would show by now, as last read */
};

/* An event that has no effect yet (held.c). */
struct fr_held {
    enum fr_held_kind {
        FR_HELD_RECORD,
        FR_HELD_END,
        FR_HELD_FINISHED,
        FR_HELD_GONE, /* released, or its stream was halted */
    } kind;
    uint32_t stream; /* its number */
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
    uint32_t n_ends;   /* streams whose end is among the held events */
    uint64_t since_ns; /* when the first event came */
    enum fr_held_state {
        FR_HELD_WAITS,   /* no decision about the events yet, or none are held */
        FR_HELD_REPLAYS, /* the events take effect now, before anything else is read */
        FR_HELD_TAKEN,   /* the same, and the first event is or was the pending record */
    } state;
};

/* Streams that are read and assembled as if they were the whole log, with their share of a batch's
 * limits: in lockstep those of one lane, so that what a lane gives to a batch depends on the lane's
 * streams alone; live all streams. */
struct fr_share {
    /* streams up to this order are read now; n_files: all files are done */
    uint32_t order;
    bool past_files;          /* records of topics are in effect, so all files were read before */
    uint64_t history_samples; /* samples of all batches before the open one, in this history */
    /* bytes of the last large record that was split between batches; NULL: none */
    struct fr_record_image *image;
    uint32_t image_stream; /* stream and offset of that record */
    int64_t image_offset;
};

/* What the open batch has of one share. The pieces of a batch are made one after the other. */
struct fr_piece {
    uint32_t share;         /* its number; share_end: all pieces of the batch are complete */
    bool full;              /* the share gives no more to this batch */
    uint32_t stream, taken; /* lockstep: the present round (choose_round_stream) */
    /* what the batch had when the piece began */
    uint32_t first_sample, first_position;
    uint64_t ids_before;
    size_t bytes_before;
};

enum fr_pending { FR_PENDING_NONE, FR_PENDING_SAMPLES, FR_PENDING_SKIP, FR_PENDING_LETTER };

/* What the ingest thread exchanges with other threads. */
struct fr_ingest_shared {
    pthread_mutex_t mutex;
    struct fr_positions known; /* a new stream has the offset at which reading begins */
    uint32_t n_resolved;       /* the first streams of `known`, all of which have an offset */
    bool skips_due;            /* ranges of `known` changed, and the owner has not adopted them */
    struct fr_ingest_status status;
    uint32_t status_capacity;
    struct fr_positions commit;
    bool commit_due;
};

struct fr_ingest {
    const struct fr_conf *conf;
    const struct fr_clock *clock;
    uint64_t committed_ns; /* when positions were last committed to the group; 0: not yet */
    struct fr_ring *full, *empty;
    bool lockstep, until_end;
    int64_t until_ms;
    char *end_offsets;
    enum fr_status (*fix_end)(void *self, const char *text, size_t size, struct fr_err *err);
    void *fix_end_self;
    const struct fr_ingest_skip *skips; /* requested ranges, borrowed */
    size_t n_skips;
    struct fr_feed files, topics;
    struct fr_proof proofs[2];
    const struct fr_feed *polled; /* the feed of the stream begun last: files come before topics */
    struct fr_dead_sink sink;
    bool own_sink;

    /* a copy with the format JSON; borrows what `conf` borrows */
    struct fr_conf file_conf;
    uint32_t n_files;                       /* the first streams are files */
    uint32_t n_lanes, lane_first, lane_end; /* lanes of a batch; those that are read */
    uint32_t n_shares;                      /* lockstep: n_lanes; live: 1 */
    uint32_t share_first, share_end;        /* those that are read */
    struct fr_share *shares;                /* [n_shares] */
    uint32_t n_streams, capacity_streams;
    struct fr_stream *streams;
    uint32_t n_moved;   /* streams with `moved` */
    uint32_t n_stopped; /* streams of which the source gives nothing and which are not DONE */
    uint32_t n_done;
    bool started, finished;
    int64_t down_since_ms; /* wall time since which no broker answers; 0: brokers answer */

    struct fr_batch *open;  /* the batch being filled; NULL: none is at hand */
    struct fr_piece piece;  /* of the open batch, the piece that is being made */
    struct fr_batch *spare; /* live, several lanes: for fr_batch_arrange; NULL: not needed */
    struct fr_batch *ready; /* a closed batch that is not in the ring yet; NULL: none */
    uint32_t *touched;      /* [open->n_positions] stream of each entry */
    uint64_t open_since_ns; /* when the open batch got its first entry */

    /* The pending record, whose samples are in the decoder of its feed. */
    enum fr_pending pending; /* what remains to be done with `event` before the next poll */
    uint32_t pending_stream;
    struct fr_source_event event;
    int64_t received_ms;  /* wall time when the event came; 0: the record is not judged by it */
    uint32_t staged;      /* samples of the record */
    uint32_t staged_from; /* the first of them that is not in a batch */
    const char *reason;   /* why the record is refused */

    uint64_t dead_sequence; /* number of the last letter of a malformed record */
    int64_t *lettered;      /* [n_lettered] by stream_index; owned by the owner loop (letters.c) */
    uint32_t n_lettered;

    struct fr_ingest_status tally; /* counters only */
    struct fr_malformed_watch malformed;
    struct fr_clock_watch clocks;
    struct fr_held_queue held;
    /* lockstep: the sink keeps letters until a record of the start is good, or an epoch needs them;
     * shared with the thread of fr_ingest_release_letters */
    atomic_bool withholding;
    uint64_t *present; /* [n_slots] samples that carried a value */
    unsigned long long logged_future_ns, logged_transaction_ns;
    bool drained;        /* the last poll of the last step gave nothing */
    uint64_t drained_ns; /* when a status was last published after such a step */
    int64_t last_timestamp_ms, started_ms;
    uint64_t discover_ns;         /* when partitions were last looked for */
    uint32_t discover_ms;         /* between two such times */
    uint64_t identify_ns;         /* when the next logs are identified (log_identity.c) */
    uint32_t identify_from;       /* the first stream of that check */
    char problem[FR_PROBLEM_MAX]; /* of streams that are stopped or interrupted; empty: none */
    struct fr_ingest_shared shared;
};

/* ---- streams and their source ---- */

static inline struct fr_share *fr_stream_share(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    return &ingest->shares[ingest->n_shares > 1 ? stream->lane : 0];
}
/* Whether this ingest reads the lane of the stream. */
static inline bool fr_stream_is_ours(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    return stream->lane >= ingest->lane_first && stream->lane < ingest->lane_end;
}
/* Whether the stream may be read now: the files of a share one after the other, partitions after
 * all its files. */
static inline bool fr_stream_may_be_read(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    return stream->order <= fr_stream_share(ingest, stream)->order;
}
/* Whether brokers answer. While files are read it does not matter. */
static inline bool fr_is_connected(const struct fr_ingest *ingest, char *problem, size_t size)
{
    const struct fr_source *source = &ingest->polled->source;
    return !source->connected || source->connected(source->self, problem, size);
}
/* Whether a share still reads files. */
static inline bool fr_files_left(const struct fr_ingest *ingest)
{
    uint32_t i = ingest->share_first;
    while (i < ingest->share_end && ingest->shares[i].order == ingest->n_files)
        i++;
    return i < ingest->share_end;
}
/* Whether a share reads topics. */
static inline bool fr_topics_begun(const struct fr_ingest *ingest)
{
    uint32_t i = ingest->share_first;
    while (i < ingest->share_end && ingest->shares[i].order < ingest->n_files)
        i++;
    return i < ingest->share_end;
}
static inline const struct fr_partition_position *fr_stream_position(const struct fr_ingest *ingest,
                                                                     const struct fr_stream *stream)
{
    return &ingest->shared.known.partitions[stream->stream_index];
}
/* Lag, the end and the problem of transactions; writes what is due to the log. */
void fr_transactions_status(struct fr_ingest *ingest, struct fr_ingest_status *status);

/* ---- assembly.c ---- */

/* Pushes the ready batch and gets an empty one. FR_AGAIN: no batch or no room; FR_EOF: a ring was
 * closed. */
enum fr_status fr_assembly_ready(struct fr_ingest *ingest, int wait_ms) FR_MUST_CHECK;
/* Applies an event of the stream, which it releases. FR_AGAIN: its record is pending. */
enum fr_status fr_assembly_event(struct fr_ingest *ingest, struct fr_stream *stream,
                                 struct fr_source_event *event) FR_MUST_CHECK;
/* Continues with the pending record. FR_AGAIN: no batch, no room, or the dead-letter sink is
 * full. */
enum fr_status fr_assembly_pending(struct fr_ingest *ingest) FR_MUST_CHECK;
/* Makes entries for streams that moved without a record. */
void fr_assembly_moved(struct fr_ingest *ingest);
/* Whether the piece is smaller than its share of batch_size because the model is young. */
bool fr_assembly_young(const struct fr_ingest *ingest);
/* Begins the piece of this share in the open batch; share_end: there is no further piece. */
void fr_assembly_begin_piece(struct fr_ingest *ingest, uint32_t share);
/* Whether the open batch has waited for batch_wait. */
bool fr_assembly_due(struct fr_ingest *ingest, uint64_t now_ns);
void fr_assembly_close(struct fr_ingest *ingest);
/* Makes the last batch of a bounded run, which has no samples. */
void fr_assembly_end(struct fr_ingest *ingest);

/* ---- malformed.c ---- */

/* The record in `event` is good, or is refused for `reason`. True: it is to be held, and has no
 * effect yet. `counted`: the record was read before, and is not counted again. */
bool fr_ingest_malformed_accepted(struct fr_ingest *ingest, struct fr_stream *stream, bool counted);
bool fr_ingest_malformed_refused(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_future future,
                                 bool counted);
/* One more event of the stream is held: decides if the held events suffice for it. */
void fr_ingest_malformed_held(struct fr_ingest *ingest, const struct fr_stream *stream);
/* Decides if held events have waited long enough. */
void fr_ingest_malformed_decide_due(struct fr_ingest *ingest, uint64_t now_ns);
/* The sink is full of letters that are withheld. */
void fr_ingest_malformed_full(struct fr_ingest *ingest, const struct fr_stream *stream);
/* Writes share, pause and the problem of records to the status, and what is due to the log. */
void fr_ingest_malformed_status(struct fr_ingest *ingest, struct fr_ingest_status *status);
/* Whether, in lockstep, the open batch of one lane waits for a first good record. */
bool fr_ingest_malformed_holds(struct fr_ingest *ingest);
/* FR_AGAIN: reading is paused; FR_E_INVALID: the same in a bounded run, which ends. */
enum fr_status fr_ingest_malformed_pauses(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
/* A bounded run is at its end. FR_E_INVALID: nothing that it read was good. */
enum fr_status fr_ingest_malformed_end(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;

/* ---- clocks.c ---- */

void fr_clocks_init(struct fr_clock_watch *watch, const struct fr_clock *clock, int64_t epoch_wall_ms);
/* Reads the clock, and how far it is behind its own past. */
void fr_clocks_read(struct fr_ingest *ingest);
/* A record of this Kafka timestamp, received at this time of the clock, is good. */
void fr_clocks_agree(struct fr_ingest *ingest, int64_t timestamp_ms, int64_t received_ms);
/* Reads the clock. True: two witnesses contradict it: the record in `event`, whose event time t_ms
 * the clock refuses, and the clock's own past or the broker's clock; `who` names the clocks. */
bool fr_clocks_behind(struct fr_ingest *ingest, int64_t t_ms, char *who, size_t size);
/* Writes a span in the unit that a person would choose: "3 h", "90 s". Returns text. */
const char *fr_clocks_span(int64_t ms, char *text, size_t size);
enum { FR_CLOCKS_UTC_MAX = 32 };
/* Writes a wall time as UTC in RFC 3339, without fractions of a second. Returns text. */
const char *fr_clocks_utc(int64_t wall_ms, char text[FR_CLOCKS_UTC_MAX]);

/* ---- held.c ---- */

static inline bool fr_held_replays(const struct fr_ingest *ingest)
{
    return ingest->held.state != FR_HELD_WAITS;
}
/* Lets the held events take effect from now on, if there are any. */
static inline void fr_held_replay(struct fr_ingest *ingest)
{
    ingest->held.state = ingest->held.n ? FR_HELD_REPLAYS : FR_HELD_WAITS;
}
/* Holds the event, and releases it if it is a record. `again`: the event was held before, so that
 * its waiting time does not begin again. */
void fr_held_push(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event, bool again);
/* Whether a record of this size alone is as much as may be held. */
bool fr_held_is_filled_by(size_t size);
bool fr_held_is_full(const struct fr_ingest *ingest);
/* Drops the stream's held events, because they are read again from its position. Must not be called
 * while held events take effect. */
void fr_held_forget(struct fr_ingest *ingest, struct fr_stream *stream);
/* Gets the next held event as if it were read now; false: there is none. */
bool fr_held_next(struct fr_ingest *ingest, struct fr_stream **stream, struct fr_source_event *out);
/* Gets the parts of the held record that is pending. */
void fr_held_parts(const struct fr_ingest *ingest, struct fr_record_header *headers, struct fr_record_parts *out);
void fr_held_release(struct fr_held_queue *held);

/* ---- ingest_status.c ---- */

/* Publishes what other threads see from now on, and logs when brokers are lost or found. */
void fr_ingest_publish_status(struct fr_ingest *ingest);

/* ---- letters.c ---- */

/* Gets what a letter repeats of a record of the stream's source; borrowed until the record's
 * release. */
struct fr_record_parts fr_letter_parts(const struct fr_stream *stream, const struct fr_source_event *event,
                                       struct fr_record_header headers[static FR_SOURCE_HEADERS_MAX]);
/* Sends the pending record to the dead letters for `reason`. FR_AGAIN: no room. */
enum fr_status fr_letter_send(struct fr_ingest *ingest, const char *reason) FR_MUST_CHECK;
/* Whether the open batch has room for the pending record's bytes. */
bool fr_letter_fits(struct fr_ingest *ingest);
/* Adds the bytes of the pending record to the open batch, before `count` of its samples are. */
void fr_letter_keep(struct fr_ingest *ingest, uint32_t count);

#endif
