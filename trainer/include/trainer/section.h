/* Section "trainer" of an epoch: what the owner loop has counted and decided, as bytes. The loop
 * writes and restores it, tools print it.
 *
 * Little-endian: u32 version, u64 per counter in the order of their names, i64 watermark_ms, u8
 * closed, u32 quarantined_row, good_row, quarantined_row_samples, u8 held, u64 publishable, u8
 * dense_published, u32 number of tasks, per task u8 length of its name, name, u64 samples, pairs.
 * Thread: any. */
#ifndef FR_TRAINER_SECTION_H
#define FR_TRAINER_SECTION_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/status.h"
#include "conf/conf.h"

enum fr_trainer_counter {
    FR_TRAINER_BATCHES,
    FR_TRAINER_SAMPLES,
    FR_TRAINER_METRICS_ONLY,
    FR_TRAINER_MASKED,
    FR_TRAINER_QUARANTINED_SAMPLES,
    FR_TRAINER_QUARANTINED_BATCHES,
    FR_TRAINER_QUARANTINED_SINGLY,
    FR_TRAINER_UNKNOWN_SLOTS,
    FR_TRAINER_UNKNOWN_EXTRA,
    FR_TRAINER_EXCESS_IDS,
    FR_TRAINER_COUNTERS,
};
extern const char *const fr_trainer_counter_names[FR_TRAINER_COUNTERS];

/* What counted for a task: samples that were trained and have its label (pairwise: that stand in a
 * pair), and pairs. */
struct fr_trainer_task_counts {
    char name[FR_NAME_MAX];
    uint64_t samples, pairs;
};

struct fr_trainer_section {
    uint64_t counters[FR_TRAINER_COUNTERS];
    int64_t watermark_ms;               /* INT64_MIN: nothing trained yet */
    bool closed;                        /* the last epoch ended a drain and nothing followed */
    uint32_t quarantined_row, good_row; /* batches in a row */
    uint32_t quarantined_row_samples;
    bool held;            /* publishing waits for good batches */
    uint64_t publishable; /* newest epoch that may be published */
    /* this epoch and those before published every change of a dense parameter */
    bool dense_published;
    uint32_t n_tasks;
    struct fr_trainer_task_counts tasks[FR_TASKS_MAX];
};

void fr_trainer_section_encode(const struct fr_trainer_section *section, struct fr_buffer *out);
/* FR_E_MISMATCH: another version; FR_E_CORRUPT: does not parse. *out is written on success only. */
enum fr_status fr_trainer_section_parse(const uint8_t *bytes, size_t size,
                                        struct fr_trainer_section *out) FR_MUST_CHECK;

#endif
