/* Figures from the document of GET /auc (docs/http.md, "/auc"). Unknown keys are skipped; null is
 * NaN. Comparing is done in compare_command.c.
 *
 * Thread: any, no state. */
#include "compare/auc_document.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/file.h"
#include "state/state_reader.h"

enum { FILE_MAX = 16 << 20 };

const char *const fr_tool_compared[FR_COMPARED] = {"auc", "logloss", "calibration", "positive_rate", "weight"};

struct parse {
    struct fr_cursor cursor;
    struct fr_tool_document *out;
    char task[FR_COMPARE_TEXT_MAX];
};

/* ---- walking maps ---- */

typedef enum fr_status visit_value(struct parse *parse, const char *key, const struct fr_token *value);

static bool copy_text(const struct fr_token *token, char out[FR_COMPARE_TEXT_MAX])
{
    if (token->kind != FR_TOKEN_STRING || token->size >= FR_COMPARE_TEXT_MAX)
        return false;
    memcpy(out, token->bytes, token->size);
    out[token->size] = '\0';
    return true;
}

/* `map` was just read. The visitor consumes every value to its end. */
static enum fr_status each(struct parse *parse, const struct fr_token *map, visit_value *visit)
{
    struct fr_token key, value;
    char name[FR_COMPARE_TEXT_MAX];
    if (map->kind != FR_TOKEN_MAP)
        return FR_E_INVALID;
    for (;;) {
        enum fr_status status = fr_cursor_next(&parse->cursor, &key);
        if (status != FR_OK || key.kind == FR_TOKEN_END)
            return status;
        if (!copy_text(&key, name))
            return FR_E_INVALID;
        status = fr_cursor_next(&parse->cursor, &value);
        if (status == FR_OK)
            status = visit(parse, name, &value);
        if (status != FR_OK)
            return status;
    }
}

/* ---- the parts of the document ---- */

static enum fr_status read_figure(struct parse *parse, const char *key, const struct fr_token *value)
{
    struct fr_tool_figures *figures = &parse->out->figures[parse->out->n_figures - 1];
    for (size_t i = 0; i < FR_COMPARED; i++) {
        if (strcmp(key, fr_tool_compared[i]) != 0)
            continue;
        figures->values[i] = value->kind == FR_TOKEN_FLOAT  ? value->f
                             : value->kind == FR_TOKEN_UINT ? (double)value->u
                             : value->kind == FR_TOKEN_INT  ? (double)value->i
                                                            : NAN;
    }
    return fr_cursor_skip(&parse->cursor, value);
}

static enum fr_status read_window(struct parse *parse, const char *key, const struct fr_token *value)
{
    struct fr_tool_document *out = parse->out;
    if (out->n_figures == FR_COMPARE_FIGURES_MAX)
        return FR_E_LIMIT;
    out->figures = fr_realloc(out->figures, out->n_figures + 1, sizeof(*out->figures));
    struct fr_tool_figures *figures = &out->figures[out->n_figures++];
    memcpy(figures->task, parse->task, sizeof(figures->task));
    memcpy(figures->window, key, strlen(key) + 1);
    for (size_t i = 0; i < FR_COMPARED; i++)
        figures->values[i] = NAN;
    return each(parse, value, read_figure);
}

static enum fr_status read_task_field(struct parse *parse, const char *key, const struct fr_token *value)
{
    if (strcmp(key, "decayed") == 0)
        return each(parse, value, read_window);
    if (strcmp(key, "lifetime") == 0)
        return read_window(parse, key, value);
    return fr_cursor_skip(&parse->cursor, value);
}

static enum fr_status read_task(struct parse *parse, const char *key, const struct fr_token *value)
{
    memcpy(parse->task, key, strlen(key) + 1);
    return each(parse, value, read_task_field);
}

static enum fr_status read_top(struct parse *parse, const char *key, const struct fr_token *value)
{
    if (strcmp(key, "tasks") == 0)
        return each(parse, value, read_task);
    if (strcmp(key, "model") == 0)
        return copy_text(value, parse->out->model) ? FR_OK : FR_E_INVALID;
    if (value->kind == FR_TOKEN_UINT && strcmp(key, "tl") == 0)
        parse->out->timeline = value->u;
    if (value->kind == FR_TOKEN_UINT && strcmp(key, "epoch") == 0)
        parse->out->epoch = value->u;
    return fr_cursor_skip(&parse->cursor, value);
}

static enum fr_status read_document(const struct fr_buffer *text, struct fr_tool_document *out)
{
    struct fr_buffer scratch = {0};
    struct parse parse = {.out = out};
    struct fr_token token;
    fr_cursor_init(&parse.cursor, FR_FORMAT_JSON, text->data, text->size, &scratch);
    enum fr_status status = fr_cursor_next(&parse.cursor, &token);
    if (status == FR_OK)
        status = each(&parse, &token, read_top);
    if (status == FR_OK && fr_cursor_next(&parse.cursor, &token) != FR_EOF)
        status = FR_E_INVALID;
    fr_buffer_release(&scratch);
    return status == FR_OK && out->model[0] != '\0' ? FR_OK : FR_E_INVALID;
}

/* ---- sources of the document ---- */

enum fr_status fr_tool_document_read(const char *place, struct fr_tool_document *out, struct fr_err *err)
{
    struct fr_buffer text = {0};
    struct stat info;
    enum fr_status status;
    *out = (struct fr_tool_document){0};
    if (strncmp(place, "http://", 7) == 0)
        status = fr_tool_fetch(place, &text, err);
    else if (stat(place, &info) == 0 && S_ISDIR(info.st_mode))
        status = fr_tool_metrics_document(place, &text, err);
    else
        status = fr_file_read(place, FILE_MAX, &text, err);
    if (status == FR_OK && read_document(&text, out) != FR_OK)
        status = fr_err_set(err, FR_E_INVALID, "%.200s is no document of GET /auc", place);
    fr_buffer_release(&text);
    if (status != FR_OK)
        fr_tool_document_release(out);
    return status;
}

void fr_tool_document_release(struct fr_tool_document *document)
{
    free(document->figures);
    *document = (struct fr_tool_document){0};
}
