/* Losses of tasks, and auxiliary ones. */
#ifndef FR_VOCABULARY_LOSS_H
#define FR_VOCABULARY_LOSS_H

#include "vocabulary/kinds.h"

/* What a task's score is, made of its output z: sigmoid(z), measured by AUC and log loss, or z
 * itself, measured by the mean squared error. */
enum fr_prediction { FR_PREDICTS_PROBABILITY, FR_PREDICTS_VALUE };

/* What a loss is summed over. */
enum fr_loss_terms { FR_TRAINS_NOTHING, FR_TRAINS_SAMPLES, FR_TRAINS_PAIRS };

/* Labels for which a loss is defined. */
enum fr_label_range { FR_LABELS_ANY, FR_LABELS_UNIT }; /* any finite number; [0, 1] */

/* KIND(name, text, prediction, terms, labels, prior, product, options). prior: LOG_ODDS where the
 * bias of the logit may begin at the log-odds of the first labels (bias_from_labels), else NONE.
 * product: PRODUCT where a product of probabilities may have the loss, else SINGLE. options: the
 * group of the loss's numbers, as in {focal: {gamma: 2}}, or NULL. */
#define FR_TASK_LOSSES(KIND)                                                                                           \
    KIND(FR_LOSS_LOGLOSS, "logloss", PROBABILITY, SAMPLES, UNIT, LOG_ODDS, PRODUCT, NULL)                              \
    KIND(FR_LOSS_NONE, "none", PROBABILITY, NOTHING, ANY, NONE, PRODUCT, NULL) /* measured, not trained */             \
    KIND(FR_LOSS_MSE, "mse", VALUE, SAMPLES, ANY, NONE, SINGLE, NULL)          /* 1/2 (z - y)^2 */                     \
    /* Lin et al. 2017: -alpha (1-p)^gamma y log p - (1-alpha) p^gamma (1-y) log(1-p) */                               \
    KIND(FR_LOSS_FOCAL, "focal", PROBABILITY, SAMPLES, UNIT, LOG_ODDS, SINGLE, "tasks.*.loss.focal")                   \
    /* within a group: log(1 + exp(-(z_i - z_j))) over pairs y_i > y_j (Burges et al. 2005) */                         \
    KIND(FR_LOSS_PAIRWISE, "pairwise", PROBABILITY, PAIRS, ANY, NONE, SINGLE, NULL)

FR_KINDS(fr_task_loss, FR_TASK_LOSSES)

#define FR_LOSS_LOG_ODDS_PRIOR true
#define FR_LOSS_NONE_PRIOR false
#define FR_LOSS_PRODUCT_TASKS true
#define FR_LOSS_SINGLE_TASKS false
#define FR_LOSS_PREDICTION(name, text, prediction, terms, labels, prior, product, options)                             \
    case name:                                                                                                         \
        return FR_PREDICTS_##prediction;
#define FR_LOSS_TERMS(name, text, prediction, terms, labels, prior, product, options)                                  \
    case name:                                                                                                         \
        return FR_TRAINS_##terms;
#define FR_LOSS_LABELS(name, text, prediction, terms, labels, prior, product, options)                                 \
    case name:                                                                                                         \
        return FR_LABELS_##labels;
#define FR_LOSS_PRIOR(name, text, prediction, terms, labels, prior, product, options)                                  \
    case name:                                                                                                         \
        return FR_LOSS_##prior##_PRIOR;
#define FR_LOSS_PRODUCT(name, text, prediction, terms, labels, prior, product, options)                                \
    case name:                                                                                                         \
        return FR_LOSS_##product##_TASKS;
#define FR_LOSS_OPTIONS(name, text, prediction, terms, labels, prior, product, options)                                \
    case name:                                                                                                         \
        return options;
FR_KIND_COLUMN(enum fr_prediction, fr_loss_prediction, fr_task_loss, FR_TASK_LOSSES, FR_LOSS_PREDICTION)
FR_KIND_COLUMN(enum fr_loss_terms, fr_loss_terms, fr_task_loss, FR_TASK_LOSSES, FR_LOSS_TERMS)
FR_KIND_COLUMN(enum fr_label_range, fr_loss_labels, fr_task_loss, FR_TASK_LOSSES, FR_LOSS_LABELS)
FR_KIND_COLUMN(bool, fr_loss_has_prior, fr_task_loss, FR_TASK_LOSSES, FR_LOSS_PRIOR)
FR_KIND_COLUMN(bool, fr_loss_takes_product, fr_task_loss, FR_TASK_LOSSES, FR_LOSS_PRODUCT)
FR_KIND_COLUMN(const char *, fr_loss_options, fr_task_loss, FR_TASK_LOSSES, FR_LOSS_OPTIONS)

/* "`logloss`, `none`, .., `pairwise`" and then the literal `more`; "logloss, focal" and more, the
 * losses with a prior; "logloss or none", the losses of products. */
#define FR_LOSS_QUOTED(name, text, ...) ", `" text "`"
/* Two literals become one. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_TASK_LOSSES_AND(more) (&FR_TASK_LOSSES(FR_LOSS_QUOTED) more[2])
#define FR_LOSS_IF_LOG_ODDS(text) text
#define FR_LOSS_IF_NONE(text)
#define FR_LOSS_IF_PRODUCT(text) text
#define FR_LOSS_IF_SINGLE(text)
#define FR_LOSS_OF_PRIOR(name, text, prediction, terms, labels, prior, product, options) FR_LOSS_IF_##prior(", " text)
#define FR_LOSS_OF_PRODUCT(name, text, prediction, terms, labels, prior, product, options)                             \
    FR_LOSS_IF_##product(" or " text)
/* Two literals become one. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_PRIOR_LOSSES_AND(more) (&FR_TASK_LOSSES(FR_LOSS_OF_PRIOR) more[2])
#define FR_PRODUCT_LOSSES (&FR_TASK_LOSSES(FR_LOSS_OF_PRODUCT)[4])

/* KIND(name, text, refs, of steps): how many references it has, all of one width; of vectors they
 * are a list, of sequences a map of roles. */
#define FR_AUX_LOSSES(KIND)                                                                                            \
    KIND(FR_AUX_MSE, "mse", 2, false) /* a, b: 1/2 |a - b|^2 */                                                        \
    /* DIEN: states h, positives e, negatives n: logloss of h_t . e_{t+1} as 1 and h_t . n_{t+1} as */                 \
    /* 0, mean over steps */                                                                                           \
    KIND(FR_AUX_NEXT_STEP, "next_step", 3, true)

FR_KINDS(fr_aux_loss, FR_AUX_LOSSES)

#define FR_AUX_REFS(name, text, refs, steps)                                                                           \
    case name:                                                                                                         \
        return refs;
#define FR_AUX_STEPS(name, text, refs, steps)                                                                          \
    case name:                                                                                                         \
        return steps;
FR_KIND_COLUMN(unsigned, fr_aux_loss_refs, fr_aux_loss, FR_AUX_LOSSES, FR_AUX_REFS)
FR_KIND_COLUMN(bool, fr_aux_loss_reads_steps, fr_aux_loss, FR_AUX_LOSSES, FR_AUX_STEPS)

#endif
