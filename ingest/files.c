/* Files, which are read before any topic: one source whose partitions are files, and the operations
 * that differ for the streams of files.
 *
 * A line is a record: topic `file:<path>`, partition 0, offset = number of the line, no
 * timestamp, no key. The caller begins a file, reads it until it is finished, and begins the
 * next. So at most one file is open at a time; in lockstep with several lanes, one of each lane. A
 * file whose path is now written in another way (relative or absolute, through a link) is the same
 * file, and its position gets the new name. A file is begun at its last delivered line, and that
 * line shows whether the file is still the one that was read. Owner: ingest thread. */
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
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "ingest/lines.h"

enum { LINE_MAX_DEFAULT = 1 << 20 }; /* default of record_max, as in the decoder */

struct files {
    const struct fr_conf *conf;
    uint32_t n;
    struct fr_source_partition *names; /* [n] the layout */
    bool *renamed;                     /* [n] the state had the file under another name */
    struct fr_lines **lines;           /* [n] readers of the open files; NULL: not open */
    uint32_t open;                     /* the file begun last */
    /* bytes of the last line that was too long, for its dead letter */
    char length[24];
};

static const char *path_in(const char *topic)
{
    return topic + sizeof(FR_FILE_TOPIC) - 1;
}

/* ---- the source ---- */

static enum fr_status discover(void *self, struct fr_source_layout *out, struct fr_err *err)
{
    struct files *files = self;
    (void)err;
    *out = (struct fr_source_layout){.n_partitions = files->n, .partitions = files->names};
    return FR_OK;
}

static enum fr_status open_regular(const char *path, int *out, struct stat *what, struct fr_err *err)
{
    /* O_NONBLOCK: opening a pipe must not wait for its writer */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return fr_err_set(err,
                          errno == ENOENT                     ? FR_E_UNAVAILABLE
                          : errno == EACCES || errno == EPERM ? FR_E_DENIED
                                                              : FR_E_IO,
                          "ingest.files: %s: %s; put the file there, or take it out of ingest.files", path,
                          strerror(errno));
    enum fr_status status = FR_OK;
    if (fstat(file, what) != 0)
        status = fr_err_set(err, FR_E_IO, "ingest.files: %s: %s", path, strerror(errno));
    else if (!S_ISREG(what->st_mode))
        status = fr_err_set(err, FR_E_INVALID,
                            "ingest.files: %s is not a regular file: only such a file can be read again after a "
                            "restart; use a file, or take it out of ingest.files",
                            path);
    if (status != FR_OK) {
        close(file);
        return status;
    }
    *out = file;
    return FR_OK;
}

static enum fr_status begin(void *self, uint32_t partition, int64_t offset, struct fr_err *err)
{
    struct files *files = self;
    FR_CHECK(!files->lines[partition]);
    int file = -1;
    struct stat what;
    enum fr_status status = open_regular(path_in(files->names[partition].topic), &file, &what, err);
    if (status != FR_OK)
        return status;
    uint64_t record_max = files->conf->ingest.record_max;
    files->lines[partition] = fr_lines_new(file, record_max ? (size_t)record_max : LINE_MAX_DEFAULT, offset, true);
    files->open = partition;
    return FR_OK;
}

static void halt(void *self, uint32_t partition)
{
    struct files *files = self;
    FR_CHECK(files->lines[partition]);
    fr_lines_free(files->lines[partition]);
    files->lines[partition] = NULL;
}

static enum fr_status poll_line(void *self, int64_t partition, int wait_ms, struct fr_source_event *out,
                                struct fr_err *err)
{
    struct files *files = self;
    uint32_t open = partition >= 0 ? (uint32_t)partition : files->open;
    struct fr_lines *lines = files->lines[open];
    if (!lines) { /* the next file is not there yet, or there is none */
        nanosleep(&(struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L}, NULL);
        return FR_AGAIN;
    }
    struct fr_line line;
    const char *path = path_in(files->names[open].topic);
    struct fr_err why = {0};
    enum fr_status status = fr_lines_next(lines, &line, &why);
    if (status == FR_E_CORRUPT)
        return fr_err_set(err, status,
                          "ingest.files: %s is damaged or cut off after line %" PRId64
                          " (%s); put the whole file there and start again: reading continues where it stopped",
                          path, line.number, why.text);
    if (status < 0)
        return fr_err_set(err, status, "ingest.files: %s: %s", path, why.text);
    if (status != FR_OK && status != FR_EOF)
        return status;
    *out = (struct fr_source_event){
        .kind = status == FR_EOF ? FR_SOURCE_FINISHED : FR_SOURCE_RECORD,
        .partition = open,
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

static size_t headers(void *self, const struct fr_source_event *event, struct fr_record_header *out, size_t capacity)
{
    struct files *files = self;
    if (!event->withheld || capacity == 0)
        return 0;
    out[0] = (struct fr_record_header){"freshet.length", files->length, strlen(files->length)};
    return 1;
}

static void close_files(void *self)
{
    struct files *files = self;
    for (uint32_t i = 0; i < files->n; i++)
        fr_lines_free(files->lines[i]);
    free(files->lines);
    free(files->names);
    free(files->renamed);
    free(files);
}

/* ---- streams of files ---- */

static const char *path_of(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    return path_in(fr_stream_position(ingest, stream)->topic);
}

/* Writes *what only if the file was opened. */
static enum fr_status check_file(struct fr_ingest *ingest, struct fr_stream *stream, struct stat *what,
                                 struct fr_err *err)
{
    const char *path = path_of(ingest, stream);
    int file = -1;
    bool past_files = fr_stream_share(ingest, stream)->past_files;
    if (past_files && stream->next < 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "ingest.files: %s was not read before the topics were, and files come first; take it out of "
                          "ingest.files, or begin with another state_dir",
                          path);
    if (past_files) /* the file need not even be there any more */
        return FR_EOF;
    enum fr_status status = open_regular(path, &file, what, err);
    if (status != FR_OK)
        return status;
    stream->bytes = what->st_size;
    uint8_t magic[8];
    ssize_t n = pread(file, magic, sizeof(magic), 0);
    const char *problem = n > 0 ? fr_lines_unreadable(magic, (size_t)n) : NULL;
    close(file);
    if (problem)
        return fr_err_set(err, FR_E_INVALID, "ingest.files: %s %s", path, problem);
    if (stream->next < 0)
        stream->next = 0;
    stream->check.from = stream->mark.offset >= 0 ? stream->mark.offset : stream->next;
    fr_stream_resolve(ingest, stream);
    const struct files *files = stream->feed->source.self;
    if (files->renamed[stream->partition])
        fr_stream_moved(ingest, stream); /* recorded although no line may come for long */
    return FR_OK;
}

/* Refuses a link, a hard link, or another way to write the path of an earlier file, because its
 * lines would be trained once under each name. */
static enum fr_status check_distinct(const struct fr_ingest *ingest, struct fr_stream **streams,
                                     const struct stat *whats, uint32_t index, struct fr_err *err)
{
    for (uint32_t i = 0; i < index && S_ISREG(whats[index].st_mode); i++)
        if (S_ISREG(whats[i].st_mode) && whats[i].st_dev == whats[index].st_dev &&
            whats[i].st_ino == whats[index].st_ino)
            return fr_err_set(err, FR_E_INVALID,
                              "ingest.files: %s and %s are one file, and a file is read once; take one of the two "
                              "names out of ingest.files",
                              path_of(ingest, streams[i]), path_of(ingest, streams[index]));
    return FR_OK;
}

/* Files are read one after the other, so an absent file ends the check: all later files wait,
 * too. */
static enum fr_status check(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    /* what stat gave for the files that were opened */
    struct stat *whats = fr_alloc(n, sizeof(*whats));
    for (uint32_t i = 0; status == FR_OK && i < n; i++) {
        status = check_file(ingest, streams[i], &whats[i], err);
        if (status == FR_OK)
            status = check_distinct(ingest, streams, whats, i, err);
        streams[i]->check.answer = status;
        if (status < 0)
            snprintf(streams[i]->check.why, sizeof(streams[i]->check.why), "%.300s", err->text);
        status = status < 0 ? status : FR_OK;
    }
    free(whats);
    return status;
}

/* Gets the end of a file, which is its size, because a file is read whole. */
static enum fr_status ask_end(struct fr_ingest *ingest, const struct fr_stream *stream, int64_t *end,
                              struct fr_err *err)
{
    (void)ingest;
    (void)err;
    *end = stream->bytes;
    return FR_OK;
}

static enum fr_status apply_end(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err)
{
    if (stream->state == FR_STREAM_DONE)
        return FR_OK;
    if (stream->fixed_end < 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "ingest.files: %s was added after the ends of this run were fixed; take it out, or use "
                          "another state_dir",
                          path_of(ingest, stream));
    if (stream->bytes != stream->fixed_end)
        return fr_err_set(err, FR_E_MISMATCH,
                          "ingest.files: %s has %" PRId64 " bytes, it had %" PRId64
                          " when the ends of this run were fixed; put the same file there, or use another state_dir",
                          path_of(ingest, stream), stream->bytes, stream->fixed_end);
    return FR_OK;
}

enum fr_status fr_files_verify(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_event *event,
                               struct fr_err *err)
{
    const char *path = path_of(ingest, stream);
    const char *remedy =
        "put the file that was read there, or begin with another state_dir; taken out of ingest.files, "
        "what is left of it is not read";
    if (event->kind == FR_SOURCE_FINISHED)
        return fr_err_set(err, FR_E_MISMATCH,
                          "ingest.files: %s ends after %" PRId64 " lines, %" PRId64 " of it were read: it was cut; %s",
                          path, event->offset, stream->item ? stream->next + 1 : stream->next, remedy);
    uint32_t crc = event->withheld ? event->crc32c : fr_crc32c(0, event->value, event->size);
    if (event->offset != stream->mark.offset || crc != stream->mark.crc32c)
        return fr_err_set(err, FR_E_MISMATCH,
                          "ingest.files: line %" PRId64
                          " of %s (counted from 0) is not the one that was read: it was changed; %s",
                          stream->mark.offset, path, remedy);
    fr_stream_change_state(ingest, stream, FR_STREAM_MARK_MATCHED);
    return FR_OK;
}

/* ---- life ---- */

_Static_assert(FR_FILE_PATH_MAX + sizeof(FR_FILE_TOPIC) <= FR_TOPIC_MAX, "every path has a topic");

static bool is_configured(const struct fr_conf *conf, const char *path)
{
    for (uint32_t i = 0; i < conf->ingest.n_files; i++)
        if (strcmp(conf->ingest.files[i], path) == 0)
            return true;
    return false;
}

/* If one of the files is not there, their paths are compared. */
static bool is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    char resolved[2][PATH_MAX];
    if (stat(path, &a) == 0 && stat(other, &b) == 0)
        return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return fr_file_resolve(path, resolved[0]) && fr_file_resolve(other, resolved[1]) &&
           strcmp(resolved[0], resolved[1]) == 0;
}

/* Warns if two paths may name one file. A relative path names another file if the working
 * directory is another one, and then nothing shows whether a file of that name is the one that
 * was read. */
static void warn_of_likely_same(const char *path, const char *other)
{
    const char *name = strrchr(path, '/'), *other_name = strrchr(other, '/');
    bool same_name = strcmp(name ? name + 1 : path, other_name ? other_name + 1 : other) == 0;
    if (same_name && other[0] != '/' && access(other, F_OK) != 0)
        fr_log(
            FR_LOG_WARN, "ingest", "file_unknown",
            "path=%s known=%s note=\"read from its first line: the state has a file of this name under a relative "
            "path that leads nowhere from this working directory. If they are one file, its lines take effect twice: "
            "restore a savepoint, and write the path as before or start in the directory of before\"",
            path, other);
}

/* Finds the position of a file that has none under its name, but has one under a path that is no
 * longer configured. */
static struct fr_partition_position *find_same(const struct fr_conf *conf, struct fr_positions *known,
                                               const struct fr_source_partition *name)
{
    struct fr_partition_position *same = NULL;
    for (uint32_t i = 0; i < known->count; i++)
        if (strcmp(known->partitions[i].topic, name->topic) == 0)
            return NULL;
    for (uint32_t i = 0; i < known->count && !same; i++) {
        struct fr_partition_position *p = &known->partitions[i];
        if (!fr_is_file_topic(p->topic) || is_configured(conf, path_in(p->topic)))
            continue;
        if (is_same_file(path_in(name->topic), path_in(p->topic)))
            same = p;
        else
            warn_of_likely_same(path_in(name->topic), path_in(p->topic));
    }
    return same;
}

void fr_files_open(const struct fr_conf *conf, struct fr_positions *known, struct fr_feed *out)
{
    struct files *files = fr_alloc(1, sizeof(*files));
    files->conf = conf;
    files->n = conf->ingest.n_files;
    files->names = fr_alloc(files->n, sizeof(*files->names));
    files->renamed = fr_alloc(files->n, sizeof(*files->renamed));
    files->lines = fr_alloc(files->n, sizeof(struct fr_lines *));
    for (uint32_t i = 0; i < files->n; i++)
        snprintf(files->names[i].topic, FR_TOPIC_MAX, FR_FILE_TOPIC "%s", conf->ingest.files[i]);
    for (uint32_t i = 0; i < files->n; i++) {
        struct fr_partition_position *same = find_same(conf, known, &files->names[i]);
        files->renamed[i] = same != NULL;
        if (!same)
            continue;
        fr_log(FR_LOG_INFO, "ingest", "file_renamed", "from=%s to=%s offset=%" PRId64, same->topic,
               files->names[i].topic, same->offset);
        memcpy(same->topic, files->names[i].topic, FR_TOPIC_MAX);
    }
    *out = (struct fr_feed){
        .source =
            {
                .self = files,
                .discover = discover,
                .begin = begin,
                .halt = halt,
                .poll = poll_line,
                .headers = headers,
                .close = close_files,
            },
        .decoder = fr_decoder_new(conf),
        .one_by_one = true,
        .check = check,
        .ask_end = ask_end,
        .apply_end = apply_end,
    };
}
