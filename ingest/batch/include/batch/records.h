/* The records a batch's samples came from, bytes included, for as long as the batch lives: what the
 * trainer finds unfit goes to the dead letters as it was read.
 *
 * A record's image (value, key, headers) lies in the batch's own bytes; that of a large record
 * which is split between batches is made once and shared by reference, so that small batches do not
 * each copy it. Thread: the batch's owner; references to an image may be dropped by different
 * threads. Limits: the assembler closes a batch whose records come to FR_BATCH_BYTES_MIN, or
 * FR_BYTES_PER_SAMPLE a sample of ingest.batch_size. */
#ifndef FR_BATCH_RECORDS_H
#define FR_BATCH_RECORDS_H

#include <stdbool.h>

#include "batch/batch.h"

enum {
    /* a batch may hold so much of records, a sample of ingest.batch_size, */
    FR_BYTES_PER_SAMPLE = 4096,
    FR_BATCH_BYTES_MIN = 8 << 20,   /* and at least so much (P7: times the batches in the rings) */
    FR_SHARED_IMAGE_MIN = 64 << 10, /* split records from here on are shared by their batches */
};

struct fr_record_header {
    const char *name;
    const void *value; /* NULL: null */
    size_t size;
};

/* A record as it was read, or as it is read back from an image. */
struct fr_record_parts {
    const void *value, *key; /* NULL: null */
    size_t size, key_size;
    size_t n_headers;
    const struct fr_record_header *headers;
};

struct fr_record_image;

size_t fr_record_image_size(const struct fr_record_parts *parts);
/* With one reference, the caller's. */
struct fr_record_image *fr_record_image_new(const struct fr_record_parts *parts);
/* Borrowed from the image; at most `capacity` headers are written to `headers`. */
void fr_record_image_parts(const struct fr_record_image *image, struct fr_record_header *headers, size_t capacity,
                           struct fr_record_parts *out);
/* Gives one reference up; NULL is nothing. */
void fr_record_image_drop(struct fr_record_image *image);

/* Says that the samples which are appended next are items of this record from `item` on. Either
 * copies the parts, or takes a reference of its own to `shared`. */
void fr_batch_add_record(struct fr_batch *batch, const struct fr_batch_record *record,
                         const struct fr_record_parts *parts);
void fr_batch_drop_records(struct fr_batch *batch);
/* The record of a sample; NULL: none was added. */
const struct fr_batch_record *fr_batch_record_of(const struct fr_batch *batch, uint32_t sample);
/* Its parts, borrowed from the batch; at most `capacity` headers are written to `headers`. */
void fr_batch_record_parts(const struct fr_batch *batch, const struct fr_batch_record *record,
                           struct fr_record_header *headers, size_t capacity, struct fr_record_parts *out);
/* The sample took no effect: its role, and the count of roles of its position, say so from now
 * on. */
void fr_batch_quarantine(struct fr_batch *batch, uint32_t sample);

#endif
