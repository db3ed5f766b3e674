/* The cold store: the state as of the folded epoch, in RocksDB. Module-internal. cold_rocks.h lists
 * the files that use RocksDB. */
#ifndef FR_DURABLE_COLD_H
#define FR_DURABLE_COLD_H

#include "base/file.h"
#include "durable/epoch.h"

struct fr_cold;

struct fr_cold_sentinel {
    uint64_t timeline, epoch, salt;
    struct fr_sha256 digest;
};

/* Opens the store. read_only works also while a writer runs; *out is then NULL if there is no store
 * yet. fold_bytes: as in fr_durable_options. Errors: FR_E_CORRUPT, FR_E_IO, FR_E_NO_SPACE,
 * FR_E_LIMIT (open files), FR_E_MISMATCH (cold_version.h). */
enum fr_status fr_cold_open(const char *path, uint64_t fold_bytes, bool read_only, struct fr_cold **out,
                            struct fr_err *err) FR_MUST_CHECK;
void fr_cold_close(struct fr_cold *cold);
/* Sets the order by which the store's keys are sorted. Call before any image is read or written. */
void fr_cold_sort_by(struct fr_cold *cold, const struct fr_order *order);
/* Reads the sentinel; epoch 0: the store is empty. FR_E_CORRUPT: the store holds rows but no
 * sentinel. FR_E_MISMATCH: it has another format. */
struct fr_cold_snapshot;
enum fr_status fr_cold_read_sentinel(struct fr_cold *cold, const struct fr_cold_snapshot *at,
                                     struct fr_cold_sentinel *out, struct fr_err *err) FR_MUST_CHECK;

/* The store as it is now, for walks during folds. Files that folds replace keep their disk space
 * until the snapshot is freed. */
struct fr_cold_snapshot;
struct fr_cold_snapshot *fr_cold_snapshot_new(struct fr_cold *cold);
void fr_cold_snapshot_free(struct fr_cold *cold, struct fr_cold_snapshot *snapshot);

/* Visits images in (table, hash) order, of all tables or of a range; done_bytes counts the keys and
 * values so far. An error of visit, or FR_EOF, ends the walk and is returned. Thread: any. */
struct fr_cold_range {
    uint32_t table;
    uint64_t first, last;              /* hashes, both included */
    const struct fr_cold_snapshot *at; /* NULL: the store as it is now */
};
typedef enum fr_status (*cold_visit)(void *self, const struct fr_image *image, uint64_t done_bytes);
enum fr_status fr_cold_walk(struct fr_cold *cold, const struct fr_cold_range *range, cold_visit visit, void *self,
                            struct fr_err *err) FR_MUST_CHECK;
/* The first table, from `from` on, that has images. FR_EOF: there is none. */
enum fr_status fr_cold_next_table(struct fr_cold *cold, uint32_t from, const struct fr_cold_snapshot *at, uint32_t *out,
                                  struct fr_err *err) FR_MUST_CHECK;
/* Point reads of distinct, ascending hashes. visit is called for each of them in order; image is
 * NULL if there is none. An error of visit ends the reads and is returned. Thread: any. */
typedef enum fr_status (*cold_fetched)(void *self, size_t index, uint64_t hash, const struct fr_image *image);
struct fr_cold_keys {
    uint32_t table;
    const uint64_t *hashes;
    size_t n;
};
enum fr_status fr_cold_fetch(struct fr_cold *cold, const struct fr_cold_keys *keys, cold_fetched visit, void *self,
                             struct fr_err *err) FR_MUST_CHECK;

/* Visits sections by name. An error of visit ends the walk and is returned. */
typedef enum fr_status (*cold_visit_section)(void *self, const char *name, const uint8_t *bytes, size_t size);
enum fr_status fr_cold_walk_sections(struct fr_cold *cold, const struct fr_cold_snapshot *at, cold_visit_section visit,
                                     void *self, struct fr_err *err) FR_MUST_CHECK;

/* Whether CURRENT names a MANIFEST that exists; true if CURRENT cannot be read. */
bool fr_cold_current_leads_on(const char *path);
/* Makes a copy of the store as of the last fold at `path`, which must not exist, and syncs it.
 * Sorted files are linked if the file system is the same. May run during reads and compactions, not
 * during an ingest. */
enum fr_status fr_cold_checkpoint(struct fr_cold *cold, const char *path, struct fr_err *err) FR_MUST_CHECK;

/* Releases what reads no longer need. To be called from time to time, by any thread. */
void fr_cold_tend(struct fr_cold *cold);
uint64_t fr_cold_level0_files(struct fr_cold *cold);
uint64_t fr_cold_bytes(struct fr_cold *cold);
/* Since open: keys that were asked for, and keys that were found. */
void fr_cold_reads(struct fr_cold *cold, uint64_t *asked, uint64_t *found);
/* Errors of RocksDB's background work since open. A compaction without room counts repeatedly. */
uint64_t fr_cold_background_errors(struct fr_cold *cold);
/* FR_OK: healthy; also while a compaction waits for room. FR_E_NO_SPACE: nothing can be written
 * until there is room, then RocksDB continues by itself. FR_E_IO, FR_E_CORRUPT: RocksDB has failed;
 * its LOG file has the details. */
enum fr_status fr_cold_health(struct fr_cold *cold, struct fr_err *err) FR_MUST_CHECK;

/* ---- one fold ---- */

/* A fold's sorted files under dir, which one call ingests. The caller adds images by ascending
 * (table, hash), then sections by name, then the sentinel, about `bytes` in all. While no key was
 * ever read, because all rows are in memory, most writes bypass the page cache. */
struct fr_cold_writer;
struct fr_cold_writer *fr_cold_writer_new(struct fr_cold *cold, const char *dir, uint64_t file_max, uint64_t bytes);
/* hash: that of the image's key. */
enum fr_status fr_cold_writer_image(struct fr_cold_writer *writer, const struct fr_image *image, uint64_t hash,
                                    struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_cold_writer_section(struct fr_cold_writer *writer, const char *name, const uint8_t *bytes,
                                      size_t size, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_cold_writer_sentinel(struct fr_cold_writer *writer, const struct fr_cold_sentinel *sentinel,
                                       struct fr_err *err) FR_MUST_CHECK;
/* Completes the last file. Nothing is in the store yet. */
enum fr_status fr_cold_writer_finish(struct fr_cold_writer *writer, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_cold_writer_ingest(struct fr_cold_writer *writer, struct fr_err *err) FR_MUST_CHECK;
/* Removes the files that are left; all of them if nothing was ingested. */
void fr_cold_writer_free(struct fr_cold_writer *writer);
/* To be called before the first snapshot of a store into which an older version folded once:
 * ingests the store's sentinel again, from a file in `dir`, so that a snapshot's sequence number
 * differs from that of the rows. */
enum fr_status fr_cold_number(struct fr_cold *cold, const char *dir, const struct fr_cold_sentinel *sentinel,
                              struct fr_err *err) FR_MUST_CHECK;

#endif
