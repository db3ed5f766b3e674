/* What is public of the images of epochs: rows and tombstones in the order of delta records. */
#ifndef FR_EXPORTER_DELTA_ROWS_H
#define FR_EXPORTER_DELTA_ROWS_H

#include "exporter/delta.h"

/* room->rows[0 .. room->n_rows) are those of the n epochs by (table, key), each key once with what
 * the newest epoch says of it; their values lie in the epochs. FR_E_CORRUPT: an image does not fit
 * the settings. */
enum fr_status fr_export_rows(const struct fr_codec_settings *settings, const struct fr_epoch *epochs, size_t n,
                              struct fr_export_room *room, struct fr_err *err) FR_MUST_CHECK;

#endif
