/* Parts of the folded state: point reads and ranges against a model, also beside folds. */
#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "base/order.h"

#include "../../../store/durable/cold_files.h"
#include "../../../store/durable/cold_rocks.h"
#include "../../../store/durable/durable_internal.h"

/* What reading takes in memory: RocksDB's, the cache, and that of our own reader. */
static uint64_t cold_memory(struct fr_cold *cold)
{
    uint64_t bytes = 0;
    assert_int_equal(rocksdb_property_int(cold->db, "rocksdb.estimate-table-readers-mem", &bytes), 0);
    return cold->files ? bytes + rocksdb_cache_get_usage(cold->cache) + fr_cold_files_bytes(cold->files) : bytes;
}

enum { KEYS = 3000, ASKED_MAX = 2 * KEYS };

enum { MERGED = 24 }; /* files of level 0 that begin a compaction (cold_tuning.c) */

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* What a read is expected to give. */
struct expected {
    const struct scene *scene;
    uint64_t epoch; /* folded */
    uint32_t table;
    struct fr_order order;
    const uint64_t *hashes; /* of a fetch */
    size_t visits, images;
    uint64_t last_hash;
};

/* The scene's image of a key as of an epoch; size of it, or -1. */
static bool image_is(const struct expected *expected, uint64_t key, const struct fr_image *image)
{
    uint64_t index = scene_index(key), last = expected->epoch;
    struct scene_image want = {.kind = FR_IMAGE_ABSENT};
    if (index < expected->scene->keys) {
        while (last > 0 && !scene_image_of(expected->scene, last, expected->table, index).touched)
            last--;
        if (last > 0)
            want = scene_image_of(expected->scene, last, expected->table, index);
    }
    if (want.kind == FR_IMAGE_ABSENT || !image)
        return want.kind == FR_IMAGE_ABSENT && !image;
    if (image->key != key || image->table != expected->table || image->kind != want.kind || image->size != want.size)
        return false;
    for (uint32_t i = 0; i < want.size; i++)
        if (image->bytes[i] != scene_byte(last, expected->table, index, i))
            return false;
    return true;
}

static enum fr_status check_image(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    struct expected *expected = self;
    assert_int_equal(index, expected->visits);
    if (expected->hashes)
        assert_int_equal(hash, expected->hashes[index]);
    else
        assert_true(image && (index == 0 || hash > expected->last_hash));
    assert_true(image_is(expected, fr_order_key(&expected->order, hash), image));
    expected->visits++;
    expected->images += image != NULL;
    expected->last_hash = hash;
    return FR_OK;
}

/* Hashes of known and unknown keys, n of them. */
static size_t choose_hashes(const struct expected *expected, uint64_t seed, size_t n, uint64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = fr_random_u64(seed, 3, i, 0);
        out[i] = r % 3 == 0 ? r : fr_order_hash(&expected->order, scene_key(r / 3 % expected->scene->keys));
    }
    qsort(out, n, sizeof(*out), compare_u64);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || out[i] != out[kept - 1])
            out[kept++] = out[i];
    return kept;
}

static void check_fetch(struct fr_durable *durable, struct expected expected, uint64_t seed, size_t n)
{
    static uint64_t hashes[ASKED_MAX];
    struct fr_err err = {0};
    n = choose_hashes(&expected, seed, n, hashes);
    expected.hashes = hashes;
    struct fr_durable_reader reader = {&expected, check_image};
    assert_int_equal(fr_durable_fetch(durable, expected.table, hashes, n, &reader, &err), FR_OK);
    assert_int_equal(expected.visits, n);
}

static size_t scan(struct fr_durable *durable, struct expected expected, uint64_t first, uint64_t last)
{
    struct fr_err err = {0};
    struct fr_durable_reader reader = {&expected, check_image};
    assert_int_equal(fr_durable_scan(durable, expected.table, first, last, &reader, &err), FR_OK);
    return expected.images;
}

static struct expected expect(const struct scene *scene, uint64_t epoch, uint32_t table)
{
    return (struct expected){.scene = scene, .epoch = epoch, .table = table, .order = fr_order_of(scene->salt)};
}

FR_CASE(fetches_and_scans_equal_a_model_of_the_folded_epochs)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct scene scene = scene_make(seed);
        scene.keys = KEYS;
        scene.salt = seed == 1 ? 0 : fr_fmix64(seed);
        struct fr_durable *durable = scene_open(&scene, false);
        durable->sst_bytes_max = 50000; /* some files a fold */
        uint64_t folded = 0;
        for (uint64_t turn = 0; turn < 6; turn++) {
            for (uint32_t table = 0; table < SCENE_TABLES; table++) {
                struct expected expected = expect(&scene, folded, table);
                for (size_t n = 0; n <= ASKED_MAX; n = n * 7 + 1)
                    check_fetch(durable, expected, turn * 100 + n, n);
                size_t all = scan(durable, expected, 0, UINT64_MAX), in_parts = 0;
                for (uint64_t shard = 0; shard < 16; shard++)
                    in_parts += scan(durable, expected, shard << 60, shard << 60 | UINT64_MAX >> 4);
                assert_int_equal(in_parts, all);
                assert_true((all > 0) == (folded > 0));
            }
            scene_append_to(&scene, durable, 3 * turn + 1, 3 * turn + 3);
            if (turn % 2 == 1)
                continue;
            scene_fold(durable);
            folded = 3 * turn + 3;
            assert_int_equal(fr_durable_folded(durable), folded);
        }
        struct fr_durable_status status = scene_status(durable);
        assert_true(status.cold_found > 0 && status.cold_asked > status.cold_found);
        assert_true(cold_memory(durable->cold) > 0);
        fr_durable_close(durable);
        durable = scene_open(&scene, true);
        check_fetch(durable, expect(&scene, folded, 0), seed, 100);
        fr_durable_close(durable);
    }
}

FR_CASE(a_range_ends_where_it_says)
{
    struct scene scene = scene_make(81);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 4);
    scene_fold(durable);
    struct expected expected = expect(&scene, 4, 1);
    uint64_t hashes[64];
    size_t n = 0;
    for (uint64_t i = 0; i < scene.keys; i++) {
        uint64_t hash = fr_order_hash(&expected.order, scene_key(i));
        n += scan(durable, expected, hash, hash);
        hashes[i] = hash;
    }
    assert_int_equal(n, scan(durable, expected, 0, UINT64_MAX));
    qsort(hashes, 64, sizeof(hashes[0]), compare_u64);
    assert_int_equal(scan(durable, expected, hashes[0] + 1, hashes[63] - 1) +
                         scan(durable, expected, hashes[0], hashes[0]) +
                         scan(durable, expected, hashes[63], hashes[63]),
                     n);
    fr_durable_close(durable);
}

static enum fr_status refuse_second(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)self;
    (void)hash;
    (void)image;
    return index == 1 ? FR_E_LIMIT : FR_OK;
}

FR_CASE(a_readers_error_ends_the_read_and_nothing_else)
{
    struct scene scene = scene_make(82);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_err err = {0};
    struct fr_durable_reader reader = {NULL, refuse_second};
    const uint64_t hashes[] = {1, 2, 3};
    for (int folded = 0; folded < 2; folded++) {
        assert_int_equal(fr_durable_fetch(durable, 0, hashes, 3, &reader, &err), FR_E_LIMIT);
        scene_append_to(&scene, durable, (uint64_t)folded + 1, (uint64_t)folded + 1);
        scene_fold(durable);
    }
    assert_int_equal(fr_durable_scan(durable, 0, 0, UINT64_MAX, &reader, &err), FR_E_LIMIT);
    assert_true(scene_state_is(&scene, durable, 2));
    fr_durable_close(durable);
}

/* ---- beside folds ---- */

enum { BUSY_EPOCHS = 40, READERS = 2 };

struct busy {
    const struct scene *scene;
    struct fr_durable *durable;
    atomic_bool done;
    uint32_t table;
    uint64_t reads;
};

struct newest {
    const struct busy *busy;
    struct fr_order order;
    uint64_t epoch; /* folded before the read began */
};

/* The image may be of any epoch between the one folded before the read and the one folded now. */
static enum fr_status check_newest(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index;
    const struct newest *newest = self;
    struct expected expected = {.scene = newest->busy->scene, .table = newest->busy->table, .order = newest->order};
    for (expected.epoch = newest->epoch; expected.epoch <= BUSY_EPOCHS; expected.epoch++)
        if (image_is(&expected, fr_order_key(&newest->order, hash), image))
            return FR_OK;
    return FR_E_CORRUPT;
}

static void *read_main(void *self)
{
    struct busy *busy = self;
    static _Thread_local uint64_t hashes[500];
    while (!atomic_load(&busy->done)) {
        struct newest newest = {busy, fr_order_of(busy->scene->salt), fr_durable_folded(busy->durable)};
        struct expected expected = expect(busy->scene, 0, busy->table);
        struct fr_durable_reader reader = {&newest, check_newest};
        size_t n = choose_hashes(&expected, busy->reads, 500, hashes);
        struct fr_err err = {0};
        enum fr_status status = fr_durable_fetch(busy->durable, busy->table, hashes, n, &reader, &err);
        if (status == FR_OK)
            status = fr_durable_scan(busy->durable, busy->table, hashes[0], hashes[n - 1], &reader, &err);
        if (status != FR_OK)
            return (void *)1;
        busy->reads++;
    }
    return NULL;
}

FR_CASE(reads_beside_folds_see_what_was_folded_before_them)
{
    struct scene scene = scene_make(83);
    scene.keys = 1000;
    struct fr_durable *durable = scene_open(&scene, false);
    struct busy busy[READERS];
    pthread_t threads[READERS];
    for (uint32_t r = 0; r < READERS; r++) {
        busy[r] = (struct busy){.scene = &scene, .durable = durable, .table = r};
        assert_int_equal(pthread_create(&threads[r], NULL, read_main, &busy[r]), 0);
    }
    for (uint64_t e = 1; e <= BUSY_EPOCHS; e++) {
        scene_append_to(&scene, durable, e, e);
        scene_fold(durable);
    }
    for (uint32_t r = 0; r < READERS; r++) {
        void *wrong = NULL;
        atomic_store(&busy[r].done, true);
        pthread_join(threads[r], &wrong);
        assert_null(wrong);
        assert_true(busy[r].reads > 0);
    }
    assert_true(scene_state_is(&scene, durable, BUSY_EPOCHS));
    fr_durable_close(durable);
}

/* ---- open files ---- */

/* A place in every sorted file: some bytes after the first of a text, or after the beginning. */
struct spot {
    const char *text;
    long after;
};

/* Where the first of these bytes lies; 0: nowhere. */
static long find_bytes(FILE *file, const char *bytes)
{
    static char content[1 << 20];
    size_t size = fread(content, 1, sizeof(content), file), length = strlen(bytes);
    for (size_t at = 0; at + length <= size; at++)
        if (memcmp(content + at, bytes, length) == 0)
            return (long)at;
    return 0;
}

/* Flips a bit at the spot in every sorted file of the cold store; a second call restores the
 * files. */
static void flip_sorted_files(const struct scene *scene, struct spot spot)
{
    char pattern[SCENE_PATH];
    scene_path(scene, "cold/*.sst", pattern);
    glob_t found = {0};
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r+b"); /* in place: open descriptors see it */
        assert_non_null(file);
        long found_at = spot.text ? find_bytes(file, spot.text) : 0;
        assert_true(found_at > 0 || !spot.text);
        long at = found_at + spot.after;
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        int byte = fgetc(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 8, file), byte ^ 8);
        assert_int_equal(fclose(file), 0);
    }
    globfree(&found);
}

static const struct spot in_the_first_block = {NULL, 30};

FR_CASE(a_damaged_sorted_file_ends_all_use_and_says_what_to_do)
{
    struct scene scene = scene_make(85);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 3);
    scene_fold(durable);
    check_fetch(durable, expect(&scene, 3, 1), 1, 10);
    scene_append_to(&scene, durable, 4, 4);
    /* RocksDB 9.10 keeps the first and the last block of what it takes in in its cache. */
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    flip_sorted_files(&scene, in_the_first_block);
    struct expected expected = expect(&scene, 3, 0); /* of the first table: in the first block */
    struct fr_durable_reader reader = {&expected, check_image};
    struct fr_err err = {0};
    uint64_t hashes[64];
    for (uint64_t i = 0; i < 64; i++)
        hashes[i] = fr_order_hash(&expected.order, scene_key(i));
    qsort(hashes, 64, sizeof(hashes[0]), compare_u64);
    expected.hashes = hashes;
    assert_int_equal(fr_durable_fetch(durable, 0, hashes, 64, &reader, &err), FR_E_CORRUPT);
    assert_int_equal(expected.images, 0); /* no image of a damaged block is handed out */
    assert_true(expected.visits < 64);
    assert_non_null(strstr(err.text, ".sst"));
    assert_non_null(strstr(err.text, "--restore"));
    assert_int_equal(scene_append(&scene, durable, 5, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, ".sst"));
    fr_durable_close(durable);
    flip_sorted_files(&scene, in_the_first_block);
    durable = scene_open(&scene, false);
    assert_true(scene_state_is(&scene, durable, 4));
    fr_durable_close(durable);
}

/* RocksDB's own text names the MANIFEST here, which is whole. */
static void check_damage_found_while_opening(uint64_t salt, struct spot there, struct spot back)
{
    struct scene scene = scene_make(salt);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 3);
    scene_fold(durable);
    fr_durable_close(durable);
    flip_sorted_files(&scene, there);
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "one of the .sst files there is damaged"));
    assert_non_null(strstr(err.text, "--restore"));
    flip_sorted_files(&scene, back);
    durable = scene_open(&scene, false);
    assert_true(scene_state_is(&scene, durable, 3));
    fr_durable_close(durable);
}

FR_CASE(damaged_properties_of_a_sorted_file_are_not_taken_for_another_files)
{
    check_damage_found_while_opening(86, (struct spot){"prefix.filtering", 0}, (struct spot){"xrefix.filtering", 0});
}

/* The damaged byte is the second of the eight bytes after the name, which is 0 for all sequence
 * numbers here; RocksDB changes the number in place without changing the checksum of its block. */
FR_CASE(a_damaged_sequence_number_of_a_sorted_file_is_not_taken_for_another_files)
{
    const struct spot number = {"global_seqno", sizeof("global_seqno")};
    check_damage_found_while_opening(87, number, number);
}

/* ---- what a read costs ---- */

/* Bytes that the process has read of files so far. */
static uint64_t bytes_read(void)
{
    char line[64] = "";
    FILE *file = fopen("/proc/self/io", "re");
    assert_true(file && fgets(line, sizeof(line), file));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(strncmp(line, "rchar: ", 7), 0);
    return strtoull(line + 7, NULL, 10);
}

static enum fr_status count_image(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index;
    (void)hash;
    *(size_t *)self += image != NULL;
    return FR_OK;
}

/* Fetches the keys first, first + 2, ..; bytes read for each. */
static double fetch_cost(const struct scene *scene, struct fr_durable *durable, uint64_t first, size_t *found)
{
    static uint64_t hashes[KEYS];
    struct fr_order order = fr_order_of(scene->salt);
    struct fr_err err = {0};
    struct fr_durable_reader reader = {found, count_image};
    for (uint64_t i = 0; i < KEYS; i++)
        hashes[i] = fr_order_hash(&order, first + 2 * i);
    qsort(hashes, KEYS, sizeof(hashes[0]), compare_u64);
    uint64_t before = bytes_read();
    assert_int_equal(fr_durable_fetch(durable, 0, hashes, KEYS, &reader, &err), FR_OK);
    return (double)(bytes_read() - before) / KEYS;
}

/* Files that are ingested without a snapshot of the empty store have sequence number 0. */
static bool ingests_as_before;

const rocksdb_snapshot_t *__real_rocksdb_create_snapshot(rocksdb_t *db);
const rocksdb_snapshot_t *__wrap_rocksdb_create_snapshot(rocksdb_t *db);

const rocksdb_snapshot_t *__wrap_rocksdb_create_snapshot(rocksdb_t *db)
{
    return ingests_as_before ? NULL : __real_rocksdb_create_snapshot(db);
}

static void fold_as_before(struct fr_durable *durable)
{
    ingests_as_before = true;
    scene_fold(durable);
    ingests_as_before = false;
    assert_int_equal(rocksdb_get_latest_sequence_number(durable->cold->db), 0);
}

static void compact_beside_a_view_of_the_first_fold(bool older)
{
    struct scene scene = scene_make(85);
    struct fr_err err = {0};
    scene.keys = KEYS;
    scene.touched_of = 20; /* many keys are in the first epoch only */
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 1);
    if (older) {
        fold_as_before(durable);
        fr_durable_close(durable);
        durable = scene_open(&scene, false);
    } else {
        scene_fold(durable);
    }
    struct fr_durable_view *view = NULL;
    struct fr_durable_folded_epoch at;
    assert_int_equal(fr_durable_view_open(durable, &view, &at, &err), FR_OK);
    uint64_t epoch = 1;
    while (epoch <= MERGED) {
        epoch++;
        scene_append_to(&scene, durable, epoch, epoch);
        scene_fold(durable);
    }
    FR_UNTIL (fr_cold_level0_files(durable->cold) < MERGED - 1)
        continue;
    for (uint32_t table = 0; table < SCENE_TABLES; table++)
        check_fetch(durable, expect(&scene, epoch, table), epoch, ASKED_MAX);
    fr_durable_view_close(view);
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    assert_true(scene_state_is(&scene, durable, epoch));
    fr_durable_close(durable);
}

FR_CASE(rows_of_the_first_fold_stay_in_a_compaction_beside_a_view_of_it)
{
    compact_beside_a_view_of_the_first_fold(false);
}

FR_CASE(rows_of_a_first_fold_by_an_older_version_stay_too)
{
    compact_beside_a_view_of_the_first_fold(true);
}

FR_CASE(a_known_row_costs_one_small_block_and_an_unknown_one_hardly_any)
{
    enum { ROWS = 100000, ROW_BYTES = 92, BLOCK_MAX = 1200, MEMORY_MAX = 3, CACHE_MAX = 5 << 20 };
    struct scene scene = scene_make(85);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_stage stage;
    struct fr_err err = {0};
    fr_stage_init(&stage);
    stage.epoch = stage.timeline = 1;
    for (uint64_t i = 0; i < ROWS; i++) {
        struct fr_image image = {.key = 2 * i, .size = ROW_BYTES, .kind = FR_IMAGE_ROW};
        memset(fr_stage_image(&stage, &image), (int)(i & 0xff), ROW_BYTES);
    }
    assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
    fr_stage_release(&stage);
    scene_fold(durable);
    size_t known = 0, unknown = 0;
    (void)fetch_cost(&scene, durable, 1, &unknown); /* opens the files */
    assert_true(fetch_cost(&scene, durable, 1, &unknown) < (double)BLOCK_MAX / 100);
    assert_true(fetch_cost(&scene, durable, 0, &known) < BLOCK_MAX);
    assert_int_equal(unknown, 0);
    assert_int_equal(known, KEYS);
    uint64_t own = fr_cold_files_bytes(durable->cold->files), cache = cold_memory(durable->cold) - own;
    assert_true(own > ROWS && own < (uint64_t)MEMORY_MAX * ROWS);
    assert_true(cache < (uint64_t)CACHE_MAX);
    fr_durable_close(durable);
}

FR_CASE(too_few_open_files_are_refused_by_name)
{
    struct scene scene = scene_make(84);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = 100;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_E_LIMIT);
    assert_non_null(strstr(err.text, "may open 100 files, at least 128"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    fr_durable_close(scene_open(&scene, false));
}

static int room_refused; /* open fails with this error; 0: it does not */

int __real_posix_fallocate(int fd, off_t offset, off_t size);
int __wrap_posix_fallocate(int fd, off_t offset, off_t size);
int __wrap_posix_fallocate(int fd, off_t offset, off_t size)
{
    return room_refused ? room_refused : __real_posix_fallocate(fd, offset, size);
}

FR_CASE(too_little_room_to_open_is_refused_with_what_is_needed_and_what_there_is)
{
    struct scene scene = scene_make(85);
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    char needed[32];
    snprintf(needed, sizeof(needed), " needs %d bytes to open", FR_DURABLE_OPEN_BYTES);
    room_refused = ENOSPC;
    assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_E_NO_SPACE);
    const char *left = strstr(err.text, "and the file system has ");
    assert_true(strstr(err.text, needed) && left && strtoull(left + 24, NULL, 10) > 0);
    room_refused = EDQUOT;
    assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_E_NO_SPACE);
    assert_non_null(strstr(err.text, "a quota leaves less: free space there"));
    room_refused = 0;
    fr_durable_close(scene_open(&scene, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(fetches_and_scans_equal_a_model_of_the_folded_epochs),
        SCENE_CASE(a_range_ends_where_it_says),
        SCENE_CASE(a_readers_error_ends_the_read_and_nothing_else),
        SCENE_CASE(reads_beside_folds_see_what_was_folded_before_them),
        SCENE_CASE(a_damaged_sorted_file_ends_all_use_and_says_what_to_do),
        SCENE_CASE(damaged_properties_of_a_sorted_file_are_not_taken_for_another_files),
        SCENE_CASE(a_damaged_sequence_number_of_a_sorted_file_is_not_taken_for_another_files),
        SCENE_CASE(rows_of_the_first_fold_stay_in_a_compaction_beside_a_view_of_it),
        SCENE_CASE(rows_of_a_first_fold_by_an_older_version_stay_too),
        SCENE_CASE(a_known_row_costs_one_small_block_and_an_unknown_one_hardly_any),
        SCENE_CASE(too_few_open_files_are_refused_by_name),
        SCENE_CASE(too_little_room_to_open_is_refused_with_what_is_needed_and_what_there_is),
    };
    return cmocka_run_group_tests_name("durable reads", tests, NULL, NULL);
}
