/* The keys of an envelope, for samples, groups and blocks alike: fields, duplicates, keys of
 * another form, and keys of no form.
 *
 * The values of fields are not read here.
 *
 * Owner: the thread that decodes. */
#include "parse.h"

unsigned fr_decode_field(const struct fr_token *key)
{
    static const uint16_t letters[] = {
        ['f'] = FR_FIELD_F, ['y'] = FR_FIELD_Y, ['t'] = FR_FIELD_T, ['w'] = FR_FIELD_W, ['u'] = FR_FIELD_U,
        ['s'] = FR_FIELD_S, ['p'] = FR_FIELD_P, ['n'] = FR_FIELD_N, ['g'] = FR_FIELD_G,
    };
    if (key->kind != FR_TOKEN_STRING)
        return 0;
    const uint8_t *b = key->bytes;
    switch (key->size) {
    case 1:
        return b[0] < FR_ARRAY_LEN(letters) ? letters[b[0]] : 0;
    case 2:
        return memcmp(b, "id", 2) == 0 ? FR_FIELD_ID : 0;
    case 4:
        return memcmp(b, "cols", 4) == 0 ? FR_FIELD_COLS : 0;
    case 5:
        return memcmp(b, "items", 5) == 0 ? FR_FIELD_ITEMS : 0;
    case 6:
        return memcmp(b, "shared", 6) == 0 ? FR_FIELD_SHARED : 0;
    default:
        return 0;
    }
}

/* Handles a key that is no field of the form: a key of another form is a fault, any other key is
 * passed over. */
static enum fr_status other_key(struct fr_decoder *d, const struct fr_token *key, unsigned allowed,
                                struct fr_slot_map *map)
{
    if (key->kind != FR_TOKEN_STRING)
        return fr_decode_fail(d, FR_E_INVALID, "%s as an envelope key", fr_decode_kind(key));
    unsigned field = fr_decode_field(key);
    if (field && allowed == FR_FIELDS_SAMPLE && d->path.sub >= 0)
        return fr_decode_fail(d, FR_E_INVALID, "key %s in an item of a group", fr_decode_shown(d, key));
    if (field)
        return fr_decode_fail(d, FR_E_INVALID, "keys of two forms (%s)", fr_decode_shown(d, key));
    if (d->conf->ingest.strict && (key->size < 2 || memcmp(key->bytes, "x_", 2) != 0))
        return fr_decode_fail(d, FR_E_INVALID, "unknown key %s (ingest.strict)", fr_decode_shown(d, key));
    return fr_decode_unknown_key(d, map, key);
}

enum fr_status fr_decode_envelope(struct fr_decoder *d, unsigned allowed, unsigned *seen, struct fr_slot_map *map,
                                  unsigned *field)
{
    struct fr_token key;
    for (;;) {
        enum fr_status status = fr_decode_next(d, &key);
        if (status != FR_OK)
            return status;
        *field = 0;
        if (key.kind == FR_TOKEN_END)
            return FR_OK;
        unsigned found = fr_decode_field(&key);
        if (found & allowed) {
            if (*seen & found)
                return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(d, &key));
            *seen |= *field = found;
            return FR_OK;
        }
        if (found && allowed == FR_FIELDS_SAMPLE && !(*seen & FR_FIELD_F) && d->path.sub < 0) {
            *field = found; /* a key of another form: the caller decides */
            return FR_OK;
        }
        if ((status = other_key(d, &key, allowed, map)) != FR_OK)
            return status;
    }
}
