/* What the parts of the decoder share: its state and how they say no.
 *
 * decoder.c: record, forms, envelope of a sample. values.c: the map `f`. fields.c: y, w, u, t, s, p. Every part reads
 * from the one cursor and writes into the staging; the first fault ends the record. Owner: the thread that decodes. */
#ifndef FR_DECODE_PARSE_H
#define FR_DECODE_PARSE_H

#include "base/buffer.h"
#include "decode/decoder.h"
#include "names.h"
#include "staging.h"

enum {
    FR_REASON_MAX = 384,    /* of the text behind the path */
    FR_NAME_SHOWN_MAX = 64, /* bytes of a key from outside that a reason quotes */
};

/* Where the cursor stands, for reasons: $[item].field.name.part[index]. */
struct fr_decode_path {
    int64_t item;      /* -1: the record is one sample */
    const char *field; /* static; NULL: none */
    const char *name;  /* slot, label or task name of the config; NULL: none */
    const char *part;  /* "i" or "w"; NULL: none */
    int64_t index;     /* -1: none */
};

struct fr_decoder {
    const struct fr_conf *conf;
    enum fr_format format;
    bool scoring;
    size_t record_max;
    uint32_t task_labels; /* bit l: a task uses label l */
    struct fr_cursor cursor;
    struct fr_buffer scratch;
    struct fr_staging staging;
    struct fr_slot_names names;
    struct fr_key_set keys;
    uint64_t serial;     /* of the sample being parsed, never repeats */
    uint32_t n_required; /* dense slots whose default has no image under their transform: nil or absent is malformed */
    uint32_t *required;
    float *loose; /* weights of one entry until its ids are known */
    uint32_t n_loose, capacity_loose;
    /* Of the sample being parsed. */
    int64_t timestamp_ms;
    int64_t t_ms;
    bool from_future; /* refused for its event time */
    uint32_t use;
    uint32_t labels_present;
    struct fr_decode_path path;
    struct fr_buffer reason; /* with its NUL */
};

/* Writes "path: text" and returns the status. */
enum fr_status fr_decode_fail(struct fr_decoder *d, enum fr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* A key from outside as printable ASCII for a reason. */
const char *fr_decode_shown(const struct fr_token *key, char shown[FR_NAME_SHOWN_MAX + 8]);
/* What a token is, in words: "a string". */
const char *fr_decode_kind(const struct fr_token *token);

/* The next token; the cursor's refusal becomes the reason. */
enum fr_status fr_decode_refused(struct fr_decoder *d, enum fr_status status);
static inline enum fr_status fr_decode_next(struct fr_decoder *d, struct fr_token *token)
{
    enum fr_status status = fr_cursor_next(&d->cursor, token);
    return __builtin_expect(status == FR_OK, 1) ? FR_OK : fr_decode_refused(d, status);
}
enum fr_status fr_decode_skip(struct fr_decoder *d, const struct fr_token *first);

/* A number as f32 (f64 and integers rounded once). FR_E_INVALID: not a number; FR_E_NONFINITE: no finite f32. */
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

/* values.c: everything after the key `f`; and what an absent slot means. */
enum fr_status fr_decode_slots(struct fr_decoder *d);
void fr_decode_defaults(struct fr_decoder *d);

/* fields.c: the value behind the key of that name; `first` is its first token. */
enum fr_status fr_decode_y(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_w(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_u(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_t(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_s(struct fr_decoder *d, const struct fr_token *first);
enum fr_status fr_decode_p(struct fr_decoder *d, const struct fr_token *first);

#endif
