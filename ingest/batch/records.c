/* See batch/records.h. An image: u64 value size, u64 key size, u8 flags, u32 headers, value, key;
 * per header u32 size of its name with its NUL, the name, u8 null, u32 size, value. It never leaves
 * the process. */
#include "batch/records.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { HAS_VALUE = 1, HAS_KEY = 2, HEAD_SIZE = 8 + 8 + 1 + 4, HEADER_SIZE = 4 + 1 + 4 };

struct fr_record_image {
    atomic_uint references;
    struct fr_buffer bytes;
};

size_t fr_record_image_size(const struct fr_record_parts *parts)
{
    size_t size = HEAD_SIZE + parts->size + parts->key_size;
    for (size_t i = 0; i < parts->n_headers; i++)
        size += HEADER_SIZE + strlen(parts->headers[i].name) + 1 + parts->headers[i].size;
    return size;
}

static void put_image(const struct fr_record_parts *parts, struct fr_buffer *out)
{
    fr_put_u64(out, parts->size);
    fr_put_u64(out, parts->key_size);
    fr_put_u8(out, (uint8_t)((parts->value ? HAS_VALUE : 0) | (parts->key ? HAS_KEY : 0)));
    fr_put_u32(out, (uint32_t)parts->n_headers);
    FR_CHECK((parts->value || parts->size == 0) && (parts->key || parts->key_size == 0));
    if (parts->value)
        fr_buffer_append(out, parts->value, parts->size);
    if (parts->key)
        fr_buffer_append(out, parts->key, parts->key_size);
    for (size_t i = 0; i < parts->n_headers; i++) {
        const struct fr_record_header *header = &parts->headers[i];
        size_t name_size = strlen(header->name) + 1;
        fr_put_u32(out, (uint32_t)name_size);
        fr_buffer_append(out, header->name, name_size);
        fr_put_u8(out, header->value == NULL);
        fr_put_u32(out, header->value ? (uint32_t)header->size : 0);
        if (header->value)
            fr_buffer_append(out, header->value, header->size);
    }
}

struct fr_record_image *fr_record_image_new(const struct fr_record_parts *parts)
{
    struct fr_record_image *image = fr_alloc(1, sizeof(*image));
    atomic_init(&image->references, 1);
    fr_buffer_reserve(&image->bytes, fr_record_image_size(parts));
    put_image(parts, &image->bytes);
    return image;
}

void fr_record_image_drop(struct fr_record_image *image)
{
    if (!image || atomic_fetch_sub(&image->references, 1) > 1)
        return;
    fr_buffer_release(&image->bytes);
    free(image);
}

void fr_batch_add_record(struct fr_batch *batch, const struct fr_batch_record *record,
                         const struct fr_record_parts *parts)
{
    if (batch->n_records == batch->capacity_records) {
        batch->capacity_records = batch->capacity_records ? 2 * batch->capacity_records : 64;
        batch->records = fr_realloc(batch->records, batch->capacity_records, sizeof(*batch->records));
    }
    struct fr_batch_record *added = &batch->records[batch->n_records++];
    *added = *record;
    added->first_sample = batch->n_samples;
    added->at = batch->record_bytes.size;
    batch->image_bytes += fr_record_image_size(parts);
    if (added->shared)
        atomic_fetch_add(&added->shared->references, 1);
    else
        put_image(parts, &batch->record_bytes);
}

void fr_batch_drop_records(struct fr_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_records; i++)
        fr_record_image_drop(batch->records[i].shared);
    batch->n_records = 0;
    batch->image_bytes = 0;
    fr_buffer_clear(&batch->record_bytes);
}

const struct fr_batch_record *fr_batch_record_of(const struct fr_batch *batch, uint32_t sample)
{
    uint32_t low = 0, high = batch->n_records;
    while (low < high) { /* the first record that begins after the sample */
        uint32_t middle = low + (high - low) / 2;
        if (batch->records[middle].first_sample <= sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &batch->records[low - 1] : NULL;
}

static void take_image(const struct fr_buffer *bytes, size_t at, struct fr_record_header *headers, size_t capacity,
                       struct fr_record_parts *out)
{
    struct fr_reader reader = {.at = bytes->data + at, .end = bytes->data + bytes->size};
    *out = (struct fr_record_parts){.headers = headers};
    out->size = fr_take_u64(&reader);
    out->key_size = fr_take_u64(&reader);
    uint8_t flags = fr_take_u8(&reader);
    uint32_t n = fr_take_u32(&reader);
    const void *value = fr_take(&reader, out->size), *key = fr_take(&reader, out->key_size);
    out->value = flags & HAS_VALUE ? value : NULL;
    out->key = flags & HAS_KEY ? key : NULL;
    for (; out->n_headers < n && out->n_headers < capacity; out->n_headers++) {
        struct fr_record_header *header = &headers[out->n_headers];
        header->name = (const char *)fr_take(&reader, fr_take_u32(&reader));
        bool null = fr_take_u8(&reader);
        header->size = fr_take_u32(&reader);
        const void *bytes_of_it = fr_take(&reader, header->size);
        header->value = null ? NULL : bytes_of_it;
    }
    FR_CHECK(!reader.failed); /* these bytes are the batch's own */
}

void fr_record_image_parts(const struct fr_record_image *image, struct fr_record_header *headers, size_t capacity,
                           struct fr_record_parts *out)
{
    take_image(&image->bytes, 0, headers, capacity, out);
}

void fr_batch_record_parts(const struct fr_batch *batch, const struct fr_batch_record *record,
                           struct fr_record_header *headers, size_t capacity, struct fr_record_parts *out)
{
    if (record->shared)
        fr_record_image_parts(record->shared, headers, capacity, out);
    else
        take_image(&batch->record_bytes, record->at, headers, capacity, out);
}

void fr_batch_quarantine(struct fr_batch *batch, uint32_t sample)
{
    FR_CHECK(sample < batch->n_samples && batch->role[sample] != FR_ROLE_QUARANTINED);
    uint8_t was = batch->role[sample];
    batch->role[sample] = FR_ROLE_QUARANTINED;
    if (batch->n_positions == 0)
        return; /* the samples do not come from a stream */
    const struct fr_batch_record *record = fr_batch_record_of(batch, sample);
    FR_CHECK(record);
    uint32_t i = 0;
    while (i < batch->n_positions && batch->positions[i].stream_index != record->stream_index)
        i++;
    FR_CHECK(i < batch->n_positions && batch->positions[i].roles[was] > 0);
    batch->positions[i].roles[was]--;
    batch->positions[i].roles[FR_ROLE_QUARANTINED]++;
}
