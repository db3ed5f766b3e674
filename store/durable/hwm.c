/* The high-water mark file.
 *
 * The file has two copies of the mark, 4 KiB apart, so that no sector or page holds parts of both.
 * They are written alternately, so a write torn by a power cut can only damage the copy with the
 * mark before the last. Each copy has a sequence number and a CRC32C; the good copy with the larger
 * sequence is the mark. A copy (128 bytes, little-endian): magic "FRHWMARK", u32 format version,
 * u32 0, u64 sequence, u64 timeline, u64 epoch, 32 bytes digest, u64 acked, u64 salt, zeros, u32
 * CRC32C of the 124 bytes before. Magic, version and CRC have the same places in every format
 * version.
 *
 * Invariants: the file is created completely (temporary file, rename), so only a torn write or
 * damage leaves fewer than two good copies.
 *
 * Owner: the thread that holds the object's mark mutex. recovery.c decides what a lost copy
 * means. */
#include "hwm.h"

#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "durable/durable.h"

struct copy {
    uint8_t magic[8];
    uint32_t version;
    uint32_t zero;
    uint64_t sequence, timeline, epoch;
    struct fr_sha256 digest;
    uint64_t acked, salt;
    uint8_t unused[36];
    uint32_t crc;
};
_Static_assert(sizeof(struct copy) == HWM_COPY_BYTES, "stored as it is: no padding");

static const uint8_t magic[8] = {'F', 'R', 'H', 'W', 'M', 'A', 'R', 'K'};

static struct copy copy_of(const struct fr_hwm *hwm)
{
    struct copy copy = {.version = FR_STATE_FORMAT,
                        .sequence = hwm->sequence,
                        .timeline = hwm->timeline,
                        .epoch = hwm->epoch,
                        .digest = hwm->digest,
                        .acked = hwm->acked,
                        .salt = hwm->salt};
    memcpy(copy.magic, magic, sizeof(magic));
    copy.crc = fr_crc32c(0, &copy, sizeof(copy) - sizeof(copy.crc));
    return copy;
}

enum fr_status fr_hwm_create(const struct fr_disk *disk, const char *path, struct fr_hwm *mark, struct fr_err *err)
{
    static const uint64_t first_sequences[2] = {2, 1};
    uint8_t bytes[HWM_FILE_BYTES] = {0};
    for (int i = 0; i < 2; i++) {
        struct fr_hwm hwm = *mark;
        hwm.sequence = first_sequences[i];
        struct copy copy = copy_of(&hwm);
        memcpy(bytes + i * HWM_COPY_DISTANCE, &copy, sizeof(copy));
    }
    enum fr_status status = fr_file_replace(disk, path, bytes, sizeof(bytes), err);
    if (status == FR_OK)
        mark->sequence = first_sequences[0];
    return status;
}

/* FR_E_CORRUPT: not a good copy. */
static enum fr_status read_copy(const uint8_t *bytes, uint64_t parity, struct fr_hwm *out, uint32_t *version)
{
    struct copy copy;
    memcpy(&copy, bytes, sizeof(copy));
    if (memcmp(copy.magic, magic, sizeof(magic)) != 0 ||
        copy.crc != fr_crc32c(0, &copy, sizeof(copy) - sizeof(copy.crc)))
        return FR_E_CORRUPT;
    if (copy.version != FR_STATE_FORMAT) {
        *version = copy.version;
        return FR_E_MISMATCH;
    }
    if (copy.sequence % 2 != parity || (copy.epoch > 0 && copy.timeline == 0))
        return FR_E_CORRUPT;
    *out = (struct fr_hwm){copy.sequence, copy.timeline, copy.epoch, copy.digest, copy.acked, copy.salt};
    return FR_OK;
}

static enum fr_status pick_copy(const struct fr_buffer *file, const char *path, struct fr_hwm *out, bool *copy_lost,
                                struct fr_err *err)
{
    struct fr_hwm copies[2] = {{0}, {0}};
    enum fr_status found[2] = {FR_E_CORRUPT, FR_E_CORRUPT};
    uint32_t version = 0;
    for (size_t i = 0; i < 2; i++)
        if (file->size >= i * HWM_COPY_DISTANCE + HWM_COPY_BYTES)
            found[i] = read_copy(file->data + i * HWM_COPY_DISTANCE, i, &copies[i], &version);
    if (found[0] == FR_E_MISMATCH || found[1] == FR_E_MISMATCH)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "%s has state format %u, this version reads format %d: run the version that wrote it, or give "
            "another state_dir",
            path, (unsigned)version, FR_STATE_FORMAT);
    if (found[0] != FR_OK && found[1] != FR_OK)
        return fr_err_set(
            err, FR_E_CORRUPT,
            "%s: neither slot passes its check, so the last durable epoch is unknown: restore a savepoint or a "
            "backup of the state directory",
            path);
    *copy_lost = found[0] != FR_OK || found[1] != FR_OK;
    if (!*copy_lost && copies[0].salt != copies[1].salt)
        return fr_err_set(err, FR_E_CORRUPT, "%s: its two slots carry different salts: files of two states are mixed",
                          path);
    if (found[0] == FR_OK && found[1] == FR_OK)
        *out = copies[0].sequence > copies[1].sequence ? copies[0] : copies[1];
    else
        *out = found[0] == FR_OK ? copies[0] : copies[1];
    return FR_OK;
}

enum fr_status fr_hwm_read(const char *path, struct fr_hwm *out, bool *copy_lost, struct fr_err *err)
{
    struct fr_buffer file = {0};
    enum fr_status status = fr_file_read_regular(path, HWM_FILE_BYTES, &file, err);
    if (status == FR_OK)
        status = pick_copy(&file, path, out, copy_lost, err);
    else if (status == FR_E_LIMIT)
        status =
            fr_err_set(err, FR_E_CORRUPT, "%s is longer than %d bytes: not a high-water mark", path, HWM_FILE_BYTES);
    fr_buffer_release(&file);
    return status;
}

enum fr_status fr_hwm_write(const struct fr_disk *disk, int fd, const char *path, const struct fr_hwm *hwm,
                            struct fr_err *err)
{
    struct copy copy = copy_of(hwm);
    uint64_t offset = hwm->sequence % 2 * HWM_COPY_DISTANCE;
    enum fr_status status = fr_disk_write(disk, fd, &copy, sizeof(copy), offset, path, err);
    return status == FR_OK ? fr_disk_sync(disk, fd, path, err) : status;
}
