/* Append, read back, rotate, fold, acknowledge, trim, reopen: the ordinary life of a state
 * directory. */
#include "scene.h"

#include <pthread.h>
#include <sys/resource.h>

FR_CASE(a_new_directory_holds_nothing)
{
    struct scene scene = scene_make(1);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_durable_status status = scene_status(durable);
    assert_int_equal(status.timeline, 0);
    assert_int_equal(status.epoch, 0);
    assert_int_equal(status.folded, 0);
    assert_int_equal(status.journal_first, 0);
    assert_int_equal(status.journal_bytes, 0);
    assert_true(scene_state_is(&scene, durable, 0));
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    assert_int_equal(scene_status(durable).epoch, 0);
    fr_durable_close(durable);
}

FR_CASE(appended_epochs_are_there_after_reopening)
{
    struct scene scene = scene_make(2);
    struct fr_durable *durable = scene_open(&scene, false);
    for (uint64_t e = 1; e <= 5; e++) {
        scene_append_to(&scene, durable, e, e);
        struct fr_durable_status before = scene_status(durable);
        fr_durable_close(durable);
        durable = scene_open(&scene, false);
        struct fr_durable_status after = scene_status(durable);
        assert_int_equal(after.epoch, e);
        assert_int_equal(after.timeline, 1);
        assert_memory_equal(&after.digest, &before.digest, sizeof(after.digest));
        assert_int_equal(after.journal_bytes, before.journal_bytes);
        assert_int_equal(after.unfolded_bytes, before.unfolded_bytes);
        assert_true(scene_state_is(&scene, durable, e));
    }
    fr_durable_close(durable);
}

FR_CASE(digests_chain_from_epoch_to_epoch)
{
    struct scene scene = scene_make(3);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_sha256 previous = {{0}};
    for (uint64_t e = 1; e <= 4; e++) {
        struct fr_stage stage;
        struct fr_buffer appended = {0}, read = {0};
        struct fr_sha256 digest, known;
        struct fr_err err = {0};
        struct fr_epoch epoch;
        fr_stage_init(&stage);
        scene_stage(&scene, e, &stage);
        assert_int_equal(fr_durable_append(durable, &stage, &appended, &digest, &err), FR_OK);
        assert_int_equal(fr_durable_read_epoch(durable, e, &read, NULL, &err), FR_OK);
        assert_int_equal(appended.size, read.size);
        assert_memory_equal(appended.data, read.data, read.size);
        assert_int_equal(fr_epoch_parse(read.data, read.size, &epoch), FR_OK);
        assert_memory_equal(&epoch.previous, &previous, sizeof(previous));
        assert_memory_equal(&epoch.digest, &digest, sizeof(digest));
        assert_int_equal(fr_durable_digest(durable, e - 1, &known), FR_OK);
        assert_memory_equal(&known, &previous, sizeof(known));
        previous = digest;
        fr_stage_release(&stage);
        fr_buffer_release(&appended);
        fr_buffer_release(&read);
    }
    struct fr_sha256 unknown;
    assert_int_equal(fr_durable_digest(durable, 5, &unknown), FR_E_NOT_FOUND);
    fr_durable_close(durable);
}

static struct fr_durable *open_with(const struct scene *scene, const char *head, uint64_t file_max)
{
    struct fr_durable_options options = {
        .dir = scene->dir, .journal_file_max = file_max, .head = head, .head_size = strlen(head)};
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    if (fr_durable_open(&options, &durable, &err) != FR_OK)
        fail_msg("%s", err.text);
    return durable;
}

static bool journal_has(const struct scene *scene, uint64_t first)
{
    char name[64], path[SCENE_PATH];
    snprintf(name, sizeof(name), "journal/%020llu.fj", (unsigned long long)first);
    scene_path(scene, name, path);
    return access(path, F_OK) == 0;
}

FR_CASE(another_head_rotates_the_file_and_each_epoch_keeps_its_own)
{
    struct scene scene = scene_make(4);
    static const char *const heads[] = {"f16", "f32", "f32", ""};
    for (uint64_t e = 1; e <= 4; e++) {
        struct fr_durable *durable = open_with(&scene, heads[e - 1], 0);
        scene_append_to(&scene, durable, e, e);
        fr_durable_close(durable);
    }
    assert_true(journal_has(&scene, 1) && journal_has(&scene, 2) && !journal_has(&scene, 3) && journal_has(&scene, 4));
    struct fr_durable *durable = open_with(&scene, "another", 0);
    for (uint64_t e = 1; e <= 4; e++) {
        struct fr_buffer head = {0};
        struct fr_err err = {0};
        assert_int_equal(fr_durable_read_epoch(durable, e, NULL, &head, &err), FR_OK);
        assert_int_equal(head.size, strlen(heads[e - 1]));
        if (head.size > 0)
            assert_memory_equal(head.data, heads[e - 1], head.size);
        fr_buffer_release(&head);
    }
    fr_durable_close(durable);
}

FR_CASE(a_file_goes_when_folded_and_acknowledged_but_never_the_newest)
{
    struct scene scene = scene_make(5);
    struct fr_durable *durable = open_with(&scene, "h", 1); /* one epoch a file */
    struct fr_err err = {0};
    scene_append_to(&scene, durable, 1, 6);
    /* acknowledged, not folded */
    assert_int_equal(fr_durable_acknowledge(durable, 4, &err), FR_OK);
    assert_int_equal(scene_status(durable).journal_first, 1);
    scene_fold(durable);
    assert_int_equal(scene_status(durable).journal_first, 5); /* folded to 6, acknowledged to 4 */
    assert_true(!journal_has(&scene, 4) && journal_has(&scene, 5));
    struct fr_buffer bytes = {0};
    struct fr_sha256 digest;
    assert_int_equal(fr_durable_read_epoch(durable, 4, &bytes, NULL, &err), FR_E_NOT_FOUND);
    /* epoch 5 holds the digest of epoch 4 */
    assert_int_equal(fr_durable_digest(durable, 4, &digest), FR_OK);
    assert_int_equal(fr_durable_digest(durable, 3, &digest), FR_E_NOT_FOUND);
    assert_int_equal(fr_durable_acknowledge(durable, 6, &err), FR_OK);
    assert_int_equal(scene_status(durable).journal_first, 6);
    assert_true(journal_has(&scene, 6));
    fr_durable_close(durable);
    durable = open_with(&scene, "h", 1);
    struct fr_durable_status status = scene_status(durable);
    assert_int_equal(status.acked, 6);
    assert_int_equal(status.folded, 6);
    assert_int_equal(status.unfolded_bytes, 0);
    assert_true(scene_state_is(&scene, durable, 6));
    scene_append_to(&scene, durable, 7, 8);
    assert_true(scene_state_is(&scene, durable, 8));
    fr_durable_close(durable);
}

FR_CASE(the_acknowledged_epoch_is_kept_over_a_close)
{
    struct scene scene = scene_make(6);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_err err = {0};
    scene_append_to(&scene, durable, 1, 3);
    assert_int_equal(fr_durable_acknowledge(durable, 2, &err), FR_OK);
    assert_int_equal(fr_durable_acknowledge(durable, 1, &err), FR_OK); /* never goes back */
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    assert_int_equal(scene_status(durable).acked, 2);
    fr_durable_close(durable);
}

FR_CASE(a_second_writer_is_refused_with_the_process_that_holds_the_state)
{
    struct scene scene = scene_make(7);
    struct fr_durable *durable = scene_open(&scene, false), *second = NULL;
    struct fr_err err = {0};
    char pid[32];
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    assert_int_equal(scene_try_open(&scene, NULL, false, &second, &err), FR_E_BUSY);
    assert_non_null(strstr(err.text, pid));
    assert_null(second);
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    fr_durable_close(durable);
}

FR_CASE(small_files_are_replaced_whole_and_cannot_name_ours)
{
    struct scene scene = scene_make(8);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_err err = {0};
    struct fr_buffer out = {0};
    assert_int_equal(fr_durable_read_file(durable, "model.json", &out, &err), FR_E_NOT_FOUND);
    assert_int_equal(fr_durable_write_file(durable, "model.json", "{\"a\":1}", 7, &err), FR_OK);
    assert_int_equal(fr_durable_write_file(durable, "model.json", "{}", 2, &err), FR_OK);
    assert_int_equal(fr_durable_read_file(durable, "model.json", &out, &err), FR_OK);
    assert_int_equal(out.size, 2);
    assert_memory_equal(out.data, "{}", 2);
    static const char *const bad[] = {"hwm", "LOCK", "../x", "a/b", "", ".hidden", "journal"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(fr_durable_write_file(durable, bad[i], "x", 1, &err), FR_E_INVALID);
    fr_buffer_release(&out);
    fr_durable_close(durable);
}

FR_CASE(a_small_file_with_a_flipped_bit_is_refused_and_one_of_before_checksums_read)
{
    static const char text[] = "lk 0 24\n";
    struct scene scene = scene_make(87);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_err err = {0};
    struct fr_buffer file = {0}, out = {0};
    char path[SCENE_PATH];
    scene_path(&scene, "lockstep.end", path);
    assert_int_equal(fr_durable_write_file(durable, "lockstep.end", text, sizeof(text) - 1, &err), FR_OK);
    assert_int_equal(fr_file_read(path, 1000, &file, &err), FR_OK);
    for (size_t bit = 0; bit < 8 * (sizeof(text) - 1); bit++) {
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(fr_file_replace(fr_disk_system(), path, file.data, file.size, &err), FR_OK);
        assert_int_equal(fr_durable_read_file(durable, "lockstep.end", &out, &err), FR_E_CORRUPT);
        assert_non_null(strstr(err.text, "lockstep.end"));
        assert_int_equal(out.size, 0);
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(fr_file_replace(fr_disk_system(), path, text, sizeof(text) - 1, &err), FR_OK);
    assert_int_equal(fr_durable_read_file(durable, "lockstep.end", &out, &err), FR_OK);
    assert_int_equal(out.size, sizeof(text) - 1);
    fr_buffer_release(&file);
    fr_buffer_release(&out);
    fr_durable_close(durable);
}

static enum fr_status refuse_second(void *self, size_t thread, const struct fr_image *image)
{
    (void)thread;
    (void)image;
    return ++*(int *)self == 2 ? FR_E_LIMIT : FR_OK;
}

FR_CASE(a_visitors_error_stops_the_walk)
{
    struct scene scene = scene_make(9);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 2);
    struct fr_err err = {0};
    for (int folded = 0; folded < 2; folded++) { /* in the journal, then in the cold store */
        int calls = 0;
        struct fr_restore_visitor visitor = {.self = &calls, .image = refuse_second};
        assert_int_equal(fr_durable_restore(durable, &visitor, &err), FR_E_LIMIT);
        assert_int_equal(calls, 2);
        scene_fold(durable);
    }
    fr_durable_close(durable);
}

FR_CASE(a_read_only_object_sees_the_state_beside_its_writer_and_writes_nothing)
{
    struct scene scene = scene_make(10);
    struct fr_durable *reader = NULL, *durable = scene_open(&scene, false);
    struct fr_err err = {0};
    scene_append_to(&scene, durable, 1, 3);
    scene_fold(durable);
    scene_append_to(&scene, durable, 4, 5);
    reader = scene_open(&scene, true);
    scene_append_to(&scene, durable, 6, 7); /* a reader that is open does not see later epochs */
    scene_fold(durable);
    assert_int_equal(fr_durable_acknowledge(durable, 7, &err), FR_OK);
    assert_int_equal(scene_status(reader).epoch, 5);
    assert_int_equal(scene_status(reader).folded, 3);
    assert_true(scene_state_is(&scene, reader, 5));
    assert_int_equal(fr_durable_fold(reader, &err), FR_E_STATE);
    assert_int_equal(fr_durable_write_file(reader, "x", "y", 1, &err), FR_E_STATE);
    assert_int_equal(scene_append(&scene, reader, 6, &err), FR_E_STATE);
    fr_durable_close(reader);
    reader = scene_open(&scene, true);
    assert_true(scene_state_is(&scene, reader, 7));
    fr_durable_close(reader);
    fr_durable_close(durable);
}

FR_CASE(a_directory_without_state_is_not_found_by_readers_and_not_created)
{
    struct scene scene = scene_make(11);
    struct fr_durable *reader = NULL;
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, NULL, true, &reader, &err), FR_E_NOT_FOUND);
    char path[SCENE_PATH];
    scene_path(&scene, "journal", path);
    assert_int_not_equal(access(path, F_OK), 0);
    scene_remove(scene.dir);
    assert_int_equal(scene_try_open(&scene, NULL, true, &reader, &err), FR_E_NOT_FOUND);
}

/* ---- threads ---- */

enum { BUSY_EPOCHS = 150 };

struct busy {
    const struct scene *scene;
    struct fr_durable *durable;
    int failures;
};

static void *fold_often(void *self)
{
    struct busy *busy = self;
    struct fr_err err = {0};
    struct fr_durable_status status = {0};
    while (status.epoch < BUSY_EPOCHS) {
        busy->failures += fr_durable_fold(busy->durable, &err) != FR_OK;
        fr_durable_get_status(busy->durable, &status);
    }
    busy->failures += fr_durable_fold(busy->durable, &err) != FR_OK;
    return NULL;
}

static void *read_and_acknowledge(void *self)
{
    struct busy *busy = self;
    struct fr_err err = {0};
    struct fr_durable_status status;
    struct fr_buffer bytes = {0}, head = {0};
    for (uint64_t next = 1; next <= BUSY_EPOCHS;) {
        fr_durable_get_status(busy->durable, &status);
        if (status.epoch < next)
            continue;
        struct fr_epoch epoch;
        fr_buffer_clear(&bytes);
        busy->failures += fr_durable_read_epoch(busy->durable, next, &bytes, &head, &err) != FR_OK;
        busy->failures += fr_epoch_parse(bytes.data, bytes.size, &epoch) != FR_OK || epoch.epoch != next;
        busy->failures += fr_durable_acknowledge(busy->durable, next, &err) != FR_OK;
        next++;
    }
    fr_buffer_release(&bytes);
    fr_buffer_release(&head);
    return NULL;
}

FR_CASE(append_fold_and_read_run_beside_each_other)
{
    struct scene scene = scene_make(12);
    struct fr_durable *durable = open_with(&scene, "h", 4096);
    struct busy folder = {&scene, durable, 0}, reader = {&scene, durable, 0};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, fold_often, &folder), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, read_and_acknowledge, &reader), 0);
    scene_append_to(&scene, durable, 1, BUSY_EPOCHS);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(folder.failures, 0);
    assert_int_equal(reader.failures, 0);
    assert_int_equal(scene_status(durable).folded, BUSY_EPOCHS);
    assert_int_equal(scene_status(durable).unfolded_bytes, 0);
    fr_durable_close(durable);
    durable = open_with(&scene, "h", 4096);
    assert_true(scene_state_is(&scene, durable, BUSY_EPOCHS));
    fr_durable_close(durable);
}

FR_CASE(readers_open_beside_a_writer_that_appends_folds_and_trims)
{
    struct scene scene = scene_make(13);
    struct fr_durable *durable = open_with(&scene, "h", 4096);
    scene_append_to(&scene, durable, 1, 1);
    struct busy folder = {&scene, durable, 0}, acknowledger = {&scene, durable, 0};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, fold_often, &folder), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, read_and_acknowledge, &acknowledger), 0);
    unsigned opened = 0, refused = 0;
    for (uint64_t e = 2; e <= BUSY_EPOCHS; e++) {
        scene_append_to(&scene, durable, e, e);
        if (e % 5 != 0)
            continue;
        struct fr_durable *reader = NULL;
        struct fr_err err = {0};
        if (scene_try_open(&scene, NULL, true, &reader, &err) != FR_OK) {
            refused++; /* only a test has a writer that trims during every try */
            continue;
        }
        opened++;
        assert_true(scene_state_is(&scene, reader, scene_status(reader).epoch));
        assert_true(scene_status(reader).epoch >= e);
        fr_durable_close(reader);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(folder.failures + acknowledger.failures, 0);
    assert_true(opened > refused);
    fr_durable_close(durable);
}

/* ---- many starts ---- */

static size_t count_files(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

FR_CASE(starts_leave_no_files_behind_in_the_cold_store)
{
    struct scene scene = scene_make(88);
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    char cold[SCENE_PATH];
    size_t after[2] = {0};
    scene_path(&scene, "cold", cold);
    for (int start = 1; start <= 30; start++) {
        durable = scene_open(&scene, false);
        if (start == 5) { /* the directory is not empty */
            scene_append_to(&scene, durable, 1, 3);
            assert_int_equal(fr_durable_fold(durable, &err), FR_OK);
        }
        fr_durable_close(durable);
        if (start == 10 || start == 30)
            after[start == 30] = count_files(cold);
    }
    assert_int_equal(after[0], after[1]);
    durable = scene_open(&scene, false);
    assert_true(scene_state_is(&scene, durable, 3));
    fr_durable_close(durable);
}

/* ---- open files ---- */

static size_t open_files(const struct scene *scene)
{
    char journal[SCENE_PATH];
    scene_path(scene, "journal/", journal);
    size_t n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char link[64], path[SCENE_PATH] = "";
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof(path) - 1);
        n += length > 0 && strncmp(path, journal, strlen(journal)) == 0;
    }
    return n;
}

static struct fr_durable *open_small_files(const struct scene *scene, bool read_only)
{
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    struct fr_durable_options options = {.dir = scene->dir,
                                         .salt = scene->salt,
                                         .read_only = read_only,
                                         .journal_file_max = 1,
                                         .head = "head",
                                         .head_size = 4};
    if (fr_durable_open(&options, &durable, &err) != FR_OK)
        fail_msg("%s", err.text);
    return durable;
}

enum { MANY_FILES = 300, FEW_OPEN = 8 };

/* Every epoch has a journal file of its own; an outage of hours makes hundreds of files. */
FR_CASE(a_journal_of_many_files_opens_a_few_at_a_time)
{
    struct scene scene = scene_make(85);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    struct fr_durable *durable = open_small_files(&scene, false);
    for (uint64_t e = 1; e <= MANY_FILES; e++)
        scene_append_to(&scene, durable, e, e);
    assert_true(open_files(&scene) <= FEW_OPEN);
    for (uint64_t e = 1; e <= MANY_FILES; e++) {
        struct fr_buffer bytes = {0};
        struct fr_err err = {0};
        assert_int_equal(fr_durable_read_epoch(durable, e, &bytes, NULL, &err), FR_OK);
        fr_buffer_release(&bytes);
    }
    assert_true(open_files(&scene) <= FEW_OPEN);
    fr_durable_close(durable);
    durable = open_small_files(&scene, false);
    assert_true(open_files(&scene) <= FEW_OPEN);
    assert_true(scene_state_is(&scene, durable, MANY_FILES));
    struct fr_err err = {0};
    assert_int_equal(fr_durable_fold(durable, &err), FR_OK);
    assert_true(open_files(&scene) <= FEW_OPEN);
    fr_durable_close(durable);
    durable = open_small_files(&scene, true);
    assert_true(scene_state_is(&scene, durable, MANY_FILES));
    fr_durable_close(durable);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Others (HTTP, Kafka) take their descriptors from the same limit. */
FR_CASE(appends_continue_when_the_process_has_no_descriptor_left)
{
    struct scene scene = scene_make(86);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    struct fr_durable *durable = open_small_files(&scene, false);
    scene_append_to(&scene, durable, 1, 1);
    int taken[200], n = 0;
    while ((taken[n] = dup(STDERR_FILENO)) >= 0)
        n++;
    for (uint64_t e = 2; e <= 2 * FEW_OPEN; e++) {
        scene_append_to(&scene, durable, e, e); /* into a new file */
        /* takes every descriptor that is left */
        while (n < 200 && (taken[n] = dup(STDERR_FILENO)) >= 0)
            n++;
    }
    while (n > 0)
        close(taken[--n]);
    assert_int_equal(scene_status(durable).epoch, 2 * FEW_OPEN);
    assert_true(scene_state_is(&scene, durable, 2 * FEW_OPEN));
    fr_durable_close(durable);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_new_directory_holds_nothing),
        SCENE_CASE(appended_epochs_are_there_after_reopening),
        SCENE_CASE(digests_chain_from_epoch_to_epoch),
        SCENE_CASE(another_head_rotates_the_file_and_each_epoch_keeps_its_own),
        SCENE_CASE(a_file_goes_when_folded_and_acknowledged_but_never_the_newest),
        SCENE_CASE(the_acknowledged_epoch_is_kept_over_a_close),
        SCENE_CASE(a_second_writer_is_refused_with_the_process_that_holds_the_state),
        SCENE_CASE(small_files_are_replaced_whole_and_cannot_name_ours),
        SCENE_CASE(a_small_file_with_a_flipped_bit_is_refused_and_one_of_before_checksums_read),
        SCENE_CASE(a_visitors_error_stops_the_walk),
        SCENE_CASE(a_read_only_object_sees_the_state_beside_its_writer_and_writes_nothing),
        SCENE_CASE(a_directory_without_state_is_not_found_by_readers_and_not_created),
        SCENE_CASE(append_fold_and_read_run_beside_each_other),
        SCENE_CASE(readers_open_beside_a_writer_that_appends_folds_and_trims),
        SCENE_CASE(starts_leave_no_files_behind_in_the_cold_store),
        SCENE_CASE(a_journal_of_many_files_opens_a_few_at_a_time),
        SCENE_CASE(appends_continue_when_the_process_has_no_descriptor_left),
    };
    return cmocka_run_group_tests_name("durable journal", tests, NULL, NULL);
}
