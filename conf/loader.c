/* The walk of the option table over a tree, and functions that the readers of single forms share.
 *
 * Every default is a text of the table and is read like the user's texts. No step stops at the
 * first problem. */
#include "loader.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "scalar.h"

enum {
    TEXT_MAX = 65536,      /* chains of certificates are the longest texts */
    CONF_BLOCK = 64 << 10, /* of a configuration's memory: most need one or two */
};

void fr_path_join(char out[static FR_PATH_MAX], const char *path, const char *key)
{
    int n = path[0] != '\0' ? snprintf(out, FR_PATH_MAX, "%.300s.%.200s", path, key)
                            : snprintf(out, FR_PATH_MAX, "%.300s", key);
    FR_CHECK(n >= 0 && n < FR_PATH_MAX);
}

void fr_path_entry(char out[static FR_PATH_MAX], const char *path, const struct fr_node *node, uint32_t index)
{
    if (node->kind == FR_NODE_MAP)
        fr_path_join(out, path, node->keys[index]->text);
    else
        fr_path_index(out, path, index);
}

void fr_path_index(char out[static FR_PATH_MAX], const char *path, uint32_t index)
{
    char key[16];
    snprintf(key, sizeof(key), "%" PRIu32, index);
    fr_path_join(out, path, key);
}

bool fr_loader_unlike(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *expected)
{
    return fr_refuse(loader, node, path, "%s; expected %s", fr_node_kind_name(node), expected);
}

bool fr_loader_expect(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_node_kind kind)
{
    static const char *const expected[] = {
        [FR_NODE_SCALAR] = "a single value", [FR_NODE_LIST] = "a list", [FR_NODE_MAP] = "a map"};
    if (node->kind == kind)
        return true;
    return fr_loader_unlike(loader, node, path, expected[kind]);
}

bool fr_loader_sized(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_node_kind kind,
                     uint32_t min, uint32_t max)
{
    if (!fr_loader_expect(loader, node, path, kind) || (node->count >= min && node->count <= max))
        return node->kind == kind;
    if (min == max)
        return fr_refuse(loader, node, path, "%" PRIu32 " entries; expected %" PRIu32, node->count, min);
    return fr_refuse(loader, node, path, "%" PRIu32 " entries; expected %" PRIu32 " to %" PRIu32, node->count, min,
                     max);
}

const char *fr_loader_text(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *expected)
{
    if (node->kind != FR_NODE_SCALAR || fr_node_is_null(node))
        fr_loader_unlike(loader, node, path, expected);
    else if (node->text[0] == '\0') /* in quotes */
        fr_refuse(loader, node, path, "empty; expected %s", expected);
    else if (strlen(node->text) > TEXT_MAX)
        fr_refuse(loader, node, path, "longer than %d bytes; expected %s", TEXT_MAX, expected);
    else
        return node->text;
    return NULL;
}

struct fr_words *fr_loader_words(struct fr_loader *loader)
{
    loader->words.count = 0;
    return &loader->words;
}

/* A name from another system need not follow the grammar of our names. */
static const char *remedy_of(const char *path)
{
    bool keyed = strncmp(path, "slots.", 6) == 0 || strncmp(path, "labels.", 7) == 0;
    return keyed ? "; what samples call it goes into its option `key`" : "";
}

bool fr_loader_name(struct fr_loader *loader, const struct fr_node *node, const char *path,
                    char out[static FR_NAME_MAX])
{
    const char *text = fr_loader_text(loader, node, path, "a name");
    if (!text)
        return false;
    if (!fr_scalar_is_name(text))
        return fr_refuse(loader, node, path,
                         "`%.80s` is not a name; expected [A-Za-z_][A-Za-z0-9_]*, at most %d long%s", text,
                         FR_NAME_MAX - 1, remedy_of(path));
    memset(out, 0, FR_NAME_MAX);
    memcpy(out, text, strlen(text));
    return true;
}

/* The rule is Kafka's. */
bool fr_is_topic(const char *text)
{
    size_t size = strlen(text);
    return size > 0 && size <= 249 && strcmp(text, ".") != 0 && strcmp(text, "..") != 0 &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

void fr_loader_twice(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *what)
{
    fr_refuse(loader, node, path, "`%s` is there twice; expected every %s once", node->text, what);
}

void *fr_loader_alloc(struct fr_loader *loader, size_t count, size_t size)
{
    void *memory = fr_arena_take(&loader->conf->arena, count * size);
    return memset(memory, 0, count * size);
}

char *fr_loader_keep(struct fr_loader *loader, const char *text)
{
    return fr_node_copy_text(&loader->conf->arena, text, strlen(text));
}

/* ---- values ---- */

static void read_number(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                        const char *path, void *place)
{
    bool duration = option->type == FR_OPTION_DURATION, size = option->type == FR_OPTION_SIZE,
         real = option->type == FR_OPTION_REAL;
    const char *what = duration ? "a duration" : size ? "a size" : real ? "a number" : "an integer";
    char expected[64];
    snprintf(expected, sizeof(expected), "%s such as %s", what,
             duration ? "20ms, 1s, 5m, 1h or 30d"
             : size   ? "512B, 64KiB, 1MiB or 8GiB"
             : real   ? "0.05 or 1e-8"
                      : "128");
    const char *text = fr_loader_text(loader, node, path, expected);
    if (!text)
        return;
    uint64_t whole = 0;
    double value = 0;
    enum fr_scalar_result result = duration ? fr_scalar_duration(text, (int64_t *)&whole)
                                   : size   ? fr_scalar_size(text, &whole)
                                   : real   ? fr_scalar_real(text, &value)
                                            : fr_scalar_u64(text, &whole);
    /* The stored value must be in range: 1e-60 is stored as 0. */
    value = real ? (double)(float)value : (double)whole;
    if (!node->plain && !duration && !size)
        result = FR_SCALAR_BAD; /* "5" in quotes is text */
    if (result == FR_SCALAR_NO_UNIT) {
        fr_refuse(loader, node, path, "`%.80s` needs a unit; expected %s", text, expected);
    } else if (result == FR_SCALAR_BAD) {
        fr_refuse(loader, node, path, "`%.80s` is not %s; expected %s", text, what,
                  node->plain ? expected : "no quotes");
    } else if (result == FR_SCALAR_TOO_LARGE || !(value >= option->min && value <= option->max)) {
        char min[FR_SCALAR_TEXT_MAX], max[FR_SCALAR_TEXT_MAX];
        fr_option_bound(option, option->min, min);
        fr_option_bound(option, option->max, max);
        if (real && option->min == (double)FLT_MIN)
            fr_refuse(loader, node, path, "`%.80s` is out of range; expected more than 0, at most %s", text, max);
        else
            fr_refuse(loader, node, path, "`%.80s` is out of range; expected %s to %s", text, min, max);
    } else if (real) {
        *(float *)place = (float)value;
    } else if (option->type == FR_OPTION_U32) {
        *(uint32_t *)place = (uint32_t)whole;
    } else {
        *(uint64_t *)place = whole; /* or int64_t, which is never negative */
    }
}

static void read_choice(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                        const char *path, void *base)
{
    const char *text = fr_loader_text(loader, node, path, "a choice");
    if (!text)
        return;
    bool later = false;
    int index = fr_choice_find(option->choices, text, &later);
    if (index < 0) {
        fr_choice_words(option->choices, fr_loader_words(loader));
        fr_refuse_unknown(loader, node, path, "unknown value");
    } else if (later) {
        fr_refuse(loader, node, path, "`%s` is not in this version", text);
    } else if (option->type == FR_OPTION_SWITCH) {
        *(bool *)((char *)base + option->offset) = index == 1;
    } else {
        *(int *)(void *)((char *)base + option->offset) = index; /* enums are ints */
    }
}
_Static_assert(sizeof(enum fr_slot_kind) == sizeof(int) && sizeof(enum fr_quantize) == sizeof(int),
               "enums are stored as int");

static void read_bool(struct fr_loader *loader, const struct fr_node *node, const char *path, bool *place)
{
    bool plain = node->kind == FR_NODE_SCALAR && node->plain, yes = plain && strcmp(node->text, "true") == 0;
    if (yes || (plain && strcmp(node->text, "false") == 0))
        *place = yes;
    else if (node->kind == FR_NODE_SCALAR)
        fr_refuse(loader, node, path, "`%.80s` is not a boolean; expected true or false", node->text);
    else
        fr_loader_unlike(loader, node, path, "true or false");
}

int32_t fr_loader_find(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                       const char *path)
{
    const struct fr_option *of = fr_option_find(option->of);
    struct fr_entries all = fr_option_entries(of, loader->conf);
    size_t size = of->size;
    /* the layers are drafts until they are sorted */
    if (of->offset == offsetof(struct fr_conf, layers)) {
        all = (struct fr_entries){(char *)loader->drafts, loader->n_drafts};
        size = sizeof(*loader->drafts);
    }
    char expected[64];
    snprintf(expected, sizeof(expected), "the name of %s", option->noun);
    if (!fr_loader_text(loader, node, path, expected))
        return FR_NO_INDEX;
    struct fr_words *known = fr_loader_words(loader);
    for (uint32_t i = 0; i < all.count; i++) {
        const char *entry = all.first + i * size; /* begins with its name */
        if (option->of_kinds && !(option->of_kinds >> ((const struct fr_conf_slot *)(const void *)entry)->kind & 1))
            continue;
        if (strcmp(entry, node->text) == 0)
            return (int32_t)i;
        fr_words_add(known, entry, strlen(entry));
    }
    char what[64];
    snprintf(what, sizeof(what), "unknown %s", strchr(option->noun, ' ') + 1);
    fr_refuse_unknown(loader, node, path, what);
    return FR_NO_INDEX;
}

static void read_entries(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                         const char *path, void *base)
{
    char pattern[FR_PATH_MAX], at[FR_PATH_MAX];
    if (!fr_loader_sized(loader, node, path, option->named ? FR_NODE_MAP : FR_NODE_LIST, (uint32_t)option->min,
                         (uint32_t)option->max))
        return;
    if (!option->inside)
        *(void **)(void *)((char *)base + option->offset) = fr_loader_alloc(loader, node->count, option->size);
    char *entry = fr_option_entries(option, base).first;
    memset(entry, 0, node->count * option->size);
    for (uint32_t i = 0; option->mutual && i < node->count; i++) {
        fr_path_entry(at, path, node, i);
        fr_loader_name(loader, node->keys[i], at, entry + i * option->size);
    }
    *(uint32_t *)(void *)((char *)base + option->count) = node->count;
    fr_path_join(pattern, option->path, "*");
    for (uint32_t i = 0; i < node->count; i++, entry += option->size) {
        fr_path_entry(at, path, node, i);
        if (option->named && !option->mutual)
            fr_loader_name(loader, node->keys[i], at, entry);
        fr_loader_defaults(loader, pattern, entry);
        fr_loader_walk(loader, pattern, at, node->values[i], entry);
        if (option->entry)
            option->entry(loader, option, node->values[i], at, entry);
    }
    if (option->all)
        option->all(loader, option, node, path, base);
}

void fr_loader_read(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                    const char *path, void *base)
{
    char *place = (char *)base + option->offset;
    const char *text;
    if (option->present)
        *(bool *)((char *)base + option->present) = true;
    if (option->read) {
        option->read(loader, option, node, path, base);
        return;
    }
    switch (option->type) {
    case FR_OPTION_GROUP:
        fr_loader_walk(loader, option->path, path, node, base);
        break;
    case FR_OPTION_NAME:
        fr_loader_name(loader, node, path, place);
        break;
    case FR_OPTION_TEXT:
        text = fr_loader_text(loader, node, path, "a text");
        if (text)
            *(char **)(void *)place = fr_loader_keep(loader, text);
        break;
    case FR_OPTION_TOPIC:
        text = fr_loader_text(loader, node, path, "a topic name");
        if (text && !fr_is_topic(text))
            fr_refuse(loader, node, path, "`%.80s` is not a topic name; expected [A-Za-z0-9._-]{1,249}", text);
        else if (text)
            *(char **)(void *)place = fr_loader_keep(loader, text);
        break;
    case FR_OPTION_BOOL:
        read_bool(loader, node, path, (bool *)place);
        break;
    case FR_OPTION_SWITCH:
    case FR_OPTION_CHOICE:
        read_choice(loader, option, node, path, base);
        break;
    case FR_OPTION_REF:
        *(int32_t *)(void *)place = fr_loader_find(loader, option, node, path);
        break;
    case FR_OPTION_ENTRIES:
        read_entries(loader, option, node, path, base);
        break;
    case FR_OPTION_CUSTOM:
        break;
    case FR_OPTION_LATER:
        fr_refuse(loader, node, path, "not in this version (%s)", option->text);
        break;
    default:
        read_number(loader, option, node, path, place);
        break;
    }
}

void fr_loader_default(struct fr_loader *loader, const struct fr_option *option, void *base)
{
    static const struct fr_node at = {.source = "default", .line = 1, .column = 1};
    struct fr_node *node = fr_node_new(&loader->arena, FR_NODE_SCALAR, &at);
    node->plain = true;
    node->text = option->initial;
    if (option->initial[0] == '[')
        node =
            fr_document_parse(&loader->arena, &loader->problems, at.source, option->initial, strlen(option->initial));
    FR_CHECK(node != NULL);
    fr_loader_read(loader, option, node, option->path, base);
}

void fr_loader_defaults(struct fr_loader *loader, const char *pattern, void *base)
{
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, pattern));) {
        char *place = (char *)base + option->offset;
        if (option->type == FR_OPTION_GROUP)
            fr_loader_defaults(loader, option->path, base);
        if (option->type == FR_OPTION_REF)
            *(int32_t *)(void *)place = FR_NO_INDEX;
        if (option->type == FR_OPTION_I64)
            *(int64_t *)(void *)place = FR_NO_INDEX;
        if (option->initial)
            fr_loader_default(loader, option, base);
    }
}

/* Refuses keys for which no row exists directly below the pattern. */
static void refuse_unknown(struct fr_loader *loader, const char *pattern, const char *path, const struct fr_node *map)
{
    for (uint32_t k = 0; k < map->count; k++) {
        const struct fr_node *key = map->keys[k];
        struct fr_words *known = fr_loader_words(loader);
        const struct fr_option *option = NULL;
        while ((option = fr_option_next(option, pattern)) && strcmp(fr_option_name(option), key->text) != 0) {
            if (option->type != FR_OPTION_LATER)
                fr_words_add(known, fr_option_name(option), strlen(fr_option_name(option)));
        }
        if (!option)
            fr_refuse_unknown(loader, key, path, "unknown key");
    }
}

static void refuse_kind(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                        const char *path)
{
    const struct fr_option *kind = fr_option_find("slots.*.kind");
    char names[96] = "";
    for (int i = 0; i < 3; i++) {
        char name[32];
        fr_choice_name(kind->choices, i, name);
        if (option->kinds >> i & 1)
            snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", names[0] ? " or " : "", name);
    }
    fr_refuse(loader, node, path, "not for a slot of this kind; expected with kind %s only", names);
}

void fr_loader_walk(struct fr_loader *loader, const char *pattern, const char *path, const struct fr_node *node,
                    void *base)
{
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP))
        return;
    refuse_unknown(loader, pattern, path, node);
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, pattern));) {
        const struct fr_node *value = fr_node_get(node, fr_option_name(option));
        bool applies = fr_option_applies(option, base);
        char below[FR_PATH_MAX];
        fr_path_join(below, path, fr_option_name(option));
        if (!value && option->required && applies)
            fr_refuse(loader, node, below, "missing; expected %s", option->form ? option->form : option->text);
        if (value && applies)
            fr_loader_read(loader, option, value, below, base);
        if (value && !applies)
            refuse_kind(loader, option, value, below);
    }
}

void fr_loader_init(struct fr_loader *loader)
{
    memset(loader, 0, sizeof(*loader));
    loader->conf = fr_alloc(1, sizeof(*loader->conf));
    loader->conf->arena.block_size = CONF_BLOCK;
    loader->conf->chunk_rows = FR_CHUNK_ROWS;
    loader->conf->dense_init.kind = FR_INIT_DEFAULT;
    loader->conf->metrics.gauc_by = FR_NO_INDEX;
}

void fr_conf_free(struct fr_conf *conf)
{
    if (!conf)
        return;
    fr_arena_release(&conf->arena);
    free(conf);
}

void fr_loader_release(struct fr_loader *loader)
{
    fr_problems_release(&loader->problems);
    fr_problems_release(&loader->warnings);
    fr_arena_release(&loader->arena);
    fr_conf_free(loader->conf);
    loader->conf = NULL;
}
