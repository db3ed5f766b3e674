/* Large zeroed memory directly from the system (mmap), small memory from the heap.
 *
 * calloc is unsuitable for large blocks: after a large block was freed, glibc raises its mmap
 * threshold and takes the next one from the heap, with a memset of all of it. Huge pages gain about
 * 10 % on random access, and waste up to 2 MiB, so small blocks do not request them.
 *
 * If there is a reserve, it serves large blocks while it has room (first fit, in units). Its huge
 * pages are touched from the start, so its memory never costs the first touch of a page.
 *
 * Thread: any. Freed memory is kept only in the reserve. */
#include "base/pages.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { MAPPED_MIN = 256 * 1024, HUGE_EXTENTS_MIN = 4, UNIT = 64 << 10 };

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FR_CHECK(memory != MAP_FAILED); /* refused memory ends the process, as in fr_alloc */
    return memory;
}

/* Only an aligned range becomes a huge page; the memory around it goes back. */
static void *map_aligned(size_t size)
{
    size_t slack = FR_HUGE_PAGE - FR_PAGE;
    uint8_t *memory = map(size + slack);
    size_t before = (FR_HUGE_PAGE - (uintptr_t)memory % FR_HUGE_PAGE) % FR_HUGE_PAGE;
    size_t end = (size + FR_PAGE - 1) / FR_PAGE * FR_PAGE;
    if (before > 0)
        FR_CHECK(munmap(memory, before) == 0);
    memory += before;
    if (slack > before)
        FR_CHECK(munmap(memory + end, slack - before) == 0);
    return memory;
}

/* ---- the reserve ---- */

enum unit_state { UNIT_ZERO, UNIT_USED, UNIT_TAKEN };

static struct {
    pthread_mutex_t mutex; /* guards the members after base */
    uint8_t *base;         /* written once, before other threads allocate */
    size_t n_units;
    uint8_t *state; /* enum unit_state */
    size_t n_taken, hint;
} reserve = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static size_t units_of(size_t size)
{
    return (size + UNIT - 1) / UNIT;
}

static bool is_reserved(const void *memory)
{
    return reserve.base && (uintptr_t)memory - (uintptr_t)reserve.base < reserve.n_units * UNIT;
}

/* Returns the first unit of a free run from `from` on, or n_units. */
static size_t free_run(size_t from, size_t n)
{
    size_t run = 0;
    for (size_t u = from; u < reserve.n_units; u++) {
        run = reserve.state[u] == UNIT_TAKEN ? 0 : run + 1;
        if (run == n)
            return u + 1 - n;
    }
    return reserve.n_units;
}

static size_t find_run(size_t n)
{
    if (n > reserve.n_units - reserve.n_taken)
        return reserve.n_units;
    size_t first = free_run(reserve.hint, n);
    return first < reserve.n_units ? first : free_run(0, n);
}

static void *take_reserved(size_t size)
{
    size_t n = units_of(size);
    pthread_mutex_lock(&reserve.mutex);
    size_t first = find_run(n);
    for (size_t u = first; first < reserve.n_units && u < first + n; u++) {
        if (reserve.state[u] == UNIT_USED)
            memset(reserve.base + u * UNIT, 0, UNIT);
        reserve.state[u] = UNIT_TAKEN;
    }
    if (first < reserve.n_units) {
        reserve.hint = first + n;
        reserve.n_taken += n;
    }
    pthread_mutex_unlock(&reserve.mutex);
    return first < reserve.n_units ? reserve.base + first * UNIT : NULL;
}

static void give_reserved(void *memory, size_t size)
{
    size_t first = (size_t)((uint8_t *)memory - reserve.base) / UNIT, n = units_of(size);
    pthread_mutex_lock(&reserve.mutex);
    memset(reserve.state + first, UNIT_USED, n);
    reserve.n_taken -= n;
    if (first < reserve.hint)
        reserve.hint = first;
    pthread_mutex_unlock(&reserve.mutex);
}

static void touch_huge_page(void *context, size_t index, size_t worker)
{
    (void)worker;
    uint8_t *page = (uint8_t *)context + index * FR_HUGE_PAGE;
    for (size_t at = 0; at < FR_HUGE_PAGE; at += FR_PAGE)
        page[at] = 0; /* the write makes the system provide the page */
}

void fr_pages_reserve(size_t size, struct fr_pool *pool)
{
    size = size / FR_HUGE_PAGE * FR_HUGE_PAGE;
    if (size == 0 || reserve.base)
        return;
    uint8_t *base = map_aligned(size);
    (void)madvise(base, size, MADV_HUGEPAGE);
    fr_pool_run(pool, size / FR_HUGE_PAGE, touch_huge_page, base);
    reserve.n_units = size / UNIT;
    reserve.state = fr_alloc(reserve.n_units, 1);
    reserve.base = base;
}

size_t fr_pages_idle(void)
{
    pthread_mutex_lock(&reserve.mutex);
    size_t units = reserve.n_units - reserve.n_taken;
    pthread_mutex_unlock(&reserve.mutex);
    return units * UNIT;
}

bool fr_pages_reserved(size_t size)
{
    if (!reserve.base)
        return false;
    pthread_mutex_lock(&reserve.mutex);
    bool fits = find_run(units_of(size)) < reserve.n_units;
    pthread_mutex_unlock(&reserve.mutex);
    return fits;
}

void *fr_pages_take(size_t size, int huge)
{
    if (size < MAPPED_MIN)
        return fr_alloc_aligned(FR_LINE, size);
    void *reserved = reserve.base ? take_reserved(size) : NULL;
    if (reserved)
        return reserved;
    void *memory = huge ? map_aligned(size) : map(size);
    /* A refusal only costs speed. */
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
    if (is_reserved(memory)) {
        give_reserved(memory, size);
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
    if (is_reserved(memory)) {
        memset((uint8_t *)memory + begin, 0, size - begin);
        return;
    }
    int rc = madvise((uint8_t *)memory + begin, size - begin, MADV_DONTNEED);
    FR_CHECK(rc == 0);
}

/* ---- pieces ---- */

/* Bit i of the result: n free pieces begin at piece i. */
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
    memset(run, 0, (size_t)n * FR_PIECE); /* the pieces may have been used before */
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
