/* Writes what a replica serves to the acknowledgement topic (docs/formats/acknowledgements.md), at
 * most once a second while epochs are applied, and every 10 s otherwise.
 *
 * Acknowledgements are for people who look at the whole fleet. They may be lost, nothing waits for
 * them except the close (half a second), and a topic that does not exist is looked for again and
 * never created.
 *
 * Thread: the follower's. */
#ifndef FR_FOLLOW_ACKNOWLEDGER_H
#define FR_FOLLOW_ACKNOWLEDGER_H

#include "follow/follower.h"

struct fr_acknowledger;

/* Borrowed during the open only. */
struct fr_acknowledger_options {
    const char *name;                      /* of the replica; NULL: nothing is acknowledged */
    const char *topic;                     /* NULL: <model>.ack */
    const struct fr_consume_options *from; /* brokers and properties */
};

/* *out is NULL without a name, and every call below takes NULL. FR_E_INVALID: the name cannot be a
 * replica's (fr_acknowledgement_name_is_sound), or a property. Does not wait for brokers. */
enum fr_status fr_acknowledger_open(const struct fr_acknowledger_options *options, struct fr_acknowledger **out,
                                    struct fr_err *err) FR_MUST_CHECK;
/* Writes an acknowledgement if one is due. `problem`: why the replica does not follow; NULL or "":
 * it does. Waits at most half a second, and only while the topic is looked for, every 10 s. */
void fr_acknowledger_step(struct fr_acknowledger *acknowledger, const struct freshet_replica *replica,
                          const char *problem);
/* The newest epoch of which a broker has taken the acknowledgement; 0: none. */
uint64_t fr_acknowledger_epoch(const struct fr_acknowledger *acknowledger);
/* Writes a last record that the replica leaves, and frees the acknowledger. */
void fr_acknowledger_close(struct fr_acknowledger *acknowledger);

#endif
