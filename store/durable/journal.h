/* Journal files: format, scan, append, read. Module-internal; durable_internal.h says which mutex
 * guards what. */
#ifndef FR_DURABLE_JOURNAL_H
#define FR_DURABLE_JOURNAL_H

#include <limits.h>
#include <pthread.h>

#include "base/file.h"
#include "durable/epoch.h"

enum {
    JOURNAL_RECORD_HEAD = 16,
    JOURNAL_FILE_HEAD = 24,       /* before the opaque head bytes and the CRC */
    JOURNAL_HEAD_MAX = 64 * 1024, /* opaque head bytes: settings, not data */
    JOURNAL_FILES_MAX = 1 << 20,  /* directory entries looked at: far above any journal_max */
};

struct fr_journal_epoch {
    uint64_t offset, size; /* of the epoch's bytes, behind the record's head */
    uint64_t timeline;
    struct fr_sha256 digest;
};

struct fr_journal_file {
    uint64_t first; /* epoch of epochs[0] */
    size_t n_epochs, capacity;
    struct fr_journal_epoch *epochs;
    struct fr_sha256 before; /* digest of epoch first - 1; meaningful when n_epochs > 0 */
    uint64_t bytes;          /* up to the end of the last epoch */
    uint64_t length;         /* of the file when it was opened */
    uint8_t *head;
    size_t head_size;
    unsigned refs; /* the index holds one; the last to go frees */
    /* descriptors.c, under its mutex. fd is -1 while the file is not open. */
    int fd;
    unsigned users;
    uint64_t turn; /* of the last use */
};

struct fr_journal {
    const struct fr_disk *disk;
    struct fr_descriptors *descriptors;
    char *dir;
    bool writes;                    /* files are opened for it */
    uint64_t salt;                  /* that every epoch must carry */
    struct fr_journal_file **files; /* ascending and contiguous */
    size_t n_files, capacity;
};

static inline uint64_t journal_file_last(const struct fr_journal_file *file)
{
    return file->first + file->n_epochs - 1;
}

void fr_journal_path(const struct fr_journal *journal, uint64_t first, char out[PATH_MAX]);
/* First epochs of the files in the folder, ascending; *out is freed by the caller. A missing folder
 * has none. */
enum fr_status fr_journal_list(const struct fr_journal *journal, uint64_t **out, size_t *n,
                               struct fr_err *err) FR_MUST_CHECK;

/* Opens and checks the head. FR_E_CORRUPT, FR_E_MISMATCH (format), FR_E_NOT_FOUND, FR_E_IO. */
enum fr_status fr_journal_file_open(const struct fr_journal *journal, uint64_t first, struct fr_journal_file **out,
                                    struct fr_err *err) FR_MUST_CHECK;
/* Indexes records up to epoch `until` or the end. FR_E_CORRUPT: a record before that is not whole
 * or does not fit the chain; the epochs before it are indexed. scratch holds one record at a
 * time. */
enum fr_status fr_journal_file_scan(const struct fr_journal *journal, struct fr_journal_file *file, uint64_t until,
                                    struct fr_buffer *scratch, struct fr_err *err) FR_MUST_CHECK;
/* A new file with its head, not synced, in no index, in use by the caller. Nothing is left behind
 * when it fails with FR_E_NO_SPACE. */
struct fr_journal_head {
    uint64_t first;
    const void *bytes;
    size_t size;
};
enum fr_status fr_journal_file_create(const struct fr_journal *journal, const struct fr_journal_head *head,
                                      struct fr_journal_file **out, struct fr_err *err) FR_MUST_CHECK;
void fr_journal_file_free(const struct fr_journal *journal, struct fr_journal_file *file);

/* descriptors.c: the files that are open. From use to unuse file->fd is open; FR_E_NOT_FOUND: the
 * file is gone (trimmed), FR_E_IO. */
enum fr_status fr_journal_use(const struct fr_journal *journal, struct fr_journal_file *file,
                              struct fr_err *err) FR_MUST_CHECK;
void fr_journal_unuse(const struct fr_journal *journal, struct fr_journal_file *file);
/* Syncs the journal's folder, with a spare descriptor when the process has none left. -1 and errno
 * on failure. */
int fr_journal_sync_dir(const struct fr_journal *journal);

struct fr_descriptors *fr_journal_descriptors_new(bool writes);
void fr_journal_descriptors_free(struct fr_descriptors *descriptors);
/* Opens the file when it is not open, and counts a user; false and errno when that fails. */
bool fr_journal_descriptors_open(const struct fr_journal *journal, struct fr_journal_file *file, const char *path,
                                 int flags);
/* Closes the file, which is about to be freed. */
void fr_journal_descriptors_forget(const struct fr_journal *journal, struct fr_journal_file *file);

void fr_journal_adopt(struct fr_journal *journal, struct fr_journal_file *file);
void fr_journal_file_push(struct fr_journal_file *file, const struct fr_journal_epoch *epoch);
/* Finds the file and entry that hold the epoch; NULL when the index does not know it. */
struct fr_journal_file *fr_journal_find(const struct fr_journal *journal, uint64_t epoch, struct fr_journal_epoch *out);

/* Fills the JOURNAL_RECORD_HEAD bytes in front of an epoch's bytes. */
void fr_journal_seal(uint8_t *record, uint64_t epoch_size);
/* Seals a record and writes it behind the file's last epoch; *digest is the epoch's. It goes in
 * pieces, which the processor's cache still has from the sums when they are written. The head needs
 * the CRC of all, so it and the first piece come last. */
enum fr_status fr_journal_write(const struct fr_journal *journal, const struct fr_journal_file *file,
                                const struct fr_buffer *record, struct fr_sha256 *digest,
                                struct fr_err *err) FR_MUST_CHECK;
/* the CRC of the length alone, to be continued over the bytes */
uint32_t fr_journal_record_crc(uint64_t size);
/* size and CRC of the record whose epoch begins at offset. */
enum fr_status fr_journal_record_head(const struct fr_journal *journal, struct fr_journal_file *file, uint64_t offset,
                                      uint32_t *crc, struct fr_err *err) FR_MUST_CHECK;
/* Reads `size` bytes at offset. FR_E_CORRUPT when the file ends before; FR_E_IO. */
enum fr_status fr_journal_pread(const struct fr_journal *journal, struct fr_journal_file *file, void *out, size_t size,
                                uint64_t offset, struct fr_err *err) FR_MUST_CHECK;
/* Appends one epoch's bytes to out after checking its CRC. */
enum fr_status fr_journal_read(const struct fr_journal *journal, struct fr_journal_file *file,
                               const struct fr_journal_epoch *epoch, struct fr_buffer *out,
                               struct fr_err *err) FR_MUST_CHECK;

#endif
