/* Readers of the options outside the model whose form is more than one value: version, names,
 * sources, Kafka properties, listen address, half-lives. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "loader.h"
#include "scalar.h"

FR_READ(fr_read_version)
{
    (void)option, (void)scope;
    const char *text = fr_loader_text(loader, node, path, "1");
    if (text && (strcmp(text, "1") != 0 || !node->plain))
        fr_problem(&loader->problems, node, path, "`%.80s` is not a version this program reads; expected 1", text);
}

FR_READ(fr_read_model_name)
{
    (void)option, (void)scope;
    const char *text = fr_loader_text(loader, node, path, "a name");
    if (!text)
        return;
    size_t size = strlen(text);
    if (size >= FR_MODEL_MAX ||
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != size) {
        fr_problem(&loader->problems, node, path, "`%.130s` is not a model name; expected [A-Za-z0-9_-]{1,120}", text);
        return;
    }
    memcpy(loader->conf->model, text, size + 1);
}

/* ---- sources ---- */

static void add_topic(struct fr_loader *loader, const struct fr_node *node, const char *path)
{
    struct fr_conf *conf = loader->conf;
    const char *text = fr_loader_text(loader, node, path, "a topic name");
    if (!text)
        return;
    if (!fr_is_topic(text)) {
        fr_problem(&loader->problems, node, path, "`%.80s` is not a topic name; expected [A-Za-z0-9._-]{1,249}", text);
        return;
    }
    for (uint32_t i = 0; i < conf->ingest.n_topics; i++) {
        if (strcmp(conf->ingest.topics[i], text) == 0)
            fr_problem(&loader->problems, node, path, "`%s` is there twice; expected every topic once", text);
    }
    conf->ingest.topics[conf->ingest.n_topics++] = fr_strdup(text);
}

FR_READ(fr_read_topic)
{
    (void)option, (void)scope;
    loader->conf->ingest.topics = fr_alloc(1, sizeof(*loader->conf->ingest.topics));
    add_topic(loader, node, path);
}

FR_READ(fr_read_topics)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 1, FR_TOPICS_MAX) ||
        conf->ingest.topics) /* given twice: said at the end */
        return;
    conf->ingest.topics = fr_alloc(node->count, sizeof(*conf->ingest.topics));
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        add_topic(loader, node->values[i], at);
    }
}

FR_READ(fr_read_start)
{
    (void)scope;
    struct fr_conf *conf = loader->conf;
    const char *text = fr_loader_text(loader, node, path, "earliest, latest or a time");
    if (!text)
        return;
    uint64_t number = 0;
    int64_t ms = 0;
    conf->ingest.start_ms = 0;
    if (strcmp(text, "earliest") == 0 || strcmp(text, "latest") == 0) {
        conf->ingest.start = text[0] == 'e' ? FR_START_EARLIEST : FR_START_LATEST;
        return;
    }
    if (fr_scalar_u64(text, &number) == FR_SCALAR_OK && number < FR_TIME_MS_MIN) {
        fr_problem(&loader->problems, node, path, "`%.80s` is in seconds, not milliseconds; expected Unix ms", text);
        return;
    }
    if (!fr_conf_time(text, &ms)) {
        fr_problem(&loader->problems, node, path, "`%.80s` is not a start; expected %s", text, option->form);
        return;
    }
    conf->ingest.start = FR_START_TIME;
    conf->ingest.start_ms = ms;
}

FR_READ(fr_read_files)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 0, FR_FILES_MAX))
        return;
    conf->ingest.files = fr_alloc(node->count + 1, sizeof(*conf->ingest.files));
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        const char *text = fr_loader_text(loader, node->values[i], at, "a file");
        if (text)
            conf->ingest.files[conf->ingest.n_files++] = fr_strdup(text);
    }
}

/* ---- Kafka properties ---- */

static const struct denied {
    const char *pattern; /* a trailing or leading * stands for anything */
    const char *why;
} denied_properties[] = {
    {"bootstrap.servers", "it is `ingest.brokers`"},
    {"metadata.broker.list", "it is `ingest.brokers`"},
    {"group.*", "positions live in the state directory, and the group name is freshet.<model>"},
    {"enable.auto.commit", "positions live in the state directory"},
    {"auto.commit.*", "positions live in the state directory"},
    {"enable.auto.offset.store", "positions live in the state directory"},
    {"auto.offset.reset", "it is `ingest.start` and `ingest.on_loss`"},
    {"isolation.level", "the reader needs every record of the log that is committed"},
    {"enable.partition.eof", "the reader needs it"},
    {"enable.idempotence", "deltas need the idempotent producer"},
    {"acks", "deltas need acks=all"},
    {"request.required.acks", "deltas need acks=all"},
    {"transactional.id", "deltas prove their completeness without transactions"},
    {"plugin.library.paths", "it loads code"},
    {"sasl.kerberos.kinit.cmd", "it runs a command"},
    {"ssl.engine.location", "it loads code"},
    {"ssl.providers", "it loads code"},
    {"test.mock.*", "it replaces the cluster by one inside the process; `freshet broker` is one outside"},
    {"dr_*", "it is a function of the program"},
    {"*_cb", "it is a function of the program"},
    {"delivery.report.only.error", "the publisher needs every acknowledgement"},
    {"default_topic_conf", "it is a value of the program"},
    {"opaque", "it is a value of the program"},
    {"interceptors", "it is a value of the program"},
};

static bool matches(const char *pattern, const char *name)
{
    size_t n = strlen(pattern), size = strlen(name);
    if (pattern[0] == '*')
        return size >= n - 1 && strcmp(name + size - (n - 1), pattern + 1) == 0;
    if (pattern[n - 1] == '*')
        return strncmp(name, pattern, n - 1) == 0;
    return strcmp(name, pattern) == 0;
}

static bool read_property(struct fr_loader *loader, const struct fr_node *key, const struct fr_node *value,
                          const char *path)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(denied_properties); i++) {
        if (matches(denied_properties[i].pattern, key->text)) {
            fr_problem(&loader->problems, key, path, "may not be set: %s", denied_properties[i].why);
            return false;
        }
    }
    if (key->text[0] == '\0' ||
        strspn(key->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(key->text)) {
        fr_problem(&loader->problems, key, path, "not a property name; expected one of librdkafka's");
        return false;
    }
    if (value->kind == FR_NODE_SCALAR && !value->plain && value->text[0] == '\0')
        return true; /* "" in quotes is an empty value */
    return fr_loader_text(loader, value, path, "a value") != NULL;
}

FR_READ(fr_read_kafka)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP) ||
        !fr_loader_count(loader, node, path, 0, FR_PROPERTIES_MAX))
        return;
    conf->ingest.kafka = fr_alloc(node->count + 1, sizeof(*conf->ingest.kafka));
    for (uint32_t i = 0; i < node->count; i++) {
        const struct fr_node *key = node->keys[i], *value = node->values[i];
        char at[FR_PATH_MAX];
        fr_path_join(at, path, key->text);
        if (read_property(loader, key, value, at))
            conf->ingest.kafka[conf->ingest.n_kafka++] =
                (struct fr_conf_property){fr_strdup(key->text), fr_strdup(value->text), key->line};
    }
}

/* ---- metrics ---- */

FR_READ(fr_read_listen)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    const char *text = fr_loader_text(loader, node, path, "host:port");
    if (!text)
        return;
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;
    size_t host = colon ? (size_t)(colon - text) : 0;
    bool bracketed = host >= 2 && text[0] == '[' && text[host - 1] == ']';
    size_t bare = bracketed ? host - 2 : host;
    const char *from = bracketed ? text + 1 : text;
    /* An IPv6 address without brackets leaves its port unclear. */
    if (!colon || bare == 0 || bare > 255 || (!bracketed && memchr(from, ':', bare)) ||
        fr_scalar_u64(colon + 1, &port) != FR_SCALAR_OK || port > 65535) {
        fr_problem(&loader->problems, node, path,
                   "`%.80s` is not an address; expected host:port or [ipv6]:port, port 0 to 65535", text);
        return;
    }
    free(conf->metrics.listen_host);
    conf->metrics.listen_host = fr_alloc(bare + 1, 1);
    memcpy(conf->metrics.listen_host, from, bare);
    conf->metrics.listen_port = (uint16_t)port;
}

FR_READ(fr_read_half_lives)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) ||
        !fr_loader_count(loader, node, path, 1, FR_HALF_LIVES_MAX))
        return;
    conf->metrics.n_half_lives = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct fr_node *item = node->values[i];
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        const char *text = fr_loader_text(loader, item, at, "a duration");
        int64_t ms = 0;
        if (!text)
            continue;
        enum fr_scalar_result result = fr_scalar_duration(text, &ms);
        uint32_t n = conf->metrics.n_half_lives;
        if (result == FR_SCALAR_NO_UNIT)
            fr_problem(&loader->problems, item, at, "`%.80s` needs a unit; expected a duration such as 5m or 1d", text);
        else if (result != FR_SCALAR_OK || ms < 1000 || ms > 315360000000 ||
                 strlen(text) >= sizeof(conf->metrics.half_life_name[0]))
            fr_problem(&loader->problems, item, at, "`%.80s` is not a half-life; expected a duration from 1s to 3650d",
                       text);
        else {
            for (uint32_t j = 0; j < n; j++) {
                if (conf->metrics.half_life_ms[j] == ms)
                    fr_problem(&loader->problems, item, at, "`%s` is there twice; expected every half-life once", text);
            }
            conf->metrics.half_life_ms[n] = ms;
            memset(conf->metrics.half_life_name[n], 0, sizeof(conf->metrics.half_life_name[n]));
            memcpy(conf->metrics.half_life_name[n], text, strlen(text));
            conf->metrics.n_half_lives = n + 1;
        }
    }
}

FR_READ(fr_read_gauc_by)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_text(loader, node, path, "the name of a sparse slot"))
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        if (conf->slots[i].kind != FR_SLOT_SPARSE)
            continue;
        fr_words_add(known, conf->slots[i].name, strlen(conf->slots[i].name));
        if (strcmp(conf->slots[i].name, node->text) == 0)
            conf->metrics.gauc_by = (int32_t)i;
    }
    if (conf->metrics.gauc_by == FR_NO_INDEX)
        fr_problem_unknown(&loader->problems, node, path, "unknown sparse slot", known);
}
