/* Dead letters of a daemon without brokers (only `ingest.files`): each is a line of JSON, appended
 * to dead_letters.jsonl in the state directory.
 *
 * Letters wait in memory; they are written and synced when a caller asks which are acknowledged.
 * That is one sync an epoch, whatever the epoch holds. As on a topic, a letter may be in the file
 * twice, if the process ended before the epoch was durable. A line that a full disk cut is removed
 * before the next attempt; one that a power cut left is ended by a line break when the file is next
 * opened. Threads: any; the mutex guards everything. */
#include "ingest/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/log.h"

#define NAME "dead_letters.jsonl"
enum {
    WAITING_MAX = 64 << 20, /* bytes; one letter always has room */
    SEND_WAIT_MS = 50,
    RETRY_MS = 1000,
};

struct file_dead {
    char path[PATH_MAX], folder[PATH_MAX];
    int fd; /* -1: not open */
    pthread_mutex_t mutex;
    struct fr_buffer lines;      /* letters that are not written yet */
    uint64_t sent, acknowledged; /* numbers of letters */
    uint64_t size;               /* of the file; everything before it is synced */
    uint64_t failed;             /* attempts */
    uint64_t tried_ns;           /* when the last attempt failed; valid while `text` is not empty */
    const struct fr_clock *clock;
    bool withheld;
    char text[256]; /* why letters wait; empty: no attempt has failed since the last good one */
};

static bool ends_in_the_middle(int fd, uint64_t size)
{
    char last;
    return size > 0 && pread(fd, &last, 1, (off_t)(size - 1)) == 1 && last != '\n';
}

static enum fr_status open_file(struct file_dead *dead, struct fr_err *err)
{
    const struct fr_disk *disk = fr_disk_system();
    struct stat info;
    int fd = disk->open(disk->self, dead->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &info) != 0) {
        enum fr_status status = fr_disk_error(err, "open", dead->path, errno);
        if (fd >= 0)
            close(fd);
        return status;
    }
    dead->fd = fd;
    dead->size = (uint64_t)info.st_size;
    if (disk->sync_dir(disk->self, dead->folder) != 0)
        return fr_disk_error(err, "sync", dead->folder, errno);
    if (!ends_in_the_middle(fd, dead->size))
        return FR_OK;
    enum fr_status status = fr_disk_write(disk, fd, "\n", 1, dead->size, dead->path, err);
    dead->size += status == FR_OK;
    return status;
}

/* Finds out whether a log rotation renamed or cut the file: closes it, or gets its size. */
static void check_rotation(struct file_dead *dead)
{
    struct stat ours, there;
    bool same = fstat(dead->fd, &ours) == 0 && stat(dead->path, &there) == 0 && ours.st_dev == there.st_dev &&
                ours.st_ino == there.st_ino;
    if (same) {
        dead->size = (uint64_t)ours.st_size;
        return;
    }
    close(dead->fd);
    dead->fd = -1;
}

static enum fr_status write_lines(struct file_dead *dead, struct fr_err *err)
{
    const struct fr_disk *disk = fr_disk_system();
    if (dead->fd >= 0)
        check_rotation(dead);
    enum fr_status status = dead->fd >= 0 ? FR_OK : open_file(dead, err);
    if (status == FR_OK)
        status = fr_disk_write(disk, dead->fd, dead->lines.data, dead->lines.size, dead->size, dead->path, err);
    if (status == FR_OK)
        status = fr_disk_sync(disk, dead->fd, dead->path, err);
    if (status != FR_OK && dead->fd >= 0) {
        /* after a failed sync the pages of the file are unknown, so the lines are written again */
        (void)disk->ftruncate(disk->self, dead->fd, dead->size);
        disk->close(disk->self, dead->fd);
        dead->fd = -1;
    }
    return status;
}

/* Mutex held. */
static void flush(struct file_dead *dead)
{
    uint64_t now = fr_mono_ns(dead->clock);
    if (dead->withheld || dead->lines.size == 0 ||
        (dead->text[0] && now - dead->tried_ns < RETRY_MS * UINT64_C(1000000)))
        return;
    struct fr_err err = {0};
    if (write_lines(dead, &err) == FR_OK) {
        dead->size += dead->lines.size;
        dead->acknowledged = dead->sent;
        fr_buffer_clear(&dead->lines);
        dead->text[0] = '\0';
        return;
    }
    if (!dead->text[0]) {
        char quoted[600];
        fr_log(FR_LOG_WARN, "ingest", "dead_letters_wait", "reason=%s", fr_log_quote(quoted, sizeof(quoted), err.text));
    }
    snprintf(dead->text, sizeof(dead->text), "%.200s", err.text);
    dead->failed++;
    dead->tried_ns = now;
}

/* A value that is not UTF-8 is written as hexadecimal digits, so that every line is JSON. */
static void put_value(struct fr_buffer *out, const uint8_t *value, size_t size)
{
    if (fr_utf8_valid(value, size)) {
        fr_buffer_printf(out, "\"value\":");
        fr_buffer_json_bytes(out, (const char *)value, size);
        return;
    }
    static const char digits[] = "0123456789abcdef";
    fr_buffer_printf(out, "\"hex\":\"");
    uint8_t *at = fr_buffer_reserve(out, 2 * size);
    for (size_t i = 0; i < size; i++) {
        *at++ = (uint8_t)digits[value[i] >> 4];
        *at++ = (uint8_t)digits[value[i] & 15];
    }
    out->size += 2 * size;
    fr_put_u8(out, '"');
}

static void prepare(void *self)
{
    (void)self; /* the file is created with the first letter */
}

static enum fr_status send_letter(void *self, const struct fr_dead_letter *from, uint64_t *number)
{
    struct file_dead *dead = self;
    const struct fr_record_parts *parts = &from->parts;
    pthread_mutex_lock(&dead->mutex);
    if (dead->lines.size > 0 && dead->lines.size + parts->size > WAITING_MAX)
        flush(dead);
    bool room = dead->lines.size == 0 || dead->lines.size + parts->size <= WAITING_MAX;
    if (room) {
        struct fr_buffer *out = &dead->lines;
        fr_buffer_printf(out, "{\"topic\":");
        fr_buffer_json_text(out, from->topic);
        fr_buffer_printf(out, ",\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"reason\":", from->partition,
                         from->offset);
        fr_buffer_json_text(out, from->reason);
        fr_buffer_printf(out, ",");
        put_value(out, parts->value, parts->value ? parts->size : 0);
        fr_buffer_printf(out, "}\n");
        *number = ++dead->sent;
    }
    pthread_mutex_unlock(&dead->mutex);
    if (!room)
        (void)poll(NULL, 0, SEND_WAIT_MS);
    return room ? FR_OK : FR_AGAIN;
}

static uint64_t acknowledged(void *self)
{
    struct file_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    flush(dead);
    uint64_t number = dead->acknowledged;
    pthread_mutex_unlock(&dead->mutex);
    return number;
}

static void counts(void *self, struct fr_dead_counts *out)
{
    struct file_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    *out = (struct fr_dead_counts){.sent = dead->acknowledged, .failed = dead->failed};
    pthread_mutex_unlock(&dead->mutex);
}

static bool healthy(void *self, char *problem, size_t size)
{
    struct file_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    bool waits = dead->text[0] != 0;
    if (waits)
        snprintf(problem, size, "%s (%" PRIu64 " dead letters wait)", dead->text, dead->sent - dead->acknowledged);
    pthread_mutex_unlock(&dead->mutex);
    return !waits;
}

static void withhold(void *self, bool on)
{
    struct file_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    dead->withheld = on;
    pthread_mutex_unlock(&dead->mutex);
}

/* Letters that wait belong to no durable epoch: their records are read again. */
static void dead_close(void *self)
{
    struct file_dead *dead = self;
    if (dead->fd >= 0)
        close(dead->fd);
    fr_buffer_release(&dead->lines);
    pthread_mutex_destroy(&dead->mutex);
    free(dead);
}

enum fr_status fr_ingest_file_dead(const struct fr_conf *conf, const struct fr_clock *clock, struct fr_dead_sink *out,
                                   struct fr_err *err)
{
    struct file_dead *dead = fr_alloc(1, sizeof(*dead));
    dead->clock = clock;
    dead->fd = -1;
    pthread_mutex_init(&dead->mutex, NULL);
    snprintf(dead->folder, sizeof(dead->folder), "%s", conf->state_dir);
    int size = snprintf(dead->path, sizeof(dead->path), "%s/%s", conf->state_dir, NAME);
    *out = (struct fr_dead_sink){dead, prepare, send_letter, acknowledged, counts, healthy, dead_close, withhold};
    if (size > 0 && (size_t)size < sizeof(dead->path))
        return FR_OK;
    dead_close(dead);
    *out = (struct fr_dead_sink){0};
    return fr_err_set(err, FR_E_LIMIT, "the path of state_dir is longer than %d bytes", PATH_MAX - (int)sizeof(NAME));
}
