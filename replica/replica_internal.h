/* The structs of a replica: the served model, the position in the chain, epochs that wait. */
#ifndef FR_REPLICA_INTERNAL_H
#define FR_REPLICA_INTERNAL_H

#include <limits.h>

#include "decode/decoder.h"
#include "freshet/reader.h"
#include "graph/graph.h"
#include "memory.h"
#include "view.h"
#include "waiting.h"

enum { FR_DIGESTS_KEPT = 256, FR_APPLY_SCAN_MAX = 64 };

/* A reader's network, and what scoring needs, in memory of its own. If memory is refused in the
 * middle of a score, all of this is freed and made again by the next score. */
struct fr_scorer {
    struct fr_replica_memory memory;
    struct fr_graph *graph;          /* NULL: not made yet, or freed after a refusal */
    struct fr_parameter *parameters; /* belong to the graph */
    size_t n_parameters;
    /* [n_parameters] serials of the values copied into the graph; 0: none */
    uint64_t *serials;
    struct fr_decoder *decoders[2]; /* by enum fr_format; made at first use */
    struct fr_batch *batch;
    struct fr_rows_of_batch {
        struct fr_rows rows;
        struct fr_table_rows *tables;
        size_t *capacity;
    } found;
};

/* The description of one fingerprint, which readers borrow. Only `filled` ever changes. */
struct fr_served_model {
    struct fr_retired retired;
    struct fr_views *views; /* set once the model is published */
    uint64_t fp;
    char kernel[128]; /* the kernel of the training */
    const char *scoring_kernel;
    struct fr_replica_memory memory;
    struct fr_conf *conf;
    size_t n_parameters;
    struct fr_parameter *parameters; /* names and shapes, without values */
    /* [n_parameters] elements counted in the epoch that is being checked; the feeder's */
    uint64_t *filled;
    struct fr_row_layout *layouts; /* [n_tables] */
};

/* Errors: FR_E_NO_MEMORY, and those of fr_conf_model_parse. */
enum fr_status fr_served_model_new(const struct fr_delta_record *record, struct fr_replica_memory *memory,
                                   struct fr_served_model **out, struct fr_err *err) FR_MUST_CHECK;
void fr_served_model_free(struct fr_served_model *model);
/* Returns whether a table of one model can continue with the rows of a table of another. */
bool fr_served_same_parts(const struct fr_conf_table *a, const struct fr_conf_table *b);
/* -1: there is no table of that name. */
int fr_served_model_table(const struct fr_served_model *model, struct fr_delta_text name);
int fr_served_model_parameter(const struct fr_served_model *model, struct fr_delta_text name);
int fr_served_model_part(const struct fr_conf_table *table, struct fr_delta_text name);
/* Returns whether the record fits the model, and counts its elements into `filled` (chunks ascend).
 * The counts are 0 before the first record of an epoch. */
enum fr_status fr_served_model_check(struct fr_served_model *model, const struct fr_delta_record *record,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Checks that each parameter is in the epoch completely or not at all; with `all`, that every
 * parameter is complete. */
enum fr_status fr_served_model_check_filled(const struct fr_served_model *model, bool all,
                                            struct fr_err *err) FR_MUST_CHECK;

struct freshet_replica {
    bool follow_all;
    bool follow[FR_DELTA_PARTITIONS_MAX];
    uint32_t follow_highest; /* the highest partition asked for */
    char model_name[128];    /* "" until it is known */
    uint64_t staging_max;
    char *snapshots;       /* the snapshot folder; NULL: none */
    char tried[PATH_MAX];  /* the last snapshot that was loaded automatically, or failed to */
    int64_t *next_offsets; /* [np] from the loaded snapshot; NULL: none was loaded */
    struct fr_replica_budget budget;
    struct fr_replica_memory memory; /* memory of the handle: waiting pieces and rows */
    uint32_t np, n_followed;         /* 0 until the first record */

    /* The position in the chain. The served epoch differs from it only between a rewind to 0 and
     * the first epoch after the rewind. */
    uint64_t timeline, epoch, digest;
    uint64_t newest_timeline; /* the newest timeline in any record so far */
    struct {
        uint64_t epoch, digest;
    } digests[FR_DIGESTS_KEPT]; /* of applied epochs, indexed by epoch modulo FR_DIGESTS_KEPT */
    uint64_t *last_committed;   /* [np] the newest epoch whose commit arrived */
    /* Piece 0 of an epoch with `from` 1 has arrived in this partition, whether that epoch was
     * applied before or not. Used while nothing is applied, and after a gap. */
    bool begun[FR_DELTA_PARTITIONS_MAX];
    bool reset_pending;
    struct fr_waiting waiting;

    struct fr_views views;         /* what is served */
    struct freshet_reader *own;    /* the reader for calls that read through the handle */
    _Atomic uint64_t newest_epoch; /* the newest epoch in any record so far */
    struct freshet_replica_info info;
    int stopped; /* the status of a stop; 0: not stopped */
    /* The epoch after which a gap was taken back (load_snapshot.c); 0: none. */
    uint64_t taken_back;
    char stop_problem[256];
};

/* Checks one complete epoch and publishes it with this info. Returns FRESHET_OK,
 * FRESHET_E_NO_MEMORY, or the reason why the replica must stop (then nothing was changed). */
int fr_replica_apply(struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                     const struct freshet_replica_info *info, struct fr_err *err);
/* Fills in the view's info as of now. */
void fr_replica_fill_info(const struct freshet_replica *replica, struct freshet_replica_info *info);

#endif
