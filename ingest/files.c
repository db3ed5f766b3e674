/* Files before Kafka: one source whose first partitions are files and whose others are those of the
 * source behind it.
 *
 * A line is a record: topic `file:<path>`, partition 0, offset = number of the line, no timestamp,
 * no key. At most one file is open at a time: the caller begins one, reads it to FR_SOURCE_END,
 * halts it, begins the next. Questions about the log (watermarks, a single record) are not asked of
 * files: whether a file still is the one that was read shows when its last delivered line comes by
 * again (check.c). Everything else is passed on with the partition's number shifted. Owner: ingest
 * thread. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "ingest/lines.h"

enum { LINE_MAX_DEFAULT = 1 << 20 }; /* of record_max, as in the decoder */

struct files {
    const struct fr_conf *conf;
    struct fr_source inner;
    bool has_inner, inner_begun;
    uint32_t n_files, capacity;
    struct fr_source_partition *names; /* the whole layout */
    struct fr_lines *lines;            /* of the open file */
    uint32_t open;
    char length[24]; /* of the last line that was too long, for its letter */
};

static enum fr_status discover(void *self, struct fr_source_layout *out, struct fr_err *err)
{
    struct files *files = self;
    struct fr_source_layout inner = {0};
    enum fr_status status = files->has_inner ? files->inner.discover(files->inner.self, &inner, err) : FR_OK;
    if (status != FR_OK)
        return status;
    uint32_t n = files->n_files + inner.n_partitions;
    if (n > files->capacity) {
        files->names = fr_realloc(files->names, n, sizeof(*files->names));
        files->capacity = n;
    }
    if (inner.n_partitions)
        memcpy(files->names + files->n_files, inner.partitions, inner.n_partitions * sizeof(*files->names));
    *out = inner;
    out->n_partitions = n;
    out->partitions = files->names;
    return FR_OK;
}

/* The number of a partition in the inner source. */
static uint32_t inside(const struct files *files, uint32_t partition)
{
    FR_CHECK(files->has_inner && partition >= files->n_files);
    return partition - files->n_files;
}

static enum fr_status watermarks(void *self, uint32_t partition, int64_t *low, int64_t *high, struct fr_err *err)
{
    struct files *files = self;
    return files->inner.watermarks(files->inner.self, inside(files, partition), low, high, err);
}

static enum fr_status offset_at(void *self, uint32_t partition, int64_t timestamp_ms, int64_t *offset,
                                struct fr_err *err)
{
    struct files *files = self;
    return files->inner.offset_at(files->inner.self, inside(files, partition), timestamp_ms, offset, err);
}

static enum fr_status fetch(void *self, uint32_t partition, int64_t offset, struct fr_source_event *out,
                            struct fr_err *err)
{
    struct files *files = self;
    enum fr_status status = files->inner.fetch(files->inner.self, inside(files, partition), offset, out, err);
    if (status == FR_OK)
        out->partition += files->n_files;
    return status;
}

static void checked(void *self)
{
    struct files *files = self;
    if (files->has_inner)
        files->inner.checked(files->inner.self);
}

static enum fr_status open_regular(const char *path, int *out, int64_t *size, struct fr_err *err)
{
    struct stat stat;
    /* not to wait for the writer of a pipe */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return fr_err_set(err,
                          errno == ENOENT                     ? FR_E_UNAVAILABLE
                          : errno == EACCES || errno == EPERM ? FR_E_DENIED
                                                              : FR_E_IO,
                          "ingest.files: %s: %s; put the file there, or take it out of ingest.files", path,
                          strerror(errno));
    enum fr_status status = FR_OK;
    if (fstat(file, &stat) != 0)
        status = fr_err_set(err, FR_E_IO, "ingest.files: %s: %s", path, strerror(errno));
    else if (!S_ISREG(stat.st_mode))
        status = fr_err_set(err, FR_E_INVALID,
                            "ingest.files: %s is not a regular file: only such a file can be read again after a "
                            "restart; use a file, or take it out of ingest.files",
                            path);
    if (status != FR_OK) {
        close(file);
        return status;
    }
    *out = file;
    *size = stat.st_size;
    return FR_OK;
}

enum fr_status fr_file_size(const char *path, int64_t *out, struct fr_err *err)
{
    int file = -1;
    enum fr_status status = open_regular(path, &file, out, err);
    if (status == FR_OK)
        close(file);
    return status;
}

static enum fr_status begin(void *self, uint32_t partition, int64_t offset, struct fr_err *err)
{
    struct files *files = self;
    if (partition >= files->n_files) {
        files->inner_begun = true;
        return files->inner.begin(files->inner.self, inside(files, partition), offset, err);
    }
    FR_CHECK(!files->lines);
    int file = -1;
    int64_t size;
    enum fr_status status = open_regular(fr_file_path(files->names[partition].topic), &file, &size, err);
    if (status != FR_OK)
        return status;
    uint64_t record_max = files->conf->ingest.record_max;
    files->lines = fr_lines_new(file, record_max ? (size_t)record_max : LINE_MAX_DEFAULT, offset, true);
    files->open = partition;
    return FR_OK;
}

static void halt(void *self, uint32_t partition)
{
    struct files *files = self;
    if (partition >= files->n_files) {
        files->inner.halt(files->inner.self, inside(files, partition));
    } else if (files->lines && files->open == partition) {
        fr_lines_free(files->lines);
        files->lines = NULL;
    }
}

static enum fr_status poll_file(struct files *files, struct fr_source_event *out, struct fr_err *err)
{
    struct fr_line line;
    const char *path = fr_file_path(files->names[files->open].topic);
    struct fr_err why = {0};
    enum fr_status status = fr_lines_next(files->lines, &line, &why);
    if (status == FR_E_CORRUPT)
        return fr_err_set(err, status,
                          "ingest.files: %s is damaged or cut off after line %" PRId64
                          " (%s); put the whole file there and start again: reading goes on where it stopped",
                          path, line.number, why.text);
    if (status < 0)
        return fr_err_set(err, status, "ingest.files: %s: %s", path, why.text);
    if (status != FR_OK && status != FR_EOF)
        return status;
    *out = (struct fr_source_event){
        .kind = status == FR_EOF ? FR_SOURCE_END : FR_SOURCE_RECORD,
        .partition = files->open,
        .offset = line.number,
        .value = line.value,
        .size = line.size,
        .withheld = status == FR_OK && !line.value,
        .crc32c = line.crc32c,
    };
    if (out->withheld)
        snprintf(files->length, sizeof(files->length), "%zu", line.size);
    return FR_OK;
}

static enum fr_status poll_event(void *self, int64_t partition, int wait_ms, struct fr_source_event *out,
                                 struct fr_err *err)
{
    struct files *files = self;
    if (files->lines)
        return poll_file(files, out, err);
    if (!files->inner_begun) { /* a file that is waited for, or nothing behind the files */
        nanosleep(&(struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L}, NULL);
        return FR_AGAIN;
    }
    int64_t from = partition < 0 ? partition : (int64_t)inside(files, (uint32_t)partition);
    enum fr_status status = files->inner.poll(files->inner.self, from, wait_ms, out, err);
    if (status == FR_OK)
        out->partition += files->n_files;
    return status;
}

static void release(void *self, struct fr_source_event *event)
{
    struct files *files = self;
    if (event->partition < files->n_files)
        return; /* the line stays until the next one is read */
    event->partition -= files->n_files;
    files->inner.release(files->inner.self, event);
    event->partition += files->n_files;
}

static size_t headers(void *self, const struct fr_source_event *event, struct fr_record_header *out, size_t capacity)
{
    struct files *files = self;
    if (event->partition >= files->n_files) {
        struct fr_source_event shifted = *event;
        shifted.partition -= files->n_files;
        return files->inner.headers(files->inner.self, &shifted, out, capacity);
    }
    if (!event->withheld || capacity == 0)
        return 0;
    out[0] = (struct fr_record_header){"freshet.length", files->length, strlen(files->length)};
    return 1;
}

static void commit(void *self, const struct fr_positions *positions)
{
    struct files *files = self;
    if (files->has_inner)
        files->inner.commit(files->inner.self, positions);
}

static int64_t high(void *self, uint32_t partition)
{
    struct files *files = self;
    return partition < files->n_files ? -1 : files->inner.high(files->inner.self, inside(files, partition));
}

/* While files are read it does not matter whether brokers answer. */
static bool connected(void *self, char *problem, size_t size)
{
    struct files *files = self;
    return !files->inner_begun || files->inner.connected(files->inner.self, problem, size);
}

static void close_files(void *self)
{
    struct files *files = self;
    fr_lines_free(files->lines);
    if (files->has_inner && files->inner.close)
        files->inner.close(files->inner.self);
    free(files->names);
    free(files);
}

static enum fr_status check_path(const struct fr_conf *conf, uint32_t index, struct fr_err *err)
{
    const char *path = conf->ingest.files[index];
    size_t size = strlen(path), most = FR_TOPIC_MAX - sizeof(FR_FILE_TOPIC);
    if (size == 0 || size > most)
        return fr_err_set(
            err, FR_E_INVALID,
            "ingest.files: \"%.300s\" has %zu bytes; a path has 1 to %zu (it is part of a position's name)", path, size,
            most);
    for (size_t i = 0; i < size; i++)
        if (path[i] < 0x20 || path[i] > 0x7e || path[i] == '"' || path[i] == '\\')
            return fr_err_set(err, FR_E_INVALID,
                              "ingest.files: path %" PRIu32
                              " holds more than printable ASCII, or a quote or backslash: it "
                              "is a position's name in JSON; rename the file or link to it",
                              index + 1);
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(conf->ingest.files[i], path) == 0)
            return fr_err_set(err, FR_E_INVALID, "ingest.files: %s is listed twice; a file is read once", path);
    return FR_OK;
}

enum fr_status fr_files_open(const struct fr_conf *conf, const struct fr_source *inner, struct fr_source *out,
                             struct fr_err *err)
{
    for (uint32_t i = 0; i < conf->ingest.n_files; i++) {
        enum fr_status status = check_path(conf, i, err);
        if (status != FR_OK)
            return status;
    }
    struct files *files = fr_alloc(1, sizeof(*files));
    files->conf = conf;
    files->inner = *inner;
    files->has_inner = inner->self != NULL;
    files->n_files = files->capacity = conf->ingest.n_files;
    files->names = fr_alloc(files->n_files, sizeof(*files->names));
    for (uint32_t i = 0; i < files->n_files; i++)
        snprintf(files->names[i].topic, FR_TOPIC_MAX, FR_FILE_TOPIC "%s", conf->ingest.files[i]);
    *out = (struct fr_source){
        .self = files,
        .discover = discover,
        .watermarks = watermarks,
        .offset_at = offset_at,
        .fetch = fetch,
        .checked = checked,
        .begin = begin,
        .halt = halt,
        .poll = poll_event,
        .release = release,
        .headers = headers,
        .commit = commit,
        .high = high,
        .connected = connected,
        .close = close_files,
    };
    return FR_OK;
}
