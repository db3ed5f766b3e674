/* The inspection of the delta topic: whether its records are ours, after which epoch sending
 * resumes, and whether a new replica can begin with it. */
#ifndef FR_EXPORTER_PUBLISHER_INSPECTION_H
#define FR_EXPORTER_PUBLISHER_INSPECTION_H

#include "publisher_content.h"

/* The arguments of an inspection. The inspection writes its results to the sender's `known`. */
struct fr_inspection {
    struct fr_publisher_sender *sender;
    const struct fr_publisher_rebase *rebase;
    bool first;      /* the first inspection of this publisher */
    bool may_rewind; /* a timeline may begin with a rewind to a snapshot */
};

struct fr_inspection_findings {
    enum fr_publisher_event event; /* BEGINNING_FOUND, STATE_NEEDED or SNAPSHOT_NEEDED */
    uint64_t resume;               /* sending resumes after this epoch */
    uint64_t above;                /* the whole state must be as of a later epoch than this one */
    uint64_t least;                /* a snapshot must be as of this epoch or a later one */
};

/* FR_E_MISMATCH: the topic is not ours. FR_E_LOST: the topic needs the whole state, but filling it
 * is not allowed. */
enum fr_status fr_publisher_inspect_topic(const struct fr_inspection *inspection, struct fr_inspection_findings *found,
                                          struct fr_err *err) FR_MUST_CHECK;
/* Reads the records between ours. FR_E_MISMATCH: they are another writer's. */
enum fr_status fr_publisher_judge_gaps(struct fr_publisher_sender *sender, struct fr_err *err) FR_MUST_CHECK;

#endif
