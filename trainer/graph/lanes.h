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

#include <stddef.h>
#include <stdint.h>

#include "ops/ops.h"

enum level { LEVEL_SAMPLE, LEVEL_GROUP, LEVELS };

struct lanes {
    uint32_t n; /* at least 1 */
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
