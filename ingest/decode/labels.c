/* Completes the labels of a sample after it has been read: derived labels, masks, and the role
 * that follows from them.
 *
 * A derived label has the number of its source, or with `min` 1 or 0. Its weight is that of its
 * source. `given` uses the value that a label has before any mask, so masks do not chain and
 * their order does not matter. A label must lie in [0,1] when a task with a log loss (logloss,
 * focal, a product of probabilities) reads it, directly or through derived labels without `min`.
 *
 * Determinism: a function of the sample alone. */
#include "parse.h"

static const float WEIGHT_MAX_DEFAULT = 1e4f;

/* Whether the task's loss is defined on [0,1] only. */
static bool needs_unit(const struct fr_conf_task *task)
{
    return task->n_prob > 0 || fr_loss_labels(task->loss) == FR_LABELS_UNIT;
}

static void add_derived(struct fr_decoder *d, uint32_t label, uint32_t *known)
{
    const struct fr_conf *conf = d->conf;
    int32_t of = conf->labels[label].of;
    FR_CHECK(of >= 0 && (uint32_t)of < conf->n_labels);
    if (!(*known & 1u << of))
        return; /* its source is not complete yet; a later round handles the label */
    uint32_t root = (uint32_t)of;
    for (uint32_t i = 0; i < d->n_derived; i++)
        if (d->derived[i].label == (uint32_t)of)
            root = d->derived[i].root;
    d->derived[d->n_derived++] = (struct fr_derived_label){label, root};
    *known |= 1u << label;
}

void fr_decode_labels_init(struct fr_decoder *d)
{
    const struct fr_conf *conf = d->conf;
    FR_CHECK(conf->n_labels <= FR_LABELS_MAX && conf->n_tasks <= FR_TASKS_MAX);
    FR_CHECK(conf->n_sample_labels <= conf->n_labels && (conf->n_sample_labels > 0 || conf->n_labels == 0));
    d->n_carried = conf->n_sample_labels;
    for (uint32_t l = 0; l < d->n_carried; l++) {
        d->label_keys[l].text = fr_conf_label_key(&conf->labels[l]);
        d->label_keys[l].size = strlen(d->label_keys[l].text);
    }
    d->weight_max = d->scoring                       ? __builtin_inff()
                    : conf->ingest.weight_max > 0.0f ? conf->ingest.weight_max
                                                     : WEIGHT_MAX_DEFAULT;
    uint32_t known = (1u << d->n_carried) - 1;
    for (uint32_t round = d->n_carried; round < conf->n_labels; round++)
        for (uint32_t l = d->n_carried; l < conf->n_labels; l++)
            if (!(known & 1u << l))
                add_derived(d, l, &known);
    FR_CHECK(d->n_carried + d->n_derived == conf->n_labels); /* the loader refuses circles */
    for (uint32_t l = 0; l < conf->n_labels; l++)
        d->masks |= conf->labels[l].given != FR_NO_INDEX;
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        FR_CHECK(conf->tasks[i].label >= 0 && (uint32_t)conf->tasks[i].label < conf->n_labels);
        d->task_labels |= 1u << conf->tasks[i].label;
        if (needs_unit(&conf->tasks[i]))
            d->unit_labels |= 1u << conf->tasks[i].label;
    }
    /* from the ends of chains to their sources, so that a need is passed on */
    for (uint32_t i = d->n_derived; i-- > 0;) {
        const struct fr_conf_label *label = &conf->labels[d->derived[i].label];
        if ((d->unit_labels & 1u << d->derived[i].label) && !label->has_min)
            d->unit_labels |= 1u << label->of;
    }
}

static void derive(const struct fr_decoder *d, float *labels, float *weights)
{
    const struct fr_conf_label *conf = d->conf->labels;
    for (uint32_t i = 0; i < d->n_derived; i++) {
        uint32_t l = d->derived[i].label;
        float source = labels[conf[l].of];
        if (conf[l].has_min && source == source)
            source = source >= conf[l].min ? 1.0f : 0.0f;
        labels[l] = source;
        weights[l] = weights[d->derived[i].root];
    }
    uint32_t masked = 0;
    for (uint32_t l = 0; d->masks && l < d->conf->n_labels; l++)
        if (conf[l].given != FR_NO_INDEX && labels[conf[l].given] != 1.0f)
            masked |= 1u << l;
    for (uint32_t l = 0; masked && l < d->conf->n_labels; l++)
        if (masked & 1u << l)
            labels[l] = __builtin_nanf("");
}

/* Refuses a weight that would outweigh all others, in training or in metrics that cover the
 * whole history. */
static inline enum fr_status check_weights(struct fr_decoder *d, uint32_t from, uint32_t i)
{
    const struct fr_staging *staging = &d->staging;
    const float *weights = staging->weights + (size_t)i * staging->n_labels;
    float keep = d->conf->ingest.sampling == FR_SAMPLING_NONE ? 1.0f : staging->keep[i];
    for (uint32_t l = 0; l < d->n_carried; l++) {
        if (__builtin_expect(weights[l] <= d->weight_max * keep, 1))
            continue;
        d->path.field = "w";
        d->path.entry = staging->n_samples - from > 1 ? (int64_t)(i - from) : -1;
        return fr_decode_fail(d, FR_E_INVALID,
                              "%s %.9g is above ingest.weight_max (%g); cut weights where they are made, or raise the "
                              "bound",
                              weights[l] > d->weight_max ? "weight" : "weight by keep rate (w / s)",
                              (double)(weights[l] > d->weight_max ? weights[l] : weights[l] / keep),
                              (double)d->weight_max);
    }
    return FR_OK;
}

enum fr_status fr_decode_finish(struct fr_decoder *d, uint32_t from, int64_t t_ms)
{
    struct fr_staging *staging = &d->staging;
    uint32_t n_labels = staging->n_labels;
    if (t_ms == 0 && d->timestamp_ms > 0)
        t_ms = d->timestamp_ms;
    for (uint32_t i = from; i < staging->n_samples; i++) {
        float *labels = staging->labels + (size_t)i * n_labels;
        if (staging->t_ms[i] == 0) {
            if (t_ms == 0 && !d->scoring)
                return fr_decode_no_time(d);
            staging->t_ms[i] = t_ms;
            /* The Kafka timestamp was not checked before. */
            enum fr_status status = fr_decode_check_clock(d, t_ms);
            if (status != FR_OK)
                return status;
        }
        enum fr_status status = check_weights(d, from, i);
        if (status != FR_OK)
            return status;
        if (d->n_derived || d->masks)
            derive(d, labels, staging->weights + (size_t)i * n_labels);
        bool present = false;
        for (uint32_t l = 0; l < n_labels; l++)
            present |= (d->task_labels >> l & 1) && labels[l] == labels[l];
        staging->role[i] = !present                         ? FR_ROLE_MASKED
                           : staging->use[i] & FR_USE_TRAIN ? FR_ROLE_TRAIN
                                                            : FR_ROLE_METRICS_ONLY;
    }
    return FR_OK;
}
