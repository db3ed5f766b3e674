/* The struct of a reader: its place among the readers, its network. Owner: the reader's thread. */
#ifndef FR_REPLICA_READER_H
#define FR_REPLICA_READER_H

#include "replica_internal.h"

struct freshet_reader {
    struct freshet_replica *replica;
    struct fr_served_reader *place;
    const struct fr_served *view; /* the view that the reader is in; NULL: none */
    bool stays;                   /* true between begin and end */
    /* borrowed: the model of the newest view that the reader was in */
    const struct fr_served_model *model;
    struct fr_scorer scorer; /* made for `model` */
    char problem[512];
    uint64_t ignored; /* ignored values of the last scored record */
};

/* NULL: no epoch is applied yet. */
const struct fr_served *fr_reader_enter(struct freshet_reader *reader);
void fr_reader_leave(struct freshet_reader *reader);
/* Frees the network. */
void fr_reader_forget(struct freshet_reader *reader);

#endif
