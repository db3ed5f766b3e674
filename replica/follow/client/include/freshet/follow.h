/* libfreshet_follow runs a thread that keeps a replica (freshet/replica.h) in step with a delta
 * topic, starting from a snapshot where there is one. It reads the topic with librdkafka.
 *
 * Example: struct freshet_follow *f; freshet_follow_start(&(struct freshet_follow_options){.brokers
 * = "kafka:9092", .topic = "ctr.delta"}, &f, problem, sizeof(problem)); then, in each serving
 * thread, a reader of its own: freshet_reader_new(freshet_follow_replica(f), &reader).
 *
 * The thread joins no consumer group and commits nothing. It writes records only if the option
 * `acknowledge` is given: which epoch is served. It waits out outages of brokers, a topic that does
 * not exist yet, refused memory, gaps and rewinds; meanwhile the replica serves what it has and the
 * state reports the reason. Two writers, another model, or 100 refused records in a row end the
 * following for good.
 *
 * Thread: any thread may call every function; one thread calls freshet_follow_stop, once. Owns: the
 * replica; free its readers before the stop. Only connection errors are written to stderr. */
#ifndef FRESHET_FOLLOW_H
#define FRESHET_FOLLOW_H

#include "freshet/reader.h"

#ifdef __cplusplus
extern "C" {
#endif

struct freshet_follow;

/* Texts are borrowed during freshet_follow_start only. */
struct freshet_follow_options {
    const char *brokers, *topic;
    const char *snapshots; /* the daemon's snapshot folder or a copy; NULL: none */
    /* The expected model name. NULL: the name in the first record, or in a snapshot that names this
     * topic. A snapshot that names another topic is loaded after a record, or this name, shows that
     * it is of this model. */
    const char *model;
    /* the partitions to follow; partition 0 is always added; NULL: all */
    const uint32_t *partitions;
    size_t n_partitions;
    uint64_t memory_max; /* bytes of the replica and its readers; 0: whatever the system gives */
    /* Properties of librdkafka: a file of NAME=VALUE lines, which is the place for passwords, and
     * "NAME=VALUE" texts, which override the file. */
    const char *kafka_file;
    const char *const *properties;
    size_t n_properties;
    /* The name by which this replica says which epoch it serves, on the acknowledgement topic, so
     * that the daemon's /status shows it (docs/formats/acknowledgements.md). Each replica of a
     * model needs a name of its own, such as that of its host: at most 128 bytes of UTF-8 without
     * control characters. NULL: nothing is written. A topic that does not exist is not created. */
    const char *acknowledge;
    const char *acknowledgement_topic; /* NULL: <model>.ack */
};

/* Progress and health of the following. */
struct freshet_follow_state {
    int ended; /* 1 when the following has stopped for good; `problem` contains the reason */
    uint64_t timeline, epoch;
    /* Records that brokers reported and that are not read yet. UINT64_MAX: unknown, because the
     * topic is not open (at the start, and while brokers do not report where it ends). */
    uint64_t lag_records;
    /* the wall clock minus that of the served epoch's cut; 0 before an epoch is served */
    int64_t freshness_ms;
    uint64_t reloads; /* snapshots loaded */
    uint64_t memory_bytes;
    /* the newest problem; "" once an epoch is served after it, or when there was none */
    char problem[512];
    /* the newest epoch of which a broker has taken the acknowledgement; 0: none */
    uint64_t acknowledged_epoch;
};

/* Loads the newest snapshot and starts the thread; it does not wait for a broker. Errors: E_INVALID
 * (no brokers or topic, an unknown property, impossible partitions, a name that cannot be a
 * replica's); E_NO_MEMORY. `problem` (`room`
 * bytes; may be NULL with 0) receives the reason. */
FRESHET_API int freshet_follow_start(const struct freshet_follow_options *options, struct freshet_follow **out,
                                     char *problem, size_t room);
/* Ends the thread and frees the replica. NULL is allowed. */
FRESHET_API void freshet_follow_stop(struct freshet_follow *follow);
/* Waits until an epoch with at least this number is served and scores can be computed. timeout_ms <
 * 0 waits without limit. FRESHET_AGAIN: not within the timeout. E_MISMATCH: the following has ended
 * (freshet_follow_get_state has the reason). */
FRESHET_API int freshet_follow_wait(struct freshet_follow *follow, uint64_t epoch, int timeout_ms);
/* Waits until everything that the topic held when the call began is served: every followed
 * partition is read up to the end that brokers report after the call began, the newest epoch that
 * is complete there is served, and scores can be computed. A process calls it once before it takes
 * requests. It may be called again, and by several threads at the same time.
 *
 * FRESHET_AGAIN: not within timeout_ms (< 0: no limit). `problem` of the state names what is
 * missing: brokers, a first epoch, or records that were deleted before they were read. What is
 * served meanwhile may be read. E_MISMATCH: the following has ended. */
FRESHET_API int freshet_follow_wait_caught_up(struct freshet_follow *follow, int timeout_ms);
FRESHET_API void freshet_follow_get_state(struct freshet_follow *follow, struct freshet_follow_state *state);
/* Returns the replica, for freshet_reader_new only. Every other call that feeds the replica or
 * reads through its handle belongs to the following thread. */
FRESHET_API struct freshet_replica *freshet_follow_replica(struct freshet_follow *follow);

#ifdef __cplusplus
}
#endif

#endif
