/* A view in the making: the changes of an epoch, or a whole state. Nothing of it is served before
 * it is published, and an abandoned draft leaves no trace.
 *
 * Rows of a table that readers can reach go to an overlay; a table that belongs to the draft is
 * written in place. Pieces are checked beforehand (fr_served_model_check). Thread: the feeder's. */
#ifndef FR_REPLICA_DRAFT_H
#define FR_REPLICA_DRAFT_H

#include "replica_internal.h"

struct fr_draft {
    struct fr_views *views;
    struct fr_replica_memory *memory;
    struct fr_served_model *model;
    const struct fr_served *before; /* the view that the draft changes; NULL: none */
    struct fr_served *view;
    struct fr_draft_table {
        bool own;
        /* of a table that readers can reach: the number of changes to come */
        uint64_t changes;
        struct fr_overlay *overlay; /* NULL: none */
        /* combines `overlay` with the view's overlays from `kept` on; NULL: they stay separate */
        struct fr_overlay *whole;
        uint32_t kept;
    } tables[FR_TABLES_MAX];
};

/* Begins with what is served, except what the model lacks; with `fresh`, begins empty. The caller
 * keeps the model until the draft is published. False, here and below: memory was refused; abandon
 * the draft. */
bool fr_draft_begin(struct fr_draft *draft, struct freshet_replica *replica, struct fr_served_model *model, bool fresh);
/* Announces the number of rows or drops of a table in this piece, before the first of them. */
void fr_draft_expect(struct fr_draft *draft, const struct fr_delta_record *record);
bool fr_draft_reserve(struct fr_draft *draft);
bool fr_draft_take(struct fr_draft *draft, const struct fr_delta_record *record);
/* Publishes the draft as a view with this info, in which rows, parameters and scorable are filled
 * in. */
bool fr_draft_publish(struct fr_draft *draft, const struct freshet_replica_info *info);
void fr_draft_abandon(struct fr_draft *draft);

#endif
