/* The checks and repairs of open. Mark, journal and cold store must fit together; otherwise open
 * refuses and names what is missing (docs/architecture.md, "Recovery").
 *
 * They fit if all of the following hold. The contiguous suffix of the journal begins at or before
 * sentinel + 1 and ends at or after the mark. Digests agree at the mark, at the sentinel and from
 * record to record. The journal begins at or before the mark's acknowledged epoch + 1, because trim
 * never removes more. Mark, epochs and sentinel have one salt. A journal may be empty, like that of
 * a savepoint, if the cold store holds the mark's epoch and all of it is acknowledged. Damage in a
 * file at or before the mark's epoch is refused. Records after the mark were neither durable nor
 * published; they are cut off, and the cut is synced.
 *
 * Lost copy. The mark has two copies. If one of them is bad, open cannot know whether a write was
 * torn (then its epoch was synced in the journal but never reported as durable) or whether a copy
 * that had been reported as durable has decayed. So open does what is right in both cases: it keeps
 * all complete, chained epochs that the journal holds after the good copy. That loses nothing
 * durable (P1), and none of these epochs is published before a new mark is synced (P3). The kept
 * records are first written again in place and synced: a record that exists only in the page cache,
 * because its sync failed, must not become durable by a mark. Each open writes the mark once, into
 * the copy that is not the newest good one. What open read may be in the page cache only, because
 * the sync of an earlier process failed; after this write it is on the disk before anything depends
 * on it.
 *
 * Several ranks. An epoch is durable when every rank has it synced in its journal, and a rank
 * writes its mark only then, so the marks of a job may differ by one. Every rank keeps the epochs
 * that all journals hold (agreement.h), writes those after its mark again, and marks them when all
 * ranks have done so.
 *
 * Read-only opens make the same checks, without writing or truncating, and ignore records after the
 * mark. While a writer runs, its trim may remove files between two reads; then everything is read
 * again, a few times. The order of reading is cold store, mark, journal, so that the mark is never
 * older than the sentinel.
 *
 * Thread: the one that opens. walk.c restores rows. */
#include "durable/savepoint.h"
#include "durable_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

struct findings {
    bool copy_lost;
    struct fr_cold_sentinel sentinel;
    uint64_t *firsts; /* first epochs of all journal files */
    size_t n_firsts;
};

static bool same_digest(const struct fr_sha256 *a, const struct fr_sha256 *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static uint64_t index_last(const struct fr_journal *journal)
{
    return journal->n_files > 0 ? journal_file_last(journal->files[journal->n_files - 1]) : 0;
}

static void forget_index(struct fr_journal *journal)
{
    for (size_t i = 0; i < journal->n_files; i++)
        fr_journal_file_free(journal, journal->files[i]);
    journal->n_files = 0;
}

/* ---- journal ---- */

static enum fr_status check_link(const struct fr_journal *journal, const struct fr_journal_file *file,
                                 struct fr_err *err)
{
    char path[PATH_MAX];
    fr_journal_path(journal, file->first, path);
    if (file->n_epochs == 0)
        return fr_err_set(err, FR_E_CORRUPT, "%s holds no epoch", path);
    if (journal->n_files == 0)
        return FR_OK;
    const struct fr_journal_file *last = journal->files[journal->n_files - 1];
    const struct fr_journal_epoch *entry = &last->epochs[last->n_epochs - 1];
    if (same_digest(&entry->digest, &file->before) && file->epochs[0].timeline >= entry->timeline)
        return FR_OK;
    return fr_err_set(err, FR_E_CORRUPT, "%s does not continue the chain of digests of the file before it", path);
}

/* Adds one file to the index. FR_EOF: the file is after the mark and incomplete; this file and
 * later ones are ignored. */
static enum fr_status scan_file(struct fr_durable *durable, uint64_t first, uint64_t until, struct fr_buffer *scratch,
                                struct fr_err *err)
{
    struct fr_journal *journal = &durable->journal;
    uint64_t mark = durable->hwm.epoch;
    struct fr_journal_file *file = NULL;
    enum fr_status status = fr_journal_file_open(journal, first, &file, err);
    if (status != FR_OK)
        return first > mark && status == FR_E_CORRUPT ? FR_EOF : status;
    enum fr_status scanned = fr_journal_file_scan(journal, file, until, scratch, err);
    bool enough = file->n_epochs > 0 && journal_file_last(file) >= mark;
    status = scanned == FR_OK || (scanned == FR_E_CORRUPT && (enough || first > mark)) ? check_link(journal, file, err)
                                                                                       : scanned;
    if (status != FR_OK) {
        fr_journal_file_free(journal, file);
        return first > mark && status == FR_E_CORRUPT ? FR_EOF : status;
    }
    fr_journal_adopt(journal, file);
    return scanned == FR_OK ? FR_OK : FR_EOF;
}

/* Indexes the journal up to epoch `until`, and as far as it is whole. */
static enum fr_status scan_journal(struct fr_durable *durable, struct findings *found, uint64_t until,
                                   struct fr_err *err)
{
    struct fr_journal *journal = &durable->journal;
    uint64_t mark = durable->hwm.epoch;
    struct fr_buffer scratch = {0};
    free(found->firsts);
    found->firsts = NULL;
    enum fr_status status = fr_journal_list(journal, &found->firsts, &found->n_firsts, err);
    for (size_t i = 0; i < found->n_firsts && status == FR_OK; i++) {
        uint64_t first = found->firsts[i];
        if (first > until)
            break;
        if (journal->n_files > 0 && first != index_last(journal) + 1) {
            if (index_last(journal) >= mark)
                break;
            forget_index(journal); /* a gap: the suffix begins after it and must be enough */
        }
        status = scan_file(durable, first, until, &scratch, err);
    }
    fr_buffer_release(&scratch);
    return status == FR_EOF ? FR_OK : status;
}

/* ---- whether they fit ---- */

/* Whether (epoch, digest) is on the chain that the journal has. */
static bool on_chain(const struct fr_journal *journal, uint64_t epoch, const struct fr_sha256 *digest)
{
    struct fr_journal_epoch entry;
    if (fr_journal_find(journal, epoch, &entry))
        return same_digest(&entry.digest, digest);
    return journal->n_files > 0 && epoch + 1 == journal->files[0]->first &&
           same_digest(&journal->files[0]->before, digest);
}

/* Whether the cold store holds everything durable and all of it is acknowledged, so that no journal
 * is needed. */
static bool needs_no_journal(const struct fr_durable *durable, const struct fr_cold_sentinel *sentinel)
{
    const struct fr_hwm *mark = &durable->hwm;
    return durable->journal.n_files == 0 && mark->epoch == sentinel->epoch && mark->acked == mark->epoch &&
           same_digest(&mark->digest, &sentinel->digest) && mark->timeline >= sentinel->timeline;
}

static enum fr_status check_mark(const struct fr_durable *durable, struct fr_err *err)
{
    const struct fr_journal *journal = &durable->journal;
    uint64_t mark = durable->hwm.epoch, last = index_last(journal);
    if (last < mark)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: epoch %" PRIu64 " is durable, but %s ends with epoch %" PRIu64 ": epochs %" PRIu64
                          "..%" PRIu64 " are missing; restore the missing files, or a savepoint",
                          durable->dir, mark, journal->dir, last, last + 1, mark);
    if (!on_chain(journal, mark, &durable->hwm.digest))
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: the journal's epoch %" PRIu64
                          " is not the one that hwm names: files of two histories are mixed",
                          durable->dir, mark);
    return FR_OK;
}

static enum fr_status check_sentinel(const struct fr_durable *durable, const struct fr_cold_sentinel *sentinel,
                                     struct fr_err *err)
{
    const struct fr_journal *journal = &durable->journal;
    uint64_t last = index_last(journal), folded = sentinel->epoch;
    if (folded > last)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: the cold store holds epoch %" PRIu64 ", hwm and journal end with epoch %" PRIu64
                          ": they are of an older copy",
                          durable->dir, folded, last);
    if (journal->n_files == 0)
        return FR_OK;
    uint64_t first = journal->files[0]->first;
    if (first > folded + 1)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: the cold store holds epoch %" PRIu64 " and the journal begins with epoch %" PRIu64
                          ": epochs %" PRIu64 "..%" PRIu64
                          " are missing in %s, or %s/cold lost its folds; restore them, or a savepoint",
                          durable->dir, folded, first, folded + 1, first - 1, journal->dir, durable->dir);
    /* if folded is 0: epoch 1 follows a digest of zeros */
    if (!on_chain(journal, folded, &sentinel->digest))
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: the cold store's epoch %" PRIu64
                          " is not the journal's: files of two histories are mixed",
                          durable->dir, folded);
    return FR_OK;
}

static enum fr_status check_fit(const struct fr_durable *durable, const struct findings *found, struct fr_err *err)
{
    if (needs_no_journal(durable, &found->sentinel))
        return FR_OK;
    enum fr_status status = check_mark(durable, err);
    if (status == FR_OK)
        status = check_sentinel(durable, &found->sentinel, err);
    if (status != FR_OK)
        return status;
    uint64_t acked = durable->hwm.acked;
    uint64_t first = durable->journal.n_files > 0 ? durable->journal.files[0]->first : 1;
    if (!found->copy_lost && first > acked + 1)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: epochs up to %" PRIu64 " are acknowledged and the journal begins with epoch %" PRIu64
                          ": epochs %" PRIu64 "..%" PRIu64 ", which are still to be published, are missing",
                          durable->dir, acked, first, acked + 1, first - 1);
    return FR_OK;
}

static void take_numbers(struct fr_durable *durable, const struct findings *found)
{
    const struct fr_journal *journal = &durable->journal;
    durable->folded = found->sentinel.epoch;
    durable->acked = durable->hwm.acked;
    durable->unfolded_bytes = 0;
    durable->timeline = durable->epoch = 0;
    durable->digest = (struct fr_sha256){{0}};
    if (journal->n_files == 0) {
        durable->epoch = durable->hwm.epoch;
        durable->timeline = durable->hwm.timeline;
        durable->digest = durable->hwm.digest;
        return;
    }
    const struct fr_journal_file *newest = journal->files[journal->n_files - 1];
    const struct fr_journal_epoch *entry = &newest->epochs[newest->n_epochs - 1];
    durable->epoch = journal_file_last(newest);
    /* the mark has the timeline before there is an epoch of it */
    durable->timeline = durable->hwm.timeline > entry->timeline ? durable->hwm.timeline : entry->timeline;
    durable->digest = entry->digest;
    /* only after a lost copy: trim has removed acknowledged epochs */
    if (durable->acked < journal->files[0]->first - 1)
        durable->acked = journal->files[0]->first - 1;
    struct fr_journal_epoch unfolded;
    for (uint64_t e = durable->folded + 1; e <= durable->epoch; e++)
        if (fr_journal_find(journal, e, &unfolded))
            durable->unfolded_bytes += unfolded.size + JOURNAL_RECORD_HEAD;
}

/* ---- reading what is there ---- */

enum fr_status fr_durable_read_salt(const char *dir, uint64_t *salt, struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_hwm mark;
    bool copy_lost;
    snprintf(path, sizeof(path), "%s/hwm", dir);
    enum fr_status status = fr_hwm_read(path, &mark, &copy_lost, err);
    if (status == FR_OK)
        *salt = mark.salt;
    return status;
}

static enum fr_status create_state(struct fr_durable *durable, struct fr_err *err)
{
    uint64_t *firsts = NULL;
    size_t n = 0;
    enum fr_status status = fr_journal_list(&durable->journal, &firsts, &n, err);
    free(firsts);
    if (status != FR_OK)
        return status;
    char current[PATH_MAX];
    snprintf(current, sizeof(current), "%s/" DURABLE_RESTORING_FILE, durable->dir);
    if (access(current, F_OK) == 0)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s exists: a --restore into this directory did not finish. Start again with --restore "
                          "SAVEPOINT, which does it again, or use another state_dir",
                          current);
    snprintf(current, sizeof(current), "%s/CURRENT", durable->path_cold);
    if (n > 0 || access(current, F_OK) == 0)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s is missing, but journal/ or cold/ hold state: restore it, or give another state_dir",
                          durable->path_hwm);
    durable->hwm = (struct fr_hwm){.salt = durable->order.salt};
    return fr_hwm_create(durable->disk, durable->path_hwm, &durable->hwm, err);
}

/* Takes the state's salt from the mark. The cold store must have the same one; journal.c checks
 * that of each epoch. */
static enum fr_status take_salt(struct fr_durable *durable, const struct findings *found, struct fr_err *err)
{
    durable->order = fr_order_of(durable->hwm.salt);
    durable->journal.salt = durable->hwm.salt;
    if (!durable->cold)
        return FR_OK;
    if (found->sentinel.epoch > 0 && found->sentinel.salt != durable->hwm.salt)
        return fr_err_set(err, FR_E_CORRUPT,
                          "%s: the cold store's salt is not the one in hwm: files of two states are mixed",
                          durable->dir);
    fr_cold_sort_by(durable->cold, &durable->order);
    return FR_OK;
}

/* Keeps the epochs of the journal that all ranks of the job have (agreement.h). */
static enum fr_status keep_agreed(struct fr_durable *durable, struct findings *found, struct fr_err *err)
{
    struct fr_durable_ends ends = {.journal = durable->epoch, .mark = durable->hwm.epoch};
    uint64_t keep = 0;
    enum fr_status status = durable->job->agree(durable->job->self, &ends, &keep, err);
    if (status != FR_OK || keep == ends.journal)
        return status;
    FR_CHECK(keep >= ends.mark && keep < ends.journal);
    forget_index(&durable->journal);
    status = scan_journal(durable, found, keep, err);
    if (status == FR_OK)
        take_numbers(durable, found);
    FR_CHECK(status != FR_OK || durable->epoch == keep);
    return status;
}

static enum fr_status read_state(struct fr_durable *durable, struct findings *found, struct fr_err *err)
{
    *found = (struct findings){.copy_lost = false};
    enum fr_status status = fr_hwm_read(durable->path_hwm, &durable->hwm, &found->copy_lost, err);
    if (status == FR_E_NOT_FOUND && !durable->read_only)
        status = create_state(durable, err);
    else if (status == FR_E_NOT_FOUND)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no state (no hwm)", durable->dir);
    if (status == FR_OK)
        status = fr_cold_open(durable->path_cold, durable->fold_bytes, durable->read_only, &durable->cold, err);
    if (status == FR_OK && durable->cold)
        status = fr_cold_read_sentinel(durable->cold, NULL, &found->sentinel, err);
    if (status == FR_OK && durable->read_only)
        status = fr_hwm_read(durable->path_hwm, &durable->hwm, &found->copy_lost, err);
    if (status == FR_OK)
        status = take_salt(durable, found, err);
    if (status == FR_OK)
        status = scan_journal(durable, found, found->copy_lost || durable->job ? UINT64_MAX : durable->hwm.epoch, err);
    if (status == FR_OK)
        status = check_fit(durable, found, err);
    if (status == FR_OK)
        take_numbers(durable, found);
    return status == FR_OK && durable->job ? keep_agreed(durable, found, err) : status;
}

static void forget_findings(struct fr_durable *durable, struct findings *found)
{
    forget_index(&durable->journal);
    fr_cold_close(durable->cold);
    durable->cold = NULL;
    free(found->firsts);
    *found = (struct findings){.copy_lost = false};
}

/* ---- repairs (writer only) ---- */

static enum fr_status remove_file(const struct fr_durable *durable, const char *path, struct fr_err *err)
{
    if (durable->disk->unlink(durable->disk->self, path) == 0)
        return FR_OK;
    return fr_err_set(err, FR_E_IO, "cannot remove %s: %s", path, strerror(errno));
}

/* Removes sorted files of a fold that a crash interrupted. The removal is not synced: files that
 * reappear are removed by the next open. */
static enum fr_status clear_fold_folder(const struct fr_durable *durable, struct fr_err *err)
{
    DIR *dir = opendir(durable->path_fold);
    if (!dir)
        return fr_err_set(err, FR_E_IO, "cannot list %s: %s", durable->path_fold, strerror(errno));
    enum fr_status status = FR_OK;
    const struct dirent *entry;
    while (status == FR_OK && (entry = readdir(dir)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length < 4 || length > 32 || strcmp(entry->d_name + length - 4, ".sst") != 0)
            continue;
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%.32s", durable->path_fold, entry->d_name);
        status = remove_file(durable, path, err);
    }
    closedir(dir);
    return status;
}

/* Removes files of the folder that are not in the index: those after the mark, and those that an
 * interrupted trim left. */
static enum fr_status remove_strays(struct fr_durable *durable, const struct findings *found, struct fr_err *err)
{
    bool removed = false;
    for (size_t i = 0; i < found->n_firsts; i++) {
        struct fr_journal_epoch entry;
        char path[PATH_MAX];
        const struct fr_journal_file *file = fr_journal_find(&durable->journal, found->firsts[i], &entry);
        if (file && file->first == found->firsts[i])
            continue;
        fr_journal_path(&durable->journal, found->firsts[i], path);
        enum fr_status status = remove_file(durable, path, err);
        if (status != FR_OK)
            return status;
        removed = true;
    }
    if ((removed || durable->epoch > durable->hwm.epoch) && fr_journal_sync_dir(&durable->journal) != 0)
        return fr_err_set(err, FR_E_IO, "cannot sync directory %s: %s", durable->journal.dir, strerror(errno));
    return FR_OK;
}

static enum fr_status cut_tail(struct fr_durable *durable, struct fr_err *err)
{
    struct fr_journal *journal = &durable->journal;
    if (journal->n_files == 0)
        return FR_OK;
    struct fr_journal_file *tail = journal->files[journal->n_files - 1];
    if (tail->length == tail->bytes)
        return FR_OK;
    char path[PATH_MAX];
    fr_journal_path(journal, tail->first, path);
    fr_log(FR_LOG_INFO, "durable", "journal_cut", "epoch=%" PRIu64 " bytes=%" PRIu64, journal_file_last(tail),
           tail->length - tail->bytes);
    enum fr_status status = fr_journal_use(journal, tail, err);
    if (status != FR_OK)
        return status;
    if (durable->disk->ftruncate(durable->disk->self, tail->fd, tail->bytes) != 0)
        status = fr_err_set(err, FR_E_IO, "cannot cut %s: %s", path, strerror(errno));
    tail->length = tail->bytes;
    if (status == FR_OK)
        status = fr_disk_sync(durable->disk, tail->fd, path, err);
    fr_journal_unuse(journal, tail);
    return status;
}

/* The rule of the lost copy, and of several ranks: epochs after the mark are written again before a
 * new mark names them. */
static enum fr_status rewrite_kept(struct fr_durable *durable, struct fr_err *err)
{
    const struct fr_journal *journal = &durable->journal;
    struct fr_buffer record = {0};
    enum fr_status status = FR_OK;
    for (uint64_t e = durable->hwm.epoch + 1; e <= durable->epoch && status == FR_OK; e++) {
        struct fr_journal_epoch entry;
        struct fr_journal_file *file = fr_journal_find(journal, e, &entry);
        FR_CHECK(file != NULL);
        char path[PATH_MAX];
        fr_journal_path(journal, file->first, path);
        uint64_t offset = entry.offset - JOURNAL_RECORD_HEAD;
        size_t size = (size_t)entry.size + JOURNAL_RECORD_HEAD;
        if (e == file->first) { /* a new file: its head is written again too */
            offset = 0;
            size = (size_t)(entry.offset + entry.size);
        }
        fr_buffer_clear(&record);
        status = fr_journal_pread(journal, file, fr_buffer_reserve(&record, size), size, offset, err);
        if (status == FR_OK)
            status = fr_journal_use(journal, file, err);
        if (status != FR_OK)
            break;
        status = fr_disk_write(durable->disk, file->fd, record.data, size, offset, path, err);
        if (status == FR_OK)
            status = fr_disk_sync(durable->disk, file->fd, path, err);
        fr_journal_unuse(journal, file);
    }
    fr_buffer_release(&record);
    return status;
}

static enum fr_status renew_mark(struct fr_durable *durable, struct fr_err *err)
{
    const struct fr_disk *disk = durable->disk;
    durable->hwm_fd = disk->open(disk->self, durable->path_hwm, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (durable->hwm_fd < 0)
        return fr_err_set(err, FR_E_IO, "cannot open %s: %s", durable->path_hwm, strerror(errno));
    struct fr_hwm values = {
        .timeline = durable->timeline, .epoch = durable->epoch, .digest = durable->digest, .acked = durable->acked};
    return fr_durable_write_mark(durable, values, err);
}

/* Removes unfinished savepoints. They take disk space; a failure is only logged, because nothing
 * depends on the removal. */
static void sweep_savepoints(const struct fr_durable *durable)
{
    char quoted[600];
    struct fr_err err = {0};
    if (fr_savepoint_sweep(durable->disk, durable->dir, &err) != FR_OK)
        fr_log(FR_LOG_WARN, "durable", "savepoints_not_swept", "reason=%s",
               fr_log_quote(quoted, sizeof(quoted), err.text));
}

static enum fr_status repair_state(struct fr_durable *durable, const struct findings *found, struct fr_err *err)
{
    if (found->copy_lost)
        fr_log(FR_LOG_WARN, "durable", "mark_slot_lost", "good_epoch=%" PRIu64 " kept_epoch=%" PRIu64,
               durable->hwm.epoch, durable->epoch);
    enum fr_status status = clear_fold_folder(durable, err);
    if (status == FR_OK)
        status = cut_tail(durable, err);
    if (status == FR_OK) /* after a lost copy, or for the other ranks of the job */
        status = rewrite_kept(durable, err);
    if (status == FR_OK)
        status = remove_strays(durable, found, err);
    if (status == FR_OK)
        status = fr_cold_number(durable->cold, durable->path_fold, &found->sentinel, err);
    if (status == FR_OK && durable->job) /* a mark names no epoch that a rank could still lose */
        status = durable->job->prepared(durable->job->self, err);
    if (status == FR_OK)
        status = renew_mark(durable, err);
    if (status == FR_OK)
        sweep_savepoints(durable);
    return status;
}

enum fr_status fr_durable_recover(struct fr_durable *durable, struct fr_err *err)
{
    struct findings found;
    enum fr_status status = read_state(durable, &found, err);
    for (int tries = 1; durable->read_only && tries < DURABLE_OPEN_TRIES; tries++) {
        if ((status == FR_OK && !found.copy_lost) || status == FR_E_MISMATCH || access(durable->path_hwm, F_OK) != 0)
            break;
        forget_findings(durable, &found);
        status = read_state(durable, &found, err);
    }
    if (status == FR_OK && !durable->read_only)
        status = repair_state(durable, &found, err);
    free(found.firsts);
    return status;
}
