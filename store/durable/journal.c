/* Journal files.
 *
 * journal/<first epoch, 20 digits>.fj has a head (magic "FRJOURNL", u32 format version, u32 size of
 * the opaque head, u64 first epoch, the opaque head, u32 CRC32C of all before), then records (magic
 * "fjrc", u32 CRC32C of length and bytes, u64 length, the epoch's bytes). A CRC covers every byte
 * of a file up to the end of the last epoch; the digests of epochs form a chain from file to file.
 * Files are opened on demand, a few at a time (descriptors.c). If a file that the index held a
 * moment ago is missing, it was trimmed, and the reader gets FR_E_NOT_FOUND.
 *
 * Invariants: the epochs of a file are contiguous. A scan stops at the first byte that does not fit
 * and never guesses where the next record is.
 *
 * Thread: functions here lock no mutex; callers guard the index (durable_internal.h). The mark is
 * not known here, and files are neither deleted nor truncated. */
#include "journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "direct.h"
#include "durable/durable.h"

enum {
    NAME_DIGITS = 20,
    NAME_SIZE = NAME_DIGITS + 3,
    FIRST_EPOCHS = 64,
    PIECE_BYTES = 256 << 10, /* a part of a core's second-level cache */
};

struct file_head {
    uint8_t magic[8];
    uint32_t version;
    uint32_t head_size;
    uint64_t first;
};
_Static_assert(sizeof(struct file_head) == JOURNAL_FILE_HEAD, "stored as it is: no padding");

struct record_head {
    uint32_t magic;
    uint32_t crc;
    uint64_t size;
};
_Static_assert(sizeof(struct record_head) == JOURNAL_RECORD_HEAD, "stored as it is: no padding");

static const uint8_t file_magic[8] = {'F', 'R', 'J', 'O', 'U', 'R', 'N', 'L'};
static const uint32_t record_magic = 0x63726a66; /* "fjrc" */

void fr_journal_path(const struct fr_journal *journal, uint64_t first, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s/%020" PRIu64 ".fj", journal->dir, first);
    FR_CHECK(length > 0 && length < PATH_MAX); /* open has checked the directory's length */
}

/* ---- listing ---- */

static bool first_of_name(const char *name, uint64_t *out)
{
    if (strlen(name) != NAME_SIZE || strcmp(name + NAME_DIGITS, ".fj") != 0 ||
        strspn(name, "0123456789") != NAME_DIGITS)
        return false;
    errno = 0;
    unsigned long long first = strtoull(name, NULL, 10);
    *out = first;
    return errno == 0 && first > 0;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum fr_status fr_journal_list(const struct fr_journal *journal, uint64_t **out, size_t *n, struct fr_err *err)
{
    DIR *dir = opendir(journal->dir);
    if (!dir && errno != ENOENT)
        return fr_err_set(err, FR_E_IO, "cannot list %s: %s", journal->dir, strerror(errno));
    uint64_t *firsts = NULL;
    size_t count = 0, capacity = 0;
    enum fr_status status = FR_OK;
    while (dir && status == FR_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno != 0)
                status = fr_err_set(err, FR_E_IO, "cannot list %s: %s", journal->dir, strerror(errno));
            break;
        }
        uint64_t first;
        if (!first_of_name(entry->d_name, &first))
            continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            firsts = fr_realloc(firsts, capacity, sizeof(*firsts));
        }
        firsts[count++] = first;
        if (count >= JOURNAL_FILES_MAX)
            status = fr_err_set(err, FR_E_LIMIT, "%s holds more than %d files", journal->dir, JOURNAL_FILES_MAX);
    }
    if (dir)
        closedir(dir);
    if (status != FR_OK) {
        free(firsts);
        return status;
    }
    if (count > 0)
        qsort(firsts, count, sizeof(*firsts), compare_u64);
    *out = firsts;
    *n = count;
    return FR_OK;
}

/* ---- reading ---- */

enum fr_status fr_journal_pread(const struct fr_journal *journal, struct fr_journal_file *file, void *out, size_t size,
                                uint64_t offset, struct fr_err *err)
{
    uint8_t *at = out;
    char path[PATH_MAX];
    enum fr_status status = fr_journal_use(journal, file, err);
    if (status != FR_OK)
        return status;
    while (size > 0 && status == FR_OK) {
        ssize_t n = pread(file->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int number = errno;
            fr_journal_path(journal, file->first, path);
            if (n == 0)
                status = fr_err_set(err, FR_E_CORRUPT, "%s ends at byte %" PRIu64 ", more was expected", path, offset);
            else
                status =
                    fr_err_set(err, FR_E_IO, "cannot read %s at byte %" PRIu64 ": %s", path, offset, strerror(number));
            break;
        }
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    fr_journal_unuse(journal, file);
    return status;
}

uint32_t fr_journal_record_crc(uint64_t size)
{
    return fr_crc32c(0, &size, sizeof(size));
}

static void put_record_head(uint8_t *record, uint64_t epoch_size, uint32_t crc)
{
    struct record_head head = {.magic = record_magic, .size = epoch_size, .crc = crc};
    memcpy(record, &head, sizeof(head));
}

enum fr_status fr_journal_record_head(const struct fr_journal *journal, struct fr_journal_file *file, uint64_t offset,
                                      uint32_t *crc, struct fr_err *err)
{
    struct record_head head;
    enum fr_status status = fr_journal_pread(journal, file, &head, sizeof(head), offset - JOURNAL_RECORD_HEAD, err);
    if (status == FR_OK)
        *crc = head.crc;
    return status;
}

enum fr_status fr_journal_read(const struct fr_journal *journal, struct fr_journal_file *file,
                               const struct fr_journal_epoch *epoch, struct fr_buffer *out, struct fr_err *err)
{
    uint32_t expected = 0;
    enum fr_status status = fr_journal_record_head(journal, file, epoch->offset, &expected, err);
    if (status != FR_OK)
        return status;
    uint8_t *bytes = fr_buffer_reserve(out, (size_t)epoch->size);
    status = fr_journal_pread(journal, file, bytes, (size_t)epoch->size, epoch->offset, err);
    if (status != FR_OK)
        return status;
    if (fr_crc32c(fr_journal_record_crc(epoch->size), bytes, (size_t)epoch->size) != expected) {
        char path[PATH_MAX];
        fr_journal_path(journal, file->first, path);
        return fr_err_set(err, FR_E_CORRUPT, "%s: the record at byte %" PRIu64 " no longer passes its CRC", path,
                          epoch->offset);
    }
    out->size += (size_t)epoch->size;
    return FR_OK;
}

/* ---- opening and scanning ---- */

static enum fr_status read_file_head(const struct fr_journal *journal, struct fr_journal_file *file, const char *path,
                                     struct fr_err *err)
{
    struct file_head head;
    uint32_t crc, computed;
    if (file->length < JOURNAL_FILE_HEAD + sizeof(crc))
        return fr_err_set(err, FR_E_CORRUPT, "%s is cut short inside its head", path);
    enum fr_status status = fr_journal_pread(journal, file, &head, sizeof(head), 0, err);
    if (status != FR_OK)
        return status;
    if (memcmp(head.magic, file_magic, sizeof(file_magic)) != 0 || head.head_size > JOURNAL_HEAD_MAX ||
        file->length < JOURNAL_FILE_HEAD + head.head_size + sizeof(crc))
        return fr_err_set(err, FR_E_CORRUPT, "%s: its head is damaged or cut short", path);
    file->head = fr_alloc(1, head.head_size + 1u);
    file->head_size = head.head_size;
    status = fr_journal_pread(journal, file, file->head, file->head_size, JOURNAL_FILE_HEAD, err);
    if (status == FR_OK)
        status = fr_journal_pread(journal, file, &crc, sizeof(crc), JOURNAL_FILE_HEAD + file->head_size, err);
    if (status != FR_OK)
        return status;
    computed = fr_crc32c(fr_crc32c(0, &head, sizeof(head)), file->head, file->head_size);
    if (crc != computed)
        return fr_err_set(err, FR_E_CORRUPT, "%s: its head does not pass its CRC", path);
    if (head.version != FR_STATE_FORMAT)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "%s has state format %u, this version reads format %d: run the version that wrote it, or give "
            "another state_dir",
            path, (unsigned)head.version, FR_STATE_FORMAT);
    if (head.first != file->first)
        return fr_err_set(err, FR_E_CORRUPT, "%s says that its first epoch is %" PRIu64 ": a renamed file", path,
                          head.first);
    file->bytes = JOURNAL_FILE_HEAD + file->head_size + sizeof(crc);
    return FR_OK;
}

enum fr_status fr_journal_use(const struct fr_journal *journal, struct fr_journal_file *file, struct fr_err *err)
{
    char path[PATH_MAX];
    fr_journal_path(journal, file->first, path);
    if (!fr_journal_descriptors_open(journal, file, path, journal->writes ? O_RDWR : O_RDONLY))
        return fr_disk_error(err, "open", path, errno);
    return FR_OK;
}

enum fr_status fr_journal_file_open(const struct fr_journal *journal, uint64_t first, struct fr_journal_file **out,
                                    struct fr_err *err)
{
    char path[PATH_MAX];
    fr_journal_path(journal, first, path);
    struct fr_journal_file *file = fr_alloc(1, sizeof(*file));
    *file = (struct fr_journal_file){.first = first, .fd = -1, .refs = 1};
    struct stat info;
    enum fr_status status = fr_journal_use(journal, file, err);
    if (status != FR_OK) {
        fr_journal_file_free(journal, file);
        return status;
    }
    if (fstat(file->fd, &info) != 0)
        status = fr_disk_error(err, "stat", path, errno);
    else if (!S_ISREG(info.st_mode) || info.st_size < 0)
        status = fr_err_set(err, FR_E_CORRUPT, "%s is not a regular file", path);
    else
        file->length = (uint64_t)info.st_size;
    if (status == FR_OK)
        status = read_file_head(journal, file, path, err);
    fr_journal_unuse(journal, file);
    if (status != FR_OK) {
        fr_journal_file_free(journal, file);
        return status;
    }
    *out = file;
    return FR_OK;
}

/* Reads the record at file->bytes into scratch and checks that it continues the chain. */
static enum fr_status scan_record(const struct fr_journal *journal, struct fr_journal_file *file,
                                  struct fr_buffer *scratch, struct fr_epoch *epoch, struct fr_err *err)
{
    struct record_head head;
    uint64_t left = file->length - file->bytes;
    if (left < sizeof(head))
        return fr_err_set(err, FR_E_CORRUPT, "cut short inside a record's head");
    enum fr_status status = fr_journal_pread(journal, file, &head, sizeof(head), file->bytes, err);
    if (status != FR_OK)
        return status;
    if (head.magic != record_magic)
        return fr_err_set(err, FR_E_CORRUPT, "no record begins here");
    if (head.size > left - sizeof(head))
        return fr_err_set(err, FR_E_CORRUPT, "the record is cut short (%" PRIu64 " of %" PRIu64 " bytes)",
                          left - (uint64_t)sizeof(head), head.size);
    fr_buffer_clear(scratch);
    uint8_t *bytes = fr_buffer_reserve(scratch, (size_t)head.size);
    status = fr_journal_pread(journal, file, bytes, (size_t)head.size, file->bytes + sizeof(head), err);
    if (status != FR_OK)
        return status;
    if (fr_crc32c(fr_journal_record_crc(head.size), bytes, (size_t)head.size) != head.crc)
        return fr_err_set(err, FR_E_CORRUPT, "the record does not pass its CRC");
    if (fr_epoch_parse(bytes, (size_t)head.size, epoch) != FR_OK)
        return fr_err_set(err, FR_E_CORRUPT, "the record is no epoch");
    if (epoch->epoch != file->first + file->n_epochs)
        return fr_err_set(err, FR_E_CORRUPT, "the record holds epoch %" PRIu64, epoch->epoch);
    if (epoch->salt != journal->salt)
        return fr_err_set(err, FR_E_CORRUPT, "the record carries another salt than hwm: files of two states are mixed");
    if (file->n_epochs > 0) {
        const struct fr_journal_epoch *last = &file->epochs[file->n_epochs - 1];
        if (memcmp(&epoch->previous, &last->digest, sizeof(last->digest)) != 0 || epoch->timeline < last->timeline)
            return fr_err_set(err, FR_E_CORRUPT, "the record does not continue the chain of digests");
    }
    scratch->size = (size_t)head.size;
    return FR_OK;
}

enum fr_status fr_journal_file_scan(const struct fr_journal *journal, struct fr_journal_file *file, uint64_t until,
                                    struct fr_buffer *scratch, struct fr_err *err)
{
    while (file->bytes < file->length && (file->n_epochs == 0 || journal_file_last(file) < until)) {
        struct fr_epoch epoch;
        enum fr_status status = scan_record(journal, file, scratch, &epoch, err);
        if (status != FR_OK) {
            char path[PATH_MAX];
            fr_journal_path(journal, file->first, path);
            (void)fr_err_wrap(err, "%s, epoch %" PRIu64 " at byte %" PRIu64, path, file->first + file->n_epochs,
                              file->bytes);
            return status;
        }
        if (file->n_epochs == 0)
            file->before = epoch.previous;
        struct fr_journal_epoch entry = {file->bytes + JOURNAL_RECORD_HEAD, scratch->size, epoch.timeline,
                                         epoch.digest};
        fr_journal_file_push(file, &entry);
        file->bytes = entry.offset + entry.size;
    }
    return FR_OK;
}

/* ---- writing ---- */

enum fr_status fr_journal_write(const struct fr_journal *journal, const struct fr_journal_file *file,
                                const struct fr_buffer *record, struct fr_sha256 *digest, struct fr_err *err)
{
    char path[PATH_MAX];
    fr_journal_path(journal, file->first, path);
    const uint8_t *epoch = record->data + JOURNAL_RECORD_HEAD;
    size_t size = record->size - JOURNAL_RECORD_HEAD;
    uint64_t begin = file->bytes + JOURNAL_RECORD_HEAD;
    uint32_t crc = fr_journal_record_crc(size);
    struct fr_sha256_stream *sum = fr_sha256_stream_new();
    struct fr_direct rest = {.disk = journal->disk, .path = path, .cached = file->fd, .offset = begin + PIECE_BYTES};
    enum fr_status status = FR_OK;
    fr_direct_begin(&rest, size);
    for (size_t at = 0; at < size && status == FR_OK; at += PIECE_BYTES) {
        size_t n = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
        crc = fr_crc32c(crc, epoch + at, n);
        fr_sha256_stream_update(sum, epoch + at, n);
        if (at > 0)
            status = fr_direct_put(&rest, epoch + at, n, err);
    }
    if (status == FR_OK)
        status = fr_direct_end(&rest, err);
    fr_direct_release(&rest);
    struct fr_sha256 all = fr_sha256_stream_end(sum);
    fr_sha256_stream_free(sum);
    size_t first = JOURNAL_RECORD_HEAD + (size < PIECE_BYTES ? size : PIECE_BYTES);
    put_record_head(record->data, size, crc);
    if (status == FR_OK)
        status = fr_disk_write(journal->disk, file->fd, record->data, first, file->bytes, path, err);
    if (status == FR_OK)
        *digest = all;
    return status;
}

/* ---- creating, index ---- */

static enum fr_status write_file_head(const struct fr_journal *journal, struct fr_journal_file *file, const char *path,
                                      struct fr_err *err)
{
    struct fr_buffer bytes = {0};
    struct file_head head = {.version = FR_STATE_FORMAT, .head_size = (uint32_t)file->head_size, .first = file->first};
    memcpy(head.magic, file_magic, sizeof(file_magic));
    fr_buffer_append(&bytes, &head, sizeof(head));
    fr_buffer_append(&bytes, file->head, file->head_size);
    fr_put_u32(&bytes, fr_crc32c(0, bytes.data, bytes.size));
    enum fr_status status = fr_disk_write(journal->disk, file->fd, bytes.data, bytes.size, 0, path, err);
    file->bytes = file->length = bytes.size;
    fr_buffer_release(&bytes);
    return status;
}

enum fr_status fr_journal_file_create(const struct fr_journal *journal, const struct fr_journal_head *head,
                                      struct fr_journal_file **out, struct fr_err *err)
{
    FR_CHECK(head->size <= JOURNAL_HEAD_MAX);
    char path[PATH_MAX];
    fr_journal_path(journal, head->first, path);
    struct fr_journal_file *file = fr_alloc(1, sizeof(*file));
    *file = (struct fr_journal_file){.first = head->first, .fd = -1, .refs = 1, .head_size = head->size};
    if (!fr_journal_descriptors_open(journal, file, path, O_RDWR | O_CREAT | O_EXCL)) {
        int number = errno;
        fr_journal_file_free(journal, file);
        return fr_disk_error(err, "create", path, number);
    }
    file->head = fr_alloc(1, head->size + 1);
    if (head->size > 0)
        memcpy(file->head, head->bytes, head->size);
    enum fr_status status = write_file_head(journal, file, path, err);
    if (status != FR_OK) {
        fr_journal_file_free(journal, file);
        if (journal->disk->unlink(journal->disk->self, path) != 0)
            return fr_err_set(err, FR_E_IO, "cannot take back %s: %s", path, strerror(errno));
        return status;
    }
    *out = file;
    return FR_OK;
}

void fr_journal_file_free(const struct fr_journal *journal, struct fr_journal_file *file)
{
    if (!file)
        return;
    fr_journal_descriptors_forget(journal, file);
    free(file->epochs);
    free(file->head);
    free(file);
}

void fr_journal_adopt(struct fr_journal *journal, struct fr_journal_file *file)
{
    if (journal->n_files == journal->capacity) {
        journal->capacity = journal->capacity ? 2 * journal->capacity : 16;
        journal->files = fr_realloc(journal->files, journal->capacity, sizeof(struct fr_journal_file *));
    }
    journal->files[journal->n_files++] = file;
}

void fr_journal_file_push(struct fr_journal_file *file, const struct fr_journal_epoch *epoch)
{
    if (file->n_epochs == file->capacity) {
        file->capacity = file->capacity ? 2 * file->capacity : FIRST_EPOCHS;
        file->epochs = fr_realloc(file->epochs, file->capacity, sizeof(*file->epochs));
    }
    file->epochs[file->n_epochs++] = *epoch;
}

struct fr_journal_file *fr_journal_find(const struct fr_journal *journal, uint64_t epoch, struct fr_journal_epoch *out)
{
    /* searches for the last file that begins at or before the epoch */
    size_t low = 0, high = journal->n_files;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (journal->files[middle]->first <= epoch)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    struct fr_journal_file *file = journal->files[low - 1];
    if (epoch - file->first >= file->n_epochs)
        return NULL;
    *out = file->epochs[epoch - file->first];
    return file;
}
