/* The rows that a batch's keys resolve to. The store's plan fills them and the graph reads them;
 * store and graph do not know each other. */
#ifndef FR_BATCH_ROWS_H
#define FR_BATCH_ROWS_H

#include <stdint.h>

#include "conf/conf.h"

/* Where the parts of a table are in a row, in floats from its start, and their initial values. */
struct fr_row_layout {
    uint32_t n_parts;
    struct fr_layout_part {
        uint32_t value_offset, dim;
        uint32_t state_offset, state_floats;
        float state_initial;
        struct fr_conf_init init;
    } parts[FR_PARTS_MAX];
    uint32_t value_floats; /* the first floats of a row, which are published */
    uint32_t row_floats;
};

/* The occurrences of one table in one batch. An occurrence is one id in one slot of one entry
 * (sample, or group where the column is shared); occurrences are numbered slot by slot (config
 * order), entry by entry. A row's gradients are summed in this order, in each lane of the batch
 * apart. For the gate and
 * counters an occurrence in a shared entry counts once per trained sample of its group, so that all
 * sample forms give the same state. */
enum { FR_ENTRY_BITS = 23 };
_Static_assert((int)FR_SLOTS_MAX <= 1 << (32 - FR_ENTRY_BITS), "above an entry there is room for a slot");

struct fr_table_rows {
    uint32_t n_unique;
    uint64_t *keys; /* [n_unique] distinct keys, order fixed by the batch alone */
    /* [n_unique] first float of the row (values, then optimizer state); NULL: there is no row, the
     * forward pass reads zeros, and there is no gradient */
    float **rows;
    /* [n_unique] what the forward pass reads: `rows` without those that this batch itself made.
     * A replica would not have had these rows, so the forward pass reads zeros and masked steps
     * in their place. They still get a gradient (row_update uses `rows`). NULL: all of `rows`. */
    float **served;
    uint32_t n_occurrences;
    uint32_t *unique_of; /* [n_occurrences] */
    uint32_t *occ_begin; /* [n_unique + 1] into occ */
    /* [n_occurrences] occurrence numbers by unique key: lane by lane, ascending within a lane */
    uint32_t *occ;
    /* [n_occurrences] parallel to occ: the entry in the low FR_ENTRY_BITS, above them the number of
     * the table's slot in config order */
    uint32_t *occ_from;
    /* [n_occurrences] parallel to occ: the lane of the occurrence; NULL: the batch has one lane */
    uint8_t *occ_lane;
};

struct fr_rows {
    uint32_t n_tables;
    struct fr_table_rows *tables;
    uint32_t n_slots;
    /* [n_slots] first occurrence number of the slot in its table (dense: unused) */
    uint32_t *slot_base;
};

/* Unique keys [begin, end) of a table in struct fr_rows, such as those that one home has. */
struct fr_unique_range {
    uint32_t begin, end;
};

/* The keys of one rank's domains in a batch of several ranks (base/ranks.h), merged from what the
 * ranks sent, and their rows. Each rank refers to its keys by their numbers in its own message. The
 * store fills it, and the graph steps the rows. */
struct fr_home_rows {
    uint32_t n_ranks, n_tables;
    struct fr_home_table {
        uint32_t n_keys;
        float **rows;      /* [n_keys] the first float of the row; NULL: there is no row */
        uint32_t *n_sent;  /* [n_ranks] keys that each rank sent of this table */
        uint32_t **merged; /* [n_ranks][n_sent] the key of each, in the order of the message */
    } * tables;
};

#endif
