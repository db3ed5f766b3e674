/* A view in the making: what an epoch changes, or all of a state. Nothing of it is served before it
 * is published, and an abandoned draft leaves nothing behind.
 *
 * Rows of a table that readers have go to an overlay; a table of the draft's own is written as it
 * is. Pieces are checked before (fr_served_model_check). Thread: the feeder's. */
#ifndef FR_REPLICA_DRAFT_H
#define FR_REPLICA_DRAFT_H

#include "replica_internal.h"

struct fr_draft {
    struct fr_views *views;
    struct fr_replica_memory *memory;
    struct fr_served_model *model;
    const struct fr_served *before; /* what it changes; NULL: nothing */
    struct fr_served *view;
    struct fr_draft_table {
        bool own;
        uint64_t changes;           /* of a table that is not its own: how many there will be */
        struct fr_overlay *overlay; /* NULL: none */
        struct fr_overlay *whole;   /* of it and the view's from `kept` on; NULL: they stay apart */
        uint32_t kept;
    } tables[FR_TABLES_MAX];
};

/* Begins with what is served, but for what the model has not; `fresh`: with nothing of it. The
 * caller keeps the model until the draft is published. False, here and below: memory was refused;
 * abandon it. */
bool fr_draft_begin(struct fr_draft *draft, struct freshet_replica *replica, struct fr_served_model *model, bool fresh);
/* Says that so many rows or drops of a table will come (a piece's), before the first of them. */
void fr_draft_expect(struct fr_draft *draft, const struct fr_delta_record *record);
bool fr_draft_reserve(struct fr_draft *draft);
bool fr_draft_take(struct fr_draft *draft, const struct fr_delta_record *record);
/* Publishes it with this info, of which rows, parameters and whether it scores are filled in. */
bool fr_draft_publish(struct fr_draft *draft, const struct freshet_replica_info *info);
void fr_draft_abandon(struct fr_draft *draft);

#endif
