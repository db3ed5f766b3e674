/* Reading a replica from many threads while one thread feeds it: rows, keys, scores, the dump.
 *
 * Every call reads one whole epoch: the one that is served when the call begins. Between
 * freshet_reader_begin and freshet_reader_end, all calls of a reader read the same epoch. An epoch
 * lives until its last reader has left it. Readers never wait for each other or for the feeder, and
 * the feeder never waits for readers; but a reader that stays in an epoch for long holds the memory
 * of what changes meanwhile.
 *
 * Example: struct freshet_reader *reader; freshet_reader_new(replica, &reader); then, in a thread
 * of its own, freshet_reader_score(reader, FRESHET_JSON, line, size, scores, &n_samples);
 *
 * Thread: a reader is used by one thread at a time; freshet_reader_new and _free may be called by
 * any thread. Texts that are returned are valid until the reader's next call. Memory: a reader that
 * scores holds a copy of the dense parameters and the activations of its largest record; together
 * with the rows these count toward freshet_replica_limit_memory. */
#ifndef FRESHET_READER_H
#define FRESHET_READER_H

#include "freshet/replica.h"

#ifdef __cplusplus
extern "C" {
#endif

struct freshet_reader;

enum { FRESHET_READERS_MAX = 512 }; /* readers of one replica at the same time */

enum freshet_format { FRESHET_MSGPACK = 0, FRESHET_JSON = 1 };

/* Errors: E_INVALID when the replica already has FRESHET_READERS_MAX readers; E_NO_MEMORY. */
FRESHET_API int freshet_reader_new(struct freshet_replica *replica, struct freshet_reader **out);
FRESHET_API void freshet_reader_free(struct freshet_reader *reader);

/* From begin to end the reader stays in one epoch. A second begin changes nothing. E_NOT_READY: no
 * epoch is applied yet, and the reader has not begun. */
FRESHET_API int freshet_reader_begin(struct freshet_reader *reader);
FRESHET_API void freshet_reader_end(struct freshet_reader *reader);

/* Writes the info of the epoch that is read, with memory and freshness as of now. All fields are 0
 * until an epoch is served. */
FRESHET_API void freshet_reader_get_info(struct freshet_reader *reader, struct freshet_replica_info *info);

/* A batch of rows to look up. */
struct freshet_lookup {
    const char *table, *part; /* part NULL: all parts of a row, in the model's order */
    const uint64_t *keys;     /* [n] */
    size_t n;
    uint8_t *found;  /* [n] out: 1 where the table has the row, else 0; may be NULL */
    float *values;   /* [n, dim] row-major; zeros where the table does not have the row */
    size_t capacity; /* room of `values`, in floats */
    uint32_t dim;    /* out: the floats of a row; set whenever the table and the part exist */
};
/* Errors: E_NOT_READY; E_NOT_FOUND (no such table or part); E_INVALID when n * dim exceeds
 * `capacity` (dim is set, and nothing else was written). */
FRESHET_API int freshet_reader_lookup(struct freshet_reader *reader, struct freshet_lookup *lookup);
/* Writes all keys of a table, ascending. *n is the room of `keys` on entry and the number of keys
 * on return. Errors: E_NOT_READY; E_NOT_FOUND; E_INVALID when there is less room (*n is set);
 * E_NO_MEMORY. */
FRESHET_API int freshet_reader_keys(struct freshet_reader *reader, const char *table, uint64_t *keys, size_t *n);

/* Converts a raw id to its key in the table of a slot (docs/formats/samples.md, "Ids and keys"). A
 * text that is a 64-bit integer in canonical form counts as that integer, unless the slot has `id:
 * raw`. Errors: E_NOT_READY; E_NOT_FOUND when the model has no such slot, or when the slot has no
 * ids of its own (a dense slot, buckets, a cross). */
FRESHET_API int freshet_reader_key(struct freshet_reader *reader, const char *slot, const char *id, size_t size,
                                   uint64_t *key);
/* Converts an id that producers send as an integer; a negative id is passed in two's complement. */
FRESHET_API int freshet_reader_key_of_integer(struct freshet_reader *reader, const char *slot, uint64_t id,
                                              uint64_t *key);

/* The tables of the epoch's model, their parts and the floats of each part, the slots and the
 * tables they read ("" for a dense slot), and the tasks, in the model's order. Beyond the last one,
 * and before a model has arrived, names are "" and numbers are 0. */
FRESHET_API uint32_t freshet_reader_tables(struct freshet_reader *reader);
FRESHET_API const char *freshet_reader_table_name(struct freshet_reader *reader, uint32_t table);
FRESHET_API uint32_t freshet_reader_parts(struct freshet_reader *reader, uint32_t table);
FRESHET_API const char *freshet_reader_part_name(struct freshet_reader *reader, uint32_t table, uint32_t part);
FRESHET_API uint32_t freshet_reader_part_dim(struct freshet_reader *reader, uint32_t table, uint32_t part);
FRESHET_API uint64_t freshet_reader_table_rows(struct freshet_reader *reader, uint32_t table);
FRESHET_API uint32_t freshet_reader_slots(struct freshet_reader *reader);
FRESHET_API const char *freshet_reader_slot_name(struct freshet_reader *reader, uint32_t slot);
FRESHET_API const char *freshet_reader_slot_table(struct freshet_reader *reader, uint32_t slot);
FRESHET_API uint32_t freshet_reader_tasks(struct freshet_reader *reader);
FRESHET_API const char *freshet_reader_task_name(struct freshet_reader *reader, uint32_t task);

/* Scores the samples of one record of any form: a sample, a group, an array of them, or columns (a
 * block). Labels are not needed. scores[sample * n_tasks + task] is a probability, or the
 * prediction itself for an mse task. The shared slots of a group are looked up and computed once.
 *
 * *n_samples is the number of samples that `scores` has room for on entry, and the number of
 * samples of the record on return. Errors: E_NOT_READY; E_INVALID when the record does not
 * decode (freshet_reader_problem has the reason) or has more samples than room (*n_samples is
 * the number needed, and nothing was scored); E_NO_MEMORY. */
FRESHET_API int freshet_reader_score(struct freshet_reader *reader, enum freshet_format format, const void *bytes,
                                     size_t size, float *scores, uint32_t *n_samples);
/* Returns the reason why the last score failed; "" after a success. */
FRESHET_API const char *freshet_reader_problem(struct freshet_reader *reader);
/* Returns the number of values in the last scored record that came under the name of a slot which
 * the model does not have, and writes some of these names (freshet_replica_score_ignored). */
FRESHET_API uint64_t freshet_reader_ignored(struct freshet_reader *reader, char *names, size_t room);

/* Writes the public dump of one epoch while other threads feed and read (freshet_replica_dump). */
FRESHET_API int freshet_reader_dump(struct freshet_reader *reader,
                                    int (*write)(void *self, const void *bytes, size_t size), void *self,
                                    uint64_t *hash);

#ifdef __cplusplus
}
#endif

#endif
