/* The schema of tests/golden/malformed.yaml built by hand, for the decoder's tests and its fuzz
 * target. */
#ifndef TEST_DECODE_SCHEMA_H
#define TEST_DECODE_SCHEMA_H

#include <stdio.h>
#include <string.h>

#include "base/cursor.h"
#include "base/hash.h"
#include "conf/conf.h"

enum {
    SLOT_USER_ID,
    SLOT_ITEM_ID,
    SLOT_HISTORY,
    SLOT_PRICE,
    SLOT_VEC,
    SLOT_CONTEXT,
    N_CARRIED, /* samples carry these */
    SLOT_BUCKET = N_CARRIED,
    SLOT_PAIR,
    N_SLOTS
};
enum { LABEL_CLICK, LABEL_BUY, N_SAMPLE_LABELS, LABEL_BOUGHT = N_SAMPLE_LABELS, N_LABELS };

static const int64_t TIMESTAMP_MS = 1700000000000;

struct schema {
    struct fr_conf conf;
    struct fr_conf_table tables[2];
    struct fr_conf_slot slots[N_SLOTS];
    struct fr_conf_label labels[N_LABELS];
    struct fr_conf_task tasks[2];
    float boundaries[3];
    struct fr_conf_ref mean; /* of the history */
    struct fr_conf_layer layer;
};

static inline void schema_slot(struct fr_conf_slot *slot, const char *name, enum fr_slot_kind kind, int32_t table,
                               const char *name_space)
{
    *slot = (struct fr_conf_slot){.kind = kind, .table = table, .index = FR_NO_INDEX, .admit = true, .touch = true};
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    if (fr_slot_has_numbers(kind)) {
        slot->dim = 1;
        return;
    }
    snprintf(slot->name_space, sizeof(slot->name_space), "%s", name_space);
    slot->seed = fr_xxh3(name_space, strlen(name_space));
    slot->max_ids = 1024;
    slot->max_len = 50;
}

static inline void schema_init(struct schema *schema, enum fr_format format)
{
    memset(schema, 0, sizeof(*schema));
    struct fr_conf *conf = &schema->conf;
    conf->ingest.format = format;
    conf->ingest.batch_size = 1024;
    conf->ingest.record_max = 8192;
    conf->ingest.group_max = 6;
    conf->ingest.future_max_ms = 3600000;
    conf->ingest.dense_max = 1e10f;
    conf->n_tables = 2;
    conf->tables = schema->tables;
    conf->n_slots = N_SLOTS;
    conf->slots = schema->slots;
    schema_slot(&schema->slots[SLOT_USER_ID], "user_id", FR_SLOT_SPARSE, 0, "user");
    schema_slot(&schema->slots[SLOT_ITEM_ID], "item_id", FR_SLOT_SPARSE, 1, "item");
    schema_slot(&schema->slots[SLOT_HISTORY], "history", FR_SLOT_SEQUENCE, 1, "item");
    schema_slot(&schema->slots[SLOT_PRICE], "price", FR_SLOT_DENSE, FR_NO_INDEX, "");
    schema_slot(&schema->slots[SLOT_VEC], "vec", FR_SLOT_DENSE, FR_NO_INDEX, "");
    schema_slot(&schema->slots[SLOT_CONTEXT], "context", FR_SLOT_SPARSE, 0, "context");
    schema->slots[SLOT_ITEM_ID].id_raw = true;
    schema->slots[SLOT_HISTORY].max_len = 5;
    schema_slot(&schema->slots[SLOT_BUCKET], "price_bucket", FR_SLOT_SPARSE, 0, "price_bucket");
    schema_slot(&schema->slots[SLOT_PAIR], "pair", FR_SLOT_SPARSE, 1, "pair");
    struct fr_conf_slot *bucket = &schema->slots[SLOT_BUCKET], *pair = &schema->slots[SLOT_PAIR];
    memcpy(schema->boundaries, (const float[]){1, 100, 500}, sizeof(schema->boundaries));
    bucket->source = FR_SOURCE_BUCKETS;
    bucket->n_sources = 1;
    bucket->sources[0] = SLOT_PRICE;
    bucket->n_boundaries = 3;
    bucket->boundaries = schema->boundaries;
    bucket->max_ids = 1;
    pair->source = FR_SOURCE_CROSS;
    pair->n_sources = 3;
    memcpy(pair->sources, (const int32_t[]){SLOT_USER_ID, SLOT_BUCKET, SLOT_CONTEXT}, 3 * sizeof(*pair->sources));
    pair->max_ids = 8;
    schema->slots[SLOT_PRICE].n_steps = 1;
    schema->slots[SLOT_PRICE].steps[0].kind = FR_TRANSFORM_LOG1P;
    schema->slots[SLOT_VEC].dim = 3;
    schema->slots[SLOT_VEC].default_value = 0.5f;
    schema->slots[SLOT_CONTEXT].index = 7;
    schema->slots[SLOT_CONTEXT].max_ids = 4;
    schema->mean = (struct fr_conf_ref){.kind = FR_REF_POOLED, .index = SLOT_HISTORY, .pooling = FR_POOL_MEAN};
    schema->layer = (struct fr_conf_layer){.name = "x", .n_refs = 1, .refs = &schema->mean};
    conf->n_layers = 1;
    conf->layers = &schema->layer;
    conf->n_labels = N_LABELS;
    conf->n_sample_labels = N_SAMPLE_LABELS;
    conf->labels = schema->labels;
    for (int l = 0; l < N_LABELS; l++)
        schema->labels[l].of = schema->labels[l].given = FR_NO_INDEX;
    snprintf(schema->labels[LABEL_CLICK].name, FR_NAME_MAX, "click");
    snprintf(schema->labels[LABEL_BUY].name, FR_NAME_MAX, "buy");
    snprintf(schema->labels[LABEL_BOUGHT].name, FR_NAME_MAX, "bought");
    schema->labels[LABEL_BOUGHT].of = LABEL_BUY;
    schema->labels[LABEL_BOUGHT].given = LABEL_CLICK;
    conf->n_tasks = 2;
    conf->tasks = schema->tasks;
    schema->tasks[0] = (struct fr_conf_task){.name = "click_rate", .label = LABEL_CLICK, .weight = 1.0f};
    schema->tasks[1] = (struct fr_conf_task){.name = "buy_rate", .label = LABEL_BUY, .weight = 1.0f};
}

#endif
