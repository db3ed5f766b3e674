/* What records carry and nobody reads: slots, labels, tasks and envelope keys that the
 * configuration does not have. Producers change first, so these are passed over and counted, the
 * first few names one by one.
 *
 * What one record adds is kept apart until the record is accepted: a map that is read again in
 * another form, or a record that turns out to be malformed, counts nothing.
 *
 * Owner: the thread that decodes. */
#include "parse.h"

#include <stdio.h>
#include <string.h>

/* In one set stand keys of maps that are open at once. An index and a name of the same bytes are
 * two keys there. */
enum { SCOPE_INDEX = 2 };

/* The place of a name among the first few, which become known here; else that of all others. */
static uint32_t place_of(struct fr_unknown_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->n; i++)
        if (strcmp(names->names[i], name) == 0)
            return i;
    if (names->n == FR_UNKNOWN_NAMES_MAX)
        return FR_UNKNOWN_OTHERS;
    snprintf(names->names[names->n], FR_UNKNOWN_NAME_MAX, "%s", name);
    return names->n++;
}

static void count(struct fr_decoder *d, uint64_t *place, uint64_t times)
{
    *place += times;
    d->staging.any_unknown = true;
}

/* A key as a name: without its quotes, after the name of the map it stands in ("y."). */
static void name_of(struct fr_decoder *d, const char *map, const struct fr_token *key,
                    char out[static FR_UNKNOWN_NAME_MAX])
{
    _Static_assert(FR_NAME_SHOWN_MAX + 8 <= FR_UNKNOWN_NAME_MAX, "a shown name fits");
    const char *shown = fr_decode_shown(d, key);
    if (*shown != '"') { /* an index */
        snprintf(out, FR_UNKNOWN_NAME_MAX, "%s%s", map, shown);
        return;
    }
    const char *quote = strrchr(++shown, '"');
    snprintf(out, FR_UNKNOWN_NAME_MAX, "%s%.*s%s", map, (int)(quote - shown), shown, quote + 1);
}

static enum fr_status duplicate(struct fr_decoder *d, const struct fr_token *key)
{
    return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(d, key));
}

enum fr_status fr_decode_unknown_slot(struct fr_decoder *d, const struct fr_slot_map *map, const struct fr_token *key)
{
    char name[FR_UNKNOWN_NAME_MAX];
    struct fr_token index = *key;
    uint64_t number = key->u;
    bool named = key->kind == FR_TOKEN_STRING;
    if (!named) {
        index.bytes = (const uint8_t *)&number;
        index.size = sizeof(number);
    }
    if (!fr_key_set_add(map->keys, map->serial, named ? map->scope : map->scope + SCOPE_INDEX, named ? key : &index))
        return duplicate(d, key);
    name_of(d, "", key, name);
    count(d, &d->staging.unknown.slots[place_of(&d->unknown.slots, name)], 1);
    return fr_decode_pass(d);
}

enum fr_status fr_decode_unknown_member(struct fr_decoder *d, struct fr_members *members, const struct fr_token *key)
{
    char name[FR_UNKNOWN_NAME_MAX], map[4];
    if (members->serial == 0)
        members->serial = ++d->serial;
    if (!fr_key_set_add(&d->member_keys, members->serial, 0, key))
        return duplicate(d, key);
    snprintf(map, sizeof(map), "%.1s.", d->path.field);
    name_of(d, map, key, name);
    count(d, &d->staging.unknown.keys[place_of(&d->unknown.keys, name)], members->times);
    return fr_decode_pass(d);
}

enum fr_status fr_decode_unknown_key(struct fr_decoder *d, struct fr_slot_map *map, const struct fr_token *key)
{
    char name[FR_UNKNOWN_NAME_MAX];
    if (!fr_key_set_add(map->keys, map->serial, 0, key))
        return duplicate(d, key);
    uint32_t place = FR_UNKNOWN_EXTRA; /* producers' own, by agreement: no names */
    if (key->size < 2 || memcmp(key->bytes, "x_", 2) != 0) {
        name_of(d, "", key, name);
        place = place_of(&d->unknown.keys, name);
    }
    count(d, &d->staging.unknown.keys[place], 1);
    return fr_decode_pass(d);
}

void fr_decode_unused_score(struct fr_decoder *d, const char *task)
{
    char name[FR_UNKNOWN_NAME_MAX];
    snprintf(name, sizeof(name), "p.%.*s", FR_NAME_SHOWN_MAX, task);
    count(d, &d->staging.unknown.keys[place_of(&d->unknown.keys, name)], 1);
}

void fr_decode_unknown_accept(struct fr_decoder *d)
{
    struct fr_staging *staging = &d->staging;
    if (!staging->any_unknown)
        return;
    for (uint32_t i = 0; i < FR_UNKNOWN_PLACES; i++) {
        d->unknown.slots.counts[i] += staging->unknown.slots[i];
        d->unknown.keys.counts[i] += staging->unknown.keys[i];
        staging->unknown_slots += staging->unknown.slots[i];
        staging->unknown_keys += staging->unknown.keys[i];
    }
}
