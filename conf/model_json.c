/* Canonical JSON: the model (what scores depend on) and the training settings a resumed state depends on.
 *
 * Keys sorted, no blanks, integers in full, other numbers as %.9g (read as f32 they have the same bits). No text here
 * needs escapes: all are names. The model's schema is in conf/README.md. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "loader.h"
#include "printer.h"

static void write_number(struct fr_buffer *out, const char *key, double value)
{
    fr_buffer_printf(out, "\"%s\":%.9g", key, value);
}

static void write_choice(struct fr_buffer *out, const char *key, const char *choices, int index)
{
    char name[32];
    fr_choice_name(choices, index, name);
    fr_buffer_printf(out, "\"%s\":\"%s\"", key, name);
}

static const char *comma(uint32_t index)
{
    return index > 0 ? "," : "";
}

static void write_slot(const struct fr_conf *conf, const struct fr_conf_slot *slot, struct fr_buffer *out)
{
    static const char *const kinds[] = {"sparse", "sequence", "dense"};
    fr_buffer_printf(out, "{");
    if (slot->kind == FR_SLOT_DENSE) {
        write_number(out, "default", (double)slot->default_value);
        fr_buffer_printf(out, ",\"dim\":%" PRIu32 ",", slot->dim);
    } else {
        fr_buffer_printf(out, "\"id\":\"%s\",", slot->id_raw ? "raw" : "auto");
    }
    if (slot->index != FR_NO_INDEX)
        fr_buffer_printf(out, "\"index\":%" PRId64 ",", slot->index);
    fr_buffer_printf(out, "\"kind\":\"%s\",", kinds[slot->kind]);
    if (slot->kind == FR_SLOT_SPARSE)
        fr_buffer_printf(out, "\"max_ids\":%" PRIu32 ",", slot->max_ids);
    if (slot->kind == FR_SLOT_SEQUENCE)
        fr_buffer_printf(out, "\"max_len\":%" PRIu32 ",", slot->max_len);
    fr_buffer_printf(out, "\"name\":\"%s\",", slot->name);
    if (slot->kind == FR_SLOT_DENSE)
        write_choice(out, "transform", "none|log1p", slot->transform);
    else
        fr_buffer_printf(out, "\"namespace\":\"%s\",\"table\":\"%s\"", slot->name_space,
                         conf->tables[slot->table].name);
    fr_buffer_printf(out, "}");
}

static void write_ref(const struct fr_conf *conf, const struct fr_conf_ref *ref, struct fr_buffer *out)
{
    if (ref->kind == FR_REF_LAYER) {
        fr_buffer_printf(out, "\"%s\"", conf->layers[ref->index].name);
        return;
    }
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (ref->kind == FR_REF_DENSE)
        fr_buffer_printf(out, "\"%s\"", slot->name);
    else
        fr_buffer_printf(out, "{\"%s\":\"%s.%s\"}", ref->pooling == FR_POOL_MEAN ? "mean" : "sum", slot->name,
                         conf->tables[slot->table].parts[ref->part].name);
}

static void write_refs(const struct fr_conf *conf, const struct fr_conf_layer *layer, struct fr_buffer *out)
{
    char op[32];
    fr_choice_name(fr_layer_ops, layer->op, op);
    fr_buffer_printf(out, "\"%s\":[", op);
    for (uint32_t r = 0; r < layer->n_refs; r++) {
        fr_buffer_printf(out, "%s", comma(r));
        write_ref(conf, &layer->refs[r], out);
    }
    fr_buffer_printf(out, "]");
}

/* The operation is itself a key, so its place among activation, name and units depends on it. */
static void write_layer(const struct fr_conf *conf, const struct fr_conf_layer *layer, struct fr_buffer *out)
{
    bool learns = layer->n_units > 0, before_name = layer->op != FR_LAYER_SUM;
    fr_buffer_printf(out, "{");
    if (learns) {
        write_choice(out, "activation", fr_layer_activations, layer->activation);
        fr_buffer_printf(out, ",");
    }
    if (before_name) {
        write_refs(conf, layer, out);
        fr_buffer_printf(out, ",");
    }
    fr_buffer_printf(out, "\"name\":\"%s\"", layer->name);
    if (!before_name) {
        fr_buffer_printf(out, ",");
        write_refs(conf, layer, out);
    }
    for (uint32_t u = 0; u < layer->n_units; u++)
        fr_buffer_printf(out, "%s%" PRIu32, u ? "," : ",\"units\":[", layer->units[u]);
    fr_buffer_printf(out, learns ? "]}" : "}");
}

static void write_tables(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "\"tables\":[");
    for (uint32_t i = 0; i < conf->n_tables; i++) {
        const struct fr_conf_table *table = &conf->tables[i];
        fr_buffer_printf(out, "%s{\"name\":\"%s\",\"parts\":[", comma(i), table->name);
        for (uint32_t p = 0; p < table->n_parts; p++)
            fr_buffer_printf(out, "%s{\"dim\":%" PRIu32 ",\"name\":\"%s\"}", comma(p), table->parts[p].dim,
                             table->parts[p].name);
        fr_buffer_printf(out, "]}");
    }
    fr_buffer_printf(out, "]");
}

void fr_conf_model_json(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"chunk_rows\":%" PRIu32 ",\"labels\":[", conf->chunk_rows);
    for (uint32_t i = 0; i < conf->n_labels; i++)
        fr_buffer_printf(out, "%s{\"name\":\"%s\"}", comma(i), conf->labels[i].name);
    fr_buffer_printf(out, "],\"layers\":[");
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        fr_buffer_printf(out, "%s", comma(i));
        write_layer(conf, &conf->layers[i], out);
    }
    fr_buffer_printf(out, "],");
    write_choice(out, "quantize", "f32|f16", conf->export_.quantize);
    fr_buffer_printf(out, ",\"slots\":[");
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        fr_buffer_printf(out, "%s", comma(i));
        write_slot(conf, &conf->slots[i], out);
    }
    fr_buffer_printf(out, "],");
    write_tables(conf, out);
    fr_buffer_printf(out, ",\"tasks\":[");
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        const struct fr_conf_task *task = &conf->tasks[i];
        fr_buffer_printf(out, "%s{\"label\":\"%s\",\"logit\":\"%s\",\"loss\":\"logloss\",\"name\":\"%s\"}", comma(i),
                         conf->labels[task->label].name, conf->layers[task->logit].name, task->name);
    }
    fr_buffer_printf(out, "],\"version\":1}");
    fr_buffer_terminate(out);
}

uint64_t fr_conf_fingerprint(const struct fr_conf *conf)
{
    struct fr_buffer json = {0};
    fr_conf_model_json(conf, &json);
    struct fr_sha256 digest = fr_sha256(json.data, json.size);
    fr_buffer_release(&json);
    return fr_sha256_u64(&digest);
}

/* --- training
 * -------------------------------------------------------------------------------------------------------------- */

static void write_optimizer(const struct fr_conf_optimizer *optimizer, struct fr_buffer *out)
{
    bool adagrad = optimizer->kind == FR_OPT_ADAGRAD || optimizer->kind == FR_OPT_ADAGRAD_ROWWISE;
    bool adam = optimizer->kind == FR_OPT_ADAM, ftrl = optimizer->kind == FR_OPT_FTRL;
    fr_buffer_printf(out, "{");
    if (ftrl) {
        write_number(out, "beta", (double)optimizer->beta);
        fr_buffer_printf(out, ",");
    }
    if (adam) {
        write_number(out, "beta1", (double)optimizer->beta1);
        fr_buffer_printf(out, ",");
        write_number(out, "beta2", (double)optimizer->beta2);
        fr_buffer_printf(out, ",");
    }
    if (adam || adagrad) {
        write_number(out, "eps", (double)optimizer->eps);
        fr_buffer_printf(out, ",");
    }
    if (adagrad) {
        write_number(out, "initial", (double)optimizer->initial);
        fr_buffer_printf(out, ",");
    }
    write_choice(out, "kind", "sgd|adagrad|adagrad_rowwise|adam|ftrl", optimizer->kind);
    if (ftrl) {
        fr_buffer_printf(out, ",");
        write_number(out, "l1", (double)optimizer->l1);
        fr_buffer_printf(out, ",");
        write_number(out, "l2", (double)optimizer->l2);
    }
    fr_buffer_printf(out, ",");
    write_number(out, "lr", (double)optimizer->lr);
    fr_buffer_printf(out, "}");
}

void fr_conf_training_json(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"network\":{\"optimizer\":");
    write_optimizer(&conf->dense_optimizer, out);
    fr_buffer_printf(out, "},\"seed\":%" PRIu64 ",\"tables\":[", conf->seed);
    for (uint32_t i = 0; i < conf->n_tables; i++) {
        const struct fr_conf_table *table = &conf->tables[i];
        fr_buffer_printf(out, "%s{\"admit\":{\"count\":%" PRIu32 "},\"name\":\"%s\",\"parts\":[", comma(i),
                         table->admit_count, table->name);
        for (uint32_t p = 0; p < table->n_parts; p++) {
            const struct fr_conf_part *part = &table->parts[p];
            fr_buffer_printf(out, "%s{\"init\":{", comma(p));
            write_choice(out, "kind", "zeros|uniform|normal|default", part->init.kind);
            fr_buffer_printf(out, ",");
            write_number(out, "scale", (double)part->init.scale);
            fr_buffer_printf(out, "},\"name\":\"%s\",\"optimizer\":", part->name);
            write_optimizer(&part->optimizer, out);
            fr_buffer_printf(out, "}");
        }
        fr_buffer_printf(out, "]}");
    }
    fr_buffer_printf(out, "],\"tasks\":[");
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        fr_buffer_printf(out, "%s{\"name\":\"%s\",", comma(i), conf->tasks[i].name);
        write_number(out, "weight", (double)conf->tasks[i].weight);
        fr_buffer_printf(out, "}");
    }
    fr_buffer_printf(out, "],\"version\":1}");
    fr_buffer_terminate(out);
}
