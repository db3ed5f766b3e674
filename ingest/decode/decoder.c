/* A record: its form, the envelope of each sample, and why it was refused (DESIGN section 6, forms 1 and 3).
 *
 * The record is read once, front to back, into the staging; the first fault ends it and leaves nothing behind. Groups
 * and blocks are not in this version. Which form a refused map meant to be is found by a second look at its keys, so
 * that accepted records pay nothing for it and a block is called a block even where one of its columns was stumbled
 * over first. Invariants: staging.n_samples is the whole record's after FR_OK and 0 after a fault. No allocation once
 * the arrays have their size. Does not: count decoded and malformed records, keep positions, talk to Kafka (ingest
 * does). */
#include "parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    RECORD_MAX_DEFAULT = 1 << 20,
    RECORD_MAX_CEILING = INT32_MAX, /* staging counts are 32 bits wide; Kafka's own sizes are int32 too */
};

/* Keys of an envelope. The first eight belong to a sample; the rest name other forms. */
enum {
    FIELD_F = 1 << 0,
    FIELD_Y = 1 << 1,
    FIELD_T = 1 << 2,
    FIELD_W = 1 << 3,
    FIELD_U = 1 << 4,
    FIELD_S = 1 << 5,
    FIELD_P = 1 << 6,
    FIELD_ID = 1 << 7,
    FIELD_GROUP = 1 << 8, /* items */
    FIELD_BLOCK = 1 << 9, /* n, cols, g */
    FIELD_SHARED = 1 << 10,
};

static struct fr_decoder *decoder_new(const struct fr_conf *conf, enum fr_format format, bool scoring)
{
    struct fr_decoder *d = fr_alloc(1, sizeof(*d));
    d->conf = conf;
    d->format = format;
    d->scoring = scoring;
    uint64_t record_max = conf->ingest.record_max ? conf->ingest.record_max : RECORD_MAX_DEFAULT;
    d->record_max = record_max < RECORD_MAX_CEILING ? (size_t)record_max : RECORD_MAX_CEILING;
    FR_CHECK(conf->n_labels <= FR_LABELS_MAX && conf->n_tasks <= FR_TASKS_MAX);
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        FR_CHECK(conf->tasks[i].label >= 0 && (uint32_t)conf->tasks[i].label < conf->n_labels);
        d->task_labels |= 1u << conf->tasks[i].label;
    }
    fr_staging_init(&d->staging, conf);
    fr_slot_names_init(&d->names, conf);
    fr_decode_defaults(d);
    return d;
}

struct fr_decoder *fr_decoder_new(const struct fr_conf *conf)
{
    return decoder_new(conf, (enum fr_format)conf->ingest.format, false);
}

struct fr_decoder *fr_decoder_new_scoring(const struct fr_conf *conf, enum fr_format format)
{
    return decoder_new(conf, format, true);
}

void fr_decoder_free(struct fr_decoder *d)
{
    if (!d)
        return;
    fr_staging_release(&d->staging);
    fr_slot_names_release(&d->names);
    fr_key_set_release(&d->keys);
    fr_buffer_release(&d->scratch);
    fr_buffer_release(&d->reason);
    free(d->required);
    free(d->loose);
    free(d);
}

/* ---- reasons ---- */

enum fr_status fr_decode_fail(struct fr_decoder *d, enum fr_status status, const char *format, ...)
{
    const struct fr_decode_path *path = &d->path;
    struct fr_buffer *text = &d->reason;
    fr_buffer_clear(text);
    fr_buffer_printf(text, "$");
    if (path->item >= 0)
        fr_buffer_printf(text, "[%lld]", (long long)path->item);
    if (path->field)
        fr_buffer_printf(text, ".%s", path->field);
    if (path->name)
        fr_buffer_printf(text, ".%s", path->name);
    if (path->part)
        fr_buffer_printf(text, ".%s", path->part);
    if (path->index >= 0)
        fr_buffer_printf(text, "[%lld]", (long long)path->index);
    fr_buffer_printf(text, ": ");
    char said[FR_REASON_MAX]; /* cut, never overrun */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    fr_buffer_append(text, said, strlen(said) + 1);
    return status;
}

const char *fr_decode_shown(const struct fr_token *key, char shown[FR_NAME_SHOWN_MAX + 8])
{
    if (key->kind == FR_TOKEN_UINT || key->kind == FR_TOKEN_INT) {
        if (key->kind == FR_TOKEN_UINT)
            snprintf(shown, FR_NAME_SHOWN_MAX + 8, "%llu", (unsigned long long)key->u);
        else
            snprintf(shown, FR_NAME_SHOWN_MAX + 8, "%lld", (long long)key->i);
        return shown;
    }
    if (key->kind != FR_TOKEN_STRING)
        return fr_decode_kind(key);
    char *out = shown;
    *out++ = '"';
    for (uint32_t i = 0; i < key->size && i < FR_NAME_SHOWN_MAX; i++)
        *out++ = key->bytes[i] >= 0x20 && key->bytes[i] < 0x7f ? (char)key->bytes[i] : '?';
    *out++ = '"';
    memcpy(out, key->size > FR_NAME_SHOWN_MAX ? "..." : "", key->size > FR_NAME_SHOWN_MAX ? 4 : 1);
    return shown;
}

const char *fr_decode_kind(const struct fr_token *token)
{
    switch (token->kind) {
    case FR_TOKEN_NIL:
        return "nil";
    case FR_TOKEN_BOOL:
        return "a boolean";
    case FR_TOKEN_INT:
    case FR_TOKEN_UINT:
        return "an integer";
    case FR_TOKEN_FLOAT:
        return "a float";
    case FR_TOKEN_STRING:
        return "a string";
    case FR_TOKEN_BIN:
        return "a bin";
    case FR_TOKEN_EXT:
        return "an extension type";
    case FR_TOKEN_ARRAY:
        return "an array";
    case FR_TOKEN_MAP:
        return "a map";
    case FR_TOKEN_END:
        break;
    }
    return "nothing";
}

enum fr_status fr_decode_refused(struct fr_decoder *d, enum fr_status status)
{
    FR_CHECK(status < 0); /* FR_EOF cannot come inside a container */
    return fr_decode_fail(d, status, "%s at byte %zu", d->cursor.problem, fr_cursor_offset(&d->cursor));
}

enum fr_status fr_decode_skip(struct fr_decoder *d, const struct fr_token *first)
{
    enum fr_status status = fr_cursor_skip(&d->cursor, first);
    return status == FR_OK ? FR_OK : fr_decode_refused(d, status);
}

/* ---- the envelope ---- */

static unsigned field_of(const struct fr_token *key)
{
    if (key->kind != FR_TOKEN_STRING)
        return 0;
    const uint8_t *b = key->bytes;
    switch (key->size) {
    case 1:
        switch (b[0]) {
        case 'f':
            return FIELD_F;
        case 'y':
            return FIELD_Y;
        case 't':
            return FIELD_T;
        case 'w':
            return FIELD_W;
        case 'u':
            return FIELD_U;
        case 's':
            return FIELD_S;
        case 'p':
            return FIELD_P;
        case 'n':
        case 'g':
            return FIELD_BLOCK;
        default:
            return 0;
        }
    case 2:
        return memcmp(b, "id", 2) == 0 ? FIELD_ID : 0;
    case 4:
        return memcmp(b, "cols", 4) == 0 ? FIELD_BLOCK : 0;
    case 5:
        return memcmp(b, "items", 5) == 0 ? FIELD_GROUP : 0;
    case 6:
        return memcmp(b, "shared", 6) == 0 ? FIELD_SHARED : 0;
    default:
        return 0;
    }
}

static enum fr_status parse_field(struct fr_decoder *d, unsigned field, const struct fr_token *first)
{
    switch (field) {
    case FIELD_F:
        d->path.field = "f";
        if (first->kind != FR_TOKEN_MAP)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a map slot -> value was expected", fr_decode_kind(first));
        return fr_decode_slots(d);
    case FIELD_Y:
        d->path.field = "y";
        return fr_decode_y(d, first);
    case FIELD_T:
        d->path.field = "t";
        return fr_decode_t(d, first);
    case FIELD_W:
        d->path.field = "w";
        return fr_decode_w(d, first);
    case FIELD_U:
        d->path.field = "u";
        return fr_decode_u(d, first);
    case FIELD_S:
        d->path.field = "s";
        return fr_decode_s(d, first);
    case FIELD_P:
        d->path.field = "p";
        return fr_decode_p(d, first);
    default: /* id is opaque: syntax only */
        d->path.field = "id";
        return fr_decode_skip(d, first);
    }
}

/* A key that is no field of a sample: another form's, an extra, or unknown. */
static enum fr_status other_key(struct fr_decoder *d, unsigned field, const struct fr_token *key)
{
    char shown[FR_NAME_SHOWN_MAX + 8];
    if (key->kind != FR_TOKEN_STRING)
        return fr_decode_fail(d, FR_E_INVALID, "%s as an envelope key", fr_decode_kind(key));
    if (field != 0) /* explain_form says more */
        return fr_decode_fail(d, FR_E_INVALID, "key %s of another form", fr_decode_shown(key, shown));
    if (key->size < 2 || memcmp(key->bytes, "x_", 2) != 0)
        return fr_decode_fail(d, FR_E_INVALID, "unknown key %s", fr_decode_shown(key, shown));
    if (!fr_key_set_add(&d->keys, d->serial, 0, key))
        return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(key, shown));
    d->staging.unknown_extra++;
    struct fr_token value;
    enum fr_status status = fr_decode_next(d, &value);
    return status == FR_OK ? fr_decode_skip(d, &value) : status;
}

static void start_sample(struct fr_decoder *d)
{
    struct fr_staging *staging = &d->staging;
    fr_staging_add_sample(staging);
    d->serial++;
    d->t_ms = 0;
    d->use = FR_USE_TRAIN | FR_USE_METRICS;
    d->labels_present = 0;
    size_t at = (size_t)(staging->n_samples - 1) * staging->n_labels;
    for (uint32_t l = 0; l < staging->n_labels; l++) {
        staging->labels[at + l] = __builtin_nanf("");
        staging->weights[at + l] = 1.0f;
    }
}

/* What must be there is there; then the sample's role follows from its use and labels. */
static enum fr_status finish_sample(struct fr_decoder *d, unsigned fields)
{
    if (!(fields & FIELD_F))
        return fr_decode_fail(d, FR_E_INVALID, "f is missing");
    if (!(fields & FIELD_Y) && !d->scoring)
        return fr_decode_fail(d, FR_E_INVALID, "y is missing");
    if (!(fields & FIELD_T)) {
        if (d->timestamp_ms <= 0 && !d->scoring)
            return fr_decode_fail(d, FR_E_INVALID, "t is missing and the record has no Kafka timestamp");
        d->t_ms = d->timestamp_ms > 0 ? d->timestamp_ms : 0;
    }
    uint32_t at = d->staging.n_samples - 1;
    d->staging.t_ms[at] = d->t_ms;
    d->staging.use[at] = (uint8_t)d->use;
    enum fr_role role = d->use & FR_USE_TRAIN ? FR_ROLE_TRAIN : FR_ROLE_METRICS_ONLY;
    d->staging.role[at] = (uint8_t)(d->labels_present & d->task_labels ? role : FR_ROLE_MASKED);
    return FR_OK;
}

/* After the first token of a sample's map. */
static enum fr_status parse_sample(struct fr_decoder *d)
{
    struct fr_token key, value;
    enum fr_status status;
    unsigned fields = 0;
    start_sample(d);
    for (;;) {
        if ((status = fr_decode_next(d, &key)) != FR_OK)
            return status;
        if (key.kind == FR_TOKEN_END)
            return finish_sample(d, fields);
        unsigned field = field_of(&key);
        if (field == 0 || field >= FIELD_GROUP) {
            if ((status = other_key(d, field, &key)) != FR_OK)
                return status;
            continue;
        }
        if (fields & field) {
            char shown[FR_NAME_SHOWN_MAX + 8];
            return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(&key, shown));
        }
        fields |= field;
        if ((status = fr_decode_next(d, &value)) != FR_OK)
            return status;
        if ((status = parse_field(d, field, &value)) != FR_OK)
            return status;
        d->path.field = NULL;
    }
}

/* ---- the record ---- */

static enum fr_status parse_record(struct fr_decoder *d)
{
    struct fr_token token;
    enum fr_status status = fr_decode_next(d, &token);
    if (status != FR_OK)
        return status;
    if (token.kind == FR_TOKEN_MAP) {
        if ((status = parse_sample(d)) != FR_OK)
            return status;
    } else if (token.kind == FR_TOKEN_ARRAY) {
        for (d->path.item = 0;; d->path.item++) {
            if ((status = fr_decode_next(d, &token)) != FR_OK)
                return status;
            if (token.kind == FR_TOKEN_END)
                break;
            if (token.kind == FR_TOKEN_ARRAY)
                return fr_decode_fail(d, FR_E_INVALID, "arrays of samples do not nest");
            if (token.kind != FR_TOKEN_MAP)
                return fr_decode_fail(d, FR_E_INVALID, "%s where a sample was expected", fr_decode_kind(&token));
            if ((status = parse_sample(d)) != FR_OK)
                return status;
        }
        d->path.item = -1;
    } else {
        return fr_decode_fail(d, FR_E_INVALID, "%s; a record is a map or an array", fr_decode_kind(&token));
    }
    status = fr_cursor_next(&d->cursor, &token);
    if (status == FR_EOF)
        return FR_OK;
    FR_CHECK(status < 0); /* the cursor yields one value */
    return fr_decode_refused(d, status);
}

/* The fields of the map at `item` (-1: the record itself); 0 when it cannot be read to its end. */
static unsigned fields_of_map(struct fr_decoder *d, const struct fr_record *record, int64_t item)
{
    struct fr_token token;
    struct fr_cursor *cursor = &d->cursor;
    fr_cursor_init(cursor, d->format, record->value, record->size, &d->scratch);
    if (fr_cursor_next(cursor, &token) != FR_OK)
        return 0;
    for (int64_t i = -1; i < item; i++) {
        if (i >= 0 && fr_cursor_skip(cursor, &token) != FR_OK)
            return 0;
        if (fr_cursor_next(cursor, &token) != FR_OK)
            return 0;
    }
    if (token.kind != FR_TOKEN_MAP)
        return 0;
    unsigned fields = 0;
    for (;;) {
        if (fr_cursor_next(cursor, &token) != FR_OK)
            return 0;
        if (token.kind == FR_TOKEN_END)
            return fields;
        fields |= field_of(&token);
        if (token.kind == FR_TOKEN_ARRAY || token.kind == FR_TOKEN_MAP || fr_cursor_next(cursor, &token) != FR_OK ||
            fr_cursor_skip(cursor, &token) != FR_OK)
            return 0;
    }
}

/* A refused map that has keys of a group or a block was meant as one: that is the better reason. */
static void explain_form(struct fr_decoder *d, const struct fr_record *record)
{
    unsigned fields = fields_of_map(d, record, d->path.item);
    unsigned others = fields & (FIELD_GROUP | FIELD_BLOCK | FIELD_SHARED);
    if (others == 0)
        return;
    d->path = (struct fr_decode_path){.item = d->path.item, .index = -1};
    const char *text;
    if ((fields & FIELD_F) || (others & (FIELD_GROUP | FIELD_BLOCK)) == (FIELD_GROUP | FIELD_BLOCK))
        text = "keys of two forms";
    else if ((others & FIELD_BLOCK) && d->path.item >= 0)
        text = "an array holds samples or groups, not blocks; blocks are not in this version";
    else if (others & FIELD_BLOCK)
        text = "blocks are not in this version";
    else
        text = "groups are not in this version";
    (void)fr_decode_fail(d, FR_E_INVALID, "%s", text);
}

enum fr_status fr_decode_record(struct fr_decoder *d, const struct fr_record *record, uint32_t *n_samples,
                                const char **reason)
{
    fr_staging_clear(&d->staging);
    fr_buffer_clear(&d->scratch);
    d->timestamp_ms = record->timestamp_ms;
    d->from_future = false;
    d->path = (struct fr_decode_path){.item = -1, .index = -1};
    enum fr_status status;
    if (record->size == 0) {
        status = fr_decode_fail(d, FR_E_INVALID, "the record is empty");
    } else if (record->size > d->record_max) {
        status = fr_decode_fail(d, FR_E_LIMIT, "the record has %zu bytes, more than ingest.record_max (%zu)",
                                record->size, d->record_max);
    } else {
        fr_cursor_init(&d->cursor, d->format, record->value, record->size, &d->scratch);
        status = parse_record(d);
        if (status != FR_OK)
            explain_form(d, record);
    }
    if (status != FR_OK) {
        fr_staging_clear(&d->staging);
        *reason = (const char *)d->reason.data;
        return status;
    }
    *n_samples = d->staging.n_samples;
    return FR_OK;
}

void fr_decode_append(struct fr_decoder *d, uint32_t from, uint32_t count, struct fr_batch *batch)
{
    fr_staging_append(&d->staging, from, count, batch);
}

bool fr_decoder_refused_future(const struct fr_decoder *d)
{
    return d->from_future;
}
