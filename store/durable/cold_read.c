/* Walks over the cold store by RocksDB: as of a snapshot, over all keys, or over the sections.
 * cold_range.c walks ranges of the present store, cold_fetch.c does point reads.
 *
 * RocksDB chooses the readahead of a walk, which grows as the walk continues. Most walks are of a
 * slice or of one entry, for which a fixed readahead of 2 MiB in each file would cost more than all
 * they read.
 *
 * Invariants: checksums are verified; an error is never taken for "absent".
 *
 * Thread: any. Iterators and reads see the store before or after a fold, never half a fold. */
#include "cold_rocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct fr_cold_iterator {
    rocksdb_readoptions_t *options;
    rocksdb_iterator_t *at;
    uint8_t bound[COLD_KEY_SIZE]; /* first key after the range */
};

/* ---- snapshots ---- */

struct fr_cold_snapshot {
    const rocksdb_snapshot_t *of;
};

struct fr_cold_snapshot *fr_cold_snapshot_new(struct fr_cold *cold)
{
    struct fr_cold_snapshot *snapshot = fr_alloc(1, sizeof(*snapshot));
    snapshot->of = rocksdb_create_snapshot(cold->db);
    return snapshot;
}

void fr_cold_snapshot_free(struct fr_cold *cold, struct fr_cold_snapshot *snapshot)
{
    if (!snapshot)
        return;
    rocksdb_release_snapshot(cold->db, snapshot->of);
    free(snapshot);
}

rocksdb_readoptions_t *fr_cold_read_options(const struct fr_cold_snapshot *at)
{
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    if (at)
        rocksdb_readoptions_set_snapshot(options, at->of);
    return options;
}

/* ---- iterators ---- */

/* Iterates over all keys from the table's first on, or over the keys of a range. */
static void iterate_from(struct fr_cold *cold, uint32_t table, const struct fr_cold_range *range,
                         const struct fr_cold_snapshot *at, struct fr_cold_iterator *it)
{
    uint8_t key[COLD_KEY_SIZE];
    *it = (struct fr_cold_iterator){.options = fr_cold_read_options(at)};
    rocksdb_readoptions_set_verify_checksums(it->options, 1);
    rocksdb_readoptions_set_fill_cache(it->options, 0);
    cold_put_key(key, range ? range->table : table, range ? range->first : 0);
    if (range) {
        bool all = range->last == UINT64_MAX;
        cold_put_key(it->bound, range->table + all, all ? 0 : range->last + 1);
        rocksdb_readoptions_set_iterate_upper_bound(it->options, (const char *)it->bound, sizeof(it->bound));
    }
    it->at = rocksdb_create_iterator(cold->db, it->options);
    rocksdb_iter_seek(it->at, (const char *)key, range ? sizeof(key) : 4);
}

/* Ends the iteration and returns RocksDB's error, if one ended the walk early. */
static enum fr_status iterate_end(struct fr_cold *cold, struct fr_cold_iterator *it, struct fr_err *err)
{
    char *text = NULL;
    rocksdb_iter_get_error(it->at, &text);
    rocksdb_iter_destroy(it->at);
    rocksdb_readoptions_destroy(it->options);
    return text ? fr_cold_error(text, "read", cold->path, err) : FR_OK;
}

/* false at the end, or after an error, which iterate_end returns. */
static bool iterate_get(const struct fr_cold_iterator *it, const uint8_t **key, size_t *key_size)
{
    if (!rocksdb_iter_valid(it->at))
        return false;
    *key = (const uint8_t *)rocksdb_iter_key(it->at, key_size);
    return true;
}

bool fr_cold_image_of(const struct fr_cold *cold, const uint8_t key[COLD_KEY_SIZE], const uint8_t *value, size_t size,
                      struct fr_image *out)
{
    if (size < 1 || size - 1 > UINT32_MAX || value[0] >= FR_IMAGE_KINDS || value[0] == FR_IMAGE_ABSENT)
        return false;
    *out = (struct fr_image){.key = fr_order_key(&cold->order, cold_take_be(key + 4, 8)),
                             .table = (uint32_t)cold_take_be(key, 4),
                             .size = (uint32_t)(size - 1),
                             .kind = value[0],
                             .bytes = value + 1};
    return true;
}

enum fr_status fr_cold_no_image(const struct fr_cold *cold, struct fr_err *err)
{
    return fr_err_set(err, FR_E_CORRUPT, "the cold store %s holds an entry that is no image", cold->path);
}

/* ---- walks ---- */

enum fr_status fr_cold_walk_through(struct fr_cold *cold, const struct fr_cold_range *range, cold_visit visit,
                                    void *self, struct fr_err *err)
{
    struct fr_cold_iterator it;
    iterate_from(cold, 0, range, range ? range->at : NULL, &it);
    enum fr_status status = FR_OK;
    const uint8_t *key;
    size_t key_size, size;
    uint64_t done = 0;
    while (status == FR_OK && iterate_get(&it, &key, &key_size)) {
        if (key_size >= 4 && cold_take_be(key, 4) > FR_IMAGE_TABLE_MAX)
            break;
        struct fr_image image;
        const uint8_t *value = (const uint8_t *)rocksdb_iter_value(it.at, &size);
        if (key_size != COLD_KEY_SIZE || !fr_cold_image_of(cold, key, value, size, &image)) {
            status = fr_cold_no_image(cold, err);
            break;
        }
        done += key_size + size;
        status = visit(self, &image, done);
        rocksdb_iter_next(it.at);
    }
    enum fr_status end = iterate_end(cold, &it, err);
    return status != FR_OK ? status : end;
}

enum fr_status fr_cold_next_table(struct fr_cold *cold, uint32_t from, const struct fr_cold_snapshot *at, uint32_t *out,
                                  struct fr_err *err)
{
    struct fr_cold_iterator it;
    iterate_from(cold, from, NULL, at, &it);
    const uint8_t *key;
    size_t key_size;
    bool found = iterate_get(&it, &key, &key_size) && key_size >= 4 && cold_take_be(key, 4) <= FR_IMAGE_TABLE_MAX;
    uint32_t table = found ? (uint32_t)cold_take_be(key, 4) : 0;
    enum fr_status status = iterate_end(cold, &it, err);
    if (status != FR_OK || !found)
        return status != FR_OK ? status : FR_EOF;
    *out = table;
    return FR_OK;
}

enum fr_status fr_cold_walk_sections(struct fr_cold *cold, const struct fr_cold_snapshot *at, cold_visit_section visit,
                                     void *self, struct fr_err *err)
{
    struct fr_cold_iterator it;
    iterate_from(cold, COLD_TABLE_SECTIONS, NULL, at, &it);
    enum fr_status status = FR_OK;
    const uint8_t *key;
    size_t key_size;
    while (status == FR_OK && iterate_get(&it, &key, &key_size) && key_size >= 4 &&
           cold_take_be(key, 4) == COLD_TABLE_SECTIONS) {
        char name[FR_SECTION_NAME_MAX] = "";
        size_t length = key_size - 4, size;
        if (length == 0 || length >= FR_SECTION_NAME_MAX || memchr(key + 4, '\0', length)) {
            status = fr_err_set(err, FR_E_CORRUPT, "the cold store %s holds damaged section names", cold->path);
            break;
        }
        memcpy(name, key + 4, length);
        const char *value = rocksdb_iter_value(it.at, &size);
        status = visit(self, name, (const uint8_t *)value, size);
        rocksdb_iter_next(it.at);
    }
    enum fr_status end = iterate_end(cold, &it, err);
    return status != FR_OK ? status : end;
}
