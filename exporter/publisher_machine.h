/* The publisher: its state, and the parts it works with. */
#ifndef FR_EXPORTER_PUBLISHER_MACHINE_H
#define FR_EXPORTER_PUBLISHER_MACHINE_H

#include "publisher_look.h"

enum { PAUSE_MIN_MS = 100, PAUSE_MAX_MS = 5000 }; /* before a look, after a failure */

/* Owner: the publisher thread. */
struct fr_publisher {
    struct fr_publisher_board board;
    enum fr_publisher_state state;
    struct fr_publisher_topic topic;
    struct fr_publisher_known known;
    struct fr_publisher_sender sender;
    struct fr_publisher_epochs epochs;
    struct fr_publisher_rebase rebase;
    struct fr_publisher_rewinding rewinding;
    struct fr_look_findings found; /* by the last look */
    struct {
        uint64_t until_ns, ms; /* ms: of the last pause; 0: none since something was acknowledged */
    } pause;
};

/* Makes the transition of the table, and what goes with it. */
void fr_publisher_change_state(struct fr_publisher *publisher, enum fr_publisher_event event);

#endif
