/* --print-config of the model sections: rows with a form of their own; each writes what follows
 * "key:", with the line's
 * end. Layers are printed in evaluation order, with those that were written inside arguments as
 * layers of their own. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "loader.h"
#include "printer.h"

FR_WRITE(fr_write_optimizer)
{
    const struct fr_optimizer *optimizer =
        (const struct fr_optimizer *)(const void *)((const char *)scope + option->offset);
    const char *name = fr_optimizer_kind_text(optimizer->kind);
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "optimizer.%s", name);
    fr_buffer_append(printer->out, "\n", 1);
    printer->indent += FR_INDENT;
    fr_print_key(printer, name);
    fr_buffer_append(printer->out, "\n", 1);
    printer->indent += FR_INDENT;
    fr_print_scope(printer, pattern, optimizer);
    printer->indent -= 2 * FR_INDENT;
}

static void print_init(struct fr_printer *printer, const struct fr_conf_init *init)
{
    const char *name = fr_init_kind_text(init->kind);
    if (fr_init_takes_scale(init->kind))
        fr_buffer_printf(printer->out, " {%s: %.9g}", name, (double)init->scale);
    else
        fr_buffer_printf(printer->out, " %s", name);
}

FR_WRITE(fr_write_init)
{
    print_init(printer, (const struct fr_conf_init *)(const void *)((const char *)scope + option->offset));
    fr_buffer_append(printer->out, "\n", 1);
}

FR_WRITE(fr_write_parts)
{
    (void)option;
    const struct fr_conf_table *table = scope;
    fr_buffer_append(printer->out, "\n", 1);
    for (uint32_t i = 0; i < table->n_parts; i++)
        fr_print_entry(printer, table->parts[i].name, "tables.*.parts.*", &table->parts[i]);
}

FR_WRITE(fr_write_tables)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_printf(printer->out, conf->n_tables ? "\n" : " {}\n");
    for (uint32_t i = 0; i < conf->n_tables; i++)
        fr_print_entry(printer, conf->tables[i].name, "tables.*", &conf->tables[i]);
}

FR_WRITE(fr_write_slots)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_append(printer->out, "\n", 1);
    for (uint32_t i = 0; i < conf->n_slots; i++)
        fr_print_entry(printer, conf->slots[i].name, "slots.*", &conf->slots[i]);
}

FR_WRITE(fr_write_slot_table)
{
    (void)option;
    fr_buffer_printf(printer->out, " \"%s\"\n",
                     printer->conf->tables[((const struct fr_conf_slot *)scope)->table].name);
}

FR_WRITE(fr_write_transform)
{
    (void)option;
    fr_buffer_append(printer->out, " ", 1);
    fr_transforms_text(scope, false, printer->out);
    fr_buffer_append(printer->out, "\n", 1);
}

/* What samples do not carry has neither spelling nor a number of ids of its own. */
bool fr_given_id(const void *scope)
{
    return ((const struct fr_conf_slot *)scope)->source == FR_SOURCE_SAMPLE;
}

bool fr_given_max_ids(const void *scope)
{
    return ((const struct fr_conf_slot *)scope)->source != FR_SOURCE_BUCKETS;
}

bool fr_given_buckets(const void *scope)
{
    return ((const struct fr_conf_slot *)scope)->source == FR_SOURCE_BUCKETS;
}

bool fr_given_cross(const void *scope)
{
    return ((const struct fr_conf_slot *)scope)->source == FR_SOURCE_CROSS;
}

FR_WRITE(fr_write_buckets)
{
    (void)option;
    const struct fr_conf_slot *slot = scope;
    fr_buffer_printf(printer->out, " {of: \"%s\", boundaries: [", printer->conf->slots[slot->sources[0]].name);
    for (uint32_t i = 0; i < slot->n_boundaries; i++)
        fr_buffer_printf(printer->out, "%s%.9g", i ? ", " : "", (double)slot->boundaries[i]);
    fr_buffer_printf(printer->out, "]}\n");
}

FR_WRITE(fr_write_cross)
{
    (void)option;
    const struct fr_conf_slot *slot = scope;
    for (uint32_t i = 0; i < slot->n_sources; i++)
        fr_buffer_printf(printer->out, "%s\"%s\"", i ? ", " : " [", printer->conf->slots[slot->sources[i]].name);
    fr_buffer_printf(printer->out, "]\n");
}

FR_WRITE(fr_write_labels)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_append(printer->out, "\n", 1);
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        const struct fr_conf_label *label = &conf->labels[i];
        const char *joint = "";
        printer->indent += FR_INDENT;
        fr_print_name(printer, label->name);
        printer->indent -= FR_INDENT;
        fr_buffer_printf(printer->out, ": {");
        if (label->of != FR_NO_INDEX) {
            fr_buffer_printf(printer->out, "of: \"%s\"", conf->labels[label->of].name);
            joint = ", ";
        }
        if (label->given != FR_NO_INDEX) {
            fr_buffer_printf(printer->out, "%sgiven: \"%s\"", joint, conf->labels[label->given].name);
            joint = ", ";
        }
        if (label->has_min)
            fr_buffer_printf(printer->out, "%smin: %.9g", joint, (double)label->min);
        fr_buffer_printf(printer->out, "}\n");
    }
}

/* ---- layers ---- */

static void print_refs(struct fr_printer *printer, const struct fr_conf_ref *refs, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        char text[FR_REF_TEXT_MAX];
        fr_ref_text(printer->conf, &refs[r], text);
        /* Names are quoted: one may be `null` or `true`. */
        fr_buffer_printf(printer->out, text[0] == '{' ? "%s%s" : "%s\"%s\"", r ? ", " : "[", text);
    }
    fr_buffer_printf(printer->out, "]");
}

static void print_layer_options(struct fr_printer *printer, const struct fr_conf_layer *layer)
{
    unsigned options = fr_layer_rule(layer->op)->options;
    if (options & FR_LAYER_UNITS) {
        bool one = fr_layer_rule(layer->op)->one_unit;
        fr_print_key(printer, "units");
        for (uint32_t u = 0; u < layer->n_units; u++)
            fr_buffer_printf(printer->out, "%s%" PRIu32, u ? ", " : one ? " " : " [", layer->units[u]);
        fr_buffer_printf(printer->out, one ? "\n" : "]\n");
    }
    if (options & FR_LAYER_ACTIVATION) {
        fr_print_key(printer, "activation");
        fr_buffer_printf(printer->out, " %s\n", fr_activation_text(layer->activation));
    }
    const struct {
        unsigned bit;
        const char *key;
        uint32_t value;
    } numbers[] = {{FR_LAYER_DEPTH, "depth", layer->depth},
                   {FR_LAYER_RANK, "rank", layer->rank},
                   {FR_LAYER_COUNT, "count", layer->count}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!(options & numbers[i].bit))
            continue;
        fr_print_key(printer, numbers[i].key);
        fr_buffer_printf(printer->out, " %" PRIu32 "\n", numbers[i].value);
    }
    if (options & FR_LAYER_RATE) {
        fr_print_key(printer, "rate");
        fr_buffer_printf(printer->out, " %.9g\n", (double)layer->rate);
    }
    if (options & FR_LAYER_SOFTMAX) {
        fr_print_key(printer, "softmax");
        fr_buffer_printf(printer->out, " %s\n", layer->softmax ? "true" : "false");
    }
    if (options & FR_LAYER_INIT) {
        fr_print_key(printer, "init");
        print_init(printer, &layer->init);
        fr_buffer_append(printer->out, "\n", 1);
    }
    if (layer->has_optimizer) {
        const struct fr_option optimizer = {.offset = offsetof(struct fr_conf_layer, optimizer)};
        fr_print_key(printer, "optimizer");
        fr_write_optimizer(printer, &optimizer, layer);
    }
}

FR_WRITE(fr_write_layers)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_append(printer->out, "\n", 1);
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        const struct fr_conf_layer *layer = &conf->layers[i];
        const struct fr_layer_rule *rule = fr_layer_rule(layer->op);
        fr_buffer_printf(printer->out, "%*s-\n", (int)printer->indent + FR_INDENT, "");
        printer->indent += 2 * FR_INDENT;
        fr_print_key(printer, "name");
        fr_buffer_printf(printer->out, " \"%s\"\n", layer->name);
        fr_print_key(printer, fr_layer_op_text(layer->op));
        fr_buffer_printf(printer->out, rule->roles[0] ? " {" : " ");
        for (uint32_t r = 0; r < (rule->roles[0] ? FR_LAYER_ROLES : 1); r++) {
            if (rule->roles[0])
                fr_buffer_printf(printer->out, "%s%s: ", r ? ", " : "", rule->roles[r]);
            print_refs(printer, layer->refs + layer->role_begin[r], layer->role_begin[r + 1] - layer->role_begin[r]);
        }
        fr_buffer_printf(printer->out, rule->roles[0] ? "}\n" : "\n");
        print_layer_options(printer, layer);
        printer->indent -= 2 * FR_INDENT;
    }
}

/* ---- tasks and losses ---- */

bool fr_given_logit(const void *scope)
{
    return ((const struct fr_conf_task *)scope)->logit != FR_NO_INDEX;
}

bool fr_given_prob(const void *scope)
{
    return ((const struct fr_conf_task *)scope)->n_prob > 0;
}

FR_WRITE(fr_write_tasks)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_append(printer->out, "\n", 1);
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        fr_buffer_printf(printer->out, "%*s-\n", (int)printer->indent + FR_INDENT, "");
        printer->indent += 2 * FR_INDENT;
        fr_print_scope(printer, "tasks.*", &conf->tasks[i]);
        printer->indent -= 2 * FR_INDENT;
    }
}

FR_WRITE(fr_write_task_label)
{
    (void)option;
    fr_buffer_printf(printer->out, " \"%s\"\n",
                     printer->conf->labels[((const struct fr_conf_task *)scope)->label].name);
}

FR_WRITE(fr_write_task_logit)
{
    (void)option;
    fr_buffer_printf(printer->out, " \"%s\"\n",
                     printer->conf->layers[((const struct fr_conf_task *)scope)->logit].name);
}

FR_WRITE(fr_write_task_prob)
{
    (void)option;
    const struct fr_conf_task *task = scope;
    for (uint32_t i = 0; i < task->n_prob; i++)
        fr_buffer_printf(printer->out, "%s\"%s\"", i ? ", " : " [", printer->conf->tasks[task->prob[i]].name);
    fr_buffer_printf(printer->out, "]\n");
}

FR_WRITE(fr_write_task_loss)
{
    (void)option;
    const struct fr_conf_task *task = scope;
    if (task->loss == FR_LOSS_FOCAL)
        fr_buffer_printf(printer->out, " {focal: {gamma: %.9g, alpha: %.9g}}\n", (double)task->focal_gamma,
                         (double)task->focal_alpha);
    else
        fr_buffer_printf(printer->out, " %s\n", fr_task_loss_text(task->loss));
}

FR_WRITE(fr_write_losses)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_printf(printer->out, conf->n_losses ? "\n" : " []\n");
    for (uint32_t i = 0; i < conf->n_losses; i++) {
        const struct fr_conf_loss *loss = &conf->losses[i];
        char texts[3][FR_REF_TEXT_MAX + 2];
        for (uint32_t r = 0; r < loss->n_refs; r++) {
            char text[FR_REF_TEXT_MAX];
            fr_ref_text(conf, &loss->refs[r], text);
            snprintf(texts[r], sizeof(texts[r]), text[0] == '{' ? "%s" : "\"%s\"", text);
        }
        fr_buffer_printf(printer->out, "%*s- {name: \"%s\", ", (int)printer->indent + FR_INDENT, "", loss->name);
        if (loss->kind == FR_AUX_MSE)
            fr_buffer_printf(printer->out, "mse: [%s, %s]", texts[0], texts[1]);
        else
            fr_buffer_printf(printer->out, "next_step: {states: %s, positives: %s, negatives: %s}", texts[0], texts[1],
                             texts[2]);
        fr_buffer_printf(printer->out, ", weight: %.9g}\n", (double)loss->weight);
    }
}
