/* The private dump: everything that determines what the daemon does next, exactly, as JSON Lines
 * that two runs compare by their hash (docs/commands.md, "freshet dump"; docs/architecture.md,
 * "Exactness").
 *
 *     {"table":"user","key":"17","seen_ms":..,"show":3,"click":1,"row":[values, then optimizer
 *     state]}
 *     {"table":"user","key":"18","pending":1,"seen_ms":..}           both by table name and key
 *     {"table":"user","block":"19","image":"0x.."}                   counters of a gate, likewise
 *     {"dense":"h/0/kernel","shape":[2,3],"values":[..]}, {"dense_state":"0x.."}; where a moving
 *     average is
 *     published, this too: "average":[..]
 *     {"position":{..}} by topic and partition, {"metrics":"click","half_life_ms":0,..} (0:
 *     lifetime;
 *     image: of all that is kept of the task, served scores and groups included)
 *     {"trainer":{..}}, {"store":"0x.."}, {"expiry":"0x.."} (when slices ran), {"hash":"0x.."}
 *
 * Left out, because runs over the same log may differ there: wall times, Kafka timestamps, the
 * cluster's id, timeline and epoch numbers, whether the run was drained.
 *
 * Thread: one. It does not quantize. */
#include "state/state_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "graph/graph.h"
#include "ingest/positions.h"
#include "state/state_sections.h"
#include "store/section.h"

enum { FLUSH_BYTES = 1 << 18 };

struct writer {
    int (*write)(void *self, const void *bytes, size_t size);
    void *self;
    struct fr_buffer lines;
    struct fr_xxh3_stream *hash;
    bool failed;
};

static void flush(struct writer *out)
{
    fr_xxh3_stream_update(out->hash, out->lines.data, out->lines.size);
    if (out->lines.size > 0 && !out->failed)
        out->failed = out->write(out->self, out->lines.data, out->lines.size) != 0;
    fr_buffer_clear(&out->lines);
}

static void put_floats(struct fr_buffer *out, const void *values, uint64_t count)
{
    fr_put_u8(out, '[');
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0)
            fr_put_u8(out, ',');
        fr_buffer_number(out, fr_load_f32((const uint8_t *)values + i * sizeof(float)));
    }
    fr_put_u8(out, ']');
}

static void put_double(struct fr_buffer *out, const char *name, double value)
{
    if (isfinite(value))
        fr_buffer_printf(out, ",\"%s\":%.17g", name, value);
    else
        fr_buffer_printf(out, ",\"%s\":null", name);
}

static void put_block(struct fr_buffer *line, const struct fr_tool_state *state, const struct fr_tool_state_key *key)
{
    fr_buffer_printf(line, "{\"table\":\"%s\",\"block\":\"%" PRIu64 "\",\"image\":\"0x%016" PRIx64 "\"}\n",
                     state->settings.tables[key->table - FR_BLOCK_TABLES].name, key->key,
                     fr_xxh3(key->bytes, key->size));
}

static void put_keys(struct writer *out, const struct fr_tool_state *state)
{
    struct fr_buffer *line = &out->lines;
    for (size_t i = 0; i < state->n_keys && !out->failed; i++) {
        const struct fr_tool_state_key *key = &state->keys[i];
        if (key->kind == FR_IMAGE_BLOCK) {
            put_block(line, state, key);
            continue;
        }
        fr_buffer_printf(line, "{\"table\":\"%s\",\"key\":\"%" PRIu64 "\",", state->settings.tables[key->table].name,
                         key->key);
        if (key->kind == FR_IMAGE_PENDING) {
            fr_buffer_printf(line, "\"pending\":%" PRIu32 ",\"seen_ms\":%" PRId64 "}\n", key->count, key->seen_ms);
        } else {
            struct fr_row_head head;
            memcpy(&head, key->bytes, sizeof(head));
            fr_buffer_printf(line,
                             "\"seen_ms\":%" PRId64 ",\"show\":%" PRIu64 ",\"click\":%.17g,\"row\":", head.seen_ms,
                             head.show, head.click);
            put_floats(line, key->bytes + FR_ROW_IMAGE_HEAD, (key->size - FR_ROW_IMAGE_HEAD) / sizeof(float));
            fr_buffer_append(line, "}\n", 2);
        }
        if (line->size >= FLUSH_BYTES)
            flush(out);
    }
}

/* Returns the trained values where the section of a parameter holds its published average and the
 * state holds the values; otherwise NULL. */
static const uint8_t *trained_values(const struct fr_tool_state *state, const struct fr_dense_view *view)
{
    char name[FR_SECTION_NAME_MAX];
    snprintf(name, sizeof(name), "dense_state/%s", view->name);
    const struct fr_buffer *section = fr_tool_state_find_section(state, name);
    return section ? fr_graph_trained_values(section->data, section->size, view->n_values) : NULL;
}

/* Writes the parameters by name, each with the optimizer's parts after it. */
static enum fr_status put_dense(struct writer *out, const struct fr_tool_state *state, struct fr_err *err)
{
    for (size_t i = 0; i < state->n_sections; i++) {
        const struct fr_tool_state_section *section = &state->sections[i];
        struct fr_dense_view view;
        if (!fr_is_dense_section(section->name))
            continue;
        enum fr_status status = fr_dense_parse(section->name, section->bytes.data, section->bytes.size, &view);
        if (status != FR_OK)
            return fr_err_set(err, status, "the section \"%s\" does not parse", section->name);
        fr_buffer_printf(&out->lines, "{\"dense\":\"%s\",\"shape\":[%" PRIu32, view.name, view.shape[0]);
        if (view.n_dims > 1)
            fr_buffer_printf(&out->lines, ",%" PRIu32, view.shape[1]);
        fr_buffer_append(&out->lines, "],\"values\":", 11);
        const uint8_t *trained = trained_values(state, &view);
        put_floats(&out->lines, trained ? (const void *)trained : view.values, view.n_values);
        if (trained) {
            fr_buffer_append(&out->lines, ",\"average\":", 11);
            put_floats(&out->lines, view.values, view.n_values);
        }
        fr_buffer_append(&out->lines, "}\n", 2);
    }
    struct fr_xxh3_stream *hash = fr_xxh3_stream_new();
    for (size_t i = 0; i < state->n_sections; i++)
        if (strncmp(state->sections[i].name, "dense_state", 11) == 0)
            fr_xxh3_stream_update(hash, state->sections[i].bytes.data, state->sections[i].bytes.size);
    fr_buffer_printf(&out->lines, "{\"dense_state\":\"0x%016" PRIx64 "\"}\n", fr_xxh3_stream_digest(hash));
    fr_xxh3_stream_free(hash);
    return FR_OK;
}

static int compare_positions(const void *left, const void *right)
{
    const struct fr_partition_position *a = left, *b = right;
    int topic = strcmp(a->topic, b->topic);
    return topic ? topic : (a->partition > b->partition) - (a->partition < b->partition);
}

static enum fr_status put_positions(struct writer *out, const struct fr_tool_state *state, struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, "positions");
    struct fr_positions positions = {0};
    if (!section || fr_positions_parse(section->data, section->size, &positions) != FR_OK)
        return fr_err_set(err, FR_E_CORRUPT, "the section \"positions\" is missing or does not parse");
    if (positions.count > 1)
        qsort(positions.partitions, positions.count, sizeof(*positions.partitions), compare_positions);
    for (uint32_t i = 0; i < positions.count; i++) {
        const struct fr_partition_position *p = &positions.partitions[i];
        fr_buffer_printf(&out->lines, "{\"position\":{\"topic\":");
        fr_buffer_json_text(&out->lines, p->topic); /* of a file: its path */
        fr_buffer_printf(&out->lines,
                         ",\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"item\":%" PRIu32
                         ",\"last_offset\":%" PRId64 ",\"last_crc32c\":%" PRIu32,
                         p->partition, p->offset, p->item, p->fingerprint_offset, p->fingerprint_crc32c);
        fr_positions_put_ledger(p, &out->lines);
        fr_buffer_printf(&out->lines, "}}\n");
    }
    fr_positions_release(&positions);
    return FR_OK;
}

static void put_result(struct fr_buffer *out, const struct fr_tool_metrics_task *task, int64_t half_life_ms,
                       const struct fr_auc_result *result)
{
    fr_buffer_printf(out, "{\"metrics\":\"%s\",\"half_life_ms\":%" PRId64, task->name, half_life_ms);
    put_double(out, "auc", result->auc);
    put_double(out, "logloss", result->logloss);
    put_double(out, "calibration", result->calibration);
    put_double(out, "positive_rate", result->positive_rate);
    put_double(out, "prediction_mean", result->prediction_mean);
    put_double(out, "mse", result->mse);
    put_double(out, "weight", result->weight);
    fr_buffer_printf(out, ",\"image\":\"0x%016" PRIx64 "\"}\n", task->image_hash);
}

static void put_task(void *self, const struct fr_tool_metrics_task *task)
{
    struct writer *out = self;
    const struct fr_task_result *result = &task->result;
    for (uint32_t i = 0; i < result->n_half_lives; i++)
        put_result(&out->lines, task, result->half_life_ms[i], &result->decayed[i]);
    put_result(&out->lines, task, 0, &result->lifetime);
}

static enum fr_status put_rest(struct writer *out, const struct fr_tool_state *state, struct fr_err *err)
{
    const struct fr_buffer *trainer = fr_tool_state_find_section(state, "trainer");
    const struct fr_buffer *store = fr_tool_state_find_section(state, "store");
    if (!trainer || !store)
        return fr_err_set(err, FR_E_CORRUPT, "the section \"trainer\" or \"store\" is missing");
    enum fr_status status = fr_tool_visit_metrics(state, put_task, out, err);
    struct fr_trainer_history counted;
    if (status == FR_OK)
        status = fr_tool_trainer_section(state, &counted, err);
    if (status != FR_OK)
        return status;
    fr_buffer_printf(&out->lines, "{\"trainer\":{");
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        fr_buffer_printf(&out->lines, "\"%s\":%" PRIu64 ",", fr_trainer_counters[i].name, counted.counters[i]);
    fr_buffer_printf(&out->lines,
                     "\"watermark_ms\":%" PRId64 ",\"quarantined_row\":%" PRIu32 ",\"good_row\":%" PRIu32
                     ",\"quarantined_row_samples\":%" PRIu32 ",\"held\":%s,\"tasks\":{",
                     counted.watermark_ms, counted.bad_streak, counted.good_streak, counted.bad_streak_samples,
                     counted.held ? "true" : "false");
    for (uint32_t i = 0; i < counted.n_tasks; i++)
        fr_buffer_printf(&out->lines, "%s\"%s\":{\"samples\":%" PRIu64 ",\"pairs\":%" PRIu64 "}", i ? "," : "",
                         counted.tasks[i].name, counted.tasks[i].samples, counted.tasks[i].pairs);
    fr_buffer_printf(&out->lines, "}}}\n");
    fr_buffer_printf(&out->lines, "{\"store\":\"0x%016" PRIx64 "\"}\n", fr_xxh3(store->data, store->size));
    const struct fr_buffer *expiry = fr_tool_state_find_section(state, FR_SECTION_EXPIRY);
    if (expiry)
        fr_buffer_printf(&out->lines, "{\"expiry\":\"0x%016" PRIx64 "\"}\n", fr_xxh3(expiry->data, expiry->size));
    return FR_OK;
}

enum fr_status fr_tool_state_dump_private(const struct fr_tool_state *state,
                                          int (*write)(void *self, const void *bytes, size_t size), void *self,
                                          struct fr_err *err)
{
    FR_CHECK(state->depth == FR_STATE_PRIVATE);
    struct writer out = {.write = write, .self = self, .hash = fr_xxh3_stream_new()};
    put_keys(&out, state);
    enum fr_status status = put_dense(&out, state, err);
    if (status == FR_OK)
        status = put_positions(&out, state, err);
    if (status == FR_OK)
        status = put_rest(&out, state, err);
    if (status == FR_OK) {
        flush(&out);
        fr_buffer_printf(&out.lines, "{\"hash\":\"0x%016" PRIx64 "\"}\n", fr_xxh3_stream_digest(out.hash));
        flush(&out);
        if (out.failed)
            status = FR_E_IO;
    }
    fr_buffer_release(&out.lines);
    fr_xxh3_stream_free(out.hash);
    return status;
}
