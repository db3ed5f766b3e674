/* The trainer's own sections and recovery from a durable state.
 *
 * Section "trainer": trainer/section.h. Anything that does not parse is FR_E_CORRUPT: a state is
 * restored whole or not at all. Owner thread (before its loop begins).
 */
#include "trainer_private.h"

#include <string.h>

#include "trainer/section.h"

void fr_trainer_stage_section(const struct fr_trainer *trainer, struct fr_buffer *out)
{
    struct fr_trainer_section section = {
        .counters = {[FR_TRAINER_BATCHES] = trainer->batches,
                     [FR_TRAINER_SAMPLES] = trainer->samples,
                     [FR_TRAINER_METRICS_ONLY] = trainer->metrics_only,
                     [FR_TRAINER_MASKED] = trainer->masked,
                     [FR_TRAINER_QUARANTINED_SAMPLES] = trainer->quarantined_samples,
                     [FR_TRAINER_QUARANTINED_BATCHES] = trainer->quarantined_batches,
                     [FR_TRAINER_UNKNOWN_SLOTS] = trainer->unknown_slots,
                     [FR_TRAINER_UNKNOWN_EXTRA] = trainer->unknown_extra,
                     [FR_TRAINER_EXCESS_IDS] = trainer->excess_ids},
        .watermark_ms = trainer->watermark_ms,
        .closed = trainer->closed,
        .quarantined_row = trainer->quarantined_row,
        .good_row = trainer->good_row,
        .held = atomic_load(&trainer->held),
        .publishable = trainer->publishable,
    };
    fr_trainer_section_encode(&section, out);
}

static enum fr_status parse_section(struct fr_trainer *trainer, const uint8_t *bytes, size_t size)
{
    struct fr_trainer_section section;
    enum fr_status status = fr_trainer_section_parse(bytes, size, &section);
    if (status != FR_OK)
        return status;
    trainer->batches = section.counters[FR_TRAINER_BATCHES];
    trainer->samples = section.counters[FR_TRAINER_SAMPLES];
    trainer->metrics_only = section.counters[FR_TRAINER_METRICS_ONLY];
    trainer->masked = section.counters[FR_TRAINER_MASKED];
    trainer->quarantined_samples = section.counters[FR_TRAINER_QUARANTINED_SAMPLES];
    trainer->quarantined_batches = section.counters[FR_TRAINER_QUARANTINED_BATCHES];
    trainer->unknown_slots = section.counters[FR_TRAINER_UNKNOWN_SLOTS];
    trainer->unknown_extra = section.counters[FR_TRAINER_UNKNOWN_EXTRA];
    trainer->excess_ids = section.counters[FR_TRAINER_EXCESS_IDS];
    trainer->watermark_ms = section.watermark_ms;
    trainer->closed = section.closed;
    trainer->quarantined_row = section.quarantined_row;
    trainer->good_row = section.good_row;
    atomic_store(&trainer->held, section.held);
    trainer->publishable = section.publishable;
    return FR_OK;
}

static enum fr_status parse_dense(struct fr_trainer *trainer, const uint8_t *bytes, size_t size)
{
    struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    size_t count = fr_graph_parameter_count(trainer->graph);
    const uint8_t *at = NULL;
    struct fr_dense_view view;
    enum fr_status status;
    size_t i = 0;
    for (; (status = fr_dense_next(bytes, size, &at, &view)) == FR_OK; i++) {
        if (i >= count || strcmp(parameters[i].name, view.name) != 0 || parameters[i].n_values != view.n_values)
            return FR_E_MISMATCH;
        memcpy(parameters[i].values, view.values, view.n_values * sizeof(float));
    }
    if (status != FR_EOF)
        return FR_E_CORRUPT;
    return i == count ? FR_OK : FR_E_MISMATCH;
}

struct restoring {
    struct fr_trainer *trainer;
    fr_section_restore *other;
    void *other_self;
    void (*progress)(void *self, uint64_t done, uint64_t total);
};

static enum fr_status restore_image(void *self, const struct fr_image *image)
{
    struct restoring *restoring = self;
    return fr_store_restore_image(restoring->trainer->store, image);
}

static enum fr_status restore_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct restoring *restoring = self;
    struct fr_trainer *trainer = restoring->trainer;
    if (strcmp(name, "store") == 0)
        return fr_store_restore_section(trainer->store, bytes, size);
    if (strcmp(name, "trainer") == 0)
        return parse_section(trainer, bytes, size);
    if (strcmp(name, "metrics") == 0)
        return fr_trainer_parse_metrics(trainer, bytes, size);
    if (strcmp(name, "dense") == 0)
        return parse_dense(trainer, bytes, size);
    if (strcmp(name, "dense_state") == 0)
        return fr_graph_restore_state(trainer->graph, bytes, size);
    if (strcmp(name, "announce") == 0)
        return FR_OK; /* the publisher's */
    if (restoring->other)
        return restoring->other(restoring->other_self, name, bytes, size);
    return FR_OK;
}

static void restore_progress(void *self, uint64_t done, uint64_t total)
{
    struct restoring *restoring = self;
    if (restoring->progress)
        restoring->progress(restoring->other_self, done, total);
}

enum fr_status fr_trainer_restore(struct fr_trainer *trainer, struct fr_durable *durable, fr_section_restore *other,
                                  void *self, void (*progress)(void *self, uint64_t done, uint64_t total),
                                  struct fr_err *err)
{
    struct fr_durable_status durable_status;
    fr_durable_get_status(durable, &durable_status);
    if (durable_status.epoch == 0)
        return FR_OK;
    struct restoring restoring = {.trainer = trainer, .other = other, .other_self = self, .progress = progress};
    struct fr_restore_visitor visitor = {
        .self = &restoring, .image = restore_image, .section = restore_section, .progress = restore_progress};
    enum fr_status status = fr_durable_restore(durable, &visitor, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "restoring the state of epoch %llu", (unsigned long long)durable_status.epoch);
    trainer->epoch = durable_status.epoch;
    trainer->timeline = durable_status.timeline;
    fr_trainer_publish_status(trainer);
    return FR_OK;
}
