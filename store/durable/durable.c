/* The state directory as an object: open, close, read, trim, small files.
 *
 * A sync is tried once: after a failure it is unknown what the disk holds (Rebello et al. 2020), so
 * the object is dead, and the next open decides from the disk. A trim first writes the acknowledged
 * epoch into the mark, then deletes files, so an open can detect files that were removed otherwise.
 * Invariants and threads: durable.h, durable_internal.h. Publishing, retries and the time of a fold
 * are decided elsewhere. */
#include "durable_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/sum_line.h"

/* ---- life and death ---- */

enum fr_status fr_durable_die(struct fr_durable *durable, enum fr_status cause, struct fr_err *err)
{
    bool kept = cause == FR_E_CORRUPT || cause == FR_E_LIMIT || cause == FR_E_NO_DESCRIPTORS || cause == FR_E_DENIED;
    enum fr_status status = kept ? cause : FR_E_IO;
    if (err)
        err->status = status;
    pthread_mutex_lock(&durable->index);
    if (!durable->dead && err)
        durable->death = *err;
    durable->death.status = durable->dead ? durable->death.status : status;
    durable->dead = true;
    pthread_mutex_unlock(&durable->index);
    return status;
}

enum fr_status fr_durable_check(struct fr_durable *durable, bool writes, struct fr_err *err)
{
    if (writes && durable->read_only)
        return fr_err_set(err, FR_E_STATE, "%s is open read-only", durable->dir);
    pthread_mutex_lock(&durable->index);
    enum fr_status status = durable->dead ? durable->death.status : FR_OK;
    if (durable->dead) /* every later call gets the error that first killed the object */
        status = fr_err_set(err, status, "%.900s (nothing more is read or written)", durable->death.text);
    pthread_mutex_unlock(&durable->index);
    return status;
}

enum fr_status fr_durable_write_mark(struct fr_durable *durable, struct fr_hwm values, struct fr_err *err)
{
    values.sequence = durable->hwm.sequence + 1;
    values.salt = durable->order.salt;
    enum fr_status status = fr_hwm_write(durable->disk, durable->hwm_fd, durable->path_hwm, &values, err);
    if (status != FR_OK)
        return fr_durable_die(durable, status, err);
    durable->hwm = values;
    return FR_OK;
}

static char *path_below(const char *dir, const char *name)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = fr_alloc(1, size);
    snprintf(path, size, "%s/%s", dir, name);
    return path;
}

static struct fr_durable *make_object(const struct fr_durable_options *options)
{
    struct fr_durable *durable = fr_alloc(1, sizeof(*durable));
    *durable = (struct fr_durable){.read_only = options->read_only, .lock_fd = -1, .hwm_fd = -1};
    durable->dir = fr_strdup(options->dir);
    durable->path_hwm = path_below(options->dir, "hwm");
    durable->path_cold = path_below(options->dir, "cold");
    durable->path_fold = path_below(options->dir, "fold");
    durable->disk = options->disk ? options->disk : fr_disk_system();
    durable->journal = (struct fr_journal){.disk = durable->disk,
                                           .descriptors = fr_journal_descriptors_new(!options->read_only),
                                           .dir = path_below(options->dir, "journal"),
                                           .writes = !options->read_only};
    durable->journal_file_max = options->journal_file_max ? options->journal_file_max : DURABLE_JOURNAL_FILE_MAX;
    durable->fold_bytes = options->fold_bytes;
    durable->merged = options->merged;
    durable->merged_self = options->merged_self;
    durable->job = options->job;
    durable->keep_bytes = options->keep_bytes ? options->keep_bytes : DURABLE_KEEP_BYTES;
    durable->sst_bytes_max = DURABLE_SST_BYTES_MAX;
    durable->order = fr_order_of(options->salt);
    durable->head_size = options->head_size;
    durable->head = fr_alloc(1, options->head_size + 1);
    if (options->head_size > 0)
        memcpy(durable->head, options->head, options->head_size);
    FR_CHECK(pthread_mutex_init(&durable->index, NULL) == 0);
    FR_CHECK(pthread_mutex_init(&durable->mark, NULL) == 0);
    return durable;
}

static enum fr_status prepare_directory(struct fr_durable *durable, struct fr_err *err)
{
    const char *const folders[] = {durable->dir, durable->journal.dir, durable->path_cold, durable->path_fold};
    for (size_t i = 0; i < FR_ARRAY_LEN(folders); i++) {
        enum fr_status status = fr_dir_make(folders[i], err);
        if (status != FR_OK)
            return status;
    }
    char *path = path_below(durable->dir, "LOCK");
    enum fr_status status = fr_file_lock(path, &durable->lock_fd, err);
    free(path);
    return status;
}

enum fr_status fr_durable_open(const struct fr_durable_options *options, struct fr_durable **out, struct fr_err *err)
{
    size_t length = options->dir ? strlen(options->dir) : 0;
    if (length == 0 || length > DURABLE_DIR_MAX)
        return fr_err_set(err, FR_E_INVALID, "state_dir is empty or longer than %d bytes", DURABLE_DIR_MAX);
    if (options->head_size > JOURNAL_HEAD_MAX)
        return fr_err_set(err, FR_E_LIMIT, "codec settings of %zu bytes; the journal's head holds %d",
                          options->head_size, JOURNAL_HEAD_MAX);
    struct fr_err local = {.status = FR_OK};
    struct fr_durable *durable = make_object(options);
    enum fr_status status = FR_OK;
    if (!durable->read_only)
        status = prepare_directory(durable, &local);
    if (status == FR_OK)
        status = fr_durable_recover(durable, &local);
    if (status == FR_OK && options->touch_bytes > 0)
        fr_durable_touch_spare(durable, options->touch_bytes);
    if (status != FR_OK) {
        if (err)
            *err = local;
        durable->dead = true; /* so that close writes nothing */
        fr_durable_close(durable);
        return status;
    }
    *out = durable;
    return FR_OK;
}

void fr_durable_close(struct fr_durable *durable)
{
    if (!durable)
        return;
    struct fr_err err = {.status = FR_OK};
    if (!durable->read_only && !durable->dead && durable->acked > durable->hwm.acked) {
        struct fr_hwm values = durable->hwm;
        values.acked = durable->acked;
        if (fr_durable_write_mark(durable, values, &err) != FR_OK)
            fr_log(FR_LOG_WARN, "durable", "mark_not_written", "reason=\"%s\"", err.text);
    }
    fr_durable_forget_prepared(durable);
    fr_cold_close(durable->cold);
    for (size_t i = 0; i < durable->journal.n_files; i++)
        fr_journal_file_free(&durable->journal, durable->journal.files[i]);
    fr_journal_descriptors_free(durable->journal.descriptors);
    free(durable->journal.files);
    free(durable->journal.dir);
    if (durable->hwm_fd >= 0)
        (void)durable->disk->close(durable->disk->self, durable->hwm_fd);
    if (durable->lock_fd >= 0)
        (void)close(durable->lock_fd); /* releases the lock */
    fr_durable_kept_release(durable);
    pthread_mutex_destroy(&durable->index);
    pthread_mutex_destroy(&durable->mark);
    free(durable->dir);
    free(durable->path_hwm);
    free(durable->path_cold);
    free(durable->path_fold);
    free(durable->head);
    free(durable);
}

void fr_durable_get_status(struct fr_durable *durable, struct fr_durable_status *out)
{
    struct fr_durable_status status = {0};
    if (durable->cold) {
        fr_cold_tend(durable->cold);
        status.level0_files = fr_cold_level0_files(durable->cold);
        status.cold_bytes = fr_cold_bytes(durable->cold);
        fr_cold_reads(durable->cold, &status.cold_asked, &status.cold_found);
    }
    pthread_mutex_lock(&durable->index);
    status.salt = durable->order.salt;
    status.timeline = durable->timeline;
    status.epoch = durable->epoch;
    status.digest = durable->digest;
    status.folded = durable->folded;
    status.acked = durable->acked;
    status.unfolded_bytes = durable->unfolded_bytes;
    status.folding = durable->folding;
    if (durable->journal.n_files > 0)
        status.journal_first = durable->journal.files[0]->first;
    for (size_t i = 0; i < durable->journal.n_files; i++)
        status.journal_bytes += durable->journal.files[i]->bytes;
    pthread_mutex_unlock(&durable->index);
    *out = status;
}

/* ---- timelines ---- */

enum fr_status fr_durable_begin_timeline(struct fr_durable *durable, uint64_t timeline, struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, true, err);
    pthread_mutex_lock(&durable->mark);
    for (int copy = 0; copy < 2 && status == FR_OK; copy++) {
        /* so that losing one copy does not undo this */
        struct fr_hwm values = durable->hwm;
        values.timeline = timeline;
        status = fr_durable_write_mark(durable, values, err);
    }
    if (status == FR_OK) {
        pthread_mutex_lock(&durable->index);
        FR_CHECK(timeline > durable->timeline);
        durable->timeline = timeline;
        pthread_mutex_unlock(&durable->index);
    }
    pthread_mutex_unlock(&durable->mark);
    return status;
}

uint64_t fr_durable_timeline_base(struct fr_durable *durable)
{
    uint64_t base = 0;
    pthread_mutex_lock(&durable->index);
    const struct fr_journal *journal = &durable->journal;
    for (size_t f = journal->n_files; f-- > 0 && base == 0;) {
        const struct fr_journal_file *file = journal->files[f];
        for (size_t e = file->n_epochs; e-- > 0 && base == 0;)
            if (file->epochs[e].timeline < durable->timeline)
                base = file->first + e;
    }
    pthread_mutex_unlock(&durable->index);
    return base;
}

/* ---- reading ---- */

struct fr_journal_file *fr_durable_acquire(struct fr_durable *durable, uint64_t epoch, struct fr_journal_epoch *out)
{
    pthread_mutex_lock(&durable->index);
    struct fr_journal_file *file = fr_journal_find(&durable->journal, epoch, out);
    if (file)
        file->refs++;
    pthread_mutex_unlock(&durable->index);
    return file;
}

void fr_durable_release(struct fr_durable *durable, struct fr_journal_file *file)
{
    pthread_mutex_lock(&durable->index);
    bool last = --file->refs == 0;
    pthread_mutex_unlock(&durable->index);
    if (last)
        fr_journal_file_free(&durable->journal, file);
}

enum fr_status fr_durable_begin_read(struct fr_durable *durable, uint64_t epoch, struct fr_journal_file **file,
                                     struct fr_journal_epoch *entry, struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK)
        return status;
    *file = fr_durable_acquire(durable, epoch, entry);
    if (!*file)
        return fr_err_set(err, FR_E_NOT_FOUND, "epoch %" PRIu64 " is not in the journal of %s", epoch, durable->dir);
    return FR_OK;
}

enum fr_status fr_durable_end_read(struct fr_durable *durable, struct fr_journal_file *file, enum fr_status status,
                                   struct fr_buffer *head, struct fr_err *err)
{
    if (status == FR_OK && head)
        fr_buffer_append(head, file->head, file->head_size);
    fr_durable_release(durable, file);
    /* not found: trimmed in between */
    bool harmless = status == FR_OK || status == FR_E_NOT_FOUND || durable->read_only;
    return harmless ? status : fr_durable_die(durable, status, err);
}

enum fr_status fr_durable_read_epoch(struct fr_durable *durable, uint64_t epoch, struct fr_buffer *bytes,
                                     struct fr_buffer *head, struct fr_err *err)
{
    struct fr_journal_file *file = NULL;
    struct fr_journal_epoch entry;
    enum fr_status status = fr_durable_begin_read(durable, epoch, &file, &entry, err);
    if (status != FR_OK)
        return status;
    if (bytes)
        status = fr_journal_read(&durable->journal, file, &entry, bytes, err);
    return fr_durable_end_read(durable, file, status, head, err);
}

enum fr_status fr_durable_newest_head(struct fr_durable *durable, struct fr_buffer *head, struct fr_err *err)
{
    pthread_mutex_lock(&durable->index);
    bool journal = durable->journal.n_files > 0;
    uint64_t epoch = durable->epoch;
    pthread_mutex_unlock(&durable->index);
    if (journal)
        return fr_durable_read_epoch(durable, epoch, NULL, head, err);
    return fr_durable_read_file(durable, DURABLE_HEAD_FILE, head, err);
}

enum fr_status fr_durable_head_after(struct fr_durable *durable, uint64_t folded, struct fr_buffer *head,
                                     struct fr_err *err)
{
    struct fr_durable_status status;
    fr_durable_get_status(durable, &status);
    if (folded >= status.epoch)
        return fr_durable_newest_head(durable, head, err);
    enum fr_status found = fr_durable_read_epoch(durable, folded + 1, NULL, head, err);
    fr_durable_get_status(durable, &status);
    return found == FR_E_NOT_FOUND && status.folded > folded ? FR_AGAIN : found;
}

enum fr_status fr_durable_digest(struct fr_durable *durable, uint64_t epoch, struct fr_sha256 *out)
{
    enum fr_status status = FR_OK;
    struct fr_journal_epoch entry;
    pthread_mutex_lock(&durable->index);
    const struct fr_journal *journal = &durable->journal;
    if (epoch == durable->epoch)
        *out = durable->digest;
    else if (fr_journal_find(journal, epoch, &entry))
        *out = entry.digest;
    else if (journal->n_files > 0 && epoch + 1 == journal->files[0]->first)
        *out = journal->files[0]->before;
    else
        status = FR_E_NOT_FOUND;
    pthread_mutex_unlock(&durable->index);
    return status;
}

/* ---- acknowledge and trim ---- */

/* How many of the oldest files hold only epochs <= limit; never the newest. The caller holds
 * index. */
static size_t count_droppable(const struct fr_durable *durable, uint64_t limit)
{
    const struct fr_journal *journal = &durable->journal;
    size_t n = 0;
    while (n + 1 < journal->n_files && journal_file_last(journal->files[n]) <= limit)
        n++;
    return n;
}

static enum fr_status unlink_files(struct fr_durable *durable, struct fr_journal_file **files, size_t n,
                                   struct fr_err *err)
{
    const struct fr_disk *disk = durable->disk;
    char path[PATH_MAX];
    for (size_t i = 0; i < n;
         /* oldest first; recovery takes the contiguous suffix if a power cut mixes the order */
         i++) {
        fr_journal_path(&durable->journal, files[i]->first, path);
        if (disk->unlink(disk->self, path) != 0)
            return fr_err_set(err, FR_E_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    if (fr_journal_sync_dir(&durable->journal) != 0)
        return fr_err_set(err, FR_E_IO, "cannot sync directory %s: %s", durable->journal.dir, strerror(errno));
    return FR_OK;
}

enum fr_status fr_durable_trim(struct fr_durable *durable, struct fr_err *err)
{
    pthread_mutex_lock(&durable->index);
    uint64_t acked = durable->acked;
    uint64_t limit = durable->spared < durable->folded ? durable->spared : durable->folded;
    size_t n = count_droppable(durable, limit);
    pthread_mutex_unlock(&durable->index);
    fr_durable_forget(durable, limit);
    if (n == 0)
        return FR_OK;
    enum fr_status status = FR_OK;
    pthread_mutex_lock(&durable->mark);
    if (durable->hwm.acked < acked) {
        struct fr_hwm values = durable->hwm;
        values.acked = acked;
        status = fr_durable_write_mark(durable, values, err);
    }
    pthread_mutex_unlock(&durable->mark);
    if (status != FR_OK)
        return status;

    pthread_mutex_lock(&durable->index);
    struct fr_journal *journal = &durable->journal;
    n = count_droppable(durable, limit); /* again: another trim may have happened */
    struct fr_journal_file **files = fr_alloc(n + 1, sizeof(struct fr_journal_file *));
    memcpy(files, journal->files, n * sizeof(struct fr_journal_file *));
    memmove(journal->files, journal->files + n, (journal->n_files - n) * sizeof(struct fr_journal_file *));
    journal->n_files -= n;
    pthread_mutex_unlock(&durable->index);
    if (n > 0)
        status = unlink_files(durable, files, n, err);
    for (size_t i = 0; i < n; i++)
        fr_durable_release(durable, files[i]);
    free(files);
    return status == FR_OK ? FR_OK : fr_durable_die(durable, status, err);
}

enum fr_status fr_durable_acknowledge(struct fr_durable *durable, uint64_t acked, struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, true, err);
    if (status != FR_OK)
        return status;
    pthread_mutex_lock(&durable->index);
    bool is_durable = acked <= durable->epoch;
    if (is_durable && acked > durable->acked)
        durable->acked = acked;
    durable->spared = acked;
    pthread_mutex_unlock(&durable->index);
    FR_CHECK(is_durable); /* published before durable would break P3 */
    return fr_durable_trim(durable, err);
}

/* ---- small files ---- */

static enum fr_status small_path(struct fr_durable *durable, const char *name, char **path, struct fr_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    static const char *const ours[] = {"hwm", "journal", "cold", "fold", "LOCK", DURABLE_RESTORING_FILE};
    size_t length = strlen(name);
    bool valid = length > 0 && length <= 64 && name[0] != '.' && strspn(name, letters) == length;
    for (size_t i = 0; i < FR_ARRAY_LEN(ours); i++)
        valid = valid && strcmp(name, ours[i]) != 0;
    if (!valid)
        return fr_err_set(err, FR_E_INVALID, "\"%.64s\" is no name for a file of the state directory", name);
    *path = path_below(durable->dir, name);
    return FR_OK;
}

enum fr_status fr_durable_write_file(struct fr_durable *durable, const char *name, const void *bytes, size_t size,
                                     struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, true, err);
    char *path = NULL;
    if (status == FR_OK)
        status = small_path(durable, name, &path, err);
    if (status != FR_OK)
        return status;
    struct fr_buffer text = {0};
    fr_buffer_append(&text, bytes, size);
    fr_sum_line_append(&text);
    status = text.size > DURABLE_FILE_BYTES_MAX ? fr_err_set(err, FR_E_LIMIT, "%s: %zu bytes are too many", path, size)
                                                : fr_file_replace(durable->disk, path, text.data, text.size, err);
    fr_buffer_release(&text);
    free(path);
    bool harmless = status == FR_OK || status == FR_E_LIMIT || status == FR_E_NO_SPACE;
    return harmless ? status : fr_durable_die(durable, status, err);
}

enum fr_status fr_durable_read_file(struct fr_durable *durable, const char *name, struct fr_buffer *out,
                                    struct fr_err *err)
{
    char *path = NULL;
    struct fr_buffer text = {0};
    enum fr_status status = small_path(durable, name, &path, err);
    if (status == FR_OK)
        status = fr_file_read_regular(path, DURABLE_FILE_BYTES_MAX, &text, err);
    if (status == FR_OK && fr_sum_line_take(&text) == FR_E_CORRUPT)
        status = fr_err_set(err, FR_E_CORRUPT,
                            "%s is not as it was written (its checksum is another): restore it from a backup", path);
    if (status == FR_OK)
        fr_buffer_append(out, text.data, text.size);
    fr_buffer_release(&text);
    free(path);
    return status;
}
