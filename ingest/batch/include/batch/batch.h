/* The batch: samples of all forms as one columnar, grouped structure.
 *
 * A group is a set of samples that share `shared` slot values; a plain sample is a group of one.
 * A column has one entry per group (shared) or per sample. It is shared when some group has more
 * than one sample and no such group has a value for the slot in one of its samples (a slot that
 * is absent everywhere counts as shared). Whether a column is shared is a function of the
 * batch's records alone, over several ranks of the records of all (struct fr_batch_shape). A group
 * is never split between batches.
 *
 * With scale.domains over 1 a batch consists of as many lanes. A lane has the samples of some
 * partitions of the stream, and sums over samples are formed lane by lane. The groups of a lane are
 * next to each other, lanes ascend, and a lane may be empty. Ingest puts the samples in this order
 * when it closes a batch (fr_batch_arrange). In a batch that was filled without ingest all samples
 * are in the last lane, because fr_batch_clear sets the beginnings of all lanes to 0.
 *
 * Owns: the batch owns its columns, whose memory grows and is reused (fr_batch_clear). Thread: one
 * owner at a time; rings hand it over. */
#ifndef FR_BATCH_BATCH_H
#define FR_BATCH_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "conf/conf.h"

enum { FR_USE_TRAIN = 1, FR_USE_METRICS = 2 };

/* The effect of a sample, in the terms of P2: trained (with or without metrics), metrics-only,
 * masked, or quarantined. A quarantined sample has no effect. Only the trainer quarantines
 * samples, the decoder never does. */
enum fr_role { FR_ROLE_TRAIN, FR_ROLE_METRICS_ONLY, FR_ROLE_MASKED, FR_ROLE_QUARANTINED, FR_ROLES };

/* One slot's values, an entry for each group (shared) or for each sample. Sparse and sequence: the
 * ids of entry i are keys[begin[i] .. begin[i+1]). Dense: dim floats per entry, after the steps of
 * the slot's transform (standardize and bucketize belong to the network). A missing number is the
 * transformed default, or NaN if the network must know that it is missing
 * (fr_conf_slot_keeps_missing); no record can contain NaN. */
struct fr_column {
    uint32_t *begin; /* [n_entries + 1]; NULL for dense */
    uint64_t *keys;  /* [begin[n_entries]] */
    float *weights;  /* [begin[n_entries]]; NULL: all weights are 1 */
    float *dense;    /* [n_entries * dim]; NULL for other slots */
    size_t capacity_entries, capacity_keys, capacity_dense;
    bool shared;
    uint32_t dim; /* dense: floats per entry; 0: sparse or sequence */
    /* what `weights` points to once an entry of the batch has weights; kept by fr_batch_clear */
    float *weights_storage;
    size_t capacity_weights;
};

/* The position of one topic-partition after this batch. `stream_index` is its number in the list
 * of positions. `offset` is the first record that is not fully in this or earlier batches, and
 * `item` is the number of items of that record that are. Counters are of this batch only; a
 * record is counted in the batch that completes it. */
struct fr_batch_position {
    uint32_t stream_index;
    int64_t offset;
    uint32_t item;
    struct {
        int64_t offset; /* offset of the last delivered record; -1: none yet */
        int64_t timestamp_ms;
        uint32_t crc32c; /* checksum of the value of that record */
    } fingerprint;
    uint64_t delivered;     /* records */
    uint64_t decoded;       /* records */
    uint64_t dead_lettered; /* records */
    uint64_t samples;       /* decoded samples of this batch (the sum of roles and `skipped`) */
    uint64_t roles[FR_ROLES];
    /* samples of records that a skipped range passes over; none of them is in the batch */
    uint64_t skipped;
    uint64_t lost; /* records skipped under on_loss */
};

/* A record from which samples [first_sample, first_sample of the next record) of the batch come.
 * These samples are the record's items from first_item on. Key, value and headers as they were
 * read are in the batch's record_bytes at `at`, or in `shared` (records.c). */
struct fr_batch_record {
    uint32_t stream_index;
    uint32_t lane; /* of the stream */
    int64_t offset;
    int64_t kafka_ms; /* the Kafka timestamp; 0: a line of a file, which has none */
    uint32_t first_sample, first_item;
    size_t at;
    struct fr_record_image *shared; /* a reference; NULL: the bytes are the batch's own */
};

struct fr_batch {
    uint32_t n_samples, n_groups;
    uint32_t capacity_samples;
    uint32_t *group_begin; /* [n_groups + 1] sample numbers */
    uint32_t *group_of;    /* [n_samples] */
    uint32_t n_lanes;      /* scale.domains, at least 1 */
    /* [n_lanes] the first group of each lane; read it by fr_batch_lane_begin. Lane 0 begins at 0,
     * so a batch with one lane sets nothing here. */
    uint32_t *lane_begin;
    int64_t *t_ms; /* [n_samples] event time */
    /* [n_samples] hash of the sample's place in the log; it depends neither on the batch nor on
     * the form of the record */
    uint64_t *origin;
    uint8_t *use;  /* [n_samples] FR_USE_* */
    uint8_t *role; /* [n_samples] enum fr_role */
    /* [n_labels][capacity_samples], label-major: labels[l * capacity_samples + i]; NaN: masked */
    float *labels;
    /* [n_labels][capacity_samples] weights of labels (`w`); a derived label has the weight of
     * its source */
    float *weights;
    float *keep; /* [n_samples] keep rate (`s`) in (0, 1], default 1 */
    /* [n_tasks][capacity_samples] scores that were served (`p`), NaN: absent; NULL: no sample
     * has one */
    float *served;
    /* what `served` points to once a sample of the batch has one; kept by fr_batch_clear */
    float *served_storage;
    uint32_t n_labels, n_tasks;
    uint32_t n_slots;
    struct fr_column *columns; /* [n_slots] in config order */
    /* ids of all columns, if shared entries were copied to each sample */
    uint64_t ids;
    uint32_t n_positions;
    uint32_t capacity_positions;
    struct fr_batch_position *positions;
    /* The records, for dead letters, until the batch is applied. */
    uint32_t n_records, capacity_records;
    struct fr_batch_record *records; /* ascending in first_sample */
    struct fr_buffer record_bytes;
    size_t image_bytes; /* bytes of all records, including those in shared images */
    /* lists of fr_batch_select and fr_batch_arrange, which write this batch; kept */
    uint32_t *gathered; /* [2 * capacity_gathered] */
    uint32_t capacity_gathered;
    /* number of the newest dead letter that was sent for a record before the positions */
    uint64_t dead_sequence;
    int64_t kafka_t_max_ms; /* newest Kafka timestamp of the batch, for freshness; 0 none */
    uint64_t born_mono_ns;  /* when the first record of the batch was polled */
    bool end_of_stream;     /* lockstep or --until end: this is the last batch */
    /* Counted while decoding; added to the owner's counters with the batch. */
    uint64_t unknown_slots, unknown_keys, excess_ids;
};

/* Makes a batch for ingest.batch_size samples (64 if the conf has none); appending grows it. The
 * conf is not borrowed. */
struct fr_batch *fr_batch_new(const struct fr_conf *conf);
void fr_batch_free(struct fr_batch *batch);
/* Empties the batch, including positions (n_positions = 0), counters, flags and times. All
 * memory is kept. */
void fr_batch_clear(struct fr_batch *batch);
/* Makes room for `samples` in total. Labels move when capacity_samples grows, so pointers into the
 * batch change. */
void fr_batch_reserve(struct fr_batch *batch, uint32_t samples);
/* Makes room for `keys` ids in total in one sparse or sequence column. */
void fr_column_reserve_keys(struct fr_column *column, size_t keys);
/* Copies the entries of a column, one per group of the batch, to the samples of the groups. The
 * caller changes `shared`. */
void fr_column_expand(const struct fr_batch *batch, struct fr_column *column);

/* What the ranks of a job agree on about their parts of a batch, so that each column has the form
 * of the batch of all ranks. It can be sent as it is. Shapes are joined by the OR of all words. */
struct fr_batch_shape {
    uint64_t several; /* 1: some group has more than one sample */
    /* [slot / 64] bit slot % 64: `several`, and the column is not shared */
    uint64_t own[(FR_SLOTS_MAX + 63) / 64];
};
_Static_assert(sizeof(struct fr_batch_shape) == 8 * (1 + (FR_SLOTS_MAX + 63) / 64), "only words");

void fr_batch_get_shape(const struct fr_batch *batch, struct fr_batch_shape *out);
/* Gives each column the form that it has in the batch of all ranks. `joined` is the shape of all
 * ranks, this one included; with one rank nothing changes. */
void fr_batch_take_shape(struct fr_batch *batch, const struct fr_batch_shape *joined);

/* Makes `to` the batch of the samples of `from` that are not marked in left_out [n_samples], as
 * if the others had never been decoded: groups without a sample disappear, and a column stays
 * shared only if a group of several samples remains. A column with an entry per sample keeps
 * that form, so in a batch with groups numbers may differ by the order of sums. A sample stays in
 * its lane. Positions, records and counts of ignored values are not copied. */
void fr_batch_select(const struct fr_batch *from, const uint8_t *left_out, struct fr_batch *to);
/* Puts the samples, with their groups and records, in the order of the lanes of their records, and
 * writes lane_begin. In a lane the order stays. The batch is then the one that decoding its records
 * in this order would give. Pointers into the batch change. Gives `spare`, whose content is lost,
 * the memory of the samples, to be used for the next batch; NULL: the samples are known to be in
 * order. */
void fr_batch_arrange(struct fr_batch *batch, struct fr_batch *spare);

/* The first group of a lane; n_groups for the lane after the last. */
static inline uint32_t fr_batch_lane_begin(const struct fr_batch *batch, uint32_t lane)
{
    return lane == 0 ? 0 : lane >= batch->n_lanes ? batch->n_groups : batch->lane_begin[lane];
}

/* The first entry of a lane in columns that have one for each group, or for each sample; their
 * number for the lane after the last. */
static inline uint32_t fr_batch_lane_entry(const struct fr_batch *batch, bool by_group, uint32_t lane)
{
    if (lane >= batch->n_lanes && lane > 0)
        return by_group ? batch->n_groups : batch->n_samples;
    uint32_t group = fr_batch_lane_begin(batch, lane);
    return by_group || group == 0 ? group : batch->group_begin[group];
}

static inline uint32_t fr_batch_entries(const struct fr_batch *batch, uint32_t slot)
{
    return batch->columns[slot].shared ? batch->n_groups : batch->n_samples;
}

#endif
