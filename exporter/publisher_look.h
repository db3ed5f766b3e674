/* The look at the delta topic: whether it is ours, after which epoch sending resumes, and whether a
 * new replica can begin with it. */
#ifndef FR_EXPORTER_PUBLISHER_LOOK_H
#define FR_EXPORTER_PUBLISHER_LOOK_H

#include "publisher_ways.h"

/* The arguments of a look. It writes its results to the sender's `known`. */
struct fr_look_request {
    struct fr_publisher_sender *sender;
    const struct fr_publisher_rebase *rebase;
    const struct fr_publisher_rewinding *rewinding;
    bool first; /* of this publisher */
};

struct fr_look_findings {
    enum fr_publisher_event event; /* BEGINNING_FOUND, STATE_NEEDED, SNAPSHOT_NEEDED or _AGAIN */
    uint64_t resume;               /* sending resumes after this epoch */
    uint64_t above;                /* the whole state must be of a later epoch than this */
    uint64_t least;                /* a snapshot must be of this epoch or a later one */
};

/* FR_E_MISMATCH: the topic is not ours. FR_E_LOST: the topic needs the whole state, but filling it
 * is not allowed. */
enum fr_status fr_publisher_look_at_topic(const struct fr_look_request *request, struct fr_look_findings *found,
                                          struct fr_err *err) FR_MUST_CHECK;
/* Reads the records between ours. FR_E_MISMATCH: they are another writer's. */
enum fr_status fr_publisher_judge_gaps(const struct fr_look_request *request, struct fr_err *err) FR_MUST_CHECK;

#endif
