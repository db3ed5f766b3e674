/* The object declared in durable.h. Module-internal.
 *
 * There are two mutexes here (a third one guards which journal files are open, descriptors.c).
 * `index` guards the index of journal files and the numbers declared after it; it is held for
 * copying a few words, never during I/O. `mark` is held while the high-water mark is written and
 * synced (0.1 ms), because append and trim both write it and its copies alternate. `mark` is locked
 * before `index`. Members that no mutex guards are set at open and constant, or belong to the one
 * thread that their comment names. */
#ifndef FR_DURABLE_INTERNAL_H
#define FR_DURABLE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cold.h"
#include "durable/durable.h"
#include "hwm.h"
#include "journal.h"

enum {
    /* leaves room for the longest name below it: journal/<20 digits>.fj.tmp */
    DURABLE_DIR_MAX = PATH_MAX - 128,
    DURABLE_FILE_BYTES_MAX = 64 << 20, /* small operator files */
    DURABLE_OPEN_TRIES = 4,            /* for a read-only open while a writer trims */
    DURABLE_JOURNAL_FILE_MAX = 64 << 20,
    DURABLE_SST_BYTES_MAX = 256 << 20,
    DURABLE_KEEP_BYTES = 64 << 20,
};
/* The small file of a savepoint that holds what the head of a journal file would hold. */
#define DURABLE_HEAD_FILE "journal.head"
/* Exists while a state is being made from a savepoint. */
#define DURABLE_RESTORING_FILE "restoring"
_Static_assert((int)JOURNAL_RECORD_HEAD == (int)FR_STAGE_FRONT, "a stage's record is the journal's");

/* A durable epoch in memory: its journal record (kept.c). */
struct fr_kept {
    uint64_t epoch;
    struct fr_buffer record;
    unsigned refs; /* references; the list holds one of them */
};

struct fr_durable {
    char *dir, *path_hwm, *path_cold, *path_fold;
    const struct fr_disk *disk;
    bool read_only;
    uint64_t journal_file_max, fold_bytes;
    void (*merged)(void *self); /* NULL: no callback */
    void *merged_self;
    struct fr_order order; /* derived from the mark's salt */
    uint8_t *head;
    size_t head_size;
    int lock_fd;          /* -1: not locked */
    struct fr_cold *cold; /* NULL: read-only, and there is no cold store */
    /* What is being appended; belongs to the appending thread. */
    const struct fr_buffer *record;
    struct durable_prepared {
        struct fr_journal_file *file; /* NULL: nothing was prepared */
        bool created;                 /* the file is not in the index yet */
        struct fr_hwm mark;
        struct fr_sha256 before;
    } prepared;
    const struct fr_durable_job *job; /* valid while the object is opened; NULL: one rank */
    uint64_t sst_bytes_max;           /* tests make it small */
    uint64_t keep_bytes;              /* 0, in tests only: no epoch is kept */

    pthread_mutex_t index;
    struct fr_journal journal;
    uint64_t timeline, epoch;
    struct fr_sha256 digest;
    _Atomic uint64_t folded; /* also read without the mutex */
    uint64_t acked, unfolded_bytes;
    /* Epochs up to this one will not be sent again, as far as this process knows; 0 until the first
     * fr_durable_acknowledge. */
    uint64_t spared;
    bool folding;
    bool dead;           /* a storage error happened: the object does nothing any more (P6) */
    struct fr_err death; /* that error */
    struct fr_kept **kept;
    size_t n_kept, capacity_kept;
    uint64_t kept_bytes;
    struct fr_buffer spare; /* memory for the next stage */

    pthread_mutex_t mark;
    int hwm_fd; /* -1: read-only */
    struct fr_hwm hwm;
};

/* Marks the object dead because of an error. Returns the cause if an operator must decide about it
 * (FR_E_CORRUPT, FR_E_LIMIT, FR_E_NO_DESCRIPTORS, FR_E_DENIED), otherwise FR_E_IO. err keeps its
 * text. */
enum fr_status fr_durable_die(struct fr_durable *durable, enum fr_status cause, struct fr_err *err);
/* Returns the error that killed the object, with the status that fr_durable_die returned, or
 * FR_E_STATE if `writes` and the object is read-only. */
enum fr_status fr_durable_check(struct fr_durable *durable, bool writes, struct fr_err *err) FR_MUST_CHECK;
/* Writes `values` with the next sequence number and syncs; an error kills the object. The caller
 * holds `mark`, or is fr_durable_open. */
enum fr_status fr_durable_write_mark(struct fr_durable *durable, struct fr_hwm values,
                                     struct fr_err *err) FR_MUST_CHECK;

/* Finds an epoch's file and its entry there, and takes a reference to the file. NULL: the journal
 * does not hold the epoch. */
struct fr_journal_file *fr_durable_acquire(struct fr_durable *durable, uint64_t epoch, struct fr_journal_epoch *out);
void fr_durable_release(struct fr_durable *durable, struct fr_journal_file *file);
/* The two halves of reading an epoch. fr_durable_begin_read checks the object and takes a reference
 * to the file; FR_E_NOT_FOUND: the journal does not hold the epoch. fr_durable_end_read, to be
 * called after the first one succeeded, appends the file's head (head may be NULL) and gives the
 * reference back; a status other than FR_OK kills the object. */
enum fr_status fr_durable_begin_read(struct fr_durable *durable, uint64_t epoch, struct fr_journal_file **file,
                                     struct fr_journal_epoch *entry, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_durable_end_read(struct fr_durable *durable, struct fr_journal_file *file, enum fr_status status,
                                   struct fr_buffer *head, struct fr_err *err) FR_MUST_CHECK;
/* Deletes journal files that are folded and acknowledged, never the newest file. */
enum fr_status fr_durable_trim(struct fr_durable *durable, struct fr_err *err) FR_MUST_CHECK;

/* append_epoch.c. Frees the file of an epoch that was prepared and not committed, unless the index
 * has it. */
void fr_durable_forget_prepared(struct fr_durable *durable);
/* kept.c. Keeps the record of the stage, which was just appended as this epoch. */
void fr_durable_keep(struct fr_durable *durable, uint64_t epoch, struct fr_stage *stage);
/* Drops kept epochs up to limit, which are no longer needed. */
void fr_durable_forget(struct fr_durable *durable, uint64_t limit);
/* NULL: the epoch is not kept. */
struct fr_kept *fr_durable_kept(struct fr_durable *durable, uint64_t epoch);
void fr_durable_unkeep(struct fr_durable *durable, struct fr_kept *kept);
/* Allocates the spare memory that the next append gives to the stage. Called once, by open. */
void fr_durable_touch_spare(struct fr_durable *durable, size_t bytes);
void fr_durable_kept_release(struct fr_durable *durable); /* at close */

/* recovery.c: fills cold, journal, hwm and the numbers. */
enum fr_status fr_durable_recover(struct fr_durable *durable, struct fr_err *err) FR_MUST_CHECK;

#endif
