/* Applying one complete epoch: first everything is checked against the model it will be served with
 * and room is made for its rows, then everything is applied (DESIGN section 7, "Replica rules":
 * switch all at once). A change of fingerprint brings its own model record and all dense
 * parameters, or the replica stops.
 *
 * Owner: the replica's thread. It does not decide which epoch. */
#include "replica_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"

/* Calls visit for every piece of every followed partition, in the order rewind, model, rows, drop,
 * dense. */
static enum fr_status visit_pieces(const struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                                   enum fr_status (*visit)(void *self, const struct fr_delta_record *record,
                                                           struct fr_err *err),
                                   void *self, struct fr_err *err)
{
    for (uint32_t p = 0; p < entry->np; p++) {
        if (!replica->follow[p])
            continue;
        const struct fr_waiting_partition *partition = &entry->partitions[p];
        for (uint32_t i = 0; i < partition->n_pieces; i++) {
            struct fr_delta_record record;
            FR_CHECK(partition->pieces[i].bytes != NULL);
            enum fr_status status = fr_delta_read(partition->pieces[i].bytes, partition->pieces[i].size, &record, err);
            FR_CHECK(status == FR_OK); /* it was read when it was put there */
            status = visit(self, &record, err);
            if (status != FR_OK)
                return status;
        }
    }
    return FR_OK;
}

struct find_model {
    struct fr_replica_budget *budget;
    struct fr_served_model *made;
};

static enum fr_status make_model(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    struct find_model *find = self;
    if (record->kind != FR_DELTA_MODEL || find->made)
        return FR_OK;
    return fr_served_model_new(record, find->budget, &find->made, err);
}

static enum fr_status check_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    return fr_served_model_check(self, record, err);
}

/* A parameter is in an epoch completely or not at all; with a new model all of them are. */
static enum fr_status check_parameters(const struct fr_served_model *model, bool all, struct fr_err *err)
{
    for (size_t i = 0; i < model->scorer.n_parameters; i++) {
        const struct fr_parameter *parameter = &model->scorer.parameters[i];
        if (model->filled[i] != parameter->n_values && (model->filled[i] != 0 || all))
            return fr_err_set(err, FR_E_INVALID, "dense parameter %s has %" PRIu64 " of its %zu elements",
                              parameter->name, model->filled[i], parameter->n_values);
    }
    return FR_OK;
}

/* ---- room for the epoch's rows, before the first of them changes ---- */

static enum fr_status count_new(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    struct fr_served_model *model = self;
    (void)err;
    if (record->kind != FR_DELTA_ROWS)
        return FR_OK;
    int t = fr_served_model_table(model, record->rows.table);
    FR_CHECK(t >= 0);
    for (uint32_t r = 0; r < record->rows.n_rows; r++)
        model->tables[t].n_new +=
            fr_row_map_find(&model->tables[t].rows, fr_load_u64(record->rows.keys + (size_t)r * 8)) == NULL;
    return FR_OK;
}

struct reserving {
    struct fr_served_model *model;
    bool fits;
};

static void reserve_rows(void *self)
{
    struct reserving *reserving = self;
    reserving->fits = true;
    for (uint32_t t = 0; t < reserving->model->n_tables && reserving->fits; t++)
        reserving->fits = fr_row_map_reserve(&reserving->model->tables[t].rows, reserving->model->tables[t].n_new);
}

/* The rows of an older model are taken by the new one, and given back where there is no room. */
static enum fr_status make_room(struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                                struct fr_served_model *target, struct fr_err *err)
{
    bool takes = target != replica->model && replica->model && !replica->reset_pending;
    if (takes)
        fr_served_model_swap_rows(target, replica->model);
    for (uint32_t t = 0; t < target->n_tables; t++)
        target->tables[t].n_new = 0;
    enum fr_status status = visit_pieces(replica, entry, count_new, target, err);
    FR_CHECK(status == FR_OK);
    struct reserving reserving = {.model = target};
    if (fr_replica_memory_run(&replica->memory, reserve_rows, &reserving) && reserving.fits)
        return FR_OK;
    if (takes)
        fr_served_model_swap_rows(target, replica->model);
    return fr_err_set(err, FR_E_NO_MEMORY, "memory for its rows was refused");
}

static enum fr_status apply_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    (void)err;
    fr_served_model_apply(self, record);
    return FR_OK;
}

static enum fr_status check_epoch(const struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                                  struct fr_served_model *target, bool all, struct fr_err *err)
{
    memset(target->filled, 0, target->scorer.n_parameters * sizeof(*target->filled));
    enum fr_status status = visit_pieces(replica, entry, check_piece, target, err);
    return status == FR_OK ? check_parameters(target, all, err) : status;
}

int fr_replica_apply(struct freshet_replica *replica, const struct fr_waiting_epoch *entry, struct fr_err *err)
{
    /* After a rewind to nothing, and in an epoch merged from the first, which is all there is,
     * the old rows and parameters must not shine through: a new model is needed. */
    replica->reset_pending |= entry->from == 1 && replica->model != NULL;
    bool known = replica->model && replica->model->fp == entry->fp && !replica->reset_pending;
    struct find_model find = {.budget = &replica->budget};
    enum fr_status status = known ? FR_OK : visit_pieces(replica, entry, make_model, &find, err);
    if (status == FR_OK && !known && !find.made) {
        (void)fr_err_set(err, FR_E_MISMATCH,
                         "epoch %" PRIu64 " is of model fingerprint %016" PRIx64
                         ", which is unknown here, and has no model record",
                         entry->epoch, entry->fp);
        return FRESHET_E_GAP;
    }
    struct fr_served_model *target = find.made ? find.made : replica->model;
    if (status == FR_OK)
        status = check_epoch(replica, entry, target, find.made != NULL, err);
    if (status == FR_OK)
        status = make_room(replica, entry, target, err);
    if (status != FR_OK) {
        fr_served_model_free(find.made);
        (void)fr_err_wrap(err, "epoch %" PRIu64, entry->epoch);
        return status == FR_E_NO_MEMORY ? FRESHET_E_NO_MEMORY : FRESHET_E_INVALID;
    }
    /* nothing from here on asks for memory */
    if (find.made) {
        fr_served_model_free(replica->model);
        replica->model = find.made;
    }
    replica->reset_pending = false;
    status = visit_pieces(replica, entry, apply_piece, replica->model, err);
    FR_CHECK(status == FR_OK);
    return FRESHET_OK;
}
