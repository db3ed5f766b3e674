/* Large zeroed memory straight from the system, and runs of equal pieces of it. */
#ifndef FR_BASE_PAGES_H
#define FR_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

enum { FR_LINE = 64 }; /* bytes of a cache line */
enum { FR_PAGE = 4096, FR_HUGE_PAGE = 2 << 20, FR_PIECE = 16 * 1024 };
/* An extent is a huge page, of which each half has its pieces. */
enum { FR_EXTENT = FR_HUGE_PAGE, FR_EXTENT_HALVES = 2, FR_HALF_PIECES = 64 };

/* Takes `size` bytes from the system at once, in huge pages where it has them, for what is taken
 * later: that memory costs no page faults, and stays the process's when it is given back. The pool
 * touches it. Before other threads take any. The first call with whole huge pages counts, later
 * ones do nothing. */
void fr_pages_reserve(size_t size, struct fr_pool *pool);
/* Bytes of the reserve that nobody has. */
size_t fr_pages_idle(void);
/* Whether so much comes from the reserve now. */
bool fr_pages_reserved(size_t size);

/* Zeroed, 64-byte aligned; pages are touched only when used, so taking a large piece costs no
 * pause. huge: huge pages are asked for; such memory is touched 2 MiB at a time. Refused memory
 * ends the process (FR_CHECK), as in fr_alloc. */
void *fr_pages_take(size_t size, int huge);
/* NULL: nothing. `size` as it was taken. */
void fr_pages_give(void *memory, size_t size);
/* The bytes from `from` on go back to the system and read as zeros; the address range stays. */
void fr_pages_forget(void *memory, size_t from, size_t size);

/* Runs of pieces of FR_PIECE bytes, carved from extents. An extent whose pieces are all free
 * goes back to the system. Owner: one worker at a time. */
struct fr_pieces {
    struct fr_extent {
        uint8_t *base;
        uint64_t free[FR_EXTENT_HALVES]; /* bit i: piece i of that half */
    } * extents;
    size_t n, capacity, hint;
};

/* A run of n pieces (1 .. FR_HALF_PIECES - 1), zeroed. */
void *fr_pieces_take(struct fr_pieces *pieces, uint32_t n);
void fr_pieces_give(struct fr_pieces *pieces, void *run, uint32_t n);
void fr_pieces_release(struct fr_pieces *pieces);

#endif
