/* Readers: which epoch a call reads, rows, keys, names (see freshet/reader.h).
 *
 * A call enters the newest view and leaves it; between begin and end the reader stays in it. The
 * view's model is borrowed until the reader meets another model, because names and the network's
 * configuration point into it.
 *
 * Owner: the reader's thread. Scoring is in score.c. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { BLOCK = 64 }; /* rows found before their values are copied */

/* ---- life ---- */

int freshet_reader_new(struct freshet_replica *replica, struct freshet_reader **out)
{
    struct freshet_reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return FRESHET_E_NO_MEMORY;
    reader->replica = replica;
    reader->place = fr_served_join(&replica->views);
    if (!reader->place) {
        free(reader);
        return FRESHET_E_INVALID;
    }
    *out = reader;
    return FRESHET_OK;
}

void freshet_reader_free(struct freshet_reader *reader)
{
    if (!reader)
        return;
    fr_reader_forget(reader);
    fr_served_quit(reader->place);
    free(reader);
}

/* ---- entering and leaving ---- */

const struct fr_served *fr_reader_enter(struct freshet_reader *reader)
{
    if (reader->stays)
        return reader->view;
    reader->view = fr_served_enter(&reader->replica->views, reader->place);
    if (reader->view && reader->view->model != reader->model) {
        fr_reader_forget(reader);
        reader->model = reader->view->model;
        atomic_store(&reader->place->model, reader->model);
    }
    return reader->view;
}

void fr_reader_leave(struct freshet_reader *reader)
{
    if (reader->stays)
        return;
    reader->view = NULL;
    fr_served_leave(reader->place);
}

int freshet_reader_begin(struct freshet_reader *reader)
{
    if (!fr_reader_enter(reader))
        return FRESHET_E_NOT_READY;
    reader->stays = true;
    return FRESHET_OK;
}

void freshet_reader_end(struct freshet_reader *reader)
{
    if (!reader->stays)
        return;
    reader->stays = false;
    fr_reader_leave(reader);
}

void freshet_reader_get_info(struct freshet_reader *reader, struct freshet_replica_info *info)
{
    const struct fr_served *view = fr_reader_enter(reader);
    *info = view ? view->info : (struct freshet_replica_info){0};
    fr_reader_leave(reader);
    fr_replica_fill_info(reader->replica, info);
}

/* ---- rows ---- */

static const struct fr_served_table *find_table(const struct fr_served *view, const char *name, int *t)
{
    *t = fr_served_model_table(view->model, (struct fr_delta_text){name, strlen(name)});
    return *t < 0 ? NULL : &view->tables[*t];
}

struct columns { /* the columns of a row */
    uint32_t offset, dim;
};

static bool find_columns(const struct fr_served_model *model, int t, const char *part, struct columns *out)
{
    const struct fr_row_layout *layout = &model->layouts[t];
    *out = (struct columns){0, layout->value_floats};
    if (!part)
        return true;
    int p = fr_served_model_part(&model->conf->tables[t], (struct fr_delta_text){part, strlen(part)});
    if (p < 0)
        return false;
    *out = (struct columns){layout->parts[p].value_offset, layout->parts[p].dim};
    return true;
}

static void copy_rows(const struct fr_served_table *table, const struct columns *columns,
                      const struct freshet_lookup *lookup)
{
    float *rows[BLOCK];
    for (size_t begin = 0; begin < lookup->n; begin += BLOCK) {
        size_t count = lookup->n - begin < BLOCK ? lookup->n - begin : BLOCK;
        fr_served_rows(table, lookup->keys + begin, count, rows);
        for (size_t i = 0; i < count; i++) {
            float *to = lookup->values + (begin + i) * columns->dim;
            if (rows[i])
                memcpy(to, rows[i] + columns->offset, columns->dim * sizeof(float));
            else
                memset(to, 0, columns->dim * sizeof(float));
            if (lookup->found)
                lookup->found[begin + i] = rows[i] != NULL;
        }
    }
}

static int look_up(const struct fr_served *view, struct freshet_lookup *lookup)
{
    struct columns columns;
    int t;
    const struct fr_served_table *table = find_table(view, lookup->table, &t);
    if (!table || !find_columns(view->model, t, lookup->part, &columns))
        return FRESHET_E_NOT_FOUND;
    lookup->dim = columns.dim;
    if (lookup->n > lookup->capacity / columns.dim)
        return FRESHET_E_INVALID;
    copy_rows(table, &columns, lookup);
    return FRESHET_OK;
}

int freshet_reader_lookup(struct freshet_reader *reader, struct freshet_lookup *lookup)
{
    const struct fr_served *view = fr_reader_enter(reader);
    if (!view)
        return FRESHET_E_NOT_READY;
    int status = look_up(view, lookup);
    fr_reader_leave(reader);
    return status;
}

static int list_keys(const struct fr_served *view, const char *name, uint64_t *keys, size_t *n)
{
    int t;
    const struct fr_served_table *table = find_table(view, name, &t);
    if (!table)
        return FRESHET_E_NOT_FOUND;
    const size_t room = *n;
    *n = table->n_rows;
    if (*n > room)
        return FRESHET_E_INVALID;
    fr_served_keys(table, keys);
    return FRESHET_OK;
}

int freshet_reader_keys(struct freshet_reader *reader, const char *table, uint64_t *keys, size_t *n)
{
    const struct fr_served *view = fr_reader_enter(reader);
    if (!view)
        return FRESHET_E_NOT_READY;
    int status = list_keys(view, table, keys, n);
    fr_reader_leave(reader);
    return status;
}

/* ---- raw ids ---- */

/* Returns the slot, which has ids of its own; NULL: none, with the reason in *status. */
static const struct fr_conf_slot *find_slot(struct freshet_reader *reader, const char *name, int *status)
{
    const struct fr_served *view = fr_reader_enter(reader);
    fr_reader_leave(reader); /* the model stays borrowed */
    *status = FRESHET_E_NOT_READY;
    if (!view)
        return NULL;
    const struct fr_conf *conf = reader->model->conf;
    *status = FRESHET_E_NOT_FOUND;
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (strcmp(conf->slots[s].name, name) == 0 && conf->slots[s].table != FR_NO_INDEX &&
            conf->slots[s].n_sources == 0)
            return &conf->slots[s];
    return NULL;
}

int freshet_reader_key(struct freshet_reader *reader, const char *slot, const char *id, size_t size, uint64_t *key)
{
    int status;
    const struct fr_conf_slot *found = find_slot(reader, slot, &status);
    if (!found)
        return status;
    *key = fr_key_string(id, size, found->seed, found->id_raw);
    return FRESHET_OK;
}

int freshet_reader_key_of_integer(struct freshet_reader *reader, const char *slot, uint64_t id, uint64_t *key)
{
    int status;
    const struct fr_conf_slot *found = find_slot(reader, slot, &status);
    if (!found)
        return status;
    *key = fr_key_integer(id, found->seed);
    return FRESHET_OK;
}

/* ---- names ---- */

/* NULL: there is no model yet. */
static const struct fr_conf *conf_of(struct freshet_reader *reader)
{
    const struct fr_served *view = fr_reader_enter(reader);
    fr_reader_leave(reader);
    return view ? reader->model->conf : NULL;
}

static const struct fr_conf_table *table_at(struct freshet_reader *reader, uint32_t table)
{
    const struct fr_conf *conf = conf_of(reader);
    return conf && table < conf->n_tables ? &conf->tables[table] : NULL;
}

static const struct fr_conf_part *part_at(struct freshet_reader *reader, uint32_t table, uint32_t part)
{
    const struct fr_conf_table *found = table_at(reader, table);
    return found && part < found->n_parts ? &found->parts[part] : NULL;
}

uint32_t freshet_reader_tables(struct freshet_reader *reader)
{
    const struct fr_conf *conf = conf_of(reader);
    return conf ? conf->n_tables : 0;
}

const char *freshet_reader_table_name(struct freshet_reader *reader, uint32_t table)
{
    const struct fr_conf_table *found = table_at(reader, table);
    return found ? found->name : "";
}

uint32_t freshet_reader_parts(struct freshet_reader *reader, uint32_t table)
{
    const struct fr_conf_table *found = table_at(reader, table);
    return found ? found->n_parts : 0;
}

const char *freshet_reader_part_name(struct freshet_reader *reader, uint32_t table, uint32_t part)
{
    const struct fr_conf_part *found = part_at(reader, table, part);
    return found ? found->name : "";
}

uint32_t freshet_reader_part_dim(struct freshet_reader *reader, uint32_t table, uint32_t part)
{
    const struct fr_conf_part *found = part_at(reader, table, part);
    return found ? found->dim : 0;
}

uint64_t freshet_reader_table_rows(struct freshet_reader *reader, uint32_t table)
{
    const struct fr_served *view = fr_reader_enter(reader);
    uint64_t n_rows = view && table < view->n_tables ? view->tables[table].n_rows : 0;
    fr_reader_leave(reader);
    return n_rows;
}

uint32_t freshet_reader_slots(struct freshet_reader *reader)
{
    const struct fr_conf *conf = conf_of(reader);
    return conf ? conf->n_slots : 0;
}

const char *freshet_reader_slot_name(struct freshet_reader *reader, uint32_t slot)
{
    const struct fr_conf *conf = conf_of(reader);
    return conf && slot < conf->n_slots ? conf->slots[slot].name : "";
}

const char *freshet_reader_slot_table(struct freshet_reader *reader, uint32_t slot)
{
    const struct fr_conf *conf = conf_of(reader);
    if (!conf || slot >= conf->n_slots || conf->slots[slot].table == FR_NO_INDEX)
        return "";
    return conf->tables[conf->slots[slot].table].name;
}

uint32_t freshet_reader_tasks(struct freshet_reader *reader)
{
    const struct fr_conf *conf = conf_of(reader);
    return conf ? conf->n_tasks : 0;
}

const char *freshet_reader_task_name(struct freshet_reader *reader, uint32_t task)
{
    const struct fr_conf *conf = conf_of(reader);
    return conf && task < conf->n_tasks ? conf->tasks[task].name : "";
}
