/* The lanes of a batch (batch/batch.h) as the passes see them: the entries and the chunks of each
 * lane, for each level. Private to the module.
 *
 * A chunk has entries of one lane. Whatever is summed over samples is summed for each lane as if
 * the lane were a batch alone; the sums of lanes are joined by ops/lane_tree.h. A lane without
 * samples is absent. With one lane every sum is that of the batch.
 *
 * Owner thread: the graph's, which fills it for each batch (fr_graph_prepare). */
#ifndef FR_GRAPH_LANES_H
#define FR_GRAPH_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/ops.h"

enum level { LEVEL_SAMPLE, LEVEL_GROUP, LEVELS };

struct lanes {
    uint32_t n; /* at least 1 */
    /* The lanes of this process in spans (fr_lane_spans), the same for all batches: each sum is
     * joined within a span. One process that has all lanes has one span, which may reach beyond
     * the batch's lanes. */
    uint32_t n_spans;
    struct fr_lane_span spans[FR_LANE_SPANS_MAX];
    struct lane_begin {
        uint32_t entry, chunk; /* the first of the lane */
    } begin[LEVELS][FR_LANES_MAX + 1];
};

static inline uint32_t fr_lane_entries(const struct lanes *lanes, enum level level, uint32_t lane)
{
    return lanes->begin[level][lane + 1].entry - lanes->begin[level][lane].entry;
}

static inline uint32_t fr_lane_chunks(const struct lanes *lanes, enum level level, uint32_t lane)
{
    return lanes->begin[level][lane + 1].chunk - lanes->begin[level][lane].chunk;
}

/* Returns the lanes of a span that the batch has. */
static inline struct fr_lane_span fr_span_of(const struct lanes *lanes, uint32_t span)
{
    struct fr_lane_span found = lanes->spans[span];
    found.end = found.end < lanes->n ? found.end : lanes->n;
    return found;
}

/* Whether a lane of a span has samples. */
static inline bool fr_span_present(const struct lanes *lanes, uint32_t span)
{
    struct fr_lane_span found = fr_span_of(lanes, span);
    const struct lane_begin *begin = lanes->begin[LEVEL_SAMPLE];
    return begin[found.end].entry > begin[found.first].entry;
}

/* The sums over the samples of a batch: for each span, those of its lanes, and for the step, those
 * of all lanes. A graph that has all lanes has one span, whose sums are used for the step as they
 * are. The graph of one of several ranks sends the sums of its spans (span_sums.c), and what all
 * ranks sent is joined.
 *
 * Numbers in double: losses of tasks and auxiliary losses; for each task weight and positives of
 * `bias_from_labels`; moments of each dice; and from n_added on, which are not added but merged,
 * samples and moments of each standardized slot. */
struct span_sums {
    bool of_rank; /* the graph is that of one of several ranks */
    uint32_t rank, n_ranks;
    size_t n_numbers, n_added;
    double *numbers; /* [spans, n_numbers] */
    double *joined;  /* [n_numbers] `numbers`, if there are no other ranks */
    /* [parameters] where the gradient of a parameter begins in n_gradients floats, for ranks */
    size_t *gradient_at, n_gradients;
    /* [spans, n_gradients]; NULL: the span's gradients are those of the step, in parameter_state */
    float *gradients;
    /* for ranks (span_sums.c), [n_counts] integers of this rank, then of all ranks */
    uint32_t n_counts, n_sets;
    uint64_t *counts, *joined_counts;
    double *row_bounds; /* [tables] see update.c */
    uint64_t present;   /* bit s: span s has samples, and its sums were computed */
    uint32_t bits;      /* the largest |gradient| of a parameter in a span, as bits */
    uint32_t unfit;     /* why this rank cannot make the step: UNFIT_* */
    bool counted;       /* joined_counts are those of the batch */
    bool steps;         /* the joined step was not refused, and some sample counts */
};
enum { UNFIT_LOGITS = 1, UNFIT_GRADIENTS = 2 };

/* The sums of spans that all ranks sent, as bytes of their messages, which need not be aligned. */
struct sent_spans {
    uint32_t n;
    uint8_t lanes[FR_LANES_MAX]; /* the first lane of each span, ascending */
    const uint8_t *numbers[FR_LANES_MAX], *gradients[FR_LANES_MAX];
};

static inline double *fr_span_numbers(const struct span_sums *sums, uint32_t span)
{
    return sums->numbers + span * sums->n_numbers;
}

/* Returns the lane of a chunk. */
static inline uint32_t fr_lane_of_chunk(const struct lanes *lanes, enum level level, uint32_t chunk)
{
    uint32_t lane = 0;
    while (lane + 1 < lanes->n && lanes->begin[level][lane + 1].chunk <= chunk)
        lane++;
    return lane;
}

/* Arrays of n floats that wait to be joined; place 0 is `first`, the others are in `more`
 * [FR_LANE_TREE_DEPTH - 1, stride]. */
struct lane_arrays {
    struct fr_lane_tree tree;
    size_t n;
    float *first, *more;
    size_t stride;
};

static inline float *fr_lane_array(const struct lane_arrays *arrays, uint32_t place)
{
    return place == 0 ? arrays->first : arrays->more + (place - 1) * arrays->stride;
}

static inline void fr_lane_arrays_join(const struct fr_ops *ops, struct lane_arrays *arrays, uint32_t next)
{
    for (uint32_t at; (at = fr_lane_tree_join(&arrays->tree, next)) > 0;)
        ops->add(1, (uint32_t)arrays->n, (struct fr_view){fr_lane_array(arrays, at), arrays->n},
                 (struct fr_view){fr_lane_array(arrays, at - 1), arrays->n});
}

/* Returns the memory that the caller fills with the sum of this lane. */
static inline float *fr_lane_arrays_push(const struct fr_ops *ops, struct lane_arrays *arrays, uint32_t lane)
{
    fr_lane_arrays_join(ops, arrays, lane);
    return fr_lane_array(arrays, fr_lane_tree_push(&arrays->tree, lane));
}

#endif
