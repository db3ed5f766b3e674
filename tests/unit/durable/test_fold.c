/* Fold and cold store: the merge against a model, file borders, deletes, damage, interrupted folds,
 * a truncated MANIFEST. */
#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>

#include "base/check.h"

/* The one private header a test of this module needs: a small limit for sorted files, and what the
 * cold store holds. */
#include "../../../store/durable/direct.h"
#include "../../../store/durable/durable_internal.h"

FR_CASE(random_epochs_folds_and_reopenings_equal_the_model)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct scene scene = scene_make(seed);
        scene.keys = 40 + 60 * (uint32_t)seed;
        scene.touched_of = (uint32_t)seed + 1;
        struct fr_durable *durable = scene_open(&scene, false);
        struct fr_err err = {0};
        uint64_t epoch = 0;
        for (uint64_t turn = 0; turn < 40; turn++) {
            uint64_t r = fr_random_u64(seed, 99, turn, 0);
            if (r % 4 < 2) {
                scene_append_to(&scene, durable, epoch + 1, epoch + 1 + r / 4 % 3);
                epoch += 1 + r / 4 % 3;
            } else if (r % 4 == 2) {
                durable->sst_bytes_max = r / 4 % 2 ? 1000 : DURABLE_SST_BYTES_MAX;
                scene_fold(durable);
                assert_int_equal(fr_durable_acknowledge(durable, epoch, &err), FR_OK);
            } else {
                fr_durable_close(durable);
                durable = scene_open(&scene, false);
            }
            if (turn % 5 == 4 && !scene_state_is(&scene, durable, epoch))
                fail_msg("seed %llu turn %llu", (unsigned long long)seed, (unsigned long long)turn);
        }
        scene_fold(durable);
        fr_durable_close(durable);
        durable = scene_open(&scene, false);
        assert_int_equal(scene_status(durable).folded, epoch);
        assert_true(scene_state_is(&scene, durable, epoch));
        fr_durable_close(durable);
        scene_remove(scene.dir);
    }
}

FR_CASE(a_fold_of_nothing_is_no_work)
{
    struct scene scene = scene_make(61);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_fold(durable);
    scene_append_to(&scene, durable, 1, 2);
    scene_fold(durable);
    uint64_t files = scene_status(durable).level0_files;
    scene_fold(durable);
    assert_int_equal(scene_status(durable).folded, 2);
    assert_int_equal(scene_status(durable).level0_files, files);
    fr_durable_close(durable);
}

/* keep_bytes 1 keeps only the newest epoch: the fold reads it from memory, the others from
 * files. */
FR_CASE(epochs_from_memory_and_from_files_are_the_same_and_fold_alike)
{
    enum { EPOCHS = 12 };
    const uint64_t keeps[] = {0, 1, 3000, UINT64_MAX};
    for (size_t k = 0; k < FR_ARRAY_LEN(keeps); k++) {
        struct scene scene = scene_make(71);
        struct fr_durable *durable = scene_open(&scene, false);
        struct fr_borrowed_epoch borrowed = {0};
        struct fr_buffer bytes = {0}, head = {0};
        struct fr_err err = {0};
        durable->keep_bytes = keeps[k];
        scene_append_to(&scene, durable, 1, EPOCHS);
        size_t n_kept = durable->n_kept;
        assert_int_equal(n_kept, keeps[k] == 0 ? 0 : keeps[k] == 1 ? 1 : keeps[k] == UINT64_MAX ? EPOCHS : n_kept);
        for (uint64_t e = 1; e <= EPOCHS; e++) {
            struct fr_sha256 digest;
            fr_buffer_clear(&bytes);
            assert_int_equal(fr_durable_borrow(durable, e, &borrowed, &head, &err), FR_OK);
            assert_int_equal(borrowed.kept != NULL, e > EPOCHS - n_kept);
            assert_int_equal(fr_durable_read_epoch(durable, e, &bytes, NULL, &err), FR_OK);
            assert_int_equal(borrowed.size, bytes.size);
            assert_memory_equal(borrowed.bytes, bytes.data, bytes.size);
            digest = fr_sha256(bytes.data, bytes.size);
            assert_memory_equal(&borrowed.digest, &digest, sizeof(digest));
            fr_durable_give_back(durable, &borrowed);
        }
        assert_int_equal(fr_durable_borrow(durable, EPOCHS + 1, &borrowed, &head, &err), FR_E_NOT_FOUND);
        /* a borrowed epoch stays in memory when the list drops it */
        assert_int_equal(fr_durable_borrow(durable, EPOCHS, &borrowed, &head, &err), FR_OK);
        scene_fold(durable);
        assert_int_equal(fr_durable_acknowledge(durable, EPOCHS, &err), FR_OK);
        assert_int_equal(durable->n_kept, 0);
        assert_memory_equal(borrowed.bytes, bytes.data, bytes.size);
        fr_durable_give_back(durable, &borrowed);
        assert_true(scene_state_is(&scene, durable, EPOCHS));
        fr_durable_close(durable);
        fr_buffer_release(&borrowed.own);
        fr_buffer_release(&bytes);
        fr_buffer_release(&head);
    }
}

/* A small epoch may lie in the memory that a large epoch had before. */
FR_CASE(what_kept_epochs_take_is_bounded_in_real_bytes)
{
    enum { EPOCHS = 40, LARGE = 300 << 10, KEEP = 1 << 20 };
    struct scene scene = scene_make(73);
    scene.keys = 4;
    struct fr_durable *durable = scene_open(&scene, false);
    durable->keep_bytes = KEEP;
    struct fr_stage stage;
    struct fr_err err = {0};
    fr_stage_init(&stage);
    size_t most = 0;
    for (uint64_t e = 1; e <= EPOCHS; e++) {
        fr_stage_clear(&stage);
        scene_stage(&scene, e, &stage);
        struct fr_image large = {.key = 5, .table = 9, .size = LARGE};
        if (e % 8 < 4)
            memset(fr_stage_image(&stage, &large), 0xab, LARGE);
        assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
        size_t bytes = 0;
        for (size_t i = 0; i < durable->n_kept; i++)
            bytes += durable->kept[i]->record.capacity;
        assert_true(bytes <= KEEP || durable->n_kept == 1);
        most = durable->n_kept > most ? durable->n_kept : most;
    }
    assert_true(most > 1);
    fr_stage_release(&stage);
    fr_durable_close(durable);
}

FR_CASE(a_fold_over_many_small_epochs_and_one_large_image_is_whole)
{
    enum { EPOCHS = 600, LARGE = 5 << 20 };
    struct scene scene = scene_make(62);
    scene.keys = 4;
    struct fr_durable *durable = scene_open(&scene, false);
    durable->keep_bytes = 0; /* through windows */
    scene_append_to(&scene, durable, 1, EPOCHS);
    struct fr_stage stage;
    struct fr_err err = {0};
    fr_stage_init(&stage);
    scene_stage(&scene, EPOCHS + 1, &stage);
    struct fr_image large = {.key = 5, .table = 9, .size = LARGE}; /* far above a stream's window */
    memset(fr_stage_image(&stage, &large), 0xab, LARGE);
    assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
    fr_stage_release(&stage);
    scene_fold(durable);
    uint64_t cold = fr_cold_bytes(durable->cold);
    assert_true(cold > LARGE && cold < LARGE + 100000);
    fr_durable_close(durable);
}

/* Epochs, windows and sorted files of such a size go around the page cache. */
FR_CASE(large_epochs_fold_from_memory_and_from_files_alike)
{
    enum { KEYS = 120000, EPOCHS = 3 };
    const uint64_t keeps[] = {0, UINT64_MAX};
    uint64_t cold[FR_ARRAY_LEN(keeps)];
    for (size_t k = 0; k < FR_ARRAY_LEN(keeps); k++) {
        struct scene scene = scene_make(64);
        scene.keys = KEYS;
        struct fr_durable *durable = scene_open(&scene, false);
        durable->keep_bytes = keeps[k];
        scene_append_to(&scene, durable, 1, EPOCHS);
        assert_true(scene_status(durable).journal_bytes > EPOCHS * (uint64_t)FR_DIRECT_MIN);
        scene_fold(durable);
        cold[k] = fr_cold_bytes(durable->cold);
        assert_true(scene_state_is(&scene, durable, EPOCHS));
        fr_durable_close(durable);
        durable = scene_open(&scene, false);
        assert_true(scene_state_is(&scene, durable, EPOCHS));
        fr_durable_close(durable);
    }
    assert_int_equal(cold[0], cold[1]);
}

static enum fr_status count_image(void *self, const struct fr_image *image, uint64_t done)
{
    (void)image, (void)done;
    ++*(uint64_t *)self;
    return FR_OK;
}

FR_CASE(an_absent_key_leaves_the_cold_store)
{
    struct scene scene = scene_make(63);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_stage stage;
    struct fr_err err = {0};
    uint64_t images = 0;
    fr_stage_init(&stage);
    for (uint64_t e = 1; e <= 2; e++) {
        fr_stage_clear(&stage);
        stage.epoch = e;
        stage.timeline = 1;
        for (uint64_t key = 0; key < 10; key++) {
            struct fr_image image = {.key = key, .kind = e == 1 ? FR_IMAGE_ROW : FR_IMAGE_ABSENT};
            if (e == 1 || key % 2 == 0)
                fr_stage_image(&stage, &image);
        }
        assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
        scene_fold(durable);
        images = 0;
        assert_int_equal(fr_cold_walk(durable->cold, NULL, count_image, &images, &err), FR_OK);
        assert_int_equal(images, e == 1 ? 10 : 5);
    }
    fr_stage_release(&stage);
    fr_durable_close(durable);
}

static enum fr_status note_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    uint64_t *found = self; /* counter, odd, sections */
    found[2]++;
    if (size == sizeof(uint64_t))
        found[strcmp(name, "odd") == 0] = fr_load_u64(bytes);
    return FR_OK;
}

/* Section "odd" is in epochs 1 and 3, "rare/part" in epoch 2. However epochs are folded, the cold
 * store then has the newest value of each section. */
FR_CASE(a_section_the_folded_epochs_lack_stays_in_the_cold_store)
{
    for (uint64_t together = 1; together <= 4; together++) {
        struct scene scene = scene_make(64);
        struct fr_durable *durable = scene_open(&scene, false);
        struct fr_err err = {0};
        for (uint64_t e = 1; e <= 4; e++) {
            scene_append_to(&scene, durable, e, e);
            if (e % together == 0 || e == 4)
                scene_fold(durable);
        }
        uint64_t found[3] = {0};
        assert_int_equal(fr_cold_walk_sections(durable->cold, NULL, note_section, found, &err), FR_OK);
        assert_int_equal(found[0], 4);
        assert_int_equal(found[1], 3);
        assert_int_equal(found[2], 3);
        fr_durable_close(durable);
        scene_remove(scene.dir);
    }
}

static enum fr_status check_large(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    uint64_t *found = self;
    if (strncmp(name, "large/", 6) != 0)
        return FR_OK;
    uint64_t want = fr_load_u64(bytes);
    for (size_t i = 0; i < size; i += 8)
        assert_int_equal(fr_load_u64(bytes + i), want);
    assert_int_equal(name[6] - '0', want % 7);
    found[want % 7] = want;
    return FR_OK;
}

/* 7 sections of 1 MiB, far above a stream's window, each in every seventh of 30 epochs. */
FR_CASE(large_sections_of_many_epochs_come_out_newest)
{
    enum { EPOCHS = 30, PARTS = 7, LARGE = 1 << 20 };
    for (int in_one = 0; in_one <= 1; in_one++) {
        struct scene scene = scene_make(71);
        struct fr_durable *durable = scene_open(&scene, false);
        struct fr_stage stage;
        struct fr_err err = {0};
        fr_stage_init(&stage);
        for (uint64_t e = 1; e <= EPOCHS; e++) {
            char name[16];
            scene_stage(&scene, e, &stage);
            snprintf(name, sizeof(name), "large/%u", (unsigned)(e % PARTS));
            struct fr_buffer *section = fr_stage_section(&stage, name);
            for (size_t i = 0; i < LARGE; i += 8)
                fr_put_u64(section, e);
            assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
            if (!in_one && e == EPOCHS / 2)
                scene_fold(durable);
        }
        fr_stage_release(&stage);
        scene_fold(durable);
        uint64_t found[PARTS] = {0};
        assert_int_equal(fr_cold_walk_sections(durable->cold, NULL, check_large, found, &err), FR_OK);
        for (uint64_t e = EPOCHS; e > EPOCHS - PARTS; e--)
            assert_int_equal(found[e % PARTS], e);
        fr_durable_close(durable);
        scene_remove(scene.dir);
    }
}

FR_CASE(many_sorted_files_are_one_fold)
{
    struct scene scene = scene_make(65);
    scene.keys = 300;
    struct fr_durable *durable = scene_open(&scene, false);
    durable->sst_bytes_max = 500;
    scene_append_to(&scene, durable, 1, 3);
    scene_fold(durable);
    scene_append_to(&scene, durable, 4, 4);
    scene_fold(durable);
    assert_true(scene_state_is(&scene, durable, 4));
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    assert_true(scene_state_is(&scene, durable, 4));
    fr_durable_close(durable);
}

FR_CASE(level_zero_files_are_counted)
{
    struct scene scene = scene_make(66);
    struct fr_durable *durable = scene_open(&scene, false);
    assert_int_equal(scene_status(durable).level0_files, 0);
    for (uint64_t e = 1; e <= 4; e++) {
        scene_append_to(&scene, durable, e, e);
        scene_fold(durable);
        /* The first lies in the last level; 24 files would start a compaction. */
        assert_int_equal(scene_status(durable).level0_files, e - 1);
    }
    fr_durable_close(durable);
}

/* ---- interrupted and damaged ---- */

FR_CASE(files_of_an_interrupted_fold_are_removed_by_open)
{
    struct scene scene = scene_make(67);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 3);
    fr_durable_close(durable);
    char paths[2][SCENE_PATH];
    scene_path(&scene, "fold/000000.sst", paths[0]);
    scene_path(&scene, "fold/000001.sst", paths[1]);
    scene_write(paths[0], "half a file", 11);
    scene_write(paths[1], "", 0);
    durable = scene_open(&scene, false);
    assert_int_not_equal(access(paths[0], F_OK), 0);
    assert_int_not_equal(access(paths[1], F_OK), 0);
    assert_int_equal(scene_status(durable).folded, 0);
    scene_fold(durable);
    assert_true(scene_state_is(&scene, durable, 3));
    fr_durable_close(durable);
}

FR_CASE(a_fold_finds_a_journal_that_changed_and_takes_nothing_in)
{
    struct scene scene = scene_make(68);
    struct fr_durable *durable = scene_open(&scene, false);
    durable->keep_bytes = 0; /* the fold reads the file */
    scene_append_to(&scene, durable, 1, 3);
    char journal[SCENE_PATH];
    scene_path(&scene, "journal/00000000000000000001.fj", journal);
    struct fr_buffer bytes = scene_read(journal);
    /* inside an image's bytes or head */
    size_t in_epoch_1 = (size_t)durable->journal.files[0]->epochs[0].offset + 400;
    FILE *file = fopen(journal, "r+b"); /* in place: the open descriptor must see it */
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)in_epoch_1, SEEK_SET), 0);
    assert_int_equal(fputc(bytes.data[in_epoch_1] ^ 4, file), bytes.data[in_epoch_1] ^ 4);
    assert_int_equal(fclose(file), 0);
    struct fr_err err = {0};
    assert_int_equal(fr_durable_fold(durable, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "epoch 1"));
    assert_int_equal(fr_durable_fold(durable, &err), FR_E_CORRUPT); /* fail-stop */
    assert_int_equal(scene_append(&scene, durable, 4, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "epoch 1")); /* later callers get the reason */
    struct fr_cold_sentinel sentinel;
    assert_int_equal(fr_cold_read_sentinel(durable->cold, NULL, &sentinel, &err), FR_OK);
    assert_int_equal(sentinel.epoch, 0);
    fr_durable_close(durable);
    scene_write(journal, bytes.data, bytes.size);
    durable = scene_open(&scene, false);
    scene_fold(durable);
    assert_true(scene_state_is(&scene, durable, 3));
    fr_durable_close(durable);
    fr_buffer_release(&bytes);
}

FR_CASE(a_fold_that_cannot_write_stops_the_object)
{
    struct scene scene = scene_make(69);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 2);
    char folder[SCENE_PATH];
    scene_path(&scene, "fold", folder);
    assert_int_equal(rmdir(folder), 0);
    scene_write(folder, "", 0);
    struct fr_err err = {0};
    assert_int_equal(fr_durable_fold(durable, &err), FR_E_IO);
    assert_true(!scene_status(durable).folding);
    assert_int_equal(scene_append(&scene, durable, 3, &err), FR_E_IO);
    fr_durable_close(durable);
    assert_int_equal(unlink(folder), 0);
    durable = scene_open(&scene, false);
    assert_true(scene_state_is(&scene, durable, 2));
    fr_durable_close(durable);
}

FR_CASE(a_fold_that_fills_the_disk_with_its_last_bytes_is_made_again)
{
    struct scene scene = scene_make(71);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 2);
    char folder[SCENE_PATH];
    scene_path(&scene, "fold", folder);
    /* The file system has one page: there is no room for the last file when it is finished. */
    if (mount("tmpfs", folder, "tmpfs", 0, "size=4k") != 0) {
        fr_durable_close(durable);
        print_message("SKIP: a file system of one page cannot be mounted here: %s\n", strerror(errno));
        skip();
    }
    struct fr_err err = {0};
    enum fr_status status = fr_durable_fold(durable, &err);
    assert_int_equal(umount(folder), 0);
    assert_int_equal(status, FR_E_NO_SPACE);
    assert_int_equal(scene_status(durable).folded, 0);
    scene_append_to(&scene, durable, 3, 3);
    scene_fold(durable);
    assert_int_equal(scene_status(durable).folded, 3);
    assert_true(scene_state_is(&scene, durable, 3));
    fr_durable_close(durable);
}

/* WIDE_FOLDS is the number of level-0 files at which a compaction begins (cold_tuning.c). */
enum { WIDE_KEYS = 48, WIDE = 16 << 10, WIDE_FOLDS = 24 };

/* Appends the same keys in every epoch, so that all files of level 0 have to be merged. */
static void append_wide(struct fr_durable *durable, uint64_t e)
{
    struct fr_stage stage;
    struct fr_err err = {0};
    fr_stage_init(&stage);
    stage.epoch = e;
    stage.timeline = 1;
    for (uint64_t key = 0; key < WIDE_KEYS; key++) {
        struct fr_image image = {.key = key, .size = WIDE};
        memset(fr_stage_image(&stage, &image), (int)e, WIDE);
    }
    assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
    fr_stage_release(&stage);
}

static void fill_disk(const struct scene *scene, uint64_t left)
{
    char path[SCENE_PATH];
    uint64_t room;
    struct fr_err err = {0};
    scene_path(scene, "other", path);
    assert_int_equal(fr_disk_free_bytes(scene->dir, &room, &err), FR_OK);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_true(room > left);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)(room - left)), 0);
    assert_int_equal(close(fd), 0);
}

/* The fold of epoch e begins a compaction. */
static uint64_t fold_until_a_compaction_is_due(struct fr_durable *durable)
{
    uint64_t e = 1;
    struct fr_err err = {0};
    for (; fr_cold_level0_files(durable->cold) < WIDE_FOLDS - 1; e++) {
        append_wide(durable, e);
        scene_fold(durable);
        assert_int_equal(fr_durable_acknowledge(durable, e, &err), FR_OK);
    }
    append_wide(durable, e);
    return e;
}

FR_CASE(a_compaction_without_room_waits_and_continues_by_itself)
{
    struct scene scene = scene_make(72);
    struct fr_err err = {0};
    if (mount("tmpfs", scene.dir, "tmpfs", 0, "size=80m") != 0) {
        print_message("SKIP: a small file system cannot be mounted here: %s\n", strerror(errno));
        skip();
    }
    struct fr_durable *durable = scene_open(&scene, false);
    uint64_t e = fold_until_a_compaction_is_due(durable);
    fill_disk(&scene, 1200 << 10); /* for one fold of 768 KiB, not for a compaction's result too */
    scene_fold(durable);
    FR_UNTIL (fr_cold_background_errors(durable->cold) > 0)
        continue;
    /* meanwhile folds and reads continue as long as they have room themselves */
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage.epoch = e + 1;
    stage.timeline = 1;
    assert_int_equal(fr_durable_append(durable, &stage, NULL, NULL, &err), FR_OK);
    fr_stage_release(&stage);
    scene_fold(durable);
    assert_int_equal(scene_status(durable).folded, e + 1);
    char path[SCENE_PATH];
    scene_path(&scene, "other", path);
    assert_int_equal(unlink(path), 0);
    FR_UNTIL (fr_cold_level0_files(durable->cold) < WIDE_FOLDS - 1)
        continue;
    uint64_t images = 0;
    assert_int_equal(fr_cold_walk(durable->cold, NULL, count_image, &images, &err), FR_OK);
    assert_int_equal(images, WIDE_KEYS);
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    assert_int_equal(scene_status(durable).folded, e + 1);
    fr_durable_close(durable);
    assert_int_equal(umount(scene.dir), 0);
}

static void find_manifest(const char *cold, char path[SCENE_PATH])
{
    DIR *dir = opendir(cold);
    assert_non_null(dir);
    path[0] = '\0';
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (strncmp(entry->d_name, "MANIFEST-", 9) == 0)
            snprintf(path, SCENE_PATH, "%.300s/%.100s", cold, entry->d_name);
    closedir(dir);
    assert_true(path[0] != '\0');
}

/* The journal is trimmed up to the last fold in one case and whole in the other. */
static void check_manifest_truncation(bool trimmed, unsigned *same, unsigned *refused)
{
    struct scene scene = scene_make(70), copy = scene_make(70);
    struct fr_durable_options options = {.dir = scene.dir, .journal_file_max = 1, .head = "head", .head_size = 4};
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    assert_int_equal(fr_durable_open(&options, &durable, &err), FR_OK);
    for (uint64_t e = 1; e <= 6; e++) {
        scene_append_to(&scene, durable, e, e);
        if (e % 2 == 0)
            scene_fold(durable);
        if (trimmed)
            assert_int_equal(fr_durable_acknowledge(durable, e, &err), FR_OK);
    }
    fr_durable_close(durable);
    char cold[SCENE_PATH], path[SCENE_PATH];
    scene_path(&scene, "cold", cold);
    find_manifest(cold, path);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    *same = *refused = 0;
    for (long cut = 1; cut <= info.st_size; cut += cut < 8 ? 1 : 29) {
        scene_remove(copy.dir);
        scene_copy_tree(scene.dir, copy.dir);
        scene_path(&copy, "cold", cold);
        find_manifest(cold, path);
        assert_int_equal(truncate(path, info.st_size - cut), 0);
        enum fr_status status = scene_try_open(&copy, NULL, false, &durable, &err);
        if (status == FR_OK) {
            assert_true(scene_state_is(&copy, durable, 6));
            fr_durable_close(durable);
            ++*same;
        } else {
            assert_true(status == FR_E_CORRUPT || status == FR_E_IO);
            ++*refused;
        }
    }
    scene_remove(scene.dir);
    scene_remove(copy.dir);
}

FR_CASE(a_truncated_manifest_gives_the_same_state_or_a_refusal)
{
    unsigned same, refused;
    check_manifest_truncation(true, &same, &refused);
    print_message("journal trimmed: %u same, %u refused\n", same, refused);
    assert_true(refused > 0);
    check_manifest_truncation(false, &same, &refused);
    print_message("journal whole: %u same, %u refused\n", same, refused);
    assert_true(same > 0); /* older folds, or none, and the journal for the rest */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(random_epochs_folds_and_reopenings_equal_the_model),
        SCENE_CASE(a_fold_of_nothing_is_no_work),
        SCENE_CASE(a_fold_over_many_small_epochs_and_one_large_image_is_whole),
        SCENE_CASE(large_epochs_fold_from_memory_and_from_files_alike),
        SCENE_CASE(epochs_from_memory_and_from_files_are_the_same_and_fold_alike),
        SCENE_CASE(what_kept_epochs_take_is_bounded_in_real_bytes),
        SCENE_CASE(an_absent_key_leaves_the_cold_store),
        SCENE_CASE(a_section_the_folded_epochs_lack_stays_in_the_cold_store),
        SCENE_CASE(large_sections_of_many_epochs_come_out_newest),
        SCENE_CASE(many_sorted_files_are_one_fold),
        SCENE_CASE(level_zero_files_are_counted),
        SCENE_CASE(files_of_an_interrupted_fold_are_removed_by_open),
        SCENE_CASE(a_fold_finds_a_journal_that_changed_and_takes_nothing_in),
        SCENE_CASE(a_fold_that_cannot_write_stops_the_object),
        SCENE_CASE(a_compaction_without_room_waits_and_continues_by_itself),
        SCENE_CASE(a_fold_that_fills_the_disk_with_its_last_bytes_is_made_again),
        SCENE_CASE(a_truncated_manifest_gives_the_same_state_or_a_refusal),
    };
    return cmocka_run_group_tests_name("durable fold", tests, NULL, NULL);
}
