/* Options outside the model whose form is more than one value: version, names, sources, Kafka
 * properties, listen address, half-lives. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "forms.h"
#include "scalar.h"

#define FR_MASK "***"
#define MASKED "`" FR_MASK "` is what --print-config shows of a secret; expected the secret"

FR_READ(version)
{
    const char *text = fr_loader_text(loader, node, path, "1");
    if (text && (strcmp(text, "1") != 0 || !node->plain))
        fr_refuse(loader, node, path, "`%.80s` is not a version this program reads; expected 1", text);
}

FR_SHOW(version)
{
    return fr_tree_number(tree, "1");
}

/* The number after the word selects the card. */
FR_READ(device)
{
    struct fr_conf *conf = loader->conf;
    const char *text = fr_loader_text(loader, node, path, "a choice");
    uint64_t card = 0;
    if (!text)
        return;
    char word[16];
    enum fr_device device = FR_DEVICE_AUTO;
    const char *colon = strchr(text, ':');
    snprintf(word, sizeof(word), "%.*s", colon ? (int)(colon - text) : 15, text);
    bool known = fr_device_parse(word, &device);
    bool numbered = colon && device == FR_DEVICE_CUDA && fr_scalar_u64(colon + 1, &card) == FR_SCALAR_OK && card < 1024;
    if (!known || (colon && !numbered)) {
        fr_refuse(loader, node, path, "`%.80s` is not a device; expected auto, cpu, cuda or cuda:N, N from 0", text);
        return;
    }
    conf->device = device;
    conf->device_card = (uint32_t)card;
}

FR_SHOW(device)
{
    const struct fr_conf *conf = tree->conf;
    char text[32];
    snprintf(text, sizeof(text), "cuda:%" PRIu32, conf->device_card);
    bool numbered = conf->device == FR_DEVICE_CUDA && conf->device_card > 0;
    return fr_tree_text(tree, numbered ? text : fr_device_text(conf->device));
}

FR_READ(model)
{
    const char *text = fr_loader_text(loader, node, path, "a name");
    if (!text)
        return;
    size_t size = strlen(text);
    if (size >= FR_MODEL_MAX ||
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != size) {
        fr_refuse(loader, node, path, "`%.130s` is not a model name; expected [A-Za-z0-9_-]{1,120}", text);
        return;
    }
    memcpy(loader->conf->model, text, size + 1);
}

/* No message contains the value. A canonical decimal number stands for itself, with or without
 * quotes. 0 is refused, because it is the seed of configurations without one. */
FR_READ(key_seed)
{
    const char *text = fr_loader_text(loader, node, path, "a secret text or integer");
    if (!text)
        return;
    if (strcmp(text, FR_MASK) == 0) {
        fr_refuse(loader, node, path, MASKED);
        return;
    }
    size_t size = strlen(text);
    uint64_t number = 0;
    bool shown = true;
    for (size_t i = 0; i < size; i++)
        shown = shown && text[i] >= 0x20 && text[i] < 0x7f;
    if (size > FR_KEY_SEED_MAX || !shown) {
        fr_refuse(loader, node, path, "not of 1 to %d bytes of printable ASCII", FR_KEY_SEED_MAX);
        return;
    }
    bool is_number =
        text[0] != '0' && strspn(text, "0123456789") == size && fr_scalar_u64(text, &number) == FR_SCALAR_OK;
    if (!is_number)
        number = fr_xxh3(text, size);
    if (number == 0 || strspn(text, "0") == size) {
        fr_refuse(loader, node, path, "0 is no secret; expected another integer, a text, or no key_seed");
        return;
    }
    loader->conf->key_seed = fr_loader_keep(loader, text);
    loader->conf->key_seed_number = number;
}

FR_SHOW(key_seed)
{
    const char *seed = tree->conf->key_seed;
    return seed ? fr_tree_text(tree, tree->view == FR_VIEW_CONFIG ? FR_MASK : seed) : NULL;
}

/* ---- sources ---- */

static void add_topic(struct fr_loader *loader, const struct fr_node *node, const char *path)
{
    static const struct fr_option topic = {.type = FR_OPTION_TOPIC};
    struct fr_conf *conf = loader->conf;
    char *text = NULL;
    fr_loader_read(loader, &topic, node, path, &text);
    for (uint32_t i = 0; text && i < conf->ingest.n_topics; i++) {
        if (strcmp(conf->ingest.topics[i], text) == 0)
            fr_loader_twice(loader, node, path, "topic");
    }
    if (text)
        conf->ingest.topics[conf->ingest.n_topics++] = text;
}

FR_READ(topic)
{
    loader->conf->ingest.topics = fr_loader_alloc(loader, 1, sizeof(*loader->conf->ingest.topics));
    add_topic(loader, node, path);
}

FR_SHOW(topic)
{
    return tree->conf->ingest.n_topics == 1 ? fr_tree_text(tree, tree->conf->ingest.topics[0]) : NULL;
}

FR_READ(topics)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_TOPICS_MAX) ||
        conf->ingest.topics) /* given twice, which is reported at the end */
        return;
    conf->ingest.topics = fr_loader_alloc(loader, node->count, sizeof(*conf->ingest.topics));
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        add_topic(loader, node->values[i], at);
    }
}

static struct fr_node *show_texts(struct fr_tree *tree, char *const *texts, uint32_t count)
{
    struct fr_node *list = fr_tree_flow(tree, FR_NODE_LIST);
    for (uint32_t i = 0; i < count; i++)
        fr_tree_put(tree, list, NULL, fr_tree_text(tree, texts[i]));
    return list;
}

FR_SHOW(topics)
{
    const struct fr_conf *conf = tree->conf;
    return conf->ingest.n_topics > 1 ? show_texts(tree, conf->ingest.topics, conf->ingest.n_topics) : NULL;
}

FR_READ(start)
{
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
        fr_refuse(loader, node, path, "`%.80s` is in seconds, not milliseconds; expected Unix ms", text);
        return;
    }
    if (!fr_conf_time(text, &ms)) {
        fr_refuse(loader, node, path, "`%.80s` is not a start; expected %s", text, option->form);
        return;
    }
    conf->ingest.start = FR_START_TIME;
    conf->ingest.start_ms = ms;
}

FR_SHOW(start)
{
    const struct fr_conf *conf = tree->conf;
    return conf->ingest.start == FR_START_TIME
               ? fr_tree_number(tree, "%" PRId64, conf->ingest.start_ms)
               : fr_tree_word(tree, conf->ingest.start == FR_START_EARLIEST ? "earliest" : "latest");
}

/* A path is part of a position's name, in JSON. */
static void check_file(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *text)
{
    const struct fr_conf *conf = loader->conf;
    size_t size = strlen(text);
    if (size > FR_FILE_PATH_MAX) {
        fr_refuse(loader, node, path, "a path of %zu bytes; expected at most %d", size, FR_FILE_PATH_MAX);
        return;
    }
    for (size_t i = 0; i < size; i++)
        if (text[i] < 0x20 || text[i] > 0x7e || text[i] == '"' || text[i] == '\\') {
            fr_refuse(loader, node, path,
                      "a path with more than printable ASCII, or with a quote or a backslash; expected another one: "
                      "rename the file or link to it");
            return;
        }
    for (uint32_t i = 0; i < conf->ingest.n_files; i++)
        if (strcmp(conf->ingest.files[i], text) == 0) {
            fr_loader_twice(loader, node, path, "file");
            return;
        }
}

FR_READ(files)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 0, FR_FILES_MAX))
        return;
    conf->ingest.files = fr_loader_alloc(loader, node->count, sizeof(*conf->ingest.files));
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        const char *text = fr_loader_text(loader, node->values[i], at, "a file");
        if (!text)
            continue;
        check_file(loader, node->values[i], at, text);
        conf->ingest.files[conf->ingest.n_files++] = fr_loader_keep(loader, text);
    }
}

FR_SHOW(files)
{
    const struct fr_conf *conf = tree->conf;
    return conf->ingest.n_files > 0 ? show_texts(tree, conf->ingest.files, conf->ingest.n_files) : NULL;
}

/* ---- Kafka properties ---- */

static const struct denied {
    const char *pattern; /* a trailing or leading * matches anything */
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
        if (matches(denied_properties[i].pattern, key->text))
            return fr_refuse(loader, key, path, "may not be set: %s", denied_properties[i].why);
    }
    if (key->text[0] == '\0' ||
        strspn(key->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(key->text))
        return fr_refuse(loader, key, path, "not a property name; expected one of librdkafka's");
    if (value->kind == FR_NODE_SCALAR && strcmp(value->text, FR_MASK) == 0)
        return fr_refuse(loader, value, path, MASKED);
    if (value->kind == FR_NODE_SCALAR && !value->plain && value->text[0] == '\0')
        return true; /* "" in quotes is an empty value */
    return fr_loader_text(loader, value, path, "a value") != NULL;
}

FR_READ(kafka)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_sized(loader, node, path, FR_NODE_MAP, 0, FR_PROPERTIES_MAX))
        return;
    conf->ingest.kafka = fr_loader_alloc(loader, node->count, sizeof(*conf->ingest.kafka));
    for (uint32_t i = 0; i < node->count; i++) {
        const struct fr_node *key = node->keys[i], *value = node->values[i];
        char at[FR_PATH_MAX];
        fr_path_join(at, path, key->text);
        char place[FR_PATH_MAX];
        snprintf(place, sizeof(place), "%.400s:%" PRIu32 ":%" PRIu32, key->source, key->line, key->column);
        if (read_property(loader, key, value, at))
            conf->ingest.kafka[conf->ingest.n_kafka++] = (struct fr_conf_property){
                fr_loader_keep(loader, key->text), fr_loader_keep(loader, value->text), fr_loader_keep(loader, place)};
    }
}

/* The list names what may be shown, so an unknown name is treated as a secret. */
bool fr_conf_property_is_shown(const char *name)
{
    static const char *const shown[] = {
        "allow.auto.create.topics",
        "api.version.*",
        "batch.*",
        "broker.*",
        "check.crcs",
        "client.id",
        "client.rack",
        "compression.*",
        "connections.max.idle.ms",
        "debug",
        "delivery.timeout.ms",
        "enable.gapless.guarantee",
        "enable.random.seed",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "fetch.*",
        "heartbeat.interval.ms",
        "linger.ms",
        "log*",
        "max.*",
        "message.*",
        "metadata.*",
        "partition.assignment.strategy",
        "queue*",
        "receive.message.max.bytes",
        "reconnect.*",
        "request.timeout.ms",
        "retries",
        "retry.*",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "security.protocol",
        "session.timeout.ms",
        "socket.*",
        "ssl.ca.location",
        "ssl.ca.certificate.stores",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.sigalgs.list",
        "statistics.interval.ms",
        "sticky.partitioning.linger.ms",
        "topic.*",
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(shown); i++)
        if (matches(shown[i], name))
            return true;
    return false;
}

FR_SHOW(kafka)
{
    const struct fr_conf *conf = tree->conf;
    struct fr_node *all = fr_node_new(&tree->arena, FR_NODE_MAP, NULL);
    for (size_t i = 0; i < conf->ingest.n_kafka; i++) {
        const struct fr_conf_property *property = &conf->ingest.kafka[i];
        fr_tree_put(tree, all, property->name,
                    fr_tree_text(tree, fr_conf_property_is_shown(property->name) ? property->value : FR_MASK));
    }
    return all;
}

/* ---- metrics ---- */

FR_READ(listen)
{
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
        fr_refuse(loader, node, path, "`%.80s` is not an address; expected host:port or [ipv6]:port, port 0 to 65535",
                  text);
        return;
    }
    char *name = fr_node_copy_text(&conf->arena, from, bare);
    struct in6_addr address;
    /* A name may resolve to another address while the daemon is down, so the resolved address is
     * reported. */
    if (inet_pton(AF_INET, name, &address) != 1 && inet_pton(AF_INET6, name, &address) != 1) {
        fr_refuse(loader, node, path,
                  "`%.80s` is not an IPv4 or IPv6 address; 127.0.0.1 is this host, 0.0.0.0 all of "
                  "its addresses",
                  name);
        return;
    }
    conf->metrics.listen_host = name;
    conf->metrics.listen_port = (uint16_t)port;
}

FR_SHOW(listen)
{
    const struct fr_conf *conf = tree->conf;
    bool ipv6 = strchr(conf->metrics.listen_host, ':') != NULL;
    char text[320];
    snprintf(text, sizeof(text), "%s%s%s:%u", ipv6 ? "[" : "", conf->metrics.listen_host, ipv6 ? "]" : "",
             conf->metrics.listen_port);
    return fr_tree_text(tree, text);
}

FR_READ(hosts)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 0, FR_HOSTS_MAX))
        return;
    conf->metrics.hosts = fr_loader_alloc(loader, node->count, sizeof(*conf->metrics.hosts));
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        const char *text = fr_loader_text(loader, node->values[i], at, "a host name");
        if (text && strpbrk(text, ":/*"))
            fr_refuse(loader, node->values[i], at, "`%.80s` is not a host name; expected one without port", text);
        else if (text)
            conf->metrics.hosts[conf->metrics.n_hosts++] = fr_loader_keep(loader, text);
    }
}

FR_SHOW(hosts)
{
    const struct fr_conf *conf = tree->conf;
    return conf->metrics.n_hosts > 0 ? show_texts(tree, conf->metrics.hosts, conf->metrics.n_hosts) : NULL;
}

FR_READ(hook)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_HOOK_ARGUMENTS_MAX))
        return;
    conf->snapshot.hook = fr_loader_alloc(loader, node->count, sizeof(*conf->snapshot.hook));
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        const char *text = fr_loader_text(loader, node->values[i], at, i ? "an argument" : "a command");
        if (text && i == 0 && text[0] != '/')
            fr_refuse(loader, node->values[i], at, "`%.80s` is not an absolute path: no PATH is searched", text);
        else if (text)
            conf->snapshot.hook[conf->snapshot.n_hook++] = fr_loader_keep(loader, text);
    }
}

FR_SHOW(hook)
{
    const struct fr_conf *conf = tree->conf;
    return conf->snapshot.n_hook > 0 ? show_texts(tree, conf->snapshot.hook, conf->snapshot.n_hook) : NULL;
}

FR_READ(half_lives)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_HALF_LIVES_MAX))
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
            fr_refuse(loader, item, at, "`%.80s` needs a unit; expected a duration such as 5m or 1d", text);
        else if (result != FR_SCALAR_OK || ms < 1000 || ms > 315360000000 ||
                 strlen(text) >= sizeof(conf->metrics.half_life_name[0]))
            fr_refuse(loader, item, at, "`%.80s` is not a half-life; expected a duration from 1s to 3650d", text);
        else {
            for (uint32_t j = 0; j < n; j++) {
                if (conf->metrics.half_life_ms[j] == ms)
                    fr_loader_twice(loader, item, at, "half-life");
            }
            conf->metrics.half_life_ms[n] = ms;
            memset(conf->metrics.half_life_name[n], 0, sizeof(conf->metrics.half_life_name[n]));
            memcpy(conf->metrics.half_life_name[n], text, strlen(text));
            conf->metrics.n_half_lives = n + 1;
        }
    }
}

FR_SHOW(half_lives)
{
    struct fr_node *list = fr_tree_flow(tree, FR_NODE_LIST);
    for (uint32_t i = 0; i < tree->conf->metrics.n_half_lives; i++)
        fr_tree_put(tree, list, NULL, fr_tree_word(tree, tree->conf->metrics.half_life_name[i]));
    return list;
}
