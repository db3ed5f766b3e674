/* The Kafka side of ingest: source and dead-letter sink over librdkafka. librdkafka's own types
 * stay in kafka_*.c. */
#ifndef FR_INGEST_KAFKA_H
#define FR_INGEST_KAFKA_H

#include "base/clock.h"
#include "ingest/source.h"

/* Makes the source, which connects to nothing yet. per_partition: `poll` gets one partition at a
 * time. Borrows the conf. FR_E_INVALID: a property of ingest.kafka is unknown, out of range, or
 * decided by the service itself. */
enum fr_status fr_ingest_kafka_source(const struct fr_conf *conf, bool per_partition, struct fr_source *out,
                                      struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_ingest_kafka_dead(const struct fr_conf *conf, const struct fr_clock *clock, struct fr_dead_sink *out,
                                    struct fr_err *err) FR_MUST_CHECK;

#endif
