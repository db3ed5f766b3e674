/* A Bloom filter of 16 bits a key, in which all bits of a key are in one cache line (Putze,
 * Sanders, Singler 2007), in RocksDB's format (FastLocalBloom of 7.8).
 *
 * The hash of a key is the 64-bit XXH3 of version 0.7.2, which RocksDB keeps because its files
 * depend on it. The lower half chooses the line; the upper half is multiplied for each bit. Keys
 * come one by one, and their number is known only at the end, so their hashes are kept. Lines are
 * scattered in memory and are prefetched.
 *
 * Owner: the fold thread. */
#include "sorted_filter.h"

#include <stdlib.h>

#include "base/check.h"

enum {
    BITS_OF_KEY = 16,   /* cold_tuning.c has the reason */
    PROBES = 9,         /* RocksDB's choice for this number of bits */
    TRAILER_PROBES = 2, /* index of the number of probes in the trailer */
    FIRST_HASHES = 1 << 16,
    LINES_AHEAD = 16,
    KEY_MIN = 4,
    KEY_MAX = 240,
    KEY_PAIRED_MAX = 128, /* longer keys are hashed in steps of 16 bytes */
    STEPS_FIRST = 8,
    STEPS_SECRET = 3,
    LAST_SECRET = 119,
    SECRET_BYTES = 136,
};
/* Marker, kind of filter, number of probes, two bytes reserved for later versions. */
static const uint8_t trailer[] = {0xff, 0, PROBES, 0, 0};

/* ---- the hash ---- */

static const uint64_t prime_1 = 0x9e3779b185ebca87, prime_2 = 0xc2b2ae3d27d4eb4f, prime_3 = 0x165667b19e3779f9;
static const uint64_t prime_32 = 0x9e3779b1;
static const uint8_t secret[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde,
    0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79,
    0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46,
    0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb,
    0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2,
    0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c,
    0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59,
    0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3};

__extension__ typedef unsigned __int128 wide;

static uint64_t folded_product(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= prime_3;
    return hash ^ hash >> 32;
}

static uint64_t mix(const uint8_t *bytes, size_t at_secret)
{
    return folded_product(fr_load_u64(bytes) ^ fr_load_u64(secret + at_secret),
                          fr_load_u64(bytes + 8) ^ fr_load_u64(secret + at_secret + 8));
}

static uint64_t hash_long(const uint8_t *key, size_t size)
{
    uint64_t sum = size * prime_1;
    for (size_t pair = (size - 1) / 32 + 1; pair-- > 0;)
        sum += mix(key + 16 * pair, 32 * pair) + mix(key + size - 16 * (pair + 1), 32 * pair + 16);
    return avalanche(sum);
}

static uint64_t hash_longest(const uint8_t *key, size_t size)
{
    uint64_t sum = size * prime_1;
    for (size_t i = 0; i < STEPS_FIRST; i++)
        sum += mix(key + 16 * i, 16 * i);
    sum = avalanche(sum);
    for (size_t i = STEPS_FIRST; i < size / 16; i++)
        sum += mix(key + 16 * i, 16 * (i - STEPS_FIRST) + STEPS_SECRET);
    return avalanche(sum + mix(key + size - 16, LAST_SECRET));
}

uint64_t fr_sorted_filter_hash(const uint8_t *key, size_t size)
{
    FR_CHECK(size >= KEY_MIN && size <= KEY_MAX);
    if (size > 16)
        return size > KEY_PAIRED_MAX ? hash_longest(key, size) : hash_long(key, size);
    if (size > 8) {
        uint64_t low = fr_load_u64(key) ^ fr_load_u64(secret);
        uint64_t high = fr_load_u64(key + size - 8) ^ fr_load_u64(secret + 8);
        return avalanche(size + low + high + folded_product(low, high));
    }
    uint64_t whole = fr_load_u32(key) | (uint64_t)fr_load_u32(key + size - 4) << 32;
    uint64_t keyed = whole ^ fr_load_u64(secret);
    uint64_t mixed = size + (keyed ^ keyed >> 51) * prime_32;
    return avalanche((mixed ^ mixed >> 47) * prime_2);
}

/* ---- the filter ---- */

void fr_sorted_filter_add(struct fr_sorted_filter *filter, const uint8_t *key, size_t size)
{
    if (filter->n == filter->capacity) {
        filter->capacity = filter->capacity ? 2 * filter->capacity : FIRST_HASHES;
        filter->hashes = fr_realloc(filter->hashes, filter->capacity, sizeof(*filter->hashes));
    }
    filter->hashes[filter->n++] = fr_sorted_filter_hash(key, size);
}

static uint8_t *line_of(uint8_t *lines, uint32_t n_lines, uint64_t hash)
{
    return lines + fr_sorted_filter_line(n_lines, (uint32_t)hash);
}

static void set_bits(uint8_t *line, uint64_t hash)
{
    uint32_t probe = (uint32_t)(hash >> 32);
    for (int i = 0; i < PROBES; i++, probe = fr_sorted_filter_next(probe)) {
        uint32_t bit = fr_sorted_filter_bit(probe);
        line[bit / 8] |= (uint8_t)(1u << bit % 8);
    }
}

bool fr_sorted_filter_take(const uint8_t *block, size_t size, struct fr_sorted_lines *out)
{
    size_t lines = size - sizeof(trailer);
    if (size <= sizeof(trailer) || lines % SORTED_FILTER_LINE != 0 || lines > UINT32_MAX)
        return false;
    uint8_t probes = block[lines + TRAILER_PROBES], same[sizeof(trailer)];
    memcpy(same, trailer, sizeof(same));
    same[TRAILER_PROBES] = probes; /* filters with fewer bits have fewer probes */
    *out = (struct fr_sorted_lines){block, (uint32_t)(lines / SORTED_FILTER_LINE), probes};
    return probes > 0 && probes < 32 && memcmp(block + lines, same, sizeof(same)) == 0;
}

void fr_sorted_filter_put(const struct fr_sorted_filter *filter, struct fr_buffer *out)
{
    size_t n = filter->n, n_lines = (n * BITS_OF_KEY / 8 + SORTED_FILTER_LINE - 1) / SORTED_FILTER_LINE;
    FR_CHECK(n_lines < UINT32_MAX / SORTED_FILTER_LINE);
    uint8_t *lines = fr_buffer_reserve(out, n_lines * SORTED_FILTER_LINE);
    memset(lines, 0, n_lines * SORTED_FILTER_LINE);
    for (size_t i = 0; i < n; i++) {
        if (i + LINES_AHEAD < n)
            __builtin_prefetch(line_of(lines, (uint32_t)n_lines, filter->hashes[i + LINES_AHEAD]), 1);
        set_bits(line_of(lines, (uint32_t)n_lines, filter->hashes[i]), filter->hashes[i]);
    }
    out->size += n_lines * SORTED_FILTER_LINE;
    fr_buffer_append(out, trailer, sizeof(trailer));
}

void fr_sorted_filter_release(struct fr_sorted_filter *filter)
{
    free(filter->hashes);
}
