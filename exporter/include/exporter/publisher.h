/* The publisher: sends durable epochs to the delta topic from the journal's bytes, in order, with
 * the idempotent producer, and learns from the acknowledgements which epochs the topic holds.
 *
 * Invariants: an epoch is sent only after fr_durable_append returned (P3: in the journal and in the
 * HWM, both synced); its records are a pure function of its journal bytes and of the head of its
 * journal file, so a resend is byte-identical; epochs are sent in ascending order; an epoch is
 * acknowledged when all its records are. A fatal producer error: destroy, make a new one, resend
 * from acked + 1 (records may be on the topic twice; replicas drop them by rule). The daemon's fold
 * thread takes `acked` from the status and calls fr_durable_acknowledge; the publisher never does.
 * Thread: one publisher thread (fr_publisher_check, fr_publisher_step); fr_publisher_offer from the
 * durable thread; status from any. */
#ifndef FR_EXPORTER_PUBLISHER_H
#define FR_EXPORTER_PUBLISHER_H

#include "base/clock.h"
#include "codec/codec.h"
#include "durable/durable.h"

struct fr_publisher;

struct fr_publisher_property {
    const char *name, *value;
};

/* What it points to is borrowed until fr_publisher_free. */
struct fr_publisher_options {
    struct fr_durable *durable;
    const struct fr_clock *clock;
    const char *model; /* names the clients: client.id is freshet-MODEL */
    const char *brokers;
    const char *topic;
    uint32_t partitions;
    bool create; /* create the topic when missing */
    /* 0: 64 MiB; more waits in the journal, not in memory */
    size_t max_in_flight_bytes;
    const struct fr_publisher_property *properties; /* the operator's */
    size_t n_properties;
};

enum fr_status fr_publisher_new(const struct fr_publisher_options *options, struct fr_publisher **out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_free(struct fr_publisher *publisher);

/* Start check, repeated by the caller while FR_E_UNAVAILABLE: topic exists or is created (partition
 * count must be `partitions`: FR_E_MISMATCH), not compacted (FR_E_MISMATCH), warns about finite
 * retention; a broker that cannot answer such questions (embedded) is used with a warning. Reads
 * the newest record of every partition: it must be of our model, and its (timeline, epoch, digest)
 * must be an epoch of our chain <= the durable one, else FR_E_MISMATCH: foreign topic, second
 * writer, or a copy of the state directory; says the remedy. Sets where resending begins: after the
 * newest epoch that every partition's commit shows complete, or acked + 1 where the journal no
 * longer knows. Offers nothing: epochs may be held back. */
enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;

/* Before any check succeeded: FR_E_STATE. One turn: sends as many waiting durable epochs as fit in
 * flight, serves delivery reports for at most wait_ms. FR_OK, or FR_E_MISMATCH/FR_E_IO.. (hold), or
 * FR_E_UNAVAILABLE (keeps trying; the text is in the status). */
enum fr_status fr_publisher_step(struct fr_publisher *publisher, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* Durable thread: epochs up to `epoch` may be sent. Wakes nothing by itself. */
void fr_publisher_offer(struct fr_publisher *publisher, uint64_t epoch);

struct fr_publisher_status {
    uint64_t offered, sent, acked; /* epochs */
    uint64_t records, bytes;       /* produced, resends included */
    uint64_t resent_epochs, errors, saturated;
    uint64_t in_flight_bytes;
    /* found empty by a check although epochs had been acknowledged (P8) */
    uint64_t lost_partitions;
    char problem[256]; /* empty: none */
};
void fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out);

#endif
