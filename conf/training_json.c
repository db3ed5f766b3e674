/* Canonical JSON of the training settings a resumed state depends on beside the model, in the style
 * of model_json.c: a start that would silently go on with others is refused by comparing this
 * text. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "loader.h"
#include "printer.h"

static const char *comma(uint32_t index)
{
    return index > 0 ? "," : "";
}

enum { OPTIMIZER_KEYS_MAX = 20 };

/* An option that all optimizers have, or a half-life, and that is off. */
static bool is_off(const struct fr_option *option, const struct fr_optimizer *optimizer)
{
    const void *place = (const char *)optimizer + option->offset;
    if (strncmp(option->path, "optimizer.*.", 12) != 0 && option->offset != offsetof(struct fr_optimizer, half_life))
        return false;
    if (option->type == FR_OPTION_BOOL)
        return !*(const bool *)place;
    double off = strtod(option->initial, NULL);
    return option->type == FR_OPTION_U64 ? (double)*(const uint64_t *)place == off
                                         : *(const float *)place == (float)off;
}

/* Every row of the option table that the kind has, unless it is off, and "kind"; sorted. */
static void write_optimizer(const struct fr_optimizer *optimizer, struct fr_buffer *out)
{
    const char *kind = fr_optimizer_kind_text(optimizer->kind);
    char pattern[48];
    snprintf(pattern, sizeof(pattern), "optimizer.%s", kind);
    struct {
        const char *key;
        const struct fr_option *option; /* NULL: the kind */
    } keys[OPTIMIZER_KEYS_MAX] = {{"kind", NULL}};
    size_t n = 1;
    for (size_t i = 0; i < fr_options_count; i++) {
        const char *key = fr_option_key(&fr_options[i], pattern);
        if (!key || is_off(&fr_options[i], optimizer))
            continue;
        FR_CHECK(n < OPTIMIZER_KEYS_MAX);
        size_t at = n++;
        for (; at > 0 && strcmp(keys[at - 1].key, key) > 0; at--)
            keys[at] = keys[at - 1];
        keys[at].key = key;
        keys[at].option = &fr_options[i];
    }
    for (size_t i = 0; i < n; i++) {
        fr_buffer_printf(out, "%s\"%s\":", i ? "," : "{", keys[i].key);
        const struct fr_option *option = keys[i].option;
        const char *place = (const char *)optimizer + (option ? option->offset : 0);
        if (!option)
            fr_buffer_printf(out, "\"%s\"", kind);
        else if (option->type == FR_OPTION_BOOL)
            fr_buffer_printf(out, *(const bool *)(const void *)place ? "true" : "false");
        else if (option->type == FR_OPTION_U64)
            fr_buffer_printf(out, "%" PRIu64, *(const uint64_t *)(const void *)place);
        else
            fr_buffer_printf(out, "%.9g", (double)*(const float *)(const void *)place);
    }
    fr_buffer_printf(out, "}");
}

static void write_init(const struct fr_conf_init *init, struct fr_buffer *out)
{
    fr_buffer_printf(out, "\"init\":{\"kind\":\"%s\",\"scale\":%.9g}", fr_init_kind_text(init->kind),
                     (double)init->scale);
}

static void write_layers(const struct fr_conf *conf, struct fr_buffer *out)
{
    uint32_t n = 0;
    fr_buffer_printf(out, "\"layers\":[");
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        const struct fr_conf_layer *layer = &conf->layers[i];
        if (!(fr_layer_rule(layer->op)->options & (FR_LAYER_INIT | FR_LAYER_OPTIMIZER)))
            continue;
        fr_buffer_printf(out, "%s{", comma(n++));
        write_init(&layer->init, out);
        fr_buffer_printf(out, ",\"name\":\"%s\"", layer->name);
        if (layer->has_optimizer) {
            fr_buffer_printf(out, ",\"optimizer\":");
            write_optimizer(&layer->optimizer, out);
        }
        fr_buffer_printf(out, "}");
    }
    fr_buffer_printf(out, "]");
}

static void write_losses(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "\"losses\":[");
    for (uint32_t i = 0; i < conf->n_losses; i++) {
        const struct fr_conf_loss *loss = &conf->losses[i];
        fr_buffer_printf(out, "%s{\"kind\":\"%s\",\"name\":\"%s\",\"refs\":[", comma(i), fr_aux_loss_text(loss->kind),
                         loss->name);
        for (uint32_t r = 0; r < loss->n_refs; r++) {
            char text[FR_REF_TEXT_MAX];
            fr_ref_text(conf, &loss->refs[r], text);
            fr_buffer_printf(out, "%s\"%s\"", comma(r), text);
        }
        fr_buffer_printf(out, "],\"weight\":%.9g}", (double)loss->weight);
    }
    fr_buffer_printf(out, "]");
}

static void write_tables(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "\"tables\":[");
    for (uint32_t i = 0; i < conf->n_tables; i++) {
        const struct fr_conf_table *table = &conf->tables[i];
        fr_buffer_printf(out, "%s{\"admit\":{\"count\":%" PRIu32 "},\"name\":\"%s\",\"parts\":[", comma(i),
                         table->admit_count, table->name);
        for (uint32_t p = 0; p < table->n_parts; p++) {
            const struct fr_conf_part *part = &table->parts[p];
            fr_buffer_printf(out, "%s{", comma(p));
            write_init(&part->init, out);
            fr_buffer_printf(out, ",\"name\":\"%s\",\"optimizer\":", part->name);
            write_optimizer(&part->optimizer, out);
            fr_buffer_printf(out, "}");
        }
        fr_buffer_printf(out, "]}");
    }
    fr_buffer_printf(out, "]");
}

static void write_tasks(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "\"tasks\":[");
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        const struct fr_conf_task *task = &conf->tasks[i];
        fr_buffer_printf(out, "%s{", comma(i));
        if (task->loss == FR_LOSS_FOCAL)
            fr_buffer_printf(out, "\"focal\":{\"alpha\":%.9g,\"gamma\":%.9g},", (double)task->focal_alpha,
                             (double)task->focal_gamma);
        fr_buffer_printf(out, "\"name\":\"%s\",\"weight\":%.9g}", task->name, (double)task->weight);
    }
    fr_buffer_printf(out, "]");
}

void fr_conf_training_json(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{");
    if (conf->export_.average_half_life > 0)
        fr_buffer_printf(out, "\"average\":%" PRIu64 ",", conf->export_.average_half_life);
    write_layers(conf, out);
    fr_buffer_printf(out, ",");
    write_losses(conf, out);
    fr_buffer_printf(out, ",\"network\":{");
    if (conf->clip_global_norm > 0)
        fr_buffer_printf(out, "\"clip_global_norm\":%.9g,", (double)conf->clip_global_norm);
    fr_buffer_printf(out, "\"optimizer\":");
    write_optimizer(&conf->dense_optimizer, out);
    fr_buffer_printf(out, "},\"sampling\":\"%s\",\"seed\":%" PRIu64 ",", fr_sampling_text(conf->ingest.sampling),
                     conf->seed);
    write_tables(conf, out);
    fr_buffer_printf(out, ",");
    write_tasks(conf, out);
    fr_buffer_printf(out, ",\"version\":1}");
    fr_buffer_terminate(out);
}
