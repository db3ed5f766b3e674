/* Packed columns of a block (MessagePack): little-endian arrays in bins, read whole.
 *
 * Every length is checked before a value is touched: bytes against widths, `l` against ids and
 * entries, `sl` against bytes. Sums are 64 bits wide and of fewer than 2^31 terms below 2^32, so
 * they do not overflow. The bins lie unaligned in the record, so numbers are loaded by memcpy.
 * Integer ids become keys in one loop without branches; that speed is the purpose of the form. */
#include "parse.h"

#include "base/hash.h"

enum { PACKED_B, PACKED_S, PACKED_SL, PACKED_L, PACKED_W, PACKED_KEYS };

/* A packed column: the contents of each of its keys. */
struct packed {
    struct packed_bytes {
        const uint8_t *bytes; /* NULL: absent */
        uint32_t size;
    } of[PACKED_KEYS];
};

static const char *const key_names[PACKED_KEYS] = {
    [PACKED_B] = "b", [PACKED_S] = "s", [PACKED_SL] = "sl", [PACKED_L] = "l", [PACKED_W] = "w"};

/* Reads a map after its first token; only keys whose bit is in `allowed` may occur. */
static enum fr_status parse_packed(struct fr_decoder *d, unsigned allowed, struct packed *packed)
{
    struct fr_token key, value;
    enum fr_status status;
    memset(packed, 0, sizeof(*packed));
    for (;;) {
        if ((status = fr_decode_next(d, &key)) != FR_OK || key.kind == FR_TOKEN_END)
            return status;
        unsigned k = PACKED_KEYS;
        if (key.kind == FR_TOKEN_STRING)
            for (k = 0; k < PACKED_KEYS; k++)
                if (key.size == strlen(key_names[k]) && memcmp(key.bytes, key_names[k], key.size) == 0)
                    break;
        if (k == PACKED_KEYS || !(allowed & 1u << k))
            return fr_decode_fail(d, FR_E_INVALID, "key %s in a packed column of this kind", fr_decode_shown(d, &key));
        if (packed->of[k].bytes)
            return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", key_names[k]);
        d->path.part = key_names[k];
        if ((status = fr_decode_next(d, &value)) != FR_OK)
            return status;
        if (value.kind != FR_TOKEN_BIN)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a bin was expected", fr_decode_kind(&value));
        packed->of[k] = (struct packed_bytes){value.bytes, value.size};
        d->path.part = NULL;
    }
}

/* Counts the elements of `width` bytes in a bin that the column has. */
static enum fr_status count_of(struct fr_decoder *d, const struct packed *packed, unsigned key, uint32_t width,
                               uint32_t *n)
{
    uint32_t size = packed->of[key].size;
    d->path.part = key_names[key];
    if (size % width)
        return fr_decode_fail(d, FR_E_INVALID, "%u bytes are no whole number of elements of %u", size, width);
    *n = size / width;
    d->path.part = NULL;
    return FR_OK;
}

enum fr_status fr_decode_packed_plain(struct fr_decoder *d, uint32_t width, const uint8_t **bytes, uint32_t *n)
{
    struct packed packed;
    enum fr_status status = parse_packed(d, 1u << PACKED_B, &packed);
    if (status != FR_OK)
        return status;
    *bytes = packed.of[PACKED_B].bytes;
    if (!*bytes)
        return fr_decode_fail(d, FR_E_INVALID, "b is missing");
    return count_of(d, &packed, PACKED_B, width, n);
}

enum fr_status fr_decode_check_rows(struct fr_decoder *d, struct fr_column_rows *rows, uint32_t n)
{
    rows->n = n;
    if (n > rows->limit || (rows->exact && n != rows->limit))
        return fr_decode_fail(d, FR_E_INVALID, "%u entries where %s%u were expected", n, rows->exact ? "" : "at most ",
                              rows->limit);
    return FR_OK;
}

static uint64_t sum_of(const uint8_t *lengths, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += fr_load_u32(lengths + 4 * (size_t)i);
    return sum;
}

/* ---- ids ---- */

static void integer_keys(const uint8_t *ids, uint32_t n, uint64_t seed, uint64_t *keys)
{
    for (uint32_t i = 0; i < n; i++)
        keys[i] = fr_fmix64(fr_load_u64(ids + 8 * (size_t)i) ^ seed);
}

static enum fr_status string_keys(struct fr_decoder *d, const struct fr_conf_slot *slot, const struct packed *packed,
                                  uint32_t n, uint64_t *keys)
{
    const uint8_t *at = packed->of[PACKED_S].bytes, *lengths = packed->of[PACKED_SL].bytes;
    d->path.part = "s";
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = fr_load_u32(lengths + 4 * (size_t)i);
        d->path.index = i;
        if (size > FR_STRING_MAX)
            return fr_decode_fail(d, FR_E_LIMIT, "string longer than the limit (%d bytes)", FR_STRING_MAX);
        if (!fr_utf8_valid(at, size))
            return fr_decode_fail(d, FR_E_INVALID, "string is not UTF-8");
        keys[i] = fr_key_string(at, size, slot->seed, slot->id_raw);
        at += size;
    }
    d->path.index = -1;
    d->path.part = NULL;
    return FR_OK;
}

/* Checks that all keys that belong together are there and that their lengths fit each other. The
 * column then has *n_ids ids in *n_rows entries. */
static enum fr_status check_ids(struct fr_decoder *d, const struct packed *packed, uint32_t *n_ids, uint32_t *n_rows)
{
    enum fr_status status;
    const struct packed_bytes *of = packed->of;
    bool strings = of[PACKED_S].bytes || of[PACKED_SL].bytes;
    if (strings == (of[PACKED_B].bytes != NULL))
        return fr_decode_fail(d, FR_E_INVALID, strings ? "both b and s" : "neither b nor s");
    if (strings && (!of[PACKED_S].bytes || !of[PACKED_SL].bytes))
        return fr_decode_fail(d, FR_E_INVALID, "%s is missing", of[PACKED_S].bytes ? "sl" : "s");
    status = count_of(d, packed, strings ? PACKED_SL : PACKED_B, strings ? 4 : 8, n_ids);
    if (status != FR_OK)
        return status;
    uint64_t sum = strings ? sum_of(of[PACKED_SL].bytes, *n_ids) : 0;
    d->path.part = "sl";
    if (strings && sum != of[PACKED_S].size)
        return fr_decode_fail(d, FR_E_INVALID, "%llu bytes of strings, s has %u", (unsigned long long)sum,
                              of[PACKED_S].size);
    *n_rows = *n_ids;
    if (of[PACKED_L].bytes) {
        if ((status = count_of(d, packed, PACKED_L, 4, n_rows)) != FR_OK)
            return status;
        d->path.part = "l";
        sum = sum_of(of[PACKED_L].bytes, *n_rows);
        if (sum != *n_ids)
            return fr_decode_fail(d, FR_E_INVALID, "%llu ids, the column has %u", (unsigned long long)sum, *n_ids);
    }
    d->path.part = "w";
    if (of[PACKED_W].bytes && of[PACKED_W].size != 4 * (uint64_t)*n_ids)
        return fr_decode_fail(d, FR_E_INVALID, "%u bytes of weights for %u ids", of[PACKED_W].size, *n_ids);
    d->path.part = NULL;
    return FR_OK;
}

static enum fr_status take_weights(struct fr_decoder *d, const uint8_t *bytes, struct fr_stage_part *part)
{
    part->weighted = true;
    fr_staging_reserve_weights(part);
    d->path.part = "w";
    for (uint32_t k = 0; k < part->n_keys; k++) {
        part->weights[k] = fr_load_f32(bytes + 4 * (size_t)k);
        d->path.index = k;
        if (!__builtin_isfinite(part->weights[k]))
            return fr_decode_fail(d, FR_E_INVALID, "weight of an id is not finite");
        if (!(__builtin_fabsf(part->weights[k]) <= d->weight_max))
            return fr_decode_id_weight(d, part->weights[k]);
    }
    d->path.index = -1;
    d->path.part = NULL;
    return FR_OK;
}

/* Makes the offsets of entries from `l`. Entries over the limit lose their first ids. Returns
 * how many ids were cut. */
static uint64_t cut_entries(struct fr_stage_part *part, const uint8_t *lengths, uint32_t n_rows, uint32_t ids_max)
{
    uint32_t from = 0, to = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t count = fr_load_u32(lengths + 4 * (size_t)i);
        uint32_t cut = count > ids_max ? count - ids_max : 0;
        if (to != from + cut && count > cut) {
            memmove(part->keys + to, part->keys + from + cut, (count - cut) * sizeof(*part->keys));
            if (part->weighted)
                memmove(part->weights + to, part->weights + from + cut, (count - cut) * sizeof(*part->weights));
        }
        from += count;
        to += count - cut;
        part->begin[i + 1] = to;
    }
    part->n_keys = to;
    return from - to;
}

static enum fr_status packed_ids(struct fr_decoder *d, uint32_t s, struct fr_stage_part *part,
                                 struct fr_column_rows *rows)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    struct packed packed;
    uint32_t n_ids = 0, n_rows = 0;
    enum fr_status status = parse_packed(d, (1u << PACKED_KEYS) - 1, &packed);
    if (status == FR_OK)
        status = check_ids(d, &packed, &n_ids, &n_rows);
    if (status == FR_OK)
        status = fr_decode_check_rows(d, rows, n_rows);
    if (status != FR_OK)
        return status;
    FR_CHECK(part->n_entries == 0 && part->n_keys == 0);
    fr_staging_reserve_entries(part, n_rows, false);
    fr_staging_reserve_keys(part, n_ids);
    if (packed.of[PACKED_B].bytes)
        integer_keys(packed.of[PACKED_B].bytes, n_ids, slot->seed, part->keys);
    else if ((status = string_keys(d, slot, &packed, n_ids, part->keys)) != FR_OK)
        return status;
    part->n_keys = n_ids;
    if (packed.of[PACKED_W].bytes && (status = take_weights(d, packed.of[PACKED_W].bytes, part)) != FR_OK)
        return status;
    for (uint32_t i = 0; i < n_rows; i++)
        part->at[i] = i;
    if (packed.of[PACKED_L].bytes) {
        uint64_t cut = cut_entries(part, packed.of[PACKED_L].bytes, n_rows, d->staging.columns[s].ids_max);
        if (!fr_slot_has_steps(slot->kind))
            d->staging.excess_ids += cut;
    } else {
        for (uint32_t i = 0; i <= n_rows; i++)
            part->begin[i] = i;
    }
    part->n_entries = n_rows;
    for (uint32_t i = 0; packed.of[PACKED_W].bytes && i < n_rows; i++) {
        d->path.entry = i;
        if ((status = fr_decode_check_mean(d, s, part, i)) != FR_OK)
            return status;
    }
    d->path.entry = -1;
    return FR_OK;
}

/* ---- numbers ---- */

static enum fr_status packed_dense(struct fr_decoder *d, uint32_t s, struct fr_stage_part *part,
                                   struct fr_column_rows *rows)
{
    uint32_t dim = d->conf->slots[s].dim, n = 0;
    const uint8_t *bytes = NULL;
    enum fr_status status = fr_decode_packed_plain(d, 4 * dim, &bytes, &n);
    if (status == FR_OK)
        status = fr_decode_check_rows(d, rows, n);
    if (status != FR_OK)
        return status;
    fr_staging_reserve_entries(part, n, true);
    d->path.part = "b";
    if ((status = fr_decode_dense_packed(d, s, part, bytes, n)) != FR_OK)
        return status;
    d->path.part = NULL;
    for (uint32_t i = 0; i < n; i++)
        part->at[i] = i;
    part->n_entries = n;
    return FR_OK;
}

enum fr_status fr_decode_packed_slot(struct fr_decoder *d, uint32_t slot, struct fr_stage_part *part,
                                     struct fr_column_rows *rows)
{
    if (fr_slot_has_numbers(d->staging.columns[slot].kind))
        return packed_dense(d, slot, part, rows);
    return packed_ids(d, slot, part, rows);
}
