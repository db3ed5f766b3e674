/* What is served: a view is one whole epoch and never changes; readers enter the newest view.
 *
 * A reader announces the number of the newest view in its own place, then takes the newest view.
 * The feeder publishes a view, then reads the announced numbers. Both are sequentially consistent,
 * so either the feeder sees the reader and keeps what that reader can reach, or the reader sees the
 * new view. Neither ever waits or retries.
 *
 * Thread: any reader calls fr_served_enter, _leave and _rows; the rest belongs to the feeder. */
#ifndef FR_REPLICA_VIEW_H
#define FR_REPLICA_VIEW_H

#include "freshet/reader.h"
#include "overlay.h"

struct fr_served_model;

struct fr_served_table {
    struct fr_row_table *rows;
    uint64_t n_rows;
    uint32_t n_overlays;
    struct fr_overlay *overlays[FR_OVERLAYS_MAX]; /* the oldest first */
};

/* The values of one parameter as of one epoch. */
struct fr_served_dense {
    struct fr_retired retired;
    uint64_t serial; /* unique among all values ever made */
    uint64_t n;
    _Alignas(64) float values[];
};

struct fr_served {
    struct fr_retired retired;
    uint64_t number;
    struct freshet_replica_info info;
    struct fr_served_model *model;
    uint32_t n_tables, n_parameters;
    struct fr_served_table *tables;      /* [n_tables], in the configuration's order */
    struct fr_served_dense **parameters; /* [n_parameters]; NULL: not received yet */
};

struct fr_served_reader {
    /* the number of the newest view when the reader entered; 0: outside */
    _Alignas(64) _Atomic uint64_t inside;
    /* The model that the reader keeps beyond its visit, for names and the network's
     * configuration. */
    _Atomic(const struct fr_served_model *) model;
    _Atomic int taken;
    /* samples scored by the readers that had this place; written by the reader's thread */
    _Atomic uint64_t scored;
};

struct fr_views {
    _Atomic(struct fr_served *) newest; /* NULL: no epoch is applied yet */
    _Atomic uint64_t number;            /* number of the newest view, or of the view before */
    struct fr_retirement retirement;
    struct fr_retired *models; /* retired models that a reader may still borrow */
    struct fr_replica_memory *memory;
    uint64_t serial; /* the last serial given to a parameter's values */
    struct fr_served_reader readers[FRESHET_READERS_MAX];
    _Atomic uint32_t n_readers; /* places that were ever in use */
};

void fr_views_init(struct fr_views *views, struct fr_replica_memory *memory);
/* Frees everything. All readers have been freed before. */
void fr_views_release(struct fr_views *views);
struct fr_served *fr_views_newest(const struct fr_views *views);

/* NULL: memory was refused. */
struct fr_served *fr_served_new(struct fr_views *views, uint32_t n_tables, uint32_t n_parameters);
/* Makes the view the newest. What the previous view has and this one lacks is retired. */
void fr_served_publish(struct fr_views *views, struct fr_served *view);
/* Releases what no reader can reach any more, and merges into the rows the overlays that every
 * reader inside has. Call it regularly; what is refused memory is left for a later call. */
void fr_views_settle(struct fr_views *views);
/* NULL: memory was refused. */
struct fr_served_dense *fr_served_dense_new(struct fr_views *views, uint64_t n);

/* NULL: there are FRESHET_READERS_MAX readers already. */
struct fr_served_reader *fr_served_join(struct fr_views *views);
void fr_served_quit(struct fr_served_reader *reader);
/* NULL: no epoch is applied yet, and the reader stays outside. */
const struct fr_served *fr_served_enter(struct fr_views *views, struct fr_served_reader *reader);
void fr_served_leave(struct fr_served_reader *reader);

/* Sets rows[i] to the floats of keys[i], or to NULL. */
void fr_served_rows(const struct fr_served_table *table, const uint64_t *keys, size_t n, float **rows);
float *fr_served_row(const struct fr_served_table *table, uint64_t key);
/* Returns a new table with the same rows and without free places; NULL: memory was refused. The
 * feeder's. */
struct fr_row_table *fr_served_copy(const struct fr_served_table *table, struct fr_replica_memory *memory);
/* Writes all n_rows keys of the table, ascending. */
void fr_served_keys(const struct fr_served_table *table, uint64_t *keys);

#endif
