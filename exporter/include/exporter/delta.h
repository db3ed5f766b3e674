/* Turns the journal's bytes into delta records. This is the one place that knows both; publisher,
 * dump, verify and golden tests use it. */
#ifndef FR_EXPORTER_DELTA_H
#define FR_EXPORTER_DELTA_H

#include "codec/codec.h"
#include "durable/epoch.h"

/* Memory that one call leaves to the next: 24 bytes for each row of the largest epoch, 28 where it
 * is of one value. Zeroed: none yet. */
struct fr_export_room {
    struct fr_delta_row *rows;
    float *singles;  /* values of rows that have one */
    size_t n_rows;   /* behind them is room to sort in */
    size_t capacity; /* of both */
    uint32_t *places;
    size_t capacity_places;
    unsigned bits; /* of a key; a table has so many places */
};
void fr_export_room_release(struct fr_export_room *room);
/* Consecutive epochs of one timeline and one head (bytes of fr_durable_append / read_epoch;
 * settings from the head of their file): one as it is, several as one, the newest, with `from` the
 * first: the newest public image of each key, tombstones too, the newest published value of each
 * parameter, the model when one of them has it. What a replica has after it is what it would have
 * after all of them. */
struct fr_export_span {
    const struct fr_epoch *epochs;
    size_t n;                             /* at least 1 */
    const struct fr_delta_rewind *rewind; /* what it begins with beside; NULL: nothing */
    struct fr_export_room *room;          /* NULL: memory of its own */
};
/* Writes their delta records. Of the floats of a row image only the first value_floats are public.
 * Epoch 1 of a timeline that is not the first begins with a rewind record. FR_E_CORRUPT,
 * FR_E_LIMIT (a row, the model or the commit does not fit piece_max), or the sink's status. */
enum fr_status fr_export_span(const struct fr_codec_settings *settings, const struct fr_export_span *span,
                              fr_delta_sink *sink, void *self, uint64_t *saturated, struct fr_err *err) FR_MUST_CHECK;
/* After FR_E_LIMIT: doubles piece_max; false at 64 MiB. An epoch that does not fit the piece_max of
 * its journal file was never sent by anyone, and the least doubling that it fits is a function of
 * its bytes: a resend is byte-identical here too. A configuration that needs this is refused at
 * load; states that an older version made, or whose topics got partitions, may hold such epochs. */
bool fr_export_widen(struct fr_codec_settings *settings);
/* What a commit says of the announced snapshot; commit borrows its name. */
void fr_export_announce_snapshot(const struct fr_announced_snapshot *snapshot, struct fr_delta_commit *commit);
/* Reads the wall time of the cut, which is the Kafka timestamp of the epoch's records. */
enum fr_status fr_export_wall_ms(const struct fr_epoch *epoch, int64_t *wall_ms, struct fr_err *err) FR_MUST_CHECK;

#endif
