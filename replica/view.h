/* What is served: a view is one epoch, whole, and never changes; readers enter the newest.
 *
 * A reader announces the number of the newest view in a place of its own, then takes the newest
 * view; the feeder publishes a view, then looks at what is announced (both sequentially
 * consistent). So either the feeder sees the reader, and keeps what that one may come to, or the
 * reader sees the new view. Neither ever waits or tries again.
 *
 * Thread: fr_served_enter, _leave and _rows are any reader's; the rest is the feeder's. */
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
    uint64_t serial; /* never given twice */
    uint64_t n;
    _Alignas(64) float values[];
};

struct fr_served {
    struct fr_retired retired;
    uint64_t number;
    struct freshet_replica_info info;
    struct fr_served_model *model;
    uint32_t n_tables, n_parameters;
    struct fr_served_table *tables;      /* [n_tables], in the conf's order */
    struct fr_served_dense **parameters; /* [n_parameters]; NULL: not received yet */
};

struct fr_served_reader {
    /* number of the newest view when it entered; 0: outside */
    _Alignas(64) _Atomic uint64_t inside;
    /* borrowed beyond the visit: names, a network's configuration */
    _Atomic(const struct fr_served_model *) model;
    _Atomic int taken;
};

struct fr_views {
    _Atomic(struct fr_served *) newest; /* NULL: nothing applied yet */
    _Atomic uint64_t number;            /* of the newest, or of the one before */
    struct fr_retirement retirement;
    struct fr_retired *models; /* retired, perhaps borrowed still */
    struct fr_replica_memory *memory;
    uint64_t serial; /* of parameters, the last one given */
    struct fr_served_reader readers[FRESHET_READERS_MAX];
    _Atomic uint32_t n_readers; /* places that were ever taken */
};

void fr_views_init(struct fr_views *views, struct fr_replica_memory *memory);
/* There are no readers any more. */
void fr_views_release(struct fr_views *views);
struct fr_served *fr_views_newest(const struct fr_views *views);

/* NULL: refused. */
struct fr_served *fr_served_new(struct fr_views *views, uint32_t n_tables, uint32_t n_parameters);
/* The view is the newest from now on. What the one before had and this one has not is retired. */
void fr_served_publish(struct fr_views *views, struct fr_served *view);
/* Releases what no reader can come to any more, and puts overlays into the rows that every reader
 * inside has. To be called now and then; memory that is refused leaves it for another time. */
void fr_views_settle(struct fr_views *views);
/* NULL: refused. */
struct fr_served_dense *fr_served_dense_new(struct fr_views *views, uint64_t n);

/* NULL: FRESHET_READERS_MAX are there. */
struct fr_served_reader *fr_served_join(struct fr_views *views);
void fr_served_quit(struct fr_served_reader *reader);
/* NULL: nothing applied yet, and the reader is outside. */
const struct fr_served *fr_served_enter(struct fr_views *views, struct fr_served_reader *reader);
void fr_served_leave(struct fr_served_reader *reader);

/* rows[i] becomes the floats of keys[i], or NULL. */
void fr_served_rows(const struct fr_served_table *table, const uint64_t *keys, size_t n, float **rows);
float *fr_served_row(const struct fr_served_table *table, uint64_t key);
/* A table of its own with the same rows, without free places; NULL: refused. The feeder's. */
struct fr_row_table *fr_served_copy(const struct fr_served_table *table, struct fr_replica_memory *memory);
/* Writes all keys of the table, n_rows of them, ascending. */
void fr_served_keys(const struct fr_served_table *table, uint64_t *keys);

#endif
