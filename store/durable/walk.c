/* Recovery walks the cold store, then the unfolded epochs on top, then the sections.
 *
 * Images are absolute, so ascending order is enough: the visitor lets a later image replace an
 * earlier one. Of every section the newest value is handed over, once, after all images: the cold
 * store's, unless an unfolded epoch holds it. Every epoch's bytes pass CRC, structure and digest
 * again, since hours may lie between the scan at open and this walk of a tool.
 *
 * Thread: one, before the first append and fold of this object (or on a read-only object). It does
 * not write. */
#include "durable_internal.h"
#include "section_set.h"

#include <inttypes.h>
#include <string.h>

enum { PROGRESS_IMAGES = 65536 };

struct walk {
    const struct fr_restore_visitor *visitor;
    uint64_t images;
    uint64_t fr_cold_bytes, total_bytes;
    struct fr_section_set sections;
    uint64_t epoch; /* whose sections are looked at */
};

static void report(struct walk *walk, uint64_t done_bytes)
{
    if (walk->visitor->progress)
        walk->visitor->progress(walk->visitor->self, done_bytes, walk->total_bytes);
}

static enum fr_status visit_cold(void *self, const struct fr_image *image, uint64_t done_bytes)
{
    struct walk *walk = self;
    if (++walk->images % PROGRESS_IMAGES == 0)
        report(walk, done_bytes < walk->fr_cold_bytes ? done_bytes : walk->fr_cold_bytes);
    return walk->visitor->image(walk->visitor->self, image);
}

static enum fr_status load_epoch(struct fr_durable *durable, uint64_t number, struct fr_buffer *bytes,
                                 struct fr_epoch *epoch, struct fr_err *err)
{
    struct fr_sha256 expected;
    fr_buffer_clear(bytes);
    enum fr_status status = fr_durable_read_epoch(durable, number, bytes, NULL, err);
    if (status != FR_OK)
        return status;
    if (fr_epoch_parse(bytes->data, bytes->size, epoch) != FR_OK ||
        fr_durable_digest(durable, number, &expected) != FR_OK ||
        memcmp(&expected, &epoch->digest, sizeof(expected)) != 0)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " in the journal of %s changed since it was checked",
                          number, durable->dir);
    return FR_OK;
}

static enum fr_status visit_images(struct walk *walk, const struct fr_epoch *epoch)
{
    const uint8_t *at = NULL;
    struct fr_image image;
    enum fr_status status = FR_OK;
    while (status == FR_OK && fr_epoch_next(epoch, &at, &image) == FR_OK) {
        image.epoch = epoch->epoch;
        status = walk->visitor->image(walk->visitor->self, &image);
    }
    return status;
}

static enum fr_status keep_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct walk *walk = self;
    struct fr_buffer *out = fr_section_set_put(&walk->sections, name, walk->epoch);
    if (out)
        fr_buffer_append(out, bytes, size);
    return FR_OK;
}

static void keep_sections(struct walk *walk, const struct fr_epoch *epoch)
{
    const uint8_t *at = NULL, *bytes;
    char name[FR_SECTION_NAME_MAX];
    size_t size;
    walk->epoch = epoch->epoch;
    while (fr_epoch_next_section(epoch, &at, name, &bytes, &size) == FR_OK)
        (void)keep_section(walk, name, bytes, size);
}

/* The cold store: images, and sections aside. */
static enum fr_status walk_cold(struct fr_durable *durable, struct walk *walk, uint64_t folded, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (walk->visitor->image)
        status = fr_cold_walk(durable->cold, NULL, visit_cold, walk, err);
    walk->epoch = folded;
    if (status == FR_OK && walk->visitor->section)
        status = fr_cold_walk_sections(durable->cold, keep_section, walk, err);
    return status;
}

static enum fr_status visit_sections(const struct walk *walk)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < walk->sections.n && status == FR_OK; i++) {
        const struct section_value *value = &walk->sections.values[i];
        status = walk->visitor->section(walk->visitor->self, value->name, value->bytes.data, value->bytes.size);
    }
    return status;
}

enum fr_status fr_durable_restore(struct fr_durable *durable, const struct fr_restore_visitor *visitor,
                                  struct fr_err *err)
{
    struct fr_err local = {.status = FR_OK};
    struct fr_durable_status now;
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK)
        return status;
    fr_durable_get_status(durable, &now);
    struct walk walk = {.visitor = visitor, .fr_cold_bytes = durable->cold ? fr_cold_bytes(durable->cold) : 0};
    walk.total_bytes = walk.fr_cold_bytes + now.unfolded_bytes;
    if (durable->cold)
        status = walk_cold(durable, &walk, now.folded, &local);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch;
    uint64_t done = walk.fr_cold_bytes;
    for (uint64_t e = now.folded + 1; e <= now.epoch && status == FR_OK; e++) {
        status = load_epoch(durable, e, &bytes, &epoch, &local);
        if (status == FR_OK && visitor->image)
            status = visit_images(&walk, &epoch);
        if (status == FR_OK && visitor->section)
            keep_sections(&walk, &epoch);
        done += bytes.size;
        report(&walk, done < walk.total_bytes ? done : walk.total_bytes);
    }
    if (status == FR_OK)
        status = visit_sections(&walk);
    fr_section_set_release(&walk.sections);
    fr_buffer_release(&bytes);
    if (status == FR_OK) {
        report(&walk, walk.total_bytes);
        return FR_OK;
    }
    if (local.status != status)
        return fr_err_set(err, status, "restoring %s: the image or section was refused (%s)", durable->dir,
                          fr_status_name(status));
    if (err)
        *err = local;
    return status;
}
