/* The rows of one table, which many threads read while one changes them.
 *
 * A row is a slot (its key, then its floats) that is never written again once readers can reach
 * it. A change writes another slot and moves a cell of the index to it. Slots lie in slabs whose
 * addresses never change. Which epoch a reader sees is decided in overlay.h: what this file does
 * to the index concerns only keys that every active reader finds in an overlay first.
 *
 * The index uses extendible hashing (Fagin et al. 1979): a directory by the top bits of a key's
 * hash, and segments of lines of 64 bytes, each with 12 tags (a byte of the hash) and 12 cells
 * (slot numbers). A full line continues in the next line. A segment has few lines, so it grows
 * by a third and splits on its own: growing copies at most 24,000 cells, and readers continue in
 * the old segment until they leave. Each table has its own random salts (base/order.h), so a
 * producer cannot choose ids whose keys share a place. A cell costs 5.3 bytes at 68 to 85 %
 * full; a row costs its floats and its key.
 *
 * Memory: no call here ends the process; false means that memory was refused and nothing changed.
 * Thread: the feeder's, except fr_row_find, fr_row_slot and fr_row_list, which readers call. */
#ifndef FR_REPLICA_ROW_TABLE_H
#define FR_REPLICA_ROW_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/order.h"
#include "memory.h"
#include "retire.h"

enum {
    FR_LINE_CELLS = 12,
    FR_SEGMENT_LINES_MAX = 2048,
    FR_ROWS_PER_SLAB_MAX = 4096,
    FR_SLAB_FLOATS = 1 << 20, /* floats of a slab, which has at least one row */
    FR_ROWS_MAX = INT32_MAX,  /* the most rows of one table */
};
#define FR_NO_SLOT UINT32_MAX /* no row */

struct fr_row_line {
    /* One byte per cell: 0 empty, 1 removed, otherwise a byte of the hash of the cell's key. The
     * last four bytes are unused. */
    _Atomic uint64_t tags[2];
    _Atomic uint32_t cells[FR_LINE_CELLS];
};
_Static_assert(sizeof(struct fr_row_line) == 64, "a line of the cache");

struct fr_row_segment {
    struct fr_retired retired;
    uint32_t n_lines;
    uint32_t n_live, n_used; /* owned by the feeder; n_used: cells that are not empty */
    unsigned depth;          /* the number of top hash bits that its keys share */
    _Alignas(64) struct fr_row_line lines[];
};

struct fr_row_directory {
    struct fr_retired retired;
    unsigned depth;
    _Atomic(struct fr_row_segment *) segments[]; /* [2^depth] */
};

struct fr_row_slabs {
    struct fr_retired retired;
    size_t capacity;
    float *slabs[];
};

struct fr_row_table {
    struct fr_retired retired;
    struct fr_order order;
    uint32_t width;  /* floats of a row */
    uint32_t stride; /* floats of a row and its key */
    unsigned slab_bits;
    _Atomic(struct fr_row_directory *) directory;
    _Atomic(struct fr_row_slabs *) slabs;
    /* The fields below belong to the feeder. */
    struct fr_replica_memory *memory;
    struct fr_retirement *retirement; /* NULL: the table has no readers yet */
    uint64_t n_rows;
    size_t n_slabs;
    uint32_t n_slots; /* slots that were ever in use */
    /* the first free slot, which holds the number of the next one; FR_NO_SLOT: none */
    uint32_t spare;
    uint32_t n_spare;
    uint32_t n_refused; /* n_spare at the time when a copy without free places was refused memory */
};

/* NULL: memory was refused. */
struct fr_row_table *fr_row_table_new(uint32_t width, struct fr_replica_memory *memory);
/* Frees the table at once. No thread may still read it. */
void fr_row_table_free(struct fr_row_table *rows);
/* Makes an empty index large enough for n rows. */
bool fr_row_table_reserve(struct fr_row_table *rows, uint64_t n);

/* Takes a free slot for `key`. The caller writes its floats; no index refers to it yet. */
bool fr_row_take(struct fr_row_table *rows, uint64_t key, uint32_t *slot);
/* Takes back a slot that no reader can reach. */
void fr_row_give(struct fr_row_table *rows, uint32_t slot);
/* Points the key's cell to `slot`; *old becomes the former slot, or FR_NO_SLOT. */
bool fr_row_set(struct fr_row_table *rows, uint64_t key, uint32_t slot, uint32_t *old);
/* Removes the key's cell; returns the former slot, or FR_NO_SLOT. */
uint32_t fr_row_unset(struct fr_row_table *rows, uint64_t key);

/* Returns the slot of a key; FR_NO_SLOT: none. */
uint32_t fr_row_find(const struct fr_row_table *rows, uint64_t hash, uint64_t key);
/* Prefetches the line with which fr_row_find begins. */
void fr_row_prefetch(const struct fr_row_table *rows, uint64_t hash);
/* Prefetches the first slot that the line names for such a hash. */
void fr_row_prefetch_slot(const struct fr_row_table *rows, uint64_t hash);
/* Calls visit for every key, in no particular order. */
void fr_row_list(const struct fr_row_table *rows, void (*visit)(void *self, uint64_t key), void *self);

static inline uint64_t fr_row_hash(const struct fr_row_table *rows, uint64_t key)
{
    return fr_order_hash(&rows->order, key);
}

/* Points to the slot's key, which its floats follow. */
static inline float *fr_row_slot(const struct fr_row_table *rows, uint32_t slot)
{
    const struct fr_row_slabs *slabs = atomic_load_explicit(&rows->slabs, memory_order_acquire);
    return slabs->slabs[slot >> rows->slab_bits] +
           (size_t)(slot & (((uint32_t)1 << rows->slab_bits) - 1)) * rows->stride;
}

enum { FR_KEY_FLOATS = 2 };
static inline float *fr_row_values(const struct fr_row_table *rows, uint32_t slot)
{
    return fr_row_slot(rows, slot) + FR_KEY_FLOATS;
}

static inline uint64_t fr_row_key(const struct fr_row_table *rows, uint32_t slot)
{
    uint64_t key;
    memcpy(&key, fr_row_slot(rows, slot), sizeof(key));
    return key;
}

#endif
