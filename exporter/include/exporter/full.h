/* The whole state as one merged epoch: delta records with `from` 1, made piece by piece from the
 * folded state, in bounded memory. A replica that applies them has exactly the content that
 * following every epoch would have given it.
 *
 * The records are a pure function of the folded epoch and the settings. After fr_export_full_rewind
 * the same records follow, byte for byte, whatever was folded in the meantime. Rows are divided
 * into pieces in the state's own order; keys ascend only within one record.
 *
 * Memory: FR_FULL_CHUNK bytes of rows, their records, and one dense parameter. Thread: one owner.
 * Close the export before the durable object. */
#ifndef FR_EXPORTER_FULL_H
#define FR_EXPORTER_FULL_H

#include "codec/codec.h"
#include "durable/durable.h"

enum { FR_FULL_CHUNK = 8 << 20 };

struct fr_export_full;

/* Opens an export as of the folded epoch, with the settings from the head of the journal file that
 * belongs to that epoch. quantize NULL: the quantization of these settings. A piece_max too small
 * for the widest row, the model or the commit is doubled (fr_export_widen). FR_E_NOT_FOUND: nothing
 * has been folded yet. FR_AGAIN: a fold happened during the call; call again. */
enum fr_status fr_export_full_open(struct fr_durable *durable, const enum fr_codec_quantize *quantize,
                                   struct fr_export_full **out, struct fr_err *err) FR_MUST_CHECK;
void fr_export_full_close(struct fr_export_full *full);
/* The epoch as of which the state is exported. */
struct fr_durable_folded_epoch fr_export_full_epoch(const struct fr_export_full *full);
/* The settings with which the records are written, and the content of the commits. Both are valid
 * until the export is closed. */
const struct fr_codec_settings *fr_export_full_settings(const struct fr_export_full *full);
const struct fr_delta_commit *fr_export_full_commit(const struct fr_export_full *full);
/* Call before the first record. In a timeline other than the first, every partition then begins
 * with a rewind to nothing, with which replicas of an older timeline switch to the new one. */
void fr_export_full_begin_timeline(struct fr_export_full *full);
void fr_export_full_rewind(struct fr_export_full *full);
/* Passes the next records to the sink. FR_EOF: those were the last ones, the commits. Adds the
 * number of values that f16 saturated to *saturated. FR_E_CORRUPT: the cold store holds data that
 * does not fit the settings. */
enum fr_status fr_export_full_next(struct fr_export_full *full, fr_delta_sink *sink, void *self, uint64_t *saturated,
                                   struct fr_err *err) FR_MUST_CHECK;

#endif
