/* Documents and series of the HTTP server, made on the main thread from copies that the modules
 * publish. */
#ifndef FR_DAEMON_DOCUMENTS_H
#define FR_DAEMON_DOCUMENTS_H

#include "durable/durable.h"
#include "exporter/publisher.h"
#include "ingest/ingest.h"
#include "trainer/trainer.h"

struct fr_service;

/* Copies of what the modules say about themselves. */
struct fr_snapshots {
    struct fr_trainer_status trainer;
    struct fr_ingest_status ingest;
    struct fr_publisher_status publisher;
    struct fr_durable_status durable;
    uint64_t waiting_bytes; /* of the journal, for the delta topic */
    bool recovered;         /* the history is known */
    bool ready;
};

/* ---- documents.c ---- */

/* Publishes /status, /auc, /readyz and the series. */
void fr_documents_publish(struct fr_service *service);

struct fr_expiry_reason {
    const char *name;
    enum fr_absent_reason reason;
};
extern const struct fr_expiry_reason fr_documents_expiry[FR_EXPIRY_RULES];

/* ---- series.c ---- */

/* The counters of the history that may be shown. */
struct fr_settled {
    struct fr_trainer_status *shown, *waiting; /* owned; NULL: none */
};

void fr_documents_series(struct fr_service *service, const struct fr_snapshots *s);
/* Durable positions, and without offset the partitions that wait for their first one. */
void fr_documents_positions(struct fr_service *service, const struct fr_ingest_status *ingest,
                            struct fr_positions *out);
/* What ingest knows of a position's partition, or NULL. *at (0 at first): where the last one was
 * found; lists of one order are passed once. */
const struct fr_ingest_partition *fr_documents_read_partition(const struct fr_ingest_status *ingest,
                                                              const struct fr_partition_position *position,
                                                              uint32_t *at);
/* The newest status none of whose counters a crash could take back, because everything it counted
 * is durable; NULL: none yet. `now` is copied. */
const struct fr_trainer_status *fr_documents_settle(struct fr_settled *settled, const struct fr_trainer_status *now,
                                                    uint64_t durable);
void fr_documents_settled_release(struct fr_settled *settled);

#endif
