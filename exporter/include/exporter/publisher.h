/* The publisher sends durable epochs from the journal to the delta topic, in order, with an
 * idempotent producer. The acknowledgements show which epochs the topic holds.
 *
 * Invariants: an epoch is sent only after fr_durable_append returned (P3: it is in the journal and
 * in the HWM, both synced). An epoch's records are a pure function of its journal bytes, of the
 * head of its journal file and, with several ranks, of their digests, so a resend is
 * byte-identical. Epochs are sent in ascending order, and an epoch is acknowledged once all its
 * records are.
 *
 * After a fatal error of the producer a new producer is made, which sends again from acked + 1. The
 * topic may then hold records twice; replicas drop the repetitions by rule. The daemon's upkeep
 * thread passes `acked` of the status to fr_durable_acknowledge; the publisher does not.
 *
 * Thread: the publisher thread calls fr_publisher_check and fr_publisher_step, the durable thread
 * calls fr_publisher_offer, and any thread may read the status. */
#ifndef FR_EXPORTER_PUBLISHER_H
#define FR_EXPORTER_PUBLISHER_H

#include "base/clock.h"
#include "codec/codec.h"
#include "codec/manifest.h"
#include "durable/durable.h"

struct fr_publisher;

/* A snapshot of the state's own timeline from which replicas of an older timeline continue. */
struct fr_publisher_rewind {
    uint64_t epoch; /* epoch of the snapshot; the epochs after it are published */
    char snapshot[FR_MANIFEST_NAME_MAX];
};

struct fr_publisher_property {
    const char *name, *value;
    const char *place; /* file:line:column, for messages; NULL: unknown */
};

/* The digests that the records of the topic carry, in a job of several ranks. */
struct fr_publisher_digests {
    void *self;
    /* Writes the digest of an epoch that was offered, or of an earlier one that the journal still
     * has or just had (as fr_durable_digest). NULL: fr_durable_digest. Called by the publisher
     * thread. */
    enum fr_status (*of)(void *self, uint64_t epoch, struct fr_sha256 *out);
    /* The first epoch with a digest. All epochs up to it are acknowledged by all ranks. */
    uint64_t first;
};

/* Everything that a member points to is borrowed until fr_publisher_free. */
struct fr_publisher_options {
    struct fr_durable *durable;
    const struct fr_clock *clock;
    const char *model; /* names the clients: client.id is freshet-MODEL */
    /* NULL: there is no topic, and every epoch counts as acknowledged at once */
    const char *brokers;
    const char *topic;
    uint32_t partitions;
    /* The publisher sends, reads and has acknowledged the partitions [first_partition,
     * end_partition) only; other ranks of the job do the others. Both 0: all. The publisher with
     * partition 0 sends the parameters and the model, and creates the topics. */
    uint32_t first_partition, end_partition;
    /* Tables whose rows are also sent to topics of NVIDIA HPS; 0: none. Copied. */
    uint32_t n_hps_tables;
    const char *const *hps_tables;
    bool create; /* create topics that are missing */
    /* The largest possible record in bytes (export.piece_max); 0: unknown. */
    uint64_t record_max;
    /* 0: 64 MiB. Anything beyond it waits in the journal, not in memory. */
    size_t max_in_flight_bytes;
    const struct fr_publisher_property *properties; /* the operator's */
    size_t n_properties;
    /* Journal bytes that may wait; beyond them epochs are merged. 0: no limit. */
    uint64_t max_backlog_bytes;
    bool backlog_rebases; /* beyond max_backlog_bytes the whole state is sent instead */
    /* a topic that needs the whole state again is an error instead of being filled */
    bool stop_on_loss;
    uint32_t look_ms; /* interval between queries about the topic; 0: a minute */
    /* How long the topic must keep records (export.retention); 0: for ever. */
    int64_t retention_ms;
    /* Returns whether a snapshot exists from which new replicas can begin, given that the
     * partitions of the topic begin at the offsets low [partitions] and end before high
     * [partitions]. NULL: no snapshot ever exists. Called by the publisher thread. */
    bool (*covers)(void *self, const int64_t *low, const int64_t *high, uint32_t partitions);
    /* Requests a snapshot as of epoch `least` or a later one, whose name announces a new timeline
     * on the topic. The publisher repeats the request while the answer is FR_AGAIN and while no
     * epoch follows the snapshot. With any other answer, or if the member is NULL, the topic is
     * filled with the whole state. Called by the publisher thread. */
    enum fr_status (*rewind)(void *self, uint64_t least, struct fr_publisher_rewind *out);
    void *self; /* passed to covers and rewind */
    struct fr_publisher_digests digests;
};

enum fr_status fr_publisher_new(const struct fr_publisher_options *options, struct fr_publisher **out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_free(struct fr_publisher *publisher);
/* Reports every problem in the settings of the publisher's clients, without connecting. place:
 * where the property is set, or NULL. The options durable, clock and topic are ignored. */
void fr_publisher_report(const struct fr_publisher_options *options,
                         void (*problem)(void *self, const char *place, const char *text), void *self);

/* Makes the start check; the caller repeats it while it returns FR_E_UNAVAILABLE. The topic must
 * exist, or it is created. Fewer partitions than `partitions`, compaction, or (at the first check)
 * a max.message.bytes too small for record_max is FR_E_MISMATCH. Additional partitions stay empty,
 * and finite retention causes a warning. A broker that cannot answer these queries (the embedded
 * one) is used with a warning.
 *
 * The newest record of every partition must be of our model, and its (timeline, epoch, digest) must
 * be an epoch of our chain <= the durable one. Otherwise the topic belongs to something else, there
 * is a second writer, or the state directory is a copy: FR_E_MISMATCH, with the remedy.
 *
 * The check sets where resending begins: after the newest epoch that every partition's commit shows
 * complete, or at acked + 1 where the journal no longer holds that epoch. The check offers nothing,
 * because epochs may be held back. */
enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;

/* Makes one turn: sends as many waiting durable epochs as fit in flight and serves delivery reports
 * for at most wait_ms. Errors: FR_E_STATE before any check succeeded; FR_E_MISMATCH, FR_E_IO and
 * similar (publishing stops); FR_E_UNAVAILABLE (the publisher keeps trying, and the status has the
 * text). */
enum fr_status fr_publisher_step(struct fr_publisher *publisher, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* The durable thread permits sending epochs up to `epoch`. The call does not wake the publisher
 * thread. */
void fr_publisher_offer(struct fr_publisher *publisher, uint64_t epoch);

/* Returns the timeline that epochs cut from now on must belong to, if it is above the state's:
 * without brokers no topic gets them, so they belong to a timeline that no topic has. 0: the
 * state's own timeline. Any thread. */
uint64_t fr_publisher_least_timeline(const struct fr_publisher *publisher);

struct fr_publisher_status {
    uint64_t offered, sent, acked; /* epochs */
    uint64_t records, bytes;       /* produced, resends included */
    uint64_t resent_epochs, errors, saturated;
    uint64_t in_flight_bytes;
    /* partitions that a check found empty although epochs had been acknowledged (P8) */
    uint64_t lost_partitions;
    uint64_t strays;  /* records without a valid crc that were found; replicas ignore them */
    uint64_t rebases; /* merged epochs of the whole state with which the topic was filled */
    uint64_t rewinds; /* timelines begun with a snapshot instead */
    bool rebasing;
    struct {
        uint64_t merges, merged_epochs; /* merged epochs sent, and the epochs merged into them */
        uint64_t abandoned;             /* times the whole state was sent instead */
    } backlog;
    struct {
        uint64_t rows;  /* sent for HPS, resends included */
        uint64_t drops; /* tombstones, which HPS has no record for; resends included */
    } hps;
    bool fold_wanted;         /* the rebase waits until a fold */
    bool epoch_wanted;        /* the awaited fold is of an epoch that is not durable yet */
    bool rewind_waits;        /* the rewind waits for an epoch after its snapshot */
    struct {                  /* what is known about the topic */
        uint64_t begin;       /* the epoch with which new replicas begin; 0: unknown */
        uint64_t looks;       /* at the start and after each unexpected change */
        uint64_t looked_ms;   /* wall time (Unix ms) of the newest answered query */
        bool short_retention; /* it keeps records for less than retention_ms */
    } topic;
    char problem[320]; /* empty: none */
    /* Why a topic refuses records of some size; empty: it does not. The text is cleared when a
     * record is acknowledged again, when a look finds that the topic accepts the size, or when
     * something else fails. The remedy is a change of the topic's settings. */
    char refused[320];
};
void fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out);
/* For each partition, writes an offset before which no record is later than the epochs offered so
 * far. Returns false while the offsets are unknown. Any thread may call it. */
bool fr_publisher_offsets(struct fr_publisher *publisher, uint64_t *out);

#endif
