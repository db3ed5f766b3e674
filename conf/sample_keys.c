/* `key`: the name of a slot or a label in samples if it differs from its own name. Any text of a
 * bounded size is allowed, because foreign names need not follow our grammar.
 *
 * A key is unique among the keys of its map, in which a slot or label without a key has its name.
 * Derived labels and computed slots are not in samples and have no key.
 *
 * With `ingest.envelope` records are flat, and keys are paths: those of slots in the object `f`,
 * those of labels and the event time in the record. Each value has one path, and no path leads
 * through the value of another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "forms.h"

const char *fr_conf_slot_key(const struct fr_conf_slot *slot)
{
    return slot->key ? slot->key : slot->name;
}

const char *fr_conf_label_key(const struct fr_conf_label *label)
{
    return label->key ? label->key : label->name;
}

const char *fr_conf_envelope_features(const struct fr_conf *conf)
{
    const char *f = conf->ingest.envelope_f;
    return f && strcmp(f, "rest") != 0 ? f : NULL;
}

FR_READ(sample_key)
{
    const char *text = fr_loader_text(loader, node, path, "the key in samples");
    if (!text)
        return;
    size_t size = strlen(text);
    if (size > FR_SAMPLE_KEY_MAX)
        fr_refuse(loader, node, path, "%zu bytes; expected a key of at most %d", size, FR_SAMPLE_KEY_MAX);
    else if (!fr_utf8_valid((const uint8_t *)text, size))
        fr_refuse(loader, node, path, "not UTF-8; expected a key as samples carry it");
    else
        *(char **)(void *)((char *)scope + option->offset) = fr_loader_keep(loader, text);
}

FR_SHOW(sample_key)
{
    char *const *key = (char *const *)(const void *)((const char *)scope + option->offset);
    return *key ? fr_tree_text(tree, *key) : NULL;
}

/* A key, and the entry of the file that has it. */
struct carried {
    const char *key;
    uint32_t entry;
};

static int by_key(const void *a, const void *b)
{
    const struct carried *one = a, *other = b;
    int order = strcmp(one->key, other->key);
    return order ? order : one->entry < other->entry ? -1 : 1;
}

static void refuse_twice(struct fr_loader *loader, const struct fr_node *node, const char *path, struct carried *keys,
                         uint32_t n)
{
    qsort(keys, n, sizeof(*keys), by_key);
    for (uint32_t i = 1; i < n; i++) { /* a refused name is empty */
        if (strcmp(keys[i - 1].key, keys[i].key) != 0 || keys[i].key[0] == '\0')
            continue;
        char at[FR_PATH_MAX];
        fr_path_entry(at, path, node, keys[i].entry);
        fr_refuse(loader, node->values[keys[i].entry], at,
                  "`%.80s` is also the key of another slot or label; give each one its own", keys[i].key);
    }
}

void fr_loader_slot_keys(struct fr_loader *loader, const struct fr_node *node, const char *path)
{
    const struct fr_conf *conf = loader->conf;
    struct carried keys[FR_SLOTS_MAX];
    uint32_t n = 0;
    bool own = false;
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        own |= conf->slots[i].key != NULL;
        if (conf->slots[i].source == FR_SOURCE_SAMPLE)
            keys[n++] = (struct carried){fr_conf_slot_key(&conf->slots[i]), i};
    }
    if (own)
        refuse_twice(loader, node, path, keys, n);
}

void fr_loader_label_keys(struct fr_loader *loader, const struct fr_node *node, const char *path)
{
    const struct fr_conf *conf = loader->conf;
    struct carried keys[FR_LABELS_MAX];
    uint32_t n = 0;
    bool own = false;
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        own |= conf->labels[i].key != NULL;
        if (conf->labels[i].of == FR_NO_INDEX)
            keys[n++] = (struct carried){fr_conf_label_key(&conf->labels[i]), i};
    }
    if (own)
        refuse_twice(loader, node, path, keys, n);
}

/* ---- flat records ---- */

enum { FLAT_PATH_MAX = 2 * FR_SAMPLE_KEY_MAX + 2, WHAT_MAX = FR_NAME_MAX + 16 };

struct flat_path {
    char text[FLAT_PATH_MAX], what[WHAT_MAX];
};

/* Dots of a path. A value is inside one object more than its path has dots, and may itself be a
 * list of pairs; a reader of records goes FR_DEPTH_MAX deep. */
_Static_assert(FR_FLAT_DOTS_MAX == FR_DEPTH_MAX - 3, "a list of pairs at the end of a path fits into a record");

static uint32_t count_dots(const char *path)
{
    uint32_t n = 0;
    for (; (path = strchr(path, '.')); path++)
        n++;
    return n;
}

/* Returns whether the value at `path` is the value at `other` or inside it. */
static bool leads_through(const char *path, const char *other)
{
    size_t size = strlen(other);
    return strncmp(path, other, size) == 0 && (path[size] == '\0' || path[size] == '.');
}

static uint32_t collect_paths(const struct fr_conf *conf, struct flat_path *paths)
{
    const char *f = fr_conf_envelope_features(conf);
    uint32_t n = 0;
    if (conf->ingest.envelope_t) {
        snprintf(paths[n].text, FLAT_PATH_MAX, "%s", conf->ingest.envelope_t);
        snprintf(paths[n++].what, WHAT_MAX, "the event time");
    }
    for (uint32_t l = 0; l < conf->n_labels; l++) {
        if (conf->labels[l].of != FR_NO_INDEX)
            continue;
        snprintf(paths[n].text, FLAT_PATH_MAX, "%s", fr_conf_label_key(&conf->labels[l]));
        snprintf(paths[n++].what, WHAT_MAX, "label `%s`", conf->labels[l].name);
    }
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (conf->slots[s].source != FR_SOURCE_SAMPLE)
            continue;
        snprintf(paths[n].text, FLAT_PATH_MAX, "%s%s%s", f ? f : "", f ? "." : "", fr_conf_slot_key(&conf->slots[s]));
        snprintf(paths[n++].what, WHAT_MAX, "slot `%s`", conf->slots[s].name);
    }
    return n;
}

void fr_loader_check_paths(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_node *node = fr_node_get(fr_node_get(root, "ingest"), "envelope");
    if (!node || !conf->ingest.envelope)
        return;
    struct flat_path *paths = fr_arena_take(&loader->arena, (conf->n_slots + FR_LABELS_MAX + 1) * sizeof(*paths));
    uint32_t n = collect_paths(conf, paths);
    for (uint32_t i = 0; i < n; i++) {
        if (count_dots(paths[i].text) > FR_FLAT_DOTS_MAX) {
            fr_refuse(
                loader, node, "ingest.envelope",
                "%s is at `%.80s` of a record, a path with more than %d dots, which is deeper than a record may nest",
                paths[i].what, paths[i].text, FR_FLAT_DOTS_MAX);
            return;
        }
        for (uint32_t k = 0; k < n; k++) {
            if (k == i || (k > i && strcmp(paths[i].text, paths[k].text) == 0) ||
                !leads_through(paths[i].text, paths[k].text))
                continue;
            fr_refuse(loader, node, "ingest.envelope",
                      "%s is at `%.80s` of a record and %s at `%.80s`; give each a path of its own (t, f, and `key` of "
                      "slots and labels)",
                      paths[k].what, paths[k].text, paths[i].what, paths[i].text);
            return;
        }
    }
}
