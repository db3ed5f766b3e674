/* Positions and the P2 ledger of each topic-partition: which part of the log has taken effect.
 *
 * The owner loop applies each batch's positions when it applies the batch. All positions are staged
 * as section "positions" at a cut and restored at a start.
 *
 * The terms of P2 hold per topic-partition. In records: decoded + dead_lettered = delivered. In
 * samples: trained + metrics_only + masked + quarantined + skipped = decoded samples.
 *
 * Owner: the owner loop; others read a copy (fr_positions_copy) that the owner hands over. */
#ifndef FR_INGEST_POSITIONS_H
#define FR_INGEST_POSITIONS_H

#include "base/buffer.h"
#include "batch/batch.h"

enum { FR_TOPIC_MAX = 250, FR_CLUSTER_ID_MAX = 64, FR_PARTITIONS_MAX = 4096, FR_SKIPS_MAX = 16 };

/* The ledger of a topic-partition, in the order in which it is stored: name, metric (NULL: none),
 * the metric's help. P2 says of records that decoded + dead-lettered = delivered, and of samples
 * that trained + metrics-only + masked + quarantined + skipped = those decoded. */
#define FR_LEDGER(TERM)                                                                                                \
    TERM(delivered, "freshet_records_delivered_total", "Records in effect, as of the last durable epoch.")             \
    TERM(decoded, "freshet_records_decoded_total", "Records decoded, as of the last durable epoch.")                   \
    TERM(dead_lettered, "freshet_records_dead_lettered_total",                                                         \
         "Records sent to the dead-letter topic, as of the last durable epoch.")                                       \
    TERM(lost, "freshet_records_lost_total",                                                                           \
         "Records that the log lost before they were read, as of the last durable epoch.")                             \
    TERM(samples, "freshet_samples_decoded_total", "Samples of decoded records, as of the last durable epoch.")        \
    TERM(trained, NULL, NULL)                                                                                          \
    TERM(metrics_only, NULL, NULL)                                                                                     \
    TERM(masked, NULL, NULL)                                                                                           \
    TERM(quarantined, NULL, NULL)                                                                                      \
    TERM(skipped, "freshet_samples_skipped_total", "Decoded samples passed over, as of the last durable epoch.")

/* A term of a sum. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_LEDGER_ONE(name, metric, help) +1
enum { FR_LEDGER_TERMS = FR_LEDGER(FR_LEDGER_ONE) };

struct fr_ledger_term {
    const char *name, *metric, *help;
};
extern const struct fr_ledger_term fr_positions_ledger[FR_LEDGER_TERMS];

/* Offsets whose records are passed over: decoded and counted, not trained. */
struct fr_skip {
    int64_t first, last; /* both inclusive */
};

struct fr_partition_position {
    /* of a file `file:<path>`, with partition 0, and line numbers from 0 as offsets */
    char topic[FR_TOPIC_MAX];
    int32_t partition;
    /* first record not fully in effect; -1: none yet (the `start` policy decides) */
    int64_t offset;
    uint32_t item;
    int64_t fingerprint_offset; /* last delivered record; -1: none */
    int64_t fingerprint_timestamp_ms;
    uint32_t fingerprint_crc32c;
    union {
        struct {
#define FR_LEDGER_MEMBER(name, metric, help) uint64_t name;
            FR_LEDGER(FR_LEDGER_MEMBER)
        };
        uint64_t ledger[FR_LEDGER_TERMS];
    };
    /* disjoint, in the order in which they were requested; those before the position were passed
     * over */
    uint32_t n_skips;
    struct fr_skip skips[FR_SKIPS_MAX];
};

struct fr_positions {
    char cluster_id[FR_CLUSTER_ID_MAX];
    uint32_t count;
    uint32_t capacity;
    /* by stream_index; sorted by (topic, partition) when first discovered, later ones appended */
    struct fr_partition_position *partitions;
};

void fr_positions_release(struct fr_positions *positions);
void fr_positions_copy(const struct fr_positions *from, struct fr_positions *to);
/* Finds the index of a topic-partition; false: it has no position. */
bool fr_positions_find(const struct fr_positions *positions, const char *topic, int32_t partition, uint32_t *index);
/* Returns the index of a topic-partition, which is added with offset -1 if it is new. */
uint32_t fr_positions_index(struct fr_positions *positions, const char *topic, int32_t partition);
/* Applies the positions of a batch that has taken effect, except for its quarantined samples
 * (fr_batch_quarantine). */
void fr_positions_apply(struct fr_positions *positions, const struct fr_batch *batch);
/* Whether the record at `offset` is passed over. */
static inline bool fr_positions_skips(const struct fr_partition_position *position, int64_t offset)
{
    for (uint32_t i = 0; i < position->n_skips; i++)
        if (offset >= position->skips[i].first && offset <= position->skips[i].last)
            return true;
    return false;
}
/* Writes the ledger as members of a JSON object, each after a comma. */
void fr_positions_put_ledger(const struct fr_partition_position *position, struct fr_buffer *out);
/* Checks the P2 equations of every partition; false: err names the first that fails. */
bool fr_positions_balanced(const struct fr_positions *positions, struct fr_err *err);
void fr_positions_encode(const struct fr_positions *positions, struct fr_buffer *out);
enum fr_status fr_positions_parse(const uint8_t *bytes, size_t size, struct fr_positions *out) FR_MUST_CHECK;

#endif
