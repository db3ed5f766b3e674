/* What slots and layers look like while the model learns, for GET /insight (docs/http.md; defined
 * in docs/learning.md, "Insight").
 *
 * The owner loop shows some of its batches to this module, before and after their step. The module
 * keeps sketches of them, and once an interval makes a document. Nothing that the module does
 * changes a number of the model: it reads, and computes forward passes that nothing else reads.
 *
 * Which batches: a batch is looked at when the training time since the last look is at least
 * FR_INSIGHT_SHARE times the time of that look, or when 1 / FR_INSIGHT_LOOKS_MIN of an interval has
 * passed since it. A batch whose number is a multiple of insight.importance is also scored once
 * more for each slot.
 *
 * Limits: FR_INSIGHT_KEYS keys, FR_INSIGHT_HOT counters and FR_INSIGHT_BUCKETS buckets a slot;
 * importance of FR_INSIGHT_TASKS tasks. Memory: 18 KiB for each slot; 3 KiB for each layer, and a
 * byte for each unit; with importance 8 KiB for each slot and task (16 KiB for a sequence), and
 * scratch of the size of a batch's ids. memory_limit covers it: the memory outside the tables is
 * measured, and the tables get the rest.
 *
 * Thread: the owner loop; fr_insight_read: any. */
#ifndef FR_INSIGHT_INSIGHT_H
#define FR_INSIGHT_INSIGHT_H

#include "base/buffer.h"
#include "base/clock.h"
#include "batch/batch.h"
#include "batch/rows.h"
#include "conf/conf.h"
#include "graph/graph.h"

enum {
    FR_INSIGHT_SHARE = 400, /* looking takes at most one 400th of the training time */
    FR_INSIGHT_LOOKS_MIN = 4,
    FR_INSIGHT_KEYS = 512,
    FR_INSIGHT_HOT = 64,
    FR_INSIGHT_BUCKETS = 16,
    FR_INSIGHT_TASKS = 4,
};

struct fr_insight;

struct fr_insight_options {
    const struct fr_conf *conf;   /* borrowed; insight.interval is above 0 */
    const struct fr_clock *clock; /* borrowed */
    struct fr_graph *graph;       /* borrowed */
};

struct fr_insight *fr_insight_new(const struct fr_insight_options *options);
void fr_insight_free(struct fr_insight *insight);

/* Whether the next batch is shown. `step_ns` is the training time of this process, `batches` the
 * number of batches trained in this history. */
bool fr_insight_wants(struct fr_insight *insight, uint64_t step_ns, uint64_t batches);

/* The forward pass of a batch that is wanted, in place of fr_graph_forward. The graph is left as
 * fr_graph_forward leaves it. */
void fr_insight_forward(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows,
                        int64_t watermark_ms);
/* After the step of that batch was accepted. */
void fr_insight_look(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows,
                     int64_t watermark_ms);

/* Whether a renewal is due. */
bool fr_insight_due(const struct fr_insight *insight, uint64_t now_ns);
/* The floats of a key's row in memory; NULL: none. */
typedef float *fr_insight_row_of(void *self, uint32_t table, uint64_t key);
/* Makes the document, and begins the next window. Between two batches. */
void fr_insight_renew(struct fr_insight *insight, int64_t watermark_ms, uint64_t step_ns, fr_insight_row_of *row_of,
                      void *self);

/* Appends the newest document. false: there is none yet, because the first one comes a quarter of
 * an interval after the start, once a batch has trained. */
bool fr_insight_read(struct fr_insight *insight, struct fr_buffer *out);

#endif
