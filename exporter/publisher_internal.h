/* What the publisher's files share: configuration of librdkafka handles, and the start check's
 * questions to the broker. */
#ifndef FR_EXPORTER_PUBLISHER_INTERNAL_H
#define FR_EXPORTER_PUBLISHER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "exporter/delta.h"
#include "exporter/full.h"
#include "exporter/publisher.h"
#include "kafka/kafka.h"

enum {
    PENDING_EPOCHS_MAX = 1024, /* epochs in flight; a power of two */
    /* message.max.bytes: the largest piece_max (64 MiB) and its envelope */
    RECORD_BYTES_MAX = 65 << 20,
    IN_FLIGHT_DEFAULT = 64 << 20,
    BROKER_TIMEOUT_MS = 5000, /* metadata, offsets, fetched records */
    REBASE_EVERY_MS = 600000, /* a topic that keeps less than a state is not filled for ever */
    LOOK_MS = 60000,          /* between questions about the topic while all is well */
    POLICY_MS = 3600000,      /* between questions about what it keeps */
    BATCH_ROOM = 128,         /* what Kafka puts around one record and counts with it */
    BATCH_MAX = 1000000,      /* of several records; librdkafka's own */
    /* the receive_buffer_size of consumers of HPS, unless configured */
    HPS_MESSAGE_MAX = 256 << 10,
};

/* What is known of a partition between looks. Offsets; -1: not known. */
struct fr_topic_partition {
    int64_t low;
    int64_t next;             /* where our next record should land */
    int64_t begin;            /* of the record with which a new replica begins */
    int64_t sent_begin;       /* the same of an epoch that is not acknowledged yet */
    int64_t gap_from, gap_to; /* offsets between ours that were not looked at yet; equal: none */
    uint64_t last;            /* newest epoch that a look saw complete */
};

/* The epoch with `from` 1 with which new replicas begin; epoch 0: not known. With `to`: a later one
 * with which the timeline began behind the snapshot of that epoch. */
struct fr_topic_begin {
    uint64_t timeline, epoch, digest, to;
};

/* The envelope of a record of the topic. */
struct fr_topic_record {
    bool found;
    int64_t offset;
    int64_t written_ms;    /* its Kafka timestamp; -1: none */
    enum fr_status status; /* FR_OK, or why it is no delta record of this format; problem says it */
    enum fr_delta_kind kind;
    uint64_t timeline, epoch, from, digest;
    uint32_t partition, np, piece;
    char model[128];
    char problem[128];
};

struct fr_topic_span {
    int32_t partition;
    int64_t from, to; /* offsets; `to` is not in it */
    uint64_t strays;  /* records without a valid crc that were met */
    bool done;
};

struct outgoing_record {
    const char *topic; /* borrowed; NULL: the delta topic */
    uint32_t partition;
    bool begins; /* a new replica can begin with it in its partition */
    size_t size;
    uint8_t *bytes; /* librdkafka's once it took them; NULL then */
};

/* The epoch that is being handed to librdkafka: its records as bytes, so that a full queue
 * interrupts nothing. Each has memory of its own, which librdkafka frees: no copy is made. */
struct outgoing {
    uint64_t epoch;
    bool begins; /* a timeline: its `from` is 1, or it has a rewind */
    int64_t timestamp_ms;
    struct outgoing_record *records;
    size_t n, next, capacity;
    struct fr_publisher_hps *hps; /* NULL: nothing is written for HPS */
};

struct pending_epoch {
    uint64_t epoch, outstanding;
    bool complete; /* all its records were produced */
};

struct fr_publisher {
    struct fr_publisher_options options; /* what it points to is the caller's */
    struct fr_kafka_property *properties;
    const struct fr_kafka_report *report; /* NULL but for fr_publisher_report */
    rd_kafka_t *producer;
    bool checked, failed;
    /* a commit beyond `acked` may be on the topic without all of its pieces */
    bool doubted;
    bool moved;                       /* the topic is not what it was: to be looked at again */
    struct fr_topic_partition *topic; /* [partitions] */
    struct fr_topic_begin begin, sent_begin;
    uint64_t settled; /* timeline whose beginning was acknowledged on this topic; 0: not known */
    bool covered;     /* no beginning was found, and a snapshot with which replicas begin */
    /* publisher_rewind.c: the timeline begins with a snapshot that replicas load. */
    struct {
        bool wanted;  /* one is being made; nothing is sent before */
        bool ready;   /* epochs behind `to` are sent, the first of them with the rewind */
        bool refused; /* there is none: the topic is filled with the whole state */
        bool looks;   /* for that it is looked at again */
        uint64_t least;
        struct fr_publisher_rewind to;
    } rewind;
    /* The topic is filled with the whole state. */
    struct {
        bool wanted;
        bool sent;                   /* all its records were handed over */
        uint64_t above;              /* its epoch is a later one: no replica has pieces of it */
        struct fr_export_full *full; /* NULL: not begun; kept until it is acknowledged */
        uint64_t begun_ns;           /* the last one; 0: none */
    } rebase;
    struct {              /* publisher_backlog.c */
        uint64_t look_at; /* not before so much is sent */
        uint64_t end;     /* of the epochs to be merged */
    } backlog;
    struct { /* for its size, as tally.refused says */
        char topic[250];
        uint64_t bytes; /* that it has to take */
    } refused;
    uint32_t checked_partitions; /* of the topic, as a look found */
    uint64_t looked_ns;
    uint64_t begun_ns;  /* when the publisher was made */
    uint64_t policy_ns; /* when the topic's settings were last asked for */
    bool administrable; /* the brokers tell a topic's settings */
    unsigned long long stray_logged_ns;
    atomic_bool fatal; /* set from librdkafka's error callback */
    /* what a client last said of its connections, with the remedy; serving a client sets it */
    char connection[256];
    uint64_t sent, acked, highest_sent;
    struct outgoing out;
    struct pending_epoch pending[PENDING_EPOCHS_MAX];
    size_t pending_begin, n_pending;
    size_t in_flight_bytes;
    uint64_t retry_at_ns, backoff_ms;
    struct fr_borrowed_epoch borrowed;
    struct fr_buffer head_bytes;
    struct fr_export_room room;
    _Atomic uint64_t offered;
    struct fr_publisher_status tally;
    pthread_mutex_t mutex;             /* of status only */
    struct fr_publisher_status status; /* the tally as it was told last */
    int64_t *told_next;                /* [partitions], of the topic; likewise */
    unsigned long long logged_ns;
};

/* Fills in brokers, name, the operator's properties and callbacks. out NULL: only looks. */
enum fr_status fr_publisher_client(struct fr_publisher *publisher, struct fr_kafka_options options, rd_kafka_t **out,
                                   struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_publisher_producer(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;
/* Copies the tally for other threads. */
void fr_publisher_tell(struct fr_publisher *publisher);
void fr_publisher_problem(struct fr_publisher *publisher, const char *text); /* "": none */

/* publisher_topic.c: the topic exists (made when options.create) and has at least `partitions`
 * partitions. *found: what the brokers know of it. */
enum fr_status fr_publisher_find_topic(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                       struct fr_kafka_topic *found, struct fr_err *err) FR_MUST_CHECK;
/* The delta topic exists, has `partitions` partitions, is not compacted. */
enum fr_status fr_publisher_check_topic(struct fr_publisher *publisher, rd_kafka_t *client,
                                        struct fr_err *err) FR_MUST_CHECK;

/* At the first look: the topic takes a batch of one record of so many bytes; FR_E_MISMATCH. */
enum fr_status fr_publisher_check_size(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                       const char *what, uint64_t bytes, struct fr_err *err) FR_MUST_CHECK;

/* Whether the topic that refused a record takes one of that size now, as far as brokers say. */
bool fr_publisher_takes_refused(struct fr_publisher *publisher, rd_kafka_t *client);

/* Asks again what the topic keeps, and warns when that is too little. */
void fr_publisher_look_at_retention(struct fr_publisher *publisher);

/* publisher_read.c: a consumer of the topic, which joins no group and creates nothing. */
enum fr_status fr_publisher_reader(struct fr_publisher *publisher, rd_kafka_t **out, struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_reader_close(rd_kafka_t *client);
/* First offset and next offset of every partition, in two questions; any client. */
enum fr_status fr_publisher_ends(struct fr_publisher *publisher, rd_kafka_t *client, int64_t *low, int64_t *high,
                                 struct fr_err *err) FR_MUST_CHECK;
/* Visits the records of all spans, each span's in order, until its end or until record returns
 * true. Strays are counted and not visited. FR_E_UNAVAILABLE: some did not come in time. */
struct fr_topic_visitor {
    void *self;
    bool (*record)(void *self, int32_t partition, const struct fr_topic_record *record);
};
enum fr_status fr_publisher_read(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_topic_span *spans,
                                 size_t n, const struct fr_topic_visitor *visitor, struct fr_err *err) FR_MUST_CHECK;

/* publisher_check.c: what lies between our records; FR_E_MISMATCH: another writer. */
enum fr_status fr_publisher_check_gaps(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;

/* publisher_rebase.c. The next records of the whole state into `outgoing`; FR_AGAIN: it cannot
 * begin yet. */
enum fr_status fr_publisher_load_rebase(struct fr_publisher *publisher, fr_delta_sink *keep,
                                        struct fr_err *err) FR_MUST_CHECK;
/* Says whether a fold, and a later epoch, are waited for. */
void fr_publisher_tell_rebase(struct fr_publisher *publisher, const struct fr_durable_status *durable);
void fr_publisher_end_rebase(struct fr_publisher *publisher); /* acknowledged, or not needed */

/* publisher_rewind.c. A new timeline is to be told: whether a snapshot is asked for; *resume: the
 * epoch behind which sending begins, once there is one. */
bool fr_publisher_wants_rewind(struct fr_publisher *publisher, uint64_t least, uint64_t *resume);
/* Asks for the snapshot that is waited for; whether epochs may be sent now. */
bool fr_publisher_await_rewind(struct fr_publisher *publisher);
/* What the epoch that begins with `first` begins with; NULL: nothing. *room holds it. */
const struct fr_delta_rewind *fr_publisher_rewind_of(struct fr_publisher *publisher, uint64_t first,
                                                     struct fr_delta_rewind *room);
void fr_publisher_rewind_landed(struct fr_publisher *publisher);

/* publisher_backlog.c. The next epochs are to go out as one, which load puts into `outgoing`; or a
 * whole state was made wanted, and false. */
bool fr_publisher_wants_merge(struct fr_publisher *publisher);
enum fr_status fr_publisher_load_merged(struct fr_publisher *publisher, fr_delta_sink *keep,
                                        struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_clear_outgoing(struct outgoing *out);
/* Appends a copy of a record. topic: borrowed; NULL: the delta topic. */
struct outgoing_record *fr_publisher_add_outgoing(struct outgoing *out, const char *topic, uint32_t partition,
                                                  const void *bytes, size_t size);

/* publisher_hps.c: rows once more, for consumers of NVIDIA HPS. */
struct fr_publisher_hps *fr_publisher_hps_new(const struct fr_publisher_options *options);
void fr_publisher_hps_free(struct fr_publisher_hps *hps);
/* Its topics exist, each with enough partitions; acked: epochs that went out already. */
enum fr_status fr_publisher_hps_check(struct fr_publisher *publisher, rd_kafka_t *client, uint64_t acked,
                                      struct fr_err *err) FR_MUST_CHECK;
/* Appends what a delta record has for HPS. */
enum fr_status fr_publisher_hps_add(struct fr_publisher_hps *hps, struct outgoing *out, const void *bytes,
                                    size_t size) FR_MUST_CHECK;
/* What `outgoing` has was handed over, and is counted; or is not sent. */
void fr_publisher_hps_tell(struct fr_publisher *publisher);
void fr_publisher_hps_forget(struct fr_publisher_hps *hps);

/* publisher_known.c */
void fr_publisher_load_begin(struct fr_publisher *publisher);
/* The epoch with which the timeline begins is acknowledged. */
enum fr_status fr_publisher_begin_landed(struct fr_publisher *publisher, struct fr_err *err) FR_MUST_CHECK;
void fr_publisher_forget_begin(struct fr_publisher *publisher);
/* Epochs from `first` to `last` are about to be sent: notes it when the timeline begins with
 * them. */
void fr_publisher_begin_sent(struct fr_publisher *publisher, uint64_t first, const struct fr_epoch *last);
/* A record of ours was acknowledged at this offset (-1: not told); begins: a replica can begin with
 * it. */
void fr_publisher_landed(struct fr_publisher *publisher, int32_t partition, int64_t offset, bool begins);
/* The start check and a turn of a publisher that has no topic. */
enum fr_status fr_publisher_check_without_brokers(struct fr_publisher *publisher, struct fr_err *err);
enum fr_status fr_publisher_step_without_brokers(struct fr_publisher *publisher, int wait_ms);
/* The first record that a topic did not take: the problem, with what to set where that helps. */
void fr_publisher_refused(struct fr_publisher *publisher, const rd_kafka_message_t *message);
bool fr_publisher_has_gaps(const struct fr_publisher *publisher);
/* Once a minute: asks where partitions begin and end; sets moved, or gaps. */
void fr_publisher_ask(struct fr_publisher *publisher);

#endif
