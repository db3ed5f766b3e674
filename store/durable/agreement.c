/* See durable/agreement.h. */
#include "durable/agreement.h"

#include <inttypes.h>

enum fr_status fr_durable_voted(const struct fr_durable_vote *votes, uint32_t n, bool *all, uint32_t *rank,
                                struct fr_err *err)
{
    *all = true;
    for (uint32_t r = 0; r < n; r++) {
        if (votes[r].epoch != votes[0].epoch)
            return fr_err_set(err, FR_E_MISMATCH,
                              "rank %" PRIu32 " makes epoch %" PRIu64 " durable, and rank 0 epoch %" PRIu64
                              ": their state directories are not of one job",
                              r, votes[r].epoch, votes[0].epoch);
        if (votes[r].waits_for != 0 && *all) {
            *all = false;
            *rank = r;
        }
    }
    return FR_OK;
}

struct fr_sha256 fr_durable_join_digests(const struct fr_sha256 *of_ranks, uint32_t n)
{
    _Static_assert(sizeof(*of_ranks) == 32, "no padding: the bytes of all are hashed");
    return n == 1 ? of_ranks[0] : fr_sha256(of_ranks, n * sizeof(*of_ranks));
}

enum fr_status fr_durable_agree(const struct fr_durable_ends *ends, uint32_t n, uint64_t *keep, struct fr_err *err)
{
    uint32_t least = 0, most = 0;
    for (uint32_t r = 1; r < n; r++) {
        least = ends[r].journal < ends[least].journal ? r : least;
        most = ends[r].mark > ends[most].mark ? r : most;
    }
    *keep = ends[least].journal;
    if (*keep >= ends[most].mark)
        return FR_OK;
    return fr_err_set(err, FR_E_CORRUPT,
                      "the journal of rank %" PRIu32 " ends with epoch %" PRIu64 ", but rank %" PRIu32
                      " has marked epoch %" PRIu64 ": the state directory of rank %" PRIu32
                      " is an older copy or another one; restore it, or the savepoints of all ranks",
                      least, *keep, most, ends[most].mark, least);
}
