/* Pieces of epochs that are not complete in every followed partition yet.
 *
 * One entry per (epoch, from): per partition the pieces by number, and what its commit said.
 * Entries are ordered by epoch; bytes are copies. A lagging partition makes the others pile up
 * here: the caller of the library bounds that by `bytes` (FRESHET_AGAIN). Owner: the replica's
 * thread. */
#ifndef FR_REPLICA_HELD_H
#define FR_REPLICA_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"

/* of one partition and epoch: 2^20 pieces of 512 KiB are beyond any epoch */
enum { FR_PIECES_MAX = 1 << 20 };

struct fr_piece {
    uint8_t *bytes; /* owned; NULL: not held */
    size_t size;
};

struct fr_staged_partition {
    struct fr_piece *pieces;
    uint32_t capacity, n_held;
    uint64_t n_rows, n_drops; /* of the pieces held */
    bool committed;
};

struct fr_staged {
    uint64_t epoch, from, digest, fp;
    uint64_t previous; /* of the commits; equal in all */
    int64_t wm_ms, t_ms;
    uint64_t samples;
    uint32_t n_committed, np;
    struct fr_staged_partition partitions[];
};

struct fr_held {
    struct fr_staged **list; /* [begin, begin + n) ascending by (epoch, from) */
    size_t begin, n, capacity;
    uint64_t bytes;
};

void fr_held_clear(struct fr_held *held);
void fr_held_free(struct fr_held *held);
struct fr_staged *fr_held_at(const struct fr_held *held, size_t i);
/* The entry of (epoch, from), or NULL. *other = some entry of the same epoch, whatever its from, or
 * NULL. */
struct fr_staged *fr_held_find(const struct fr_held *held, uint64_t epoch, uint64_t from, struct fr_staged **other);
struct fr_staged *fr_held_add(struct fr_held *held, const struct fr_delta_record *record);
/* False: already held. piece < FR_PIECES_MAX. */
bool fr_held_hold(struct fr_held *held, struct fr_staged *staged, const struct fr_delta_record *record,
                  const void *bytes, size_t size);
/* Frees every entry with epoch <= applied. */
void fr_held_drop(struct fr_held *held, uint64_t applied);

#endif
