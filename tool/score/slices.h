/* Scored samples in memory, and the metrics of all of them and of slices. A slice is the samples
 * with one value of a slot or of a label. Private to tool.
 *
 * Memory: 16 bytes per sample and task, and 8 for each slice that a sample is in. Thread: one. */
#ifndef FR_TOOL_SLICES_H
#define FR_TOOL_SLICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics/auc.h"

enum { FR_SLICE_CUTS_MAX = 16, FR_SLICE_VALUE_MAX = 96 };

struct fr_tool_slice {
    uint64_t key;
    char value[FR_SLICE_VALUE_MAX]; /* as displayed */
    uint64_t samples;
};
struct fr_tool_cut { /* the property by which samples are sliced */
    struct fr_tool_slice *slices;
    size_t n_slices, capacity_slices;
    uint32_t *index; /* open addressing over slices; 0: free, else place + 1 */
    size_t index_size;
    struct fr_tool_member {
        uint32_t slice, sample;
    } * members;
    size_t n_members, capacity_members;
};

struct fr_tool_sample {
    float score, label; /* label NaN: the sample does not count */
    double weight;
};
struct fr_tool_slices {
    uint32_t n_tasks, n_cuts;
    struct fr_tool_sample *samples; /* [n_samples][n_tasks] */
    size_t n_samples, capacity_samples;
    struct fr_tool_cut cuts[FR_SLICE_CUTS_MAX];
};

void fr_tool_slices_release(struct fr_tool_slices *slices);
/* Makes room for one more sample and returns its n_tasks entries, which may be filled until the
 * next call. */
struct fr_tool_sample *fr_tool_slices_add(struct fr_tool_slices *slices);
/* Returns the slice of a key. A new slice has 0 samples, and the caller fills in its value. Valid
 * until the next call. */
struct fr_tool_slice *fr_tool_slices_find(struct fr_tool_cut *cut, uint64_t key);
/* Puts the last added sample into this slice; a second call has no effect. */
void fr_tool_slices_join(struct fr_tool_slices *slices, struct fr_tool_cut *cut, struct fr_tool_slice *slice);
/* Orders the slices: most samples first, then by value. Call it after the last sample. */
void fr_tool_slices_order(struct fr_tool_cut *cut);
/* Computes the metrics of a task over all samples (cut NULL), or over one slice by its index. */
void fr_tool_slices_result(const struct fr_tool_slices *slices, uint32_t task, enum fr_auc_scores scores,
                           const struct fr_tool_cut *cut, size_t place, struct fr_auc_result *out);

#endif
