/* Journal files: format, scan, append, read. Module-internal. durable_internal.h has the mutexes
 * and what they guard. */
#ifndef FR_DURABLE_JOURNAL_H
#define FR_DURABLE_JOURNAL_H

#include <limits.h>
#include <pthread.h>

#include "base/file.h"
#include "durable/epoch.h"

enum {
    JOURNAL_RECORD_HEAD = 16,
    JOURNAL_FILE_HEAD = 24,       /* bytes before the opaque head and the CRC */
    JOURNAL_HEAD_MAX = 64 * 1024, /* most bytes of the opaque head, which has settings, not data */
    /* most directory entries that are read; far above any journal_max */
    JOURNAL_FILES_MAX = 1 << 20,
};

struct fr_journal_epoch {
    uint64_t offset, size; /* of the epoch's bytes, which follow the record's head */
    uint64_t timeline;
    struct fr_sha256 digest;
};

struct fr_journal_file {
    uint64_t first; /* epoch of epochs[0] */
    size_t n_epochs, capacity;
    struct fr_journal_epoch *epochs;
    struct fr_sha256 before; /* digest of epoch first - 1; valid when n_epochs > 0 */
    uint64_t bytes;          /* up to the end of the last epoch */
    uint64_t length;         /* length of the file when it was opened */
    uint8_t *head;
    size_t head_size;
    unsigned refs; /* references; the index holds one; giving back the last one frees the file */
    /* Used by descriptors.c, under its mutex. fd is -1 while the file is not open. */
    int fd;
    unsigned users;
    uint64_t turn; /* number of the last use */
};

struct fr_journal {
    const struct fr_disk *disk;
    struct fr_descriptors *descriptors;
    char *dir;
    bool writes;                    /* files are opened for writing */
    uint64_t salt;                  /* the salt that every epoch must have */
    struct fr_journal_file **files; /* ascending and contiguous */
    size_t n_files, capacity;
};

static inline uint64_t journal_file_last(const struct fr_journal_file *file)
{
    return file->first + file->n_epochs - 1;
}

void fr_journal_path(const struct fr_journal *journal, uint64_t first, char out[PATH_MAX]);
/* The first epochs of the files in the folder, ascending; the caller frees *out. A missing folder
 * counts as empty. */
enum fr_status fr_journal_list(const struct fr_journal *journal, uint64_t **out, size_t *n,
                               struct fr_err *err) FR_MUST_CHECK;

/* Opens a file and checks its head. FR_E_CORRUPT, FR_E_MISMATCH (format), FR_E_NOT_FOUND,
 * FR_E_IO. */
enum fr_status fr_journal_file_open(const struct fr_journal *journal, uint64_t first, struct fr_journal_file **out,
                                    struct fr_err *err) FR_MUST_CHECK;
/* Indexes the records up to epoch `until`, or to the end. FR_E_CORRUPT: an earlier record is
 * incomplete or does not fit the chain; the epochs before it are indexed. scratch holds one record
 * at a time. */
enum fr_status fr_journal_file_scan(const struct fr_journal *journal, struct fr_journal_file *file, uint64_t until,
                                    struct fr_buffer *scratch, struct fr_err *err) FR_MUST_CHECK;
/* Creates a file with its head. The file is not synced and not in the index, and the caller has it
 * in use. After FR_E_NO_SPACE no file is left. */
struct fr_journal_head {
    uint64_t first;
    const void *bytes;
    size_t size;
};
enum fr_status fr_journal_file_create(const struct fr_journal *journal, const struct fr_journal_head *head,
                                      struct fr_journal_file **out, struct fr_err *err) FR_MUST_CHECK;
void fr_journal_file_free(const struct fr_journal *journal, struct fr_journal_file *file);

/* descriptors.c: between fr_journal_use and fr_journal_unuse, file->fd is open. FR_E_NOT_FOUND: the
 * file was trimmed. FR_E_IO. */
enum fr_status fr_journal_use(const struct fr_journal *journal, struct fr_journal_file *file,
                              struct fr_err *err) FR_MUST_CHECK;
void fr_journal_unuse(const struct fr_journal *journal, struct fr_journal_file *file);
/* Syncs the journal's folder, with a spare descriptor if the process has none left. -1 and errno on
 * failure. */
int fr_journal_sync_dir(const struct fr_journal *journal);

struct fr_descriptors *fr_journal_descriptors_new(bool writes);
void fr_journal_descriptors_free(struct fr_descriptors *descriptors);
/* Opens the file if it is not open, and counts a user. false and errno on failure. */
bool fr_journal_descriptors_open(const struct fr_journal *journal, struct fr_journal_file *file, const char *path,
                                 int flags);
/* Closes a file that is about to be freed. */
void fr_journal_descriptors_forget(const struct fr_journal *journal, struct fr_journal_file *file);

void fr_journal_adopt(struct fr_journal *journal, struct fr_journal_file *file);
void fr_journal_file_push(struct fr_journal_file *file, const struct fr_journal_epoch *epoch);
/* Finds the file that holds the epoch, and the epoch's entry; NULL if the index does not have
 * it. */
struct fr_journal_file *fr_journal_find(const struct fr_journal *journal, uint64_t epoch, struct fr_journal_epoch *out);

/* Seals a record and writes it after the file's last epoch; *digest becomes the epoch's. The record
 * is written in pieces that are still in the processor's cache from computing the checksums. The
 * head needs the CRC of the whole record, so the first piece, with the head, is written last. */
enum fr_status fr_journal_write(const struct fr_journal *journal, const struct fr_journal_file *file,
                                const struct fr_buffer *record, struct fr_sha256 *digest,
                                struct fr_err *err) FR_MUST_CHECK;
/* the CRC of the length alone, to be continued over the epoch's bytes */
uint32_t fr_journal_record_crc(uint64_t size);
/* Reads the size and the CRC of the record whose epoch begins at `offset`. */
enum fr_status fr_journal_record_head(const struct fr_journal *journal, struct fr_journal_file *file, uint64_t offset,
                                      uint32_t *crc, struct fr_err *err) FR_MUST_CHECK;
/* Reads `size` bytes at `offset`. FR_E_CORRUPT: the file ends before. FR_E_IO. */
enum fr_status fr_journal_pread(const struct fr_journal *journal, struct fr_journal_file *file, void *out, size_t size,
                                uint64_t offset, struct fr_err *err) FR_MUST_CHECK;
/* Appends one epoch's bytes to out and checks their CRC. */
enum fr_status fr_journal_read(const struct fr_journal *journal, struct fr_journal_file *file,
                               const struct fr_journal_epoch *epoch, struct fr_buffer *out,
                               struct fr_err *err) FR_MUST_CHECK;

#endif
