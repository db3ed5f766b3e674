/* Sorted files in tests/golden: one that a fold's writer wrote, and one of each version of RocksDB
 * that a distribution has. All of them contain the same bytes except for their properties. This
 * version of RocksDB writes those bytes too, and both readers understand every file.
 *
 * FR_UPDATE=NAME writes sorted_NAME.sst: `fold` by a fold's writer, others by this RocksDB. */
#include "scene.h"

#include "../../../store/durable/cold_rocks.h"
#include "../../../store/durable/sorted_block.h"
#include "../../../store/durable/sorted_file.h"
#include "../../../store/durable/sorted_writer.h"

#define GOLDEN FR_SOURCE_DIR "/tests/golden/sorted_"

enum { ROWS = 150, BLOOM_BITS = 16, VALUE_MAX = 300 };

static const char *const names[] = {"fold", "rocksdb_7.8", "rocksdb_9.10"};
enum { FILES = sizeof(names) / sizeof(names[0]) };

/* Rows of two tables, and a section as the last entry. */
struct entry {
    uint8_t key[32];
    size_t key_size, value_size;
    bool deleted;
    uint8_t value[VALUE_MAX];
    uint32_t table;
    uint64_t hash;
};

static struct entry entry_of(uint32_t i)
{
    struct entry entry = {.key_size = COLD_KEY_SIZE, .table = i >= ROWS / 3, .deleted = i % 11 == 3};
    entry.hash = (uint64_t)i * i * UINT64_C(0x0000b7e151628aed);
    entry.value_size = i == ROWS ? VALUE_MAX : entry.deleted ? 0 : i % 60;
    cold_put_key(entry.key, entry.table, entry.hash);
    if (i == ROWS) {
        cold_put_be(entry.key, COLD_TABLE_SECTIONS, 4);
        memcpy(entry.key + 4, "a.section", 9);
        entry.key_size = 4 + 9;
    }
    for (size_t b = 0; b < entry.value_size; b++)
        entry.value[b] = (uint8_t)(i * 7 + b * b);
    return entry;
}

static void write_by_fold(const char *path)
{
    struct fr_sorted_writer *writer = NULL;
    struct fr_err err = {0};
    assert_int_equal(fr_sorted_writer_open(path, 0, &writer, &err), FR_OK);
    for (uint32_t i = 0; i <= ROWS; i++) {
        struct entry entry = entry_of(i);
        uint8_t *value = NULL;
        if (entry.deleted) {
            assert_int_equal(fr_sorted_writer_delete(writer, entry.key, entry.key_size, &err), FR_OK);
            continue;
        }
        assert_int_equal(fr_sorted_writer_put(writer, entry.key, entry.key_size, entry.value_size, &value, &err),
                         FR_OK);
        memcpy(value, entry.value, entry.value_size);
    }
    assert_int_equal(fr_sorted_writer_finish(writer, &err), FR_OK);
    fr_sorted_writer_free(writer);
}

static void write_by_rocksdb(const char *path)
{
    rocksdb_options_t *options = rocksdb_options_create();
    struct fr_err err = {0};
    char *text = NULL;
    assert_int_equal(fr_cold_set_format(&options, NULL, BLOOM_BITS, &err), FR_OK);
    rocksdb_envoptions_t *env = rocksdb_envoptions_create();
    rocksdb_sstfilewriter_t *writer = rocksdb_sstfilewriter_create(env, options);
    rocksdb_sstfilewriter_open(writer, path, &text);
    for (uint32_t i = 0; i <= ROWS && !text; i++) {
        struct entry entry = entry_of(i);
        const char *key = (const char *)entry.key, *value = (const char *)entry.value;
        if (entry.deleted)
            rocksdb_sstfilewriter_delete(writer, key, entry.key_size, &text);
        else
            rocksdb_sstfilewriter_put(writer, key, entry.key_size, value, entry.value_size, &text);
    }
    assert_null(text);
    rocksdb_sstfilewriter_finish(writer, &text);
    assert_null(text);
    rocksdb_sstfilewriter_destroy(writer);
    rocksdb_envoptions_destroy(env);
    rocksdb_options_destroy(options);
}

/* What stands before the properties: data, filter and index, which is the last of them. */
static struct fr_buffer read_beginning(const char *path)
{
    struct fr_buffer file = scene_read(path);
    struct sorted_handle index = {0};
    assert_true(file.size > SORTED_FOOTER);
    struct sorted_span span = {file.data + file.size - SORTED_FOOTER + 1, file.data + file.size};
    assert_true(fr_sorted_take_handle(&span, &index) && fr_sorted_take_handle(&span, &index));
    assert_true(index.offset + index.size < file.size);
    file.size = (size_t)(index.offset + index.size);
    return file;
}

static void assert_same_beginning(const char *path, const char *golden)
{
    struct fr_buffer own = read_beginning(path), other = read_beginning(golden);
    assert_int_equal(own.size, other.size);
    assert_memory_equal(own.data, other.data, own.size);
    fr_buffer_release(&own);
    fr_buffer_release(&other);
}

FR_CASE(a_fold_and_this_rocksdb_write_what_each_golden_file_holds)
{
    struct scene scene = scene_make(1);
    char fold[SCENE_PATH], other[SCENE_PATH];
    scene_path(&scene, "fold.sst", fold);
    scene_path(&scene, "other.sst", other);
    write_by_fold(fold);
    write_by_rocksdb(other);
    for (size_t f = 0; f < FILES; f++) {
        char golden[SCENE_PATH];
        snprintf(golden, sizeof(golden), GOLDEN "%s.sst", names[f]);
        assert_same_beginning(fold, golden);
        assert_same_beginning(other, golden);
    }
}

FR_CASE(each_golden_file_is_read_without_rocksdb)
{
    for (size_t f = 0; f < FILES; f++) {
        char golden[SCENE_PATH];
        snprintf(golden, sizeof(golden), GOLDEN "%s.sst", names[f]);
        struct fr_sorted_file *file = fr_sorted_open(golden, 1);
        struct fr_sorted_value value = {0};
        assert_non_null(file);
        for (uint32_t i = 0; i < ROWS; i++) {
            struct entry entry = entry_of(i);
            struct fr_sorted_key key = fr_sorted_key_of(entry.table, entry.hash);
            assert_true(fr_sorted_may_have(file, &key));
            assert_int_equal(fr_sorted_get(file, &key, fr_sorted_block(file, &key), true, &value),
                             entry.deleted ? FR_SORTED_DELETED : FR_SORTED_VALUE);
            assert_int_equal(value.size, entry.value_size);
            assert_memory_equal(value.bytes, entry.value, entry.value_size);
        }
        fr_buffer_release(&value.block);
        fr_sorted_close(file);
    }
}

/* Checks the entries in a cold store, after an ingest and again after a compaction. */
static void check_by_rocksdb(struct fr_cold *cold)
{
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(options, 1);
    for (uint32_t i = 0; i <= ROWS; i++) {
        struct entry entry = entry_of(i);
        size_t size = 0;
        const char *key = (const char *)entry.key;
        char *text = NULL, *value = rocksdb_get(cold->db, options, key, entry.key_size, &size, &text);
        assert_null(text);
        assert_int_equal(value == NULL, entry.deleted);
        assert_int_equal(size, entry.value_size);
        if (value)
            assert_memory_equal(value, entry.value, size);
        rocksdb_free(value);
    }
    rocksdb_readoptions_destroy(options);
}

FR_CASE(each_golden_file_is_taken_in_and_read_by_this_rocksdb)
{
    for (size_t f = 0; f < FILES; f++) {
        struct scene scene = scene_make(2 + f);
        struct fr_err err = {0};
        struct fr_cold *cold = NULL;
        char golden[SCENE_PATH], store[SCENE_PATH], copy[SCENE_PATH], *text = NULL;
        snprintf(golden, sizeof(golden), GOLDEN "%s.sst", names[f]);
        struct fr_buffer bytes = scene_read(golden);
        scene_path(&scene, "cold", store);
        scene_path(&scene, "copy.sst", copy);
        scene_write(copy, bytes.data, bytes.size);
        fr_buffer_release(&bytes);
        assert_int_equal(fr_cold_open(store, 0, false, &cold, &err), FR_OK);
        const char *const paths[] = {copy};
        rocksdb_ingestexternalfileoptions_t *ingest = rocksdb_ingestexternalfileoptions_create();
        rocksdb_ingest_external_file(cold->db, paths, 1, ingest, &text);
        rocksdb_ingestexternalfileoptions_destroy(ingest);
        assert_null(text);
        check_by_rocksdb(cold);
        rocksdb_compact_range(cold->db, NULL, 0, NULL, 0);
        check_by_rocksdb(cold);
        fr_cold_close(cold);
    }
}

int main(void)
{
    const char *update = getenv("FR_UPDATE");
    if (update) {
        char path[SCENE_PATH];
        snprintf(path, sizeof(path), GOLDEN "%.100s.sst", update);
        if (strcmp(update, names[0]) == 0)
            write_by_fold(path);
        else
            write_by_rocksdb(path);
    }
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_fold_and_this_rocksdb_write_what_each_golden_file_holds),
        SCENE_CASE(each_golden_file_is_read_without_rocksdb),
        SCENE_CASE(each_golden_file_is_taken_in_and_read_by_this_rocksdb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
