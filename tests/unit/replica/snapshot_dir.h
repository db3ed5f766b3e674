/* Snapshot directories of a history, written as the daemon's are (docs/formats/snapshots.md). */
#ifndef REPLICA_SNAPSHOT_DIR_H
#define REPLICA_SNAPSHOT_DIR_H

#include "history.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/manifest.h"

enum { FILES_MAX = 32 };

/* The topic that history_snapshot names. */
static const char *snapshot_topic = "ctr.delta";

struct snapshot_writing {
    struct fr_buffer bytes[FILES_MAX];
    struct fr_manifest_file files[FILES_MAX];
    size_t n;
};

/* Which file a record goes to: they stand in the order of their kinds. */
static inline void name_file(const struct fr_delta_record *record, char *name, char *table, size_t *rank)
{
    size_t p = record->partition;
    table[0] = 0;
    switch (record->kind) {
    case FR_DELTA_MODEL:
        *rank = 0;
        strcpy(name, "model");
        break;
    case FR_DELTA_ROWS:
        snprintf(table, 64, "%.*s", (int)record->rows.table.size, record->rows.table.bytes);
        *rank = 1 + (strcmp(table, "item") == 0 ? PARTITIONS : 0) + p;
        snprintf(name, FR_MANIFEST_FILE_MAX, "rows.%s.%zu", table, p);
        break;
    case FR_DELTA_DENSE:
        *rank = 1 + 2 * PARTITIONS;
        strcpy(name, "dense");
        break;
    default:
        assert_int_equal(record->kind, FR_DELTA_COMMIT);
        *rank = 2 + 2 * PARTITIONS + p;
        snprintf(name, FR_MANIFEST_FILE_MAX, "commit.%zu", p);
    }
}

static inline enum fr_status keep_in_file(void *self, uint32_t partition, uint32_t piece, const void *bytes,
                                          size_t size)
{
    struct snapshot_writing *writing = self;
    struct fr_delta_record record;
    char name[FR_MANIFEST_FILE_MAX], table[64];
    size_t rank;
    (void)piece;
    assert_int_equal(fr_delta_read(bytes, size, &record, NULL), FR_OK);
    name_file(&record, name, table, &rank);
    struct fr_manifest_file *file = &writing->files[rank];
    memcpy(file->name, name, sizeof(file->name));
    memcpy(file->table, table, sizeof(file->table));
    file->partition = partition;
    file->rows += record.kind == FR_DELTA_ROWS ? record.rows.n_rows : 0;
    fr_put_u32(&writing->bytes[rank], (uint32_t)size);
    fr_buffer_append(&writing->bytes[rank], bytes, size);
    return FR_OK;
}

static inline void join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    assert_true(snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX - 64);
}

static inline void write_file(const char *dir, const char *name, const void *bytes, size_t size)
{
    char path[PATH_MAX];
    join_path(path, dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_files(struct snapshot_writing *writing, const char *dir)
{
    for (size_t rank = 0; rank < FILES_MAX; rank++) {
        struct fr_buffer *bytes = &writing->bytes[rank];
        struct fr_manifest_file *file = &writing->files[rank];
        if (bytes->size == 0)
            continue;
        file->bytes = bytes->size;
        file->sha256 = fr_sha256(bytes->data, bytes->size);
        write_file(dir, file->name, bytes->data, bytes->size);
        writing->files[writing->n++] = *file;
        fr_buffer_release(bytes);
    }
}

/* All of the history's state as of its newest epoch, in folder/<name>, which is written to `name`;
 * CURRENT names it. */
static inline void history_snapshot(struct history *h, const char *folder, char name[FR_MANIFEST_NAME_MAX])
{
    struct snapshot_writing writing = {0};
    struct fr_delta_row rows[2 * KEYS];
    char dir[PATH_MAX];
    uint64_t saturated = 0, offsets[PARTITIONS] = {11, 12, 13};
    size_t n = 0;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++)
            if (h->present[t][k])
                rows[n++] = (struct fr_delta_row){.key = key_of(t, k), .table = (uint32_t)t, .values = h->values[t][k]};
    qsort(rows, n, sizeof(rows[0]), row_order);
    struct fr_delta_dense dense[2] = {{"z/kernel", 2, {KERNEL, 1}, KERNEL, h->kernel, false},
                                      {"z/bias", 1, {1, 0}, 1, h->bias, false}};
    struct fr_delta_epoch epoch = {.timeline = h->timeline,
                                   .epoch = h->epoch,
                                   .from = 1,
                                   .digest = h->digest,
                                   .with_model = true,
                                   .rows = rows,
                                   .n_rows = n,
                                   .dense = dense,
                                   .n_dense = 2,
                                   .commit = {.wm_ms = 1700000000000 + (int64_t)h->epoch,
                                              .samples = h->epoch * 100,
                                              .t_ms = 1700000005000 + (int64_t)h->epoch}};
    struct fr_manifest manifest = {.fp = h->settings.fp,
                                   .timeline = h->timeline,
                                   .epoch = h->epoch,
                                   .digest = h->digest,
                                   .np = PARTITIONS,
                                   .delta_offsets = offsets};
    strcpy(manifest.topic, snapshot_topic);
    strcpy(manifest.model, "ctr");
    assert_int_equal(fr_manifest_name(&manifest, name), FR_OK);
    join_path(dir, folder, name);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(fr_delta_write(&h->settings, &epoch, keep_in_file, &writing, &saturated), FR_OK);
    write_files(&writing, dir);
    manifest.files = writing.files;
    manifest.n_files = writing.n;
    struct fr_buffer text = {0};
    fr_manifest_print(&manifest, &text);
    write_file(dir, "MANIFEST.json", text.data, text.size);
    fr_buffer_release(&text);
    write_file(folder, "CURRENT", name, strlen(name));
}

/* A folder, what is in it, and what is in that. */
static inline void remove_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        join_path(path, folder, entry->d_name);
        if (unlink(path) != 0)
            remove_folder(path);
    }
    closedir(entries);
    assert_int_equal(rmdir(folder), 0);
}

#endif
