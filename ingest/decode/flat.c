/* Records in the shape of ordinary events: an object whose keys are slots, labels and the event
 * time, as {"user": 5, "clicked": true, "ts": 1767225600} (docs/formats/samples.md, "Flat
 * records"). `ingest.envelope` of the configuration asks for this form, and then no other is read.
 *
 * A name of the configuration is a path: `user.id` is the key `id` in the object `user`. The record
 * is read once, front to back. Each key makes the path of its value, and the path decides: a label
 * or the event time, a slot, an object that leads to one of these, or a name that nobody reads,
 * whose value is passed over and counted (unknown.c). The configuration has refused paths of which
 * one lies inside another.
 *
 * It does not judge values: those of slots are values.c's, those of labels fields.c's.
 *
 * Owner: the thread that decodes. */
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    /* No path of a configuration is longer: a key of `f`, a dot, a key of a slot. */
    PATH_MAX_BYTES = 2 * FR_SAMPLE_KEY_MAX + 1,
    NO_SLOTS = -1,
    EVENT_TIME = -1,
};

/* Larger numbers are no time in any unit; below, an int64_t has room for milliseconds. */
static const double TIME_MAX = 1e17;

/* A path that the record may have once. */
struct known_path {
    char *text;
    uint32_t size;
    int32_t label; /* EVENT_TIME: none; not used for objects */
    uint64_t seen; /* serial of the last sample that had it */
};

struct fr_flat {
    struct known_path values[FR_LABELS_MAX + 1]; /* the labels and the event time */
    uint32_t n_values;
    /* the proper beginnings, up to a dot, of all paths */
    struct known_path *objects;
    uint32_t n_objects;
    uint32_t features; /* the object with the slots; n_objects: the record itself */
    uint32_t previous; /* slot before the next one, for the guess of names.h */
    /* the path of the object that is read, with a dot at its end; a key, however long, follows */
    uint8_t path[PATH_MAX_BYTES + FR_STRING_MAX + 1];
};

/* ---- what the configuration reads ---- */

static struct known_path *find_path(struct known_path *paths, uint32_t n, const struct fr_token *path)
{
    for (uint32_t i = 0; i < n; i++)
        if (paths[i].size == path->size && memcmp(paths[i].text, path->bytes, path->size) == 0)
            return &paths[i];
    return NULL;
}

static struct known_path path_of(const char *text, size_t size, int32_t label)
{
    struct known_path path = {.text = fr_alloc(size + 1, 1), .size = (uint32_t)size, .label = label};
    memcpy(path.text, text, size);
    return path;
}

/* Adds the first `size` bytes of the text, once. */
static void add_object(struct fr_flat *flat, const char *text, size_t size)
{
    const struct fr_token path = {.kind = FR_TOKEN_STRING, .size = (uint32_t)size, .bytes = (const uint8_t *)text};
    if (find_path(flat->objects, flat->n_objects, &path))
        return;
    flat->objects = fr_realloc(flat->objects, flat->n_objects + 1, sizeof(*flat->objects));
    flat->objects[flat->n_objects++] = path_of(text, size, EVENT_TIME);
}

static void add_objects(struct fr_flat *flat, const char *text)
{
    for (const char *dot = strchr(text, '.'); dot; dot = strchr(dot + 1, '.'))
        add_object(flat, text, (size_t)(dot - text));
}

static void add_value(struct fr_flat *flat, const char *text, int32_t label)
{
    flat->values[flat->n_values++] = path_of(text, strlen(text), label);
    add_objects(flat, text);
}

/* The objects on the way to the slots. */
static void add_slots(struct fr_flat *flat, const struct fr_conf *conf)
{
    const char *features = fr_conf_envelope_features(conf);
    char path[PATH_MAX_BYTES + 1];
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (conf->slots[s].source != FR_SOURCE_SAMPLE)
            continue;
        snprintf(path, sizeof(path), "%s%s%s", features ? features : "", features ? "." : "",
                 fr_conf_slot_key(&conf->slots[s]));
        add_objects(flat, path);
    }
    if (features) {
        snprintf(path, sizeof(path), "%s.", features);
        add_objects(flat, path);
    }
    flat->features = flat->n_objects;
    for (uint32_t i = 0; features && i < flat->n_objects; i++)
        if (strcmp(flat->objects[i].text, features) == 0)
            flat->features = i;
}

struct fr_flat *fr_decode_flat_new(const struct fr_conf *conf)
{
    struct fr_flat *flat = fr_alloc(1, sizeof(*flat));
    if (conf->ingest.envelope_t)
        add_value(flat, conf->ingest.envelope_t, EVENT_TIME);
    for (uint32_t l = 0; l < conf->n_sample_labels; l++)
        add_value(flat, fr_conf_label_key(&conf->labels[l]), (int32_t)l);
    add_slots(flat, conf);
    return flat;
}

void fr_decode_flat_free(struct fr_flat *flat)
{
    if (!flat)
        return;
    for (uint32_t i = 0; i < flat->n_values; i++)
        free(flat->values[i].text);
    for (uint32_t i = 0; i < flat->n_objects; i++)
        free(flat->objects[i].text);
    free(flat->objects);
    free(flat);
}

/* ---- values ---- */

static enum fr_status read_time(struct fr_decoder *d, const struct fr_token *token)
{
    double value = 0.0;
    if (token->kind == FR_TOKEN_NIL)
        return FR_OK; /* the timestamp of the message */
    enum fr_status status = fr_decode_f64(token, &value);
    if (status == FR_E_INVALID)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a Unix time in seconds or milliseconds was expected",
                              fr_decode_kind(token));
    if (status != FR_OK || value >= TIME_MAX)
        return fr_decode_fail(d, FR_E_INVALID, "the number is no Unix time in seconds or milliseconds");
    if (value > 0.0 && value * 1000.0 < (double)FR_SECONDS_MAX)
        return fr_decode_fail(d, FR_E_INVALID, "%.9g is no Unix time in seconds or milliseconds later than March 1973",
                              value);
    int64_t *t_ms = &d->staging.t_ms[d->at];
    if (value <= -TIME_MAX)
        *t_ms = -1;
    else
        *t_ms = (int64_t)(value < (double)FR_SECONDS_MAX ? value * 1000.0 : value);
    return fr_decode_event_time(d, *t_ms);
}

static enum fr_status read_value(struct fr_decoder *d, struct known_path *path)
{
    struct fr_token token;
    bool time = path->label == EVENT_TIME;
    d->path.field = time ? "t" : "y";
    d->path.name = time ? NULL : d->conf->labels[path->label].name;
    if (path->seen == d->serial)
        return fr_decode_fail(d, FR_E_INVALID, "duplicate key");
    path->seen = d->serial;
    enum fr_status status = fr_decode_next(d, &token);
    if (status != FR_OK)
        return status;
    return time ? read_time(d, &token) : fr_decode_label(d, (uint32_t)path->label, &token);
}

static enum fr_status read_slot(struct fr_decoder *d, const struct fr_slot_map *map, int32_t slot)
{
    struct fr_token token;
    d->path.field = "f";
    d->flat->previous = (uint32_t)slot;
    enum fr_status status = fr_decode_claim_slot(d, map, slot);
    if (status != FR_OK || (status = fr_decode_next(d, &token)) != FR_OK)
        return status;
    if (token.kind == FR_TOKEN_BOOL) { /* an id or a number, 0 or 1 */
        token.kind = FR_TOKEN_UINT;
        token.u = (uint64_t)token.i;
    }
    return fr_decode_value(d, (uint32_t)slot, &d->staging.columns[slot].own, d->at, &token);
}

/* ---- objects ---- */

/* The object whose keys are read. */
struct object {
    uint32_t size; /* bytes of its path, with a dot at the end; 0: the record */
    int64_t slots; /* bytes of the path before those of slots' paths; NO_SLOTS: no slot is in it */
};

static enum fr_status read_object(struct fr_decoder *d, struct fr_slot_map *map, struct object object);

static enum fr_status enter(struct fr_decoder *d, struct fr_slot_map *map, struct object object,
                            struct known_path *known, const struct fr_token *path)
{
    struct fr_flat *flat = d->flat;
    struct fr_token token;
    if (known->seen == d->serial)
        return fr_decode_fail(d, FR_E_INVALID, "duplicate key %s", fr_decode_shown(d, path));
    known->seen = d->serial;
    uint32_t size = path->size;
    if (path->bytes != flat->path) /* a key of the record, which the next token may overwrite */
        memcpy(flat->path, path->bytes, size);
    const struct fr_token kept = {.kind = FR_TOKEN_STRING, .size = size, .bytes = flat->path};
    flat->path[size] = '.';
    bool features = known == flat->objects + flat->features;
    enum fr_status status = fr_decode_next(d, &token);
    if (status != FR_OK || (token.kind == FR_TOKEN_NIL && !features))
        return status;
    if (token.kind != FR_TOKEN_MAP)
        return fr_decode_fail(d, FR_E_INVALID, "%s at %s, where paths of the configuration expect an object",
                              fr_decode_kind(&token), fr_decode_shown(d, &kept));
    return read_object(d, map, (struct object){size + 1, features ? (int64_t)size + 1 : object.slots});
}

/* Passes over a value that nobody reads. */
static enum fr_status pass_unknown(struct fr_decoder *d, struct fr_slot_map *map, struct object object,
                                   const struct fr_token *key)
{
    if (object.slots != NO_SLOTS)
        return fr_decode_other_slot(d, map, key);
    if (d->conf->ingest.strict && (key->size < 2 || memcmp(key->bytes, "x_", 2) != 0))
        return fr_decode_fail(d, FR_E_INVALID, "unknown key %s (ingest.strict)", fr_decode_shown(d, key));
    return fr_decode_unknown_key(d, map, key);
}

static enum fr_status read_key(struct fr_decoder *d, struct fr_slot_map *map, struct object object,
                               const struct fr_token *key)
{
    struct fr_flat *flat = d->flat;
    struct fr_token path = *key;
    if (object.size > 0) {
        memcpy(flat->path + object.size, key->bytes, key->size);
        path.bytes = flat->path;
        path.size = object.size + key->size;
    }
    struct known_path *known = find_path(flat->values, flat->n_values, &path);
    if (known)
        return read_value(d, known);
    struct fr_token name = path;
    if (object.slots != NO_SLOTS) {
        name.bytes += object.slots;
        name.size -= (uint32_t)object.slots;
        int32_t slot = fr_decode_names_find(&d->names, &name, flat->previous);
        if (slot != FR_NO_INDEX)
            return read_slot(d, map, slot);
    }
    known = find_path(flat->objects, flat->n_objects, &path);
    return known ? enter(d, map, object, known, &path) : pass_unknown(d, map, object, &name);
}

static enum fr_status read_object(struct fr_decoder *d, struct fr_slot_map *map, struct object object)
{
    for (;;) {
        struct fr_token key;
        enum fr_status status = fr_decode_next(d, &key);
        if (status != FR_OK || key.kind == FR_TOKEN_END)
            return status;
        if (key.kind != FR_TOKEN_STRING)
            return fr_decode_fail(d, FR_E_INVALID, "%s as a key", fr_decode_kind(&key));
        if ((status = read_key(d, map, object, &key)) != FR_OK)
            return status;
        d->path.name = d->path.field = NULL;
    }
}

enum fr_status fr_decode_flat(struct fr_decoder *d)
{
    struct fr_flat *flat = d->flat;
    fr_staging_add(&d->staging, 1);
    d->at = d->staging.n_samples - 1;
    d->serial++;
    struct fr_slot_map map = {.serial = d->serial, .group = d->serial, .keys = &d->sample_keys, .scope = 1};
    flat->previous = d->names.n_slots + FR_NAMES_OWN;
    bool inside = flat->features < flat->n_objects;
    enum fr_status status = read_object(d, &map, (struct object){0, inside ? NO_SLOTS : 0});
    if (status == FR_OK && inside && flat->objects[flat->features].seen != d->serial)
        return fr_decode_fail(d, FR_E_INVALID, "the object that ingest.envelope.f names is missing");
    return status;
}
