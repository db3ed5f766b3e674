/* Sorted files of folds beside RocksDB's own writer: the same keys and values give the same bytes,
 * up to the properties, which name writer and time. */
#include "scene.h"

#include "base/file.h"

#include "../../../store/durable/cold_rocks.h"
#include "../../../store/durable/sorted_writer.h"

enum { FOOTER = 53, ENTRIES = 20000, BLOCK_BYTES = 1 << 10, BLOOM_BITS = 16, FILE_MAX = 64 << 20 };

struct entry {
    uint8_t key[FR_SORTED_WRITER_KEY_MAX];
    size_t key_size, value_size;
    bool deleted;
};

struct pair {
    struct fr_sorted_writer *own;
    rocksdb_sstfilewriter_t *other;
    uint8_t value[2 * BLOCK_BYTES];
};

static void add(struct pair *pair, const struct entry *entry)
{
    struct fr_err err = {0};
    char *text = NULL;
    uint8_t *to = NULL;
    const char *key = (const char *)entry->key;
    if (entry->deleted) {
        assert_int_equal(fr_sorted_writer_delete(pair->own, entry->key, entry->key_size, &err), FR_OK);
        rocksdb_sstfilewriter_delete(pair->other, key, entry->key_size, &text);
    } else {
        assert_int_equal(fr_sorted_writer_put(pair->own, entry->key, entry->key_size, entry->value_size, &to, &err),
                         FR_OK);
        memcpy(to, pair->value, entry->value_size);
        rocksdb_sstfilewriter_put(pair->other, key, entry->key_size, (const char *)pair->value, entry->value_size,
                                  &text);
    }
    assert_null(text);
}

/* Adds keys like those of rows, at random distances; some differ in the last byte only. The values
 * are like those of rows; some are empty, and some are larger than a block. */
static void add_rows(struct pair *pair, uint64_t seed, size_t n, size_t value_size)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t random = fr_random_u64(seed, 0, 0, i);
        hash += 1 + (random >> 8) % (random % 4 == 0 ? 3 : UINT64_C(1) << (random % 41));
        struct entry entry = {.key_size = 12, .value_size = value_size, .deleted = random % 13 == 0};
        if (random % 29 == 0)
            entry.value_size = random % 3 ? random % 200 : random % sizeof(pair->value);
        entry.key[3] = i >= n / 2;
        for (size_t b = 0; b < 8; b++)
            entry.key[4 + b] = (uint8_t)(hash >> (56 - 8 * b));
        memset(pair->value, (int)random, sizeof(pair->value));
        add(pair, &entry);
    }
}

/* Keys of sections and the sentinel. */
static void add_sections(struct pair *pair)
{
    struct entry entry = {.key = {0xff, 0xff, 0xff, 0}, .value_size = 100};
    for (entry.key_size = 5; entry.key_size <= FR_SORTED_WRITER_KEY_MAX; entry.key_size++) {
        for (size_t b = 4; b < entry.key_size; b++)
            entry.key[b] = (uint8_t)('a' + b % 20);
        add(pair, &entry);
    }
    struct entry last = {.key = {0xff, 0xff, 0xff, 1}, .key_size = 4, .value_size = 64};
    add(pair, &last);
}

static uint64_t take_varint(const uint8_t **at)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

/* Where the index ends, by the footer. */
static uint64_t index_end(const struct fr_buffer *file)
{
    assert_true(file->size > FOOTER);
    const uint8_t *at = file->data + file->size - FOOTER + 1;
    (void)take_varint(&at);
    (void)take_varint(&at);
    uint64_t offset = take_varint(&at);
    return offset + take_varint(&at) + 5;
}

static rocksdb_options_t *options_of_folds(void)
{
    rocksdb_options_t *options = rocksdb_options_create();
    struct fr_err err = {0};
    assert_int_equal(fr_cold_set_format(&options, NULL, BLOOM_BITS, &err), FR_OK);
    return options;
}

static void compare(uint64_t seed, size_t n, size_t value_size, bool with_sections)
{
    struct scene scene = scene_make(seed);
    char paths[2][SCENE_PATH], *text = NULL;
    struct fr_err err = {0};
    struct pair pair = {0};
    scene_path(&scene, "own.sst", paths[0]);
    scene_path(&scene, "other.sst", paths[1]);
    rocksdb_options_t *options = options_of_folds();
    rocksdb_envoptions_t *env = rocksdb_envoptions_create();
    pair.other = rocksdb_sstfilewriter_create(env, options);
    rocksdb_sstfilewriter_open(pair.other, paths[1], &text);
    assert_int_equal(fr_sorted_writer_open(paths[0], 0, &pair.own, &err), FR_OK);
    add_rows(&pair, seed, n, value_size);
    if (with_sections)
        add_sections(&pair);
    rocksdb_sstfilewriter_finish(pair.other, &text);
    assert_null(text);
    assert_int_equal(fr_sorted_writer_finish(pair.own, &err), FR_OK);
    fr_sorted_writer_free(pair.own);
    struct fr_buffer own = {0}, other = {0};
    assert_int_equal(fr_file_read(paths[0], FILE_MAX, &own, &err), FR_OK);
    assert_int_equal(fr_file_read(paths[1], FILE_MAX, &other, &err), FR_OK);
    assert_int_equal(index_end(&own), index_end(&other));
    assert_memory_equal(own.data, other.data, index_end(&other));
    fr_buffer_release(&own);
    fr_buffer_release(&other);
    rocksdb_sstfilewriter_destroy(pair.other);
    rocksdb_envoptions_destroy(env);
    rocksdb_options_destroy(options);
}

FR_CASE(data_filter_and_index_are_to_the_byte_what_rocksdb_writes)
{
    compare(1, ENTRIES, 93, true);
    compare(2, ENTRIES, 37, false);
    compare(3, ENTRIES, 13, true);
    compare(4, ENTRIES, 1, false);
}

FR_CASE(so_are_those_of_a_few_keys)
{
    for (size_t n = 1; n <= 40; n++)
        compare(n, n, 93, n % 2 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(data_filter_and_index_are_to_the_byte_what_rocksdb_writes),
        SCENE_CASE(so_are_those_of_a_few_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
