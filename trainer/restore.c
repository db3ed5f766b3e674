/* The trainer's own sections and recovery from a durable state.
 *
 * Section "trainer" (little-endian): u32 version, u64 batches, samples, metrics_only, masked, quarantined_samples,
 * quarantined_batches, unknown_slots, unknown_extra, excess_ids, i64 watermark_ms, u8 closed, u32
 * quarantined_row, good_row, u8 held, u64 publishable. Anything that does not parse is FR_E_CORRUPT: a state is
 * restored whole or not at all. Owner thread (before its loop begins).
 */
#include "trainer_private.h"

#include <string.h>

enum { COUNTERS = 9 };

static uint64_t *const *counter_list(struct fr_trainer *trainer, uint64_t *list[COUNTERS])
{
    list[0] = &trainer->batches;
    list[1] = &trainer->samples;
    list[2] = &trainer->metrics_only;
    list[3] = &trainer->masked;
    list[4] = &trainer->quarantined_samples;
    list[5] = &trainer->quarantined_batches;
    list[6] = &trainer->unknown_slots;
    list[7] = &trainer->unknown_extra;
    list[8] = &trainer->excess_ids;
    return list;
}

void fr_trainer_stage_section(const struct fr_trainer *trainer, struct fr_buffer *out)
{
    uint64_t *list[COUNTERS];
    counter_list((struct fr_trainer *)(uintptr_t)trainer, list); /* read only here */
    fr_put_u32(out, FR_TRAINER_SECTION_VERSION);
    for (size_t i = 0; i < COUNTERS; i++)
        fr_put_u64(out, *list[i]);
    fr_put_u64(out, (uint64_t)trainer->watermark_ms);
    fr_put_u8(out, trainer->closed);
    fr_put_u32(out, trainer->quarantined_row);
    fr_put_u32(out, trainer->good_row);
    fr_put_u8(out, atomic_load(&trainer->held));
    fr_put_u64(out, trainer->publishable);
}

static enum fr_status parse_section(struct fr_trainer *trainer, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    if (fr_take_u32(&reader) != FR_TRAINER_SECTION_VERSION)
        return FR_E_CORRUPT;
    uint64_t *list[COUNTERS];
    counter_list(trainer, list);
    for (size_t i = 0; i < COUNTERS; i++)
        *list[i] = fr_take_u64(&reader);
    trainer->watermark_ms = (int64_t)fr_take_u64(&reader);
    trainer->closed = fr_take_u8(&reader) != 0;
    trainer->quarantined_row = fr_take_u32(&reader);
    trainer->good_row = fr_take_u32(&reader);
    atomic_store(&trainer->held, fr_take_u8(&reader) != 0);
    trainer->publishable = fr_take_u64(&reader);
    return reader.failed || reader.at != reader.end ? FR_E_CORRUPT : FR_OK;
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
