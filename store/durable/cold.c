/* The cold store in RocksDB (7.8 of Debian 12, 9.10 of Debian 13).
 *
 * There is one column family. A key is the table number (u32 big-endian), then the key's hash in
 * the state's order (u64 big-endian); a value is a kind byte, then the image's bytes. The order is
 * a bijection, so the key can be computed from the hash, and a range of hashes (a shard, a slice)
 * is a range of RocksDB keys. Two table numbers above FR_IMAGE_TABLE_MAX are reserved: sections
 * (number, then name) and the sentinel. The sentinel is the last key of every fold and names the
 * epoch that the store holds.
 *
 * Data enters only as sorted files, by one ingest call per fold, which RocksDB's MANIFEST records
 * in one edit; so a fold takes effect completely or not at all. There are no puts, hence no
 * write-ahead log and no memtable, and no DeleteRange (7.8.3 loses the status of its iterator).
 * RocksDB's options are in cold_tuning.c, reads in cold_read.c.
 *
 * Invariants: an error from RocksDB is returned, never taken for "absent".
 *
 * Thread: one thread writes and folds; any thread reads properties. Compaction does not filter,
 * because expiry is decided by the owner loop and recorded in the journal. Nothing is retried. */
#include "cold_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "cold_version.h"
#include "durable/durable.h"
#include "sorted_writer.h"

enum {
    SENTINEL_SIZE = 64,
    WRITER_FILES_MAX = 4096, /* 1 TiB in one fold, far above any unfolded_max */
};

enum fr_status fr_cold_error(char *text, const char *what, const char *path, struct fr_err *err)
{
    enum fr_status status = FR_E_IO;
    if (strstr(text, "No space left"))
        status = FR_E_NO_SPACE;
    else if (strncmp(text, "Corruption", 10) == 0)
        status = FR_E_CORRUPT;
    else if (strstr(text, "File too large"))
        status = FR_E_LIMIT;
    else if (strstr(text, "Too many open files"))
        status = FR_E_NO_DESCRIPTORS;
    /* While it opens, RocksDB blames the MANIFEST for damage in any file. */
    const char *damaged = strstr(text, "MANIFEST") && !strstr(text, ".sst")
                              ? "one of the .sst files there is damaged, or the MANIFEST (RocksDB names it for both)"
                              : "a file there is damaged";
    if (status == FR_E_CORRUPT)
        fr_err_set(err, status,
                   "cannot %s the cold store %s: %.500s; %s: look for errors of the disk, then put the file back from "
                   "a copy of the directory, or begin a state from a savepoint (--restore)",
                   what, path, text, damaged);
    else
        fr_err_set(err, status, "cannot %s the cold store %s: %.500s%s", what, path, text,
                   status == FR_E_LIMIT ? "; raise the limit of the size of files (LimitFSIZE= of systemd, ulimit -f)"
                   : status == FR_E_NO_DESCRIPTORS ? "; raise the limit (LimitNOFILE= of systemd, ulimit -n)"
                                                   : "");
    rocksdb_free(text);
    return status;
}

/* ---- open, close ---- */

static bool store_exists(const char *path)
{
    char current[PATH_MAX];
    int length = snprintf(current, sizeof(current), "%s/CURRENT", path);
    return length > 0 && (size_t)length < sizeof(current) && access(current, F_OK) == 0;
}

/* If CURRENT does not name a MANIFEST, RocksDB reports a file that cannot be opened now. In fact
 * the state is damaged. */
bool fr_cold_current_leads_on(const char *path)
{
    char current[PATH_MAX], name[64] = "", manifest[PATH_MAX];
    int length = snprintf(current, sizeof(current), "%s/CURRENT", path);
    struct stat info;
    struct fr_err unread = {0};
    int file = -1;
    if (length <= 0 || (size_t)length >= sizeof(current))
        return true; /* RocksDB will report why */
    enum fr_status opened = fr_file_open_regular(current, &file, &unread);
    if (opened != FR_OK)
        return opened != FR_E_CORRUPT;
    ssize_t size = read(file, name, sizeof(name) - 1);
    (void)close(file);
    size_t digits = strncmp(name, "MANIFEST-", 9) == 0 ? strspn(name + 9, "0123456789") : 0;
    if (digits == 0 || size != (ssize_t)(9 + digits + 1) || name[9 + digits] != '\n')
        return false;
    name[9 + digits] = '\0';
    length = snprintf(manifest, sizeof(manifest), "%s/%s", path, name);
    return length > 0 && (size_t)length < sizeof(manifest) && stat(manifest, &info) == 0 && S_ISREG(info.st_mode);
}

/* Bytes of the largest manifest. A new manifest contains what is still valid of the last one. */
static uint64_t manifest_bytes(const char *path)
{
    uint64_t most = 0;
    DIR *dir = opendir(path);
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char file[PATH_MAX];
        struct stat info;
        int length = snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (strncmp(entry->d_name, "MANIFEST-", 9) == 0 && length > 0 && (size_t)length < sizeof(file) &&
            stat(file, &info) == 0 && (uint64_t)info.st_size > most)
            most = (uint64_t)info.st_size;
    }
    if (dir)
        closedir(dir);
    return most;
}

/* RocksDB creates a log at every open, and removes it when the memtable it belongs to has been
 * flushed. There are no puts here, so no memtable is ever flushed. The logs before the newest one
 * are empty and are removed here. */
static void remove_empty_logs(const char *path)
{
    DIR *dir = opendir(path);
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char file[PATH_MAX];
        struct stat info;
        size_t digits = strspn(entry->d_name, "0123456789");
        if (digits == 0 || strcmp(entry->d_name + digits, ".log") != 0)
            continue;
        int length = snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (length > 0 && (size_t)length < sizeof(file) && stat(file, &info) == 0 && S_ISREG(info.st_mode) &&
            info.st_size == 0)
            (void)unlink(file); /* otherwise the next open removes it */
    }
    if (dir)
        closedir(dir);
}

static enum fr_status no_room(const char *path, uint64_t bytes, int number, struct fr_err *err)
{
    uint64_t there;
    char left[64] = "there are less";
    if (number == EDQUOT)
        snprintf(left, sizeof(left), "a quota leaves less");
    else if (fr_disk_free_bytes(path, &there, NULL) == FR_OK)
        snprintf(left, sizeof(left), "the file system has %" PRIu64, there);
    return fr_err_set(err, FR_E_NO_SPACE,
                      "the cold store %s needs %" PRIu64 " bytes to open, and %s: free space there, then start again",
                      path, bytes, left);
}

/* RocksDB ends the process by an assertion if there is no room for what it writes at every open
 * (see FR_DURABLE_OPEN_BYTES). So that much room is first taken and then given back. This finds
 * every kind of limit, quotas and inodes included. */
static enum fr_status check_room(const char *path, struct fr_err *err)
{
    char file[PATH_MAX];
    uint64_t bytes = FR_DURABLE_OPEN_BYTES + manifest_bytes(path);
    int length = snprintf(file, sizeof(file), "%s/room.tmp", path);
    if (length < 0 || (size_t)length >= sizeof(file))
        return fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", path);
    enum fr_status status = fr_dir_make(path, err);
    if (status != FR_OK)
        return status;
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fr_disk_error(err, "create", file, errno);
    int rc;
    do
        rc = posix_fallocate(fd, 0, (off_t)bytes);
    while (rc == EINTR);
    (void)close(fd);
    (void)unlink(file);
    if (rc == ENOSPC || rc == EDQUOT)
        return no_room(path, bytes, rc, err);
    return rc == 0 ? FR_OK : fr_disk_error(err, "take room for the cold store in", path, rc);
}

static enum fr_status open_database(struct fr_cold *cold, bool read_only, struct fr_err *err)
{
    static const char *const names[] = {"default"};
    const rocksdb_options_t *options[] = {cold->options};
    char *text = NULL;
    if (read_only)
        cold->db = rocksdb_open_for_read_only_column_families(cold->options, cold->path, 1, names, options, &cold->rows,
                                                              0, &text);
    else
        cold->db = rocksdb_open_column_families(cold->options, cold->path, 1, names, options, &cold->rows, &text);
    if (!text)
        return FR_OK;
    cold->db = NULL;
    if (fr_cold_current_leads_on(cold->path))
        return fr_cold_error(text, "open", cold->path, err);
    (void)fr_err_set(
        err, FR_E_CORRUPT,
        "%s/CURRENT is damaged: it names no MANIFEST that is there (%.300s): look for errors of the disk, "
        "then put the file back from a copy of the directory, or begin a state from a savepoint (--restore)",
        cold->path, text);
    rocksdb_free(text);
    return FR_E_CORRUPT;
}

enum fr_status fr_cold_open(const char *path, uint64_t fold_bytes, bool read_only, struct fr_cold **out,
                            struct fr_err *err)
{
    if (read_only && !store_exists(path)) {
        *out = NULL;
        return FR_OK;
    }
    enum fr_status status = fr_cold_check_version(path, err);
    if (status != FR_OK)
        return status;
    struct fr_cold *cold = fr_alloc(1, sizeof(*cold));
    cold->path = fr_strdup(path);
    if (!read_only)
        remove_empty_logs(path);
    status = fr_cold_tune(cold, fold_bytes, read_only, err);
    if (status == FR_OK && !read_only)
        status = check_room(path, err);
    if (status == FR_OK)
        status = open_database(cold, read_only, err);
    if (status != FR_OK) {
        fr_cold_close(cold);
        return status;
    }
    if (!read_only)
        cold->files = fr_cold_files_new(cold);
    *out = cold;
    return FR_OK;
}

void fr_cold_close(struct fr_cold *cold)
{
    if (!cold)
        return;
    fr_cold_files_free(cold->files);
    if (cold->rows)
        rocksdb_column_family_handle_destroy(cold->rows);
    if (cold->db)
        rocksdb_close(cold->db);
    if (cold->options)
        rocksdb_options_destroy(cold->options);
    if (cold->cache)
        rocksdb_cache_destroy(cold->cache);
    free(cold->path);
    free(cold);
}

void fr_cold_sort_by(struct fr_cold *cold, const struct fr_order *order)
{
    cold->order = *order;
}

/* ---- sentinel ---- */

static enum fr_status visit_any(void *self, const struct fr_image *image, uint64_t done_bytes)
{
    (void)image;
    (void)done_bytes;
    *(bool *)self = true;
    return FR_EOF;
}

static enum fr_status check_empty(struct fr_cold *cold, struct fr_err *err)
{
    bool any = false;
    enum fr_status status = fr_cold_walk(cold, NULL, visit_any, &any, err);
    if (status == FR_EOF || any)
        return fr_err_set(err, FR_E_CORRUPT, "the cold store %s holds rows but no sentinel", cold->path);
    return status;
}

enum fr_status fr_cold_read_sentinel(struct fr_cold *cold, const struct fr_cold_snapshot *at,
                                     struct fr_cold_sentinel *out, struct fr_err *err)
{
    uint8_t key[4];
    cold_put_be(key, COLD_TABLE_SENTINEL, 4);
    rocksdb_readoptions_t *options = fr_cold_read_options(at);
    char *text = NULL;
    size_t size = 0;
    char *value = rocksdb_get(cold->db, options, (const char *)key, sizeof(key), &size, &text);
    rocksdb_readoptions_destroy(options);
    if (text)
        return fr_cold_error(text, "read", cold->path, err);
    if (!value) {
        *out = (struct fr_cold_sentinel){0};
        return check_empty(cold, err);
    }
    enum fr_status status = FR_OK;
    if (size < 4 || fr_load_u32(value) != FR_STATE_FORMAT)
        status = fr_err_set(err, FR_E_MISMATCH,
                            "the cold store %s has another state format, this version reads format %d: run the version "
                            "that wrote it, or give another state_dir",
                            cold->path, FR_STATE_FORMAT);
    else if (size != SENTINEL_SIZE)
        status = fr_err_set(err, FR_E_CORRUPT, "the sentinel of the cold store %s is damaged", cold->path);
    else {
        *out = (struct fr_cold_sentinel){.timeline = fr_load_u64(value + 8), .epoch = fr_load_u64(value + 16)};
        memcpy(out->digest.bytes, value + 24, sizeof(out->digest.bytes));
        out->salt = fr_load_u64(value + 56);
    }
    rocksdb_free(value);
    return status;
}

/* ---- checkpoint ---- */

enum fr_status fr_cold_checkpoint(struct fr_cold *cold, const char *path, struct fr_err *err)
{
    char *text = NULL;
    rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(cold->db, &text);
    if (!text)
        rocksdb_checkpoint_create(checkpoint, path, 0, &text);
    if (checkpoint)
        rocksdb_checkpoint_object_destroy(checkpoint);
    return text ? fr_cold_error(text, "take a checkpoint of", cold->path, err) : FR_OK;
}

/* ---- properties ---- */

static uint64_t property(struct fr_cold *cold, const char *name)
{
    uint64_t value = 0;
    return rocksdb_property_int(cold->db, name, &value) == 0 ? value : 0;
}

uint64_t fr_cold_level0_files(struct fr_cold *cold)
{
    /* This property exists as text only. */
    char *text = rocksdb_property_value(cold->db, "rocksdb.num-files-at-level0");
    uint64_t value = text ? strtoull(text, NULL, 10) : 0;
    rocksdb_free(text);
    return value;
}

void fr_cold_tend(struct fr_cold *cold)
{
    if (cold->files)
        fr_cold_files_tend(cold->files);
}

uint64_t fr_cold_bytes(struct fr_cold *cold)
{
    return property(cold, "rocksdb.live-sst-files-size");
}

void fr_cold_reads(struct fr_cold *cold, uint64_t *asked, uint64_t *found)
{
    *asked = atomic_load_explicit(&cold->asked, memory_order_relaxed);
    *found = atomic_load_explicit(&cold->found, memory_order_relaxed);
}

uint64_t fr_cold_background_errors(struct fr_cold *cold)
{
    return property(cold, "rocksdb.background-errors");
}

/* RocksDB classifies background errors. A compaction that finds no room is tried again, and
 * continues once the disk has room for it (and for write_buffer_size); worse errors stop writes.
 * Only a write reveals that, so an empty write, which leaves no trace, is tried. */
enum fr_status fr_cold_health(struct fr_cold *cold, struct fr_err *err)
{
    if (fr_cold_background_errors(cold) == 0)
        return FR_OK;
    char *text = NULL;
    rocksdb_writeoptions_t *options = rocksdb_writeoptions_create();
    rocksdb_writebatch_t *nothing = rocksdb_writebatch_create();
    rocksdb_writeoptions_disable_WAL(options, 1);
    rocksdb_write(cold->db, options, nothing, &text);
    rocksdb_writebatch_destroy(nothing);
    rocksdb_writeoptions_destroy(options);
    return text ? fr_cold_error(text, "compact", cold->path, err) : FR_OK;
}

/* ---- one fold ---- */

struct fr_cold_writer {
    struct fr_cold *cold;
    const char *dir; /* borrowed */
    uint64_t file_max, file_bytes;
    /* 0: written data will soon be read, so it goes through the cache */
    uint64_t direct_bytes;
    struct fr_sorted_writer *sst; /* NULL: no file is open */
    char **paths;
    size_t n_paths;
};

struct fr_cold_writer *fr_cold_writer_new(struct fr_cold *cold, const char *dir, uint64_t file_max, uint64_t bytes)
{
    struct fr_cold_writer *writer = fr_alloc(1, sizeof(*writer));
    uint64_t asked = 0, found = 0;
    fr_cold_reads(cold, &asked, &found);
    *writer =
        (struct fr_cold_writer){.cold = cold, .dir = dir, .file_max = file_max, .direct_bytes = asked == 0 ? bytes : 0};
    writer->paths = fr_alloc(WRITER_FILES_MAX, sizeof(char *));
    return writer;
}

static enum fr_status finish_file(struct fr_cold_writer *writer, struct fr_err *err)
{
    if (!writer->sst)
        return FR_OK;
    enum fr_status status = fr_sorted_writer_finish(writer->sst, err);
    fr_sorted_writer_free(writer->sst);
    writer->sst = NULL;
    return status;
}

static enum fr_status begin_file(struct fr_cold_writer *writer, struct fr_err *err)
{
    if (writer->n_paths == WRITER_FILES_MAX)
        return fr_err_set(err, FR_E_LIMIT, "a fold of more than %d files", WRITER_FILES_MAX);
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%06zu.sst", writer->dir, writer->n_paths);
    FR_CHECK(length > 0 && (size_t)length < sizeof(path));
    writer->paths[writer->n_paths++] = fr_strdup(path);
    writer->file_bytes = 0;
    return fr_sorted_writer_open(path, writer->direct_bytes, &writer->sst, err);
}

/* Makes sure that a file is open and may take `bytes` more. */
static enum fr_status ready_file(struct fr_cold_writer *writer, size_t bytes, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (writer->sst && writer->file_bytes >= writer->file_max)
        status = finish_file(writer, err);
    if (status == FR_OK && !writer->sst)
        status = begin_file(writer, err);
    writer->file_bytes += bytes;
    return status;
}

/* *value: where the caller writes the value. */
static enum fr_status put_entry(struct fr_cold_writer *writer, const uint8_t *key, size_t key_size, size_t value_size,
                                uint8_t **value, struct fr_err *err)
{
    enum fr_status status = ready_file(writer, key_size + value_size, err);
    return status == FR_OK ? fr_sorted_writer_put(writer->sst, key, key_size, value_size, value, err) : status;
}

enum fr_status fr_cold_writer_image(struct fr_cold_writer *writer, const struct fr_image *image, uint64_t hash,
                                    struct fr_err *err)
{
    uint8_t key[COLD_KEY_SIZE], *value = NULL;
    cold_put_key(key, image->table, hash);
    if (image->kind == FR_IMAGE_ABSENT) {
        enum fr_status status = ready_file(writer, sizeof(key), err);
        return status == FR_OK ? fr_sorted_writer_delete(writer->sst, key, sizeof(key), err) : status;
    }
    enum fr_status status = put_entry(writer, key, sizeof(key), (size_t)image->size + 1, &value, err);
    if (status != FR_OK)
        return status;
    value[0] = image->kind;
    memcpy(value + 1, image->bytes, image->size);
    return FR_OK;
}

enum fr_status fr_cold_writer_section(struct fr_cold_writer *writer, const char *name, const uint8_t *bytes,
                                      size_t size, struct fr_err *err)
{
    uint8_t key[4 + FR_SECTION_NAME_MAX], *value = NULL;
    _Static_assert(sizeof(key) <= FR_SORTED_WRITER_KEY_MAX, "a section's name fits");
    size_t length = strlen(name);
    FR_CHECK(length < FR_SECTION_NAME_MAX);
    cold_put_be(key, COLD_TABLE_SECTIONS, 4);
    memcpy(key + 4, name, length);
    enum fr_status status = put_entry(writer, key, 4 + length, size, &value, err);
    if (status == FR_OK && size > 0)
        memcpy(value, bytes, size);
    return status;
}

enum fr_status fr_cold_writer_sentinel(struct fr_cold_writer *writer, const struct fr_cold_sentinel *sentinel,
                                       struct fr_err *err)
{
    uint8_t key[4], *value = NULL;
    cold_put_be(key, COLD_TABLE_SENTINEL, 4);
    struct fr_buffer bytes = {0};
    fr_put_u32(&bytes, FR_STATE_FORMAT);
    fr_put_u32(&bytes, 0);
    fr_put_u64(&bytes, sentinel->timeline);
    fr_put_u64(&bytes, sentinel->epoch);
    fr_buffer_append(&bytes, sentinel->digest.bytes, sizeof(sentinel->digest.bytes));
    fr_put_u64(&bytes, sentinel->salt);
    FR_CHECK(bytes.size == SENTINEL_SIZE);
    enum fr_status status = put_entry(writer, key, sizeof(key), bytes.size, &value, err);
    if (status == FR_OK)
        memcpy(value, bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    return status;
}

enum fr_status fr_cold_writer_finish(struct fr_cold_writer *writer, struct fr_err *err)
{
    return finish_file(writer, err);
}

static bool is_numbered(const struct fr_cold *cold)
{
    return rocksdb_get_latest_sequence_number(cold->db) > 0;
}

/* The first ingest would get sequence number 0, and a snapshot of the store after it would too.
 * While such a snapshot exists, a compaction drops all keys of number 0: for RocksDB, the newest
 * version of a key that no snapshot can see yet belongs to snapshot 0, and a second version in the
 * same snapshot is hidden. While any snapshot exists, an ingest takes the next number, so a
 * snapshot of the empty store is held during the first ingest. */
enum fr_status fr_cold_writer_ingest(struct fr_cold_writer *writer, struct fr_err *err)
{
    FR_CHECK(!writer->sst);
    struct fr_cold *cold = writer->cold;
    const rocksdb_snapshot_t *first = is_numbered(cold) ? NULL : rocksdb_create_snapshot(cold->db);
    rocksdb_ingestexternalfileoptions_t *options = rocksdb_ingestexternalfileoptions_create();
    /* links instead of copies; RocksDB syncs files and folder */
    rocksdb_ingestexternalfileoptions_set_move_files(options, 1);
    char *text = NULL;
    rocksdb_ingest_external_file(cold->db, (const char *const *)writer->paths, writer->n_paths, options, &text);
    rocksdb_ingestexternalfileoptions_destroy(options);
    if (first)
        rocksdb_release_snapshot(cold->db, first);
    return text ? fr_cold_error(text, "take a fold into", cold->path, err) : FR_OK;
}

enum fr_status fr_cold_number(struct fr_cold *cold, const char *dir, const struct fr_cold_sentinel *sentinel,
                              struct fr_err *err)
{
    if (is_numbered(cold) || sentinel->epoch == 0)
        return FR_OK;
    struct fr_cold_writer *writer = fr_cold_writer_new(cold, dir, UINT64_MAX, 0);
    enum fr_status status = fr_cold_writer_sentinel(writer, sentinel, err);
    if (status == FR_OK)
        status = fr_cold_writer_finish(writer, err);
    if (status == FR_OK)
        status = fr_cold_writer_ingest(writer, err);
    fr_cold_writer_free(writer);
    return status;
}

void fr_cold_writer_free(struct fr_cold_writer *writer)
{
    if (!writer)
        return;
    fr_sorted_writer_free(writer->sst);
    for (size_t i = 0; i < writer->n_paths; i++) {
        /* an ingest has moved them; otherwise the next open would also remove them */
        (void)unlink(writer->paths[i]);
        free(writer->paths[i]);
    }
    free(writer->paths);
    free(writer);
}
