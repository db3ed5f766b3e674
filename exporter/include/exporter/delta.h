/* Turns journal bytes into delta records. Only this module depends on both formats; publisher,
 * dump, verify and golden tests use it. */
#ifndef FR_EXPORTER_DELTA_H
#define FR_EXPORTER_DELTA_H

#include "codec/codec.h"
#include "durable/epoch.h"

/* Memory that one call reuses from the previous one: 24 bytes for each row of the largest epoch, or
 * 28 if rows have one value. A zeroed struct is empty. */
struct fr_export_room {
    struct fr_delta_row *rows;
    float *singles;  /* values of rows that have exactly one */
    size_t n_rows;   /* followed by the same space again, which sorting uses */
    size_t capacity; /* room for so many rows and singles */
    uint32_t *places;
    size_t capacity_places;
    unsigned bits; /* bits of a key that select a place */
};
void fr_export_room_release(struct fr_export_room *room);
/* Consecutive epochs of one timeline and one head: bytes of fr_durable_append or read_epoch, with
 * the settings from the head of their journal file. One epoch is exported as it is. Several epochs
 * are exported as one merged epoch, which has the number of the newest and whose `from` is the
 * first. The merged epoch has the newest public image of each key (tombstones included), the newest
 * published value of each parameter, and the model if one of the epochs has it. A replica that
 * applies it has the same content as one that applied every epoch. */
struct fr_export_span {
    const struct fr_epoch *epochs;
    size_t n;                             /* at least 1 */
    const struct fr_delta_rewind *rewind; /* rewind record to begin with; NULL: none */
    struct fr_export_room *room;          /* reused memory; NULL: the call allocates its own */
    int64_t *wall_ms;                     /* set to the Unix ms of the newest cut; may be NULL */
};
/* Writes the delta records of the span. Of a row image's floats only the first value_floats are
 * public. Epoch 1 of a timeline other than the first begins with a rewind record. Errors:
 * FR_E_CORRUPT, FR_E_LIMIT (a row, the model or the commit does not fit piece_max), or the sink's
 * status. */
enum fr_status fr_export_span(const struct fr_codec_settings *settings, const struct fr_export_span *span,
                              fr_delta_sink *sink, void *self, uint64_t *saturated, struct fr_err *err) FR_MUST_CHECK;
/* Call after FR_E_LIMIT: doubles piece_max, or returns false at 64 MiB. An epoch that does not fit
 * the piece_max of its journal file has never been sent, and the smallest doubling that it fits is
 * a function of its bytes, so a resend is byte-identical here too. A configuration that needs this
 * is refused when it is loaded. States made by an older version, or whose topics gained partitions,
 * may hold such epochs. */
bool fr_export_widen(struct fr_codec_settings *settings);
/* Lists of a commit that was filled from an announcement. The caller frees `offsets`. */
struct fr_export_announced {
    struct fr_delta_auc auc[FR_ANNOUNCE_TASKS_MAX];
    struct fr_delta_offset *offsets;
};
/* Fills *commit from an announcement. The commit borrows from the announcement and from *lists. */
void fr_export_fill_commit(const struct fr_announcement *announcement, struct fr_export_announced *lists,
                           struct fr_delta_commit *commit);
/* A dense section as a parameter to publish, which borrows from the view. */
struct fr_delta_dense fr_export_dense(const struct fr_dense_view *view);

#endif
