/* The high-water mark file.
 *
 * It has two slots, 4 KiB apart so that no sector or page holds both. They are written in turn, so
 * a write that a power cut tears can only hurt the slot that held the mark before the last. Each
 * slot has a sequence number and a CRC32C; the good slot with the larger sequence is the mark. Slot
 * (128 bytes, little-endian): magic "FRHWMARK", u32 format version, u32 0, u64 sequence, u64
 * timeline, u64 epoch, 32 bytes digest, u64 acked, zeros, u32 CRC32C of the 124 bytes before.
 * Magic, version and CRC keep their places in every format version.
 *
 * Invariants: the file is created whole (temporary file, rename), so it never has fewer than two
 * good slots except by a torn write or by damage.
 *
 * Owner: whoever holds the object's mark mutex. It does not decide what a lost slot means
 * (recovery.c). */
#include "hwm.h"

#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "durable/durable.h"

struct slot {
    uint8_t magic[8];
    uint32_t version;
    uint32_t zero;
    uint64_t sequence, timeline, epoch;
    struct fr_sha256 digest;
    uint64_t acked;
    uint8_t unused[44];
    uint32_t crc;
};
_Static_assert(sizeof(struct slot) == HWM_SLOT_BYTES, "stored as it is: no padding");

static const uint8_t magic[8] = {'F', 'R', 'H', 'W', 'M', 'A', 'R', 'K'};

static struct slot slot_of(const struct fr_hwm *hwm)
{
    struct slot slot = {.version = FR_STATE_FORMAT,
                        .sequence = hwm->sequence,
                        .timeline = hwm->timeline,
                        .epoch = hwm->epoch,
                        .digest = hwm->digest,
                        .acked = hwm->acked};
    memcpy(slot.magic, magic, sizeof(magic));
    slot.crc = fr_crc32c(0, &slot, sizeof(slot) - sizeof(slot.crc));
    return slot;
}

enum fr_status fr_hwm_create(const struct fr_disk *disk, const char *path, struct fr_hwm *out, struct fr_err *err)
{
    static const uint64_t first_sequences[2] = {2, 1};
    uint8_t bytes[HWM_FILE_BYTES] = {0};
    for (int i = 0; i < 2; i++) {
        struct fr_hwm hwm = {.sequence = first_sequences[i]};
        struct slot slot = slot_of(&hwm);
        memcpy(bytes + i * HWM_SLOT_DISTANCE, &slot, sizeof(slot));
    }
    enum fr_status status = fr_file_replace(disk, path, bytes, sizeof(bytes), err);
    if (status == FR_OK)
        *out = (struct fr_hwm){.sequence = first_sequences[0]};
    return status;
}

/* FR_E_CORRUPT: not a good slot. */
static enum fr_status read_slot(const uint8_t *bytes, uint64_t parity, struct fr_hwm *out, uint32_t *version)
{
    struct slot slot;
    memcpy(&slot, bytes, sizeof(slot));
    if (memcmp(slot.magic, magic, sizeof(magic)) != 0 ||
        slot.crc != fr_crc32c(0, &slot, sizeof(slot) - sizeof(slot.crc)))
        return FR_E_CORRUPT;
    if (slot.version != FR_STATE_FORMAT) {
        *version = slot.version;
        return FR_E_MISMATCH;
    }
    if (slot.sequence % 2 != parity || (slot.epoch == 0) != (slot.timeline == 0))
        return FR_E_CORRUPT;
    *out = (struct fr_hwm){slot.sequence, slot.timeline, slot.epoch, slot.digest, slot.acked};
    return FR_OK;
}

static enum fr_status pick(const struct fr_buffer *file, const char *path, struct fr_hwm *out, bool *slot_lost,
                           struct fr_err *err)
{
    struct fr_hwm slots[2] = {{0}, {0}};
    enum fr_status found[2] = {FR_E_CORRUPT, FR_E_CORRUPT};
    uint32_t version = 0;
    for (size_t i = 0; i < 2; i++)
        if (file->size >= i * HWM_SLOT_DISTANCE + HWM_SLOT_BYTES)
            found[i] = read_slot(file->data + i * HWM_SLOT_DISTANCE, i, &slots[i], &version);
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
    *slot_lost = found[0] != FR_OK || found[1] != FR_OK;
    if (found[0] == FR_OK && found[1] == FR_OK)
        *out = slots[0].sequence > slots[1].sequence ? slots[0] : slots[1];
    else
        *out = found[0] == FR_OK ? slots[0] : slots[1];
    return FR_OK;
}

enum fr_status fr_hwm_read(const char *path, struct fr_hwm *out, bool *slot_lost, struct fr_err *err)
{
    struct fr_buffer file = {0};
    enum fr_status status = fr_file_read(path, HWM_FILE_BYTES, &file, err);
    if (status == FR_OK)
        status = pick(&file, path, out, slot_lost, err);
    else if (status == FR_E_LIMIT)
        status =
            fr_err_set(err, FR_E_CORRUPT, "%s is longer than %d bytes: not a high-water mark", path, HWM_FILE_BYTES);
    fr_buffer_release(&file);
    return status;
}

enum fr_status fr_hwm_write(const struct fr_disk *disk, int fd, const char *path, const struct fr_hwm *hwm,
                            struct fr_err *err)
{
    struct slot slot = slot_of(hwm);
    uint64_t offset = hwm->sequence % 2 * HWM_SLOT_DISTANCE;
    enum fr_status status = fr_disk_write(disk, fd, &slot, sizeof(slot), offset, path, err);
    return status == FR_OK ? fr_disk_sync(disk, fd, path, err) : status;
}
