/* What the parts of the decoder share: its state, and how they refuse a record.
 *
 * decoder.c: the record and arrays. reasons.c: reasons. forms.c: samples, groups. envelope.c: their
 * keys. unknown.c: what nobody reads. block.c, packed.c: blocks. values.c: slot -> value.
 * compute_ids.c: slots computed from others. fields.c: y, w, u, t, s, p of a sample. labels.c:
 * derived labels and roles. Every part reads from the one cursor and writes into the staging; the
 * first fault ends the record.
 *
 * Owner: the thread that decodes. */
#ifndef FR_DECODE_PARSE_H
#define FR_DECODE_PARSE_H

#include "base/buffer.h"
#include "decode/decoder.h"
#include "names.h"
#include "staging.h"

enum {
    FR_REASON_MAX = 384,    /* of the text behind the path */
    FR_NAME_SHOWN_MAX = 64, /* bytes of a key from outside that a reason quotes */
    /* Ids of one slot that a record may come to when its groups' shared values are copied to their
     * samples (as happens when another group has values of its own): 512 MiB of keys. */
    FR_EXPANDED_MAX = 1 << 26,
    /* Ids of a batch, were every sample to have its own: a batch's size times the first, and not
     * below the second. The store's plan needs some 250 bytes an id. */
    FR_IDS_PER_SAMPLE = 1024,
    FR_BATCH_IDS_MIN = 1 << 20,
    /* Ids of one cross that a record may come to: a few bytes of ids give max_ids of them. 32 MiB
     * of keys. */
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

/* Where the cursor stands, for reasons: $[item].items[sub].field.name[entry].part[index]. */
struct fr_decode_path {
    int64_t item;      /* of an array; -1: the record is one sample, group or block */
    int64_t sub;       /* of a group's items; -1: none */
    const char *field; /* static; NULL: none */
    const char *name;  /* slot, label or task name of the config; NULL: none */
    int64_t entry;     /* of a block's column; -1: none */
    const char *part;  /* "i" or "w" of weighted ids, "b", "l".. of packed columns; NULL: none */
    int64_t index;     /* -1: none */
};

/* A map slot -> value (or column) being read. */
struct fr_slot_map {
    uint64_t serial; /* never repeats: finds duplicates */
    uint64_t group;  /* serial of the sample, group or block that it belongs to */
    bool shared;
    struct fr_key_set *keys;
    unsigned scope; /* of the names it adds to keys */
};

struct fr_decoder {
    const struct fr_conf *conf;
    enum fr_format format;
    bool scoring;
    size_t record_max;
    uint32_t group_max;
    uint32_t n_carried; /* labels that samples carry: the first ones */
    struct fr_label_key {
        const char *text; /* borrowed */
        size_t size;
    } label_keys[FR_LABELS_MAX];       /* [n_carried] */
    uint32_t task_labels, unit_labels; /* bit l: a task looks at label l; it must lie in [0,1] */
    uint32_t n_derived;
    struct fr_derived_label {
        uint32_t label, root; /* root: the carried label at the end of the chain of sources */
    } derived[FR_LABELS_MAX]; /* sources first */
    bool masks;               /* some label is given another */
    struct fr_cursor cursor;
    struct fr_buffer scratch;
    struct fr_staging staging;
    struct fr_slot_names names;
    /* of the innermost sample; of the group or block; of the innermost of `y`, `w`, `p` */
    struct fr_key_set sample_keys, group_keys, member_keys;
    uint64_t serial;     /* the last one given out */
    float weight_max;    /* of a label's weight, and of an id's, either sign; infinite: none */
    uint32_t n_computed; /* slots of buckets, then crosses */
    uint32_t *computed;
    /* dense slots whose default has no image under their transform: nil or absent is malformed */
    uint32_t n_required;
    uint32_t *required;
    float *loose; /* weights of one entry until its ids are known */
    uint32_t n_loose, capacity_loose;
    uint32_t at;          /* the sample whose fields are being read */
    int64_t kafka_ms;     /* the record's timestamp as it came */
    int64_t timestamp_ms; /* the same where it is a time in ms; 0: none */
    int64_t received_ms;
    enum fr_future future; /* refused for its event time, */
    int64_t future_t_ms;   /* which is this */
    enum fr_malformed malformed;
    struct fr_unknown unknown;
    struct fr_known_key { /* of a name in `unknown`: the key as it came */
        char map;         /* the letter of the map it stood in; 0: none */
        enum fr_token_kind kind;
        size_t size;
        uint8_t bytes[FR_NAME_SHOWN_MAX]; /* of a longer one the first */
    } known_slots[FR_UNKNOWN_NAMES_MAX], known_keys[FR_UNKNOWN_NAMES_MAX];
    struct fr_decode_path path;
    struct fr_buffer reason; /* with its NUL */
    char shown[FR_NAME_SHOWN_MAX + 8];
};

/* ---- reasons.c ---- */

/* Writes "path: text" and returns the status. */
enum fr_status fr_decode_fail(struct fr_decoder *d, enum fr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* A key from outside as printable ASCII for a reason; valid until the next call. */
const char *fr_decode_shown(struct fr_decoder *d, const struct fr_token *key);
/* What a token is, in words: "a string". */
const char *fr_decode_kind(const struct fr_token *token);

/* The next token; the cursor's refusal becomes the reason. */
enum fr_status fr_decode_refused(struct fr_decoder *d, enum fr_status status);
static inline enum fr_status fr_decode_next(struct fr_decoder *d, struct fr_token *token)
{
    enum fr_status status = fr_cursor_next(&d->cursor, token);
    return __builtin_expect(status == FR_OK, 1) ? FR_OK : fr_decode_refused(d, status);
}
/* Passes over a value that nobody reads. */
enum fr_status fr_decode_pass(struct fr_decoder *d);

/* A number as f32 (f64 and integers rounded once). FR_E_INVALID: not a number; FR_E_NONFINITE: no
 * finite f32. */
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

/* The same without rounding to f32. */
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

/* FR_FIELD_* of an envelope key; 0: none of them. */
unsigned fr_decode_field(const struct fr_token *key);
/* The next key of an envelope whose form has the fields `allowed`: *field is it, 0 at the end of
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
    uint32_t seen;   /* bit for each */
    uint32_t times;  /* an unknown name counts: 1, or the entries of a block */
    uint64_t serial; /* of its unknown names; 0: none came */
};

/* Passes over the value of a key of no slot, of no label or task, of no field, and counts the key;
 * FR_E_INVALID: the key came before. */
enum fr_status fr_decode_unknown_slot(struct fr_decoder *d, const struct fr_slot_map *map, const struct fr_token *key);
enum fr_status fr_decode_unknown_member(struct fr_decoder *d, struct fr_members *members, const struct fr_token *key);
enum fr_status fr_decode_unknown_key(struct fr_decoder *d, struct fr_slot_map *map, const struct fr_token *key);
/* A served score of a task that has no use for it. */
void fr_decode_unused_score(struct fr_decoder *d, const char *task);
/* The record is good: how many values of it nobody reads. */
void fr_decode_unknown_total(struct fr_decoder *d);

/* ---- forms.c ---- */

/* A sample, group or (not inside an array) block, after the first token of its map. */
enum fr_status fr_decode_map(struct fr_decoder *d);

/* ---- block.c, packed.c ---- */

enum fr_status fr_decode_block(struct fr_decoder *d, uint64_t n);

/* A packed map {b}, after its first token: elements of `width` bytes, *n of them. */
enum fr_status fr_decode_packed_plain(struct fr_decoder *d, uint32_t width, const uint8_t **bytes, uint32_t *n);

/* How many entries a column may have, and has. */
struct fr_column_rows {
    uint32_t limit;
    bool exact; /* no fewer either */
    uint32_t n;
};
enum fr_status fr_decode_check_rows(struct fr_decoder *d, struct fr_column_rows *rows, uint32_t n);
/* A packed column of a slot, after its first token, into the empty part. */
enum fr_status fr_decode_packed_slot(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                     struct fr_column_rows *rows);

/* ---- values.c ---- */

/* The next slot of a map: FR_NO_INDEX when it is complete. Sets path.name. */
enum fr_status fr_decode_slot_key(struct fr_decoder *d, const struct fr_slot_map *map, int32_t *slot);
/* A value as the entry of sample or group `at`; nil: no entry. */
enum fr_status fr_decode_value(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part, uint32_t at,
                               const struct fr_token *first);
/* A whole map slot -> value, after its first token, for the sample or group `at`. */
enum fr_status fr_decode_slots(struct fr_decoder *d, const struct fr_slot_map *map, uint32_t at);
/* Slots without a usable default have a value in each sample of the groups from from_group on. */
enum fr_status fr_decode_check_required(struct fr_decoder *d, uint32_t from_group);
/* What the shared values of those groups come to when copied to their samples is within
 * FR_EXPANDED_MAX. */
enum fr_status fr_decode_check_expanded(struct fr_decoder *d, uint32_t from_group);
/* Dense numbers that came packed, f32, for the first n entries of the part: finite, within bounds,
 * transformed. */
enum fr_status fr_decode_dense_packed(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                      const uint8_t *bytes, uint32_t n);
/* What an absent dense slot means, and how large a number may be. */
void fr_decode_dense_init(struct fr_decoder *d);

/* ---- weights.c ---- */

/* Which slots a mean is taken of. */
void fr_decode_weights_init(struct fr_decoder *d);
/* Refuses a weight of an id beyond ingest.weight_max. */
enum fr_status fr_decode_id_weight(struct fr_decoder *d, float weight) __attribute__((cold));
/* A mean of the entry's ids is none of weights that nearly cancel. */
enum fr_status fr_decode_check_mean(struct fr_decoder *d, uint32_t slot, const struct fr_stage_part *part,
                                    uint32_t entry);

/* ---- compute_ids.c ---- */

void fr_decode_computed_init(struct fr_decoder *d);
/* Slots that are computed from others, for the whole staged record. */
enum fr_status fr_decode_computed(struct fr_decoder *d);

/* fields.c reads the value behind the key of that name, for sample d->at; `first` is its first
 * token. */

enum fr_status fr_decode_y(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_w(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_u(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_t(struct fr_decoder *d, const struct fr_token *first, int64_t *t_ms);
enum fr_status fr_decode_s(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_p(struct fr_decoder *d, const struct fr_token *first);
/* The next key of the map: *found is its number, or the count when the map is complete. */
enum fr_status fr_decode_member(struct fr_decoder *d, struct fr_members *members, uint32_t *found);
/* One number of a label, weight, event time; also what packed columns are checked by. */
enum fr_status fr_decode_label(struct fr_decoder *d, uint32_t label, const struct fr_token *token);
enum fr_status fr_decode_event_time(struct fr_decoder *d, int64_t t_ms);
/* A Kafka timestamp that is a time in ms by the rule of `t`, else 0. */
int64_t fr_decode_timestamp(int64_t timestamp_ms);
/* Refuses a sample that has no event time. */
enum fr_status fr_decode_no_time(struct fr_decoder *d) __attribute__((cold));
/* It does not lie too far beyond the clock of this host. */
enum fr_status fr_decode_check_clock(struct fr_decoder *d, int64_t t_ms);

/* ---- labels.c ---- */

void fr_decode_labels_init(struct fr_decoder *d);
/* Samples from `from` on are read: derived labels, masks, roles; event time where they have none of
 * their own (t_ms: the group's, 0: none). */
enum fr_status fr_decode_finish(struct fr_decoder *d, uint32_t from, int64_t t_ms);

#endif
