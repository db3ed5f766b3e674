/* Which epochs a job of several ranks has. Every rank has a state directory of its own, and an
 * epoch exists if all of them have it: two-phase commit, with the journals as the log of the
 * participants (Gray, Notes on Data Base Operating Systems, 1978). There is no coordinator, because
 * every rank learns every vote and decides alike.
 *
 *   prepare  a rank appends the epoch to its journal and syncs it
 *   vote     the ranks tell each other; none continues before all have prepared the epoch
 *   commit   each rank writes its mark, syncs it, and may publish its part of the epoch
 *
 * So a rank whose mark names epoch e knows that all journals hold e, whatever has become of their
 * marks. After a crash the ranks keep the epochs up to the last one that all journals hold, T. It
 * is at least the largest mark, so nothing that was published is lost; and T + 1 was not published,
 * because a rank has not prepared it. A start is a vote about T: each rank writes what its mark
 * does not name again and syncs it, because it may have been in the page cache only, and no rank
 * marks T before all have done so.
 *
 * unit_durable_agreement searches all interleavings of steps and crashes of a small job.
 * Thread: any; nothing is kept. */
#ifndef FR_DURABLE_AGREEMENT_H
#define FR_DURABLE_AGREEMENT_H

#include <stdbool.h>

#include "durable/durable.h"

/* What a rank says of the epoch that is being made durable. */
struct fr_durable_vote {
    uint64_t epoch;
    uint32_t waits_for; /* 0: prepared; otherwise an enum of the caller: what the rank waits for */
    uint32_t zero;
    struct fr_sha256 digest; /* of the epoch in the rank's journal; zeros: not prepared */
};
_Static_assert(sizeof(struct fr_durable_vote) == 48, "no padding: it travels");

/* Whether all n ranks have prepared the epoch. If not, *rank is one that has not. FR_E_MISMATCH:
 * the ranks vote about different epochs. */
enum fr_status fr_durable_voted(const struct fr_durable_vote *votes, uint32_t n, bool *all, uint32_t *rank,
                                struct fr_err *err) FR_MUST_CHECK;
/* The digest of an epoch of the job, which replicas compare: of [n] digests in the order of ranks,
 * each of one rank's journal, the SHA-256; with one rank, the digest of its journal. Since each of
 * them covers all epochs before (epoch.h), so does the digest of the job, and no other chain is
 * stored. */
struct fr_sha256 fr_durable_join_digests(const struct fr_sha256 *of_ranks, uint32_t n);
/* Returns in *keep the epoch T that n ranks keep after a start. FR_E_CORRUPT: a rank lacks an epoch
 * that another one has marked: its directory is older, or another one. */
enum fr_status fr_durable_agree(const struct fr_durable_ends *ends, uint32_t n, uint64_t *keep,
                                struct fr_err *err) FR_MUST_CHECK;

#endif
