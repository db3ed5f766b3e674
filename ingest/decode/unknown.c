/* Slots, labels, tasks and envelope keys that records carry and the configuration does not have.
 * Producers usually change before the configuration does, so such keys are passed over and
 * counted, the first few names one by one.
 *
 * What one record adds is kept apart until the record takes effect: a map that is read again in
 * another form, or a record that turns out to be malformed, counts nothing, and one that is decoded
 * a second time, because it was held or was cut by a round, counts once.
 *
 * Owner: the thread that decodes. */
#include "parse.h"

#include <stdio.h>
#include <string.h>

/* One set holds the keys of all maps that are open at the same time. An index and a name of the
 * same bytes are different keys in it. */
enum { SCOPE_INDEX = 2 };

static void count(struct fr_decoder *d, uint64_t *place, uint64_t times)
{
    *place += times;
    d->staging.any_unknown = true;
}

/* Makes a name of a key: the letter of the map that the key is in ("y."), then the key without
 * its quotes. */
static void name_of(struct fr_decoder *d, char map, const struct fr_token *key, char out[static FR_UNKNOWN_NAME_MAX])
{
    _Static_assert(FR_NAME_SHOWN_MAX + 8 <= FR_UNKNOWN_NAME_MAX, "a shown name fits");
    const char *shown = fr_decode_shown(d, key), prefix[] = {map, map ? '.' : 0, 0};
    if (*shown != '"') { /* the key is an index */
        snprintf(out, FR_UNKNOWN_NAME_MAX, "%s%s", prefix, shown);
        return;
    }
    const char *quote = strrchr(++shown, '"');
    snprintf(out, FR_UNKNOWN_NAME_MAX, "%s%.*s%s", prefix, (int)(quote - shown), shown, quote + 1);
}

static bool is_known(const struct fr_known_key *known, char map, const struct fr_token *key, const void *bytes,
                     size_t size)
{
    return known->size == size && known->kind == key->kind && known->map == map &&
           memcmp(known->bytes, bytes, size < sizeof(known->bytes) ? size : sizeof(known->bytes)) == 0;
}

/* Returns the place of a key: one of the first few, to which the key is added if it is new, or
 * else the place of all others. Every sample may carry the same unknown keys, so the bytes of
 * keys are compared, and a name is made only of a new key. Different keys may have the same
 * name, because a long name is cut. */
static uint32_t place_of(struct fr_decoder *d, bool slots, char map, const struct fr_token *key)
{
    struct fr_unknown_names *names = slots ? &d->unknown.slots : &d->unknown.keys;
    struct fr_known_key *known = slots ? d->known_slots : d->known_keys;
    bool text = key->kind == FR_TOKEN_STRING;
    const void *bytes = text ? (const void *)key->bytes : &key->u;
    size_t size = text ? key->size : sizeof(key->u);
    for (uint32_t i = 0; i < names->n; i++)
        if (is_known(&known[i], map, key, bytes, size))
            return i;
    if (names->n == FR_UNKNOWN_NAMES_MAX && size <= FR_NAME_SHOWN_MAX)
        return FR_UNKNOWN_OTHERS;
    char name[FR_UNKNOWN_NAME_MAX];
    name_of(d, map, key, name);
    for (uint32_t i = 0; i < names->n; i++)
        if (strcmp(names->names[i], name) == 0)
            return i;
    if (names->n == FR_UNKNOWN_NAMES_MAX)
        return FR_UNKNOWN_OTHERS;
    struct fr_known_key *new = &known[names->n];
    *new = (struct fr_known_key){.map = map, .kind = key->kind, .size = size};
    memcpy(new->bytes, bytes, size < sizeof(new->bytes) ? size : sizeof(new->bytes));
    snprintf(names->names[names->n], FR_UNKNOWN_NAME_MAX, "%s", name);
    return names->n++;
}

static enum fr_status duplicate(struct fr_decoder *d, const struct fr_token *key)
{
    return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(d, key));
}

enum fr_status fr_decode_unknown_slot(struct fr_decoder *d, const struct fr_slot_map *map, const struct fr_token *key)
{
    struct fr_token index = *key;
    uint64_t number = key->u;
    bool named = key->kind == FR_TOKEN_STRING;
    if (!named) {
        index.bytes = (const uint8_t *)&number;
        index.size = sizeof(number);
    }
    if (!fr_key_set_add(map->keys, map->serial, named ? map->scope : map->scope + SCOPE_INDEX, named ? key : &index))
        return duplicate(d, key);
    count(d, &d->staging.unknown.slots[place_of(d, true, 0, key)], 1);
    return fr_decode_pass(d);
}

enum fr_status fr_decode_unknown_member(struct fr_decoder *d, struct fr_members *members, const struct fr_token *key)
{
    if (members->serial == 0)
        members->serial = ++d->serial;
    if (!fr_key_set_add(&d->member_keys, members->serial, 0, key))
        return duplicate(d, key);
    count(d, &d->staging.unknown.keys[place_of(d, false, d->path.field[0], key)], members->times);
    return fr_decode_pass(d);
}

enum fr_status fr_decode_unknown_key(struct fr_decoder *d, struct fr_slot_map *map, const struct fr_token *key)
{
    if (!fr_key_set_add(map->keys, map->serial, 0, key))
        return duplicate(d, key);
    /* keys that producers may use by agreement: their names are not listed */
    uint32_t place = FR_UNKNOWN_EXTRA;
    if (key->size < 2 || memcmp(key->bytes, "x_", 2) != 0)
        place = place_of(d, false, 0, key);
    count(d, &d->staging.unknown.keys[place], 1);
    return fr_decode_pass(d);
}

void fr_decode_unused_score(struct fr_decoder *d, const char *task)
{
    const struct fr_token key = {
        .kind = FR_TOKEN_STRING, .size = (uint32_t)strlen(task), .bytes = (const uint8_t *)task};
    count(d, &d->staging.unknown.keys[place_of(d, false, 'p', &key)], 1);
}

void fr_decode_effective(struct fr_decoder *d)
{
    const struct fr_staging *staging = &d->staging;
    for (uint32_t i = 0; staging->any_unknown && i < FR_UNKNOWN_PLACES; i++) {
        d->unknown.slots.counts[i] += staging->unknown.slots[i];
        d->unknown.keys.counts[i] += staging->unknown.keys[i];
    }
}

void fr_decode_unknown_total(struct fr_decoder *d)
{
    struct fr_staging *staging = &d->staging;
    for (uint32_t i = 0; staging->any_unknown && i < FR_UNKNOWN_PLACES; i++) {
        staging->unknown_slots += staging->unknown.slots[i];
        staging->unknown_keys += staging->unknown.keys[i];
    }
}
