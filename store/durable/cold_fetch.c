/* Point reads of the cold store.
 *
 * The files are read here (cold_files.h) instead of by RocksDB, which took twice as long for a key
 * (`freshet-bench tiers`: 7.7 us including the lookup in memory, 3.5 us here). Keys come in sorted
 * groups. While one key is tested, the filter lines of a key some places later are prefetched, for
 * all files, so a dozen files cost little more than one (as in store/plan.c: Chen, Ailamaki,
 * Gibbons, Mowry 2004). Then the one block that almost certainly has the key is read. Blocks are
 * read without waiting as long as they are in the page cache. At the first block that is not, the
 * system is asked to fetch the blocks of all remaining keys of the group, so that it reads them in
 * parallel.
 *
 * RocksDB reads what cannot be read this way: all keys if there is no view; one key if its block
 * looks wrong, which RocksDB then either reads or reports as damaged.
 *
 * Invariants: checksums are verified; an error is never taken for "absent".
 *
 * Thread: any. A read sees the store before or after a fold, never half a fold. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cold_files.h"

enum {
    GROUP = 128,
    AHEAD = 6, /* keys between prefetch and test */
    /* most files that may have one key; if there are more, RocksDB reads the key */
    CANDIDATES_MAX = 8,
};

struct sought {
    struct fr_sorted_key key;
    uint32_t n; /* number of files that may have the key, newest first */
    const struct fr_sorted_file *files[CANDIDATES_MAX];
    uint32_t block; /* block in the first of these files */
};

struct fetch {
    struct fr_cold *cold;
    const struct cold_view *view;
    const struct fr_cold_keys *keys;
    cold_fetched visit;
    void *self;
    struct fr_sorted_value value;
    rocksdb_readoptions_t *options; /* NULL: RocksDB was not asked yet */
    uint64_t found;
    size_t begin; /* index of the group's first key */
    uint32_t n;   /* number of keys in the group */
    /* all blocks of the group read so far were in memory */
    bool in_memory;
    /* for each run, the present file of the prefetch and of the test */
    uint32_t ahead[COLD_RUNS_MAX], at[COLD_RUNS_MAX];
    struct sought group[GROUP];
};

/* ---- by RocksDB ---- */

static enum fr_status visit_value(struct fetch *fetch, size_t place, const uint8_t *value, size_t size,
                                  struct fr_err *err)
{
    uint8_t key[COLD_KEY_SIZE];
    struct fr_image image;
    uint64_t hash = fetch->keys->hashes[place];
    cold_put_key(key, fetch->keys->table, hash);
    if (!fr_cold_image_of(fetch->cold, key, value, size, &image))
        return fr_cold_no_image(fetch->cold, err);
    fetch->found++;
    return fetch->visit(fetch->self, place, hash, &image);
}

static enum fr_status visit_none(const struct fetch *fetch, size_t place)
{
    return fetch->visit(fetch->self, place, fetch->keys->hashes[place], NULL);
}

static enum fr_status ask_rocksdb(struct fetch *fetch, size_t place, struct fr_err *err)
{
    uint8_t key[COLD_KEY_SIZE];
    char *text = NULL;
    size_t size;
    if (!fetch->options) {
        fetch->options = rocksdb_readoptions_create();
        rocksdb_readoptions_set_verify_checksums(fetch->options, 1);
        rocksdb_readoptions_set_fill_cache(fetch->options, 0);
    }
    cold_put_key(key, fetch->keys->table, fetch->keys->hashes[place]);
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(fetch->cold->db, fetch->options, (const char *)key, sizeof(key), &text);
    if (text)
        return fr_cold_error(text, "read", fetch->cold->path, err);
    if (!slice)
        return visit_none(fetch, place);
    const uint8_t *value = (const uint8_t *)rocksdb_pinnableslice_value(slice, &size);
    enum fr_status status = visit_value(fetch, place, value, size, err);
    rocksdb_pinnableslice_destroy(slice);
    return status;
}

/* ---- from the files ---- */

/* Returns the file of a run whose bounds include the key, or NULL. Keys ascend, and so does *at. */
static inline const struct fr_sorted_file *file_of(const struct cold_view *view, uint32_t run,
                                                   const struct fr_sorted_key *key, uint32_t *at)
{
    while (*at < view->runs[run].end && cold_is_behind(key->table, key->hash, &view->files[*at].last))
        ++*at;
    bool is_in = *at < view->runs[run].end && !cold_is_less(key->table, key->hash, &view->files[*at].first);
    return is_in ? view->files[*at].file : NULL;
}

static void fetch_lines(struct fetch *fetch, const struct fr_sorted_key *key)
{
    for (uint32_t r = 0; r < fetch->view->n_runs; r++) {
        const struct fr_sorted_file *file = file_of(fetch->view, r, key, &fetch->ahead[r]);
        if (file)
            __builtin_prefetch(fr_sorted_line(file, key));
    }
}

static void test_lines(struct fetch *fetch, struct sought *sought)
{
    sought->n = 0;
    for (uint32_t r = 0; r < fetch->view->n_runs; r++) {
        const struct fr_sorted_file *file = file_of(fetch->view, r, &sought->key, &fetch->at[r]);
        if (!file || !fr_sorted_may_have(file, &sought->key))
            continue;
        if (sought->n < CANDIDATES_MAX)
            sought->files[sought->n] = file;
        sought->n++;
    }
    if (sought->n > 0)
        sought->block = fr_sorted_block(sought->files[0], &sought->key);
}

static void seek_group(struct fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->n + AHEAD; i++) {
        if (i < fetch->n) {
            fetch->group[i].key = fr_sorted_key_of(fetch->keys->table, fetch->keys->hashes[fetch->begin + i]);
            fetch_lines(fetch, &fetch->group[i].key);
        }
        if (i >= AHEAD)
            test_lines(fetch, &fetch->group[i - AHEAD]);
    }
}

/* Asks the system for the group's blocks from number `from` on. From here on, reads of the group
 * wait for the disk. */
static void fetch_blocks(struct fetch *fetch, uint32_t from)
{
    fetch->in_memory = false;
    for (uint32_t i = from; i < fetch->n; i++)
        if (fetch->group[i].n > 0)
            fr_sorted_will_read(fetch->group[i].files[0], fetch->group[i].block);
}

static enum fr_sorted_answer read_key(struct fetch *fetch, uint32_t i)
{
    const struct sought *sought = &fetch->group[i];
    enum fr_sorted_answer answer = FR_SORTED_NONE;
    for (uint32_t f = 0; f < sought->n && answer == FR_SORTED_NONE; f++) {
        uint32_t block = f ? fr_sorted_block(sought->files[f], &sought->key) : sought->block;
        answer = fr_sorted_get(sought->files[f], &sought->key, block, !fetch->in_memory, &fetch->value);
        if (answer != FR_SORTED_WAITS)
            continue;
        fetch_blocks(fetch, i);
        answer = fr_sorted_get(sought->files[f], &sought->key, block, true, &fetch->value);
    }
    return answer;
}

static enum fr_status visit_group(struct fetch *fetch, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    fetch->in_memory = true;
    for (uint32_t i = 0; i < fetch->n && status == FR_OK; i++) {
        size_t place = fetch->begin + i;
        switch (fetch->group[i].n > CANDIDATES_MAX ? FR_SORTED_ODD : read_key(fetch, i)) {
        case FR_SORTED_VALUE:
            status = visit_value(fetch, place, fetch->value.bytes, fetch->value.size, err);
            break;
        case FR_SORTED_DELETED:
        case FR_SORTED_NONE:
            status = visit_none(fetch, place);
            break;
        default:
            status = ask_rocksdb(fetch, place, err);
        }
    }
    return status;
}

static enum fr_status fetch_from_files(struct fetch *fetch, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (uint32_t r = 0; r < fetch->view->n_runs; r++)
        fetch->ahead[r] = fetch->at[r] = fetch->view->runs[r].begin;
    for (; fetch->begin < fetch->keys->n && status == FR_OK; fetch->begin += GROUP) {
        size_t left = fetch->keys->n - fetch->begin;
        fetch->n = left < GROUP ? (uint32_t)left : GROUP;
        seek_group(fetch);
        status = visit_group(fetch, err);
    }
    return status;
}

enum fr_status fr_cold_fetch(struct fr_cold *cold, const struct fr_cold_keys *keys, cold_fetched visit, void *self,
                             struct fr_err *err)
{
    struct fetch fetch;
    enum fr_status status = FR_OK;
    memset(&fetch, 0, offsetof(struct fetch, group));
    fetch.cold = cold;
    fetch.keys = keys;
    fetch.visit = visit;
    fetch.self = self;
    fetch.view = cold->files ? fr_cold_files_hold(cold->files) : NULL;
    if (fetch.view)
        status = fetch_from_files(&fetch, err);
    for (size_t i = 0; !fetch.view && i < keys->n && status == FR_OK; i++)
        status = ask_rocksdb(&fetch, i, err);
    if (fetch.view)
        fr_cold_files_give(cold->files, fetch.view);
    if (fetch.options)
        rocksdb_readoptions_destroy(fetch.options);
    fr_buffer_release(&fetch.value.block);
    atomic_fetch_add_explicit(&cold->asked, keys->n, memory_order_relaxed);
    atomic_fetch_add_explicit(&cold->found, fetch.found, memory_order_relaxed);
    return status;
}
