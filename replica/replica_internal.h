/* The replica's inside: the served model, the chain position, epochs that wait. */
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

/* A reader's network, and what scoring needs, in memory of its own: where that is refused in the
 * middle of a score all of this is made anew. */
struct fr_scorer {
    struct fr_replica_memory memory;
    struct fr_graph *graph;          /* NULL: not made, or broken */
    struct fr_parameter *parameters; /* the graph's */
    size_t n_parameters;
    uint64_t *serials;              /* [n_parameters] of the values they have; 0: none */
    struct fr_decoder *decoders[2]; /* by enum fr_format; made when first used */
    struct fr_batch *batch;
    struct fr_rows_of_batch {
        struct fr_rows rows;
        struct fr_table_rows *tables;
        size_t *capacity;
    } found;
};

/* The description of one fingerprint, which readers borrow: only `filled` ever changes. */
struct fr_served_model {
    struct fr_retired retired;
    struct fr_views *views; /* once it is published */
    uint64_t fp;
    char kernel[128]; /* trained with */
    const char *scoring_kernel;
    struct fr_replica_memory memory;
    struct fr_conf *conf;
    size_t n_parameters;
    struct fr_parameter *parameters; /* names and shapes; no values */
    /* [n_parameters] elements in the epoch being checked; the feeder's */
    uint64_t *filled;
    struct fr_row_layout *layouts; /* [n_tables] */
};

/* FR_E_NO_MEMORY, and what fr_conf_model_parse says. */
enum fr_status fr_served_model_new(const struct fr_delta_record *record, struct fr_replica_memory *memory,
                                   struct fr_served_model **out, struct fr_err *err) FR_MUST_CHECK;
void fr_served_model_free(struct fr_served_model *model);
/* Whether a table of one model can go on with the rows of a table of another. */
bool fr_served_same_parts(const struct fr_conf_table *a, const struct fr_conf_table *b);
/* -1: none of that name. */
int fr_served_model_table(const struct fr_served_model *model, struct fr_delta_text name);
int fr_served_model_parameter(const struct fr_served_model *model, struct fr_delta_text name);
int fr_served_model_part(const struct fr_conf_table *table, struct fr_delta_text name);
/* Says whether the record fits the model, and counts into `filled` (chunks ascend); those counts
 * are zero before an epoch's first record. */
enum fr_status fr_served_model_check(struct fr_served_model *model, const struct fr_delta_record *record,
                                     struct fr_err *err) FR_MUST_CHECK;
/* A parameter is in an epoch completely or not at all; with `all` all of them are. */
enum fr_status fr_served_model_check_filled(const struct fr_served_model *model, bool all,
                                            struct fr_err *err) FR_MUST_CHECK;

struct freshet_replica {
    bool follow_all;
    bool follow[FR_DELTA_PARTITIONS_MAX];
    uint32_t follow_highest; /* of the partitions asked for */
    char model_name[128];    /* "" until known */
    uint64_t staging_max;
    char *snapshots;       /* the folder; NULL: none */
    char tried[PATH_MAX];  /* the snapshot that was loaded last by itself, or could not be */
    int64_t *next_offsets; /* [np] as the snapshot says; NULL: none was loaded */
    struct fr_replica_budget budget;
    struct fr_replica_memory memory; /* of the handle: what waits, rows */
    uint32_t np, n_followed;         /* 0 until the first record */

    /* Where the chain stands; `served` differs only between a rewind to 0 and the first epoch after
     * it. */
    uint64_t timeline, epoch, digest;
    uint64_t newest_timeline; /* of the records so far */
    struct {
        uint64_t epoch, digest;
    } digests[FR_DIGESTS_KEPT]; /* applied, by epoch modulo */
    uint64_t *last_committed;   /* [np] newest epoch whose commit arrived */
    /* While nothing is applied, and after a gap: piece 0 of an epoch with `from` 1 arrived,
     * applied before or not. */
    bool begun[FR_DELTA_PARTITIONS_MAX];
    bool reset_pending;
    struct fr_waiting waiting;

    struct fr_views views;         /* what is served */
    struct freshet_reader *own;    /* of the calls that read by the handle */
    _Atomic uint64_t newest_epoch; /* of the records so far */
    struct freshet_replica_info info;
    int stopped; /* a status that stays */
    /* The epoch after which a gap was taken back (load_snapshot.c); 0: none. */
    uint64_t taken_back;
    char stop_problem[256];
};

/* Checks one complete epoch and publishes it with this info; FRESHET_OK, FRESHET_E_NO_MEMORY, or
 * why the replica must stop (nothing was changed). */
int fr_replica_apply(struct freshet_replica *replica, const struct fr_waiting_epoch *entry,
                     const struct freshet_replica_info *info, struct fr_err *err);
/* Info as of now of what the view says. */
void fr_replica_fill_info(const struct freshet_replica *replica, struct freshet_replica_info *info);

#endif
