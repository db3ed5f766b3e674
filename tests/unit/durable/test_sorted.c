/* Sorted files of the cold store, read without RocksDB: the same answers, from files of every kind
 * and from damaged ones. */
#include "scene.h"

#include <fcntl.h>
#include <glob.h>

#include "base/order.h"

#include "../../../store/durable/cold_files.h"
#include "../../../store/durable/durable_internal.h"
#include "../../../store/durable/sorted_block.h"

enum { KEYS = 2000, FLIPS = 1500, ROW_BYTES = 100 };

/* ---- the store ---- */

struct answers {
    size_t images, none;
    uint64_t sum; /* of places and bytes */
};

static enum fr_status add_answer(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    struct answers *answers = self;
    answers->images += image != NULL;
    answers->none += image == NULL;
    if (image)
        answers->sum += fr_xxh3_seed(image->bytes, image->size, hash ^ index);
    return FR_OK;
}

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Asks for all keys of the scene and as many others. */
static struct answers ask(const struct scene *scene, struct fr_durable *durable, uint32_t table)
{
    uint64_t *hashes = calloc(2 * (size_t)scene->keys, sizeof(*hashes));
    assert_non_null(hashes);
    struct fr_order order = fr_order_of(scene->salt);
    struct answers answers = {0};
    struct fr_durable_reader reader = {&answers, add_answer};
    struct fr_err err = {0};
    for (uint64_t i = 0; i < 2 * (uint64_t)scene->keys; i++)
        hashes[i] = fr_order_hash(&order, scene_key(i));
    qsort(hashes, 2 * (size_t)scene->keys, sizeof(*hashes), compare_u64);
    assert_int_equal(fr_durable_fetch(durable, table, hashes, 2 * (size_t)scene->keys, &reader, &err), FR_OK);
    assert_int_equal(answers.images + answers.none, 2 * (size_t)scene->keys);
    free(hashes);
    return answers;
}

/* Walks a range of hashes; images only. */
static struct answers walk(struct fr_durable *durable, uint32_t table, uint64_t first, uint64_t last)
{
    struct answers answers = {0};
    struct fr_durable_reader reader = {&answers, add_answer};
    struct fr_err err = {0};
    assert_int_equal(fr_durable_scan(durable, table, first, last, &reader, &err), FR_OK);
    return answers;
}

static void assert_same(struct answers a, struct answers b)
{
    assert_int_equal(a.images, b.images);
    assert_int_equal(a.none, b.none);
    assert_int_equal(a.sum, b.sum);
}

/* Returns the number of sorted files that reads use now; 0: there is no view. */
static uint32_t files_read(struct fr_durable *durable)
{
    const struct cold_view *view = fr_cold_files_hold(durable->cold->files);
    uint32_t n = view ? view->n_files : 0;
    if (view)
        fr_cold_files_give(durable->cold->files, view);
    return n;
}

static void append_and_fold(const struct scene *scene, struct fr_durable *durable, uint64_t epoch)
{
    struct fr_err err = {0};
    assert_int_equal(scene_append(scene, durable, epoch, &err), FR_OK);
    scene_fold(durable);
    assert_int_equal(fr_durable_acknowledge(durable, epoch, &err), FR_OK);
}

static struct scene scene_of(uint64_t seed)
{
    struct scene scene = scene_make(seed);
    scene.keys = KEYS;
    return scene;
}

FR_CASE(files_and_rocksdb_give_the_same_answers)
{
    struct scene scene = scene_of(1);
    struct fr_durable *durable = scene_open(&scene, false);
    durable->sst_bytes_max = 60000;                  /* some files a fold */
    for (uint64_t epoch = 1; epoch <= 12; epoch++) { /* a compaction comes on the way */
        append_and_fold(&scene, durable, epoch);
        for (uint32_t table = 0; table < SCENE_TABLES; table++) {
            struct fr_cold_files *files = durable->cold->files;
            uint64_t from = fr_random_u64(1, table, epoch, 0), to = fr_random_u64(2, table, epoch, 0);
            uint64_t first = from < to ? from : to, last = from < to ? to : from;
            struct answers own = ask(&scene, durable, table);
            struct answers all = walk(durable, table, 0, UINT64_MAX), some = walk(durable, table, first, last);
            assert_true(files_read(durable) > 0);
            durable->cold->files = NULL;
            assert_same(own, ask(&scene, durable, table));
            assert_same(all, walk(durable, table, 0, UINT64_MAX));
            assert_same(some, walk(durable, table, first, last));
            durable->cold->files = files;
            assert_true(own.images > 0 && own.none > KEYS);
            assert_int_equal(all.images, own.images);
        }
    }
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    (void)ask(&scene, durable, 0);
    assert_true(files_read(durable) > 0);
    fr_durable_close(durable);
}

FR_CASE(files_beyond_those_that_may_stay_open_are_opened_for_each_read)
{
    struct scene scene = scene_of(2);
    struct fr_durable *durable = scene_open(&scene, false);
    durable->cold->files_max = 1;
    for (uint64_t epoch = 1; epoch <= 3; epoch++)
        append_and_fold(&scene, durable, epoch);
    struct fr_cold_files *files = durable->cold->files;
    struct answers own = ask(&scene, durable, 1), all = walk(durable, 1, 0, UINT64_MAX);
    const struct cold_view *view = fr_cold_files_hold(files);
    assert_true(view && view->n_files == 3);
    uint32_t n_open = 0;
    for (uint32_t i = 0; i < view->n_files; i++)
        n_open += view->files[i].file->fd >= 0;
    assert_int_equal(n_open, 1);
    fr_cold_files_give(files, view);
    durable->cold->files = NULL;
    assert_same(own, ask(&scene, durable, 1));
    assert_same(all, walk(durable, 1, 0, UINT64_MAX));
    durable->cold->files = files;
    fr_durable_close(durable);
}

FR_CASE(what_a_compaction_replaced_is_let_go_by_the_next_read)
{
    struct scene scene = scene_of(3);
    struct fr_durable *durable = scene_open(&scene, false);
    for (uint64_t epoch = 1; epoch <= 8; epoch++) {
        append_and_fold(&scene, durable, epoch);
        (void)ask(&scene, durable, 0);
    }
    struct answers before = ask(&scene, durable, 0);
    const struct cold_view *held = fr_cold_files_hold(durable->cold->files);
    assert_non_null(held);
    rocksdb_compact_range(durable->cold->db, NULL, 0, NULL, 0);
    assert_same(ask(&scene, durable, 0), before);
    const struct cold_view *now = fr_cold_files_hold(durable->cold->files);
    assert_true(now && now != held && now->n_runs == 1);
    fr_cold_files_give(durable->cold->files, now);
    fr_cold_files_give(durable->cold->files, held);
    fr_durable_close(durable);
}

/* Files of the cold store that this process has open and that have no name any more. */
static size_t count_nameless(void)
{
    char target[SCENE_PATH], link[SCENE_PATH];
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        snprintf(link, sizeof(link), "/proc/self/fd/%.100s", entry->d_name);
        ssize_t size = readlink(link, target, sizeof(target) - 1);
        target[size > 0 ? size : 0] = '\0';
        n += strstr(target, ".sst (deleted)") != NULL;
    }
    closedir(dir);
    return n;
}

FR_CASE(who_asks_for_the_status_lets_go_what_a_compaction_replaced)
{
    struct scene scene = scene_of(8);
    struct fr_durable *durable = scene_open(&scene, false);
    for (uint64_t epoch = 1; epoch <= 3; epoch++)
        append_and_fold(&scene, durable, epoch);
    struct answers before = ask(&scene, durable, 0);
    rocksdb_compact_range(durable->cold->db, NULL, 0, NULL, 0);
    assert_true(count_nameless() > 0);
    (void)scene_status(durable);
    assert_int_equal(count_nameless(), 0);
    assert_true(fr_cold_files_bytes(durable->cold->files) > 0);
    durable->cold->files_idle_ms = 0;
    (void)scene_status(durable);
    assert_int_equal(fr_cold_files_bytes(durable->cold->files), 0);
    assert_same(ask(&scene, durable, 0), before);
    fr_durable_close(durable);
}

/* Adds all content of the store once more, in a file as older versions wrote it: larger blocks, an
 * index with whole keys, fewer bits of filter. */
static void add_as_before(const struct scene *scene, struct fr_durable *durable)
{
    char path[SCENE_PATH], *text = NULL;
    scene_path(scene, "before.sst", path);
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *blocks = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_format_version(blocks, SORTED_FORMAT_VERSION);
    rocksdb_block_based_options_set_checksum(blocks, SORTED_CHECKSUM_XXH3);
    rocksdb_block_based_options_set_filter_policy(blocks, rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, blocks);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_envoptions_t *env = rocksdb_envoptions_create();
    rocksdb_sstfilewriter_t *writer = rocksdb_sstfilewriter_create(env, options);
    rocksdb_sstfilewriter_open(writer, path, &text);
    rocksdb_readoptions_t *reads = rocksdb_readoptions_create();
    rocksdb_iterator_t *at = rocksdb_create_iterator(durable->cold->db, reads);
    for (rocksdb_iter_seek_to_first(at); rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
        size_t key_size, size;
        const char *key = rocksdb_iter_key(at, &key_size), *value = rocksdb_iter_value(at, &size);
        rocksdb_sstfilewriter_put(writer, key, key_size, value, size, &text);
    }
    rocksdb_iter_destroy(at);
    rocksdb_readoptions_destroy(reads);
    rocksdb_sstfilewriter_finish(writer, &text);
    rocksdb_sstfilewriter_destroy(writer);
    rocksdb_envoptions_destroy(env);
    rocksdb_ingestexternalfileoptions_t *ingest = rocksdb_ingestexternalfileoptions_create();
    const char *const paths[] = {path};
    rocksdb_ingest_external_file(durable->cold->db, paths, 1, ingest, &text);
    rocksdb_ingestexternalfileoptions_destroy(ingest);
    assert_null(text);
    rocksdb_block_based_options_destroy(blocks);
    rocksdb_options_destroy(options);
}

FR_CASE(files_of_versions_before_are_read)
{
    struct scene scene = scene_of(4);
    struct fr_durable *durable = scene_open(&scene, false);
    append_and_fold(&scene, durable, 1);
    struct answers own = ask(&scene, durable, 0), all = walk(durable, 0, 0, UINT64_MAX);
    add_as_before(&scene, durable);
    assert_same(own, ask(&scene, durable, 0));
    assert_same(all, walk(durable, 0, 0, UINT64_MAX));
    const struct cold_view *view = fr_cold_files_hold(durable->cold->files);
    assert_true(view && view->n_runs == 2);
    const struct fr_sorted_file *before = view->files[view->runs[0].begin].file;
    assert_true(before->n_blocks > 0 && before->n_blocks < view->files[view->runs[1].begin].file->n_blocks / 2);
    fr_cold_files_give(durable->cold->files, view);
    fr_durable_close(durable);
}

/* Hashes that differ in their lower halves only: no separator of the index tells their blocks
 * apart. */
FR_CASE(hashes_of_one_upper_half_are_found_in_every_block)
{
    enum { ROWS = 500 };
    struct scene scene = scene_make(5);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_order order = fr_order_of(scene.salt);
    struct fr_err err = {0};
    struct fr_stage stage;
    static uint64_t hashes[2 * ROWS];
    fr_stage_init(&stage);
    stage.epoch = stage.timeline = 1;
    for (uint64_t i = 0; i < 2 * ROWS; i++) {
        hashes[i] = UINT64_C(0x1234567800000000) + i * 1000;
        struct fr_image image = {.key = fr_order_key(&order, hashes[i]), .size = ROW_BYTES, .kind = FR_IMAGE_ROW};
        if (i % 2 == 0)
            memset(fr_stage_image(&stage, &image), (int)(i & 0xff), ROW_BYTES);
    }
    assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
    fr_stage_release(&stage);
    scene_fold(durable);
    struct answers answers = {0};
    struct fr_durable_reader reader = {&answers, add_answer};
    assert_int_equal(fr_durable_fetch(durable, 0, hashes, 2 * ROWS, &reader, &err), FR_OK);
    assert_int_equal(answers.images, ROWS);
    assert_int_equal(walk(durable, 0, 0, UINT64_MAX).images, ROWS);
    assert_int_equal(walk(durable, 0, hashes[7], hashes[ROWS]).images, ROWS / 2 - 3);
    assert_int_equal(files_read(durable), 1);
    fr_durable_close(durable);
}

/* The clean pages of the files are dropped from memory; if the system keeps them, the results are
 * the same. */
FR_CASE(rows_that_the_system_has_not_in_memory_are_waited_for)
{
    struct scene scene = scene_of(6);
    struct fr_durable *durable = scene_open(&scene, false);
    append_and_fold(&scene, durable, 1);
    struct answers before = ask(&scene, durable, 0);
    const struct cold_view *view = fr_cold_files_hold(durable->cold->files);
    assert_non_null(view);
    for (uint32_t i = 0; i < view->n_files; i++) {
        assert_int_equal(fdatasync(view->files[i].file->fd), 0);
        assert_int_equal(posix_fadvise(view->files[i].file->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    }
    fr_cold_files_give(durable->cold->files, view);
    assert_same(ask(&scene, durable, 0), before);
    fr_durable_close(durable);
}

/* ---- one file ---- */

static void copy_file(const char *from, const char *to, long flip)
{
    static uint8_t bytes[1 << 20];
    FILE *in = fopen(from, "rbe"), *out = fopen(to, "wbe");
    assert_true(in && out);
    size_t size = fread(bytes, 1, sizeof(bytes), in);
    assert_true(size > 0 && size < sizeof(bytes));
    if (flip >= 0)
        bytes[(size_t)flip / 8 % size] ^= (uint8_t)(1 << flip % 8);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(in) | fclose(out), 0);
}

/* What a file says of a key: 0 for none, else of its bytes. */
static enum fr_sorted_answer answer_of(const struct fr_sorted_file *file, uint32_t table, uint64_t hash, uint64_t *sum)
{
    struct fr_sorted_value value = {0};
    struct fr_sorted_key key = fr_sorted_key_of(table, hash);
    enum fr_sorted_answer answer = FR_SORTED_NONE;
    if (fr_sorted_may_have(file, &key))
        answer = fr_sorted_get(file, &key, fr_sorted_block(file, &key), true, &value);
    *sum = answer == FR_SORTED_VALUE ? fr_xxh3(value.bytes, value.size) : 0;
    fr_buffer_release(&value.block);
    return answer;
}

/* Walks over all entries of a table; *sum is a sum of their keys and bytes. */
static enum fr_sorted_answer walk_file(const struct fr_sorted_file *file, uint32_t table, uint64_t *sum)
{
    struct fr_sorted_walk *walk = fr_sorted_walk_new(file, table, 0, UINT64_MAX);
    struct fr_sorted_value value = {0};
    enum fr_sorted_answer answer;
    uint64_t hash;
    *sum = 0;
    while ((answer = fr_sorted_walk_next(walk, &hash, &value)) == FR_SORTED_VALUE || answer == FR_SORTED_DELETED)
        *sum = fr_xxh3_seed(value.bytes, value.size, *sum ^ hash ^ answer);
    fr_sorted_walk_free(walk);
    return answer;
}

FR_CASE(no_bit_of_a_file_turns_an_answer_into_another)
{
    struct scene scene = scene_make(7);
    scene.keys = 200;
    struct fr_durable *durable = scene_open(&scene, false);
    append_and_fold(&scene, durable, 1);
    fr_durable_close(durable);
    char pattern[SCENE_PATH], copy[SCENE_PATH];
    glob_t found = {0};
    scene_path(&scene, "cold/*.sst", pattern);
    scene_path(&scene, "copy", copy);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    struct fr_sorted_file *file = fr_sorted_open(found.gl_pathv[0], 1);
    assert_non_null(file);
    struct fr_order order = fr_order_of(scene.salt);
    size_t refused = 0, odd = 0, odd_walks = 0;
    uint64_t whole, walked;
    assert_int_equal(walk_file(file, 1, &whole), FR_SORTED_NONE);
    for (uint64_t f = 0; f < FLIPS; f++) {
        copy_file(found.gl_pathv[0], copy, (long)(fr_random_u64(7, 1, f, 0) >> 20));
        struct fr_sorted_file *damaged = fr_sorted_open(copy, 2);
        refused += damaged == NULL;
        for (uint64_t i = 0; damaged && i < 2 * (uint64_t)scene.keys; i++) {
            uint64_t hash = fr_order_hash(&order, scene_key(i)), sum, right;
            enum fr_sorted_answer answer = answer_of(damaged, 1, hash, &sum);
            odd += answer == FR_SORTED_ODD;
            if (answer == FR_SORTED_ODD)
                continue;
            assert_int_equal(answer, answer_of(file, 1, hash, &right));
            assert_int_equal(sum, right);
        }
        if (damaged && walk_file(damaged, 1, &walked) == FR_SORTED_ODD)
            odd_walks++;
        else if (damaged)
            assert_int_equal(walked, whole);
        fr_sorted_close(damaged);
    }
    assert_true(refused > FLIPS / 100 && odd > 0 && odd_walks > 0);
    fr_sorted_close(file);
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(files_and_rocksdb_give_the_same_answers),
        SCENE_CASE(files_beyond_those_that_may_stay_open_are_opened_for_each_read),
        SCENE_CASE(what_a_compaction_replaced_is_let_go_by_the_next_read),
        SCENE_CASE(who_asks_for_the_status_lets_go_what_a_compaction_replaced),
        SCENE_CASE(files_of_versions_before_are_read),
        SCENE_CASE(hashes_of_one_upper_half_are_found_in_every_block),
        SCENE_CASE(rows_that_the_system_has_not_in_memory_are_waited_for),
        SCENE_CASE(no_bit_of_a_file_turns_an_answer_into_another),
    };
    return cmocka_run_group_tests_name("durable sorted files", tests, NULL, NULL);
}
