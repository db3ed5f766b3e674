/* Shapes of layers: a vector [n] (one row per sample) or a sequence [T, n] (one row per step; T
 * differs from sample to sample). They are inferred only here, and the graph relies on width and
 * is_sequence. What a configuration (or a model description from a topic) requests must also be
 * possible to allocate, so parameters and activations are bounded. A layer that reads a refused
 * layer is skipped, so that each mistake is reported once. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "layers.h"

enum {
    WIDTH_MAX = 1 << 20,      /* numbers one layer reads from, or gives for, a sample or step */
    PARAMETERS_MAX = 1 << 28, /* of all layers: 1 GiB of f32 */
    /* The numbers that all layers read, return and have inside for one sample, with sequences at
     * their longest: 16 MiB of f32, 2 GiB for a chunk of 128 samples. */
    ACTIVATIONS_MAX = 1 << 22,
};

/* Totals of the layers so far. */
struct totals {
    uint64_t parameters, activations;
    uint32_t steps[FR_LAYERS_MAX]; /* most steps of a layer that is a sequence; otherwise 1 */
};

/* A range of a layer's or loss's references. */
struct inputs {
    struct fr_loader *loader;
    const struct fr_layer_draft *draft; /* its place, for messages */
    const char *what, *name;            /* layer `h` */
    const struct fr_conf_ref *refs;
    uint32_t n_refs;
};

struct fr_conf_shape fr_conf_ref_shape(const struct fr_conf *conf, const struct fr_conf_ref *ref)
{
    if (ref->kind == FR_REF_LAYER)
        return (struct fr_conf_shape){conf->layers[ref->index].width, conf->layers[ref->index].is_sequence};
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (ref->kind == FR_REF_DENSE)
        return (struct fr_conf_shape){fr_conf_slot_width(slot), false};
    return (struct fr_conf_shape){conf->tables[slot->table].parts[ref->part].dim, ref->kind == FR_REF_SEQUENCE};
}

uint32_t fr_conf_role_width(const struct fr_conf *conf, const struct fr_conf_layer *layer, uint32_t role)
{
    uint32_t width = 0;
    for (uint32_t r = layer->role_begin[role]; r < layer->role_begin[role + 1]; r++)
        width += fr_conf_ref_shape(conf, &layer->refs[r]).width;
    return width;
}

static struct fr_conf_shape shape_of(const struct inputs *in, uint32_t r)
{
    return fr_conf_ref_shape(in->loader->conf, &in->refs[r]);
}

/* "`history.v` [T, 8]" */
struct described {
    char text[FR_REF_TEXT_MAX + 32];
};
static struct described describe(const struct inputs *in, uint32_t r)
{
    struct described out;
    char text[FR_REF_TEXT_MAX];
    struct fr_conf_shape shape = shape_of(in, r);
    fr_ref_text(in->loader->conf, &in->refs[r], text);
    snprintf(out.text, sizeof(out.text), "`%s` %s%" PRIu32 "]", text, shape.is_sequence ? "[T, " : "[", shape.width);
    return out;
}

static bool refuse(const struct inputs *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(const struct inputs *in, const char *format, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return fr_refuse(in->loader, in->draft->node, in->draft->path, "%s `%s` %s", in->what, in->name, text);
}

/* ---- rules over a range of inputs ---- */

static bool want_vectors(const struct inputs *in)
{
    for (uint32_t r = 0; r < in->n_refs; r++) {
        char text[FR_REF_TEXT_MAX];
        if (!shape_of(in, r).is_sequence)
            continue;
        fr_ref_text(in->loader->conf, &in->refs[r], text);
        return refuse(in, "reads the sequence %s where a vector is needed; pool it with %s: {mean: %s}",
                      describe(in, r).text, FR_POOLING_WORDS, text);
    }
    return true;
}

static bool want_sequences(const struct inputs *in)
{
    for (uint32_t r = 0; r < in->n_refs; r++) {
        if (!shape_of(in, r).is_sequence)
            return refuse(in,
                          "reads the vector %s where a sequence [T, n] is needed; expected a slot of kind sequence, or "
                          "a layer over sequences",
                          describe(in, r).text);
    }
    return true;
}

/* Checks that the inputs are all vectors, or all sequences. */
static bool want_one_kind(const struct inputs *in)
{
    for (uint32_t r = 1; r < in->n_refs; r++) {
        if (shape_of(in, r).is_sequence != shape_of(in, 0).is_sequence)
            return refuse(
                in, "mixes %s and %s; expected vectors only (pool a sequence, as in {mean: ..}) or sequences only",
                describe(in, 0).text, describe(in, r).text);
    }
    return true;
}

static bool want_one_width(const struct inputs *in, const char *op)
{
    for (uint32_t r = 1; r < in->n_refs; r++) {
        if (shape_of(in, r).width != shape_of(in, 0).width)
            return refuse(in, "reads %s and %s; expected one width for %s", describe(in, 0).text, describe(in, r).text,
                          op);
    }
    return true;
}

static uint64_t total_width(const struct inputs *in)
{
    uint64_t width = 0; /* at most 1024 references of 2^20 each */
    for (uint32_t r = 0; r < in->n_refs; r++)
        width += shape_of(in, r).width;
    return width;
}

/* ---- operations ---- */

static uint64_t dense_parameters(const struct fr_conf_layer *layer, uint64_t in)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < layer->n_units; i++) {
        total += (in + 1) * layer->units[i]; /* in <= 2^22, units <= 2^16, at most 16 */
        in = layer->units[i];
    }
    return total;
}

static uint64_t gru_parameters(uint64_t in, uint64_t units)
{
    return (in + units + 2) * 3 * units;
}

/* Infers operations with a plain argument; *parameters grows only by what the layer learns. */
static bool infer_plain(const struct inputs *in, const struct fr_conf_layer *layer, struct fr_conf_shape *out,
                        uint64_t *parameters)
{
    uint64_t width = total_width(in), last = layer->n_units > 0 ? layer->units[layer->n_units - 1] : 0;
    const char *op = fr_layer_op_text(layer->op);
    bool ok = false;
    *out = (struct fr_conf_shape){.width = (uint32_t)width};
    switch (layer->op) {
    case FR_LAYER_CONCAT:
    case FR_LAYER_DENSE:
        ok = want_one_kind(in);
        *out =
            (struct fr_conf_shape){(uint32_t)(layer->op == FR_LAYER_DENSE ? last : width), shape_of(in, 0).is_sequence};
        *parameters = dense_parameters(layer, width);
        break;
    case FR_LAYER_MLP:
    case FR_LAYER_EXPERTS:
        ok = want_vectors(in);
        out->width = layer->op == FR_LAYER_EXPERTS ? layer->count * last : last;
        *parameters = dense_parameters(layer, width) * (layer->op == FR_LAYER_EXPERTS ? layer->count : 1);
        break;
    case FR_LAYER_ADD:
    case FR_LAYER_MULTIPLY:
    case FR_LAYER_BI_INTERACTION:
    case FR_LAYER_FM:
    case FR_LAYER_DOT_INTERACTION:
        ok = want_vectors(in) && want_one_width(in, op);
        out->width = layer->op == FR_LAYER_FM                ? 1
                     : layer->op == FR_LAYER_DOT_INTERACTION ? (uint64_t)in->n_refs * (in->n_refs - 1) / 2
                                                             : width / in->n_refs;
        break;
    case FR_LAYER_SUM:
        ok = in->refs[0].kind == FR_REF_LAYER ? want_sequences(in) : want_one_width(in, op);
        out->width = width / in->n_refs;
        break;
        FR_STEP_LAYERS(FR_KIND_CASE)
        ok = want_sequences(in);
        break;
    case FR_LAYER_CROSS:
        ok = want_vectors(in);
        *parameters = layer->depth * (width * (layer->rank > 0 ? 2 * (uint64_t)layer->rank : width) + width);
        break;
    case FR_LAYER_BIAS:
    case FR_LAYER_LAYER_NORM:
    case FR_LAYER_ACTIVATE:
    case FR_LAYER_DROPOUT:
    case FR_LAYER_STOP_GRADIENT:
        ok = want_vectors(in);
        *parameters = 2 * width; /* at most */
        break;
    case FR_LAYER_GRU:
        ok = want_sequences(in);
        *out = (struct fr_conf_shape){(uint32_t)last, true};
        *parameters = gru_parameters(width, last);
        break;
    case FR_LAYER_ATTENTION:
    case FR_LAYER_AUGRU:
    case FR_LAYER_MIXTURE:
        FR_CHECK(!"an operation with roles");
    }
    return ok;
}

static bool infer_attention(const struct inputs *query, const struct inputs *keys, const struct fr_conf_layer *layer,
                            struct fr_conf_shape *out, uint64_t *parameters)
{
    uint64_t q = total_width(query), k = total_width(keys);
    if (!want_vectors(query) || !want_sequences(keys))
        return false;
    *out = (struct fr_conf_shape){.width = (uint32_t)k};
    if (layer->op == FR_LAYER_AUGRU) {
        *parameters = gru_parameters(k, k) + k * q;
        return true;
    }
    if (q != k)
        return refuse(query, "has a query [%" PRIu64 "] and keys [T, %" PRIu64 "]; expected one width for attention", q,
                      k);
    *parameters = dense_parameters(layer, 4 * k) + layer->units[layer->n_units - 1] + 1;
    return true;
}

static bool infer_mixture(const struct inputs *gate, const struct inputs *experts, struct fr_conf_shape *out,
                          uint64_t *parameters)
{
    const struct fr_conf *conf = gate->loader->conf;
    const struct fr_conf_ref *ref = &experts->refs[0];
    if (experts->n_refs != 1)
        return refuse(gate, "reads %" PRIu32 " references as experts; expected one layer of the operation experts",
                      experts->n_refs);
    if (ref->kind != FR_REF_LAYER || conf->layers[ref->index].op != FR_LAYER_EXPERTS)
        return refuse(gate, "reads %s as experts; expected a layer of the operation experts",
                      describe(experts, 0).text);
    uint32_t count = conf->layers[ref->index].count;
    if (!want_vectors(gate))
        return false;
    *out = (struct fr_conf_shape){.width = conf->layers[ref->index].width / count};
    *parameters = total_width(gate) * count;
    return true;
}

/* Returns the most steps of a sample in the references' results; 1 for vectors. */
static uint32_t steps_of(const struct inputs *in, const struct totals *totals)
{
    uint32_t steps = 1;
    for (uint32_t r = 0; r < in->n_refs; r++) {
        const struct fr_conf_ref *ref = &in->refs[r];
        uint32_t own = ref->kind == FR_REF_LAYER      ? totals->steps[ref->index]
                       : ref->kind == FR_REF_SEQUENCE ? in->loader->conf->slots[ref->index].max_len
                                                      : 1;
        steps = own > steps ? own : steps;
    }
    return steps;
}

/* Returns the numbers inside a layer for a sample or step: results of its units, gates of
 * recurrences, products of attention, steps of a cross. */
static uint64_t inner_width(const struct fr_conf_layer *layer, uint64_t reads)
{
    uint64_t units = 0, factor = layer->op == FR_LAYER_GRU ? 6 : layer->op == FR_LAYER_EXPERTS ? layer->count : 1;
    for (uint32_t i = 0; i < layer->n_units; i++)
        units += layer->units[i];
    if (layer->op == FR_LAYER_ATTENTION || layer->op == FR_LAYER_AUGRU)
        units += 6 * reads;
    return units * factor + layer->depth * (reads + layer->rank);
}

static bool count_layer(const struct inputs *in, const struct fr_conf_layer *layer, struct fr_conf_shape out,
                        uint64_t parameters, struct totals *totals)
{
    uint64_t reads = total_width(in), steps = steps_of(in, totals);
    if (totals->parameters + parameters > PARAMETERS_MAX)
        return refuse(in, "brings the layers to more than %d parameters; expected fewer", PARAMETERS_MAX);
    uint64_t activations = steps * (reads + out.width + inner_width(layer, reads));
    if (totals->activations + activations > ACTIVATIONS_MAX)
        return refuse(in,
                      "brings the layers to more than %d numbers for a sample, sequences of max_len steps; expected "
                      "fewer or narrower layers, or a smaller max_len",
                      ACTIVATIONS_MAX);
    totals->parameters += parameters;
    totals->activations += activations;
    totals->steps[layer - in->loader->conf->layers] = out.is_sequence ? (uint32_t)steps : 1;
    return true;
}

static bool infer_layer(struct inputs *in, struct fr_conf_layer *layer, struct totals *totals)
{
    struct fr_conf_shape out = {0};
    uint64_t parameters = 0;
    bool ok;
    in->refs = layer->refs;
    in->n_refs = layer->n_refs;
    uint64_t reads = total_width(in);
    if (reads > WIDTH_MAX) /* before the products below */
        return refuse(in, "reads %" PRIu64 " numbers; expected at most %d", reads, WIDTH_MAX);
    if (fr_layer_rule(layer->op)->roles[0]) {
        struct inputs roles[FR_LAYER_ROLES] = {*in, *in};
        for (uint32_t r = 0; r < FR_LAYER_ROLES; r++) {
            roles[r].refs = layer->refs + layer->role_begin[r];
            roles[r].n_refs = layer->role_begin[r + 1] - layer->role_begin[r];
        }
        ok = layer->op == FR_LAYER_MIXTURE ? infer_mixture(&roles[0], &roles[1], &out, &parameters)
                                           : infer_attention(&roles[0], &roles[1], layer, &out, &parameters);
    } else {
        ok = infer_plain(in, layer, &out, &parameters);
    }
    if (!ok)
        return false;
    if (out.width > WIDTH_MAX)
        return refuse(in, "gives %" PRIu32 " numbers; expected at most %d", out.width, WIDTH_MAX);
    if (!count_layer(in, layer, out, parameters, totals))
        return false;
    struct fr_conf *conf = in->loader->conf;
    enum fr_optimizer_kind optimizer = layer->has_optimizer ? layer->optimizer.kind : conf->dense_optimizer.kind;
    uint32_t arrays = 1 + fr_dense_states(optimizer) + (conf->export_.average_half_life > 0);
    conf->dense_bytes += parameters * sizeof(float) * arrays;
    conf->dense_parameters += parameters;
    layer->width = out.width;
    layer->is_sequence = out.is_sequence;
    return true;
}

/* ---- tasks and losses ---- */

static bool is_known(const struct fr_conf_ref *refs, uint32_t n_refs, const bool *known)
{
    for (uint32_t r = 0; r < n_refs; r++) {
        if (refs[r].kind == FR_REF_LAYER && !known[refs[r].index])
            return false;
    }
    return true;
}

static void check_task(struct fr_loader *loader, const struct fr_conf_task *task)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_conf_layer *layer = &conf->layers[task->logit];
    if (layer->width == 1 && !layer->is_sequence)
        return;
    fr_refuse(loader, loader->ordered[task->logit]->node, "tasks",
              "the logit of task `%s` is layer `%s` of shape %s%" PRIu32 "]; expected [1]", task->name, layer->name,
              layer->is_sequence ? "[T, " : "[", layer->width);
}

static void check_loss(struct fr_loader *loader, uint32_t index)
{
    const struct fr_conf_loss *loss = &loader->conf->losses[index];
    const struct inputs in = {loader, loader->loss_drafts[index], "loss", loss->name, loss->refs, loss->n_refs};
    if (fr_aux_loss_reads_steps(loss->kind) ? want_sequences(&in) : want_vectors(&in))
        (void)want_one_width(&in, fr_aux_loss_text(loss->kind));
}

bool fr_shapes_infer(struct fr_loader *loader)
{
    struct fr_conf *conf = loader->conf;
    bool known[FR_LAYERS_MAX] = {false};
    struct totals totals = {0};
    size_t before = loader->problems.count;
    FR_CHECK(conf->n_layers <= FR_LAYERS_MAX);
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        struct fr_conf_layer *layer = &conf->layers[i];
        struct inputs in = {.loader = loader, .draft = loader->ordered[i], .what = "layer", .name = layer->name};
        known[i] = is_known(layer->refs, layer->n_refs, known) && infer_layer(&in, layer, &totals);
    }
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        if (conf->tasks[i].logit != FR_NO_INDEX && known[conf->tasks[i].logit])
            check_task(loader, &conf->tasks[i]);
    }
    for (uint32_t i = 0; i < conf->n_losses; i++) {
        if (is_known(conf->losses[i].refs, conf->losses[i].n_refs, known))
            check_loss(loader, i);
    }
    return loader->problems.count == before;
}
