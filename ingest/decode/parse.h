/* The state of the decoder, which the files of this module share, and the functions by which
 * they refuse a record.
 *
 * decoder.c: the record and arrays. reasons.c: reasons. forms.c: samples, groups. envelope.c: their
 * keys. flat.c: flat records. unknown.c: names that are not configured. block.c, packed.c: blocks.
 * values.c: slot to value. compute_ids.c: slots computed from others. fields.c: y, w, u, t, s, p of
 * a sample. labels.c: derived labels and roles. All of them read from one cursor and write to the
 * staging; the first fault ends the record.
 *
 * Owner: the thread that decodes. */
#ifndef FR_DECODE_PARSE_H
#define FR_DECODE_PARSE_H

#include "base/buffer.h"
#include "decode/decoder.h"
#include "names.h"
#include "staging.h"

/* 10^11 is a time in March 1973 if read as ms, and in the year 5138 if read as seconds. */
#define FR_SECONDS_MAX ((int64_t)100000000000)

enum {
    FR_REASON_MAX = 384,    /* bytes of a reason after the path */
    FR_NAME_SHOWN_MAX = 64, /* bytes of a record's key that a reason quotes */
    /* Limit of the ids of one slot in a record after its groups' shared values are copied to
     * their samples (which happens if another group has values of its own): 512 MiB of keys. */
    FR_EXPANDED_MAX = 1 << 26,
    /* Limit of the ids of a batch, with shared ids counted for each sample: FR_IDS_PER_SAMPLE
     * for each sample of batch_size, and at least the number below in total. The store's plan
     * needs some 250 bytes for an id. */
    FR_IDS_PER_SAMPLE = 1024,
    FR_BATCH_IDS_MIN = 1 << 20,
    /* Limit of the ids of one cross in a record, because a few bytes of ids can make max_ids
     * combinations: 32 MiB of keys. */
    FR_CROSS_IDS_MAX = 1 << 22,
};

/* Keys of an envelope. */
enum {
    FR_FIELD_F = 1 << 0,
    FR_FIELD_Y = 1 << 1,
    FR_FIELD_T = 1 << 2,
    FR_FIELD_W = 1 << 3,
    FR_FIELD_U = 1 << 4,
    FR_FIELD_S = 1 << 5,
    FR_FIELD_P = 1 << 6,
    FR_FIELD_ID = 1 << 7,
    FR_FIELD_ITEMS = 1 << 8,
    FR_FIELD_N = 1 << 9,
    FR_FIELD_COLS = 1 << 10,
    FR_FIELD_G = 1 << 11,
    FR_FIELD_SHARED = 1 << 12,
    FR_FIELDS_SAMPLE =
        FR_FIELD_F | FR_FIELD_Y | FR_FIELD_T | FR_FIELD_W | FR_FIELD_U | FR_FIELD_S | FR_FIELD_P | FR_FIELD_ID,
    FR_FIELDS_GROUP = FR_FIELD_SHARED | FR_FIELD_ITEMS | FR_FIELD_T | FR_FIELD_ID,
    FR_FIELDS_BLOCK = FR_FIELD_N | FR_FIELD_COLS | FR_FIELD_Y | FR_FIELD_T | FR_FIELD_W | FR_FIELD_U | FR_FIELD_S |
                      FR_FIELD_G | FR_FIELD_SHARED,
};

/* The place of the cursor, for reasons: $[item].items[sub].field.name[entry].part[index]. */
struct fr_decode_path {
    int64_t item;      /* number in an array; -1: the record is one sample, group or block */
    int64_t sub;       /* number in a group's items; -1: none */
    const char *field; /* static; NULL: none */
    const char *name;  /* slot, label or task name of the config; NULL: none */
    int64_t entry;     /* number in a block's column; -1: none */
    const char *part;  /* "i" or "w" of weighted ids, "b", "l".. of packed columns; NULL: none */
    int64_t index;     /* number in an array of ids or numbers; -1: none */
};

/* A map slot -> value (or column) being read. */
struct fr_slot_map {
    uint64_t serial; /* unique to this map, to find duplicates */
    uint64_t group;  /* serial of the sample, group or block that it belongs to */
    bool shared;
    struct fr_key_set *keys;
    unsigned scope; /* scope of the names that this map adds to `keys` */
};

struct fr_decoder {
    const struct fr_conf *conf;
    enum fr_format format;
    bool scoring;
    size_t record_max;
    uint32_t group_max;
    uint32_t n_carried; /* the first labels of the config, which samples carry */
    struct fr_label_key {
        const char *text; /* borrowed */
        size_t size;
    } label_keys[FR_LABELS_MAX];       /* [n_carried] */
    uint32_t task_labels, unit_labels; /* bit l: a task reads label l; label l must lie in [0,1] */
    uint32_t n_derived;
    struct fr_derived_label {
        uint32_t label, root; /* root: the carried label at the end of the chain of sources */
    } derived[FR_LABELS_MAX]; /* [n_derived], each after its source */
    bool masks;               /* some label is masked by another (`given`) */
    struct fr_cursor cursor;
    struct fr_buffer scratch;
    struct fr_staging staging;
    struct fr_slot_names names;
    struct fr_flat *flat; /* NULL: records have the forms of forms.c */
    /* keys of the innermost sample; of the group or block; of the innermost `y`, `w` or `p` */
    struct fr_key_set sample_keys, group_keys, member_keys;
    uint64_t serial; /* the last serial number used */
    /* limits of the absolute weight of a label, and of an id; infinite: no limit */
    float weight_max;
    uint32_t n_computed; /* slots of buckets, then crosses */
    uint32_t *computed;
    /* dense slots whose default has no image under their transform: a record without a value is
     * malformed */
    uint32_t n_required;
    uint32_t *required;
    float *loose; /* weights of one entry until its ids are known */
    uint32_t n_loose, capacity_loose;
    uint32_t at;          /* the sample whose fields are being read */
    int64_t kafka_ms;     /* the record's timestamp as it was read */
    int64_t timestamp_ms; /* kafka_ms if it is a time in ms; 0: none */
    int64_t received_ms;
    enum fr_future future; /* the clock that the refused record's event time is ahead of */
    int64_t future_t_ms;   /* that event time */
    enum fr_malformed malformed;
    struct fr_unknown unknown;
    struct fr_known_key { /* the key of a name in `unknown`, as it is in records */
        char map;         /* letter of the map that the key was in; 0: none */
        enum fr_token_kind kind;
        size_t size;
        uint8_t bytes[FR_NAME_SHOWN_MAX]; /* the first bytes of a longer key */
    } known_slots[FR_UNKNOWN_NAMES_MAX], known_keys[FR_UNKNOWN_NAMES_MAX];
    struct fr_decode_path path;
    struct fr_buffer reason; /* text with a NUL at its end */
    char shown[FR_NAME_SHOWN_MAX + 8];
};

/* ---- reasons.c ---- */

/* Writes "path: text" and returns the status. */
enum fr_status fr_decode_fail(struct fr_decoder *d, enum fr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Returns a record's key as printable ASCII, for a reason; valid until the next call. */
const char *fr_decode_shown(struct fr_decoder *d, const struct fr_token *key);
/* Returns the kind of a token in words: "a string". */
const char *fr_decode_kind(const struct fr_token *token);

/* Gets the next token; turns the cursor's refusal into a reason. */
enum fr_status fr_decode_refused(struct fr_decoder *d, enum fr_status status);
static inline enum fr_status fr_decode_next(struct fr_decoder *d, struct fr_token *token)
{
    enum fr_status status = fr_cursor_next(&d->cursor, token);
    return __builtin_expect(status == FR_OK, 1) ? FR_OK : fr_decode_refused(d, status);
}
/* Passes over a value. */
enum fr_status fr_decode_pass(struct fr_decoder *d);

/* Gets a number as f32 (f64 and integers are rounded once). FR_E_INVALID: the token is not a
 * number; FR_E_NONFINITE: it is no finite f32. */
static inline enum fr_status fr_decode_f32(const struct fr_token *token, float *out)
{
    float v;
    if (token->kind == FR_TOKEN_FLOAT)
        v = (float)token->f;
    else if (token->kind == FR_TOKEN_UINT)
        v = (float)token->u;
    else if (token->kind == FR_TOKEN_INT)
        v = (float)token->i;
    else
        return FR_E_INVALID;
    if (!__builtin_isfinite(v))
        return FR_E_NONFINITE;
    *out = v;
    return FR_OK;
}

/* Gets a number without rounding it to f32. Errors as of fr_decode_f32. */
static inline enum fr_status fr_decode_f64(const struct fr_token *token, double *out)
{
    double v;
    if (token->kind == FR_TOKEN_FLOAT)
        v = token->f;
    else if (token->kind == FR_TOKEN_UINT)
        v = (double)token->u;
    else if (token->kind == FR_TOKEN_INT)
        v = (double)token->i;
    else
        return FR_E_INVALID;
    if (!__builtin_isfinite(v))
        return FR_E_NONFINITE;
    *out = v;
    return FR_OK;
}

/* ---- envelope.c ---- */

/* Returns the FR_FIELD_* of an envelope key; 0: it is none of them. */
unsigned fr_decode_field(const struct fr_token *key);
/* Gets the next key of an envelope whose form has the fields `allowed`; *field is 0 at the end of
 * the map. Keys that are no field of any form are passed over and counted; ingest.strict refuses
 * them, except those that begin with x_. */
enum fr_status fr_decode_envelope(struct fr_decoder *d, unsigned allowed, unsigned *seen, struct fr_slot_map *map,
                                  unsigned *field);
static inline bool fr_decode_is_key(const struct fr_token *key, const char *text)
{
    return strlen(text) == key->size && memcmp(text, key->bytes, key->size) == 0;
}

/* ---- unknown.c ---- */

/* A map label -> x or task -> x being read. */
struct fr_members {
    bool tasks;
    uint32_t seen;   /* bit set of the labels or tasks that the map has had */
    uint32_t times;  /* how often an unknown name counts: once, or the entries of a block */
    uint64_t serial; /* of the map's unknown names; 0: there was none */
};

/* Three functions, for a key that is no slot, that is no label or task, and that is no field of
 * an envelope: each passes over the key's value and counts the key. FR_E_INVALID: the map has
 * had the key before. */
enum fr_status fr_decode_unknown_slot(struct fr_decoder *d, const struct fr_slot_map *map, const struct fr_token *key);
enum fr_status fr_decode_unknown_member(struct fr_decoder *d, struct fr_members *members, const struct fr_token *key);
enum fr_status fr_decode_unknown_key(struct fr_decoder *d, struct fr_slot_map *map, const struct fr_token *key);
/* Counts a served score of a task that does not use it. */
void fr_decode_unused_score(struct fr_decoder *d, const char *task);
/* Counts the unknown values of a record that is good. */
void fr_decode_unknown_total(struct fr_decoder *d);

/* ---- forms.c ---- */

/* Reads a sample, a group or (except inside an array) a block, after the first token of its map. */
enum fr_status fr_decode_map(struct fr_decoder *d);

/* ---- flat.c ---- */

/* The paths of a configuration with ingest.envelope. */
struct fr_flat *fr_decode_flat_new(const struct fr_conf *conf);
void fr_decode_flat_free(struct fr_flat *flat);
/* Reads a flat record, after the first token of its map, as one sample. */
enum fr_status fr_decode_flat(struct fr_decoder *d);

/* ---- block.c, packed.c ---- */

enum fr_status fr_decode_block(struct fr_decoder *d, uint64_t n);

/* Reads a packed map {b}, after its first token: *n elements of `width` bytes. */
enum fr_status fr_decode_packed_plain(struct fr_decoder *d, uint32_t width, const uint8_t **bytes, uint32_t *n);

/* How many entries a column may have, and how many it has. */
struct fr_column_rows {
    uint32_t limit;
    bool exact; /* the column must have `limit` entries */
    uint32_t n;
};
enum fr_status fr_decode_check_rows(struct fr_decoder *d, struct fr_column_rows *rows, uint32_t n);
/* Reads a packed column of a slot, after its first token, into the empty part. */
enum fr_status fr_decode_packed_slot(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                     struct fr_column_rows *rows);

/* ---- values.c ---- */

/* Gets the next slot of a map; FR_NO_INDEX: the map is complete. Sets path.name. */
enum fr_status fr_decode_slot_key(struct fr_decoder *d, const struct fr_slot_map *map, int32_t *slot);
/* Marks the slot as named by this map, and sets path.name. FR_E_INVALID: the map had it before. */
enum fr_status fr_decode_claim_slot(struct fr_decoder *d, const struct fr_slot_map *map, int32_t slot);
/* Passes over and counts the value of a key that is no slot samples carry, or refuses the key. */
enum fr_status fr_decode_other_slot(struct fr_decoder *d, const struct fr_slot_map *map, const struct fr_token *key);
/* Reads a value as the entry of sample or group `at`; nil makes no entry. */
enum fr_status fr_decode_value(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part, uint32_t at,
                               const struct fr_token *first);
/* Reads a map slot -> value, after its first token, for the sample or group `at`. */
enum fr_status fr_decode_slots(struct fr_decoder *d, const struct fr_slot_map *map, uint32_t at);
/* Checks that slots without a usable default have a value in each sample of the groups from
 * from_group on. */
enum fr_status fr_decode_check_required(struct fr_decoder *d, uint32_t from_group);
/* Checks that the shared ids of those groups, copied to their samples, are within
 * FR_EXPANDED_MAX. */
enum fr_status fr_decode_check_expanded(struct fr_decoder *d, uint32_t from_group);
/* Reads packed dense numbers, f32, for the first n entries of the part: checks that they are finite
 * and within bounds, and transforms them. */
enum fr_status fr_decode_dense_packed(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                      const uint8_t *bytes, uint32_t n);
/* Computes the values of absent dense slots, and the limits of numbers. */
void fr_decode_dense_init(struct fr_decoder *d);

/* ---- weights.c ---- */

/* Finds the slots of which some layer takes the mean. */
void fr_decode_weights_init(struct fr_decoder *d);
/* Refuses a weight of an id beyond ingest.weight_max. */
enum fr_status fr_decode_id_weight(struct fr_decoder *d, float weight) __attribute__((cold));
/* Checks that the weights of an entry whose mean is taken do not nearly cancel. */
enum fr_status fr_decode_check_mean(struct fr_decoder *d, uint32_t slot, const struct fr_stage_part *part,
                                    uint32_t entry);

/* ---- compute_ids.c ---- */

void fr_decode_computed_init(struct fr_decoder *d);
/* Computes the slots that depend on others, for the whole staged record. */
enum fr_status fr_decode_computed(struct fr_decoder *d);

/* ---- fields.c ---- */

/* Each reads the value of the field in its name, for sample d->at; `first` is the first token of
 * the value. */
enum fr_status fr_decode_y(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_w(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_u(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_t(struct fr_decoder *d, const struct fr_token *first, int64_t *t_ms);
enum fr_status fr_decode_s(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_p(struct fr_decoder *d, const struct fr_token *first);
/* Gets the next key of the map: *found is its number, or the count if the map is complete. */
enum fr_status fr_decode_member(struct fr_decoder *d, struct fr_members *members, uint32_t *found);
/* Checks and stores one label; checks one event time. Packed columns use these functions, too. */
enum fr_status fr_decode_label(struct fr_decoder *d, uint32_t label, const struct fr_token *token);
enum fr_status fr_decode_event_time(struct fr_decoder *d, int64_t t_ms);
/* Returns a Kafka timestamp if it is a time in ms by the rule of `t`, otherwise 0. */
int64_t fr_decode_timestamp(int64_t timestamp_ms);
/* Refuses a sample that has no event time. */
enum fr_status fr_decode_no_time(struct fr_decoder *d) __attribute__((cold));
/* Checks that an event time is not too far ahead of the clock of this host. */
enum fr_status fr_decode_check_clock(struct fr_decoder *d, int64_t t_ms);

/* ---- labels.c ---- */

void fr_decode_labels_init(struct fr_decoder *d);
/* Completes the samples from `from` on: derived labels, masks, roles, and the event time of those
 * without one (t_ms: that of their group; 0: none). */
enum fr_status fr_decode_finish(struct fr_decoder *d, uint32_t from, int64_t t_ms);

#endif
