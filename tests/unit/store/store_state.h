/* A state directory for the store of a test, and its keys, in memory or in the cold store. Nothing
 * is synced, because no power is cut here and thousands of syncs would take minutes. */
#ifndef FR_TESTS_STORE_STATE_H
#define FR_TESTS_STORE_STATE_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "durable/durable.h"
#include "store_fixture.h"

#define STATE_SALT UINT64_C(0x5a17)

struct test_state {
    struct fr_durable *durable; /* NULL: closed */
    struct fr_disk disk;
    char dir[FR_TEST_FOLDER];
};

static inline int state_no_sync(void *self, int fd)
{
    (void)self, (void)fd;
    return 0;
}

static inline int state_no_sync_dir(void *self, const char *path)
{
    (void)self, (void)path;
    return 0;
}

static inline void state_create(struct test_state *state)
{
    *state = (struct test_state){.disk = *fr_disk_system()};
    state->disk.fdatasync = state_no_sync;
    state->disk.sync_dir = state_no_sync_dir;
    fr_test_folder(state->dir);
}

/* Opens the directory, and the store above it. */
static inline void state_open(struct test_state *state, struct fr_store *store)
{
    struct fr_err err = {0};
    struct fr_durable_options options = {.dir = state->dir,
                                         .disk = &state->disk,
                                         .journal_file_max = 256 << 10,
                                         .fold_bytes = 1 << 20,
                                         .salt = STATE_SALT};
    if (fr_durable_open(&options, &state->durable, &err) != FR_OK)
        fail_msg("open: %s", err.text);
    fr_store_open_state(store, STATE_SALT, state->durable);
}

static inline void state_close(struct test_state *state)
{
    fr_durable_close(state->durable);
    state->durable = NULL;
}

static inline void state_remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char below[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof(below), "%.250s/%.200s", path, entry->d_name);
        if (unlink(below) != 0)
            state_remove_tree(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static inline void state_fold(struct test_state *state, uint64_t acknowledged)
{
    struct fr_err err = {0};
    if (fr_durable_acknowledge(state->durable, acknowledged, &err) != FR_OK ||
        fr_durable_fold(state->durable, &err) != FR_OK)
        fail_msg("fold: %s", err.text);
}

/* ---- keys, in memory or in the cold store ---- */

struct state_view {
    struct fr_store_view view;
    float row[TEST_ROW_FLOATS]; /* memory of view.row for a row in the cold store */
    bool found;
};

/* Keys that are not in memory, by hash. */
struct state_missing {
    uint64_t hash;
    struct state_view *cold;
};

static inline int state_compare_missing(const void *left, const void *right)
{
    const struct state_missing *a = left, *b = right;
    return (a->hash > b->hash) - (a->hash < b->hash);
}

static inline enum fr_status state_copy_view(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)hash;
    struct state_view *cold = ((struct state_missing *)self)[index].cold;
    struct fr_row_head head;
    cold->found = image != NULL;
    if (!image)
        return FR_OK;
    cold->view.kind = image->kind;
    if (image->kind == FR_IMAGE_PENDING) {
        fr_pending_load(image->bytes, &cold->view.seen_ms, &cold->view.count);
        return FR_OK;
    }
    memcpy(&head, image->bytes, sizeof(head));
    memcpy(cold->row, image->bytes + FR_ROW_IMAGE_HEAD, sizeof(cold->row));
    cold->view.seen_ms = head.seen_ms;
    cold->view.show = head.show;
    cold->view.click = head.click;
    cold->view.row = cold->row;
    return FR_OK;
}

/* Keys 0 to n - 1; the caller frees the views. */
static inline struct state_view *state_find_all(const struct test_state *state, const struct fr_store *store,
                                                uint32_t t, uint32_t n)
{
    struct state_view *views = fr_alloc(n, sizeof(*views));
    struct state_missing *missing = fr_alloc(n, sizeof(*missing));
    uint64_t *hashes = fr_alloc(n, sizeof(*hashes));
    for (uint32_t d = 0; d < store->n_domains; d++) {
        const struct fr_table *table = fr_store_subtable(store, t, d);
        size_t n_missing = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t key = test_key(i), hash = fr_order_hash(&store->order, key);
            const struct fr_shard *shard = &table->shards[fr_shard_of(hash)];
            if (fr_key_domain(key, store->n_domains) != d)
                continue;
            views[i].found = fr_store_find(store, t, key, &views[i].view) == FR_OK;
            if (!views[i].found && shard->evicted > 0 && fr_shard_find(shard, hash) == FR_NO_ENTRY)
                missing[n_missing++] = (struct state_missing){hash, &views[i]};
        }
        qsort(missing, n_missing, sizeof(*missing), state_compare_missing);
        for (size_t i = 0; i < n_missing; i++)
            hashes[i] = missing[i].hash;
        struct fr_err err = {0};
        struct fr_durable_reader reader = {missing, state_copy_view};
        if (n_missing > 0)
            assert_int_equal(fr_durable_fetch(state->durable, table->number, hashes, n_missing, &reader, &err), FR_OK);
    }
    free(hashes);
    free(missing);
    return views;
}

#endif
