/* Whether contact with the brokers was unbroken, as the reader's broker threads see it.
 *
 * A broker's name is what the client calls it; times are of fr_clock_boot_ns, which counts stalls
 * of the process and suspensions of the machine, and of the wall clock, which also shows a virtual
 * machine that was paused once it has been corrected. */
#ifndef FR_KAFKA_CONTACT_H
#define FR_KAFKA_CONTACT_H

#include <stdint.h>

#include "kafka/kafka.h"

enum {
    /* Contact counts as lost if a broker, or this process, was silent for longer than expected
     * by this. A topic can be deleted, created again and filled in less than half a second. */
    FR_KAFKA_CONTACT_SILENCE_MS = 250,
    /* Bytes of an answer for which one more millisecond is allowed, because a large answer takes
     * time on a slow line. */
    FR_KAFKA_CONTACT_BYTES_MS = 1000,
    /* Allowed time between two fetch answers of a broker. While the queue of fetched records is
     * full nothing is requested, and librdkafka checks the queue once a second. */
    FR_KAFKA_CONTACT_FETCH_MS = 3000,
};

struct fr_kafka_contact_time {
    uint64_t boot_ns;
    int64_t wall_ms;
};

struct fr_kafka_contact_answer {
    const char *broker;
    int api_key;    /* of the protocol */
    uint64_t size;  /* bytes */
    int64_t rtt_us; /* since the question was sent */
    struct fr_kafka_contact_time at;
};

/* How often contact was lost since the start. */
struct fr_kafka_contact_count {
    uint64_t gaps;
    uint64_t connections; /* over which a broker answers again */
    /* Answers about topics: the client requests them after a partition returned an error, and
     * does not report that error if the next fetch works. */
    uint64_t metadata;
};

struct fr_kafka_contact;

struct fr_kafka_contact_time fr_kafka_contact_now(void);
struct fr_kafka_contact *fr_kafka_contact_new(struct fr_kafka_contact_time now);
void fr_kafka_contact_free(struct fr_kafka_contact *contact);
/* Returns the listener for the reader's client; the contact must live as long as that client. */
struct fr_kafka_listener fr_kafka_contact_listener(struct fr_kafka_contact *contact);
/* Call after the client was made: reads from it how long its brokers wait for records, which the
 * operator can set. */
void fr_kafka_contact_begin(struct fr_kafka_contact *contact, rd_kafka_t *reader);
/* Sets the milliseconds that a broker waits for records before it answers. Any thread. */
void fr_kafka_contact_set_wait(struct fr_kafka_contact *contact, int64_t wait_ms);
/* Records that all partitions were checked at this time, so earlier silence no longer counts.
 * Any thread. */
void fr_kafka_contact_checked(struct fr_kafka_contact *contact, struct fr_kafka_contact_time at);
/* Records one answer. Its counts are visible before any part of the answer is. Any thread. */
void fr_kafka_contact_heard(struct fr_kafka_contact *contact, const struct fr_kafka_contact_answer *answer);
/* Any thread. */
struct fr_kafka_contact_count fr_kafka_contact_count(const struct fr_kafka_contact *contact);

#endif
