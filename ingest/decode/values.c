/* Reads maps from slots to ids or numbers (docs/formats/samples.md) into the staging columns:
 * `f` of a sample, `shared` of a group.
 *
 * Rules: a slot occurs once, whether by name or by index, and not in a group's shared part and
 * its items both; nil or absent is "missing" (sparse) or the default (dense). Ids keep their
 * order; if there are more than max_ids or max_len, the last ones are kept. Numbers are rounded
 * to f32 and then transformed (times are not rounded); a number that a transform has no image
 * for, or whose image is beyond the bound of what the network reads, makes the record malformed.
 * Values of unknown slots are passed over (unknown.c). */
#include "parse.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "numerics/transform_values.h"

/* Limit of the numbers that standardize reads: their squares, summed over 10^7 samples, are far
 * below the greatest double, and each square fits in f32. */
static const float STANDARDIZE_MAX = 1e15f;
static const float DENSE_MAX_DEFAULT = 1e5f;

/* Returns the least number that is no exact integer id: from it on, a float of the width in the
 * record may stand for more than one integer. For example, 2^53 may be the rounded 2^53 + 1. */
static inline double exact_below(const struct fr_token *token)
{
    return token->size == sizeof(float) ? 0x1p24 : 0x1p53;
}

/* Gets the key of an id token; false: the token is no id. */
static inline bool token_key(const struct fr_token *token, const struct fr_conf_slot *slot, uint64_t *key)
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
        if (!(__builtin_fabs(v) < exact_below(token))) /* also false for NaN */
            return false;
        int64_t integer = (int64_t)v;
        if ((double)integer != v)
            return false;
        *key = fr_fmix64((uint64_t)integer ^ slot->seed);
        return true;
    }
    default:
        return false;
    }
}

static enum fr_status not_an_id(struct fr_decoder *d, const struct fr_token *token)
{
    if (token->kind == FR_TOKEN_FLOAT && token->count > 0)
        return fr_decode_fail(d, FR_E_INVALID,
                              "%.*s%s is out of range: an integer id lies in -2^63 .. 2^64-1; send others as strings",
                              (int)(token->count < FR_NAME_SHOWN_MAX ? token->count : FR_NAME_SHOWN_MAX),
                              (const char *)d->cursor.at - token->count, token->count > FR_NAME_SHOWN_MAX ? "..." : "");
    if (token->kind == FR_TOKEN_FLOAT && !(__builtin_fabs(token->f) < exact_below(token)))
        return fr_decode_fail(d, FR_E_INVALID,
                              "%.17g is a float of 2^%d or more, which stands for several integers: send ids as "
                              "integers or strings",
                              token->f, token->size == sizeof(float) ? 24 : 53);
    if (token->kind == FR_TOKEN_FLOAT)
        return fr_decode_fail(d, FR_E_INVALID, "%.17g is not an integer, so it is no id", token->f);
    return fr_decode_fail(d, FR_E_INVALID, "%s is no id%s", fr_decode_kind(token),
                          token->kind == FR_TOKEN_BOOL ? ": send 0 or 1" : "");
}

/* Reads the elements of an array of ids. */
static enum fr_status parse_ids(struct fr_decoder *d, const struct fr_conf_slot *slot, struct fr_stage_part *part)
{
    struct fr_token token;
    enum fr_status status;
    for (int64_t n = 0;; n++) {
        uint64_t key;
        if (fr_cursor_take_unsigned(&d->cursor, &key)) {
            fr_staging_key(part, fr_fmix64(key ^ slot->seed));
            continue;
        }
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END)
            return FR_OK;
        if (!token_key(&token, slot, &key)) {
            d->path.index = n;
            return not_an_id(d, &token);
        }
        fr_staging_key(part, key);
    }
}

/* Reads the elements of an array of weights into d->loose. */
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
            d->capacity_loose = fr_staging_capacity(d->capacity_loose, d->n_loose + 1);
            d->loose = fr_realloc(d->loose, d->capacity_loose, sizeof(*d->loose));
        }
        status = fr_decode_f32(&token, &d->loose[d->n_loose]);
        if (status != FR_OK) {
            d->path.index = d->n_loose;
            if (status == FR_E_NONFINITE)
                return fr_decode_fail(d, FR_E_INVALID, "weight of an id is not finite");
            return fr_decode_fail(d, FR_E_INVALID, "%s is no weight", fr_decode_kind(&token));
        }
        if (!(__builtin_fabsf(d->loose[d->n_loose]) <= d->weight_max)) {
            d->path.index = d->n_loose;
            return fr_decode_id_weight(d, d->loose[d->n_loose]);
        }
        d->n_loose++;
    }
}

/* Reads {"i": ids, "w": weights}, whose keys may come in either order. */
static enum fr_status parse_weighted(struct fr_decoder *d, const struct fr_conf_slot *slot, struct fr_stage_part *part)
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
            return fr_decode_fail(d, FR_E_INVALID, "key %s in a map of ids and weights; expected i and w",
                                  fr_decode_shown(d, &key));
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
        status = ids ? parse_ids(d, slot, part) : parse_weights(d);
        if (status != FR_OK)
            return status;
        d->path.part = NULL;
    }
    if (!has_ids || !has_weights)
        return fr_decode_fail(d, FR_E_INVALID, "%s is missing beside %s", has_ids ? "w" : "i", has_ids ? "i" : "w");
    uint32_t n_ids = part->n_keys - part->begin[part->n_entries];
    if (n_ids != d->n_loose)
        return fr_decode_fail(d, FR_E_INVALID, "%u ids but %u weights", n_ids, d->n_loose);
    return FR_OK;
}

/* Stages an entry of one id without a weight. */
static inline void stage_one(struct fr_stage_part *part, uint32_t at, uint64_t key)
{
    fr_staging_open(part, at, false);
    fr_staging_key(part, key);
    if (part->weighted)
        (void)fr_staging_close(part, 1, NULL);
    else
        part->begin[++part->n_entries] = part->n_keys;
}

static enum fr_status parse_sparse(struct fr_decoder *d, uint32_t s, struct fr_stage_part *part, uint32_t at,
                                   const struct fr_token *first)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    if (first->kind == FR_TOKEN_NIL)
        return FR_OK;
    if (first->kind != FR_TOKEN_ARRAY && first->kind != FR_TOKEN_MAP) {
        uint64_t key;
        if (!token_key(first, slot, &key))
            return not_an_id(d, first);
        stage_one(part, at, key);
        return FR_OK;
    }
    fr_staging_open(part, at, false);
    const float *weights = NULL;
    if (first->kind == FR_TOKEN_ARRAY) {
        enum fr_status status = parse_ids(d, slot, part);
        if (status != FR_OK)
            return status;
    } else {
        enum fr_status status = parse_weighted(d, slot, part);
        if (status != FR_OK)
            return status;
        weights = d->loose;
    }
    uint32_t cut = fr_staging_close(part, d->staging.columns[s].ids_max, weights);
    if (!fr_slot_has_steps(slot->kind)) /* a history longer than max_len is normal, not excess */
        d->staging.excess_ids += cut;
    return weights ? fr_decode_check_mean(d, s, part, part->n_entries - 1) : FR_OK;
}

/* ---- numbers ---- */

static enum fr_status no_image(struct fr_decoder *d, const struct fr_conf_slot *slot, double x)
{
    if (fr_transform_place(slot->steps[0].kind) == FR_TRANSFORMED_AS_TIME)
        return fr_decode_fail(d, FR_E_INVALID, "%.17g is no Unix time in seconds or milliseconds", x);
    return fr_decode_fail(d, FR_E_INVALID, "log1p needs a value above -1, not %.9g", x);
}

__attribute__((cold)) static enum fr_status too_large(struct fr_decoder *d, uint32_t s, float x)
{
    enum fr_transform transform = d->conf->slots[s].transform;
    if (fr_transform_learns(transform))
        return fr_decode_fail(d, FR_E_INVALID, "%.9g is beyond +-%g, the most that %s takes; clip the slot", (double)x,
                              (double)d->staging.columns[s].bound, fr_transform_text(transform));
    return fr_decode_fail(d, FR_E_INVALID,
                          "%.9g is beyond ingest.dense_max (%g); clip or standardize the slot, or raise the bound",
                          (double)x, (double)d->staging.columns[s].bound);
}

/* Transforms a number of a slot whose transform has steps. The result is out[0], and for a time
 * out[1], too. */
static enum fr_status step_number(struct fr_decoder *d, uint32_t s, double x, float *out)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    float image[2];
    if (!fr_transform_apply(slot, x, image))
        return no_image(d, slot, x);
    if (!(__builtin_fabsf(image[0]) <= d->staging.columns[s].bound))
        return too_large(d, s, image[0]);
    out[0] = image[0];
    if (d->staging.columns[s].dim != slot->dim)
        out[1] = image[1];
    return FR_OK;
}

__attribute__((cold)) static enum fr_status not_a_number(struct fr_decoder *d, enum fr_status status,
                                                         const struct fr_token *token)
{
    if (status == FR_E_NONFINITE)
        return fr_decode_fail(d, FR_E_INVALID, "dense value is not finite");
    return fr_decode_fail(d, FR_E_INVALID, "%s where a number was expected%s", fr_decode_kind(token),
                          token->kind == FR_TOKEN_NIL
                              ? ": `default` stands in for a whole slot only, so give each number a slot of its own"
                              : "");
}

static inline enum fr_status dense_number(struct fr_decoder *d, uint32_t s, const struct fr_token *token, float *out)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    struct fr_stage_column *column = &d->staging.columns[s];
    enum fr_status status;
    double exact;
    float x;
    if (__builtin_expect(column->plain, 1)) {
        status = fr_decode_f32(token, &x);
        if (__builtin_expect(status != FR_OK, 0))
            return not_a_number(d, status, token);
        if (__builtin_expect(!(__builtin_fabsf(x) <= column->bound), 0))
            return too_large(d, s, x);
        *out = x;
        return FR_OK;
    }
    if (column->dim != slot->dim) { /* for a time, because f32 would lose its seconds */
        status = fr_decode_f64(token, &exact);
        return status == FR_OK ? step_number(d, s, exact, out) : not_a_number(d, status, token);
    }
    status = fr_decode_f32(token, &x);
    return status == FR_OK ? step_number(d, s, (double)x, out) : not_a_number(d, status, token);
}

/* Keeps the number that buckets are computed from; the slot has one number. */
static inline void keep_raw(struct fr_stage_part *part, const struct fr_token *token)
{
    if (__builtin_expect(part->raw != NULL, 0))
        (void)fr_decode_f32(token, &part->raw[part->n_entries]);
}

static enum fr_status parse_dense(struct fr_decoder *d, uint32_t s, struct fr_stage_part *part, uint32_t at,
                                  const struct fr_token *first)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    const struct fr_stage_column *column = &d->staging.columns[s];
    enum fr_status status;
    if (first->kind == FR_TOKEN_NIL) {
        if (column->required)
            return fr_decode_fail(d, FR_E_INVALID, "nil, and the slot's default has no log1p");
        return FR_OK;
    }
    fr_staging_open(part, at, true);
    float *out = fr_staging_dense(part, column->dim);
    if (first->kind != FR_TOKEN_ARRAY) {
        if ((status = dense_number(d, s, first, out)) != FR_OK)
            return status;
        if (slot->dim != 1)
            return fr_decode_fail(d, FR_E_INVALID, "1 number where %u were expected", slot->dim);
        keep_raw(part, first);
        part->n_entries++;
        return FR_OK;
    }
    uint32_t images = column->dim / slot->dim;
    struct fr_token token = {0};
    for (uint32_t n = 0;; n++) {
        if (n < slot->dim && fr_cursor_take_float(&d->cursor, &token.f)) {
            token.kind = FR_TOKEN_FLOAT;
            token.size = sizeof(token.f);
        } else if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END) {
            if (n != slot->dim)
                return fr_decode_fail(d, FR_E_INVALID, "%u numbers where %u were expected", n, slot->dim);
            part->n_entries++;
            return FR_OK;
        }
        if (n == slot->dim)
            return fr_decode_fail(d, FR_E_INVALID, "more than the %u numbers expected", slot->dim);
        d->path.index = n;
        if ((status = dense_number(d, s, &token, out + (size_t)n * images)) != FR_OK)
            return status;
        keep_raw(part, &token);
        d->path.index = -1;
    }
}

enum fr_status fr_decode_value(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part, uint32_t at,
                               const struct fr_token *first)
{
    if (fr_slot_has_numbers(d->staging.columns[slot].kind))
        return parse_dense(d, slot, part, at, first);
    return parse_sparse(d, slot, part, at, first);
}

/* Refuses the first of the numbers that is not finite or is too large. */
static enum fr_status refuse_packed(struct fr_decoder *d, uint32_t s, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        d->path.index = (int64_t)i;
        if (!__builtin_isfinite(values[i]))
            return fr_decode_fail(d, FR_E_INVALID, "dense value is not finite");
        if (!(__builtin_fabsf(values[i]) <= d->staging.columns[s].bound))
            return too_large(d, s, values[i]);
    }
    FR_CHECK(!"nothing to refuse");
    return FR_E_INVALID;
}

enum fr_status fr_decode_dense_packed(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                      const uint8_t *bytes, uint32_t n)
{
    const struct fr_conf_slot *conf = &d->conf->slots[slot];
    const struct fr_stage_column *column = &d->staging.columns[slot];
    size_t numbers = (size_t)n * conf->dim, images = column->dim / conf->dim;
    if (numbers * images > part->capacity_dense)
        fr_staging_reserve_dense(part, numbers * images);
    if (conf->n_steps == 0) {
        uint32_t bits, bound, any = 0;
        if (numbers)
            memcpy(part->dense, bytes, numbers * sizeof(*part->dense));
        memcpy(&bound, &column->bound, sizeof(bound));
        for (size_t i = 0; i < numbers; i++) { /* infinities and NaN do not pass this comparison */
            memcpy(&bits, &part->dense[i], sizeof(bits));
            any |= (bits & 0x7fffffff) > bound;
        }
        return any ? refuse_packed(d, slot, part->dense, numbers) : FR_OK;
    }
    for (size_t i = 0; i < numbers; i++) {
        float x = fr_load_f32(bytes + 4 * i);
        d->path.index = (int64_t)i;
        if (!__builtin_isfinite(x))
            return fr_decode_fail(d, FR_E_INVALID, "dense value is not finite");
        enum fr_status status = step_number(d, slot, (double)x, part->dense + i * images);
        if (status != FR_OK)
            return status;
        if (part->raw)
            part->raw[i] = x;
    }
    d->path.index = -1;
    return FR_OK;
}

/* ---- maps ---- */

static bool is_computed(const struct fr_decoder *d, const struct fr_token *key)
{
    for (uint32_t i = 0; i < d->n_computed; i++)
        if (fr_decode_is_key(key, d->conf->slots[d->computed[i]].name))
            return true;
    return false;
}

enum fr_status fr_decode_other_slot(struct fr_decoder *d, const struct fr_slot_map *map, const struct fr_token *key)
{
    if (key->kind == FR_TOKEN_INT)
        return fr_decode_fail(d, FR_E_INVALID, "integer key %s: an index is not below 0", fr_decode_shown(d, key));
    if (key->kind != FR_TOKEN_STRING && key->kind != FR_TOKEN_UINT)
        return fr_decode_fail(d, FR_E_INVALID, "%s as a slot key", fr_decode_kind(key));
    if (key->kind == FR_TOKEN_STRING && is_computed(d, key))
        return fr_decode_fail(d, FR_E_INVALID, "%s is computed, not given", fr_decode_shown(d, key));
    if (d->conf->ingest.strict)
        return fr_decode_fail(d, FR_E_INVALID, "unknown slot %s (ingest.strict)", fr_decode_shown(d, key));
    return fr_decode_unknown_slot(d, map, key);
}

/* Marks the slot as named by this map; fails if it was named before. */
static inline enum fr_status claim_slot(struct fr_decoder *d, const struct fr_slot_map *map, int32_t slot)
{
    struct fr_stage_column *column = &d->staging.columns[slot];
    d->path.name = d->conf->slots[slot].name;
    if (__builtin_expect(column->seen == map->serial, 0))
        return fr_decode_fail(d, FR_E_INVALID, "duplicate slot");
    column->seen = map->serial;
    uint64_t *mine = map->shared ? &column->shared_in : &column->own_in;
    uint64_t other = map->shared ? column->own_in : column->shared_in;
    if (__builtin_expect(other == map->group, 0))
        return fr_decode_fail(d, FR_E_INVALID, "the slot is in the shared part and below it");
    *mine = map->group;
    return FR_OK;
}

enum fr_status fr_decode_claim_slot(struct fr_decoder *d, const struct fr_slot_map *map, int32_t slot)
{
    return claim_slot(d, map, slot);
}

/* Gets the next slot. `previous`: the slot before it, or the beginning of a map of this kind
 * (fr_slot_names). */
static inline enum fr_status next_slot(struct fr_decoder *d, const struct fr_slot_map *map, uint32_t previous,
                                       int32_t *slot)
{
    struct fr_token key;
    enum fr_status status;
    if ((*slot = fr_decode_names_expect(&d->names, &d->cursor, previous)) != FR_NO_INDEX)
        return claim_slot(d, map, *slot);
    d->path.name = NULL;
    for (;;) {
        if ((status = fr_decode_next(d, &key)) != FR_OK)
            return status;
        if (key.kind == FR_TOKEN_END)
            return FR_OK;
        if (key.kind == FR_TOKEN_STRING || key.kind == FR_TOKEN_UINT)
            *slot = fr_decode_names_find(&d->names, &key, previous);
        if (*slot != FR_NO_INDEX)
            return claim_slot(d, map, *slot);
        if ((status = fr_decode_other_slot(d, map, &key)) != FR_OK)
            return status;
    }
}

static uint32_t map_begins(const struct fr_decoder *d, const struct fr_slot_map *map)
{
    return d->names.n_slots + (map->shared ? FR_NAMES_SHARED : FR_NAMES_OWN);
}

enum fr_status fr_decode_slot_key(struct fr_decoder *d, const struct fr_slot_map *map, int32_t *slot)
{
    return next_slot(d, map, *slot == FR_NO_INDEX ? map_begins(d, map) : (uint32_t)*slot, slot);
}

enum fr_status fr_decode_slots(struct fr_decoder *d, const struct fr_slot_map *map, uint32_t at)
{
    uint32_t previous = map_begins(d, map);
    struct fr_token value = {0};
    for (;;) {
        int32_t slot;
        enum fr_status status = next_slot(d, map, previous, &slot);
        if (status != FR_OK || slot == FR_NO_INDEX)
            return status;
        struct fr_stage_column *column = &d->staging.columns[slot];
        struct fr_stage_part *part = map->shared ? &column->shared : &column->own;
        previous = (uint32_t)slot;
        uint64_t id;
        /* an unsigned integer is by far the most frequent value */
        if (fr_slot_has_rows(column->kind) && fr_cursor_take_unsigned(&d->cursor, &id)) {
            stage_one(part, at, fr_fmix64(id ^ d->conf->slots[slot].seed));
            continue;
        }
        if (fr_slot_has_numbers(column->kind) && fr_cursor_take_float(&d->cursor, &value.f)) {
            value.kind = FR_TOKEN_FLOAT;
            value.size = sizeof(value.f);
        } else if ((status = fr_decode_next(d, &value)) != FR_OK)
            return status;
        if ((status = fr_decode_value(d, (uint32_t)slot, part, at, &value)) != FR_OK)
            return status;
    }
}

/* ---- what the record as a whole must have ---- */

enum fr_status fr_decode_check_required(struct fr_decoder *d, uint32_t from_group)
{
    const uint32_t *group_begin = d->staging.group_begin;
    for (uint32_t i = 0; i < d->n_required; i++) {
        const struct fr_stage_column *column = &d->staging.columns[d->required[i]];
        const struct fr_stage_part *own = &column->own, *shared = &column->shared;
        for (uint32_t group = from_group; group < d->staging.n_groups; group++) {
            uint32_t k = fr_staging_first(shared, group), end = group_begin[group + 1];
            bool for_all = k < shared->n_entries && shared->at[k] == group;
            if (for_all ||
                fr_staging_first(own, end) - fr_staging_first(own, group_begin[group]) == end - group_begin[group])
                continue;
            d->path.name = d->conf->slots[d->required[i]].name;
            return fr_decode_fail(d, FR_E_INVALID, "absent, and the slot's default has no log1p");
        }
    }
    return FR_OK;
}

enum fr_status fr_decode_check_expanded(struct fr_decoder *d, uint32_t from_group)
{
    for (uint32_t s = 0; s < d->conf->n_slots; s++) {
        struct fr_stage_column *column = &d->staging.columns[s];
        const struct fr_stage_part *shared = &column->shared;
        if (fr_slot_has_numbers(column->kind) || shared->n_entries == 0 ||
            shared->at[shared->n_entries - 1] < from_group)
            continue;
        for (uint32_t k = fr_staging_first(shared, from_group); k < shared->n_entries; k++) {
            const uint32_t *begin = d->staging.group_begin + shared->at[k];
            column->expanded += (uint64_t)(begin[1] - begin[0]) * (shared->begin[k + 1] - shared->begin[k]);
        }
        if (column->expanded > FR_EXPANDED_MAX) {
            d->path.field = "shared";
            d->path.name = d->conf->slots[s].name;
            return fr_decode_fail(d, FR_E_LIMIT, "%llu ids when the samples of its groups are written out, at most %d",
                                  (unsigned long long)column->expanded, FR_EXPANDED_MAX);
        }
    }
    return FR_OK;
}

/* Whether only buckets read the slot. */
static bool is_for_buckets(const struct fr_conf *conf, uint32_t s)
{
    bool buckets = false;
    for (uint32_t i = 0; i < conf->n_slots; i++)
        buckets |= conf->slots[i].source == FR_SOURCE_BUCKETS && conf->slots[i].sources[0] == (int32_t)s;
    for (uint32_t l = 0; buckets && l < conf->n_layers; l++)
        for (uint32_t r = 0; r < conf->layers[l].n_refs; r++)
            buckets &= conf->layers[l].refs[r].kind != FR_REF_DENSE || conf->layers[l].refs[r].index != (int32_t)s;
    for (uint32_t l = 0; buckets && l < conf->n_losses; l++)
        for (uint32_t r = 0; r < conf->losses[l].n_refs; r++)
            buckets &= conf->losses[l].refs[r].kind != FR_REF_DENSE || conf->losses[l].refs[r].index != (int32_t)s;
    return buckets;
}

/* Returns the limit of a slot's numbers. There is none for a slot that only buckets read,
 * because a one-hot vector is bounded, and none when scoring, where a request is answered even
 * if the trainer would have refused its numbers. */
static float bound_of(const struct fr_decoder *d, uint32_t s)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    if (d->scoring || fr_transform_argument(slot->transform) == FR_TAKES_BOUNDARIES || is_for_buckets(d->conf, s))
        return FLT_MAX;
    if (fr_transform_learns(slot->transform))
        return STANDARDIZE_MAX;
    return d->conf->ingest.dense_max > 0.0f ? d->conf->ingest.dense_max : DENSE_MAX_DEFAULT;
}

void fr_decode_dense_init(struct fr_decoder *d)
{
    d->required = fr_alloc((size_t)d->conf->n_slots + 1, sizeof(*d->required));
    for (uint32_t s = 0; s < d->conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &d->conf->slots[s];
        struct fr_stage_column *column = &d->staging.columns[s];
        if (fr_slot_has_rows(slot->kind))
            continue;
        column->bound = bound_of(d, s);
        column->plain = slot->n_steps == 0;
        fr_transform_missing(slot, column->missing);
        column->required =
            !__builtin_isfinite(column->missing[0]) && (slot->has_default || !fr_transform_learns(slot->transform));
        if (column->required)
            d->required[d->n_required++] = s;
        if (fr_conf_slot_keeps_missing(slot))
            column->missing[0] = column->missing[1] = __builtin_nanf("");
    }
}
