/* Ingest: makes batches in a bounded ring from sample records of files, then of Kafka topics
 * (docs/architecture.md, "One sample's life"; docs/formats/samples.md).
 *
 * Every partition of every topic is read from the position kept with the model, with one plain poll
 * for each record. Offsets below the expected one are dropped (duplicates of the client library);
 * missing offsets are those of transaction markers and of compacted records.
 *
 * Malformed records and those too far in the future go to the dead-letter topic when they are
 * decoded. The future begins at the Kafka timestamp and, except in lockstep, also at the wall
 * clock. Dead letters are numbered, and a batch has the number that its positions depend on.
 *
 * A full ring stops polling. Offsets of the group `freshet.<model>` are committed for lag tools
 * only and never read.
 *
 * Live, a batch closes at batch_size samples, at fewer while the history is short (batch_warmup),
 * or batch_wait after its first record.
 *
 * In lockstep, a batch has lockstep.records records of each partition in (topic, partition) order,
 * or as many lines of one file, up to end offsets that are fixed before the first poll (the caller
 * keeps them: end_offsets). There is no timer. A round is cut short at 65536 samples; the next
 * begins at the first partition again, so it still is a function of positions and log alone. While
 * batch_warmup requires less than batch_size, a batch is as small as live, and the next record
 * comes from the partition that has delivered the fewest.
 *
 * With scale.domains above 1 the samples of a batch lie lane by lane (batch/batch.h). The lane of
 * partition p is p mod domains, that of a file a hash of its path mod domains. In lockstep batch k
 * is piece k of each lane: what the rules above give for the lane's partitions and files alone,
 * with all limits divided by the number of lanes.
 *
 * --until end and lockstep end with one more batch, which has no samples and has end_of_stream.
 *
 * Thread: the ingest thread calls fr_ingest_step, any thread status, commit and acknowledged. */
#ifndef FR_INGEST_INGEST_H
#define FR_INGEST_INGEST_H

#include "base/clock.h"
#include "base/ring.h"
#include "batch/batch.h"
#include "decode/decoder.h"
#include "ingest/source.h"

struct fr_ingest;

/* A requested range of offsets to pass over; kept with the positions from the first batch on. */
struct fr_ingest_skip {
    char topic[FR_TOPIC_MAX];
    int32_t partition;
    struct fr_skip range;
};

struct fr_ingest_options {
    const struct fr_conf *conf; /* borrowed */
    const struct fr_clock *clock;
    const struct fr_positions *positions; /* restored; copied; empty at first start */
    struct fr_ring *full;                 /* batches for the owner loop; fr_ingest pushes */
    /* batches to fill (fr_batch_new by the caller); fr_ingest pops */
    struct fr_ring *empty;
    /* --until end, --until TIME, or lockstep: stop at the end offsets */
    bool until_end;
    /* --until TIME: ends are the first records with this Kafka timestamp or a later one; 0: the end
     * of each log */
    int64_t until_ms;
    /* Lockstep and --until end: end offsets that were fixed earlier, "topic partition end\n" lines;
     * NULL: they are asked for now and given to `fix_end`, which stores and syncs them before the
     * first poll. */
    const char *end_offsets;
    enum fr_status (*fix_end)(void *self, const char *text, size_t size, struct fr_err *err);
    void *fix_end_self;
    /* Ranges to pass over in addition to those of `positions`, borrowed; fr_ingest_start refuses a
     * range that cannot be passed over. */
    const struct fr_ingest_skip *skips;
    size_t n_skips;
    /* Only lanes [lane_first, lane_end) are read, and streams of other lanes are not opened; 0, 0:
     * all lanes. In lockstep the batches then consist of the pieces of these lanes. */
    uint32_t lane_first, lane_end;
    /* What this host's clock showed when the newest epoch of the restored state was cut; 0: not
     * known. */
    int64_t epoch_wall_ms;
    /* Both NULL: Kafka as the conf says. Otherwise borrowed, not closed by fr_ingest_free. */
    const struct fr_source *source;
    const struct fr_dead_sink *dead_sink;
};

/* Reports every problem of ingest's Kafka clients without connecting. place: file:line:column of
 * the property, or NULL. */
void fr_ingest_report(const struct fr_conf *conf, void (*problem)(void *self, const char *place, const char *text),
                      void *self);
/* The version of librdkafka that runs. */
const char *fr_ingest_kafka_version(void);

/* Reads `topic:partition:first-last`; false with the reason in err. */
bool fr_ingest_skip_parse(const char *text, struct fr_ingest_skip *out, struct fr_err *err) FR_MUST_CHECK;

enum fr_status fr_ingest_new(const struct fr_ingest_options *options, struct fr_ingest **out,
                             struct fr_err *err) FR_MUST_CHECK;
void fr_ingest_free(struct fr_ingest *ingest);

/* Makes the start check: metadata, cluster id, positions against the first and last offsets of the
 * logs, and fingerprints. Live, it succeeds if a part of the partitions can be read; fr_ingest_step
 * checks the others again. Creates the dead-letter topic if it is missing. On success all that can
 * be read is being read. Errors: FR_E_UNAVAILABLE, a broker cannot be reached or a topic is absent,
 * and the caller repeats the call with a back-off; FR_E_LOST, the log lost records and on_loss is
 * stop; FR_E_MISMATCH, another topic has the same name (fingerprint, cluster id), or a range to
 * skip is not ahead of its position; FR_E_INVALID, a range names a partition that is not read. err
 * has the reason and the remedy. */
enum fr_status fr_ingest_start(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;

/* Completes the list of topic-partitions that stream_index of the batches refers to: it appends
 * those that `positions` lacks, with the offset where reading begins, and fills in the cluster id
 * and skipped ranges. The owner calls it before fr_positions_apply of every batch, because
 * partitions may be added to a topic at any time; it is cheap when nothing is new. Any thread;
 * `positions` must come from the positions given in the options and earlier calls. */
void fr_ingest_adopt(struct fr_ingest *ingest, struct fr_positions *positions);

/* Reads for at most wait_ms. FR_EOF: everything was delivered (the end_of_stream batch was pushed),
 * or a ring was closed; FR_AGAIN: nothing came, or the ring is full. After FR_E_LOST,
 * FR_E_MISMATCH, FR_E_CORRUPT, FR_E_IO or FR_E_INVALID (a file) the owner must stop. Unreachable
 * brokers, denied access and absent files are no errors here: status.problem reports them, and
 * reading continues when it can. */
enum fr_status fr_ingest_step(struct fr_ingest *ingest, int wait_ms, struct fr_err *err) FR_MUST_CHECK;

/* Replaces fr_ingest_step when nothing is read any more (a drain, the end of a run): commits
 * positions to the group and publishes the status. Nothing is polled, and no batch is filled or
 * pushed. */
void fr_ingest_serve(struct fr_ingest *ingest);

/* Returns the number up to which the broker has acknowledged all dead letters. */
uint64_t fr_ingest_dead_acknowledged(struct fr_ingest *ingest);
/* Sends the letters that lockstep withholds until a first record is good; an epoch waits for them.
 * Any thread. */
void fr_ingest_release_letters(struct fr_ingest *ingest);
/* Sends a record of a batch to the dead letters, because some of its samples are unfit to train for
 * `reason`; the record still counts as decoded. A record has one letter in a run: *number is 0 if
 * it had one with an earlier batch, otherwise the letter's number, to be compared with
 * fr_ingest_dead_acknowledged. FR_AGAIN: too many letters wait. Letters that are not acknowledged
 * are still sent after the last fr_ingest_step, until fr_ingest_free. Thread: the owner loop, with
 * a batch of this ingest. */
enum fr_status fr_ingest_dead_letter(struct fr_ingest *ingest, const struct fr_batch *batch,
                                     const struct fr_batch_record *record, const char *reason,
                                     uint64_t *number) FR_MUST_CHECK;
/* Hands a copy of durable positions to the ingest thread, which commits them to the group
 * asynchronously (best effort), once a second at most. */
void fr_ingest_commit(struct fr_ingest *ingest, const struct fr_positions *positions);

struct fr_ingest_partition {
    char topic[FR_TOPIC_MAX];
    int32_t partition;
    int64_t next_offset; /* next to poll; -1: not known yet */
    bool waits;          /* cannot be read now, and is checked again */
    int64_t high;        /* end of the log as last seen; -1 unknown */
    /* how long its next record has waited for a producer's open transaction; 0: it does not */
    int64_t transaction_ms;
};

/* A malformed record. */
struct fr_ingest_refusal {
    char topic[FR_TOPIC_MAX];
    int32_t partition;
    int64_t offset;
    enum fr_malformed kind;
    char reason[512];
};

enum { FR_PROBLEM_MAX = 600 };

/* What can be wrong with reading, several at once: names for /status, in the order in which one of
 * them is `problem`. */
#define FR_INGEST_PROBLEMS(X)                                                                                          \
    X(BROKERS, "brokers")                   /* none is connected */                                                    \
    X(STREAMS, "streams")                   /* partitions or files that cannot be read now */                          \
    X(DEAD_LETTER_SINK, "dead_letter_sink") /* dead letters wait */                                                    \
    X(TRANSACTIONS, "transactions")         /* records wait for a producer's open transaction */                       \
    X(RECORDS, "records")                   /* many records are malformed, or ahead of a clock */
enum fr_ingest_problem {
#define FR_INGEST_PROBLEM_ENUM(name, text) FR_INGEST_PROBLEM_##name,
    FR_INGEST_PROBLEMS(FR_INGEST_PROBLEM_ENUM)
#undef FR_INGEST_PROBLEM_ENUM
        FR_INGEST_PROBLEM_KINDS
};
extern const char *const fr_ingest_problems[FR_INGEST_PROBLEM_KINDS];

/* Why reading is paused. RECORDS: all records are refused, as malformed or for event times that are
 * ahead of their Kafka timestamps. CLOCK: for event times that are ahead of this host's clock;
 * reading continues by itself when the clock accepts them. */
enum fr_ingest_pause { FR_INGEST_READS, FR_INGEST_PAUSED_RECORDS, FR_INGEST_PAUSED_CLOCK };

struct fr_ingest_status {
    uint32_t n_partitions;
    struct fr_ingest_partition *partitions; /* owned by the status: fr_ingest_status_release */
    uint32_t n_slots;
    uint64_t *present; /* owned by the status: samples of this process with a value, by slot */
    struct fr_unknown unknown;
    uint64_t records, bytes, samples, batches;
    uint64_t malformed, dead_sent, dead_failed, dead_without_value;
    uint64_t malformed_kinds[FR_MALFORMED_KINDS];
    struct fr_ingest_refusal last_malformed; /* meaningful once `malformed` is above 0 */
    double malformed_share;                  /* of the records of the last minute */
    enum fr_ingest_pause pause;              /* `problem` says more */
    /* records refused for an event time too far ahead of the Kafka timestamp, or of this host's
     * clock */
    uint64_t future_timestamp, future_clock;
    uint64_t dropped_duplicates;
    uint64_t record_bytes; /* memory of batches for their records' bytes (letters.c) */
    uint64_t ring_full_ns; /* time spent with a full ring */
    /* Wall time minus the Kafka timestamp of the last delivered record (files: its event time). 0
     * if every partition is read to its end; if only open transactions keep records back, how long
     * the oldest has. */
    int64_t lag_ms;
    bool at_end; /* every partition is read to its end, none waits for a transaction */
    bool connected;
    /* none of the partitions, or not the file, that are next in order can be read, or a topic is
     * gone */
    bool stands;
    char problems[FR_INGEST_PROBLEM_KINDS][FR_PROBLEM_MAX]; /* "": none of the kind */
    /* The problem that is shown first: RECORDS while reading is paused, because an operator must
     * act then, otherwise the first one of the list; "": none. */
    char problem[FR_PROBLEM_MAX];
    enum fr_ingest_problem first; /* kind of `problem`; meaningless if that is empty */
};
void fr_ingest_get_status(struct fr_ingest *ingest, struct fr_ingest_status *out);
void fr_ingest_status_release(struct fr_ingest_status *status);

#endif
