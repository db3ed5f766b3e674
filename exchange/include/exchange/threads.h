/* Ranks as threads of one process: for tests, for the race detector, for `freshet-bench ranks`, and
 * to find what a slow, a hung or a dying rank does to the others. Delays are drawn from a seed.
 *
 * Owns: the caller owns the group, and frees it once no thread uses one of its exchanges; the group
 * owns the exchanges of its ranks. */
#ifndef FR_EXCHANGE_THREADS_H
#define FR_EXCHANGE_THREADS_H

#include <stdbool.h>

#include "exchange/exchange.h"

struct fr_exchange_group;

struct fr_exchange_group_options {
    uint32_t ranks;       /* 1 to FR_RANKS_MAX */
    uint64_t deadline_ns; /* the longest wait for a rank */
    /* What a rank sends is seen this much later, at most, by its receiver: a delay drawn for each
     * pair of ranks, call and channel, so that channels overtake each other. 0: at once. */
    uint64_t delay_max_ns;
    uint64_t seed;
    /* From its call number `fault_at` on (sends and receives counted together, a gather as one of
     * each, from 1; 0: never), rank `fault_rank` hangs, or ends the job with fault_code if that is
     * not 0. A hung rank's call returns when another rank ends the job. fault_votes: only calls of
     * votes are counted. */
    uint32_t fault_rank;
    bool fault_votes;
    uint64_t fault_at;
    int fault_code;
};

struct fr_exchange_group *fr_exchange_group_new(const struct fr_exchange_group_options *options);
void fr_exchange_group_free(struct fr_exchange_group *group);
/* The exchange of one rank, which the group owns (no fr_exchange_free). */
struct fr_exchange *fr_exchange_group_rank(struct fr_exchange_group *group, uint32_t rank);

#endif
