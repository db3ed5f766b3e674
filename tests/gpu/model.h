/* The models of the card's bench without a configuration file, and the stream they learn: 26 id
 * slots over one table, 13 numbers, a label that two of the slots explain. R16 is that of
 * `freshet-bench` (conf/bench_r16.yaml). */
#ifndef FR_GPU_MODEL_H
#define FR_GPU_MODEL_H

#include "batch/batch.h"
#include "samples/zipf.h"

enum { GPU_SLOTS = 26, GPU_NUMBERS = 13, GPU_UNITS_MAX = 4, GPU_IDS = 100000 };

struct gpu_shape {
    const char *name;
    uint32_t dim, n_units, units[GPU_UNITS_MAX];
    uint32_t ids; /* of a slot */
};

/* Configuration by hand, over the arrays below: it must not move. */
struct gpu_model {
    struct fr_conf conf;
    struct fr_conf_table table;
    struct fr_conf_slot slots[GPU_SLOTS + 1];
    struct fr_conf_label label;
    struct fr_conf_layer layers[3];
    struct fr_conf_ref refs[3][GPU_SLOTS + 1];
    struct fr_conf_task task;
    struct fr_tool_zipf zipf;
};

/* NULL: there is no such model. */
const struct gpu_shape *gpu_shape(const char *name);
void gpu_model_init(struct gpu_model *model, const struct gpu_shape *shape, uint32_t batch_size);
void gpu_model_release(struct gpu_model *model);

/* The key of a slot's id. */
uint64_t gpu_key(uint32_t slot, uint32_t id);
/* Samples first to first + batch_size - 1: a function of their numbers. */
void gpu_model_fill(const struct gpu_model *model, struct fr_batch *batch, uint64_t first);

#endif
