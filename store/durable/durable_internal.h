/* The object behind durable.h. Module-internal.
 *
 * There are two mutexes here (a third one guards which journal files are open, descriptors.c).
 * `index` guards the index of journal files and the numbers beside it; it is held for copying a
 * few words, never during I/O. `mark` is held while the high-water mark is written and synced
 * (0.1 ms), because append and trim both write it and its copies alternate. `mark` is taken
 * before `index`. What no mutex guards is set at open and constant, or belongs to one thread, as
 * said. */
#ifndef FR_DURABLE_INTERNAL_H
#define FR_DURABLE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cold.h"
#include "durable/durable.h"
#include "hwm.h"
#include "journal.h"

enum {
    DURABLE_DIR_MAX = PATH_MAX - 128,  /* longest name below it: journal/<20 digits>.fj.tmp */
    DURABLE_FILE_BYTES_MAX = 64 << 20, /* small operator files */
    DURABLE_OPEN_TRIES = 4,            /* read-only, beside a writer that trims */
    DURABLE_JOURNAL_FILE_MAX = 64 << 20,
    DURABLE_SST_BYTES_MAX = 256 << 20,
    DURABLE_KEEP_BYTES = 64 << 20,
};
/* The small file of a savepoint that holds what a journal file's head would. */
#define DURABLE_HEAD_FILE "journal.head"
/* There while a state is made from a savepoint. */
#define DURABLE_RESTORING_FILE "restoring"
_Static_assert((int)JOURNAL_RECORD_HEAD == (int)FR_STAGE_FRONT, "a stage's record is the journal's");

/* A durable epoch in memory: its journal record (kept.c). */
struct fr_kept {
    uint64_t epoch;
    struct fr_buffer record;
    unsigned refs; /* the list holds one */
};

struct fr_durable {
    char *dir, *path_hwm, *path_cold, *path_fold;
    const struct fr_disk *disk;
    bool read_only;
    uint64_t journal_file_max, fold_bytes;
    void (*merged)(void *self); /* NULL: nobody listens */
    void *merged_self;
    struct fr_order order; /* from the mark */
    uint8_t *head;
    size_t head_size;
    int lock_fd;                    /* -1: none */
    struct fr_cold *cold;           /* NULL: read-only, and no store there */
    const struct fr_buffer *record; /* append's thread: of the stage that it appends */
    uint64_t sst_bytes_max;         /* tests make it small */
    uint64_t keep_bytes;            /* 0, for tests only: nothing is kept */

    pthread_mutex_t index;
    struct fr_journal journal;
    uint64_t timeline, epoch;
    struct fr_sha256 digest;
    _Atomic uint64_t folded; /* read without the mutex too */
    uint64_t acked, unfolded_bytes;
    /* Epochs up to here are not sent again, as this process was told; 0 until somebody looked. */
    uint64_t spared;
    bool folding;
    bool dead;           /* a storage error happened: nothing is done any more (P6) */
    struct fr_err death; /* which */
    struct fr_kept **kept;
    size_t n_kept, capacity_kept;
    uint64_t kept_bytes;
    struct fr_buffer spare; /* for the next stage */

    pthread_mutex_t mark;
    int hwm_fd; /* -1: read-only */
    struct fr_hwm hwm;
};

/* Marks the object dead; returns the cause where an operator must decide (FR_E_CORRUPT, FR_E_LIMIT,
 * FR_E_NO_DESCRIPTORS, FR_E_DENIED) and FR_E_IO for all others. err keeps its text. */
enum fr_status fr_durable_die(struct fr_durable *durable, enum fr_status cause, struct fr_err *err);
/* Returns the error of which the object is dead (FR_E_IO or FR_E_CORRUPT), FR_E_STATE when a writer
 * is needed and the object is read-only. */
enum fr_status fr_durable_check(struct fr_durable *durable, bool writes, struct fr_err *err) FR_MUST_CHECK;
/* Writes values under the next sequence and syncs; dies when that fails. The caller holds `mark`
 * (or is open). */
enum fr_status fr_durable_write_mark(struct fr_durable *durable, struct fr_hwm values,
                                     struct fr_err *err) FR_MUST_CHECK;

/* Finds the file and entry of an epoch and takes a reference to the file; NULL when the journal
 * does not hold it. */
struct fr_journal_file *fr_durable_acquire(struct fr_durable *durable, uint64_t epoch, struct fr_journal_epoch *out);
void fr_durable_release(struct fr_durable *durable, struct fr_journal_file *file);
/* The two halves of reading an epoch. The first checks the object and acquires the file:
 * FR_E_NOT_FOUND when the journal does not hold the epoch. The second, once that was good, appends
 * the file's head (head may be NULL), releases the file, and dies of a status that is not FR_OK. */
enum fr_status fr_durable_begin_read(struct fr_durable *durable, uint64_t epoch, struct fr_journal_file **file,
                                     struct fr_journal_epoch *entry, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_durable_end_read(struct fr_durable *durable, struct fr_journal_file *file, enum fr_status status,
                                   struct fr_buffer *head, struct fr_err *err) FR_MUST_CHECK;
/* Deletes files that are folded and acknowledged, never the newest. */
enum fr_status fr_durable_trim(struct fr_durable *durable, struct fr_err *err) FR_MUST_CHECK;

/* kept.c. Takes the record of the stage, which was just appended as this epoch. */
void fr_durable_keep(struct fr_durable *durable, uint64_t epoch, struct fr_stage *stage);
/* Nobody needs epochs up to limit any more. */
void fr_durable_forget(struct fr_durable *durable, uint64_t limit);
/* NULL: not kept. */
struct fr_kept *fr_durable_kept(struct fr_durable *durable, uint64_t epoch);
void fr_durable_unkeep(struct fr_durable *durable, struct fr_kept *kept);
/* Makes the memory of one, which the next append's stage gets. Once, by open. */
void fr_durable_touch_spare(struct fr_durable *durable, size_t bytes);
void fr_durable_kept_release(struct fr_durable *durable); /* at close */

/* recovery.c: fills cold, journal, hwm and the numbers. */
enum fr_status fr_durable_recover(struct fr_durable *durable, struct fr_err *err) FR_MUST_CHECK;

#endif
