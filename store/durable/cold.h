/* The cold store: everything as of one folded epoch, in RocksDB. Module-internal; cold_rocks.h
 * names the files that know RocksDB. */
#ifndef FR_DURABLE_COLD_H
#define FR_DURABLE_COLD_H

#include "base/file.h"
#include "durable/epoch.h"

struct fr_cold;

struct fr_cold_sentinel {
    uint64_t timeline, epoch, salt;
    struct fr_sha256 digest;
};

/* read_only: also beside a running writer; *out is NULL when there is no store yet. fold_bytes:
 * as in fr_durable_options. FR_E_CORRUPT, FR_E_IO, FR_E_NO_SPACE, FR_E_LIMIT (open files). */
enum fr_status fr_cold_open(const char *path, uint64_t fold_bytes, bool read_only, struct fr_cold **out,
                            struct fr_err *err) FR_MUST_CHECK;
void fr_cold_close(struct fr_cold *cold);
/* By what order its keys are; before the first image is read or written. */
void fr_cold_sort_by(struct fr_cold *cold, const struct fr_order *order);
/* Epoch 0 when the store is empty. FR_E_CORRUPT when it holds rows but no sentinel; FR_E_MISMATCH:
 * another format. */
struct fr_cold_snapshot;
enum fr_status fr_cold_read_sentinel(struct fr_cold *cold, const struct fr_cold_snapshot *at,
                                     struct fr_cold_sentinel *out, struct fr_err *err) FR_MUST_CHECK;

/* The store as it is now, for walks beside folds; what they replace keeps its disk until it is
 * freed. */
struct fr_cold_snapshot;
struct fr_cold_snapshot *fr_cold_snapshot_new(struct fr_cold *cold);
void fr_cold_snapshot_free(struct fr_cold *cold, struct fr_cold_snapshot *snapshot);

/* Images in (table, hash) order, of all tables or of a range; done_bytes counts keys and values. An
 * error of visit ends the walk and is returned; FR_EOF too. Any thread. */
struct fr_cold_range {
    uint32_t table;
    uint64_t first, last;              /* hashes, both included */
    const struct fr_cold_snapshot *at; /* NULL: as it is now */
};
typedef enum fr_status (*cold_visit)(void *self, const struct fr_image *image, uint64_t done_bytes);
enum fr_status fr_cold_walk(struct fr_cold *cold, const struct fr_cold_range *range, cold_visit visit, void *self,
                            struct fr_err *err) FR_MUST_CHECK;
/* The first table from `from` on that has images; FR_EOF: none. */
enum fr_status fr_cold_next_table(struct fr_cold *cold, uint32_t from, uint32_t *out, struct fr_err *err) FR_MUST_CHECK;
/* Point reads of distinct, ascending hashes: visit gets each in turn, its image NULL when there is
 * none. An error of visit ends it and is returned. Any thread. */
typedef enum fr_status (*cold_fetched)(void *self, size_t index, uint64_t hash, const struct fr_image *image);
struct fr_cold_keys {
    uint32_t table;
    const uint64_t *hashes;
    size_t n;
};
enum fr_status fr_cold_fetch(struct fr_cold *cold, const struct fr_cold_keys *keys, cold_fetched visit, void *self,
                             struct fr_err *err) FR_MUST_CHECK;

/* Sections by name. An error of visit ends the walk and is returned. */
typedef enum fr_status (*cold_visit_section)(void *self, const char *name, const uint8_t *bytes, size_t size);
enum fr_status fr_cold_walk_sections(struct fr_cold *cold, const struct fr_cold_snapshot *at, cold_visit_section visit,
                                     void *self, struct fr_err *err) FR_MUST_CHECK;

/* Whether CURRENT names a MANIFEST that is there; true when it cannot be read. */
bool fr_cold_current_leads_on(const char *path);
/* A copy as of the last fold at `path`, which must not exist: links to sorted files where the file
 * system is the same, synced. Beside reads and compactions, not beside an ingest. */
enum fr_status fr_cold_checkpoint(struct fr_cold *cold, const char *path, struct fr_err *err) FR_MUST_CHECK;

/* Now and then, by any thread: gives back what reads no longer need. */
void fr_cold_tend(struct fr_cold *cold);
uint64_t fr_cold_level0_files(struct fr_cold *cold);
uint64_t fr_cold_bytes(struct fr_cold *cold);
/* What RocksDB holds in memory: filters and indexes of its files. */
uint64_t fr_cold_memory(struct fr_cold *cold);
/* Keys that were asked for, and those that were found, since open. */
void fr_cold_reads(struct fr_cold *cold, uint64_t *asked, uint64_t *found);
/* What RocksDB met in the background since open; a compaction without room counts repeatedly. */
uint64_t fr_cold_background_errors(struct fr_cold *cold);
/* FR_OK also while a compaction waits for room. FR_E_NO_SPACE: nothing can be written before there
 * is room; it goes on by itself. FR_E_IO, FR_E_CORRUPT: it has failed; see its LOG file. */
enum fr_status fr_cold_health(struct fr_cold *cold, struct fr_err *err) FR_MUST_CHECK;

/* ---- one fold ---- */

/* Sorted files under dir, taken in by one call. Adds come in ascending (table, hash), then sections
 * by name, then the sentinel. About `bytes` come; while nothing was ever read by keys, because all
 * rows are in memory, many go around the page cache. */
struct fr_cold_writer;
struct fr_cold_writer *fr_cold_writer_new(struct fr_cold *cold, const char *dir, uint64_t file_max, uint64_t bytes);
/* hash: of its key. */
enum fr_status fr_cold_writer_image(struct fr_cold_writer *writer, const struct fr_image *image, uint64_t hash,
                                    struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_cold_writer_section(struct fr_cold_writer *writer, const char *name, const uint8_t *bytes,
                                      size_t size, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_cold_writer_sentinel(struct fr_cold_writer *writer, const struct fr_cold_sentinel *sentinel,
                                       struct fr_err *err) FR_MUST_CHECK;
/* The last file is written and whole; nothing has entered the store yet. */
enum fr_status fr_cold_writer_finish(struct fr_cold_writer *writer, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_cold_writer_ingest(struct fr_cold_writer *writer, struct fr_err *err) FR_MUST_CHECK;
/* Removes what files are left (all, when nothing was ingested). */
void fr_cold_writer_free(struct fr_cold_writer *writer);
/* Before the first snapshot of a store that an older version folded into once: ingests its sentinel
 * again, by files in `dir`, so that the next sequence number is not that of its rows. */
enum fr_status fr_cold_number(struct fr_cold *cold, const char *dir, const struct fr_cold_sentinel *sentinel,
                              struct fr_err *err) FR_MUST_CHECK;

#endif
