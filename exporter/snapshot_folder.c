/* The folder of snapshots (snapshot.h): its list, CURRENT, removal, and the check of a snapshot.
 *
 * Thread: any; one writer. Snapshots are written by snapshot_write.c. */
#include "snapshot_folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"

static const char current_file[] = "CURRENT", part_end[] = ".part";
const char fr_snapshot_answer_end[] = ".answer";

enum fr_status fr_snapshot_join(char out[PATH_MAX], const char *dir, const char *name, struct fr_err *err)
{
    int size = snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return size > 0 && size < PATH_MAX ? FR_OK : fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", dir);
}

/* Whether a name of a directory is an entry of its own. */
static bool is_entry(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

enum fr_status fr_snapshot_aside(const char *path, char out[PATH_MAX], struct fr_err *err)
{
    int size = snprintf(out, PATH_MAX, "%s.old%s", path, part_end);
    if (size <= 0 || size >= PATH_MAX)
        return fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", path);
    enum fr_status status = fr_dir_remove(fr_disk_system(), out, err);
    if (status == FR_OK && rename(path, out) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot rename %s to %s: %s", path, out, strerror(errno));
    return status;
}

enum fr_status fr_snapshot_temporary(const char *dir, const char *name, char out[PATH_MAX], struct fr_err *err)
{
    char part[FR_MANIFEST_NAME_MAX + sizeof(part_end)];
    snprintf(part, sizeof(part), "%s%s", name, part_end);
    enum fr_status status = fr_snapshot_join(out, dir, part, err);
    return status == FR_OK ? fr_dir_remove(fr_disk_system(), out, err) : status;
}

void fr_snapshot_describe(const struct fr_manifest *manifest, const struct fr_buffer *text, struct fr_snapshot *out)
{
    *out = (struct fr_snapshot){.timeline = manifest->timeline,
                                .epoch = manifest->epoch,
                                .digest = manifest->digest,
                                .rows = fr_manifest_rows(manifest),
                                .bytes = fr_manifest_bytes(manifest),
                                .files = manifest->n_files,
                                .t_ms = manifest->t_ms,
                                .manifest_bytes = text->size,
                                .summed = manifest->summed,
                                .sha256 = fr_sha256(text->data, text->size)};
    memcpy(out->model, manifest->model, sizeof(out->model));
    enum fr_status named = fr_manifest_name(manifest, out->name);
    FR_CHECK(named == FR_OK); /* the model's name has less than 128 bytes */
}

static enum fr_status read_manifest(const char *path, struct fr_manifest *manifest, struct fr_snapshot *out,
                                    struct fr_err *err)
{
    struct fr_sha256 sha256;
    uint64_t size = 0;
    enum fr_status status = fr_manifest_read(path, manifest, &sha256, &size, err);
    if (status != FR_OK)
        return status;
    fr_snapshot_describe(manifest, &(struct fr_buffer){0}, out);
    out->sha256 = sha256;
    out->manifest_bytes = size;
    return FR_OK;
}

enum fr_status fr_snapshot_read(const char *path, struct fr_snapshot *out, struct fr_err *err)
{
    struct fr_manifest manifest = {0};
    struct fr_snapshot seen;
    enum fr_status status = read_manifest(path, &manifest, &seen, err);
    if (status == FR_OK)
        *out = seen;
    fr_manifest_release(&manifest);
    return status;
}

/* ---- where snapshots may lie ---- */

static bool is_state(const char *dir)
{
    char mark[PATH_MAX + 8];
    snprintf(mark, sizeof(mark), "%s/hwm", dir);
    return access(mark, F_OK) == 0;
}

enum fr_status fr_snapshot_check_place(const char *dir, struct fr_err *err)
{
    static const char *const parts[] = {"cold", "fold", "journal", "savepoints"};
    char path[PATH_MAX];
    if (!fr_file_resolve(dir, path))
        return FR_OK;
    bool taken = is_state(path);
    for (char *slash = strrchr(path, '/'); slash && slash != path && !taken; slash = strrchr(path, '/')) {
        *slash = '\0'; /* the rest of the path lies in the directory `path` */
        for (size_t i = 0; i < FR_ARRAY_LEN(parts) && !taken; i++)
            taken = strcmp(slash + 1, parts[i]) == 0 && is_state(path);
    }
    return taken ? fr_err_set(err, FR_E_MISMATCH,
                              "snapshots cannot lie in %s, which is of the state in %s: name a folder of their own",
                              dir, path)
                 : FR_OK;
}

/* ---- check ---- */

struct checking {
    const struct fr_manifest *manifest;
    const struct fr_manifest_file *file;
    uint64_t rows; /* rows of the file so far */
    struct {
        uint32_t pieces;
        uint64_t rows;
        bool closed;
    } partitions[FR_DELTA_PARTITIONS_MAX];
};

static enum fr_status wrong(const struct checking *checking, const char *what, struct fr_err *err)
{
    return fr_err_set(err, FR_E_CORRUPT, "%s: %s", checking->file->name, what);
}

static enum fr_status check_record(void *self, const void *bytes, size_t size, struct fr_err *err)
{
    struct checking *checking = self;
    const struct fr_manifest *manifest = checking->manifest;
    struct fr_delta_record record;
    enum fr_status status = fr_delta_read(bytes, size, &record, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "%s", checking->file->name);
    uint32_t p = record.partition;
    if (p != checking->file->partition || record.np != manifest->np)
        return wrong(checking, "a record of another partition than in the manifest", err);
    if (record.timeline != manifest->timeline || record.epoch != manifest->epoch || record.from != 1 ||
        record.digest != manifest->digest || record.fp != manifest->fp)
        return wrong(checking, "a record of another epoch or model than in the manifest", err);
    if (checking->partitions[p].closed || record.piece != checking->partitions[p].pieces)
        return wrong(checking, "a record is missing, or out of order", err);
    checking->partitions[p].pieces += 1;
    if (record.kind == FR_DELTA_ROWS) {
        if (record.rows.table.size != strlen(checking->file->table) ||
            memcmp(record.rows.table.bytes, checking->file->table, record.rows.table.size) != 0)
            return wrong(checking, "rows of another table than in the manifest", err);
        checking->rows += record.rows.n_rows;
        checking->partitions[p].rows += record.rows.n_rows;
    }
    if (record.kind != FR_DELTA_COMMIT)
        return FR_OK;
    checking->partitions[p].closed = true;
    if (record.commit.n_pieces != record.piece || record.commit.n_rows != checking->partitions[p].rows)
        return wrong(checking, "the commit counts other pieces or rows than there are", err);
    return FR_OK;
}

static enum fr_status check_files(const char *path, const struct fr_manifest *manifest, struct fr_err *err)
{
    struct checking *checking = fr_alloc(1, sizeof(*checking));
    enum fr_status status = FR_OK;
    checking->manifest = manifest;
    for (size_t i = 0; i < manifest->n_files && status == FR_OK; i++) {
        checking->file = &manifest->files[i];
        checking->rows = 0;
        status = fr_manifest_records(path, checking->file, check_record, checking, err);
        if (status == FR_OK && checking->rows != checking->file->rows)
            status = wrong(checking, "another number of rows than in the manifest", err);
    }
    for (uint32_t p = 0; p < manifest->np && status == FR_OK; p++)
        if (!checking->partitions[p].closed)
            status = fr_err_set(err, FR_E_CORRUPT, "%s: partition %" PRIu32 " has no commit", path, p);
    free(checking);
    return status;
}

enum fr_status fr_snapshot_check(const char *path, struct fr_snapshot *out, struct fr_err *err)
{
    struct fr_manifest manifest = {0};
    struct fr_snapshot seen;
    enum fr_status status = read_manifest(path, &manifest, &seen, err);
    if (status == FR_OK)
        status = fr_manifest_check_sizes(path, &manifest, err);
    if (status == FR_OK)
        status = check_files(path, &manifest, err);
    if (status == FR_OK)
        *out = seen;
    fr_manifest_release(&manifest);
    return status;
}

/* ---- the folder ---- */

static int compare(const void *a, const void *b)
{
    const struct fr_snapshot *left = a, *right = b;
    if (left->timeline != right->timeline)
        return left->timeline < right->timeline ? -1 : 1;
    return (left->epoch > right->epoch) - (left->epoch < right->epoch);
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);
    return size > tail && strcmp(text + size - tail, end) == 0;
}

/* Parses the number after the last '-' of the first *size bytes, and sets *size to the place of
 * that sign. */
static bool parse_last_number(const char *name, size_t *size, uint64_t *out)
{
    size_t from = *size;
    uint64_t number = 0;
    while (from > 0 && name[from - 1] >= '0' && name[from - 1] <= '9')
        from -= 1;
    if (from < 2 || from == *size || name[from] == '0' || name[from - 1] != '-')
        return false;
    for (size_t i = from; i < *size; i++) {
        uint64_t digit = (uint64_t)name[i] - '0';
        if (number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *size = from - 1;
    *out = number;
    return true;
}

/* Whether a directory is a snapshot or has the name of one. In the latter case out->problem has the
 * reason why it cannot be read. */
static bool describe_entry(const char *dir, const char *name, struct fr_snapshot *out)
{
    char path[PATH_MAX];
    struct fr_err err = {0};
    size_t size = strlen(name);
    struct fr_snapshot named = {0};
    enum fr_status status = fr_snapshot_join(path, dir, name, &err);
    if (status == FR_OK)
        status = fr_snapshot_read(path, out, &err);
    if (status == FR_OK && strcmp(out->name, name) == 0)
        return true;
    if (size >= sizeof(named.name) || !parse_last_number(name, &size, &named.epoch) ||
        !parse_last_number(name, &size, &named.timeline))
        return false;
    memcpy(named.name, name, strlen(name) + 1);
    if (status == FR_OK)
        status = fr_err_set(&err, FR_E_MISMATCH, "%s is of the snapshot %s", path, out->name);
    named.unread = status;
    snprintf(named.problem, sizeof(named.problem), "%.*s", (int)sizeof(named.problem) - 1, err.text);
    *out = named;
    return true;
}

enum fr_status fr_snapshot_list(const char *dir, struct fr_snapshot **out, size_t *n, struct fr_err *err)
{
    *out = NULL;
    *n = 0;
    DIR *folder = opendir(dir);
    if (!folder)
        return errno == ENOENT ? FR_OK : fr_err_set(err, FR_E_IO, "cannot list %s: %s", dir, strerror(errno));
    const struct dirent *entry;
    while ((errno = 0, entry = readdir(folder)) != NULL) {
        struct fr_snapshot seen;
        if (!is_entry(entry->d_name) || ends_with(entry->d_name, part_end) ||
            !describe_entry(dir, entry->d_name, &seen))
            continue;
        *out = fr_realloc(*out, *n + 1, sizeof(**out));
        (*out)[(*n)++] = seen;
    }
    enum fr_status status = errno == 0 ? FR_OK : fr_err_set(err, FR_E_IO, "cannot list %s: %s", dir, strerror(errno));
    (void)closedir(folder);
    if (status != FR_OK) {
        free(*out);
        *out = NULL;
        *n = 0;
    }
    if (*n > 1)
        qsort(*out, *n, sizeof(**out), compare);
    return status;
}

/* Reads CURRENT. name: its content; out: the snapshot of that name. false: CURRENT names none. */
static bool find_current(const char *dir, char name[FR_MANIFEST_NAME_MAX], struct fr_snapshot *out)
{
    char path[PATH_MAX];
    struct fr_buffer text = {0};
    struct fr_err ignored = {0};
    bool found = fr_snapshot_join(path, dir, current_file, &ignored) == FR_OK &&
                 fr_file_read_regular(path, FR_MANIFEST_NAME_MAX, &text, &ignored) == FR_OK;
    while (text.size > 0 && text.data[text.size - 1] == '\n')
        text.size -= 1;
    found = found && text.size > 0 && text.size < FR_MANIFEST_NAME_MAX && !memchr(text.data, '/', text.size);
    if (found) {
        memcpy(name, text.data, text.size);
        name[text.size] = '\0';
        found = fr_snapshot_join(path, dir, name, &ignored) == FR_OK && fr_snapshot_read(path, out, &ignored) == FR_OK;
    }
    fr_buffer_release(&text);
    return found;
}

bool fr_snapshot_current(const char *dir, char name[FR_MANIFEST_NAME_MAX])
{
    struct fr_snapshot seen;
    return find_current(dir, name, &seen);
}

enum fr_status fr_snapshot_check_model(const char *dir, const char *model, struct fr_err *err)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct fr_snapshot current;
    if (!find_current(dir, name, &current) || strcmp(current.model, model) == 0)
        return FR_OK;
    return fr_err_set(err, FR_E_MISMATCH,
                      "%.400s: CURRENT names %s, a snapshot of model %s, and this model is %s; give each model its own "
                      "snapshot.dir, or move away what is in this one",
                      dir, name, current.model, model);
}

enum fr_status fr_snapshot_set_current(const char *dir, const char *name, struct fr_err *err)
{
    char path[PATH_MAX], line[FR_MANIFEST_NAME_MAX + 1];
    int size = snprintf(line, sizeof(line), "%s\n", name);
    FR_CHECK(size > 0 && (size_t)size < sizeof(line));
    char seen[FR_MANIFEST_NAME_MAX];
    struct fr_snapshot snapshot;
    enum fr_status status = fr_snapshot_join(path, dir, name, err);
    if (status == FR_OK) /* CURRENT must never name a snapshot that cannot be read */
        status = fr_snapshot_read(path, &snapshot, err);
    if (status == FR_OK)
        status = fr_snapshot_check_model(dir, snapshot.model, err);
    if (status == FR_OK)
        status = fr_snapshot_join(path, dir, current_file, err);
    if (status == FR_OK)
        status = fr_file_replace(fr_disk_system(), path, line, (size_t)size, err);
    if (status == FR_OK && (!fr_snapshot_current(dir, seen) || strcmp(seen, name) != 0))
        status = fr_err_set(err, FR_E_STATE, "%s was written and does not name %s", path, name);
    return status;
}

enum fr_status fr_snapshot_remove(const char *dir, const char *name, struct fr_err *err)
{
    char path[PATH_MAX], part[PATH_MAX];
    enum fr_status status = fr_snapshot_join(path, dir, name, err);
    if (status == FR_OK)
        status = fr_snapshot_temporary(dir, name, part, err);
    if (status == FR_OK && rename(path, part) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot remove %s: %s", path, strerror(errno));
    return status == FR_OK ? fr_dir_remove(fr_disk_system(), part, err) : status;
}

enum fr_status fr_snapshot_sweep(const char *dir, struct fr_err *err)
{
    DIR *folder = opendir(dir);
    if (!folder)
        return errno == ENOENT ? FR_OK : fr_err_set(err, FR_E_IO, "cannot list %s: %s", dir, strerror(errno));
    enum fr_status status = FR_OK;
    const struct dirent *entry;
    while (status == FR_OK && (errno = 0, entry = readdir(folder)) != NULL) {
        char path[PATH_MAX];
        bool part = ends_with(entry->d_name, part_end);
        if (!part && !ends_with(entry->d_name, fr_snapshot_answer_end))
            continue;
        status = fr_snapshot_join(path, dir, entry->d_name, err);
        if (status == FR_OK && part)
            status = fr_dir_remove(fr_disk_system(), path, err);
        else if (status == FR_OK)
            (void)unlink(path);
    }
    if (status == FR_OK && errno != 0)
        status = fr_err_set(err, FR_E_IO, "cannot list %s: %s", dir, strerror(errno));
    (void)closedir(folder);
    return status;
}
