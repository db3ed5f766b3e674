/* Blocks: columns instead of samples (docs/formats/samples.md, "Block").
 *
 * A block is a whole record: samples [0, n), made with their defaults before any column is read,
 * so that columns may come in any order. A column is an array with a value per entry or, in
 * MessagePack, packed (packed.c). The columns of `shared` have an entry per group. Their length
 * is compared with `g` at the end of the record, because `shared` and `g` may come in either
 * order.
 *
 * Values are checked in values.c and fields.c. */
#include "parse.h"

struct block {
    uint32_t n;
    int64_t t_ms;
    uint64_t serial;
    unsigned seen;
    uint64_t unknown_shared[FR_UNKNOWN_PLACES]; /* columns in `shared` that belong to no slot */
};

/* ---- slots ---- */

static enum fr_status array_column(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                   struct fr_column_rows *rows)
{
    struct fr_token token;
    for (uint32_t i = 0;; i++) {
        enum fr_status status = fr_decode_next(d, &token);
        if (status != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END) {
            d->path.entry = -1;
            return fr_decode_check_rows(d, rows, i);
        }
        d->path.entry = i < rows->limit ? (int64_t)i : -1;
        if (i == rows->limit)
            return fr_decode_fail(d, FR_E_INVALID, "more than %u entries", rows->limit);
        if ((status = fr_decode_value(d, slot, part, i, &token)) != FR_OK)
            return status;
    }
}

/* Gets the kind of column that begins with this token. */
static enum fr_status column_kind(struct fr_decoder *d, const struct fr_token *first, bool *packed)
{
    *packed = first->kind == FR_TOKEN_MAP;
    if (*packed && d->format == FR_FORMAT_JSON)
        return fr_decode_fail(d, FR_E_INVALID, "a map where an array was expected: JSON has no packed columns");
    if (!*packed && first->kind != FR_TOKEN_ARRAY)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a column was expected", fr_decode_kind(first));
    return FR_OK;
}

/* Counts an unknown column once for each sample, or for each group if it is in `shared`, as
 * often as the values of a slot would occur. */
static void count_unknown(struct fr_decoder *d, struct block *block, bool shared,
                          const struct fr_unknown_counts *before)
{
    if (!d->staging.any_unknown)
        return;
    for (uint32_t i = 0; i < FR_UNKNOWN_PLACES; i++) {
        uint64_t *slots = &d->staging.unknown.slots[i], columns = *slots - before->slots[i];
        *slots = before->slots[i] + (shared ? 0 : columns * block->n);
        block->unknown_shared[i] += shared ? columns : 0;
    }
}

static enum fr_status parse_columns(struct fr_decoder *d, struct block *block, bool shared)
{
    struct fr_unknown_counts unknown = d->staging.unknown;
    struct fr_token first;
    enum fr_status status = fr_decode_next(d, &first);
    if (status != FR_OK)
        return status;
    if (first.kind != FR_TOKEN_MAP)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a map slot -> column was expected", fr_decode_kind(&first));
    struct fr_slot_map map = {
        .serial = ++d->serial, .group = block->serial, .shared = shared, .keys = &d->sample_keys, .scope = 1};
    for (int32_t slot = FR_NO_INDEX;;) {
        bool packed;
        if ((status = fr_decode_slot_key(d, &map, &slot)) != FR_OK || slot == FR_NO_INDEX) {
            count_unknown(d, block, shared, &unknown);
            return status;
        }
        if ((status = fr_decode_next(d, &first)) != FR_OK)
            return status;
        if ((status = column_kind(d, &first, &packed)) != FR_OK)
            return status;
        struct fr_stage_column *column = &d->staging.columns[slot];
        struct fr_stage_part *part = shared ? &column->shared : &column->own;
        struct fr_column_rows rows = {.limit = block->n, .exact = !shared};
        status = packed ? fr_decode_packed_slot(d, (uint32_t)slot, part, &rows)
                        : array_column(d, (uint32_t)slot, part, &rows);
        if (status != FR_OK)
            return status;
        column->rows = rows.n;
    }
}

/* ---- fields: y, w, u, s, t ---- */

/* Gets element i of a packed column as the token that it would be in an array; false: it is NaN
 * in `y`, which masks the label. */
static bool packed_token(unsigned field, const uint8_t *bytes, uint32_t i, struct fr_token *token)
{
    if (field == FR_FIELD_U) {
        *token = (struct fr_token){.kind = FR_TOKEN_UINT, .u = bytes[i]};
    } else if (field == FR_FIELD_T) {
        int64_t t_ms = (int64_t)fr_load_u64(bytes + 8 * (size_t)i);
        *token = (struct fr_token){.kind = t_ms < 0 ? FR_TOKEN_INT : FR_TOKEN_UINT, .i = t_ms};
    } else {
        float v = fr_load_f32(bytes + 4 * (size_t)i);
        *token = (struct fr_token){.kind = FR_TOKEN_FLOAT, .f = (double)v};
        return field != FR_FIELD_Y || v == v;
    }
    return true;
}

static enum fr_status set_entry(struct fr_decoder *d, unsigned field, uint32_t label, const struct fr_token *token)
{
    switch (field) {
    case FR_FIELD_Y:
        return fr_decode_label(d, label, token);
    case FR_FIELD_W:
        return fr_decode_w(d, token);
    case FR_FIELD_U:
        return fr_decode_u(d, token);
    case FR_FIELD_S:
        return fr_decode_s(d, token);
    default:
        return fr_decode_t(d, token, &d->staging.t_ms[d->at]);
    }
}

static enum fr_status packed_field(struct fr_decoder *d, uint32_t n, unsigned field, uint32_t label)
{
    const uint8_t *bytes;
    uint32_t count, width = field == FR_FIELD_U ? 1 : field == FR_FIELD_T ? 8 : 4;
    struct fr_column_rows rows = {.limit = n, .exact = true};
    enum fr_status status = fr_decode_packed_plain(d, width, &bytes, &count);
    if (status != FR_OK)
        return status;
    d->path.part = "b";
    if ((status = fr_decode_check_rows(d, &rows, count)) != FR_OK)
        return status;
    for (d->at = 0; d->at < n; d->at++) {
        struct fr_token token;
        d->path.index = d->at;
        if (packed_token(field, bytes, d->at, &token) && (status = set_entry(d, field, label, &token)) != FR_OK)
            return status;
    }
    d->path.index = -1;
    d->path.part = NULL;
    return FR_OK;
}

static enum fr_status array_field(struct fr_decoder *d, uint32_t n, unsigned field, uint32_t label)
{
    struct fr_token token;
    struct fr_column_rows rows = {.limit = n, .exact = true};
    for (d->at = 0;; d->at++) {
        enum fr_status status = fr_decode_next(d, &token);
        if (status != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END) {
            d->path.entry = -1;
            return fr_decode_check_rows(d, &rows, d->at);
        }
        d->path.entry = d->at < n ? (int64_t)d->at : -1;
        if (d->at == n)
            return fr_decode_fail(d, FR_E_INVALID, "more than %u entries", n);
        if ((status = set_entry(d, field, label, &token)) != FR_OK)
            return status;
    }
}

/* Reads a column of a field, or of one label of `y`. */
static enum fr_status parse_field_column(struct fr_decoder *d, struct block *block, unsigned field, uint32_t label)
{
    struct fr_token first;
    bool packed;
    enum fr_status status = fr_decode_next(d, &first);
    if (status != FR_OK)
        return status;
    if (field == FR_FIELD_T && first.kind != FR_TOKEN_ARRAY && first.kind != FR_TOKEN_MAP)
        return fr_decode_t(d, &first, &block->t_ms);
    if ((status = column_kind(d, &first, &packed)) != FR_OK)
        return status;
    return packed ? packed_field(d, block->n, field, label) : array_field(d, block->n, field, label);
}

static enum fr_status parse_y(struct fr_decoder *d, struct block *block)
{
    struct fr_token first;
    enum fr_status status = fr_decode_next(d, &first);
    if (status != FR_OK)
        return status;
    if (first.kind != FR_TOKEN_MAP)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a map label -> column was expected", fr_decode_kind(&first));
    struct fr_members members = {.times = block->n};
    for (uint32_t label;;) {
        if ((status = fr_decode_member(d, &members, &label)) != FR_OK || label == d->n_carried)
            return status;
        if ((status = parse_field_column(d, block, FR_FIELD_Y, label)) != FR_OK)
            return status;
    }
}

/* ---- groups ---- */

static enum fr_status add_group(struct fr_decoder *d, uint32_t n, uint64_t size)
{
    struct fr_staging *staging = &d->staging;
    uint32_t begin = staging->group_begin[staging->n_groups];
    if (size == 0)
        return fr_decode_fail(d, FR_E_INVALID, "a group has at least one sample");
    if (size > d->group_max)
        return fr_decode_fail(d, FR_E_LIMIT, "%llu samples, more than ingest.group_max (%u)", (unsigned long long)size,
                              d->group_max);
    if (size > n - begin)
        return fr_decode_fail(d, FR_E_INVALID, "the sizes of the groups exceed n (%u)", n);
    staging->group_begin[++staging->n_groups] = begin + (uint32_t)size;
    return FR_OK;
}

static enum fr_status parse_groups(struct fr_decoder *d, uint32_t n)
{
    struct fr_token token;
    bool packed;
    const uint8_t *bytes = NULL;
    uint32_t count = UINT32_MAX;
    enum fr_status status = fr_decode_next(d, &token);
    if (status == FR_OK)
        status = column_kind(d, &token, &packed);
    if (status == FR_OK && packed)
        status = fr_decode_packed_plain(d, 4, &bytes, &count);
    if (status != FR_OK)
        return status;
    d->path.part = packed ? "b" : NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (!packed) {
            if ((status = fr_decode_next(d, &token)) != FR_OK)
                return status;
            if (token.kind == FR_TOKEN_END)
                break;
        }
        d->path.index = i;
        if (!packed && token.kind != FR_TOKEN_UINT)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a group's size was expected", fr_decode_kind(&token));
        status = add_group(d, n, packed ? fr_load_u32(bytes + 4 * (size_t)i) : token.u);
        if (status != FR_OK)
            return status;
    }
    d->path.index = -1;
    uint32_t sum = d->staging.group_begin[d->staging.n_groups];
    if (sum != n)
        return fr_decode_fail(d, FR_E_INVALID, "the sizes of the groups add up to %u, n is %u", sum, n);
    d->path.part = NULL;
    return FR_OK;
}

/* ---- the block ---- */

static enum fr_status block_field(struct fr_decoder *d, struct block *block, unsigned field)
{
    struct fr_token token;
    switch (field) {
    case FR_FIELD_N:
        return fr_decode_next(d, &token); /* this token was read before the block was begun */
    case FR_FIELD_COLS:
        d->path.field = "cols";
        return parse_columns(d, block, false);
    case FR_FIELD_SHARED:
        d->path.field = "shared";
        return parse_columns(d, block, true);
    case FR_FIELD_G:
        d->path.field = "g";
        return parse_groups(d, block->n);
    case FR_FIELD_Y:
        d->path.field = "y";
        return parse_y(d, block);
    case FR_FIELD_W:
        d->path.field = "w";
        break;
    case FR_FIELD_U:
        d->path.field = "u";
        break;
    case FR_FIELD_S:
        d->path.field = "s";
        break;
    default:
        d->path.field = "t";
        break;
    }
    return parse_field_column(d, block, field, 0);
}

/* Checks what depends on several columns. */
static enum fr_status finish_block(struct fr_decoder *d, const struct block *block)
{
    struct fr_staging *staging = &d->staging;
    unsigned grouped = block->seen & (FR_FIELD_G | FR_FIELD_SHARED);
    if (!(block->seen & FR_FIELD_COLS))
        return fr_decode_fail(d, FR_E_INVALID, "cols is missing");
    if (!(block->seen & FR_FIELD_Y) && !d->scoring)
        return fr_decode_fail(d, FR_E_INVALID, "y is missing");
    if (grouped == FR_FIELD_G || grouped == FR_FIELD_SHARED)
        return fr_decode_fail(d, FR_E_INVALID, "%s is missing: g and shared come together",
                              grouped == FR_FIELD_G ? "shared" : "g");
    for (uint32_t i = 0; !grouped && i < block->n; i++)
        staging->group_begin[++staging->n_groups] = i + 1;
    for (uint32_t i = 0; staging->any_unknown && i < FR_UNKNOWN_PLACES; i++)
        staging->unknown.slots[i] += block->unknown_shared[i] * staging->n_groups;
    enum fr_status status;
    for (uint32_t s = 0; grouped && s < staging->n_slots; s++) {
        struct fr_column_rows rows = {.limit = staging->n_groups, .exact = true};
        if (staging->columns[s].shared_in != block->serial)
            continue;
        d->path.field = "shared";
        d->path.name = d->conf->slots[s].name;
        if ((status = fr_decode_check_rows(d, &rows, staging->columns[s].rows)) != FR_OK)
            return status;
    }
    d->path.name = NULL;
    d->path.field = "cols";
    if (d->n_required && (status = fr_decode_check_required(d, 0)) != FR_OK)
        return status;
    d->path.field = NULL;
    if (grouped && (status = fr_decode_check_expanded(d, 0)) != FR_OK)
        return status;
    return fr_decode_finish(d, 0, block->t_ms);
}

enum fr_status fr_decode_block(struct fr_decoder *d, uint64_t n)
{
    FR_CHECK(d->staging.n_samples == 0 && n <= INT32_MAX);
    struct block block = {.n = (uint32_t)n, .serial = ++d->serial};
    struct fr_slot_map map = {.serial = block.serial, .keys = &d->group_keys};
    fr_staging_add(&d->staging, block.n);
    for (;;) {
        unsigned field;
        enum fr_status status = fr_decode_envelope(d, FR_FIELDS_BLOCK, &block.seen, &map, &field);
        if (status != FR_OK)
            return status;
        if (field == 0)
            return finish_block(d, &block);
        if ((status = block_field(d, &block, field)) != FR_OK)
            return status;
        d->path.field = NULL;
        d->path.name = NULL;
    }
}
