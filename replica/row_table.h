/* The rows of one table, which many threads read while one changes them.
 *
 * A row is a slot (its key, then its floats) that is never written again once readers can reach it:
 * a change is another slot, and a cell of the index moves over. Slots lie in slabs whose addresses
 * never change. Which epoch a reader sees is decided above (overlay.h): what is done to the index
 * here concerns only keys that every reader inside finds in an overlay first.
 *
 * The index is extendible hashing (Fagin et al. 1979): a directory by the top bits of a key's hash,
 * and segments of lines of 64 bytes, each with 12 tags (a byte of the hash) and 12 cells (slot
 * numbers); a full line goes on in the next. Lines are few per segment, so that a segment grows by
 * a third and splits by itself: growing copies 24,000 cells at most, and readers go on in the old
 * segment until they leave. With random salts of a table's own (base/order.h) nobody chooses
 * places. A cell costs 5.3 bytes at 68 to 85 % full; a row its floats and key.
 *
 * Memory: nothing here ends a call; false says that it was refused and nothing changed. Thread: the
 * feeder's, but for fr_row_find, fr_row_slot and fr_row_list. */
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
    FR_SLAB_FLOATS = 1 << 20, /* at least one row */
    FR_ROWS_MAX = INT32_MAX,  /* of a table */
};
#define FR_NO_SLOT UINT32_MAX /* no row */

struct fr_row_line {
    /* bytes: 0 empty, 1 removed, else of the hash of the cell's key; the last four are unused */
    _Atomic uint64_t tags[2];
    _Atomic uint32_t cells[FR_LINE_CELLS];
};
_Static_assert(sizeof(struct fr_row_line) == 64, "a line of the cache");

struct fr_row_segment {
    struct fr_retired retired;
    uint32_t n_lines;
    uint32_t n_live, n_used; /* the feeder's; used: not empty */
    unsigned depth;          /* top bits that its keys share */
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
    uint32_t stride; /* with its key */
    unsigned slab_bits;
    _Atomic(struct fr_row_directory *) directory;
    _Atomic(struct fr_row_slabs *) slabs;
    /* the feeder's */
    struct fr_replica_memory *memory;
    struct fr_retirement *retirement; /* NULL: nobody reads them yet */
    uint64_t n_rows;
    size_t n_slabs;
    uint32_t n_slots; /* ever used */
    uint32_t spare;   /* the first free one, which holds the number of the next; FR_NO_SLOT: none */
    uint32_t n_spare;
    uint32_t n_refused; /* n_spare when a copy without free places was refused memory */
};

/* NULL: memory was refused. */
struct fr_row_table *fr_row_table_new(uint32_t width, struct fr_replica_memory *memory);
/* Frees all at once: nobody reads them. */
void fr_row_table_free(struct fr_row_table *rows);
/* Makes an empty index large enough for so many rows. */
bool fr_row_table_reserve(struct fr_row_table *rows, uint64_t n);

/* A free slot for key, whose floats are the caller's to write; it is in no index yet. */
bool fr_row_take(struct fr_row_table *rows, uint64_t key, uint32_t *slot);
/* Takes a slot back that nobody can read. */
void fr_row_give(struct fr_row_table *rows, uint32_t slot);
/* The key's cell is slot from now on; *old becomes what it was, or FR_NO_SLOT. */
bool fr_row_set(struct fr_row_table *rows, uint64_t key, uint32_t slot, uint32_t *old);
/* The key has no cell any more; returns what it was, or FR_NO_SLOT. */
uint32_t fr_row_unset(struct fr_row_table *rows, uint64_t key);

/* The slot of a key; FR_NO_SLOT: none. */
uint32_t fr_row_find(const struct fr_row_table *rows, uint64_t hash, uint64_t key);
/* Asks for the line that fr_row_find begins with. */
void fr_row_prefetch(const struct fr_row_table *rows, uint64_t hash);
/* Asks for the first slot that the line names for such a hash. */
void fr_row_prefetch_slot(const struct fr_row_table *rows, uint64_t hash);
/* Calls visit for every key, in no order. */
void fr_row_list(const struct fr_row_table *rows, void (*visit)(void *self, uint64_t key), void *self);

static inline uint64_t fr_row_hash(const struct fr_row_table *rows, uint64_t key)
{
    return fr_order_hash(&rows->order, key);
}

/* The slot's key, then its floats. */
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
