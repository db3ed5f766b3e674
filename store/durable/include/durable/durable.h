/* The durable side of a state directory: lock, journal of epochs, high-water mark, fold into the
 * cold store (RocksDB), recovery. docs/formats/state.md has the layout of its files.
 *
 * Invariants (docs/architecture.md, "One epoch's life"): an epoch is durable when its bytes are in
 * the journal and the HWM names it, both synced, in that order. Opening cuts off and syncs what
 * lies beyond the HWM. A fold is one RocksDB ingest of sorted files that end with a sentinel. fsync
 * is never retried: after FR_E_IO the object refuses everything (fail-stop). Journal files that are
 * folded and acknowledged are deleted, never the newest.
 *
 * Thread: the durable thread appends, the fold thread folds, and restore comes before both
 * begin. Any thread may call read_epoch, digest, acknowledge, small files, status, fetch, scan
 * and folded, several at once, also beside a fold: then a read sees the cold store before it or
 * after it. The index of journal files is under one internal mutex, which is never held during
 * I/O. Close when no other call is running. */
#ifndef FR_DURABLE_DURABLE_H
#define FR_DURABLE_DURABLE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/file.h"
#include "durable/epoch.h"

enum { FR_STATE_FORMAT = 4, FR_LEVEL0_FILES_MAX = 64 };
/* A fold's windows on the epochs that it merges take so many bytes together, more only for images
 * larger than their window. */
enum { FR_FOLD_WINDOWS = 64 << 20 };
/* Descriptors that a process with an open directory needs at least, its clients and server too. */
enum { FR_DURABLE_FILES_MIN = 128 };
/* Room that opening takes on a disk: RocksDB writes a manifest (some 200 bytes a file, on top of
 * these bytes as much as the last one has), its options and the head of its log, and an assertion
 * of it ends the process where there is no room. */
enum { FR_DURABLE_OPEN_BYTES = 1 << 20 };

struct fr_durable;

struct fr_durable_options {
    const char *dir;            /* created when missing (not when read_only) */
    const struct fr_disk *disk; /* NULL: the system's */
    /* no lock, no truncation, no RocksDB write: also on a running or damaged directory */
    bool read_only;
    uint64_t journal_file_max; /* rotate after this many bytes; 0: 64 MiB */
    /* About so many bytes of the journal are in a fold, by which the cold store's levels are
     * sized; 0: 64 MiB. Its filters and indexes take about 2 bytes a row in memory. */
    uint64_t fold_bytes;
    /* So many bytes of the newest epochs stay in memory, for publisher and fold; 0: 64 MiB. */
    uint64_t keep_bytes;
    /* So much of one of them gets its memory at open (fr_stage_touch); 0: none. */
    uint64_t touch_bytes;
    /* Of the keyed order (base/order.h) of a directory that is made now; an existing one keeps its
     * own. */
    uint64_t salt;
    /* Codec settings, opaque here: kept in the head of every journal file; another head rotates the
     * file. */
    const void *head;
    size_t head_size;
    /* A fold says after each MiB it has merged that it goes on, in its thread; NULL: to nobody. */
    void (*merged)(void *self);
    void *merged_self;
};

struct fr_durable_status {
    uint64_t salt;     /* of the keyed order by which epochs and cold store sort */
    uint64_t timeline; /* 0: nothing yet */
    uint64_t epoch;    /* last durable; 0: none */
    struct fr_sha256 digest;
    uint64_t folded; /* epoch of the cold store; 0: none */
    /* last epoch known to be acknowledged on the delta topic (a hint, stored with the HWM) */
    uint64_t acked;
    uint64_t journal_first; /* oldest epoch in the journal; 0: empty */
    uint64_t journal_bytes;
    uint64_t unfolded_bytes; /* journal bytes of epochs > folded */
    uint64_t level0_files, cold_bytes;
    bool folding;
    uint64_t cold_asked, cold_found; /* keys of fr_durable_fetch since open, and images for them */
};

/* FR_E_BUSY (another daemon; names its pid), FR_E_MISMATCH (format version; with the remedy),
 * FR_E_CORRUPT (chain, salt, HWM and sentinel do not fit: says what is missing), FR_E_NOT_FOUND
 * (read_only: no state there), FR_E_INVALID or FR_E_LIMIT (options), FR_E_NO_SPACE, FR_E_IO. A
 * refused open changes no state and can be tried again. */
enum fr_status fr_durable_open(const struct fr_durable_options *options, struct fr_durable **out,
                               struct fr_err *err) FR_MUST_CHECK;
void fr_durable_close(struct fr_durable *durable);
void fr_durable_get_status(struct fr_durable *durable, struct fr_durable_status *out);

/* Recovery visits the newest value of each section, by name, which may be that of any epoch;
 * then, unless wants_cold says no, every image of the cold store by (table, hash); then the
 * images of the unfolded epochs in ascending order (a later image replaces an earlier one; cold
 * never yields absent keys). A visitor's error stops all, and so does *stop, with
 * FR_E_CANCELLED.
 *
 * Thread: `threads` of them call image, each with its own number (0: the caller's, the only one
 * when threads is 0 or 1). All images of one table and shard (the top 4 bits of the hash) come
 * with one number, in the order said. section and wants_cold are the caller's thread. progress
 * comes from any, one at a time, never less than before. Bytes passed CRC and digest at open;
 * here the CRC is compared again. Memory: 64 MiB of epochs, or the largest one. */
struct fr_restore_visitor {
    void *self;
    /* all but self may be NULL */
    /* The section that is visited before all others, with NULL for its bytes when no epoch holds
     * it: who decides by it whether the others can be read. */
    const char *first;
    enum fr_status (*image)(void *self, size_t thread, const struct fr_image *image);
    enum fr_status (*section)(void *self, const char *name, const uint8_t *bytes, size_t size);
    bool (*wants_cold)(void *self); /* NULL: yes */
    void (*progress)(void *self, uint64_t done_bytes, uint64_t total_bytes);
    const atomic_bool *stop;
    size_t threads;
};
enum fr_status fr_durable_restore(struct fr_durable *durable, const struct fr_restore_visitor *visitor,
                                  struct fr_err *err) FR_MUST_CHECK;

/* ---- the folded state, read in part ---- */

/* What a key's newest folded image is, NULL when the cold store has none. index counts visits from
 * 0. An error ends the read and is returned. */
struct fr_durable_reader {
    void *self;
    enum fr_status (*image)(void *self, size_t index, uint64_t hash, const struct fr_image *image);
};
/* Visits n keys of a table, given as their hashes, ascending and distinct, in that order. */
enum fr_status fr_durable_fetch(struct fr_durable *durable, uint32_t table, const uint64_t *hashes, size_t n,
                                const struct fr_durable_reader *reader, struct fr_err *err) FR_MUST_CHECK;
/* Visits the images of a table with hashes first..last (both included), ascending; never NULL. */
enum fr_status fr_durable_scan(struct fr_durable *durable, uint32_t table, uint64_t first, uint64_t last,
                               const struct fr_durable_reader *reader, struct fr_err *err) FR_MUST_CHECK;
/* The folded epoch, cheap: it moves after what it says can be read by both. */
uint64_t fr_durable_folded(struct fr_durable *durable);

/* The folded state as of one epoch, whatever is folded while it is read. Close it before the
 * durable object; until then folds free no disk of what they replace. Any thread, one at a time. */
struct fr_durable_view;
struct fr_durable_folded_epoch {
    uint64_t timeline; /* of the state, whose history it is part of */
    uint64_t epoch;
    struct fr_sha256 digest;
};
/* FR_E_NOT_FOUND: nothing is folded yet. */
enum fr_status fr_durable_view_open(struct fr_durable *durable, struct fr_durable_view **out,
                                    struct fr_durable_folded_epoch *epoch, struct fr_err *err) FR_MUST_CHECK;
void fr_durable_view_close(struct fr_durable_view *view);
/* Visits the images of a table from hash `first` on, ascending; FR_EOF when the reader returned
 * it. */
enum fr_status fr_durable_view_scan(struct fr_durable_view *view, uint32_t table, uint64_t first,
                                    const struct fr_durable_reader *reader, struct fr_err *err) FR_MUST_CHECK;
/* Visits sections by name, ascending; an error of visit ends it and is returned. */
typedef enum fr_status fr_durable_section_visit(void *self, const char *name, const uint8_t *bytes, size_t size);
enum fr_status fr_durable_view_sections(struct fr_durable_view *view, fr_durable_section_visit *visit, void *self,
                                        struct fr_err *err) FR_MUST_CHECK;

/* What is cut from now on is of this timeline, which is above the state's (FR_CHECK): both copies
 * of the mark say so, synced, when this returns FR_OK. Epochs stay as they are: their timeline is
 * part of their bytes. Thread: any. FR_E_IO. */
enum fr_status fr_durable_begin_timeline(struct fr_durable *durable, uint64_t timeline,
                                         struct fr_err *err) FR_MUST_CHECK;
/* The newest epoch of an older timeline that the journal holds, 0: none. What is published of it
 * goes out as part of a whole state. */
uint64_t fr_durable_timeline_base(struct fr_durable *durable);

/* Journal bytes of the epochs first..last that the journal holds; *end (may be NULL): the last one
 * up to which they come to at most `window`, at least first. */
uint64_t fr_durable_span(struct fr_durable *durable, uint64_t first, uint64_t last, uint64_t window, uint64_t *end);

/* Appends the stage as epoch status.epoch + 1 (FR_CHECK), of its timeline or the state's, which is
 * the larger one, syncs, moves the HWM, and syncs: the
 * epoch is durable when this returns FR_OK. The epoch's bytes are appended to *bytes (may be
 * NULL); the stage's record stays with the durable object, for publisher and fold, and the stage
 * gets other memory: it can only be cleared. FR_E_NO_SPACE leaves the journal as it was (epoch
 * and digest unchanged; the stage may be appended again); everything else is FR_E_IO and final. */
enum fr_status fr_durable_append(struct fr_durable *durable, struct fr_stage *stage, struct fr_buffer *bytes,
                                 struct fr_sha256 *digest, struct fr_err *err) FR_MUST_CHECK;
/* Appends the head of the newest epoch's journal file; without a journal (a savepoint, or a state
 * that begins from one) that of the savepoint. FR_E_NOT_FOUND: there is no epoch. */
enum fr_status fr_durable_newest_head(struct fr_durable *durable, struct fr_buffer *head,
                                      struct fr_err *err) FR_MUST_CHECK;
/* Appends the head that a copy of the state as of a folded epoch goes with: that of the epoch after
 * it, so that readers who continue there know its model, or of the newest one. FR_AGAIN: a later
 * fold came, and the epoch after this one has left the journal. */
enum fr_status fr_durable_head_after(struct fr_durable *durable, uint64_t folded, struct fr_buffer *head,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Reads the bytes of one durable epoch and the head of its journal file (both are appended; either
 * may be NULL). Errors: FR_E_NOT_FOUND when trimmed or not durable yet; FR_E_CORRUPT when the
 * record no longer passes its CRC. */
enum fr_status fr_durable_read_epoch(struct fr_durable *durable, uint64_t epoch, struct fr_buffer *bytes,
                                     struct fr_buffer *head, struct fr_err *err) FR_MUST_CHECK;
/* The same for who only looks at it: from memory while the newest epochs are kept there, else
 * read into own, which the caller releases in the end. Each borrowed epoch is given back before
 * the next. The bytes are those whose digest this is. */
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
/* Gives the digest of an epoch (0..durable) while the journal still knows it (journal_first - 1 ..
 * epoch; 0 has a digest of zeros), else FR_E_NOT_FOUND. */
enum fr_status fr_durable_digest(struct fr_durable *durable, uint64_t epoch, struct fr_sha256 *out);

/* Folds all durable unfolded epochs in one ingest, then trims; it does nothing when there are none.
 * Memory: 64 MiB of windows, and every section once. After FR_E_NO_SPACE while sorted files are
 * written nothing has happened, and it may be tried again. */
enum fr_status fr_durable_fold(struct fr_durable *durable, struct fr_err *err) FR_MUST_CHECK;
/* Remembers that epochs <= acked are acknowledged (stored with the next HWM write, at close, or
 * before files go), and deletes journal files no longer needed. acked <= status.epoch (FR_CHECK).
 * After open nothing is deleted before the first call: what an earlier process was told may be lost
 * on the topic since. A smaller one than before keeps later epochs, and what is remembered. */
enum fr_status fr_durable_acknowledge(struct fr_durable *durable, uint64_t acked, struct fr_err *err) FR_MUST_CHECK;

/* Small operator files of the state directory (model.json and the like) are replaced whole, with
 * a sync and a checksum line (base/sum_line.h), and read without it. FR_E_CORRUPT: the checksum
 * is another. A file without one is as older versions wrote it, and is read as it is. Names are
 * of [A-Za-z0-9._-], do not begin with a dot, and are none of the directory's own
 * (FR_E_INVALID). A file has at most 64 MiB. */
enum fr_status fr_durable_write_file(struct fr_durable *durable, const char *name, const void *bytes, size_t size,
                                     struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_durable_read_file(struct fr_durable *durable, const char *name, struct fr_buffer *out,
                                    struct fr_err *err) FR_MUST_CHECK;

#endif
