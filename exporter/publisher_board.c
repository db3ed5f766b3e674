/* Options, clients and status of the publisher (publisher_board.h).
 *
 * Thread: the publisher thread, which also runs librdkafka's callbacks. The mutex guards the copy
 * of the tally that other threads read, and is held only while it is copied. */
#include "publisher_board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

void fr_publisher_board_init(struct fr_publisher_board *board, const struct fr_publisher_options *options)
{
    board->options = *options;
    if (board->options.end_partition == 0)
        board->options.end_partition = options->partitions;
    FR_CHECK(board->options.end_partition <= options->partitions);
    FR_CHECK(options->end_partition == 0 || options->first_partition < options->end_partition);
    board->properties = fr_alloc(options->n_properties + 1, sizeof(*board->properties));
    for (size_t i = 0; i < options->n_properties; i++)
        board->properties[i] = (struct fr_kafka_property){options->properties[i].name, options->properties[i].value,
                                                          options->properties[i].place};
    board->next = fr_alloc(options->partitions + 1u, sizeof(*board->next));
    for (uint32_t p = 0; p < options->partitions; p++)
        board->next[p] = -1;
    int rc = pthread_mutex_init(&board->mutex, NULL);
    FR_CHECK(rc == 0);
}

void fr_publisher_board_release(struct fr_publisher_board *board)
{
    pthread_mutex_destroy(&board->mutex);
    free(board->properties);
    free(board->next);
}

bool fr_publisher_has_all(const struct fr_publisher_board *board)
{
    return board->options.end_partition - board->options.first_partition == board->options.partitions;
}

enum fr_status fr_publisher_digest(const struct fr_publisher_board *board, uint64_t epoch, struct fr_sha256 *out)
{
    const struct fr_publisher_digests *digests = &board->options.digests;
    return digests->of ? digests->of(digests->self, epoch, out) : fr_durable_digest(board->options.durable, epoch, out);
}

/* ---- problems and events ---- */

void fr_publisher_set_problem(struct fr_publisher_board *board, const char *text)
{
    snprintf(board->tally.problem, sizeof(board->tally.problem), "%s", text);
    pthread_mutex_lock(&board->mutex);
    board->status = board->tally;
    pthread_mutex_unlock(&board->mutex);
}

void fr_publisher_notice(struct fr_publisher_board *board, enum fr_publisher_event event)
{
    if (board->noticed < event)
        board->noticed = event;
}

/* ---- clients ---- */

void fr_publisher_client_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    struct fr_publisher_board *board = opaque;
    char text[256];
    if (error == RD_KAFKA_RESP_ERR__FATAL) {
        char cause[200];
        rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(client, cause, sizeof(cause));
        snprintf(text, sizeof(text), "producer failed (%s): %s", rd_kafka_err2name(fatal), cause);
        fr_publisher_notice(board, FR_PUBLISHER_PRODUCER_FAILED);
    } else {
        fr_kafka_explain(error, reason, text, sizeof(text));
    }
    /* "All brokers are down" never replaces the more specific reason before it. */
    if (error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !board->connection[0])
        memcpy(board->connection, text, sizeof(text));
    fr_publisher_set_problem(board, text);
    char quoted[300];
    if (fr_log_due(&board->error_logged_ns, fr_mono_ns(board->options.clock), UINT64_C(10000000000)))
        fr_log(FR_LOG_WARN, "publisher", "broker_error", "error=%s problem=%s", rd_kafka_err2name(error),
               fr_log_quote(quoted, sizeof(quoted), text));
}

enum fr_status fr_publisher_client(struct fr_publisher_board *board, struct fr_kafka_options options, rd_kafka_t **out,
                                   struct fr_err *err)
{
    options.brokers = board->options.brokers;
    options.name = board->options.model;
    options.properties = board->properties;
    options.n_properties = board->options.n_properties;
    options.report = board->report;
    if (!options.opaque) {
        options.opaque = board;
        options.on_error = fr_publisher_client_error;
    }
    return fr_kafka_open(&options, out, err);
}
