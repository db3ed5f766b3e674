/* What metrics need of the samples of all ranks, as a message of each rank and as columns of all.
 * Every rank adds the samples of all ranks to its metrics, in the order of ranks, so metrics are
 * those of one rank, and equal on all of them.
 *
 * Owns: the columns, whose memory grows and is reused. Thread: the owner loop. */
#ifndef FR_TRAINER_RANK_SAMPLES_H
#define FR_TRAINER_RANK_SAMPLES_H

#include "base/buffer.h"
#include "batch/batch.h"
#include "metrics/task.h"

struct fr_rank_samples;

struct fr_rank_samples *fr_rank_samples_new(const struct fr_conf *conf);
void fr_rank_samples_free(struct fr_rank_samples *samples);
/* Appends the message of a rank: its batch, and the scores of each task [n_tasks][n_samples]. */
void fr_rank_samples_put(const struct fr_conf *conf, const struct fr_batch *batch, const float *const *scores,
                         struct fr_buffer *out);
/* Whether a rank sent event times: i64 each, above 0, so that no difference of two overflows. */
bool fr_rank_times_valid(struct fr_bytes in);
/* Begins with no samples. */
void fr_rank_samples_clear(struct fr_rank_samples *samples);
/* Adds those of the next rank. FR_E_CORRUPT: the message is cut or forged; err names the rank. */
enum fr_status fr_rank_samples_take(struct fr_rank_samples *samples, struct fr_bytes in, uint32_t rank,
                                    struct fr_err *err) FR_MUST_CHECK;
/* The samples of a task, except watermark_ms and keep, which is given whatever the sampling; valid
 * until the next call that changes them. */
struct fr_task_samples fr_rank_samples_of(const struct fr_rank_samples *samples, uint32_t task);

#endif
