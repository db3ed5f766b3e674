/* See roll_call.h. The questions have the order of the owner loop of one rank: what was begun is
 * finished first (letters), then a stop counts, then a cut, then what must wait, then a batch. */
#include "roll_call.h"

#include <inttypes.h>
#include <string.h>

/* Returns the first rank with one of the flags; n: none. */
static uint32_t first_with(const struct fr_roll *rolls, uint32_t n, uint32_t flags)
{
    uint32_t r = 0;
    while (r < n && !(rolls[r].flags & flags))
        r++;
    return r;
}

/* Returns the first rank with none of the flags; n: there is none. */
static uint32_t first_without(const struct fr_roll *rolls, uint32_t n, uint32_t flags)
{
    uint32_t r = 0;
    while (r < n && (rolls[r].flags & flags))
        r++;
    return r;
}

static struct fr_decision wait_for(uint32_t rank, bool ends)
{
    return (struct fr_decision){.next = FR_NEXT_WAIT, .ends = ends, .rank = rank};
}

static struct fr_decision end(const struct fr_roll *rolls, uint32_t n)
{
    uint32_t without = first_without(rolls, n, FR_ROLL_STAGE);
    if (first_with(rolls, n, FR_ROLL_NEWS) == n)
        return (struct fr_decision){.next = FR_NEXT_END, .ends = true};
    if (without < n)
        return wait_for(without, true);
    return (struct fr_decision){.next = FR_NEXT_CUT_LAST, .ends = true};
}

struct fr_decision fr_roll_decide(const struct fr_roll *rolls, uint32_t n)
{
    uint32_t letters = first_with(rolls, n, FR_ROLL_LETTERS);
    if (letters < n)
        return wait_for(letters, false);
    if (first_with(rolls, n, FR_ROLL_STOP) < n || first_without(rolls, n, FR_ROLL_ENDED) == n)
        return end(rolls, n);
    uint32_t due = first_with(rolls, n, FR_ROLL_DUE | FR_ROLL_MUST), without = first_without(rolls, n, FR_ROLL_STAGE);
    if (due < n && without == n)
        return (struct fr_decision){.next = FR_NEXT_CUT};
    uint32_t paused = first_with(rolls, n, FR_ROLL_PAUSED), waits = paused;
    if (first_with(rolls, n, FR_ROLL_MUST) < n && paused == n)
        waits = without;
    if (waits < n)
        return (struct fr_decision){.next = FR_NEXT_WAIT, .interrupts = true, .rank = waits};
    uint32_t late = first_without(rolls, n, FR_ROLL_READY | FR_ROLL_ENDED);
    if (rolls[0].lockstep && late < n) /* its batch must not depend on which rank is faster */
        return wait_for(late, false);
    if (first_with(rolls, n, FR_ROLL_READY) < n)
        return (struct fr_decision){.next = FR_NEXT_TRAIN};
    return wait_for(UINT32_MAX, false);
}

uint64_t fr_roll_acknowledged(const struct fr_roll *rolls, uint32_t n)
{
    uint64_t least = rolls[0].acknowledged;
    for (uint32_t r = 1; r < n; r++)
        least = rolls[r].acknowledged < least ? rolls[r].acknowledged : least;
    return least;
}

enum fr_status fr_roll_check(const struct fr_roll *rolls, uint32_t n, struct fr_err *err)
{
    for (uint32_t r = 0; r < n; r++) {
        const struct fr_roll *a = &rolls[0], *b = &rolls[r];
        if (a->fingerprint != b->fingerprint || a->lockstep != b->lockstep)
            return fr_err_set(err, FR_E_MISMATCH,
                              "rank %" PRIu32 " has another configuration or program than rank 0; start all ranks with "
                              "the same files",
                              r);
        if (a->call != b->call || a->epoch != b->epoch || a->batches != b->batches || a->samples != b->samples ||
            a->watermark_ms != b->watermark_ms)
            return fr_err_set(err, FR_E_MISMATCH,
                              "rank %" PRIu32 " is at roll call %" PRIu64 ", epoch %" PRIu64 ", batch %" PRIu64
                              ", sample %" PRIu64 "; rank 0 at %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                              ": their state directories are not of one job",
                              r, b->call, b->epoch, b->batches, b->samples, a->call, a->epoch, a->batches, a->samples);
    }
    return FR_OK;
}
