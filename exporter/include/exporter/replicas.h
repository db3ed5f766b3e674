/* The replicas that acknowledge epochs: reads the acknowledgement topic and keeps the last record
 * of each replica in a table of bounded size.
 *
 * A record of the topic is a claim of its writer, and nothing else depends on it. A topic or
 * brokers that are missing are no error: the status has the reason, and the reader tries again.
 *
 * Thread: one thread owns the reader and the table and calls fr_replicas_step; any thread may read
 * the status, of which there is one copy under a mutex that is held while it is copied. */
#ifndef FR_EXPORTER_REPLICAS_H
#define FR_EXPORTER_REPLICAS_H

#include "base/clock.h"
#include "codec/acknowledgement.h"
#include "exporter/publisher.h"

enum {
    FR_REPLICAS_MAX = 1024,           /* replicas in the table, about 0.5 KB each */
    FR_REPLICAS_LISTED_MAX = 64,      /* replicas in the status */
    FR_REPLICA_SILENT_MS = 30000,     /* three heartbeats of a replica */
    FR_REPLICA_FORGOTTEN_MS = 600000, /* a replica silent for so long leaves the table */
    FR_REPLICAS_PROBLEM_MAX = 320,
};

/* Why a record has no effect. */
#define FR_REPLICA_REFUSALS(REFUSAL)                                                                                   \
    REFUSAL(MALFORMED, "malformed")                                                                                    \
    REFUSAL(MODEL, "model")       /* another model's */                                                                \
    REFUSAL(TIMELINE, "timeline") /* a timeline later than the state's */                                              \
    REFUSAL(AHEAD, "ahead")       /* an epoch later than the durable one */
#define FR_REPLICA_REFUSAL(name, text) FR_REPLICA_REFUSED_##name,
enum fr_replica_refusal { FR_REPLICA_REFUSALS(FR_REPLICA_REFUSAL) FR_REPLICA_REFUSED_KINDS };
#undef FR_REPLICA_REFUSAL
extern const char *const fr_replicas_refusal_names[FR_REPLICA_REFUSED_KINDS];

/* One replica, with its last acknowledgement. */
struct fr_replica_standing {
    struct fr_acknowledgement said;
    int64_t silence_ms; /* since its last record */
    bool silent;        /* for at least FR_REPLICA_SILENT_MS */
};

struct fr_replicas_status {
    char problem[FR_REPLICAS_PROBLEM_MAX]; /* why no record is read now; empty: records are read */
    /* of the table: all replicas, those that are silent, those that serve no epoch yet */
    uint32_t count, silent, starting;
    /* since the start: replicas that ended, and that were forgotten; records that found the table
     * full; records, and those among them that had no effect */
    uint64_t left, forgotten, dropped, records, refused[FR_REPLICA_REFUSED_KINDS];
    /* The slowest first: the oldest timeline, the oldest epoch, the longest silence. Replicas that
     * serve no epoch yet come last. */
    uint32_t n_listed;
    struct fr_replica_standing listed[FR_REPLICAS_LISTED_MAX];
};

struct fr_replicas;

/* The newest durable epoch of the state: no replica can serve a later one. */
struct fr_replicas_chain {
    uint64_t timeline, durable;
};
/* Is called after a record came, for each record: a replica may serve an epoch, and say so, that
 * became durable while the reader waited for records. */
typedef struct fr_replicas_chain fr_replicas_chain_of(void *self);

/* Of the publisher's options only model, clock, brokers, create and the properties are used, and
 * borrowed until fr_replicas_free. */
struct fr_replicas *fr_replicas_new(const struct fr_publisher_options *options, const char *topic);
void fr_replicas_free(struct fr_replicas *replicas);
/* Makes one turn of at most a few seconds: opens the topic, or checks that it still exists, if that
 * is due; then reads the records that arrived. Returns whether the topic is open; if not, the
 * caller pauses. */
bool fr_replicas_step(struct fr_replicas *replicas, fr_replicas_chain_of *chain_of, void *self);
void fr_replicas_get_status(struct fr_replicas *replicas, struct fr_replicas_status *out);

#endif
