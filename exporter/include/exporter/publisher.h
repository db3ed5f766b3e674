/* The publisher sends durable epochs to the delta topic from the journal's bytes, in order, with
 * the idempotent producer, and learns from the acknowledgements which epochs the topic holds.
 *
 * Invariants: an epoch is sent only after fr_durable_append returned (P3: it is in the journal and
 * in the HWM, both synced). Its records are a pure function of its journal bytes and of the head of
 * its journal file, so a resend is byte-identical. Epochs are sent in ascending order, and an epoch
 * is acknowledged when all its records are.
 *
 * After a fatal error of the producer a new one is made and sends again from acked + 1. Records may
 * then be on the topic twice; replicas drop them by rule. The daemon's fold thread takes `acked`
 * from the status and calls fr_durable_acknowledge; the publisher never does.
 *
 * Thread: the publisher thread calls fr_publisher_check and fr_publisher_step, the durable thread
 * fr_publisher_offer, any thread the status. */
#ifndef FR_EXPORTER_PUBLISHER_H
#define FR_EXPORTER_PUBLISHER_H

#include "base/clock.h"
#include "codec/codec.h"
#include "codec/manifest.h"
#include "durable/durable.h"

struct fr_publisher;

/* A snapshot with which replicas of an older timeline go on, in the state's own timeline. */
struct fr_publisher_rewind {
    uint64_t epoch; /* it is as of; what follows it is published */
    char snapshot[FR_MANIFEST_NAME_MAX];
};

struct fr_publisher_property {
    const char *name, *value;
    const char *place; /* file:line:column, for messages; NULL: not known */
};

/* What it points to is borrowed until fr_publisher_free. */
struct fr_publisher_options {
    struct fr_durable *durable;
    const struct fr_clock *clock;
    const char *model;   /* names the clients: client.id is freshet-MODEL */
    const char *brokers; /* NULL: there is no topic, and every epoch counts as acknowledged */
    const char *topic;
    uint32_t partitions;
    /* Tables whose rows go to topics of NVIDIA HPS as well; 0: none. Copied. */
    uint32_t n_hps_tables;
    const char *const *hps_tables;
    bool create; /* create topics that are missing */
    /* The largest record that may come (export.piece_max); 0: not known. */
    uint64_t record_max;
    /* 0: 64 MiB; more waits in the journal, not in memory */
    size_t max_in_flight_bytes;
    const struct fr_publisher_property *properties; /* the operator's */
    size_t n_properties;
    /* Journal bytes that may wait; beyond them epochs are merged. 0: any. */
    uint64_t max_backlog_bytes;
    bool backlog_rebases; /* the whole state goes out instead */
    bool stop_on_loss;    /* a topic that needs all of the state again is an error, not filled */
    uint32_t look_ms;     /* between questions about the topic; 0: a minute */
    /* How long the topic has to keep records, by export.retention; 0: everything for ever. */
    int64_t retention_ms;
    /* Whether new replicas have something to begin with although the topic begins at these offsets
     * [partitions] and ends before those: a snapshot. NULL: nothing. Publisher thread. */
    bool (*covers)(void *self, const int64_t *low, const int64_t *high, uint32_t partitions);
    /* Asks for a snapshot as of epoch `least` or a later one, by whose name a new timeline is told
     * on the topic; asked again while it answers FR_AGAIN, and while no epoch follows. Any other
     * answer, or NULL: the topic is filled with the whole state. Publisher thread. */
    enum fr_status (*rewind)(void *self, uint64_t least, struct fr_publisher_rewind *out);
    void *self; /* of both */
};

enum fr_status fr_publisher_new(const struct fr_publisher_options *options, struct fr_publisher **out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_free(struct fr_publisher *publisher);
/* Tells of every problem of the publisher's clients; connects to nothing. place: that of the
 * property, or NULL. durable, clock and topic are not looked at. */
void fr_publisher_report(const struct fr_publisher_options *options,
                         void (*problem)(void *self, const char *place, const char *text), void *self);

/* Makes the start check; the caller repeats it while it returns FR_E_UNAVAILABLE. The topic must
 * exist or is created; fewer partitions than `partitions`, compaction, or a max.message.bytes that
 * is too small for record_max (at the first check) is FR_E_MISMATCH; further partitions stay empty,
 * and finite retention is warned of. A broker that cannot answer such questions (the embedded one)
 * is used with a warning.
 *
 * The newest record of every partition must be of our model, and its (timeline, epoch, digest) must
 * be an epoch of our chain <= the durable one. Else the topic is foreign, there is a second writer,
 * or the state directory is a copy: FR_E_MISMATCH, with the remedy.
 *
 * The check sets where resending begins: after the newest epoch that every partition's commit
 * shows complete, or at acked + 1 where the journal no longer knows. It offers nothing, because
 * epochs may be held back. */
enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;

/* Makes one turn: it sends as many waiting durable epochs as fit in flight and serves delivery
 * reports for at most wait_ms. Errors: FR_E_STATE before any check succeeded; FR_E_MISMATCH,
 * FR_E_IO and the like (publishing holds); FR_E_UNAVAILABLE (it keeps trying, and the text is in
 * the status). */
enum fr_status fr_publisher_step(struct fr_publisher *publisher, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* The durable thread says that epochs up to `epoch` may be sent. This wakes nothing by itself. */
void fr_publisher_offer(struct fr_publisher *publisher, uint64_t epoch);

struct fr_publisher_status {
    uint64_t offered, sent, acked; /* epochs */
    uint64_t records, bytes;       /* produced, resends included */
    uint64_t resent_epochs, errors, saturated;
    uint64_t in_flight_bytes;
    /* found empty by a check although epochs had been acknowledged (P8) */
    uint64_t lost_partitions;
    uint64_t strays;  /* records without a valid crc that were met; nobody reads them */
    uint64_t rebases; /* merged epochs of the whole state that the topic was filled with */
    uint64_t rewinds; /* timelines that were begun with a snapshot instead */
    bool rebasing;
    struct {
        uint64_t merges, merged_epochs; /* how many went out, of how many epochs */
        uint64_t abandoned;             /* the whole state went out instead */
    } backlog;
    struct {
        uint64_t rows;  /* sent for HPS, resends included */
        uint64_t drops; /* tombstones of which it cannot be told, resends included */
    } hps;
    bool fold_wanted;         /* the rebase waits for a fold */
    bool epoch_wanted;        /* ... of an epoch that is not durable yet */
    bool rewind_waits;        /* for an epoch behind its snapshot */
    struct {                  /* the topic as it is known */
        uint64_t begin;       /* the epoch with which new replicas begin; 0: not known */
        uint64_t looks;       /* at start and whenever it was not what it had been */
        uint64_t looked_ms;   /* wall time of the newest question that was answered */
        bool short_retention; /* it keeps less than it has to */
    } topic;
    char problem[320]; /* empty: none */
    /* Why a topic takes no record of some size, until something is acknowledged again, a look finds
     * that it does, or something else fails; empty: none. Nothing but another setting of the topic
     * helps. */
    char refused[320];
};
void fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out);
/* Of each partition an offset before which nothing lies that is later than the epochs offered by
 * now; false while they are not known. Any thread. */
bool fr_publisher_offsets(struct fr_publisher *publisher, uint64_t *out);

#endif
