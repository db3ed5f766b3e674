/* Function tables for a source of records and for a sink of refused ones: Kafka in production
 * (ingest/README.md describes it), a list in memory in tests and simulation.
 *
 * A source identifies topic-partitions by their index in its layout, which only grows. Thread: the
 * ingest thread calls a source; any thread may call `send` and `acknowledged` of a dead-letter
 * sink, and the ingest thread calls its other functions. */
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

/* A question about a partition, and the answer of the source. */
struct fr_source_answer {
    uint32_t partition; /* index in the layout */
    /* FR_EOF: there is no such record or offset; FR_E_NOT_FOUND: there is no such topic;
     * FR_E_UNAVAILABLE, FR_E_DENIED: no answer */
    enum fr_status status;
    const char *why; /* why there is none, with one of these three errors; static */
    int64_t offset;
    bool in_passing;      /* nothing waits for the answer, so the limits of a question are short */
    int64_t timestamp_ms; /* timestamp of the record at the offset */
    uint32_t crc32c;      /* checksum of the value of that record */
};

/* Values in place of a time. STABLE is the beginning of the first open transaction, or LATEST if no
 * transaction is open. */
enum { FR_SOURCE_LATEST = -1, FR_SOURCE_EARLIEST = -2, FR_SOURCE_STABLE = -3 };

struct fr_source_layout {
    char cluster_id[FR_CLUSTER_ID_MAX]; /* empty: the broker did not report it */
    uint32_t n_partitions;
    /* owned by the source; valid until the next call of `discover` */
    const struct fr_source_partition *partitions;
};

enum fr_source_event_kind {
    FR_SOURCE_RECORD,
    /* everything below `offset` was delivered or is no record (transaction markers, aborted or
     * compacted records) */
    FR_SOURCE_END,
    FR_SOURCE_RESET, /* the offset to read is not, or no longer, in the log */
    /* reading this partition failed (topic deleted, access denied, check sum) and `text` has the
     * reason: check the partition, then begin it again */
    FR_SOURCE_BROKEN,
    /* as FR_SOURCE_END, and the partition will give no more records */
    FR_SOURCE_FINISHED,
    /* contact was lost for a while, so the next records may be of another log: check all partitions
     * before the next `poll` */
    FR_SOURCE_GAP,
    /* as FR_SOURCE_GAP, and fetched records must be dropped: halt all partitions, check them,
     * and begin them again */
    FR_SOURCE_CONNECTED,
    /* another broker leads this partition: halt the partition, check it, and begin it again */
    FR_SOURCE_MOVED,
};

struct fr_source_event {
    enum fr_source_event_kind kind;
    uint32_t partition; /* index in the layout */
    int64_t offset;
    int64_t timestamp_ms; /* <= 0: none */
    /* the timestamp is from the broker's clock (LogAppendTime), not from the producer's */
    bool of_broker;
    const void *value, *key; /* borrowed until `release`; NULL: null */
    size_t size, key_size;
    /* a line longer than record_max: no value; size and crc32c are those of the whole line */
    bool withheld;
    uint32_t crc32c; /* checksum of a withheld value */
    void *handle;    /* belongs to the source */
    char text[256];  /* of FR_SOURCE_BROKEN and FR_SOURCE_RESET; may be empty */
};

/* headers of one record that a dead letter repeats; further headers are left out */
enum { FR_SOURCE_HEADERS_MAX = 1024 };

/* Files answer no questions about a log and have nothing to release: offsets, marks, checked,
 * release, commit, high and connected are NULL. */
struct fr_source {
    void *self;
    /* Gets the present partitions of the topics. FR_E_UNAVAILABLE: a broker cannot be reached or a
     * topic is absent; FR_E_DENIED. */
    enum fr_status (*discover)(void *self, struct fr_source_layout *out, struct fr_err *err);
    /* Gets an offset of n partitions at once: the first offset of the log (EARLIEST), the offset
     * after its last record, whether in an open transaction or not (LATEST), the offset after
     * the last record that can be read (STABLE), or the offset of the first record whose
     * timestamp is `when` or later (FR_EOF: no record has such a timestamp). Each answer has a
     * status of its own. FR_E_UNAVAILABLE: nothing can be asked. */
    enum fr_status (*offsets)(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                              struct fr_err *err);
    /* Gets timestamp and CRC32C of the records at exactly the offsets in the answers (FR_EOF: there
     * is a marker, or the record was compacted away). Statuses are those of `offsets`. */
    enum fr_status (*marks)(void *self, struct fr_source_answer *answers, uint32_t n, struct fr_err *err);
    /* Checks that all topics keep their records until they are too old or too many. FR_E_MISMATCH:
     * a topic is compacted. NULL, or FR_OK without an answer: not known. */
    enum fr_status (*policies)(void *self, struct fr_err *err);
    /* Reports that the checks are over, so that what they needed may be closed. `all`: every
     * partition that is read, or begins now, was checked, so earlier silence no longer counts. */
    void (*checked)(void *self, bool all);
    /* Lets `poll` give this partition's records from `offset` on, until `halt`. */
    enum fr_status (*begin)(void *self, uint32_t partition, int64_t offset, struct fr_err *err);
    void (*halt)(void *self, uint32_t partition);
    /* Gets the next event. FR_OK: an event, which the caller releases; FR_AGAIN: nothing within
     * wait_ms; FR_E_IO, FR_E_CORRUPT: a file cannot be read any further. partition < 0: of any
     * partition; otherwise of that one, if the source was opened per partition. */
    enum fr_status (*poll)(void *self, int64_t partition, int wait_ms, struct fr_source_event *out, struct fr_err *err);
    /* Reports that the caller is alive, although it may not poll for long: called at every step,
     * each of which takes a fraction of a second. NULL: not needed. */
    void (*rest)(void *self);
    void (*release)(void *self, struct fr_source_event *event);
    /* Gets the headers of a record, borrowed until its release. Returns how many it has; writes at
     * most `capacity`. */
    size_t (*headers)(void *self, const struct fr_source_event *event, struct fr_record_header *out, size_t capacity);
    /* Commits durable positions to the consumer group, for lag tools; best effort, does not
     * block. */
    void (*commit)(void *self, const struct fr_positions *positions);
    /* Returns the end of the log as last seen, without a question; -1: unknown. */
    int64_t (*high)(void *self, uint32_t partition);
    /* Whether brokers answer; otherwise why not, in problem. */
    bool (*connected)(void *self, char *problem, size_t size);
    void (*close)(void *self);
};

struct fr_dead_letter {
    const char *topic; /* topic of the refused record */
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
    /* Looks for the topic and creates it if it is missing. A failure is logged, and no error. */
    void (*prepare)(void *self);
    /* Copies the letter and keeps it until it is acknowledged. Letters are numbered 1, 2, ... in
     * the order of these calls, from any thread; *number gets the letter's number. FR_AGAIN: too
     * many letters wait already, and a short wait (at most 50 ms) did not help. */
    enum fr_status (*send)(void *self, const struct fr_dead_letter *letter, uint64_t *number);
    uint64_t (*acknowledged)(void *self); /* all letters up to this number are; any thread */
    void (*counts)(void *self, struct fr_dead_counts *out);
    /* false: letters wait, and `problem` has the reason */
    bool (*healthy)(void *self, char *problem, size_t size);
    void (*close)(void *self);
    /* While on, letters are kept and none is sent. NULL: the sink has no such mode. */
    void (*withhold)(void *self, bool on);
};

/* The sink of a daemon without brokers: dead_letters.jsonl in the state directory, a line
 * {"topic", "partition", "offset", "reason", "value" or "hex"} each. FR_E_LIMIT: its path is too
 * long. */
enum fr_status fr_ingest_file_dead(const struct fr_conf *conf, const struct fr_clock *clock, struct fr_dead_sink *out,
                                   struct fr_err *err) FR_MUST_CHECK;

#endif
