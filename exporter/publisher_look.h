/* The look at the delta topic: is it ours, after which epoch is sending to resume, can a new
 * replica begin with it. */
#ifndef FR_EXPORTER_PUBLISHER_LOOK_H
#define FR_EXPORTER_PUBLISHER_LOOK_H

#include "publisher_ways.h"

/* What a look is made with. It writes what it learns to the sender's `known`. */
struct fr_look_request {
    struct fr_publisher_sender *sender;
    const struct fr_publisher_rebase *rebase;
    const struct fr_publisher_rewinding *rewinding;
    bool first; /* of this publisher */
};

struct fr_look_findings {
    enum fr_publisher_event event; /* BEGINNING_FOUND, STATE_NEEDED, SNAPSHOT_NEEDED or _AGAIN */
    uint64_t resume;               /* sending resumes after this epoch */
    uint64_t above;                /* the whole state is to be of a later epoch */
    uint64_t least;                /* a snapshot is to be of this epoch or a later one */
};

/* FR_E_MISMATCH: the topic is not ours; FR_E_LOST: it needs the whole state, and may not get it. */
enum fr_status fr_publisher_look_at_topic(const struct fr_look_request *request, struct fr_look_findings *found,
                                          struct fr_err *err) FR_MUST_CHECK;
/* Reads what lies between our records. FR_E_MISMATCH: another writer's. */
enum fr_status fr_publisher_judge_gaps(const struct fr_look_request *request, struct fr_err *err) FR_MUST_CHECK;

#endif
