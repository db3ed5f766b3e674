/* `freshet row`: what is stored for one id: its key, its table, and either the row, the gate's
 * count or nothing, from a state directory or as a topic serves it. Read-only.
 *
 * Thread: one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "decode/decoder.h"
#include "output.h"
#include "score/served.h"
#include "state/state_reader.h"
#include "store/section.h"
#include "tool.h"

static const char usage[] =
    "freshet row --slot S --id ID --state-dir DIR\n"
    "freshet row --slot S --id ID --config FILE --brokers B --topic T [--kafka-file FILE] [--kafka NAME=VALUE]..\n\n"
    "One JSON object: the key that samples with this id in this slot look up, its table, and what is there.\n"
    "Of a state: \"row\" with exact values, optimizer state, seen_ms, show and click; \"pending\" with the count of its\n"
    "gate; \"absent\" while a removal is not folded; or \"none\": never seen, not remembered by its gate, or gone.\n"
    "Of a topic: the values a replica serves, or \"none\".\n"
    "  --table T --key K   instead of slot and id: a key, as `freshet dump` prints it\n"
    "Exit 0 also when there is none.\n";

struct question {
    const char *slot, *id, *table_name, *key_text;
    struct fr_tool_state_choice at; /* what slot and id, or table and key, lead to in the model */
    /* configuration of the state, or the loaded one; owned by the command */
    struct fr_conf *conf;
};

/* ---- the key ---- */

static enum fr_status find_key(const struct fr_conf *conf, struct question *q, struct fr_err *err)
{
    for (uint32_t t = 0; t < conf->n_tables && q->table_name; t++)
        if (strcmp(conf->tables[t].name, q->table_name) == 0) {
            q->at.table = t;
            return FR_OK;
        }
    if (q->table_name)
        return fr_err_set(err, FR_E_INVALID, "the model has no table %s", q->table_name);
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        if (strcmp(slot->name, q->slot) != 0)
            continue;
        if (fr_slot_has_numbers(slot->kind) || slot->source != FR_SOURCE_SAMPLE)
            return fr_err_set(err, FR_E_INVALID, "slot %s has no ids of its own: it is %s", q->slot,
                              fr_slot_has_numbers(slot->kind) ? "dense" : "computed from others");
        q->at.table = (uint32_t)slot->table;
        q->at.key = fr_key_text(q->id, slot);
        return FR_OK;
    }
    return fr_err_set(err, FR_E_INVALID, "the model has no slot %s", q->slot);
}

/* ---- what is printed ---- */

static void put_question(const struct question *q, const struct fr_conf *conf, struct fr_json *json)
{
    fr_json_object(json, NULL);
    if (q->slot) {
        fr_json_text(json, "slot", q->slot);
        fr_json_text(json, "id", q->id);
    }
    fr_json_text(json, "table", conf->tables[q->at.table].name);
    fr_json_id(json, "key", q->at.key);
}

static void put_epoch(uint64_t timeline, uint64_t epoch, struct fr_json *json)
{
    fr_json_u64(json, "tl", timeline);
    fr_json_u64(json, "epoch", epoch);
}

/* ---- a state ---- */

/* Writes a row. The reader has checked that its image has all parts. */
static void put_row(const struct fr_tool_state_key *key, const struct fr_conf_table *table, struct fr_json *json)
{
    const uint8_t *at = key->bytes + FR_ROW_IMAGE_HEAD, *end = key->bytes + key->size;
    struct fr_row_head head;
    memcpy(&head, key->bytes, sizeof(head));
    fr_json_text(json, "state", "row");
    fr_json_i64(json, "seen_ms", head.seen_ms);
    fr_json_u64(json, "show", head.show);
    fr_json_exact(json, "click", head.click);
    fr_json_object(json, "parts");
    for (uint32_t p = 0; p < table->n_parts; at += table->parts[p++].dim * sizeof(float))
        fr_json_floats(json, table->parts[p].name, at, table->parts[p].dim);
    fr_json_end(json);
    fr_json_floats(json, "optimizer", at, (size_t)(end - at) / sizeof(float));
}

static void put_found(const struct fr_tool_state *state, const struct fr_conf *conf, struct fr_json *json)
{
    const struct fr_tool_state_key *key = state->n_keys > 0 ? &state->keys[0] : NULL;
    if (!key) {
        fr_json_text(json, "state", "none");
    } else if (key->kind == FR_IMAGE_ROW) {
        put_row(key, &conf->tables[key->table], json);
    } else if (key->kind == FR_IMAGE_PENDING) {
        fr_json_text(json, "state", "pending");
        fr_json_u64(json, "count", key->count);
        fr_json_i64(json, "seen_ms", key->seen_ms);
    } else {
        fr_json_text(json, "state", "absent");
        fr_json_text(json, "why", fr_absent_reason_text((enum fr_absent_reason)(key->reason % FR_ABSENT_REASONS)));
    }
}

static enum fr_status choose_key(void *self, const struct fr_codec_settings *settings, struct fr_tool_state_choice *out,
                                 struct fr_err *err)
{
    struct question *q = self;
    enum fr_status status = fr_conf_model_parse(settings->cfg, settings->cfg_size, &q->conf, err);
    if (status == FR_OK)
        status = find_key(q->conf, q, err);
    *out = q->at;
    return status;
}

static enum fr_status row_of_state(struct question *q, const char *dir, struct fr_json *json, struct fr_err *err)
{
    struct fr_tool_state *state = NULL;
    enum fr_status status = fr_tool_state_open_key(dir, choose_key, q, &state, err);
    if (status == FR_OK && state->status.epoch == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no epoch yet", dir);
    if (status == FR_OK) {
        put_question(q, q->conf, json);
        put_epoch(state->status.timeline, state->status.epoch, json);
        put_found(state, q->conf, json);
    }
    fr_tool_state_close(state);
    return status;
}

/* ---- a topic ---- */

static enum fr_status put_served(const struct question *q, struct freshet_replica *replica, struct fr_json *json,
                                 struct fr_err *err)
{
    const struct fr_conf_table *table = &q->conf->tables[q->at.table];
    struct freshet_replica_info info;
    float values[FR_DIM_MAX];
    freshet_replica_get_info(replica, &info);
    put_question(q, q->conf, json);
    put_epoch(info.timeline, info.epoch, json);
    for (uint32_t p = 0; p < table->n_parts; p++) {
        uint32_t dim = table->parts[p].dim;
        int status = freshet_replica_row(replica, table->name, table->parts[p].name, q->at.key, values, &dim);
        if (status == FRESHET_E_NOT_FOUND && p == 0) {
            fr_json_text(json, "state", "none");
            return FR_OK;
        }
        if (status != FRESHET_OK || dim != table->parts[p].dim)
            return fr_err_set(err, FR_E_MISMATCH,
                              "the replica holds another model than the configuration describes, or none yet");
        if (p == 0) {
            fr_json_text(json, "state", "row");
            fr_json_object(json, "parts");
        }
        fr_json_floats(json, table->parts[p].name, values, dim);
    }
    fr_json_end(json);
    return FR_OK;
}

static enum fr_status row_of_topic(struct question *q, const struct fr_consume_options *topic, struct fr_json *json,
                                   struct fr_err *err)
{
    struct fr_tool_served served = {0};
    enum fr_status status = find_key(q->conf, q, err);
    if (status == FR_OK)
        status = fr_tool_served_topic(topic, "row", &served, err);
    if (status == FR_OK)
        status = put_served(q, served.replica, json, err);
    fr_tool_served_close(&served);
    return status;
}

/* ---- the command line ---- */

static int run(struct question *q, const char *dir, const struct fr_consume_options *topic)
{
    struct fr_buffer out = {0};
    struct fr_json json = {.out = &out};
    struct fr_err err = {0};
    int code = FR_TOOL_OK;
    if ((dir ? row_of_state(q, dir, &json, &err) : row_of_topic(q, topic, &json, &err)) != FR_OK) {
        code = fr_tool_fail("row", &err);
    } else {
        fr_json_end(&json);
        fr_put_u8(&out, '\n');
        code = fr_tool_write_stdout(NULL, out.data, out.size) == 0 && fflush(stdout) == 0 ? FR_TOOL_OK : FR_TOOL_FAILED;
    }
    fr_buffer_release(&out);
    return code;
}

int fr_tool_row(int argc, char **argv)
{
    struct question q = {0};
    const char *dir = NULL, *sets[FR_TOOL_SETS_MAX], *properties[FR_FOLLOW_PROPERTIES_MAX];
    struct fr_conf_load_options load = {.sets = sets};
    struct fr_consume_options topic = {.properties = properties};
    const struct fr_tool_option options[] = {
        {.name = "--slot", .value = &q.slot},
        {.name = "--id", .value = &q.id},
        {.name = "--table", .value = &q.table_name},
        {.name = "--key", .value = &q.key_text},
        {.name = "--state-dir", .value = &dir},
        FR_TOOL_CONFIG_OPTIONS(load, sets, false),
        FR_TOOL_TOPIC_OPTIONS(topic, properties, false),
    };
    int code = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (code != FR_TOOL_OK)
        return code;
    bool by_id = q.slot && q.id && !q.table_name && !q.key_text,
         by_key = q.table_name && q.key_text && !q.slot && !q.id;
    bool of_state = dir && !load.path && !topic.brokers && !topic.topic;
    bool of_topic = load.path && topic.brokers && topic.topic && !dir;
    if ((!by_id && !by_key) || (!of_state && !of_topic)) {
        fprintf(stderr, "freshet row: %s\n\n%s",
                by_id || by_key ? "give --state-dir, or --config, --brokers and --topic"
                                : "give --slot and --id, or --table and --key",
                usage);
        return FR_TOOL_USAGE;
    }
    if (by_key && !fr_tool_option_u64("freshet row: --key", q.key_text, 0, UINT64_MAX, &q.at.key))
        return FR_TOOL_USAGE;
    code = dir ? FR_TOOL_OK : fr_tool_load_conf(&load, &q.conf);
    if (code == FR_TOOL_OK)
        code = run(&q, dir, &topic);
    fr_conf_free(q.conf);
    return code;
}
