/* libfreshet_replica holds the served copy of a Freshet model, with a C ABI and without Kafka or
 * RocksDB. One thread feeds it the records of the delta topic in partition order. Meanwhile any
 * number of threads may ask for rows and scores, each through a reader of its own
 * (freshet/reader.h).
 *
 * Example: struct freshet_replica *r; freshet_replica_new(&(struct freshet_replica_options){0},
 * &r); for each record of the topic: freshet_replica_feed(r, partition, value, size, &event); then
 * freshet_replica_score_json(r, line, strlen(line), scores, &n_samples);
 *
 * Rules (docs/formats/deltas.md, "Replica rules"): an epoch is served when every followed partition
 * has completed it, all at once. Duplicates are dropped. Every gap, second writer, bad crc and
 * unknown fingerprint is detected and reported, and never applied.
 *
 * Thread: the functions of this header belong to one thread, the feeder; a reader's functions
 * belong to the thread that uses the reader. Neither side waits for the other. Owns: all memory
 * that is reached through the handle. A refused allocation never ends the process: the call returns
 * FRESHET_E_NO_MEMORY. (Exception: OpenBLAS allocates its own work space, of a fixed size, at the
 * first score.) */
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
    /* delta partitions to follow; partition 0 is always added; NULL: all */
    const uint32_t *partitions;
    size_t n_partitions;
    const char *model;    /* the expected model name; NULL: the name in the first record */
    uint64_t staging_max; /* the most bytes held for epochs that are not complete yet; 0: 1 GiB */
    /* The daemon's snapshot folder, or a copy of it. After a gap or a rewind, the snapshot that its
     * file CURRENT names is loaded (freshet_replica_load). NULL: none. */
    const char *snapshots;
};

enum freshet_status {
    FRESHET_OK = 0,
    /* The record was not taken, because other partitions lag too far behind: feed those first, then
     * this record again. */
    FRESHET_AGAIN = 2,
    FRESHET_E_INVALID = -1,
    /* Memory was refused and nothing has changed. The same call may succeed when more memory is
     * available. */
    FRESHET_E_NO_MEMORY = -3,
    FRESHET_E_IO = -4,      /* a file of a snapshot could not be read */
    FRESHET_E_CORRUPT = -6, /* a file of a snapshot differs from its manifest */
    FRESHET_E_NOT_FOUND = -7,
    FRESHET_E_MISMATCH = -12, /* two writers, or another model: the handle is stopped for good */
    /* Pieces or epochs are missing: the handle is stopped until a snapshot is loaded or an epoch
     * merged from the first is complete. */
    FRESHET_E_GAP = -20,
    FRESHET_E_NOT_READY = -21, /* no epoch is applied yet */
    /* History was rewound: the handle is stopped until the snapshot that `problem` names is
     * loaded. */
    FRESHET_E_REWIND = -22,
};

/* The version of the library, such as "0.1.0". Thread: any. */
FRESHET_API const char *freshet_version(void);

/* The effect of one record. */
struct freshet_event {
    int applied;   /* number of epochs that became served with this record (nearly always 0 or 1) */
    int duplicate; /* the record is held already */
    /* The record was dropped: it is of an older timeline, of an epoch applied before, or of a
     * partition that is not followed. */
    int stale;
    int refused; /* the record was not applied; `problem` has the reason */
    /* A snapshot was loaded and this record was dropped. Feed every partition again from
     * freshet_replica_next_offset, or from any earlier offset. */
    int reloaded;
    uint64_t timeline, epoch; /* the epoch that is served after this record */
    uint64_t record_epoch;
    char problem[256];
};

FRESHET_API int freshet_replica_new(const struct freshet_replica_options *options, struct freshet_replica **out);
/* Free the readers of the handle first. NULL is allowed. */
FRESHET_API void freshet_replica_free(struct freshet_replica *replica);
/* From now on the handle and its readers hold at most `bytes` bytes (0: whatever the system
 * gives), whatever the topic brings. A call that needs more returns FRESHET_E_NO_MEMORY. If they
 * hold more than `bytes` already, they keep that memory and allocate nothing more. */
FRESHET_API void freshet_replica_limit_memory(struct freshet_replica *replica, uint64_t bytes);
/* Takes one record. FRESHET_OK is also returned for a record that a rule drops. E_INVALID for a
 * damaged record does not stop the replica: the record is refused, and its epoch then ends in
 * E_GAP.
 *
 * After E_GAP, E_MISMATCH, E_REWIND, or E_INVALID for a record that passed its crc but does not
 * fit the model, the replica keeps serving what it has and answers further records with the same
 * status. E_MISMATCH is permanent. The other three stops end in one of three ways: a snapshot is
 * loaded; a later epoch that was merged from the first is complete; or a later epoch is complete
 * that continues what was applied, and a merged epoch came before it in the same partitions (as
 * when a topic is read again from its beginning). The records of these epochs are taken while
 * the replica is stopped.
 *
 * E_NO_MEMORY does not stop the replica either: feed the same record again. (A commit whose epoch
 * found no room then counts as a duplicate, and its epoch is applied.)
 *
 * A rewind to 0 without a snapshot, in an epoch from 1, does not stop the replica: it starts again
 * and serves the old state until that epoch is complete. `event` may be NULL. */
FRESHET_API int freshet_replica_feed(struct freshet_replica *replica, uint32_t partition, const void *bytes,
                                     size_t size, struct freshet_event *event);

/* Loads a snapshot. The served state becomes the snapshot's epoch, all at once. The topic continues
 * from there: feed each partition from freshet_replica_next_offset, or from any earlier offset.
 *
 * `directory` is a snapshot (it contains MANIFEST.json) or a folder of snapshots (its file CURRENT
 * names one). Only the files of followed partitions are read, one record at a time, and nothing is
 * served before every sum matches. A replica that was stopped by a gap or a rewind continues. A gap
 * that arose because records were passed over is also ended, once, by the snapshot that is served
 * already.
 *
 * Errors, with the reason in `problem` (`room` bytes; NULL with 0): E_NOT_FOUND, E_IO, E_CORRUPT,
 * E_INVALID (not a snapshot of this format), E_MISMATCH (another model, other partitions),
 * E_NO_MEMORY. After an error the replica serves what it served before. */
FRESHET_API int freshet_replica_load(struct freshet_replica *replica, const char *directory, char *problem,
                                     size_t room);
/* Returns the offset at which to continue reading a partition after a load: the snapshot's hint, or
 * -1 for the first record of the partition. */
FRESHET_API int64_t freshet_replica_next_offset(const struct freshet_replica *replica, uint32_t partition);

struct freshet_replica_info {
    uint64_t timeline, epoch, digest, fp;
    int64_t watermark_ms;
    uint64_t samples;
    uint64_t rows;  /* rows of all tables */
    uint32_t dense; /* number of dense parameters */
    uint32_t np;
    int scorable; /* 1 when the model and all dense parameters are there */
    uint64_t epochs_applied, records, duplicates, refused;
    int64_t commit_wall_ms; /* `t` of the served epoch */
    /* the wall clock of this host minus commit_wall_ms; 0 before an epoch is served */
    int64_t freshness_ms;
    /* the newest epoch in any record so far; the replica lags by newest_epoch - epoch */
    uint64_t newest_epoch;
    uint64_t reloads;      /* snapshots loaded */
    uint64_t memory_bytes; /* held by the handle and its readers */
};
FRESHET_API void freshet_replica_get_info(const struct freshet_replica *replica, struct freshet_replica_info *info);

/* The name of the model, as the options, a record or a snapshot gave it; "" before. */
FRESHET_API const char *freshet_replica_model(const struct freshet_replica *replica);
/* The number of samples that were scored through this handle and its readers. Thread: any. */
FRESHET_API uint64_t freshet_replica_scored(const struct freshet_replica *replica);

/* The BLAS kernel that the model was trained with (the model record's `kernel`; "" before the first
 * record), and the kernel that scores here. With equal kernels, scores are bit-equal to the
 * daemon's; otherwise they are within 1e-5 in the logit. For a model trained in bf16 (a kernel
 * "bf16 ..") the scores are those of f32, about 1e-2 from the daemon's. */
FRESHET_API const char *freshet_replica_trained_kernel(const struct freshet_replica *replica);
FRESHET_API const char *freshet_replica_scoring_kernel(const struct freshet_replica *replica);

/* The number of tasks, and their names ("" beyond the last). */
FRESHET_API uint32_t freshet_replica_tasks(const struct freshet_replica *replica);
FRESHET_API const char *freshet_replica_task_name(const struct freshet_replica *replica, uint32_t task);

/* The calls from here on use the feeder's own reader, on the feeder's thread; freshet/reader.h has
 * the same calls for other threads.
 *
 * Both calls score the samples of one record of any form (sample, group, array, block). Labels are
 * not needed. scores[sample * n_tasks + task] is a probability, or the prediction itself for an mse
 * task. The shared slots of a group are looked up and computed once.
 *
 * *n_samples is the number of samples that `scores` has room for on entry, and the number of
 * samples of the record on return. Errors: E_NOT_READY; E_INVALID when the record does not
 * decode (freshet_replica_score_problem has the reason) or has more samples than room
 * (*n_samples is the number needed, and nothing was scored); E_NO_MEMORY. */
FRESHET_API int freshet_replica_score_json(struct freshet_replica *replica, const char *json, size_t size,
                                           float *scores, uint32_t *n_samples);
FRESHET_API int freshet_replica_score_msgpack(struct freshet_replica *replica, const void *bytes, size_t size,
                                              float *scores, uint32_t *n_samples);

/* Returns the reason why the last score call failed; "" after a success. */
FRESHET_API const char *freshet_replica_score_problem(const struct freshet_replica *replica);

/* Returns the number of values in the last scored record that were ignored because they came under
 * the name of a slot which the model does not have: a misspelled slot scores as an absent one.
 * `names` (`room` bytes; NULL with 0) receives the first few such names of all records that the
 * served model has scored, separated by spaces, cut to the room and terminated. */
FRESHET_API uint64_t freshet_replica_score_ignored(const struct freshet_replica *replica, char *names, size_t room);

/* The tables of the served model, their parts and the floats of each part, in the model's order.
 * Beyond the last one, and before a model has arrived, names are "" and numbers are 0. An epoch
 * with another model changes them. */
FRESHET_API uint32_t freshet_replica_tables(const struct freshet_replica *replica);
FRESHET_API const char *freshet_replica_table_name(const struct freshet_replica *replica, uint32_t table);
FRESHET_API uint32_t freshet_replica_parts(const struct freshet_replica *replica, uint32_t table);
FRESHET_API const char *freshet_replica_part_name(const struct freshet_replica *replica, uint32_t table, uint32_t part);
FRESHET_API uint32_t freshet_replica_part_dim(const struct freshet_replica *replica, uint32_t table, uint32_t part);

/* Writes the values of one part of one row.
 *
 * *dim is the number of floats that `values` has room for on entry, and the number of floats of the
 * part on return, which the topic's model decides. Errors: E_NOT_READY; E_NOT_FOUND; E_INVALID when
 * there is less room (*dim is the number needed, and nothing was written). */
FRESHET_API int freshet_replica_row(const struct freshet_replica *replica, const char *table, const char *part,
                                    uint64_t key, float *values, uint32_t *dim);

/* Writes the public dump (docs/commands.md, "freshet dump") as JSON Lines: tables by name with
 * their keys ascending, then the dense parameters by name, then the closing line with the hash.
 * `write` returns 0 to continue. `hash` may be NULL. Errors: E_NOT_READY; E_NO_MEMORY; E_INVALID
 * when `write` returned another value than 0. */
FRESHET_API int freshet_replica_dump(const struct freshet_replica *replica,
                                     int (*write)(void *self, const void *bytes, size_t size), void *self,
                                     uint64_t *hash);

#ifdef __cplusplus
}
#endif

#endif
