/* GET /model (model_document.h): tables with their parts, slots, layers with what they read and the
 * shapes of all of it, tasks. Unlike `cfg` of the delta topic (docs/formats/deltas.md, "Model
 * JSON") it is for people and pictures: widths are written out, and nobody scores by it. */
#include "model_document.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "service.h"

static void put_limits(struct fr_json *json, const struct fr_conf *conf)
{
    fr_json_object(json, "limits");
    fr_json_u64(json, "memory_limit", conf->memory_limit);
    fr_json_u64(json, "journal_max", conf->journal_max);
    fr_json_u64(json, "unfolded_max", conf->unfolded_max);
    fr_json_u64(json, "backlog_max", conf->export_.backlog_max);
    fr_json_i64(json, "ready_lag_ms", conf->ingest.ready_lag_ms);
    fr_json_i64(json, "epoch_ms", conf->epoch_ms);
    fr_json_end(json);
}

static void put_table(struct fr_json *json, const struct fr_conf_table *table)
{
    fr_json_object(json, NULL);
    fr_json_text(json, "name", table->name);
    if (table->expire.capacity.rows_max > 0)
        fr_json_u64(json, "rows_max", table->expire.capacity.rows_max);
    fr_json_array(json, "parts");
    for (uint32_t p = 0; p < table->n_parts; p++) {
        fr_json_object(json, NULL);
        fr_json_text(json, "name", table->parts[p].name);
        fr_json_u64(json, "dim", table->parts[p].dim);
        fr_json_end(json);
    }
    fr_json_end(json);
    fr_json_end(json);
}

static void put_slot(struct fr_json *json, const struct fr_conf *conf, const struct fr_conf_slot *slot)
{
    fr_json_object(json, NULL);
    fr_json_text(json, "name", slot->name);
    fr_json_text(json, "kind", fr_slot_kind_text(slot->kind));
    if (slot->table >= 0)
        fr_json_text(json, "table", conf->tables[slot->table].name);
    else
        fr_json_u64(json, "width", fr_conf_slot_width(slot));
    if (slot->n_sources > 0) {
        fr_json_array(json, "of");
        for (uint32_t i = 0; i < slot->n_sources; i++)
            fr_json_text(json, NULL, conf->slots[slot->sources[i]].name);
        fr_json_end(json);
    }
    fr_json_end(json);
}

/* [width], or [T, width] of a sequence. */
static void put_shape(struct fr_json *json, uint32_t width, bool is_sequence)
{
    fr_json_u64(json, "width", width);
    if (is_sequence)
        fr_json_bool(json, "sequence", true);
}

static void put_ref(struct fr_json *json, const struct fr_conf *conf, const struct fr_conf_ref *ref)
{
    struct fr_conf_shape shape = fr_conf_ref_shape(conf, ref);
    bool of_layer = ref->kind == FR_REF_LAYER, of_rows = ref->kind == FR_REF_POOLED || ref->kind == FR_REF_SEQUENCE;
    fr_json_object(json, NULL);
    fr_json_text(json, of_layer ? "layer" : "slot",
                 of_layer ? conf->layers[ref->index].name : conf->slots[ref->index].name);
    if (of_rows)
        fr_json_text(json, "part", conf->tables[conf->slots[ref->index].table].parts[ref->part].name);
    if (ref->kind == FR_REF_POOLED)
        fr_json_text(json, "pooling", fr_pooling_text(ref->pooling));
    put_shape(json, shape.width, shape.is_sequence);
    fr_json_end(json);
}

static void put_layer(struct fr_json *json, const struct fr_conf *conf, const struct fr_conf_layer *layer)
{
    fr_json_object(json, NULL);
    fr_json_text(json, "name", layer->name);
    fr_json_text(json, "op", fr_layer_op_text(layer->op));
    put_shape(json, layer->width, layer->is_sequence);
    fr_json_array(json, "units");
    for (uint32_t i = 0; i < layer->n_units; i++)
        fr_json_u64(json, NULL, layer->units[i]);
    fr_json_end(json);
    fr_json_array(json, "reads");
    for (uint32_t i = 0; i < layer->n_refs; i++)
        put_ref(json, conf, &layer->refs[i]);
    fr_json_end(json);
    fr_json_end(json);
}

static void put_task(struct fr_json *json, const struct fr_conf *conf, const struct fr_conf_task *task)
{
    fr_json_object(json, NULL);
    fr_json_text(json, "name", task->name);
    fr_json_text(json, "label", conf->labels[task->label].name);
    fr_json_text(json, "loss", fr_task_loss_text(task->loss));
    if (task->logit >= 0)
        fr_json_text(json, "layer", conf->layers[task->logit].name);
    fr_json_array(json, "product");
    for (uint32_t i = 0; i < task->n_prob; i++)
        fr_json_text(json, NULL, conf->tasks[task->prob[i]].name);
    fr_json_end(json);
    fr_json_end(json);
}

void fr_documents_model(struct fr_service *service)
{
    const struct fr_conf *conf = service->conf;
    struct fr_buffer body = {0};
    struct fr_json json = {.out = &body};
    char fingerprint[32];
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, fr_conf_fingerprint(conf));
    fr_json_object(&json, NULL);
    fr_json_text(&json, "model", conf->model);
    fr_json_text(&json, "fp", fingerprint);
    put_limits(&json, conf);
    fr_json_u64(&json, "dense_parameters", conf->dense_parameters);
    fr_json_array(&json, "tables");
    for (uint32_t i = 0; i < conf->n_tables; i++)
        put_table(&json, &conf->tables[i]);
    fr_json_end(&json);
    fr_json_array(&json, "slots");
    for (uint32_t i = 0; i < conf->n_slots; i++)
        put_slot(&json, conf, &conf->slots[i]);
    fr_json_end(&json);
    fr_json_array(&json, "layers");
    for (uint32_t i = 0; i < conf->n_layers; i++)
        put_layer(&json, conf, &conf->layers[i]);
    fr_json_end(&json);
    fr_json_array(&json, "tasks");
    for (uint32_t i = 0; i < conf->n_tasks; i++)
        put_task(&json, conf, &conf->tasks[i]);
    fr_json_end(&json);
    fr_json_end(&json);
    fr_put_u8(&body, '\n');
    fr_http_publish(service->http, "/model", 200, "application/json", body.data, body.size);
    fr_buffer_release(&body);
}
