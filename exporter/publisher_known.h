/* What is known of the delta topic between two inspections: where each partition begins for a new
 * replica, and at which offset our next record will be. */
#ifndef FR_EXPORTER_PUBLISHER_KNOWN_H
#define FR_EXPORTER_PUBLISHER_KNOWN_H

#include "durable/epoch.h"
#include "publisher_topic.h"

/* What is known of one partition. Members are offsets; -1: unknown. */
struct fr_topic_partition {
    int64_t low;
    int64_t next;       /* expected offset of our next record */
    int64_t begin;      /* offset of the record with which a new replica begins */
    int64_t sent_begin; /* the same for a beginning that is not acknowledged yet */
    /* offsets between our records that were not examined yet; equal: none */
    int64_t gap_from, gap_to;
};

/* A beginning of the timeline: the epoch with `from` 1 with which new replicas begin, or, where
 * `to` is not 0, the epoch after the snapshot of epoch `to`, with the rewind. epoch 0: none is
 * known. */
struct fr_topic_begin {
    uint64_t timeline, epoch, digest, to;
};

struct fr_publisher_known {
    struct fr_publisher_board *board;
    struct fr_topic_partition *partitions; /* [options.partitions] */
    struct fr_topic_begin begin, sent_begin;
    uint64_t begun_timeline; /* the timeline whose beginning was acknowledged here; 0: unknown */
    bool snapshot_is_begin;  /* the topic has no beginning: new replicas begin with a snapshot */
    uint64_t asked_ns;       /* when the ends of the partitions were last queried */
};

void fr_publisher_known_init(struct fr_publisher_known *known, struct fr_publisher_board *board);
void fr_publisher_known_release(struct fr_publisher_known *known);

/* Reads `delta.begin` of the state directory; a file that is missing, damaged or of another topic
 * leaves nothing known. */
void fr_publisher_read_begin(struct fr_publisher_known *known);
void fr_publisher_forget_begin(struct fr_publisher_known *known);
/* The beginning that was sent is acknowledged: it becomes the topic's beginning and is written to
 * `delta.begin`. */
enum fr_status fr_publisher_begin_is_acknowledged(struct fr_publisher_known *known, struct fr_err *err) FR_MUST_CHECK;

/* Notes the offset of a record that was acknowledged. begins: a new replica can begin with it. */
void fr_publisher_record_landed(struct fr_publisher_known *known, int32_t partition, int64_t offset, bool begins);
/* Once a minute, while nothing is in flight: compares the ends of all partitions with what is
 * known. */
void fr_publisher_compare_ends(struct fr_publisher_known *known, struct fr_publisher_topic *topic, rd_kafka_t *client);
/* Whether another writer wrote between our records. */
bool fr_publisher_has_gaps(const struct fr_publisher_known *known);

#endif
