/* Savepoints: the folded state as a directory of its own, and new states that begin from one. */
#include "scene.h"

#include <errno.h>
#include <sys/resource.h>

#include "durable/savepoint.h"

enum { FOLDED = 6, LAST = 9 };

/* A state with epochs 1..FOLDED folded, and more epochs after them. */
static struct fr_durable *make_state(struct scene *scene, uint64_t seed)
{
    *scene = scene_make(seed);
    struct fr_durable *durable = scene_open(scene, false);
    struct fr_err err = {0};
    scene_append_to(scene, durable, 1, FOLDED);
    scene_fold(durable);
    assert_int_equal(fr_durable_write_file(durable, "model.json", "{}", 2, &err), FR_OK);
    scene_append_to(scene, durable, FOLDED + 1, LAST);
    return durable;
}

/* Another directory of the case, not made yet. */
static struct scene beside(const struct scene *scene)
{
    struct scene other = scene_make(scene->seed);
    other.keys = scene->keys;
    assert_int_equal(rmdir(other.dir), 0);
    return other;
}

static struct fr_savepoint make_savepoint(struct fr_durable *durable, const struct scene *at)
{
    struct fr_savepoint savepoint = {0};
    struct fr_err err = {0};
    if (fr_durable_savepoint(durable, at->dir, &savepoint, &err) != FR_OK)
        fail_msg("savepoint: %s", err.text);
    return savepoint;
}

static bool holds(const struct scene *at, uint64_t epoch)
{
    struct fr_durable *durable = scene_open(at, true);
    bool same = scene_status(durable).epoch == epoch && scene_state_is(at, durable, epoch);
    fr_durable_close(durable);
    return same;
}

static void append_in(const struct scene *scene, struct fr_durable *durable, uint64_t timeline, uint64_t epoch)
{
    struct fr_stage stage;
    struct fr_err err = {0};
    fr_stage_init(&stage);
    scene_stage(scene, epoch, &stage);
    stage.timeline = timeline;
    if (fr_durable_append(durable, &stage, NULL, NULL, &err) != FR_OK)
        fail_msg("append: %s", err.text);
    fr_stage_release(&stage);
}

FR_CASE(a_savepoint_is_what_is_folded_while_the_state_continues)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 1);
    struct scene at = beside(&scene);
    struct fr_savepoint savepoint = make_savepoint(durable, &at), seen = {0};
    struct fr_err err = {0};
    assert_int_equal(savepoint.epoch, FOLDED);
    assert_int_equal(savepoint.timeline, 1);
    struct fr_sha256 digest;
    assert_int_equal(fr_durable_digest(durable, FOLDED, &digest), FR_OK);
    assert_memory_equal(&savepoint.digest, &digest, sizeof(digest));
    assert_int_equal(fr_savepoint_look(at.dir, &seen, &err), FR_OK);
    assert_int_equal(seen.epoch, FOLDED);
    assert_memory_equal(&seen.digest, &digest, sizeof(digest));
    assert_true(seen.bytes > 0);
    scene_append_to(&scene, durable, LAST + 1, LAST + 3);
    scene_fold(durable);
    scene_append_to(&scene, durable, LAST + 4, LAST + 4);
    scene_fold(durable);
    assert_true(scene_state_is(&scene, durable, LAST + 4));
    fr_durable_close(durable);
    assert_true(holds(&at, FOLDED));
}

FR_CASE(a_savepoint_takes_no_name_twice_and_nothing_unfolded)
{
    struct scene scene = scene_make(2);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_savepoint savepoint;
    struct fr_err err = {0};
    struct scene at = beside(&scene);
    scene_append_to(&scene, durable, 1, 2);
    assert_int_equal(fr_durable_savepoint(durable, at.dir, &savepoint, &err), FR_E_STATE);
    scene_fold(durable);
    char part[SCENE_PATH + 8], left[SCENE_PATH + 16];
    snprintf(part, sizeof(part), "%s.part", at.dir);
    snprintf(left, sizeof(left), "%s/cold", part);
    assert_int_equal(mkdir(part, 0700), 0); /* as a crash leaves it */
    assert_int_equal(mkdir(left, 0700), 0);
    make_savepoint(durable, &at);
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_equal(fr_durable_savepoint(durable, at.dir, &savepoint, &err), FR_E_EXISTS);
    assert_int_equal(fr_savepoint_remove(at.dir, &err), FR_OK);
    assert_int_not_equal(access(at.dir, F_OK), 0);
    assert_int_equal(fr_savepoint_look(at.dir, &savepoint, &err), FR_E_NOT_FOUND);
    make_savepoint(durable, &at);
    fr_durable_close(durable);
}

FR_CASE(what_a_crash_left_of_savepoints_goes_when_the_state_is_opened)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 3);
    struct fr_savepoint savepoint;
    struct fr_err err = {0};
    char whole[SCENE_PATH], left[SCENE_PATH], below[SCENE_PATH];
    scene_path(&scene, "savepoints", left);
    assert_int_equal(mkdir(left, 0700), 0);
    scene_path(&scene, "savepoints/auto-7-1", whole);
    assert_int_equal(fr_durable_savepoint(durable, whole, &savepoint, &err), FR_OK);
    scene_path(&scene, "savepoints/auto-5-1.part", left);
    scene_path(&scene, "savepoints/auto-5-1.part/cold", below);
    assert_int_equal(fr_dir_make(below, &err), FR_OK);
    fr_durable_close(durable);
    fr_durable_close(scene_open(&scene, true));
    assert_int_equal(access(left, F_OK), 0); /* a reader changes nothing */
    fr_durable_close(scene_open(&scene, false));
    assert_int_not_equal(access(left, F_OK), 0);
    assert_int_equal(fr_savepoint_look(whole, &savepoint, &err), FR_OK);
}

FR_CASE(a_new_state_continues_from_a_savepoint_in_a_new_timeline)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 3);
    struct scene at = beside(&scene), other = beside(&scene);
    make_savepoint(durable, &at);
    fr_durable_close(durable);
    struct fr_savepoint from = {0};
    struct fr_err err = {0};
    if (fr_savepoint_restore(at.dir, other.dir, NULL, NULL, &from, &err) != FR_OK)
        fail_msg("restore: %s", err.text);
    assert_int_equal(from.timeline, 2);
    durable = scene_open(&other, false);
    struct fr_durable_status status = scene_status(durable);
    assert_int_equal(status.epoch, FOLDED);
    assert_int_equal(status.acked, FOLDED);
    assert_int_equal(status.timeline, 2);
    assert_true(scene_state_is(&other, durable, FOLDED));
    struct fr_buffer file = {0};
    assert_int_equal(fr_durable_read_file(durable, "model.json", &file, &err), FR_OK);
    fr_buffer_clear(&file);
    assert_int_equal(fr_durable_newest_head(durable, &file, &err), FR_OK);
    assert_int_equal(file.size, 4);
    assert_memory_equal(file.data, "head", 4);
    fr_buffer_release(&file);
    append_in(&other, durable, 2, FOLDED + 1);
    append_in(&other, durable, 2, FOLDED + 2);
    fr_durable_close(durable);
    durable = scene_open(&other, false);
    assert_true(scene_state_is(&other, durable, FOLDED + 2));
    scene_fold(durable);
    append_in(&other, durable, 2, FOLDED + 3);
    fr_durable_close(durable);
    assert_true(holds(&other, FOLDED + 3));
    assert_true(holds(&at, FOLDED)); /* the files that both link stay as they were */
    assert_true(holds(&scene, LAST));
}

FR_CASE(a_restore_never_touches_a_state_and_needs_a_savepoint)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 4);
    struct scene at = beside(&scene), other = beside(&scene);
    make_savepoint(durable, &at);
    fr_durable_close(durable);
    struct fr_savepoint from;
    struct fr_err err = {0};
    assert_int_equal(fr_savepoint_restore(at.dir, scene.dir, NULL, NULL, &from, &err), FR_E_EXISTS);
    assert_true(holds(&scene, LAST));
    assert_int_equal(fr_savepoint_restore(scene.dir, other.dir, NULL, NULL, &from, &err), FR_E_STATE);
    assert_int_equal(fr_savepoint_restore("/tmp/fr_durable_nothing", other.dir, NULL, NULL, &from, &err),
                     FR_E_NOT_FOUND);
    assert_int_not_equal(access(other.dir, F_OK), 0);
    char hwm[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    assert_int_equal(unlink(hwm), 0); /* a directory whose state lost its mark is refused, too */
    assert_int_equal(fr_savepoint_restore(at.dir, scene.dir, NULL, NULL, &from, &err), FR_E_EXISTS);
}

FR_CASE(a_restore_refuses_a_state_and_a_savepoint_that_lie_in_one_another)
{
    struct scene scene;
    char dir[SCENE_PATH + 32], inside[SCENE_PATH + 64];
    struct fr_durable *durable = make_state(&scene, 1);
    struct scene at = beside(&scene), other = beside(&scene);
    struct fr_savepoint from;
    struct fr_err err = {0};
    (void)make_savepoint(durable, &at);
    fr_durable_close(durable);
    static const char *const below[] = {"", "/state", "/cold/state", "/./a/state", "/journal/"};
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
        snprintf(dir, sizeof(dir), "%s%s", at.dir, below[i]);
        enum fr_status status = fr_savepoint_restore(at.dir, dir, NULL, NULL, &from, &err);
        if (status != FR_E_MISMATCH || !strstr(err.text, "lie in one another"))
            fail_msg("%s: %d %s", dir, status, err.text);
    }
    assert_true(holds(&at, FOLDED));
    static const char *const parts[] = {"cold", "journal", "fold"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) { /* what a restore empties */
        snprintf(dir, sizeof(dir), "%s/%s", other.dir, parts[i]);
        snprintf(inside, sizeof(inside), "%s/savepoint", dir);
        assert_int_equal(fr_dir_make(dir, &err), FR_OK);
        assert_int_equal(rename(at.dir, inside), 0);
        assert_int_equal(fr_savepoint_restore(inside, other.dir, NULL, NULL, &from, &err), FR_E_MISMATCH);
        assert_int_equal(rename(inside, at.dir), 0);
        assert_true(holds(&at, FOLDED));
    }
    snprintf(dir, sizeof(dir), "%s/savepoints", other.dir); /* where a state's own lie */
    snprintf(inside, sizeof(inside), "%s/savepoint", dir);
    assert_int_equal(fr_dir_make(dir, &err), FR_OK);
    assert_int_equal(rename(at.dir, inside), 0);
    assert_int_equal(fr_savepoint_restore(inside, other.dir, NULL, NULL, &from, &err), FR_OK);
    assert_true(holds(&other, FOLDED));
}

FR_CASE(without_a_journal_a_state_opens_only_when_nothing_of_it_is_missing)
{
    struct scene scene;
    struct fr_err err = {0};
    struct fr_durable *durable = make_state(&scene, 5), *again = NULL;
    scene_fold(durable);
    fr_durable_close(durable);
    char journal[SCENE_PATH];
    scene_path(&scene, "journal", journal);
    scene_remove(journal);
    /* Epoch folded, but not known to be published: its deltas would be lost. */
    assert_int_equal(scene_try_open(&scene, NULL, false, &again, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "missing"));
}

FR_CASE(a_savepoint_is_asked_for_by_name_and_answered)
{
    struct scene scene = scene_make(7);
    struct fr_err err = {0};
    char name[FR_SAVEPOINT_NAME_MAX], path[PATH_MAX];
    assert_false(fr_savepoint_next_request(scene.dir, name));
    assert_int_equal(fr_savepoint_ask(scene.dir, "../x", &err), FR_E_INVALID);
    assert_int_equal(fr_savepoint_ask(scene.dir, "before-upgrade", &err), FR_OK);
    assert_true(fr_savepoint_next_request(scene.dir, name));
    assert_string_equal(name, "before-upgrade");
    assert_int_equal(fr_savepoint_answered(scene.dir, name, &err), FR_AGAIN);
    assert_int_equal(fr_savepoint_answer(scene.dir, name, "the disk is full", &err), FR_OK);
    assert_false(fr_savepoint_next_request(scene.dir, name));
    assert_int_equal(fr_savepoint_answered(scene.dir, "before-upgrade", &err), FR_E_STATE);
    assert_string_equal(err.text, "the disk is full");
    assert_int_equal(fr_savepoint_ask(scene.dir, "before-upgrade", &err), FR_OK); /* once more */
    assert_int_equal(fr_savepoint_answered(scene.dir, "before-upgrade", &err), FR_AGAIN);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_savepoint savepoint;
    scene_append_to(&scene, durable, 1, 2);
    scene_fold(durable);
    assert_int_equal(fr_savepoint_path(scene.dir, "before-upgrade", path, &err), FR_OK);
    assert_int_equal(fr_durable_savepoint(durable, path, &savepoint, &err), FR_OK);
    fr_durable_close(durable);
    assert_int_equal(fr_savepoint_answer(scene.dir, "before-upgrade", NULL, &err), FR_OK);
    assert_int_equal(fr_savepoint_answered(scene.dir, "before-upgrade", &err), FR_OK);
    assert_int_equal(fr_savepoint_ask(scene.dir, "before-upgrade", &err), FR_E_EXISTS);
    char(*names)[FR_SAVEPOINT_NAME_MAX] = NULL;
    size_t n = 0;
    assert_int_equal(fr_savepoint_names(scene.dir, &names, &n, &err), FR_OK);
    assert_int_equal(n, 1);
    assert_string_equal(names[0], "before-upgrade");
    free(names);
}

FR_CASE(a_process_that_opens_no_further_file_calls_no_savepoint_damaged)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 12);
    struct scene at = beside(&scene);
    struct fr_savepoint seen;
    struct fr_err err = {0};
    struct rlimit before, none;
    make_savepoint(durable, &at);
    fr_durable_close(durable);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = dup(STDERR_FILENO);
    close(lowest);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum fr_status status = fr_savepoint_look(at.dir, &seen, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, FR_E_NO_DESCRIPTORS);
    assert_non_null(strstr(err.text, "raise the limit"));
}

/* ---- a disk that fails at one call ---- */

struct failing {
    int left; /* calls before the one that fails */
    bool failed;
};

static bool fails(struct failing *f)
{
    if (f->left-- != 0)
        return false;
    f->failed = true;
    errno = EIO;
    return true;
}

static int failing_open(void *self, const char *path, int flags, unsigned mode)
{
    return fails(self) ? -1 : fr_disk_system()->open(NULL, path, flags, mode);
}

static long failing_pwrite(void *self, int fd, const void *bytes, size_t size, uint64_t offset)
{
    return fails(self) ? -1 : fr_disk_system()->pwrite(NULL, fd, bytes, size, offset);
}

static int failing_sync(void *self, int fd)
{
    return fails(self) ? -1 : fr_disk_system()->fdatasync(NULL, fd);
}

static int failing_rename(void *self, const char *from, const char *to)
{
    return fails(self) ? -1 : fr_disk_system()->rename(NULL, from, to);
}

static int failing_sync_dir(void *self, const char *path)
{
    return fails(self) ? -1 : fr_disk_system()->sync_dir(NULL, path);
}

FR_CASE(a_restore_that_stops_at_any_call_is_no_state_and_can_be_made_again)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 6);
    struct scene at = beside(&scene), other = beside(&scene);
    make_savepoint(durable, &at);
    fr_durable_close(durable);
    struct fr_savepoint from;
    int calls = 0, refused = 0;
    for (bool failed = true; failed; calls++) {
        struct failing f = {.left = calls};
        struct fr_disk disk = *fr_disk_system();
        disk.self = &f;
        disk.open = failing_open;
        disk.pwrite = failing_pwrite;
        disk.fdatasync = failing_sync;
        disk.rename = failing_rename;
        disk.sync_dir = failing_sync_dir;
        struct fr_err err = {0};
        enum fr_status status = fr_savepoint_restore(at.dir, other.dir, &disk, NULL, &from, &err);
        failed = f.failed;
        assert_int_equal(status == FR_OK, !failed);
        struct fr_durable *half = NULL;
        char marker[sizeof(other.dir) + 16];
        snprintf(marker, sizeof(marker), "%s/restoring", other.dir);
        enum fr_status opened = failed ? scene_try_open(&other, NULL, true, &half, &err) : FR_E_NOT_FOUND;
        if (failed && access(marker, F_OK) == 0 && opened == FR_E_NOT_FOUND) {
            /* a start without --restore does not begin an empty model there */
            assert_int_equal(scene_try_open(&other, NULL, false, &half, &err), FR_E_CORRUPT);
            assert_non_null(strstr(err.text, "--restore"));
            refused += 1;
        }
        if (opened == FR_OK) {
            /* The mark was in place and only the sync of its directory failed: the state is
             * whole. */
            assert_true(scene_state_is(&other, half, FOLDED));
            fr_durable_close(half);
            scene_remove(other.dir);
        }
    }
    assert_true(calls > 20 && refused > 10);
    assert_true(holds(&other, FOLDED));
}

/* The mark is made last of what is read back. */
static int open_without_current(void *self, const char *path, int flags, unsigned mode)
{
    (void)self;
    char current[FR_TEST_FOLDER + 64];
    const char *mark = strstr(path, ".part/hwm");
    if (mark) {
        snprintf(current, sizeof(current), "%.*s.part/cold/CURRENT", (int)(mark - path), path);
        assert_int_equal(unlink(current), 0);
    }
    return fr_disk_system()->open(NULL, path, flags, mode);
}

FR_CASE(a_savepoint_whose_store_cannot_be_opened_is_not_kept)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 9);
    fr_durable_close(durable);
    struct fr_disk disk = *fr_disk_system();
    disk.open = open_without_current;
    struct scene at = beside(&scene);
    struct fr_savepoint savepoint = {0};
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, &disk, false, &durable, &err), FR_OK);
    assert_int_equal(fr_durable_savepoint(durable, at.dir, &savepoint, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "CURRENT names no MANIFEST"));
    assert_int_not_equal(access(at.dir, F_OK), 0);
    fr_durable_close(durable);
}

/* A state with a damaged cold/CURRENT is reported as damaged, not as a file that cannot be opened
 * at the moment. */
FR_CASE(a_damaged_current_of_the_store_is_a_damaged_state)
{
    struct scene scene;
    struct fr_durable *durable = make_state(&scene, 7);
    fr_durable_close(durable);
    char path[sizeof(scene.dir) + 16];
    struct fr_buffer text = {0};
    struct fr_err err = {0};
    snprintf(path, sizeof(path), "%s/cold/CURRENT", scene.dir);
    assert_int_equal(fr_file_read(path, 100, &text, &err), FR_OK);
    for (size_t at = 0; at <= text.size; at++) {
        for (uint8_t bit = 1; bit != 0; bit = (uint8_t)(bit << 1)) {
            struct fr_buffer changed = {0};
            fr_buffer_append(&changed, text.data, at < text.size ? text.size : bit % text.size);
            if (at < text.size)
                changed.data[at] ^= bit;
            assert_int_equal(fr_file_replace(fr_disk_system(), path, changed.data, changed.size, &err), FR_OK);
            fr_buffer_release(&changed);
            assert_int_equal(scene_try_open(&scene, NULL, bit % 3 == 1, &durable, &err), FR_E_CORRUPT);
            assert_non_null(strstr(err.text, "--restore"));
        }
    }
    assert_int_equal(fr_file_replace(fr_disk_system(), path, text.data, text.size, &err), FR_OK);
    fr_buffer_release(&text);
    assert_true(holds(&scene, LAST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_savepoint_is_what_is_folded_while_the_state_continues),
        SCENE_CASE(a_savepoint_takes_no_name_twice_and_nothing_unfolded),
        SCENE_CASE(what_a_crash_left_of_savepoints_goes_when_the_state_is_opened),
        SCENE_CASE(a_new_state_continues_from_a_savepoint_in_a_new_timeline),
        SCENE_CASE(a_restore_never_touches_a_state_and_needs_a_savepoint),
        SCENE_CASE(a_restore_refuses_a_state_and_a_savepoint_that_lie_in_one_another),
        SCENE_CASE(without_a_journal_a_state_opens_only_when_nothing_of_it_is_missing),
        SCENE_CASE(a_savepoint_is_asked_for_by_name_and_answered),
        SCENE_CASE(a_process_that_opens_no_further_file_calls_no_savepoint_damaged),
        SCENE_CASE(a_restore_that_stops_at_any_call_is_no_state_and_can_be_made_again),
        SCENE_CASE(a_savepoint_whose_store_cannot_be_opened_is_not_kept),
        SCENE_CASE(a_damaged_current_of_the_store_is_a_damaged_state),
    };
    return cmocka_run_group_tests_name("durable savepoint", tests, NULL, NULL);
}
