/* The order in which the sums of lanes are joined.
 *
 * Lanes are the leaves, from left to right, of a complete binary tree; a parent is left + right. A
 * lane that has nothing is absent, and a parent with one child is that child, bit for bit; so the
 * result depends only on the lanes that are present and on their numbers, neither on the number of
 * lanes nor on who computed which of them.
 *
 *   lanes 0 . 2 3 | 5 . . .        (0 + (2 + 3)) + 5
 *
 * Lanes arrive in ascending order. Their sums wait on a stack, and the two newest are joined when
 * the next lane lies outside the smallest subtree that has both, which the highest bits in which
 * the numbers differ say. Each sum that waits has another such bit, so the stack is not deeper than
 * the tree. The memory of the sums is the caller's:
 *
 *   for (uint32_t at; (at = fr_lane_tree_join(&tree, lane)) > 0;)
 *       add sum[at] to sum[at - 1];
 *   fill sum[fr_lane_tree_push(&tree, lane)];
 *   ... and after the last lane the same loop with FR_LANES_MAX; the result is sum[0].
 *
 * What waits on a stack is a list of subtrees, so a process that has a part of the lanes can send
 * it to be joined elsewhere; it must then join no two sums whose subtree reaches beyond its lanes.
 *
 * Thread: any; the stack belongs to its caller. Only the order is here; rows.h and the graph
 * add. */
#ifndef FR_OPS_LANE_TREE_H
#define FR_OPS_LANE_TREE_H

#include <stdint.h>

enum {
    FR_LANES_MAX = 64,
    FR_LANE_TREE_DEPTH = 7, /* sums that wait at most: 1 + log2(FR_LANES_MAX) */
};

/* Zeroed: empty. */
struct fr_lane_tree {
    uint32_t depth;
    uint8_t lanes[FR_LANE_TREE_DEPTH]; /* one lane of each sum that waits */
};

/* Finds whether a sum must be added to the one below it before the sum of lane `next` is pushed,
 * which comes after all lanes pushed so far; FR_LANES_MAX: no lane follows. Returns the place of
 * that sum, which has left the stack; 0: none. */
static inline uint32_t fr_lane_tree_join(struct fr_lane_tree *tree, uint32_t next)
{
    uint32_t top = tree->depth - 1;
    /* ascending numbers never differ first in the same bit twice in a row, so xors compare as
     * their highest bits do */
    if (tree->depth < 2 || (uint32_t)(tree->lanes[top - 1] ^ tree->lanes[top]) > (tree->lanes[top] ^ next))
        return 0;
    tree->depth = top;
    return top;
}

/* Returns the place of the sum of this lane. */
static inline uint32_t fr_lane_tree_push(struct fr_lane_tree *tree, uint32_t lane)
{
    tree->lanes[tree->depth] = (uint8_t)lane;
    return tree->depth++;
}

/* Lanes [first, end) that are a whole subtree. */
struct fr_lane_span {
    uint32_t first, end;
};
enum { FR_LANE_SPANS_MAX = 2 * (FR_LANE_TREE_DEPTH - 1) };

/* Divides the lanes [first, end) that one of several processes has, of n_lanes, into the largest
 * subtrees without lanes of the others, ascending, and returns their number. All sums of a span are
 * joined within it; its sum is then joined with those of the spans of other processes, and any lane
 * of the span is its number for that. If one process has all lanes, they are one span. */
static inline uint32_t fr_lane_spans(uint32_t first, uint32_t end, uint32_t n_lanes, struct fr_lane_span *spans)
{
    uint32_t n = 0;
    for (uint32_t size; first < end; first += size) {
        size = FR_LANES_MAX;
        while (first % size != 0 || (first + size > end && end < n_lanes))
            size /= 2;
        spans[n++] = (struct fr_lane_span){first, first + size};
    }
    return n;
}

/* Numbers joined in double. Zeroed: empty. */
struct fr_lane_sum {
    struct fr_lane_tree tree;
    double sums[FR_LANE_TREE_DEPTH];
};

static inline void fr_lane_sum_join(struct fr_lane_sum *sum, uint32_t next)
{
    for (uint32_t at; (at = fr_lane_tree_join(&sum->tree, next)) > 0;)
        sum->sums[at - 1] += sum->sums[at];
}

static inline void fr_lane_sum_add(struct fr_lane_sum *sum, uint32_t lane, double x)
{
    fr_lane_sum_join(sum, lane);
    sum->sums[fr_lane_tree_push(&sum->tree, lane)] = x;
}

/* Returns the sum of the lanes; 0 if there was none. */
static inline double fr_lane_sum_total(struct fr_lane_sum *sum)
{
    fr_lane_sum_join(sum, FR_LANES_MAX);
    return sum->sums[0];
}

#endif
