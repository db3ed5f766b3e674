/* `key`: the name of a slot or a label in samples if it differs from its own name. Any text of a
 * bounded size is allowed, because foreign names need not follow our grammar.
 *
 * A key is unique among the keys of its map, in which a slot or label without a key has its name.
 * Derived labels and computed slots are not in samples and have no key. */
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
