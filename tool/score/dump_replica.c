/* Turns a dump into a replica: its rows and parameters are written as the delta records of one
 * epoch, in f32 (the dump's numbers are exactly the published values), and fed to the library as a
 * topic would be. So a score from a dump takes the same path as any other. The dump's hash is
 * checked before anything is scored.
 *
 * Memory: all rows at the same time. Thread: one. An incomplete dump is refused. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "graph/graph.h"
#include "import/import_lines.h"
#include "score/served.h"

enum { PIECE_BYTES = 4 << 20 };

struct loaded_row {
    uint64_t key;
    uint32_t table;
    size_t at; /* index in `floats` of the first float */
};

struct loaded_dense {
    struct fr_tool_import_dense as_read; /* without its values */
    size_t at;
};

struct loading {
    const char *path;
    struct fr_codec_settings settings;
    struct loaded_row *rows;
    size_t n_rows, capacity_rows;
    struct fr_buffer floats; /* floats of rows, then of parameters, in the order read */
    struct loaded_dense *dense;
    size_t n_dense;
    struct fr_tool_import_end end;
    struct freshet_replica *replica;
    struct freshet_event event;
};

/* ---- from the file ---- */

static enum fr_status keep_row(void *self, const struct fr_tool_import_row *row, struct fr_err *err)
{
    struct loading *loading = self;
    (void)err;
    if (loading->n_rows == loading->capacity_rows) {
        loading->capacity_rows = loading->capacity_rows ? 2 * loading->capacity_rows : 1024;
        loading->rows = fr_realloc(loading->rows, loading->capacity_rows, sizeof(*loading->rows));
    }
    loading->rows[loading->n_rows++] =
        (struct loaded_row){.key = row->key, .table = row->table, .at = loading->floats.size / sizeof(float)};
    fr_buffer_append(&loading->floats, row->floats, loading->settings.tables[row->table].value_floats * sizeof(float));
    return FR_OK;
}

static enum fr_status keep_dense(void *self, const struct fr_tool_import_dense *dense, struct fr_err *err)
{
    struct loading *loading = self;
    (void)err;
    loading->dense = fr_realloc(loading->dense, loading->n_dense + 1, sizeof(*loading->dense));
    loading->dense[loading->n_dense++] = (struct loaded_dense){*dense, loading->floats.size / sizeof(float)};
    fr_buffer_append(&loading->floats, dense->values, dense->n_values * sizeof(float));
    return FR_OK;
}

static enum fr_status read_file(struct loading *loading, const struct fr_conf *conf, struct fr_err *err)
{
    const struct fr_tool_import_file file = {.path = loading->path, .dump = &loading->end};
    const struct fr_tool_import_visitor visitor = {loading, keep_row, keep_dense};
    struct fr_row_layout *layouts = fr_alloc(conf->n_tables + 1u, sizeof(*layouts));
    for (uint32_t t = 0; t < conf->n_tables; t++)
        fr_graph_row_layout(&conf->tables[t], &layouts[t]);
    enum fr_status status = fr_tool_import_read(&file, conf, layouts, &visitor, err);
    free(layouts);
    return status;
}

static int compare_rows(const void *left, const void *right)
{
    const struct loaded_row *a = left, *b = right;
    if (a->table != b->table)
        return a->table < b->table ? -1 : 1;
    return (a->key > b->key) - (a->key < b->key);
}

/* ---- to the replica ---- */

static enum fr_status feed(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct loading *loading = self;
    (void)piece;
    int fed = freshet_replica_feed(loading->replica, partition, bytes, size, &loading->event);
    return fed == FRESHET_OK && !loading->event.refused ? FR_OK : FR_E_MISMATCH;
}

static enum fr_status write_records(struct loading *loading, struct fr_err *err)
{
    struct fr_delta_row *rows = fr_alloc(loading->n_rows + 1, sizeof(*rows));
    struct fr_delta_dense *dense = fr_alloc(loading->n_dense + 1, sizeof(*dense));
    const float *floats = (const float *)(const void *)loading->floats.data;
    enum fr_status status = FR_OK;
    if (loading->n_rows > 1)
        qsort(loading->rows, loading->n_rows, sizeof(*loading->rows), compare_rows);
    for (size_t i = 0; i < loading->n_rows; i++) {
        if (i > 0 && compare_rows(&loading->rows[i - 1], &loading->rows[i]) == 0)
            status = fr_err_set(err, FR_E_INVALID, "%s holds key %" PRIu64 " of a table twice", loading->path,
                                loading->rows[i].key);
        rows[i] = (struct fr_delta_row){
            .key = loading->rows[i].key, .table = loading->rows[i].table, .values = floats + loading->rows[i].at};
    }
    for (size_t i = 0; i < loading->n_dense; i++)
        dense[i] =
            (struct fr_delta_dense){.name = loading->dense[i].as_read.name,
                                    .n_dims = loading->dense[i].as_read.n_dims,
                                    .shape = {loading->dense[i].as_read.shape[0], loading->dense[i].as_read.shape[1]},
                                    .n_values = loading->dense[i].as_read.n_values,
                                    .values = floats + loading->dense[i].at};
    struct fr_delta_epoch epoch = {.timeline = loading->end.end.timeline,
                                   .epoch = loading->end.end.epoch,
                                   .from = 1,
                                   .digest = loading->end.hash,
                                   .with_model = true,
                                   .rows = rows,
                                   .n_rows = loading->n_rows,
                                   .dense = dense,
                                   .n_dense = loading->n_dense,
                                   .commit = {.wm_ms = loading->end.end.wm_ms, .samples = loading->end.end.samples}};
    uint64_t saturated = 0;
    if (status == FR_OK) {
        status = fr_delta_write(&loading->settings, &epoch, feed, loading, &saturated);
        if (status != FR_OK)
            fr_err_set(err, status, "%s does not make a replica of this model: %s", loading->path,
                       loading->event.problem[0] ? loading->event.problem : fr_status_name(status));
    }
    free(rows);
    free(dense);
    return status;
}

/* Makes the settings that writing delta records of this model needs. */
static void make_settings(const struct fr_buffer *cfg, const struct fr_conf *conf, struct fr_codec_settings *out)
{
    struct fr_sha256 digest = fr_sha256(cfg->data, cfg->size);
    *out = (struct fr_codec_settings){.revision = FR_CODEC_REVISION,
                                      .np = 1,
                                      .quantize = FR_CODEC_F32,
                                      .piece_max = PIECE_BYTES,
                                      .fp = fr_sha256_u64(&digest),
                                      .model = "dump",
                                      .cfg_size = cfg->size,
                                      .n_tables = conf->n_tables};
    out->cfg = fr_alloc(cfg->size + 1, 1);
    memcpy(out->cfg, cfg->data, cfg->size);
    out->tables = fr_alloc(conf->n_tables ? conf->n_tables : 1, sizeof(*out->tables));
    for (uint32_t t = 0; t < conf->n_tables; t++) {
        struct fr_codec_table *table = &out->tables[t];
        memcpy(table->name, conf->tables[t].name, sizeof(table->name));
        table->n_parts = conf->tables[t].n_parts;
        for (uint32_t p = 0; p < table->n_parts; p++) {
            memcpy(table->parts[p].name, conf->tables[t].parts[p].name, sizeof(table->parts[p].name));
            table->parts[p].dim = conf->tables[t].parts[p].dim;
            table->value_floats += table->parts[p].dim;
        }
    }
}

enum fr_status fr_tool_served_dump(const struct fr_tool_source *source, struct fr_tool_served *out, struct fr_err *err)
{
    const struct fr_buffer *cfg = &source->cfg;
    struct loading loading = {.path = source->dump};
    struct fr_conf *conf = NULL;
    if (fr_conf_model_parse((const char *)cfg->data, cfg->size, &conf, err) != FR_OK)
        return fr_err_wrap(err, "the model's configuration");
    make_settings(cfg, conf, &loading.settings);
    enum fr_status status = read_file(&loading, conf, err);
    if (status == FR_OK && freshet_replica_new(&(struct freshet_replica_options){0}, &loading.replica) != FRESHET_OK)
        status = fr_err_set(err, FR_E_INVALID, "the replica cannot be made");
    if (status == FR_OK)
        status = write_records(&loading, err);
    fr_codec_settings_release(&loading.settings);
    fr_conf_free(conf);
    free(loading.rows);
    free(loading.dense);
    fr_buffer_release(&loading.floats);
    out->replica = loading.replica; /* also after an error: fr_tool_served_close frees it */
    return status;
}
