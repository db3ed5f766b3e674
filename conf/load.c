/* Reading a configuration: text -> tree -> references replaced -> options, by the table -> rules
 * between several options. A step that needs the result of an earlier step (shapes need all layers)
 * is skipped if there is any problem. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "forms.h"
#include "layers.h"
#include "loader.h"

/* Bytes of delta records apart from what grows with the configuration, for the longest possible
 * names: a `model` record without its cfg, a `rows` record without a row's values (8 parts), a
 * `commit` without topics and offsets (16 tasks). The tests of exporter/codec compare the writer
 * with these. */
enum {
    MODEL_ROOM = 4096,
    ROW_ROOM = 2048,
    COMMIT_ROOM = 2048,
    COMMIT_TOPIC = 8,   /* besides its name */
    COMMIT_FILE = 24,   /* besides its name, with `file:` and its one position */
    COMMIT_OFFSET = 14, /* a partition and its offset */
    COMMIT_PARTITIONS = 4096
};

/* ingest.batch_warmup.first, and the number of learned parameters from which a network is large. */
enum { WARMUP_FIRST = 2, WARMUP_FIRST_LARGE = 8, WARMUP_LARGE = 1 << 17 };

/* ---- rules between several options ---- */

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

static void finish_sizes(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    const uint64_t mib = 1 << 20;
    /* Longer epochs write hot rows less often. Stages and kept epochs take about three times this
     * value, which rows then lack where memory is short. */
    if (conf->epoch_bytes_max == 0)
        conf->epoch_bytes_max =
            clamp(conf->memory_limit / 32, clamp(conf->memory_limit / 16, mib, 64 * mib), 256 * mib);
    if (conf->unfolded_max == 0)
        conf->unfolded_max = clamp(conf->memory_limit / 4, 64 << 10, 512 * mib);
    if (conf->journal_max == 0)
        conf->journal_max = 4 * conf->unfolded_max;
    if (conf->journal_max < 2 * conf->unfolded_max) {
        const struct fr_node *node = fr_node_get(root, "journal_max");
        fr_refuse(
            loader, node ? node : root, "journal_max",
            "below twice unfolded_max, reading would pause before a fold can free anything; expected at least %" PRIu64
            "B",
            2 * conf->unfolded_max);
    }
}

static void check_reserve(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    if (conf->memory_reserve > conf->memory_limit / 4 * 3) {
        const struct fr_node *node = fr_node_get(root, "memory_reserve");
        fr_refuse(loader, node ? node : root, "memory_reserve",
                  "%" PRIu64 "B; expected at most three quarters of memory_limit, %" PRIu64 "B", conf->memory_reserve,
                  conf->memory_limit / 4 * 3);
    }
}

/* Memory reserved by counters is never given back, so rows need the larger part. */
static void check_sketches(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < conf->n_tables; t++)
        bytes += conf->tables[t].admit_sketch ? conf->tables[t].admit_sketch_bytes : 0;
    if (bytes > conf->memory_limit / 2) {
        const struct fr_node *node = fr_node_get(root, "tables");
        fr_refuse(loader, node ? node : root, "tables",
                  "sketches of %" PRIu64 "B in all; expected at most half of memory_limit, %" PRIu64 "B", bytes,
                  conf->memory_limit / 2);
    }
}

static void check_domains(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_node *scale = fr_node_get(root, "scale");
    if (!scale || conf->domains == 0)
        return;
    if (conf->export_.partitions % conf->domains != 0)
        fr_refuse(loader, scale, "scale.domains",
                  "%" PRIu32 ", and export.partitions is %" PRIu32
                  ": a partition must lie in one domain; expected a divisor of export.partitions, or set that to a "
                  "multiple of %" PRIu32 " (fixed once the state is made)",
                  conf->domains, conf->export_.partitions, conf->domains);
    if (conf->ranks > conf->domains)
        fr_refuse(loader, scale, "scale.ranks",
                  "%" PRIu32 ", and scale.domains is %" PRIu32
                  ": each rank needs a domain; expected at most that, or more domains (fixed once the state is made)",
                  conf->ranks, conf->domains);
    if (conf->ranks > 1 && (conf->snapshot.every_ms > 0 || conf->snapshot.at_drain))
        fr_refuse(loader, scale, "scale.ranks",
                  "more than 1 with snapshots, which have the rows of one rank in this version; set snapshot.every: 0s "
                  "and snapshot.at_drain: false, and let replicas begin with the topic (export.retention: all)");
    if (conf->ranks > 1 && conf->export_.format == FR_EXPORT_HPS)
        fr_refuse(loader, scale, "scale.ranks", "more than 1 with export.format: hps, which was not tried with ranks");
    if (conf->domains > 1 && conf->device == FR_DEVICE_CUDA)
        fr_refuse(
            loader, scale, "scale.domains",
            "more than 1 with device: cuda; a state with domains trains on the CPU in this version, so set device: "
            "cpu, or leave scale out");
}

static void check_capacities(struct fr_loader *loader, const struct fr_node *root)
{
    enum { KEY_BYTES = 11 };
    const struct fr_conf *conf = loader->conf;
    uint64_t keys = 0;
    for (uint32_t t = 0; t < conf->n_tables; t++)
        keys += conf->tables[t].initial_capacity;
    if (keys > conf->memory_limit / 2 / KEY_BYTES) {
        const struct fr_node *node = fr_node_get(root, "tables");
        fr_refuse(loader, node ? node : root, "tables",
                  "initial_capacity of %" PRIu64
                  " keys in all, %d bytes each; expected at most half of memory_limit, %" PRIu64 "B",
                  keys, KEY_BYTES, conf->memory_limit / 2);
    }
}

/* Checked here and not where a label is read, so that an existing model in a topic or a state stays
 * readable. */
static void check_labels(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        const struct fr_conf_label *label = &conf->labels[i];
        char path[FR_PATH_MAX];
        if (!label->has_negative || label->negative != 1.0f)
            continue;
        snprintf(path, sizeof(path), "labels.%s.negative", label->name);
        const struct fr_node *node = fr_node_get(fr_node_get(fr_node_get(root, "labels"), label->name), "negative");
        fr_refuse(loader, node ? node : root, path,
                  "1 is what samples say for a positive label, and no label would be positive; expected the number by "
                  "which samples say 0, such as -1");
    }
}

static void default_topic(struct fr_loader *loader, char **place, const char *stem, const char *suffix)
{
    if (*place)
        return;
    char topic[512];
    snprintf(topic, sizeof(topic), "%.249s%s", stem, suffix);
    *place = fr_loader_keep(loader, topic);
}

static void default_folder(struct fr_loader *loader)
{
    struct fr_conf *conf = loader->conf;
    char path[PATH_MAX];
    int size =
        conf->snapshot.dir || !conf->state_dir ? 0 : snprintf(path, sizeof(path), "%s/snapshots", conf->state_dir);
    if (size > 0 && (size_t)size < sizeof(path)) /* a longer state_dir cannot be opened */
        conf->snapshot.dir = fr_loader_keep(loader, path);
}

/* While the daemon is away, the topic deletes its records by age; a snapshot of the last epoch
 * stays. */
static void default_at_drain(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    if (!fr_node_get(fr_node_get(root, "snapshot"), "at_drain"))
        conf->snapshot.at_drain = conf->export_.retention == FR_RETENTION_SNAPSHOTS;
}

static bool is_sample_topic(const struct fr_conf *conf, const char *topic)
{
    for (uint32_t i = 0; i < conf->ingest.n_topics; i++) {
        if (strcmp(conf->ingest.topics[i], topic) == 0)
            return true;
    }
    return false;
}

static bool is_topic_of_ingest(const struct fr_conf *conf, const char *topic)
{
    return is_sample_topic(conf, topic) ||
           (conf->ingest.dead_letter_topic && strcmp(topic, conf->ingest.dead_letter_topic) == 0);
}

/* Sets the default topics of `export`; each must be a topic of its own. */
static void finish_export_topics(struct fr_loader *loader, const struct fr_node *place)
{
    struct fr_conf *conf = loader->conf;
    if (conf->model[0] != '\0') {
        default_topic(loader, &conf->export_.topic, conf->model, ".delta");
        default_topic(loader, &conf->export_.acknowledgement_topic, conf->model, ".ack");
    }
    const char *topic = conf->export_.topic, *acknowledgements = conf->export_.acknowledgement_topic;
    if (topic && is_topic_of_ingest(conf, topic))
        fr_refuse(loader, place, "export.topic", "`%s` is a topic of `ingest`; expected another", topic);
    if (acknowledgements && topic && conf->export_.acknowledgements &&
        (is_topic_of_ingest(conf, acknowledgements) || strcmp(acknowledgements, topic) == 0))
        fr_refuse(loader, place, "export.acknowledgement_topic",
                  "`%s` is a topic of `ingest` or the delta topic; expected another", acknowledgements);
}

static void finish_topics(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    const struct fr_node *ingest = fr_node_get(root, "ingest");
    bool one = fr_node_get(ingest, "topic") != NULL, many = fr_node_get(ingest, "topics") != NULL;
    if (ingest && one == many && (one || conf->ingest.n_files == 0))
        fr_refuse(loader, ingest, "ingest.topic", "%s",
                  one ? "given twice; expected `topic` or `topics`" : "missing; expected a topic name");
    bool files = conf->ingest.n_files > 0 && conf->model[0] != '\0';
    if (conf->ingest.n_topics > 0 || files) {
        default_topic(loader, &conf->ingest.dead_letter_topic,
                      conf->ingest.n_topics > 0 ? conf->ingest.topics[0] : conf->model, ".dead");
        if (!fr_is_topic(conf->ingest.dead_letter_topic))
            fr_refuse(loader, ingest, "ingest.dead_letter_topic",
                      "the default is too long for a topic; expected a name");
        if (is_sample_topic(conf, conf->ingest.dead_letter_topic))
            fr_refuse(loader, ingest, "ingest.dead_letter_topic", "is the topic of the samples; expected another");
    }
    const struct fr_node *export_ = fr_node_get(root, "export");
    finish_export_topics(loader, export_ ? export_ : root);
    default_folder(loader);
    const struct fr_node *brokers = fr_node_get(ingest, "brokers");
    char problem[256];
    if (ingest && !brokers && (one || many || conf->ingest.n_files == 0))
        fr_refuse(loader, ingest, "ingest.brokers", "missing; expected Kafka bootstrap servers, `host:port,host:port`");
    if (ingest && !brokers && conf->export_.brokers)
        fr_refuse(loader, fr_node_get(export_, "brokers"), "export.brokers",
                  "given without `ingest.brokers`; expected both, or none with `files` alone");
    if (conf->ingest.brokers && !fr_conf_brokers_are_sound(conf->ingest.brokers, problem, sizeof(problem)))
        fr_refuse(loader, brokers, "ingest.brokers", "%s", problem);
    if (conf->ingest.brokers && conf->export_.brokers && strcmp(conf->ingest.brokers, conf->export_.brokers) != 0)
        fr_refuse(loader, fr_node_get(export_, "brokers"), "export.brokers",
                  "other brokers than those of `ingest` are not in this version");
    if (conf->ingest.brokers && !conf->export_.brokers)
        conf->export_.brokers = conf->ingest.brokers;
}

/* Snapshots next to the state's own files would replace one (fr_snapshot_place resolves links,
 * too). */
static void check_folder(struct fr_loader *loader, const struct fr_node *root)
{
    static const char *const parts[] = {"", "cold", "fold", "journal", "savepoints"};
    const struct fr_conf *conf = loader->conf;
    const struct fr_node *node = fr_node_get(fr_node_get(root, "snapshot"), "dir");
    size_t size = conf->state_dir ? strlen(conf->state_dir) : 0;
    while (size > 0 && conf->state_dir[size - 1] == '/')
        size--;
    if (!node || !conf->snapshot.dir || size == 0 || strncmp(conf->snapshot.dir, conf->state_dir, size) != 0)
        return;
    const char *below = conf->snapshot.dir + size;
    if (*below != '\0' && *below != '/')
        return;
    below += strspn(below, "/");
    for (size_t i = 0; i < FR_ARRAY_LEN(parts); i++)
        if (strlen(parts[i]) == strcspn(below, "/") && strncmp(below, parts[i], strlen(parts[i])) == 0)
            fr_refuse(loader, node, "snapshot.dir",
                      "`%s` holds files of the state; expected a folder of its own, such as state_dir/snapshots",
                      conf->snapshot.dir);
}

static void check_retention(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_node *node = fr_node_get(fr_node_get(root, "export"), "retention");
    if (conf->export_.retention == FR_RETENTION_SNAPSHOTS && conf->snapshot.every_ms == 0)
        fr_refuse(loader, node ? node : root, "export.retention",
                  "without snapshots new replicas need the whole topic; expected `all`, or set snapshot.every");
}

static void need_piece(struct fr_loader *loader, const struct fr_node *root, size_t bytes, const char *what)
{
    if (bytes > loader->conf->export_.piece_max)
        fr_refuse(loader, root, "export.piece_max", "%s; expected at least %zuB", what, bytes);
}

/* Checks that every indivisible record fits: what cannot be published must not be trained. */
static void check_pieces(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_node *export = fr_node_get(root, "export");
    const struct fr_node *node = export ? fr_node_get(export, "piece_max") : NULL;
    char what[256];
    struct fr_buffer json = {0};
    node = node ? node : root;
    fr_conf_model_json(conf, &json);
    snprintf(what, sizeof(what), "the model's description takes %zu bytes", json.size);
    need_piece(loader, node, json.size + MODEL_ROOM, what);
    fr_buffer_release(&json);

    enum fr_quantize quantize = conf->export_.quantize; /* i8 has scales in addition to its bytes */
    size_t width = quantize == FR_QUANT_F16 || quantize == FR_QUANT_BF16 ? 2 : 4;
    for (uint32_t t = 0; t < conf->n_tables; t++) {
        size_t floats = 0;
        for (uint32_t p = 0; p < conf->tables[t].n_parts; p++)
            floats += conf->tables[t].parts[p].dim;
        snprintf(what, sizeof(what), "a row of table `%s` takes %zu bytes", conf->tables[t].name, floats * width);
        need_piece(loader, node, floats * width + ROW_ROOM, what);
    }

    size_t commit = COMMIT_ROOM + (size_t)COMMIT_PARTITIONS * COMMIT_OFFSET;
    for (uint32_t t = 0; t < conf->ingest.n_topics; t++)
        commit += strlen(conf->ingest.topics[t]) + COMMIT_TOPIC;
    for (uint32_t f = 0; f < conf->ingest.n_files; f++)
        commit += strlen(conf->ingest.files[f]) + COMMIT_FILE;
    snprintf(what, sizeof(what), "a commit with the offsets of %d partitions takes %zu bytes", COMMIT_PARTITIONS,
             commit);
    need_piece(loader, node, commit, what);
}

/* A step costs a pass over everything that the layers learn, however few samples it has, so a large
 * network begins with larger batches. conf/README.md has the costs and gains of both sizes. */
static void finish_warmup(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    const struct fr_node *ingest = fr_node_get(root, "ingest");
    const struct fr_node *warmup = ingest ? fr_node_get(ingest, "batch_warmup") : NULL;
    if (!warmup || !fr_node_get(warmup, "first"))
        conf->ingest.batch_warmup_first = conf->dense_parameters > WARMUP_LARGE ? WARMUP_FIRST_LARGE : WARMUP_FIRST;
}

static void finish(struct fr_loader *loader, const struct fr_node *root)
{
    struct fr_conf *conf = loader->conf;
    finish_sizes(loader, root);
    check_sketches(loader, root);
    check_reserve(loader, root);
    check_capacities(loader, root);
    check_domains(loader, root);
    check_labels(loader, root);
    fr_loader_check_paths(loader, root);
    default_at_drain(loader, root);
    finish_topics(loader, root);
    check_folder(loader, root);
    check_retention(loader, root);
    fr_layers_store(loader);
    if (loader->problems.count > 0 || !fr_shapes_infer(loader))
        return;
    if (conf->dense_bytes > conf->unfolded_max) {
        const struct fr_node *node = fr_node_get(root, "unfolded_max");
        fr_refuse(
            loader, node ? node : root, "unfolded_max",
            "an epoch that trains holds %" PRIu64
            " bytes of the layers' parameters and optimizer state, and no fold may be smaller than an epoch; expected "
            "at least %" PRIu64
            "B (default: a quarter of memory_limit), with a longer `epoch`, since each writes as much",
            conf->dense_bytes, conf->dense_bytes);
    }
    check_pieces(loader, root);
    finish_warmup(loader, root);
}

enum fr_status fr_conf_load(const struct fr_conf_load_options *options, struct fr_conf **out,
                            struct fr_buffer *problems)
{
    struct fr_loader loader;
    struct fr_buffer file = {0};
    enum fr_status status = FR_E_INVALID;
    const char *source = options->path ? options->path : "config";
    const struct fr_node at = {.source = source, .line = 1, .column = 1};
    const char *text = options->text;
    size_t size = text ? strlen(text) : 0;
    fr_loader_init(&loader);
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
    if (root->kind == FR_NODE_MAP) { /* otherwise the walk reports the problem */
        for (size_t i = 0; i < options->n_sets; i++)
            fr_document_set(&loader.arena, &loader.problems, root, options->sets[i]);
    }
    fr_document_expand(&loader, root, options->text ? NULL : source);
    fr_loader_defaults(&loader, "", loader.conf);
    fr_loader_walk(&loader, "", "", root, loader.conf);
    if (root->kind == FR_NODE_MAP)
        finish(&loader, root);
    if (loader.problems.count == 0) {
        fr_loader_warn_unused(&loader, root);
        *out = loader.conf;
        loader.conf = NULL;
        status = FR_OK;
    }
out:
    fr_problems_write(&loader.problems, "", problems);
    fr_buffer_terminate(problems);
    if (options->warnings) {
        fr_problems_write(&loader.warnings, "warning: ", options->warnings);
        fr_buffer_terminate(options->warnings);
    }
    fr_buffer_release(&file);
    fr_loader_release(&loader);
    return status;
}
