/* Applying one complete epoch: first everything is checked against the model it will be served
 * with, then everything is applied (DESIGN section 7, "Replica rules": switch all at once). A
 * change of fingerprint brings its own model record and all dense parameters, or the replica stops.
 *
 * Owner: the replica's thread. It does not decide which epoch. */
#include "replica_internal.h"

#include <inttypes.h>
#include <stdlib.h>

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
    uint64_t fp;
    struct fr_served_model *made;
};

static enum fr_status make_model(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    struct find_model *find = self;
    if (record->kind != FR_DELTA_MODEL || find->made)
        return FR_OK;
    return fr_served_model_new(record, &find->made, err);
}

struct check {
    const struct fr_served_model *model;
    uint64_t *filled;
};

static enum fr_status check_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    struct check *check = self;
    return fr_served_model_check(check->model, record, check->filled, err);
}

/* A parameter is in an epoch completely or not at all; with a new model all of them are. */
static enum fr_status check_parameters(const struct check *check, bool all, struct fr_err *err)
{
    for (size_t i = 0; i < check->model->n_parameters; i++) {
        const struct fr_parameter *parameter = &check->model->parameters[i];
        if (check->filled[i] != parameter->n_values && (check->filled[i] != 0 || all))
            return fr_err_set(err, FR_E_INVALID, "dense parameter %s has %" PRIu64 " of its %zu elements",
                              parameter->name, check->filled[i], parameter->n_values);
    }
    return FR_OK;
}

static enum fr_status apply_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    (void)err;
    fr_served_model_apply(self, record);
    return FR_OK;
}

static void serve(struct freshet_replica *replica, struct fr_served_model *fresh)
{
    if (fresh && replica->model && !replica->reset_pending)
        fr_served_model_take_rows(fresh, replica->model);
    if (fresh) {
        fr_served_model_free(replica->model);
        replica->model = fresh;
    }
    replica->reset_pending = false;
}

int fr_replica_apply(struct freshet_replica *replica, const struct fr_waiting_epoch *entry, struct fr_err *err)
{
    /* After a rewind to nothing the old rows and parameters must not shine through: a new model is
     * needed. */
    bool known = replica->model && replica->model->fp == entry->fp && !replica->reset_pending;
    struct find_model find = {.fp = entry->fp};
    enum fr_status status = known ? FR_OK : visit_pieces(replica, entry, make_model, &find, err);
    if (status == FR_OK && !known && !find.made) {
        (void)fr_err_set(err, FR_E_MISMATCH,
                         "epoch %" PRIu64 " is of model fingerprint %016" PRIx64
                         ", which is unknown here, and has no model record",
                         entry->epoch, entry->fp);
        return FRESHET_E_GAP;
    }
    struct fr_served_model *target = find.made ? find.made : replica->model;
    if (status == FR_OK) {
        struct check check = {target, fr_alloc(target->n_parameters + 1, sizeof(uint64_t))};
        status = visit_pieces(replica, entry, check_piece, &check, err);
        if (status == FR_OK)
            status = check_parameters(&check, find.made != NULL, err);
        free(check.filled);
    }
    if (status != FR_OK) {
        fr_served_model_free(find.made);
        (void)fr_err_wrap(err, "epoch %" PRIu64, entry->epoch);
        return FRESHET_E_INVALID;
    }
    serve(replica, find.made);
    status = visit_pieces(replica, entry, apply_piece, replica->model, err);
    FR_CHECK(status == FR_OK);
    return FRESHET_OK;
}
