/* Documents and series of the HTTP server, made from copies that the modules publish.
 *
 * Main thread; during recovery the recovery thread, which publishes the documents then. */
#ifndef FR_DAEMON_DOCUMENTS_H
#define FR_DAEMON_DOCUMENTS_H

#include "ingest/ingest.h"
#include "metrics/process_series.h"
#include "metrics/thread_series.h"
#include "page_documents.h"
#include "readiness.h"
#include "trainer/trainer.h"

struct fr_service;
struct fr_service_status;

/* Statuses whose counters of the history are shown once a crash cannot take them back. */
struct fr_shown_history {
    struct fr_trainer_status *shown, *waiting; /* owned; NULL: none */
};

/* What is kept from one publication to the next. Zeroed: nothing was published. */
struct fr_documents {
    struct fr_readiness readiness;
    struct fr_shown_history history;
    struct fr_thread_series times;
    struct fr_process_series process;
    struct fr_page_documents page;
};

struct fr_documents *fr_documents_new(void);
/* After fr_http_free: the server reads the history of /history. */
void fr_documents_free(struct fr_documents *documents);
/* Publishes /status, /auc, /readyz, the page and the series. */
void fr_documents_publish(struct fr_service *service);

/* ---- series.c ---- */

struct fr_expiry_reason {
    const char *name;
    enum fr_absent_reason reason;
};
extern const struct fr_expiry_reason fr_documents_expiry[FR_EXPIRY_RULES];

/* Sets every series of the status. */
void fr_documents_series(struct fr_service *service, const struct fr_service_status *s);
/* Copies the durable positions, and adds, without an offset, the partitions that wait for their
 * first one. */
void fr_documents_positions(struct fr_service *service, const struct fr_ingest_status *ingest,
                            struct fr_positions *out);
/* Returns what ingest knows of a position's partition, or NULL. *at, 0 at first, is where the last
 * one was found, so that two lists in the same order are passed only once. */
const struct fr_ingest_partition *fr_documents_read_partition(const struct fr_ingest_status *ingest,
                                                              const struct fr_partition_position *position,
                                                              uint32_t *at);
/* Returns the newest status whose counters a crash cannot take back, because everything that it
 * counts is durable; NULL: none yet. `now` is copied. */
const struct fr_trainer_status *fr_documents_shown_history(struct fr_shown_history *history,
                                                           const struct fr_trainer_status *now, uint64_t durable);
void fr_documents_shown_release(struct fr_shown_history *history);

#endif
