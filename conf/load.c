/* Reading a configuration: text -> tree -> options, by the table -> what several options say
 * together.
 *
 * Every default is a text of the table and goes through the same readers as the user's. No step
 * stops at the first problem; a step that needs an earlier one to be whole (shapes need all layers)
 * is left out when there is any. */
#include "loader.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "printer.h"
#include "scalar.h"

enum {
    TEXT_MAX = 65536,  /* chains of certificates are the longest texts */
    MODEL_ROOM = 4096, /* bytes of a `model` record beside its cfg */
};

void fr_path_join(char out[static FR_PATH_MAX], const char *path, const char *key)
{
    int n = path[0] != '\0' ? snprintf(out, FR_PATH_MAX, "%.300s.%.200s", path, key)
                            : snprintf(out, FR_PATH_MAX, "%.300s", key);
    FR_CHECK(n >= 0 && n < FR_PATH_MAX);
}

void fr_path_index(char out[static FR_PATH_MAX], const char *path, uint32_t index)
{
    char key[16];
    snprintf(key, sizeof(key), "%" PRIu32, index);
    fr_path_join(out, path, key);
}

bool fr_loader_expect(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_node_kind kind)
{
    static const char *const expected[] = {
        [FR_NODE_SCALAR] = "a single value", [FR_NODE_LIST] = "a list", [FR_NODE_MAP] = "a map"};
    if (node->kind == kind)
        return true;
    fr_problem(&loader->problems, node, path, "%s; expected %s", fr_node_kind_name(node), expected[kind]);
    return false;
}

bool fr_loader_count(struct fr_loader *loader, const struct fr_node *node, const char *path, uint32_t min, uint32_t max)
{
    if (node->count >= min && node->count <= max)
        return true;
    if (min == max)
        fr_problem(&loader->problems, node, path, "%" PRIu32 " entries; expected %" PRIu32, node->count, min);
    else
        fr_problem(&loader->problems, node, path, "%" PRIu32 " entries; expected %" PRIu32 " to %" PRIu32, node->count,
                   min, max);
    return false;
}

const char *fr_loader_text(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *expected)
{
    if (node->kind != FR_NODE_SCALAR || fr_node_is_null(node) || node->text[0] == '\0') {
        const char *what = node->kind == FR_NODE_SCALAR ? "empty" : fr_node_kind_name(node);
        fr_problem(&loader->problems, node, path, "%s; expected %s", what, expected);
        return NULL;
    }
    if (strlen(node->text) > TEXT_MAX) {
        fr_problem(&loader->problems, node, path, "longer than %d bytes; expected %s", TEXT_MAX, expected);
        return NULL;
    }
    return node->text;
}

bool fr_loader_name(struct fr_loader *loader, const struct fr_node *node, const char *path,
                    char out[static FR_NAME_MAX])
{
    const char *text = fr_loader_text(loader, node, path, "a name");
    if (!text)
        return false;
    if (!fr_scalar_is_name(text)) {
        fr_problem(&loader->problems, node, path,
                   "`%.80s` is not a name; expected [A-Za-z_][A-Za-z0-9_]*, at most %d long", text, FR_NAME_MAX - 1);
        return false;
    }
    memset(out, 0, FR_NAME_MAX);
    memcpy(out, text, strlen(text));
    return true;
}

/* Kafka's own rule. */
bool fr_is_topic(const char *text)
{
    size_t size = strlen(text);
    return size > 0 && size <= 249 && strcmp(text, ".") != 0 && strcmp(text, "..") != 0 &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

static void replace_text(char **place, const char *text)
{
    free(*place);
    *place = fr_strdup(text);
}

static void store_number(const struct fr_option *option, double real, uint64_t whole, void *place)
{
    switch (option->type) {
    case FR_OPTION_U32:
        *(uint32_t *)place = (uint32_t)whole;
        break;
    case FR_OPTION_U64:
    case FR_OPTION_SIZE:
        *(uint64_t *)place = whole;
        break;
    case FR_OPTION_I64:
    case FR_OPTION_DURATION:
        *(int64_t *)place = (int64_t)whole;
        break;
    default:
        *(float *)place = (float)real;
        break;
    }
}

static void read_number(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                        const char *path, void *place)
{
    bool duration = option->type == FR_OPTION_DURATION, size = option->type == FR_OPTION_SIZE,
         real = option->type == FR_OPTION_REAL;
    const char *expected = duration ? "a duration such as 20ms, 1s, 5m, 1h or 30d"
                           : size   ? "a size such as 512B, 64KiB, 1MiB or 8GiB"
                           : real   ? "a number such as 0.05 or 1e-8"
                                    : "an integer such as 128";
    const char *text = fr_loader_text(loader, node, path, expected);
    if (!text)
        return;
    uint64_t whole = 0;
    int64_t ms = 0;
    double value = 0;
    enum fr_scalar_result result = duration ? fr_scalar_duration(text, &ms)
                                   : size   ? fr_scalar_size(text, &whole)
                                   : real   ? fr_scalar_real(text, &value)
                                            : fr_scalar_u64(text, &whole);
    if (!node->plain && !duration && !size)
        result = FR_SCALAR_BAD; /* "5" in quotes is text */
    if (result == FR_SCALAR_NO_UNIT) {
        fr_problem(&loader->problems, node, path, "`%.80s` needs a unit; expected %s", text, expected);
        return;
    }
    if (result == FR_SCALAR_BAD) {
        fr_problem(&loader->problems, node, path, "`%.80s` is not %s; expected %s", text,
                   duration ? "a duration"
                   : size   ? "a size"
                   : real   ? "a number"
                            : "an integer",
                   node->plain ? expected : "no quotes");
        return;
    }
    if (duration)
        whole = (uint64_t)ms;
    if (real)
        value = (double)(float)value; /* what is stored is what must be in range: 1e-60 is 0 */
    else
        value = (double)whole;
    if (result == FR_SCALAR_TOO_LARGE || !(value >= option->min && value <= option->max)) {
        char min[FR_SCALAR_TEXT_MAX], max[FR_SCALAR_TEXT_MAX];
        fr_option_bound(option, option->min, min);
        fr_option_bound(option, option->max, max);
        if (real && option->min == (double)FLT_MIN)
            fr_problem(&loader->problems, node, path, "`%.80s` is out of range; expected more than 0, at most %s", text,
                       max);
        else
            fr_problem(&loader->problems, node, path, "`%.80s` is out of range; expected %s to %s", text, min, max);
        return;
    }
    store_number(option, value, whole, place);
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
        struct fr_words *known = &loader->words;
        known->count = 0;
        for (const char *at = option->choices; *at; at += *at == '|') {
            size_t size = strcspn(at, "|");
            if (at[size - 1] != '!')
                fr_words_add(known, at, size);
            at += size;
        }
        fr_problem_unknown(&loader->problems, node, path, "unknown value", known);
        return;
    }
    if (later) {
        fr_problem(&loader->problems, node, path, "`%s` is not in this version", text);
        return;
    }
    if (option->offset == FR_NOWHERE)
        return;
    char *place = (char *)base + option->offset;
    if (option->type == FR_OPTION_SWITCH)
        *(bool *)place = index == 1;
    else
        /* every enum of ours has int's size: asserted in options' test and below */
        *(int *)place = index;
}
_Static_assert(sizeof(enum fr_slot_kind) == sizeof(int) && sizeof(enum fr_quantize) == sizeof(int),
               "enums are stored as int");

static void read_bool(struct fr_loader *loader, const struct fr_node *node, const char *path, bool *place)
{
    if (node->kind == FR_NODE_SCALAR && node->plain && strcmp(node->text, "true") == 0)
        *place = true;
    else if (node->kind == FR_NODE_SCALAR && node->plain && strcmp(node->text, "false") == 0)
        *place = false;
    else if (node->kind == FR_NODE_SCALAR)
        fr_problem(&loader->problems, node, path, "`%.80s` is not a boolean; expected true or false", node->text);
    else
        fr_problem(&loader->problems, node, path, "%s; expected true or false", fr_node_kind_name(node));
}

void fr_loader_read(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                    const char *path, void *base)
{
    char *place = (char *)base + (option->offset == FR_NOWHERE ? 0 : option->offset);
    const char *text;
    if (option->present)
        *(bool *)((char *)base + option->present) = true;
    switch (option->type) {
    case FR_OPTION_GROUP:
        fr_loader_walk(loader, &(struct fr_scope){option->path, path, node, base});
        break;
    case FR_OPTION_NAME:
        fr_loader_name(loader, node, path, place);
        break;
    case FR_OPTION_TEXT:
        text = fr_loader_text(loader, node, path, "a text");
        if (text)
            replace_text((char **)(void *)place, text);
        break;
    case FR_OPTION_TOPIC:
        text = fr_loader_text(loader, node, path, "a topic name");
        if (text && !fr_is_topic(text))
            fr_problem(&loader->problems, node, path, "`%.80s` is not a topic name; expected [A-Za-z0-9._-]{1,249}",
                       text);
        else if (text)
            replace_text((char **)(void *)place, text);
        break;
    case FR_OPTION_BOOL:
        read_bool(loader, node, path, (bool *)place);
        break;
    case FR_OPTION_SWITCH:
    case FR_OPTION_CHOICE:
        read_choice(loader, option, node, path, base);
        break;
    case FR_OPTION_CUSTOM:
        option->read(loader, option, node, path, base);
        break;
    case FR_OPTION_LATER:
        fr_problem(&loader->problems, node, path, "not in this version (%s)", option->text);
        break;
    default:
        read_number(loader, option, node, path, place);
        break;
    }
}

void fr_loader_defaults(struct fr_loader *loader, const char *pattern, void *base)
{
    static const struct fr_node at = {.source = "default", .line = 1, .column = 1};
    for (size_t i = 0; i < fr_options_count; i++) {
        const struct fr_option *option = &fr_options[i];
        if (!fr_option_key(option, pattern))
            continue;
        if (option->type == FR_OPTION_GROUP)
            fr_loader_defaults(loader, option->path, base);
        if (!option->initial)
            continue;
        struct fr_node *node = fr_node_new(&loader->arena, FR_NODE_SCALAR, &at);
        node->plain = true;
        node->text = option->initial;
        if (option->initial[0] == '[')
            node = fr_document_parse(&loader->arena, &loader->problems, at.source, option->initial,
                                     strlen(option->initial));
        FR_CHECK(node != NULL);
        fr_loader_read(loader, option, node, option->path, base);
    }
}

/* Keys that no row directly below the pattern has. */
static void refuse_unknown(struct fr_loader *loader, const struct fr_scope *scope)
{
    struct fr_words *known = NULL;
    for (uint32_t k = 0; k < scope->node->count; k++) {
        const struct fr_node *key = scope->node->keys[k];
        bool found = false;
        for (size_t i = 0; i < fr_options_count && !found; i++) {
            const char *name = fr_option_key(&fr_options[i], scope->pattern);
            found = name && strcmp(name, key->text) == 0;
        }
        if (found)
            continue;
        if (!known) {
            known = &loader->words;
            known->count = 0;
            for (size_t i = 0; i < fr_options_count; i++) {
                const char *name = fr_option_key(&fr_options[i], scope->pattern);
                if (name && fr_options[i].type != FR_OPTION_LATER)
                    fr_words_add(known, name, strlen(name));
            }
        }
        fr_problem_unknown(&loader->problems, key, scope->path, "unknown key", known);
    }
}

/* A slot's kind decides which of its options make sense. */
static bool applies(const struct fr_option *option, const void *base)
{
    if (option->kinds == 0)
        return true;
    return (option->kinds >> ((const struct fr_conf_slot *)base)->kind & 1) != 0;
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
    fr_problem(&loader->problems, node, path, "not for a slot of this kind; expected with kind %s only", names);
}

void fr_loader_walk(struct fr_loader *loader, const struct fr_scope *scope)
{
    if (!fr_loader_expect(loader, scope->node, scope->path, FR_NODE_MAP))
        return;
    refuse_unknown(loader, scope);
    for (size_t i = 0; i < fr_options_count; i++) {
        const struct fr_option *option = &fr_options[i];
        const char *key = fr_option_key(option, scope->pattern);
        if (!key)
            continue;
        const struct fr_node *node = fr_node_get(scope->node, key);
        char path[FR_PATH_MAX];
        fr_path_join(path, scope->path, key);
        if (!node && option->required && applies(option, scope->base))
            fr_problem(&loader->problems, scope->node, path, "missing; expected %s",
                       option->form ? option->form : option->text);
        if (!node)
            continue;
        if (applies(option, scope->base))
            fr_loader_read(loader, option, node, path, scope->base);
        else
            refuse_kind(loader, option, node, path);
    }
}

void fr_loader_release(struct fr_loader *loader)
{
    fr_problems_release(&loader->problems);
    fr_arena_release(&loader->arena);
    fr_conf_free(loader->conf);
    loader->conf = NULL;
}

/* ---- what several options say together ---- */

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

static void finish_sizes(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    const uint64_t mib = 1 << 20;
    if (conf->epoch_bytes_max == 0)
        conf->epoch_bytes_max = clamp(conf->memory_limit / 16, mib, 64 * mib);
    if (conf->unfolded_max == 0)
        conf->unfolded_max = clamp(conf->memory_limit / 4, 64 << 10, 512 * mib);
    if (conf->journal_max == 0)
        conf->journal_max = 4 * conf->unfolded_max;
    if (conf->journal_max < 2 * conf->unfolded_max) {
        const struct fr_node *node = fr_node_get(root, "journal_max");
        fr_problem(
            &loader->problems, node ? node : root, "journal_max",
            "below twice unfolded_max, reading would pause before a fold can free anything; expected at least %" PRIu64
            "B",
            2 * conf->unfolded_max);
    }
}

static void default_topic(char **place, const char *stem, const char *suffix)
{
    if (*place)
        return;
    char topic[512];
    snprintf(topic, sizeof(topic), "%.249s%s", stem, suffix);
    *place = fr_strdup(topic);
}

static bool is_sample_topic(const struct fr_conf *conf, const char *topic)
{
    for (uint32_t i = 0; i < conf->ingest.n_topics; i++) {
        if (strcmp(conf->ingest.topics[i], topic) == 0)
            return true;
    }
    return false;
}

static void finish_topics(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    const struct fr_node *ingest = fr_node_get(root, "ingest");
    bool one = fr_node_get(ingest, "topic") != NULL, many = fr_node_get(ingest, "topics") != NULL;
    if (ingest && one == many && (one || conf->ingest.n_files == 0))
        fr_problem(&loader->problems, ingest, "ingest.topic", "%s",
                   one ? "given twice; expected `topic` or `topics`" : "missing; expected a topic name");
    bool files = conf->ingest.n_files > 0 && conf->model[0] != '\0';
    if (conf->ingest.n_topics > 0 || files) {
        default_topic(&conf->ingest.dead_letter_topic, conf->ingest.n_topics > 0 ? conf->ingest.topics[0] : conf->model,
                      ".dead");
        if (!fr_is_topic(conf->ingest.dead_letter_topic))
            fr_problem(&loader->problems, ingest, "ingest.dead_letter_topic",
                       "the default is too long for a topic; expected a name");
        if (is_sample_topic(conf, conf->ingest.dead_letter_topic))
            fr_problem(&loader->problems, ingest, "ingest.dead_letter_topic",
                       "is the topic of the samples; expected another");
    }
    if (conf->model[0] != '\0')
        default_topic(&conf->export_.topic, conf->model, ".delta");
    const struct fr_node *export_ = fr_node_get(root, "export");
    const char *topic = conf->export_.topic;
    if (topic && (is_sample_topic(conf, topic) ||
                  (conf->ingest.dead_letter_topic && strcmp(topic, conf->ingest.dead_letter_topic) == 0)))
        fr_problem(&loader->problems, export_ ? export_ : root, "export.topic",
                   "`%s` is a topic of `ingest`; expected another", topic);
    if (conf->ingest.brokers && conf->export_.brokers && strcmp(conf->ingest.brokers, conf->export_.brokers) != 0)
        fr_problem(&loader->problems, fr_node_get(export_, "brokers"), "export.brokers",
                   "other brokers than those of `ingest` are not in this version");
    if (conf->ingest.brokers && !conf->export_.brokers)
        conf->export_.brokers = fr_strdup(conf->ingest.brokers);
}

static void finish(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    finish_sizes(loader, root);
    finish_topics(loader, root);
    fr_layers_store(loader);
    if (loader->problems.count > 0 || !fr_shapes_infer(loader))
        return;
    if (conf->dense_bytes > conf->unfolded_max) {
        const struct fr_node *node = fr_node_get(root, "unfolded_max");
        fr_problem(&loader->problems, node ? node : root, "unfolded_max",
                   "an epoch that trains holds %" PRIu64
                   " bytes of the layers' parameters and optimizer state, and no fold may be smaller than an epoch; "
                   "expected at least %" PRIu64 "B (default: a quarter of memory_limit), with a longer `epoch`, since "
                   "each writes as much",
                   conf->dense_bytes, conf->dense_bytes);
    }
    /* Every model record must fit: a model that could not be announced must not start to train. */
    struct fr_buffer json = {0};
    fr_conf_model_json(conf, &json);
    if (json.size + MODEL_ROOM > conf->export_.piece_max)
        fr_problem(&loader->problems, root, "export.piece_max",
                   "the model's description takes %zu bytes; expected at least %zu B", json.size,
                   json.size + MODEL_ROOM);
    fr_buffer_release(&json);
}

enum fr_status fr_conf_load(const struct fr_conf_load_options *options, struct fr_conf **out,
                            struct fr_buffer *problems)
{
    struct fr_loader loader = {0};
    struct fr_buffer file = {0};
    enum fr_status status = FR_E_INVALID;
    const char *source = options->path ? options->path : "config";
    const struct fr_node at = {.source = source, .line = 1, .column = 1};
    const char *text = options->text;
    size_t size = text ? strlen(text) : 0;
    loader.conf = fr_alloc(1, sizeof(*loader.conf));
    loader.conf->chunk_rows = FR_CHUNK_ROWS;
    loader.conf->dense_init.kind = FR_INIT_DEFAULT;
    loader.conf->metrics.gauc_by = FR_NO_INDEX;
    if (!text) {
        struct fr_err err = {0};
        if (fr_file_read(source, FR_CONF_BYTES_MAX, &file, &err) != FR_OK) {
            fr_problem(&loader.problems, &at, "", "%s", err.text);
            goto out;
        }
        text = (const char *)file.data;
        size = file.size;
    }
    struct fr_node *root = fr_document_parse(&loader.arena, &loader.problems, source, text ? text : "", size);
    if (!root)
        goto out;
    if (root->kind == FR_NODE_MAP) { /* else the walk says what is wrong */
        for (size_t i = 0; i < options->n_sets; i++)
            fr_document_set(&loader.arena, &loader.problems, root, options->sets[i]);
    }
    fr_loader_defaults(&loader, "", loader.conf);
    fr_loader_walk(&loader, &(struct fr_scope){"", "", root, loader.conf});
    if (root->kind == FR_NODE_MAP)
        finish(&loader, root);
    if (loader.problems.count == 0) {
        *out = loader.conf;
        loader.conf = NULL;
        status = FR_OK;
    }
out:
    fr_problems_write(&loader.problems, problems);
    fr_buffer_terminate(problems);
    fr_buffer_release(&file);
    fr_loader_release(&loader);
    return status;
}

void fr_conf_free(struct fr_conf *conf)
{
    if (!conf)
        return;
    free(conf->state_dir);
    free(conf->ingest.brokers);
    for (uint32_t i = 0; i < conf->ingest.n_topics; i++)
        free(conf->ingest.topics[i]);
    free(conf->ingest.topics);
    free(conf->ingest.dead_letter_topic);
    for (size_t i = 0; i < conf->ingest.n_kafka; i++) {
        free(conf->ingest.kafka[i].name);
        free(conf->ingest.kafka[i].value);
    }
    free(conf->ingest.kafka);
    for (uint32_t i = 0; i < conf->ingest.n_files; i++)
        free(conf->ingest.files[i]);
    free(conf->ingest.files);
    free(conf->tables);
    for (uint32_t i = 0; i < conf->n_slots; i++)
        free(conf->slots[i].boundaries);
    free(conf->slots);
    free(conf->labels);
    for (uint32_t i = 0; i < conf->n_layers; i++)
        free(conf->layers[i].refs);
    free(conf->layers);
    free(conf->tasks);
    free(conf->losses);
    free(conf->export_.topic);
    free(conf->export_.brokers);
    free(conf->metrics.listen_host);
    free(conf);
}
