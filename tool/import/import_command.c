/* `freshet import`: a new state from rows and dense parameters that were trained elsewhere.
 *
 * The state is made in the same way as every state: epochs are appended to a journal, synced and
 * folded, in a directory next to the requested one; finally a savepoint of that state becomes the
 * requested directory. So the directory appears whole or not at all. It contains a cold store and a
 * mark, and the daemon that starts on it publishes everything as one merged epoch
 * (docs/formats/deltas.md, "Merged epochs").
 *
 * Rows are written in epochs of EPOCH_BYTES. The last epoch has the sections of a model that has
 * trained nothing yet, with the given parameters (fr_graph_adopt). Memory: one epoch, the cold
 * store's, and about 16 bytes for each key, which detect repeated keys.
 *
 * Thread: one. Parquet files and NumPy archives are read by the Python package, which passes their
 * rows to this command. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "durable/savepoint.h"
#include "identity.h"
#include "import/import_lines.h"
#include "ingest/positions.h"
#include "metrics/task.h"
#include "store/section.h"
#include "tool.h"
#include "trainer/section.h"

enum { EPOCH_BYTES = 64 << 20, FILES_MAX = FR_TABLES_MAX, KEYS_MIN = 1024 };

static const char usage[] =
    "freshet import --config FILE [--set path=value].. [--table NAME=FILE].. [--dense FILE] [--seen TIME] [--closed]\n\n"
    "Makes the state_dir of the configuration, which must not hold anything yet, from a model trained elsewhere.\n"
    "freshetd started with the same configuration publishes it whole and trains on.\n"
    "  --table NAME=FILE   rows of a table, JSON Lines, plain or gzip, each with all parts of the table:\n"
    "                      {\"id\":\"sku-7\",\"parts\":{\"v\":[0.1,..]}}, or \"key\" for the hashed key, as `freshet dump`\n"
    "                      prints it; \"slot\" where slots of the table differ in namespace; seen_ms, show, click and\n"
    "                      the optimizer's \"state\" if known (docs/python.md)\n"
    "  --dense FILE        parameters of the layers: {\"dense\":\"h/0/kernel\",\"shape\":[2,3],\"values\":[..]}, with\n"
    "                      \"state\" and \"samples\" of their optimizer if known; those that are not given begin as\n"
    "                      in a new model\n"
    "  --seen TIME         when rows that do not say were trained last (default: now): 2026-01-02T03:04:05Z or Unix ms\n"
    "  --closed            each file must end with {\"rows\":N}: a file that was cut short is recognised by that\n"
    "`python -m freshet import` reads Parquet tables and .npz arrays and calls this command.\n";

/* The keys of a table, by open addressing; 0 marks a free place, so a flag records whether the
 * set has the key 0. */
struct key_set {
    uint64_t *keys;
    size_t capacity, n;
    bool has_zero;
};

struct importing {
    const struct fr_conf *conf;
    struct fr_graph *graph;
    bool *given; /* [parameters] */
    size_t n_given, n_states;
    struct fr_row_layout layouts[FR_TABLES_MAX];
    struct key_set keys[FR_TABLES_MAX];
    struct fr_order order;
    struct fr_durable *durable;
    struct fr_stage stage;
    uint64_t epoch;                 /* the epoch that the stage becomes */
    struct fr_store_section *store; /* [domains] */
    uint64_t n_rows;
};

/* ---- keys ---- */

static bool place_key(struct key_set *set, uint64_t key)
{
    size_t at = fr_fmix64(key) & (set->capacity - 1);
    while (set->keys[at] != 0 && set->keys[at] != key)
        at = (at + 1) & (set->capacity - 1);
    if (set->keys[at] == key)
        return false;
    set->keys[at] = key;
    return true;
}

/* false: the key is there already. */
static bool add_key(struct key_set *set, uint64_t key)
{
    if (key == 0) {
        bool fresh = !set->has_zero;
        set->has_zero = true;
        return fresh;
    }
    if (2 * set->n >= set->capacity) {
        struct key_set larger = {.capacity = set->capacity ? 2 * set->capacity : KEYS_MIN, .has_zero = set->has_zero};
        larger.keys = fr_alloc(larger.capacity, sizeof(*larger.keys));
        for (size_t i = 0; i < set->capacity; i++)
            larger.n += set->keys[i] != 0 && place_key(&larger, set->keys[i]);
        free(set->keys);
        *set = larger;
    }
    bool fresh = place_key(set, key);
    set->n += fresh;
    return fresh;
}

/* ---- the contents of the files ---- */

/* Turns the stage into an epoch and folds it into the cold store. */
static enum fr_status close_epoch(struct importing *im, struct fr_err *err)
{
    struct fr_sha256 digest;
    im->stage.epoch = ++im->epoch;
    im->stage.timeline = 1;
    enum fr_status status = fr_durable_append(im->durable, &im->stage, NULL, &digest, err);
    if (status == FR_OK)
        /* lets the journal free the epoch */
        status = fr_durable_acknowledge(im->durable, im->epoch, err);
    if (status == FR_OK)
        status = fr_durable_fold(im->durable, err);
    fr_stage_clear(&im->stage);
    return status;
}

static enum fr_status take_row(void *self, const struct fr_tool_import_row *row, struct fr_err *err)
{
    struct importing *im = self;
    const struct fr_conf_table *table = &im->conf->tables[row->table];
    if (!add_key(&im->keys[row->table], row->key))
        return fr_err_set(err, FR_E_INVALID, "key %" PRIu64 " of table %s comes twice", row->key, table->name);
    size_t bytes = im->layouts[row->table].row_floats * sizeof(float);
    uint32_t domain = fr_key_domain(row->key, fr_conf_domains(im->conf));
    struct fr_image image = {.key = row->key,
                             .table = fr_subtable(row->table, domain),
                             .size = (uint32_t)(FR_ROW_IMAGE_HEAD + bytes),
                             .kind = FR_IMAGE_ROW};
    uint8_t *to = fr_stage_image(&im->stage, &image);
    memcpy(to, &row->head, FR_ROW_IMAGE_HEAD);
    memcpy(to + FR_ROW_IMAGE_HEAD, row->floats, bytes);
    struct fr_store_section_table *counts = &im->store[domain].tables[row->table];
    uint64_t shard = fr_order_hash(&im->order, row->key) >> 60;
    counts->rows[shard]++;
    counts->counts.rows++;
    counts->counts.admitted++;
    im->n_rows++;
    return fr_stage_bytes(&im->stage) < EPOCH_BYTES ? FR_OK : close_epoch(im, err);
}
_Static_assert(FR_SHARDS == 16, "a shard is the top 4 bits of the hash");

static enum fr_status take_dense(void *self, const struct fr_tool_import_dense *dense, struct fr_err *err)
{
    struct importing *im = self;
    size_t count = fr_graph_parameter_count(im->graph), p = 0;
    struct fr_parameter *parameters = fr_graph_parameters(im->graph);
    while (p < count && strcmp(parameters[p].name, dense->name) != 0)
        p++;
    if (p == count)
        return fr_err_set(err, FR_E_INVALID, "the configuration has no parameter %s", dense->name);
    struct fr_parameter *to = &parameters[p];
    if (im->given[p])
        return fr_err_set(err, FR_E_INVALID, "parameter %s comes twice", dense->name);
    if (to->n_dims != dense->n_dims || to->shape[0] != dense->shape[0] ||
        (to->n_dims == 2 && to->shape[1] != dense->shape[1])) {
        char want[32], have[32];
        snprintf(want, sizeof(want), to->n_dims == 2 ? "[%u,%u]" : "[%u]", to->shape[0], to->shape[1]);
        snprintf(have, sizeof(have), dense->n_dims == 2 ? "[%u,%u]" : "[%u]", dense->shape[0], dense->shape[1]);
        return fr_err_set(err, FR_E_INVALID, "%s has the shape %s, and the configuration says %s%s", dense->name, have,
                          want, to->n_dims == 2 ? " (inputs, outputs)" : "");
    }
    memcpy(to->values, dense->values, to->n_values * sizeof(float));
    im->given[p] = true;
    im->n_given++;
    im->n_states += dense->state != NULL;
    return dense->state ? fr_graph_adopt_state(im->graph, p, dense->state, dense->n_states, dense->samples, err)
                        : FR_OK;
}

/* ---- the sections of a model that has trained nothing yet ---- */

static void stage_dense(struct importing *im)
{
    const struct fr_parameter *parameters = fr_graph_parameters(im->graph);
    for (size_t p = 0; p < fr_graph_parameter_count(im->graph); p++) {
        const struct fr_parameter *parameter = &parameters[p];
        struct fr_dense_view view = {.n_dims = parameter->n_dims,
                                     .shape = {parameter->shape[0], parameter->shape[1]},
                                     .n_values = parameter->n_values,
                                     .values = parameter->published,
                                     .exact = parameter->exact};
        char name[FR_SECTION_NAME_MAX];
        snprintf(view.name, sizeof(view.name), "%s", parameter->name);
        fr_dense_stage(&im->stage, &view);
        snprintf(name, sizeof(name), "dense_state/%s", parameter->name);
        fr_graph_save_parameter(im->graph, p, fr_stage_section(&im->stage, name));
    }
    fr_graph_save_shared(im->graph, fr_stage_section(&im->stage, "dense_state"));
}

static void stage_sections(struct importing *im)
{
    struct fr_announcement announcement = {
        .wall_ms = fr_wall_ms(fr_clock_system()), .publish_model = true, .publish_dense = true};
    struct fr_trainer_history history = {.watermark_ms = INT64_MIN,
                                         .closed = true,
                                         .publishable = im->epoch + 1,
                                         .dense_published = true,
                                         .n_tasks = im->conf->n_tasks};
    struct fr_positions positions = {0};
    struct fr_metrics_section metrics = {0};
    for (uint32_t t = 0; t < im->conf->n_tasks; t++)
        memcpy(history.tasks[t].name, im->conf->tasks[t].name, FR_NAME_MAX);
    fr_announcement_encode(&announcement, fr_stage_section(&im->stage, "announce"));
    fr_positions_encode(&positions, fr_stage_section(&im->stage, "positions"));
    fr_metrics_section_encode(&metrics, fr_stage_section(&im->stage, FR_SECTION_METRICS));
    fr_trainer_section_encode(&history, fr_stage_section(&im->stage, FR_SECTION_TRAINER));
    for (uint32_t d = 0; d < fr_conf_domains(im->conf); d++) {
        char name[FR_SECTION_NAME_MAX];
        fr_store_section_name(FR_SECTION_STORE, d, fr_conf_domains(im->conf), name);
        fr_store_section_encode(&im->store[d], fr_stage_section(&im->stage, name));
    }
    stage_dense(im);
}

/* ---- the directory ---- */

static enum fr_status open_work(struct importing *im, const char *work, struct fr_err *err)
{
    struct fr_buffer head = {0};
    fr_identity_head(im->conf, fr_graph_kernel(im->graph), &head);
    uint64_t salt = im->conf->ingest.lockstep ? fr_fmix64(im->conf->seed) : fr_order_random_salt();
    struct fr_durable_options options = {.dir = work, .salt = salt, .head = head.data, .head_size = head.size};
    enum fr_status status = fr_durable_open(&options, &im->durable, err);
    fr_buffer_release(&head);
    if (status != FR_OK)
        return status;
    im->order = fr_order_of(salt);
    return fr_identity_write(im->conf, im->durable, err);
}

/* Removes an empty directory at the requested path. */
static enum fr_status make_way(const char *dir, struct fr_err *err)
{
    if (rmdir(dir) == 0 || errno == ENOENT)
        return FR_OK;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return fr_err_set(err, FR_E_EXISTS,
                          "%s is there and not empty: an import makes a new state; give another state_dir", dir);
    return fr_err_set(err, FR_E_IO, "cannot take the place of %s: %s", dir, strerror(errno));
}

struct sources {
    struct fr_tool_import_file files[FILES_MAX + 1];
    size_t n;
};

static enum fr_status fill(struct importing *im, const struct sources *sources, const char *work, const char *dir,
                           struct fr_err *err)
{
    struct fr_tool_import_visitor visitor = {im, take_row, take_dense};
    struct fr_savepoint made = {0};
    enum fr_status status = open_work(im, work, err);
    for (size_t i = 0; i < sources->n && status == FR_OK; i++)
        status = fr_tool_import_read(&sources->files[i], im->conf, im->layouts, &visitor, err);
    if (status == FR_OK)
        status = fr_graph_adopt(im->graph, im->given, err);
    if (status == FR_OK) {
        stage_sections(im);
        status = close_epoch(im, err);
    }
    if (status == FR_OK)
        status = make_way(dir, err);
    if (status == FR_OK)
        status = fr_durable_savepoint(im->durable, dir, &made, err);
    if (status == FR_OK)
        printf("imported state_dir=%s epoch=%" PRIu64 " rows=%" PRIu64 " dense=%zu of %zu states=%zu bytes=%" PRIu64
               "\n",
               dir, made.epoch, im->n_rows, im->n_given, fr_graph_parameter_count(im->graph), im->n_states, made.bytes);
    return status;
}

static void report_missing(const struct importing *im)
{
    const struct fr_parameter *parameters = fr_graph_parameters(im->graph);
    for (size_t p = 0; p < fr_graph_parameter_count(im->graph); p++)
        if (!im->given[p])
            fprintf(stderr, "freshet import: parameter %s was not given: it begins as in a new model\n",
                    parameters[p].name);
}

static enum fr_status import_into(const struct fr_conf *conf, const struct sources *sources, struct fr_err *err)
{
    struct importing *im = fr_alloc(1, sizeof(*im));
    char work[PATH_MAX];
    struct fr_err ignored = {0};
    size_t length = strlen(conf->state_dir);
    while (length > 1 && conf->state_dir[length - 1] == '/')
        length--;
    char *dir = fr_alloc(length + 1, 1);
    memcpy(dir, conf->state_dir, length);
    if (snprintf(work, sizeof(work), "%s.import", dir) >= (int)sizeof(work)) {
        free(im);
        free(dir);
        return fr_err_set(err, FR_E_LIMIT, "state_dir: the path is too long");
    }
    im->conf = conf;
    im->graph = fr_graph_new(&(struct fr_graph_options){.conf = conf});
    im->given = fr_alloc(fr_graph_parameter_count(im->graph) + 1, sizeof(*im->given));
    for (uint32_t t = 0; t < conf->n_tables; t++)
        fr_graph_row_layout(&conf->tables[t], &im->layouts[t]);
    im->store = fr_alloc(fr_conf_domains(im->conf), sizeof(*im->store));
    for (uint32_t d = 0; d < fr_conf_domains(im->conf); d++) {
        im->store[d].n_tables = conf->n_tables;
        im->store[d].tables = fr_alloc(conf->n_tables, sizeof(*im->store[d].tables));
    }
    fr_stage_init(&im->stage);
    enum fr_status status = access(dir, F_OK) == 0 ? make_way(dir, err) : FR_OK;
    if (status == FR_OK && access(work, F_OK) == 0) /* an interrupted import left this directory */
        status = fr_savepoint_remove(work, err);
    if (status == FR_OK)
        status = fill(im, sources, work, dir, err);
    if (status == FR_OK)
        report_missing(im);
    fr_durable_close(im->durable);
    if (access(work, F_OK) == 0)
        /* on failure the next import removes the rest */
        (void)!fr_savepoint_remove(work, &ignored);
    fr_stage_release(&im->stage);
    fr_graph_free(im->graph);
    for (uint32_t t = 0; t < conf->n_tables; t++)
        free(im->keys[t].keys);
    for (uint32_t d = 0; d < fr_conf_domains(im->conf); d++)
        fr_store_section_release(&im->store[d]);
    free(im->store);
    free(im->given);
    free(im);
    free(dir);
    return status;
}

/* ---- the command line ---- */

static bool add_table(const struct fr_conf *conf, const char *text, struct sources *sources)
{
    const char *equals = strchr(text, '=');
    int32_t table = FR_NO_INDEX;
    for (uint32_t t = 0; t < conf->n_tables && equals; t++)
        if (strlen(conf->tables[t].name) == (size_t)(equals - text) &&
            strncmp(conf->tables[t].name, text, (size_t)(equals - text)) == 0)
            table = (int32_t)t;
    if (!equals || !equals[1] || table == FR_NO_INDEX) {
        fprintf(stderr, "freshet import: --table %s: %s\n", text,
                !equals || !equals[1] ? "expected NAME=FILE" : "the configuration has no such table");
        return false;
    }
    sources->files[sources->n++] = (struct fr_tool_import_file){.path = equals + 1, .table = table};
    return true;
}

static int run(const struct fr_conf *conf, const char *const *tables, size_t n_tables, const char *dense,
               int64_t seen_ms, bool closed)
{
    struct sources *sources = fr_alloc(1, sizeof(*sources));
    struct fr_err err = {0};
    int code = FR_TOOL_OK;
    for (size_t i = 0; i < n_tables && code == FR_TOOL_OK; i++)
        code = add_table(conf, tables[i], sources) ? FR_TOOL_OK : FR_TOOL_USAGE;
    if (dense)
        sources->files[sources->n++] = (struct fr_tool_import_file){.path = dense, .table = FR_NO_INDEX};
    for (size_t i = 0; i < sources->n; i++) {
        sources->files[i].seen_ms = seen_ms;
        sources->files[i].closed = closed;
    }
    if (code == FR_TOOL_OK && fr_graph_check_machine(conf, &err) != FR_OK)
        code = fr_tool_fail("import", &err);
    if (code == FR_TOOL_OK && import_into(conf, sources, &err) != FR_OK)
        code = fr_tool_fail("import", &err);
    free(sources);
    return code == FR_TOOL_OK && fflush(stdout) != 0 ? FR_TOOL_FAILED : code;
}

int fr_tool_import(int argc, char **argv)
{
    const char *dense = NULL, *seen = NULL, *sets[FR_TOOL_SETS_MAX], *tables[FILES_MAX];
    struct fr_conf_load_options load = {.sets = sets};
    size_t n_tables = 0;
    bool closed = false;
    const struct fr_tool_option options[] = {
        FR_TOOL_CONFIG_OPTIONS(load, sets, true), FR_TOOL_MANY("--table", tables, n_tables),
        {.name = "--dense", .value = &dense},     {.name = "--seen", .value = &seen},
        {.name = "--closed", .flag = &closed},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    int64_t seen_ms = fr_wall_ms(fr_clock_system());
    if (!dense && n_tables == 0) {
        fprintf(stderr, "freshet import: nothing to import: give --table or --dense\n\n%s", usage);
        return FR_TOOL_USAGE;
    }
    if (seen && !fr_conf_time(seen, &seen_ms)) {
        fprintf(stderr, "freshet import: --seen %s: expected a time like 2026-01-02T03:04:05Z or Unix ms\n", seen);
        return FR_TOOL_USAGE;
    }
    umask(077);
    struct fr_conf *conf = NULL;
    int code = fr_tool_load_conf(&load, &conf);
    if (code == FR_TOOL_OK)
        code = run(conf, tables, n_tables, dense, seen_ms, closed);
    fr_conf_free(conf);
    return code;
}
