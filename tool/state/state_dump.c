/* The dumps of a state directory, as JSON Lines, and its metrics as one document.
 *
 * The public dump equals byte for byte what a complete replica of the same epoch writes
 * (codec/dump.h). The writer applies the timeline's quantization to rows; dense parameters are
 * those last published.
 *
 * The private dump contains everything that determines what the daemon does next, exactly, so that
 * two runs can be compared by its hash (docs/commands.md, "freshet dump"; docs/architecture.md,
 * "Exactness").
 *
 *     {"table":"user","key":"17","seen_ms":..,"show":3,"click":1,"row":[..]}
 *     {"table":"user","key":"18","pending":1,"seen_ms":..}
 *     {"table":"user","block":"19","image":"0x.."}
 *     {"dense":"h/0/kernel","shape":[2,3],"values":[..]}
 *     {"dense_state":"0x.."}
 *     {"position":{..}}
 *     {"metrics":"click","half_life_ms":0,..,"image":"0x.."}
 *     {"trainer":{..}}
 *     {"store":"0x.."}
 *     {"expiry":"0x.."}
 *     {"hash":"0x.."}
 *
 * Keys come by table name and key, then the blocks of gates' counters in the same order, which in a
 * state of several domains is followed by the domain. "store" and "expiry" are hashes over all
 * domains. A row is its values, then the optimizer's state. Parameters come by name; where a moving
 * average is published, the line has "average":[..] too. Positions come by topic and partition. A
 * half-life of 0 is the whole lifetime, and the image is that of everything kept of the task,
 * served scores and groups included. "expiry" is there when slices have run.
 *
 * Left out, because runs over the same log may differ there: wall times, Kafka timestamps, the
 * cluster's id, timeline and epoch numbers, whether the run was drained.
 *
 * Thread: one. */
#include "state/state_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json.h"
#include "codec/dump.h"
#include "graph/graph.h"
#include "output.h"
#include "state/state_sections.h"
#include "store/section.h"

/* ---- the public dump ---- */

static enum fr_status dump_rows(const struct fr_tool_state *state, struct fr_dump *dump)
{
    struct fr_dump_segment segments[FR_CODEC_PARTS_MAX];
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < state->n_keys && status == FR_OK; i++) {
        const struct fr_tool_state_key *key = &state->keys[i];
        if (key->kind != FR_IMAGE_ROW)
            continue;
        const struct fr_codec_table *table = &state->settings.tables[key->table];
        const uint8_t *values = key->bytes + FR_ROW_IMAGE_HEAD;
        for (uint32_t p = 0; p < table->n_parts; p++) {
            segments[p] =
                (struct fr_dump_segment){.part = table->parts[p].name, .dim = table->parts[p].dim, .values = values};
            values += (size_t)table->parts[p].dim * sizeof(float);
        }
        status = fr_dump_row(dump, table->name, key->key, segments, table->n_parts);
    }
    return status;
}

static enum fr_status dump_dense(const struct fr_tool_state *state, struct fr_dump *dump)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < state->n_published && status == FR_OK; i++) {
        const struct fr_tool_state_section *section = &state->published[i];
        struct fr_dense_view view;
        status = fr_dense_parse(section->name, section->bytes.data, section->bytes.size, &view);
        struct fr_delta_dense dense = {.name = view.name,
                                       .n_dims = view.n_dims,
                                       .shape = {view.shape[0], view.shape[1]},
                                       .n_values = view.n_values,
                                       .values = view.values,
                                       .exact = view.exact};
        if (status == FR_OK)
            status = fr_dump_dense(dump, &dense);
    }
    return status;
}

enum fr_status fr_tool_state_dump_public(const struct fr_tool_state *state,
                                         int (*write)(void *self, const void *bytes, size_t size), void *self,
                                         struct fr_tool_state_summary *summary, struct fr_err *err)
{
    FR_CHECK(state->depth == FR_STATE_PUBLIC);
    if (!state->published_found)
        return fr_err_set(err, FR_E_NOT_FOUND,
                          "the journal no longer holds the dense parameters as they were last published: drain the "
                          "daemon (its last epoch publishes them), then ask again");
    struct fr_dump dump;
    uint64_t hash = 0;
    fr_dump_init(&dump, state->settings.quantize, write, self);
    enum fr_status status = dump_rows(state, &dump);
    if (status == FR_OK)
        status = dump_dense(state, &dump);
    struct fr_dump_end end = {.timeline = state->status.timeline,
                              .epoch = state->status.epoch,
                              .wm_ms = state->announcement.watermark_ms,
                              .samples = state->announcement.samples};
    if (status == FR_OK)
        status = fr_dump_end(&dump, &end, &hash);
    if (status == FR_OK && summary)
        *summary = (struct fr_tool_state_summary){.n_dense = dump.n_dense, .hash = hash};
    fr_dump_release(&dump);
    return status == FR_OK || status == FR_E_IO
               ? status
               : fr_err_set(err, status, "the state of epoch %" PRIu64 " cannot be dumped: %s", state->status.epoch,
                            fr_status_name(status));
}

/* ---- the private dump ---- */

struct private
{
    const struct fr_tool_state *state;
    struct fr_dump dump;
    struct fr_json json; /* writes into the dump's line */
    struct fr_err *err;
    enum fr_status status; /* status of the first failure, after which nothing more is written */
};

/* Ends the line that is being built. */
static void end_line(struct private *out)
{
    fr_json_end(&out->json);
    fr_put_u8(&out->dump.line, '\n');
    out->json = (struct fr_json){.out = &out->dump.line};
    enum fr_status status = fr_dump_line(&out->dump);
    if (out->status == FR_OK)
        out->status = status;
}

static void put_hash(struct private *out, const char *name, uint64_t hash)
{
    fr_json_object(&out->json, NULL);
    fr_json_hash(&out->json, name, hash);
    end_line(out);
}

static void put_key(struct private *out, const struct fr_tool_state_key *key)
{
    const struct fr_codec_table *tables = out->state->settings.tables;
    struct fr_json *json = &out->json;
    bool block = key->kind == FR_IMAGE_BLOCK;
    fr_json_object(json, NULL);
    fr_json_text(json, "table", tables[fr_subtable_table(key->table)].name);
    fr_json_id(json, block ? "block" : "key", key->key);
    if (block) {
        fr_json_hash(json, "image", fr_xxh3(key->bytes, key->size));
    } else if (key->kind == FR_IMAGE_PENDING) {
        fr_json_u64(json, "pending", key->count);
        fr_json_i64(json, "seen_ms", key->seen_ms);
    } else {
        struct fr_row_head head;
        memcpy(&head, key->bytes, sizeof(head));
        fr_json_i64(json, "seen_ms", head.seen_ms);
        fr_json_u64(json, "show", head.show);
        fr_json_exact(json, "click", head.click);
        fr_json_floats(json, "row", key->bytes + FR_ROW_IMAGE_HEAD, (key->size - FR_ROW_IMAGE_HEAD) / sizeof(float));
    }
    end_line(out);
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

static void put_parameter(struct private *out, const struct fr_tool_state_section *section)
{
    struct fr_json *json = &out->json;
    struct fr_dense_view view;
    out->status = fr_dense_parse(section->name, section->bytes.data, section->bytes.size, &view);
    if (out->status != FR_OK) {
        (void)!fr_err_set(out->err, out->status, "the section \"%s\" does not parse", section->name);
        return;
    }
    const uint8_t *trained = trained_values(out->state, &view);
    fr_json_object(json, NULL);
    fr_json_text(json, "dense", view.name);
    fr_json_array(json, "shape");
    for (uint32_t d = 0; d < view.n_dims; d++)
        fr_json_u64(json, NULL, view.shape[d]);
    fr_json_end(json);
    fr_json_floats(json, "values", trained ? (const void *)trained : view.values, view.n_values);
    if (trained)
        fr_json_floats(json, "average", view.values, view.n_values);
    end_line(out);
}

/* Writes the parameters by name, then the hash of what the optimizers keep of them. */
static void put_dense(struct private *out)
{
    struct fr_xxh3_stream *hash = fr_xxh3_stream_new();
    for (size_t i = 0; i < out->state->n_sections && out->status == FR_OK; i++) {
        const struct fr_tool_state_section *section = &out->state->sections[i];
        if (fr_is_dense_section(section->name))
            put_parameter(out, section);
        else if (strncmp(section->name, "dense_state", 11) == 0)
            fr_xxh3_stream_update(hash, section->bytes.data, section->bytes.size);
    }
    if (out->status == FR_OK)
        put_hash(out, "dense_state", fr_xxh3_stream_digest(hash));
    fr_xxh3_stream_free(hash);
}

static int compare_positions(const void *left, const void *right)
{
    const struct fr_partition_position *a = left, *b = right;
    int topic = strcmp(a->topic, b->topic);
    return topic ? topic : (a->partition > b->partition) - (a->partition < b->partition);
}

static void put_position(struct private *out, const struct fr_partition_position *p)
{
    struct fr_json *json = &out->json;
    fr_json_object(json, NULL);
    fr_json_object(json, "position");
    fr_json_text(json, "topic", p->topic); /* the topic of a file is its path */
    fr_json_i64(json, "partition", p->partition);
    fr_json_i64(json, "offset", p->offset);
    fr_json_u64(json, "item", p->item);
    fr_json_i64(json, "last_offset", p->fingerprint_offset);
    fr_json_u64(json, "last_crc32c", p->fingerprint_crc32c);
    fr_positions_put_ledger(p, json->out);
    fr_json_end(json);
    end_line(out);
}

static void put_positions(struct private *out)
{
    struct fr_positions positions = {0};
    out->status = fr_tool_positions_section(out->state, &positions, out->err);
    if (positions.count > 1)
        qsort(positions.partitions, positions.count, sizeof(*positions.partitions), compare_positions);
    for (uint32_t i = 0; i < positions.count && out->status == FR_OK; i++)
        put_position(out, &positions.partitions[i]);
    fr_positions_release(&positions);
}

static void put_result(struct private *out, const struct fr_tool_metrics_task *task, int64_t half_life_ms,
                       const struct fr_auc_result *result)
{
    struct fr_json *json = &out->json;
    fr_json_object(json, NULL);
    fr_json_text(json, "metrics", task->name);
    fr_json_i64(json, "half_life_ms", half_life_ms);
    fr_json_exact(json, "auc", result->auc);
    fr_json_exact(json, "logloss", result->logloss);
    fr_json_exact(json, "calibration", result->calibration);
    fr_json_exact(json, "positive_rate", result->positive_rate);
    fr_json_exact(json, "prediction_mean", result->prediction_mean);
    fr_json_exact(json, "mse", result->mse);
    fr_json_exact(json, "weight", result->weight);
    fr_json_hash(json, "image", task->image_hash);
    end_line(out);
}

static void put_task(void *self, const struct fr_tool_metrics_task *task)
{
    const struct fr_task_result *result = &task->result;
    for (uint32_t i = 0; i < result->n_half_lives; i++)
        put_result(self, task, result->half_life_ms[i], &result->decayed[i]);
    put_result(self, task, 0, &result->lifetime);
}

static void put_trainer(struct private *out)
{
    struct fr_json *json = &out->json;
    struct fr_trainer_history counted;
    out->status = fr_tool_trainer_section(out->state, &counted, out->err);
    if (out->status != FR_OK)
        return;
    fr_json_object(json, NULL);
    fr_json_object(json, "trainer");
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        fr_json_u64(json, fr_trainer_counters[i].name, counted.counters[i]);
    fr_json_i64(json, "watermark_ms", counted.watermark_ms);
    fr_json_u64(json, "quarantined_row", counted.bad_streak);
    fr_json_u64(json, "good_row", counted.good_streak);
    fr_json_u64(json, "quarantined_row_samples", counted.bad_streak_samples);
    fr_json_bool(json, "held", counted.held);
    fr_json_object(json, "tasks");
    for (uint32_t i = 0; i < counted.n_tasks; i++) {
        fr_json_object(json, counted.tasks[i].name);
        fr_json_u64(json, "samples", counted.tasks[i].samples);
        fr_json_u64(json, "pairs", counted.tasks[i].pairs);
        fr_json_end(json);
    }
    fr_json_end(json);
    fr_json_end(json);
    end_line(out);
}

static int compare_carried(const void *left, const void *right)
{
    const struct fr_carried_key *a = left, *b = right;
    if (a->table != b->table)
        return a->table < b->table ? -1 : 1;
    return (a->key > b->key) - (a->key < b->key);
}

/* If the sections of all domains are equal, because their sweeps stand at the same place, the hash
 * is that of one of them, as for a state of one domain. */
static void put_expiry(struct private *out)
{
    struct fr_xxh3_stream *hash = fr_xxh3_stream_new();
    const struct fr_buffer *first = NULL;
    bool equal = true;
    for (size_t i = 0; i < out->state->n_sections; i++) {
        const struct fr_tool_state_section *section = &out->state->sections[i];
        const struct fr_buffer *bytes = &section->bytes;
        uint32_t domain;
        if (!fr_store_section_is(section->name, FR_SECTION_EXPIRY, &domain))
            continue;
        first = first ? first : bytes;
        equal = equal && bytes->size == first->size && memcmp(bytes->data, first->data, bytes->size) == 0;
        fr_xxh3_stream_update(hash, section->name, strlen(section->name));
        fr_xxh3_stream_update(hash, bytes->data, bytes->size);
    }
    if (first)
        put_hash(out, "expiry", equal ? fr_xxh3(first->data, first->size) : fr_xxh3_stream_digest(hash));
    fr_xxh3_stream_free(hash);
}

/* The store's numbers, summed over the domains. */
static void put_store(struct private *out)
{
    struct fr_store_section store;
    struct fr_buffer bytes = {0};
    out->status = fr_tool_store_section(out->state, &store, out->err);
    if (out->status != FR_OK)
        return;
    for (size_t i = 0; i < store.n_carried; i++)
        store.carried[i].table = fr_subtable_table(store.carried[i].table);
    if (store.n_carried > 0)
        qsort(store.carried, store.n_carried, sizeof(*store.carried), compare_carried);
    fr_store_section_encode(&store, &bytes);
    put_hash(out, "store", fr_xxh3(bytes.data, bytes.size));
    put_expiry(out);
    fr_store_section_release(&store);
    fr_buffer_release(&bytes);
}

static void put_metrics(struct private *out)
{
    enum fr_status status = fr_tool_visit_metrics(out->state, put_task, out, out->err);
    if (out->status == FR_OK)
        out->status = status;
}

enum fr_status fr_tool_state_dump_private(const struct fr_tool_state *state,
                                          int (*write)(void *self, const void *bytes, size_t size), void *self,
                                          struct fr_err *err)
{
    static void (*const parts[])(struct private * out) = {put_dense, put_positions, put_metrics, put_trainer,
                                                          put_store};
    struct private out = {.state = state, .err = err};
    FR_CHECK(state->depth == FR_STATE_PRIVATE);
    fr_dump_init(&out.dump, FR_CODEC_F32, write, self);
    out.json.out = &out.dump.line;
    for (size_t i = 0; i < state->n_keys && out.status == FR_OK; i++)
        put_key(&out, &state->keys[i]);
    for (size_t i = 0; i < FR_ARRAY_LEN(parts) && out.status == FR_OK; i++)
        parts[i](&out);
    if (out.status == FR_OK)
        put_hash(&out, "hash", fr_xxh3_stream_digest(out.dump.hash));
    fr_dump_release(&out.dump);
    return out.status;
}

/* ---- the metrics, in the form of GET /auc ---- */

static void put_task_document(void *self, const struct fr_tool_metrics_task *task)
{
    const char *names[FR_AUC_HALF_LIVES_MAX];
    char texts[FR_AUC_HALF_LIVES_MAX][24];
    for (uint32_t i = 0; i < task->result.n_half_lives; i++) {
        fr_tool_duration_text(task->result.half_life_ms[i], texts[i]);
        names[i] = texts[i];
    }
    fr_task_result_json(self, task->name, &task->result, names);
}

static enum fr_status put_metrics_document(const struct fr_tool_state *state, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_trainer_history counted;
    enum fr_status status = fr_tool_trainer_section(state, &counted, err);
    if (status != FR_OK)
        return status;
    struct fr_json json = {.out = out};
    fr_json_object(&json, NULL);
    fr_json_text(&json, "model", state->settings.model);
    fr_json_u64(&json, "tl", state->status.timeline);
    fr_json_u64(&json, "epoch", state->status.epoch);
    if (counted.watermark_ms == INT64_MIN)
        fr_json_null(&json, "as_of_ms");
    else
        fr_json_i64(&json, "as_of_ms", counted.watermark_ms);
    fr_json_object(&json, "tasks");
    status = fr_tool_visit_metrics(state, put_task_document, &json, err);
    fr_json_end(&json);
    fr_json_end(&json);
    fr_put_u8(out, '\n');
    return status;
}

enum fr_status fr_tool_metrics_document(const char *dir, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_tool_state *state = NULL;
    enum fr_status status = fr_tool_state_open(dir, FR_STATE_SECTIONS, &state, err);
    if (status == FR_OK && state->status.epoch == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no epoch yet: it has no metrics", dir);
    if (status == FR_OK)
        status = put_metrics_document(state, out, err);
    fr_tool_state_close(state);
    return status;
}
