/* Hashes whose values are stored and sent, so they never change: MurmurHash3's 64-bit finalizer,
 * XXH3-64, SHA-256 (OpenSSL's libcrypto). */
#ifndef FR_BASE_HASH_H
#define FR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Which of n equal ranges of keys, in ascending order, a key lies in. Delta partitions and domains
 * are such ranges: where their numbers divide, each range of the fewer consists of whole ones of
 * the others. */
static inline uint32_t fr_key_range(uint64_t key, uint32_t n)
{
    return (uint32_t)(((key >> 32) * n) >> 32);
}

/* A bijection on 64 bits (MurmurHash3, Appleby 2011). fr_fmix64_inverse is its inverse. */
static inline uint64_t fr_fmix64(uint64_t k)
{
    k ^= k >> 33;
    k *= 0xff51afd7ed558ccdULL;
    k ^= k >> 33;
    k *= 0xc4ceb9fe1a85ec53ULL;
    k ^= k >> 33;
    return k;
}
static inline uint64_t fr_fmix64_inverse(uint64_t k)
{
    /* A shift by 33 >= 64/2 is its own inverse. The factors are the inverses, modulo 2^64, of those
     * of fr_fmix64, in reverse order. */
    k ^= k >> 33;
    k *= 0x9cb4b2f8129337dbULL;
    k ^= k >> 33;
    k *= 0x4f74430c22a54005ULL;
    k ^= k >> 33;
    return k;
}

uint64_t fr_xxh3(const void *bytes, size_t size);
uint64_t fr_xxh3_seed(const void *bytes, size_t size, uint64_t seed);
struct fr_xxh3_stream; /* XXH3-64 of bytes that come in parts (dump) */
struct fr_xxh3_stream *fr_xxh3_stream_new(void);
void fr_xxh3_stream_update(struct fr_xxh3_stream *stream, const void *bytes, size_t size);
uint64_t fr_xxh3_stream_digest(const struct fr_xxh3_stream *stream);
void fr_xxh3_stream_free(struct fr_xxh3_stream *stream);

struct fr_sha256 {
    uint8_t bytes[32];
};
struct fr_sha256 fr_sha256(const void *bytes, size_t size);
struct fr_sha256_stream; /* SHA-256 of bytes that come in parts */
struct fr_sha256_stream *fr_sha256_stream_new(void);
void fr_sha256_stream_update(struct fr_sha256_stream *stream, const void *bytes, size_t size);
/* Returns the digest of all bytes so far; the stream then begins again. */
struct fr_sha256 fr_sha256_stream_end(struct fr_sha256_stream *stream);
void fr_sha256_stream_free(struct fr_sha256_stream *stream);
/* Returns the first 8 bytes, big-endian: the u64 that delta records carry as `dig`, `prev` and
 * `fp`. */
uint64_t fr_sha256_u64(const struct fr_sha256 *digest);

#endif
