/* All of a state as one merged epoch: delta records with `from` 1, made from the folded state piece
 * by piece, in bounded memory. A replica that takes them has what following every epoch would have
 * given it, and nothing else.
 *
 * The records are a pure function of the folded epoch and the settings; after a rewind the same
 * come again, byte for byte, whatever was folded meanwhile. Which rows share a piece follows the
 * state's own order: keys ascend within a record only.
 *
 * Memory: FR_FULL_CHUNK bytes of rows, their records, and one dense parameter. Thread: one
 * owner. Close it before the durable object. */
#ifndef FR_EXPORTER_FULL_H
#define FR_EXPORTER_FULL_H

#include "codec/codec.h"
#include "durable/durable.h"

enum { FR_FULL_CHUNK = 8 << 20 };

struct fr_export_full;

/* As of the folded epoch, with settings as in the head of a journal file; a piece_max that does
 * not hold the widest row, the model or the commit is doubled (fr_export_widen). FR_E_NOT_FOUND:
 * nothing is folded yet. */
enum fr_status fr_export_full_open(struct fr_durable *durable, const void *head, size_t head_size,
                                   struct fr_export_full **out, struct fr_err *err) FR_MUST_CHECK;
/* The same with the head that goes with the folded epoch; quantize NULL: as that head says.
 * FR_AGAIN: a fold came in between; try again. */
enum fr_status fr_export_full_of_newest(struct fr_durable *durable, const enum fr_codec_quantize *quantize,
                                        struct fr_export_full **out, struct fr_err *err) FR_MUST_CHECK;
void fr_export_full_close(struct fr_export_full *full);
/* The epoch it is as of. */
struct fr_durable_folded_epoch fr_export_full_epoch(const struct fr_export_full *full);
/* What its records are written by, and what its commits say; valid as long as it is. */
const struct fr_codec_settings *fr_export_full_settings(const struct fr_export_full *full);
const struct fr_delta_commit *fr_export_full_commit(const struct fr_export_full *full);
/* Before the first record: of a timeline that is not the first, every partition begins with a
 * rewind to nothing, by which replicas of an older one come over. */
void fr_export_full_begin_timeline(struct fr_export_full *full);
void fr_export_full_rewind(struct fr_export_full *full);
/* Gives the next records to the sink; FR_EOF: those were the last, the commits. Adds what f16
 * saturated. FR_E_CORRUPT: the cold store holds what does not fit the settings. */
enum fr_status fr_export_full_next(struct fr_export_full *full, fr_delta_sink *sink, void *self, uint64_t *saturated,
                                   struct fr_err *err) FR_MUST_CHECK;

#endif
