/* What a replica reports on the acknowledgement topic (docs/formats/acknowledgements.md): a JSON
 * object in each record. Writers are replicas on other machines and programs of other people, so
 * the reader checks every length and number, and a record cannot make it allocate memory.
 *
 * Thread: any; there is no state. */
#ifndef FR_CODEC_ACKNOWLEDGEMENT_H
#define FR_CODEC_ACKNOWLEDGEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum {
    FR_ACKNOWLEDGEMENT_VERSION = 1,
    FR_ACKNOWLEDGEMENT_BYTES_MAX = 4096, /* a longer record is malformed */
    FR_REPLICA_NAME_MAX = 128,           /* bytes */
    FR_REPLICA_PROBLEM_MAX = 256,        /* bytes; what is longer is cut */
};

struct fr_acknowledgement {
    char name[FR_REPLICA_NAME_MAX + 1];
    uint64_t timeline, epoch; /* what is served; both 0: nothing yet */
    /* Unix ms: of writing, of the served epoch's cut, of its watermark; 0: unknown */
    int64_t written_ms, cut_ms, watermark_ms;
    uint64_t rows;            /* valid if has_rows */
    double scores_per_second; /* valid if has_scores */
    bool has_rows, has_scores;
    bool leaving; /* the replica ends: no further record follows */
    char problem[FR_REPLICA_PROBLEM_MAX + 1];
};

/* Whether a text can be a replica's name: 1 to FR_REPLICA_NAME_MAX bytes of UTF-8 without control
 * characters. */
bool fr_acknowledgement_name_is_sound(const char *name, size_t size);
/* Writes one record. `problem` ends before its first byte that is not UTF-8, because a
 * text may have been cut inside a character. */
void fr_acknowledgement_write(const struct fr_acknowledgement *acknowledgement, const char *model,
                              struct fr_buffer *out);
/* Reads one record. FR_E_INVALID: the record is malformed, or of another version of the format.
 * FR_E_MISMATCH: it is of another model. *out is written on FR_OK only. */
enum fr_status fr_acknowledgement_parse(const void *bytes, size_t size, const char *model,
                                        struct fr_acknowledgement *out) FR_MUST_CHECK;

#endif
