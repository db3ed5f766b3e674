/* The map `f` of a sample: slot -> ids or numbers (DESIGN section 6), into the staging columns.
 *
 * Rules: a slot occurs once, whether by name or by index; nil or absent is "missing" (sparse) or the default (dense).
 * Ids are taken in the order given; over max_ids or max_len the last stay. Numbers are rounded to f32 first and
 * transformed then; log1p of x <= -1 has no value and makes the record malformed. Values of unknown slots are checked
 * as syntax only. */
#include "parse.h"

#include "base/hash.h"
#include "base/math.h"

/* The key of an id token; false when the token is no id. */
static bool token_key(const struct fr_token *token, const struct fr_conf_slot *slot, uint64_t *key)
{
    switch (token->kind) {
    case FR_TOKEN_UINT:
        *key = fr_fmix64(token->u ^ slot->seed);
        return true;
    case FR_TOKEN_INT:
        *key = fr_fmix64((uint64_t)token->i ^ slot->seed);
        return true;
    case FR_TOKEN_STRING:
        *key = fr_key_string(token->bytes, token->size, slot->seed, slot->id_raw);
        return true;
    case FR_TOKEN_FLOAT: {
        double v = token->f;
        if (!(v >= -0x1p63 && v < 0x1p64)) /* NaN too */
            return false;
        uint64_t integer = v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
        if ((v < 0 ? (double)(int64_t)integer : (double)integer) != v)
            return false;
        *key = fr_fmix64(integer ^ slot->seed);
        return true;
    }
    default:
        return false;
    }
}

static enum fr_status not_an_id(struct fr_decoder *d, const struct fr_token *token)
{
    if (token->kind == FR_TOKEN_FLOAT)
        return fr_decode_fail(d, FR_E_INVALID, "%.17g is not an integer, so it is no id", token->f);
    return fr_decode_fail(d, FR_E_INVALID, "%s is no id", fr_decode_kind(token));
}

/* The elements of an array of ids. */
static enum fr_status parse_ids(struct fr_decoder *d, const struct fr_conf_slot *slot, struct fr_stage_column *column)
{
    struct fr_token token;
    enum fr_status status;
    for (int64_t n = 0;; n++) {
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END)
            return FR_OK;
        uint64_t key;
        if (!token_key(&token, slot, &key)) {
            d->path.index = n;
            return not_an_id(d, &token);
        }
        fr_stage_key(column, key);
    }
}

/* The elements of an array of weights, into d->loose. */
static enum fr_status parse_weights(struct fr_decoder *d)
{
    struct fr_token token;
    enum fr_status status;
    d->n_loose = 0;
    for (;;) {
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END)
            return FR_OK;
        if (d->n_loose == d->capacity_loose) {
            d->capacity_loose = fr_stage_capacity(d->capacity_loose, d->n_loose + 1);
            d->loose = fr_realloc(d->loose, d->capacity_loose, sizeof(*d->loose));
        }
        status = fr_decode_f32(&token, &d->loose[d->n_loose]);
        if (status != FR_OK) {
            d->path.index = d->n_loose;
            if (status == FR_E_NONFINITE)
                return fr_decode_fail(d, FR_E_INVALID, "weight of an id is not finite");
            return fr_decode_fail(d, FR_E_INVALID, "%s is no weight", fr_decode_kind(&token));
        }
        d->n_loose++;
    }
}

/* {"i": ids, "w": weights}, in either order. */
static enum fr_status parse_weighted(struct fr_decoder *d, const struct fr_conf_slot *slot,
                                     struct fr_stage_column *column)
{
    struct fr_token key, token;
    enum fr_status status;
    bool has_ids = false, has_weights = false;
    for (;;) {
        if ((status = fr_decode_next(d, &key)) != FR_OK)
            return status;
        if (key.kind == FR_TOKEN_END)
            break;
        bool ids = key.kind == FR_TOKEN_STRING && key.size == 1 && key.bytes[0] == 'i';
        bool weights = key.kind == FR_TOKEN_STRING && key.size == 1 && key.bytes[0] == 'w';
        if (!ids && !weights) {
            char shown[FR_NAME_SHOWN_MAX + 8];
            return fr_decode_fail(d, FR_E_INVALID, "key %s in a map of ids and weights; expected i and w",
                                  fr_decode_shown(&key, shown));
        }
        bool *has = ids ? &has_ids : &has_weights;
        if (*has)
            return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", ids ? "i" : "w");
        *has = true;
        d->path.part = ids ? "i" : "w";
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind != FR_TOKEN_ARRAY)
            return fr_decode_fail(d, FR_E_INVALID, "%s where an array was expected", fr_decode_kind(&token));
        status = ids ? parse_ids(d, slot, column) : parse_weights(d);
        if (status != FR_OK)
            return status;
        d->path.part = NULL;
    }
    if (!has_ids || !has_weights)
        return fr_decode_fail(d, FR_E_INVALID, "%s is missing beside %s", has_ids ? "w" : "i", has_ids ? "i" : "w");
    uint32_t n_ids = column->n_keys - column->begin[column->n_entries];
    if (n_ids != d->n_loose)
        return fr_decode_fail(d, FR_E_INVALID, "%u ids but %u weights", n_ids, d->n_loose);
    return FR_OK;
}

static enum fr_status parse_sparse(struct fr_decoder *d, uint32_t s, const struct fr_token *first)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    struct fr_stage_column *column = &d->staging.columns[s];
    if (first->kind == FR_TOKEN_NIL)
        return FR_OK;
    fr_stage_open(column, d->staging.n_samples - 1);
    const float *weights = NULL;
    if (first->kind == FR_TOKEN_ARRAY) {
        enum fr_status status = parse_ids(d, slot, column);
        if (status != FR_OK)
            return status;
    } else if (first->kind == FR_TOKEN_MAP) {
        enum fr_status status = parse_weighted(d, slot, column);
        if (status != FR_OK)
            return status;
        weights = d->loose;
    } else {
        uint64_t key;
        if (!token_key(first, slot, &key))
            return not_an_id(d, first);
        fr_stage_key(column, key);
    }
    uint32_t cut = fr_stage_close(column, weights);
    if (slot->kind == FR_SLOT_SPARSE) /* a history longer than max_len is normal, not excess */
        d->staging.excess_ids += cut;
    return FR_OK;
}

/* False: x has no image. */
static bool transform(const struct fr_conf_slot *slot, float x, float *out)
{
    if (slot->transform == FR_TRANSFORM_LOG1P) {
        if (!(x > -1.0f))
            return false;
        x = fr_log1pf(x);
    }
    *out = x;
    return __builtin_isfinite(x);
}

static enum fr_status dense_number(struct fr_decoder *d, const struct fr_conf_slot *slot, const struct fr_token *token,
                                   float *out)
{
    float x;
    enum fr_status status = fr_decode_f32(token, &x);
    if (__builtin_expect(status != FR_OK, 0)) {
        if (status == FR_E_NONFINITE)
            return fr_decode_fail(d, FR_E_INVALID, "dense value is not finite");
        return fr_decode_fail(d, FR_E_INVALID, "%s where a number was expected", fr_decode_kind(token));
    }
    if (!transform(slot, x, out))
        return fr_decode_fail(d, FR_E_INVALID, "log1p needs a value above -1, not %.9g", (double)x);
    return FR_OK;
}

static enum fr_status parse_dense(struct fr_decoder *d, uint32_t s, const struct fr_token *first)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    struct fr_stage_column *column = &d->staging.columns[s];
    enum fr_status status;
    if (first->kind == FR_TOKEN_NIL) {
        if (!__builtin_isfinite(column->default_value))
            return fr_decode_fail(d, FR_E_INVALID, "nil, and the slot's default has no log1p");
        return FR_OK;
    }
    fr_stage_open(column, d->staging.n_samples - 1);
    float *out = fr_stage_dense(column);
    if (first->kind != FR_TOKEN_ARRAY) {
        if ((status = dense_number(d, slot, first, out)) != FR_OK)
            return status;
        if (slot->dim != 1)
            return fr_decode_fail(d, FR_E_INVALID, "1 number where %u were expected", slot->dim);
        column->n_entries++;
        return FR_OK;
    }
    struct fr_token token;
    for (uint32_t n = 0;; n++) {
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END) {
            if (n != slot->dim)
                return fr_decode_fail(d, FR_E_INVALID, "%u numbers where %u were expected", n, slot->dim);
            column->n_entries++;
            return FR_OK;
        }
        if (n == slot->dim)
            return fr_decode_fail(d, FR_E_INVALID, "more than the %u numbers expected", slot->dim);
        d->path.index = n;
        if ((status = dense_number(d, slot, &token, out + n)) != FR_OK)
            return status;
        d->path.index = -1;
    }
}

/* A key that is no slot of the config: counted and skipped, or a fault. */
static enum fr_status unknown_slot(struct fr_decoder *d, const struct fr_token *key)
{
    char shown[FR_NAME_SHOWN_MAX + 8];
    if (key->kind == FR_TOKEN_UINT || key->kind == FR_TOKEN_INT)
        return fr_decode_fail(d, FR_E_INVALID, "integer key %s is no slot's declared index",
                              fr_decode_shown(key, shown));
    if (key->kind != FR_TOKEN_STRING)
        return fr_decode_fail(d, FR_E_INVALID, "%s as a slot key", fr_decode_kind(key));
    if (d->conf->ingest.strict)
        return fr_decode_fail(d, FR_E_INVALID, "unknown slot %s (ingest.strict)", fr_decode_shown(key, shown));
    if (!fr_key_set_add(&d->keys, d->serial, 1, key))
        return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(key, shown));
    d->staging.unknown_slots++;
    struct fr_token value;
    enum fr_status status = fr_decode_next(d, &value);
    return status != FR_OK ? status : fr_decode_skip(d, &value);
}

/* Slots that the sample must name because their default is none. */
static enum fr_status check_required(struct fr_decoder *d)
{
    for (uint32_t i = 0; i < d->n_required; i++) {
        if (d->staging.columns[d->required[i]].seen == d->serial)
            continue;
        d->path.name = d->conf->slots[d->required[i]].name;
        return fr_decode_fail(d, FR_E_INVALID, "absent, and the slot's default has no log1p");
    }
    return FR_OK;
}

enum fr_status fr_decode_slots(struct fr_decoder *d)
{
    struct fr_token key, value;
    enum fr_status status;
    int32_t slot = FR_NO_INDEX;
    for (;;) {
        if ((status = fr_decode_next(d, &key)) != FR_OK)
            return status;
        if (key.kind == FR_TOKEN_END)
            break;
        int32_t found = FR_NO_INDEX;
        if (key.kind == FR_TOKEN_STRING || key.kind == FR_TOKEN_UINT)
            found = fr_slot_names_find(&d->names, &key, slot);
        if (found == FR_NO_INDEX) {
            if ((status = unknown_slot(d, &key)) != FR_OK)
                return status;
            continue;
        }
        slot = found;
        struct fr_stage_column *column = &d->staging.columns[slot];
        d->path.name = d->conf->slots[slot].name;
        if (column->seen == d->serial)
            return fr_decode_fail(d, FR_E_INVALID, "duplicate slot");
        column->seen = d->serial;
        if ((status = fr_decode_next(d, &value)) != FR_OK)
            return status;
        status = column->kind == FR_SLOT_DENSE ? parse_dense(d, (uint32_t)slot, &value)
                                               : parse_sparse(d, (uint32_t)slot, &value);
        if (status != FR_OK)
            return status;
        d->path.name = NULL;
    }
    return check_required(d);
}

void fr_decode_defaults(struct fr_decoder *d)
{
    d->required = fr_alloc((size_t)d->conf->n_slots + 1, sizeof(*d->required));
    for (uint32_t s = 0; s < d->conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &d->conf->slots[s];
        if (slot->kind != FR_SLOT_DENSE)
            continue;
        if (!transform(slot, slot->default_value, &d->staging.columns[s].default_value)) {
            d->staging.columns[s].default_value = __builtin_nanf("");
            d->required[d->n_required++] = s;
        }
    }
}
