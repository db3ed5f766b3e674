/* The durable loop appends cut epochs to the journal, in order. An epoch waits in this loop until
 * the dead letters of its records are acknowledged (docs/architecture.md) and there is room on the
 * disk, and, in a job of several ranks, until all ranks have it. Once the epoch is durable, the
 * publisher is offered what may be published, and the stage of the epoch returns to the trainer.
 *
 * Thread: `durable`, which owns everything except `shared`. */
#ifndef FR_DAEMON_LOOPS_DURABLE_LOOP_H
#define FR_DAEMON_LOOPS_DURABLE_LOOP_H

#include "durable/durable.h"
#include "exporter/publisher.h"
#include "ingest/ingest.h"
#include "loops/retry.h"
#include "loops/shared_digests.h"
#include "metrics/freshness.h"
#include "metrics/timings.h"
#include "trainer/trainer.h"

/* The durable part of the state. Written by the durable thread (first values by recovery, before
 * the loops begin), read by any thread. The atomics are sequentially consistent, but no two of them
 * are read as a pair: a reader may see the number of an epoch before its bytes are counted. */
struct fr_shared_durable {
    _Atomic uint64_t epoch; /* the newest durable epoch */
    /* epochs above it are held back: fr_stage.publishable of the newest */
    _Atomic uint64_t publishable;
    /* bytes appended so far, counted as by fr_trainer_produced_bytes */
    _Atomic uint64_t appended_bytes;
    /* The epoch that is being appended: when it was cut (0: there is none), and what it waits for
     * (NULL: the disk). The trainer uses waits_for in its messages. */
    _Atomic uint64_t waiting_cut_ns;
    const char *_Atomic waits_for;
    /* counts for documents and series */
    _Atomic uint64_t append_ns, appends, image_bytes;
    /* time from the cut of the newest durable epoch until it was durable */
    _Atomic uint64_t cut_to_durable_ns;
    /* when the newest epoch became durable; before that, when recovery ended */
    _Atomic int64_t wall_ms;
    pthread_mutex_t lock;          /* guards the positions; held for a copy */
    struct fr_positions positions; /* positions of the newest durable epoch */
};

struct fr_durable_loop {
    struct fr_shared_durable shared;
    struct fr_shared_digests digests; /* of a job of several ranks */
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_ingest *ingest;
    struct fr_publisher *publisher;
    struct fr_freshness *freshness;
    const struct fr_timings *timings;
    struct fr_ring *cut_stages, *free_stages;
    struct fr_exchange *exchange; /* of a job of several ranks; NULL: one rank */
    /* The members below belong to the loop alone. */
    struct fr_stage *stage; /* the epoch that is being appended; NULL: none */
    bool prepared;          /* this rank has prepared it (durable/agreement.h) */
    struct fr_sha256 own;   /* digest of the epoch that is prepared */
    struct fr_retry retry;  /* repeats an append that found no room on the disk */
    /* when the wait for dead letters was last logged; 0: no wait */
    unsigned long long letters_logged_ns;
};

void fr_shared_durable_init(struct fr_shared_durable *shared);
void fr_shared_durable_release(struct fr_shared_durable *shared);
/* Set and get the positions by copying them. Any thread. */
void fr_shared_durable_set_positions(struct fr_shared_durable *shared, const struct fr_positions *positions);
void fr_shared_durable_get_positions(struct fr_shared_durable *shared, struct fr_positions *out);
/* Whether the epoch that is being appended was cut longer ago than fr_trainer_late_ns. If so,
 * writes what it waits for. Any thread. */
bool fr_shared_durable_late(const struct fr_shared_durable *shared, const struct fr_conf *conf,
                            const struct fr_clock *clock, char *text, size_t size);

enum fr_status fr_step_durable(struct fr_durable_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
