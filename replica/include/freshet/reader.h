/* Reading a replica from many threads while one feeds it: rows, keys, scores, the dump.
 *
 * Every call reads one epoch, whole: the one that is served when it begins. Between begin and end
 * all calls of a reader read the same. An epoch lives until the last reader has left it, and none
 * waits for another, nor for the feeder, nor the feeder for them; but a reader that stays for long
 * holds the memory of what changes meanwhile.
 *
 * struct freshet_reader *reader; freshet_reader_new(replica, &reader); in a thread of its own:
 * freshet_reader_score(reader, FRESHET_JSON, line, size, scores, &n_samples);
 *
 * Thread: a reader is one thread's at a time; freshet_reader_new and _free may be called by any.
 * Texts that are returned are valid until the reader's next call. Memory: a reader has a copy of
 * the dense parameters and the activations of its largest record once it scores; with the rows it
 * counts toward freshet_replica_limit_memory. */
#ifndef FRESHET_READER_H
#define FRESHET_READER_H

#include "freshet/replica.h"

#ifdef __cplusplus
extern "C" {
#endif

struct freshet_reader;

enum { FRESHET_READERS_MAX = 512 }; /* of one replica at once */

enum freshet_format { FRESHET_MSGPACK = 0, FRESHET_JSON = 1 };

/* E_INVALID: FRESHET_READERS_MAX are there; E_NO_MEMORY. */
FRESHET_API int freshet_reader_new(struct freshet_replica *replica, struct freshet_reader **out);
FRESHET_API void freshet_reader_free(struct freshet_reader *reader);

/* From begin to end the reader stays in one epoch; a second begin changes nothing. E_NOT_READY:
 * nothing is applied yet, and nothing has begun. */
FRESHET_API int freshet_reader_begin(struct freshet_reader *reader);
FRESHET_API void freshet_reader_end(struct freshet_reader *reader);

/* Info of the epoch that is read; memory and freshness are of now. Zeros before an
 * epoch is served. */
FRESHET_API void freshet_reader_get_info(struct freshet_reader *reader, struct freshet_replica_info *info);

/* A batch of rows to look up. */
struct freshet_lookup {
    const char *table, *part; /* part NULL: all parts of a row, in their order */
    const uint64_t *keys;     /* [n] */
    size_t n;
    uint8_t *found;  /* [n] becomes 1 where there is such a row, else 0; may be NULL */
    float *values;   /* [n, dim] row-major; zeros where there is no row */
    size_t capacity; /* floats that values has room for */
    uint32_t dim;    /* becomes the floats of a row, whenever there are such a table and part */
};
/* Errors: E_NOT_READY; E_NOT_FOUND (no such table or part); E_INVALID when n * dim is more than the
 * capacity (dim is set, and nothing else was written). */
FRESHET_API int freshet_reader_lookup(struct freshet_reader *reader, struct freshet_lookup *lookup);
/* Writes all keys of a table, ascending. *n goes in as the room and comes out as their number.
 * E_NOT_READY; E_NOT_FOUND; E_INVALID when there is less room (*n is set); E_NO_MEMORY. */
FRESHET_API int freshet_reader_keys(struct freshet_reader *reader, const char *table, uint64_t *keys, size_t *n);

/* Raw id -> key in the table of a slot (docs/formats/samples.md, "Ids and keys"). A text that is a
 * 64-bit integer in canonical form is that integer, unless the slot has `id: raw`. E_NOT_READY;
 * E_NOT_FOUND: no such slot, or it has no ids of its own (a dense slot, buckets, a cross). */
FRESHET_API int freshet_reader_key(struct freshet_reader *reader, const char *slot, const char *id, size_t size,
                                   uint64_t *key);
/* The same of an id that producers send as an integer; a negative one in two's complement. */
FRESHET_API int freshet_reader_key_of_integer(struct freshet_reader *reader, const char *slot, uint64_t id,
                                              uint64_t *key);

/* Tables, their parts and these parts' numbers of floats, slots and the tables they read (""
 * for a dense slot), tasks: of the epoch's model, in its order; "" and 0 beyond, and before a model
 * is there. */
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
 * block); labels are not needed. scores[sample * n_tasks + task] is a probability, of an mse task
 * the prediction itself. Shared slots of a group are looked up and computed once.
 *
 * *n_samples goes in as the number of samples that scores has room for, and comes out as that of
 * the record. Errors: E_NOT_READY; E_INVALID when the record does not decode
 * (freshet_reader_problem says why) or has more samples than room (*n_samples says how many, and
 * nothing was scored); E_NO_MEMORY. */
FRESHET_API int freshet_reader_score(struct freshet_reader *reader, enum freshet_format format, const void *bytes,
                                     size_t size, float *scores, uint32_t *n_samples);
/* Says why the last score failed; "" after a success. */
FRESHET_API const char *freshet_reader_problem(struct freshet_reader *reader);
/* Says how many values of the record scored last came under the name of a slot that the model does
 * not have, and names some (freshet_replica_score_ignored). */
FRESHET_API uint64_t freshet_reader_ignored(struct freshet_reader *reader, char *names, size_t room);

/* Writes the public dump of one epoch, while others go on (freshet_replica_dump). */
FRESHET_API int freshet_reader_dump(struct freshet_reader *reader,
                                    int (*write)(void *self, const void *bytes, size_t size), void *self,
                                    uint64_t *hash);

#ifdef __cplusplus
}
#endif

#endif
