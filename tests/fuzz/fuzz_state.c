/* Fuzz target of what a state directory holds inside its checksums: epochs and every section of
 * them, settings of the journal's head, small files. Any bytes are parsed or refused; what is
 * parsed by the announcement, positions and settings encodes to the same bytes. Seeds are epochs of
 * our own encoders, and each of their sections (seeds.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "codec/codec.h"
#include "conf/conf.h"
#include "durable/epoch.h"
#include "fuzz.h"
#include "ingest/positions.h"
#include "metrics/task.h"
#include "store/section.h"
#include "trainer/section.h"

enum { NOW_MS = 1000, CARRIED_LOOKED_AT = 1000 };

static void check_same(struct fr_buffer *encoded, const uint8_t *bytes, size_t size)
{
    FR_CHECK(encoded->size == size && memcmp(encoded->data, bytes, size) == 0);
    fr_buffer_release(encoded);
}

static void announcement(const uint8_t *bytes, size_t size)
{
    struct fr_arena arena = {.block_size = 4096};
    static struct fr_announcement parsed;
    struct fr_buffer again = {0};
    if (fr_announcement_parse(bytes, size, &arena, &parsed) == FR_OK) {
        bool nan = false; /* one of many */
        for (uint32_t i = 0; i < parsed.n_tasks; i++)
            nan |= isnan(parsed.tasks[i].auc);
        fr_announcement_encode(&parsed, &again);
        if (nan)
            fr_buffer_release(&again);
        else
            check_same(&again, bytes, size);
    }
    fr_arena_release(&arena);
}

static void dense(const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_dense_view view;
    if (fr_dense_parse(name, bytes, size, &view) == FR_OK)
        fuzz_read(view.values, view.n_values * sizeof(float));
}

static void positions(const uint8_t *bytes, size_t size)
{
    struct fr_positions parsed = {0};
    struct fr_buffer again = {0};
    struct fr_err err = {0};
    if (fr_positions_parse(bytes, size, &parsed) != FR_OK)
        return;
    fr_positions_encode(&parsed, &again);
    check_same(&again, bytes, size);
    (void)!fr_positions_balanced(&parsed, &err);
    fr_positions_release(&parsed);
}

static void task_metrics(const uint8_t *bytes, size_t size)
{
    static const struct fr_task_metrics_options options = {
        .n_half_lives = 2, .half_life_ms = {300000, 3600000}, .gauc_groups_max = 100};
    float score = 0.1f, label = 1, weight = 1;
    uint8_t use = 3;
    int64_t t = NOW_MS;
    uint32_t group_begin[2] = {0, 1};
    uint64_t group_key = 7;
    struct fr_task_result result;
    struct fr_task_metrics *metrics = fr_task_metrics_new(&options);
    if (fr_task_metrics_parse(metrics, bytes, size, NOW_MS) == FR_OK) {
        fr_task_metrics_result(metrics, &result);
        fr_task_metrics_add(metrics, &(struct fr_task_samples){.count = 1,
                                                               .scores = &score,
                                                               .labels = &label,
                                                               .weights = &weight,
                                                               .use = &use,
                                                               .t_ms = &t,
                                                               .watermark_ms = NOW_MS,
                                                               .group_begin = group_begin,
                                                               .group_keys = &group_key});
        fr_task_metrics_result(metrics, &result);
    }
    fr_task_metrics_free(metrics);
    (void)!fr_task_metrics_read(bytes, size, NOW_MS, &result);
}

static void section(const char *name, const uint8_t *data, size_t size)
{
    uint8_t *bytes = fuzz_copy(data, size, 0);
    struct fr_trainer_history history;
    struct fr_metrics_section metrics;
    struct fr_store_section store = {0};
    announcement(bytes, size);
    dense(name, bytes, size);
    positions(bytes, size);
    task_metrics(bytes, size);
    (void)!fr_trainer_section_parse(bytes, size, &history);
    (void)!fr_metrics_section_parse(bytes, size, &metrics);
    if (fr_store_section_parse(bytes, size, &store) == FR_OK)
        fr_store_section_release(&store);
    free(bytes);
}

static void settings(const uint8_t *data, size_t size)
{
    struct fr_codec_settings parsed = {0};
    struct fr_buffer again = {0};
    uint8_t *bytes = fuzz_copy(data, size, sizeof(uint32_t));
    uint32_t crc = fr_crc32c(0, data, size);
    memcpy(bytes + size, &crc, sizeof(crc));
    if (fr_codec_settings_parse(bytes, size + sizeof(crc), &parsed) == FR_OK) {
        fr_codec_settings_encode(&parsed, &again);
        check_same(&again, bytes, size + sizeof(crc));
        fr_codec_settings_release(&parsed);
    }
    free(bytes);
}

/* A small file that says something else than the configuration. */
static void small_file(const uint8_t *data, size_t size)
{
    static const char now[] = "{\"layers\":[{\"name\":\"x\"}],\"slots\":[1,2.5,\"a\"],\"version\":1}";
    static struct fr_conf_changes changes;
    struct fr_err err = {0};
    char *text = (char *)fuzz_copy(data, size, 1);
    text[size] = '\0';
    changes = (struct fr_conf_changes){0};
    (void)!fr_conf_compare_models(text, now, &changes, &err);
    (void)!fr_conf_compare_training(text, now, &changes, &err);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fr_epoch epoch;
    struct fr_image image;
    char name[FR_SECTION_NAME_MAX];
    const uint8_t *at = NULL, *bytes;
    size_t n;
    settings(data, size);
    small_file(data, size);
    section(FR_SECTION_DENSE "z/kernel", data, size);
    uint8_t *copy = fuzz_copy(data, size, 0);
    if (fr_epoch_parse(copy, size, &epoch) == FR_OK) {
        while (fr_epoch_next(&epoch, &at, &image) == FR_OK)
            fuzz_read(image.bytes, image.size);
        at = NULL;
        while (fr_epoch_next_section(&epoch, &at, name, &bytes, &n) == FR_OK)
            section(name, bytes, n);
    }
    free(copy);
    return 0;
}
