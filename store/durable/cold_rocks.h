/* What the files that know RocksDB share: cold.c, cold_read.c, cold_fetch.c, cold_range.c,
 * cold_files.c, cold_tuning.c. */
#ifndef FR_DURABLE_COLD_ROCKS_H
#define FR_DURABLE_COLD_ROCKS_H

#include <stdatomic.h>
#include <string.h>

#include <rocksdb/c.h>

#include "cold.h"

enum { COLD_KEY_SIZE = 12 };
/* Table numbers of ours, above FR_IMAGE_TABLE_MAX. */
#define COLD_TABLE_SECTIONS UINT32_C(0xffffff00)
#define COLD_TABLE_SENTINEL UINT32_C(0xffffff01)

struct fr_cold {
    char *path;
    struct fr_order order;
    rocksdb_options_t *options;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *rows; /* the one column family */
    rocksdb_cache_t *cache;               /* of indexes; NULL when it only reads */
    struct fr_cold_files *files;          /* what point reads read themselves; likewise */
    uint32_t files_max;                   /* of those that stay open */
    uint64_t files_idle_ms;               /* after which all are closed */
    _Atomic uint64_t asked, found;        /* point reads: keys, images */
};

static inline void cold_put_be(uint8_t *out, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        out[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static inline uint64_t cold_take_be(const uint8_t *bytes, unsigned size)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return value;
}

static inline void cold_put_key(uint8_t out[COLD_KEY_SIZE], uint32_t table, uint64_t hash)
{
    table = __builtin_bswap32(table);
    hash = __builtin_bswap64(hash);
    memcpy(out, &table, sizeof(table));
    memcpy(out + sizeof(table), &hash, sizeof(hash));
}

/* cold.c: takes RocksDB's text over into err and frees it. */
enum fr_status fr_cold_error(char *text, const char *what, const char *path, struct fr_err *err);

/* cold_read.c: reading as of a snapshot (NULL: now). */
rocksdb_readoptions_t *fr_cold_read_options(const struct fr_cold_snapshot *at);
/* fr_cold_walk, by RocksDB. */
enum fr_status fr_cold_walk_through(struct fr_cold *cold, const struct fr_cold_range *range, cold_visit visit,
                                    void *self, struct fr_err *err) FR_MUST_CHECK;
/* false: the value of that key is no image. It lies in the value. */
bool fr_cold_image_of(const struct fr_cold *cold, const uint8_t key[COLD_KEY_SIZE], const uint8_t *value, size_t size,
                      struct fr_image *out);
enum fr_status fr_cold_no_image(const struct fr_cold *cold, struct fr_err *err);

/* cold_tuning.c: all that decides the bytes of a sorted file, into *options, in whose place another
 * object comes; `cache` may be NULL. Files of the same entries differ in their properties only,
 * whichever version of RocksDB writes them. */
enum fr_status fr_cold_set_format(rocksdb_options_t **options, rocksdb_cache_t *cache, int bloom_bits,
                                  struct fr_err *err) FR_MUST_CHECK;
/* cold_tuning.c: fills options. FR_E_LIMIT when the process may open too few
 * files. */
enum fr_status fr_cold_tune(struct fr_cold *cold, uint64_t fold_bytes, bool read_only,
                            struct fr_err *err) FR_MUST_CHECK;

#endif
