/* Canonical JSON of the model: what scores depend on. Keys sorted, no blanks, integers in full,
 * other numbers as %.9g (read as f32 they have the same bits). No text here needs escapes: all are
 * names. Schema: docs/deltas.md. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "loader.h"
#include "printer.h"

static const char *comma(uint32_t index)
{
    return index > 0 ? "," : "";
}

static void write_computed(const struct fr_conf *conf, const struct fr_conf_slot *slot, struct fr_buffer *out)
{
    if (slot->source == FR_SOURCE_BUCKETS) {
        fr_buffer_printf(out, "\"buckets\":{\"boundaries\":[");
        for (uint32_t i = 0; i < slot->n_boundaries; i++)
            fr_buffer_printf(out, "%s%.9g", comma(i), (double)slot->boundaries[i]);
        fr_buffer_printf(out, "],\"of\":\"%s\"},", conf->slots[slot->sources[0]].name);
        return;
    }
    fr_buffer_printf(out, "\"cross\":[");
    for (uint32_t i = 0; i < slot->n_sources; i++)
        fr_buffer_printf(out, "%s\"%s\"", comma(i), conf->slots[slot->sources[i]].name);
    fr_buffer_printf(out, "],");
}

static void write_slot(const struct fr_conf *conf, const struct fr_conf_slot *slot, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{");
    if (slot->kind == FR_SLOT_DENSE && slot->has_default)
        fr_buffer_printf(out, "\"default\":%.9g,", (double)slot->default_value);
    if (slot->kind == FR_SLOT_DENSE)
        fr_buffer_printf(out, "\"dim\":%" PRIu32 ",", slot->dim);
    else if (slot->source != FR_SOURCE_SAMPLE)
        write_computed(conf, slot, out);
    else
        fr_buffer_printf(out, "\"id\":\"%s\",", slot->id_raw ? "raw" : "auto");
    if (slot->index != FR_NO_INDEX)
        fr_buffer_printf(out, "\"index\":%" PRId64 ",", slot->index);
    if (slot->kind == FR_SLOT_DENSE)
        fr_buffer_printf(out, "\"indicator\":%s,", slot->indicator ? "true" : "false");
    fr_buffer_printf(out, "\"kind\":\"%s\",", fr_slot_kind_text(slot->kind));
    if (slot->kind == FR_SLOT_SPARSE && slot->source != FR_SOURCE_BUCKETS)
        fr_buffer_printf(out, "\"max_ids\":%" PRIu32 ",", slot->max_ids);
    if (slot->kind == FR_SLOT_SEQUENCE)
        fr_buffer_printf(out, "\"max_len\":%" PRIu32 ",", slot->max_len);
    fr_buffer_printf(out, "\"name\":\"%s\",", slot->name);
    if (slot->kind == FR_SLOT_DENSE) {
        fr_buffer_printf(out, "\"transform\":");
        fr_transforms_text(slot, true, out);
    } else {
        fr_buffer_printf(out, "\"namespace\":\"%s\",\"table\":\"%s\"", slot->name_space,
                         conf->tables[slot->table].name);
    }
    fr_buffer_printf(out, "}");
}

static void write_label(const struct fr_conf *conf, const struct fr_conf_label *label, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{");
    if (label->given != FR_NO_INDEX)
        fr_buffer_printf(out, "\"given\":\"%s\",", conf->labels[label->given].name);
    if (label->has_min)
        fr_buffer_printf(out, "\"min\":%.9g,", (double)label->min);
    fr_buffer_printf(out, "\"name\":\"%s\"", label->name);
    if (label->of != FR_NO_INDEX)
        fr_buffer_printf(out, ",\"of\":\"%s\"", conf->labels[label->of].name);
    fr_buffer_printf(out, "}");
}

/* ---- layers ---- */

static void write_ref(const struct fr_conf *conf, const struct fr_conf_ref *ref, struct fr_buffer *out)
{
    char text[FR_REF_TEXT_MAX];
    if (ref->kind == FR_REF_POOLED) {
        const struct fr_conf_ref rows = {FR_REF_SEQUENCE, ref->index, ref->part, FR_POOL_SUM};
        fr_ref_text(conf, &rows, text);
        fr_buffer_printf(out, "{\"%s\":\"%s\"}", fr_pooling_text(ref->pooling), text);
        return;
    }
    fr_ref_text(conf, ref, text);
    fr_buffer_printf(out, "\"%s\"", text);
}

static void write_role(const struct fr_conf *conf, const struct fr_conf_layer *layer, uint32_t role,
                       struct fr_buffer *out)
{
    fr_buffer_printf(out, "[");
    for (uint32_t r = layer->role_begin[role]; r < layer->role_begin[role + 1]; r++) {
        fr_buffer_printf(out, "%s", comma(r - layer->role_begin[role]));
        write_ref(conf, &layer->refs[r], out);
    }
    fr_buffer_printf(out, "]");
}

static void write_argument(const struct fr_conf *conf, const struct fr_conf_layer *layer, struct fr_buffer *out)
{
    const char *const *roles = fr_layer_rule(layer->op)->roles;
    if (!roles[0]) {
        write_role(conf, layer, 0, out);
        return;
    }
    FR_CHECK(strcmp(roles[1], roles[0]) < 0); /* keys before query, experts before gate */
    fr_buffer_printf(out, "{\"%s\":", roles[1]);
    write_role(conf, layer, 1, out);
    fr_buffer_printf(out, ",\"%s\":", roles[0]);
    write_role(conf, layer, 0, out);
    fr_buffer_printf(out, "}");
}

static void write_units(const struct fr_conf_layer *layer, struct fr_buffer *out)
{
    for (uint32_t u = 0; u < layer->n_units; u++)
        fr_buffer_printf(out, "%s%" PRIu32, u ? "," : "[", layer->units[u]);
    fr_buffer_printf(out, "]");
}

/* The operation is itself a key, so its place among the others differs from layer to layer. */
static void write_layer(const struct fr_conf *conf, const struct fr_conf_layer *layer, struct fr_buffer *out)
{
    unsigned options = fr_layer_rule(layer->op)->options;
    const char *op = fr_layer_op_text(layer->op), *activation = fr_activation_text(layer->activation);
    static const char *const keys[] = {"activation", "count", "depth", "name", "rank", "rate", "softmax", "units"};
    static const unsigned bits[] = {FR_LAYER_ACTIVATION, FR_LAYER_COUNT, FR_LAYER_DEPTH,   0,
                                    FR_LAYER_RANK,       FR_LAYER_RATE,  FR_LAYER_SOFTMAX, FR_LAYER_UNITS};
    bool op_written = false;
    const char *joint = "{";
    for (size_t k = 0; k <= FR_ARRAY_LEN(keys); k++) {
        if (!op_written && (k == FR_ARRAY_LEN(keys) || strcmp(op, keys[k]) < 0)) {
            fr_buffer_printf(out, "%s\"%s\":", joint, op);
            write_argument(conf, layer, out);
            op_written = true;
            joint = ",";
        }
        if (k == FR_ARRAY_LEN(keys) || (bits[k] != 0 && !(options & bits[k])))
            continue;
        fr_buffer_printf(out, "%s\"%s\":", joint, keys[k]);
        joint = ",";
        if (bits[k] == FR_LAYER_UNITS)
            write_units(layer, out);
        else if (bits[k] == FR_LAYER_RATE)
            fr_buffer_printf(out, "%.9g", (double)layer->rate);
        else if (bits[k] == FR_LAYER_SOFTMAX)
            fr_buffer_printf(out, "%s", layer->softmax ? "true" : "false");
        else if (bits[k] == FR_LAYER_ACTIVATION || bits[k] == 0)
            fr_buffer_printf(out, "\"%s\"", bits[k] == 0 ? layer->name : activation);
        else
            fr_buffer_printf(out, "%" PRIu32,
                             bits[k] == FR_LAYER_COUNT   ? layer->count
                             : bits[k] == FR_LAYER_DEPTH ? layer->depth
                                                         : layer->rank);
    }
    fr_buffer_printf(out, "}");
}

/* ---- the whole ---- */

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

static void write_task(const struct fr_conf *conf, const struct fr_conf_task *task, struct fr_buffer *out)
{
    const char *loss = fr_task_loss_text(task->loss);
    fr_buffer_printf(out, "{\"label\":\"%s\",", conf->labels[task->label].name);
    if (task->logit != FR_NO_INDEX)
        fr_buffer_printf(out, "\"logit\":\"%s\",", conf->layers[task->logit].name);
    fr_buffer_printf(out, "\"loss\":\"%s\",\"name\":\"%s\"", loss, task->name);
    for (uint32_t i = 0; i < task->n_prob; i++)
        fr_buffer_printf(out, "%s\"%s\"%s", i ? "," : ",\"prob\":[", conf->tasks[task->prob[i]].name,
                         i + 1 == task->n_prob ? "]" : "");
    fr_buffer_printf(out, "}");
}

void fr_conf_model_json(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"chunk_rows\":%" PRIu32 ",\"labels\":[", conf->chunk_rows);
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        fr_buffer_printf(out, "%s", comma(i));
        write_label(conf, &conf->labels[i], out);
    }
    fr_buffer_printf(out, "],\"layers\":[");
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        fr_buffer_printf(out, "%s", comma(i));
        write_layer(conf, &conf->layers[i], out);
    }
    fr_buffer_printf(out, "],\"quantize\":\"%s\",\"slots\":[", fr_quantize_text(conf->export_.quantize));
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        fr_buffer_printf(out, "%s", comma(i));
        write_slot(conf, &conf->slots[i], out);
    }
    fr_buffer_printf(out, "],");
    write_tables(conf, out);
    fr_buffer_printf(out, ",\"tasks\":[");
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        fr_buffer_printf(out, "%s", comma(i));
        write_task(conf, &conf->tasks[i], out);
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
