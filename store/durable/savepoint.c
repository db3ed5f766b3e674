/* Savepoints: RocksDB's checkpoint of the cold store, a mark by which all of it is acknowledged,
 * and copies of the small files.
 *
 * Invariants: everything is made under another name, synced, and then renamed. A savepoint is made
 * as path.part. In a restore the mark comes last; until then, the file `restoring` shows that the
 * rest may be removed. Sorted files never change and may be linked. RocksDB appends to its other
 * files, so a restored state gets copies of those.
 *
 * Thread: the fold thread makes savepoints; any thread calls the other functions. When to make one
 * and which to remove is decided by the caller. */
#include "durable/savepoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/sum_line.h"
#include "durable_internal.h"

enum { COPY_BYTES = 1 << 20 };

static enum fr_status join_path(char out[PATH_MAX], const char *dir, const char *name, struct fr_err *err)
{
    int length = snprintf(out, PATH_MAX, "%s%s", dir, name);
    if (length < 0 || length >= PATH_MAX)
        return fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", dir);
    return FR_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

/* ---- files ---- */

static enum fr_status copy_bytes(const struct fr_disk *disk, int from, int to, const char *path, struct fr_err *err)
{
    uint8_t *bytes = fr_alloc(1, COPY_BYTES);
    enum fr_status status = FR_OK;
    uint64_t offset = 0;
    while (status == FR_OK) {
        ssize_t n = pread(from, bytes, COPY_BYTES, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = fr_err_set(err, FR_E_IO, "cannot read what is copied to %s: %s", path, strerror(errno));
        if (n <= 0)
            break;
        status = fr_disk_write(disk, to, bytes, (size_t)n, offset, path, err);
        offset += (uint64_t)n;
    }
    free(bytes);
    return status == FR_OK ? fr_disk_sync(disk, to, path, err) : status;
}

static enum fr_status copy_file(const struct fr_disk *disk, const char *from, const char *to, struct fr_err *err)
{
    int source = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (source < 0)
        return fr_disk_error(err, "open", from, errno);
    int target = disk->open(disk->self, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum fr_status status = FR_OK;
    if (target < 0)
        status = fr_disk_error(err, "create", to, errno);
    else
        status = copy_bytes(disk, source, target, to, err);
    if (target >= 0)
        (void)disk->close(disk->self, target);
    (void)close(source);
    return status;
}

static enum fr_status link_or_copy(const struct fr_disk *disk, const char *from, const char *to, struct fr_err *err)
{
    if (link(from, to) == 0)
        return FR_OK;
    if (errno == EEXIST)
        return fr_err_set(err, FR_E_EXISTS, "%s exists", to);
    return copy_file(disk, from, to, err); /* another file system, or one without links */
}

typedef enum fr_status (*visit_file)(void *self, const char *name, struct fr_err *err);

/* Visits the regular files of a directory, in no particular order. */
static enum fr_status each_file(const char *path, visit_file visit, void *self, struct fr_err *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return fr_err_set(err, FR_E_IO, "cannot list %s: %s", path, strerror(errno));
    enum fr_status status = FR_OK;
    const struct dirent *entry;
    int at = dirfd(dir);
    FR_CHECK(at >= 0); /* a DIR of opendir always has a descriptor */
    while (status == FR_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        struct stat info;
        if (fstatat(at, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            status = visit(self, entry->d_name, err);
    }
    if (status == FR_OK && errno != 0)
        status = fr_err_set(err, FR_E_IO, "cannot list %s: %s", path, strerror(errno));
    (void)closedir(dir);
    return status;
}

static enum fr_status sync_directory(const struct fr_disk *disk, const char *path, struct fr_err *err)
{
    if (disk->sync_dir(disk->self, path) == 0)
        return FR_OK;
    return fr_err_set(err, FR_E_IO, "cannot sync directory %s: %s", path, strerror(errno));
}

static enum fr_status parent_path(const char *path, char out[PATH_MAX], struct fr_err *err)
{
    enum fr_status status = join_path(out, path, "", err);
    char *slash = status == FR_OK ? strrchr(out, '/') : NULL;
    if (slash && slash > out)
        *slash = '\0';
    else if (status == FR_OK)
        memcpy(out, slash ? "/" : ".", 2);
    return status;
}

/* ---- files that savepoint and restore copy ---- */

struct copying {
    const struct fr_disk *disk;
    const char *from, *to;
    bool (*wants)(const char *name);
    bool (*links)(const char *name); /* which files are linked; NULL: none */
    uint64_t bytes;
};

static enum fr_status copy_one(void *self, const char *name, struct fr_err *err)
{
    struct copying *c = self;
    if (!c->wants(name))
        return FR_OK;
    char from[PATH_MAX], to[PATH_MAX], below[NAME_MAX + 2];
    snprintf(below, sizeof(below), "/%s", name);
    enum fr_status status = join_path(from, c->from, below, err);
    if (status == FR_OK)
        status = join_path(to, c->to, below, err);
    if (status == FR_OK)
        status = c->links && c->links(name) ? link_or_copy(c->disk, from, to, err) : copy_file(c->disk, from, to, err);
    struct stat info;
    if (status == FR_OK && stat(to, &info) == 0)
        c->bytes += (uint64_t)info.st_size;
    return status;
}

/* Small files are all files except the directory's own and incomplete ones. */
static bool is_small_file(const char *name)
{
    static const char *const others[] = {"hwm", "LOCK", DURABLE_RESTORING_FILE, DURABLE_HEAD_FILE};
    for (size_t i = 0; i < FR_ARRAY_LEN(others); i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return name[0] != '.' && !ends_with(name, ".tmp");
}

static bool is_small_file_or_head(const char *name)
{
    return is_small_file(name) || strcmp(name, DURABLE_HEAD_FILE) == 0;
}

static bool is_sorted_file(const char *name)
{
    return ends_with(name, ".sst");
}

/* The files that RocksDB needs in its directory. Its lock, its message logs and its write-ahead
 * logs, which are empty, are left out. */
static bool is_of_store(const char *name)
{
    return is_sorted_file(name) || strcmp(name, "CURRENT") == 0 || strcmp(name, "IDENTITY") == 0 ||
           strncmp(name, "MANIFEST-", 9) == 0 || strncmp(name, "OPTIONS-", 8) == 0;
}

static enum fr_status add_size(void *self, const char *name, struct fr_err *err)
{
    struct copying *c = self;
    char path[PATH_MAX], below[NAME_MAX + 2];
    snprintf(below, sizeof(below), "/%s", name);
    enum fr_status status = join_path(path, c->from, below, err);
    struct stat info;
    if (status == FR_OK && stat(path, &info) == 0)
        c->bytes += (uint64_t)info.st_size;
    return status;
}

/* ---- making one ---- */

static enum fr_status check_small(void *self, const char *name, struct fr_err *err)
{
    const struct copying *c = self;
    char path[PATH_MAX], below[NAME_MAX + 2];
    struct fr_buffer text = {0};
    snprintf(below, sizeof(below), "/%s", name);
    enum fr_status status = c->wants(name) ? join_path(path, c->from, below, err) : FR_EOF;
    if (status == FR_OK) {
        status = fr_file_read_regular(path, DURABLE_FILE_BYTES_MAX, &text, err);
        if (status == FR_E_LIMIT) /* larger than any file that is written with a checksum */
            status = FR_EOF;
    }
    if (status == FR_OK && fr_sum_line_take(&text) == FR_E_CORRUPT)
        status = fr_err_set(err, FR_E_CORRUPT, "%s is not as it was written (its checksum is another)", path);
    fr_buffer_release(&text);
    return status == FR_EOF ? FR_OK : status;
}

/* Checks what a state would begin with: the mark, the store's CURRENT, and the small files that
 * have a checksum. Rows are in the store's files, which the walk of a restore checks. */
static enum fr_status read_back(const char *part, const struct fr_hwm *written, struct fr_err *err)
{
    char cold[PATH_MAX], current[PATH_MAX], hwm[PATH_MAX];
    struct fr_hwm mark = {0};
    bool copy_lost = false;
    struct fr_err why = {0};
    enum fr_status status = join_path(cold, part, "/cold", &why);
    if (status == FR_OK)
        status = join_path(hwm, part, "/hwm", &why);
    if (status == FR_OK)
        status = join_path(current, cold, "/CURRENT", &why);
    if (status == FR_OK)
        status = fr_hwm_read(hwm, &mark, &copy_lost, &why);
    if (status == FR_OK &&
        (copy_lost || mark.timeline != written->timeline || mark.epoch != written->epoch ||
         mark.salt != written->salt || memcmp(&mark.digest, &written->digest, sizeof(mark.digest)) != 0))
        status = fr_err_set(&why, FR_E_CORRUPT, "%s reads back differently", hwm);
    if (status == FR_OK && (access(current, R_OK) != 0 || !fr_cold_current_leads_on(cold)))
        status = fr_err_set(&why, FR_E_CORRUPT, "%s names no MANIFEST that is there", current);
    struct copying small = {.from = part, .wants = is_small_file_or_head};
    if (status == FR_OK)
        status = each_file(part, check_small, &small, &why);
    return status == FR_OK ? FR_OK
                           : fr_err_set(err, status,
                                        "the savepoint was not kept, because it does not read back as "
                                        "it was written (%s): check the disk, then take it again",
                                        why.text);
}

static enum fr_status fill_savepoint(struct fr_durable *durable, const char *part, struct fr_savepoint *out,
                                     struct fr_err *err)
{
    char cold[PATH_MAX], hwm[PATH_MAX];
    enum fr_status status = join_path(cold, part, "/cold", err);
    if (status == FR_OK)
        status = join_path(hwm, part, "/hwm", err);
    if (status == FR_OK)
        status = fr_dir_make(part, err);
    if (status == FR_OK)
        status = fr_cold_checkpoint(durable->cold, cold, err);
    struct copying files = {.disk = durable->disk, .from = cold};
    if (status == FR_OK)
        status = each_file(cold, add_size, &files, err);
    files.from = durable->dir;
    files.to = part;
    files.wants = is_small_file;
    if (status == FR_OK)
        status = each_file(durable->dir, copy_one, &files, err);
    char head[PATH_MAX];
    if (status == FR_OK)
        status = join_path(head, part, "/" DURABLE_HEAD_FILE, err);
    struct fr_buffer settings = {0};
    if (status == FR_OK)
        status = fr_durable_newest_head(durable, &settings, err);
    if (status == FR_OK)
        status = fr_file_replace(durable->disk, head, settings.data, settings.size, err);
    fr_buffer_release(&settings);
    struct fr_cold_sentinel sentinel = {0};
    if (status == FR_OK)
        status = fr_cold_read_sentinel(durable->cold, NULL, &sentinel, err);
    struct fr_hwm mark = {.timeline = sentinel.timeline,
                          .epoch = sentinel.epoch,
                          .digest = sentinel.digest,
                          .acked = sentinel.epoch,
                          .salt = sentinel.salt};
    if (status == FR_OK)
        status = fr_hwm_create(durable->disk, hwm, &mark, err);
    if (status == FR_OK)
        status = read_back(part, &mark, err);
    *out = (struct fr_savepoint){sentinel.timeline, sentinel.epoch, sentinel.digest, files.bytes};
    return status == FR_OK ? sync_directory(durable->disk, part, err) : status;
}

enum fr_status fr_durable_savepoint(struct fr_durable *durable, const char *path, struct fr_savepoint *out,
                                    struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, true, err);
    if (status != FR_OK)
        return status;
    if (fr_durable_folded(durable) == 0)
        return fr_err_set(err, FR_E_STATE, "no epoch of %s is folded yet: nothing to take a savepoint of",
                          durable->dir);
    if (access(path, F_OK) == 0)
        return fr_err_set(err, FR_E_EXISTS, "%s exists: name another savepoint", path);
    char part[PATH_MAX], above[PATH_MAX];
    status = join_path(part, path, ".part", err);
    if (status == FR_OK)
        status = parent_path(path, above, err);
    if (status == FR_OK)
        status = fr_dir_remove(durable->disk, part, err);
    if (status == FR_OK)
        status = fill_savepoint(durable, part, out, err);
    if (status == FR_OK && durable->disk->rename(durable->disk->self, part, path) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot rename %s to %s: %s", part, path, strerror(errno));
    if (status == FR_OK)
        return sync_directory(durable->disk, above, err);
    struct fr_err ignored = {0}; /* what is left ends with .part and is removed at the next start */
    (void)!fr_dir_remove(durable->disk, part, &ignored);
    return status;
}

enum fr_status fr_savepoint_look(const char *path, struct fr_savepoint *out, struct fr_err *err)
{
    struct fr_durable *durable = NULL;
    enum fr_status status =
        fr_durable_open(&(struct fr_durable_options){.dir = path, .read_only = true}, &durable, err);
    if (status != FR_OK)
        return status;
    struct fr_durable_status now;
    fr_durable_get_status(durable, &now);
    if (now.journal_first > 0 || now.epoch == 0)
        status =
            fr_err_set(err, FR_E_STATE, "%s is a state directory in use, not a savepoint: take one of it first", path);
    *out = (struct fr_savepoint){now.timeline, now.epoch, now.digest, 0};
    fr_durable_close(durable);
    char cold[PATH_MAX];
    if (status == FR_OK)
        status = join_path(cold, path, "/cold", err);
    struct copying files = {.from = cold};
    if (status == FR_OK)
        status = each_file(cold, add_size, &files, err);
    out->bytes = files.bytes;
    return status;
}

enum fr_status fr_savepoint_remove(const char *path, struct fr_err *err)
{
    char part[PATH_MAX];
    enum fr_status status = join_path(part, path, ".part", err);
    if (status == FR_OK)
        status = fr_dir_remove(fr_disk_system(), part, err);
    if (status == FR_OK && rename(path, part) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot remove %s: %s", path, strerror(errno));
    return status == FR_OK ? fr_dir_remove(fr_disk_system(), part, err) : status;
}

/* ---- beginning from one ---- */

static const char *const restored_parts[] = {"/cold", "/journal", "/fold"};

static enum fr_status clear_for_restore(const struct fr_disk *disk, const char *dir, struct fr_err *err)
{
    char path[PATH_MAX];
    enum fr_status status = join_path(path, dir, "/hwm", err);
    if (status == FR_OK && access(path, F_OK) == 0)
        return fr_err_set(err, FR_E_EXISTS, "%s holds a state already: restore into another state_dir, or move it away",
                          dir);
    if (status == FR_OK)
        status = join_path(path, dir, "/cold/CURRENT", err);
    char marker[PATH_MAX];
    if (status == FR_OK)
        status = join_path(marker, dir, "/" DURABLE_RESTORING_FILE, err);
    if (status == FR_OK && access(path, F_OK) == 0 && access(marker, F_OK) != 0)
        return fr_err_set(err, FR_E_EXISTS, "%s holds a cold store without its mark: move it away, it is of a state",
                          dir);
    if (status == FR_OK)
        status = fr_dir_make(dir, err);
    if (status == FR_OK)
        status = fr_file_replace(disk, marker, "", 0, err);
    for (size_t i = 0; i < FR_ARRAY_LEN(restored_parts) && status == FR_OK; i++) {
        status = join_path(path, dir, restored_parts[i], err);
        if (status == FR_OK)
            status = fr_dir_remove(disk, path, err);
    }
    return status;
}

/* Locks the directory, so that no other process makes or opens a state there meanwhile. */
static enum fr_status lock_directory(const char *dir, int *lock, struct fr_err *err)
{
    char path[PATH_MAX];
    enum fr_status status = join_path(path, dir, "/LOCK", err);
    if (status == FR_OK)
        status = fr_dir_make(dir, err);
    return status == FR_OK ? fr_file_lock(path, lock, err) : status;
}

/* A restore empties some parts of the state's directory and creates others there. None of them may
 * be the savepoint or a part of it. */
static enum fr_status check_apart(const char *path, const char *dir, struct fr_err *err)
{
    char savepoint[PATH_MAX], state[PATH_MAX], part[PATH_MAX];
    if (!fr_file_resolve(path, savepoint) || !fr_file_resolve(dir, state))
        return FR_OK; /* opening it will report the reason */
    bool apart = !fr_file_is_within(state, savepoint);
    for (size_t i = 0; i < FR_ARRAY_LEN(restored_parts) && apart; i++)
        apart = snprintf(part, sizeof(part), "%s%s", state, restored_parts[i]) >= (int)sizeof(part) ||
                !fr_file_is_within(savepoint, part);
    return apart ? FR_OK
                 : fr_err_set(err, FR_E_MISMATCH,
                              "the savepoint %s and the state directory %s lie in one another: give a state directory "
                              "of its own",
                              path, dir);
}

static enum fr_status copy_into(const struct fr_disk *disk, const char *path, const char *dir, struct fr_err *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    enum fr_status status = join_path(from, path, "/cold", err);
    if (status == FR_OK)
        status = join_path(to, dir, "/cold", err);
    if (status == FR_OK)
        status = fr_dir_make(to, err);
    struct copying store = {.disk = disk, .from = from, .to = to, .wants = is_of_store, .links = is_sorted_file};
    if (status == FR_OK)
        status = each_file(from, copy_one, &store, err);
    if (status == FR_OK)
        status = sync_directory(disk, to, err);
    struct copying small = {.disk = disk, .from = path, .to = dir, .wants = is_small_file_or_head};
    if (status == FR_OK)
        status = each_file(path, copy_one, &small, err);
    return status == FR_OK ? sync_directory(disk, dir, err) : status;
}

static enum fr_status write_own(const struct fr_disk *disk, const char *dir, const struct fr_savepoint_own *own,
                                struct fr_err *err)
{
    char head[PATH_MAX], small[PATH_MAX], below[NAME_MAX + 2];
    snprintf(below, sizeof(below), "/%s", own->name);
    enum fr_status status = join_path(head, dir, "/" DURABLE_HEAD_FILE, err);
    if (status == FR_OK)
        status = join_path(small, dir, below, err);
    if (status == FR_OK)
        status = fr_file_replace(disk, head, own->head, own->head_size, err);
    struct fr_buffer text = {0};
    fr_buffer_append(&text, own->bytes, own->size);
    fr_sum_line_append(&text);
    if (status == FR_OK)
        status = fr_file_replace(disk, small, text.data, text.size, err);
    fr_buffer_release(&text);
    return status;
}

enum fr_status fr_savepoint_restore(const char *path, const char *dir, const struct fr_disk *disk,
                                    const struct fr_savepoint_own *own, struct fr_savepoint *out, struct fr_err *err)
{
    if (!disk)
        disk = fr_disk_system();
    char hwm[PATH_MAX], marker[PATH_MAX];
    struct fr_hwm mark = {0};
    bool copy_lost = false;
    enum fr_status status = fr_savepoint_look(path, out, err);
    if (status == FR_OK)
        status = check_apart(path, dir, err);
    if (status == FR_OK)
        status = join_path(hwm, path, "/hwm", err);
    if (status == FR_OK)
        status = fr_hwm_read(hwm, &mark, &copy_lost, err);
    int lock = -1;
    if (status == FR_OK)
        status = lock_directory(dir, &lock, err);
    if (status == FR_OK)
        status = clear_for_restore(disk, dir, err);
    if (status == FR_OK)
        status = copy_into(disk, path, dir, err);
    if (status == FR_OK && own)
        status = write_own(disk, dir, own, err);
    if (status == FR_OK)
        status = join_path(hwm, dir, "/hwm", err);
    if (status == FR_OK)
        status = join_path(marker, dir, "/" DURABLE_RESTORING_FILE, err);
    mark.timeline++;
    if (status == FR_OK)
        status = fr_hwm_create(disk, hwm, &mark, err);
    if (status == FR_OK && disk->unlink(disk->self, marker) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot remove %s: %s", marker, strerror(errno));
    if (lock >= 0)
        (void)close(lock);
    out->timeline = mark.timeline;
    return status;
}
