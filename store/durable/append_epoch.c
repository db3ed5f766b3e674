/* Appends epochs to the journal and marks them.
 *
 * An append commits an epoch: its bytes into the journal, sync, mark (hwm), sync. Only then do the
 * numbers change, so a status shows durable epochs only. Several ranks vote between the two halves
 * (agreement.h). If the disk is full, the record is cut off again, and the object continues.
 *
 * Thread: the durable thread. durable.c has the life of the object. */
#include "durable_internal.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

/* Cuts off what a failed write left. If that works, the object continues. */
static enum fr_status cut_back(struct fr_durable *durable, struct fr_journal_file *file, bool created,
                               struct fr_err *err)
{
    const struct fr_disk *disk = durable->disk;
    char path[PATH_MAX];
    fr_journal_path(&durable->journal, file->first, path);
    int rc = created ? disk->unlink(disk->self, path) : disk->ftruncate(disk->self, file->fd, file->bytes);
    int number = errno;
    if (created)
        fr_journal_file_free(&durable->journal, file);
    else
        fr_journal_unuse(&durable->journal, file);
    if (rc == 0)
        return FR_E_NO_SPACE;
    fr_err_set(err, FR_E_IO, "the disk is full, and cutting %s back failed: %s", path, strerror(number));
    return fr_durable_die(durable, FR_E_IO, err);
}

static bool must_rotate(const struct fr_durable *durable, const struct fr_journal_file *tail)
{
    return !tail || tail->bytes >= durable->journal_file_max || tail->head_size != durable->head_size ||
           (tail->head_size > 0 && memcmp(tail->head, durable->head, tail->head_size) != 0);
}

/* Writes and syncs *durable->record as the mark's epoch and stores its digest in the mark. *file is
 * the file written: tail, or a file not yet in the index. */
static enum fr_status write_record(struct fr_durable *durable, struct fr_hwm *mark, struct fr_journal_file *tail,
                                   struct fr_journal_file **file, struct fr_err *err)
{
    struct fr_journal_file *target = tail;
    bool created = must_rotate(durable, tail);
    enum fr_status status = FR_OK;
    if (created) {
        struct fr_journal_head head = {mark->epoch, durable->head, durable->head_size};
        status = fr_journal_file_create(&durable->journal, &head, &target, err);
        if (status == FR_E_NO_SPACE)
            return status;
    } else {
        status = fr_journal_use(&durable->journal, target, err);
    }
    if (status != FR_OK)
        return fr_durable_die(durable, status, err);
    char path[PATH_MAX];
    fr_journal_path(&durable->journal, target->first, path);
    status = fr_journal_write(&durable->journal, target, durable->record, &mark->digest, err);
    if (status == FR_E_NO_SPACE)
        return cut_back(durable, target, created, err);
    if (status == FR_OK)
        status = fr_disk_sync(durable->disk, target->fd, path, err);
    if (status == FR_OK && created && fr_journal_sync_dir(&durable->journal) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot sync directory %s: %s", durable->journal.dir, strerror(errno));
    if (status != FR_OK && created)
        fr_journal_file_free(&durable->journal, target);
    else
        fr_journal_unuse(&durable->journal, target);
    if (status != FR_OK)
        return fr_durable_die(durable, status, err);
    *file = target;
    return FR_OK;
}

static void enter_epoch(struct fr_durable *durable, struct fr_journal_file *file, const struct fr_hwm *mark,
                        uint64_t timeline, const struct fr_sha256 *before)
{
    uint64_t size = durable->record->size - JOURNAL_RECORD_HEAD;
    pthread_mutex_lock(&durable->index);
    if (file->n_epochs == 0) {
        file->before = *before;
        fr_journal_adopt(&durable->journal, file);
    }
    struct fr_journal_epoch entry = {file->bytes + JOURNAL_RECORD_HEAD, size, timeline, mark->digest};
    fr_journal_file_push(file, &entry);
    file->bytes += durable->record->size;
    durable->unfolded_bytes += durable->record->size;
    if (durable->timeline < mark->timeline)
        durable->timeline = mark->timeline;
    durable->epoch = mark->epoch;
    durable->digest = mark->digest;
    pthread_mutex_unlock(&durable->index);
}

enum fr_status fr_durable_prepare(struct fr_durable *durable, struct fr_stage *stage, struct fr_sha256 *digest,
                                  struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, true, err);
    if (status != FR_OK)
        return status;
    FR_CHECK(!durable->prepared.file);
    pthread_mutex_lock(&durable->index);
    struct fr_sha256 before = durable->digest;
    if (stage->timeline < durable->timeline)
        stage->timeline = durable->timeline;
    struct fr_hwm mark = {.timeline = stage->timeline, .epoch = durable->epoch + 1, .acked = durable->acked};
    size_t n_files = durable->journal.n_files;
    /* trim never removes it */
    struct fr_journal_file *tail = n_files > 0 ? durable->journal.files[n_files - 1] : NULL;
    pthread_mutex_unlock(&durable->index);
    FR_CHECK(stage->epoch == mark.epoch);

    durable->record = &stage->record;
    fr_epoch_complete(stage, &durable->order, &before);
    struct fr_journal_file *file = NULL;
    status = write_record(durable, &mark, tail, &file, err);
    if (status != FR_OK)
        return status;
    durable->prepared = (struct durable_prepared){file, file != tail, mark, before};
    if (digest)
        *digest = mark.digest;
    return FR_OK;
}

void fr_durable_forget_prepared(struct fr_durable *durable)
{
    if (durable->prepared.created)
        fr_journal_file_free(&durable->journal, durable->prepared.file);
    durable->prepared = (struct durable_prepared){0};
}

enum fr_status fr_durable_commit(struct fr_durable *durable, struct fr_stage *stage, struct fr_err *err)
{
    struct durable_prepared *prepared = &durable->prepared;
    struct fr_hwm *mark = &prepared->mark;
    FR_CHECK(prepared->file && durable->record == &stage->record);
    pthread_mutex_lock(&durable->mark);
    if (mark->acked < durable->hwm.acked)
        mark->acked = durable->hwm.acked;
    if (mark->timeline < durable->hwm.timeline) /* it began meanwhile */
        mark->timeline = durable->hwm.timeline;
    enum fr_status status = fr_durable_write_mark(durable, *mark, err);
    pthread_mutex_unlock(&durable->mark);
    if (status != FR_OK) {
        fr_durable_forget_prepared(durable);
        return status;
    }
    enter_epoch(durable, prepared->file, mark, stage->timeline, &prepared->before);
    fr_durable_keep(durable, mark->epoch, stage);
    *prepared = (struct durable_prepared){0};
    return FR_OK;
}

enum fr_status fr_durable_append(struct fr_durable *durable, struct fr_stage *stage, struct fr_buffer *bytes,
                                 struct fr_sha256 *digest, struct fr_err *err)
{
    size_t begin = bytes ? bytes->size : 0;
    enum fr_status status = fr_durable_prepare(durable, stage, digest, err);
    if (status != FR_OK)
        return status;
    if (bytes)
        fr_buffer_append(bytes, stage->record.data + JOURNAL_RECORD_HEAD, stage->record.size - JOURNAL_RECORD_HEAD);
    status = fr_durable_commit(durable, stage, err);
    if (status != FR_OK && bytes)
        bytes->size = begin;
    return status;
}
