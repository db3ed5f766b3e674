/* See model.h. Thread: any. */
#include "model.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/random.h"

enum { SEED = 1, DRAW_ID, DRAW_NUMBER, DRAW_LABEL, WEIGHT };

static const struct gpu_shape shapes[] = {
    {"r16", 16, 3, {512, 256, 64}, GPU_IDS},
    {"wide", 128, 4, {1024, 1024, 512, 256}, GPU_IDS},
    {"small", 8, 2, {32, 16}, 200},
};

const struct gpu_shape *gpu_shape(const char *name)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

static void make_slots(struct gpu_model *model)
{
    for (uint32_t s = 0; s <= GPU_SLOTS; s++) {
        struct fr_conf_slot *slot = &model->slots[s];
        bool ids = s < GPU_SLOTS;
        snprintf(slot->name, sizeof(slot->name), "s%02u", s);
        slot->kind = ids ? FR_SLOT_SPARSE : FR_SLOT_DENSE;
        slot->table = ids ? 0 : FR_NO_INDEX;
        slot->dim = ids ? 0 : GPU_NUMBERS;
        slot->admit = slot->touch = true;
        slot->max_ids = 1;
    }
}

/* concat of all slots, mlp, dense. */
static void make_layers(struct gpu_model *model, const struct gpu_shape *shape)
{
    static const char *const names[] = {"x", "h", "out"};
    for (uint32_t l = 0; l < 3; l++) {
        struct fr_conf_layer *layer = &model->layers[l];
        snprintf(layer->name, sizeof(layer->name), "%s", names[l]);
        layer->refs = model->refs[l];
        layer->n_refs = l == 0 ? GPU_SLOTS + 1 : 1;
        layer->role_begin[1] = layer->role_begin[2] = layer->n_refs;
        layer->init.kind = FR_INIT_DEFAULT;
        if (l > 0)
            layer->refs[0] = (struct fr_conf_ref){FR_REF_LAYER, (int32_t)l - 1, 0, FR_POOL_SUM};
    }
    for (uint32_t s = 0; s <= GPU_SLOTS; s++)
        model->refs[0][s] =
            (struct fr_conf_ref){s < GPU_SLOTS ? FR_REF_POOLED : FR_REF_DENSE, (int32_t)s, 0, FR_POOL_SUM};
    model->layers[0].op = FR_LAYER_CONCAT;
    model->layers[0].width = GPU_SLOTS * shape->dim + GPU_NUMBERS;
    model->layers[1].op = FR_LAYER_MLP;
    model->layers[1].activation = FR_ACT_RELU;
    model->layers[1].n_units = shape->n_units;
    memcpy(model->layers[1].units, shape->units, sizeof(shape->units));
    model->layers[1].width = shape->units[shape->n_units - 1];
    model->layers[2].op = FR_LAYER_DENSE;
    model->layers[2].n_units = model->layers[2].units[0] = model->layers[2].width = 1;
}

void gpu_model_init(struct gpu_model *model, const struct gpu_shape *shape, uint32_t batch_size)
{
    memset(model, 0, sizeof(*model));
    struct fr_conf *conf = &model->conf;
    conf->seed = SEED;
    conf->chunk_rows = FR_CHUNK_ROWS;
    conf->ingest.batch_size = batch_size;
    conf->tables = &model->table;
    conf->slots = model->slots;
    conf->labels = &model->label;
    conf->layers = model->layers;
    conf->tasks = &model->task;
    conf->n_tables = conf->n_labels = conf->n_sample_labels = conf->n_tasks = 1;
    conf->n_slots = GPU_SLOTS + 1;
    conf->n_layers = 3;
    conf->dense_optimizer =
        (struct fr_optimizer){.kind = FR_OPT_ADAM, .lr = 0.001f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    snprintf(model->table.name, sizeof(model->table.name), "ids");
    model->table.n_parts = 1;
    model->table.parts[0] =
        (struct fr_conf_part){.name = "v",
                              .dim = shape->dim,
                              .optimizer = {.kind = FR_OPT_ADAGRAD_ROWWISE, .lr = 0.05f, .eps = 1e-8f, .initial = 0.1f},
                              .init = {.kind = FR_INIT_NORMAL, .scale = 0.01f}};
    model->label = (struct fr_conf_label){.name = "click", .of = FR_NO_INDEX, .given = FR_NO_INDEX};
    model->task = (struct fr_conf_task){.name = "click", .logit = 2, .loss = FR_LOSS_LOGLOSS, .weight = 1.0f};
    make_slots(model);
    make_layers(model, shape);
    fr_tool_zipf_init(&model->zipf, shape->ids, 1.05);
}

void gpu_model_release(struct gpu_model *model)
{
    fr_tool_zipf_release(&model->zipf);
}

/* ---- the stream ---- */

uint64_t gpu_key(uint32_t slot, uint32_t id)
{
    return fr_fmix64((uint64_t)slot << 32 | id);
}

static uint32_t draw_id(const struct gpu_model *model, uint64_t sample, uint32_t slot)
{
    return fr_zipf_rank(&model->zipf, fr_random_u64(SEED, DRAW_ID, sample, slot));
}

static bool draw_label(const struct gpu_model *model, uint64_t sample)
{
    float logit = -1.0f;
    for (uint32_t slot = 0; slot < 2; slot++)
        logit += (float)(4.0 * fr_random_uniform(SEED, WEIGHT, slot, draw_id(model, sample, slot)) - 2.0);
    return fr_random_uniform(SEED, DRAW_LABEL, sample, 0) < (double)fr_sigmoidf(logit);
}

void gpu_model_fill(const struct gpu_model *model, struct fr_batch *batch, uint64_t first)
{
    uint32_t n = model->conf.ingest.batch_size;
    fr_batch_clear(batch);
    fr_batch_reserve(batch, n);
    batch->n_samples = batch->n_groups = n;
    for (uint32_t s = 0; s < GPU_SLOTS; s++)
        fr_column_reserve_keys(&batch->columns[s], n);
    for (uint32_t i = 0; i < n; i++) {
        batch->group_of[i] = i;
        batch->group_begin[i + 1] = i + 1;
        batch->t_ms[i] = (int64_t)(first + i);
        batch->use[i] = FR_USE_TRAIN | FR_USE_METRICS;
        batch->role[i] = FR_ROLE_TRAIN;
        batch->keep[i] = batch->weights[i] = 1.0f;
        batch->labels[i] = draw_label(model, first + i) ? 1.0f : 0.0f;
        for (uint32_t s = 0; s < GPU_SLOTS; s++) {
            batch->columns[s].begin[i + 1] = i + 1;
            batch->columns[s].keys[i] = gpu_key(s, draw_id(model, first + i, s));
        }
        for (uint32_t j = 0; j < GPU_NUMBERS; j++)
            batch->columns[GPU_SLOTS].dense[(size_t)i * GPU_NUMBERS + j] =
                (float)fr_random_uniform(SEED, DRAW_NUMBER, first + i, j) - 0.5f;
    }
}
