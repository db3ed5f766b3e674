/* See decayed_auc.h. */
#include "decayed_auc.h"

#include <math.h>

#define BINS_PER_LOGIT 16.0f

void fr_decayed_auc_decay(struct fr_decayed_auc *auc, double factor)
{
    for (int b = 0; b < FR_DECAYED_AUC_BINS; b++) {
        auc->positives[b] *= factor;
        auc->negatives[b] *= factor;
    }
}

void fr_decayed_auc_add(struct fr_decayed_auc *auc, float logit, float label, double weight)
{
    float at = logit * BINS_PER_LOGIT + (float)FR_DECAYED_AUC_BINS / 2;
    int bin = at <= 0.0f ? 0 : at >= (float)(FR_DECAYED_AUC_BINS - 1) ? FR_DECAYED_AUC_BINS - 1 : (int)at;
    auc->positives[bin] += weight * (double)label;
    auc->negatives[bin] += weight * (1.0 - (double)label);
}

double fr_decayed_auc_result(const struct fr_decayed_auc *auc, double *weight)
{
    double below = 0.0, positives = 0.0, sum = 0.0;
    for (int b = 0; b < FR_DECAYED_AUC_BINS; b++) {
        sum += auc->positives[b] * (below + auc->negatives[b] / 2);
        below += auc->negatives[b];
        positives += auc->positives[b];
    }
    *weight = positives + below;
    return positives > 0.0 && below > 0.0 ? sum / (positives * below) : (double)NAN;
}
