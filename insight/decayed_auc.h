/* An AUC of decayed weights over few bins of the logit, for comparisons of scores of the same
 * samples. metrics/auc.h is finer, but takes 1.1 MB where this one takes 8 KiB, and importance
 * needs one for each slot and task. Scores closer than 1/16 in the logit are ties, which count one
 * half. Owner: the owner loop. */
#ifndef FR_INSIGHT_DECAYED_AUC_H
#define FR_INSIGHT_DECAYED_AUC_H

enum { FR_DECAYED_AUC_BINS = 512 };

struct fr_decayed_auc {
    double positives[FR_DECAYED_AUC_BINS], negatives[FR_DECAYED_AUC_BINS];
};

void fr_decayed_auc_decay(struct fr_decayed_auc *auc, double factor);
/* label in [0, 1]; the logit is finite. */
void fr_decayed_auc_add(struct fr_decayed_auc *auc, float logit, float label, double weight);
/* NaN: a class is empty. *weight: of all samples. */
double fr_decayed_auc_result(const struct fr_decayed_auc *auc, double *weight);

#endif
