/* What the publisher sends: epochs of the journal, one by one or merged when they are a backlog,
 * and the whole state, with which a topic is filled. The functions put records into the sender's
 * `outgoing`; publisher_machine.c decides when each is called. */
#ifndef FR_EXPORTER_PUBLISHER_CONTENT_H
#define FR_EXPORTER_PUBLISHER_CONTENT_H

#include "exporter/delta.h"
#include "exporter/full.h"
#include "publisher_sender.h"

/* ---- epochs of the journal ---- */

struct fr_publisher_epochs {
    struct fr_publisher_sender *sender;
    uint64_t measured_at; /* the backlog is measured again once this epoch is sent */
    uint64_t highest;     /* the newest epoch encoded; an epoch up to it is being resent */
    struct fr_borrowed_epoch borrowed;
    struct fr_buffer head; /* the head of a journal file */
    struct fr_export_room room;
};

void fr_publisher_epochs_release(struct fr_publisher_epochs *epochs);
/* Whether the waiting epochs are a backlog. If so, *last is the last epoch to merge with the first
 * one. */
bool fr_publisher_is_backlog(struct fr_publisher_epochs *epochs, uint64_t *last);
/* Loads the epoch after the newest one sent. rewind: the record that it begins with; NULL: none. */
enum fr_status fr_publisher_load_epoch(struct fr_publisher_epochs *epochs, const struct fr_delta_rewind *rewind,
                                       struct fr_err *err) FR_MUST_CHECK;
/* Loads the epochs after the newest one sent, up to `last`, as one merged epoch; fewer if not
 * all have one head and one timeline. */
enum fr_status fr_publisher_load_merged(struct fr_publisher_epochs *epochs, uint64_t last,
                                        const struct fr_delta_rewind *rewind, struct fr_err *err) FR_MUST_CHECK;

/* ---- the whole state ---- */

struct fr_publisher_rebase {
    struct fr_publisher_sender *sender;
    /* The state must be as of a later epoch than this one, so that no replica holds pieces of
     * it. */
    uint64_t above;
    /* NULL: not begun. It outlives a producer, so that a resend has the same bytes. */
    struct fr_export_full *full;
    uint64_t begun_ns; /* when the last rebase was begun; 0: none was */
};

/* Requests that the state is sent as of an epoch later than `above`. A rebase that has begun is
 * kept if its epoch is later. */
void fr_publisher_want_rebase(struct fr_publisher_rebase *rebase, uint64_t above);
/* Opens the folded state. FR_AGAIN: no late enough epoch is folded and offered yet. */
enum fr_status fr_publisher_open_rebase(struct fr_publisher_rebase *rebase, struct fr_err *err) FR_MUST_CHECK;
/* Loads the next records of the state. */
enum fr_status fr_publisher_load_rebase(struct fr_publisher_rebase *rebase, struct fr_err *err) FR_MUST_CHECK;
/* Ends the rebase, which is acknowledged or no longer needed. */
void fr_publisher_close_rebase(struct fr_publisher_rebase *rebase);

#endif
