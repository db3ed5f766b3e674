/* What the tests of the durable side share: temporary state directories, epochs whose content is a
 * function of (seed, epoch), and the state that must come back after any number of them. */
#ifndef FR_TEST_DURABLE_SCENE_H
#define FR_TEST_DURABLE_SCENE_H

#include <dirent.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "durable/durable.h"

enum { SCENE_TABLES = 2, SCENE_PATH = 512, SCENE_RARE = 21 };

struct scene {
    char dir[SCENE_PATH];
    uint64_t seed, salt;
    uint32_t keys;       /* per table */
    uint32_t touched_of; /* one key in touched_of is in an epoch */
};

static inline void scene_remove(const char *path)
{
    DIR *dir = opendir(path);
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char below[SCENE_PATH];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof(below), "%.250s/%.200s", path, entry->d_name);
        if (unlink(below) != 0)
            scene_remove(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* The directories of the case that runs; its teardown, drop_scenes, removes them. */
static char (*scene_dirs)[SCENE_PATH];
static size_t n_scene_dirs;

static inline struct scene scene_make(uint64_t seed)
{
    struct scene scene = {.seed = seed, .salt = 0x5a17, .keys = 64, .touched_of = 3};
    fr_test_folder(scene.dir);
    scene_dirs = realloc(scene_dirs, (n_scene_dirs + 1) * sizeof(*scene_dirs));
    assert_non_null(scene_dirs);
    memcpy(scene_dirs[n_scene_dirs++], scene.dir, SCENE_PATH);
    return scene;
}

FR_FIXTURE(drop_scenes)
{
    while (n_scene_dirs)
        scene_remove(scene_dirs[--n_scene_dirs]);
    free(scene_dirs);
    scene_dirs = NULL;
    return 0;
}

#define SCENE_CASE(name) cmocka_unit_test_teardown(name, drop_scenes)

static inline void scene_path(const struct scene *scene, const char *name, char out[SCENE_PATH])
{
    assert_true(snprintf(out, SCENE_PATH, "%.300s/%.150s", scene->dir, name) < SCENE_PATH);
}

/* ---- content ---- */

struct scene_image {
    bool touched;
    uint8_t kind, reason;
    uint32_t size;
};

static inline struct scene_image scene_image_of(const struct scene *scene, uint64_t epoch, uint32_t table, uint64_t key)
{
    uint64_t r = fr_random_u64(scene->seed, table, key, epoch);
    struct scene_image image = {.touched = r % scene->touched_of == 0};
    r /= scene->touched_of;
    image.kind = (uint8_t)(r % 4 == 0 ? FR_IMAGE_ABSENT : r % 4 == 1 ? FR_IMAGE_PENDING : FR_IMAGE_ROW);
    r /= 4;
    image.reason = image.kind == FR_IMAGE_ABSENT ? (uint8_t)(r % 6) : 0;
    image.size = image.kind == FR_IMAGE_ABSENT ? 0 : image.kind == FR_IMAGE_PENDING ? 12 : (uint32_t)(r % 200);
    return image;
}

static inline uint8_t scene_byte(uint64_t epoch, uint32_t table, uint64_t key, uint32_t i)
{
    return (uint8_t)(epoch * 31 + table * 17 + key * 7 + i);
}

/* Keys are spread over 64 bits; the order of staging is not the order of keys. */
static inline uint64_t scene_key(uint64_t index)
{
    return index * 0x9e3779b97f4a7c15ULL;
}

static inline uint64_t scene_index(uint64_t key)
{
    return key * 0xf1de83e19937733dULL; /* inverse of the factor modulo 2^64 */
}

static inline void scene_stage(const struct scene *scene, uint64_t epoch, struct fr_stage *stage)
{
    fr_stage_clear(stage);
    stage->epoch = epoch;
    stage->timeline = 1 + epoch / 1000;
    for (uint32_t table = 0; table < SCENE_TABLES; table++) {
        for (uint64_t index = 0; index < scene->keys; index++) {
            struct scene_image want = scene_image_of(scene, epoch, table, index);
            if (!want.touched)
                continue;
            struct fr_image image = {
                .key = scene_key(index), .table = table, .size = want.size, .kind = want.kind, .reason = want.reason};
            uint8_t *bytes = fr_stage_image(stage, &image);
            for (uint32_t i = 0; i < want.size; i++)
                bytes[i] = scene_byte(epoch, table, index, i);
        }
    }
    fr_put_u64(fr_stage_section(stage, "counter"), epoch);
    if (epoch % 2 == 1)
        fr_put_u64(fr_stage_section(stage, "odd"), epoch);
    if (epoch % 5 == 2)
        memset(fr_buffer_reserve(fr_stage_section(stage, "rare/part"), SCENE_RARE), (int)epoch & 0xff, SCENE_RARE);
    if (epoch % 5 == 2)
        stage->sections[stage->n_sections - 1].bytes.size = SCENE_RARE;
}

static inline enum fr_status scene_append(const struct scene *scene, struct fr_durable *durable, uint64_t epoch,
                                          struct fr_err *err)
{
    struct fr_stage stage;
    fr_stage_init(&stage);
    scene_stage(scene, epoch, &stage);
    enum fr_status status = fr_durable_append(durable, &stage, NULL, NULL, err);
    fr_stage_release(&stage);
    return status;
}

/* ---- what comes back ---- */

struct scene_found_image {
    uint8_t kind; /* 0xff: none */
    uint32_t size;
    uint8_t *bytes;
};

struct scene_found {
    const struct scene *scene;
    struct scene_found_image *images;
    uint64_t counter, odd;
    int rare; /* -1: none */
    unsigned sections;
    uint64_t last_progress, total_progress;
};

static inline enum fr_status scene_visit_image(void *self, size_t thread, const struct fr_image *image)
{
    (void)thread;
    struct scene_found *found = self;
    uint64_t index = scene_index(image->key);
    assert_true(image->table < SCENE_TABLES && index < found->scene->keys);
    size_t at = (size_t)image->table * found->scene->keys + (size_t)index;
    found->images[at].kind = image->kind == FR_IMAGE_ABSENT ? 0xff : image->kind;
    found->images[at].size = image->size;
    found->images[at].bytes = realloc(found->images[at].bytes, image->size + 1u);
    if (image->size > 0)
        memcpy(found->images[at].bytes, image->bytes, image->size);
    return FR_OK;
}

static inline enum fr_status scene_visit_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct scene_found *found = self;
    found->sections++;
    if (strcmp(name, "counter") == 0) {
        assert_int_equal(size, 8);
        found->counter = fr_load_u64(bytes);
    } else if (strcmp(name, "odd") == 0) {
        assert_int_equal(size, 8);
        found->odd = fr_load_u64(bytes);
    } else {
        assert_string_equal(name, "rare/part");
        assert_int_equal(size, SCENE_RARE);
        found->rare = bytes[0];
        for (size_t i = 0; i < size; i++)
            assert_int_equal(bytes[i], found->rare);
    }
    return FR_OK;
}

static inline void scene_progress(void *self, uint64_t done, uint64_t total)
{
    struct scene_found *found = self;
    assert_true(done >= found->last_progress && done <= total);
    found->last_progress = done;
    found->total_progress = total;
}

static inline bool scene_image_fits(const struct scene_found *found, uint64_t epoch, uint32_t table, uint64_t index)
{
    size_t at = (size_t)table * found->scene->keys + (size_t)index;
    uint64_t last = epoch;
    while (last > 0 && !scene_image_of(found->scene, last, table, index).touched)
        last--;
    struct scene_image want = {.kind = FR_IMAGE_ABSENT};
    if (last > 0)
        want = scene_image_of(found->scene, last, table, index);
    if (want.kind == FR_IMAGE_ABSENT)
        return found->images[at].kind == 0xff;
    if (found->images[at].kind != want.kind || found->images[at].size != want.size)
        return false;
    for (uint32_t i = 0; i < want.size; i++)
        if (found->images[at].bytes[i] != scene_byte(last, table, index, i))
            return false;
    return true;
}

/* Restores and compares with the model: true when the state is exactly that of `epoch`. */
static inline bool scene_state_is(const struct scene *scene, struct fr_durable *durable, uint64_t epoch)
{
    struct scene_found found = {.scene = scene, .rare = -1};
    size_t n = (size_t)SCENE_TABLES * scene->keys;
    found.images = calloc(n, sizeof(*found.images));
    for (size_t i = 0; i < n; i++)
        found.images[i].kind = 0xff;
    struct fr_restore_visitor visitor = {
        .self = &found, .image = scene_visit_image, .section = scene_visit_section, .progress = scene_progress};
    struct fr_err err = {0};
    enum fr_status status = fr_durable_restore(durable, &visitor, &err);
    if (status != FR_OK)
        print_error("restore: %s\n", err.text);
    bool same = status == FR_OK && found.counter == epoch;
    /* Each section comes once, with the value of the newest epoch that has it, folded or not. */
    same = same && found.sections == (epoch > 0) + (epoch > 0) + (unsigned)(epoch > 1);
    same = same && found.odd == (epoch % 2 == 1 || epoch == 0 ? epoch : epoch - 1);
    same = same && found.rare == (epoch > 1 ? (int)((epoch - (epoch + 3) % 5) & 0xff) : -1);
    for (uint32_t table = 0; table < SCENE_TABLES; table++)
        for (uint64_t index = 0; index < scene->keys; index++)
            same = same && scene_image_fits(&found, epoch, table, index);
    for (size_t i = 0; i < n; i++)
        free(found.images[i].bytes);
    free(found.images);
    return same;
}

/* ---- opening ---- */

static inline enum fr_status scene_try_open(const struct scene *scene, const struct fr_disk *disk, bool read_only,
                                            struct fr_durable **out, struct fr_err *err)
{
    struct fr_durable_options options = {
        .dir = scene->dir, .disk = disk, .read_only = read_only, .salt = scene->salt, .head = "head", .head_size = 4};
    return fr_durable_open(&options, out, err);
}

static inline struct fr_durable *scene_open(const struct scene *scene, bool read_only)
{
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    if (scene_try_open(scene, NULL, read_only, &durable, &err) != FR_OK)
        fail_msg("open: %s", err.text);
    return durable;
}

static inline void scene_append_to(const struct scene *scene, struct fr_durable *durable, uint64_t from, uint64_t to)
{
    struct fr_err err = {0};
    for (uint64_t e = from; e <= to; e++)
        if (scene_append(scene, durable, e, &err) != FR_OK)
            fail_msg("append: %s", err.text);
}

static inline void scene_fold(struct fr_durable *durable)
{
    struct fr_err err = {0};
    if (fr_durable_fold(durable, &err) != FR_OK)
        fail_msg("fold: %s", err.text);
}

static inline struct fr_durable_status scene_status(struct fr_durable *durable)
{
    struct fr_durable_status status;
    fr_durable_get_status(durable, &status);
    return status;
}

/* ---- files ---- */

static inline struct fr_buffer scene_read(const char *path)
{
    struct fr_buffer bytes = {0};
    struct fr_err err = {0};
    if (fr_file_read(path, 1 << 30, &bytes, &err) != FR_OK)
        fail_msg("%s", err.text);
    return bytes;
}

static inline void scene_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void scene_copy_tree(const char *from, const char *to)
{
    mkdir(to, 0700);
    DIR *dir = opendir(from);
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        char source[SCENE_PATH], target[SCENE_PATH];
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(source, sizeof(source), "%.250s/%.200s", from, entry->d_name);
        snprintf(target, sizeof(target), "%.250s/%.200s", to, entry->d_name);
        assert_int_equal(stat(source, &info), 0);
        if (S_ISDIR(info.st_mode)) {
            scene_copy_tree(source, target);
            continue;
        }
        struct fr_buffer bytes = scene_read(source);
        scene_write(target, bytes.data, bytes.size);
        fr_buffer_release(&bytes);
    }
    closedir(dir);
}

#endif
