/* Large zeroed memory straight from the system (mmap), small pieces from the heap.
 *
 * calloc does not serve the large ones: after a large block was freed, glibc raises its mmap
 * threshold and takes the next one from the heap, with a memset of all of it. Huge pages gain some
 * 10 % on random access, and cost up to 2 MiB that nobody uses: the small do not ask for them.
 *
 * Thread: any. It does not keep freed memory. */
#include "pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { MAPPED_MIN = 256 * 1024, CACHE_LINE = 64, HUGE_EXTENTS_MIN = 4 };

void *fr_pages_take(size_t size, int huge)
{
    if (size < MAPPED_MIN)
        return fr_alloc_aligned(CACHE_LINE, size);
    size_t slack = huge ? FR_HUGE_PAGE - FR_PAGE : 0;
    uint8_t *memory = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FR_CHECK(memory != MAP_FAILED); /* memory refused: crash-only, as in fr_alloc */
    if (huge) {
        /* Only an aligned range becomes a huge page; what lies around it goes back. */
        size_t before = (FR_HUGE_PAGE - (uintptr_t)memory % FR_HUGE_PAGE) % FR_HUGE_PAGE;
        size_t end = (size + FR_PAGE - 1) / FR_PAGE * FR_PAGE;
        if (before > 0)
            FR_CHECK(munmap(memory, before) == 0);
        memory += before;
        if (slack > before)
            FR_CHECK(munmap(memory + end, slack - before) == 0);
    }
    /* A refusal costs speed only. */
    (void)madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memory;
}

void fr_pages_give(void *memory, size_t size)
{
    if (!memory)
        return;
    if (size < MAPPED_MIN) {
        free(memory);
        return;
    }
    int rc = munmap(memory, size);
    FR_CHECK(rc == 0);
}

void fr_pages_forget(void *memory, size_t from, size_t size)
{
    size_t begin = (from + FR_PAGE - 1) / FR_PAGE * FR_PAGE;
    if (size < MAPPED_MIN || begin >= size)
        return;
    int rc = madvise((uint8_t *)memory + begin, size - begin, MADV_DONTNEED);
    FR_CHECK(rc == 0);
}

/* ---- pieces ---- */

/* Bit i of the result: n free pieces begin at i. */
static uint64_t runs_of(uint64_t free, uint32_t n)
{
    uint64_t runs = free;
    for (uint32_t i = 1; i < n; i++)
        runs &= free >> i;
    return runs;
}

static size_t extent_with_room(struct fr_pieces *pieces, uint32_t n)
{
    for (size_t i = 0; i < pieces->n; i++) {
        size_t at = (pieces->hint + i) % pieces->n;
        for (uint32_t half = 0; half < FR_EXTENT_HALVES; half++)
            if (runs_of(pieces->extents[at].free[half], n))
                return at;
    }
    if (pieces->n == pieces->capacity) {
        pieces->capacity = pieces->capacity ? 2 * pieces->capacity : 4;
        pieces->extents = fr_realloc(pieces->extents, pieces->capacity, sizeof(*pieces->extents));
    }
    uint8_t *base = fr_pages_take(FR_EXTENT, pieces->n >= HUGE_EXTENTS_MIN);
    pieces->extents[pieces->n] = (struct fr_extent){.base = base, .free = {UINT64_MAX, UINT64_MAX}};
    return pieces->n++;
}

void *fr_pieces_take(struct fr_pieces *pieces, uint32_t n)
{
    FR_CHECK(n > 0 && n < FR_HALF_PIECES);
    pieces->hint = extent_with_room(pieces, n);
    struct fr_extent *extent = &pieces->extents[pieces->hint];
    uint32_t half = runs_of(extent->free[0], n) ? 0 : 1;
    uint32_t first = (uint32_t)__builtin_ctzll(runs_of(extent->free[half], n));
    extent->free[half] &= ~((((uint64_t)1 << n) - 1) << first);
    uint8_t *run = extent->base + (size_t)(half * FR_HALF_PIECES + first) * FR_PIECE;
    memset(run, 0, (size_t)n * FR_PIECE); /* it may have been used before */
    return run;
}

void fr_pieces_give(struct fr_pieces *pieces, void *run, uint32_t n)
{
    size_t at = 0;
    while (at < pieces->n && (uintptr_t)run - (uintptr_t)pieces->extents[at].base >= FR_EXTENT)
        at++;
    FR_CHECK(at < pieces->n);
    struct fr_extent *extent = &pieces->extents[at];
    size_t piece = ((uintptr_t)run - (uintptr_t)extent->base) / FR_PIECE;
    extent->free[piece / FR_HALF_PIECES] |= (((uint64_t)1 << n) - 1) << piece % FR_HALF_PIECES;
    if (extent->free[0] != UINT64_MAX || extent->free[1] != UINT64_MAX)
        return;
    fr_pages_give(extent->base, FR_EXTENT);
    *extent = pieces->extents[--pieces->n];
    pieces->hint = 0;
}

void fr_pieces_release(struct fr_pieces *pieces)
{
    for (size_t i = 0; i < pieces->n; i++)
        fr_pages_give(pieces->extents[i].base, FR_EXTENT);
    free(pieces->extents);
    *pieces = (struct fr_pieces){0};
}
