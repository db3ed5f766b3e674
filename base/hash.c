/* Hashes whose values are stored or sent, so they never change; the unit test has golden values.
 *
 * XXH3 is compiled in from its header (XXH_INLINE_ALL): most inputs are ids of a few bytes, for
 * which a call into a shared library costs as much as the hash. SHA-256 comes from libcrypto.
 *
 * Sources: MurmurHash3 (Appleby 2011), XXH3 (Collet 2019), FIPS 180-4. Thread: any; a stream
 * belongs to one thread. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

#include <stdlib.h>

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "base/check.h"

uint64_t fr_xxh3(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

uint64_t fr_xxh3_seed(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}

struct fr_xxh3_stream {
    XXH3_state_t state;
};

struct fr_xxh3_stream *fr_xxh3_stream_new(void)
{
    struct fr_xxh3_stream *stream = fr_alloc_aligned(_Alignof(struct fr_xxh3_stream), sizeof(*stream));
    XXH_errorcode rc = XXH3_64bits_reset(&stream->state);
    FR_CHECK(rc == XXH_OK);
    return stream;
}

void fr_xxh3_stream_update(struct fr_xxh3_stream *stream, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    XXH_errorcode rc = XXH3_64bits_update(&stream->state, bytes, size);
    FR_CHECK(rc == XXH_OK);
}

uint64_t fr_xxh3_stream_digest(const struct fr_xxh3_stream *stream)
{
    return XXH3_64bits_digest(&stream->state);
}

void fr_xxh3_stream_free(struct fr_xxh3_stream *stream)
{
    free(stream);
}

struct fr_sha256 fr_sha256(const void *bytes, size_t size)
{
    struct fr_sha256 digest;
    _Static_assert(sizeof(digest.bytes) == SHA256_DIGEST_LENGTH, "SHA-256 is 32 bytes");
    const unsigned char *done = SHA256(size ? bytes : "", size, digest.bytes);
    FR_CHECK(done == digest.bytes); /* fails only if libcrypto has no SHA-256 */
    return digest;
}

struct fr_sha256_stream {
    EVP_MD_CTX *context;
};

static void begin_sha256(struct fr_sha256_stream *stream)
{
    int begun = EVP_DigestInit_ex(stream->context, EVP_sha256(), NULL);
    FR_CHECK(begun == 1);
}

struct fr_sha256_stream *fr_sha256_stream_new(void)
{
    struct fr_sha256_stream *stream = fr_alloc(1, sizeof(*stream));
    stream->context = EVP_MD_CTX_new();
    FR_CHECK(stream->context != NULL);
    begin_sha256(stream);
    return stream;
}

void fr_sha256_stream_update(struct fr_sha256_stream *stream, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    int updated = EVP_DigestUpdate(stream->context, bytes, size);
    FR_CHECK(updated == 1);
}

struct fr_sha256 fr_sha256_stream_end(struct fr_sha256_stream *stream)
{
    struct fr_sha256 digest;
    int ended = EVP_DigestFinal_ex(stream->context, digest.bytes, NULL);
    FR_CHECK(ended == 1);
    begin_sha256(stream);
    return digest;
}

void fr_sha256_stream_free(struct fr_sha256_stream *stream)
{
    if (!stream)
        return;
    EVP_MD_CTX_free(stream->context);
    free(stream);
}

uint64_t fr_sha256_u64(const struct fr_sha256 *digest)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | digest->bytes[i];
    return value;
}
