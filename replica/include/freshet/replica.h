/* libfreshet_replica is the served copy of a Freshet model, with a C ABI and without Kafka or
 * RocksDB. One thread feeds it the records of the delta topic in partition order; any number of
 * threads ask for rows and scores meanwhile, each through a reader of its own (freshet/reader.h).
 *
 * struct freshet_replica *r; freshet_replica_new(&(struct freshet_replica_options){0}, &r); for
 * each record of the topic:  freshet_replica_feed(r, partition, value, size, &event);
 * freshet_replica_score_json(r, line, strlen(line), scores, &n_samples);
 *
 * Rules (docs/formats/deltas.md, "Replica rules"): an epoch is served only when every followed
 * partition has completed it, all at once; duplicates are dropped; every gap, second writer, bad
 * crc and unknown fingerprint is detected and reported, never applied.
 *
 * Thread: the functions of this header are one thread's, the feeder's; those of readers are theirs.
 * Neither waits for the other. Owns: all memory behind the handle. Memory that is refused ends no
 * process: the call says FRESHET_E_NO_MEMORY. (OpenBLAS takes its own work space, of a fixed size,
 * at the first score.) */
#ifndef FRESHET_REPLICA_H
#define FRESHET_REPLICA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FRESHET_API __attribute__((visibility("default")))

struct freshet_replica;

struct freshet_replica_options {
    const uint32_t *partitions; /* delta partitions to follow, 0 is always added; NULL: all */
    size_t n_partitions;
    const char *model;    /* expected model name; NULL: that of the first record */
    uint64_t staging_max; /* bytes held of epochs that are not complete yet; 0: 1 GiB */
    /* The daemon's folder of snapshots, or a copy: a gap or a rewind is met by loading the one that
     * its file CURRENT names (freshet_replica_load). NULL: none. */
    const char *snapshots;
};

enum freshet_status {
    FRESHET_OK = 0,
    /* not taken: other partitions lag too far behind; feed those first, then this record again */
    FRESHET_AGAIN = 2,
    FRESHET_E_INVALID = -1,
    /* memory was refused: nothing has changed; the same call may succeed when there is more */
    FRESHET_E_NO_MEMORY = -3,
    FRESHET_E_IO = -4,      /* a file of a snapshot could not be read */
    FRESHET_E_CORRUPT = -6, /* a file of a snapshot is not what its manifest says */
    FRESHET_E_NOT_FOUND = -7,
    FRESHET_E_MISMATCH = -12, /* two writers, another model: stopped for good */
    /* pieces or epochs missing: stopped until a snapshot is loaded or an epoch merged from the
     * first comes */
    FRESHET_E_GAP = -20,
    FRESHET_E_NOT_READY = -21, /* nothing applied yet */
    /* history was rewound: load the snapshot named in `problem`; stopped until then */
    FRESHET_E_REWIND = -22,
};

/* The version of the library, such as "0.1.0". Thread: any. */
FRESHET_API const char *freshet_version(void);

/* What one record did. */
struct freshet_event {
    int applied;   /* number of epochs that became served with this record (nearly always 0 or 1) */
    int duplicate; /* held already */
    /* of an older timeline, of an epoch applied before, or of a partition that is not followed */
    int stale;
    int refused; /* not applied, `problem` says why */
    /* A snapshot was loaded, and this record dropped: feed every partition again from
     * freshet_replica_next_offset on, or from anywhere before. */
    int reloaded;
    uint64_t timeline, epoch; /* served after this record */
    uint64_t record_epoch;
    char problem[256];
};

FRESHET_API int freshet_replica_new(const struct freshet_replica_options *options, struct freshet_replica **out);
/* Its readers are freed before it. NULL is nothing. */
FRESHET_API void freshet_replica_free(struct freshet_replica *replica);
/* The handle and its readers hold at most so many bytes from now on (0: what the system gives),
 * whatever the topic brings: what needs more ends in FRESHET_E_NO_MEMORY. Lower than what is held:
 * nothing more. */
FRESHET_API void freshet_replica_limit_memory(struct freshet_replica *replica, uint64_t bytes);
/* Takes one record. FRESHET_OK also stands for what is dropped by rule. E_INVALID for a damaged
 * record is no stop: the record was refused, and its epoch then ends in E_GAP.
 *
 * After E_GAP, E_MISMATCH, E_REWIND, or E_INVALID from a record that passed its crc but does not
 * fit the model, the replica keeps serving what it has and answers further records with the same
 * status. A gap, a rewind and an epoch that does not fit end when a snapshot is loaded, or when a
 * later epoch is complete that was merged from the first, or continues what was applied and comes
 * behind such a one (as when a topic is read again from its beginning): its records are taken.
 *
 * E_NO_MEMORY is no stop either: feed the same record again (a commit whose epoch found no room is
 * counted as a duplicate then, and applies).
 *
 * A rewind to 0 without a snapshot, in an epoch from 1, is no stop: the replica starts again and
 * keeps serving the old state until that epoch is complete. `event` may be NULL. */
FRESHET_API int freshet_replica_feed(struct freshet_replica *replica, uint32_t partition, const void *bytes,
                                     size_t size, struct freshet_event *event);

/* Loads a snapshot: what is served becomes its epoch, all at once, and the topic leads on from
 * there: feed each partition from freshet_replica_next_offset on, or from anywhere before.
 *
 * `directory` is a snapshot (it has a MANIFEST.json) or a folder of snapshots (its file CURRENT
 * names one). Only files of followed partitions are read, a record at a time, and nothing is served
 * before every sum fits. A replica that was stopped by a gap or a rewind continues; after a gap
 * that came because records were passed over it does so, once, also with the snapshot that it
 * serves already.
 *
 * Errors, told in `problem` (`room` bytes, NULL with 0): E_NOT_FOUND, E_IO, E_CORRUPT, E_INVALID
 * (it is not a snapshot of this format), E_MISMATCH (another model, other partitions), E_NO_MEMORY.
 * What was served before is served on. */
FRESHET_API int freshet_replica_load(struct freshet_replica *replica, const char *directory, char *problem,
                                     size_t room);
/* Says where to go on reading a partition after a load: the offset that the snapshot hints at; -1:
 * the first one there is. */
FRESHET_API int64_t freshet_replica_next_offset(const struct freshet_replica *replica, uint32_t partition);

struct freshet_replica_info {
    uint64_t timeline, epoch, digest, fp;
    int64_t watermark_ms;
    uint64_t samples;
    uint64_t rows;  /* all tables */
    uint32_t dense; /* parameters */
    uint32_t np;
    int scorable; /* model and all dense parameters are there */
    uint64_t epochs_applied, records, duplicates, refused;
    int64_t commit_wall_ms; /* `t` of the served epoch */
    int64_t freshness_ms;   /* the wall clock here minus that; 0 before an epoch is served */
    uint64_t newest_epoch;  /* of the records so far: newest_epoch - epoch is what it lags behind */
    uint64_t reloads;       /* snapshots loaded */
    uint64_t memory_bytes;  /* held by the handle and its readers */
};
FRESHET_API void freshet_replica_get_info(const struct freshet_replica *replica, struct freshet_replica_info *info);

/* These are the BLAS kernel the model was trained with (the model record's `kernel`; "" before the
 * first) and the one that scores here. With equal kernels scores are bit-equal to the daemon's,
 * else within 1e-5 in the logit; of a model trained in bf16 (a kernel "bf16 ..") they are those of
 * f32, some 1e-2 from the daemon's. */
FRESHET_API const char *freshet_replica_trained_kernel(const struct freshet_replica *replica);
FRESHET_API const char *freshet_replica_scoring_kernel(const struct freshet_replica *replica);

/* These are the number of tasks and their names ("" beyond). */
FRESHET_API uint32_t freshet_replica_tasks(const struct freshet_replica *replica);
FRESHET_API const char *freshet_replica_task_name(const struct freshet_replica *replica, uint32_t task);

/* What follows reads by the feeder's own reader, on the feeder's thread (freshet/reader.h has the
 * same for other threads).
 *
 * Both score the samples of one record of any form (sample, group, array, block); labels are not
 * needed. scores[sample * n_tasks + task] is a probability, of an mse task the prediction itself.
 * Shared slots of a group are looked up and computed once.
 *
 * *n_samples goes in as the number of samples that scores has room for, and comes out as that of
 * the record. Errors: E_NOT_READY; E_INVALID when the record does not decode
 * (freshet_replica_score_problem says why) or has more samples than room (*n_samples says how many,
 * and nothing was scored); E_NO_MEMORY. */
FRESHET_API int freshet_replica_score_json(struct freshet_replica *replica, const char *json, size_t size,
                                           float *scores, uint32_t *n_samples);
FRESHET_API int freshet_replica_score_msgpack(struct freshet_replica *replica, const void *bytes, size_t size,
                                              float *scores, uint32_t *n_samples);

/* Says why the last score call failed; "" after a success. */
FRESHET_API const char *freshet_replica_score_problem(const struct freshet_replica *replica);

/* Says how many values of the record scored last were ignored, because they came under the name of
 * a slot that the model does not have: a misspelled slot scores as an absent one. `names`, of
 * `room` bytes, NULL with 0, gets the first few such names of all records that the served model
 * has scored, with a space between two, cut to the room and terminated. */
FRESHET_API uint64_t freshet_replica_score_ignored(const struct freshet_replica *replica, char *names, size_t room);

/* These are the served model's tables, their parts and the parts' numbers of floats, in the model's
 * order ("" and 0 beyond, and before a model is there). An epoch with another model changes
 * them. */
FRESHET_API uint32_t freshet_replica_tables(const struct freshet_replica *replica);
FRESHET_API const char *freshet_replica_table_name(const struct freshet_replica *replica, uint32_t table);
FRESHET_API uint32_t freshet_replica_parts(const struct freshet_replica *replica, uint32_t table);
FRESHET_API const char *freshet_replica_part_name(const struct freshet_replica *replica, uint32_t table, uint32_t part);
FRESHET_API uint32_t freshet_replica_part_dim(const struct freshet_replica *replica, uint32_t table, uint32_t part);

/* Writes the values of one part of one row.
 *
 * *dim goes in as the number of floats that values has room for, and comes out as that of the part,
 * which the topic's model decides. Errors: E_NOT_READY; E_NOT_FOUND; E_INVALID when there is less
 * room (*dim says how much is needed, and nothing was written). */
FRESHET_API int freshet_replica_row(const struct freshet_replica *replica, const char *table, const char *part,
                                    uint64_t key, float *values, uint32_t *dim);

/* Writes the public dump (docs/commands.md, "freshet dump"): JSON Lines, tables by name, keys
 * ascending, then dense by name, then the closing line with the hash. `write` returns 0 to go on;
 * `hash` may be NULL. Errors: E_NOT_READY; E_NO_MEMORY; E_INVALID when `write` said so. */
FRESHET_API int freshet_replica_dump(const struct freshet_replica *replica,
                                     int (*write)(void *self, const void *bytes, size_t size), void *self,
                                     uint64_t *hash);

#ifdef __cplusplus
}
#endif

#endif
