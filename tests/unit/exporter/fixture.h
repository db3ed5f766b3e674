/* A small durable state for the exporter's tests: a temporary directory, settings of two tables,
 * epochs of a few rows. */
#ifndef EXPORTER_FIXTURE_H
#define EXPORTER_FIXTURE_H

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "durable/durable.h"
#include "exporter/delta.h"

enum { FIXTURE_PARTITIONS = 2, ROW_FLOATS = 5 };

struct fixture {
    char dir[FR_TEST_FOLDER];
    struct fr_codec_settings settings;
    struct fr_codec_table tables[2];
    struct fr_buffer head;
    uint64_t piece_max;        /* 0: 4096 */
    uint64_t journal_file_max; /* 0: 64 MiB */
    struct fr_durable *durable;
};

/* One epoch alone. */
static inline enum fr_status export_epoch(const struct fr_codec_settings *settings, const struct fr_epoch *epoch,
                                          fr_delta_sink *sink, void *self, uint64_t *saturated, struct fr_err *err)
{
    const struct fr_export_span one = {.epochs = epoch, .n = 1};
    return fr_export_span(settings, &one, sink, self, saturated, err);
}

static char fixture_cfg[] = "{\"tables\":[]}";

static inline void fixture_settings(struct fixture *f, const char *model)
{
    memset(f->tables, 0, sizeof(f->tables));
    for (int t = 0; t < 2; t++) {
        strcpy(f->tables[t].name, t ? "item" : "user");
        f->tables[t].n_parts = 1;
        strcpy(f->tables[t].parts[0].name, "v");
        f->tables[t].parts[0].dim = f->tables[t].value_floats = 2;
    }
    f->settings = (struct fr_codec_settings){.revision = FR_CODEC_REVISION,
                                             .np = FIXTURE_PARTITIONS,
                                             .quantize = FR_CODEC_F16,
                                             .piece_max = f->piece_max ? f->piece_max : 4096,
                                             .fp = 7,
                                             .kernel = "none",
                                             .cfg = fixture_cfg,
                                             .cfg_size = sizeof(fixture_cfg) - 1,
                                             .n_tables = 2,
                                             .tables = f->tables};
    snprintf(f->settings.model, sizeof(f->settings.model), "%s", model);
    fr_buffer_clear(&f->head);
    fr_codec_settings_encode(&f->settings, &f->head);
}

static inline int fixture_open(struct fixture *f, const char *model)
{
    struct fr_err err = {0};
    if (f->dir[0] == '\0')
        fr_test_folder(f->dir);
    fixture_settings(f, model);
    struct fr_durable_options options = {
        .dir = f->dir, .head = f->head.data, .head_size = f->head.size, .journal_file_max = f->journal_file_max};
    enum fr_status status = fr_durable_open(&options, &f->durable, &err);
    if (status != FR_OK)
        fprintf(stderr, "%s\n", err.text);
    return status;
}

static inline void fixture_remove_tree(const char *path)
{
    struct fr_buffer name = {0};
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        fr_buffer_clear(&name);
        fr_buffer_printf(&name, "%s/%s%c", path, entry->d_name, 0);
        fixture_remove_tree((const char *)name.data);
    }
    if (dir)
        closedir(dir);
    fr_buffer_release(&name);
    (void)remove(path);
}

static inline void fixture_close(struct fixture *f)
{
    fr_durable_close(f->durable);
    f->durable = NULL;
    if (f->dir[0])
        fixture_remove_tree(f->dir);
    f->dir[0] = '\0';
    fr_buffer_release(&f->head);
}

static inline void stage_image(struct fr_stage *stage, const struct fr_image *image, const void *bytes)
{
    uint8_t *to = fr_stage_image(stage, image);
    if (bytes)
        memcpy(to, bytes, image->size);
}

/* Row image: i64 seen, u64 show, f64 click, then floats: 2 values and 3 of optimizer state. */
static inline void stage_row(struct fr_stage *stage, uint32_t table, uint64_t key, float value)
{
    uint8_t bytes[24 + ROW_FLOATS * 4] = {0};
    float floats[ROW_FLOATS] = {value, value + 0.5f, 1e9f, 1e9f, 1e9f};
    memset(bytes, 0xee, 24);
    memcpy(bytes + 24, floats, sizeof(floats));
    stage_image(stage, &(struct fr_image){.key = key, .table = table, .size = sizeof(bytes), .kind = FR_IMAGE_ROW},
                bytes);
}

static inline void stage_absent(struct fr_stage *stage, uint32_t table, uint64_t key, uint8_t reason)
{
    stage_image(stage, &(struct fr_image){.key = key, .table = table, .kind = FR_IMAGE_ABSENT, .reason = reason}, NULL);
}

static inline void stage_sections(struct fr_stage *stage, int64_t wall_ms, bool model, bool dense)
{
    struct fr_announced_offset offsets[1] = {
        {.topic = "samples", .partition = 0, .next_offset = (int64_t)stage->epoch * 10}};
    struct fr_announcement *announcement = calloc(1, sizeof(*announcement));
    announcement->watermark_ms = 1700000000000;
    announcement->samples = stage->epoch * 100;
    announcement->wall_ms = wall_ms;
    announcement->publish_model = model;
    announcement->publish_dense = dense;
    announcement->n_tasks = 1;
    strcpy(announcement->tasks[0].task, "click");
    announcement->tasks[0].auc = NAN;
    announcement->n_offsets = 1;
    announcement->offsets = offsets;
    fr_announcement_encode(announcement, fr_stage_section(stage, "announce"));
    free(announcement);
    float kernel[4] = {1, 2, 3, 4}, bias[2] = {0.25f, -0.5f};
    struct fr_dense_view views[2] = {
        {.name = "h/kernel", .n_dims = 2, .shape = {2, 2}, .n_values = 4, .values = kernel},
        {.name = "h/bias", .n_dims = 1, .shape = {2, 1}, .n_values = 2, .values = bias, .exact = true}};
    for (size_t i = 0; i < 2; i++)
        fr_dense_stage(stage, &views[i]);
}

/* One epoch: `rows` rows of table 0, spread over the partitions. */
static inline enum fr_status fixture_append(struct fixture *f, int rows, int64_t wall_ms, struct fr_err *err)
{
    struct fr_durable_status status;
    fr_durable_get_status(f->durable, &status);
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage.epoch = status.epoch + 1;
    stage.timeline = status.timeline ? status.timeline : 1;
    for (int i = 0; i < rows; i++)
        stage_row(&stage, 0, fr_fmix64((uint64_t)i + 1), (float)stage.epoch);
    stage_sections(&stage, wall_ms, stage.epoch == 1, true);
    enum fr_status result = fr_durable_append(f->durable, &stage, NULL, NULL, err);
    fr_stage_release(&stage);
    return result;
}

#endif
