/* How the domains of keys and the lanes of samples, which are equally many, are divided among the
 * ranks of a job: each rank has a contiguous range, and ranges ascend with ranks. */
#ifndef FR_BASE_RANKS_H
#define FR_BASE_RANKS_H

#include <stdint.h>

#include "base/check.h"

/* Domains, or lanes, [first, end). */
struct fr_domains {
    uint32_t first, end;
};

/* The domains and lanes of rank `rank` of `ranks`, at least one for each rank if there are at least
 * as many domains. */
static inline struct fr_domains fr_rank_domains(uint32_t rank, uint32_t ranks, uint32_t domains)
{
    FR_CHECK(rank < ranks);
    return (struct fr_domains){(uint32_t)((uint64_t)rank * domains / ranks),
                               (uint32_t)((uint64_t)(rank + 1) * domains / ranks)};
}

#endif
