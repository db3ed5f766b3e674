/* What store and graph are linked with elsewhere and a machine with a card need not have: the cold
 * store (no row leaves memory here) and XXH3 (names only, whose hashes are stored nowhere here). */
#include "base/check.h"
#include "base/hash.h"
#include "durable/durable.h"

uint64_t fr_xxh3(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t hash = size;
    for (size_t i = 0; i < size; i++)
        hash = fr_fmix64(hash ^ at[i]);
    return hash;
}

enum fr_status fr_durable_fetch(struct fr_durable *durable, uint32_t table, const uint64_t *hashes, size_t n,
                                const struct fr_durable_reader *reader, struct fr_err *err)
{
    (void)durable, (void)table, (void)hashes, (void)n, (void)reader, (void)err;
    FR_CHECK(false);
    return FR_E_UNSUPPORTED;
}

uint64_t fr_durable_folded(struct fr_durable *durable)
{
    (void)durable;
    FR_CHECK(false);
    return 0;
}
