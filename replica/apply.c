/* Applies one complete epoch. First everything is checked against the model with which the epoch
 * will be served; then the new view is built next to the served one; then it is published
 * (docs/formats/deltas.md, "Replica rules": switch all at once). An epoch that changes the
 * fingerprint must bring its own model record and all dense parameters; otherwise the replica
 * stops.
 *
 * Owner: the feeder. Which epoch is applied is decided elsewhere (replica.c). */
#include "draft.h"

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
            FR_CHECK(status == FR_OK); /* the record was parsed when it was stored */
            status = visit(self, &record, err);
            if (status != FR_OK)
                return status;
        }
    }
    return FR_OK;
}

struct find_model {
    struct fr_replica_memory *memory;
    struct fr_served_model *made;
};

static enum fr_status make_model(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    struct find_model *find = self;
    if (record->kind != FR_DELTA_MODEL || find->made)
        return FR_OK;
    return fr_served_model_new(record, find->memory, &find->made, err);
}

static enum fr_status check_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    return fr_served_model_check(self, record, err);
}

/* ---- the view of the epoch ---- */

static enum fr_status expect_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    (void)err;
    fr_draft_expect(self, record);
    return FR_OK;
}

static enum fr_status take_piece(void *self, const struct fr_delta_record *record, struct fr_err *err)
{
    (void)err;
    return fr_draft_take(self, record) ? FR_OK : FR_E_NO_MEMORY;
}

static bool make_view(struct freshet_replica *replica, const struct fr_waiting_epoch *entry, struct fr_draft *draft,
                      struct fr_err *err)
{
    return visit_pieces(replica, entry, expect_piece, draft, err) == FR_OK && fr_draft_reserve(draft) &&
           visit_pieces(replica, entry, take_piece, draft, err) == FR_OK;
}

static enum fr_status publish(struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                              struct fr_served_model *target, const struct freshet_replica_info *info,
                              struct fr_err *err)
{
    struct fr_draft draft;
    if (fr_draft_begin(&draft, replica, target, replica->reset_pending) && make_view(replica, entry, &draft, err) &&
        fr_draft_publish(&draft, info))
        return FR_OK;
    fr_draft_abandon(&draft);
    return fr_err_set(err, FR_E_NO_MEMORY, "memory for its rows was refused");
}

static enum fr_status check_epoch(const struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                                  struct fr_served_model *target, bool all, struct fr_err *err)
{
    memset(target->filled, 0, target->n_parameters * sizeof(*target->filled));
    enum fr_status status = visit_pieces(replica, entry, check_piece, target, err);
    return status == FR_OK ? fr_served_model_check_filled(target, all, err) : status;
}

int fr_replica_apply(struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                     const struct freshet_replica_info *info, struct fr_err *err)
{
    const struct fr_served *before = fr_views_newest(&replica->views);
    /* After a rewind to nothing, and in an epoch merged from the first, the epoch is the whole
     * state. The old rows and parameters must not show through, so a new model is needed. */
    replica->reset_pending |= entry->from == 1 && before != NULL;
    bool known = before && before->model->fp == entry->fp && !replica->reset_pending;
    struct find_model find = {.memory = &replica->memory};
    enum fr_status status = known ? FR_OK : visit_pieces(replica, entry, make_model, &find, err);
    if (status == FR_OK && !known && !find.made) {
        (void)fr_err_set(err, FR_E_MISMATCH,
                         "epoch %" PRIu64 " is of model fingerprint %016" PRIx64
                         ", which is unknown here, and has no model record",
                         entry->epoch, entry->fp);
        return FRESHET_E_GAP;
    }
    struct fr_served_model *target = known ? before->model : find.made;
    if (status == FR_OK)
        status = check_epoch(replica, entry, target, find.made != NULL, err);
    if (status == FR_OK)
        status = publish(replica, entry, target, info, err);
    if (status != FR_OK) {
        fr_served_model_free(find.made);
        (void)fr_err_wrap(err, "epoch %" PRIu64, entry->epoch);
        return status == FR_E_NO_MEMORY ? FRESHET_E_NO_MEMORY : FRESHET_E_INVALID;
    }
    replica->reset_pending = false;
    fr_views_settle(&replica->views);
    return FRESHET_OK;
}
