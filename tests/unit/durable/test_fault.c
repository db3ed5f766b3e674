/* Every disk call of a small life fails once, or from then on, or is the last before a power cut:
 * what comes back is the last epoch whose append returned FR_OK, or the one that was being
 * appended, and nothing between.
 *
 * The disk of these tests passes calls to the system's and keeps an undo list of what no sync has
 * made permanent: a power cut takes such changes back, all of them or a random part (seeded),
 * writes also in part. A write whose sync failed stays lost even when a later sync succeeds, as on
 * Linux, until the same bytes are written again. RocksDB's own files are not behind the table. */
#include "scene.h"

#include <errno.h>
#include <fcntl.h>

enum { CHANGES_MAX = 512, FDS_MAX = 1024, LAST_EPOCH = 6, RETRIES_OF_ENOSPC = 1 };

enum kind { WRITE, TRUNCATE, CREATE, UNLINK, RENAME };

struct change {
    enum kind kind;
    char path[SCENE_PATH];
    struct fr_buffer before; /* the file's whole content before */
    bool existed;
    struct fr_buffer written;
    uint64_t offset;
    bool lost; /* its sync failed */
};

struct disk {
    struct fr_disk table;
    uint64_t calls, fail_at; /* 0: never */
    int number;              /* errno */
    bool for_ever;
    bool half; /* a failing write writes half before */
    char paths[FDS_MAX][SCENE_PATH];
    struct change changes[CHANGES_MAX];
    size_t n_changes;
};

static bool fails(struct disk *disk)
{
    disk->calls++;
    bool now = disk->fail_at && (disk->calls == disk->fail_at || (disk->for_ever && disk->calls > disk->fail_at));
    if (now)
        errno = disk->number;
    return now;
}

static struct change *note(struct disk *disk, enum kind kind, const char *path)
{
    assert_true(disk->n_changes < CHANGES_MAX);
    struct change *change = &disk->changes[disk->n_changes++];
    *change = (struct change){.kind = kind, .existed = access(path, F_OK) == 0};
    snprintf(change->path, sizeof(change->path), "%.500s", path);
    if (change->existed)
        change->before = scene_read(path);
    return change;
}

static void drop_change(struct disk *disk, size_t i)
{
    fr_buffer_release(&disk->changes[i].before);
    fr_buffer_release(&disk->changes[i].written);
    memmove(&disk->changes[i], &disk->changes[i + 1], (disk->n_changes - i - 1) * sizeof(struct change));
    disk->n_changes--;
}

static int disk_open(void *self, const char *path, int flags, unsigned mode)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    if ((flags & O_CREAT) && access(path, F_OK) != 0)
        note(disk, CREATE, path);
    int fd = fr_disk_system()->open(NULL, path, flags, mode);
    if (fd >= 0) {
        assert_true(fd < FDS_MAX);
        snprintf(disk->paths[fd], SCENE_PATH, "%.500s", path);
    }
    return fd;
}

static int disk_close(void *self, int fd)
{
    (void)self; /* nothing here depends on close succeeding; it is not counted */
    return fr_disk_system()->close(NULL, fd);
}

static bool covers(const struct change *change, const char *path, uint64_t offset, size_t size)
{
    return strcmp(change->path, path) == 0 && offset <= change->offset &&
           change->offset + change->written.size <= offset + size;
}

static long disk_pwrite(void *self, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct disk *disk = self;
    bool failing = fails(disk);
    if (failing && !disk->half)
        return -1;
    size_t n = failing ? size / 2 : size;
    if (n > 0) {
        /* what the disk has there, when a lost write stands in the page cache */
        struct fr_buffer before = {0};
        bool over_lost = false;
        for (size_t i = disk->n_changes; i-- > 0;) {
            if (!disk->changes[i].lost || !covers(&disk->changes[i], disk->paths[fd], offset, n))
                continue;
            fr_buffer_release(&before);
            before = disk->changes[i].before;
            disk->changes[i].before = (struct fr_buffer){0};
            over_lost = true;
            drop_change(disk, i);
        }
        struct change *change = note(disk, WRITE, disk->paths[fd]);
        if (over_lost) {
            fr_buffer_release(&change->before);
            change->before = before;
        }
        fr_buffer_append(&change->written, bytes, n);
        change->offset = offset;
        assert_int_equal(fr_disk_system()->pwrite(NULL, fd, bytes, n, offset), n);
    }
    errno = disk->number;
    return failing ? -1 : (long)n;
}

static int disk_fdatasync(void *self, int fd)
{
    struct disk *disk = self;
    bool failing = fails(disk);
    for (size_t i = disk->n_changes; i-- > 0;) {
        struct change *change = &disk->changes[i];
        if ((change->kind != WRITE && change->kind != TRUNCATE) || strcmp(change->path, disk->paths[fd]) != 0)
            continue;
        if (failing)
            change->lost = change->kind == WRITE;
        else if (!change->lost)
            drop_change(disk, i);
    }
    errno = disk->number;
    return failing ? -1 : 0;
}

static int disk_ftruncate(void *self, int fd, uint64_t size)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    note(disk, TRUNCATE, disk->paths[fd]);
    return fr_disk_system()->ftruncate(NULL, fd, size);
}

static int disk_rename(void *self, const char *from, const char *to)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    for (size_t i = 0; i < disk->n_changes; i++) /* the old name's creation is the new one's */
        assert_true(disk->changes[i].kind == CREATE || strcmp(disk->changes[i].path, from) != 0);
    note(disk, RENAME, to);
    return fr_disk_system()->rename(NULL, from, to);
}

static int disk_unlink(void *self, const char *path)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    note(disk, UNLINK, path);
    return fr_disk_system()->unlink(NULL, path);
}

static int disk_sync_dir(void *self, const char *path)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    size_t length = strlen(path);
    for (size_t i = disk->n_changes; i-- > 0;) {
        const struct change *change = &disk->changes[i];
        bool of_dir = change->kind == CREATE || change->kind == UNLINK || change->kind == RENAME;
        if (of_dir && strncmp(change->path, path, length) == 0 && change->path[length] == '/' &&
            !strchr(change->path + length + 1, '/'))
            drop_change(disk, i);
    }
    return 0;
}

static struct disk *disk_new(void)
{
    struct disk *disk = calloc(1, sizeof(*disk));
    disk->table = (struct fr_disk){disk,           disk_open,   disk_close,  disk_pwrite,  disk_fdatasync,
                                   disk_ftruncate, disk_rename, disk_unlink, disk_sync_dir};
    disk->number = EIO;
    return disk;
}

static void disk_free(struct disk *disk)
{
    while (disk->n_changes > 0)
        drop_change(disk, disk->n_changes - 1);
    free(disk);
}

/* Takes back a write from its byte `kept` on: what stood there before, or the end of the file. */
static void undo_write(const struct change *change, size_t kept)
{
    int fd = open(change->path, O_RDWR);
    if (fd < 0)
        return; /* its creation or renaming was undone already */
    uint64_t from = change->offset + kept, to = change->offset + change->written.size;
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    for (uint64_t at = from; at < to; at++) {
        uint8_t byte = at < change->before.size ? change->before.data[at] : 0;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    if ((uint64_t)info.st_size <= to && to > change->before.size)
        assert_int_equal(ftruncate(fd, (off_t)(from > change->before.size ? from : change->before.size)), 0);
    close(fd);
}

/* What a power cut leaves of one change that was not synced; a torn write keeps its beginning. */
static void undo(const struct change *change, uint64_t random)
{
    if (change->kind == WRITE)
        undo_write(change, (size_t)(random % (change->written.size + 1)));
    else if (change->existed)
        scene_write(change->path, change->before.data, change->before.size);
    else
        (void)unlink(change->path);
}

/* seed 0: everything unsynced is gone; else each change from the newest back is kept or undone by a
 * coin. */
static void power_cut(struct disk *disk, uint64_t seed)
{
    for (size_t i = disk->n_changes; i-- > 0;) {
        uint64_t coin = fr_random_u64(seed, 1, i, disk->calls);
        if (seed == 0)
            undo(&disk->changes[i], 0);
        else if (coin & 1)
            undo(&disk->changes[i], disk->changes[i].written.size > 0 ? coin >> 1 : 0);
    }
}

/* ---- the life ---- */

struct life {
    uint64_t last_ok; /* epoch of the last append that returned FR_OK */
    uint64_t tried;   /* epoch of the last append that was begun */
    struct fr_sha256 digest;
    enum fr_status status; /* of what ended it */
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

/* After any end: the state opens, is whole, and goes on. */
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

/* Review scenario: the sync of 3 fails, the process ends, the next one reads 3 from the page cache;
 * the power goes later. */
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

/* The mark of 3 was written but its sync failed: the next open finds it (page cache), builds on it,
 * and then the power goes. */
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

/* The sync of 3 fails, and a slot of the mark rots: the next open keeps 3, and must then really
 * have it. */
FR_CASE(an_epoch_kept_because_of_a_lost_slot_is_made_permanent_before_it_counts)
{
    /* 3 in a file of its own, or behind 2 */
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

/* 3 is in the journal, the mark says 2; the next process cuts it off and writes another 3 into a
 * new file. */
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
