/* The durable side of a state directory: lock, journal of epochs, high-water mark (HWM), folds into
 * the cold store (RocksDB), recovery. docs/formats/state.md has the layout of the files.
 *
 * Invariants (docs/architecture.md, "One epoch's life"): an epoch is durable when its bytes are in
 * the journal and the HWM names it, both synced, in this order. Opening truncates the journal after
 * the HWM's epoch and syncs it. A fold is one RocksDB ingest of sorted files that end with a
 * sentinel. fsync is never retried: after FR_E_IO the object refuses every call (fail-stop).
 * Journal files that are folded and acknowledged are deleted, except the newest.
 *
 * Thread: the durable thread appends and the fold thread folds; restore runs before both begin. Any
 * thread may read, digest or acknowledge epochs, read and write small files, get the status, fetch,
 * scan and ask for the folded epoch, several at once and also during a fold: a read then sees the
 * cold store either before or after the fold. One internal mutex guards the index of journal files
 * and is never held during I/O. Close when no other call is running. */
#ifndef FR_DURABLE_DURABLE_H
#define FR_DURABLE_DURABLE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/file.h"
#include "durable/epoch.h"

enum { FR_STATE_FORMAT = 4, FR_LEVEL0_FILES_MAX = 64 };
/* Bytes that a fold's windows on the epochs it merges take in total. The total is larger only if an
 * image is larger than its window. */
enum { FR_FOLD_WINDOWS = 64 << 20 };
/* The smallest limit of open descriptors for a process with an open directory, its clients and
 * server included. */
enum { FR_DURABLE_FILES_MIN = 128 };
/* Free disk space that opening needs. RocksDB writes a manifest (about 200 bytes for each file, and
 * up to as much as the last manifest has, in addition to these bytes), its options and the head of
 * its log. Where there is no room for them, one of its assertions ends the process. */
enum { FR_DURABLE_OPEN_BYTES = 1 << 20 };

struct fr_durable;

/* The epochs that open found in a state directory of a job of several ranks. */
struct fr_durable_ends {
    uint64_t journal; /* the last whole epoch of the journal's chain */
    uint64_t mark;    /* the epoch that the HWM names: it may be published; at most `journal` */
};

/* What open asks of a job of several ranks, once each, in the calling thread. */
struct fr_durable_job {
    void *self;
    /* Returns the epoch that all ranks keep (agreement.h), between the two of `ends`. What the
     * journal holds after it is cut off. */
    enum fr_status (*agree)(void *self, const struct fr_durable_ends *ends, uint64_t *keep, struct fr_err *err);
    /* Returns when all ranks have these epochs synced in their journals, and nothing after them. */
    enum fr_status (*prepared)(void *self, struct fr_err *err);
};

struct fr_durable_options {
    const char *dir;            /* created if missing, except when read_only */
    const struct fr_disk *disk; /* NULL: the system's functions */
    /* open without locking, truncating or writing to RocksDB, so that a running or damaged
     * directory can be read */
    bool read_only;
    uint64_t journal_file_max; /* bytes after which a new journal file begins; 0: 64 MiB */
    /* The approximate number of journal bytes in one fold, which determines the sizes of the cold
     * store's levels; 0: 64 MiB. Filters and indexes of the cold store take about 2 bytes a row in
     * memory. */
    uint64_t fold_bytes;
    /* bytes of the newest epochs that stay in memory for publisher and fold; 0: 64 MiB */
    uint64_t keep_bytes;
    /* bytes of one stage whose memory is allocated and touched at open (fr_stage_touch); 0: none */
    uint64_t touch_bytes;
    /* salt of the keyed order (base/order.h) if this call creates the directory; an existing
     * directory keeps its own salt */
    uint64_t salt;
    /* Codec settings, opaque here: they are stored in the head of every journal file. If they
     * differ from those of the newest file, a new file begins. */
    const void *head;
    size_t head_size;
    /* Called by a fold in its own thread, after each MiB that it merged, as a sign of progress;
     * NULL: no call. */
    void (*merged)(void *self);
    void *merged_self;
    const struct fr_durable_job *job; /* NULL: the state is alone, and keeps what its mark names */
};

struct fr_durable_status {
    uint64_t salt;     /* salt of the keyed order by which epochs and cold store are sorted */
    uint64_t timeline; /* 0: there is no epoch yet */
    uint64_t epoch;    /* the last durable epoch; 0: none */
    struct fr_sha256 digest;
    uint64_t folded; /* epoch of the cold store; 0: nothing is folded */
    /* the last epoch known to be acknowledged on the delta topic (a hint, stored with the HWM) */
    uint64_t acked;
    uint64_t journal_first; /* the oldest epoch in the journal; 0: the journal is empty */
    uint64_t journal_bytes;
    uint64_t unfolded_bytes; /* journal bytes of the epochs after `folded` */
    uint64_t level0_files, cold_bytes;
    bool folding;
    /* since open: keys that fr_durable_fetch was asked for, and images found for them */
    uint64_t cold_asked, cold_found;
};

/* Errors: FR_E_BUSY (another daemon holds the lock; the text has its pid), FR_E_MISMATCH (another
 * format version; the text has the remedy), FR_E_CORRUPT (chain, salt, HWM and sentinel do not fit
 * together; the text names what is missing), FR_E_NOT_FOUND (read_only, and there is no state),
 * FR_E_INVALID or FR_E_LIMIT (options), FR_E_NO_SPACE, FR_E_IO. An open that fails changes no state
 * and can be tried again. */
enum fr_status fr_durable_open(const struct fr_durable_options *options, struct fr_durable **out,
                               struct fr_err *err) FR_MUST_CHECK;
void fr_durable_close(struct fr_durable *durable);
/* Reads the salt of an existing state directory, without opening it. FR_E_NOT_FOUND: there is no
 * state. Other errors: as fr_durable_open. */
enum fr_status fr_durable_read_salt(const char *dir, uint64_t *salt, struct fr_err *err) FR_MUST_CHECK;
void fr_durable_get_status(struct fr_durable *durable, struct fr_durable_status *out);
/* Only the timeline and the last durable epoch of the status, without a question to the cold
 * store. */
void fr_durable_get_end(struct fr_durable *durable, uint64_t *timeline, uint64_t *epoch);

/* Recovery visits, in this order: the newest value of each section, by name, whichever epoch holds
 * it; then, unless wants_cold returns false, every image of the cold store by (table, hash); then
 * the images of the unfolded epochs, from the oldest epoch to the newest. A later image replaces an
 * earlier one. The cold store never yields an absent key. An error of a callback ends recovery and
 * is returned; setting *stop ends it with FR_E_CANCELLED.
 *
 * Thread: `threads` threads call `image`, each with its own number; number 0 is the calling thread,
 * which is the only one if threads is 0 or 1. All images of one table and shard (the top 4 bits of
 * the hash) come with one thread number, in the order above. `section` and `wants_cold` are called
 * by the calling thread. `progress` is called by any of the threads, one at a time, with numbers
 * that never decrease. The bytes passed CRC and digest at open; recovery compares the CRC again.
 * Memory: 64 MiB of epochs, or the largest epoch. */
struct fr_restore_visitor {
    void *self;
    /* every member except self may be NULL */
    /* Name of the section that is visited before all others, so that the visitor can decide from it
     * whether the others can be read. The visitor gets NULL for its bytes if no epoch holds it. */
    const char *first;
    enum fr_status (*image)(void *self, size_t thread, const struct fr_image *image);
    enum fr_status (*section)(void *self, const char *name, const uint8_t *bytes, size_t size);
    bool (*wants_cold)(void *self); /* NULL: true */
    void (*progress)(void *self, uint64_t done_bytes, uint64_t total_bytes);
    const atomic_bool *stop;
    size_t threads;
};
enum fr_status fr_durable_restore(struct fr_durable *durable, const struct fr_restore_visitor *visitor,
                                  struct fr_err *err) FR_MUST_CHECK;

/* ---- the folded state, read in part ---- */

/* Reads images. `image` is the newest folded image of a key, or NULL if the cold store has none;
 * `index` counts the visits from 0. An error that the callback returns ends the read and is
 * returned. */
struct fr_durable_reader {
    void *self;
    enum fr_status (*image)(void *self, size_t index, uint64_t hash, const struct fr_image *image);
};
/* Visits n keys of a table in the given order: by their hashes, which are ascending and
 * distinct. */
enum fr_status fr_durable_fetch(struct fr_durable *durable, uint32_t table, const uint64_t *hashes, size_t n,
                                const struct fr_durable_reader *reader, struct fr_err *err) FR_MUST_CHECK;
/* Visits the images of a table with hashes first..last (both included), ascending. `image` is never
 * NULL. */
enum fr_status fr_durable_scan(struct fr_durable *durable, uint32_t table, uint64_t first, uint64_t last,
                               const struct fr_durable_reader *reader, struct fr_err *err) FR_MUST_CHECK;
/* The folded epoch, at little cost. The number changes only after fetch and scan can read the new
 * epoch. */
uint64_t fr_durable_folded(struct fr_durable *durable);

/* The folded state as of one epoch, unaffected by folds while it is open. Close the view before the
 * durable object. Until then, folds free no disk space of the files they replace. Thread: any, one
 * at a time. */
struct fr_durable_view;
struct fr_durable_folded_epoch {
    uint64_t timeline; /* timeline of the state, whose history the epoch is part of */
    uint64_t epoch;
    struct fr_sha256 digest;
};
/* FR_E_NOT_FOUND: nothing has been folded yet. */
enum fr_status fr_durable_view_open(struct fr_durable *durable, struct fr_durable_view **out,
                                    struct fr_durable_folded_epoch *epoch, struct fr_err *err) FR_MUST_CHECK;
void fr_durable_view_close(struct fr_durable_view *view);
/* Finds the first sub-table from number `from` on that has images. FR_EOF: there is none. */
enum fr_status fr_durable_view_next_table(struct fr_durable_view *view, uint32_t from, uint32_t *out,
                                          struct fr_err *err) FR_MUST_CHECK;
/* Visits the images of a sub-table from hash `first` on, ascending. If the reader returns FR_EOF,
 * the scan ends and returns FR_EOF. */
enum fr_status fr_durable_view_scan(struct fr_durable_view *view, uint32_t table, uint64_t first,
                                    const struct fr_durable_reader *reader, struct fr_err *err) FR_MUST_CHECK;
/* Visits sections by name, ascending. An error that visit returns ends the walk and is returned. */
typedef enum fr_status fr_durable_section_visit(void *self, const char *name, const uint8_t *bytes, size_t size);
enum fr_status fr_durable_view_sections(struct fr_durable_view *view, fr_durable_section_visit *visit, void *self,
                                        struct fr_err *err) FR_MUST_CHECK;

/* Epochs cut from now on belong to `timeline`, which must be above the state's (FR_CHECK). When
 * this returns FR_OK, both copies of the mark hold the new timeline, synced. Existing epochs do not
 * change, because their timeline is part of their bytes. Thread: any. Errors: FR_E_IO. */
enum fr_status fr_durable_begin_timeline(struct fr_durable *durable, uint64_t timeline,
                                         struct fr_err *err) FR_MUST_CHECK;
/* The newest epoch of an older timeline that the journal holds; 0: none. Its content is published
 * only as part of a whole state. */
uint64_t fr_durable_timeline_base(struct fr_durable *durable);

/* Journal bytes of the epochs first..last, as far as the journal holds them. *end (may be NULL) is
 * the last epoch for which the bytes from `first` are at most `window`, or `first` if that one
 * alone is larger. */
uint64_t fr_durable_span(struct fr_durable *durable, uint64_t first, uint64_t last, uint64_t window, uint64_t *end);

/* Appends the stage as epoch status.epoch + 1 (FR_CHECK), in the larger of the stage's timeline and
 * the state's. Syncs the journal, then writes and syncs the HWM: the epoch is durable when this
 * returns FR_OK. The epoch's bytes are appended to *bytes (may be NULL). The durable object keeps
 * the stage's record for publisher and fold and gives the stage other memory, so the stage can only
 * be cleared. FR_E_NO_SPACE leaves journal, epoch and digest unchanged, and the stage may be
 * appended again; any other error is FR_E_IO and final. */
enum fr_status fr_durable_append(struct fr_durable *durable, struct fr_stage *stage, struct fr_buffer *bytes,
                                 struct fr_sha256 *digest, struct fr_err *err) FR_MUST_CHECK;
/* The two halves of fr_durable_append, for a job of several ranks. An epoch that was prepared is
 * synced in the journal, and every later open may keep it; it is durable, can be read and can be
 * published after the commit, which writes and syncs the HWM. Commit it when every rank has
 * prepared it. digest (may be NULL): of the epoch in this journal. Errors of prepare: as of
 * fr_durable_append. Errors of commit are FR_E_IO and final. */
enum fr_status fr_durable_prepare(struct fr_durable *durable, struct fr_stage *stage, struct fr_sha256 *digest,
                                  struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_durable_commit(struct fr_durable *durable, struct fr_stage *stage, struct fr_err *err) FR_MUST_CHECK;
/* Appends the head of the newest epoch's journal file; without a journal (a savepoint, or a state
 * that begins from one), the head of the savepoint. FR_E_NOT_FOUND: there is no epoch. */
enum fr_status fr_durable_newest_head(struct fr_durable *durable, struct fr_buffer *head,
                                      struct fr_err *err) FR_MUST_CHECK;
/* Appends the head for a copy of the state as of a folded epoch: the head of the epoch after it, so
 * that a reader who continues from the copy has that epoch's model, or the head of the newest epoch
 * if none follows. FR_AGAIN: a later fold happened, and the epoch after `folded` has left the
 * journal. */
enum fr_status fr_durable_head_after(struct fr_durable *durable, uint64_t folded, struct fr_buffer *head,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Reads the bytes of one durable epoch and the head of its journal file; both are appended, and
 * either may be NULL. FR_E_NOT_FOUND: the epoch was trimmed or is not durable yet. FR_E_CORRUPT:
 * the record no longer passes its CRC. */
enum fr_status fr_durable_read_epoch(struct fr_durable *durable, uint64_t epoch, struct fr_buffer *bytes,
                                     struct fr_buffer *head, struct fr_err *err) FR_MUST_CHECK;
/* Like fr_durable_read_epoch, for callers that need the bytes for a short time and do not change
 * them. The bytes come from memory while the epoch is kept there; otherwise they are read into
 * `own`, which the caller releases in the end. Give each borrowed epoch back before borrowing the
 * next. `digest` is that of the bytes. */
struct fr_kept;
struct fr_borrowed_epoch {
    const uint8_t *bytes;
    size_t size;
    struct fr_sha256 digest;
    struct fr_buffer own;
    struct fr_kept *kept;
};
enum fr_status fr_durable_borrow(struct fr_durable *durable, uint64_t epoch, struct fr_borrowed_epoch *out,
                                 struct fr_buffer *head, struct fr_err *err) FR_MUST_CHECK;
void fr_durable_give_back(struct fr_durable *durable, struct fr_borrowed_epoch *borrowed);
/* The digest of an epoch (0..durable) while the journal still has it (journal_first - 1 .. epoch;
 * the digest of epoch 0 is all zeros); otherwise FR_E_NOT_FOUND. */
enum fr_status fr_durable_digest(struct fr_durable *durable, uint64_t epoch, struct fr_sha256 *out);

/* Folds all durable, unfolded epochs in one ingest and then trims the journal; does nothing if
 * there is no such epoch. Memory: 64 MiB of windows, and every section once. FR_E_NO_SPACE while
 * sorted files are written leaves the state unchanged, and the call may be repeated. */
enum fr_status fr_durable_fold(struct fr_durable *durable, struct fr_err *err) FR_MUST_CHECK;
/* Stores that epochs up to `acked` are acknowledged (written with the next HWM write, at close, or
 * before files are deleted), and deletes journal files that are no longer needed. acked <=
 * status.epoch (FR_CHECK). After open nothing is deleted before the first call, because the topic
 * may have lost epochs that were acknowledged to an earlier process. A smaller number than before
 * keeps the epochs after it, and does not lower the stored number. */
enum fr_status fr_durable_acknowledge(struct fr_durable *durable, uint64_t acked, struct fr_err *err) FR_MUST_CHECK;

/* Small operator files of the state directory, such as model.json. A write replaces the whole file,
 * syncs it and adds a checksum line (base/sum_line.h); a read returns the content without that
 * line. FR_E_CORRUPT: the checksum does not match. A file without a checksum line was written by an
 * older version and is read as it is. Names consist of [A-Za-z0-9._-], do not begin with a dot, and
 * are none of the directory's own names (FR_E_INVALID). A file has at most 64 MiB. */
enum fr_status fr_durable_write_file(struct fr_durable *durable, const char *name, const void *bytes, size_t size,
                                     struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_durable_read_file(struct fr_durable *durable, const char *name, struct fr_buffer *out,
                                    struct fr_err *err) FR_MUST_CHECK;

#endif
