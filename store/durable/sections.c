/* The two sections that several modules read: "announce" (the content of the delta's commit record)
 * and "dense" (scoring parameters).
 *
 * Both are little-endian records without padding (docs/formats/state.md). An undefined AUC is one
 * fixed NaN pattern, so that the bytes depend on values only.
 *
 * Invariants: the input of an encoder comes from our own code (FR_CHECK). The input of a parser
 * comes from a disk (FR_E_CORRUPT), so every length is compared with the bytes that remain.
 *
 * Thread: any. The meaning of names is left to their owners. */
#include "durable/epoch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { PUBLISH_MODEL = 1, PUBLISH_DENSE = 2, HAS_SNAPSHOT = 4, DENSE_EXACT = 128, OFFSET_SIZE_MIN = 1 + 1 + 4 + 8 };
static const uint64_t nan_bits = 0x7ff8000000000000ULL;

static void put_text(struct fr_buffer *out, const char *text, size_t capacity)
{
    size_t length = strnlen(text, capacity);
    FR_CHECK(length > 0 && length < capacity && length <= UINT8_MAX);
    fr_put_u8(out, (uint8_t)length);
    fr_buffer_append(out, text, length);
}

/* Reads a text and fills the rest of the array with zeros. Marks the reader as failed if the text
 * is empty, too long or contains a zero byte. */
static void take_text(struct fr_reader *reader, char *text, size_t capacity)
{
    size_t length = fr_take_u8(reader);
    const uint8_t *bytes = fr_take(reader, length);
    memset(text, 0, capacity);
    if (!bytes || length == 0 || length >= capacity || memchr(bytes, '\0', length)) {
        reader->failed = 1;
        return;
    }
    memcpy(text, bytes, length);
}

int fr_announced_offsets_compare(const void *left, const void *right)
{
    const struct fr_announced_offset *a = left, *b = right;
    int order = strcmp(a->topic, b->topic);
    return order ? order : (a->partition > b->partition) - (a->partition < b->partition);
}

void fr_announcement_encode(const struct fr_announcement *announcement, struct fr_buffer *out)
{
    FR_CHECK(announcement->n_tasks <= FR_ANNOUNCE_TASKS_MAX);
    FR_CHECK(announcement->n_offsets <= FR_ANNOUNCE_PARTITIONS_MAX);
    fr_put_u64(out, (uint64_t)announcement->watermark_ms);
    fr_put_u64(out, announcement->samples);
    fr_put_u64(out, (uint64_t)announcement->wall_ms);
    fr_put_u8(out, (uint8_t)((announcement->publish_model ? PUBLISH_MODEL : 0) |
                             (announcement->publish_dense ? PUBLISH_DENSE : 0) |
                             (announcement->snapshot.name[0] ? HAS_SNAPSHOT : 0)));
    fr_put_u32(out, announcement->n_tasks);
    for (uint32_t i = 0; i < announcement->n_tasks; i++) {
        put_text(out, announcement->tasks[i].task, sizeof(announcement->tasks[i].task));
        if (isnan(announcement->tasks[i].auc))
            fr_put_u64(out, nan_bits);
        else
            fr_put_f64(out, announcement->tasks[i].auc);
    }
    fr_put_u32(out, announcement->n_offsets);
    for (uint32_t i = 0; i < announcement->n_offsets; i++) {
        const struct fr_announced_offset *offset = &announcement->offsets[i];
        bool ascending = i == 0 || fr_announced_offsets_compare(offset - 1, offset) < 0;
        FR_CHECK(ascending);
        put_text(out, offset->topic, sizeof(offset->topic));
        fr_put_u32(out, (uint32_t)offset->partition);
        fr_put_u64(out, (uint64_t)offset->next_offset);
    }
    const struct fr_announced_snapshot *snapshot = &announcement->snapshot;
    if (!snapshot->name[0])
        return;
    put_text(out, snapshot->name, sizeof(snapshot->name));
    fr_put_u64(out, snapshot->bytes);
    fr_buffer_append(out, snapshot->sha256.bytes, sizeof(snapshot->sha256.bytes));
}

static enum fr_status take_offsets(struct fr_reader *reader, struct fr_arena *arena, struct fr_announcement *out)
{
    uint32_t n = fr_take_u32(reader);
    if (reader->failed || n > FR_ANNOUNCE_PARTITIONS_MAX || n > (size_t)(reader->end - reader->at) / OFFSET_SIZE_MIN)
        return FR_E_CORRUPT;
    out->n_offsets = n;
    if (n > 0)
        out->offsets = fr_arena_take(arena, n * sizeof(*out->offsets));
    for (uint32_t i = 0; i < n; i++) {
        struct fr_announced_offset *offset = &out->offsets[i];
        memset(offset, 0, sizeof(*offset));
        take_text(reader, offset->topic, sizeof(offset->topic));
        offset->partition = (int32_t)fr_take_u32(reader);
        offset->next_offset = (int64_t)fr_take_u64(reader);
        if (reader->failed || (i > 0 && fr_announced_offsets_compare(offset - 1, offset) >= 0))
            return FR_E_CORRUPT;
    }
    return FR_OK;
}

static void take_snapshot(struct fr_reader *reader, struct fr_announced_snapshot *out)
{
    take_text(reader, out->name, sizeof(out->name));
    out->bytes = fr_take_u64(reader);
    const uint8_t *sha256 = fr_take(reader, sizeof(out->sha256.bytes));
    if (sha256)
        memcpy(out->sha256.bytes, sha256, sizeof(out->sha256.bytes));
}

enum fr_status fr_announcement_parse(const uint8_t *bytes, size_t size, struct fr_arena *arena,
                                     struct fr_announcement *out)
{
    if (size == 0)
        return FR_E_CORRUPT;
    struct fr_reader reader = {bytes, bytes + size, 0};
    struct fr_announcement parsed = {0};
    parsed.watermark_ms = (int64_t)fr_take_u64(&reader);
    parsed.samples = fr_take_u64(&reader);
    parsed.wall_ms = (int64_t)fr_take_u64(&reader);
    uint8_t flags = fr_take_u8(&reader);
    parsed.publish_model = flags & PUBLISH_MODEL;
    parsed.publish_dense = flags & PUBLISH_DENSE;
    parsed.n_tasks = fr_take_u32(&reader);
    if (reader.failed || flags > (PUBLISH_MODEL | PUBLISH_DENSE | HAS_SNAPSHOT) ||
        parsed.n_tasks > FR_ANNOUNCE_TASKS_MAX)
        return FR_E_CORRUPT;
    for (uint32_t i = 0; i < parsed.n_tasks; i++) {
        take_text(&reader, parsed.tasks[i].task, sizeof(parsed.tasks[i].task));
        parsed.tasks[i].auc = fr_take_f64(&reader);
    }
    enum fr_status status = take_offsets(&reader, arena, &parsed);
    if (status == FR_OK && (flags & HAS_SNAPSHOT))
        take_snapshot(&reader, &parsed.snapshot);
    if (status == FR_OK && (reader.failed || reader.at != reader.end))
        status = FR_E_CORRUPT;
    if (status == FR_OK)
        *out = parsed;
    return status;
}

void fr_dense_stage(struct fr_stage *stage, const struct fr_dense_view *parameter)
{
    FR_CHECK(parameter->n_dims == 1 || parameter->n_dims == 2);
    uint64_t product =
        parameter->n_dims == 1 ? parameter->shape[0] : (uint64_t)parameter->shape[0] * parameter->shape[1];
    FR_CHECK(parameter->n_values == product);
    char name[FR_SECTION_NAME_MAX];
    int length = snprintf(name, sizeof(name), FR_SECTION_DENSE "%s", parameter->name);
    FR_CHECK(length > 0 && (size_t)length < sizeof(name));
    struct fr_buffer *out = fr_stage_section(stage, name);
    fr_put_u8(out, (uint8_t)(parameter->n_dims | (parameter->exact ? DENSE_EXACT : 0)));
    for (uint32_t d = 0; d < parameter->n_dims; d++)
        fr_put_u32(out, parameter->shape[d]);
    fr_buffer_append(out, parameter->values, (size_t)parameter->n_values * sizeof(float));
}

enum fr_status fr_dense_parse(const char *section, const uint8_t *bytes, size_t size, struct fr_dense_view *out)
{
    struct fr_reader reader = {bytes, bytes + size, 0};
    struct fr_dense_view view = {.shape = {1, 1}};
    const char *name = section + sizeof(FR_SECTION_DENSE) - 1;
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof(view.name))
        return FR_E_CORRUPT;
    memcpy(view.name, name, length);
    uint8_t dims = fr_take_u8(&reader);
    view.exact = dims & DENSE_EXACT;
    view.n_dims = dims & (DENSE_EXACT - 1u);
    if (reader.failed || view.n_dims < 1 || view.n_dims > 2)
        return FR_E_CORRUPT;
    for (uint32_t d = 0; d < view.n_dims; d++)
        view.shape[d] = fr_take_u32(&reader);
    view.n_values = (uint64_t)view.shape[0] * view.shape[1];
    if (reader.failed || view.n_values > (size_t)(reader.end - reader.at) / sizeof(float))
        return FR_E_CORRUPT;
    /* The type is float for the convenience of readers; the address may be odd, so values are read
     * with memcpy only. */
    const void *values = fr_take(&reader, (size_t)view.n_values * sizeof(float));
    if (reader.at != reader.end)
        return FR_E_CORRUPT;
    view.values = values;
    *out = view;
    return FR_OK;
}

enum fr_status fr_epoch_next_dense(const struct fr_epoch *epoch, const uint8_t **at, struct fr_dense_view *out)
{
    char name[FR_SECTION_NAME_MAX];
    const uint8_t *bytes;
    size_t size;
    while (fr_epoch_next_section(epoch, at, name, &bytes, &size) == FR_OK)
        if (fr_is_dense_section(name))
            return fr_dense_parse(name, bytes, size, out);
    return FR_EOF;
}
