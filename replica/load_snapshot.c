/* Makes a view from a snapshot (docs/formats/snapshots.md).
 *
 * Records go into a draft one by one. The draft is published after every file's sum has matched,
 * every followed partition had its pieces and its commit, and every parameter its elements. So a
 * directory that is damaged anywhere changes nothing. Loading needs the memory of the rows and of
 * one record.
 *
 * Owner: the feeder. This file does not write snapshots. */
#include "load_snapshot.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "codec/manifest.h"
#include "draft.h"

struct partition_seen {
    uint32_t n_pieces;
    uint64_t n_rows, n_drops;
    bool committed;
};

struct loading {
    struct freshet_replica *replica;
    const char *dir;
    struct fr_manifest manifest;
    const struct fr_manifest_file *file;
    struct fr_served_model *model;
    struct fr_draft draft;
    struct partition_seen *seen; /* [np] */
    struct freshet_replica_info info;
    struct fr_err *err;
    enum fr_status status;
};

static bool follows(const struct freshet_replica *replica, uint32_t partition)
{
    return replica->follow_all || replica->follow[partition];
}

/* ---- what may be loaded ---- */

static enum fr_status check_manifest(const struct loading *loading)
{
    const struct freshet_replica *replica = loading->replica;
    const struct fr_manifest *manifest = &loading->manifest;
    if (replica->model_name[0] && strcmp(replica->model_name, manifest->model) != 0)
        return fr_err_set(loading->err, FR_E_MISMATCH, "%s is a snapshot of model %s, not of %s", loading->dir,
                          manifest->model, replica->model_name);
    if (replica->follow_highest >= manifest->np)
        return fr_err_set(loading->err, FR_E_MISMATCH, "partition %" PRIu32 " is to be followed, and %s has %" PRIu32,
                          replica->follow_highest, loading->dir, manifest->np);
    if (manifest->timeline < replica->timeline ||
        (manifest->timeline == replica->timeline && manifest->epoch <= replica->epoch))
        return fr_err_set(loading->err, FR_E_STATE,
                          "%s is of timeline %" PRIu64 ", epoch %" PRIu64 ", and timeline %" PRIu64 ", epoch %" PRIu64
                          " is served already",
                          loading->dir, manifest->timeline, manifest->epoch, replica->timeline, replica->epoch);
    return FR_OK;
}

static enum fr_status not_of_it(const struct loading *loading, const char *what)
{
    return fr_err_set(loading->err, FR_E_CORRUPT, "%s/%s: %s", loading->dir, loading->file->name, what);
}

/* ---- records ---- */

static enum fr_status refused(const struct loading *loading)
{
    return fr_err_set(loading->err, FR_E_NO_MEMORY, "memory for %s was refused", loading->dir);
}

/* Reserves the followed rows of each table by the manifest's count, limited by the file size: a row
 * takes at least its key. */
static bool reserve_tables(struct loading *loading)
{
    const struct fr_conf *conf = loading->model->conf;
    for (uint32_t t = 0; t < conf->n_tables; t++) {
        uint64_t rows = 0;
        for (size_t i = 0; i < loading->manifest.n_files; i++) {
            const struct fr_manifest_file *file = &loading->manifest.files[i];
            if (follows(loading->replica, file->partition) && strcmp(file->table, conf->tables[t].name) == 0)
                rows += file->rows < file->bytes / sizeof(uint64_t) ? file->rows : file->bytes / sizeof(uint64_t);
        }
        if (!fr_row_table_reserve(loading->draft.view->tables[t].rows, rows))
            return false;
    }
    return true;
}

static enum fr_status load_model(struct loading *loading, const struct fr_delta_record *record)
{
    if (loading->model)
        return not_of_it(loading, "a second model record");
    enum fr_status status = fr_served_model_new(record, &loading->replica->memory, &loading->model, loading->err);
    if (status != FR_OK)
        return status;
    if (!fr_draft_begin(&loading->draft, loading->replica, loading->model, true) || !reserve_tables(loading))
        return refused(loading);
    return FR_OK;
}

static enum fr_status check_commit(struct loading *loading, const struct fr_delta_record *record,
                                   struct partition_seen *seen)
{
    if (record->commit.n_pieces != seen->n_pieces || record->commit.n_rows != seen->n_rows ||
        record->commit.n_drops != seen->n_drops)
        return not_of_it(loading, "a commit of other pieces or rows than those before it");
    seen->committed = true;
    loading->info.watermark_ms = record->commit.wm_ms;
    loading->info.samples = record->commit.samples;
    loading->info.commit_wall_ms = record->commit.t_ms;
    return FR_OK;
}

static enum fr_status load_piece(struct loading *loading, const struct fr_delta_record *record,
                                 struct partition_seen *seen)
{
    seen->n_rows += record->kind == FR_DELTA_ROWS ? record->rows.n_rows : 0;
    seen->n_drops += record->kind == FR_DELTA_DROP ? record->drop.n_rows : 0;
    if (!loading->model)
        return record->kind == FR_DELTA_UNKNOWN ? FR_OK : not_of_it(loading, "a record before the model's");
    enum fr_status status = fr_served_model_check(loading->model, record, loading->err);
    if (status != FR_OK)
        return status;
    return fr_draft_take(&loading->draft, record) ? FR_OK : refused(loading);
}

static enum fr_status load_record(void *self, const void *bytes, size_t size, struct fr_err *err)
{
    struct loading *loading = self;
    const struct fr_manifest *manifest = &loading->manifest;
    struct fr_delta_record record;
    enum fr_status status = fr_delta_read(bytes, size, &record, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "%s/%s", loading->dir, loading->file->name);
    if (record.timeline != manifest->timeline || record.epoch != manifest->epoch || record.from != 1 ||
        record.digest != manifest->digest || record.fp != manifest->fp || record.np != manifest->np ||
        record.partition != loading->file->partition || record.model.size != strlen(manifest->model) ||
        memcmp(record.model.bytes, manifest->model, record.model.size) != 0)
        return not_of_it(loading, "a record of another epoch, model or partition than the manifest's");
    struct partition_seen *seen = &loading->seen[record.partition];
    if (seen->committed || record.piece != seen->n_pieces)
        return not_of_it(loading, "pieces do not follow one another");
    if (record.kind == FR_DELTA_COMMIT)
        return check_commit(loading, &record, seen);
    seen->n_pieces += 1;
    return record.kind == FR_DELTA_MODEL ? load_model(loading, &record) : load_piece(loading, &record, seen);
}

/* ---- loading a whole snapshot ---- */

static enum fr_status check_whole(const struct loading *loading)
{
    for (uint32_t p = 0; p < loading->manifest.np; p++)
        if (follows(loading->replica, p) && !loading->seen[p].committed)
            return fr_err_set(loading->err, FR_E_CORRUPT, "%s has no commit of partition %" PRIu32, loading->dir, p);
    if (!loading->model)
        return fr_err_set(loading->err, FR_E_CORRUPT, "%s has no model record", loading->dir);
    return fr_served_model_check_filled(loading->model, true, loading->err);
}

static void read_all(void *self)
{
    struct loading *loading = self;
    loading->status = fr_manifest_read(loading->dir, &loading->manifest, NULL, NULL, loading->err);
    if (loading->status == FR_OK)
        loading->status = check_manifest(loading);
    if (loading->status != FR_OK)
        return;
    loading->seen = fr_alloc(loading->manifest.np, sizeof(*loading->seen));
    for (size_t i = 0; i < loading->manifest.n_files && loading->status == FR_OK; i++) {
        loading->file = &loading->manifest.files[i];
        if (follows(loading->replica, loading->file->partition))
            loading->status = fr_manifest_records(loading->dir, loading->file, load_record, loading, loading->err);
    }
    if (loading->status == FR_OK)
        loading->status = check_whole(loading);
}

/* Lets the chain continue after the snapshot. Waiting later epochs of its timeline are kept. */
static void continue_chain(struct freshet_replica *replica, const struct loading *loading, uint64_t *last_committed,
                           int64_t *next_offsets)
{
    const struct fr_manifest *manifest = &loading->manifest;
    if (!replica->model_name[0])
        memcpy(replica->model_name, manifest->model, sizeof(replica->model_name));
    fr_waiting_clear(&replica->waiting);
    free(replica->last_committed);
    free(replica->next_offsets);
    replica->last_committed = last_committed;
    replica->next_offsets = next_offsets;
    replica->np = manifest->np;
    replica->n_followed = 0;
    for (uint32_t p = 0; p < manifest->np; p++) {
        replica->follow[p] |= replica->follow_all;
        replica->n_followed += replica->follow[p];
        next_offsets[p] = manifest->delta_offsets && manifest->delta_offsets[p] <= INT64_MAX
                              ? (int64_t)manifest->delta_offsets[p]
                              : -1;
    }
    memset(replica->digests, 0, sizeof(replica->digests));
    replica->timeline = manifest->timeline;
    replica->epoch = manifest->epoch;
    replica->digest = manifest->digest;
    replica->digests[manifest->epoch % FR_DIGESTS_KEPT].epoch = manifest->epoch;
    replica->digests[manifest->epoch % FR_DIGESTS_KEPT].digest = manifest->digest;
    memset(replica->begun, 0, sizeof(replica->begun));
    atomic_store_explicit(&replica->newest_epoch, manifest->epoch, memory_order_relaxed);
    replica->reset_pending = false;
    replica->stopped = FRESHET_OK;
    replica->info = loading->info;
}

static enum fr_status publish(struct loading *loading)
{
    struct freshet_replica *replica = loading->replica;
    const struct fr_manifest *manifest = &loading->manifest;
    const size_t np = manifest->np;
    uint64_t *last_committed = fr_replica_memory_try(&replica->memory, 16, np * sizeof(*last_committed));
    int64_t *next_offsets = fr_replica_memory_try(&replica->memory, 16, np * sizeof(*next_offsets));
    struct freshet_replica_info *info = &loading->info;
    info->timeline = manifest->timeline;
    info->epoch = manifest->epoch;
    info->digest = manifest->digest;
    info->fp = manifest->fp;
    info->np = manifest->np;
    info->epochs_applied = replica->info.epochs_applied + 1;
    info->records = replica->info.records;
    info->duplicates = replica->info.duplicates;
    info->refused = replica->info.refused;
    info->reloads = replica->info.reloads + 1;
    if (!last_committed || !next_offsets || !fr_draft_publish(&loading->draft, info)) {
        free(last_committed);
        free(next_offsets);
        return refused(loading);
    }
    loading->model = NULL; /* now the view owns the model */
    continue_chain(replica, loading, last_committed, next_offsets);
    fr_views_settle(&replica->views);
    return FR_OK;
}

static enum fr_status load(struct freshet_replica *replica, const char *dir, struct fr_err *err)
{
    /* The reader's memory, which is one record, is outside the handle's limit and is freed
     * afterwards. */
    struct fr_replica_memory reading = {0};
    struct loading loading = {.replica = replica, .dir = dir, .err = err};
    enum fr_status status = fr_replica_memory_run(&reading, read_all, &loading) ? loading.status : refused(&loading);
    if (status == FR_OK)
        status = publish(&loading);
    if (status != FR_OK) {
        fr_draft_abandon(&loading.draft);
        fr_served_model_free(loading.model);
    }
    fr_replica_memory_release(&reading);
    return status;
}

/* ---- which snapshot ---- */

/* Handles the case that, after a gap, the snapshot to load is the served one. Nothing is read, and
 * the records that follow it are taken when they come, as after its first load. That helps where
 * records were passed over, so it is done once per epoch: where they were deleted, the next gap is
 * the same. */
static bool is_served(struct freshet_replica *replica, const char *path)
{
    struct fr_manifest manifest = {0};
    struct fr_err ignored = {0};
    if (replica->stopped != FRESHET_E_GAP || replica->taken_back == replica->epoch ||
        fr_manifest_read(path, &manifest, NULL, NULL, &ignored) != FR_OK)
        return false;
    bool same = manifest.timeline == replica->timeline && manifest.epoch == replica->epoch &&
                manifest.digest == replica->digest && strcmp(manifest.model, replica->model_name) == 0;
    fr_manifest_release(&manifest);
    return same;
}

static enum fr_status load_or_keep(struct freshet_replica *replica, const char *path, struct fr_err *err)
{
    if (!is_served(replica, path))
        return load(replica, path, err);
    fr_waiting_clear(&replica->waiting);
    memset(replica->last_committed, 0, replica->np * sizeof(*replica->last_committed));
    memset(replica->begun, 0, sizeof(replica->begun));
    replica->stopped = FRESHET_OK;
    replica->taken_back = replica->epoch;
    return FR_OK;
}

enum fr_status fr_replica_load_snapshot(struct freshet_replica *replica, const char *directory, struct fr_err *err)
{
    char path[PATH_MAX];
    enum fr_status status = fr_manifest_find(directory, path, err);
    return status == FR_OK ? load_or_keep(replica, path, err) : status;
}

/* The snapshot that a rewind names belongs to the rewind's timeline, or to the earlier timeline
 * that the new one continues. */
static bool load_named(struct freshet_replica *replica, const struct fr_delta_record *rewind, struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_delta_text snap = rewind->rewind.snap;
    if (snap.size == 0 || snap.bytes[0] == '.' || memchr(snap.bytes, '/', snap.size) ||
        snprintf(path, sizeof(path), "%s/%.*s", replica->snapshots, (int)snap.size, snap.bytes) >= (int)sizeof(path))
        return false;
    /* it may be older than what is served: a rewind goes back */
    uint64_t timeline = replica->timeline, epoch = replica->epoch;
    replica->timeline = replica->epoch = 0;
    if (load(replica, path, err) != FR_OK) {
        replica->timeline = timeline;
        replica->epoch = epoch;
        return false;
    }
    return true;
}

bool fr_replica_reload(struct freshet_replica *replica, const struct fr_delta_record *record)
{
    char path[PATH_MAX];
    struct fr_err err = {0};
    if (!replica->snapshots)
        return false;
    bool found = fr_manifest_find(replica->snapshots, path, &err) == FR_OK;
    if (found && strcmp(path, replica->tried) != 0) {
        snprintf(replica->tried, sizeof(replica->tried), "%s", path);
        if (load(replica, path, &err) == FR_OK && replica->timeline >= record->timeline)
            return true;
    }
    if (record->timeline <= replica->timeline || record->kind != FR_DELTA_REWIND ||
        !load_named(replica, record, &err) || replica->epoch != record->rewind.to)
        return false;
    replica->timeline = record->timeline;
    return true;
}

/* ---- the interface ---- */

static int status_of(enum fr_status status)
{
    switch (status) {
    case FR_OK:
        return FRESHET_OK;
    case FR_E_NO_MEMORY:
        return FRESHET_E_NO_MEMORY;
    case FR_E_NOT_FOUND:
        return FRESHET_E_NOT_FOUND;
    case FR_E_CORRUPT:
        return FRESHET_E_CORRUPT;
    case FR_E_MISMATCH:
        return FRESHET_E_MISMATCH;
    case FR_E_IO:
    case FR_E_DENIED:
        return FRESHET_E_IO;
    default:
        return FRESHET_E_INVALID;
    }
}

int freshet_replica_load(struct freshet_replica *replica, const char *directory, char *problem, size_t room)
{
    struct fr_err err = {0};
    enum fr_status status = fr_replica_load_snapshot(replica, directory, &err);
    if (room > 0)
        snprintf(problem, room, "%s", status == FR_OK ? "" : err.text);
    return status_of(status);
}

int64_t freshet_replica_next_offset(const struct freshet_replica *replica, uint32_t partition)
{
    return replica->next_offsets && partition < replica->np ? replica->next_offsets[partition] : -1;
}
