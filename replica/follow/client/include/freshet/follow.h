/* libfreshet_follow is a thread that keeps a replica (freshet/replica.h) in step with a delta
 * topic, from a snapshot on where there is one, by librdkafka.
 *
 * struct freshet_follow *f; freshet_follow_start(&(struct freshet_follow_options){.brokers =
 * "kafka:9092", .topic = "ctr.delta"}, &f, problem, sizeof(problem)); then, in each serving thread,
 * a reader of its own: freshet_reader_new(freshet_follow_replica(f), &reader).
 *
 * It joins no consumer group and commits nothing. Outages of brokers, a topic that is not there
 * yet, refused memory, a gap or a rewind are waited out while the replica serves what it has: the
 * state tells the reason. Two writers, another model, or 100 refused records in a row end the
 * following for good.
 *
 * Thread: every function may be called by any thread; freshet_follow_stop once, by one. Owns: the
 * replica; its readers are freed before the stop. On stderr come errors of the connection alone. */
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
    const char *snapshots; /* the daemon's folder of snapshots or a copy; NULL: none */
    /* Expected; NULL: that of the first record, or of a snapshot that names this topic. A snapshot
     * that names another topic is loaded once a record, or this name, shows that it is of the
     * model. */
    const char *model;
    const uint32_t *partitions; /* to follow, 0 is always added; NULL: all */
    size_t n_partitions;
    uint64_t memory_max; /* bytes of the replica and its readers; 0: what the system gives */
    /* librdkafka properties: a file of NAME=VALUE lines, the place of passwords, and over these
     * "NAME=VALUE" each */
    const char *kafka_file;
    const char *const *properties;
    size_t n_properties;
};

/* Where the following stands. */
struct freshet_follow_state {
    int ended; /* it has stopped for good, `problem` says why */
    uint64_t timeline, epoch;
    /* Records that brokers reported and that are not read yet. UINT64_MAX: unknown, since the topic
     * is not open (at the start, and while brokers do not say where it ends). */
    uint64_t lag_records;
    int64_t freshness_ms; /* the wall clock minus that of the served epoch's cut; 0 before one */
    uint64_t reloads;     /* snapshots loaded */
    uint64_t memory_bytes;
    char problem[512]; /* the newest, until an epoch is served after it; "": none */
};

/* E_INVALID: no brokers or topic, a property that is unknown, partitions that cannot be;
 * E_NO_MEMORY. `problem` (`room` bytes, may be NULL with 0) says why. It loads the newest snapshot,
 * and waits for no broker. */
FRESHET_API int freshet_follow_start(const struct freshet_follow_options *options, struct freshet_follow **out,
                                     char *problem, size_t room);
/* Ends the thread and frees the replica. NULL is nothing. */
FRESHET_API void freshet_follow_stop(struct freshet_follow *follow);
/* Waits until an epoch of at least this number is served and scores can be asked for. timeout_ms <
 * 0: for ever. FRESHET_AGAIN: not in that time; E_MISMATCH: it ended (freshet_follow_get_state). */
FRESHET_API int freshet_follow_wait(struct freshet_follow *follow, uint64_t epoch, int timeout_ms);
/* Waits until all that the topic held when the call began is served: every followed partition is
 * read up to the end that brokers report after the call began, the newest epoch that is complete
 * there is served, and scores can be asked for. A process calls it once before it takes requests;
 * it may be called again, by several threads at once.
 *
 * FRESHET_AGAIN: not within timeout_ms (< 0: for ever). `problem` of the state says what is waited
 * for: brokers, a first epoch, or records that were deleted before they were read. What is served
 * meanwhile may be asked for. E_MISMATCH: the following ended. */
FRESHET_API int freshet_follow_wait_caught_up(struct freshet_follow *follow, int timeout_ms);
FRESHET_API void freshet_follow_get_state(struct freshet_follow *follow, struct freshet_follow_state *state);
/* For freshet_reader_new alone; whatever else feeds or reads by the handle is the thread's. */
FRESHET_API struct freshet_replica *freshet_follow_replica(struct freshet_follow *follow);

#ifdef __cplusplus
}
#endif

#endif
