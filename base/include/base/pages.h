/* Large zeroed memory directly from the system, and runs of equal pieces of such memory. */
#ifndef FR_BASE_PAGES_H
#define FR_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

enum { FR_LINE = 64 }; /* bytes of a cache line */
enum { FR_PAGE = 4096, FR_HUGE_PAGE = 2 << 20, FR_PIECE = 16 * 1024 };
/* An extent is a huge page. Each half of an extent has FR_HALF_PIECES pieces. */
enum { FR_EXTENT = FR_HUGE_PAGE, FR_EXTENT_HALVES = 2, FR_HALF_PIECES = 64 };

/* Reserves `size` bytes from the system at once, in huge pages if there are any, from which later
 * calls are served. Memory from the reserve causes no page faults; when it is given back, it
 * returns to the reserve. The pool's workers touch it. Call before other threads allocate pages.
 * Only the first call that gets whole huge pages has an effect. */
void fr_pages_reserve(size_t size, struct fr_pool *pool);
/* Bytes of the reserve that are not handed out. */
size_t fr_pages_idle(void);
/* Whether an allocation of `size` bytes would come from the reserve now. */
bool fr_pages_reserved(size_t size);

/* Returns zeroed, 64-byte aligned memory. Pages are touched only when they are used, so allocating
 * a large block causes no pause. huge: huge pages are requested, and memory is then touched 2 MiB
 * at a time. Refused memory ends the process (FR_CHECK), as in fr_alloc. */
void *fr_pages_take(size_t size, int huge);
/* memory NULL does nothing. `size` is that of fr_pages_take. */
void fr_pages_give(void *memory, size_t size);
/* Gives the bytes from `from` on back to the system. They read as zeros afterwards; the address
 * range stays. */
void fr_pages_forget(void *memory, size_t from, size_t size);

/* Runs of pieces of FR_PIECE bytes in extents. An extent whose pieces are all free goes back to the
 * system. Owner: one worker at a time. */
struct fr_pieces {
    struct fr_extent {
        uint8_t *base;
        uint64_t free[FR_EXTENT_HALVES]; /* bit i: piece i of that half */
    } * extents;
    size_t n, capacity, hint;
};

/* Returns a run of n pieces (1 .. FR_HALF_PIECES - 1), zeroed. */
void *fr_pieces_take(struct fr_pieces *pieces, uint32_t n);
void fr_pieces_give(struct fr_pieces *pieces, void *run, uint32_t n);
void fr_pieces_release(struct fr_pieces *pieces);

#endif
