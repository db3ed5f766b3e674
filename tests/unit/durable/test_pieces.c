/* Epochs of more than 256 KiB, which are written in several pieces, and epochs of more than
 * FR_DIRECT_MIN, which bypass the page cache. */
#include "faulty_disk.h"

#include "base/check.h"

#include "../../../store/durable/direct.h"

/* Head of an epoch, name and size of its section. */
enum { EPOCH_AROUND = 96 + 1 + 3 + 8, PIECE = 256 << 10, LARGE = FR_DIRECT_MIN + PIECE + 4321 };

/* Stages an epoch of `size` bytes. */
static void stage_bytes(struct fr_stage *stage, uint64_t epoch, size_t size)
{
    fr_stage_clear(stage);
    stage->epoch = epoch;
    stage->timeline = 1;
    struct fr_buffer *section = fr_stage_section(stage, "big");
    for (size_t i = 0; i < size - EPOCH_AROUND; i++)
        fr_put_u8(section, (uint8_t)(fr_random_u64(epoch, 0, 0, i)));
}

FR_CASE(an_epoch_of_any_number_of_pieces_has_the_digest_of_its_bytes_and_is_there_after_reopening)
{
    static const size_t sizes[] = {
        PIECE - 1,         PIECE,         PIECE + 1,         2 * PIECE,    3 * PIECE + 17,
        FR_DIRECT_MIN - 1, FR_DIRECT_MIN, FR_DIRECT_MIN + 1, LARGE,        FR_DIRECT_MIN + PIECE - 4096,
        2 * FR_DIRECT_MIN, LARGE + 1,     PIECE + 5,         LARGE + 8192,
    };
    struct scene scene = scene_make(5);
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_buffer appended = {0}, read = {0};
    struct fr_err err = {0};
    struct fr_stage stage;
    fr_stage_init(&stage);
    for (uint64_t e = 1; e <= FR_ARRAY_LEN(sizes); e++) {
        struct fr_sha256 digest, known;
        stage_bytes(&stage, e, sizes[e - 1]);
        fr_buffer_clear(&appended);
        assert_int_equal(fr_durable_append(durable, &stage, &appended, &digest, &err), FR_OK);
        assert_int_equal(appended.size, sizes[e - 1]);
        struct fr_sha256 expected = fr_sha256(appended.data, appended.size);
        assert_memory_equal(&digest, &expected, sizeof(digest));
        fr_durable_close(durable);
        durable = scene_open(&scene, false); /* which checks the CRCs of unfolded epochs */
        fr_buffer_clear(&read);
        assert_int_equal(fr_durable_read_epoch(durable, e, &read, NULL, &err), FR_OK);
        assert_int_equal(read.size, appended.size);
        assert_memory_equal(read.data, appended.data, read.size);
        assert_int_equal(fr_durable_digest(durable, e, &known), FR_OK);
        assert_memory_equal(&known, &expected, sizeof(known));
    }
    fr_stage_release(&stage);
    fr_buffer_release(&appended);
    fr_buffer_release(&read);
    fr_durable_close(durable);
}

/* Appends an epoch of three pieces. The calls of the append are three writes, a sync, the write of
 * the mark and its sync. */
static enum fr_status append_large(struct fr_durable *durable, uint64_t epoch, struct fr_err *err)
{
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage_bytes(&stage, epoch, 2 * PIECE + 1);
    enum fr_status status = fr_durable_append(durable, &stage, NULL, NULL, err);
    fr_stage_release(&stage);
    return status;
}

FR_CASE(an_epoch_of_several_pieces_is_there_whole_or_not_at_all)
{
    for (uint64_t at = 1; at <= 6; at++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct scene scene = scene_make(58);
            struct disk *disk = disk_new();
            struct fr_durable *durable = NULL;
            struct fr_err err = {0};
            assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
            scene_append_to(&scene, durable, 1, 2);
            disk->fail_at = disk->calls + at;
            disk->half = seed % 2 == 1;
            disk->for_ever = true;
            assert_int_equal(append_large(durable, 3, &err), FR_E_IO);
            fr_durable_close(durable);
            if (seed < 4) /* else the process is killed, and the page cache stays */
                power_cut(disk, seed);
            assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_OK);
            uint64_t epoch = scene_status(durable).epoch;
            assert_true(epoch == 2 || (epoch == 3 && at >= 5));
            if (epoch == 2)
                assert_true(scene_state_is(&scene, durable, 2));
            assert_int_equal(fr_durable_read_epoch(durable, epoch, NULL, NULL, &err), FR_OK);
            assert_int_equal(append_large(durable, epoch + 1, &err), FR_OK);
            fr_durable_close(durable);
            disk_free(disk);
            scene_remove(scene.dir);
        }
    }
}

FR_CASE(a_disk_that_is_full_within_an_epoch_leaves_the_journal_as_it_was)
{
    for (uint64_t at = 1; at <= 3; at++) {
        struct scene scene = scene_make(59);
        struct disk *disk = disk_new();
        struct fr_durable *durable = NULL;
        struct fr_err err = {0};
        assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
        scene_append_to(&scene, durable, 1, 2);
        char journal[SCENE_PATH];
        scene_path(&scene, "journal/00000000000000000001.fj", journal);
        struct fr_buffer before = scene_read(journal);
        disk->fail_at = disk->calls + at;
        disk->number = ENOSPC;
        disk->half = true;
        assert_int_equal(append_large(durable, 3, &err), FR_E_NO_SPACE);
        struct fr_buffer after = scene_read(journal);
        assert_int_equal(before.size, after.size);
        assert_memory_equal(before.data, after.data, after.size);
        assert_int_equal(append_large(durable, 3, &err), FR_OK); /* room again */
        fr_durable_close(durable);
        fr_buffer_release(&before);
        fr_buffer_release(&after);
        disk_free(disk);
        scene_remove(scene.dir);
    }
}

/* The calls of the append of a large epoch: the file is opened a second time; writes up to the next
 * page, of four windows, of what the windows leave, and of the first piece with the head; sync;
 * write and sync of the mark. */
enum { OPENED = 1, WINDOWS = 3, WINDOWS_END = 7, LARGE_CALLS = 11 };

static enum fr_status append_around(struct fr_durable *durable, uint64_t epoch, struct fr_err *err)
{
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage_bytes(&stage, epoch, LARGE);
    enum fr_status status = fr_durable_append(durable, &stage, NULL, NULL, err);
    fr_stage_release(&stage);
    return status;
}

static void epoch_is_whole(struct fr_durable *durable, uint64_t epoch)
{
    struct fr_buffer read = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_durable_read_epoch(durable, epoch, &read, NULL, &err), FR_OK);
    assert_int_equal(read.size, LARGE);
    fr_buffer_release(&read);
}

/* Call `at` of an append fails once. If the file cannot be opened for direct writes, or refuses the
 * first one, the epoch is written through the page cache; every other failure is an error. */
FR_CASE(a_file_system_that_takes_no_direct_writes_gets_the_others)
{
    for (uint64_t at = 1; at <= LARGE_CALLS; at++) {
        struct scene scene = scene_make(60);
        struct disk *disk = disk_new();
        struct fr_durable *durable = NULL;
        struct fr_err err = {0};
        assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
        scene_append_to(&scene, durable, 1, 2);
        disk->fail_at = disk->calls + at;
        disk->number = EINVAL;
        enum fr_status status = append_around(durable, 3, &err);
        bool other_way = at == OPENED || (at >= WINDOWS && at < WINDOWS_END);
        assert_int_equal(status, other_way ? FR_OK : FR_E_IO);
        fr_durable_close(durable);
        assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_OK);
        if (other_way)
            epoch_is_whole(durable, 3);
        fr_durable_close(durable);
        disk_free(disk);
        scene_remove(scene.dir);
    }
}

FR_CASE(an_epoch_around_the_page_cache_is_there_whole_or_not_at_all)
{
    for (uint64_t at = 2; at <= LARGE_CALLS; at++) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct scene scene = scene_make(61);
            struct disk *disk = disk_new();
            struct fr_durable *durable = NULL;
            struct fr_err err = {0};
            assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
            scene_append_to(&scene, durable, 1, 2);
            disk->fail_at = disk->calls + at;
            disk->half = seed % 2 == 1;
            disk->for_ever = true;
            assert_int_equal(append_around(durable, 3, &err), FR_E_IO);
            fr_durable_close(durable);
            if (seed < 3) /* else the process is killed */
                power_cut(disk, seed);
            assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_OK);
            uint64_t epoch = scene_status(durable).epoch;
            assert_true(epoch == 2 || (epoch == 3 && at >= LARGE_CALLS - 1));
            if (epoch == 2)
                assert_true(scene_state_is(&scene, durable, 2));
            else
                epoch_is_whole(durable, 3);
            assert_int_equal(append_around(durable, epoch + 1, &err), FR_OK);
            epoch_is_whole(durable, epoch + 1);
            fr_durable_close(durable);
            disk_free(disk);
            scene_remove(scene.dir);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(an_epoch_of_any_number_of_pieces_has_the_digest_of_its_bytes_and_is_there_after_reopening),
        SCENE_CASE(an_epoch_of_several_pieces_is_there_whole_or_not_at_all),
        SCENE_CASE(a_disk_that_is_full_within_an_epoch_leaves_the_journal_as_it_was),
        SCENE_CASE(a_file_system_that_takes_no_direct_writes_gets_the_others),
        SCENE_CASE(an_epoch_around_the_page_cache_is_there_whole_or_not_at_all),
    };
    return cmocka_run_group_tests_name("durable pieces", tests, NULL, NULL);
}
