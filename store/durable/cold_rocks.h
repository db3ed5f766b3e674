/* Shared by the files that use RocksDB: cold.c, cold_read.c, cold_fetch.c, cold_range.c,
 * cold_files.c, cold_tuning.c. */
#ifndef FR_DURABLE_COLD_ROCKS_H
#define FR_DURABLE_COLD_ROCKS_H

#include <stdatomic.h>
#include <string.h>

#include <rocksdb/c.h>

#include "cold.h"

enum { COLD_KEY_SIZE = 12 };
/* Table numbers reserved for the store, above FR_IMAGE_TABLE_MAX. */
#define COLD_TABLE_SECTIONS UINT32_C(0xffffff00)
#define COLD_TABLE_SENTINEL UINT32_C(0xffffff01)

struct fr_cold {
    char *path;
    struct fr_order order;
    rocksdb_options_t *options;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *rows; /* the one column family */
    rocksdb_cache_t *cache;               /* cache of indexes; NULL when the store is read-only */
    /* files that point reads open themselves; NULL when the store is read-only */
    struct fr_cold_files *files;
    uint32_t files_max; /* number of these files that stay open */
    /* time without reads after which all of them are closed */
    uint64_t files_idle_ms;
    _Atomic uint64_t asked, found; /* point reads: keys asked for, images found */
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

/* cold.c: translates RocksDB's error text into err and frees the text. */
enum fr_status fr_cold_error(char *text, const char *what, const char *path, struct fr_err *err);

/* cold_read.c: options for reading as of a snapshot (NULL: now). */
rocksdb_readoptions_t *fr_cold_read_options(const struct fr_cold_snapshot *at);
/* fr_cold_walk through RocksDB. */
enum fr_status fr_cold_walk_through(struct fr_cold *cold, const struct fr_cold_range *range, cold_visit visit,
                                    void *self, struct fr_err *err) FR_MUST_CHECK;
/* Makes an image of a key and its value; the image's bytes are those of the value. false: the value
 * is not an image. */
bool fr_cold_image_of(const struct fr_cold *cold, const uint8_t key[COLD_KEY_SIZE], const uint8_t *value, size_t size,
                      struct fr_image *out);
enum fr_status fr_cold_no_image(const struct fr_cold *cold, struct fr_err *err);

/* cold_tuning.c: sets every option that decides the bytes of a sorted file. *options is replaced by
 * another object; `cache` may be NULL. Files with the same entries then differ in their properties
 * only, whichever version of RocksDB writes them. */
enum fr_status fr_cold_set_format(rocksdb_options_t **options, rocksdb_cache_t *cache, int bloom_bits,
                                  struct fr_err *err) FR_MUST_CHECK;
/* cold_tuning.c: fills cold->options. FR_E_LIMIT: the process may open too few files. */
enum fr_status fr_cold_tune(struct fr_cold *cold, uint64_t fold_bytes, bool read_only,
                            struct fr_err *err) FR_MUST_CHECK;

#endif
