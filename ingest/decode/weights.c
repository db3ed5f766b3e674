/* Bounds of the weights that ids come with: one huge weight in a pooling by sum would undo what
 * was learned from all other samples. So would weights of both signs in a pooling by mean, if
 * their sum, the divisor, is nearly 0.
 *
 * The absolute weight of an id, including an id that a cross makes, is at most
 * ingest.weight_max. In a slot whose mean some layer reads, the weight of an id divided by the
 * sum of its entry's weights must not exceed this limit, either. Weights that add up to exactly
 * 0 have no mean: the entry is read as if it had no ids (ops/rows.c).
 *
 * When scoring there is no bound: a request is answered even if the trainer would have refused
 * its weights. */
#include "parse.h"

#include <float.h>

static bool takes_mean(const struct fr_conf_ref *refs, uint32_t n, uint32_t slot)
{
    for (uint32_t r = 0; r < n; r++)
        if (refs[r].kind == FR_REF_POOLED && refs[r].index == (int32_t)slot &&
            fr_pooling_scaling(refs[r].pooling) == FR_POOLED_BY_WEIGHTS)
            return true;
    return false;
}

void fr_decode_weights_init(struct fr_decoder *d)
{
    const struct fr_conf *conf = d->conf;
    for (uint32_t s = 0; s < conf->n_slots && !d->scoring; s++) {
        bool *mean = &d->staging.columns[s].mean;
        for (uint32_t l = 0; l < conf->n_layers; l++)
            *mean |= takes_mean(conf->layers[l].refs, conf->layers[l].n_refs, s);
        for (uint32_t l = 0; l < conf->n_losses; l++)
            *mean |= takes_mean(conf->losses[l].refs, conf->losses[l].n_refs, s);
    }
}

enum fr_status fr_decode_id_weight(struct fr_decoder *d, float weight)
{
    return fr_decode_fail(
        d, FR_E_INVALID,
        "weight %.9g of an id is beyond ingest.weight_max (%g); scale weights where they are made, or "
        "raise the bound",
        (double)weight, (double)d->weight_max);
}

enum fr_status fr_decode_check_mean(struct fr_decoder *d, uint32_t slot, const struct fr_stage_part *part,
                                    uint32_t entry)
{
    if (!d->staging.columns[slot].mean || !part->weighted)
        return FR_OK;
    float total = 0.0f, largest = 0.0f; /* added in the same order as in the trainer */
    for (uint32_t k = part->begin[entry]; k < part->begin[entry + 1]; k++) {
        total += part->weights[k];
        largest = __builtin_fmaxf(largest, __builtin_fabsf(part->weights[k]));
    }
    float size = __builtin_fabsf(total);
    if (size == 0.0f || (size >= FLT_MIN && (double)size * (double)d->weight_max >= (double)largest))
        return FR_OK;
    d->path.name = d->conf->slots[slot].name;
    return fr_decode_fail(d, FR_E_INVALID,
                          "weights of ids add up to %.9g, by which a mean divides: the largest, %.9g, would count more "
                          "than ingest.weight_max (%g) times; send weights of one sign, or pool by sum",
                          (double)total, (double)largest, (double)d->weight_max);
}
