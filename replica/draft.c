/* Makes views: see draft.h. Where records come from is not known here. */
#include "draft.h"

#include <stdlib.h>

#include "base/check.h"

/* A table is sparse when more than three quarters of its places are free. Small tables are
 * exempt. */
enum { SPARSE_FREE_OF = 3, SPARSE_OF = 4, SPARSE_PLACES_MIN = 1024 };

static const struct fr_served_table *table_before(const struct fr_served *before, const struct fr_conf_table *table)
{
    for (uint32_t t = 0; before && t < before->n_tables; t++)
        if (fr_served_same_parts(table, &before->model->conf->tables[t]))
            return &before->tables[t];
    return NULL;
}

/* Returns whether most places of the table are free, as after a mass removal. If so, the view gets
 * a copy without free places, and the old table is released when its last reader has left. (A table
 * of which every row changes in every epoch has half of its places free.) A copy that was refused
 * memory is tried again when a sixteenth more places are free. */
static bool is_sparse(const struct fr_row_table *rows)
{
    return rows->n_slots >= SPARSE_PLACES_MIN &&
           (uint64_t)rows->n_spare * SPARSE_OF > (uint64_t)rows->n_slots * SPARSE_FREE_OF &&
           rows->n_spare >= (uint64_t)rows->n_refused + rows->n_refused / 16;
}

static void begin_table(struct fr_draft *draft, uint32_t t, const struct fr_served_table *was)
{
    struct fr_row_table *copy = is_sparse(was->rows) ? fr_served_copy(was, draft->memory) : NULL;
    if (is_sparse(was->rows) && !copy)
        was->rows->n_refused = was->rows->n_spare;
    draft->tables[t].own = copy != NULL;
    draft->view->tables[t] = copy ? (struct fr_served_table){.rows = copy} : *was;
}

bool fr_draft_begin(struct fr_draft *draft, struct freshet_replica *replica, struct fr_served_model *model, bool fresh)
{
    const struct fr_served *before = fresh ? NULL : fr_views_newest(&replica->views);
    *draft = (struct fr_draft){.views = &replica->views, .memory = &replica->memory, .model = model, .before = before};
    draft->view = fr_served_new(draft->views, model->conf->n_tables, (uint32_t)model->n_parameters);
    if (!draft->view)
        return false;
    draft->view->model = model;
    for (uint32_t t = 0; t < model->conf->n_tables; t++) {
        const struct fr_served_table *was = table_before(before, &model->conf->tables[t]);
        if (was) {
            begin_table(draft, t, was);
            continue;
        }
        draft->tables[t].own = true;
        draft->view->tables[t].rows = fr_row_table_new(model->layouts[t].value_floats, draft->memory);
        if (!draft->view->tables[t].rows)
            return false;
    }
    if (before && before->model == model)
        memcpy(draft->view->parameters, before->parameters, model->n_parameters * sizeof(before->parameters[0]));
    return true;
}

void fr_draft_expect(struct fr_draft *draft, const struct fr_delta_record *record)
{
    if (record->kind != FR_DELTA_ROWS && record->kind != FR_DELTA_DROP)
        return;
    bool rows = record->kind == FR_DELTA_ROWS;
    int t = fr_served_model_table(draft->model, rows ? record->rows.table : record->drop.table);
    FR_CHECK(t >= 0);
    draft->tables[t].changes += rows ? record->rows.n_rows : record->drop.n_rows;
}

bool fr_draft_reserve(struct fr_draft *draft)
{
    for (uint32_t t = 0; t < draft->view->n_tables; t++) {
        struct fr_draft_table *table = &draft->tables[t];
        if (table->own || table->changes == 0)
            continue;
        table->overlay = fr_overlay_new(draft->view->tables[t].rows, table->changes, draft->memory);
        if (!table->overlay)
            return false;
    }
    return true;
}

/* ---- rows ---- */

/* Returns the floats of a key that is being written; NULL: memory was refused. */
static float *write_row(struct fr_draft *draft, uint32_t t, uint64_t key)
{
    struct fr_row_table *rows = draft->view->tables[t].rows;
    uint32_t slot, old;
    if (draft->tables[t].own) {
        slot = fr_row_find(rows, fr_row_hash(rows, key), key);
        if (slot != FR_NO_SLOT)
            return fr_row_values(rows, slot);
        if (!fr_row_take(rows, key, &slot))
            return NULL;
        if (!fr_row_set(rows, key, slot, &old)) {
            fr_row_give(rows, slot);
            return NULL;
        }
        return fr_row_values(rows, slot);
    }
    uint32_t *place = fr_overlay_put(draft->tables[t].overlay, key);
    if (*place == FR_NO_SLOT && !fr_row_take(rows, key, place))
        return NULL;
    return fr_row_values(rows, *place);
}

static void drop_row(struct fr_draft *draft, uint32_t t, uint64_t key)
{
    struct fr_row_table *rows = draft->view->tables[t].rows;
    uint32_t none = FR_NO_SLOT, *place = &none;
    if (draft->tables[t].own)
        none = fr_row_unset(rows, key);
    else
        place = fr_overlay_put(draft->tables[t].overlay, key);
    if (*place != FR_NO_SLOT)
        fr_row_give(rows, *place);
    *place = FR_NO_SLOT;
}

static bool take_rows(struct fr_draft *draft, const struct fr_delta_record *record)
{
    int t = fr_served_model_table(draft->model, record->rows.table);
    FR_CHECK(t >= 0);
    uint32_t offsets[FR_CODEC_PARTS_MAX];
    for (uint32_t s = 0; s < record->rows.n_segments; s++) {
        int p = fr_served_model_part(&draft->model->conf->tables[t], record->rows.segments[s].part);
        FR_CHECK(p >= 0);
        offsets[s] = draft->model->layouts[t].parts[p].value_offset;
    }
    for (uint32_t r = 0; r < record->rows.n_rows; r++) {
        float *row = write_row(draft, (uint32_t)t, fr_load_u64(record->rows.keys + (size_t)r * 8));
        if (!row)
            return false;
        for (uint32_t s = 0; s < record->rows.n_segments; s++)
            fr_delta_segment_row(record, s, r, row + offsets[s]);
    }
    return true;
}

static bool take_drops(struct fr_draft *draft, const struct fr_delta_record *record)
{
    int t = fr_served_model_table(draft->model, record->drop.table);
    FR_CHECK(t >= 0);
    for (uint32_t r = 0; r < record->drop.n_rows; r++)
        drop_row(draft, (uint32_t)t, fr_load_u64(record->drop.keys + (size_t)r * 8));
    return true;
}

/* ---- parameters ---- */

static bool is_old(const struct fr_draft *draft, uint32_t i)
{
    return draft->before && draft->before->model == draft->model &&
           draft->view->parameters[i] == draft->before->parameters[i];
}

static bool take_dense(struct fr_draft *draft, const struct fr_delta_record *record)
{
    int found = fr_served_model_parameter(draft->model, record->dense.name);
    FR_CHECK(found >= 0);
    uint32_t i = (uint32_t)found;
    struct fr_served_dense **place = &draft->view->parameters[i];
    const uint64_t n = draft->model->parameters[i].n_values;
    if (!*place || is_old(draft, i)) {
        struct fr_served_dense *dense = fr_served_dense_new(draft->views, n);
        if (!dense)
            return false;
        *place = dense;
    }
    FR_CHECK(record->dense.offset + record->dense.n_values <= n);
    fr_delta_dense_values(record, (*place)->values + record->dense.offset);
    return true;
}

bool fr_draft_take(struct fr_draft *draft, const struct fr_delta_record *record)
{
    switch (record->kind) {
    case FR_DELTA_ROWS:
        return take_rows(draft, record);
    case FR_DELTA_DROP:
        return take_drops(draft, record);
    case FR_DELTA_DENSE:
        return take_dense(draft, record);
    case FR_DELTA_MODEL:
    case FR_DELTA_REWIND:
    case FR_DELTA_COMMIT:
    case FR_DELTA_UNKNOWN:
        break;
    }
    return true;
}

/* ---- the end ---- */

static uint64_t count_rows(const struct fr_draft *draft, uint32_t t)
{
    const struct fr_served_table *table = &draft->view->tables[t];
    const struct fr_overlay *overlay = draft->tables[t].overlay;
    if (draft->tables[t].own)
        return table->rows->n_rows;
    uint64_t n = table->n_rows;
    for (uint32_t at = 0; overlay && at < overlay->capacity; at++) {
        if (overlay->tags[at] == 0)
            continue;
        n += overlay->slots[at] != FR_NO_SLOT;
        /* counts the rows as they were before this overlay */
        n -= fr_served_row(table, overlay->keys[at]) != NULL;
    }
    return n;
}

/* Makes room for one overlay that combines the new one with those earlier ones that are not much
 * larger, and with as many more as it takes to free a place in the view. */
static bool plan_whole(struct fr_draft *draft, uint32_t t)
{
    const struct fr_served_table *table = &draft->view->tables[t];
    struct fr_draft_table *mine = &draft->tables[t];
    if (!mine->overlay)
        return true;
    uint64_t n = mine->overlay->n;
    mine->kept = table->n_overlays;
    while (mine->kept > 0 && table->overlays[mine->kept - 1]->merged == 0 &&
           (table->overlays[mine->kept - 1]->n <= 2 * n || mine->kept == FR_OVERLAYS_MAX))
        n += table->overlays[--mine->kept]->n;
    if (mine->kept == table->n_overlays)
        return true;
    mine->whole = fr_overlay_new(table->rows, n, draft->memory);
    return mine->whole || table->n_overlays < FR_OVERLAYS_MAX;
}

static void add_overlay(struct fr_draft *draft, uint32_t t)
{
    struct fr_served_table *table = &draft->view->tables[t];
    struct fr_draft_table *mine = &draft->tables[t];
    if (mine->whole) {
        fr_overlay_absorb(mine->whole, mine->overlay);
        for (uint32_t i = table->n_overlays; i > mine->kept; i--)
            fr_overlay_absorb(mine->whole, table->overlays[i - 1]);
        free(mine->overlay);
        mine->overlay = mine->whole;
        table->n_overlays = mine->kept;
    }
    if (mine->overlay)
        table->overlays[table->n_overlays++] = mine->overlay;
}

bool fr_draft_publish(struct fr_draft *draft, const struct freshet_replica_info *info)
{
    struct fr_served *view = draft->view;
    view->info = *info;
    view->info.rows = view->info.dense = 0;
    for (uint32_t t = 0; t < view->n_tables; t++) {
        const uint64_t n_rows = count_rows(draft, t);
        if (n_rows > FR_ROWS_MAX)
            return false;
        view->tables[t].n_rows = n_rows;
        view->info.rows += n_rows;
    }
    for (uint32_t i = 0; i < view->n_parameters; i++)
        view->info.dense += view->parameters[i] != NULL;
    view->info.scorable = view->info.dense == view->n_parameters;
    for (uint32_t t = 0; t < view->n_tables; t++)
        if (!plan_whole(draft, t))
            return false;
    for (uint32_t t = 0; t < view->n_tables; t++)
        add_overlay(draft, t);
    fr_served_publish(draft->views, view);
    return true;
}

void fr_draft_abandon(struct fr_draft *draft)
{
    struct fr_served *view = draft->view;
    if (!view)
        return;
    for (uint32_t t = 0; t < view->n_tables; t++) {
        fr_overlay_abandon(draft->tables[t].overlay);
        free(draft->tables[t].whole);
        if (draft->tables[t].own)
            fr_row_table_free(view->tables[t].rows);
    }
    for (uint32_t i = 0; i < view->n_parameters; i++)
        if (view->parameters[i] && !is_old(draft, i))
            free(view->parameters[i]);
    free(view);
    *draft = (struct fr_draft){0};
}
