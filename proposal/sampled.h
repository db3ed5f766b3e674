/* Records in memory, sampled from a topic or a file. Private to proposal. */
#ifndef FR_PROPOSAL_SAMPLED_H
#define FR_PROPOSAL_SAMPLED_H

#include <stdbool.h>

#include "proposal/proposal.h"

enum {
    FR_SAMPLED_BYTES_MAX = 256 << 20, /* of all values together */
    FR_SAMPLED_S = 30,                /* longest time for which records are read */
};

struct fr_sampled_record {
    size_t at, size; /* of the value, in `bytes` */
    int64_t timestamp_ms;
    int32_t partition;
    int64_t offset;
};

/* Records by partition and offset. Records without a value, which delete a key, are counted
 * only. */
struct fr_sampled {
    struct fr_buffer bytes;
    struct fr_sampled_record *records;
    size_t n, capacity;
    uint64_t without_value;
    uint64_t in_log;     /* offsets that the topic holds */
    uint32_t partitions; /* 0: a file */
    bool cut;            /* FR_SAMPLED_BYTES_MAX or FR_SAMPLED_S ended the reading */
};

void fr_sampled_add(struct fr_sampled *sampled, const struct fr_sampled_record *record, const void *value);
void fr_sampled_release(struct fr_sampled *sampled);
/* Reads the newest `options->records` records of the topic: an equal number of offsets from the
 * end of each partition, and more where others hold fewer. */
enum fr_status fr_sampled_topic(const struct fr_proposal_options *options, struct fr_sampled *out,
                                struct fr_err *err) FR_MUST_CHECK;
/* Reads the first `options->records` lines of the file that are not blank. */
enum fr_status fr_sampled_file(const struct fr_proposal_options *options, struct fr_sampled *out,
                               struct fr_err *err) FR_MUST_CHECK;

#endif
