/* What all parts of the publisher use: its options, the clients they open, the status that other
 * threads read, and the worst event noticed in this step. The board calls no other part. */
#ifndef FR_EXPORTER_PUBLISHER_BOARD_H
#define FR_EXPORTER_PUBLISHER_BOARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "kafka/kafka.h"
#include "exporter/publisher.h"
#include "publisher_states.h"

struct fr_publisher_board {
    struct fr_publisher_options options; /* the caller owns what the members point to */
    struct fr_kafka_property *properties;
    const struct fr_kafka_report *report; /* NULL except in fr_publisher_report */
    _Atomic uint64_t offered;
    /* The worst event that callbacks and parts noticed in this step. */
    enum fr_publisher_event noticed;
    /* The newest report of a client about its connections, with the remedy. */
    char connection[256];
    unsigned long long error_logged_ns, stray_logged_ns; /* 0: never */
    /* The counts as the publisher thread sees them; no other thread reads them here. */
    struct fr_publisher_status tally;
    pthread_mutex_t mutex;             /* guards the two members below */
    struct fr_publisher_status status; /* the tally when it was last copied */
    int64_t *next;                     /* [partitions] offset of our next record; -1: unknown */
};

/* Copies the options and their list of properties. */
void fr_publisher_board_init(struct fr_publisher_board *board, const struct fr_publisher_options *options);
void fr_publisher_board_release(struct fr_publisher_board *board);

/* Opens a client with the brokers, the name and the operator's properties. options.opaque NULL: the
 * client gets the board as its opaque value and fr_publisher_client_error as on_error. out NULL:
 * only the properties are checked. */
enum fr_status fr_publisher_client(struct fr_publisher_board *board, struct fr_kafka_options options, rd_kafka_t **out,
                                   struct fr_err *err) FR_MUST_CHECK;
/* librdkafka calls this in the thread that polls the client. opaque: the board. */
void fr_publisher_client_error(rd_kafka_t *client, int error, const char *reason, void *opaque);

/* Whether the publisher has all partitions. If not, other ranks of the job have the others, and
 * whatever readers must find in all partitions alike (a timeline's beginning, the whole state, an
 * epoch merged of others) cannot be decided by one publisher. */
bool fr_publisher_has_all(const struct fr_publisher_board *board);
/* The digest of an epoch, as records carry it. Errors: as of fr_durable_digest. */
enum fr_status fr_publisher_digest(const struct fr_publisher_board *board, uint64_t epoch,
                                   struct fr_sha256 *out) FR_MUST_CHECK;
/* Sets the problem of the tally and copies the tally for other threads. "": no problem. */
void fr_publisher_set_problem(struct fr_publisher_board *board, const char *text);
/* Keeps the event for the end of the step, unless a worse event is kept already. */
void fr_publisher_notice(struct fr_publisher_board *board, enum fr_publisher_event event);

#endif
