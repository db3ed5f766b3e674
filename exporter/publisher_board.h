/* What all parts of the publisher work with: its options, the clients they open, the status that
 * other threads read, and what was noticed since the last step. The lowest part; it calls no other
 * one. */
#ifndef FR_EXPORTER_PUBLISHER_BOARD_H
#define FR_EXPORTER_PUBLISHER_BOARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "kafka/kafka.h"
#include "exporter/publisher.h"
#include "publisher_states.h"

struct fr_publisher_board {
    struct fr_publisher_options options; /* the caller owns what it points to */
    struct fr_kafka_property *properties;
    const struct fr_kafka_report *report; /* NULL except in fr_publisher_report */
    _Atomic uint64_t offered;
    /* The worst event of this step, of those that callbacks notice. */
    enum fr_publisher_event noticed;
    /* What a client last reported of its connections, with the remedy. */
    char connection[256];
    unsigned long long error_logged_ns, stray_logged_ns; /* 0: never */
    /* The publisher thread's own: epochs sent and acknowledged are counted here. */
    struct fr_publisher_status tally;
    pthread_mutex_t mutex;             /* of what follows only */
    struct fr_publisher_status status; /* the tally when it was last shown */
    int64_t *next;                     /* [partitions]: offset of our next record; -1: not known */
};

/* Copies the options' properties; they are valid after a failure too. */
void fr_publisher_board_init(struct fr_publisher_board *board, const struct fr_publisher_options *options);
void fr_publisher_board_release(struct fr_publisher_board *board);

/* Opens a client with the brokers, the name and the operator's properties. options.opaque NULL: the
 * board, whose on_error it then has. out NULL: only checks the properties. */
enum fr_status fr_publisher_client(struct fr_publisher_board *board, struct fr_kafka_options options, rd_kafka_t **out,
                                   struct fr_err *err) FR_MUST_CHECK;
/* A callback of librdkafka, in the thread that polls the client; opaque: the board. */
void fr_publisher_client_error(rd_kafka_t *client, int error, const char *reason, void *opaque);

/* Copies the tally for other threads. */
void fr_publisher_show_status(struct fr_publisher_board *board);
/* Sets the problem that the status reports, and shows it; "": none. */
void fr_publisher_set_problem(struct fr_publisher_board *board, const char *text);
/* Keeps the event for the end of the step, unless a worse one is kept. */
void fr_publisher_notice(struct fr_publisher_board *board, enum fr_publisher_event event);

#endif
