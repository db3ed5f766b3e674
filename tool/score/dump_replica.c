/* Turns a dump into a replica: its rows and parameters are written as the delta records of one
 * epoch, in f32 (the dump's numbers are exactly the published values), and fed to the library as a
 * topic would be. So a score from a dump takes the same path as any other. The dump's hash is
 * checked before anything is scored.
 *
 * Memory: all rows at the same time. Thread: one. An incomplete dump is refused. */
#include "score/dump_replica.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "conf/conf.h"

enum { PIECE_BYTES = 4 << 20, PARAMETERS_MAX = 4096, PARAMETER_NAME_MAX = 160 };

struct loaded_row {
    uint64_t key;
    uint32_t table;
    size_t at; /* index in `floats` of the first float */
};

struct loaded_dense {
    char name[PARAMETER_NAME_MAX];
    uint32_t n_dims, shape[2];
    size_t at;
    uint64_t n_values;
};

struct loading {
    const char *path;
    uint64_t line; /* from 1 */
    struct fr_codec_settings settings;
    struct loaded_row *rows;
    size_t n_rows, capacity_rows;
    struct fr_buffer floats; /* floats of rows, then of parameters, in the order read */
    struct loaded_dense *dense;
    size_t n_dense;
    uint64_t timeline, epoch, samples, hash;
    int64_t watermark_ms;
    bool closed;
    struct fr_buffer scratch;
    struct fr_err *err;
};

static enum fr_status bad_line(struct loading *loading, const char *what)
{
    return fr_err_set(loading->err, FR_E_INVALID, "%s, line %" PRIu64 ": %s", loading->path, loading->line, what);
}

static bool is_text(const struct fr_token *token, const char *text)
{
    return token->kind == FR_TOKEN_STRING && token->size == strlen(text) &&
           memcmp(token->bytes, text, token->size) == 0;
}

/* ---- numbers ---- */

static bool number_of(const struct fr_token *token, float *out)
{
    switch (token->kind) {
    case FR_TOKEN_UINT:
        *out = (float)token->u;
        return true;
    case FR_TOKEN_INT:
        *out = (float)token->i;
        return true;
    case FR_TOKEN_FLOAT: /* nine digits of a float: rounding through double is exact */
        *out = (float)token->f;
        return true;
    default:
        return false;
    }
}

/* Appends an array of numbers to `floats`. */
static enum fr_status take_floats(struct loading *loading, struct fr_cursor *cursor, uint64_t *count)
{
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_ARRAY)
        return bad_line(loading, "expected an array of numbers");
    for (*count = 0; fr_cursor_next(cursor, &token) == FR_OK; ++*count) {
        float value;
        if (token.kind == FR_TOKEN_END)
            return FR_OK;
        if (!number_of(&token, &value))
            return bad_line(loading, "expected a finite number");
        fr_buffer_append(&loading->floats, &value, sizeof(value));
    }
    return bad_line(loading, "not a whole array");
}

/* ---- the three kinds of line; the first key has been read ---- */

static enum fr_status take_table(struct loading *loading, struct fr_cursor *cursor, uint32_t *table)
{
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_STRING)
        return bad_line(loading, "expected a table's name");
    for (uint32_t t = 0; t < loading->settings.n_tables; t++)
        if (is_text(&token, loading->settings.tables[t].name)) {
            *table = t;
            return FR_OK;
        }
    return fr_err_set(loading->err, FR_E_MISMATCH, "%s, line %" PRIu64 ": the model has no table %.*s", loading->path,
                      loading->line, (int)token.size, (const char *)token.bytes);
}

static bool parse_key(const struct fr_token *token, uint64_t *out)
{
    char text[24];
    if (token->kind != FR_TOKEN_STRING || token->size == 0 || token->size >= sizeof(text))
        return false;
    memcpy(text, token->bytes, token->size);
    text[token->size] = '\0';
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static enum fr_status take_parts(struct loading *loading, struct fr_cursor *cursor, const struct fr_codec_table *table)
{
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_MAP)
        return bad_line(loading, "expected a map of parts");
    for (uint32_t p = 0; p < table->n_parts; p++) {
        uint64_t count;
        if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, table->parts[p].name))
            return bad_line(loading, "the parts are not those of the model's table");
        enum fr_status status = take_floats(loading, cursor, &count);
        if (status != FR_OK)
            return status;
        if (count != table->parts[p].dim)
            return bad_line(loading, "a part has another dimension than in the model");
    }
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_END)
        return bad_line(loading, "the parts are not those of the model's table");
    return FR_OK;
}

static enum fr_status take_row(struct loading *loading, struct fr_cursor *cursor)
{
    struct loaded_row row = {.at = loading->floats.size / sizeof(float)};
    struct fr_token token;
    enum fr_status status = take_table(loading, cursor, &row.table);
    if (status != FR_OK)
        return status;
    if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, "key") || fr_cursor_next(cursor, &token) != FR_OK ||
        !parse_key(&token, &row.key))
        return bad_line(loading, "expected a key");
    if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, "parts"))
        return bad_line(loading, "expected parts (a public dump; a private one cannot be scored)");
    status = take_parts(loading, cursor, &loading->settings.tables[row.table]);
    if (status != FR_OK)
        return status;
    if (loading->n_rows == loading->capacity_rows) {
        loading->capacity_rows = loading->capacity_rows ? 2 * loading->capacity_rows : 1024;
        loading->rows = fr_realloc(loading->rows, loading->capacity_rows, sizeof(*loading->rows));
    }
    loading->rows[loading->n_rows++] = row;
    return FR_OK;
}

static enum fr_status take_shape(struct loading *loading, struct fr_cursor *cursor, struct loaded_dense *dense)
{
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_ARRAY)
        return bad_line(loading, "expected a shape");
    dense->shape[1] = 1;
    while (fr_cursor_next(cursor, &token) == FR_OK && token.kind == FR_TOKEN_UINT && token.u <= UINT32_MAX &&
           dense->n_dims < 2)
        dense->shape[dense->n_dims++] = (uint32_t)token.u;
    return token.kind == FR_TOKEN_END && dense->n_dims > 0 ? FR_OK
                                                           : bad_line(loading, "expected one or two dimensions");
}

static enum fr_status take_dense(struct loading *loading, struct fr_cursor *cursor)
{
    struct loaded_dense dense = {.at = loading->floats.size / sizeof(float)};
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_STRING || token.size >= sizeof(dense.name) ||
        loading->n_dense == PARAMETERS_MAX)
        return bad_line(loading, "expected a parameter's name");
    memcpy(dense.name, token.bytes, token.size);
    if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, "shape"))
        return bad_line(loading, "expected the shape");
    enum fr_status status = take_shape(loading, cursor, &dense);
    if (status != FR_OK)
        return status;
    if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, "values"))
        return bad_line(loading, "expected the values");
    status = take_floats(loading, cursor, &dense.n_values);
    if (status != FR_OK)
        return status;
    if (dense.n_values != (uint64_t)dense.shape[0] * dense.shape[1])
        return bad_line(loading, "the values are not as many as the shape says");
    loading->dense = fr_realloc(loading->dense, loading->n_dense + 1, sizeof(*loading->dense));
    loading->dense[loading->n_dense++] = dense;
    return FR_OK;
}

/* Reads {"tl":..,"epoch":..,"wm":..,"samples":..,"hash":"0x.."}. */
static enum fr_status take_closing(struct loading *loading, struct fr_cursor *cursor)
{
    static const char *const names[] = {"epoch", "wm", "samples"};
    uint64_t wm = 0;
    uint64_t *const fields[] = {&loading->epoch, &wm, &loading->samples};
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_UINT)
        return bad_line(loading, "expected a timeline");
    loading->timeline = token.u;
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, names[i]) ||
            fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_UINT)
            return bad_line(loading, "the closing line is not that of a public dump");
        *fields[i] = token.u;
    }
    char text[19] = {0};
    if (fr_cursor_next(cursor, &token) != FR_OK || !is_text(&token, "hash") ||
        fr_cursor_next(cursor, &token) != FR_OK || token.kind != FR_TOKEN_STRING || token.size != 18)
        return bad_line(loading, "the closing line has no hash");
    memcpy(text, token.bytes, token.size);
    loading->hash = strtoull(text, NULL, 16);
    loading->watermark_ms = (int64_t)wm;
    loading->closed = true;
    return FR_OK;
}

/* ---- the file ---- */

static enum fr_status take_line(struct loading *loading, const char *text, size_t size)
{
    struct fr_cursor cursor;
    struct fr_token token;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, text, size, &loading->scratch);
    if (fr_cursor_next(&cursor, &token) != FR_OK || token.kind != FR_TOKEN_MAP ||
        fr_cursor_next(&cursor, &token) != FR_OK)
        return bad_line(loading, "not a line of a dump");
    if (is_text(&token, "table"))
        return take_row(loading, &cursor);
    if (is_text(&token, "dense"))
        return take_dense(loading, &cursor);
    if (is_text(&token, "tl"))
        return take_closing(loading, &cursor);
    return bad_line(loading, "not a line of a public dump");
}

static enum fr_status read_lines(struct loading *loading, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    enum fr_status status = FR_OK;
    struct fr_xxh3_stream *hash = fr_xxh3_stream_new();
    while (status == FR_OK && (size = getline(&line, &room, file)) > 0) {
        loading->line++;
        if (loading->closed)
            status = bad_line(loading, "something follows the closing line");
        else
            status = take_line(loading, line, (size_t)size);
        if (!loading->closed)
            fr_xxh3_stream_update(hash, line, (size_t)size);
    }
    if (status == FR_OK && ferror(file))
        status = fr_err_set(loading->err, FR_E_IO, "reading %s: %s", loading->path, strerror(errno));
    if (status == FR_OK && !loading->closed)
        status =
            fr_err_set(loading->err, FR_E_INVALID, "%s is not a whole dump: it has no closing line", loading->path);
    if (status == FR_OK && fr_xxh3_stream_digest(hash) != loading->hash)
        status = fr_err_set(loading->err, FR_E_CORRUPT, "%s: its hash does not fit its lines", loading->path);
    fr_xxh3_stream_free(hash);
    free(line);
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

struct feeding {
    struct freshet_replica *replica;
    struct freshet_event event;
};

static enum fr_status feed(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct feeding *feeding = self;
    (void)piece;
    int fed = freshet_replica_feed(feeding->replica, partition, bytes, size, &feeding->event);
    return fed == FRESHET_OK && !feeding->event.refused ? FR_OK : FR_E_MISMATCH;
}

static enum fr_status write_records(struct loading *loading, struct feeding *feeding)
{
    struct fr_delta_row *rows = fr_alloc(loading->n_rows + 1, sizeof(*rows));
    struct fr_delta_dense *dense = fr_alloc(loading->n_dense + 1, sizeof(*dense));
    const float *floats = (const float *)(const void *)loading->floats.data;
    enum fr_status status = FR_OK;
    if (loading->n_rows > 1)
        qsort(loading->rows, loading->n_rows, sizeof(*loading->rows), compare_rows);
    for (size_t i = 0; i < loading->n_rows; i++) {
        if (i > 0 && compare_rows(&loading->rows[i - 1], &loading->rows[i]) == 0)
            status = fr_err_set(loading->err, FR_E_INVALID, "%s holds key %" PRIu64 " of a table twice", loading->path,
                                loading->rows[i].key);
        rows[i] = (struct fr_delta_row){
            .key = loading->rows[i].key, .table = loading->rows[i].table, .values = floats + loading->rows[i].at};
    }
    for (size_t i = 0; i < loading->n_dense; i++)
        dense[i] = (struct fr_delta_dense){.name = loading->dense[i].name,
                                           .n_dims = loading->dense[i].n_dims,
                                           .shape = {loading->dense[i].shape[0], loading->dense[i].shape[1]},
                                           .n_values = loading->dense[i].n_values,
                                           .values = floats + loading->dense[i].at};
    struct fr_delta_epoch epoch = {.timeline = loading->timeline,
                                   .epoch = loading->epoch,
                                   .from = 1,
                                   .digest = loading->hash,
                                   .with_model = true,
                                   .rows = rows,
                                   .n_rows = loading->n_rows,
                                   .dense = dense,
                                   .n_dense = loading->n_dense,
                                   .commit = {.wm_ms = loading->watermark_ms, .samples = loading->samples}};
    uint64_t saturated = 0;
    if (status == FR_OK) {
        status = fr_delta_write(&loading->settings, &epoch, feed, feeding, &saturated);
        if (status != FR_OK)
            fr_err_set(loading->err, status, "%s does not make a replica of this model: %s", loading->path,
                       feeding->event.problem[0] ? feeding->event.problem : fr_status_name(status));
    }
    free(rows);
    free(dense);
    return status;
}

/* Makes the settings that writing delta records of this model needs. */
static enum fr_status make_settings(const struct fr_buffer *cfg, struct fr_codec_settings *out, struct fr_err *err)
{
    struct fr_conf *conf = NULL;
    enum fr_status status = fr_conf_model_parse((const char *)cfg->data, cfg->size, &conf, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "the model's configuration");
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
    fr_conf_free(conf);
    return FR_OK;
}

enum fr_status fr_tool_replica_of_dump(const char *path, const struct fr_buffer *cfg, struct freshet_replica **out,
                                       struct fr_err *err)
{
    struct loading loading = {.path = path, .err = err};
    struct feeding feeding = {0};
    FILE *file = fopen(path, "r");
    if (!file)
        return fr_err_set(err, FR_E_NOT_FOUND, "opening %s: %s", path, strerror(errno));
    enum fr_status status = make_settings(cfg, &loading.settings, err);
    if (status == FR_OK)
        status = read_lines(&loading, file);
    if (status == FR_OK && freshet_replica_new(&(struct freshet_replica_options){0}, &feeding.replica) != FRESHET_OK)
        status = fr_err_set(err, FR_E_INVALID, "the replica cannot be made");
    if (status == FR_OK)
        status = write_records(&loading, &feeding);
    (void)fclose(file); /* opened for reading only */
    fr_codec_settings_release(&loading.settings);
    free(loading.rows);
    free(loading.dense);
    fr_buffer_release(&loading.floats);
    fr_buffer_release(&loading.scratch);
    if (status != FR_OK) {
        freshet_replica_free(feeding.replica);
        return status;
    }
    *out = feeding.replica;
    return FR_OK;
}
