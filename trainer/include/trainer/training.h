/* Section "training" of an epoch: the settings with which the model has been trained since that
 * epoch, and the changes so far. A state has no such section until the first change, because
 * training.json holds the settings it began with. The daemon writes the section with the first
 * epoch that was trained with the new settings, so after a kill a state has both or neither.
 *
 * Little-endian: u32 version, u32 size of the settings (fr_conf_training_json), settings, u64
 * forgotten changes, u32 changes; per change u64 epoch, i64 time (Unix ms; lockstep: the
 * watermark), u32 size of its text, text.
 *
 * Thread: any. */
#ifndef FR_TRAINER_TRAINING_H
#define FR_TRAINER_TRAINING_H

#include "base/buffer.h"
#include "base/status.h"

#define FR_SECTION_TRAINING "training"

enum { FR_TRAINING_CHANGES_MAX = 256 }; /* the newest are kept; older ones are only counted */

struct fr_training_change {
    uint64_t epoch; /* the first epoch trained with the change */
    int64_t time_ms;
    char *text; /* "network.optimizer.lr: 0.001 -> 0.002" */
};

/* A zeroed struct has no settings and no changes. */
struct fr_training {
    struct fr_buffer settings; /* NUL-terminated; the NUL is not counted in its size */
    uint64_t forgotten;
    uint32_t n;
    struct fr_training_change changes[FR_TRAINING_CHANGES_MAX];
};

void fr_trainer_training_add(struct fr_training *training, uint64_t epoch, int64_t time_ms, const char *text);
void fr_trainer_training_encode(const struct fr_training *training, struct fr_buffer *out);
/* FR_E_MISMATCH: the section has another version. FR_E_CORRUPT: the section does not parse. *out
 * must be zeroed before the call, and the caller releases it after success and failure alike. */
enum fr_status fr_trainer_training_parse(const uint8_t *bytes, size_t size, struct fr_training *out) FR_MUST_CHECK;
void fr_trainer_training_release(struct fr_training *training);

#endif
