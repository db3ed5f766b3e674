/* The replica's inside: the served model, the chain position, epochs that wait. */
#ifndef FR_REPLICA_INTERNAL_H
#define FR_REPLICA_INTERNAL_H

#include "decode/decoder.h"
#include "freshet/replica.h"
#include "graph/graph.h"
#include "memory.h"
#include "row_map.h"
#include "waiting.h"

enum { FR_DIGESTS_KEPT = 256, FR_APPLY_SCAN_MAX = 64 };

struct fr_served_table {
    struct fr_row_layout layout;
    struct fr_row_map rows; /* the handle's memory: they outlive the model */
    uint64_t n_new;         /* keys of the epoch being checked that have no row, at most */
};

/* The network, and what scoring needs, in memory of its own: where that is refused in the middle of
 * a score all of this is made anew. */
struct fr_scorer {
    struct fr_replica_memory memory;
    struct fr_graph *graph;
    struct fr_parameter *parameters; /* the graph's */
    size_t n_parameters;
    struct fr_decoder *decoders[2]; /* by enum fr_format; made when first used */
    struct fr_batch *batch;
    struct fr_rows rows;
    struct fr_table_rows *table_rows;
    size_t *table_rows_capacity;
};

/* Configuration, network and rows of one fingerprint. */
struct fr_served_model {
    uint64_t fp;
    char kernel[128]; /* trained with */
    struct fr_replica_memory memory;
    struct fr_conf *conf;
    struct fr_scorer scorer;
    bool scorer_broken; /* its parameters are whole, and nothing else */
    size_t n_received;
    bool *received;   /* [n_parameters] */
    uint64_t *filled; /* [n_parameters] elements in the epoch being checked */
    uint32_t n_tables;
    struct fr_served_table *tables; /* in the conf's order */
};

/* FR_E_NO_MEMORY, and what fr_conf_model_parse says. */
enum fr_status fr_served_model_new(const struct fr_delta_record *record, struct fr_replica_budget *budget,
                                   struct fr_served_model **out, struct fr_err *err) FR_MUST_CHECK;
void fr_served_model_free(struct fr_served_model *model);
/* Exchanges the rows of every table that has the same name and parts in both. */
void fr_served_model_swap_rows(struct fr_served_model *model, struct fr_served_model *old);
/* -1: none of that name. */
int fr_served_model_table(const struct fr_served_model *model, struct fr_delta_text name);
/* Makes the network and what scoring needs, with the parameters' first values. False: refused. */
bool fr_served_scorer_make(struct fr_scorer *scorer, const struct fr_conf *conf, struct fr_replica_budget *budget);
/* Says whether the record fits the model, and counts into `filled` (chunks ascend); those counts
 * are zero before an epoch's first record. */
enum fr_status fr_served_model_check(struct fr_served_model *model, const struct fr_delta_record *record,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Takes a checked record; room for its new rows was reserved. */
void fr_served_model_apply(struct fr_served_model *model, const struct fr_delta_record *record);

struct freshet_replica {
    bool follow_all;
    bool follow[FR_DELTA_PARTITIONS_MAX];
    uint32_t follow_highest; /* of the partitions asked for */
    char model_name[128];    /* "" until known */
    uint64_t staging_max;
    struct fr_replica_budget budget;
    struct fr_replica_memory memory; /* of the handle: what waits, rows */
    uint32_t np, n_followed;         /* 0 until the first record */

    /* Where the chain stands; `served` differs only between a rewind to 0 and the first epoch after
     * it. */
    uint64_t timeline, epoch, digest;
    struct {
        uint64_t epoch, digest;
    } digests[FR_DIGESTS_KEPT];          /* applied, by epoch modulo */
    uint64_t *last_committed;            /* [np] newest epoch whose commit arrived */
    bool begun[FR_DELTA_PARTITIONS_MAX]; /* piece 0 of an epoch with `from` 1 arrived */
    bool reset_pending;
    struct fr_waiting waiting;

    struct fr_served_model *model; /* NULL: nothing applied yet */
    struct freshet_replica_info info;
    int stopped; /* a status that stays */
    char stop_problem[256];
    char score_problem[512];
    uint64_t score_ignored; /* values of the record scored last */
};

/* Checks and applies one complete epoch; FRESHET_OK, FRESHET_E_NO_MEMORY, or why the replica
 * must stop (nothing was changed). */
int fr_replica_apply(struct freshet_replica *replica, const struct fr_waiting_epoch *entry, struct fr_err *err);

#endif
