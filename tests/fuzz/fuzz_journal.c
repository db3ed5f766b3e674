/* Fuzz target of journal files and the mark: a file with any bytes is indexed up to the first that
 * does not fit, and what was indexed is read back. Checksums of head and records, numbers, salts
 * and the chain of digests are made to fit where a record's head can be found, since otherwise
 * nothing would come behind these checks. Seeds are files of our own encoders
 * (seeds.c). */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "epoch_layout.h"
#include "fuzz.h"
#include "hwm.h"
#include "journal.h"
#include "seal.h"

enum { FIRST = 1, SALT = 5 };

static char folder[64];

static void remove_folder(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%020d.fj", folder, FIRST);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/hwm", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void make_folder(void)
{
    if (folder[0])
        return;
    snprintf(folder, sizeof(folder), "%s/fuzz_journal.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FR_CHECK(mkdtemp(folder) != NULL);
    FR_CHECK(atexit(remove_folder) == 0);
}

static void write_file(const char *name, const uint8_t *bytes, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    FR_CHECK(fd >= 0);
    FR_CHECK(write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

/* Makes the epoch of a record the next one of the chain. */
static void make_next(uint8_t *bytes, size_t size, uint64_t number, struct fr_sha256 *digest)
{
    struct fr_epoch_head head;
    if (size < sizeof(head))
        return;
    memcpy(&head, bytes, sizeof(head));
    head.epoch = number;
    head.salt = SALT;
    head.previous = *digest;
    memcpy(bytes, &head, sizeof(head));
    *digest = fr_sha256(bytes, size);
}

static void make_whole(uint8_t *bytes, size_t size)
{
    struct fr_sha256 digest = {{0}};
    uint32_t head_size, crc;
    if (size < JOURNAL_FILE_HEAD + sizeof(crc))
        return;
    memcpy(&head_size, bytes + 12, sizeof(head_size));
    if (head_size > size - JOURNAL_FILE_HEAD - sizeof(crc))
        return;
    uint64_t first = FIRST;
    memcpy(bytes + 16, &first, sizeof(first));
    size_t at = JOURNAL_FILE_HEAD + head_size;
    crc = fr_crc32c(0, bytes, at);
    memcpy(bytes + at, &crc, sizeof(crc));
    at += sizeof(crc);
    for (uint64_t number = FIRST; size - at >= JOURNAL_RECORD_HEAD; number++) {
        uint64_t n;
        memcpy(&n, bytes + at + 8, sizeof(n));
        if (n > size - at - JOURNAL_RECORD_HEAD)
            return;
        make_next(bytes + at + JOURNAL_RECORD_HEAD, (size_t)n, number, &digest);
        seal_record(bytes + at, n);
        at += JOURNAL_RECORD_HEAD + (size_t)n;
    }
}

/* What was indexed is read back. */
static void read_back(const struct fr_journal *journal, struct fr_journal_file *file)
{
    struct fr_buffer scratch = {0};
    struct fr_err err = {0};
    (void)!fr_journal_file_scan(journal, file, UINT64_MAX, &scratch, &err);
    for (size_t i = 0; i < file->n_epochs; i++) {
        struct fr_epoch epoch;
        fr_buffer_clear(&scratch);
        FR_CHECK(fr_journal_read(journal, file, &file->epochs[i], &scratch, &err) == FR_OK);
        FR_CHECK(fr_epoch_parse(scratch.data, scratch.size, &epoch) == FR_OK);
        FR_CHECK(memcmp(&epoch.digest, &file->epochs[i].digest, sizeof(epoch.digest)) == 0);
    }
    fr_buffer_release(&scratch);
}

static void scan(void)
{
    struct fr_journal journal = {
        .disk = fr_disk_system(), .descriptors = fr_journal_descriptors_new(false), .dir = folder, .salt = SALT};
    struct fr_journal_file *file = NULL;
    struct fr_err err = {0};
    if (fr_journal_file_open(&journal, FIRST, &file, &err) == FR_OK) {
        read_back(&journal, file);
        fr_journal_file_free(&journal, file);
    }
    fr_journal_descriptors_free(journal.descriptors);
}

static void mark(uint8_t *bytes, size_t size)
{
    char path[PATH_MAX];
    struct fr_hwm hwm;
    struct fr_err err = {0};
    bool lost;
    for (size_t at = 0; at + HWM_COPY_BYTES <= size && at <= HWM_COPY_DISTANCE; at += HWM_COPY_DISTANCE) {
        uint32_t crc = fr_crc32c(0, bytes + at, HWM_COPY_BYTES - sizeof(crc));
        memcpy(bytes + at + HWM_COPY_BYTES - sizeof(crc), &crc, sizeof(crc));
    }
    write_file("hwm", bytes, size);
    snprintf(path, sizeof(path), "%s/hwm", folder);
    (void)!fr_hwm_read(path, &hwm, &lost, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[32];
    make_folder();
    uint8_t *bytes = fuzz_copy(data, size, 0);
    mark(bytes, size);
    make_whole(bytes, size);
    snprintf(name, sizeof(name), "%020d.fj", FIRST);
    write_file(name, bytes, size);
    scan();
    free(bytes);
    return 0;
}
