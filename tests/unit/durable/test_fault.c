/* Every disk call of a small life fails once, or from then on, or is the last before a power cut:
 * what comes back is the last epoch whose append returned FR_OK, or the one that was being
 * appended, and nothing between (faulty_disk.h). */
#include "faulty_disk.h"

enum { LAST_EPOCH = 6, RETRIES_OF_ENOSPC = 1 };

/* ---- the life ---- */

struct life {
    uint64_t last_ok; /* epoch of the last append that returned FR_OK */
    uint64_t tried;   /* epoch of the last append that was begun */
    struct fr_sha256 digest;
    enum fr_status status; /* of the call that ended this life */
};

static enum fr_status append_next(const struct scene *scene, struct fr_durable *durable, struct life *life)
{
    struct fr_stage stage;
    struct fr_err err = {0};
    fr_stage_init(&stage);
    life->tried = life->last_ok + 1;
    scene_stage(scene, life->tried, &stage);
    enum fr_status status = fr_durable_append(durable, &stage, NULL, &life->digest, &err);
    for (int i = 0; status == FR_E_NO_SPACE && i < RETRIES_OF_ENOSPC; i++) {
        struct fr_durable_status now = scene_status(durable);
        assert_int_equal(now.epoch, life->last_ok);
        status = fr_durable_append(durable, &stage, NULL, &life->digest, &err);
    }
    if (status == FR_OK)
        life->last_ok = life->tried;
    fr_stage_release(&stage);
    return status;
}

static enum fr_status live_on(const struct scene *scene, struct fr_durable *durable, struct life *life)
{
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    while (status == FR_OK && life->last_ok < LAST_EPOCH - 1)
        status = append_next(scene, durable, life);
    if (status == FR_OK)
        status = fr_durable_fold(durable, &err);
    if (status == FR_OK)
        status = fr_durable_acknowledge(durable, 3, &err);
    if (status == FR_OK)
        status = append_next(scene, durable, life);
    if (status == FR_OK)
        status = fr_durable_write_file(durable, "model.json", "{}", 2, &err);
    if (status == FR_OK)
        status = fr_durable_acknowledge(durable, LAST_EPOCH - 1, &err);
    return status;
}

static struct life live(const struct scene *scene, struct disk *disk)
{
    struct life life = {.status = FR_OK};
    struct fr_durable_options options = {
        .dir = scene->dir, .disk = &disk->table, .journal_file_max = 1500, .head = "head", .head_size = 4};
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    life.status = fr_durable_open(&options, &durable, &err);
    if (life.status != FR_OK) {
        assert_true(strlen(err.text) > 0);
        return life;
    }
    life.status = live_on(scene, durable, &life);
    if (life.status == FR_E_IO) { /* fail-stop: a dead object does nothing more */
        uint64_t calls = disk->calls;
        assert_int_equal(scene_append(scene, durable, life.last_ok + 1, &err), FR_E_IO);
        assert_int_equal(fr_durable_fold(durable, &err), FR_E_IO);
        assert_int_equal(fr_durable_acknowledge(durable, life.last_ok, &err), FR_E_IO);
        assert_int_equal(fr_durable_write_file(durable, "x", "y", 1, &err), FR_E_IO);
        assert_int_equal(disk->calls, calls);
    }
    fr_durable_close(durable);
    return life;
}

/* After any end, the state opens, is complete, and continues. */
static void check_after(const struct scene *scene, const struct life *life, uint64_t call)
{
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    if (scene_try_open(scene, NULL, false, &durable, &err) != FR_OK)
        fail_msg("call %llu: does not open: %s", (unsigned long long)call, err.text);
    struct fr_durable_status status = scene_status(durable);
    if (status.epoch != life->last_ok && status.epoch != life->tried)
        fail_msg("call %llu: epoch %llu, appended %llu, tried %llu", (unsigned long long)call,
                 (unsigned long long)status.epoch, (unsigned long long)life->last_ok, (unsigned long long)life->tried);
    if (status.epoch == life->last_ok && life->tried == life->last_ok && status.epoch > 0)
        assert_memory_equal(&status.digest, &life->digest, sizeof(life->digest));
    assert_true(scene_state_is(scene, durable, status.epoch));
    scene_append_to(scene, durable, status.epoch + 1, status.epoch + 2);
    scene_fold(durable);
    assert_true(scene_state_is(scene, durable, status.epoch + 2));
    fr_durable_close(durable);
}

struct variant {
    int number;
    bool for_ever, half;
    int power_cut; /* -1: none; 0: everything unsynced is gone; n: random, seed n */
};

static uint64_t try_every_call(const struct variant *variant)
{
    uint64_t failed = 0;
    for (uint64_t call = 1;; call++) {
        struct scene scene = scene_make(51);
        scene.keys = 8;
        struct disk *disk = disk_new();
        disk->fail_at = call;
        disk->number = variant->number;
        disk->for_ever = variant->for_ever;
        disk->half = variant->half;
        struct life life = live(&scene, disk);
        bool reached = disk->calls >= call;
        if (variant->power_cut >= 0)
            power_cut(disk, (uint64_t)variant->power_cut);
        failed += life.status != FR_OK;
        check_after(&scene, &life, call);
        disk_free(disk);
        scene_remove(scene.dir);
        if (!reached)
            return failed; /* the whole life went by without the failure */
        assert_true(call < 1000);
    }
}

FR_CASE(a_life_without_faults_ends_at_its_last_epoch)
{
    struct scene scene = scene_make(51);
    scene.keys = 8;
    struct disk *disk = disk_new();
    struct life life = live(&scene, disk);
    assert_int_equal(life.status, FR_OK);
    assert_int_equal(life.last_ok, LAST_EPOCH);
    assert_true(disk->calls > 40);
    assert_int_equal(disk->n_changes, 0); /* nothing is left unsynced by a whole life */
    check_after(&scene, &life, 0);
    disk_free(disk);
}

FR_CASE(any_call_may_fail_once)
{
    struct variant variant = {.number = EIO, .power_cut = -1};
    assert_true(try_every_call(&variant) > 40);
}

FR_CASE(the_disk_may_go_away_at_any_call)
{
    struct variant variant = {.number = EIO, .for_ever = true, .power_cut = -1};
    assert_true(try_every_call(&variant) > 40);
}

FR_CASE(the_disk_may_be_full_at_any_call_and_have_room_again)
{
    struct variant variant = {.number = ENOSPC, .half = true, .power_cut = -1};
    assert_true(try_every_call(&variant) > 20);
}

FR_CASE(the_disk_may_stay_full_from_any_call_on)
{
    struct variant variant = {.number = ENOSPC, .half = true, .for_ever = true, .power_cut = -1};
    assert_true(try_every_call(&variant) > 20);
}

FR_CASE(the_power_may_go_at_any_call_and_take_all_that_is_not_synced)
{
    struct variant variant = {.number = EIO, .for_ever = true, .half = true, .power_cut = 0};
    try_every_call(&variant);
}

FR_CASE(the_power_may_go_at_any_call_and_take_any_part_of_what_is_not_synced)
{
    for (int seed = 1; seed <= 3; seed++) {
        struct variant variant = {.number = EIO, .for_ever = true, .half = true, .power_cut = seed};
        try_every_call(&variant);
    }
}

/* ---- a failed sync, in detail ---- */

FR_CASE(a_full_disk_leaves_the_journal_as_it_was)
{
    struct scene scene = scene_make(52);
    struct disk *disk = disk_new();
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
    scene_append_to(&scene, durable, 1, 2);
    char journal[SCENE_PATH];
    scene_path(&scene, "journal/00000000000000000001.fj", journal);
    struct fr_buffer before = scene_read(journal);
    disk->fail_at = disk->calls + 1;
    disk->number = ENOSPC;
    disk->half = true;
    assert_int_equal(scene_append(&scene, durable, 3, &err), FR_E_NO_SPACE);
    struct fr_buffer after = scene_read(journal);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, after.size);
    assert_int_equal(scene_status(durable).epoch, 2);
    scene_append_to(&scene, durable, 3, 3); /* room again */
    assert_true(scene_state_is(&scene, durable, 3));
    fr_durable_close(durable);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
    disk_free(disk);
}

/* The sync of epoch 3 fails and the process ends; the next process reads epoch 3 from the page
 * cache, and later the power fails. */
FR_CASE(an_epoch_whose_sync_failed_does_not_come_back)
{
    struct scene scene = scene_make(53);
    struct disk *disk = disk_new();
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
    scene_append_to(&scene, durable, 1, 2);
    disk->fail_at = disk->calls + 2; /* the write, then the sync */
    assert_int_equal(scene_append(&scene, durable, 3, &err), FR_E_IO);
    fr_durable_close(durable);
    durable = scene_open(&scene, false);
    assert_int_equal(scene_status(durable).epoch, 2);
    assert_true(scene_state_is(&scene, durable, 2));
    fr_durable_close(durable);
    disk_free(disk);
}

/* The mark of epoch 3 was written but its sync failed: the next open finds the mark in the page
 * cache and continues from it, and then the power fails. */
FR_CASE(a_mark_whose_sync_failed_is_made_permanent_before_it_counts)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct scene scene = scene_make(54);
        struct disk *disk = disk_new();
        struct fr_durable *durable = NULL;
        struct fr_err err = {0};
        assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
        scene_append_to(&scene, durable, 1, 2);
        disk->fail_at = disk->calls + 4; /* write, sync, mark, its sync */
        assert_int_equal(scene_append(&scene, durable, 3, &err), FR_E_IO);
        fr_durable_close(durable);
        assert_int_equal(disk->n_changes, 1); /* the mark, in the page cache only */
        assert_int_equal(scene_try_open(&scene, &disk->table, false, &durable, &err), FR_OK);
        assert_int_equal(scene_status(durable).epoch, 3); /* from here on it may be published */
        fr_durable_close(durable);
        power_cut(disk, seed);
        durable = scene_open(&scene, false);
        assert_int_equal(scene_status(durable).epoch, 3);
        assert_true(scene_state_is(&scene, durable, 3));
        fr_durable_close(durable);
        disk_free(disk);
        scene_remove(scene.dir);
    }
}

static void lose_a_slot(const struct scene *scene)
{
    char path[SCENE_PATH];
    scene_path(scene, "hwm", path);
    struct fr_buffer mark = scene_read(path);
    size_t older = fr_load_u64(mark.data + 16) < fr_load_u64(mark.data + 4096 + 16) ? 0 : 4096;
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "rot", 3, (off_t)older), 3);
    close(fd);
    fr_buffer_release(&mark);
}

/* The sync of epoch 3 fails, and a slot of the mark rots: the next open keeps epoch 3, and must
 * then make it durable. */
FR_CASE(an_epoch_kept_because_of_a_lost_slot_is_made_permanent_before_it_counts)
{
    /* epoch 3 is in a file of its own, or after epoch 2 */
    for (uint64_t file_max = 1; file_max < 100000; file_max *= 10000) {
        struct scene scene = scene_make(55);
        struct disk *disk = disk_new();
        struct fr_durable_options options = {
            .dir = scene.dir, .disk = &disk->table, .journal_file_max = file_max, .head = "head", .head_size = 4};
        struct fr_durable *durable = NULL;
        struct fr_err err = {0};
        assert_int_equal(fr_durable_open(&options, &durable, &err), FR_OK);
        scene_append_to(&scene, durable, 1, 2);
        disk->fail_at = disk->calls + (file_max == 1 ? 4 : 2); /* (open, head,) write, sync */
        assert_int_equal(scene_append(&scene, durable, 3, &err), FR_E_IO);
        assert_non_null(strstr(err.text, "sync"));
        fr_durable_close(durable);
        lose_a_slot(&scene);
        assert_int_equal(fr_durable_open(&options, &durable, &err), FR_OK);
        assert_int_equal(scene_status(durable).epoch, 3);
        fr_durable_close(durable);
        power_cut(disk, 0);
        durable = scene_open(&scene, false);
        assert_int_equal(scene_status(durable).epoch, 3);
        assert_true(scene_state_is(&scene, durable, 3));
        fr_durable_close(durable);
        disk_free(disk);
        scene_remove(scene.dir);
    }
}

/* Epoch 3 is in the journal, but the mark has epoch 2; the next process cuts epoch 3 off and writes
 * another epoch 3 into a new file. */
FR_CASE(what_was_cut_off_stays_cut_off_after_a_power_cut)
{
    struct scene scene = scene_make(56), other = scene_make(57);
    char hwm[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 2);
    struct fr_buffer mark = scene_read(hwm);
    scene_append_to(&scene, durable, 3, 3);
    fr_durable_close(durable);
    scene_write(hwm, mark.data, mark.size);
    struct disk *disk = disk_new();
    struct fr_durable_options options = {.dir = scene.dir, .disk = &disk->table, .head = "new", .head_size = 3};
    struct fr_err err = {0};
    assert_int_equal(fr_durable_open(&options, &durable, &err), FR_OK);
    assert_int_equal(scene_append(&other, durable, 3, &err), FR_OK); /* another content */
    fr_durable_close(durable);
    power_cut(disk, 0);
    assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_OK);
    assert_int_equal(scene_status(durable).epoch, 3);
    fr_durable_close(durable);
    fr_buffer_release(&mark);
    disk_free(disk);
    scene_remove(scene.dir);
    scene_remove(other.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_life_without_faults_ends_at_its_last_epoch),
        SCENE_CASE(any_call_may_fail_once),
        SCENE_CASE(the_disk_may_go_away_at_any_call),
        SCENE_CASE(the_disk_may_be_full_at_any_call_and_have_room_again),
        SCENE_CASE(the_disk_may_stay_full_from_any_call_on),
        SCENE_CASE(the_power_may_go_at_any_call_and_take_all_that_is_not_synced),
        SCENE_CASE(the_power_may_go_at_any_call_and_take_any_part_of_what_is_not_synced),
        SCENE_CASE(a_full_disk_leaves_the_journal_as_it_was),
        SCENE_CASE(an_epoch_whose_sync_failed_does_not_come_back),
        SCENE_CASE(a_mark_whose_sync_failed_is_made_permanent_before_it_counts),
        SCENE_CASE(an_epoch_kept_because_of_a_lost_slot_is_made_permanent_before_it_counts),
        SCENE_CASE(what_was_cut_off_stays_cut_off_after_a_power_cut),
    };
    return cmocka_run_group_tests_name("durable fault", tests, NULL, NULL);
}
