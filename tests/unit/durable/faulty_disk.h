/* A disk whose calls fail, for tests: it passes them to the system's and keeps an undo list of what
 * no sync has made permanent. A power cut takes such changes back, all of them or a random part
 * (seeded), writes also in part. A write whose sync failed stays lost even when a later sync
 * succeeds, as on Linux, until the same bytes are written again. RocksDB does not use these calls
 * for its own files. */
#ifndef FR_TEST_DURABLE_FAULTY_DISK_H
#define FR_TEST_DURABLE_FAULTY_DISK_H

#include "scene.h"

#include <errno.h>
#include <fcntl.h>

enum { CHANGES_MAX = 512, FDS_MAX = 1024 };

enum kind { WRITE, TRUNCATE, CREATE, UNLINK, RENAME };

struct change {
    enum kind kind;
    char path[SCENE_PATH];
    struct fr_buffer before; /* the file's whole content before */
    bool existed;
    struct fr_buffer written;
    uint64_t offset;
    bool lost; /* the sync of this change failed */
};

struct disk {
    struct fr_disk table;
    uint64_t calls, fail_at; /* 0: never */
    int number;              /* errno */
    bool for_ever;
    bool half; /* a failing write writes half of its bytes first */
    char paths[FDS_MAX][SCENE_PATH];
    struct change changes[CHANGES_MAX];
    size_t n_changes;
};

static inline bool fails(struct disk *disk)
{
    disk->calls++;
    bool now = disk->fail_at && (disk->calls == disk->fail_at || (disk->for_ever && disk->calls > disk->fail_at));
    if (now)
        errno = disk->number;
    return now;
}

static inline struct change *note(struct disk *disk, enum kind kind, const char *path)
{
    assert_true(disk->n_changes < CHANGES_MAX);
    struct change *change = &disk->changes[disk->n_changes++];
    *change = (struct change){.kind = kind, .existed = access(path, F_OK) == 0};
    snprintf(change->path, sizeof(change->path), "%.500s", path);
    if (change->existed)
        change->before = scene_read(path);
    return change;
}

static inline void drop_change(struct disk *disk, size_t i)
{
    fr_buffer_release(&disk->changes[i].before);
    fr_buffer_release(&disk->changes[i].written);
    memmove(&disk->changes[i], &disk->changes[i + 1], (disk->n_changes - i - 1) * sizeof(struct change));
    disk->n_changes--;
}

static inline int disk_open(void *self, const char *path, int flags, unsigned mode)
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

static inline int disk_close(void *self, int fd)
{
    (void)self; /* nothing here depends on close succeeding; it is not counted */
    return fr_disk_system()->close(NULL, fd);
}

static inline bool covers(const struct change *change, const char *path, uint64_t offset, size_t size)
{
    return strcmp(change->path, path) == 0 && offset <= change->offset &&
           change->offset + change->written.size <= offset + size;
}

static inline long disk_pwrite(void *self, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct disk *disk = self;
    bool failing = fails(disk);
    if (failing && !disk->half)
        return -1;
    size_t n = failing ? size / 2 : size;
    if (n > 0) {
        /* what is on the disk at this place, if a lost write is in the page cache */
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

static inline int disk_fdatasync(void *self, int fd)
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

static inline int disk_ftruncate(void *self, int fd, uint64_t size)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    note(disk, TRUNCATE, disk->paths[fd]);
    return fr_disk_system()->ftruncate(NULL, fd, size);
}

static inline int disk_rename(void *self, const char *from, const char *to)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    /* the creation of the old name becomes that of the new name */
    for (size_t i = 0; i < disk->n_changes; i++)
        assert_true(disk->changes[i].kind == CREATE || strcmp(disk->changes[i].path, from) != 0);
    note(disk, RENAME, to);
    return fr_disk_system()->rename(NULL, from, to);
}

static inline int disk_unlink(void *self, const char *path)
{
    struct disk *disk = self;
    if (fails(disk))
        return -1;
    note(disk, UNLINK, path);
    return fr_disk_system()->unlink(NULL, path);
}

static inline int disk_sync_dir(void *self, const char *path)
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

static inline struct disk *disk_new(void)
{
    struct disk *disk = calloc(1, sizeof(*disk));
    disk->table = (struct fr_disk){disk,           disk_open,   disk_close,  disk_pwrite,  disk_fdatasync,
                                   disk_ftruncate, disk_rename, disk_unlink, disk_sync_dir};
    disk->number = EIO;
    return disk;
}

static inline void disk_free(struct disk *disk)
{
    while (disk->n_changes > 0)
        drop_change(disk, disk->n_changes - 1);
    free(disk);
}

/* Takes back a write from its byte `kept` on: restores what was there before, or the end of the
 * file. */
static inline void undo_write(const struct change *change, size_t kept)
{
    int fd = open(change->path, O_RDWR);
    if (fd < 0)
        return; /* the file is gone: its creation or renaming was undone */
    uint64_t from = change->offset + kept, to = change->offset + change->written.size;
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    uint8_t *bytes = calloc(to - from + 1, 1);
    if (from < change->before.size)
        memcpy(bytes, change->before.data + from, (to < change->before.size ? to : change->before.size) - from);
    assert_int_equal(pwrite(fd, bytes, to - from, (off_t)from), to - from);
    free(bytes);
    if ((uint64_t)info.st_size <= to && to > change->before.size)
        assert_int_equal(ftruncate(fd, (off_t)(from > change->before.size ? from : change->before.size)), 0);
    close(fd);
}

/* What a power cut leaves of one change that was not synced; a torn write keeps its beginning. */
static inline void undo(const struct change *change, uint64_t random)
{
    if (change->kind == WRITE)
        undo_write(change, (size_t)(random % (change->written.size + 1)));
    else if (change->existed)
        scene_write(change->path, change->before.data, change->before.size);
    else
        (void)unlink(change->path);
}

/* With seed 0 everything unsynced is gone; otherwise each change, from the newest to the oldest, is
 * kept or undone at random. */
static inline void power_cut(struct disk *disk, uint64_t seed)
{
    for (size_t i = disk->n_changes; i-- > 0;) {
        uint64_t coin = fr_random_u64(seed, 1, i, disk->calls);
        if (seed == 0)
            undo(&disk->changes[i], 0);
        else if (coin & 1)
            undo(&disk->changes[i], disk->changes[i].written.size > 0 ? coin >> 1 : 0);
    }
}

#endif
