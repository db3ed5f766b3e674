/* Makes 64-bit keys from raw ids (docs/formats/samples.md, "Ids and keys").
 *
 * An integer is hashed by MurmurHash3's finalizer. That is a bijection, so integers of one
 * namespace never collide, and a key can be turned back into its integer. A string is hashed by
 * XXH3. The text of a 64-bit integer in canonical form is that integer, so producers may quote
 * ids or not; `id: raw` switches this off for ids such as "007" and "7" whose spelling matters.
 * Golden vectors: tests/golden/keys.json. Pure functions, any thread. */
#include "decode/decoder.h"

#include <string.h>

#include "base/hash.h"

enum { MAX_DIGITS = 20 }; /* digits of 2^64 - 1; a sign is not counted */

uint64_t fr_key_integer(uint64_t v, uint64_t seed)
{
    return fr_fmix64(v ^ seed);
}

/* Accepts "0", "-7" and "18446744073709551615". Refuses "", "-", "-0", "05", "+5", " 5", "5.0",
 * and all numbers outside -2^63 .. 2^64-1. */
static bool canonical_integer(const uint8_t *text, size_t size, uint64_t *value)
{
    bool negative = size > 0 && text[0] == '-';
    const uint8_t *digits = text + negative;
    size_t n = size - negative;
    if (n == 0 || n > MAX_DIGITS || (digits[0] == '0' && size > 1))
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)digits[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)digit, &v))
            return false;
    }
    if (negative && v > (uint64_t)1 << 63)
        return false;
    *value = negative ? 0 - v : v;
    return true;
}

uint64_t fr_key_string(const void *bytes, size_t size, uint64_t seed, bool id_raw)
{
    uint64_t v;
    if (!id_raw && size <= MAX_DIGITS + 1 && canonical_integer(bytes, size, &v))
        return fr_key_integer(v, seed);
    return fr_xxh3_seed(bytes, size, seed);
}

uint64_t fr_key_text(const char *text, const struct fr_conf_slot *slot)
{
    return fr_key_string(text, strlen(text), slot->seed, slot->id_raw);
}
