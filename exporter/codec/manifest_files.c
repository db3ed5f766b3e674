/* The files of a snapshot directory: whether they exist, and their records.
 *
 * A file is read once, in order. Each length is compared with the bytes that are left according to
 * the manifest. The SHA-256 is computed from the bytes that were visited.
 *
 * Thread: any. Nothing is written here. */
#include "codec/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { LENGTH_SIZE = 4, CURRENT_BYTES_MAX = 4096 };

static enum fr_status path_of(const char *dir, const char *name, char out[PATH_MAX], struct fr_err *err)
{
    int size = snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return size > 0 && size < PATH_MAX ? FR_OK : fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", dir);
}

enum fr_status fr_manifest_read(const char *dir, struct fr_manifest *out, struct fr_sha256 *sha256, uint64_t *size,
                                struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_buffer bytes = {0};
    enum fr_status status = path_of(dir, fr_manifest_file_name, path, err);
    if (status == FR_OK)
        status = fr_file_read_regular(path, FR_MANIFEST_BYTES_MAX, &bytes, err);
    if (status == FR_OK) {
        status = fr_manifest_parse(bytes.data, bytes.size, out, err);
        if (status != FR_OK)
            status = fr_err_wrap(err, "%s", path);
    }
    if (status == FR_OK && sha256)
        *sha256 = fr_sha256(bytes.data, bytes.size);
    if (status == FR_OK && size)
        *size = bytes.size;
    fr_buffer_release(&bytes);
    return status;
}

/* Reads the first line of a file CURRENT; "": there is none. */
static void read_current(int fd, char name[CURRENT_BYTES_MAX + 1])
{
    ssize_t size = read(fd, name, CURRENT_BYTES_MAX);
    name[size > 0 ? size : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
}

enum fr_status fr_manifest_find(const char *directory, char path[PATH_MAX], struct fr_err *err)
{
    char name[CURRENT_BYTES_MAX + 1];
    int fd = -1;
    enum fr_status status = path_of(directory, fr_manifest_file_name, path, err);
    if (status == FR_OK && access(path, F_OK) == 0) {
        path[strlen(directory)] = '\0';
        return FR_OK;
    }
    if (status == FR_OK)
        status = path_of(directory, "CURRENT", path, err);
    if (status == FR_OK)
        status = fr_file_open_regular(path, &fd, err);
    if (status == FR_E_NOT_FOUND)
        return fr_err_set(err, status, "%s is no snapshot (it has no %s), nor a folder of them (it has no CURRENT)",
                          directory, fr_manifest_file_name);
    if (status != FR_OK)
        return status;
    read_current(fd, name);
    (void)close(fd);
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return fr_err_set(err, FR_E_CORRUPT, "%s names no snapshot", path);
    return path_of(directory, name, path, err);
}

enum fr_status fr_manifest_check_sizes(const char *dir, const struct fr_manifest *manifest, struct fr_err *err)
{
    for (size_t i = 0; i < manifest->n_files; i++) {
        const struct fr_manifest_file *file = &manifest->files[i];
        char path[PATH_MAX];
        struct stat info;
        enum fr_status status = path_of(dir, file->name, path, err);
        if (status != FR_OK)
            return status;
        if (stat(path, &info) != 0)
            return fr_err_set(err, errno == ENOENT ? FR_E_NOT_FOUND : FR_E_IO, "%s, which the manifest names: %s", path,
                              strerror(errno));
        if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != file->bytes)
            return fr_err_set(err, FR_E_CORRUPT, "%s has %" PRIu64 " bytes; the manifest says %" PRIu64, path,
                              (uint64_t)info.st_size, file->bytes);
    }
    return FR_OK;
}

struct records {
    const char *path;
    FILE *stream;
    struct fr_sha256_stream *hash;
    uint64_t left;
    struct fr_buffer record;
};

static enum fr_status read_bytes(struct records *records, void *bytes, size_t size, struct fr_err *err)
{
    if (fread(bytes, 1, size, records->stream) != size)
        return ferror(records->stream)
                   ? fr_err_set(err, FR_E_IO, "cannot read %s: %s", records->path, strerror(errno))
                   : fr_err_set(err, FR_E_CORRUPT, "%s is shorter than the manifest says", records->path);
    fr_sha256_stream_update(records->hash, bytes, size);
    records->left -= size;
    return FR_OK;
}

static enum fr_status visit_all(struct records *records, fr_manifest_visit *visit, void *self, struct fr_err *err)
{
    while (records->left > 0) {
        uint8_t head[LENGTH_SIZE];
        if (records->left < LENGTH_SIZE)
            return fr_err_set(err, FR_E_CORRUPT, "%s ends inside a length", records->path);
        enum fr_status status = read_bytes(records, head, LENGTH_SIZE, err);
        if (status != FR_OK)
            return status;
        uint32_t size = fr_load_u32(head);
        if (size > records->left || size > FR_MANIFEST_RECORD_MAX)
            return fr_err_set(err, FR_E_CORRUPT, "%s: a record of %" PRIu32 " bytes, and %" PRIu64 " are left",
                              records->path, size, records->left);
        fr_buffer_clear(&records->record);
        status = read_bytes(records, fr_buffer_reserve(&records->record, size ? size : 1), size, err);
        if (status == FR_OK)
            status = visit(self, records->record.data, size, err);
        if (status != FR_OK)
            return status;
    }
    if (fgetc(records->stream) != EOF)
        return fr_err_set(err, FR_E_CORRUPT, "%s is longer than the manifest says", records->path);
    return FR_OK;
}

enum fr_status fr_manifest_records(const char *dir, const struct fr_manifest_file *file, fr_manifest_visit *visit,
                                   void *self, struct fr_err *err)
{
    char path[PATH_MAX];
    enum fr_status status = path_of(dir, file->name, path, err);
    if (status != FR_OK)
        return status;
    struct stat info;
    struct records records = {.path = path, .left = file->bytes};
    int fd = -1;
    status = fr_file_open_regular(path, &fd, err);
    if (status != FR_OK)
        return status;
    records.stream = fdopen(fd, "rb");
    if (!records.stream) {
        (void)close(fd);
        return fr_err_set(err, FR_E_NO_MEMORY, "memory to read %s was refused", path);
    }
    records.hash = fr_sha256_stream_new();
    /* The lengths inside are trusted only up to the size of the file. */
    if (fstat(fileno(records.stream), &info) != 0 || (uint64_t)info.st_size != file->bytes)
        status =
            fr_err_set(err, FR_E_CORRUPT, "%s has not the %" PRIu64 " bytes that the manifest says", path, file->bytes);
    if (status == FR_OK)
        status = visit_all(&records, visit, self, err);
    struct fr_sha256 digest = fr_sha256_stream_end(records.hash);
    if (status == FR_OK && memcmp(&digest, &file->sha256, sizeof(digest)) != 0)
        status = fr_err_set(err, FR_E_CORRUPT, "the SHA-256 of %s is not the one in the manifest", path);
    fr_sha256_stream_free(records.hash);
    fr_buffer_release(&records.record);
    (void)fclose(records.stream);
    return status;
}
