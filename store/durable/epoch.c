/* Epochs as bytes: encode, check, iterate.
 *
 * The layout (docs/formats/state.md) is plain: a head, images by ascending (table, hash) in the
 * state's keyed order, sections by ascending name. Nothing in it depends on the order of staging,
 * on addresses, time or padding, so equal sets and salts give equal bytes and digests. The images
 * that the cut ordered are in place already; the loose images are sorted and moved after them.
 *
 * Invariants: a parsed epoch was checked completely, so iterating it cannot fail.
 *
 * Owner: the thread that holds the stage or the bytes. The code knows no tables or rows and does
 * not compress; the journal's record has the CRC. */
#include "durable/epoch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "epoch_layout.h"

static void put_bytes(uint8_t **at, const void *bytes, size_t size)
{
    if (size > 0)
        memcpy(*at, bytes, size);
    *at += size;
}

/* ---- sorting ---- */

static bool hash_less(uint32_t table_a, uint64_t hash_a, uint32_t table_b, uint64_t hash_b)
{
    return table_a != table_b ? table_a < table_b : hash_a < hash_b;
}

struct loose_image {
    uint64_t hash;
    struct fr_image image;
};

static int compare_loose(const void *left, const void *right)
{
    const struct loose_image *a = left, *b = right;
    if (hash_less(a->image.table, a->hash, b->image.table, b->hash))
        return -1;
    return hash_less(b->image.table, b->hash, a->image.table, a->hash);
}

/* Sorts the loose images by ascending (table, hash). */
static void sort_loose(struct fr_stage *stage, const struct fr_order *order)
{
    size_t n = stage->n_loose;
    if (n == 0)
        return;
    struct loose_image *sorted = fr_arena_take(&stage->arena, n * sizeof(*sorted));
    for (size_t i = 0; i < n; i++)
        sorted[i] = (struct loose_image){fr_order_hash(order, stage->loose[i].key), stage->loose[i]};
    qsort(sorted, n, sizeof(*sorted), compare_loose);
    for (size_t i = 0; i < n; i++) {
        bool each_key_once = i == 0 || compare_loose(&sorted[i - 1], &sorted[i]) < 0;
        FR_CHECK(each_key_once);
        stage->loose[i] = sorted[i].image;
    }
}

/* ---- encode ---- */

static void put_loose(const struct fr_stage *stage, uint8_t **at)
{
    if (stage->n_loose > 0 && stage->n_ordered > 0)
        FR_CHECK(stage->loose[0].table > stage->ordered_table);
    for (size_t i = 0; i < stage->n_loose; i++) {
        const struct fr_image *image = &stage->loose[i];
        *at = fr_image_put(*at, image);
        put_bytes(at, image->bytes, image->size);
    }
}

static int compare_sections(const void *left, const void *right)
{
    const struct fr_stage_section *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static void put_sections(const struct fr_stage *stage, uint8_t **at)
{
    size_t n = stage->n_sections;
    const struct fr_stage_section **order = fr_alloc(n ? n : 1, sizeof(*order));
    for (size_t i = 0; i < n; i++)
        order[i] = &stage->sections[i];
    if (n > 1)
        qsort(order, n, sizeof(*order), compare_sections);
    for (size_t i = 0; i < n; i++) {
        bool each_name_once = i == 0 || strcmp(order[i - 1]->name, order[i]->name) != 0;
        FR_CHECK(each_name_once);
        uint8_t length = (uint8_t)strlen(order[i]->name);
        uint64_t size = order[i]->bytes.size;
        put_bytes(at, &length, 1);
        put_bytes(at, order[i]->name, length);
        put_bytes(at, &size, 8);
        put_bytes(at, order[i]->bytes.data, order[i]->bytes.size);
    }
    free(order);
}

void fr_epoch_complete(struct fr_stage *stage, const struct fr_order *order, const struct fr_sha256 *previous)
{
    FR_CHECK(stage->epoch >= 1);
    FR_CHECK(stage->timeline >= 1);
    sort_loose(stage, order);
    struct fr_epoch_head head = {.magic = EPOCH_MAGIC,
                                 .version = EPOCH_VERSION,
                                 .epoch = stage->epoch,
                                 .timeline = stage->timeline,
                                 .salt = order->salt,
                                 .previous = *previous,
                                 .n_images = stage->n_images,
                                 .images_size = stage->image_bytes + stage->n_images * EPOCH_IMAGE_HEAD,
                                 .n_sections = stage->n_sections};
    for (size_t i = 0; i < stage->n_sections; i++)
        head.sections_size += fr_epoch_section_bytes(&stage->sections[i]);
    size_t total = EPOCH_HEAD + (size_t)head.images_size + (size_t)head.sections_size;
    /* growing the buffer must keep the images that the cut wrote */
    stage->record.size = stage->n_ordered ? STAGE_IMAGES + stage->ordered_bytes : 0;
    (void)fr_buffer_reserve(&stage->record, FR_STAGE_FRONT + total - stage->record.size);
    uint8_t *begin = stage->record.data + FR_STAGE_FRONT, *at = begin;
    put_bytes(&at, &head, EPOCH_HEAD);
    at += stage->ordered_bytes;
    put_loose(stage, &at);
    put_sections(stage, &at);
    FR_CHECK(at == begin + total);
    stage->record.size = FR_STAGE_FRONT + total;
}

/* ---- parse ---- */

static enum fr_status check_images(const struct fr_order *order, const uint8_t *at, const uint8_t *end, uint64_t n)
{
    struct fr_image image;
    uint32_t last_table = 0;
    uint64_t last_hash = 0;
    for (uint64_t i = 0; i < n; i++) {
        if ((size_t)(end - at) < EPOCH_IMAGE_HEAD || !fr_epoch_image_head(at, &image))
            return FR_E_CORRUPT;
        at += EPOCH_IMAGE_HEAD;
        if ((size_t)(end - at) < image.size)
            return FR_E_CORRUPT;
        at += image.size;
        uint64_t hash = fr_order_hash(order, image.key);
        if (i > 0 && !hash_less(last_table, last_hash, image.table, hash))
            return FR_E_CORRUPT;
        last_table = image.table;
        last_hash = hash;
    }
    return at == end ? FR_OK : FR_E_CORRUPT;
}

/* Reads one section and moves *at past it. */
static enum fr_status take_section(struct fr_reader *reader, char name[FR_SECTION_NAME_MAX], const uint8_t **bytes,
                                   size_t *size)
{
    size_t length = fr_take_u8(reader);
    const uint8_t *text = fr_take(reader, length);
    uint64_t n = fr_take_u64(reader);
    if (reader->failed || length == 0 || length >= FR_SECTION_NAME_MAX || n > (uint64_t)(reader->end - reader->at) ||
        memchr(text, '\0', length))
        return FR_E_CORRUPT;
    memset(name, 0, FR_SECTION_NAME_MAX);
    memcpy(name, text, length);
    *bytes = fr_take(reader, (size_t)n);
    *size = (size_t)n;
    return FR_OK;
}

static enum fr_status check_sections(const uint8_t *begin, const uint8_t *end, uint64_t n)
{
    struct fr_reader reader = {begin, end, 0};
    char last[FR_SECTION_NAME_MAX] = "", name[FR_SECTION_NAME_MAX];
    const uint8_t *bytes;
    size_t size;
    if (n > FR_SECTIONS_MAX)
        return FR_E_CORRUPT;
    for (uint64_t i = 0; i < n; i++) {
        enum fr_status status = take_section(&reader, name, &bytes, &size);
        if (status != FR_OK)
            return status;
        if (strcmp(last, name) >= 0)
            return FR_E_CORRUPT;
        memcpy(last, name, sizeof(last));
    }
    return reader.at == end ? FR_OK : FR_E_CORRUPT;
}

enum fr_status fr_epoch_head_check(const void *bytes, uint64_t size, struct fr_epoch_head *head)
{
    if (size < EPOCH_HEAD)
        return FR_E_CORRUPT;
    memcpy(head, bytes, EPOCH_HEAD);
    uint64_t left = size - EPOCH_HEAD;
    if (head->magic != EPOCH_MAGIC || head->version != EPOCH_VERSION || head->epoch == 0 || head->timeline == 0)
        return FR_E_CORRUPT;
    if (head->images_size > left || head->sections_size != left - head->images_size)
        return FR_E_CORRUPT;
    if (head->n_images > head->images_size / EPOCH_IMAGE_HEAD)
        return FR_E_CORRUPT;
    return FR_OK;
}

static enum fr_status view_epoch(const void *bytes, size_t size, bool check, struct fr_epoch *out)
{
    struct fr_epoch_head head;
    enum fr_status status = fr_epoch_head_check(bytes, size, &head);
    if (status != FR_OK)
        return status;
    const uint8_t *images = (const uint8_t *)bytes + EPOCH_HEAD;
    const uint8_t *sections = images + head.images_size;
    struct fr_order order = fr_order_of(head.salt);
    if (check)
        status = check_images(&order, images, sections, head.n_images);
    if (status != FR_OK)
        return status;
    status = check_sections(sections, sections + head.sections_size, head.n_sections);
    if (status != FR_OK)
        return status;
    *out = (struct fr_epoch){.epoch = head.epoch,
                             .timeline = head.timeline,
                             .salt = head.salt,
                             .previous = head.previous,
                             .n_images = head.n_images,
                             .n_sections = head.n_sections,
                             .images_begin = images,
                             .images_end = sections,
                             .sections_begin = sections,
                             .sections_end = sections + head.sections_size};
    return FR_OK;
}

enum fr_status fr_epoch_view(const void *bytes, size_t size, struct fr_epoch *out)
{
    return view_epoch(bytes, size, true, out);
}

enum fr_status fr_epoch_own(const void *bytes, size_t size, struct fr_epoch *out)
{
    return view_epoch(bytes, size, false, out);
}

enum fr_status fr_epoch_parse(const void *bytes, size_t size, struct fr_epoch *out)
{
    enum fr_status status = fr_epoch_view(bytes, size, out);
    if (status == FR_OK)
        out->digest = fr_sha256(bytes, size);
    return status;
}

/* ---- iterate ---- */

enum fr_status fr_epoch_next(const struct fr_epoch *epoch, const uint8_t **at, struct fr_image *out)
{
    const uint8_t *p = *at ? *at : epoch->images_begin;
    if (p == epoch->images_end)
        return FR_EOF;
    bool checked = fr_epoch_image_head(p, out);
    FR_CHECK(checked);
    out->bytes = p + EPOCH_IMAGE_HEAD;
    *at = out->bytes + out->size;
    return FR_OK;
}

enum fr_status fr_epoch_next_section(const struct fr_epoch *epoch, const uint8_t **at, char name[FR_SECTION_NAME_MAX],
                                     const uint8_t **bytes, size_t *size)
{
    struct fr_reader reader = {*at ? *at : epoch->sections_begin, epoch->sections_end, 0};
    if (reader.at == reader.end)
        return FR_EOF;
    enum fr_status status = take_section(&reader, name, bytes, size);
    FR_CHECK(status == FR_OK); /* parse has checked it */
    *at = reader.at;
    return FR_OK;
}

enum fr_status fr_epoch_section(const struct fr_epoch *epoch, const char *name, const uint8_t **bytes, size_t *size)
{
    const uint8_t *at = NULL, *found;
    size_t found_size;
    char found_name[FR_SECTION_NAME_MAX];
    while (fr_epoch_next_section(epoch, &at, found_name, &found, &found_size) == FR_OK) {
        if (strcmp(found_name, name) != 0)
            continue;
        *bytes = found;
        *size = found_size;
        return FR_OK;
    }
    return FR_E_NOT_FOUND;
}
