/* The history of a model: everything that the owner loop has counted and decided. Section "trainer"
 * of an epoch holds the history as bytes. There is one struct for it, which the loop writes and
 * restores, the trainer's status shows, and tools print.
 *
 * Little-endian: u32 version, u64 per counter in the order of the list, i64 watermark_ms, u8
 * closed, u32 bad_streak, good_streak, bad_streak_samples, u8 held, u64 publishable, u8
 * dense_published, u32 number of tasks, per task u8 length of its name, name, u64 samples, pairs.
 *
 * Thread: any. */
#ifndef FR_TRAINER_SECTION_H
#define FR_TRAINER_SECTION_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/status.h"
#include "conf/conf.h"

#define FR_SECTION_TRAINER "trainer"

/* The counters of a history: name, metric, the metric's help text. A new counter needs one line
 * here and a new version of the section. */
#define FR_TRAINER_COUNTERS(COUNTER)                                                                                   \
    COUNTER(batches, "freshet_batches_total", "Batches trained in this history.")                                      \
    COUNTER(samples, "freshet_samples_trained_total", "Samples trained in this history.")                              \
    COUNTER(metrics_only, "freshet_samples_metrics_only_total", "Samples used for metrics only in this history.")      \
    COUNTER(masked, "freshet_samples_masked_total", "Samples without a label that a task uses, in this history.")      \
    COUNTER(quarantined_samples, "freshet_samples_quarantined_total",                                                  \
            "Samples left out of training in this history because numbers were not finite.")                           \
    COUNTER(quarantined_batches, "freshet_batches_quarantined_total",                                                  \
            "Batches of this history of which nothing took effect because numbers were not finite.")                   \
    COUNTER(quarantined_singly, "freshet_samples_quarantined_singly_total",                                            \
            "Samples left out in this history because numbers were not finite, while their batch took effect.")        \
    COUNTER(unknown_slots, "freshet_unknown_slots_total",                                                              \
            "Values of slots that the configuration does not have, ignored in this history.")                          \
    COUNTER(unknown_keys, "freshet_unknown_keys_total",                                                                \
            "Other keys of samples that the configuration does not have, x_ ones too, ignored in this history.")       \
    COUNTER(excess_ids, "freshet_excess_ids_total", "Ids beyond max_ids or max_len, ignored in this history.")

/* One term of the sum below. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_TRAINER_COUNTER_ONE(name, metric, help) +1
enum { FR_TRAINER_COUNTER_COUNT = FR_TRAINER_COUNTERS(FR_TRAINER_COUNTER_ONE) };

struct fr_trainer_counter {
    const char *name, *metric, *help;
};
extern const struct fr_trainer_counter fr_trainer_counters[FR_TRAINER_COUNTER_COUNT];

/* What counted for one task: the number of trained samples that have its label (for a pairwise
 * loss: that are part of a pair), and the number of pairs. */
struct fr_trainer_task_counts {
    char name[FR_NAME_MAX];
    uint64_t samples, pairs;
};

struct fr_trainer_history {
    union {
        struct {
#define FR_TRAINER_COUNTER_MEMBER(name, metric, help) uint64_t name;
            FR_TRAINER_COUNTERS(FR_TRAINER_COUNTER_MEMBER)
        };
        uint64_t counters[FR_TRAINER_COUNTER_COUNT];
    };
    int64_t watermark_ms; /* INT64_MIN: nothing has been trained yet */
    bool closed;          /* the last epoch ended a drain and no epoch followed it */
    /* The number of consecutive batches in which nothing could be trained although something should
     * have been (bad), or in which something was trained (good). A batch of one kind resets the
     * counter of the other. Both stop at FR_QUARANTINE_STREAK_MAX. */
    uint32_t bad_streak, good_streak;
    uint32_t bad_streak_samples; /* samples of the bad streak; stops at FR_QUARANTINE_SAMPLES_MIN */
    bool held;                   /* publishing is held until enough good batches follow */
    uint64_t publishable;        /* the newest epoch cut while publishing was not held */
    /* every change of a dense parameter up to this epoch has been published */
    bool dense_published;
    uint32_t n_tasks;
    struct fr_trainer_task_counts tasks[FR_TASKS_MAX];
};
_Static_assert(offsetof(struct fr_trainer_history, watermark_ms) == FR_TRAINER_COUNTER_COUNT * sizeof(uint64_t),
               "a member a counter");

void fr_trainer_section_encode(const struct fr_trainer_history *history, struct fr_buffer *out);
/* FR_E_MISMATCH: the section has another version. FR_E_CORRUPT: the section does not parse. *out is
 * written on success only. */
enum fr_status fr_trainer_section_parse(const uint8_t *bytes, size_t size,
                                        struct fr_trainer_history *out) FR_MUST_CHECK;

#endif
