/* The sorted files of the cold store, in the order in which they are searched for a key's newest
 * image. Module-internal. */
#ifndef FR_DURABLE_COLD_FILES_H
#define FR_DURABLE_COLD_FILES_H

#include "cold_rocks.h"
#include "sorted_file.h"

/* the files of level 0 at which writing pauses, and the levels below */
enum { COLD_RUNS_MAX = 72 };

/* A run of files that have no key in common, sorted by key: [begin, end) of a view's files. */
struct cold_run {
    uint32_t begin, end;
};

/* A key, cut to the length of an image key. */
struct cold_bound {
    uint64_t hash;
    uint32_t table;
};

static inline bool cold_is_less(uint32_t table, uint64_t hash, const struct cold_bound *bound)
{
    return table < bound->table || (table == bound->table && hash < bound->hash);
}

static inline bool cold_is_behind(uint32_t table, uint64_t hash, const struct cold_bound *bound)
{
    return table > bound->table || (table == bound->table && hash > bound->hash);
}

struct cold_file {
    struct fr_sorted_file *file;
    uint64_t number;
    struct cold_bound first, last; /* the first and the last of its keys */
    uint32_t level;
};

/* The files of one version of the store. A view does not change while it is held. */
struct cold_view {
    struct cold_file *files;
    uint32_t n_files, n_runs;
    struct cold_run runs[COLD_RUNS_MAX]; /* newest first */
    uint32_t users;
};

struct fr_cold_files; /* the newest view of a store and its users */
struct fr_cold_files *fr_cold_files_new(struct fr_cold *cold);
void fr_cold_files_free(struct fr_cold_files *files);
/* Returns the view of the store as it is now, until it is given back. NULL: only RocksDB can read
 * the store. Thread: any. */
const struct cold_view *fr_cold_files_hold(struct fr_cold_files *files);
void fr_cold_files_give(struct fr_cold_files *files, const struct cold_view *view);
/* Closes files that compactions have replaced, and all files if no reader held a view for
 * files_idle_ms. To be called from time to time. */
void fr_cold_files_tend(struct fr_cold_files *files);
uint64_t fr_cold_files_bytes(struct fr_cold_files *files);

#endif
