/* The staging area of a cut: images and sections that the owner loop copies between batches and
 * hands to the durable thread.
 *
 * The cut knows the order of its images and writes them where the epoch has them, so they are
 * copied once between the rows and the journal. Loose images (blocks of sketches, tests) come in
 * any order; the encoder sorts them and places them after the others. Memory is kept between epochs
 * (record, arena blocks, the image array, section buffers), so a steady workload allocates nothing
 * after its largest epoch. Small loose images share blocks of the arena, because each allocation
 * takes a multiple of 64 bytes.
 *
 * Invariants: image_bytes is the sum of the sizes. Names and kinds are checked (FR_CHECK) when they
 * are staged, because they come from our own code.
 *
 * Owner: the thread that has the stage (owner loop, then durable thread). The encoder sorts, and
 * detects keys that were staged twice. */
#include "epoch_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { PIECE = 64 * 1024, IMAGE_ALIGNMENT = 8, FIRST_IMAGES = 1024, FIRST_SECTIONS = 32 };

void fr_stage_init(struct fr_stage *stage)
{
    *stage = (struct fr_stage){.epoch = 0};
}

void fr_stage_clear(struct fr_stage *stage)
{
    fr_arena_reset(&stage->arena);
    stage->piece = NULL;
    stage->piece_left = 0;
    stage->record.size = 0;
    stage->n_ordered = stage->ordered_bytes = 0;
    stage->n_loose = stage->n_images = 0;
    stage->n_sections = 0;
    stage->image_bytes = 0;
    stage->epoch = 0;
    stage->timeline = 0;
    stage->dead_sequence = 0;
    stage->publishable = 0;
    stage->cut_mono_ns = 0;
    stage->last = false;
}

void fr_stage_release(struct fr_stage *stage)
{
    if (!stage)
        return;
    fr_arena_release(&stage->arena);
    fr_buffer_release(&stage->record);
    free(stage->loose);
    for (size_t i = 0; i < stage->capacity_sections; i++)
        fr_buffer_release(&stage->sections[i].bytes);
    free(stage->sections);
    fr_stage_init(stage);
}

static uint8_t *take_bytes(struct fr_stage *stage, size_t size)
{
    size_t rounded = (size + IMAGE_ALIGNMENT - 1) & ~(size_t)(IMAGE_ALIGNMENT - 1);
    if (rounded > PIECE / 4)
        return fr_arena_take(&stage->arena, rounded);
    if (stage->piece_left < rounded) {
        stage->piece = fr_arena_take(&stage->arena, PIECE);
        stage->piece_left = PIECE;
    }
    uint8_t *bytes = stage->piece;
    stage->piece += rounded;
    stage->piece_left -= rounded;
    return bytes;
}

uint8_t *fr_stage_reserve(struct fr_stage *stage, size_t bytes)
{
    FR_CHECK(stage->n_images == 0);
    fr_buffer_clear(&stage->record);
    return fr_buffer_reserve(&stage->record, STAGE_IMAGES + bytes) + STAGE_IMAGES;
}

void fr_stage_touch(struct fr_stage *stage, size_t bytes)
{
    enum { PAGE = 4096 };
    uint8_t *room = fr_stage_reserve(stage, bytes);
    for (size_t at = 0; at < bytes; at += PAGE)
        room[at] = 0; /* the write makes the system provide the page */
}

void fr_stage_ordered(struct fr_stage *stage, size_t n, size_t bytes, uint32_t last_table)
{
    FR_CHECK(stage->n_images == 0);
    FR_CHECK(stage->record.capacity >= STAGE_IMAGES + bytes);
    FR_CHECK(last_table <= FR_IMAGE_TABLE_MAX);
    stage->n_ordered = stage->n_images = n;
    stage->ordered_bytes = bytes;
    stage->ordered_table = last_table;
    stage->image_bytes = bytes - n * FR_IMAGE_HEAD;
}

uint64_t fr_stage_bytes(const struct fr_stage *stage)
{
    uint64_t bytes = STAGE_IMAGES + stage->image_bytes + (uint64_t)stage->n_images * FR_IMAGE_HEAD;
    for (size_t i = 0; i < stage->n_sections; i++)
        bytes += fr_epoch_section_bytes(&stage->sections[i]);
    return bytes;
}

uint8_t *fr_stage_image(struct fr_stage *stage, const struct fr_image *image)
{
    FR_CHECK(image->table <= FR_IMAGE_TABLE_MAX);
    FR_CHECK(image->kind < FR_IMAGE_KINDS);
    if (image->kind == FR_IMAGE_ABSENT)
        FR_CHECK(image->size == 0 && image->reason < FR_ABSENT_REASONS);
    else
        FR_CHECK(image->reason == 0);
    if (stage->n_loose == stage->capacity_loose) {
        size_t capacity = stage->capacity_loose ? 2 * stage->capacity_loose : FIRST_IMAGES;
        stage->loose = fr_realloc(stage->loose, capacity, sizeof(*stage->loose));
        stage->capacity_loose = capacity;
    }
    uint8_t *bytes = take_bytes(stage, image->size);
    struct fr_image *staged = &stage->loose[stage->n_loose++];
    stage->n_images++;
    *staged = *image;
    staged->bytes = bytes;
    stage->image_bytes += image->size;
    return bytes;
}

static bool is_section_name(const char *name)
{
    size_t length = strlen(name), own = strspn(name, "abcdefghijklmnopqrstuvwxyz_");
    if (own == 0 || length >= FR_SECTION_NAME_MAX || (own < length && (name[own] != '/' || own + 1 == length)))
        return false;
    for (size_t i = own; i < length; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return true;
}

struct fr_buffer *fr_stage_section(struct fr_stage *stage, const char *name)
{
    bool valid = is_section_name(name);
    FR_CHECK(valid);
    FR_CHECK(stage->n_sections < FR_SECTIONS_MAX);
    if (stage->n_sections == stage->capacity_sections) {
        size_t capacity = stage->capacity_sections ? 2 * stage->capacity_sections : FIRST_SECTIONS;
        stage->sections = fr_realloc(stage->sections, capacity, sizeof(*stage->sections));
        memset(stage->sections + stage->capacity_sections, 0,
               (capacity - stage->capacity_sections) * sizeof(*stage->sections));
        stage->capacity_sections = capacity;
    }
    struct fr_stage_section *section = &stage->sections[stage->n_sections++];
    memset(section->name, 0, sizeof(section->name));
    memcpy(section->name, name, strlen(name));
    fr_buffer_clear(&section->bytes);
    return &section->bytes;
}
