/* Which elements survive dropout: one rule for every backend.
 *
 * A 64-bit draw of base/random.h per row, then a 32-bit finaliser (Stafford's mixing, constants
 * of Wellons' lowbias32) over the column: the mask is a pure function of (seed, key, row number
 * in the batch, column), so it does not depend on chunks, on workers or on how often it is
 * computed, and its loop vectorises. */
#ifndef FR_OPS_DROPOUT_H
#define FR_OPS_DROPOUT_H

#include "base/random.h"
#include "ops/layers.h"

/* a stream of fr_random_u64 that differs from the streams of initial weights */
enum { FR_STREAM_DROPOUT = 0x64726f70 };

FR_HD uint64_t fr_dropout_row(const struct fr_dropout *c, uint32_t row)
{
    return fr_random_u64(c->seed, FR_STREAM_DROPOUT, c->key, (uint64_t)c->first + row);
}

FR_HD uint32_t fr_dropout_bits(uint64_t row, uint32_t column)
{
    uint32_t x = (uint32_t)row + column * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) * 0x735a2d97u;
    x = (x ^ x >> 15) + (uint32_t)(row >> 32);
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) * 0x735a2d97u;
    return x ^ x >> 15;
}

/* An element whose bits are below this is dropped; rate is in [0, 1). */
FR_HD uint32_t fr_dropout_threshold(float rate)
{
    return (uint32_t)((double)rate * 4294967296.0);
}

#endif
