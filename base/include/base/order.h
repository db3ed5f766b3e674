/* The keyed order of a state: a bijection from keys to hashes, by which index, batch scratch,
 * shards, slices and the cold store are sorted (docs/architecture.md, "The store").
 *
 * hash = fmix64(key ^ salt) * multiplier (mod 2^64), where the multiplier is an odd secret derived
 * from the salt. This is multiply-shift hashing (Dietzfelbinger, Hagerup, Katajainen, Penttonen
 * 1997): the TOP bits of two different inputs agree in l bits with probability at most 2^(1-l),
 * even if an adversary chose the inputs, as long as the salt is secret. So users of the order take
 * the top bits; the low bits are only as good as fmix64.
 *
 * Thread: any. */
#ifndef FR_BASE_ORDER_H
#define FR_BASE_ORDER_H

#include "base/hash.h"

struct fr_order {
    uint64_t salt;
    uint64_t multiplier, inverse; /* odd; their product is 1 modulo 2^64 */
};

struct fr_order fr_order_of(uint64_t salt);
/* A salt that nobody can predict, from the system's random numbers. */
uint64_t fr_order_random_salt(void);

static inline uint64_t fr_order_hash(const struct fr_order *order, uint64_t key)
{
    return fr_fmix64(key ^ order->salt) * order->multiplier;
}

static inline uint64_t fr_order_key(const struct fr_order *order, uint64_t hash)
{
    return fr_fmix64_inverse(hash * order->inverse) ^ order->salt;
}

#endif
