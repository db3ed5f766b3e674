/* Turns the bytes of one record into samples that are appended to a batch
 * (docs/formats/samples.md). This module does not depend on Kafka.
 *
 * A record is checked whole before any part of it takes effect: fr_decode_record parses it into the
 * decoder's own staging columns, and only a record without a fault is appended.
 *
 * Errors: FR_E_INVALID and FR_E_LIMIT mean that the record is malformed; `reason` has the place and
 * the fault ("$.f.price: dense value is not finite"), and nothing was appended.
 *
 * Owns: the decoder owns its staging. Thread: one. */
#ifndef FR_DECODE_DECODER_H
#define FR_DECODE_DECODER_H

#include "base/cursor.h"
#include "batch/batch.h"

struct fr_decoder;

struct fr_record {
    const void *value;
    size_t size;
    /* Kafka timestamp: the default event time, and one of the two times that future_max is
     * compared with. If it is <= 0, or is no time in ms by the rule of `t`, there is none, and
     * `t` is required. */
    int64_t timestamp_ms;
    /* wall time at receipt: the other time that future_max is compared with, also for the
     * default event time; <= 0: none */
    int64_t received_ms;
};

/* Why records are malformed, in kinds; the reason has the details. */
#define FR_MALFORMED(KIND)                                                                                             \
    KIND(EMPTY, "empty")     /* the record has no bytes, as one that deletes a key */                                  \
    KIND(SYNTAX, "syntax")   /* the bytes are not in the format of ingest.format */                                    \
    KIND(LIMIT, "limit")     /* the record is too large, too deep, or has too many values */                           \
    KIND(FORM, "form")       /* not a sample, group or block; or another field is wrong */                             \
    KIND(SLOTS, "slots")     /* the value of a slot is wrong */                                                        \
    KIND(LABELS, "labels")   /* `y` is wrong */                                                                        \
    KIND(SIGNED, "signed")   /* a label is -1, by the convention of -1 and 1 instead of 0 and 1 */                     \
    KIND(WEIGHTS, "weights") /* `w` or `s` is wrong */                                                                 \
    KIND(TIME, "time")       /* `t` is wrong, except if it is too far ahead */
#define FR_MALFORMED_KIND(kind, name) FR_MALFORMED_##kind,
enum fr_malformed { FR_MALFORMED(FR_MALFORMED_KIND) FR_MALFORMED_KINDS };
extern const char *const fr_malformed_names[FR_MALFORMED_KINDS];

/* Places of counts: the names that are counted one by one, then all other names, then keys that
 * begin with x_. */
enum {
    FR_UNKNOWN_NAMES_MAX = 8,
    FR_UNKNOWN_OTHERS = FR_UNKNOWN_NAMES_MAX,
    FR_UNKNOWN_EXTRA,
    FR_UNKNOWN_PLACES,
    FR_UNKNOWN_NAME_MAX = 76,
};

/* The first few names that are not in the configuration, as printable ASCII, including names in
 * malformed records; and how often each occurred in records that took effect. A column of a block
 * counts once for each of its entries. */
struct fr_unknown_names {
    uint32_t n;
    char names[FR_UNKNOWN_NAMES_MAX][FR_UNKNOWN_NAME_MAX];
    uint64_t counts[FR_UNKNOWN_PLACES];
};
struct fr_unknown {
    struct fr_unknown_names slots;
    /* keys of the envelope; and keys of `y`, `w` and `p`, which are prefixed with that letter
     * and a dot: "y.buy" */
    struct fr_unknown_names keys;
};

/* What an event time is too far ahead of: nothing, the Kafka timestamp, or this host's clock. */
enum fr_future { FR_FUTURE_NONE, FR_FUTURE_TIMESTAMP, FR_FUTURE_CLOCK, FR_FUTURES };

/* Borrows the conf until fr_decoder_free. ingest.record_max, max_ids and max_len of 0 mean their
 * documented defaults. */
struct fr_decoder *fr_decoder_new(const struct fr_conf *conf);
/* Makes a decoder for scoring: the format is given, records have the form of a sample (not
 * ingest.envelope), `y` and `t` may be absent (t is then the timestamp), and there is no
 * future_max. The model part of the conf suffices. */
struct fr_decoder *fr_decoder_new_scoring(const struct fr_conf *conf, enum fr_format format);
void fr_decoder_free(struct fr_decoder *decoder);

/* Parses a whole record into staging; *n_samples becomes its number of items (an empty array has
 * none). `*reason` belongs to the decoder, is printable ASCII of less than 512 bytes and valid
 * until the next call. FR_E_LIMIT: record_max, depth or string length. */
enum fr_status fr_decode_record(struct fr_decoder *decoder, const struct fr_record *record, uint32_t *n_samples,
                                const char **reason) FR_MUST_CHECK;
/* Returns what the event time that caused the last refusal was too far ahead of; FR_FUTURE_NONE:
 * the refusal had another cause. */
enum fr_future fr_decoder_refused_future(const struct fr_decoder *decoder);
/* Returns the event time of that refusal. */
int64_t fr_decoder_refused_time(const struct fr_decoder *decoder);
/* Returns the kind of the last refusal. */
enum fr_malformed fr_decoder_malformed(const struct fr_decoder *decoder);
/* Returns the unknown names of all records so far. */
const struct fr_unknown *fr_decoder_unknown(const struct fr_decoder *decoder);
/* Counts the unknown names of the record that was decoded last, once the whole record has taken
 * effect. */
void fr_decode_effective(struct fr_decoder *decoder);
/* Adds to present[slot] how many of the items [from, from + count), which are whole groups, have a
 * value of the slot. A value of a group counts for each of its items; a computed slot counts for
 * each item that has a computed value. */
void fr_decode_present(const struct fr_decoder *decoder, uint32_t from, uint32_t count, uint64_t *present);
/* Returns how many items from `from` on fill a batch that has room for `room` >= 1 more samples.
 * They are whole groups, and the last group may exceed the room. */
uint32_t fr_decode_take(const struct fr_decoder *decoder, uint32_t from, uint32_t room);
/* What a batch, or one of the equal shares of its limits, holds already. */
struct fr_decode_room {
    uint32_t samples, shares; /* shares: of a batch, at least 1 */
    uint64_t ids;             /* as fr_batch.ids counts them */
};
/* Returns how many of those items are whole groups for whose ids there is room, so that the memory
 * of one record does not depend on other records; 0 if there is none. What is empty always has room
 * for one group, because a single group is not expanded. */
uint32_t fr_decode_fit(const struct fr_decoder *decoder, uint32_t from, uint32_t count,
                       const struct fr_decode_room *room);
/* Appends items [from, from + count) of the staged record to the batch. Several calls may split
 * the record between batches, by the counts of fr_decode_take. `from` can be inside a group
 * after a restart with another version; then the rest of that group is appended. Counts of
 * ignored values are added to the batch that gets item 0. */
void fr_decode_append(struct fr_decoder *decoder, uint32_t from, uint32_t count, struct fr_batch *batch);

/* Returns the key of an integer id (docs/formats/samples.md, "Ids and keys"). */
uint64_t fr_key_integer(uint64_t v, uint64_t seed);
uint64_t fr_key_string(const void *bytes, size_t size, uint64_t seed, bool id_raw);
/* Returns the key of a raw id as a user types it: a canonical decimal stands for the integer,
 * unless the slot has id_raw. */
uint64_t fr_key_text(const char *text, const struct fr_conf_slot *slot);

#endif
