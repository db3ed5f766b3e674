/* Ranks with Zipf frequencies, P(rank) proportional to (rank + 1)^-exponent, drawn in constant time
 * from a uniform number. Private to tool; the synthetic stream and the benchmarks draw their ids
 * here.
 *
 * Source: the alias method, Walker 1977, built as in Vose 1991. */
#ifndef FR_TOOL_ZIPF_H
#define FR_TOOL_ZIPF_H

#include <stdint.h>

struct fr_tool_zipf_cell {
    float keep; /* the column's own share */
    uint32_t other;
};

struct fr_tool_zipf {
    uint32_t count;
    struct fr_tool_zipf_cell *cells;
};

/* Owns the cells until release. count >= 1. */
void fr_tool_zipf_init(struct fr_tool_zipf *zipf, uint32_t count, double exponent);
void fr_tool_zipf_release(struct fr_tool_zipf *zipf);

/* The high half of `random` picks the column, the low half decides within it: any 64 uniform bits
 * give one rank in [0, count). */
static inline uint32_t fr_zipf_rank(const struct fr_tool_zipf *zipf, uint64_t random)
{
    uint32_t column = (uint32_t)(((random >> 32) * zipf->count) >> 32);
    float coin = (float)((uint32_t)random >> 8) * 0x1p-24f;
    return coin < zipf->cells[column].keep ? column : zipf->cells[column].other;
}

#endif
