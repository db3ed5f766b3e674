/* What is sent, one part for each way: epochs of the journal, one by one or merged when they are a
 * backlog (publisher_epochs.c); the whole state, with which the topic is filled
 * (publisher_rebase.c); a rewind to a snapshot, with which a new timeline begins
 * (publisher_rewind.c). The parts put records into `outgoing` and answer with events; when each is
 * used is the machine's business (publisher.c). */
#ifndef FR_EXPORTER_PUBLISHER_WAYS_H
#define FR_EXPORTER_PUBLISHER_WAYS_H

#include "exporter/delta.h"
#include "exporter/full.h"
#include "publisher_sender.h"

/* ---- epochs of the journal ---- */

struct fr_publisher_epochs {
    struct fr_publisher_sender *sender;
    uint64_t measured_at; /* the backlog is measured again once this epoch is sent */
    uint64_t highest;     /* newest epoch that was encoded: an earlier one is sent again */
    struct fr_borrowed_epoch borrowed;
    struct fr_buffer head; /* of a journal file */
    struct fr_export_room room;
};

void fr_publisher_epochs_release(struct fr_publisher_epochs *epochs);
/* Whether the epochs that wait are a backlog; *last, then: how far they are merged with the
 * first. */
bool fr_publisher_is_backlog(struct fr_publisher_epochs *epochs, uint64_t *last);
/* The epoch after the newest that was sent; rewind: it begins with it; NULL: with nothing. */
enum fr_status fr_publisher_load_epoch(struct fr_publisher_epochs *epochs, const struct fr_delta_rewind *rewind,
                                       struct fr_err *err) FR_MUST_CHECK;
/* The same with all epochs up to `last` as one, or fewer, which have one head and one timeline. */
enum fr_status fr_publisher_load_merged(struct fr_publisher_epochs *epochs, uint64_t last,
                                        const struct fr_delta_rewind *rewind, struct fr_err *err) FR_MUST_CHECK;

/* ---- the whole state ---- */

struct fr_publisher_rebase {
    struct fr_publisher_sender *sender;
    uint64_t above;              /* it is of a later epoch: no replica has pieces of that one */
    struct fr_export_full *full; /* NULL: not begun; outlives a producer, for the same bytes */
    uint64_t begun_ns;           /* when the last one was begun; 0: none was */
};

/* The state is to go out as of an epoch later than `above`; the one that was begun is kept when it
 * is. */
void fr_publisher_want_rebase(struct fr_publisher_rebase *rebase, uint64_t above);
/* Opens the folded state. FR_AGAIN: it is not folded, or not offered, so far yet. */
enum fr_status fr_publisher_open_rebase(struct fr_publisher_rebase *rebase, struct fr_err *err) FR_MUST_CHECK;
/* The next records of it. */
enum fr_status fr_publisher_load_rebase(struct fr_publisher_rebase *rebase, struct fr_err *err) FR_MUST_CHECK;
/* It is acknowledged, or not needed. */
void fr_publisher_close_rebase(struct fr_publisher_rebase *rebase);

/* ---- a rewind to a snapshot ---- */

struct fr_publisher_rewinding {
    struct fr_publisher_board *board;
    uint64_t least;                /* the snapshot is as of this epoch or a later one */
    bool impossible;               /* none will be: this process does not ask again */
    struct fr_publisher_rewind to; /* the snapshot; epoch 0: none is named */
};

/* Requests the snapshot from its maker: FR_PUBLISHER_SNAPSHOT_NAMED, FR_PUBLISHER_SNAPSHOT_REFUSED,
 * or FR_PUBLISHER_NO_EVENT while there is no answer. */
enum fr_publisher_event fr_publisher_ask_rewind(struct fr_publisher_rewinding *rewinding);

#endif
