/* The records from which a batch's samples come, with their bytes, for as long as the batch lives:
 * a record that the trainer finds unfit becomes a dead letter as it was read.
 *
 * A record's image (value, key, headers) is in the batch's own bytes. The image of a large record
 * that is split between batches is made once and shared by reference, so that small batches do not
 * copy it each. Thread: the batch's owner; references to an image may be dropped by different
 * threads. Limits: ingest closes a batch whose records reach FR_BATCH_BYTES_MIN, or
 * FR_BYTES_PER_SAMPLE for each sample of ingest.batch_size. */
#ifndef FR_BATCH_RECORDS_H
#define FR_BATCH_RECORDS_H

#include <stdbool.h>

#include "batch/batch.h"

enum {
    /* bytes of records that a batch may hold for each sample of ingest.batch_size */
    FR_BYTES_PER_SAMPLE = 4096,
    /* least limit of those bytes in total (P7 counts it for each batch in the rings) */
    FR_BATCH_BYTES_MIN = 8 << 20,
    /* a record of at least this many bytes that is split shares one image among its batches */
    FR_SHARED_IMAGE_MIN = 64 << 10,
};

struct fr_record_header {
    const char *name;
    const void *value; /* NULL: a null value */
    size_t size;
};

/* A record as it was read, or as it is read back from an image. */
struct fr_record_parts {
    const void *value, *key; /* NULL: a null value or key */
    size_t size, key_size;
    size_t n_headers;
    const struct fr_record_header *headers;
};

struct fr_record_image;

size_t fr_record_image_size(const struct fr_record_parts *parts);
/* Copies the parts. The caller owns one reference. */
struct fr_record_image *fr_record_image_new(const struct fr_record_parts *parts);
/* Gets the parts, borrowed from the image; writes at most `capacity` headers to `headers`. */
void fr_record_image_parts(const struct fr_record_image *image, struct fr_record_header *headers, size_t capacity,
                           struct fr_record_parts *out);
/* Releases one reference; accepts NULL. */
void fr_record_image_drop(struct fr_record_image *image);

/* Adds the record of the samples that are appended next. These samples are the record's items
 * from `first_item` on. Copies the parts, or takes a reference of its own to `shared`. */
void fr_batch_add_record(struct fr_batch *batch, const struct fr_batch_record *record,
                         const struct fr_record_parts *parts);
void fr_batch_drop_records(struct fr_batch *batch);
/* Returns the record of a sample; NULL: none was added. */
const struct fr_batch_record *fr_batch_record_of(const struct fr_batch *batch, uint32_t sample);
/* Gets the parts of a record, borrowed from the batch; writes at most `capacity` headers. */
void fr_batch_record_parts(const struct fr_batch *batch, const struct fr_batch_record *record,
                           struct fr_record_header *headers, size_t capacity, struct fr_record_parts *out);
/* Marks a sample as without effect, in its role and in the counts of roles of its position. */
void fr_batch_quarantine(struct fr_batch *batch, uint32_t sample);

#endif
