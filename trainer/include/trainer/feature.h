/* Questions about one id, asked from any thread and answered by the owner loop between two batches
 * (GET /feature).
 *
 * One question is open at a time. An asker waits at most the time that it passes in. A question
 * whose asker no longer waits stays open until the owner loop answers it, and until then further
 * askers are refused at once. So a loop that is busy or has ended holds up at most one asker, and
 * for that time only. */
#ifndef FR_TRAINER_FEATURE_H
#define FR_TRAINER_FEATURE_H

#include "trainer/trainer.h"

struct fr_feature_question {
    uint32_t slot; /* a slot with rows */
    uint64_t key;
};

struct fr_feature {
    struct fr_store_key key;
    int64_t watermark_ms; /* INT64_MIN: nothing is trained yet */
    uint32_t n_values;    /* of a row; else 0 */
    float values[FR_DIM_MAX * FR_PARTS_MAX];
    /* For each task, the logit of a sample that has this id alone minus that of a sample that has
     * nothing; valid if `contributes`: there is a row, and no device computes. */
    bool contributes;
    float contribution[FR_TASKS_MAX]; /* [n_tasks] */
};

/* FR_AGAIN: the owner loop did not answer within wait_ns, or another question is open. Any other
 * error is that of the cold store. Any thread. */
enum fr_status fr_trainer_feature(struct fr_trainer *trainer, const struct fr_feature_question *question,
                                  uint64_t wait_ns, struct fr_feature *out, struct fr_err *err) FR_MUST_CHECK;

#endif
