/* A reader's inside: its place among the readers, its network. Owner: the reader's thread. */
#ifndef FR_REPLICA_READER_H
#define FR_REPLICA_READER_H

#include "replica_internal.h"

struct freshet_reader {
    struct freshet_replica *replica;
    struct fr_served_reader *place;
    const struct fr_served *view;        /* inside; NULL: outside */
    bool stays;                          /* between begin and end */
    const struct fr_served_model *model; /* borrowed: of the newest view it was in */
    struct fr_scorer scorer;             /* of that model */
    char problem[512];
    uint64_t ignored; /* values of the record scored last */
};

/* NULL: nothing is applied yet. */
const struct fr_served *fr_reader_enter(struct freshet_reader *reader);
void fr_reader_leave(struct freshet_reader *reader);
/* Frees the network. */
void fr_reader_forget(struct freshet_reader *reader);

#endif
