/* See base/order.h. */
#include "base/order.h"

#include <sys/random.h>

#include "base/check.h"

struct fr_order fr_order_of(uint64_t salt)
{
    uint64_t multiplier = fr_fmix64(salt + 0x9e3779b97f4a7c15ULL) | 1;
    /* Newton's iteration doubles the number of correct bits. An odd number is its own inverse in
     * three bits. */
    uint64_t inverse = multiplier;
    for (int bits = 3; bits < 64; bits *= 2)
        inverse *= 2 - multiplier * inverse;
    return (struct fr_order){.salt = salt, .multiplier = multiplier, .inverse = inverse};
}

uint64_t fr_order_random_salt(void)
{
    uint64_t salt = 0;
    ssize_t got = getrandom(&salt, sizeof(salt), 0);
    FR_CHECK(got == (ssize_t)sizeof(salt)); /* never cut short for up to 256 bytes */
    return salt;
}
