/* The forms of a record: reads samples and groups, and finds out which form (sample, group or
 * block) a map has.
 *
 * The choice costs producers of samples nothing. A map is read as a sample until a key of
 * another form occurs, or a value does not fit a sample. Only then are its keys searched (up to
 * the first that decides) and is the map read again from its start. The items of a group are
 * samples whose slots are written to the own part of the staging. The shared part may come
 * before or after the items, so what depends on both is checked when the group is complete.
 *
 * Values are checked in values.c and fields.c, columns are read in block.c. */
#include "parse.h"

/* ---- samples ---- */

static enum fr_status pass_id(struct fr_decoder *d)
{
    d->path.field = "id";
    return fr_decode_pass(d);
}

static enum fr_status sample_field(struct fr_decoder *d, unsigned field, struct fr_slot_map *map)
{
    if (field == FR_FIELD_ID)
        return pass_id(d);
    struct fr_token first;
    enum fr_status status = fr_decode_next(d, &first);
    if (status != FR_OK)
        return status;
    switch (field) {
    case FR_FIELD_F:
        d->path.field = "f";
        if (first.kind != FR_TOKEN_MAP)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a map slot -> value was expected", fr_decode_kind(&first));
        return fr_decode_slots(d, map, d->at);
    case FR_FIELD_Y:
        d->path.field = "y";
        return fr_decode_y(d, &first);
    case FR_FIELD_T:
        d->path.field = "t";
        return fr_decode_t(d, &first, &d->staging.t_ms[d->at]);
    case FR_FIELD_W:
        d->path.field = "w";
        return fr_decode_w(d, &first);
    case FR_FIELD_U:
        d->path.field = "u";
        return fr_decode_u(d, &first);
    case FR_FIELD_S:
        d->path.field = "s";
        return fr_decode_s(d, &first);
    default: /* the field `p` */
        d->path.field = "p";
        return fr_decode_p(d, &first);
    }
}

/* Reads one sample. group: the serial of its group, 0 for a plain sample. *foreign: the map has
 * another form after all (possible for a plain sample only, of which nothing but fields other
 * than `f` was read). */
static enum fr_status parse_sample(struct fr_decoder *d, uint64_t group, bool *foreign)
{
    unsigned seen = 0, field;
    fr_staging_add(&d->staging, 1);
    d->at = d->staging.n_samples - 1;
    d->serial++;
    struct fr_slot_map map = {
        .serial = d->serial, .group = group ? group : d->serial, .keys = &d->sample_keys, .scope = 1};
    for (;;) {
        enum fr_status status = fr_decode_envelope(d, FR_FIELDS_SAMPLE, &seen, &map, &field);
        if (status != FR_OK)
            return status;
        if (field == 0)
            break;
        if (!(field & FR_FIELDS_SAMPLE)) {
            *foreign = true;
            return FR_OK;
        }
        if ((status = sample_field(d, field, &map)) != FR_OK) {
            *foreign = !(seen & FR_FIELD_F);
            return status;
        }
        d->path.field = NULL;
    }
    if (!(seen & FR_FIELD_F))
        return fr_decode_fail(d, FR_E_INVALID, "f is missing");
    if (!(seen & FR_FIELD_Y) && !d->scoring)
        return fr_decode_fail(d, FR_E_INVALID, "y is missing");
    return FR_OK;
}

/* Completes a group, all values of which have been read; its samples begin at `from`. */
static enum fr_status finish_group(struct fr_decoder *d, uint32_t from, int64_t t_ms, const char *field)
{
    d->path.field = field;
    uint32_t group = d->staging.n_groups;
    fr_staging_close_group(&d->staging);
    enum fr_status status = FR_OK;
    if (d->n_required)
        status = fr_decode_check_required(d, group);
    d->path.field = NULL;
    return status == FR_OK ? fr_decode_finish(d, from, t_ms) : status;
}

/* ---- groups ---- */

static enum fr_status parse_items(struct fr_decoder *d, uint64_t group)
{
    struct fr_token token;
    enum fr_status status;
    d->path.field = NULL;
    for (d->path.sub = 0;; d->path.sub++) {
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END)
            break;
        if (token.kind != FR_TOKEN_MAP)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a sample was expected", fr_decode_kind(&token));
        if (d->path.sub == d->group_max)
            return fr_decode_fail(d, FR_E_LIMIT, "more than the %u samples of ingest.group_max", d->group_max);
        bool foreign = false;
        if ((status = parse_sample(d, group, &foreign)) != FR_OK)
            return status;
    }
    bool empty = d->path.sub == 0;
    d->path.sub = -1;
    d->path.field = "items";
    return empty ? fr_decode_fail(d, FR_E_INVALID, "a group has at least one sample") : FR_OK;
}

static enum fr_status group_field(struct fr_decoder *d, unsigned field, struct fr_slot_map *map, int64_t *t_ms)
{
    if (field == FR_FIELD_ID)
        return pass_id(d);
    struct fr_token first;
    enum fr_status status = fr_decode_next(d, &first);
    if (status != FR_OK)
        return status;
    switch (field) {
    case FR_FIELD_SHARED:
        d->path.field = "shared";
        if (first.kind != FR_TOKEN_MAP)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a map slot -> value was expected", fr_decode_kind(&first));
        return fr_decode_slots(d, map, d->staging.n_groups);
    case FR_FIELD_ITEMS:
        d->path.field = "items";
        if (first.kind != FR_TOKEN_ARRAY)
            return fr_decode_fail(d, FR_E_INVALID, "%s where an array of samples was expected", fr_decode_kind(&first));
        return parse_items(d, map->group);
    default: /* the field `t` */
        d->path.field = "t";
        return fr_decode_t(d, &first, t_ms);
    }
}

static enum fr_status parse_group(struct fr_decoder *d)
{
    unsigned seen = 0, field;
    uint32_t from = d->staging.n_samples, group = d->staging.n_groups;
    int64_t t_ms = 0;
    enum fr_status status;
    d->serial++;
    struct fr_slot_map map = {
        .serial = d->serial, .group = d->serial, .shared = true, .keys = &d->group_keys, .scope = 1};
    for (;;) {
        if ((status = fr_decode_envelope(d, FR_FIELDS_GROUP, &seen, &map, &field)) != FR_OK)
            return status;
        if (field == 0)
            break;
        if ((status = group_field(d, field, &map, &t_ms)) != FR_OK)
            return status;
        d->path.field = NULL;
    }
    if (!(seen & FR_FIELD_SHARED) || !(seen & FR_FIELD_ITEMS))
        return fr_decode_fail(d, FR_E_INVALID, "%s is missing", seen & FR_FIELD_SHARED ? "items" : "shared");
    if ((status = finish_group(d, from, t_ms, "items")) != FR_OK)
        return status;
    return fr_decode_check_expanded(d, group);
}

/* ---- which form ---- */

/* The start of a map, kept so that the map can be read again. */
struct mark {
    const uint8_t *at;
    uint32_t depth;
    uint64_t remaining;
    uint8_t is_map, state;
};

static struct mark mark_of(const struct fr_cursor *cursor)
{
    return (struct mark){cursor->at, cursor->depth, cursor->level[cursor->depth].remaining,
                         cursor->level[cursor->depth].is_map, cursor->level[cursor->depth].state};
}

static void return_to(struct fr_cursor *cursor, const struct mark *mark)
{
    cursor->at = mark->at;
    cursor->depth = mark->depth;
    cursor->level[mark->depth].remaining = mark->remaining;
    cursor->level[mark->depth].is_map = mark->is_map;
    cursor->level[mark->depth].state = mark->state;
}

/* Returns the first key from the mark on that is one of `deciding`; 0: there is none. *value
 * gets its value. A map with `shared` and no other such key is a group. The place of the cursor
 * is unspecified afterwards. */
static unsigned find_key(struct fr_decoder *d, unsigned deciding, struct fr_token *value)
{
    unsigned shared = 0;
    struct fr_token key;
    for (;;) {
        if (fr_cursor_next(&d->cursor, &key) != FR_OK || key.kind == FR_TOKEN_END)
            return shared;
        unsigned field = fr_decode_field(&key);
        shared |= field & deciding & FR_FIELD_SHARED;
        if (key.kind == FR_TOKEN_ARRAY || key.kind == FR_TOKEN_MAP)
            return shared;
        if (field & deciding & ~(unsigned)FR_FIELD_SHARED)
            return fr_cursor_next(&d->cursor, value) == FR_OK ? field : shared;
        if (fr_cursor_pass(&d->cursor) != FR_OK)
            return shared;
    }
}

/* Reads a block, after it has found the block's `n` wherever that key stands in the map. */
static enum fr_status parse_block(struct fr_decoder *d, const struct mark *mark)
{
    struct fr_token value = {0};
    if (d->path.item >= 0)
        return fr_decode_fail(d, FR_E_INVALID, "an array holds samples or groups, not blocks");
    return_to(&d->cursor, mark);
    d->cursor.problem = NULL;
    unsigned field = find_key(d, FR_FIELD_N, &value);
    if (!field && d->cursor.problem)
        return fr_decode_refused(d, FR_E_INVALID);
    return_to(&d->cursor, mark);
    if (!field)
        return fr_decode_fail(d, FR_E_INVALID, "n is missing");
    d->path.field = "n";
    if (value.kind != FR_TOKEN_UINT)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a count was expected", fr_decode_kind(&value));
    /* A column has at least one byte for each entry. */
    if (value.u > (uint64_t)(d->cursor.end - d->cursor.begin))
        return fr_decode_fail(d, FR_E_INVALID, "%llu entries in a record of %llu bytes", (unsigned long long)value.u,
                              (unsigned long long)(d->cursor.end - d->cursor.begin));
    d->path.field = NULL;
    return fr_decode_block(d, value.u);
}

enum fr_status fr_decode_map(struct fr_decoder *d)
{
    if (d->flat) {
        uint32_t from = d->staging.n_samples;
        enum fr_status status = fr_decode_flat(d);
        return status == FR_OK ? finish_group(d, from, 0, "f") : status;
    }
    struct mark mark = mark_of(&d->cursor);
    struct fr_decode_path path = d->path;
    bool foreign = false, any_unknown = d->staging.any_unknown;
    struct fr_unknown_counts unknown;
    if (any_unknown)
        unknown = d->staging.unknown;
    enum fr_status status = parse_sample(d, 0, &foreign);
    if (!foreign) {
        uint32_t from = d->staging.n_samples - 1;
        return status == FR_OK ? finish_group(d, from, 0, "f") : status;
    }
    struct fr_token value;
    const uint8_t *stopped = d->cursor.at; /* the place where the sample's fault was found */
    return_to(&d->cursor, &mark);
    unsigned field =
        find_key(d, FR_FIELD_F | FR_FIELD_ITEMS | FR_FIELD_N | FR_FIELD_COLS | FR_FIELD_G | FR_FIELD_SHARED, &value);
    if (field == FR_FIELD_F || field == 0) {
        d->cursor.at = stopped;
        return status != FR_OK ? status : fr_decode_fail(d, FR_E_INVALID, "keys of two forms");
    }
    fr_staging_drop(&d->staging);
    if (any_unknown)
        d->staging.unknown = unknown;
    else if (d->staging.any_unknown)
        memset(&d->staging.unknown, 0, sizeof(d->staging.unknown));
    d->staging.any_unknown = any_unknown;
    d->future = FR_FUTURE_NONE;
    d->path = path;
    if (field == FR_FIELD_N || field == FR_FIELD_COLS || field == FR_FIELD_G)
        return parse_block(d, &mark);
    return_to(&d->cursor, &mark);
    return parse_group(d);
}
