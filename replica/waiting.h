/* Pieces of epochs that are not complete in every followed partition yet.
 *
 * There is one entry per (epoch, from): for each partition its pieces by number, and the contents
 * of its commit. Entries are ordered by epoch, and their bytes are copies. While one partition
 * lags, the pieces of the others accumulate here; the replica bounds them by `bytes`
 * (FRESHET_AGAIN).
 *
 * Owner: the replica's thread. */
#ifndef FR_REPLICA_WAITING_H
#define FR_REPLICA_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"

/* the most pieces of one partition and epoch: 2^20 pieces of 512 KiB exceed any epoch */
enum { FR_PIECES_MAX = 1 << 20 };

struct fr_piece {
    uint8_t *bytes; /* owned; NULL: the piece has not arrived */
    size_t size;
};

struct fr_waiting_partition {
    struct fr_piece *pieces;
    uint32_t capacity, n_pieces;
    uint64_t n_rows, n_drops; /* counted in the pieces */
    bool committed;
};

struct fr_waiting_epoch {
    uint64_t epoch, from, digest, fp;
    uint64_t previous; /* `prev` of the commits, which is equal in all of them */
    int64_t wm_ms, t_ms;
    uint64_t samples;
    uint32_t n_committed, np;
    struct fr_waiting_partition partitions[];
};

struct fr_waiting {
    struct fr_waiting_epoch **list; /* [begin, begin + n) ascending by (epoch, from) */
    size_t begin, n, capacity;
    uint64_t bytes;
};

void fr_waiting_clear(struct fr_waiting *waiting);
void fr_waiting_free(struct fr_waiting *waiting);
struct fr_waiting_epoch *fr_waiting_at(const struct fr_waiting *waiting, size_t i);
/* Finds the entry of (epoch, from), or NULL. *other becomes some entry of the same epoch with any
 * `from`, or NULL. */
struct fr_waiting_epoch *fr_waiting_find(const struct fr_waiting *waiting, uint64_t epoch, uint64_t from,
                                         struct fr_waiting_epoch **other);
struct fr_waiting_epoch *fr_waiting_add(struct fr_waiting *waiting, const struct fr_delta_record *record);
static inline bool fr_waiting_has(const struct fr_waiting_partition *partition, uint32_t piece)
{
    return piece < partition->n_pieces && partition->pieces[piece].bytes;
}
/* Stores a piece; piece < FR_PIECES_MAX. False: it is held already. */
bool fr_waiting_put(struct fr_waiting *waiting, struct fr_waiting_epoch *entry, const struct fr_delta_record *record,
                    const void *bytes, size_t size);
/* Frees every entry with epoch <= applied. */
void fr_waiting_drop(struct fr_waiting *waiting, uint64_t applied);

#endif
