/* A configuration proposed from a sample of a topic's records (`freshetd init`).
 *
 * The records are read as they are, in any of the formats and forms that ingest reads except
 * blocks. What was seen of each field decides which slot or label the field becomes; what speaks
 * against that decision is a comment below it. The same records give the same text.
 *
 * Thread: one. Nothing is written to the topic, and no group is joined. */
#ifndef FR_PROPOSAL_PROPOSAL_H
#define FR_PROPOSAL_PROPOSAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum {
    FR_PROPOSAL_RECORDS = 10000, /* default of `records` */
    FR_PROPOSAL_RECORDS_MAX = 1000000,
    FR_PROPOSAL_LABELS_MAX = 16,
    FR_PROPOSAL_MODEL_MAX = 120, /* bytes of a model's name */
};

struct fr_proposal_options {
    const char *brokers, *topic;
    const char *kafka_file;        /* a file of librdkafka properties, or NULL */
    const char *const *properties; /* "name=value" for librdkafka; overrides the file */
    size_t n_properties;
    const char *file;  /* JSON lines (plain, gzip or zstd) in place of a topic, or NULL */
    const char *model; /* NULL: made from the name of the topic or file */
    /* keys of labels; of flat records, paths. None: `y`, or for flat records a guess by name */
    const char *const *labels;
    size_t n_labels;
    uint64_t records; /* the newest of the topic, or the first of the file; 0: the default */
};

/* Appends the configuration as YAML to `out`. fr_conf_load accepts the text.
 *
 * Errors: FR_E_INVALID (an argument, or records that no configuration reads; the text says what to
 * do), FR_E_UNAVAILABLE (brokers are away, or there is no record yet: try again), FR_E_DENIED,
 * FR_E_NOT_FOUND and FR_E_IO (the file). Then nothing is appended. */
enum fr_status fr_proposal_make(const struct fr_proposal_options *options, struct fr_buffer *out,
                                struct fr_err *err) FR_MUST_CHECK;

#endif
