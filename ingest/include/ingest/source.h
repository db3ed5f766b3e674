/* Function tables for a source of records and for a sink of refused ones: Kafka in production
 * (ingest/README.md says how), a list in memory in tests and simulation.
 *
 * A source knows topic-partitions by their index in its layout, which only grows. Thread: the
 * ingest thread calls a source; a dead-letter sink may be given letters and asked for
 * `acknowledged` by any thread, the rest is the ingest thread's. */
#ifndef FR_INGEST_SOURCE_H
#define FR_INGEST_SOURCE_H

#include "base/clock.h"
#include "batch/records.h"
#include "conf/conf.h"
#include "ingest/positions.h"

struct fr_source_partition {
    char topic[FR_TOPIC_MAX];
    int32_t partition;
};

/* The answer of a source about a partition. */
struct fr_source_answer {
    uint32_t partition; /* index in the layout */
    /* FR_EOF: there is none; FR_E_NOT_FOUND: nor the topic; FR_E_UNAVAILABLE, FR_E_DENIED: not
     * known */
    enum fr_status status;
    const char *why; /* of the last three; static */
    int64_t offset;
    bool in_passing;      /* nothing waits for the answer */
    int64_t timestamp_ms; /* of the record there, and of its value */
    uint32_t crc32c;
};

/* In place of a time. STABLE is where the first open transaction begins, or else LATEST. */
enum { FR_SOURCE_LATEST = -1, FR_SOURCE_EARLIEST = -2, FR_SOURCE_STABLE = -3 };

struct fr_source_layout {
    char cluster_id[FR_CLUSTER_ID_MAX]; /* empty: the broker did not say */
    uint32_t n_partitions;
    /* the source's, until its next call of `discover` */
    const struct fr_source_partition *partitions;
};

enum fr_source_event_kind {
    FR_SOURCE_RECORD,
    /* everything below `offset` was delivered or is no record (transaction markers, aborted,
     * compacted away) */
    FR_SOURCE_END,
    FR_SOURCE_RESET, /* the asked offset is not in the log (any more) */
    /* reading this partition failed (topic deleted, access denied, check sum): look again, then
     * begin again; text says why */
    FR_SOURCE_BROKEN,
    /* as FR_SOURCE_END, and no more will come */
    FR_SOURCE_FINISHED,
    /* Contact was lost for a while: what is given next may be of another log. All partitions are to
     * be asked about before the next `poll`. */
    FR_SOURCE_GAP,
    /* Likewise, and what was fetched is dropped: halt all partitions, ask, and begin again. */
    FR_SOURCE_CONNECTED,
    /* Another broker gives this partition: halt it, ask, and begin again. */
    FR_SOURCE_MOVED,
};

struct fr_source_event {
    enum fr_source_event_kind kind;
    uint32_t partition; /* index in the layout */
    int64_t offset;
    int64_t timestamp_ms;    /* <= 0: none */
    bool of_broker;          /* by the broker's clock (LogAppendTime), not the producer's */
    const void *value, *key; /* borrowed until `release`; NULL: null */
    size_t size, key_size;
    /* a line longer than record_max: no value; size and crc32c are those of the whole line */
    bool withheld;
    uint32_t crc32c; /* of a withheld value */
    void *handle;    /* the source's own */
    char text[256];
};

enum {
    FR_SOURCE_HEADERS_MAX = 1024
}; /* of one record that a dead letter repeats; more are cut (counted in the letter's reason) */

/* Files answer no questions about a log (offsets, marks, checked, commit, high,
 * connected) and have nothing to release: those are NULL. */
struct fr_source {
    void *self;
    /* Topics' partitions now. FR_E_UNAVAILABLE: broker not reachable or topic absent;
     * FR_E_DENIED. */
    enum fr_status (*discover)(void *self, struct fr_source_layout *out, struct fr_err *err);
    /* Of n partitions at once: the first offset of the log (EARLIEST), the one after its last
     * record, in an open transaction or not (LATEST), the one after the last record that can be
     * read (STABLE), or that of the first record whose timestamp is `when` or later (FR_EOF: there
     * is none so late). Each answer has a status of its own. FR_E_UNAVAILABLE:
     * nothing can be asked. */
    enum fr_status (*offsets)(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                              struct fr_err *err);
    /* Timestamp and CRC32C of the records at the very offsets in the answers (FR_EOF: there is
     * none, but a marker, or it was compacted away). Likewise. */
    enum fr_status (*marks)(void *self, struct fr_source_answer *answers, uint32_t n, struct fr_err *err);
    /* Checks that all topics keep their records until they are too old or too many. FR_E_MISMATCH:
     * a topic is compacted. NULL, or FR_OK without an answer: not known. */
    enum fr_status (*policies)(void *self, struct fr_err *err);
    /* The checks are over: what they needed may be closed. `all`: every partition that is read, or
     * begins now, was asked about, so no silence before matters any more. */
    void (*checked)(void *self, bool all);
    /* From now on `poll` gives this partition's records from `offset` on; halt ends that. */
    enum fr_status (*begin)(void *self, uint32_t partition, int64_t offset, struct fr_err *err);
    void (*halt)(void *self, uint32_t partition);
    /* FR_OK: an event, to be released; FR_AGAIN: nothing within wait_ms. FR_E_IO, FR_E_CORRUPT: a
     * file cannot be read on. partition < 0: any; otherwise that one (the source was opened for
     * that). */
    enum fr_status (*poll)(void *self, int64_t partition, int wait_ms, struct fr_source_event *out, struct fr_err *err);
    /* Reports that the caller is alive, although it may not poll for long: called at every step,
     * each of which takes a fraction of a second. NULL: not needed. */
    void (*rest)(void *self);
    void (*release)(void *self, struct fr_source_event *event);
    /* Headers of a record, borrowed until its release; returns how many it has, at most `capacity`
     * are written. */
    size_t (*headers)(void *self, const struct fr_source_event *event, struct fr_record_header *out, size_t capacity);
    /* Tells the consumer group how far durable state is (lag tools); best effort, does not
     * block. */
    void (*commit)(void *self, const struct fr_positions *positions);
    /* End of the log as last seen without asking; -1 unknown. */
    int64_t (*high)(void *self, uint32_t partition);
    /* Whether brokers answer; otherwise why not, in problem. */
    bool (*connected)(void *self, char *problem, size_t size);
    void (*close)(void *self);
};

struct fr_dead_letter {
    const char *topic; /* of the record */
    int32_t partition;
    int64_t offset;
    const char *reason;
    struct fr_record_parts parts;
};

struct fr_dead_counts {
    uint64_t sent;   /* acknowledged by the broker */
    uint64_t failed; /* attempts that were refused or timed out; each is tried again */
    /* sent without the original bytes because the broker refuses the size */
    uint64_t without_value;
};

struct fr_dead_sink {
    void *self;
    /* Looks for the topic, creates it when missing; what cannot be done is logged, not an error. */
    void (*prepare)(void *self);
    /* Copies and keeps the letter until it is acknowledged. Letters are numbered 1, 2, ... in the
     * order of these calls, from any thread; *number is this one's. FR_AGAIN: too
     * many wait already, and a short wait (at most 50 ms) did not help. */
    enum fr_status (*send)(void *self, const struct fr_dead_letter *letter, uint64_t *number);
    uint64_t (*acknowledged)(void *self); /* all letters up to this number are; any thread */
    void (*counts)(void *self, struct fr_dead_counts *out);
    bool (*healthy)(void *self, char *problem, size_t size); /* false: letters wait, and why */
    void (*close)(void *self);
    /* While on, letters are kept and none is sent; NULL: it cannot. */
    void (*withhold)(void *self, bool on);
};

/* The sink of a daemon without brokers: dead_letters.jsonl in the state directory, a line
 * {"topic", "partition", "offset", "reason", "value" or "hex"} each. FR_E_LIMIT: its path is too
 * long. */
enum fr_status fr_ingest_file_dead(const struct fr_conf *conf, const struct fr_clock *clock, struct fr_dead_sink *out,
                                   struct fr_err *err) FR_MUST_CHECK;

#endif
