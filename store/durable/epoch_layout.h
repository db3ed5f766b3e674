/* Layout of an epoch's head and images, for the module's two readers: the parser and the streams of
 * a fold. */
#ifndef FR_DURABLE_EPOCH_LAYOUT_H
#define FR_DURABLE_EPOCH_LAYOUT_H

#include <string.h>

#include "durable/epoch.h"

/* The magic is "frep". */
enum { EPOCH_MAGIC = 0x70657266, EPOCH_VERSION = 3, EPOCH_HEAD = 96, EPOCH_IMAGE_HEAD = FR_IMAGE_HEAD };
enum { STAGE_IMAGES = FR_STAGE_FRONT + EPOCH_HEAD }; /* offset of the images in a stage's record */

struct fr_epoch_head {
    uint32_t magic;
    uint32_t version;
    uint64_t epoch;
    uint64_t timeline;
    uint64_t salt; /* salt of the order of the images */
    struct fr_sha256 previous;
    uint64_t n_images;
    uint64_t images_size; /* bytes of all images with their heads */
    uint64_t n_sections;
    uint64_t sections_size;
};
_Static_assert(sizeof(struct fr_epoch_head) == EPOCH_HEAD, "stored as it is: no padding");

/* Bytes of a section: length of the name, name, size, content. */
static inline uint64_t fr_epoch_section_bytes(const struct fr_stage_section *section)
{
    return 1 + strlen(section->name) + 8 + section->bytes.size;
}

/* Checks that the head fits an epoch of `size` bytes. `bytes` must have at least min(size,
 * EPOCH_HEAD) bytes. */
enum fr_status fr_epoch_head_check(const void *bytes, uint64_t size, struct fr_epoch_head *head) FR_MUST_CHECK;
/* Reads the head of an image: key u64, table u32, size u32, kind u8, reason u8. out->bytes becomes
 * NULL. false: the bytes are not an image's head. */
static inline bool fr_epoch_image_head(const uint8_t bytes[EPOCH_IMAGE_HEAD], struct fr_image *out)
{
    *out = (struct fr_image){.key = fr_load_u64(bytes),
                             .table = fr_load_u32(bytes + 8),
                             .size = fr_load_u32(bytes + 12),
                             .kind = bytes[16],
                             .reason = bytes[17]};
    if (out->kind >= FR_IMAGE_KINDS || out->reason >= FR_ABSENT_REASONS || out->table > FR_IMAGE_TABLE_MAX)
        return false;
    return out->kind == FR_IMAGE_ABSENT ? out->size == 0 : out->reason == 0;
}

#endif
