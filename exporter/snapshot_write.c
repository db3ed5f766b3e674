/* Writing a snapshot (snapshot.h): first the records of full.h into files by table and partition,
 * then the manifest, then the name of the directory.
 *
 * A record is appended to its file by open, write and close, because a state has more files than a
 * process may have open, and a record is large compared with the cost of that. A file is synced
 * every SYNC_BYTES, so that the last sync of a large file does not delay the journal's. The file
 * that a record belongs to is read from the record, which is thereby checked once more before it is
 * kept. The manifest is parsed as a reader parses it before the directory gets its name, so a
 * manifest that no reader can parse is never announced.
 *
 * An older directory of the same name that cannot be read (damaged, or of a version that wrote what
 * it could not read) is replaced. Otherwise it would block its name for ever.
 *
 * Thread: the caller's. This file does not fold, and does not decide when a snapshot is written. */
#include "exporter/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "exporter/full.h"
#include "snapshot_folder.h"
#include "snapshot_pace.h"

enum { SYNC_BYTES = 8 << 20, NAP_MS = 50, NS_PER_MS = 1000000, CREATE_MODE = 0600, QUOTED_MAX = 2200, LOOKS_MAX = 8 };

/* A file that is being written. */
struct part {
    struct fr_manifest_file file;
    struct fr_sha256_stream *hash;
    uint64_t unsynced;
};

struct writing {
    const struct fr_snapshot_options *options;
    const struct fr_disk *disk;
    const char *dir; /* the temporary one */
    struct fr_manifest manifest;
    size_t files_capacity;
    struct part *parts; /* [np] files of the table or kind that is being written */
    enum fr_delta_kind kind;
    char table[64];
    uint64_t begin_ns, written;
    struct fr_snapshot_pace pace;
    struct fr_buffer framed;
    struct fr_err *err;
};

/* ---- files ---- */

static enum fr_status open_part(struct writing *w, const struct part *part, int flags, char path[PATH_MAX], int *fd)
{
    enum fr_status status = fr_snapshot_join(path, w->dir, part->file.name, w->err);
    if (status != FR_OK)
        return status;
    *fd = w->disk->open(w->disk->self, path, flags | O_CLOEXEC, CREATE_MODE);
    return *fd >= 0 ? FR_OK : fr_disk_error(w->err, "write", path, errno);
}

static enum fr_status close_part(struct writing *w, int fd, const char *path, enum fr_status status)
{
    if (w->disk->close(w->disk->self, fd) != 0 && status == FR_OK)
        return fr_err_set(w->err, FR_E_IO, "cannot close %s: %s", path, strerror(errno));
    return status;
}

static enum fr_status append(struct writing *w, struct part *part, const void *bytes, size_t size)
{
    char path[PATH_MAX];
    int fd = -1;
    enum fr_status status = open_part(w, part, O_WRONLY | O_CREAT, path, &fd);
    if (status != FR_OK)
        return status;
    status = fr_disk_write(w->disk, fd, bytes, size, part->file.bytes, path, w->err);
    part->unsynced += size;
    if (status == FR_OK && part->unsynced >= SYNC_BYTES) {
        status = fr_disk_sync(w->disk, fd, path, w->err);
        part->unsynced = 0;
    }
    part->file.bytes += size;
    fr_sha256_stream_update(part->hash, bytes, size);
    return close_part(w, fd, path, status);
}

/* Ends a file: syncs it and adds it to the manifest. */
static enum fr_status end_part(struct writing *w, struct part *part)
{
    char path[PATH_MAX];
    int fd = -1;
    enum fr_status status = FR_OK;
    if (part->unsynced > 0) {
        status = open_part(w, part, O_WRONLY, path, &fd);
        if (status == FR_OK)
            status = close_part(w, fd, path, fr_disk_sync(w->disk, fd, path, w->err));
    }
    struct fr_manifest *manifest = &w->manifest;
    if (manifest->n_files == FR_MANIFEST_FILES_MAX)
        return fr_err_set(w->err, FR_E_LIMIT, "more than %d files", FR_MANIFEST_FILES_MAX);
    if (manifest->n_files == w->files_capacity) {
        w->files_capacity = w->files_capacity ? 2 * w->files_capacity : 64;
        manifest->files = fr_realloc(manifest->files, w->files_capacity, sizeof(*manifest->files));
    }
    part->file.sha256 = fr_sha256_stream_end(part->hash);
    manifest->files[manifest->n_files++] = part->file;
    part->file = (struct fr_manifest_file){0};
    part->unsynced = 0;
    return status;
}

static enum fr_status end_parts(struct writing *w)
{
    enum fr_status status = FR_OK;
    for (uint32_t p = 0; p < w->manifest.np && status == FR_OK; p++)
        if (w->parts[p].file.name[0])
            status = end_part(w, &w->parts[p]);
    return status;
}

/* ---- records ---- */

static struct fr_snapshot_times times_now(const struct writing *w)
{
    return (struct fr_snapshot_times){.mono_ns = fr_mono_ns(w->options->clock),
                                      .process_ns = fr_clock_process_ns(),
                                      .thread_ns = fr_clock_thread_ns()};
}

/* Waits until the rate allows the bytes that are written, and until the next record is within the
 * snapshot's share of the processors. */
static enum fr_status keep_rate(struct writing *w)
{
    const struct fr_snapshot_options *options = w->options;
    const struct fr_snapshot_times ended = times_now(w);
    uint64_t until = options->awaited ? 0 : fr_snapshot_pace_end(&w->pace, &ended);
    for (;;) {
        if (options->progress)
            options->progress(options->self);
        if (options->stop && atomic_load(options->stop))
            return fr_err_set(w->err, FR_E_CANCELLED, "the snapshot was given up because the daemon stops");
        uint64_t now = fr_mono_ns(options->clock);
        double seconds = (double)(now - w->begin_ns) / 1e9;
        if (now >= until && (options->rate == 0 || (double)w->written <= seconds * (double)options->rate)) {
            fr_snapshot_pace_begin(&w->pace, now);
            return FR_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_MS * (long)NS_PER_MS / 10}, NULL);
    }
}

static void name_part(struct part *part, const struct fr_delta_record *record)
{
    switch (record->kind) {
    case FR_DELTA_MODEL:
        snprintf(part->file.name, sizeof(part->file.name), "model.delta");
        break;
    case FR_DELTA_DENSE:
        snprintf(part->file.name, sizeof(part->file.name), "dense.delta");
        break;
    case FR_DELTA_COMMIT:
        snprintf(part->file.name, sizeof(part->file.name), "commit.%" PRIu32 ".delta", record->partition);
        break;
    case FR_DELTA_ROWS:
        snprintf(part->file.table, sizeof(part->file.table), "%.*s", (int)record->rows.table.size,
                 record->rows.table.bytes);
        snprintf(part->file.name, sizeof(part->file.name), "rows.%s.%" PRIu32 ".delta", part->file.table,
                 record->partition);
        break;
    case FR_DELTA_DROP:
    case FR_DELTA_REWIND:
    case FR_DELTA_UNKNOWN:
        break;
    }
    part->file.partition = record->partition;
}

static bool same_group(const struct writing *w, const struct fr_delta_record *record)
{
    if (record->kind != w->kind)
        return false;
    return record->kind != FR_DELTA_ROWS || (strlen(w->table) == record->rows.table.size &&
                                             memcmp(w->table, record->rows.table.bytes, record->rows.table.size) == 0);
}

static enum fr_status keep(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    (void)piece;
    struct writing *w = self;
    struct fr_delta_record record;
    FR_CHECK(partition < w->manifest.np && size <= UINT32_MAX);
    enum fr_status status = fr_delta_read(bytes, size, &record, w->err);
    if (status == FR_OK && !same_group(w, &record)) {
        status = end_parts(w);
        w->kind = record.kind;
        if (record.kind == FR_DELTA_ROWS)
            snprintf(w->table, sizeof(w->table), "%.*s", (int)record.rows.table.size, record.rows.table.bytes);
    }
    if (status != FR_OK)
        return status;
    struct part *part = &w->parts[partition];
    if (!part->file.name[0])
        name_part(part, &record);
    FR_CHECK(part->file.name[0] != '\0');
    if (record.kind == FR_DELTA_ROWS)
        part->file.rows += record.rows.n_rows;
    fr_buffer_clear(&w->framed);
    fr_put_u32(&w->framed, (uint32_t)size);
    fr_buffer_append(&w->framed, bytes, size);
    status = append(w, part, w->framed.data, w->framed.size);
    w->written += w->framed.size;
    return status == FR_OK ? keep_rate(w) : status;
}

/* ---- the manifest ---- */

static enum fr_status describe(struct writing *w, const struct fr_export_full *full)
{
    struct fr_manifest *manifest = &w->manifest;
    const struct fr_codec_settings *settings = fr_export_full_settings(full);
    const struct fr_durable_folded_epoch epoch = fr_export_full_epoch(full);
    const struct fr_delta_commit *commit = fr_export_full_commit(full);
    snprintf(manifest->model, sizeof(manifest->model), "%s", settings->model);
    snprintf(manifest->topic, sizeof(manifest->topic), "%s", w->options->topic);
    manifest->fp = settings->fp;
    manifest->timeline = epoch.timeline;
    manifest->epoch = epoch.epoch;
    manifest->digest = fr_sha256_u64(&epoch.digest);
    manifest->t_ms = commit->t_ms < 0 ? 0 : (uint64_t)commit->t_ms;
    manifest->wm_ms = commit->wm_ms < 0 ? 0 : (uint64_t)commit->wm_ms;
    manifest->np = settings->np;
    manifest->offsets = fr_alloc(commit->n_offsets + 1u, sizeof(*manifest->offsets));
    for (uint32_t i = 0; i < commit->n_offsets; i++) {
        struct fr_manifest_offset *offset = &manifest->offsets[manifest->n_offsets++];
        snprintf(offset->topic, sizeof(offset->topic), "%s", commit->offsets[i].topic);
        offset->partition = (uint32_t)commit->offsets[i].partition;
        offset->next_offset = commit->offsets[i].next_offset < 0 ? 0 : (uint64_t)commit->offsets[i].next_offset;
    }
    if (w->options->delta_offsets && w->options->n_delta_offsets == settings->np) {
        manifest->delta_offsets = fr_alloc(settings->np, sizeof(*manifest->delta_offsets));
        memcpy(manifest->delta_offsets, w->options->delta_offsets, settings->np * sizeof(*manifest->delta_offsets));
    }
    w->parts = fr_alloc(settings->np, sizeof(*w->parts));
    for (uint32_t p = 0; p < settings->np; p++)
        w->parts[p].hash = fr_sha256_stream_new();
    return FR_OK;
}

/* Checks that a reader of the text gets the same manifest. */
static enum fr_status read_back(const struct fr_buffer *text, struct fr_err *err)
{
    struct fr_manifest manifest = {0};
    struct fr_buffer again = {0};
    struct fr_err why = {0};
    enum fr_status status = fr_manifest_parse(text->data, text->size, &manifest, &why);
    if (status != FR_OK) {
        status = fr_err_set(
            err, FR_E_STATE,
            "the snapshot was not kept, because replicas could not read its manifest: %s (a defect: report it)",
            why.text);
    } else {
        fr_manifest_print(&manifest, &again);
        if (!manifest.summed || again.size != text->size || memcmp(again.data, text->data, text->size) != 0)
            status = fr_err_set(err, FR_E_STATE,
                                "the snapshot was not kept: its manifest reads back differently (a defect: report it)");
    }
    fr_buffer_release(&again);
    fr_manifest_release(&manifest);
    return status;
}

static enum fr_status finish(struct writing *w, struct fr_snapshot *out)
{
    struct fr_buffer text = {0};
    char path[PATH_MAX];
    enum fr_status status = end_parts(w);
    if (status == FR_OK)
        status = fr_snapshot_join(path, w->dir, fr_manifest_file_name, w->err);
    if (status == FR_OK) {
        fr_manifest_print(&w->manifest, &text);
        status = read_back(&text, w->err);
    }
    if (status == FR_OK)
        /* this syncs the directory, too */
        status = fr_file_replace(w->disk, path, text.data, text.size, w->err);
    if (status == FR_OK)
        fr_snapshot_describe(&w->manifest, &text, out);
    fr_buffer_release(&text);
    return status;
}

static enum fr_status fill(struct writing *w, struct fr_export_full *full)
{
    uint64_t saturated = 0;
    enum fr_status status = FR_OK;
    const struct fr_snapshot_times now = times_now(w);
    w->begin_ns = now.mono_ns;
    fr_snapshot_pace_init(&w->pace, (double)fr_machine_processors(fr_machine()), &now);
    while (status == FR_OK)
        status = fr_export_full_next(full, keep, w, &saturated, w->err);
    return status == FR_EOF ? FR_OK : status;
}

/* ---- the whole snapshot ---- */

static enum fr_status open_full(const struct fr_snapshot_options *options, struct fr_export_full **full,
                                struct fr_err *err)
{
    enum fr_status status = FR_AGAIN;
    for (unsigned look = 0; look < LOOKS_MAX && status == FR_AGAIN; look++)
        status = fr_export_full_open(options->durable, options->quantize, full, err);
    return status == FR_AGAIN
               ? fr_err_set(err, FR_E_CANCELLED,
                            "no snapshot could begin between two folds: ask again, or raise unfolded_max")
               : status;
}

/* Examines a directory of the same name. *replaces: there is one, and it must make way.
 * FR_E_EXISTS: there is a snapshot, and *out describes it. */
static enum fr_status check_existing(struct writing *w, const char *path, bool *replaces, struct fr_snapshot *out)
{
    char quoted[QUOTED_MAX];
    struct stat info;
    struct fr_err why = {0};
    *replaces = lstat(path, &info) == 0;
    if (!*replaces)
        return FR_OK;
    switch (fr_snapshot_read(path, out, &why)) {
    case FR_OK:
        return fr_err_set(w->err, FR_E_EXISTS, "%s exists already: nothing changed since", path);
    case FR_E_INVALID:
    case FR_E_CORRUPT:
    case FR_E_NOT_FOUND: /* the directory has no manifest */
        fr_log(FR_LOG_WARN, "snapshot", "replaced", "name=%s reason=%s", strrchr(path, '/') + 1,
               fr_log_quote(quoted, sizeof(quoted), why.text));
        return FR_OK;
    default: /* the snapshot is of a later version, or cannot be read now */
        return fr_err_set(w->err, why.status, "%s", why.text);
    }
}

/* Renames the new directory to its name, and removes an older directory of that name. After a crash
 * the sweep removes the older directory. */
static enum fr_status name_directory(struct writing *w, const char *part, const char *path, bool replaces)
{
    char old[PATH_MAX];
    enum fr_status status = FR_OK;
    if (replaces)
        status = fr_snapshot_aside(path, old, w->err);
    if (status == FR_OK && w->disk->rename(w->disk->self, part, path) != 0)
        status = fr_err_set(w->err, FR_E_IO, "cannot rename %s to %s: %s", part, path, strerror(errno));
    if (status == FR_OK && w->disk->sync_dir(w->disk->self, w->options->dir) != 0)
        status = fr_err_set(w->err, FR_E_IO, "cannot sync %s: %s", w->options->dir, strerror(errno));
    struct fr_err ignored = {0};
    if (replaces && status == FR_OK)
        (void)!fr_dir_remove(w->disk, old, &ignored);
    return status;
}

/* Writes everything under a temporary name, syncs it, and renames the directory. */
static enum fr_status write_all(struct writing *w, struct fr_export_full *full, struct fr_snapshot *out)
{
    char name[FR_MANIFEST_NAME_MAX], path[PATH_MAX], part[PATH_MAX];
    bool replaces = false;
    enum fr_status status = fr_manifest_name(&w->manifest, name);
    if (status != FR_OK)
        return fr_err_set(w->err, status, "the snapshot's name is too long");
    status = fr_snapshot_join(path, w->options->dir, name, w->err);
    if (status == FR_OK)
        status = check_existing(w, path, &replaces, out);
    if (status == FR_OK)
        status = fr_snapshot_temporary(w->options->dir, name, part, w->err);
    if (status == FR_OK)
        status = fr_dir_make(part, w->err);
    if (status != FR_OK)
        return status;
    w->dir = part;
    struct fr_snapshot written = {0};
    status = fill(w, full);
    if (status == FR_OK)
        status = finish(w, &written);
    if (status == FR_OK)
        status = name_directory(w, part, path, replaces);
    if (status == FR_OK)
        *out = written;
    struct fr_err ignored = {0}; /* what is left is swept at the next start */
    if (status != FR_OK)
        (void)!fr_dir_remove(w->disk, part, &ignored);
    return status;
}

enum fr_status fr_snapshot_write(const struct fr_snapshot_options *options, struct fr_snapshot *out, struct fr_err *err)
{
    struct writing w = {.options = options, .disk = fr_disk_system(), .kind = FR_DELTA_UNKNOWN, .err = err};
    struct fr_export_full *full = NULL;
    enum fr_status status = fr_snapshot_check_place(options->dir, err);
    if (status == FR_OK)
        status = fr_dir_make(options->dir, err);
    if (status == FR_OK)
        status = open_full(options, &full, err);
    if (status == FR_OK)
        status = describe(&w, full);
    if (status == FR_OK)
        status = write_all(&w, full, out);
    for (uint32_t p = 0; w.parts && p < w.manifest.np; p++)
        fr_sha256_stream_free(w.parts[p].hash);
    free(w.parts);
    fr_buffer_release(&w.framed);
    fr_manifest_release(&w.manifest);
    fr_export_full_close(full);
    return status;
}
